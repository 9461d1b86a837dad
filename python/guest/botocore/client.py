"""Clients. Each call is one message to the backend, which signs and sends it; `millpond.backend` carries it there.

What an interpreter may not have loaded yet, as `json` and `re`, is imported where it is needed: to load either would take longer than all that is here.
"""

import os
import time

from botocore import _s3, _shapes, rest_of
from botocore._names import ARN, BUCKET, is_arn, is_bucket, quoted, quoted_value, snake, unquoted
from botocore.config import Config
from botocore.exceptions import ClientError, ParamValidationError

# What a status says if the answer says no more.
_STATUSES = {
    301: "Moved Permanently", 302: "Found", 304: "Not Modified", 307: "Temporary Redirect", 400: "Bad Request", 401: "Unauthorized",
    403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed", 408: "Request Timeout", 409: "Conflict", 411: "Length Required",
    412: "Precondition Failed", 416: "Requested Range Not Satisfiable", 429: "Too Many Requests", 500: "Internal Server Error",
    501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable", 504: "Gateway Timeout",
}  # fmt: skip
_ATTEMPTS = {"legacy": 5}
_RETRIED_STATUSES = (500, 502, 503, 504)
_RETRIED_CODES = ("SlowDown", "RequestTimeout", "Throttling", "ThrottlingException", "TooManyRequests")
# Nobody was asked, or what was asked may have been done.
_UNDONE_FAILURES, _DOUBTFUL_FAILURES = ("unavailable", "busy"), ("lost", "broken", "timeout")
_RETRIED_FAILURES = (*_UNDONE_FAILURES, *_DOUBTFUL_FAILURES)
# Operations by POST that may be done twice.
_SAME_TWICE = ("CompleteMultipartUpload", "CreateMultipartUpload", "DeleteObjects")
# Fields that make a change one on a condition: done once more, it would find what it has changed itself.
CONDITIONS, CONDITIONS_OF_SOURCE = ("if-", "x-amz-if-", "x-amz-write-offset-"), "x-amz-copy-source-if-"
# What names an object to be deleted; what else is said of it is a condition.
_NAMES = {"Key", "VersionId"}
# By operation, what it is answered once it has been done, and whether that says that it has been.
_GONE = {"AbortMultipartUpload": ("NoSuchUpload", True), "CompleteMultipartUpload": ("NoSuchUpload", False), "DeleteBucket": ("NoSuchBucket", True)}
# Seconds: between the first two attempts, and the longest.
_BACKOFF = 0.1
_BACKOFF_MAX = 5


class ServiceId(str):
    """A service's name, as it is in the names of events."""

    __slots__ = ()

    def hyphenize(self):
        return self.replace(" ", "-").lower()


class ServiceModel:
    """What a client's service is called."""

    def __init__(self, service_name, service_id, api_version, operation_names):
        self.service_name = self.signing_name = self.endpoint_prefix = service_name
        self.service_id, self.api_version = ServiceId(service_id), api_version
        self.operation_names = list(operation_names)

    @property
    def metadata(self):
        return {"serviceId": self.service_id, "endpointPrefix": self.endpoint_prefix, "apiVersion": self.api_version}

    def __repr__(self):
        return f"ServiceModel({self.service_name})"


class ClientMeta:
    """What a client knows about itself."""

    partition = "aws"

    def __init__(self, service_model, region_name, endpoint_url, config):
        self.service_model = service_model
        self.region_name, self.endpoint_url, self.config = region_name, endpoint_url, config
        # Hooks, once somebody has asked for them; and what makes the client the real one's for those that only that one calls.
        self.hooks, self.turn = None, None

    @property
    def events(self):
        """Where hooks are registered."""
        if self.hooks is None:
            from botocore import _hooks

            self.hooks = _hooks.Events(self)
        return self.hooks

    @property
    def method_to_api_mapping(self):
        return {snake(name): name for name in self.service_model.operation_names}


class Exceptions:
    """The classes of a service's errors, by their codes."""

    ClientError = ClientError

    def __init__(self, codes):
        self._codes = codes

    def from_code(self, code):
        """The class of errors with this code."""
        return getattr(self, code) if code in self._codes.split() else ClientError

    def __getattr__(self, name):
        codes = self._codes.split()
        if name not in codes:
            raise AttributeError(f"{self!r} object has no attribute {name}. Valid exceptions are: {', '.join(codes)}")
        made = type(name, (ClientError,), {"__module__": "botocore.errorfactory"})
        return self.__dict__.setdefault(name, made)

    def __dir__(self):
        return ["ClientError", "from_code", *self._codes.split()]


# One for all clients, as their classes are.
_EXCEPTIONS = Exceptions(_s3.ERRORS)
_MODEL = ServiceModel("s3", "S3", _s3.API_VERSION, [*_s3.OPERATIONS, *_s3.MORE])
_operations = {}


def operation_of(name):
    """The operation of this name, read from the table when it is first asked for."""
    found = _operations.get(name)
    if found is None:
        found = _operations[name] = _shapes.Operation(name)
    return found


class Request:
    """One call as the backend wants it."""

    def __init__(self, operation, params, config):
        self.method = operation.method
        self.fields, self.body, self.length, self._start = [("x-millpond-document", "json")], b"", None, None
        query = [operation.query] if operation.query else []
        for name, value in params.items():
            member = operation.members[name]
            place = member.field
            if place in ("Bucket", "Key"):
                continue
            if place is None:
                self._put_body(value, member)
            elif member.type == "map":
                self.fields += [(place + key.lower(), text) for key, text in value.items()]
            elif place[0] == "?":
                query.append(f"{quoted_value(place[1:])}={quoted_value(_shapes.written(value, member.type))}")
            elif name == "ContentLength":
                self.length = value
            else:
                self.fields.append((place, _shapes.written(value, member.type)))
        self._check_sum(operation, config)
        self.target = self._path(operation, params)
        self._operation, self._params = operation, params
        self.weigh()
        if query:
            self.target += "?" + "&".join(query)

    @staticmethod
    def _path(operation, params):
        if operation.resource == "service":
            return "/"
        bucket = "/" + quoted(params["Bucket"])
        return bucket if operation.resource == "bucket" else f"{bucket}/{quoted(params['Key'])}"

    def weigh(self):
        """Says of it as it is whether it does no harm to do it again where it may have been done."""
        self.is_same_twice = self.method in ("GET", "HEAD") or self._is_same_twice(self._operation, self._params)

    def _is_same_twice(self, operation, params):
        names, path = [name for name, _ in self.fields], self.target.partition("?")[0]
        if operation.name == "CopyObject" and unquoted(str(params.get("CopySource")).partition("?")[0]).lstrip("/") == unquoted(path[1:]):
            names = [name.replace(CONDITIONS_OF_SOURCE, "if-") for name in names]
        deleted = params.get("Delete", {}).get("Objects", ()) if operation.name == "DeleteObjects" else ()
        is_conditional = any(name.startswith(CONDITIONS) for name in names) or any(len(one.keys() - _NAMES) > 0 for one in deleted)
        return not is_conditional and (self.method != "POST" or operation.name in _SAME_TWICE)

    def _put_body(self, value, member):
        if member.type == "blob":
            self.put_body(value)
        elif member.type == "text":
            self.body = value.encode()
        else:
            self.body = _shapes.document(value, member)

    def put_body(self, value):
        """Text, bytes or something to read from."""
        self.body = value.encode() if isinstance(value, str) else value
        if hasattr(value, "read"):
            self._measure()
        self._start = self.body.tell() if hasattr(self.body, "tell") else None

    def _measure(self):
        """How much a file-like object has; one that does not tell is read."""
        body = self.body
        try:
            here = body.tell()
            self.length = body.seek(0, os.SEEK_END) - here
            body.seek(here)
        except (AttributeError, OSError, TypeError):
            self.body = body.read()
            if isinstance(self.body, str):
                self.body = self.body.encode()
            self.length = None

    def _check_sum(self, operation, config):
        if operation.members.get("ChecksumAlgorithm") is None or operation.resource == "service":
            return
        always = operation.name in _s3.CHECKED
        wanted = next((value for name, value in self.fields if name == "x-amz-checksum-algorithm"), None)
        if operation.payload is None or not (always or wanted or operation.payload.type == "blob"):
            return
        self.fields = [field for field in self.fields if field[0] != "x-amz-checksum-algorithm"]
        if any(name.startswith("x-amz-checksum-") for name, _ in self.fields):
            return
        if wanted or always or config.request_checksum_calculation != "when_required":
            self.fields.append(("x-millpond-checksum", (wanted or "CRC32").lower()))

    def rewind(self):
        """Whether the body can be sent again: if so it is ready to."""
        if not hasattr(self.body, "read"):
            return True
        try:
            self.body.seek(self._start)
        except (AttributeError, OSError, TypeError):
            return False
        return True


class BaseClient:
    """What all clients have."""

    # Its service in the names of events, and how that says that something is not granted; by operation, how its pages are gone through; by name,
    # what is waited for.
    service, _denied, _pages, _waiters = None, "AccessDeniedException", {}, {}

    def __init__(self, meta, exceptions):
        self.meta = meta
        self.exceptions = exceptions
        self._real = None
        meta.turn = self._turn

    @property
    def _service_model(self):
        # Programs that trace calls ask for it here.
        return self.meta.service_model

    def _turn(self):
        """Has the real client made where a hook that only that one calls is registered, and not in each request."""
        self._theirs("operation", "*")

    def _make_api_call(self, operation_name, api_params):
        """Does what all operations come to. Programs that trace calls put theirs in its place."""
        if self.meta.hooks is None:
            return self._call(operation_name, api_params)
        from botocore import _hooks

        return _hooks.called(self, operation_name, api_params)

    def _done(self, request, operation_name, hooks, send):
        """What a call comes to: by what `send` brings (status, header fields and answer), or a hook in its place."""
        status, headers, answer = (hooks and hooks.before(request)) or send()
        if hooks:
            hooks.after(status, headers, answer)
        if status >= 300:
            raise self.exceptions.from_code(answer.get("Error", {}).get("Code"))(answer, operation_name)
        return answer

    def __getattr__(self, name):
        """An operation that this client does not have: the real one's, if the function brings it."""
        if name.startswith("_"):
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self._theirs("operation", name), name)

    def _theirs(self, kind, name):
        """The real client, for something that this one does not have."""
        from botocore import _real

        if self._real is None:
            service = self.meta.service_model.service_name
            what = f"the {kind} {service}.{name}"
            self._real = _real.client(what, service, self.meta.events, region_name=self.meta.region_name, config=self.meta.config)
            self.meta.events.follow(self._real.meta.events)
        return self._real

    def __dir__(self):
        return [name for name in super().__dir__() if name != "_real"]

    def close(self):
        """Nothing: there are no connections here."""

    def can_paginate(self, operation_name):
        """Whether there is a paginator for this method."""
        name = self.meta.method_to_api_mapping.get(operation_name)
        return name in self._pages if name else self._theirs_if_there("can_paginate", operation_name) or False

    def get_paginator(self, operation_name):
        """Goes through all pages of a list."""
        name = self.meta.method_to_api_mapping.get(operation_name)
        if name in self._pages:
            from botocore.paginate import Paginator

            return Paginator(getattr(self, operation_name), *self._pages[name])
        found = None if name else self._theirs_if_there("get_paginator", operation_name)
        if found is None:
            from botocore.exceptions import OperationNotPageableError

            raise OperationNotPageableError(operation_name=operation_name)
        return found

    @property
    def waiter_names(self):
        return [snake(name) for name in self._waiters]

    def get_waiter(self, waiter_name):
        """Waits until something is there, or gone."""
        for name, (operation, states) in self._waiters.items():
            if waiter_name == snake(name):
                from botocore.waiter import Waiter

                return Waiter(name, getattr(self, snake(operation)), states)
        found = self._theirs_if_there("get_waiter", waiter_name)
        if found is None:
            raise ValueError(f"Waiter does not exist: {waiter_name}")
        return found

    def _theirs_if_there(self, method, name):
        from botocore import _real

        return getattr(self._theirs(method, name), method)(name) if _real.is_there() else None

    def _failure(self, failure, operation_name):
        """What botocore would raise where the backend had no answer."""
        from botocore import exceptions

        if failure.kind == "denied":
            response = {"Error": {"Code": self._denied, "Message": failure.message}, "ResponseMetadata": {"HTTPStatusCode": 403}}
            return self.exceptions.from_code(self._denied)(response, operation_name)
        made = {
            "unavailable": exceptions.EndpointConnectionError,
            "busy": exceptions.EndpointConnectionError,
            "timeout": exceptions.ReadTimeoutError,
            "broken": exceptions.ConnectionClosedError,
            "credentials": exceptions.CredentialRetrievalError,
            "lost": exceptions.UnansweredError,
        }.get(failure.kind, exceptions.HTTPClientError)
        return made(endpoint_url=self.meta.endpoint_url, error=failure.message, provider="the node", error_msg=failure.message)


def backend():
    # Late: a function that never calls does without, and tests put theirs in its place.
    from millpond import backend

    return backend


def attempts_of(config):
    retries = config.retries or {}
    if "total_max_attempts" in retries:
        return retries["total_max_attempts"]
    if "max_attempts" in retries:
        return retries["max_attempts"] + 1
    mode = retries.get("mode") or os.environ.get("AWS_RETRY_MODE")
    return int(os.environ.get("AWS_MAX_ATTEMPTS", _ATTEMPTS.get(mode, 3)))


def patience_of(config):
    """Seconds that the server may be silent, where it was said how many."""
    return None if config.read_timeout == config.OPTION_DEFAULTS["read_timeout"] else config.read_timeout


def pause(attempt):
    # `random` would cost more to import than all of this.
    jitter = os.urandom(1)[0] / 256
    time.sleep(min(_BACKOFF * 2**attempt, _BACKOFF_MAX) * (0.5 + jitter / 2))


def _api_name(method_name):
    return next((name for name in _MODEL.operation_names if snake(name) == method_name), None)


def _copy_source(source):
    if isinstance(source, dict):
        try:
            bucket, key, version = source["Bucket"], source["Key"], source.get("VersionId")
        except KeyError as error:
            raise ParamValidationError(report=f"Missing required parameter: {error}") from None
        path = f"{bucket}/object/{key}" if is_arn(bucket) else f"{bucket}/{key}"
        return quoted(path) + (f"?versionId={version}" if version is not None else "")
    if isinstance(source, str):
        path, mark, version = source.partition("?versionId=")
        return quoted(path) + mark + version
    return source


def _check_metadata(metadata):
    if not isinstance(metadata, dict):
        return
    for key, value in metadata.items():
        try:
            key.encode("ascii")
            value.encode("ascii")
        except UnicodeEncodeError:
            what = f'Non ascii characters found in S3 metadata for key "{key}", value: "{value}".  '
            report = f"{what}\nS3 metadata can only contain ASCII characters. "
            raise ParamValidationError(report=report) from None


def _hash_key(params, prefix):
    from base64 import b64encode
    from hashlib import md5

    key = params[prefix + "Key"]
    key = key.encode() if isinstance(key, str) else key
    params[prefix + "Key"] = b64encode(key).decode()
    params[prefix + "KeyMD5"] = b64encode(md5(key, usedforsecurity=False).digest()).decode()


def document_of(body):
    """The document that an answer is; `None` if it is none."""
    if not body:
        return None
    import json

    try:
        return json.loads(body)
    except ValueError:
        return None


def _code(body):
    found = document_of(body)
    return found.get("Code") if isinstance(found, dict) else None


def _answer(operation, status, headers, body):
    """The output, or the error, that an answer stands for."""
    about = {}
    if "x-amz-request-id" in headers:
        about = {"RequestId": headers["x-amz-request-id"], "HostId": headers.get("x-amz-id-2", "")}
    if status >= 300:
        found = document_of(body)
        if isinstance(found, dict) and "Code" in found:
            error = {name: text if text != "" else None for name, text in found.items() if name not in ("RequestId", "HostId")}
            return {"Error": error, "ResponseMetadata": about}
        error = {"Code": str(status), "Message": _STATUSES.get(status, "")}
        return {"Error": error, "ResponseMetadata": {"RequestId": "", "HostId": ""} | about}
    return {"ResponseMetadata": about} | _output(operation, headers, body)


def _rest(request, headers, most, patience):
    """What has the rest of an object come anew, from a position in what was asked for: `None` if it is not the same object any more."""
    etag, length = headers.get("etag"), headers.get("content-length")
    if not (etag and length) or "partNumber=" in request.target:
        return None
    span = headers.get("content-range", "").removeprefix("bytes ").partition("/")[0]
    first, _, last = span.partition("-")
    first, last = (int(first), int(last)) if first.isdigit() and last.isdigit() else (0, int(length) - 1)
    dropped = ("range", "x-amz-checksum-mode")
    fields = [field for field in request.fields if field[0] not in dropped and not field[0].startswith("if-")]

    def again(position):
        carrier, wanted = backend(), f"{first + position}-{last}"
        asked = [*fields, ("range", f"bytes={wanted}"), ("if-match", etag)]
        for attempt in range(most):
            try:
                reply = carrier.call("s3", "GET", request.target, asked, patience=patience)
                if reply.status == 206 and dict(reply.headers).get("content-range", "").startswith(f"bytes {wanted}/"):
                    return reply
                if reply.status not in _RETRIED_STATUSES:
                    return None
            except carrier.Failed as failure:
                if failure.kind not in _RETRIED_FAILURES:
                    return None
            pause(attempt)
        return None

    return again


def _output(operation, headers, body):
    output = {}
    for member in operation.fields:
        name = member.name
        if member.type == "map":
            output[name] = {field[len(member.field) :]: text for field, text in headers.items() if field.startswith(member.field)}
        elif member.field in headers:
            if name == "Expires":
                output["ExpiresString"] = headers["expires"]
            try:
                output[name] = _shapes.read(headers[member.field], member.type)
            except ValueError:
                if name != "Expires":
                    raise
    member = operation.document_member
    if member is None:
        if operation.document:
            output |= _shapes.read(document_of(body), operation.document)
    elif member.type == "stream":
        from botocore.response import Raw, StreamingBody

        output[member.name] = StreamingBody(Raw(body, backend().Failed), headers.get("content-length"))
    elif member.type == "text":
        output[member.name] = body.decode()
    elif member.type == "string":
        output[member.name] = document_of(body) or None
    else:
        output[member.name] = _shapes.read(document_of(body), member.type)
    return output


def _checksum_of(headers):
    """Which checksum came with an object: one of all its bytes, not of its parts."""
    for name in ("crc32", "sha256", "sha1"):
        if "-" not in headers.get(f"x-amz-checksum-{name}", "-"):
            return {"ChecksumAlgorithm": name}
    return {}


def _decode(answer, names, lists):
    for name in names.split():
        if name in answer:
            answer[name] = unquoted(answer[name])
    for name, key in lists.items():
        for one in answer.get(name, ()):
            one[key] = unquoted(one[key])


def _method(name):
    method_name = snake(name)

    def call(self, *args, **kwargs):
        if args:
            raise TypeError(f"{method_name}() only accepts keyword arguments.")
        return self._make_api_call(name, kwargs)

    call.__name__ = method_name
    call.__qualname__ = f"S3.{method_name}"
    return call


def _transfer(name):
    def call(self, *args, **kwargs):
        from boto3.s3 import inject

        return getattr(inject, name)(self, *args, **kwargs)

    call.__name__ = name
    call.__qualname__ = f"S3.{name}"
    return call


class S3(BaseClient):
    """The client of S3: a method for each operation of `_s3`, and the managed transfers."""

    service, _denied, _pages, _waiters = "s3", "AccessDenied", _s3.PAGES, _s3.WAITERS

    def generate_presigned_url(self, ClientMethod, Params=None, ExpiresIn=3600, HttpMethod=None):
        """A URL with which anybody may do this once the backend has signed it."""
        name = _api_name(ClientMethod)
        if name is None:
            from botocore.exceptions import UnknownClientMethodError

            raise UnknownClientMethodError(method_name=ClientMethod)
        operation, params = operation_of(name), dict(Params or {})
        if self.meta.hooks is not None:
            from botocore import _hooks

            params = _hooks.Call(self, name, is_presign_request=True).parameters(params)
        request = Request(operation, self._prepared(operation, params), Config(request_checksum_calculation="when_required"))
        fields = [field for field in request.fields if not field[0].startswith("x-millpond-")]
        fields.append(("x-millpond-presign", str(ExpiresIn)))
        return self._signed(name, (HttpMethod or request.method, request.target, fields)).decode()

    def generate_presigned_post(self, Bucket, Key, Fields=None, Conditions=None, ExpiresIn=3600):
        """Where a form goes with which anybody may upload this, and its fields, once the backend has signed what they may be."""
        import json

        target = f"/{quoted(Bucket)}/{quoted(Key)}"
        asked = ("POST", target, [("x-millpond-form", str(ExpiresIn))], json.dumps(Conditions or []).encode())
        form = json.loads(self._signed("generate_presigned_post", asked))
        return {"url": form["url"], "fields": (Fields or {}) | form["fields"]}

    def _signed(self, name, asked):
        """What the backend signs and does not send."""
        carrier, (method, target, fields, *body), most = backend(), asked, max(1, attempts_of(self.meta.config))
        for attempt in range(most):
            try:
                reply = carrier.call("s3", method, target, [*fields, ("x-millpond-document", "json")], *body)
                status, headers, body = reply.status, dict(reply.headers), reply.read()
                break
            except carrier.Failed as failure:
                if failure.kind not in _RETRIED_FAILURES or attempt + 1 == most:
                    raise self._failure(failure, name) from failure
            pause(attempt)
        if status >= 300:
            answer = _answer(None, status, headers, body)
            answer["ResponseMetadata"] |= {"HTTPStatusCode": status, "HTTPHeaders": headers, "RetryAttempts": 0}
            raise self.exceptions.from_code(answer["Error"].get("Code"))(answer, name)
        return body

    def _prepared(self, operation, params):
        """Checks what the caller gave, and adds what is always asked for."""
        bucket = params.get("Bucket", "x")
        if not is_bucket(bucket):
            report = f'Invalid bucket name "{bucket}": Bucket name must match the regex "{BUCKET}" or be an ARN matching the regex "{ARN}"'
            raise ParamValidationError(report=report)
        if operation.name in _s3.ENCODED:
            params.setdefault("EncodingType", "url")
        if "CopySource" in params:
            params["CopySource"] = _copy_source(params["CopySource"])
        _check_metadata(params.get("Metadata"))
        for prefix in ("SSECustomer", "CopySourceSSECustomer"):
            if params.get(prefix + "Key") is not None and prefix + "KeyMD5" not in params:
                _hash_key(params, prefix)
        if self.meta.config.parameter_validation:
            errors = []
            _shapes.check(params, operation.members, "", errors)
            if errors:
                raise ParamValidationError(report="\n".join(errors))
        return params

    def _call(self, operation_name, api_params, hooks=None):
        operation, params = operation_of(operation_name), dict(api_params)
        config = self.meta.config
        if hooks:
            params = hooks.parameters(params)
        is_encoded = operation_name in _s3.ENCODED and "EncodingType" not in params
        if operation.streams and config.response_checksum_validation != "when_required":
            params.setdefault("ChecksumMode", "ENABLED")
        request = Request(operation, self._prepared(operation, params), config)
        return self._done(request, operation_name, hooks, lambda: self._fetched(operation, request, is_encoded, hooks))

    def _fetched(self, operation, request, is_encoded, hooks):
        config = self.meta.config
        status, headers, body, attempts, exhausted = self._sent(operation, request, hooks)
        answer = _answer(operation, status, headers, body)
        answer["ResponseMetadata"] |= {"HTTPStatusCode": status, "HTTPHeaders": headers, "RetryAttempts": attempts}
        if operation.streams and status < 300:
            answer["ResponseMetadata"] |= _checksum_of(headers)
            answer["Body"]._raw_stream._again = _rest(request, headers, attempts_of(config), patience_of(config))
        if "Error" in answer and exhausted:
            answer["ResponseMetadata"]["MaxAttemptsReached"] = True
        if is_encoded and answer.get("EncodingType") == "url":
            _decode(answer, *_s3.ENCODED[operation.name])
        return status, headers, answer

    def _sent(self, operation, request, hooks):
        """Status, header fields and body of the answer; how often it was tried again, and whether that was all it may be."""
        carrier, attempt, most, patience = backend(), 0, attempts_of(self.meta.config), patience_of(self.meta.config)
        is_doubtful = False
        gone, is_done = _GONE.get(operation.name, (None, False))
        while True:
            is_last, sent = attempt + 1 >= most, hooks.attempted(request) if hooks else request
            fields, is_harmless = sent.fields, sent.is_same_twice
            if is_doubtful and operation.name == "CompleteMultipartUpload":
                fields = [*fields, ("x-millpond-repeated", "1")]
            try:
                reply = carrier.call("s3", sent.method, sent.target, fields, sent.body, sent.length, patience)
                headers, status = dict(reply.headers), reply.status
                if operation.streams and status < 300:
                    # As what is left of it would be asked for.
                    request.target, request.fields = sent.target, fields
                    return status, headers, reply, attempt, False
                body = reply.read()
                reply.close()
                if operation.name in _s3.LATE and status == 200 and _code(body):
                    status = 500
                if is_doubtful and gone and status == 404 and _code(body) == gone:
                    if is_done:
                        return 204, headers, b"", attempt, False
                    unknown = carrier.Failed("lost", f"{gone}, and the object that is there is not what these parts make")
                    raise self._failure(unknown, operation.name)
                fails = status in _RETRIED_STATUSES or (status >= 400 and _code(body) in _RETRIED_CODES)
                is_doubtful |= fails and status != 503
                if not fails or is_last or not (is_harmless or status == 503) or not request.rewind():
                    return status, headers, body, attempt, fails and is_last
            except carrier.Failed as failure:
                retried = _RETRIED_FAILURES if is_harmless else _UNDONE_FAILURES
                if failure.kind not in retried or is_last or not request.rewind():
                    raise self._failure(failure, operation.name) from failure
                is_doubtful |= failure.kind in _DOUBTFUL_FAILURES
            pause(attempt)
            attempt += 1


for _name in _MODEL.operation_names:
    setattr(S3, snake(_name), _method(_name))
for _name in ("upload_file", "upload_fileobj", "download_file", "download_fileobj", "copy"):
    setattr(S3, _name, _transfer(_name))


def endpoint_of(region):
    """Where S3 is if nobody says otherwise."""
    return "https://s3.amazonaws.com" if region == "us-east-1" else f"https://s3.{region}.amazonaws.com"


def region_of(region_name, config):
    """The region that is meant if this is all that was said."""
    return region_name or config.region_name or os.environ.get("AWS_DEFAULT_REGION") or os.environ.get("AWS_REGION") or "us-east-1"


def made(kind, hooks, *what):
    """A client of this kind, with the hooks of the session that it is of."""
    if hooks is None:
        return kind(*what)
    from botocore import _hooks

    client = _hooks.classes(hooks, kind)(*what)
    client.meta.hooks = hooks.made(client.meta)
    return client


def make_s3(region_name, endpoint_url, config, hooks=None):
    """A client of S3."""
    # A function makes its client where its module is imported, once: what each request would have to load is to be there by then.
    import botocore._time
    import botocore.response  # noqa: F401

    for name in _s3.COMMON:
        operation_of(name)
    config = config or Config()
    region = region_of(region_name, config)
    endpoint_url = endpoint_url or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or endpoint_of(region)
    defaults = Config(
        region_name=region,
        signature_version="s3v4",
        retries={"mode": "standard"},
        request_checksum_calculation=os.environ.get("AWS_REQUEST_CHECKSUM_CALCULATION", "when_supported").lower(),
        response_checksum_validation=os.environ.get("AWS_RESPONSE_CHECKSUM_VALIDATION", "when_supported").lower(),
    )
    meta = ClientMeta(_MODEL, region, endpoint_url, defaults.merge(config).merge(Config(region_name=region)))
    return made(S3, hooks, meta, _EXCEPTIONS)


def make_lambda(region_name, endpoint_url, config, hooks=None):
    """A client of Lambda."""
    from botocore import _lambda

    return _lambda.make(region_name, endpoint_url, config, hooks)


# Makers of clients by service; what is not here is the real boto3's.
SERVICES = {"s3": make_s3, "lambda": make_lambda}


__getattr__ = rest_of(__name__)
