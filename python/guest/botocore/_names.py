"""Names, as S3, Python and targets have them, without regular expressions where none is needed: to compile these took longer than all that is done here."""

BUCKET = r"^[a-zA-Z0-9.\-_]{1,255}$"
ARN = (
    r"^arn:(aws).*:(s3|s3-object-lambda):[a-z\-0-9]*:[0-9]{12}:accesspoint[/:][a-zA-Z0-9\-.]{1,63}$|"
    r"^arn:(aws).*:s3-outposts:[a-z\-0-9]+:[0-9]{12}:outpost[/:][a-zA-Z0-9\-]{1,63}[/:]accesspoint[/:][a-zA-Z0-9\-]{1,63}$"
)
_HEX = b"0123456789ABCDEFabcdef"
_WORDS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# What goes as it is, in paths and as a bucket's name.
_SAFE, _OF_BUCKETS = _WORDS + b"._~/-", _WORDS + b".-_"


def snake(name):
    """`ListObjectsV2` as methods are called, `ETag` as attributes are."""
    pieces, before = [], ""
    for at, here in enumerate(name):
        if before and here.isupper() and (not before.isupper() or name[at + 1 : at + 2].islower()):
            pieces.append("_")
        pieces.append(here)
        before = here
    return "".join(pieces).lower()


def quoted(text):
    """Percent-encoded as paths are."""
    data = text.encode()
    if not data.translate(None, _SAFE):
        return text
    return "".join(chr(byte) if byte in _SAFE else f"%{byte:02X}" for byte in data)


def quoted_value(text):
    """Percent-encoded as names and values of a query are."""
    return quoted(text).replace("/", "%2F")


def unquoted(text):
    """What S3 meant by a percent-encoded text."""
    if "%" not in text and "+" not in text:
        return text
    plain, *encoded = text.replace("+", " ").encode().split(b"%")
    pieces = [plain]
    for piece in encoded:
        digits = piece[:2]
        is_code = len(digits) == 2 and not digits.translate(None, _HEX)
        pieces.append(bytes([int(digits, 16)]) + piece[2:] if is_code else b"%" + piece)
    return b"".join(pieces).decode(errors="replace")


def is_arn(bucket):
    """Whether a bucket is named by an access point's ARN."""
    if isinstance(bucket, str) and not bucket.startswith("arn:"):
        return False
    import re

    return re.search(ARN, bucket) is not None


def is_bucket(name):
    """Whether this can name a bucket."""
    if isinstance(name, str) and 0 < len(name) <= 255 and not name.encode(errors="replace").translate(None, _OF_BUCKETS):
        return True
    import re

    return re.search(BUCKET, name) is not None or is_arn(name)
