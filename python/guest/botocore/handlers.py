"""Hooks of botocore's own that programs register."""

from botocore import UNSIGNED


def disable_signing(**_kwargs):
    """Has requests go without a signature."""
    return UNSIGNED


def __getattr__(name):
    from botocore import _real

    return _real.rest_of(__name__, name)
