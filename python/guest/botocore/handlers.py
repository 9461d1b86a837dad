"""Hooks of botocore's that programs register. None is called here, see `botocore.client.Events`."""

from botocore import UNSIGNED


def disable_signing(**_kwargs):
    """Has requests go without a signature."""
    return UNSIGNED


def __getattr__(name):
    from botocore import _real

    return _real.rest_of(__name__, name)
