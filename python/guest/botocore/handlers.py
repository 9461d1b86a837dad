"""Hooks of botocore's own that programs register."""

from botocore import UNSIGNED, rest_of


def disable_signing(**_kwargs):
    """Has requests go without a signature."""
    return UNSIGNED


__getattr__ = rest_of(__name__)
