"""The transfers that clients have as methods."""

from botocore import rest_of

from boto3.s3 import transfer
from boto3.s3.transfer import S3Transfer, TransferConfig


def upload_file(client, Filename, Bucket, Key, ExtraArgs=None, Callback=None, Config=None):
    return S3Transfer(client, Config).upload_file(Filename, Bucket, Key, Callback, ExtraArgs)


def download_file(client, Bucket, Key, Filename, ExtraArgs=None, Callback=None, Config=None):
    return S3Transfer(client, Config).download_file(Bucket, Key, Filename, ExtraArgs, Callback)


def upload_fileobj(client, Fileobj, Bucket, Key, ExtraArgs=None, Callback=None, Config=None):
    if not hasattr(Fileobj, "read"):
        raise ValueError("Fileobj must implement read")
    config = Config or TransferConfig()
    transfer.upload(client, transfer.Stream(Fileobj, config.multipart_threshold), Bucket, Key, ExtraArgs, Callback, config)


def download_fileobj(client, Bucket, Key, Fileobj, ExtraArgs=None, Callback=None, Config=None):
    if not hasattr(Fileobj, "write"):
        raise ValueError("Fileobj must implement write")
    target, about = transfer.asked(client, Bucket, Key, ExtraArgs)
    transfer.download(client, target, about, Fileobj, Callback, Config or TransferConfig())


def copy(client, CopySource, Bucket, Key, ExtraArgs=None, Callback=None, SourceClient=None, Config=None):
    transfer.copy(client, CopySource, Bucket, Key, ExtraArgs, Callback, SourceClient, Config or TransferConfig())


__getattr__ = rest_of(__name__)
