"""`Config`: all of botocore's options. Those that are about connections and signatures are the backend's matter, and heard politely."""

from botocore import rest_of


class Config:
    """Options of a client."""

    OPTION_DEFAULTS = {
        **dict.fromkeys((
            "region_name", "signature_version", "user_agent", "user_agent_extra", "user_agent_appid", "proxies", "proxies_config", "s3",
            "s3_disable_express_session_auth", "retries", "client_cert", "inject_host_prefix", "endpoint_discovery_enabled",
            "use_dualstack_endpoint", "use_fips_endpoint", "ignore_configured_endpoint_urls", "defaults_mode", "tcp_keepalive",
            "request_min_compression_size_bytes", "disable_request_compression", "client_context_params", "sigv4a_signing_region_set",
            "request_checksum_calculation", "response_checksum_validation", "account_id_endpoint_mode", "auth_scheme_preference",
        )),
        "connect_timeout": 60,
        "read_timeout": 60,
        "parameter_validation": True,
        "max_pool_connections": 10,
    }  # fmt: skip

    def __init__(self, *args, **kwargs):
        names = ("region_name", "signature_version", "user_agent")
        if len(args) > len(names):
            raise TypeError(f"Takes at most {len(names)} arguments ({len(args)} given)")
        given = dict(zip(names, args, strict=False))
        for name, value in kwargs.items():
            if name not in self.OPTION_DEFAULTS:
                raise TypeError(f"Got unexpected keyword argument '{name}'")
            if name in given:
                raise TypeError(f"Got multiple values for keyword argument '{name}'")
            given[name] = value
        _check(given)
        self._user_provided_options = given
        self.__dict__.update(self.OPTION_DEFAULTS | given)

    def merge(self, other_config):
        """This one, with what the other says over it."""
        return Config(**(self._user_provided_options | other_config._user_provided_options))


def _check(given):
    style = (given.get("s3") or {}).get("addressing_style")
    if style not in ("auto", "virtual", "path", None):
        from botocore.exceptions import InvalidS3AddressingStyleError

        raise InvalidS3AddressingStyleError(s3_addressing_style=style)
    for name, value in (given.get("retries") or {}).items():
        from botocore import exceptions

        least = {"max_attempts": 0, "total_max_attempts": 1}
        if name == "mode":
            modes = ("legacy", "standard", "adaptive")
            if value not in modes:
                raise exceptions.InvalidRetryModeError(provided_retry_mode=value, valid_modes=modes)
        elif name not in least:
            raise exceptions.InvalidRetryConfigurationError(
                retry_config_option=name, valid_options=("max_attempts", "mode", "total_max_attempts")
            )
        elif value < least[name]:
            raise exceptions.InvalidMaxRetryAttemptsError(provided_max_attempts=value, min_value=least[name])


__getattr__ = rest_of(__name__)
