"""What all resources have, and how their parts are declared.

A resource is known by its identifiers; what else is known of it is `meta.data`, loaded when first asked for and forgotten with each action.
"""

from botocore import rest_of
from botocore._names import snake
from botocore.client import operation_of

from boto3.exceptions import ResourceLoadException


class ResourceMeta:
    """What a resource knows about itself."""

    def __init__(self, service_name, identifiers, client, data=None):
        self.service_name, self.identifiers, self.client, self.data = service_name, identifiers, client, data

    def __repr__(self):
        return f"ResourceMeta('{self.service_name}', identifiers={self.identifiers})"

    def __eq__(self, other):
        return type(other) is type(self) and other.__dict__ == self.__dict__

    __hash__ = None

    def copy(self):
        return ResourceMeta(self.service_name, self.identifiers, self.client, self.data)


class ServiceResource:
    """One thing of a service.

    `identifiers` are, by attribute, the parameters that all its operations have; `shape` gives the members that are attributes.
    """

    identifiers = {}
    loads = None
    title = "s3"

    def __init__(self, *args, client=None, data=None, **kwargs):
        names = list(self.identifiers)
        if len(args) > len(names):
            raise IndexError("list index out of range")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in names:
                raise ValueError(f"Unknown keyword argument: {name}")
            given[name] = value
        for name in names:
            if given.get(name) is None:
                raise ValueError(f"Required parameter {name} not set")
            self.__dict__[f"_{name}"] = given[name]
        self.meta = ResourceMeta("s3", names, client, data)

    def __init_subclass__(cls):
        cls.__qualname__ = cls.__name__ = f"s3.{cls.__name__}"
        if cls.identifiers:
            cls.title = cls.__name__
        for name in cls.identifiers:
            setattr(cls, name, property(lambda self, name=f"_{name}": self.__dict__[name]))
        if cls.loads:
            cls.load = cls.reload = _load
        cls._attributes = None

    def __repr__(self):
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.identifiers)
        return f"{type(self).__name__}({values})"

    def __eq__(self, other):
        return type(self) is type(other) and all(getattr(self, name) == getattr(other, name) for name in self.identifiers)

    def __hash__(self):
        return hash((type(self).__name__, *(getattr(self, name) for name in self.identifiers)))

    @classmethod
    def shape(cls):
        """The members that are attributes: those of what `loads` it."""
        operation = operation_of(cls.loads)
        return [member.name for member in operation.fields] + list(
            operation.document if operation.document_member is None else [operation.document_member.name]
        )

    @classmethod
    def attributes(cls):
        """Members by the names of their attributes."""
        if cls._attributes is None:
            hidden = [*cls.identifiers, "body"]
            cls._attributes = {snake(name): name for name in cls.shape() if snake(name) not in hidden}
        return cls._attributes

    def __getattr__(self, name):
        if name.startswith("_") or name not in self.attributes():
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        if self.meta.data is None:
            if not hasattr(self, "load"):
                raise ResourceLoadException(f"{type(self).__name__} has no load method")
            self.load()
        return self.meta.data.get(self.attributes()[name])

    def __dir__(self):
        return [*super().__dir__(), *self.attributes()]

    def get_available_subresources(self):
        """The names of what can be made from it."""
        return sorted(name for name in dir(type(self)) if name[0].isupper())

    def parameters(self):
        """What all its operations are called with."""
        return {parameter: getattr(self, name) for name, parameter in self.identifiers.items()}

    def made(self, kind, *identifiers, data=None):
        """Another resource, of the same client."""
        return kind(*identifiers, client=self.meta.client, data=data)


def _load(self):
    """Asks what is known of it."""
    self.meta.data = getattr(self.meta.client, snake(self.loads))(**self.parameters())


def action(operation, then=None, **fixed):
    """A method that calls an operation. `then` makes what it returns from the resource, the parameters and the answer."""

    def act(self, **kwargs):
        parameters = _merged(self.parameters(), fixed, kwargs)
        answer = getattr(self.meta.client, snake(operation))(**parameters)
        if hasattr(self, "load"):
            self.meta.data = None
        return then(self, parameters, answer) if then else answer

    return act


def _merged(*documents):
    merged = {}
    for document in documents:
        for name, value in document.items():
            merged[name] = _merged(merged[name], value) if isinstance(value, dict) and isinstance(merged.get(name), dict) else value
    return merged


def waits(name):
    """A method that waits."""

    def wait(self, **kwargs):
        self.meta.client.get_waiter(name).wait(**self.parameters(), **kwargs)

    return wait


class Collection:
    """Resources that a list tells of, page by page. `items` makes one page's from its answer."""

    def __init__(self, parent, manager, parameters=None, limit=None, page_size=None):
        self._parent, self._manager = parent, manager
        self._parameters, self._limit, self._page_size = parameters or {}, limit, page_size

    def __repr__(self):
        return f"{self._manager.title}Collection({self._parent!r}, s3.{self._manager.kind})"

    def _with(self, limit=None, page_size=None, **parameters):
        return Collection(
            self._parent,
            self._manager,
            _merged(self._parameters, parameters),
            self._limit if limit is None else limit,
            page_size or self._page_size,
        )

    def all(self):
        return self._with()

    def filter(self, **kwargs):
        return self._with(**kwargs)

    def limit(self, count):
        return self._with(limit=count)

    def page_size(self, count):
        return self._with(page_size=count)

    def pages(self):
        """Lists of resources, as many as a page has."""
        paginator = self._parent.meta.client.get_paginator(snake(self._manager.operation))
        config = {"MaxItems": self._limit, "PageSize": self._page_size}
        left = self._limit
        for page in paginator.paginate(PaginationConfig=config, **_merged(self._parent.parameters(), self._parameters)):
            items = self._manager.items(self._parent, page)
            yield items if left is None else items[:left]
            if left is not None:
                left -= len(items)
                if left <= 0:
                    return

    def __iter__(self):
        for page in self.pages():
            yield from page

    def delete(self, **kwargs):
        """Deletes all of them, one request for each page."""
        if not self._manager.batch:
            raise AttributeError(f"'{self._manager.title}Collection' object has no attribute 'delete'")
        answers = []
        for page in self.pages():
            if page:
                named = {"Objects": [one.parameters_of_batch() for one in page]}
                bucket = page[0].bucket_name
                request = _merged({"Bucket": bucket, "Delete": named}, kwargs)
                answers.append(self._parent.meta.client.delete_objects(**request))
        return answers


class Many:
    """A collection as an attribute: `all`, `filter`, `limit`, `page_size`, `pages` and `delete` begin there."""

    def __init__(self, operation, kind, items, batch=False):
        self.operation, self.kind, self.items, self.batch = operation, kind, items, batch

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, parent, owner):
        return self if parent is None else _Manager(parent, self, f"{parent.title}.{self.name}")


class _Manager:
    def __init__(self, parent, many, title):
        self._parent, self._many, self.title = parent, many, title
        self.kind, self.operation, self.items, self.batch = many.kind, many.operation, many.items, many.batch

    def __repr__(self):
        return f"{self.title}CollectionManager({self._parent!r}, s3.{self.kind})"

    def __iter__(self):
        return iter(self.all())

    def iterator(self, **kwargs):
        return Collection(self._parent, self)._with(**kwargs)

    def __getattr__(self, name):
        if name not in ("all", "filter", "limit", "page_size", "pages", "delete"):
            raise AttributeError(f"'{self.title}CollectionManager' object has no attribute '{name}'")
        return getattr(Collection(self._parent, self), name)


__getattr__ = rest_of(__name__)
