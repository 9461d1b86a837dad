"""What bounds the work of the backend for functions, as the configuration says it."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import cli
from lying import LyingServer
from objects import granted
from test_objects import objects
from test_permits import deploy, permit
from test_tenants import OPERATOR, make_tenant

RATE = 10_000_000

HANDLER = """
import boto3, concurrent.futures, time
s3 = boto3.client("s3")
data = bytes(range(256)) * 12_000


def put(number):
    s3.put_object(Bucket="pond", Key=f"k{number}", Body=data)
    return s3.get_object(Bucket="pond", Key=f"k{number}")["Body"].read() == data


def handler(event, context):
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(event["at once"]) as pool:
        equal = list(pool.map(put, range(event["from"], event["from"] + event["at once"])))
    return [all(equal), len(data) * event["at once"], time.monotonic() - begun]
"""


# By the clock that all processes of the machine have.
TOGETHER = HANDLER.replace("time.monotonic() - begun]", "[begun, time.monotonic()]]")


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """On a node that has little of everything."""
    from conftest import end, running
    from harness import Node

    server, folder = LyingServer(), tmp_path_factory.mktemp("limits")
    keys = folder / "keys"
    keys.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = b\n")
    keys.chmod(0o600)
    s3 = {"endpoint": server.endpoint, "credentials_file": str(keys), "memory": "32MiB", "connections": 2, "bandwidth": RATE // 125_000}
    node = Node(folder, config="[s3]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in s3.items()))
    running.append(node)
    node.start()
    if "process" not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")
    yield node.deploy("limits", {"f": objects(HANDLER, memory="256MiB")})
    end(node)
    server.close()


def test_a_sandbox_has_its_bandwidth(app):
    equal, size, took = app.call("f", b'{"at once": 4, "from": 0}').document
    # A burst is an eighth of a second's, and both ways are open at once.
    assert equal and took >= (size - RATE / 8) / RATE, took


def test_what_there_is_too_little_for_waits_and_does_not_fail(app):
    answers = []

    def run(number):
        answers.append(app.call("f", json.dumps({"at once": 3, "from": 10 * number}).encode()))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.document[0] for answer in answers] == [True] * 4


def test_the_sandboxes_of_a_tenant_share_its_bandwidth(make_node, tmp_path):
    """Two requests at once, each of which has a sandbox; their own bandwidth is not limited."""
    server = LyingServer()
    settings = f'[s3]\nendpoint = "{server.endpoint}"\nanonymous = true\nbandwidth = 0\ntenant_bandwidth = {RATE // 125_000}\n'
    node = make_node(config=settings + permit("acme", "pond", "get", "put"), token=OPERATOR)
    if "process" not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")
    try:
        acme = make_tenant(node, "acme")
        deploy(acme, "limits", {"f": objects(TOGETHER, granted("pond", "get", "put"), memory="256MiB")})
        with ThreadPoolExecutor(2) as pool:
            ask = lambda first: acme.request("POST", "/function/limits.f", json.dumps({"at once": 2, "from": first}).encode())
            answers = [answer.document for answer in pool.map(ask, (0, 10))]
        size = sum(size for _, size, _ in answers)
        begun, ended = min(span[0] for *_, span in answers), max(span[1] for *_, span in answers)
        assert all(equal for equal, *_ in answers)
        assert ended - begun >= (size - RATE / 8) / RATE, answers
    finally:
        server.close()


def test_less_memory_than_a_few_calls_need_is_refused(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('[s3]\nanonymous = true\nmemory = "1MiB"\n')
    refused = cli("serve", "--config", path, "--data", tmp_path / "data")
    assert refused.returncode != 0 and b"`memory` of `[s3]` must be at least 32MiB" in refused.stderr, refused.stderr
