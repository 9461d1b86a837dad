"""botocore's own `Session`, for programs that go by without boto3."""

from boto3.session import Session as _Session


class Session(_Session):
    """Where clients come from."""

    def __init__(self, session_vars=None, event_hooks=None, include_builtin_handlers=True, profile=None):
        super().__init__(profile_name=profile)
        self.profile = profile

    def set_credentials(self, access_key, secret_key, token=None, account_id=None):
        """Nothing: keys that are given to a session are not used."""

    def create_client(self, service_name, region_name=None, **options):
        """A client of this service."""
        return self.client(service_name, region_name, **options)


def get_session(env_vars=None):
    """A session."""
    return Session()
