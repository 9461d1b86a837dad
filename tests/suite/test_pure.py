"""Pure functions: sets of items in, sets of items out, and nothing else, whatever runs them."""

import email.parser
import email.policy
import re

import pytest
from harness import eventually

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


def test_a_component_is_refused(node):
    with pytest.raises(AssertionError, match="is for core modules"):
        node.deploy("pure-component", {"it": ("http-component", {"protocol": "pure"})})
