"""Where programs look for the class of a service's errors, too."""

from botocore import rest_of
from botocore.client import Exceptions as BaseClientExceptions  # noqa: F401
from botocore.exceptions import ClientError  # noqa: F401


__getattr__ = rest_of(__name__)
