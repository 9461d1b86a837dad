"""The client of Lambda: functions call functions. What is asked goes to the node, in the words of Lambda's REST interface."""

from botocore import _shapes
from botocore._names import quoted_value
from botocore.client import (
    BaseClient,
    ClientMeta,
    Exceptions,
    ServiceModel,
    attempts_of,
    backend,
    document_of,
    made,
    pause,
    region_of,
)
from botocore.config import Config
from botocore.exceptions import ParamValidationError

# What an error's document has beside its type: most say `Message`, these `message`.
_PLAIN = (
    "AliasLimitExceededException CapacityProviderLimitExceededException CodeArtifactUserDeletedException CodeArtifactUserFailedException"
    " CodeArtifactUserPendingException CodeStorageExceededException FunctionVersionsPerCapacityProviderLimitExceededException"
    " InvalidParameterValueException InvalidRequestContentException ModeNotSupportedException PolicyLengthExceededException"
    " PreconditionFailedException ProvisionedConcurrencyConfigNotFoundException RequestTooLargeException ResourceConflictException"
    " ResourceNotReadyException RuntimeAliasDeletedException RuntimeVersionDeletedException SerializedRequestEntityTooLargeException"
    " TooManyRequestsException UnsupportedMediaTypeException"
)
_ERRORS = (
    f"{_PLAIN} CallbackTimeoutException CodeSigningConfigNotFoundException CodeVerificationFailedException"
    " DurableExecutionAlreadyStartedException EC2AccessDeniedException EC2ThrottledException EC2UnexpectedException EFSIOException"
    " EFSMountConnectivityException EFSMountFailureException EFSMountTimeoutException ENILimitReachedException ENINotReadyException"
    " InvalidCodeSignatureException InvalidRuntimeException InvalidSecurityGroupIDException InvalidSubnetIDException"
    " InvalidZipFileException KMSAccessDeniedException KMSDisabledException KMSInvalidStateException KMSNotFoundException"
    " NoPublishedVersionException PublicPolicyException RecursiveInvocationException ResourceInUseException ResourceNotFoundException"
    " S3FilesMountConnectivityException S3FilesMountFailureException S3FilesMountTimeoutException ServiceException"
    " ServiceQuotaExceededException SnapStartException SnapStartNotReadyException SnapStartRegenerationFailureException"
    " SnapStartTimeoutException SubnetIPAddressLimitReachedException"
)
_INVOKE = (
    "{!FunctionName InvocationType@x-amz-invocation-type LogType@x-amz-log-type ClientContext@x-amz-client-context"
    " DurableExecutionName@x-amz-durable-execution-name Payload:blob Qualifier TenantId@x-amz-tenant-id}"
)
# What header fields of an answer say.
_SAID = {"FunctionError": "x-amz-function-error", "LogResult": "x-amz-log-result", "ExecutedVersion": "x-amz-executed-version"}
# The strings of which one character is wanted.
_WORDS = ("FunctionName", "Qualifier", "TenantId", "DurableExecutionName")
# With these nothing was run, so that it may be asked for again.
_UNDONE_STATUSES, _UNDONE_FAILURES = (429, 503), ("unavailable", "busy")

_MODEL = ServiceModel("lambda", "Lambda", "2015-03-31", ["Invoke"])
_EXCEPTIONS = Exceptions(_ERRORS)
_members = _shapes.structure(_INVOKE)


class Lambda(BaseClient):
    """The client of Lambda: `invoke`."""

    service = "lambda"

    def invoke(self, *args, **kwargs):
        """Invokes a function that was granted."""
        if args:
            raise TypeError("invoke() only accepts keyword arguments.")
        return self._make_api_call("Invoke", kwargs)

    def _call(self, operation_name, api_params, hooks=None):
        if hooks:
            api_params = hooks.parameters(api_params)
        if self.meta.config.parameter_validation:
            _check(api_params)
        request = Invocation(api_params)
        return self._done(request, operation_name, hooks, lambda: self._fetched(request, operation_name, hooks))

    def _fetched(self, request, operation_name, hooks):
        reply, attempts, exhausted = self._sent(request, operation_name, hooks)
        status, headers = reply.status, dict(reply.headers)
        answer = _answer(headers, reply)
        about = {"RequestId": headers.get("x-amzn-requestid", ""), "HTTPStatusCode": status, "HTTPHeaders": headers}
        answer["ResponseMetadata"] = about | {"RetryAttempts": attempts}
        if "Error" in answer and exhausted:
            answer["ResponseMetadata"]["MaxAttemptsReached"] = True
        return status, headers, answer

    def _sent(self, request, operation_name, hooks):
        """The reply; how often it was tried again, and whether that was all it may be."""
        carrier, attempt, most = backend(), 0, attempts_of(self.meta.config)
        while True:
            is_last, sent = attempt + 1 >= most, hooks.attempted(request) if hooks else request
            try:
                reply = carrier.call("lambda", sent.method, sent.target, sent.fields, sent.body)
                fails = reply.status in _UNDONE_STATUSES
                if not fails or is_last:
                    return reply, attempt, fails
                reply.close()
            except carrier.Failed as failure:
                if failure.kind not in _UNDONE_FAILURES or is_last:
                    raise self._failure(failure, operation_name) from failure
            pause(attempt)
            attempt += 1


class Invocation:
    """One call as the node wants it."""

    def __init__(self, params):
        name, qualifier = quoted_value(params["FunctionName"]), params.get("Qualifier")
        self.method = "POST"
        self.target = f"/2015-03-31/functions/{name}/invocations" + (f"?Qualifier={quoted_value(qualifier)}" if qualifier else "")
        self.fields = [(_members[key].field, value) for key, value in params.items() if _members[key].field]
        self.put_body(params.get("Payload", b""))

    def put_body(self, payload):
        """Text, bytes or something to read from."""
        payload = payload.read() if hasattr(payload, "read") else payload
        self.body = payload.encode() if isinstance(payload, str) else payload

    def weigh(self):
        """Nothing: it is not done again where it may have been done, whatever it says."""


def _check(params):
    errors = []
    _shapes.check(params, _members, "", errors)
    for name in _WORDS:
        if params.get(name) == "":
            errors.append(f"Invalid length for parameter {name}, value: 0, valid min length: 1")
    if errors:
        raise ParamValidationError(report="\n".join(errors))


def _answer(headers, reply):
    """The output, or the error, that an answer stands for."""
    if reply.status >= 300:
        return _error(headers, reply.read())
    from botocore.response import Raw, StreamingBody

    answer = {"StatusCode": reply.status} | {name: headers[field] for name, field in _SAID.items() if field in headers}
    return answer | {"Payload": StreamingBody(Raw(reply, backend().Failed), headers.get("content-length"))}


def _error(headers, body):
    """What an error's answer says: in general, and what its class has of its own."""
    document = document_of(body)
    said = document if isinstance(document, dict) else {}
    code = headers.get("x-amzn-errortype", said.get("Type", "")).partition(":")[0]
    answer = {"Error": {"Message": said.get("message", said.get("Message", "")), "Code": code}}
    if code in _ERRORS.split():
        names = ["Type", "message" if code in _PLAIN.split() else "Message"]
        if code == "TooManyRequestsException":
            names.append("Reason")
            if "retry-after" in headers:
                answer["retryAfterSeconds"] = headers["retry-after"]
        answer |= {name: said[name] for name in names if name in said}
    return answer


def make(region_name, endpoint_url, config, hooks=None):
    """A client of Lambda."""
    # As for S3: what a request would have to load is to be there by then.
    import botocore.response  # noqa: F401

    config = config or Config()
    region = region_of(region_name, config)
    defaults = Config(region_name=region, signature_version="v4", retries={"mode": "standard"})
    endpoint_url = endpoint_url or f"https://lambda.{region}.amazonaws.com"
    meta = ClientMeta(_MODEL, region, endpoint_url, defaults.merge(config).merge(Config(region_name=region)))
    return made(Lambda, hooks, meta, _EXCEPTIONS)
