"""JMESPath, for `PageIterator.search` where the function does not bring `jmespath`.

An expression becomes a function of what it is applied to. What follows a projection (`[*]`, `[]`, `[?…]`, `.*`, a slice) is applied to each
of its items, as far as operators that bind more weakly than it.
"""

import json
import re

_TOKEN = re.compile(
    r"""\s*(?:(?P<name>[A-Za-z_]\w*)|(?P<number>-?\d+)|(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<raw>'(?:[^'\\]|\\.)*')"""
    r"""|(?P<literal>`(?:[^`\\]|\\.)*`)|(?P<mark>\[\?|\[\]|\|\||&&|[=!<>]=|[][{}().,:*@&|!<>])|(?P<end>$))""",
    re.ASCII,
)
# How strongly marks bind to what is before them.
_BINDS = {"|": 1, "||": 2, "&&": 3, "[]": 9, "*": 20, "[?": 21, ".": 40, "!": 45, "{": 50, "[": 55, "(": 60}
_BINDS |= dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), 5)
# What binds more weakly ends what is applied to each item of a projection.
_PROJECTED = 10


def compiled(expression):
    """The function that an expression is. One that is none is a `ValueError`."""
    parser = _Parser(expression)
    found = parser.expression(0)
    parser.take("end")
    return found


class _Parser:
    def __init__(self, text):
        self._text, self._tokens, at = text, [], 0
        while not self._tokens or self._tokens[-1][0] != "end":
            match = _TOKEN.match(text, at)
            if not match:
                raise ValueError(f"Bad jmespath expression: Unknown token {text[at]}:\n{text}\n{' ' * at}^")
            kind, at = match.lastgroup, match.end()
            value = match[kind]
            self._tokens.append((value if kind == "mark" else kind, value))
        self._at = 0

    def kind(self, ahead=0):
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)][0]

    def take(self, *kinds):
        kind, value = self._tokens[self._at]
        if kinds and kind not in kinds:
            raise ValueError(f"Invalid jmespath expression: Parse error at token '{value}' in \"{self._text}\"")
        self._at += 1
        return value

    def expression(self, strength):
        kind = self.kind()
        found = self._first(kind, self.take())
        while strength < _BINDS.get(self.kind(), 0):
            found = self._next(self.take(), found)
        return found

    def _first(self, kind, value):
        if kind in ("name", "quoted"):
            name = json.loads(value) if kind == "quoted" else value
            if self.kind() == "(" and kind == "name":
                return self._call(name)
            return lambda it: it.get(name) if isinstance(it, dict) else None
        if kind == "raw":
            text = value[1:-1].replace("\\'", "'")
            return lambda _it: text
        if kind == "literal":
            constant = _literal(value[1:-1].replace("\\`", "`"))
            return lambda _it: constant
        if kind == "@":
            return _itself
        if kind == "*":
            return _projection(_values, self._projected())
        if kind == "[]":
            return _projection(_flattened, self._projected("[]"))
        if kind == "[?":
            return self._filter(_itself)
        if kind == "!":
            inner = self.expression(_BINDS["!"])
            return lambda it: not _is_true(inner(it))
        if kind == "&":
            inner = self.expression(0)
            return lambda _it: inner
        if kind == "(":
            inner = self.expression(0)
            self.take(")")
            return inner
        if kind == "{":
            return self._hash()
        if kind == "[":
            if self.kind() in ("number", ":"):
                return self._index(_itself)
            if self.kind() == "*" and self.kind(1) == "]":
                self._at += 2
                return _projection(_list, self._projected())
            return self._multiple()
        self._at -= 1
        return self.take("an expression")

    def _next(self, mark, left):
        if mark == ".":
            if self.kind() == "*":
                self.take()
                return _projection(lambda it: _values(left(it)), self._projected())
            return _then(left, self._after_dot(_BINDS["."]))
        if mark == "|":
            return _then(left, self.expression(_BINDS["|"]))
        if mark in ("||", "&&"):
            right, wanted = self.expression(_BINDS[mark]), mark == "&&"
            return lambda it: right(it) if _is_true(found := left(it)) is wanted else found
        if mark == "[]":
            return _projection(lambda it: _flattened(left(it)), self._projected("[]"))
        if mark == "[?":
            return self._filter(left)
        if mark == "[":
            if self.kind() in ("number", ":"):
                return self._index(left)
            self.take("*")
            self.take("]")
            return _projection(lambda it: _list(left(it)), self._projected())
        if mark in _COMPARED:
            right, compare = self.expression(_BINDS[mark]), _COMPARED[mark]
            return lambda it: compare(left(it), right(it))
        self._at -= 1
        return self.take("an operator")

    def _after_dot(self, strength):
        if self.kind() in ("name", "quoted"):
            return self.expression(strength)
        mark = self.take("[", "{")
        return self._multiple() if mark == "[" else self._hash()

    def _projected(self, mark="*"):
        """What is applied to each item that this mark leads to."""
        if _BINDS.get(self.kind(), 0) < _PROJECTED:
            return _itself
        if self.kind() in ("[", "[?"):
            return self.expression(_BINDS[mark])
        self.take(".")
        return self.expression(_BINDS["*"]) if self.kind() == "*" else self._after_dot(_BINDS[mark])

    def _filter(self, left):
        condition = self.expression(0)
        self.take("]")

        def kept(it):
            items = _list(left(it))
            return None if items is None else [one for one in items if _is_true(condition(one))]

        return _projection(kept, self._projected("[?"))

    def _index(self, left):
        parts = [None]
        while self.kind() != "]":
            if self.take("number", ":") == ":":
                parts.append(None)
            else:
                parts[-1] = int(self._tokens[self._at - 1][1])
        self.take("]")
        if len(parts) == 1:
            index = parts[0]
            return lambda it: found[index] if isinstance(found := left(it), list) and -len(found) <= index < len(found) else None
        cut = slice(*parts)
        return _projection(lambda it: found[cut] if isinstance(found := left(it), list) else None, self._projected())

    def _multiple(self):
        wanted = self._list_of("]", lambda: self.expression(0))
        return lambda it: None if it is None else [one(it) for one in wanted]

    def _hash(self):
        def pair():
            kind = self.kind()
            name = self.take("name", "quoted")
            self.take(":")
            return json.loads(name) if kind == "quoted" else name, self.expression(0)

        wanted = self._list_of("}", pair)
        return lambda it: None if it is None else {name: one(it) for name, one in wanted}

    def _call(self, name):
        self.take("(")
        given = [] if self.kind() == ")" and self.take() else self._list_of(")", lambda: self.expression(0))
        return lambda it: _called(name, [one(it) for one in given])

    def _list_of(self, end, item):
        found = [item()]
        while self.take(",", end) == ",":
            found.append(item())
        return found


def _itself(it):
    return it


def _then(first, second):
    return lambda it: second(first(it))


def _projection(items, each):
    def project(it):
        found = items(it)
        return None if found is None else [one for one in map(each, found) if one is not None]

    return project


def _list(it):
    return it if isinstance(it, list) else None


def _values(it):
    return list(it.values()) if isinstance(it, dict) else None


def _flattened(it):
    if not isinstance(it, list):
        return None
    return [inner for one in it for inner in (one if isinstance(one, list) else [one])]


def _is_true(value):
    return value is True or not (value is None or value is False or value in ("", [], {})) or (value == 0 and value is not False)


def _literal(text):
    try:
        return json.loads(text)
    except ValueError:
        # Quotes used to be left out.
        return json.loads(f'"{text.lstrip()}"')


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equals(one, other):
    # As numbers truth values would be 0 and 1.
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _ordered(compare):
    def both(one, other):
        return compare(one, other) if all(_is_number(value) or isinstance(value, str) for value in (one, other)) else None

    return both


_COMPARED = {
    "==": _equals,
    "!=": lambda one, other: not _equals(one, other),
    "<": _ordered(lambda one, other: one < other),
    "<=": _ordered(lambda one, other: one <= other),
    ">": _ordered(lambda one, other: one > other),
    ">=": _ordered(lambda one, other: one >= other),
}


def _text(value):
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=str)


def _number(value):
    if isinstance(value, str):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                pass
    return value if _is_number(value) else None


def _type(value):
    kinds = {bool: "boolean", str: "string", list: "array", dict: "object", type(None): "null", type(_itself): "expression"}
    return "number" if _is_number(value) else kinds.get(type(value), "unknown")


def _extreme(choose):
    return lambda items: choose(items) if items else None


def _key(by):
    """What is compared: numbers, or texts."""

    def key(one):
        found = by(one)
        if _type(found) not in ("number", "string"):
            raise ValueError(f"{found!r} cannot be compared")
        return found

    return key


def _extreme_by(choose):
    return lambda items, by: choose(items, key=_key(by)) if items else None


def _contains(it, part):
    return part in it if isinstance(it, list) or isinstance(part, str) else False


def _merged(*given):
    return {name: value for one in given for name, value in one.items()}


def _ceil(value):
    return -int(-value // 1)


# What each takes: kinds of values; `array-number` is one of such items, and the last is as often as it is given if it ends in `*`.
_FUNCTIONS = {
    "abs": (abs, "number"),
    "avg": (lambda items: sum(items) / len(items) if items else None, "array-number"),
    "ceil": (_ceil, "number"),
    "contains": (_contains, "array|string any"),
    "ends_with": (str.endswith, "string string"),
    "floor": (lambda value: int(value // 1), "number"),
    "join": (str.join, "string array-string"),
    "keys": (list, "object"),
    "length": (len, "string|array|object"),
    "map": (lambda each, items: [each(one) for one in items], "expression array"),
    "max": (_extreme(max), "array-number|array-string"),
    "max_by": (_extreme_by(max), "array expression"),
    "merge": (_merged, "object*"),
    "min": (_extreme(min), "array-number|array-string"),
    "min_by": (_extreme_by(min), "array expression"),
    "not_null": (lambda *given: next((one for one in given if one is not None), None), "any*"),
    "reverse": (lambda it: it[::-1], "array|string"),
    "sort": (sorted, "array-number|array-string"),
    "sort_by": (lambda items, by: sorted(items, key=_key(by)), "array expression"),
    "starts_with": (str.startswith, "string string"),
    "sum": (sum, "array-number"),
    "to_array": (lambda it: it if isinstance(it, list) else [it], "any"),
    "to_number": (_number, "any"),
    "to_string": (_text, "any"),
    "type": (_type, "any"),
    "values": (lambda it: list(it.values()), "object"),
}


def _is_of(value, kinds):
    for kind in kinds.split("|"):
        kind, _, inner = kind.partition("-")
        if kind in ("any", _type(value)) and all(_type(one) == inner for one in (value if inner else ())):
            return True
    return False


def _called(name, given):
    """What a function makes of these."""
    if name not in _FUNCTIONS:
        raise ValueError(f"Unknown function: {name}()")
    function, wanted = _FUNCTIONS[name]
    wanted = wanted.split()
    if wanted[-1].endswith("*") and given:
        wanted = [wanted[-1][:-1]] * len(given)
    if len(given) != len(wanted):
        raise ValueError(f"Expected {len(wanted)} arguments for function {name}(), received {len(given)}")
    for value, kinds in zip(given, wanted, strict=True):
        if not _is_of(value, kinds):
            raise ValueError(f"In function {name}(), invalid type for value: {value}, expected: {kinds}, received: {_type(value)}")
    return function(*given)
