"""Memory of a Python function's interpreter: its forks share it by large pages and in few pieces, find room of their own in such, and what a request gives back it can have again."""

import json
import mmap
import re
import statistics
from collections import Counter
from pathlib import Path

import pytest
from harness import eventually
from test_python import function, has_engine, interpreters  # noqa: F401

LARGE = 2 << 20
MADV_COLLAPSE = 25

HELD = """
held = [str(number) * 40 for number in range(100_000)]

def handler(event, context):
    before = sum(map(len, held))
    held[event["n"]] = "changed"
    return before, held[event["n"] - 1][:6], held[event["n"]]
"""


def in_large_pages(process):
    """Bytes."""
    found = re.search(r"^AnonHugePages:\s*(\d+) kB", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[1]) << 10


def can_collapse():
    with mmap.mmap(-1, 2 * LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(b"a" * 2 * LARGE)
        try:
            memory.madvise(MADV_COLLAPSE)
        except OSError:
            return False
    return True


# After a rest; and in the midst of many forks, or at the rest after them.
@pytest.mark.parametrize("calls", [1, 40])
def test_forks_share_large_pages(make_node, calls):
    if not can_collapse():
        pytest.skip("this kernel does not put pages together when it is asked to")
    node = make_node()
    app = node.deploy("held", {"f": function(HELD)})
    said = lambda number: app.call("f", json.dumps({"n": number}).encode()).document
    bytes_held = sum(len(str(number)) * 40 for number in range(100_000))
    for number in range(1, calls + 1):
        assert said(number) == [bytes_held, (str(number - 1) * 40)[:6], "changed"]
    [interpreter] = interpreters(node)
    # How many the kernel finds room for is its own affair.
    eventually(lambda: in_large_pages(interpreter) >= 2 * LARGE, "what the import has made lies in large pages")
    # Each fork writes to its own copy.
    assert [said(number)[0] for number in (5, 5, 7)] == [bytes_held] * 3
    assert [interpreter] == interpreters(node)


def has_large_pages():
    """Whether who asks for large pages gets them when memory is first written to."""
    with mmap.mmap(-1, 2 * LARGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_HUGEPAGE)
        memory.write(b"a" * 2 * LARGE)
        return in_large_pages("self") >= LARGE


TAKEN = """
import resource

def handler(event, context):
    usage = lambda: resource.getrusage(resource.RUSAGE_SELF)
    before = usage()
    blocks = [bytearray(b"x") * event["bytes"] for _ in range(event["blocks"])]
    return usage().ru_minflt - before.ru_minflt, (usage().ru_maxrss - before.ru_maxrss) << 10
"""


@pytest.mark.parametrize("reuse", [1, 1000])
def test_who_takes_much_finds_room_in_large_pages_and_who_takes_little_takes_none(make_node, reuse):
    if not has_large_pages():
        pytest.skip("this kernel has no large pages for who asks")
    node = make_node()
    # Blocks of the C library's heap, and such as lie in the interpreter's arenas.
    for number, (blocks, size) in enumerate([(4, 1 << 20), (40_000, 400)]):
        app = node.deploy(f"taken-{number}", {"f": function(TAKEN, reuse=reuse, memory="256MiB")})
        take = lambda blocks, size: app.call("f", json.dumps({"blocks": blocks, "bytes": size}).encode()).document
        _, more = take(1, 64 << 10)
        assert more < LARGE
        faults, more = take(blocks, size)
        assert more > blocks * size // 2
        # How many the kernel finds room for is its own affair.
        assert faults < blocks * size // mmap.PAGESIZE // 2


def pieces_of_libraries(process):
    """In how many pieces each library lies."""
    lines = [line.split(maxsplit=5) for line in Path(f"/proc/{process}/maps").read_text().splitlines()]
    return Counter(line[5] for line in lines if len(line) == 6 and re.search(r"\.so(\.|$)", line[5]))


def test_forks_share_libraries_in_few_pieces(make_node):
    node = make_node()
    code = """
import ctypes, decimal, hashlib, sqlite3, ssl, zlib

def handler(event, context):
    written = sqlite3.connect(":memory:").execute("select 6 * 7").fetchone()[0]
    return written, str(decimal.Decimal(1) / 8), hashlib.sha256(b"a").hexdigest()[:4], ctypes.sizeof(ctypes.c_int)
"""
    app = node.deploy("libraries", {"f": function(code)})
    said = [42, "0.125", "ca97", 4]
    assert app.call("f", b"{}").document == said
    [interpreter] = interpreters(node)
    # One that may be executed, and one that may be written; who made a library may have seen to it that they do not lie beside each other.
    eventually(lambda: statistics.median(pieces_of_libraries(interpreter).values()) <= 2, "most libraries lie in two pieces")
    assert [app.call("f", b"{}").document for _ in range(3)] == [said] * 3
    assert [interpreter] == interpreters(node)


def test_what_is_given_back_can_be_had_again(make_node):
    code = """
def handler(event, context):
    seen = []
    for _ in range(3):
        # Small ones lie in the interpreter's arenas, a large one does not: there is not room for both.
        small = [bytes(400) + bytes([number % 251]) for number in range(350_000)]
        seen.append(sum(one[-1] for one in small[::1000]))
        del small
        large = bytearray(150 << 20)
        large[::4096] = b"x" * len(large[::4096])
        seen.append(large.count(b"x"))
        del large
    return seen
"""
    app = make_node().deploy("given-back", {"f": function(code, memory="256MiB", cpu_time="60s")})
    small = sum(number % 251 for number in range(0, 350_000, 1000))
    assert app.call("f", b"{}").document == [small, (150 << 20) // 4096] * 3
