"""Functions in Python with compiled packages, as they come from the index: pandas, Pillow, onnxruntime."""

import base64
import json
import os
import struct
import subprocess
import sys
import zipfile

import pytest
from harness import ROOT, clean_environment
from test_preimported import origin
from test_python import has_engine  # noqa: F401

WHEELS = ROOT / "build" / "wheels"
REQUIREMENTS = ROOT / "tests" / "packages.txt"

pytestmark = pytest.mark.skipif(
    not list(WHEELS.glob("pandas-*.whl")), reason="the wheels of tests/packages.txt are not here: `scripts/setup-debian.sh` brings them"
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """All of them, installed by pip from files."""
    folder = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--no-index", "--no-compile", "--require-hashes", "--find-links", WHEELS, "--target", folder, "-r", REQUIREMENTS]
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", *options]
    subprocess.run([str(word) for word in command], env=clean_environment() | {"PIP_CONFIG_FILE": os.devnull}, check=True)
    return folder


@pytest.fixture
def deploy(node, installed, tmp_path):
    """A function of this code with packages, by the names of their folders."""

    def deploy(name, packages, files, **settings):
        archive = tmp_path / f"{name}.zip"
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as package:
            for file, data in files.items():
                package.writestr(file, data)
            for folder in packages:
                here = installed / folder
                for path in [here] if here.is_file() else here.rglob("*"):
                    # Tests of theirs are a third of it.
                    if path.is_file() and "tests" not in path.relative_to(installed).parts:
                        package.write(path, path.relative_to(installed))
        settings = {"handler": "app.handler", "memory": "512MiB", "timeout": "60s"} | settings
        return node.deploy(name, {"f": (archive.read_bytes(), settings)})

    return deploy


NUMPY = ["numpy", "numpy.libs"]


@pytest.mark.parametrize("cpus", [1, 2])
def test_pandas(deploy, cpus):
    code = """
import io
import pandas

rates = pandas.DataFrame({"currency": ["a", "b"], "rate": [1.0, 2.5]}).set_index("currency")

def handler(event, context):
    sales = pandas.read_csv(io.StringIO(event["csv"]), parse_dates=["day"])
    sales = sales.join(rates, on="currency")
    sales["value"] = sales["count"] * sales["rate"]
    months = sales.groupby(sales["day"].dt.strftime("%Y-%m"))["value"].agg(["sum", "max"])
    rates.loc["a", "rate"] += 1
    return {
        "months": json.loads(months.to_json(orient="index")),
        "rate": rates.loc["a", "rate"],
        "random": pandas.Series(range(1_000_000)).sample(2).tolist(),
    }
"""
    app = deploy(f"pandas-{cpus}", [*NUMPY, "pandas", "dateutil", "six.py"], {"app.py": "import json" + code}, cpus=cpus)
    text = "day,currency,count\n2024-01-05,a,10\n2024-01-31,b,2\n2024-02-29,b,4\n"
    said = [app.call("f", json.dumps({"csv": text}).encode()).document for _ in range(3)]
    assert all(one["months"] == {"2024-01": {"sum": 15.0, "max": 10.0}, "2024-02": {"sum": 10.0, "max": 10.0}} for one in said), said
    # No request sees what another has changed, and each draws its own numbers.
    assert {one["rate"] for one in said} == {2.0}
    assert len({tuple(one["random"]) for one in said}) == 3


# By the runtime itself, after which all 624 words are to be made anew, or by NumPy, where more than words were drawn or others.
@pytest.mark.parametrize(
    ("drawn", "is_by_runtime"),
    [("", True), ("numpy.random.random()", True), ("numpy.random.normal()", False), ("numpy.random.set_bit_generator(numpy.random.PCG64())", False)],
)
def test_numpys_generator_is_another_in_each_request(deploy, drawn, is_by_runtime):
    """Whatever the import has made of it; and what a request seeds, it has."""
    code = f"""
import numpy
numpy.random.seed(7)
{drawn}

def handler(event, context):
    random = numpy.random
    drawn = random.get_state(legacy=False)["state"].get("pos")
    first = [random.normal(), random.random(), random.normal(), *random.randint(0, 1000, 700).tolist()]
    random.set_bit_generator(random.MT19937())
    random.seed(7)
    return {{"first": first, "seeded": random.random(), "drawn": drawn}}
"""
    app = deploy("generator", NUMPY, {"app.py": code}, cpus=1)
    said = [app.call("f", b"{}").document for _ in range(4)]
    assert {one["seeded"] for one in said} == {0.07630828937395717}
    assert all((one["drawn"] == 624) == is_by_runtime for one in said), said
    first = [one["first"] for one in said]
    # Each draw is another one's nowhere.
    assert all(len({one[n] for one in first}) == 4 for n in range(3)), first
    assert all(abs(one[0]) < 6 and 0 <= one[1] < 1 and 400 < sum(one[3:]) / 700 < 600 for one in first)


def test_pillow(deploy):
    code = """
import base64, io
from PIL import Image

def handler(event, context):
    image = Image.open(io.BytesIO(base64.b64decode(event["image"])))
    small = image.resize((2, 2), Image.Resampling.BOX)
    file = io.BytesIO()
    small.save(file, "JPEG")
    return [small.size, [small.getpixel((x, y)) for y in range(2) for x in range(2)], file.getvalue()[:2].hex()]
"""
    app = deploy("pillow", ["PIL", "pillow.libs"], {"app.py": code})
    # A portable pixmap of 4 by 4: each quarter has a colour of its own.
    rows = [[(255, 0, 0)] * 2 + [(0, 255, 0)] * 2] * 2 + [[(0, 0, 255)] * 2 + [(9, 9, 9)] * 2] * 2
    image = b"P6 4 4 255\n" + bytes(value for row in rows for pixel in row for value in pixel)
    said = app.call("f", json.dumps({"image": base64.b64encode(image).decode()}).encode()).document
    assert said == [[2, 2], [[255, 0, 0], [0, 255, 0], [0, 0, 255], [9, 9, 9]], "ffd8"]


def _field(number, value):
    """A field of a protocol buffer: a number, text, or bytes."""

    def varint(value):
        low, rest = value & 0x7F, value >> 7
        return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])

    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def multiplication(size):
    """A network in ONNX's form: `y = x @ w`, where `w` is a square of this size and 1 everywhere, in `float`."""
    floats = 1

    def tensor_of(name):
        shape = b"".join(_field(1, _field(1, size)) for _ in range(2))
        return _field(1, name) + _field(2, _field(1, _field(1, floats) + _field(2, shape)))

    node = _field(1, "x") + _field(1, "w") + _field(2, "y") + _field(4, "MatMul")
    weights = _field(1, size) * 2 + _field(2, floats) + _field(8, "w") + _field(9, struct.pack("<f", 1.0) * size * size)
    graph = _field(1, node) + _field(2, "multiplication") + _field(5, weights) + _field(11, tensor_of("x")) + _field(12, tensor_of("y"))
    return _field(1, 8) + _field(7, graph) + _field(8, _field(1, "") + _field(2, 13))


def test_onnxruntime_with_threads_that_the_import_has_started(deploy):
    code = """
import concurrent.futures, threading
import numpy, onnxruntime

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
session = onnxruntime.InferenceSession("/var/task/model.onnx", options, providers=["CPUExecutionProvider"])
served = []

def run(number):
    [product] = session.run(None, {"x": numpy.full((400, 400), number, dtype=numpy.float32)})
    return sorted({float(value) for value in product.ravel()})

def handler(event, context):
    served.append(event)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        return {"one": run(event["number"]), "several": list(pool.map(run, range(6))), "served": len(served)}
"""
    packages = [*NUMPY, "onnxruntime", "google", "flatbuffers", "packaging"]
    app = deploy("onnxruntime", packages, {"app.py": code, "model.onnx": multiplication(400)}, cpus=2, memory="1GiB")
    for number in (1, 2, 3):
        said = app.call("f", json.dumps({"number": number}).encode()).document
        assert said == {"one": [400.0 * number], "several": [[400.0 * one] for one in range(6)], "served": 1}
    assert origin(app, "f").startswith("preimported processes, because the import of app started ")
