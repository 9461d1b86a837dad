"""Where programs look for the class of a service's errors, too."""

from botocore.client import Exceptions as BaseClientExceptions  # noqa: F401
from botocore.exceptions import ClientError  # noqa: F401


def __getattr__(name):
    from botocore import _real

    return _real.rest_of(__name__, name)
