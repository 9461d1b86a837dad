"""`Session`. There are no credentials here, whatever is given as such: the backend has those that the function is granted."""

import os

from botocore import rest_of
from botocore.client import SERVICES
from botocore.config import Config  # noqa: F401


class Session:
    """Where clients come from."""

    def __init__(
        self,
        aws_access_key_id=None,
        aws_secret_access_key=None,
        aws_session_token=None,
        region_name=None,
        botocore_session=None,
        profile_name=None,
        aws_account_id=None,
    ):
        self._region_name = region_name
        self.profile_name = profile_name or "default"
        self.available_profiles = []
        self._hooks = botocore_session._hooks if botocore_session is not None else None

    def __repr__(self):
        return f"Session(region_name={self.region_name!r})"

    @property
    def region_name(self):
        return self._region_name or os.environ.get("AWS_DEFAULT_REGION")

    def get_credentials(self):
        """None: they do not come into the sandbox."""

    @property
    def events(self):
        """Where hooks are registered, of all clients that are made from then on."""
        if self._hooks is None:
            from botocore import _hooks

            self._hooks = _hooks.Events()
        return self._hooks

    def get_partition_for_region(self, region_name):
        """Which of AWS's partitions a region is of, by its name."""
        return {"cn": "aws-cn", "us-gov": "aws-us-gov"}.get(region_name.rsplit("-", 2)[0], "aws")

    def get_available_services(self):
        return list(SERVICES)

    def get_available_resources(self):
        return ["s3"]

    def client(
        self,
        service_name,
        region_name=None,
        api_version=None,
        use_ssl=True,
        verify=None,
        endpoint_url=None,
        aws_access_key_id=None,
        aws_secret_access_key=None,
        aws_session_token=None,
        config=None,
        aws_account_id=None,
    ):
        """A client of this service."""
        region_name = region_name or self._region_name
        if service_name in SERVICES:
            return SERVICES[service_name](region_name, endpoint_url, config, self._hooks)
        from botocore import _real

        options = {"region_name": region_name or self.region_name, "endpoint_url": endpoint_url, "config": config}
        if _real.is_there():
            return _real.client(f"the service '{service_name}'", service_name, self._hooks, **options)
        from botocore import _absent

        return _absent.Client(service_name, **options)

    def resource(
        self, service_name, region_name=None, api_version=None, use_ssl=True, verify=None, endpoint_url=None, config=None, **_credentials
    ):
        """This service as objects."""
        region_name = region_name or self._region_name
        if service_name == "s3" and not (self._hooks and self._hooks.are_of_resources()):
            from boto3.resources.s3 import ServiceResource

            return ServiceResource(client=self.client("s3", region_name=region_name, endpoint_url=endpoint_url, config=config))
        from botocore import _real

        options = {"region_name": region_name or self.region_name, "endpoint_url": endpoint_url, "config": config}
        if _real.is_there():
            return _real.resource(service_name, self._hooks, **options)
        from botocore import _absent

        return _absent.resource(service_name, **options)


__getattr__ = rest_of(__name__)
