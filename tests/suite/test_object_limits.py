"""What bounds the work of the backend for functions, as the configuration says it."""

import json
import threading

import pytest
from harness import cli
from lying import LyingServer
from test_objects import objects

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


def test_less_memory_than_a_few_calls_need_is_refused(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text('[s3]\nanonymous = true\nmemory = "1MiB"\n')
    refused = cli("serve", "--config", path, "--data", tmp_path / "data")
    assert refused.returncode != 0 and b"`memory` of `[s3]` must be at least 32MiB" in refused.stderr, refused.stderr
