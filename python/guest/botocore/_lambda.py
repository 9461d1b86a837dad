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

    def invoke(self, *args, **kwargs):
        """Invokes a function that was granted."""
        if args:
            raise TypeError("invoke() only accepts keyword arguments.")
        return self._make_api_call("Invoke", kwargs)

    def _make_api_call(self, operation_name, api_params):
        if self.meta.config.parameter_validation:
            _check(api_params)
        name, qualifier = quoted_value(api_params["FunctionName"]), api_params.get("Qualifier")
        target = f"/2015-03-31/functions/{name}/invocations" + (f"?Qualifier={quoted_value(qualifier)}" if qualifier else "")
        fields = [(_members[key].field, value) for key, value in api_params.items() if _members[key].field]
        payload = api_params.get("Payload", b"")
        payload = payload.read() if hasattr(payload, "read") else payload
        payload = payload.encode() if isinstance(payload, str) else payload
        reply, attempts, exhausted = self._sent(target, fields, payload, operation_name)
        headers = dict(reply.headers)
        about = {"RequestId": headers.get("x-amzn-requestid", ""), "HTTPStatusCode": reply.status, "HTTPHeaders": headers}
        about["RetryAttempts"] = attempts
        if reply.status >= 300:
            if exhausted:
                about["MaxAttemptsReached"] = True
            answer = _error(headers, reply.read()) | {"ResponseMetadata": about}
            raise self.exceptions.from_code(answer["Error"]["Code"])(answer, operation_name)
        from botocore.response import Raw, StreamingBody

        answer = {"ResponseMetadata": about, "StatusCode": reply.status}
        answer |= {name: headers[field] for name, field in _SAID.items() if field in headers}
        return answer | {"Payload": StreamingBody(Raw(reply, backend().Failed), headers.get("content-length"))}

    def _sent(self, target, fields, payload, operation_name):
        """The reply; how often it was tried again, and whether that was all it may be."""
        carrier, attempt, most = backend(), 0, attempts_of(self.meta.config)
        while True:
            is_last = attempt + 1 >= most
            try:
                reply = carrier.call("lambda", "POST", target, fields, payload)
                fails = reply.status in _UNDONE_STATUSES
                if not fails or is_last:
                    return reply, attempt, fails
                reply.close()
            except carrier.Failed as failure:
                if failure.kind not in _UNDONE_FAILURES or is_last:
                    raise self._failure(failure, operation_name) from failure
            pause(attempt)
            attempt += 1


def _check(params):
    errors = []
    _shapes.check(params, _members, "", errors)
    for name in _WORDS:
        if params.get(name) == "":
            errors.append(f"Invalid length for parameter {name}, value: 0, valid min length: 1")
    if errors:
        raise ParamValidationError(report="\n".join(errors))


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


def make(region_name, endpoint_url, config):
    """A client of Lambda."""
    # As for S3: what a request would have to load is to be there by then.
    import botocore.response  # noqa: F401

    config = config or Config()
    region = region_of(region_name, config)
    defaults = Config(region_name=region, signature_version="v4", retries={"mode": "standard"})
    endpoint_url = endpoint_url or f"https://lambda.{region}.amazonaws.com"
    return Lambda(ClientMeta(_MODEL, region, endpoint_url, defaults.merge(config).merge(Config(region_name=region))), _EXCEPTIONS)
