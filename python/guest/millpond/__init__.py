"""What Python functions of Millpond run in. Functions need none of it: they are plain Lambda handlers."""
