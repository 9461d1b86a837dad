"""botocore's own `Session`, for programs that go by without boto3."""

from boto3.session import Session as _Session


class Session(_Session):
    """Where clients come from."""

    def create_client(self, service_name, region_name=None, **options):
        """A client of this service."""
        return self.client(service_name, region_name, **options)


def get_session(env_vars=None):
    """A session."""
    return Session()
