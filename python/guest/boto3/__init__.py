"""The boto3 that functions of Millpond find: S3 by way of the backend, and the real one, if the function brings it, for all else."""

__version__ = "1.44.5"
__author__ = "Millpond"

DEFAULT_SESSION = None


def setup_default_session(**kwargs):
    """Makes the session that `client` and `resource` are of."""
    global DEFAULT_SESSION
    DEFAULT_SESSION = Session(**kwargs)


def set_stream_logger(name="boto3", level=10, format_string=None):
    """Has what `name` logs written to the standard error."""
    import logging

    handler = logging.StreamHandler()
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(format_string or "%(asctime)s %(name)s [%(levelname)s] %(message)s"))
    logger = logging.getLogger(name)
    logger.setLevel(level)
    logger.addHandler(handler)


def _get_default_session():
    if DEFAULT_SESSION is None:
        setup_default_session()
    return DEFAULT_SESSION


def client(*args, **kwargs):
    """A client of a service, of the default session."""
    return _get_default_session().client(*args, **kwargs)


def resource(*args, **kwargs):
    """A service as objects, of the default session."""
    return _get_default_session().resource(*args, **kwargs)


# What it is made of may ask for this module's names.
from botocore import part_of  # noqa: E402

from boto3.session import Session  # noqa: E402

__getattr__ = part_of(__name__)
