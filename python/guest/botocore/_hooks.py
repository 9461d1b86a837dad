"""Event hooks: what a program has called at the steps of a call, by `client.meta.events` and `session.events`.

Hooks of parameters, requests and answers are called here, as the real boto3 calls them, and what they change is done. There is nothing to
choose a signer for. What needs more of the real one (retries, answers as they came, a call before it is sent) is its own: a client that has
such a hook has all it does done by the real one, if the function brings that; if not, the hook is refused where it is registered.
"""

import copy
import inspect
from collections.abc import MutableMapping

from botocore import _real
from botocore._names import snake
from botocore.exceptions import BotoCoreError, ClientError

# The steps at which hooks are called by the real one alone. At `choose-signer` none is called, as there is nothing to sign.
_BEYOND = (
    "before-endpoint-resolution", "before-send", "response-received", "before-parse", "needs-retry", "getattr", "choose-service-name",
    "service-data-loaded", "creating-resource-class", "*",
)  # fmt: skip
# Where resources' classes are made. Hooks of a session have these made by the real one, whatever its clients are.
_RESOURCES = "creating-resource-class"
# The services whose clients are here, as events have them.
_OURS = ("s3", "lambda")
# In the order in which those of one pattern are called.
_VERBS = ("register_first", "register", "register_last")


class Hook:
    """One function at one event, or all that its pattern matches."""

    def __init__(self, event_name, handler, unique_id, uses_count, section):
        self.event_name, self.parts, self.handler = event_name, event_name.split("."), handler
        self.unique_id, self.uses_count, self.section = unique_id, uses_count, section

    def rank(self, parts):
        """Where it stands among those of this event, greatest first: longer patterns are called before their beginnings, `*` before a name. `None` if it
        is not one of them."""
        if len(self.parts) > len(parts) or any(one not in ("*", other) for one, other in zip(self.parts, parts, strict=False)):
            return None
        return [one == "*" for one in self.parts]

    def is_beyond(self, services):
        """Whether clients of these services, or resources, would have to be the real one's for it to be called."""
        kind, *rest = self.parts
        return kind in _BEYOND and bool(services) and (not rest or rest[0] == "*" or rest[0] in services)


class Events:
    """Where hooks are registered and called: those of a client, of which it is given what that knows about itself, or those of a session."""

    def __init__(self, meta=None):
        self._meta = meta
        self._services = [name for name in _OURS if meta is None or name == meta.service_model.service_id.hyphenize()]
        self._hooks, self._followers, self._others = [], [], []
        self.is_beyond = False

    def register(self, event_name, handler, unique_id=None, unique_id_uses_count=False):
        """Has a function called at this event. It takes what it is told as keyword arguments."""
        self._register("register", event_name, handler, unique_id, unique_id_uses_count)

    def register_first(self, event_name, handler, unique_id=None, unique_id_uses_count=False):
        """The same, before others."""
        self._register("register_first", event_name, handler, unique_id, unique_id_uses_count)

    def register_last(self, event_name, handler, unique_id=None, unique_id_uses_count=False):
        """The same, after others."""
        self._register("register_last", event_name, handler, unique_id, unique_id_uses_count)

    def _register(self, verb, event_name, handler, unique_id, uses_count):
        _check(handler)
        hook = Hook(event_name, handler, unique_id, uses_count, _VERBS.index(verb))
        is_beyond = hook.is_beyond(self._services)
        if is_beyond and not _real.is_there():
            raise _real.Missing(what=f"the event hook {event_name}")
        if unique_id is None or all(other.unique_id != unique_id for other in self._hooks):
            # A call that is under way has the list as it was.
            self._hooks = [*self._hooks, hook]
        self._say(verb, event_name, handler, unique_id, uses_count)
        if is_beyond and hook.parts[0] != _RESOURCES and not self.is_beyond:
            self.is_beyond = True
            if self._meta is not None:
                self._meta.turn()

    def unregister(self, event_name, handler=None, unique_id=None, unique_id_uses_count=False):
        """Has it no longer called. It need not have been."""
        for hook in self._hooks:
            is_it = hook.unique_id == unique_id if unique_id is not None else hook.handler == handler
            if is_it and hook.event_name == event_name:
                self._hooks = [other for other in self._hooks if other is not hook]
                break
        else:
            # One of the real one's own, maybe.
            what = (event_name, handler, unique_id, unique_id_uses_count)
            if what not in self._others:
                self._others.append(what)
        self._say("unregister", event_name, handler, unique_id, unique_id_uses_count)

    def _say(self, verb, *what):
        for follower in self._followers:
            getattr(follower, verb)(*what)

    def tell(self, other):
        """Registers with another what is registered here."""
        for hook in self._hooks:
            getattr(other, _VERBS[hook.section])(hook.event_name, hook.handler, hook.unique_id, hook.uses_count)
        for what in self._others:
            other.unregister(*what)

    def follow(self, other):
        """Registers with another what will be registered here."""
        self._followers.append(other)

    def made(self, meta):
        """A client's own: these, and what is registered there."""
        events = Events(meta)
        self.tell(events)
        return events

    def are_of_resources(self):
        """Whether one is called where a resource's class is made."""
        return any(hook.parts[0] == _RESOURCES and hook.is_beyond(self._services) for hook in self._hooks)

    def _at(self, event_name):
        parts, sections = event_name.split("."), {}
        for hook in self._hooks:
            rank = hook.rank(parts)
            if rank is not None:
                sections.setdefault((tuple(rank), -hook.section), []).append(hook.handler)
        return [handler for where in sorted(sections, reverse=True) for handler in sections[where]]

    def emit(self, event_name, **told):
        """Calls them: each with what it returned."""
        return [(handler, handler(event_name=event_name, **told)) for handler in self._at(event_name)]

    def emit_until_response(self, event_name, **told):
        """Calls them until one returns something."""
        for handler in self._at(event_name):
            response = handler(event_name=event_name, **told)
            if response is not None:
                return handler, response
        return None, None


def _check(handler):
    if not callable(handler):
        raise ValueError(f"Event handler {handler} must be callable.")
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):
        return
    if all(one.kind is not one.VAR_KEYWORD for one in parameters):
        raise ValueError(f"Event handler {handler} must accept keyword arguments (**kwargs)")


def classes(events, kind):
    """The class of a client, as hooks have changed it."""
    name = kind.service
    attributes, bases = {key: value for key, value in vars(kind).items() if not key.startswith("_")}, [kind]
    seen = dict(attributes)
    events.emit(f"creating-client-class.{name}", class_attributes=attributes, base_classes=bases)
    if attributes == seen and bases == [kind]:
        return kind
    return type(kind.__name__, tuple(bases), attributes)


class Headers(MutableMapping):
    """Header fields of a request or an answer, whose names are the same in capitals."""

    def __init__(self, fields):
        self._fields = {name.lower(): (name, value) for name, value in fields}

    def __getitem__(self, name):
        return self._fields[name.lower()][1]

    def __setitem__(self, name, value):
        self._fields[name.lower()] = (name, value.decode("latin-1") if isinstance(value, bytes) else str(value))

    def __delitem__(self, name):
        # As a message's fields are deleted: those that are not there, too.
        self._fields.pop(name.lower(), None)

    def __iter__(self):
        return iter([name for name, _ in self._fields.values()])

    def __len__(self):
        return len(self._fields)

    def __repr__(self):
        return repr(dict(self))

    add_header = replace_header = __setitem__

    def get_all(self, name, failobj=None):
        """All fields of a name: one, if it is there."""
        return [self[name]] if name in self else failobj


class Seen:
    """What a hook is shown: some of what the real one shows."""

    def __init__(self, title, **attributes):
        self._title = title
        self.__dict__.update(attributes)

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        raise _real.Missing(what=f"{self._title}.{name} in an event hook")


class Call:
    """One call's hooks, and what they share."""

    def __init__(self, client, operation_name, **context):
        meta = client.meta
        self._events, self._meta, self._name = meta.events, meta, operation_name
        self._where = f"{meta.service_model.service_id.hyphenize()}.{operation_name}"
        self._model = Seen("model", name=operation_name, wire_name=operation_name, service_model=meta.service_model)
        self.is_sent = False
        self._context = {"client_region": meta.region_name, "client_config": meta.config} | context

    def parameters(self, params):
        """What the call is made with."""
        told = {"model": self._model, "context": self._context}
        responses = self._events.emit(f"provide-client-params.{self._where}", params=params, **told)
        params = next((response for _, response in responses if response is not None), params)
        self._events.emit(f"before-parameter-build.{self._where}", params=params, **told)
        return params

    def before(self, request):
        """Shows the request, which may be changed. If a hook answers in the server's place: status, header fields and answer."""
        path, _, query = request.target.partition("?")
        shown = {"url_path": path, "query_string": query, "method": request.method, "url": self._url(request), "context": self._context}
        shown |= {"headers": _shown(request), "body": request.body}
        told = {"model": self._model, "params": shown, "request_signer": None, "context": self._context}
        _, response = self._events.emit_until_response(f"before-call.{self._where}", **told)
        self._take(request, shown["method"], shown["url"], shown["headers"], shown["body"])
        if response is None:
            return None
        answered, answer = response
        return answered.status_code, dict(getattr(answered, "headers", None) or {}), answer

    def attempted(self, request):
        """The request as this attempt sends it."""
        self.is_sent = True
        request = copy.copy(request)
        shown = {"method": request.method, "url": self._url(request), "headers": _shown(request), "data": request.body}
        shown = Seen("request", **shown, body=request.body, params={}, context=self._context, auth_path=None, stream_output=False)
        self._events.emit(f"request-created.{self._where}", request=shown, operation_name=self._name)
        told = {"signing_name": self._meta.service_model.signing_name, "region_name": self._meta.region_name, "request_signer": None}
        told["signature_version"] = self._meta.config.signature_version
        self._events.emit(f"before-sign.{self._where}", request=shown, operation_name=self._name, **told)
        self._take(request, shown.method, shown.url, shown.headers, shown.data)
        return request

    def after(self, status, headers, answer):
        """Shows the answer, which may be changed."""
        shown = Seen("http_response", status_code=status, headers=Headers(headers.items()), url=self._meta.endpoint_url)
        self._events.emit(f"after-call.{self._where}", http_response=shown, parsed=answer, model=self._model, context=self._context)

    def failed(self, error):
        """Shows why there is no answer."""
        self._events.emit(f"after-call-error.{self._where}", exception=error, context=self._context)

    def _url(self, request):
        return self._meta.endpoint_url.rstrip("/") + request.target

    def _take(self, request, method, url, headers, body):
        """Makes the request what it was shown as."""
        endpoint = self._meta.endpoint_url.rstrip("/")
        if not url.startswith(f"{endpoint}/"):
            raise _real.Missing(what=f"a request that an event hook sends to {url}, which is not at {endpoint},")
        request.method, request.target = method, url[len(endpoint) :]
        kept = [field for field in request.fields if field[0].startswith("x-millpond-")]
        request.fields = kept + [(name.lower(), value) for name, value in headers.items() if name.lower() not in _real.DROPPED]
        if body is not request.body:
            request.length = None
            request.put_body(body)
        request.weigh()


def _shown(request):
    return Headers([field for field in request.fields if not field[0].startswith("x-millpond-")])


def called(client, operation_name, params):
    """A call of a client that has hooks."""
    if client.meta.events.is_beyond:
        return _theirs(client, operation_name, params)
    call = Call(client, operation_name)
    try:
        return client._call(operation_name, params, call)
    except BotoCoreError as error:
        if call.is_sent:
            call.failed(error)
        raise


def _theirs(client, operation_name, params):
    try:
        return getattr(client._theirs("operation", snake(operation_name)), snake(operation_name))(**params)
    except ClientError as error:
        # Of a class that whoever has this client knows.
        raise client.exceptions.from_code(error.response["Error"].get("Code"))(error.response, operation_name) from error
