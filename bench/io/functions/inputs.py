"""What the ten functions read, made from seeds: the same bytes each time. And what they have to answer.

    ./inputs.py BUCKET              uploads all objects by boto3 (AWS_ENDPOINT_URL and so on say where), and prints the events
    ./inputs.py BUCKET aes web      those of these functions

As a module: `cases()` has for each function its `Case`; `upload` and `differences` do what they say.

No expected answer comes of a function's own code: AES is FIPS 197's own definition, the networks and the regressions are their
formulas in NumPy, pages and counts are made by other means. The one that was recorded is the digest of the resized JPEG,
since only the encoder knows it; the picture within is compared with Lanczos's filter as it is defined.
"""

import functools
import hashlib
import html
import io
import json
import math
import pickle
import sys
import zlib
from collections import Counter
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Case:
    """One function's work. A key of `objects` and `outputs` is the object's in the bucket."""

    name: str
    objects: dict  # key → bytes
    event: dict  # but for the bucket
    answer: dict
    # key → bytes; an array, for NumPy's format; or a function that raises what is wrong with them.
    outputs: dict = field(default_factory=dict)

    def event_for(self, bucket):
        return {"bucket": bucket} | self.event


def rng(name):
    """A stream of random numbers for each purpose."""
    return np.random.Generator(np.random.PCG64(list(name.encode())))


def npy(array):
    body = io.BytesIO()
    np.save(body, array)
    return body.getvalue()


def sha256(body):
    return hashlib.sha256(body).hexdigest()


# --- regressions ------------------------------------------------------------------------------------------------


def regression(name, rows, columns):
    """Samples, and a target that depends on them linearly but for noise."""
    numbers = rng(name)
    samples = numbers.standard_normal((rows, columns))
    weights = numbers.standard_normal(columns)
    return samples, samples @ weights + 3 + 0.5 * numbers.standard_normal(rows)


def ridge(samples, target, alpha):
    """Weights and intercept of the ridge regression, by its normal equations."""
    middle, level = samples.mean(axis=0), target.mean()
    centred = samples - middle
    weights = np.linalg.solve(centred.T @ centred + alpha * np.eye(samples.shape[1]), centred.T @ (target - level))
    return weights, level - middle @ weights


def stack_reducer():
    from sklearn.linear_model import Lasso, LinearRegression, Ridge

    samples, target = regression("stack-reducer", REDUCER_ROWS, 15)
    models = [LinearRegression(), Ridge(alpha=10.0), Lasso(alpha=0.1), Lasso(alpha=0.5)]
    predictions = [model.fit(samples, target).predict(samples) for model in models]

    def ensemble(body):
        for model, other in zip(models, pickle.loads(body), strict=True):
            assert type(model) is type(other) and np.array_equal(model.coef_, other.coef_)

    names = [f"stack-reducer/{number}" for number in range(len(models))]
    objects = {f"{name}.predictions.npy": npy(column) for name, column in zip(names, predictions)}
    objects |= {f"{name}.model": pickle.dumps(model) for name, model in zip(names, models)}
    return Case(
        "stack-reducer",
        objects,
        {
            "predictions": [f"{name}.predictions.npy" for name in names],
            "models": [f"{name}.model" for name in names],
            "features": "stack-reducer/out/features.npy",
            "ensemble": "stack-reducer/out/ensemble",
        },
        {
            "rows": REDUCER_ROWS,
            "columns": len(models),
            "models": ["LinearRegression", "Ridge", "Lasso", "Lasso"],
            "largest": [max(column.tolist()) for column in predictions],
        },
        {"stack-reducer/out/features.npy": npy(np.column_stack(predictions)), "stack-reducer/out/ensemble": ensemble},
    )


def stack_trainer():
    alpha, folds = 1.0, TRAINER_FOLDS
    samples, target = regression("stack-trainer", *TRAINER_SHAPE)
    predictions = np.empty_like(target)
    for part in np.array_split(np.arange(len(target)), folds):
        others = np.delete(np.arange(len(target)), part)
        weights, intercept = ridge(samples[others], target[others], alpha)
        predictions[part] = samples[part] @ weights + intercept
    weights, intercept = ridge(samples, target, alpha)

    def model(body):
        assert np.allclose(pickle.loads(body).coef_, weights) and math.isclose(pickle.loads(body).intercept_, intercept)

    return Case(
        "stack-trainer",
        {"stack-trainer/dataset.npy": npy(np.column_stack([samples, target]))},
        {
            "dataset": "stack-trainer/dataset.npy",
            "alpha": alpha,
            "folds": folds,
            "predictions": "stack-trainer/out/predictions.npy",
            "model": "stack-trainer/out/model",
        },
        {
            "rows": len(target),
            "error": float(np.mean((predictions - target) ** 2)),
            "coefficients": float(np.abs(weights).sum()),
        },
        {"stack-trainer/out/predictions.npy": predictions, "stack-trainer/out/model": model},
    )


def linear_regression():
    from sklearn.linear_model import LinearRegression

    samples, target = regression("linear-regression", 4096, 32)
    weights, intercept = ridge(samples, target, 0.0)
    predictions = samples @ weights + intercept
    return Case(
        "linear-regression",
        {
            "linear-regression/model": pickle.dumps(LinearRegression().fit(samples, target)),
            "linear-regression/samples.npy": npy(samples),
        },
        {
            "model": "linear-regression/model",
            "samples": "linear-regression/samples.npy",
            "output": "linear-regression/out/predictions.npy",
        },
        {"rows": 4096, "mean": float(predictions.mean()), "largest": int(predictions.argmax())},
        {"linear-regression/out/predictions.npy": predictions},
    )


# --- AES --------------------------------------------------------------------------------------------------------


def times(a, b):
    """A product in AES's field (FIPS 197, section 4.2)."""
    product = 0
    for bit in range(8):
        product ^= (b >> bit & 1) * a
        a = a << 1 ^ (a >> 7) * 0x11B
    return product


@functools.cache
def s_box():
    """Section 5.1.1: the inverse, and an affine map."""
    box = []
    for a in range(256):
        b = next((b for b in range(256) if times(a, b) == 1), 0)
        box.append(functools.reduce(lambda x, turn: x ^ (b << turn | b >> 8 - turn) & 255, range(5), 0x63))
    return box


def encrypt(key, blocks):
    """AES of blocks of 16 bytes (an array of them) with a key of 32 bytes."""
    box = np.array(s_box(), np.uint8)
    words, constant = list(np.frombuffer(key, np.uint8).reshape(-1, 4)), 1
    for i in range(8, 60):
        word = words[-1]
        if i % 8 == 0:
            word = box[np.roll(word, -1)] ^ np.array([constant, 0, 0, 0], np.uint8)
            constant = times(constant, 2)
        elif i % 8 == 4:
            word = box[word]
        words.append(words[-8] ^ word)
    keys = np.array(words).reshape(15, 16)
    twice, thrice = (np.array([times(a, b) for a in range(256)], np.uint8) for b in (2, 3))
    rows = np.arange(16).reshape(4, 4).T
    shift = np.array([np.roll(row, -i) for i, row in enumerate(rows)]).T.ravel()
    state = blocks ^ keys[0]
    for number in range(1, 15):
        state = box[state][:, shift]
        if number < 14:
            a, b, c, d = state.reshape(-1, 4, 4).transpose(2, 0, 1)
            mixed = [twice[p] ^ thrice[q] ^ r ^ s for p, q, r, s in ((a, b, c, d), (b, c, d, a), (c, d, a, b), (d, a, b, c))]
            state = np.stack(mixed, axis=-1).reshape(-1, 16)
        state = state ^ keys[number]
    return state


def aes():
    # Section C.3's example.
    assert encrypt(bytes(range(32)), np.arange(16, dtype=np.uint8)[None] * 17).tobytes().hex() == "8ea2b7ca516745bfeafc49904b496089"
    numbers = rng("aes")
    secret, document, counter = numbers.bytes(32), numbers.bytes(1 << 20), 0xF0F1F2F3
    counters = b"".join((counter + block).to_bytes(16, "big") for block in range(AES_BYTES // 16))
    stream = encrypt(secret, np.frombuffer(counters, np.uint8).reshape(-1, 16)).ravel()
    head = (np.frombuffer(document[:AES_BYTES], np.uint8) ^ stream).tobytes()
    encrypted = head + document[AES_BYTES:]
    return Case(
        "aes",
        {"aes/secret": secret, "aes/document": document},
        {
            "secret": "aes/secret",
            "document": "aes/document",
            "counter": counter,
            "confidential_bytes": AES_BYTES,
            "output": "aes/out/document",
        },
        {"bytes": 1 << 20, "sha256": sha256(encrypted)},
        {"aes/out/document": encrypted},
    )


# --- words ------------------------------------------------------------------------------------------------------


def words(name, count):
    """So many different words, as a person could say them."""
    numbers, found = rng(name), {}
    while len(found) < count:
        syllables = numbers.integers(2, 5)
        consonants = numbers.choice(list("bcdfghjklmnprstvz"), syllables)
        vowels = numbers.choice(list("aeiou"), syllables)
        found["".join(a + b for a, b in zip(consonants, vowels))] = None
    return np.array(list(found))


def web():
    numbers = rng("web")
    names = words("web", 500)
    columns = ["Article", "Name", "Maker", "Price", "Stock", "Remark"]
    rows = []
    for article in range(WEB_ROWS):
        name, maker, remark = (" ".join(numbers.choice(names, count)) for count in (2, 1, 6))
        price = f"{numbers.integers(100, 99999) / 100:.2f} €"
        rows.append([article, name.title(), f"{maker.title()} & Co", price, int(numbers.integers(500)), f"<{remark}>"])
    catalogue = {"title": "Spring & summer", "columns": columns, "rows": rows}

    title = html.escape(catalogue["title"], quote=False)
    lines = ["<!DOCTYPE html>", "<html>", f"<head><title>{title}</title></head>", "<body>", f"<h1>{title}</h1>", "<table>"]
    # Chameleon begins a line for each repetition.
    lines.append("<tr>" + "\n".join(f"<th>{column}</th>" for column in columns) + "</tr>")
    lines += ["<tr>" + "\n".join(f"<td>{html.escape(str(cell), quote=False)}</td>" for cell in row) + "</tr>" for row in rows]
    page = "\n".join([*lines, "</table>", "</body>", "</html>", ""]).encode()
    return Case(
        "web",
        {"web/catalogue.json": json.dumps(catalogue).encode()},
        {"catalogue": "web/catalogue.json", "page": "web/out/page.html"},
        {"rows": WEB_ROWS, "bytes": len(page), "sha256": sha256(page)},
        {"web/out/page.html": page},
    )


def zipf(count):
    """How likely the words of a text are: the second half as likely as the first, and so on."""
    weights = 1 / np.arange(1, count + 1)
    return weights / weights.sum()


def map_words():
    numbers, vocabulary = rng("map"), words("map", MAP_VOCABULARY)
    texts = {}
    for number in range(4):
        chosen = numbers.choice(vocabulary, MAP_TEXT_BYTES // 4, p=zipf(len(vocabulary)))
        text = "".join(word.capitalize() + "\n" if i % 12 == 11 else word + " " for i, word in enumerate(chosen))
        texts[f"map/{number}.txt"] = text[:MAP_TEXT_BYTES].encode()
    outputs = [f"map/out/{number}.json" for number in range(4)]

    parts = [{} for _ in outputs]
    spoken = [word for text in texts.values() for word in text.decode().lower().split()]
    different, counts = np.unique(spoken, return_counts=True)
    for word, count in zip(different.tolist(), counts.tolist()):
        parts[zlib.crc32(word.encode()) % len(parts)][word] = count
    return Case(
        "map",
        texts,
        {"texts": list(texts), "outputs": outputs},
        {"words": len(spoken), "distinct": len(different), "parts": [len(part) for part in parts]},
        # np.unique has sorted the words already.
        {key: json.dumps(part).encode() for key, part in zip(outputs, parts)},
    )


def reduce_words():
    numbers, vocabulary = rng("reduce"), words("reduce", REDUCE_VOCABULARY)
    total, objects = np.zeros(len(vocabulary), int), {}
    for number in range(4):
        counts = numbers.geometric(0.02, len(vocabulary)) * (numbers.random(len(vocabulary)) < 0.75)
        total += counts
        part = {word: count for word, count in zip(vocabulary.tolist(), counts.tolist()) if count}
        objects[f"reduce/{number}.json"] = json.dumps(part, sort_keys=True).encode()
    output = json.dumps({vocabulary[i]: int(total[i]) for i in np.argsort(vocabulary) if total[i]}).encode()
    return Case(
        "reduce",
        objects,
        {"parts": list(objects), "output": "reduce/out/counts.json"},
        {"words": int(total.sum()), "distinct": int((total > 0).sum()), "sha256": sha256(output)},
        {"reduce/out/counts.json": output},
    )


# --- photographs ------------------------------------------------------------------------------------------------


def photograph(name, width, height, grain, quality):
    """Waves of light, rings, and grain, as a JPEG."""
    from PIL import Image

    numbers = rng(name)
    y, x = np.mgrid[0:height, 0:width] / width
    colours = []
    for _ in range(3):
        level = np.full((height, width), 128.0)
        for _ in range(5):
            across, down, phase = numbers.uniform(-40, 40), numbers.uniform(-40, 40), numbers.uniform(0, 6)
            level += 18 * np.sin(across * x + down * y + phase)
        middle_x, middle_y = numbers.uniform(0, 1, 2)
        level += 18 * np.sin(300 * ((x - middle_x) ** 2 + (y - middle_y) ** 2))
        colours.append(level + grain * numbers.standard_normal((height, width)))
    body = io.BytesIO()
    pixels = np.clip(np.rint(np.stack(colours, axis=-1)), 0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(body, "JPEG", quality=quality)
    return body.getvalue()


def pixels_of(body):
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(body)).convert("RGB"), float)


def filtered(pixels, height, width, support, kernel):
    """Resizes by a filter's definition: each pixel the mean of those around its place, weighted by the kernel, which is as
    much wider as the picture becomes smaller; across, then down, and rounded after each, as in Pillow."""
    for axis, size in ((1, width), (0, height)):
        scale = pixels.shape[axis] / size
        places = (np.arange(size) + 0.5) * scale
        distance = (np.arange(pixels.shape[axis]) + 0.5 - places[:, None]) / max(scale, 1)
        weights = np.where(np.abs(distance) < support, kernel(distance), 0)
        weights /= weights.sum(axis=1, keepdims=True)
        pixels = np.clip(np.floor(np.moveaxis(np.tensordot(weights, pixels, (1, axis)), 0, axis) + 0.5), 0, 255)
    return pixels


def lanczos(x):
    return np.sinc(x) * np.sinc(x / 3)


def triangle(x):
    return 1 - np.abs(x)


def resize():
    width, height, smaller = *RESIZE_SHAPE, RESIZE_WIDTH
    original = photograph("resize", width, height, RESIZE_GRAIN, 90)
    expected = filtered(pixels_of(original), height * smaller // width, smaller, 3, lanczos)

    def copy(body):
        assert sha256(body) == RESIZED
        found = pixels_of(body)
        assert found.shape == expected.shape
        assert np.sqrt(np.mean((found - expected) ** 2)) < 6, "more than what JPEG loses"

    return Case(
        "resize",
        {"resize/photograph.jpg": original},
        {"photograph": "resize/photograph.jpg", "width": smaller, "output": "resize/out/copy.jpg"},
        {
            "width": smaller,
            "height": height * smaller // width,
            "mean": [Near(level, 0.2) for level in expected.mean(axis=(0, 1)).tolist()],
            # Recorded: Pillow 13.0.0.
            "sha256": RESIZED,
        },
        {"resize/out/copy.jpg": copy},
    )


# --- networks ---------------------------------------------------------------------------------------------------


def network(name, nodes, inputs, outputs, weights):
    """A network in ONNX's format. `nodes`: (operation, inputs, outputs, attributes)."""
    from onnx import TensorProto, helper, numpy_helper

    kinds = {"float": TensorProto.FLOAT, "int": TensorProto.INT64}

    def values(of):
        return [helper.make_tensor_value_info(label, kinds[kind], shape) for label, kind, shape in of]

    graph = helper.make_graph(
        [helper.make_node(operation, into, out, **attributes) for operation, into, out, attributes in nodes],
        name,
        values(inputs),
        values(outputs),
        [numpy_helper.from_array(array, label) for label, array in weights.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString(deterministic=True)


def convolved(pixels, weights, bias, stride):
    """A convolution by its definition, with a border of zeros, and its positive part."""
    padded = np.pad(pixels, ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))[:, ::stride, ::stride]
    return np.maximum(np.einsum("chwij,ocij->ohw", windows, weights, optimize=True) + bias[:, None, None], 0)


def softmax(scores):
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def cnn():
    numbers = rng("cnn")
    weights, nodes, last, channels = {}, [], "pixels", 3
    for layer, (more, stride) in enumerate(CNN_LAYERS):
        spread = math.sqrt(2 / (9 * channels))
        weights[f"w{layer}"] = (spread * numbers.standard_normal((more, channels, 3, 3))).astype(np.float32)
        weights[f"b{layer}"] = (0.1 * numbers.standard_normal(more)).astype(np.float32)
        shape = {"kernel_shape": [3, 3], "strides": [stride, stride], "pads": [1, 1, 1, 1]}
        nodes.append(("Conv", [last, f"w{layer}", f"b{layer}"], [f"c{layer}"], shape))
        nodes.append(("Relu", [f"c{layer}"], [f"r{layer}"], {}))
        last, channels = f"r{layer}", more
    weights["w"] = (1.5 * numbers.standard_normal((channels, 100))).astype(np.float32)
    weights["b"] = numbers.standard_normal(100).astype(np.float32)
    nodes.append(("GlobalAveragePool", [last], ["pooled"], {}))
    nodes.append(("Flatten", ["pooled"], ["flat"], {}))
    nodes.append(("Gemm", ["flat", "w", "b"], ["scores"], {}))
    nodes.append(("Softmax", ["scores"], ["chances"], {}))
    model = network("cnn", nodes, [("pixels", "float", [1, 3, 224, 224])], [("chances", "float", [1, 100])], weights)
    picture = photograph("cnn", 640, 480, 8, 85)

    layer = filtered(pixels_of(picture), 224, 224, 1, triangle).transpose(2, 0, 1) / 127.5 - 1
    for number, (_, stride) in enumerate(CNN_LAYERS):
        layer = convolved(layer, weights[f"w{number}"], weights[f"b{number}"], stride)
    chances = softmax(layer.mean(axis=(1, 2)) @ weights["w"] + weights["b"])
    best = np.argsort(-chances)
    assert np.min(-np.diff(chances[best[:6]])) > 0.005, "no class is nearly as likely as the next"
    classes = [{"class": int(index), "chance": Near(float(chances[index]), CNN_WITHIN)} for index in best[:5]]

    def stored(body):
        assert not differences(classes, json.loads(body))

    return Case(
        "cnn",
        {"cnn/model.onnx": model, "cnn/photograph.jpg": picture},
        {"model": "cnn/model.onnx", "photograph": "cnn/photograph.jpg", "output": "cnn/out/classes.json"},
        {"classes": classes},
        {"cnn/out/classes.json": stored},
    )


LETTERS = "abcdefghijklmnopqrstuvwxyz .,'-!"


def rnn():
    numbers, state, width = rng("rnn"), 256, 64

    def matrix(*shape):
        return (numbers.standard_normal(shape) * 1.5 / math.sqrt(shape[-1])).astype(np.float32)

    # The gates' order is ONNX's: update, reset, hidden.
    weights = {"E": 8 * matrix(32, width), "W": matrix(1, 3 * state, width), "R": matrix(1, 3 * state, state)}
    weights |= {"B": 0.1 * matrix(1, 6 * state), "O": 16 * matrix(state, 32)}
    nodes = [
        ("Gather", ["E", "letters"], ["embedded"], {}),
        ("GRU", ["embedded", "W", "R", "B", "", "state"], ["", "next"], {"hidden_size": state, "linear_before_reset": 1}),
        ("Squeeze", ["next", "first"], ["hidden"], {}),
        ("MatMul", ["hidden", "O"], ["scores"], {}),
    ]
    inputs = [("letters", "int", ["time", "batch"]), ("state", "float", [1, "batch", state])]
    outputs = [("scores", "float", ["batch", 32]), ("next", "float", [1, "batch", state])]
    model = network("rnn", nodes, inputs, outputs, weights | {"first": np.array([0])})

    beginnings = ["".join(numbers.choice(list(LETTERS), 16)) for _ in range(RNN_TEXTS)]
    (w,), (r,), (b,) = (weights[name].astype(float) for name in "WRB")
    w, r, b = w.reshape(3, state, width), r.reshape(3, state, state), b.reshape(6, state)
    hidden, texts, margin = np.zeros((RNN_TEXTS, state)), list(beginnings), math.inf
    todo = np.array([[LETTERS.index(letter) for letter in text] for text in texts]).T
    for _ in range(RNN_LETTERS):
        for letters in todo:
            x = weights["E"][letters].astype(float)
            update = 1 / (1 + np.exp(-(x @ w[0].T + hidden @ r[0].T + b[0] + b[3])))
            reset = 1 / (1 + np.exp(-(x @ w[1].T + hidden @ r[1].T + b[1] + b[4])))
            new = np.tanh(x @ w[2].T + b[2] + reset * (hidden @ r[2].T + b[5]))
            hidden = (1 - update) * new + update * hidden
        scores = hidden @ weights["O"]
        ranked = np.sort(scores, axis=1)
        margin = min(margin, (ranked[:, -1] - ranked[:, -2]).min())
        todo = scores.argmax(axis=1)[None]
        texts = [text + LETTERS[letter] for text, letter in zip(texts, todo[0])]
    assert margin > 1e-3, f"no letter is nearly as likely as the next: {margin}"
    output = "\n".join(texts).encode()
    return Case(
        "rnn",
        {"rnn/model.onnx": model, "rnn/beginnings.txt": "\n".join(beginnings).encode()},
        {
            "model": "rnn/model.onnx",
            "beginnings": "rnn/beginnings.txt",
            "state": state,
            "letters": RNN_LETTERS,
            "output": "rnn/out/texts.txt",
        },
        {"texts": RNN_TEXTS, "sha256": sha256(output)},
        {"rnn/out/texts.txt": output},
    )


# --- all of them ------------------------------------------------------------------------------------------------

# These decide how much a function computes beside its I/O: README.md has the shares that come of them.
REDUCER_ROWS = 32768
TRAINER_SHAPE, TRAINER_FOLDS = (4096, 31), 2
AES_BYTES = 1024
WEB_ROWS = 300
MAP_VOCABULARY, MAP_TEXT_BYTES = 5000, 128 << 10
REDUCE_VOCABULARY = 16000
RESIZE_SHAPE, RESIZE_WIDTH, RESIZE_GRAIN = (1600, 1200), 640, 10
RESIZED = "9d01a70e63bc3ee1977053bff8abac95cb8d6560ea554a049198ac1a53c98820"
CNN_LAYERS = [(32, 2), (64, 1), (64, 2), (128, 1), (128, 1), (128, 2), (256, 1)]
# Pillow resizes with fixed-point numbers: one pixel in a hundred is a level brighter or darker than by the formula.
CNN_WITHIN = 0.001
RNN_TEXTS, RNN_LETTERS = 8, 68

# The paper's order: from the one that is nearly all I/O to the one that is nearly all compute.
MAKERS = {
    "stack-reducer": stack_reducer,
    "linear-regression": linear_regression,
    "aes": aes,
    "web": web,
    "stack-trainer": stack_trainer,
    "rnn": rnn,
    "map": map_words,
    "reduce": reduce_words,
    "cnn": cnn,
    "resize": resize,
}


def cases(names=None):
    return {name: MAKERS[name]() for name in names or MAKERS}


def upload(client, bucket, these):
    """Puts all their objects to a bucket that exists."""
    for case in these.values():
        for key, body in case.objects.items():
            client.put_object(Bucket=bucket, Key=key, Body=body)


class Near(float):
    """A number of an expected answer, with how far from it one may be."""

    def __new__(cls, value, within):
        self = super().__new__(cls, value)
        self.within = within
        return self


def differences(expected, found, at="answer"):
    """Where an answer is not as expected: a list of lines. Numbers may be as far off as their rounding, or as their order of
    adding up makes them."""
    if isinstance(expected, dict) and isinstance(found, dict) and expected.keys() == found.keys():
        return [line for key in expected for line in differences(expected[key], found[key], f"{at}.{key}")]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [line for i, pair in enumerate(zip(expected, found)) for line in differences(*pair, f"{at}[{i}]")]
    if isinstance(expected, float) and isinstance(found, float):
        within = getattr(expected, "within", 2e-6)
        same = math.isclose(expected, found, rel_tol=1e-7, abs_tol=within)
    else:
        same = expected == found
    return [] if same else [f"{at}: {found!r}, not {expected!r}"]


def differences_stored(case, client, bucket):
    """The same of what the function has stored."""
    lines = []
    for key, expected in case.outputs.items():
        try:
            body = client.get_object(Bucket=bucket, Key=key)["Body"].read()
            if isinstance(expected, bytes):
                assert body == expected
            elif isinstance(expected, np.ndarray):
                np.testing.assert_allclose(np.load(io.BytesIO(body)), expected, rtol=1e-7, atol=1e-9)
            else:
                expected(body)
        except Exception as error:  # What is no picture, or not there, is wrong, too.
            lines.append(f"{key} has not what it should: {type(error).__name__} {error}".splitlines()[0])
    return lines


def main():
    import boto3

    bucket, names = sys.argv[1], sys.argv[2:]
    client = boto3.client("s3")
    these = cases(names)
    upload(client, bucket, these)
    for case in these.values():
        print(json.dumps({"function": case.name, "event": case.event_for(bucket), "answer": case.answer}))


if __name__ == "__main__":
    main()
