"""What is compiled anew of a large module is what changed since the function's last version."""

import json

import pytest
from harness import guest

# Smaller modules are compiled as they come.
LARGE = 1 << 20


def large(name, greeting=b"Hello, "):
    """A guest that says something else, and is large: a custom section makes it so."""
    code = guest(name)
    if greeting != b"Hello, ":
        assert code.count(b"Hello, ") == 1
        code = code.replace(b"Hello, ", greeting)
    return code + b"\0\x84\x80\xc0\x00\3big" + bytes(LARGE)


def compiled(node):
    """The compiles of this node, by how many pieces each found and made."""
    lines = (json.loads(line) for line in node.log.read_text().splitlines())
    return [(line["pieces_reused"], line["pieces_made"]) for line in lines if line.get("message") == "compiled"]


def pieces(node):
    return list((node.data / "pieces").glob("*/*/pieces"))


def deploy(node, greeting):
    app = node.deploy("greetings", {"hello": (large("hello-rust", greeting), {})})
    assert app.call("hello", b"Ada").text == f"{greeting.decode()}Ada!\n"
    return app


def test_an_edit_reuses_what_the_last_version_left(make_node):
    node = make_node()
    deploy(node, b"Hello, ")
    deploy(node, b"Howdy, ")
    (none, all_made), (reused, made) = compiled(node)
    assert none == 0 and all_made > 100
    assert reused > 100 and made < all_made / 4
    # An artefact of one's own is loaded again as any other is.
    node.kill()
    node.start()
    assert node.request("POST", "/function/greetings.hello", b"Ada").text == "Howdy, Ada!\n"
    assert len(compiled(node)) == 2
    # Another function with this very code finds neither.
    node.deploy("other", {"hello": (large("hello-rust", b"Howdy, "), {})})
    assert compiled(node)[2][0] == 0


def test_a_component_too(make_node):
    node = make_node()
    for greeting in range(2):
        code = large("command-component") + bytes([0, 2, 1, greeting])
        app = node.deploy("shouting", {"it": (code, {})})
        assert app.call("it", b"text").text.endswith("POST TEXT")
    (_, all_made), (reused, made) = compiled(node)
    assert all_made > 100 and reused > 100 and made < all_made / 4


@pytest.mark.parametrize("damage", ["torn", "changed", "empty", "other", "gone", "folder"])
def test_damaged_pieces_cost_time_only(make_node, damage):
    node = make_node()
    deploy(node, b"Hello, ")
    [path] = pieces(node)
    content = path.read_bytes()
    if damage == "torn":
        path.write_bytes(content[: len(content) // 2])
    elif damage == "changed":
        path.write_bytes(bytes(byte ^ (index % 1999 == 1000) for index, byte in enumerate(content)))
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "other":
        path.write_bytes(b"millpond pieces1" + bytes(range(256)) * 1000)
    elif damage == "gone":
        path.unlink()
    elif damage == "folder":
        path.unlink()
        path.mkdir()
    deploy(node, b"Howdy, ")
    deploy(node, b"Adieu, ")
    if damage != "folder":
        assert compiled(node)[2][0] > 100, "the damage is mended"


def test_pieces_go_with_their_function(make_node):
    node = make_node()
    deploy(node, b"Hello, ")
    deploy(node, b"Howdy, ")
    assert len(pieces(node)) == 1
    assert node.control("DELETE", "/v1/functions/greetings.hello").status in (200, 204)
    assert not list((node.data / "pieces").glob("*/*"))
    deploy(node, b"Howdy, ")
    assert compiled(node)[2][0] == 0


def test_small_modules_leave_none(make_node):
    node = make_node()
    node.deploy("small", {"ping": "ping"})
    assert compiled(node) == [(0, 0)]
    assert not pieces(node)
