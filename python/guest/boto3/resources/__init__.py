"""Services as objects."""
