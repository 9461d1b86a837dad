"""Clients and resources of services that nobody carries. A module may make them beside S3's, as on Lambda; what fails is their use."""

from botocore.client import ClientMeta, Exceptions, ServiceModel, region_of
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError


# The services that boto3 has as objects.
RESOURCES = ("cloudformation", "cloudwatch", "dynamodb", "ec2", "glacier", "iam", "s3", "sns", "sqs")


class Unreachable(EndpointConnectionError):
    """What is asked of a service to which no way leads."""

    fmt = "{what}: this does not reach the network from a Millpond function: {why}"


_WHY = (
    "services of AWS other than S3 and Lambda are asked by the real boto3, and the function does not bring it. Add boto3 to the function's"
    " requirements, and what it may ask for to its manifest, as [[function.NAME.grants.aws]]"
)


class Named:
    """What has all names that do not begin with an underscore."""

    def __init__(self, title):
        self._title = title

    def __repr__(self):
        return f"<{self._title}>"

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return Use(f"{self._title}.{name}")


class Use(Named):
    """A method, an attribute or a collection, as the case may be. What is done with it fails."""

    def _fail(self, *_args, **_kwargs):
        raise Unreachable(what=self._title, why=_WHY)

    __call__ = __iter__ = __len__ = __getitem__ = __bool__ = __str__ = __format__ = _fail


class Later(Use):
    """A paginator or a waiter: pages fail when somebody goes through them."""

    def paginate(self, **_kwargs):
        return Use(self._title)


class AnyExceptions(Exceptions):
    """The classes of a service's errors, whose codes are not known here."""

    def __init__(self):
        super().__init__("")

    def __getattr__(self, name):
        if not name[:1].isupper():
            raise AttributeError(f"{self!r} object has no attribute {name}")
        return self.__dict__.setdefault(name, type(name, (ClientError,), {"__module__": "botocore.errorfactory"}))


class Client(Named):
    """A client: what it has in common with others is there."""

    def __init__(self, service_name, region_name=None, endpoint_url=None, config=None):
        super().__init__(service_name)
        config = config or Config()
        region = region_of(region_name, config)
        endpoint_url = endpoint_url or f"https://{service_name}.{region}.amazonaws.com"
        model = ServiceModel(service_name, service_name, None, ())
        self.meta = ClientMeta(model, region, endpoint_url, config.merge(Config(region_name=region)))
        self.exceptions = AnyExceptions()

    def get_paginator(self, operation_name):
        return Later(f"{self._title}.{operation_name}")

    get_waiter = get_paginator

    def close(self):
        """Nothing: there are no connections here."""


class Resource(Named):
    """A resource: names that begin with a capital make others from it."""

    def __init__(self, title, meta):
        super().__init__(title)
        self.meta = meta

    def __getattr__(self, name):
        if not name[:1].isupper():
            return super().__getattr__(name)

        def make(*args, **kwargs):
            values = [*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())]
            return Resource(f"{self._title}.{name}({', '.join(values)})", self.meta)

        return make


class ResourceMeta:
    """What a resource knows about itself."""

    def __init__(self, client):
        self.service_name, self.client, self.identifiers, self.data = client.meta.service_model.service_name, client, [], None


def resource(service_name, **options):
    """A service as objects."""
    if service_name not in RESOURCES:
        from boto3.exceptions import ResourceNotExistsError

        raise ResourceNotExistsError(service_name, RESOURCES, True)
    return Resource(service_name, ResourceMeta(Client(service_name, **options)))
