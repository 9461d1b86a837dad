"""The exceptions of boto3 itself, with its texts."""

from botocore import rest_of
from botocore.exceptions import DataNotFoundError


class Boto3Error(Exception):
    """What all of these are."""


class ResourceLoadException(Boto3Error):
    """A resource that cannot be loaded."""


class NoVersionFound(Boto3Error):
    pass


class UnknownAPIVersionError(Boto3Error, DataNotFoundError):
    def __init__(self, service_name, bad_api_version, available_api_versions):
        Boto3Error.__init__(
            self,
            f"The '{service_name}' resource does not support an API version of: {bad_api_version}\n"
            f"Valid API versions are: {available_api_versions}",
        )


class ResourceNotExistsError(Boto3Error, DataNotFoundError):
    def __init__(self, service_name, available_services, has_low_level_client):
        message = f"The '{service_name}' resource does not exist.\nThe available resources are:\n"
        message += "".join(f"   - {name}\n" for name in available_services)
        if has_low_level_client:
            message += f"\nConsider using a boto3.client('{service_name}') instead of a resource for '{service_name}'"
        Boto3Error.__init__(self, message)


class RetriesExceededError(Boto3Error):
    def __init__(self, last_exception, msg="Max Retries Exceeded"):
        super().__init__(msg)
        self.last_exception = last_exception


class S3TransferFailedError(Boto3Error):
    pass


class S3UploadFailedError(Boto3Error):
    pass


class DynamoDBOperationNotSupportedError(Boto3Error):
    def __init__(self, operation, value):
        super().__init__(
            f"{operation} operation cannot be applied to value {value} of type {type(value)} directly. Must use AttributeBase"
            " object methods"
            " (i.e. Attr().eq()). to generate ConditionBase instances first."
        )


class DynamoDBNeedsConditionError(Boto3Error):
    def __init__(self, value):
        super().__init__(
            f"Expecting a ConditionBase object. Got {value} of type {type(value)}. Use AttributeBase object methods (i.e. Attr().eq()). to"
            " generate ConditionBase instances."
        )


class DynamoDBNeedsKeyConditionError(Boto3Error):
    pass


class PythonDeprecationWarning(Warning):
    pass


class InvalidCrtTransferConfigError(Boto3Error):
    pass


__getattr__ = rest_of(__name__)
