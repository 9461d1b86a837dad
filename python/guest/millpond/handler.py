"""A Lambda handler: how it is found, how it is called, and how its failures are told.

Shapes and names of errors are those of AWS Lambda's runtime for Python.
"""

import importlib
import json
import logging
import os
import sys
import time
import traceback
from types import CoroutineType

# Frames of a traceback in here are the platform's.
_OURS = os.path.dirname(__file__)


# Modules that are there on Lambda, whose runtime and boto3 have imported them, for handlers that have imported no more than the package.
_LENT = {"concurrent": ("futures",), "urllib": ("error", "parse", "request", "response")}


class Failed(Exception):
    """The function failed, in Lambda's words: `document` has `errorMessage`, `errorType` and `stackTrace`."""

    def __init__(self, kind, message, trace=()):
        super().__init__(message)
        self.document = {"errorMessage": message, "errorType": kind, "stackTrace": list(trace)}


def failed(error):
    """What an exception of the function's own comes to."""
    frames = traceback.extract_tb(error.__traceback__)
    trace = traceback.format_list([frame for frame in frames if not frame.filename.startswith(_OURS)])
    try:
        text = str(error)
    except Exception:  # An exception's text is the function's code, too.
        text = ""
    return Failed(type(error).__name__, text, trace)


class Handler:
    """What `name` (`module.function`, or `package/module.function`) leads to.

    A module that cannot be imported is told to each request, not here: the processes for them are there nevertheless, as in Lambda.
    """

    def __init__(self, name):
        self._function, self._failure = None, None
        try:
            self._function = _find(name)
        except Failed as failure:
            self._failure = failure

    def call(self, event, context):
        """What the handler returns for `event`; of an asynchronous one, what it comes to. Raises `Failed`."""
        if self._failure:
            raise self._failure
        try:
            result = self._function(event, context)
            if isinstance(result, CoroutineType):
                import asyncio

                result = asyncio.run(result)
        except Exception as error:
            raise failed(error) from None
        return result


def _lend(package, modules):
    """Has these modules of a package imported when they are first asked for."""

    def lent(name):
        if name in modules:
            return importlib.import_module(f"{package}.{name}")
        raise AttributeError(f"module '{package}' has no attribute '{name}'")

    importlib.import_module(package).__getattr__ = lent


def _find(name):
    path, dot, function = name.rpartition(".")
    if not dot:
        raise Failed("Runtime.MalformedHandlerName", f"Bad handler '{name}': not enough values to unpack (expected 2, got 1)")
    for package, modules in _LENT.items():
        _lend(package, modules)
    try:
        module = importlib.import_module(path.replace("/", "."))
    except ImportError as error:
        raise Failed("Runtime.ImportModuleError", f"Unable to import module '{path}': {error}") from None
    except SyntaxError as error:
        message = f"Syntax error in module '{path}': {error}"
        where = f'  File "{error.filename}" Line {error.lineno}\n    {error.text}'
        raise Failed("Runtime.UserCodeSyntaxError", message, [where]) from None
    except SystemExit as error:
        raise Failed("Runtime.ExitError", f"Module '{path}' exited with code {error.code}") from None
    except Exception as error:
        raise failed(error) from None
    try:
        return getattr(module, function)
    except AttributeError:
        message = f"Handler '{function}' missing on module '{path}'"
        raise Failed("Runtime.HandlerNotFound", message) from None


def event_of(body):
    """The event that `body` is, in JSON. Raises `ValueError`. No body is no event, which Lambda writes as an empty object."""
    return json.loads(body) if body else {}


def encoded(result):
    """`result` in JSON, as bytes. Raises `Failed`."""
    try:
        return json.dumps(result, default=_other).encode()
    except Exception as error:
        message = f"Unable to marshal response: {error}"
        raise Failed("Runtime.MarshalError", message) from None


def _other(value):
    # Who has a number of that kind has its module.
    decimal = sys.modules.get("decimal")
    if decimal and isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


class ClientContext:
    """What a caller says of itself: a dictionary `custom`, `env` and `client`, as the mobile SDK has them."""

    __slots__ = ("client", "custom", "env")

    def __init__(self, document):
        self.custom, self.env, self.client = document.get("custom"), document.get("env"), document.get("client")

    @classmethod
    def read(cls, text):
        """What `text`, Base64 of JSON, says; `None` if it says nothing."""
        from binascii import a2b_base64

        try:
            document = json.loads(a2b_base64(text))
        except ValueError:
            return None
        return cls(document) if isinstance(document, dict) else None


class Context:
    """The context of one invocation, as in Lambda."""

    identity = None

    def __init__(self, aws_request_id, deadline, invoked_function_arn, client_context=None):
        self.client_context = client_context
        self.aws_request_id = aws_request_id
        self.invoked_function_arn = invoked_function_arn
        self.function_name = os.environ.get("AWS_LAMBDA_FUNCTION_NAME")
        self.function_version = os.environ.get("AWS_LAMBDA_FUNCTION_VERSION")
        self.memory_limit_in_mb = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")
        self.log_group_name = os.environ.get("AWS_LAMBDA_LOG_GROUP_NAME")
        self.log_stream_name = os.environ.get("AWS_LAMBDA_LOG_STREAM_NAME")
        # Milliseconds since the epoch.
        self._deadline = deadline

    def get_remaining_time_in_millis(self):
        """Milliseconds until its time is over, never less than 0."""
        return max(self._deadline - int(time.time() * 1000), 0)

    def log(self, message):
        """Writes to the request's log."""
        sys.stdout.write(str(message))

    def __repr__(self):
        return f"Context(aws_request_id={self.aws_request_id!r}, function_name={self.function_name!r})"


class _Lines(logging.Handler):
    """Records in Lambda's form, with the id of the request that is served."""

    request_id = ""

    def emit(self, record):
        try:
            record.aws_request_id = self.request_id
            sys.stdout.write(self.format(record))
            sys.stdout.flush()
        except Exception:
            self.handleError(record)


def installed_logging(request_id=""):
    """Has records of `logging` come to the log, in Lambda's form."""
    for handler in logging.root.handlers:
        if isinstance(handler, _Lines):
            handler.request_id = request_id
            return
    lines = _Lines()
    form = logging.Formatter(
        "[%(levelname)s]\t%(asctime)s.%(msecs)03dZ\t%(aws_request_id)s\t%(message)s\n", "%Y-%m-%dT%H:%M:%S"
    )
    form.converter = time.gmtime
    lines.setFormatter(form)
    logging.root.addHandler(lines)
