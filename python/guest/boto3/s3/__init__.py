"""Managed transfers of S3."""

from botocore import part_of

__getattr__ = part_of(__name__)
