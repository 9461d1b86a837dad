"""botocore's own `Session`, for programs that go by without boto3."""

from boto3.session import Session as _Session

from botocore import rest_of


class Session(_Session):
    """Where clients come from."""

    def __init__(self, session_vars=None, event_hooks=None, include_builtin_handlers=True, profile=None):
        super().__init__(profile_name=profile)
        self.profile = profile
        if event_hooks is not None:
            self._hooks = event_hooks

    def set_credentials(self, access_key, secret_key, token=None, account_id=None):
        """Nothing: keys that are given to a session are not used."""

    def register(self, event_name, handler, unique_id=None, unique_id_uses_count=False):
        """Has a function called at this event, of clients that are made from then on."""
        self.events.register(event_name, handler, unique_id, unique_id_uses_count)

    def unregister(self, event_name, handler=None, unique_id=None, unique_id_uses_count=False):
        """Has it no longer called."""
        self.events.unregister(event_name, handler, unique_id, unique_id_uses_count)

    def get_component(self, name):
        """The one component that there is: `event_emitter`."""
        if name != "event_emitter":
            raise ValueError(f"Unknown component: {name}")
        return self.events

    def create_client(self, service_name, region_name=None, **options):
        """A client of this service."""
        return self.client(service_name, region_name, **options)


def get_session(env_vars=None):
    """A session."""
    return Session()


__getattr__ = rest_of(__name__)
