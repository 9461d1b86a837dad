"""From a request's method, host and path to a function."""

import pytest
from harness import get


@pytest.fixture(scope="module")
def shop(node):
    functions = {name: ("env", {"env": {"WHO": name}}) for name in ("any", "reader", "writer", "tail", "hosted", "root")}
    triggers = [
        {"function": "any", "path": "/shop/any"},
        {"function": "reader", "path": "/shop/item/{id}", "method": ["GET", "HEAD"]},
        {"function": "writer", "path": "/shop/item/{id}", "method": "POST"},
        {"function": "tail", "path": "/shop/files/{*rest}"},
        {"function": "any", "path": "/shop/item/special", "method": "GET"},
        {"function": "hosted", "path": "/shop/any", "host": "img.example.org"},
        {"function": "root", "path": "/", "host": "img.example.org"},
    ]
    return node.deploy("shop", functions, triggers)


def who(answer):
    assert answer.status == 200, (answer.status, answer.body)
    return dict(line.split("=", 1) for line in answer.text.splitlines() if "=" in line)


@pytest.mark.parametrize("method, path, function, path_info", [
    ("GET", "/shop/any", "any", None),
    ("PURGE", "/shop/any", "any", None),
    ("GET", "/shop/item/7", "reader", None),
    ("POST", "/shop/item/7?x=/y", "writer", None),
    ("GET", "/shop/item/special", "any", None),
    ("GET", "/shop/files/a", "tail", "/a"),
    ("PUT", "/shop/files/a/b%20c/d", "tail", "/a/b c/d"),
])
def test_routes(shop, method, path, function, path_info):
    said = who(shop.node.request(method, path))
    assert said["WHO"] == function
    assert said.get("PATH_INFO") in ([path_info] if path_info else [None, ""])
    assert said["SCRIPT_NAME"] + (said.get("PATH_INFO", "")) == path.partition("?")[0].replace("%20", " ")


@pytest.mark.parametrize("host, function", [
    ("img.example.org", "hosted"), ("IMG.Example.ORG:8080", "hosted"), ("other.example.org", "any"), ("img.example.org.", "any"),
])
def test_hosts(shop, host, function):
    said = who(shop.node.request("GET", "/shop/any", headers={"Host": host}))
    assert said["WHO"] == function


def test_a_named_host_falls_back_to_routes_of_any_host(shop):
    said = who(shop.node.request("GET", "/shop/item/7", headers={"Host": "img.example.org"}))
    assert said["WHO"] == "reader"
    assert who(shop.node.request("GET", "/", headers={"Host": "img.example.org"}))["WHO"] == "root"


@pytest.mark.parametrize("path", [
    "/", "/shop", "/shop/", "/shop/any/", "/shop/item/", "/shop/item/7/8", "/shop//any", "/shop/item/../any", "/SHOP/any", "/shop/files",
])
def test_no_route(shop, path):
    with shop.node.wire() as wire:
        wire.send(get(path))
        problem = wire.read().problem(404, "route-unknown")
    assert path in problem["detail"] and "millpond list" in problem["hint"]


def test_method_not_allowed(shop):
    answer = shop.node.request("DELETE", "/shop/item/7")
    problem = answer.problem(405, "route-method")
    assert all(method in problem["detail"] for method in ("GET", "HEAD", "POST"))
    allowed = {method.strip() for method in answer.headers["Allow"].split(",")}
    assert allowed == {"GET", "HEAD", "POST"}, "RFC 9110, section 15.5.6: 405 MUST have Allow"


def test_names(shop):
    node = shop.node
    assert who(node.request("GET", "/function/shop.reader"))["WHO"] == "reader"
    assert who(node.request("GET", "/function/reader"))["WHO"] == "reader"
    assert who(node.request("GET", "/function/shop.reader:1"))["MILLPOND_VERSION"] == "1"
    assert who(node.request("GET", "/function/reader:live"))["MILLPOND_VERSION"] == "1"
    said = who(node.request("GET", "/function/shop.reader:1/a/b?c"))
    assert (said["PATH_INFO"], said["SCRIPT_NAME"]) == ("/a/b", "/function/shop.reader:1")
    assert who(node.request("GET", "/function/shop.reader/"))["PATH_INFO"] == "/"


@pytest.mark.parametrize("name, status", [
    ("shop.nobody", 404), ("nobody", 404), ("nowhere.reader", 404), ("shop.reader:99", 404), ("shop.reader:beta", 404),
    ("shop.reader:", 404), ("", 404), ("Shop.Reader", 404), ("shop.reader:0", 404), ("a.b.c", 404), ("shop%2ereader", 404),
])
def test_unknown_names(shop, name, status):
    answer = shop.node.request("GET", f"/function/{name}")
    assert answer.status == status, answer.body
    assert answer.document["hint"] or answer.document["detail"]


def test_ambiguous_names_are_errors(node):
    one = node.deploy("twin-one", {"twin": "ping"})
    assert node.request("GET", "/function/twin").status == 200
    two = node.deploy("twin-two", {"twin": "ping"})
    answer = node.request("GET", "/function/twin")
    assert answer.status == 409, answer.body
    assert "twin-one.twin" in answer.text and "twin-two.twin" in answer.text
    assert one.call("twin").status == two.call("twin").status == 200
    assert node.request("GET", "/function/twin:live").status == 409


def test_a_function_cannot_shadow_the_nodes_own_paths(node):
    for path in ("/healthz", "/readyz", "/function/x"):
        answer = node.try_deploy("shadow", {"ping": "ping"}, [{"function": "ping", "path": path}])
        assert answer.status == 422, (path, answer.body)
        assert path in answer.text


def test_two_applications_cannot_have_the_same_route(node):
    node.deploy("first-here", {"ping": "ping"}, [{"function": "ping", "path": "/contested/{x}"}])
    answer = node.try_deploy("second-here", {"ping": "ping"}, [{"function": "ping", "path": "/contested/{y}"}])
    assert answer.status in (409, 422), answer.body
    assert "/contested/" in answer.text and "first-here" in answer.text
    assert node.request("GET", "/contested/1").body == b"pong\n"


def test_health_of_the_data_plane(node):
    assert node.request("GET", "/healthz").status == 200
    assert node.request("GET", "/readyz").status == 200
