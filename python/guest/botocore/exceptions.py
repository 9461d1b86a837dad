"""The exceptions of botocore that programs catch, with its texts."""

from botocore import rest_of


def _made(kind, values):
    return kind(**values)


class BotoCoreError(Exception):
    """What goes wrong short of an answer of the service."""

    # Nothing beside `Exception`'s: so the real one's class can be made one of these, see `_real`.
    __slots__ = ()
    fmt = "An unspecified error occurred"

    def __init__(self, **kwargs):
        super().__init__(self.fmt.format(**kwargs))
        self.kwargs = kwargs

    def __reduce__(self):
        return _made, (type(self), self.kwargs)


class HTTPClientError(BotoCoreError):
    """What goes wrong on the way."""

    fmt = "An HTTP Client raised an unhandled exception: {error}"

    def __init__(self, request=None, response=None, **kwargs):
        self.request, self.response = request, response
        super().__init__(**kwargs)


class WaiterError(BotoCoreError):
    """What was waited for does not come."""

    fmt = "Waiter {name} failed: {reason}"

    def __init__(self, name, reason, last_response):
        super().__init__(name=name, reason=reason)
        self.last_response = last_response

    def __reduce__(self):
        return type(self), (*self.kwargs.values(), self.last_response)


class ClientError(Exception):
    """The service refused: `response` is what it said."""

    __slots__ = ()
    MSG_TEMPLATE = "An error occurred ({error_code}) when calling the {operation_name} operation{retry_info}: {error_message}"

    def __init__(self, error_response, operation_name):
        error, about = error_response.get("Error", {}), error_response.get("ResponseMetadata", {})
        retried = (
            f" (reached max retries: {about['RetryAttempts']})" if about.get("MaxAttemptsReached") and "RetryAttempts" in about else ""
        )
        super().__init__(
            self.MSG_TEMPLATE.format(
                error_code=error.get("Code", "Unknown"),
                error_message=error.get("Message", "Unknown"),
                operation_name=operation_name,
                retry_info=retried,
            )
        )
        self.response = error_response
        self.operation_name = operation_name

    def __reduce__(self):
        # Classes of `client.exceptions` are no module's: what comes back is a plain one.
        return ClientError, (self.response, self.operation_name)


# Names, what they derive from, and their texts.
_MORE = (
    ("DataNotFoundError", "BotoCoreError", "Unable to load data for: {data_path}"),
    ("UnknownServiceError", "DataNotFoundError", "Unknown service: '{service_name}'. Valid service names are: {known_service_names}"),
    ("UnknownRegionError", "BotoCoreError", "Unknown region: '{region_name}'. {error_msg}"),
    ("ApiVersionNotFoundError", "BotoCoreError", "Unable to load data {data_path} for: {api_version}"),
    ("ConnectionError", "BotoCoreError", "An HTTP Client failed to establish a connection: {error}"),
    ("EndpointConnectionError", "ConnectionError", 'Could not connect to the endpoint URL: "{endpoint_url}"'),
    ("SSLError", "ConnectionError", "SSL validation failed for {endpoint_url} {error}"),
    ("ConnectTimeoutError", "ConnectionError", 'Connect timeout on endpoint URL: "{endpoint_url}"'),
    ("ProxyConnectionError", "ConnectionError", 'Failed to connect to proxy URL: "{proxy_url}"'),
    (
        "ConnectionClosedError",
        "HTTPClientError",
        'Connection was closed before we received a valid response from endpoint URL: "{endpoint_url}".',
    ),
    ("ReadTimeoutError", "HTTPClientError", 'Read timeout on endpoint URL: "{endpoint_url}"'),
    ("ResponseStreamingError", "HTTPClientError", "An error occurred while reading from response stream: {error}"),
    ("NoCredentialsError", "BotoCoreError", "Unable to locate credentials"),
    ("PartialCredentialsError", "BotoCoreError", "Partial credentials found in {provider}, missing: {cred_var}"),
    ("CredentialRetrievalError", "BotoCoreError", "Error when retrieving credentials from {provider}: {error_msg}"),
    ("NoAuthTokenError", "BotoCoreError", "Unable to locate authorization token"),
    ("TokenRetrievalError", "BotoCoreError", "Error when retrieving token from {provider}: {error_msg}"),
    ("BaseEndpointResolverError", "BotoCoreError", ""),
    ("NoRegionError", "BaseEndpointResolverError", "You must specify a region."),
    ("ProfileNotFound", "BotoCoreError", "The config profile ({profile}) could not be found"),
    ("ConfigNotFound", "BotoCoreError", "The specified config file ({path}) could not be found."),
    ("ConfigParseError", "BotoCoreError", "Unable to parse config file: {path}"),
    ("ValidationError", "BotoCoreError", "Invalid value ('{value}') for param {param} of type {type_name} "),
    ("ParamValidationError", "BotoCoreError", "Parameter validation failed:\n{report}"),
    ("MissingParametersError", "BotoCoreError", "The following required parameters are missing for {object_name}: {missing}"),
    ("UnknownKeyError", "ValidationError", "Unknown key '{value}' for param '{param}'.  Must be one of: {choices}"),
    ("RangeError", "ValidationError", "Value out of range for param {param}: {min_value} <= {value} <= {max_value}"),
    ("UnknownParameterError", "ValidationError", "Unknown parameter '{name}' for operation {operation}.  Must be one of: {choices}"),
    ("PaginationError", "BotoCoreError", "Error during pagination: {message}"),
    ("OperationNotPageableError", "BotoCoreError", "Operation cannot be paginated: {operation_name}"),
    (
        "ChecksumError",
        "BotoCoreError",
        "Checksum {checksum_type} failed, expected checksum {expected_checksum} did not match calculated checksum {actual_checksum}.",
    ),
    ("UnseekableStreamError", "BotoCoreError", "Need to rewind the stream {stream_object}, but stream is not seekable."),
    ("IncompleteReadError", "BotoCoreError", "{actual_bytes} read, but total bytes expected is {expected_bytes}."),
    ("InvalidExpressionError", "BotoCoreError", "Invalid expression {expression}: Only dotted lookups are supported."),
    ("WaiterConfigError", "BotoCoreError", "Error processing waiter config: {error_msg}"),
    ("UnknownClientMethodError", "BotoCoreError", "Client does not have method: {method_name}"),
    ("UnsupportedSignatureVersionError", "BotoCoreError", "Signature version(s) are not supported: {signature_version}"),
    (
        "InvalidS3AddressingStyleError",
        "BotoCoreError",
        "S3 addressing style {s3_addressing_style} is invalid. Valid options are: 'auto', 'virtual', and 'path'",
    ),
    (
        "InvalidRetryConfigurationError",
        "BotoCoreError",
        'Cannot provide retry configuration for "{retry_config_option}". Valid retry configuration options are: {valid_options}',
    ),
    (
        "InvalidMaxRetryAttemptsError",
        "InvalidRetryConfigurationError",
        'Value provided to "max_attempts": {provided_max_attempts} must be an integer greater than or equal to {min_value}.',
    ),
    (
        "InvalidRetryModeError",
        "InvalidRetryConfigurationError",
        'Invalid value provided to "mode": "{provided_retry_mode}" must be one of: {valid_modes}',
    ),
    ("InvalidConfigError", "BotoCoreError", "{error_msg}"),
    ("MissingDependencyException", "BotoCoreError", "Missing Dependency: {msg}"),
    ("MetadataRetrievalError", "BotoCoreError", "Error retrieving metadata: {error_msg}"),
    ("FlexibleChecksumError", "BotoCoreError", "{error_msg}"),
    ("AwsChunkedWrapperError", "BotoCoreError", "{error_msg}"),
    (
        "InvalidChecksumConfigError",
        "BotoCoreError",
        "Unsupported configuration value for {config_key}. Expected one of {valid_options} but got {config_value}.",
    ),
    ("CapacityNotAvailableError", "BotoCoreError", "Insufficient request capacity available."),
    ("StubResponseError", "BotoCoreError", "Error getting response stub for operation {operation_name}: {reason}"),
    ("EventStreamError", "ClientError", None),
)

for _name, _base, _text in _MORE:
    globals()[_name] = type(_name, (globals()[_base],), {"__module__": __name__} | ({} if _text is None else {"fmt": _text}))


class BrokenStream(ResponseStreamingError, IncompleteReadError):  # noqa: F821
    """A body that broke off: programs wait for it by either name, depending on the botocore that they were written for."""

    fmt = ResponseStreamingError.fmt  # noqa: F821


class UnansweredError(ConnectionClosedError):  # noqa: F821
    """Who was to do it has gone since it was told: botocore has no other name for that than for a connection that was closed."""

    fmt = ConnectionClosedError.fmt + " It may have been done or not: {error}."  # noqa: F821


# Names that programs catch and nothing here raises, by what they derive from.
_CAUGHT = {
    "BotoCoreError": (
        "EndpointProviderError InvalidDNSNameError InvalidDefaultsMode InvalidEndpointConfigurationError"
        " InvalidEndpointDiscoveryConfigurationError InvalidHostLabelError InvalidIMDSEndpointError InvalidIMDSEndpointModeError"
        " InvalidProxiesConfigError InvalidS3UsEast1RegionalEndpointConfigError InvalidSTSRegionalEndpointsConfigError LoginError"
        " MD5UnavailableError RefreshWithMFAUnsupportedError SSOError ServiceNotInRegionError UnknownCredentialError UnknownServiceStyle"
        " UnknownSignatureVersionError UnknownTokenProviderError UnsupportedOutpostResourceError"
        " UnsupportedS3AccesspointConfigurationError UnsupportedS3ArnError UnsupportedS3ConfigurationError UnsupportedS3ControlArnError"
        " UnsupportedS3ControlConfigurationError UnsupportedServiceProtocolsError"
    ),
    "BaseEndpointResolverError": "EndpointVariantError UnknownEndpointError UnknownFIPSEndpointError",
    "EndpointProviderError": "EndpointResolutionError UnknownEndpointResolutionBuiltInName",
    "InvalidConfigError": "InfiniteLoopConfigError",
    "LoginError": "LoginAuthorizationCodeError LoginInsufficientPermissions LoginRefreshRequired LoginTokenLoadError",
    "SSOError": "SSOTokenLoadError UnauthorizedSSOTokenError",
    "StubResponseError": "StubAssertionError UnStubbedResponseError",
    "ValidationError": "AliasConflictParameterError InvalidRegionError",
}


def __getattr__(name):
    for base, names in _CAUGHT.items():
        if name in names.split():
            made = type(name, (globals().get(base) or __getattr__(base),), {"__module__": __name__})
            return globals().setdefault(name, made)
    return rest_of(__name__)(name)
