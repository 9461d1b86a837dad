"""`TransferConfig` and `S3Transfer`: how big things are cut into parts, and how many parts are under way at a time."""

import math
import os
import threading

from botocore import rest_of
from botocore.exceptions import BotoCoreError, ClientError

from boto3.exceptions import RetriesExceededError, S3UploadFailedError

KB = 1024
MB = KB * KB

# What S3 takes as a part but for the last, and how many of them.
_PART_MIN = 5 * MB
_PART_MAX = 5 << 30
_PARTS_MAX = 10000

_CHECKSUMS = [
    f"Checksum{name}" for name in ("CRC32", "CRC32C", "CRC64NVME", "MD5", "SHA1", "SHA256", "SHA512", "XXHASH3", "XXHASH64", "XXHASH128")
]
_CUSTOMER = ["SSECustomerKey", "SSECustomerAlgorithm", "SSECustomerKeyMD5", "RequestPayer", "ExpectedBucketOwner"]
_SHARED = (
    "ACL CacheControl ChecksumAlgorithm ContentDisposition ContentEncoding ContentLanguage ContentType ExpectedBucketOwner Expires"
    " GrantFullControl GrantRead GrantReadACP GrantWriteACP Metadata ObjectLockLegalHoldStatus ObjectLockMode"
    " ObjectLockRetainUntilDate RequestPayer ServerSideEncryption StorageClass SSECustomerAlgorithm SSECustomerKey SSECustomerKeyMD5"
    " SSEKMSKeyId SSEKMSEncryptionContext Tagging WebsiteRedirectLocation"
).split()
_SOURCE_CONDITIONS = [f"CopySourceIf{name}" for name in ("Match", "ModifiedSince", "NoneMatch", "UnmodifiedSince")]
_SOURCE_KEYS = [f"CopySourceSSECustomer{name}" for name in ("Algorithm", "Key", "KeyMD5")]
_DIRECTIVES = ["MetadataDirective", "TaggingDirective", "AnnotationDirective"]
# What a copy in parts takes over from its source.
_KEPT = ["CacheControl", "ContentDisposition", "ContentEncoding", "ContentLanguage", "ContentType", "Expires", "Metadata"]

# Some options have two names.
_TWINS = {"max_concurrency": "max_request_concurrency", "max_io_queue": "max_io_queue_size"}


class TransferConfig:
    """When and how transfers are cut into parts."""

    DEFAULTS = {
        "multipart_threshold": 8 * MB,
        "max_concurrency": 10,
        "multipart_chunksize": 8 * MB,
        "num_download_attempts": 5,
        "max_io_queue": 100,
        "io_chunksize": 256 * KB,
        "use_threads": True,
        "max_bandwidth": None,
        "preferred_transfer_client": "auto",
    }

    def __init__(
        self,
        multipart_threshold=None,
        max_concurrency=None,
        multipart_chunksize=None,
        num_download_attempts=None,
        max_io_queue=None,
        io_chunksize=None,
        use_threads=None,
        max_bandwidth=None,
        preferred_transfer_client=None,
    ):
        given = locals()
        for name, default in self.DEFAULTS.items():
            value = default if given[name] is None else given[name]
            if isinstance(value, int) and not isinstance(value, bool) and value <= 0:
                raise ValueError(f"Provided parameter {_TWINS.get(name, name)} of value {value} must be greater than 0.")
            setattr(self, name, value)

    def __setattr__(self, name, value):
        if name in _TWINS:
            super().__setattr__(_TWINS[name], value)
        super().__setattr__(name, value)

    def part_size(self, size=None):
        """How big the parts of something of this size are."""
        part = self.multipart_chunksize
        while size is not None and math.ceil(size / part) > _PARTS_MAX:
            part *= 2
        return min(max(part, _PART_MIN), _PART_MAX)


class S3Transfer:
    """Files to and from S3."""

    ALLOWED_DOWNLOAD_ARGS = ["ChecksumMode", "VersionId", "SSECustomerAlgorithm", "SSECustomerKey", "SSECustomerKeyMD5", "RequestPayer",
                             "ExpectedBucketOwner"]  # fmt: skip
    ALLOWED_UPLOAD_ARGS = [*_SHARED, "ChecksumType", "MpuObjectSize", *_CHECKSUMS]
    ALLOWED_COPY_ARGS = [*_SHARED, *_SOURCE_CONDITIONS, *_SOURCE_KEYS, *_DIRECTIVES]

    def __init__(self, client=None, config=None, osutil=None, manager=None):
        if not client:
            raise ValueError("Either a boto3.Client or s3transfer.manager.TransferManager must be provided")
        self._client, self._config = client, config or TransferConfig()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def upload_file(self, filename, bucket, key, callback=None, extra_args=None):
        """Uploads a file."""
        filename = _path(filename)
        try:
            upload(self._client, _Files(filename), bucket, key, extra_args, callback, self._config)
        except ClientError as error:
            raise S3UploadFailedError(f"Failed to upload {filename} to {bucket}/{key}: {error}") from error

    def download_file(self, bucket, key, filename, extra_args=None, callback=None):
        """Downloads to a file, which is there once it is whole."""
        filename = _path(filename)
        target, about = asked(self._client, bucket, key, extra_args)
        partial = f"{filename}.{os.urandom(4).hex()}"
        try:
            with open(partial, "wb") as file:
                download(self._client, target, about, file, callback, self._config)
            os.replace(partial, filename)
        except BaseException:
            if os.path.exists(partial):
                os.remove(partial)
            raise


def _path(filename):
    if isinstance(filename, os.PathLike):
        filename = os.fspath(filename)
    if not isinstance(filename, str):
        raise ValueError("Filename must be a string or a path-like object")
    return filename


def _known(extra_args, allowed):
    extra_args = dict(extra_args or {})
    for name in extra_args:
        if name not in allowed:
            raise ValueError(f"Invalid extra_args key '{name}', must be one of: {', '.join(allowed)}")
    return extra_args


def _only(arguments, names):
    return {name: value for name, value in arguments.items() if name in names}


def _without(arguments, names):
    return {name: value for name, value in arguments.items() if name not in names}


class _Part:
    """A piece of a file, as a file that is read on its own."""

    def __init__(self, path, start, size):
        self._file, self._start, self._size = open(path, "rb"), start, size
        self._file.seek(start)

    def read(self, amount=-1):
        left = self._size - self.tell()
        return self._file.read(left if amount is None or amount < 0 else min(amount, left))

    def tell(self):
        return self._file.tell() - self._start

    def seek(self, where, whence=os.SEEK_SET):
        where += {os.SEEK_SET: 0, os.SEEK_CUR: self.tell(), os.SEEK_END: self._size}[whence]
        self._file.seek(self._start + where)
        return where

    def close(self):
        self._file.close()


class _Files:
    """A file by its name: each part is read on its own."""

    def __init__(self, path):
        self.path, self.size = path, os.path.getsize(path)

    def whole(self):
        return _Part(self.path, 0, self.size)

    def parts(self, size):
        for start in range(0, self.size, size):
            yield lambda start=start: _Part(self.path, start, min(size, self.size - start))


class Stream:
    """A file-like object, read part by part; what it has is found out by reading if it cannot seek."""

    def __init__(self, stream, threshold):
        self._stream, self._ahead, self.size = stream, b"", None
        try:
            here = stream.tell()
            self.size = stream.seek(0, os.SEEK_END) - here
            stream.seek(here)
        except (AttributeError, OSError):
            self._ahead = self._read(threshold)
            if len(self._ahead) < threshold:
                self.size = len(self._ahead)

    def _read(self, size):
        pieces = [self._ahead[:size]]
        self._ahead = self._ahead[size:]
        left = size - len(pieces[0])
        while left > 0 and (piece := self._stream.read(left)):
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def whole(self):
        return self._read(self.size)

    def parts(self, size):
        while data := self._read(size):
            yield lambda data=data: data


def _each(work, items, config, count):
    """Does `work` with each of at most `count` items, on several threads if that is wanted. The first failure ends it."""
    items, lock, failures = iter(items), threading.Lock(), []

    def run():
        while not failures:
            try:
                with lock:
                    item = next(items, None)
                if item is None:
                    return
                work(item)
            except BaseException as error:
                failures.append(error)

    threads = min(config.max_concurrency, count) if config.use_threads else 1
    if threads > 1:
        threads = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        run()
    if failures:
        raise failures[0]


def _in_parts(client, target, create, complete, config, send, parts, count):
    """One object from parts, of which `send` makes each; nothing is left if it fails."""
    upload_id = client.create_multipart_upload(**target, **create)["UploadId"]
    done = {}

    def work(item):
        number, part = item
        done[number] = {**send(upload_id, number, part), "PartNumber": number}

    try:
        _each(work, enumerate(parts, 1), config, count)
        made = {"Parts": [done[number] for number in sorted(done)]}
        client.complete_multipart_upload(**target, UploadId=upload_id, MultipartUpload=made, **complete)
    except BaseException:
        try:
            client.abort_multipart_upload(**target, UploadId=upload_id, **_only(complete, ("RequestPayer", "ExpectedBucketOwner")))
        except (BotoCoreError, ClientError):  # What went wrong first is what to tell.
            pass
        raise


def upload(client, source, bucket, key, extra_args, callback, config):
    """Uploads what `source` has: at once, or in parts if it is big."""
    extra = _known(extra_args, S3Transfer.ALLOWED_UPLOAD_ARGS)
    if client.meta.config.request_checksum_calculation != "when_required" and not any(name in extra for name in _CHECKSUMS):
        extra.setdefault("ChecksumAlgorithm", "CRC32")
    target = {"Bucket": bucket, "Key": key}
    if source.size is not None and source.size < config.multipart_threshold:
        _sent(source.whole(), callback, lambda body: client.put_object(**target, Body=body, **extra))
        return
    algorithm = extra.get("ChecksumAlgorithm")

    def send(upload_id, number, part):
        options = _only(extra, ["ChecksumAlgorithm", *_CUSTOMER])
        part = part()
        answer = _sent(
            part, callback, lambda body: client.upload_part(**target, UploadId=upload_id, PartNumber=number, Body=body, **options)
        )
        return {"ETag": answer["ETag"]} | _only(answer, [f"Checksum{(algorithm or '').upper()}"])

    create = _without(extra, [*_CHECKSUMS, "MpuObjectSize"])
    if any(name in extra for name in _CHECKSUMS):
        create.setdefault("ChecksumType", "FULL_OBJECT")
        create["ChecksumAlgorithm"] = next(name for name in _CHECKSUMS if name in extra).removeprefix("Checksum")
    complete = _only(extra, [*_CUSTOMER, "ChecksumType", "MpuObjectSize", *_CHECKSUMS])
    size = config.part_size(source.size)
    count = _PARTS_MAX if source.size is None else math.ceil(source.size / size)
    _in_parts(client, target, create, complete, config, send, source.parts(size), count)


def _sent(body, callback, send):
    try:
        answer = send(body)
        size = len(body) if isinstance(body, bytes) else body.tell()
    finally:
        if hasattr(body, "close"):
            body.close()
    if callback and size:
        callback(size)
    return answer


def asked(client, bucket, key, extra_args):
    """What to ask for, and what S3 says of it."""
    target = {"Bucket": bucket, "Key": key} | _known(extra_args, S3Transfer.ALLOWED_DOWNLOAD_ARGS)
    return target, client.head_object(**target)


def download(client, target, about, file, callback, config):
    """Downloads into a file: at once, or in parts if it is big."""
    size, part = about["ContentLength"], config.multipart_chunksize
    if size < config.multipart_threshold:
        _received(client, target, file, callback, config)
        return
    lock = threading.Lock()
    # A file that cannot seek, or whose writes all go to its end, gets the parts one by one.
    apart = config.use_threads and config.max_concurrency > 1 and hasattr(file, "seek") and "a" not in str(getattr(file, "mode", ""))

    def fetch(start):
        wanted = "" if start + part >= size else start + part - 1
        request = target | {"Range": f"bytes={start}-{wanted}"} | ({"IfMatch": about["ETag"]} if "ETag" in about else {})
        _received(client, request, _Place(file, lock, start) if apart else file, callback, config)

    starts = range(0, size, part)
    _each(fetch, starts, config, len(starts) if apart else 1)


class _Place:
    """Where one of several parts is written."""

    def __init__(self, file, lock, position):
        self._file, self._lock, self._position = file, lock, position

    def write(self, data):
        with self._lock:
            self._file.seek(self._position)
            self._file.write(data)
        self._position += len(data)


def _received(client, request, file, callback, config):
    """Writes one answer's bytes. A body that breaks off is asked for again, and what was written of it passed over."""
    from botocore.exceptions import HTTPClientError, IncompleteReadError

    written = 0
    for attempt in range(1, config.num_download_attempts + 1):
        body, seen = client.get_object(**request)["Body"], 0
        try:
            while data := body.read(config.io_chunksize):
                fresh = data[max(written - seen, 0) :]
                seen += len(data)
                if fresh:
                    file.write(fresh)
                    written += len(fresh)
                    if callback:
                        callback(len(fresh))
            return
        except (HTTPClientError, IncompleteReadError) as error:
            if attempt == config.num_download_attempts:
                raise RetriesExceededError(error) from error


def copy(client, copy_source, bucket, key, extra_args, callback, source_client, config):
    """Copies within S3: at once, or in parts if it is big."""
    extra = _known(extra_args, S3Transfer.ALLOWED_COPY_ARGS)
    if not isinstance(copy_source, dict):
        wanted = '{"Bucket": bucket_name, "Key": key}'
        raise TypeError(f"Expecting dictionary formatted: {wanted} but got {copy_source} or type {type(copy_source)}.")
    source_client = source_client or client
    head = {name.removeprefix("CopySource"): extra[name] for name in [*_SOURCE_CONDITIONS, *_SOURCE_KEYS] if name in extra}
    head |= _only(extra, ["RequestPayer"])
    about = source_client.head_object(**copy_source, **head)
    size, target = about["ContentLength"], {"Bucket": bucket, "Key": key}
    if size < config.multipart_threshold:
        client.copy_object(CopySource=copy_source, **target, **extra)
        if callback:
            callback(size)
        return
    part = config.part_size(size)
    options = _only(extra, [*_SOURCE_CONDITIONS, *_SOURCE_KEYS, *_CUSTOMER])
    if "ETag" in about:
        options["CopySourceIfMatch"] = about["ETag"]

    def send(upload_id, number, start):
        end = min(start + part, size)
        answer = client.upload_part_copy(
            CopySource=copy_source, **target, UploadId=upload_id, PartNumber=number, CopySourceRange=f"bytes={start}-{end - 1}", **options
        )["CopyPartResult"]
        if callback:
            callback(end - start)
        return {"ETag": answer["ETag"]} | _only(answer, [f"Checksum{extra.get('ChecksumAlgorithm', '').upper()}"])

    create = _without(extra, [*_SOURCE_CONDITIONS, *_SOURCE_KEYS, *_DIRECTIVES, "Tagging"])
    if extra.get("MetadataDirective") != "REPLACE":
        create = _without(create, _KEPT) | _only(about, _KEPT)
    _in_parts(client, target, create, _only(extra, _CUSTOMER), config, send, range(0, size, part), math.ceil(size / part))
    _copy_tags(client, source_client, copy_source, target, extra)


def _copy_tags(client, source_client, copy_source, target, extra):
    """An object made from parts has no tags of its source."""
    options = _only(extra, ["RequestPayer", "ExpectedBucketOwner"])
    if extra.get("TaggingDirective") == "COPY":
        tags = source_client.get_object_tagging(**copy_source, **options).get("TagSet")
    elif extra.get("TaggingDirective") == "REPLACE":
        from urllib.parse import parse_qsl

        tags = [{"Key": name, "Value": value} for name, value in parse_qsl(extra.get("Tagging", ""), keep_blank_values=True)]
    else:
        return
    if tags:
        client.put_object_tagging(**target, Tagging={"TagSet": tags}, **options)


__getattr__ = rest_of(__name__)
