"""Times as S3 writes them. Apart, because `datetime` is not needed before a time is."""

try:
    # What `datetime` gives, which runs the same written in Python first (up to 3.11).
    from _datetime import datetime, timedelta, tzinfo
except ImportError:
    from datetime import datetime, timedelta, tzinfo

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# Other forms of HTTP's than the one that servers are to use.
_ASCTIME = r"\w{3} (\w{3}) +(\d{1,2}) (\d\d):(\d\d):(\d\d) (\d{4})$"
_HTTP = r"(?:\w+, )?(\d{1,2})[ -](\w{3})[ -](\d{4}) (\d\d):(\d\d):(\d\d)(?: (?:GMT|UTC|\+0000|-0000))?$"


class tzutc(tzinfo):
    """UTC, by the name that boto3's times print."""

    def utcoffset(self, _when):
        return timedelta(0)

    dst = utcoffset

    def tzname(self, _when):
        return "UTC"

    def __eq__(self, other):
        return isinstance(other, tzinfo) and other.utcoffset(None) == timedelta(0)

    def __hash__(self):
        return hash("UTC")

    def __reduce__(self):
        return tzutc, ()

    def __repr__(self):
        return "tzutc()"


UTC = tzutc()


def parsed(text):
    """The time that an HTTP date, an ISO 8601 time or a number of seconds says, in UTC unless it says otherwise."""
    if text.endswith("Z"):
        return datetime.fromisoformat(text[:-1]).replace(tzinfo=UTC)
    if len(text) == 29 and text.endswith(" GMT") and text.count(" ") == 5:
        # `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, section 5.6.7), without a regular expression that would have to be compiled first.
        _, day, month, year, clock, _ = text.split(" ")
        return datetime(int(year), _MONTHS.index(month) + 1, int(day), *map(int, clock.split(":")), tzinfo=UTC)
    import re

    match = re.match(_HTTP, text)
    if match:
        day, month, year, *clock = match.groups()
        return datetime(int(year), _MONTHS.index(month) + 1, int(day), *map(int, clock), tzinfo=UTC)
    match = re.match(_ASCTIME, text)
    if match:
        month, day, *clock, year = match.groups()
        return datetime(int(year), _MONTHS.index(month) + 1, int(day), *map(int, clock))
    try:
        return datetime.fromtimestamp(float(text), UTC)
    except ValueError:
        pass
    when = datetime.fromisoformat(text)
    return when.replace(tzinfo=UTC) if when.tzinfo and not when.utcoffset() else when


def aware(value):
    """The time that a caller meant: one without a zone is local."""
    if isinstance(value, int | float):
        value = datetime.fromtimestamp(value, UTC)
    elif not isinstance(value, datetime):
        value = parsed(value)
    return value.astimezone(UTC)


def http(value):
    """A time as header fields have it."""
    when = aware(value)
    return f"{_DAYS[when.weekday()]}, {when.day:02} {_MONTHS[when.month - 1]} {when.year} {when:%H:%M:%S} GMT"


def iso(value):
    """A time as documents have it."""
    when = aware(value)
    return f"{when:%Y-%m-%dT%H:%M:%S}" + (f".{when.microsecond:06}" if when.microsecond else "") + "Z"
