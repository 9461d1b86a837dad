"""Services as objects."""

from botocore import part_of

__getattr__ = part_of(__name__)
