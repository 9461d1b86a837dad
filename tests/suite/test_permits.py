"""What the operator permits to tenants of objects: their manifests grant what lies within it, and no longer than it is permitted."""

import json

import pytest
from harness import Node, cli, eventually
from objects import granted
from test_calls import everything
from test_embedded import EMBEDDED, NOTE
from test_embedded import client as embedded_client
from test_objects import objects
from test_python import function as function_of
from test_tenants import OPERATOR, make_tenant

EVERYTHING = ("get", "put", "list", "delete")

ASK = """
import boto3, botocore
def handler(event, context):
    s3 = boto3.client("s3")
    try:
        answer = getattr(s3, event["do"])(**event["with"])
    except botocore.exceptions.ClientError as error:
        return error.response["Error"]["Code"]
    return answer["Body"].read().decode() if "Body" in answer else "done"
"""


def permit(tenant, bucket, *actions, prefix=""):
    """As a node's configuration has it."""
    return f"[[tenant.{tenant}.s3]]\nbucket = {json.dumps(bucket)}\nprefix = {json.dumps(prefix)}\nactions = {json.dumps(actions)}\n"


def try_deploy(who, name, functions, triggers=()):
    """As `Node.try_deploy`, by whoever can send requests to the control API."""
    return Node.try_deploy(who, name, functions, triggers)


def deploy(who, name, functions, triggers=()):
    answer = try_deploy(who, name, functions, triggers)
    assert answer.status == 200, answer.body
    return answer.document


def ask(who, do, **arguments):
    answer = who.request("POST", "/function/asks.f", json.dumps({"do": do, "with": arguments}).encode())
    assert answer.status == 200, answer.body
    return answer.document


def log(node):
    return [json.loads(line) for line in node.log.read_text().splitlines() if line.startswith("{")]


def withheld(node, words):
    """What the node's log says of versions and triggers that go without, in words."""
    return [line for line in map(json.dumps, log(node)) if "permitted" in line and all(word in line for word in words)]


@pytest.fixture
def shared(s3, make_node, tmp_path):
    """A node with S3, on which `acme` may have all of what is below `acme/`, and `rival` may read what is below `rival/`; and how to start it again with
    other permits."""
    places = s3.configuration(tmp_path, poll="100ms")
    permits = permit("acme", "pond", *EVERYTHING, prefix="acme/") + permit("rival", "pond", "get", prefix="rival/")
    node = make_node(config=places + permits, token=OPERATOR)
    if "process" not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")
    node.acme, node.rival = make_tenant(node, "acme"), make_tenant(node, "rival")
    path = node.folder / "config.toml"
    first = path.read_text()

    def again(permits_now):
        node.stop()
        node.log.write_text("")
        path.write_text(first.replace(permits, permits_now))
        node.start()

    node.permits, node.again = permits, again
    return node


def test_tenants_use_the_objects_that_they_were_permitted(shared, s3):
    client = s3.client()
    for key in ("acme/in", "rival/in", "own"):
        client.put_object(Bucket="pond", Key=key, Body=f"this is {key}".encode())
    client.put_object(Bucket="sea", Key="acme/in", Body=b"x")
    deploy(shared.acme, "asks", {"f": objects(ASK, granted("pond", "get", "put", prefix="acme/"), granted("pond", "list", prefix="acme/out/"))})
    deploy(shared.rival, "asks", {"f": objects(ASK, granted("pond", "get", prefix="rival/"))})
    assert ask(shared.acme, "get_object", Bucket="pond", Key="acme/in") == "this is acme/in"
    assert ask(shared.acme, "put_object", Bucket="pond", Key="acme/out/1", Body="x") == "done"
    assert client.get_object(Bucket="pond", Key="acme/out/1")["Body"].read() == b"x"
    assert ask(shared.acme, "list_objects_v2", Bucket="pond", Prefix="acme/out/") == "done"
    assert ask(shared.rival, "get_object", Bucket="pond", Key="rival/in") == "this is rival/in"
    for who, do, arguments in (
        (shared.acme, "get_object", {"Key": "rival/in"}),
        (shared.acme, "get_object", {"Key": "own"}),
        (shared.acme, "get_object", {"Bucket": "sea", "Key": "acme/in"}),
        # Permitted, and not granted.
        (shared.acme, "delete_object", {"Key": "acme/in"}),
        (shared.acme, "list_objects_v2", {"Prefix": "acme/"}),
        (shared.rival, "get_object", {"Key": "acme/in"}),
        (shared.rival, "put_object", {"Key": "rival/out", "Body": "x"}),
        (shared.rival, "copy_object", {"Key": "rival/out", "CopySource": "pond/acme/in"}),
    ):
        assert ask(who, do, **{"Bucket": "pond"} | arguments) == "AccessDenied", (who.name, do, arguments)
    said = shared.log.read_text()
    assert "acme/asks.f" in said and "rival/asks.f" in said, "the log says whose was denied"


def test_what_is_not_permitted_is_not_deployed(shared):
    node = shared
    for who, grant in (
        (node.acme, granted("pond", "get")),
        (node.acme, granted("pond", "get", prefix="acme")),
        (node.acme, granted("sea", "get", prefix="acme/")),
        (node.acme, granted("pond", "get", prefix="rival/")),
        (node.rival, granted("pond", "get", prefix="acme/")),
        (node.rival, granted("pond", "get", "put", prefix="rival/")),
    ):
        # With one that is permitted beside it, in Python and in WebAssembly.
        fine = granted("pond", "get", prefix=f"{who.name}/")
        for function in (objects(ASK, fine, grant), ("object-component", {"grants": {"s3": [fine, grant]}})):
            problem = try_deploy(who, "wants", {"f": function}).problem(422, "not-permitted")
            asked = f"`wants.f` asks for {', '.join(grant['actions'])} of s3://{grant['bucket']}/{grant['prefix']}*"
            assert problem["detail"].startswith(asked), problem
            assert f"s3://pond/{who.name}/*" in problem["detail"], "what it may have is said"
            other = "rival" if who is node.acme else "acme"
            assert f"pond/{other}/" not in problem["detail"].removeprefix(asked), "and nothing of what another may have"
            assert f"[[tenant.{who.name}.s3]]" in problem["hint"], problem
    third = make_tenant(node, "third")
    problem = try_deploy(third, "wants", {"f": objects(ASK, granted("pond", "get"))}).problem(422, "not-permitted")
    assert "`third` may have nothing of S3" in problem["detail"], problem
    assert third.control("GET", "/v1/functions").document["functions"] == []
    # The operator's own need no permit, and may be deployed for a tenant only within its permit.
    wide = {"f": objects(ASK, granted("sea", "get"))}
    assert node.try_deploy("wants", wide).status == 200
    code = {"application": {"name": "wants"}, "function": {"f": {"source": "f.wasm"} | wide["f"][1]}}
    planned = node.control("POST", "/v1/applications/wants/deployments?plan=true", {"manifest": code, "code": {"f": "0" * 64}}, {"X-Millpond-Tenant": "acme"})
    planned.problem(422, "not-permitted")
    described = node.control("GET", "/v1/tenants/acme").document
    assert described["permitted"] == ["get, put, list, delete of s3://pond/acme/*"]
    assert "permitted" not in node.control("GET", "/v1/tenants/third").document


def test_objects_make_functions_of_tenants_run(shared, s3):
    client = s3.client()
    code = NOTE.replace('Bucket="sea", Key="notes/"', 'Bucket="pond", Key="acme/notes/"')
    function = {"note": objects(code, granted("pond", "get", prefix="acme/in/"), granted("pond", "put", prefix="acme/notes/"))}
    trigger = {"function": "note", "bucket": "pond", "prefix": "acme/in/"}
    deploy(shared.acme, "noting", function, {"object": [trigger]})
    for key in ("acme/in/1", "acme/other", "rival/in/1"):
        client.put_object(Bucket="pond", Key=key, Body=key.encode())

    def notes():
        return [one["Key"] for one in client.list_objects_v2(Bucket="pond", Prefix="acme/notes/").get("Contents", [])]

    eventually(lambda: notes() == ["acme/notes/acme/in/1"], "a note is written")
    [call] = everything(shared.acme)
    assert (call["function"], everything(shared.rival)) == ("noting.note", [])
    # Who hears of objects learns their names: as who lists them does.
    for who, prefix in ((shared.acme, ""), (shared.acme, "rival/"), (shared.rival, "acme/"), (shared.rival, "rival/")):
        wanted = {"object": [{"function": "ping", "bucket": "pond", "prefix": prefix}]}
        problem = try_deploy(who, "heard", {"ping": "ping"}, wanted).problem(422, "not-permitted")
        assert f"`heard.ping` asks for list of s3://pond/{prefix}*, for a trigger" in problem["detail"], problem


def test_the_nodes_own_s3_tells_tenants_of_what_they_may_list(make_node):
    node = make_node(config=EMBEDDED + permit("acme", "pond", "list", prefix="acme/"), token=OPERATOR)
    acme = make_tenant(node, "acme")
    embedded_client(node).create_bucket(Bucket="pond")
    deploy(acme, "heard", {"ping": "ping"}, {"object": [{"function": "ping", "bucket": "pond", "prefix": "acme/"}]})
    try_deploy(acme, "more", {"ping": "ping"}, {"object": [{"function": "ping", "bucket": "pond"}]}).problem(422, "not-permitted")
    for key in ("own", "acme/1", "acme/2"):
        embedded_client(node).put_object(Bucket="pond", Key=key, Body=b"x")
    eventually(lambda: len(everything(acme, "succeeded")) == 2, "both have made it run")
    assert len(everything(acme)) == 2


@pytest.mark.limit(300)
def test_what_is_permitted_no_more_is_gone_with_the_next_start(shared, s3):
    node, client = shared, s3.client()
    client.put_object(Bucket="pond", Key="acme/in", Body=b"water")
    function = {"f": objects(ASK, granted("pond", "get", prefix="acme/"), granted("pond", "put", prefix="acme/out/"))}
    trigger = {"object": [{"function": "f", "bucket": "pond", "prefix": "acme/new/"}]}
    deploy(node.acme, "asks", function)
    deploy(node.acme, "heard", {"f": "ping"}, trigger)
    deploy(node, "heard", {"f": "ping"}, trigger)

    def calls(who):
        return [call for call in everything(who, "succeeded") if call["function"] == "heard.f"]

    def written(key):
        """Once it has made the node's own function run, it has made all run that it does: they become calls together."""
        before = len(calls(node))
        client.put_object(Bucket="pond", Key=f"acme/new/{key}", Body=b"x")
        eventually(lambda: len(calls(node)) > before, "the node's own function has run")
        eventually(lambda: not everything(node.acme, "pending"), "nothing waits")

    def reads_and_writes():
        return ask(node.acme, "get_object", Bucket="pond", Key="acme/in"), ask(node.acme, "put_object", Bucket="pond", Key="acme/out/1", Body="x")

    assert reads_and_writes() == ("water", "done") and not withheld(node, [""])
    written("1")
    assert len(calls(node.acme)) == 1

    node.again(permit("acme", "pond", "get", prefix="acme/"))
    assert reads_and_writes() == ("water", "AccessDenied"), "what is permitted still is still there"
    assert withheld(node, ["acme/asks.f", "put of s3://pond/acme/out/*"]) and withheld(node, ["acme/heard.f", "list of s3://pond/acme/new/*"])
    written("2")
    assert len(calls(node.acme)) == 1

    node.again("")
    assert reads_and_writes() == ("AccessDenied", "AccessDenied")
    assert withheld(node, ["acme/asks.f", "get of s3://pond/acme/*", "nothing of S3"])
    assert try_deploy(node.acme, "asks", function).problem(422, "not-permitted")
    # A deployment of something else brings nothing back, nor does a rollback to what was deployed with it.
    deploy(node.acme, "asks", {"f": function_of(ASK)})
    assert reads_and_writes() == ("AccessDenied", "AccessDenied")
    assert node.acme.control("POST", "/v1/functions/asks.f/rollback", {}).status == 200
    assert reads_and_writes() == ("AccessDenied", "AccessDenied")

    node.again(node.permits)
    assert reads_and_writes() == ("water", "done") and not withheld(node, [""]), "it was only withheld"
    written("3")
    assert len(calls(node.acme)) == 2, "what was written meanwhile was not for it"


def test_a_permit_that_cannot_be_meant_is_refused(tmp_path):
    path = tmp_path / "c.toml"
    for text, told in (
        (permit("acme", "pond", "get"), "there is no `[s3]`"),
        ("[s3]\nanonymous = true\n" + permit("acme", "Pond", "get"), "`[[tenant.acme.s3]]`: `bucket` is"),
        ("[s3]\nanonymous = true\n" + permit("acme", "pond"), "`actions` is empty"),
        ("[s3]\nanonymous = true\n" + permit("No One", "pond", "get").replace("No One", '"No One"'), "No One"),
    ):
        path.write_text(text)
        refused = cli("serve", "--config", path, "--data", tmp_path / "data")
        assert refused.returncode == 2 and told in refused.stderr.decode(), refused.stderr
