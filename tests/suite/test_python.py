"""Functions in Python: handlers of AWS Lambda, unchanged, each request in a process of its own."""

import base64
import contextlib
import errno
import hashlib
import http.client
import io
import json
import os
import sys
import threading
import zipfile
from pathlib import Path

import pytest
from harness import ROOT, Application, eventually
from test_lambda import client_of
from test_processes import children


@pytest.fixture(autouse=True)
def has_engine(node):
    if "process" not in node.control("GET", "/v1/node").document["engines"]:
        pytest.skip("the engine process is not here: `millpond doctor` says why")


def package(**files):
    """A deployment package: modules by name, with `__` for a folder's end."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name.replace("__", "/") + ".py", text)
    return buffer.getvalue()


def function(code, handler="app.handler", **settings):
    return package(app=code), {"handler": handler, "memory": "128MiB", **settings}


def wheel(folder, name, version, text, requires=""):
    """A package of one module, as pip installs it."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", text)
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


MANIFEST = """
[application]
name = "locked"
[function.f]
source = "app.py"
handler = "app.handler"
requirements = "requirements.txt"
memory = "128MiB"
"""


def test_requirements_are_installed_by_the_digests_that_were_locked(node, tmp_path):
    project, wheels = tmp_path / "project", tmp_path / "wheels"
    project.mkdir(), wheels.mkdir()
    lock, requirements = project / "requirements.lock", project / "requirements.txt"
    (project / "millpond.toml").write_text(MANIFEST)
    (project / "app.py").write_text("import pond\ndef handler(event, context):\n    return pond.what\n")
    requirements.write_text("pond\n")
    digests = {
        "pond": wheel(wheels, "pond", "1.0", "import reed\nwhat = ['1.0', reed.what]", requires="Requires-Dist: reed>=2\n"),
        "reed": wheel(wheels, "reed", "2.0", "what = 'a reed'"),
    }
    environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull, "MILLPOND_PYTHON": sys.executable}

    def deploy(cache):
        said = node.cli("deploy", folder=project, environment=environment | {"XDG_CACHE_HOME": str(tmp_path / cache)})
        return said.returncode, said.stderr.decode()

    def answer():
        return Application(node, "locked", {}).call("f", b"{}").document

    assert deploy("a")[0] == 0
    assert answer() == ["1.0", "a reed"]
    first = lock.read_text().splitlines()
    assert first[0].endswith(hashlib.sha256(b"pond\n").hexdigest())
    assert first[1:] == [f"{name}=={version} --hash=sha256:{digests[name]}" for name, version in (("pond", "1.0"), ("reed", "2.0"))]
    # Somewhere else, where there is a later one by then: what was locked is what is installed.
    later = wheel(wheels, "pond", "1.1", "what = '1.1'")
    assert deploy("b")[0] == 0 and answer() == ["1.0", "a reed"]
    # A file of the same name whose bytes are others is refused, and what runs goes on.
    wheel(wheels, "pond", "1.0", "what = 'forged'")
    code, told = deploy("c")
    assert code != 0 and "cannot install the requirements of `f`" in told and "hash" in told.lower(), told
    assert answer() == ["1.0", "a reed"]
    # Where it has been installed it is not fetched again.
    assert deploy("a")[0] == 0 and answer() == ["1.0", "a reed"]
    requirements.write_text("pond>1.0\n")
    assert deploy("c")[0] == 0 and answer() == "1.1"
    assert lock.read_text().splitlines()[1:] == [f"pond==1.1 --hash=sha256:{later}"]


WHEELS = ROOT / "build" / "wheels"
IMAGE = ROOT / "python" / "lambda-image.txt"


def test_lambdas_image_has_what_the_tests_have():
    """By the same versions and digests, and boto3 is the one that functions find."""
    required = (ROOT / "tests" / "requirements.txt").read_text().replace("\\\n", " ").splitlines()
    required = {tuple(line.split()) for line in required}
    pinned = [tuple(line.split()) for line in IMAGE.read_text().splitlines() if not line.startswith("#")]
    assert len(pinned) == 7 and set(pinned) <= required
    for name in ("boto3", "botocore"):
        [version] = [line[0].partition("==")[2] for line in pinned if line[0].startswith(name + "==")]
        assert f'__version__ = "{version}"' in (ROOT / "python" / "guest" / name / "__init__.py").read_text()


@pytest.fixture
def project(node, tmp_path):
    """Deploys a project by the command, with pip's files from a folder and nowhere else: its exit code and what it says."""
    folder = tmp_path / "project"
    folder.mkdir()

    def deploy(manifest, wheels=WHEELS, cache="cache", **files):
        (folder / "millpond.toml").write_text(manifest)
        for name, text in files.items():
            path = folder / (name.replace("__", "/") + ".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        environment = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull, "MILLPOND_PYTHON": sys.executable}
        said = node.cli("deploy", folder=folder, environment=environment | {"XDG_CACHE_HOME": str(tmp_path / cache)})
        return said.returncode, said.stderr.decode()

    deploy.folder = folder
    return deploy


LAMBDAS = MANIFEST.replace("locked", "lambdas").replace('requirements = "requirements.txt"\n', "")
IMPORTS = """
import lib.web

def handler(event, context):
    return lib.web.ask(event)
"""
WEB = """
from dateutil import parser
import urllib3

def ask(event):
    import jmespath
    try:
        urllib3.PoolManager().request("GET", "http://example.org")
    except urllib3.exceptions.HTTPError as error:
        failed = str(error)
    return [parser.parse("4 May 2021").isoformat(), jmespath.search("a.b", event), failed]
"""


def asked(node):
    date, found, failed = Application(node, "lambdas", {}).call("f", b'{"a": {"b": 7}}').document
    assert (date, found) == ("2021-05-04T00:00:00", 7)
    assert "a function's process has no network" in failed, failed


@pytest.mark.skipif(not WHEELS.exists(), reason="the wheels of the tests are not here: `scripts/setup-debian.sh` brings them")
def test_what_lambdas_image_has_is_added_where_it_is_imported(node, project, tmp_path):
    # A folder's modules, of which one that nobody imports is no reason for anything.
    files = {"src__app": IMPORTS, "src__lib__web": WEB, "src__lib__unused": "import six, no_such_thing"}
    folder = LAMBDAS.replace("app.py", "src")
    code, told = project(folder, **files)
    assert code == 0, told
    [line] = [line for line in told.splitlines() if line.startswith("package:")]
    names = [package.split()[0] for package in line.rpartition(": ")[2].split(", ")]
    assert "`f`" in line and names == ["jmespath", "python-dateutil", "six", "urllib3"]
    asked(node)
    # A deployment package of Lambda's.
    code = package(**{name.removeprefix("src__"): text for name, text in files.items()})
    (project.folder / "code.zip").write_bytes(code)
    code, told = project(LAMBDAS.replace("app.py", "code.zip"))
    assert code == 0 and "urllib3" in told, told
    asked(node)
    # Where they cannot be had.
    (tmp_path / "empty").mkdir()
    code, told = project(folder, wheels=tmp_path / "empty", cache="other")
    assert code != 0 and "urllib3 2" in told and "PIP_FIND_LINKS" in told, told
    asked(node)


def test_what_a_function_brings_is_not_added(node, project, tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel(wheels, "urllib3", "1.0", "what = 'required'")
    (project.folder / "requirements.txt").write_text("urllib3\n")
    files = {
        "src__app": "import six, urllib3, jmespath\ndef handler(event, context):\n    return [six.what, urllib3.what, jmespath.what]",
        "src__six": "what = 'own'",
        "src__jmespath": "what = 'own, too'",
    }
    code, told = project(MANIFEST.replace("locked", "lambdas").replace("app.py", "src"), wheels=wheels, **files)
    assert code == 0 and "package:" not in told, told
    assert Application(node, "lambdas", {}).call("f", b"{}").document == ["own", "required", "own, too"]
    # And where nothing of it is imported, nothing is asked of pip.
    code, told = project(LAMBDAS, wheels=tmp_path / "nowhere", cache="other", app="def handler(event, context):\n    return 1\n")
    assert code == 0 and "package:" not in told, told


@pytest.mark.skipif(not WHEELS.exists(), reason="the wheels of the tests are not here: `scripts/setup-debian.sh` brings them")
def test_who_is_granted_other_services_gets_the_real_boto3(project):
    grants = "[[function.f.grants.aws]]\nservice = 'sqs'\nactions = ['*']\nresources = ['*']\n"
    # Whether this node has such services is its configuration's to say.
    _, told = project(LAMBDAS + grants, app="import boto3\nqueues = boto3.client('sqs')\ndef handler(event, context):\n    return 1\n")
    assert "package: added to `f`" in told and "boto3 1." in told and "urllib3 2." in told, told


ECHO = """
import os
state = {"requests": 0}

def handler(event, context):
    state["requests"] += 1
    return {
        "event": event,
        "requests": state["requests"],
        "id": context.aws_request_id,
        "arn": context.invoked_function_arn,
        "name": context.function_name,
        "version": context.function_version,
        "memory": context.memory_limit_in_mb,
        "left": context.get_remaining_time_in_millis(),
        "environment": dict(os.environ),
    }
"""


def test_an_event_comes_in_and_what_is_returned_goes_out(node):
    app = node.deploy("python", {"echo": function(ECHO, env={"MODE": "x"}, timeout="5s")})
    answer = app.call("echo", b'{"a": [1, 2.5, null, "\\u00e9"]}')
    assert answer.status == 200 and answer.headers["Content-Type"] == "application/json"
    said = answer.document
    assert said["event"] == {"a": [1, 2.5, None, "é"]}
    assert said["arn"].endswith(":function:python.echo") and said["name"] == "python.echo"
    assert (said["version"], said["memory"]) == ("1", "128")
    assert 0 < said["left"] <= 5000
    assert said["environment"]["MODE"] == "x"
    assert said["environment"]["LAMBDA_TASK_ROOT"] == "/var/task"
    assert not [name for name in said["environment"] if "KEY" in name or "TOKEN" in name]
    assert said["id"].replace("-", "") == answer.headers["X-Request-Id"]
    assert app.call("echo").document["event"] == {}


def test_no_request_sees_what_another_has_left(node):
    code = ECHO + """
import tempfile
import random
def left(event, context):
    state["requests"] += 1
    found = sorted(os.listdir("/tmp"))
    open("/tmp/left", "w").write("x")
    os.environ["LEFT"] = "x"
    return {"found": found, "requests": state["requests"], "random": random.random(), "process": os.getpid(), "user": os.getuid()}
"""
    app = node.deploy("python-fresh", {"f": function(code, "app.left")})
    said = [app.call("f", b"{}").document for _ in range(8)]
    assert all(one["found"] == [] and one["requests"] == 1 for one in said), said
    assert len({one["random"] for one in said}) == 8
    # Each is the first process of its own namespace.
    assert {one["process"] for one in said} == {1}


def test_its_module_is_imported_once(node):
    code = """
import time
imported = time.monotonic_ns()
def handler(event, context):
    return imported
"""
    app = node.deploy("python-once", {"f": function(code)})
    assert len({app.call("f", b"{}").document for _ in range(10)}) == 1


FAILURES = """
import sys, os
class Broken(Exception):
    pass

def inner():
    raise Broken("no luck")

def raises(event, context):
    inner()

def unanswerable(event, context):
    return {1, 2}

def leaves(event, context):
    os._exit(3)

def exits(event, context):
    sys.exit(4)

def dies(event, context):
    os.kill(os.getpid(), 11)
    os.abort()

def hungry(event, context):
    return len(b"x" * (1 << 30))

def busy(event, context):
    while True:
        pass

def large(event, context):
    return "x" * (2 << 20)
"""


def test_each_way_to_fail_is_told(node):
    def of(name, **settings):
        return function(FAILURES, f"app.{name}", **settings)

    app = node.deploy("python-fails", {
        "raises": of("raises"),
        "unanswerable": of("unanswerable"),
        "leaves": of("leaves"),
        "exits": of("exits"),
        "dies": of("dies"),
        "hungry": of("hungry"),
        "busy": of("busy", cpu_time="100ms"),
        "slow": of("busy", timeout="300ms"),
        "large": of("large", response_body="1MiB"),
        "nowhere": of("nowhere"),
        "absent": function(FAILURES, "other.handler"),
        "broken": function("def handler(:", "app.handler"),
        "imports": function("import nothing_that_is_there", "app.handler"),
        "raising": function("1 / 0", "app.handler"),
    })
    raised = {
        "raises": "Broken: no luck",
        "unanswerable": "Runtime.MarshalError",
        "nowhere": "Runtime.HandlerNotFound",
        "absent": "Runtime.ImportModuleError",
        "broken": "Runtime.UserCodeSyntaxError",
        "imports": "No module named 'nothing_that_is_there'",
        "raising": "ZeroDivisionError",
    }
    for name, said in raised.items():
        assert said in app.call(name, b"{}").problem(502, "function-raised")["detail"], name
    app.call("leaves", b"{}").problem(502, "function-exit")
    app.call("exits", b"{}").problem(502, "function-exit")
    app.call("dies", b"{}").problem(502, "function-trap")
    app.call("hungry", b"{}").problem(502, "function-out-of-memory")
    app.call("busy", b"{}").problem(504, "limit-cpu-time")
    app.call("slow", b"{}").problem(504, "limit-timeout")
    app.call("large", b"{}").problem(502, "limit-response-body")
    assert "not JSON" in app.call("raises", b"{").problem(400, "function-bad-input")["detail"]


def test_lambdas_clients_see_lambdas_errors(node):
    app = node.deploy("python-lambda", {"raises": function(FAILURES, "app.raises"), "echo": function(ECHO)})
    client = client_of(node)
    answer = client.invoke(FunctionName="python-lambda.raises", Payload=b"{}", LogType="Tail")
    assert answer["FunctionError"] == "Unhandled"
    error = json.loads(answer["Payload"].read())
    assert (error["errorType"], error["errorMessage"]) == ("Broken", "no luck")
    assert len(error["stackTrace"]) == 2 and 'File "/var/task/app.py"' in error["stackTrace"][0] and "inner" in error["stackTrace"][1]
    log = base64.b64decode(answer["LogResult"]).decode()
    assert "[ERROR] Broken: no luck" in log and "Traceback" in log
    answer = client.invoke(FunctionName="python-lambda.echo", Payload=json.dumps({"x": 1}))
    assert json.loads(answer["Payload"].read())["event"] == {"x": 1}
    assert app.versions() == {"raises": 1, "echo": 1}


def test_what_it_says_is_its_log(node):
    code = """
import logging, os, subprocess, sys
print("while it was imported")
logger = logging.getLogger()
logger.setLevel(logging.INFO)
def handler(event, context):
    print("by print")
    logger.info("by logging %s", 7)
    sys.stderr.write("by stderr\\n")
    os.write(1, b"by descriptor\\n")
    return subprocess.run([sys.executable, "-c", "print('by a child')"], check=True).returncode
"""
    app = node.deploy("python-says", {"f": function(code)})
    client = client_of(node)
    first = client.invoke(FunctionName="python-says.f", Payload=b"{}", LogType="Tail")
    log = base64.b64decode(first["LogResult"]).decode()
    for said in ("while it was imported", "by print", "by stderr", "by descriptor", "by a child"):
        assert said in log, (said, log)
    assert "[INFO]\t20" in log and f"Z\t{first['ResponseMetadata']['RequestId']}\tby logging 7" in log, log
    second = client.invoke(FunctionName="python-says.f", Payload=b"{}", LogType="Tail")
    assert "while it was imported" not in base64.b64decode(second["LogResult"]).decode()
    assert app.call("f", b"{}").document == 0


def test_modules_that_lambdas_runtime_has_imported_are_there(node):
    code = """
import concurrent
import urllib
HOST = urllib.parse.urlsplit("https://example.org/a").netloc

def handler(event, context):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        name = pool.submit(urllib.parse.unquote_plus, event["key"]).result()
    return [HOST, name, urllib.error.HTTPError.__name__, hasattr(urllib, "unquote_plus")]
"""
    app = node.deploy("python-lent", {"f": function(code)})
    assert app.call("f", b'{"key": "a+b%2Fc"}').document == ["example.org", "a b/c", "HTTPError", False]


def test_large_events_and_answers(node):
    app = node.deploy("python-large", {"f": function("def handler(event, context):\n    return event")})
    for size in (1, 65_535, 65_536, 65_537, 3_000_000):
        text = "x" * (size - 1) + "y"
        assert app.call("f", json.dumps(text).encode()).document == text, size


def test_handlers_may_be_asynchronous_or_answer_in_pieces(node):
    code = """
import asyncio, time
async def later(event, context):
    await asyncio.sleep(0.001)
    return await asyncio.to_thread(lambda: event["x"] + 1)

def pieces(event, context):
    for number in range(3):
        yield f"{number}\\n"
    yield b"end"

async def later_pieces(event, context):
    for number in range(3):
        await asyncio.sleep(0)
        yield f"{number};"

def endless(event, context):
    yield "first\\n"
    time.sleep(3600)

def breaks(event, context):
    yield "first"
    1 / 0
"""
    names = ["later", "pieces", "later_pieces", "endless", "breaks"]
    app = node.deploy("python-kinds", {name.replace("_", "-"): function(code, f"app.{name}") for name in names})
    assert app.call("later", b'{"x": 1}').document == 2
    assert app.call("pieces", b"{}").text == "0\n1\n2\nend"
    assert app.call("later-pieces", b"{}").text == "0;1;2;"
    # The first piece is there before the last one.
    with contextlib.closing(node.connect()) as connection:
        connection.request("POST", app.path("endless"), b"{}")
        assert connection.getresponse().read1(6) == b"first\n"
    # If its failure is known before its head has left, that is the answer; else the answer breaks off.
    with contextlib.suppress(http.client.IncompleteRead):
        app.call("breaks", b"{}").problem(502, "function-raised")


def test_routes_are_events_of_http(node):
    code = """
import base64
def handler(event, context):
    if event["rawPath"] == "/plain":
        return {"seen": event["requestContext"]["http"]["method"]}
    body = event.get("body", "")
    return {
        "statusCode": 201,
        "headers": {"X-Query": event["queryStringParameters"]["q"], "Content-Type": "text/html"},
        "cookies": ["a=1", "b=2"],
        "body": base64.b64encode(b"\\xff" + body.encode()).decode(),
        "isBase64Encoded": True,
    }
"""
    node.deploy(
        "python-http",
        {"f": function(code), "bad": function("def handler(event, context):\n    return {'statusCode': 'x'}")},
        [{"function": "f", "path": "/lambda/{*rest}"}, {"function": "f", "path": "/plain"}, {"function": "bad", "path": "/bad"}],
    )
    answer = node.request("POST", "/lambda/a?q=1%202", b"hello")
    assert (answer.status, answer.body) == (201, b"\xffhello")
    assert answer.headers["X-Query"] == "1 2" and answer.headers["Content-Type"] == "text/html"
    assert answer.headers.get_all("Set-Cookie") == ["a=1", "b=2"]
    assert node.request("GET", "/plain").document == {"seen": "GET"}
    assert "statusCode" in node.request("GET", "/bad").problem(502, "function-bad-output")["detail"]


def test_packages_have_modules_and_data(node):
    code, settings = package(
        app="from lib.deep import one\nimport os\ndef handler(event, context):\n    return [one.value, sorted(os.listdir('.')), os.getcwd()]",
        lib____init__="",
        lib__deep____init__="",
        lib__deep__one="value = 7",
    ), {"handler": "app.handler", "memory": "128MiB"}
    app = node.deploy("python-package", {"f": (code, settings)})
    assert app.call("f", b"{}").document == [7, ["app.py", "lib"], "/var/task"]


def test_what_is_no_package_is_refused(node):
    refused = lambda code, **settings: node.try_deploy("python-bad", {"f": (code, {"handler": "app.handler", **settings})})
    assert "no ZIP file" in refused(b"PK\x03\x04 and no more").problem(422, "code-refused")["detail"]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("../../etc/passwd", "x")
    assert "outside of it" in refused(buffer.getvalue()).problem(422, "code-refused")["detail"]
    answer = refused(package(app=""), handler="nodots")
    assert answer.status == 422 and "handler" in answer.body.decode()


HOSTILE = """
import os, socket, ctypes, signal, sys

def attempt(what):
    try:
        return repr(what())
    except BaseException as error:
        return type(error).__name__

def handler(event, context):
    libc = ctypes.CDLL(None, use_errno=True)
    def call(number, *arguments):
        result = libc.syscall(number, *arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), "")
        return result
    ways = {
        "network": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
        "local socket": lambda: socket.socket(socket.AF_UNIX, socket.SOCK_STREAM),
        "host file": lambda: open("/etc/passwd").read(),
        "host folder": lambda: os.listdir("/home"),
        "the data folder": lambda: os.listdir(event["data"]),
        "write to the package": lambda: open("/var/task/app.py", "a"),
        "write to the runtime": lambda: open("/opt/millpond/millpond/request.py", "a"),
        "write to the root": lambda: open("/x", "w"),
        "signal to others": lambda: os.kill(2, signal.SIGKILL),
        "user namespace": lambda: call(56, 0x10000000 | 17, 0, 0, 0, 0),
        "process namespace": lambda: call(56, 0x20000000 | 17, 0, 0, 0, 0),
        "the zygote's way": lambda: call(56, 0x38020000 | 0x01000000 | 0x00200000 | 0x00008000, 0, 0, 0, 0),
        "change the user": lambda: os.setuid(0),
        "a device": lambda: os.open("/dev/mem", os.O_RDONLY),
        "processes": lambda: os.listdir("/proc/1"),
    }
    return {name: attempt(way) for name, way in ways.items()}
"""


def test_it_reaches_nothing(node):
    app = node.deploy("python-hostile", {"f": function(HOSTILE)})
    said = app.call("f", json.dumps({"data": str(node.folder.resolve())}).encode()).document
    allowed = {name: result for name, result in said.items() if not result.endswith("Error")}
    assert allowed == {}, allowed


def test_who_tries_to_reach_the_network_is_told_that_there_is_none(node):
    code = """
import asyncio, socket, ssl, urllib.request

def attempt(what):
    try:
        return repr(what())
    except OSError as error:
        return f"{type(error).__name__}: {error}"

async def meet():
    reader, writer = await asyncio.open_connection("127.0.0.1", 1)

def handler(event, context):
    one, other = socket.socketpair()
    one.sendall(b"x")
    # As a tracing library makes one while it is imported, and sends what may get lost.
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.setblocking(False)
    local = ("127.0.0.1", 2000)
    number = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK).connect_ex(("::1", 2000))
    return [other.recv(1).decode(), number], {
        "datagram": attempt(lambda: datagrams.sendto(b"x", local)),
        "message": attempt(lambda: datagrams.sendmsg([b"x"], [], 0, local)),
        "connected": attempt(lambda: datagrams.connect(local)),
        "bound": attempt(lambda: datagrams.bind(("0.0.0.0", 0))),
        "raw": attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW)),
        "name": attempt(lambda: urllib.request.urlopen("http://example.org")),
        "encrypted": attempt(lambda: urllib.request.urlopen("https://example.org", context=ssl.create_default_context())),
        "address": attempt(lambda: urllib.request.urlopen("http://192.0.2.1")),
        "socket": attempt(socket.socket),
        "resolver": attempt(lambda: socket.gethostbyname("example.org")),
        "loop": attempt(lambda: asyncio.run(meet())),
    }
"""
    app = node.deploy("python-network", {"f": function(code)})
    said, ways = app.call("f", b"{}").document
    assert said == ["x", errno.ENETUNREACH]
    assert [name for name, said in ways.items() if "a function's process has no network" not in said] == [], ways


def test_calls_that_no_program_makes_are_its_end(node):
    for number in (165, 101, 308, 272, 321):  # mount, ptrace, setns, unshare, bpf
        code = f"import ctypes\ndef handler(event, context):\n    return ctypes.CDLL(None).syscall({number}, 0, 0, 0, 0, 0)"
        app = node.deploy("python-ends", {"f": function(code)})
        assert "signal 31" in app.call("f", b"{}").problem(502, "function-trap")["detail"], number


def test_who_signals_its_own_group_ends_nobody_else(make_node):
    """Process groups cross process namespaces: on a node of its own, whose processes are all looked at."""
    node = make_node()
    app = node.deploy("python-groups", {
        # The first process of a namespace is not ended by its own signals.
        "ends": function("import os, signal\ndef handler(event, context):\n    os.killpg(0, signal.SIGKILL)\n    return 2"),
        "imports": function("import os, signal\nos.killpg(0, signal.SIGKILL)\ndef handler(event, context):\n    pass"),
        "other": function("def handler(event, context):\n    return 1"),
    })
    assert app.call("other", b"{}").document == 1
    [spawner] = children(node.process.pid)
    [others] = children(spawner)
    # Forks of it come and go; it stays.
    before = interpreters(node)
    assert len(before) == 1
    assert app.call("ends", b"{}").document == 2
    # Its own interpreter is there, too, for the next request.
    of_ends = [zygote for zygote in children(spawner) if zygote != others]
    interpreter = set(interpreters(node)) - set(before)
    assert len(of_ends) == 1 and len(interpreter) == 1
    assert app.call("ends", b"{}").document == 2
    assert interpreter <= set(interpreters(node))
    # What is killed while it is imported is this function's interpreter and nobody else's.
    assert "its interpreter has ended" in app.call("imports", b"{}").problem(502, "function-trap")["detail"]
    assert {others, *of_ends} <= set(children(spawner)) and {*before, *interpreter} <= set(interpreters(node))
    assert app.call("other", b"{}").document == 1


def test_many_at_once(node):
    code = "import time\ndef handler(event, context):\n    time.sleep(0.05)\n    return event['n']"
    app = node.deploy("python-many", {"f": function(code)})
    said = [None] * 40

    def call(number):
        said[number] = app.call("f", json.dumps({"n": number}).encode()).document

    threads = [threading.Thread(target=call, args=(number,)) for number in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == list(range(40))


def namespaces(process):
    """How deep the process namespace is in which it is."""
    status = Path(f"/proc/{process}/status").read_text()
    [line] = [line for line in status.splitlines() if line.startswith("NSpid:")]
    return len(line.split()) - 1


def interpreters(node):
    """Of this node's zygotes: each is one process namespace further in than they, and its forks are two."""
    spawners = children(node.process.pid)
    processes = [process for spawner in spawners for zygote in children(spawner) for process in children(zygote)]
    deep = namespaces(os.getpid()) + 1
    return [process for process in processes if b"millpond.zygote" in _read(Path(f"/proc/{process}/cmdline")) and namespaces(process) == deep]


def test_who_ends_an_interpreter_ends_no_later_request(node):
    app = node.deploy("python-killed", {"f": function("def handler(event, context):\n    return 1")})
    for _ in range(3):
        assert app.call("f", b"{}").document == 1
        for process in interpreters(node):
            os.kill(process, 9)
        assert app.call("f", b"{}").document == 1


def test_nothing_is_left_of_a_request(node):
    code = """
import subprocess, sys, threading, time
def handler(event, context):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()
    return 1
"""
    app = node.deploy("python-leaves", {"f": function(code)})
    assert app.call("f", b"{}").document == 1
    asleep = lambda: [
        path for path in Path("/proc").glob("[0-9]*/cmdline") if b"time.sleep(3600)\0" in _read(path)
    ]
    eventually(lambda: not asleep(), "a child of a request that has been answered is there still")


def _read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_packages_that_no_version_has_are_removed(make_node):
    node = make_node()
    packages = lambda: {path.name for path in (node.data / "packages").iterdir()} if (node.data / "packages").is_dir() else set()
    deploy = lambda name, text: node.deploy(name, {"f": function(f"def handler(event, context):\n    return {text!r}")})
    app, other = deploy("packages", "a"), deploy("packages-other", "b")
    assert (app.call("f", b"{}").document, other.call("f", b"{}").document) == ("a", "b")
    both = packages()
    assert len(both) == 2
    assert node.control("DELETE", "/v1/functions/packages.f").status in (200, 204)
    # A core lets go of what it knew with its next request.
    eventually(lambda: other.call("f", b"{}").document == "b" and len(packages()) == 1, "the package of a function that is no more is removed")
    [left] = packages()
    node.stop()
    (node.data / "packages" / ("0" * 64)).mkdir()
    node.start()
    assert packages() == {left}
    assert node.request("POST", other.path("f"), b"{}").document == "b"


def test_boot_is_told(node):
    app = node.deploy("python-boot", {"f": function("def handler(event, context):\n    return 1")})
    app.call("f", b"{}")
    # The news that a process has begun and its answer come by two ways: whichever is the first, it is told.
    assert all(app.call("f", b"{}").timing["boot"] > 0 for _ in range(200))
