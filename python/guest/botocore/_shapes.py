"""Shapes of inputs and outputs: their notation, and what is checked, written and read by them.

    member     [!]Name[/wire][@field][:type]     `!`: required; `/wire`: its name in a document; `@field`: where an input's member goes
    type       {member …}     a structure
               *type          a list whose items lie beside each other, under the list's own name
               [Item type]    a list in an element of its own
               string (the default), integer, boolean, timestamp, date (a timestamp in ISO 8601), rfc822 (one in HTTP's form), map, list,
               blob, text, stream

`$name` stands for a piece of notation that `_s3.GROUPS` has. An operation is read when it is first called.
"""

from botocore import _s3

# Of which names of groups are.
_LETTERS = "abcdefghijklmnopqrstuvwxyz_"
# Types that a header field or a parameter of the query has, as Python has them.
_SCALARS = {"string": str, "integer": int, "boolean": bool}
_TIMES = ("timestamp", "date", "rfc822")


class Member:
    """One member of a structure: what it is called, here and on the wire, and where it goes if not into a document."""

    __slots__ = ("field", "name", "required", "type", "wire")

    def __init__(self, name, wire, field, type, required):
        self.name, self.wire, self.field, self.type, self.required = name, wire, field, type, required


class Structure(dict):
    """Members by name."""


class List:
    """A list; `item` is the name of its items' elements if it has an element of its own."""

    __slots__ = ("item", "type")

    def __init__(self, type, item=None):
        self.type, self.item = type, item


class Operation:
    """What a call is made from and its output is made from."""

    def __init__(self, name):
        line, members, fields, document = _row(name)
        self.name = name
        self.method, _, self.resource = line.partition(" ")
        self.resource, _, self.query = self.resource.partition("?")
        self.members = _read(f"{{{members}}}", _places(_s3.INPUTS))
        self.payload = next((member for member in self.members.values() if member.field is None), None)
        places = _places(_s3.INPUTS) | _places(_s3.OUTPUTS)
        self.fields = list(_read(f"{{{fields}}}", places).values())
        self.document = _read(f"{{{document}}}" if not document.startswith("{") else document, {})
        self.document_member = None if not document or document.startswith("{") else next(iter(self.document.values()))
        self.streams = self.document_member is not None and self.document_member.type == "stream"


def _row(name):
    if name in _s3.OPERATIONS:
        return _s3.OPERATIONS[name]
    from botocore import _s3_more

    return _s3_more.OPERATIONS[name]


def structure(text):
    """The structure that is written so."""
    return _read(text, {})


def _places(table):
    return {name: place for name, _, place in (line.partition(" ") for line in table.strip().splitlines())}


def _read(text, places):
    while "$" in text:
        text = _expanded(text)
    for mark in "{}[]*":
        text = text.replace(mark, f" {mark} ")
    return _type(iter(text.split()), places)


def _expanded(text):
    before, *groups = text.split("$")
    pieces = [before]
    for group in groups:
        rest = group.lstrip(_LETTERS)
        pieces += (_s3.GROUPS[group[: len(group) - len(rest)]], rest)
    return "".join(pieces)


def _type(tokens, places, token=None):
    token = token or next(tokens)
    if token == "{":
        members = Structure()
        for token in tokens:
            if token == "}":
                return members
            member = _member(token, tokens, places)
            members[member.name] = member
    if token == "*":
        return List(_type(tokens, places))
    if token == "[":
        item, token = next(tokens), next(tokens)
        if token == "]":
            return List("string", item)
        found = List(_type(tokens, places, token), item)
        next(tokens)
        return found
    return token


def _member(token, tokens, places):
    required = token[0] == "!"
    token = token.lstrip("!")
    name, colon, type = token.partition(":")
    name, _, field = name.partition("@")
    name, _, wire = name.partition("/")
    if colon and not type:
        type = _type(tokens, {})
    elif not colon and not field and name in places:
        field, _, type = places[name].partition(":")
    elif name in ("Bucket", "Key") and places:
        field = name
    # A structure without members is one, too.
    return Member(name, wire or name, field or None, "string" if type == "" else type, required)


# --- what a caller gave ---


def check(value, type, path, errors):
    """Adds to `errors` what is wrong with `value`, in botocore's words."""
    if isinstance(type, Structure):
        if not isinstance(value, dict):
            _wrong(value, path, (dict,), errors)
            return
        name = path.lstrip(".") or "input"
        for member in type.values():
            if member.required and member.name not in value:
                errors.append(f'Missing required parameter in {name}: "{member.name}"')
        for given in value:
            if given not in type:
                errors.append(f'Unknown parameter in {name}: "{given}", must be one of: {", ".join(type)}')
        for given, one in value.items():
            if given in type:
                check(one, type[given].type, f"{path}.{given}", errors)
    elif isinstance(type, List) or type == "list":
        if not isinstance(value, list | tuple):
            _wrong(value, path, (list, tuple), errors)
            return
        for index, one in enumerate(value):
            check(one, type.type if isinstance(type, List) else "string", f"{path}[{index}]", errors)
    elif type == "map":
        if not isinstance(value, dict):
            _wrong(value, path, (dict,), errors)
            return
        for key, one in value.items():
            check(key, "string", f"{path} (key: {key})", errors)
            check(one, "string", f"{path}.{key}", errors)
    elif type in _TIMES:
        from botocore import _time

        try:
            _time.aware(value)
        except (TypeError, ValueError, AttributeError, OverflowError):
            from datetime import datetime

            _wrong(value, path, (datetime, "timestamp-string"), errors)
    elif type == "blob":
        if not isinstance(value, bytes | bytearray | str) and not hasattr(value, "read"):
            _wrong(value, path, (bytes, bytearray, "file-like object"), errors)
    else:
        wanted = _SCALARS.get(type, str)
        if not isinstance(value, wanted):
            _wrong(value, path, (wanted,), errors)
        elif value == "" and path.endswith(".Key"):
            # The one string that S3 wants something of.
            errors.append(f"Invalid length for parameter {path.lstrip('.')}, value: 0, valid min length: 1")


def _wrong(value, path, wanted, errors):
    wanted = ", ".join(map(str, wanted))
    name = path.lstrip(".") or "input"
    errors.append(f"Invalid type for parameter {name}, value: {value}, type: {type(value)}, valid types: {wanted}")


def written(value, type):
    """`value` as a header field or a parameter of the query has it."""
    if type == "boolean":
        return "true" if value else "false"
    if type in _TIMES:
        from botocore import _time

        return _time.iso(value) if type == "date" else _time.http(value)
    if type == "list":
        return ",".join(value)
    return str(value)


def document(value, member):
    """`value` as a document: XML, in bytes."""
    pieces = [f'<{member.wire} xmlns="{_s3.NAMESPACE}">']
    _content(value, member.type, pieces)
    pieces.append(f"</{member.wire}>")
    return "".join(pieces).encode()


def _content(value, type, pieces):
    if isinstance(type, Structure):
        for name, one in value.items():
            member = type[name]
            if isinstance(member.type, List) and not member.type.item:
                for item in one:
                    _element(item, member.type.type, member.wire, pieces)
            elif name == "Grantee":
                kind = escaped(one["Type"])
                pieces.append(f'<Grantee xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:type="{kind}">')
                _content({key: text for key, text in one.items() if key != "Type"}, member.type, pieces)
                pieces.append("</Grantee>")
            else:
                _element(one, member.type, member.wire, pieces)
    elif isinstance(type, List):
        for item in value:
            _element(item, type.type, type.item, pieces)
    elif type == "timestamp":
        pieces.append(written(value, "date"))
    else:
        pieces.append(escaped(written(value, type)))


def _element(value, type, name, pieces):
    pieces.append(f"<{name}>")
    _content(value, type, pieces)
    pieces.append(f"</{name}>")


def escaped(text):
    """`text` as XML has it."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    return text.replace("\r", "&#xD;").replace("\n", "&#xA;")


# --- what S3 said ---


def read(value, type):
    """What a document, or the text of a header field, means."""
    if isinstance(type, Structure):
        value = value if isinstance(value, dict) else {}
        return {member.name: read(value[member.wire], member.type) for member in type.values() if member.wire in value}
    if isinstance(type, List):
        if type.item:
            value = value.get(type.item, []) if isinstance(value, dict) else []
        return [read(one, type.type) for one in (value if isinstance(value, list) else [value])]
    if type == "integer":
        return int(value)
    if type == "boolean":
        return value.lower() == "true"
    if type == "timestamp":
        from botocore import _time

        return _time.parsed(value)
    return value
