"""The real boto3, if the function brings it: for services, operations and modules that are not here.

Both go by the same names, so only one is in `sys.modules` at a time: ours, but while the real one is imported or makes a client. What it
made works on beside ours. Its errors are ours as well: who catches `botocore.exceptions.ClientError` catches both. While one thread makes
a client of the real one, another's call of ours may not find its modules: make clients when the module is imported, as Lambda's
documentation has it, too.
"""

import contextlib
import importlib
import io
import json
import os
import sys
import threading
from importlib.machinery import ModuleSpec, PathFinder

from botocore import _absent, _Finder, _shapes, exceptions
from botocore.client import CONDITIONS, CONDITIONS_OF_SOURCE
from botocore.exceptions import BotoCoreError

_NAMES = ("boto3", "botocore", "s3transfer")
# The folder of our packages, and the path without it.
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_lock = threading.RLock()
_modules = {}


class Missing(BotoCoreError, AttributeError):
    """Something that only the real boto3 can do, which is not there."""

    fmt = "{what} is not carried by Millpond's own boto3: add boto3 to the function's requirements to have the real one do it"


def _path():
    return [entry for entry in sys.path if os.path.abspath(entry or ".") != _OURS]


def is_there():
    """Whether the function brings a boto3 of its own."""
    return PathFinder.find_spec("boto3", _path()) is not None


def _taken():
    names = [name for name in sys.modules if name.partition(".")[0] in _NAMES]
    return {name: sys.modules.pop(name) for name in names}


@contextlib.contextmanager
def _aside():
    """The real one's modules in the place of ours."""
    with _lock:
        if _Finder.is_aside:
            yield
            return
        path, ours = sys.path, _taken()
        sys.modules.update(_modules)
        sys.path, _Finder.is_aside = _path(), True
        try:
            yield
        finally:
            _modules.update(_taken())
            sys.modules.update(ours)
            sys.path, _Finder.is_aside = path, False


def _real():
    """The real boto3; call it aside."""
    is_first = "boto3" not in _modules
    boto3 = importlib.import_module("boto3")
    if is_first:
        _share(importlib.import_module("botocore.exceptions"))
        importlib.import_module("botocore.httpsession").URLLib3Session.send = lambda self, request: carried(request)
        importlib.import_module("boto3.utils").import_module = _imported
        importlib.import_module("botocore.signers").RequestSigner.generate_presigned_url = _unsigned
    return boto3


def _imported(name):
    """A module that the real one imports once it is needed, where it would find ours."""
    with _aside():
        return importlib.import_module(name)


def _share(theirs):
    for name, other in list(vars(theirs).items()):
        mine = vars(exceptions).get(name)
        if isinstance(mine, type) and isinstance(other, type) and issubclass(mine, Exception):
            # Where the orders of bases contradict each other, a common base must do.
            with contextlib.suppress(TypeError):
                other.__bases__ = (*[base for base in other.__bases__ if base is not Exception], mine)
    # It would have said to its new base what it says to `Exception`.
    theirs.ClientError.__init__ = exceptions.ClientError.__init__


# Where the services are that are carried, as far as the real one knows: whoever carries a request knows where it goes.
_HOSTS = {"s3": "s3.millpond.invalid", "lambda": "lambda.millpond.invalid"}
# Options of a client that are about connections and signatures, which it does not make, and those that would lead elsewhere.
_UNHEARD = (
    "s3", "signature_version", "proxies", "proxies_config", "client_cert", "use_dualstack_endpoint", "use_fips_endpoint", "region_name",
    "sigv4a_signing_region_set", "auth_scheme_preference",
)  # fmt: skip
# Fields of a request that are the connection's, or the signature's that it has not.
DROPPED = ("host", "content-length", "transfer-encoding", "expect", "connection", "authorization", "accept-encoding")


# How operations are called that change nothing, beside these; and one that takes a task all the same.
_READS, _MORE_READS, _TAKES = ("BatchGet", "Describe", "Filter", "Get", "Head", "List"), ("Query", "Scan", "TransactGetItems"), "GetActivityTask"
# Of S3's operations by POST, those that may be done twice, by their queries; and what makes a deletion one on a condition.
_SAME_TWICE, _CONDITIONS = ("delete", "uploads"), (b"<ETag>", b"<LastModifiedTime>", b"<Size>")


def _is_same_twice(service, method, target, fields, body):
    """Whether it does no harm to do it again where it may have been done."""
    if method in ("GET", "HEAD"):
        return True
    if service == "s3":
        is_conditional = any(name.startswith((*CONDITIONS, CONDITIONS_OF_SOURCE)) for name in fields)
        if method == "POST":
            is_conditional |= any(condition in body for condition in _CONDITIONS)
            return target.partition("?")[2].partition("&")[0].rstrip("=") in _SAME_TWICE and not is_conditional
        return method in ("PUT", "DELETE") and not is_conditional
    # AWS's protocols say it in a field, or first in a form.
    name = fields.get("x-amz-target", "").rpartition(".")[2]
    if not name and body[:7] == b"Action=":
        name = bytes(body[7:]).partition(b"&")[0].decode()
    return name != _TAKES and (name.startswith(_READS) or name in _MORE_READS)


class _Carrier:
    """What the real one has for a session of HTTP: the one place where it would reach the network. Requests go to the backend, unsigned."""

    def __init__(self, service):
        self._service = service

    def send(self, request):
        host, service = _HOSTS.get(self._service), self._service
        scheme, _, rest = request.url.partition("://")
        where, slash, target = rest.partition("/")
        if host and (scheme, where) != ("http", host):
            return self._denied(request, f"{request.url}: a resource that is not reached by its name alone")
        from millpond import backend

        fields = {_text(name).lower(): _text(value) for name, value in request.headers.items()}
        body, length = _measured(request.body, fields)
        is_same_twice = _is_same_twice(self._service, request.method, target, fields, b"" if hasattr(body, "read") else body)
        fields = [field for field in fields.items() if field[0] not in DROPPED]
        if host is None:
            # Where it is, the node knows.
            service = "aws"
            fields.append(("x-millpond-service", self._service))
        try:
            reply = backend.call(service, request.method, slash + target, fields, body, length)
        except backend.Failed as failure:
            if failure.kind == "denied":
                return self._denied(request, failure.message)
            raise _broken(failure, request.url, is_same_twice) from failure
        body = _Body(reply, request.url, request.stream_output, is_same_twice)
        made = _modules["botocore.awsrequest"].AWSResponse(request.url, reply.status, dict(reply.headers), body)
        if not request.stream_output:
            _ = made.content
        return made

    def close(self):
        pass

    def _denied(self, request, message):
        """As the service would say it."""
        headers = {"content-type": "application/json", "x-amzn-errortype": "AccessDeniedException"}
        document = {"__type": "AccessDeniedException", "Message": message, "message": message}
        body = json.dumps(document).encode()
        if self._service == "s3":
            headers = {"content-type": "application/xml"}
            body = b"<Error><Code>AccessDenied</Code><Message>%s</Message></Error>" % _shapes.escaped(message).encode()
        elif _text(request.headers.get("content-type", "")).startswith("application/x-www-form-urlencoded"):
            headers = {"content-type": "text/xml"}
            body = b"<ErrorResponse><Error><Code>AccessDenied</Code><Message>%s</Message></Error></ErrorResponse>"
            body %= _shapes.escaped(message).encode()
        made = _modules["botocore.awsrequest"].AWSResponse(request.url, 403, headers, io.BytesIO(body))
        made._content = b"" if request.method == "HEAD" else body
        return made


class _Body:
    """A reply's body as the real one reads it. Its failures are the real one's."""

    def __init__(self, reply, url, is_stream, is_same_twice):
        self._reply, self._url, self._read = reply, url, 0
        self._is_stream, self._is_same_twice = is_stream, is_same_twice

    def read(self, amt=None, decode_content=None):
        from millpond import backend

        try:
            data = self._reply.read(-1 if amt is None else amt)
        except backend.Failed as failure:
            if failure.kind == "timeout" or (failure.kind == "lost" and not self._is_stream):
                raise _broken(failure, self._url, self._is_same_twice) from failure
            found = _modules["botocore.exceptions"].ResponseStreamingError
            raise found(error=failure, actual_bytes=self._read, expected_bytes=self._reply.length) from failure
        self._read += len(data)
        return data

    def readinto(self, buffer):
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def stream(self, amt=1 << 16, decode_content=None):
        while piece := self.read(amt):
            yield piece

    def readable(self):
        return True

    def tell(self):
        return self._read

    def close(self):
        self._reply.close()


def _text(value):
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _measured(body, fields):
    """A body, and its length if it is a file's. One whose length nobody knows is read."""
    if body is None:
        return b"", None
    if isinstance(body, str):
        return body.encode(), None
    if isinstance(body, (bytes, bytearray)):
        return body, None
    if fields.get("content-length", "").isdigit() and hasattr(body, "read"):
        return body, int(fields["content-length"])
    return (body.read() if hasattr(body, "read") else b"".join(body)), None


def _broken(failure, url, is_same_twice):
    """What the real one would raise where there is no answer. Where the backend is lost, it asks again only if that does no harm: else the error is one
    that it does not know."""
    theirs = _modules["botocore.exceptions"]
    if failure.kind == "lost" and not is_same_twice:
        made = type("UnansweredError", (exceptions.UnansweredError, theirs.BotoCoreError), {"__module__": exceptions.__name__})
        return made(endpoint_url=url, error=failure.message)
    made = {
        "unavailable": theirs.EndpointConnectionError,
        "busy": theirs.EndpointConnectionError,
        "timeout": theirs.ReadTimeoutError,
        "broken": theirs.ConnectionClosedError,
        "credentials": theirs.CredentialRetrievalError,
        "lost": theirs.ConnectionClosedError,
    }.get(failure.kind, theirs.HTTPClientError)
    return made(endpoint_url=url, error=failure.message, provider="the node", error_msg=failure.message)


def carried(request):
    """The answer to a request of the real one's that nobody carries."""
    raise _absent.Unreachable(what=f"{request.method} {request.url}", why="it is no request of a client")


def _unsigned(_self, _request, _region_name=None, _operation_name=None, **_options):
    raise NotImplementedError("the real boto3 has no credentials in a Millpond function, so it signs no URLs; S3's client of Millpond does")


def client(what, service_name, hooks=None, **options):
    """A client of the real one, with these hooks. `what` is asked for, in words."""
    return _made("client", what, service_name, hooks, options)


def resource(service_name, hooks=None, **options):
    """A resource of the real one."""
    return _made("resource", f"the resource '{service_name}'", service_name, hooks, options)


def _made(kind, what, service_name, hooks, options):
    if not is_there():
        raise Missing(what=what)
    with _aside():
        # Whoever sends it signs it: these are not looked at.
        session = _real().session.Session(aws_access_key_id="millpond", aws_secret_access_key="millpond")
        if hooks is not None:
            hooks.tell(session.events)
        config = options.pop("config", None)
        given = config._user_provided_options if config is not None else {}
        if service_name in _HOSTS:
            given = {name: value for name, value in given.items() if name not in _UNHEARD}
            given |= {"signature_version": importlib.import_module("botocore").UNSIGNED, "s3": {"addressing_style": "path"}}
            options["endpoint_url"] = f"http://{_HOSTS[service_name]}"
        if given:
            options["config"] = importlib.import_module("botocore.config").Config(**given)
        made = getattr(session, kind)(service_name, **options)
        importlib.import_module("botocore.awsrequest")
        one = made if kind == "client" else made.meta.client
        one._endpoint.http_session = _Carrier(service_name)
        return made


class _Loader:
    """Hands out a module that is there already."""

    def __init__(self, module):
        self._module = module

    def create_module(self, _spec):
        return self._module

    def exec_module(self, _module):
        pass


def rest_of(module, name):
    """What the real one has in a module of which ours has a part."""
    if is_there():
        with _aside():
            _real()
            return getattr(importlib.import_module(module), name)
    raise AttributeError(f"module '{module}' has no attribute '{name}': {Missing(what='it')}")


def find_spec(name):
    """A module of the real one that is not among ours."""
    if not is_there():
        raise ModuleNotFoundError(f"No module named '{name}': {Missing(what='it')}", name=name)
    with _aside():
        _real()
        try:
            module = importlib.import_module(name)
        except ModuleNotFoundError:
            return None
    return ModuleSpec(name, _Loader(module), is_package=hasattr(module, "__path__"))
