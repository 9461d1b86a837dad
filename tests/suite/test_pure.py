"""Pure functions: sets of items in, sets of items out, and nothing else, whatever runs them."""

import ctypes
import email.parser
import email.policy
import re
import struct
import subprocess
import threading
from collections import Counter

import pytest
from harness import GUESTS, ROOT, eventually

ENGINES = ["wasmtime", "wasmtime-dense", "aot", "aot-software", "aot-mask", "rwasm", "rwasm-mask"]
PURE = {"protocol": "pure", "input_sets": ["words", "more"], "output_sets": ["text", "facts"]}
ONE = {"protocol": "pure", "input_sets": ["words"], "output_sets": ["text"], "content_type": "text/plain"}


def form(*parts, boundary="b0und"):
    """Parts of name, data and further header lines."""
    body = b""
    for name, data, *lines in parts:
        head = "\r\n".join([f'Content-Disposition: form-data; name="{name}"', *lines])
        body += f"--{boundary}\r\n{head}\r\n\r\n".encode() + data + b"\r\n"
    return body + f"--{boundary}--\r\n".encode(), {"Content-Type": f"multipart/form-data; boundary={boundary}"}


def items(answer):
    """Of a form: data by `SET/ITEM`."""
    head = f"Content-Type: {answer.headers['Content-Type']}\r\n\r\n".encode()
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + answer.body)
    assert message.is_multipart(), answer.body
    return {part.get_param("name", header="content-disposition"): part.get_payload(decode=True) for part in message.iter_parts()}


@pytest.fixture(scope="module", params=ENGINES)
def app(request, node):
    if request.param not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip(f"the engine {request.param} is not here: `millpond doctor` says why")
    settings = {"engine": request.param}
    return node.deploy(f"pure-{request.param}", {
        "one": ("pure", ONE | settings),
        "facts": ("pure", PURE | settings | {"arguments": ["words", "facts"], "env": {"MODE": "x"}}),
        "astray": ("pure", ONE | settings | {"output_sets": ["text", "none"], "arguments": ["elsewhere"]}),
        "small": ("pure", ONE | settings | {"response_body": "1KiB"}),
    })


def test_one_body_becomes_one_item_and_one_item_the_response(app):
    answer = app.call("one", b"hello")
    assert (answer.status, answer.body) == (200, b"HELLO")
    assert answer.headers["Content-Type"] == "text/plain"
    assert app.call("one", b"").body == b""


def test_a_form_becomes_sets_of_items(app):
    body, headers = form(("words/b", b"two"), ("words/a", b"one "), ("more/x", b"unread", "Millpond-Key: 7"))
    answer = app.call("facts", body, headers=headers)
    assert answer.status == 200, answer.body
    found = items(answer)
    assert found["text/joined"] == b"ONE TWO"
    assert set(found) == {"text/joined", "facts/time", "facts/random", "facts/refused"}


def test_equal_inputs_give_equal_answers(app):
    body, headers = form(("words/a", b"one"))
    first = app.call("facts", body, headers=headers)
    assert first.status == 200, first.body
    assert app.call("facts", body, headers=headers).body == first.body
    other = items(app.call("facts", form(("words/a", b"two"))[0], headers=headers))
    assert other["facts/random"] != items(first)["facts/random"]
    # The world begins with the year 2000.
    assert re.fullmatch(rb"9466848\d\d\.\d{9}", items(first)["facts/time"])


def test_it_sees_nothing_else(app):
    found = items(app.call("facts", b"x"))
    refused = found["facts/refused"].decode().split("; ")
    assert refused == ["Read-only file system", "No such file or directory", "1 variables"]


def test_what_it_says_goes_to_the_log(node, app):
    request = app.call("one", b"hello").headers["X-Request-Id"]
    told = lambda: node.records(f"{app.name}.one", f"?request={request}")
    assert "done" in [record["message"] for record in eventually(told, "the request has logged")]


def test_a_request_that_is_no_input_is_the_senders_to_mend(app):
    body, headers = form(("other/a", b""))
    problem = app.call("one", body, headers=headers).problem(400, "function-bad-input")
    assert "no input set `other`; it has `words`" in problem["detail"]
    app.call("one", b"no form", headers=headers).problem(400, "function-bad-input")


def test_faults_are_those_of_any_function(app):
    assert "exited with code 2" in app.call("astray", b"x").problem(502, "function-exit")["detail"]
    app.call("small", b"x" * 2000).problem(502, "limit-response-body")
    assert app.call("small", b"x" * 1000).status == 200


def test_engines_give_the_same(node):
    body, headers = form(("words/a", b"one"), ("more/b", b"two"))
    known = node.control("GET", "/v1/node").document["engines"]
    answers = {}
    for engine in set(ENGINES) & set(known):
        app = node.deploy(f"pure-same-{engine}", {"facts": ("pure", PURE | {"engine": engine, "arguments": ["words", "facts"]})})
        answers[engine] = items(app.call("facts", body, headers=headers))
    assert len({tuple(sorted(found.items())) for found in answers.values()}) == 1, answers


@pytest.mark.parametrize("engine", ["wasmtime", "aot", "process"])
def test_a_sandbox_comes_with_the_last_byte_of_its_inputs(make_node, engine):
    """On a node of its own, all of whose sandboxes are counted."""
    node = make_node()
    if engine not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip(f"the engine {engine} is not here: `millpond doctor` says why")
    code = (GUESTS / "words.native").read_bytes() if engine == "process" else "words-files"
    app = node.deploy("slow", {"pure": (code, WORDS | {"engine": engine, "memory": "64MiB"}), "ping": "ping", "sleep": "sleep"})
    alive = lambda: sum(value for series, value in node.metrics().items() if series.startswith("millpond_sandboxes{"))
    # One that waits is seen.
    waiting = threading.Thread(target=lambda: app.call("sleep", rest="?ms=3000"))
    waiting.start()
    eventually(lambda: alive() == 1, "a sandbox that sleeps is counted")
    waiting.join()
    eventually(lambda: alive() == 0, "it is gone")

    text = b"mill pond " * 100_000
    head = f"POST {app.path('pure')} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\nExpect: 100-continue\r\n\r\n"
    with node.wire() as wire:
        wire.send(head.encode())
        assert wire.read("POST").status == 100
        for begin in range(0, len(text), 200_000):
            assert alive() == 0, f"it has a sandbox for {begin} bytes of {len(text)}"
            wire.send(text[begin : begin + 200_000])
            if begin + 200_000 < len(text):
                # What was sent before has been read by the one core then, but for what is still on its way.
                assert app.call("ping").text == "pong\n"
                eventually(lambda: alive() == 0, "only that one's sandbox was there")
        answer = wire.read("POST")
    assert answer.status == 200 and items(answer) == {"counts/body": b"mill 100000\npond 100000\n"}


def test_a_component_is_refused(node):
    with pytest.raises(AssertionError, match="is for core modules"):
        node.deploy("pure-component", {"it": ("http-component", {"protocol": "pure"})})


# --- one function, in several languages and by both ways of having sets ---

WAYS = ["words-c", "words-rust", "words-files"]
SOURCES = ROOT / "tests" / "guests" / "words-python"
WORDS = {"protocol": "pure", "input_sets": ["texts", "matrices"], "output_sets": ["counts", "product"]}
TEXTS = {"empty": b"", "one": b"mill", "some": "A pond, a mill; the mill's pond. Größe größe".encode(), "zeros": b"\0" * 1000}
INF, ZERO = float("inf"), 0.0
MATRICES = {
    "a": struct.pack("<9d", 1, 2, 3, 4, 5, 6, INF, -INF, ZERO),
    "b": struct.pack("<9d", 1, INF, 1, 2, -INF, 0, 3, 1, -1),
}
NAN = (0x7FF8000000000000).to_bytes(8, "little")


def counted(text):
    """What the function is to say of a text."""
    words = Counter(re.findall(rb"[A-Za-z\x80-\xff]+", text))
    return b"".join(b"%s %d\n" % pair for pair in sorted(words.items()))


def multiplied(a, b):
    """The product as the function is to leave it, with canonical NaNs."""
    a, b = (struct.unpack("<9d", matrix) for matrix in (a, b))
    product = []
    for i in range(3):
        for j in range(3):
            total = 0.0
            for k in range(3):
                total += a[3 * i + k] * b[3 * k + j]
            product.append(NAN if total != total else struct.pack("<d", total))
    return b"".join(product)


@pytest.fixture(scope="module", params=ENGINES)
def words(request, node):
    if request.param not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip(f"the engine {request.param} is not here: `millpond doctor` says why")
    settings = WORDS | {"engine": request.param, "memory": "16MiB"}
    return node.deploy(f"words-{request.param}", {way: (way, settings) for way in WAYS})


def test_both_ways_and_both_languages_give_the_same(words):
    parts = [(f"texts/{name}", text) for name, text in TEXTS.items()]
    body, headers = form(*parts, *((f"matrices/{name}", matrix) for name, matrix in MATRICES.items()))
    expected = {f"counts/{name}": counted(text) for name, text in TEXTS.items()} | {"product/c": multiplied(**MATRICES)}
    assert NAN in expected["product/c"]
    answers = set()
    for way in WAYS:
        # Of the second request on, sandboxes are those of before, as new.
        for _ in range(3):
            answer = words.call(way, body, headers=headers)
            assert answer.status == 200, (way, answer.body)
            assert items(answer) == expected, way
            answers.add(answer.body)
    assert len(answers) == 1


@pytest.mark.skipif(not (GUESTS / "words-go.wasm").exists(), reason="build/guests/words-go.wasm is not built: that takes Go 1.25 or later")
@pytest.mark.parametrize("engine", ["wasmtime", "wasmtime-dense", "aot"])
def test_the_same_in_go(node, engine):
    """By the way of files, which its library knows. Modules of its size are none for rwasm."""
    if engine not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip(f"the engine {engine} is not here: `millpond doctor` says why")
    app = node.deploy(f"words-go-{engine}", {"it": ("words-go", WORDS | {"engine": engine, "memory": "64MiB"})})
    knows_words(app, "it")


def knows_words(app, function, *more):
    """It answers as it does in C and in Rust, and always with the same bytes. More parts may go with each request."""
    parts = [(f"texts/{name}", text) for name, text in TEXTS.items()]
    body, headers = form(*parts, *((f"matrices/{name}", matrix) for name, matrix in MATRICES.items()), *more)
    expected = {f"counts/{name}": counted(text) for name, text in TEXTS.items()} | {"product/c": multiplied(**MATRICES)}
    answers = [app.call(function, body, headers=headers) for _ in range(3)]
    assert all(answer.status == 200 and items(answer) == expected for answer in answers), answers[0].body
    assert len({answer.body for answer in answers}) == 1
    lonely, headers = form(("matrices/a", MATRICES["a"]), *more)
    assert "exited with code 5" in app.call(function, lonely, headers=headers).problem(502, "function-exit")["detail"]
    odd, headers = form(("matrices/a", b"12345"), ("matrices/b", b"12345"), *more)
    assert "exited with code 4" in app.call(function, odd, headers=headers).problem(502, "function-exit")["detail"]


# CPython takes longer to start than any of the other functions to end.
PYTHON = WORDS | {"memory": "64MiB", "timeout": "60s"}
CHANCE = """
import os, random, time, uuid
with open("/out/output/found", "w") as found:
    print(random.random(), hash("x"), os.urandom(8), uuid.uuid4(), file=found)
    print(time.gmtime().tm_year, time.time_ns() // 10**9, file=found)
    print(os.listdir("/"), dict(os.environ), file=found)
"""


@pytest.fixture(scope="module", params=["wasmtime", "wasmtime-dense"])
def python(request, node):
    """CPython, a command like others. Its program is an argument, or an item."""
    if request.param not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip(f"the engine {request.param} is not here: `millpond doctor` says why")
    program, settings = (SOURCES / "words.py").read_text(), PYTHON | {"engine": request.param}
    sent = {"input_sets": [*WORDS["input_sets"], "program"], "arguments": ["/in/program/words.py"]}
    chance = {"input_sets": ["input"], "output_sets": ["output"], "arguments": ["-c", CHANCE]}
    return node.deploy(f"words-python-{request.param}", {
        "it": ("python", settings | {"arguments": ["-c", program]}),
        "sent": ("python", settings | sent),
        "chance": ("python", settings | chance),
    })


def test_the_same_in_python(python):
    knows_words(python, "it")
    knows_words(python, "sent", ("program/words.py", (SOURCES / "words.py").read_bytes()))


def test_what_python_takes_for_chance_is_decided_by_its_inputs(python):
    answers = [python.call("chance", body) for body in (b"one", b"one", b"two")]
    assert all(answer.status == 200 for answer in answers), answers[0].body
    first, again, other = (answer.text.splitlines() for answer in answers)
    assert first == again
    assert first[0] != other[0] and first[1:] == other[1:]
    assert first[1:] == ["2000 946684800", "['in', 'out', 'tmp'] {}"]


def test_keys_stay_with_items(words):
    body, headers = form(("texts/a", b"mill", "Millpond-Key: 7"), ("texts/b", b"pond"))
    for way in ["words-c", "words-rust"]:
        answer = words.call(way, body, headers=headers)
        assert answer.status == 200, answer.body
        assert answer.body.count(b"millpond-key: 7\r\n") == 1, answer.body
        large, headers = form(("texts/a", b"mill", f"Millpond-Key: {1 << 40}"))
        problem = words.call(way, large, headers=headers).problem(400, "function-bad-input")
        assert "the key of `texts/a` is 1099511627776, and the function's numbers have 32 bits" in problem["detail"]


def test_both_ways_fail_alike(words):
    lonely, headers = form(("matrices/a", MATRICES["a"]))
    odd, _ = form(("matrices/a", b"12345"), ("matrices/b", b"12345"))
    for way in WAYS:
        assert "exited with code 5" in words.call(way, lonely, headers=headers).problem(502, "function-exit")["detail"]
        assert "exited with code 4" in words.call(way, odd, headers=headers).problem(502, "function-exit")["detail"]
        assert items(words.call(way, b"mill")) == {"counts/body": b"mill 1\n"}


def test_sets_have_room_in_the_functions_memory(words):
    """Large inputs, with memory for counting: what is given back is a small part of it."""
    text = b"mill pond " * 100_000
    for way in WAYS[:2]:
        assert items(words.call(way, text)) == {"counts/body": b"mill 100000\npond 100000\n"}, way
    problem = words.call("words-c", b"x" * (16 << 20)).problem(502, "function-out-of-memory")
    assert "its inputs and what describes them take" in problem["detail"]


class SystemData(ctypes.Structure):
    """What a function of 64 bits has for its host."""

    _fields_ = [
        ("exit_code", ctypes.c_int32), ("heap_begin", ctypes.c_size_t), ("heap_end", ctypes.c_size_t),
        ("input_sets_length", ctypes.c_size_t), ("input_sets", ctypes.c_void_p),
        ("output_sets_length", ctypes.c_size_t), ("output_sets", ctypes.c_void_p),
        ("inputs", ctypes.c_void_p), ("outputs", ctypes.c_void_p),
    ]


class Set(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("name_length", ctypes.c_size_t), ("first", ctypes.c_size_t)]


class Buffer(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p), ("name_length", ctypes.c_size_t),
        ("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("key", ctypes.c_size_t),
    ]


def test_the_same_source_is_native_code_of_64_bits():
    """Here this process is the host of a library of it; as a program it ends, and says that nobody gave it sets."""
    library = ctypes.CDLL(GUESTS / "words.so")
    data = SystemData.in_dll(library, "__dandelion_system_data")
    assert data.exit_code == 256
    heap = ctypes.create_string_buffer(1 << 20)
    sets = (Set * 3)(Set(b"texts", 5, 0), Set(b"matrices", 8, 1), Set(None, 0, 1))
    outputs = (Set * 3)(Set(b"counts", 6, 0), Set(b"product", 7, 0), Set(None, 0, 0))
    text = ctypes.create_string_buffer(TEXTS["some"], len(TEXTS["some"]))
    buffers = (Buffer * 1)(Buffer(b"some", 4, ctypes.addressof(text), len(text), 9))
    data.heap_begin, data.heap_end = ctypes.addressof(heap), ctypes.addressof(heap) + len(heap)
    data.input_sets_length, data.input_sets = 2, ctypes.addressof(sets)
    data.output_sets_length, data.output_sets = 2, ctypes.addressof(outputs)
    data.inputs = ctypes.addressof(buffers)
    assert library.millpond_run() == 0 and data.exit_code == 0
    assert [one.first for one in outputs] == [0, 1, 1]
    item = Buffer.from_address(data.outputs)
    assert (item.name[: item.name_length], item.key) == (b"some", 9)
    assert ctypes.string_at(item.data, item.size) == counted(TEXTS["some"])
    assert subprocess.run([GUESTS / "words.native"], timeout=10).returncode == 3


def test_code_without_a_place_for_its_sets_is_refused(node):
    with pytest.raises(AssertionError, match="cannot grow"):
        code = (GUESTS / "words-c.wasm").read_bytes()
        # Its memory's type: no maximum, and so many pages at first.
        at = code.index(b"\x05\x03\x01\x00")
        pages = code[at + 4]
        code = code[:at] + bytes([5, 4, 1, 1, pages, pages]) + code[at + 5 :]
        node.deploy("pure-narrow", {"it": (code, WORDS)})
