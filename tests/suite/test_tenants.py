"""Tenants: that none sees or touches what is another's, by whatever way it asks; tokens, roles and quotas; who did what.

Two tenants, `acme` and `rival`, and the node itself have the same application with the same function names. Each function
says whose it is, so that an answer which came from the wrong place is seen at once.
"""

import hashlib
import http.client
import itertools
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import boto3
import pytest
from botocore.config import Config
from harness import PATIENCE, PROCESSORS, Node, eventually
from test_triggers import deploy as deploy_triggers
from test_triggers import says

OPERATOR = "the-operators-own-token"
HOST = {"acme": "acme.example.org", "rival": "rival.example.org"}
EVENT = {"ce-specversion": "1.0", "ce-type": "order.paid", "ce-source": "/s", "ce-id": "1", "Content-Type": "text/plain"}
KEYS = {"acme": ("AKACME", "acme-secret"), "rival": ("AKRIVAL", "rival-secret")}
LAMBDA = "".join(
    f'[[lambda.key]]\nid = "{key}"\nsecret = "{secret}"\ntenant = "{tenant}"\n' for tenant, (key, secret) in KEYS.items())
HASTE = '[calls]\nfirst_delay = "10ms"\n'


class Tenant:
    """One who has a token, on a node: requests as `Node` has them, with that token."""

    def __init__(self, node, name, token):
        self.node, self.name, self.token = node, name, token
        self.headers = {"Authorization": f"Bearer {token}"}

    def control(self, method, path, document=None, headers=None, body=None, **options):
        return self.node.control(method, path, document, self.headers | (headers or {}), body, **options)

    def request(self, method, path, body=None, headers=None):
        return self.node.request(method, path, body, self.headers | (headers or {}))

    def metrics(self):
        return self.control("GET", "/metrics").text


def make_token(node, tenant, *roles, **more):
    answer = node.control("POST", f"/v1/tenants/{tenant}/tokens", {"roles": list(roles), **more})
    assert answer.status == 201, answer.body
    return answer.document


def make_tenant(node, name, roles=("deploy", "invoke", "read"), **settings):
    answer = node.control("PUT", f"/v1/tenants/{name}", settings)
    assert answer.status == 201, answer.body
    return Tenant(node, name, make_token(node, name, *roles)["token"])


def deploy(who, functions, name="shop", **triggers):
    """As `Node.deploy`, by whoever can send requests to the control API."""
    return deploy_triggers(who, name, functions, triggers.get("schedule", ()), triggers.get("events", ()))


def deploy_routes(who, name, functions, triggers):
    manifest = {"application": {"name": name}, "function": {}, "trigger": {"http": triggers}}
    code = {}
    for function, program in functions.items():
        code[function] = hashlib.sha256(program).hexdigest()
        manifest["function"][function] = {"source": "x.wasm"}
        assert who.control("PUT", f"/v1/code/{code[function]}", body=program).status in (200, 201)
    answer = who.control("POST", f"/v1/applications/{name}/deployments", {"manifest": manifest, "code": code})
    assert answer.status == 200, answer.body


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A node that two tenants share with its operator."""
    node = Node(tmp_path_factory.mktemp("shared"), token=OPERATOR, config=LAMBDA + HASTE)
    node.start()
    for name in ("acme", "rival"):
        who = make_tenant(node, name, hosts=[HOST[name]])
        setattr(node, name, who)
    for who, name in ((node.acme, "acme"), (node.rival, "rival"), (node, "node")):
        # The same names everywhere; `secret` is only acme's.
        functions = {"who": says(f"this is {name}"), "env": "env", "note": "stderr", "wants": says(f"event at {name}")}
        if name == "acme":
            functions["secret"] = says("only acme's")
        deploy(who, functions, events=[{"function": "wants", "type": "order.*"}])
        deploy_routes(who, "front", {"page": says(f"page of {name}")}, [{"function": "page", "path": "/page"}])
    deploy(node.acme, {"secret2": says("only acme's")}, name="hidden")
    yield node
    node.stop()


def seen(answer):
    """What differs between two answers that say the same: ids and times do not count."""
    text = re.sub(r'"(request_id|id|detail)": ?"[^"]*"', "", answer.text)
    return answer.status, answer.headers["Content-Type"], text


# --- names ---

def test_each_sees_its_own_of_the_same_names(shared):
    for who, name in ((shared.acme, "acme"), (shared.rival, "rival"), (shared, "node")):
        assert who.request("GET", "/function/shop.who").text == f"this is {name}"
        assert who.request("GET", "/page").text == f"page of {name}"
        environment = dict(line.split("=", 1) for line in who.request("GET", "/function/shop.env").text.splitlines() if "=" in line)
        assert environment["MILLPOND_FUNCTION"] == "shop.env"
        assert not any("mp_" in value or OPERATOR in value for value in environment.values())
        assert "HTTP_AUTHORIZATION" not in environment or name == "node"


def test_lists_have_ones_own_and_the_operator_sees_whose(shared):
    def functions(who, headers=None):
        return {one["function"] for one in who.control("GET", "/v1/functions", headers=headers).document["functions"]}

    assert functions(shared.rival) == {"shop.who", "shop.env", "shop.note", "shop.wants", "front.page"}
    assert functions(shared.acme) == functions(shared.rival) | {"shop.secret", "hidden.secret2"}
    assert functions(shared, {"X-Millpond-Tenant": "acme"}) == functions(shared.acme)
    everything = functions(shared)
    assert {"shop.who", "acme/shop.who", "rival/shop.who", "acme/hidden.secret2"} <= everything
    applications = shared.control("GET", "/v1/applications").document["applications"]
    assert {"shop", "acme/shop", "rival/shop"} <= {one["application"] for one in applications}
    described = shared.control("GET", "/v1/functions/acme%2Fshop.secret")
    assert described.document["function"] == "acme/shop.secret"
    assert shared.control("GET", "/v1/functions/shop.secret").status == 404


def calls_of(shared):
    """A call of acme's with a result, and one that is a dead letter."""
    accepted = shared.acme.request("POST", "/async-function/shop.who", b"")
    assert accepted.status == 202
    identity = accepted.headers["X-Call-Id"]
    eventually(lambda: shared.acme.control("GET", f"/v1/calls/{identity}").document["state"] == "succeeded", "the call ends")
    return identity


# What each parameter of a path is, when acme's own is meant, and when nobody has such a thing.
KNOWN = {"application": "hidden", "function": "hidden.secret2", "alias": "live", "tenant": "acme"}
NOBODYS = {"application": "nobody", "function": "nobody.nothing", "alias": "live", "tenant": "nobody", "id": "0" * 32, "*path": "nobody/nothing"}
# A document for each operation that takes one.
DOCUMENTS = {
    "rollback_function": {"to": 1}, "set_alias": {"version": 1}, "create_tenant": {}, "update_tenant": {}, "create_token": {"roles": ["read"]},
}
# Operations that name nothing: each has a test of its own here, or says nothing of anybody.
NAMELESS = {
    "describe_node", "openapi", "manifest_schema", "health", "readiness", "metrics", "read_counters", "list_applications", "list_functions",
    "list_calls", "read_audit", "list_tenants", "upload_code", "invoke_code", "list_secrets", "set_secret", "delete_secret",
    "list_buckets", "read_objects", "write_objects", "change_objects", "delete_objects",
}


def operations(node):
    document = node.control("GET", "/openapi.json").document
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            yield described["operationId"], method.upper(), path, described["x-millpond-role"]


def test_every_operation_asked_for_anothers_says_what_it_says_of_nothing(shared):
    identity = calls_of(shared)
    tokens = shared.control("GET", "/v1/tenants/acme/tokens").document["tokens"]
    known = KNOWN | {"id": identity, "token": tokens[0]["id"]}
    nobodys = NOBODYS | {"token": "0" * 12}
    asked = set()
    for name, method, path, role in operations(shared):
        if "{" not in path or name in NAMELESS:
            assert name in NAMELESS, f"{name} is new: say here what it tells of whom"
            continue
        document = DOCUMENTS.get(name)
        if name == "deploy_application":
            # To deploy under a name that another has is no intrusion: it makes one's own.
            continue
        there = shared.rival.control(method, path.format(**known), document)
        nowhere = shared.rival.control(method, path.format(**nobodys), document)
        assert there.status == (403 if role == "operator" else 404), (name, there.status, there.body)
        assert seen(there) == seen(nowhere), name
        # The detail names what was asked for and nothing else.
        words = [answer.document["detail"] for answer in (there, nowhere)]
        for parameter in sorted(known, key=lambda parameter: -len(known[parameter])):
            words = [words[0].replace(known[parameter], "*"), words[1].replace(nobodys[parameter], "*")]
        assert words[0] == words[1], name
        asked.add(name)
    assert {"delete_application", "call_result", "read_logs", "revoke_token", "discard_call"} <= asked
    # Nothing was changed by asking.
    assert shared.acme.request("GET", "/function/hidden.secret2").text == "only acme's"
    assert shared.acme.control("GET", f"/v1/calls/{identity}/result").text == "this is acme"


def test_a_tenants_name_opens_no_way_to_it(shared):
    for path in ("/v1/functions/acme%2Fshop.who", "/v1/applications/acme%2Fshop", "/v1/functions/rival%2Fshop.who/logs"):
        assert shared.rival.control("GET", path).problem(400, "name-invalid")
    shared.rival.control("GET", "/v1/functions", headers={"X-Millpond-Tenant": "acme"}).problem(403, "tenant-forbidden")
    shared.rival.control("GET", "/v1/functions", headers={"X-Millpond-Tenant": "nobody"}).problem(403, "tenant-forbidden")
    assert shared.rival.control("GET", "/v1/functions", headers={"X-Millpond-Tenant": "rival"}).status == 200
    shared.control("GET", "/v1/functions", headers={"X-Millpond-Tenant": "nobody"}).problem(404, "tenant-unknown")
    for who in (shared.rival, shared):
        for path in ("/function/acme/shop.who", "/function/acme%2Fshop.who", "/async-function/acme%2Fshop.who"):
            assert who.request("POST", path, b"").status == 404
        assert who.request("POST", "/events/acme%2Fshop", b"x", EVENT).status == 404
        answer = who.request("POST", "/2015-03-31/functions/acme%2Fshop.who/invocations", b"{}")
        assert answer.status in (400, 403), answer.body


def test_code_is_deployed_by_who_has_it_only(shared):
    program = says("a secret program of acme")
    deploy(shared.acme, {"program": program}, name="own")
    code = shared.acme.control("GET", "/v1/functions/own.program").document["code"]
    manifest = {"application": {"name": "stolen"}, "function": {"f": {"source": "x.wasm"}}}
    request = {"manifest": manifest, "code": {"f": code}}
    plan = shared.rival.control("POST", "/v1/applications/stolen/deployments?plan=true", request)
    assert plan.document["missing_code"] == [code]
    shared.rival.control("POST", "/v1/applications/stolen/deployments", request).problem(409, "code-missing")
    shared.rival.control("POST", f"/v1/code/{code}/invoke").problem(409, "code-missing")
    # Whoever has it uploads it, and is not told that it was here.
    assert shared.rival.control("PUT", f"/v1/code/{code}", body=program).status == 201
    assert shared.rival.control("PUT", f"/v1/code/{code}", body=program).status == 200
    assert shared.rival.control("POST", "/v1/applications/stolen/deployments", request).status == 200
    assert shared.rival.control("DELETE", "/v1/applications/stolen").status == 204


def test_a_tenants_functions_are_granted_nothing_of_this_machine(shared):
    def plan(who, host):
        manifest = {"application": {"name": "asks"}, "function": {"f": {"source": "x.wasm", "grants": {"http": [{"host": host}]}}}}
        return who.control("POST", "/v1/applications/asks/deployments?plan=true", {"manifest": manifest, "code": {"f": "0" * 64}})

    for host in ("localhost", "127.0.0.1", "127.8.8.8", "0.0.0.0", "169.254.169.254", "[::1]", "[::ffff:127.0.0.1]", "[::]"):
        answer = plan(shared.acme, host)
        assert answer.status == 422, (host, answer.body)
        if plan(shared, host).status == 200:
            answer.problem(422, "grant-forbidden")
    assert plan(shared, "127.0.0.1").status == plan(shared, "localhost").status == 200, "the node's own may be granted it"
    for host in ("api.example.org", "10.1.2.3"):
        assert plan(shared.acme, host).status == 200


def test_secrets_and_callbacks_stay_with_their_tenant(shared):
    def names(who):
        return {(one.get("application"), one["name"]) for one in who.control("GET", "/v1/secrets").document["secrets"]}

    for who in (shared.acme, shared.rival):
        who.control("PUT", "/v1/secrets/KEY", body=b"everybody's").problem(422, "secret-whose")
    assert shared.control("PUT", "/v1/secrets/KEY", body=b"the node's").status == 200
    assert shared.acme.control("PUT", "/v1/secrets/KEY?application=shop", body=b"acme's").status == 200
    assert names(shared.acme) == {("shop", "KEY")} and names(shared.rival) == set()
    assert {(None, "KEY"), ("acme/shop", "KEY")} <= names(shared)
    there = shared.rival.control("DELETE", "/v1/secrets/KEY?application=shop")
    nowhere = shared.rival.control("DELETE", "/v1/secrets/NONE?application=shop")
    assert (there.status, seen(there)) == (404, seen(nowhere))
    shared.rival.control("DELETE", "/v1/secrets/KEY?application=acme/shop").problem(400, "name-invalid")
    assert shared.acme.control("DELETE", "/v1/secrets/KEY?application=shop").status == 204
    assert shared.control("DELETE", "/v1/secrets/KEY").status == 204

    answer = shared.acme.request("POST", "/async-function/shop.who", b"", {"X-Callback-Url": "/function/shop.env"})
    assert answer.status == 202, answer.body
    identity = answer.headers["X-Call-Id"]
    told = eventually(
        lambda: [call for call in shared.acme.control("GET", "/v1/calls?limit=1000").document["calls"] if call.get("callback_of") == identity and call["state"] == "succeeded"],
        "acme's function is told")
    text = shared.acme.control("GET", f"/v1/calls/{told[0]['id']}/result").text
    assert "HTTP_X_FUNCTION_NAME=shop.who" in text
    assert not any(call.get("callback_of") == identity for call in shared.rival.control("GET", "/v1/calls?limit=1000").document["calls"])
    shared.rival.request("POST", "/async-function/shop.who", b"", {"X-Callback-Url": "/function/hidden.secret2"}).problem(400, "callback-malformed")


# --- the data plane ---

def test_hosts_are_their_tenants_and_need_a_token_unless_public(shared):
    def ask(host, path, headers=None, method="GET"):
        return shared.request(method, path, b"" if method == "POST" else None, {"Host": host} | (headers or {}))

    for path in ("/page", "/nothing", "/function/shop.who", "/function/shop.nothing"):
        answer = ask(HOST["acme"], path)
        answer.problem(401, "token-missing")
        assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert ask("other.example.org", "/page").text == "page of node"
    assert ask(HOST["acme"] + ":8080", "/page", shared.acme.headers).text == "page of acme"
    # A token goes before the host.
    assert ask(HOST["acme"], "/page", shared.rival.headers).text == "page of rival"
    assert shared.control("PATCH", "/v1/tenants/acme", {"public": True}).status == 200
    try:
        assert ask(HOST["acme"].upper(), "/page").text == "page of acme"
        ask(HOST["acme"], "/nothing").problem(404, "route-unknown")
        # What stands in the header is a function's to read if it is no token of ours.
        assert ask(HOST["acme"], "/page", {"Authorization": "Bearer something-else"}).text == "page of acme"
        for method, path in (("GET", "/function/shop.who"), ("POST", "/async-function/shop.who"), ("POST", "/events")):
            ask(HOST["acme"], path, EVENT, method).problem(401, "token-missing")
        answer = ask(HOST["acme"], "/2015-03-31/functions/shop.who/invocations", method="POST")
        assert answer.status == 403, answer.body
    finally:
        assert shared.control("PATCH", "/v1/tenants/acme", {"public": False}).status == 200
    ask(HOST["acme"], "/page").problem(401, "token-missing")


def test_a_token_that_is_none_is_refused_everywhere(shared):
    wrong = shared.acme.token[:-1] + ("0" if shared.acme.token[-1] != "0" else "1")
    for token in (wrong, "mp_", "mp_0_0", "mp_" + "0" * 12 + "_" + "0" * 64):
        headers = {"Authorization": f"Bearer {token}"}
        for method, path in (("GET", "/page"), ("GET", "/function/shop.who"), ("POST", "/async-function/shop.who"), ("POST", "/events")):
            answer = shared.request(method, path, None, headers)
            answer.problem(401, "token-invalid")
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        shared.control("GET", "/v1/functions", headers=headers).problem(401, "token-invalid")
        answer = shared.request("POST", "/2015-03-31/functions/shop.who/invocations", b"{}", headers)
        assert (answer.status, answer.headers["x-amzn-ErrorType"]) == (403, "UnrecognizedClientException")


def test_lambda_keys_are_a_tenants(shared):
    for tenant, (key, secret) in KEYS.items():
        session = boto3.session.Session(key, secret, region_name="eu-central-1")
        client = session.client("lambda", endpoint_url="http://{}:{}".format(*shared.listen), config=Config(retries={"total_max_attempts": 1}))
        assert client.invoke(FunctionName="shop.who")["Payload"].read().decode() == f"this is {tenant}"
        if tenant == "rival":
            with pytest.raises(client.exceptions.ResourceNotFoundException):
                client.invoke(FunctionName="hidden.secret2")
        identity = client.invoke(FunctionName="shop.who", InvocationType="Event")["ResponseMetadata"]["HTTPHeaders"]["x-call-id"]
        who = getattr(shared, tenant)
        eventually(lambda: who.control("GET", f"/v1/calls/{identity}").document["state"] == "succeeded", "the event's call ends")
        assert who.control("GET", f"/v1/calls/{identity}/result").text == f"this is {tenant}"
    # A token opens the same door.
    answer = shared.acme.request("POST", "/2015-03-31/functions/shop.who/invocations", b"{}")
    assert (answer.status, answer.text) == (200, "this is acme")


def test_calls_and_results_are_ones_own(shared):
    mine = calls_of(shared)
    theirs = shared.rival.request("POST", "/async-function/shop.who", b"").headers["X-Call-Id"]

    def listed(who, headers=None):
        found, after = {}, ""
        while True:
            page = who.control("GET", f"/v1/calls?limit=2{after}", headers=headers).document
            found |= {call["id"]: call["function"] for call in page["calls"]}
            if "next" not in page:
                return found
            after = f"&after={page['next']}"

    acme, rival, everybody = listed(shared.acme), listed(shared.rival), listed(shared)
    assert acme[mine] == "shop.who" and mine not in rival
    assert rival[theirs] == "shop.who" and theirs not in acme
    assert everybody[mine] == "acme/shop.who" and everybody[theirs] == "rival/shop.who"
    assert listed(shared, {"X-Millpond-Tenant": "acme"}) == acme
    assert not set(acme) & set(rival)


def test_logs_are_ones_own(shared):
    for who, text in ((shared.acme, "a secret of acme"), (shared.rival, "rival's word"), (shared, "the node's")):
        assert who.request("POST", "/function/shop.note", text.encode()).status == 200

    def lines(who):
        answer = who.control("GET", "/v1/functions/shop.note/logs")
        return [json.loads(line) for line in answer.body.splitlines()]

    for who in (shared.acme, shared.rival, shared):
        eventually(lambda: lines(who), "there is a line")
        assert {line["function"] for line in lines(who)} == {"shop.note"}
    files = {path.name for path in (shared.data / "logs").iterdir()}
    assert {"shop.note.log", "acme@shop.note.log", "rival@shop.note.log"} <= files
    whole = {line["function"] for line in shared.records("acme%2Fshop.note")}
    assert whole == {"acme/shop.note"}


def test_metrics_are_ones_own(shared):
    assert shared.acme.request("GET", "/function/shop.secret").status == 200
    acme, rival, node = shared.acme.metrics(), shared.rival.metrics(), shared.control("GET", "/metrics").text
    assert 'faas_name="shop.secret"' in acme
    for text in (acme, rival):
        series = [line for line in text.splitlines() if not line.startswith("#")]
        assert all("faas_name=" in line for line in series), "the node's own numbers are the operator's"
        assert "acme" not in text and "rival" not in text
    assert "secret" not in rival
    assert 'faas_name="acme/shop.secret"' in node and 'faas_name="shop.secret"' not in node


def test_events_stay_with_their_tenant(shared):
    for who, name in ((shared.acme, "acme"), (shared.rival, "rival"), (shared, "node")):
        for path in ("/events", "/events/shop"):
            answer = who.request("POST", path, b"x", EVENT)
            assert answer.status == 202, answer.body
            (identity,) = answer.document["calls"]
            eventually(lambda: who.control("GET", f"/v1/calls/{identity}").document["state"] == "succeeded", "the event's call ends")
            assert who.control("GET", f"/v1/calls/{identity}/result").text == f"event at {name}"
    shared.rival.request("POST", "/events/hidden", b"x", EVENT).problem(404, "application-unknown")


def test_schedules_and_emitted_events_stay_with_their_tenant(make_node):
    node = make_node(token=OPERATOR, config=HASTE)
    emitted = "Content-Type: text/plain\r\nce-specversion: 1.0\r\nce-type: order.sent\r\nce-source: /a\r\nce-id: 7\r\n\r\nx"
    both = [make_tenant(node, name) for name in ("acme", "rival")]
    for who in both:
        functions = {"emit": (says(emitted), {"protocol": "cgi"}), "wants": says(f"event at {who.name}")}
        schedule = [{"function": "emit", "every": "1s"}] if who.name == "acme" else []
        deploy(who, functions, schedule=schedule, events=[{"function": "wants", "type": "order.sent"}])

    def functions(who):
        return [call["function"] for call in who.control("GET", "/v1/calls?state=succeeded").document["calls"]]

    eventually(lambda: {"shop.emit", "shop.wants"} <= set(functions(both[0])), "the schedule's run makes an event that acme wants")
    assert functions(both[1]) == []
    assert set(functions(node)) == {"acme/shop.emit", "acme/shop.wants"}


# --- tokens and roles ---

def test_each_role_does_what_the_description_says_and_no_more(shared):
    holders = {role: Tenant(shared, "acme", make_token(shared, "acme", role)["token"]) for role in ("deploy", "invoke", "read")}
    for name, method, path, needed in operations(shared):
        if needed in ("none", "any"):
            assert all(who.control(method, path).status == 200 for who in holders.values()), name
            continue
        # Nobody has such things: whoever is let in meets a 4xx, and changes nothing.
        path = path.format(**NOBODYS, token="0" * 12, sha256="0" * 64, name="NONE")
        for role, who in holders.items():
            answer = who.control(method, path, {} if method in ("POST", "PUT", "PATCH") else None)
            if needed == "operator":
                answer.problem(403, "operator-only")
            elif role == needed:
                assert answer.status not in (401, 403), (name, role, answer.body)
            else:
                assert answer.problem(403, "role-missing")
                assert f"`{needed}`" in answer.document["detail"]
    for role, who in holders.items():
        answer = who.request("GET", "/function/shop.who")
        if role == "invoke":
            assert answer.text == "this is acme"
        else:
            answer.problem(403, "role-missing")
    for who in holders.values():
        answer = who.control("PATCH", "/v1/functions")
        assert answer.status == 405, answer.body
        assert who.control("GET", "/v1/nothing").status == 404


def test_tokens_end_when_they_are_revoked_or_expire(shared):
    token = make_token(shared, "acme", "read", "invoke", name="ci")
    assert re.fullmatch(r"mp_[0-9a-f]{12}_[0-9a-f]{64}", token["token"]) and token["token"].split("_")[1] == token["id"]
    who = Tenant(shared, "acme", token["token"])
    assert who.control("GET", "/v1/functions").status == 200
    listed = {one["id"]: one for one in shared.control("GET", "/v1/tenants/acme/tokens").document["tokens"]}
    assert listed[token["id"]]["name"] == "ci" and "token" not in listed[token["id"]]
    shared.control("DELETE", f"/v1/tenants/rival/tokens/{token['id']}").problem(404, "token-unknown")
    assert shared.control("DELETE", f"/v1/tenants/acme/tokens/{token['id']}").status == 204
    who.control("GET", "/v1/functions").problem(401, "token-invalid")
    who.request("GET", "/function/shop.who").problem(401, "token-invalid")
    short = Tenant(shared, "acme", make_token(shared, "acme", "read", "invoke", expires_in="1ms")["token"])
    eventually(lambda: short.control("GET", "/v1/functions").status == 401, "the token ends")
    short.control("GET", "/v1/functions").problem(401, "token-expired")
    short.request("GET", "/function/shop.who").problem(401, "token-expired")
    for wrong in ({"roles": []}, {"roles": ["read"], "expires_in": "soon"}, {"roles": ["read"], "name": ""}):
        assert shared.control("POST", "/v1/tenants/acme/tokens", wrong).status == 422
    assert shared.control("POST", "/v1/tenants/acme/tokens", {"roles": ["admin"]}).status == 422


def test_tokens_survive_kill_and_the_disk_has_no_secret(make_node):
    node = make_node(token=OPERATOR)
    acme = make_tenant(node, "acme", hosts=["a.example.org"], public=True)
    revoked = make_token(node, "acme", "read")
    assert node.control("DELETE", f"/v1/tenants/acme/tokens/{revoked['id']}").status == 204
    deploy(acme, {"who": says("acme")})
    node.kill()
    secret = acme.token.rsplit("_", 1)[1].encode()
    for path in node.folder.rglob("*"):
        assert not path.is_file() or secret not in path.read_bytes(), path
    node.start()
    assert acme.request("GET", "/function/shop.who").text == "acme"
    assert acme.control("GET", "/v1/functions/shop.who").document["function"] == "shop.who"
    node.control("GET", "/v1/functions", headers={"Authorization": f"Bearer {revoked['token']}"}).problem(401, "token-invalid")
    assert node.control("GET", "/v1/tenants/acme").document["hosts"] == ["a.example.org"]


def test_a_tenant_goes_when_it_is_empty_and_its_name_with_it(make_node):
    node = make_node(token=OPERATOR)
    acme = make_tenant(node, "acme")
    deploy(acme, {"who": says("acme")})
    identity = acme.request("POST", "/async-function/shop.who", b"").headers["X-Call-Id"]
    eventually(lambda: acme.control("GET", f"/v1/calls/{identity}").document["state"] == "succeeded", "the call ends")
    node.control("PUT", "/v1/tenants/acme", {}).problem(409, "tenant-exists")
    node.control("DELETE", "/v1/tenants/acme").problem(409, "tenant-not-empty")
    assert acme.control("PUT", "/v1/secrets/KEY?application=shop", body=b"acme's").status == 200
    assert node.control("PUT", "/v1/secrets/KEY?application=shop", body=b"the node's").status == 200
    assert acme.control("DELETE", "/v1/applications/shop").status == 204
    assert node.control("DELETE", "/v1/tenants/acme").status == 204
    # Its secrets go with it, and nobody else's.
    assert [one["application"] for one in node.control("GET", "/v1/secrets").document["secrets"]] == ["shop"]
    assert {path.name for path in node.folder.rglob("secrets/*")} == {"shop.KEY"}
    make_tenant(node, "other")
    acme.control("GET", "/v1/functions").problem(401, "token-invalid")
    # Its calls are still the operator's to see: nobody else may come by them with the name.
    assert node.control("GET", f"/v1/calls/{identity}").status == 200
    node.control("PUT", "/v1/tenants/acme", {}).problem(409, "tenant-exists")
    node.stop()
    node.start()
    node.control("PUT", "/v1/tenants/acme", {}).problem(409, "tenant-exists")
    node.control("GET", "/v1/tenants/acme").problem(404, "tenant-unknown")


def test_a_node_without_tenants_takes_any_authorization_for_its_functions(make_node):
    node = make_node()
    node.deploy("shop", {"env": "env"})
    token = "mp_" + "0" * 12 + "_" + "0" * 64
    answer = node.request("GET", "/function/shop.env", None, {"Authorization": f"Bearer {token}"})
    assert answer.status == 200
    assert not (node.data / "audit.log").read_text().count(token)


# --- quotas ---

def test_functions_are_limited_at_deploy(make_node):
    node = make_node(token=OPERATOR)
    acme = make_tenant(node, "acme", functions=2)
    deploy(acme, {"one": "ping", "two": "echo"})
    manifest = {"application": {"name": "more"}, "function": {"three": {"source": "x.wasm"}}}
    code = acme.control("GET", "/v1/functions/shop.one").document["code"]
    for plan in ("?plan=true", ""):
        problem = acme.control("POST", f"/v1/applications/more/deployments{plan}", {"manifest": manifest, "code": {"three": code}})
        assert "3 functions" in problem.problem(409, "quota-functions")["detail"] and "may have 2" in problem.document["detail"]
    # Others are not counted, nor limited.
    deploy(node, {"one": "ping", "two": "echo", "three": "env"})
    deploy(acme, {"one": "ping"})
    assert acme.control("POST", "/v1/applications/more/deployments", {"manifest": manifest, "code": {"three": code}}).status == 200
    assert node.control("PATCH", "/v1/tenants/acme", {"functions": None}).status == 200
    deploy(acme, {"one": "ping", "two": "echo", "four": "env"})


class Held:
    """Requests that have a sandbox each until they are let go: their bodies do not end."""

    def __init__(self, who, path, count):
        self.connections = []
        for _ in range(count):
            connection = http.client.HTTPConnection(*who.node.listen, timeout=PATIENCE)
            connection.request("GET", path, None, who.headers)
            self.connections.append(connection)


def used(node, tenant="acme"):
    return node.control("GET", f"/v1/tenants/{tenant}").document["used"]


@pytest.mark.parametrize("quota, code", [({"concurrency": 3, "queue": 0}, "quota-concurrency"), ({"memory": "24MiB", "queue": 0}, "quota-memory")])
def test_sandboxes_are_limited_exactly_and_only_ones_own(make_node, quota, code):
    node = make_node(token=OPERATOR)
    acme, rival = make_tenant(node, "acme", **quota), make_tenant(node, "rival")
    settings = {"memory": "8MiB", "timeout": "60s", "concurrency": 50, "queue": 50}
    for who in (acme, rival):
        deploy(who, {"sleep": ("sleep", settings), "other": ("ping", {"memory": "8MiB"})})
    before = node.request("GET", "/healthz")
    assert before.status == 200
    # Three sleep for long; what comes then is refused, of whatever function.
    sleeping = Held(acme, "/function/shop.sleep?ms=3000", 3)
    eventually(lambda: used(node)["concurrency"] == 3, "three have a sandbox")
    for path in ("/function/shop.sleep?ms=1", "/function/shop.other"):
        answer = acme.request("GET", path)
        problem = answer.problem(429, code)
        assert int(answer.headers["Retry-After"]) >= 1 and "raise the quota" in problem["hint"]
    assert rival.request("GET", "/function/shop.other").status == 200
    # An asynchronous call waits for its turn.
    identity = acme.request("POST", "/async-function/shop.other", b"").headers["X-Call-Id"]
    for connection in sleeping.connections:
        assert connection.getresponse().status == 200
        connection.close()
    eventually(lambda: acme.control("GET", f"/v1/calls/{identity}").document["state"] == "succeeded", "the call runs later")
    assert acme.request("GET", "/function/shop.other").status == 200
    eventually(lambda: used(node)["concurrency"] == 0, "all is given back")
    assert used(node)["memory"] in ("0B", "0")


def test_the_quota_holds_under_load_of_both_cores(make_node):
    node = make_node(token=OPERATOR, cores=PROCESSORS[:2])
    acme = make_tenant(node, "acme", concurrency=2)
    deploy(acme, {"sleep": ("sleep", {"concurrency": 100, "queue": 100})})
    statuses, most, stop = [], [], threading.Event()

    def ask():
        for _ in range(20):
            statuses.append(acme.request("GET", "/function/shop.sleep?ms=5").status)

    def look():
        while not stop.is_set():
            most.append(used(node)["concurrency"])

    watcher = threading.Thread(target=look)
    watcher.start()
    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    watcher.join()
    assert len(statuses) == 160 and set(statuses) == {200}, "they wait for each other"
    assert max(most) <= 2
    assert used(node)["concurrency"] == 0
    # Nothing of it is lost: both places are there.
    held = Held(acme, "/function/shop.sleep?ms=1000", 2)
    eventually(lambda: used(node)["concurrency"] == 2, "both have a sandbox")
    for connection in held.connections:
        assert connection.getresponse().status == 200


def test_requests_wait_for_their_tenants_quota_and_hold_up_no_other(make_node):
    node = make_node(token=OPERATOR)
    acme, rival = make_tenant(node, "acme", concurrency=1, queue=2), make_tenant(node, "rival")
    for who in (acme, rival):
        deploy(who, {"sleep": ("sleep", {"timeout": "60s"}), "ping": "ping"})
    sleeping = Held(acme, "/function/shop.sleep?ms=4000", 1)
    eventually(lambda: used(node)["concurrency"] == 1, "it has a sandbox")
    with ThreadPoolExecutor(5) as clients:
        waiting = [clients.submit(acme.request, "GET", "/function/shop.ping") for _ in range(5)]
        assert rival.request("GET", "/function/shop.ping").status == 200
        answers = [one.result() for one in waiting]
    assert sorted(answer.status for answer in answers) == [200, 200, 429, 429, 429]
    for answer in answers:
        if answer.status == 429:
            answer.problem(429, "quota-concurrency")
            assert int(answer.headers["Retry-After"]) >= 1
    assert sleeping.connections[0].getresponse().status == 200
    assert used(node)["concurrency"] == 0

    # Who waits goes on when the operator raises the quota.
    sleeping = Held(acme, "/function/shop.sleep?ms=30000", 1)
    eventually(lambda: used(node)["concurrency"] == 1, "it has a sandbox")
    with ThreadPoolExecutor(1) as clients:
        waiting = clients.submit(acme.request, "GET", "/function/shop.ping")
        assert node.control("PATCH", "/v1/tenants/acme", {"concurrency": 2}).status == 200
        assert waiting.result().status == 200
    assert used(node)["concurrency"] == 1, "the other still sleeps"
    sleeping.connections[0].close()


def test_what_could_never_be_had_is_refused_at_once(make_node):
    node = make_node(token=OPERATOR)
    acme = make_tenant(node, "acme", memory="8MiB")
    deploy(acme, {"large": ("ping", {"memory": "16MiB"}), "small": ("ping", {"memory": "8MiB"})})
    acme.request("GET", "/function/shop.large").problem(429, "quota-memory")
    assert acme.request("GET", "/function/shop.small").status == 200
    assert node.control("PATCH", "/v1/tenants/acme", {"concurrency": 0}).status == 200
    acme.request("GET", "/function/shop.small").problem(429, "quota-concurrency")


def test_the_operators_functions_run_for_whom_they_name(make_node):
    node = make_node(token=OPERATOR)
    acme = make_tenant(node, "acme", concurrency=0)
    deploy(node, {"ours": "ping", "theirs": ("ping", {"tenant": "acme"})})
    assert node.request("GET", "/function/shop.ours").status == 200
    node.request("GET", "/function/shop.theirs").problem(429, "quota-concurrency")
    assert node.control("PATCH", "/v1/tenants/acme", {"concurrency": 1}).status == 200
    assert node.request("GET", "/function/shop.theirs").status == 200
    shown = node.control("GET", "/v1/functions/shop.theirs").document
    assert shown["function"] == "shop.theirs" and shown["settings"]["tenant"] == "acme"
    assert acme.request("GET", "/function/shop.theirs").status == 404, "it stays the operator's"

    def plan(who, tenant):
        manifest = {"application": {"name": "asks"}, "function": {"f": {"source": "x.wasm", "tenant": tenant}}}
        return who.control("POST", "/v1/applications/asks/deployments?plan=true", {"manifest": manifest, "code": {"f": "0" * 64}})

    assert plan(node, "acme").status == 200
    plan(node, "nobody").problem(404, "tenant-unknown")
    assert plan(acme, "acme").status == 200
    for other in ("rival", "nobody"):
        plan(acme, other).problem(422, "tenant-mismatch")
    node.stop()
    node.start()
    assert node.control("PATCH", "/v1/tenants/acme", {"concurrency": 0}).status == 200
    node.request("GET", "/function/shop.theirs").problem(429, "quota-concurrency")


def test_requests_are_limited_by_rate(make_node):
    node = make_node(token=OPERATOR)
    acme, rival = make_tenant(node, "acme", rate=1), make_tenant(node, "rival")
    for who in (acme, rival):
        deploy(who, {"ping": "ping"})
    # The bucket holds one: of requests one after the other without a pause, most are refused.
    asked = [("GET", "/function/shop.ping"), ("POST", "/async-function/shop.ping"), ("GET", "/nothing")]
    answers = [acme.request(method, path, b"" if method == "POST" else None) for method, path in itertools.islice(itertools.cycle(asked), 60)]
    refused = [answer for answer in answers if answer.status == 429]
    assert len(refused) >= 30, [answer.status for answer in answers]
    for answer in refused:
        answer.problem(429, "quota-rate")
        assert answer.headers["Retry-After"] == "1"
    answer = eventually(
        lambda: (found := acme.request("POST", "/2015-03-31/functions/shop.ping/invocations", b"{}")).status == 429 and found, "one is refused")
    assert answer.headers["x-amzn-ErrorType"] == "TooManyRequestsException"
    assert all(rival.request("GET", "/function/shop.ping").status == 200 for _ in range(20))
    assert node.control("PATCH", "/v1/tenants/acme", {"rate": None}).status == 200
    assert all(acme.request("GET", "/function/shop.ping").status == 200 for _ in range(20))


# --- the audit ---

def audit(who, query=""):
    answer = who.control("GET", f"/v1/audit{query}")
    assert answer.status == 200, answer.body
    return [json.loads(line) for line in answer.body.splitlines()]


def test_changes_and_refusals_are_written_down(make_node):
    node = make_node(token=OPERATOR)
    acme, rival = make_tenant(node, "acme"), make_tenant(node, "rival")
    reader = make_token(node, "acme", "read", name="dashboard")
    deploy(acme, {"who": says("acme")})
    reads = Tenant(node, "acme", reader["token"])
    reads.control("DELETE", "/v1/functions/shop.who").problem(403, "role-missing")
    acme.control("DELETE", "/v1/functions/shop.nothing").problem(404, "function-unknown")
    node.control("GET", "/v1/functions", headers={"Authorization": "Bearer guess"}).problem(401, "unauthorized")
    lines = audit(node)
    done = [(line.get("tenant"), line["by"], line["action"], line["outcome"]) for line in lines]
    assert ("acme", "operator", "create_tenant", "done") in done
    assert ("acme", "operator", "create_token", "done") in done
    assert ("acme", "token", "deploy_application", "done") in done
    refused = next(line for line in lines if line["outcome"] == "refused" and line.get("tenant") == "acme")
    assert (refused["action"], refused["token"], refused["token_name"]) == ("delete_function", reader["id"], "dashboard")
    assert (refused["what"], refused["status"], refused["code"]) == ("/v1/functions/shop.who", 403, "role-missing")
    assert refused["remote"].startswith("127.0.0.1:")
    assert ("acme", "token", "delete_function", "failed") in done
    assert (None, "unknown", "list_functions", "refused") in done
    # A tenant reads its own, and not where the operator sits.
    own = audit(reads)
    assert own and {line["tenant"] for line in own} == {"acme"}
    assert all("remote" not in line for line in own if line["by"] == "operator")
    assert audit(rival) and {line["tenant"] for line in audit(rival)} == {"rival"}
    assert len(audit(node, "?tail=2")) == 2
    # Reading is no change.
    assert len(audit(node)) == len(audit(node))
    # It survives kill -9, and nowhere is a secret.
    node.kill()
    files = {path.name: path.read_text() for path in node.data.glob("audit*")}
    assert set(files) == {"audit.log", "audit.acme.log"}, "what a tenant does fills no file but its own"
    text = "".join(files.values())
    for secret in (acme.token, rival.token, reader["token"], OPERATOR):
        assert secret.rsplit("_", 1)[-1] not in text
    node.start()
    assert audit(node)[: len(lines)] == lines


def test_the_audit_can_be_followed(make_node):
    node = make_node(token=OPERATOR)
    acme, rival = make_tenant(node, "acme"), make_tenant(node, "rival")
    connection = http.client.HTTPConnection(*node.admin, timeout=PATIENCE)
    connection.request("GET", "/v1/audit?follow=true&tail=0", None, acme.headers)
    response = connection.getresponse()
    rival.control("DELETE", "/v1/applications/nothing")
    acme.control("DELETE", "/v1/applications/nothing")
    line = json.loads(response.readline())
    assert (line["tenant"], line["action"], line["code"]) == ("acme", "delete_application", "application-unknown")
    # Whoever loses the token is not told what comes later.
    (token,) = node.control("GET", "/v1/tenants/acme/tokens").document["tokens"]
    assert node.control("DELETE", f"/v1/tenants/acme/tokens/{token['id']}").status == 204
    response.read()
    connection.close()


# --- the command ---

def test_the_command_does_it_all(make_node, tmp_path):
    node = make_node(token=OPERATOR)
    made = node.cli("tenant", "create", "acme", "--functions", 3, "--memory", "1GiB", "--concurrency", 8, "--rate", "500/s", "--host", "a.example.org", "--public")
    assert made.returncode == 0, made.stderr
    listed = node.cli("tenant", "list").stdout.decode()
    assert "acme" in listed and "0 of 3" in listed and "500/s" in listed and "a.example.org (public)" in listed
    assert node.cli("tenant", "update", "acme", "--functions", "none", "--public=false").returncode == 0
    described = json.loads(node.cli("tenant", "describe", "acme", "-o", "json").stdout)
    assert described["quotas"] == {"memory": "1GiB", "concurrency": 8, "rate": 500} and not described["public"]
    token = node.cli("token", "create", "acme", "--role", "deploy", "--role", "invoke", "--role", "read", "--name", "ci", "--expires", "90d").stdout.decode().strip()
    assert re.fullmatch(r"mp_[0-9a-f]{12}_[0-9a-f]{64}", token)
    identity = token.split("_")[1]
    assert identity in node.cli("token", "list", "acme").stdout.decode()

    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "millpond.toml").write_text('[application]\nname = "shop"\n[function.who]\nsource = "who.wasm"\n')
    (folder / "who.wasm").write_bytes(says("acme"))
    own = ("--token", token)
    deployed = node.cli("deploy", *own, folder=folder)
    assert deployed.returncode == 0, deployed.stderr
    assert node.cli("invoke", "who", *own).stdout == b"acme"
    assert "shop.who" in node.cli("list", *own).stdout.decode()
    assert "acme/shop.who" in node.cli("list").stdout.decode()
    assert "acme" not in node.cli("list", "--tenant", "acme").stdout.decode()
    assert node.cli("describe", "acme/shop.who").returncode == 0
    assert node.cli("describe", "shop.who", "--tenant", "acme").returncode == 0
    refused = node.cli("invoke", "who", "--tenant", "acme")
    assert refused.returncode == 2 and b"its own tokens" in refused.stderr
    assert "deploy_application" in node.cli("audit", *own).stdout.decode()
    assert node.cli("delete", "acme/shop", "--yes").returncode == 0
    assert node.cli("token", "revoke", "acme", identity).returncode == 0
    assert node.cli("list", *own).returncode == 1
    assert node.cli("tenant", "delete", "acme", "--yes").returncode == 0
