"""Services of AWS beside S3 and Lambda: a function's own boto3, whose requests the backend signs. The services here check signatures as AWS does."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from harness import GUESTS, PATIENCE, Node, eventually
from signed import is_signed, scope
from test_boto3 import brought
from test_objects import kill_backend
from test_tenants import OPERATOR, make_tenant

KEY, SECRET, TOKEN = "AKIDOFTHEPOND", "s3cr3t/of+the/pond/0123456789", "a-session's-token"

CODE = """
import boto3, os
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

config = Config(region_name="eu-west-1", retries={"max_attempts": 0})
dynamodb, sns, sts = (boto3.client(name, config=config) for name in ("dynamodb", "sns", "sts"))
orders = boto3.resource("dynamodb", config=config).Table("orders")
here = {"Id": {"S": "1"}}
again = {mode: Config(region_name="eu-west-1", retries={"mode": mode, "total_max_attempts": 3}) for mode in ("legacy", "standard")}
again = {mode: [boto3.client(name, config=config) for name in ("dynamodb", "sns")] for mode, config in again.items()}

DO = {
    "put": lambda: orders.put_item(Item={"Id": "1", "text": "a table's item"}) and None,
    "get": lambda: orders.get_item(Key={"Id": "1"})["Item"],
    "get of another": lambda: dynamodb.get_item(TableName="bills", Key=here),
    "get of both": lambda: dynamodb.batch_get_item(RequestItems={"orders": {"Keys": [here]}, "bills": {"Keys": [here]}}),
    "get of an account's": lambda: dynamodb.get_item(TableName="arn:aws:dynamodb:eu-west-1:999999999999:table/orders", Key=here),
    "delete": lambda: orders.delete_item(Key={"Id": "1"}),
    "list": lambda: dynamodb.list_tables(),
    "publish": lambda: sns.publish(TopicArn="arn:aws:sns:eu-west-1:123456789012:news", Message="<m> & more")["MessageId"],
    "publish elsewhere": lambda: sns.publish(TopicArn="arn:aws:sns:eu-west-1:123456789012:other", Message="m"),
    "text": lambda: sns.publish(PhoneNumber="+15550100", Message="m"),
    "who": lambda: sts.get_caller_identity(),
    "none": lambda: dynamodb.describe_table(TableName="none"),
    "environment": lambda: dict(os.environ),
    "count": lambda: len(events),
}
for mode, (table, topic) in again.items():
    DO[f"get, {mode}"] = lambda table=table: table.get_item(TableName="orders", Key=here)["Item"]["Id"]
    DO[f"publish, {mode}"] = lambda topic=topic: topic.publish(TopicArn="arn:aws:sns:eu-west-1:123456789012:news", Message="once")


events = []


def handler(event, context):
    events.append(event)
    try:
        return DO[event["do"]]()
    except ClientError as error:
        return [error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]]
    except BotoCoreError as error:
        return [type(error).__name__, str(error)]
"""


class Services(ThreadingHTTPServer):
    """Tables and a topic. A request whose signature is not that of its bytes is refused, and kept as wrong."""

    def __init__(self):
        self.items, self.published, self.asked, self.wrong = {}, [], [], []
        # Set once the next request has been done, which is not answered then.
        self.is_done, self.over = None, threading.Event()
        super().__init__(("127.0.0.1", 0), Answers)
        self.thread = threading.Thread(target=self.serve_forever)
        self.thread.start()
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"

    def close(self):
        self.over.set()
        self.shutdown()
        self.thread.join()
        self.server_close()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        _, _, region, service = scope(self.headers)
        self.server.asked.append((service, self.headers.get("x-amz-target"), sorted(self.headers)))
        if region != "eu-west-1" or not is_signed("POST", self.path, self.headers, body, KEY, SECRET, TOKEN):
            self.server.wrong.append(dict(self.headers))
            return self.answer(403, {"__type": "InvalidSignatureException", "message": "it is not"})
        if service == "dynamodb":
            asked = json.loads(body)
            match self.headers["x-amz-target"]:
                case "DynamoDB_20120810.PutItem":
                    self.server.items[asked["Item"]["Id"]["S"]] = asked["Item"]
                    return self.answer(200, {})
                case "DynamoDB_20120810.GetItem":
                    return self.answer(200, {"Item": self.server.items[asked["Key"]["Id"]["S"]]})
                case _:
                    return self.answer(400, {"__type": "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException", "message": "none"})
        self.server.published.append({name: values[0] for name, values in parse_qs(body.decode()).items()})
        self.answer(200, b"<PublishResponse><PublishResult><MessageId>1</MessageId></PublishResult></PublishResponse>")

    def answer(self, status, document):
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        if is_done := self.server.is_done:
            self.server.is_done = None
            is_done.set()
            self.server.over.wait()
        self.send_response(status)
        self.send_header("content-type", "text/xml" if isinstance(document, bytes) else "application/x-amz-json-1.0")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def services():
    services = Services()
    yield services
    services.close()


GRANTS = [
    {"service": "dynamodb", "actions": ["GetItem", "PutItem", "Batch*"], "resources": ["orders"]},
    {"service": "dynamodb", "actions": ["DescribeTable"], "resources": ["*"]},
    {"service": "sns", "actions": ["Publish"], "resources": ["arn:aws:sns:*:123456789012:news"]},
]


def configuration(services, folder):
    """Of a node that asks these."""
    keys = folder / "keys"
    keys.write_text(f"[pond]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\naws_session_token = {TOKEN}\n")
    keys.chmod(0o600)
    return f'[aws]\nendpoint = "{services.endpoint}"\nregion = "eu-west-1"\ncredentials_file = "{keys}"\nprofile = "pond"\n'


@pytest.fixture(scope="module")
def node(services, tmp_path_factory):
    from conftest import end, running

    folder = tmp_path_factory.mktemp("aws")
    node = Node(folder, config=configuration(services, folder))
    running.append(node)
    node.start()
    if "process" not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")
    yield node
    end(node)


@pytest.fixture(scope="module")
def app(node):
    code = brought(code=CODE, models=("dynamodb", "sns", "sts"))
    settings = {"handler": "app.handler", "memory": "512MiB", "timeout": "60s"}
    granted = settings | {"grants": {"aws": GRANTS}}
    return node.deploy("aws", {"f": (code, granted), "kept": (code, granted | {"reuse": 1000}), "bare": (code, settings)})


@pytest.fixture
def do(app):
    def do(what, function="f"):
        answer = app.call(function, json.dumps({"do": what}).encode())
        assert answer.status == 200, answer.body[:2000]
        return answer.document

    return do


@pytest.mark.limit(300)
def test_what_is_granted_is_signed_and_sent(do, services):
    assert do("put") is None and services.items["1"]["text"] == {"S": "a table's item"}
    assert do("get") == {"Id": "1", "text": "a table's item"}
    assert do("publish") == "1" and services.published[-1]["Message"] == "<m> & more"
    assert do("none") == ["ResourceNotFoundException", 400], "a service's errors are its own"
    assert not services.wrong and {asked[0] for asked in services.asked} == {"dynamodb", "sns"}


@pytest.mark.limit(300)
def test_what_is_not_granted_is_not_sent(do, services):
    before = len(services.asked)
    for what in ("get of another", "get of both", "get of an account's", "delete", "list"):
        assert do(what) == ["AccessDeniedException", 400], what
    for what in ("publish elsewhere", "text"):
        assert do(what) == ["AccessDenied", 403], what
    for what in ("put", "who"):
        assert do(what, "bare")[0].startswith("AccessDenied"), what
    assert do("who")[0].startswith("AccessDenied"), "nothing gives credentials"
    assert len(services.asked) == before


@pytest.mark.limit(300)
@pytest.mark.parametrize("mode", ["legacy", "standard"])
def test_what_was_asked_of_a_backend_that_is_killed_is_asked_again_if_it_changes_nothing(do, node, services, mode):
    def lost(what):
        services.is_done = is_done = threading.Event()
        before, answers = len(services.asked), []
        asking = threading.Thread(target=lambda: answers.append(do(f"{what}, {mode}")))
        asking.start()
        assert is_done.wait(PATIENCE)
        kill_backend(node)
        asking.join()
        return answers[0], len(services.asked) - before

    do("put")
    assert lost("get") == ({"S": "1"}, 2)
    published = len(services.published)
    (error, told), asked = lost("publish")
    assert (error, asked, len(services.published) - published) == ("UnansweredError", 1, 1)
    assert "It may have been done or not" in told
    assert do("publish") == "1", "others are served"


@pytest.mark.limit(300)
def test_a_link_whose_backend_has_gone_is_made_anew_whatever_is_asked(do, node, services):
    assert do("publish", "kept") == "1"
    for mode in ("legacy", "standard"):
        killed = kill_backend(node)
        eventually(lambda killed=killed: not any(Path(f"/proc/{one}").exists() for one in killed), "it has ended")
        # Nobody has heard of what is told to nobody.
        published = len(services.published)
        assert do(f"publish, {mode}", "kept")["MessageId"] == "1"
        assert len(services.published) == published + 1
    assert do("count", "kept") == 4, "it is one process, which has kept its link"


@pytest.mark.limit(300)
def test_no_key_is_with_the_function(do):
    said = json.dumps(do("environment"))
    assert not any(secret in said for secret in (KEY, SECRET, TOKEN))


@pytest.mark.limit(300)
def test_tenants_ask_aws_for_what_they_were_permitted(services, make_node, tmp_path):
    permits = "".join(
        f"[[tenant.acme.aws]]\nservice = {json.dumps(service)}\nactions = {json.dumps(actions)}\nresources = {json.dumps(resources)}\n"
        for service, actions, resources in (("dynamodb", ["Get*", "Put*", "Batch*"], ["orders", "bills"]), ("sns", ["Publish"], ["arn:aws:sns:*:123456789012:*"])))
    node = make_node(config=configuration(services, tmp_path) + permits, token=OPERATOR)
    if "process" not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")
    acme, rival = make_tenant(node, "acme"), make_tenant(node, "rival")
    code = brought(code=CODE, models=("dynamodb", "sns", "sts"))

    def function(*grants):
        named = [dict(zip(("service", "actions", "resources"), grant, strict=True)) for grant in grants]
        return {"f": (code, {"handler": "app.handler", "memory": "512MiB", "timeout": "60s", "grants": {"aws": named}})}

    items = ("dynamodb", ["GetItem", "PutItem", "BatchGet*"], ["orders"])
    news = ("sns", ["Publish"], ["arn:aws:sns:eu-west-1:123456789012:news"])
    for who, grant, asked in (
        (acme, ("dynamodb", ["DeleteItem"], ["orders"]), "DeleteItem of orders (dynamodb)"),
        (acme, ("dynamodb", ["*"], ["orders"]), "* of orders (dynamodb)"),
        (acme, ("dynamodb", ["GetItem"], ["*"]), "GetItem of * (dynamodb)"),
        (acme, ("sqs", ["SendMessage"], ["*"]), "SendMessage of * (sqs), and the tenant `acme` may have nothing of sqs"),
        (rival, items, "GetItem, PutItem, BatchGet* of orders (dynamodb), and the tenant `rival` may have nothing of dynamodb"),
    ):
        problem = Node.try_deploy(who, "aws", function(*[items] * (who is acme), grant)).problem(422, "not-permitted")
        assert f"`aws.f` asks for {asked}" in problem["detail"] and f"[[tenant.{who.name}.aws]]" in problem["hint"], problem
    assert Node.try_deploy(acme, "aws", function(items, news)).status == 200

    def do(what):
        answer = acme.request("POST", "/function/aws.f", json.dumps({"do": what}).encode())
        assert answer.status == 200, answer.body[:2000]
        return answer.document

    assert do("put") is None and do("get") == {"Id": "1", "text": "a table's item"}
    assert do("publish") == "1"
    before = len(services.asked)
    assert do("get of another") == do("get of both") == ["AccessDeniedException", 400], "permitted, and not granted"
    assert do("publish elsewhere") == ["AccessDenied", 403]
    assert len(services.asked) == before and "acme/aws.f" in node.log.read_text()


def test_a_manifest_names_services_that_are_known(node):
    ping = (GUESTS / "ping.wasm").read_bytes()
    for service, told in (("sts", "dynamodb"), ("iam", "dynamodb"), ("s3", "grants.s3"), ("nonsense", "dynamodb")):
        grant = {"service": service, "actions": ["*"], "resources": ["*"]}
        answer = node.try_deploy("wrong", {"f": (ping, {"grants": {"aws": [grant]}})})
        problem = answer.problem(422, "manifest-invalid")
        assert told in json.dumps(problem), problem
    granted = {"grants": {"aws": [{"service": "sqs", "actions": ["*"], "resources": ["*"]}]}}
    node.try_deploy("wrong", {"f": (ping, granted)}).problem(422, "grants-unavailable")
