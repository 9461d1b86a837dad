"""The real boto3, if the function brings it: for services, operations and modules that are not here.

Both go by the same names, so only one is in `sys.modules` at a time: ours, but while the real one is imported or makes a client. What it
made works on beside ours. Its errors are ours as well: who catches `botocore.exceptions.ClientError` catches both. While one thread makes
a client of the real one, another's call of ours may not find its modules: make clients when the module is imported, as Lambda's
documentation has it, too.
"""

import contextlib
import importlib
import os
import sys
import threading
from importlib.machinery import ModuleSpec, PathFinder

from botocore import _Finder, exceptions
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
        importlib.import_module("botocore.signers").RequestSigner.generate_presigned_url = _unsigned
    return boto3


def _share(theirs):
    for name, mine in vars(exceptions).items():
        other = getattr(theirs, name, None)
        if isinstance(mine, type) and isinstance(other, type) and issubclass(mine, Exception):
            # Where the orders of bases contradict each other, a common base must do.
            with contextlib.suppress(TypeError):
                other.__bases__ = (*[base for base in other.__bases__ if base is not Exception], mine)


def carried(request):
    """The answer to an HTTP request of the real one: the one place where it would reach the network."""
    raise NotImplementedError(
        f"{request.method} {request.url}: requests of the real boto3 do not reach the network from a Millpond function yet; S3"
        " does by Millpond's own"
    )


def _unsigned(_self, _request, _region_name=None, _operation_name=None, **_options):
    raise NotImplementedError("the real boto3 has no credentials in a Millpond function, so it signs no URLs; S3's client of Millpond does")


def client(what, service_name, **options):
    """A client of the real one. `what` is asked for, in words."""
    return _made("client", what, service_name, options)


def resource(service_name, **options):
    """A resource of the real one."""
    return _made("resource", f"the resource '{service_name}'", service_name, options)


def _made(kind, what, service_name, options):
    if not is_there():
        raise Missing(what=what)
    with _aside():
        # Whoever sends it signs it: these are not looked at.
        session = _real().session.Session(aws_access_key_id="millpond", aws_secret_access_key="millpond")
        config = options.pop("config", None)
        if config is not None:
            options["config"] = importlib.import_module("botocore.config").Config(**config._user_provided_options)
        return getattr(session, kind)(service_name, **options)


class _Loader:
    """Hands out a module that is there already."""

    def __init__(self, module):
        self._module = module

    def create_module(self, _spec):
        return self._module

    def exec_module(self, _module):
        pass


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
