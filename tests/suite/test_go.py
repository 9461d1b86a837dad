"""A component of `wasi:http` that Go's own compiler has made, with wit-bindgen's bindings."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import ROOT

GUEST = ROOT / "build/guests/http-go.wasm"

pytestmark = pytest.mark.skipif(not GUEST.exists(), reason="build/guests/http-go.wasm is not built: that takes Go 1.25 or later")


@pytest.fixture(scope="module")
def deployed(node):
    node.deploy("gophers", {"http": ("http-go", {"request_body": "4MiB"})})
    return node


def test_it_sees_its_request(deployed):
    answer = deployed.request("PUT", "/function/gophers.http/a/b?c=d", headers={"X-Said": "hello"})
    assert (answer.status, answer.text) == (200, "PUT /function/gophers.http/a/b?c=d\nhello\n")


@pytest.mark.parametrize("size", [0, 1, 4096, 100_000, 3_000_000])
def test_bodies_come_and_go_in_pieces(deployed, size):
    body = bytes(n * 31 % 251 for n in range(size))
    answer = deployed.request("POST", "/function/gophers.http/echo", body)
    assert answer.status == 200 and answer.body == body


def test_every_request_has_a_fresh_instance(deployed):
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda _: deployed.request("GET", "/function/gophers.http/"), range(100)))
    assert {(answer.status, answer.headers["x-calls"]) for answer in answers} == {(200, "1")}
