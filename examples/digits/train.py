#!/usr/bin/env python3
"""Trains the classifier of `digits.c`, quantises it to int8 and writes `weights.h` and `vectors/`.

    python3 train.py            about two minutes on one core

The data are the 1,797 handwritten digits that scikit-learn bundles (8x8 pixels, grey levels 0 to 16); 360 of them, chosen by a
fixed seed and stratified by class, are held out: no weight, scale or choice of epoch has seen them.

The network, in the order of `digits.c` (every convolution is 3x3, stride 1, zero-padded, followed by ReLU):

    8x8x1  -> convolution -> 8x8x32 -> convolution -> 8x8x32 -> maximum of 2x2 -> 4x4x32
           -> convolution -> 4x4x64 -> maximum of 2x2 -> 2x2x64 -> dense -> 10 scores

Quantisation follows Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference" (CVPR 2018), symmetric: real = scale * int8. Weights have one scale for each output channel, activations one for each
layer, biases are int32 at the product's scale, and the step back to int8 is a multiplication by a 31-bit integer and a
rounding shift. `predict_int8` below is that arithmetic in numpy; `digits.c` must give the same answers.

Training again on another machine may give slightly different weights (the order of floating-point sums is the BLAS library's),
never a different method; the committed header is what the vectors were made with.
"""

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

HERE = Path(__file__).resolve().parent
SEED = 20
HELD_OUT = 360
EPOCHS = 40
BATCH = 64
LEARNING_RATE = 2e-3
CHANNELS = (1, 32, 32, 64)
CLASSES = 10
INPUT_MAXIMUM = 16  # grey levels of the data set, and maxval of the PGM files
ACCURACY_FLOOR = 0.95


# --- the network in floating point ------------------------------------------------------------------------------


def patches(image):
    """All 3x3 neighbourhoods of a zero-padded (N, H, W, C) image, as (N, H, W, 9*C) in the order row, column, channel."""
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = image.shape[1:3]
    parts = [padded[:, y : y + height, x : x + width] for y in range(3) for x in range(3)]
    return np.concatenate(parts, axis=3)


def fold(columns, channels):
    """The adjoint of `patches`."""
    count, height, width, _ = columns.shape
    padded = np.zeros((count, height + 2, width + 2, channels), columns.dtype)
    for index in range(9):
        y, x = divmod(index, 3)
        padded[:, y : y + height, x : x + width] += columns[..., index * channels : (index + 1) * channels]
    return padded[:, 1:-1, 1:-1]


def pool(image):
    """Maximum over 2x2 blocks, and where each maximum was."""
    count, height, width, channels = image.shape
    blocks = image.reshape(count, height // 2, 2, width // 2, 2, channels).transpose(0, 1, 3, 5, 2, 4)
    blocks = blocks.reshape(count, height // 2, width // 2, channels, 4)
    return blocks.max(axis=4), blocks.argmax(axis=4)


def unpool(gradient, where):
    """Sends each gradient back to where the maximum was."""
    count, height, width, channels = gradient.shape
    blocks = (np.arange(4) == where[..., None]) * gradient[..., None]
    blocks = blocks.reshape(count, height, width, channels, 2, 2).transpose(0, 1, 4, 2, 5, 3)
    return blocks.reshape(count, height * 2, width * 2, channels).astype(gradient.dtype)


def forward(parameters, image):
    """Scores, the four layers' outputs after ReLU, and what `backward` needs."""
    (w1, b1), (w2, b2), (w3, b3), (w4, b4) = parameters
    c1 = patches(image)
    a1 = np.maximum(c1 @ w1 + b1, 0)
    c2 = patches(a1)
    a2 = np.maximum(c2 @ w2 + b2, 0)
    p2, where2 = pool(a2)
    c3 = patches(p2)
    a3 = np.maximum(c3 @ w3 + b3, 0)
    p3, where3 = pool(a3)
    flat = p3.reshape(len(image), -1)
    scores = flat @ w4 + b4
    return scores, (a1, a2, a3), (c1, c2, where2, c3, where3, flat)


def backward(parameters, activations, saved, gradient):
    """Gradients of the loss by every weight and bias."""
    _, (w2, _), (w3, _), (w4, _) = parameters
    a1, a2, a3 = activations
    c1, c2, where2, c3, where3, flat = saved

    def layer(columns, delta):
        delta = delta.reshape(-1, delta.shape[-1])
        return columns.reshape(-1, columns.shape[-1]).T @ delta, delta.sum(axis=0)

    g4 = (flat.T @ gradient, gradient.sum(axis=0))
    d3 = unpool((gradient @ w4.T).reshape(-1, 2, 2, CHANNELS[3]), where3) * (a3 > 0)
    d2 = unpool(fold(d3 @ w3.T, CHANNELS[2]), where2) * (a2 > 0)
    d1 = fold(d2 @ w2.T, CHANNELS[1]) * (a1 > 0)
    return [layer(c1, d1), layer(c2, d2), layer(c3, d3), g4]


def train(images, labels, generator):
    """Adam on the cross entropy, each image shifted by up to one pixel, weights averaged over the last quarter."""
    shapes = [(9 * CHANNELS[0], CHANNELS[1]), (9 * CHANNELS[1], CHANNELS[2]), (9 * CHANNELS[2], CHANNELS[3]), (4 * CHANNELS[3], CLASSES)]
    parameters = [
        [(generator.standard_normal(shape) * np.sqrt(2 / shape[0])).astype(np.float32), np.zeros(shape[1], np.float32)] for shape in shapes
    ]
    first = [[np.zeros_like(p) for p in pair] for pair in parameters]
    second = [[np.zeros_like(p) for p in pair] for pair in parameters]
    mean, averaged, step = [[np.zeros_like(p) for p in pair] for pair in parameters], 0, 0
    for epoch in range(EPOCHS):
        order = generator.permutation(len(images))
        total = 0.0
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            padded = np.pad(images[chosen], ((0, 0), (1, 1), (1, 1), (0, 0)))
            batch = np.stack([image[y : y + 8, x : x + 8] for image, (y, x) in zip(padded, generator.integers(0, 3, (len(chosen), 2)))])
            scores, activations, saved = forward(parameters, batch)
            scores -= scores.max(axis=1, keepdims=True)
            probabilities = np.exp(scores)
            probabilities /= probabilities.sum(axis=1, keepdims=True)
            rows = np.arange(len(chosen))
            total -= np.log(probabilities[rows, labels[chosen]] + 1e-9).sum()
            probabilities[rows, labels[chosen]] -= 1
            gradients = backward(parameters, activations, saved, probabilities / len(chosen))
            step += 1
            rate = LEARNING_RATE * min(1.0, 2 * (1 - epoch / EPOCHS))
            for pair, grads, ms, vs in zip(parameters, gradients, first, second):
                for index in range(2):
                    gradient = grads[index] + (1e-4 * pair[index] if index == 0 else 0)
                    ms[index] += 0.1 * (gradient - ms[index])
                    vs[index] += 0.001 * (gradient**2 - vs[index])
                    correction = np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
                    pair[index] -= (rate * correction * ms[index] / (np.sqrt(vs[index]) + 1e-8)).astype(np.float32)
        if epoch >= EPOCHS * 3 // 4:
            averaged += 1
            for pair, means in zip(parameters, mean):
                for index in range(2):
                    means[index] += (pair[index] - means[index]) / averaged
        print(f"epoch {epoch + 1:2}: loss {total / len(images):.4f}", flush=True)
    return mean


# --- the network in integers ------------------------------------------------------------------------------------


def multiplier(ratio):
    """(m, s) with ratio = m * 2**-s, 2**30 <= m < 2**31."""
    mantissa, exponent = np.frexp(ratio)
    m, shift = int(round(float(mantissa) * 2**31)), 31 - int(exponent)
    return (m // 2, shift - 1) if m == 2**31 else (m, shift)


def quantise(parameters, images):
    """Int8 weights, int32 biases and the multipliers between layers; scales from the training images alone."""
    _, activations, _ = forward(parameters, images)
    scale, layers = 1 / 127, []
    for index, (weights, bias) in enumerate(parameters):
        last = index == len(parameters) - 1
        # One scale for all outputs of the last layer, so that its sums can be compared.
        largest = np.abs(weights).max() if last else np.abs(weights).max(axis=0)
        weight_scale = np.broadcast_to(largest / 127, bias.shape).astype(np.float64)
        layer = {
            "weights": np.rint(weights / weight_scale).astype(np.int8).T,  # (output, row, column, input)
            "bias": np.rint(bias / (weight_scale * scale)).astype(np.int32),
        }
        if not last:
            following = float(np.quantile(activations[index], 0.9999)) / 127
            pairs = [multiplier(ratio) for ratio in weight_scale * scale / following]
            layer["multiplier"] = np.array([m for m, _ in pairs], np.int32)
            layer["shift"] = np.array([s for _, s in pairs], np.uint8)
            scale = following
        layers.append(layer)
    return layers


def quantise_image(levels, maximum=INPUT_MAXIMUM):
    """Grey levels 0..maximum to 0..127, as `digits.c` does it."""
    return (levels.astype(np.int64) * 127 + maximum // 2) // maximum


def predict_int8(layers, image):
    """The class of each quantised (N, 8, 8, 1) image, in integer arithmetic only."""
    for index, layer in enumerate(layers[:-1]):
        sums = patches(image) @ layer["weights"].T.astype(np.int64) + layer["bias"]
        shift = layer["shift"].astype(np.int64)
        image = np.clip((sums * layer["multiplier"] + (np.int64(1) << (shift - 1))) >> shift, 0, 127)
        if index > 0:
            image, _ = pool(image)
    last = layers[-1]
    return (image.reshape(len(image), -1) @ last["weights"].T.astype(np.int64) + last["bias"]).argmax(axis=1)


# --- files ------------------------------------------------------------------------------------------------------


def array(kind, name, values, shape=""):
    """One C array."""
    lines, line = [], "   "
    for value in np.asarray(values).ravel():
        if len(line) + len(str(value)) > 138:
            lines.append(line)
            line = "   "
        line += f" {value},"
    return f"static const {kind} {name}{shape or f'[{np.size(values)}]'} = {{\n" + "\n".join([*lines, line]) + "\n};\n"


def write_header(layers, accuracy):
    """weights.h"""
    text = (
        "/* Generated by train.py from scikit-learn's bundled digits; do not edit.\n"
        f" * Accuracy of these weights on the {HELD_OUT} held-out images: {accuracy:.2%}.\n"
        " * Weights are in the order output, row, column, input. real = scale * integer. */\n"
        "#ifndef DIGITS_WEIGHTS_H\n#define DIGITS_WEIGHTS_H\n\n#include <stdint.h>\n\n"
    )
    for index, layer in enumerate(layers):
        name = f"layer{index + 1}"
        text += array("int8_t", f"{name}_weights", layer["weights"])
        text += array("int32_t", f"{name}_bias", layer["bias"])
        if "multiplier" in layer:
            text += array("int32_t", f"{name}_multiplier", layer["multiplier"])
            text += array("uint8_t", f"{name}_shift", layer["shift"])
        text += "\n"
    (HERE / "weights.h").write_text(text + "#endif\n")


def write_pgm(path, images):
    """One or more binary PGM images in one file, as the format allows."""
    path.write_bytes(b"".join(b"P5\n8 8\n16\n" + image.astype(np.uint8).tobytes() for image in images))


def write_vectors(levels, labels, predicted):
    """Held-out images: all of them in one file with their labels as truth, and the first of each class alone."""
    vectors = HERE / "vectors"
    vectors.mkdir(exist_ok=True)

    def lines(numbers):
        return "".join(f"{number}\n" for number in numbers)

    write_pgm(vectors / "held-out.input.pgm", levels)
    (vectors / "held-out.output.txt").write_text(lines(predicted))
    (vectors / "held-out.truth.txt").write_text(lines(labels))
    for digit in range(CLASSES):
        first = int(np.flatnonzero(labels == digit)[0])
        write_pgm(vectors / f"digit-{digit}.input.pgm", levels[first : first + 1])
        (vectors / f"digit-{digit}.output.txt").write_text(lines(predicted[first : first + 1]))
    plain = "\n".join(" ".join(f"{int(v):2}" for v in row) for row in levels[0])
    (vectors / "plain.input.pgm").write_text(f"P2\n# the first held-out image as plain text\n8 8\n16\n{plain}\n")
    (vectors / "plain.output.txt").write_text(lines(predicted[:1]))
    bad = {
        "empty": (b"", "there is no image"),
        "not-an-image": (b"hello, world\n", "not a PGM image: it does not begin with P5 or P2"),
        "too-large": (b"P5\n28 28\n255\n" + bytes(784), "the image must be 8 pixels wide and 8 high"),
        "cut-short": (b"P5\n8 8\n16\n" + bytes(63), "the image ends before its last pixel"),
        "beyond-maximum": (b"P5\n8 8\n16\n" + bytes([17] * 64), "a pixel is above the maximum that the header names"),
        "no-levels": (b"P5\n8 8\n0\n" + bytes(64), "the maximum must be from 1 to 255"),
    }
    for name, (content, message) in bad.items():
        (vectors / f"bad-{name}.input.pgm").write_bytes(content)
        (vectors / f"bad-{name}.error.txt").write_text(f"digits: {message}\n")


def main():
    """Trains, quantises, checks, writes."""
    data = load_digits()
    levels, labels = data.images.astype(np.uint8), data.target
    train_levels, held_levels, train_labels, held_labels = train_test_split(
        levels, labels, test_size=HELD_OUT, stratify=labels, random_state=SEED
    )
    parameters = train((train_levels[..., None] / INPUT_MAXIMUM).astype(np.float32), train_labels, np.random.default_rng(SEED))
    layers = quantise(parameters, (train_levels[..., None] / INPUT_MAXIMUM).astype(np.float32))
    scores, _, _ = forward(parameters, (held_levels[..., None] / INPUT_MAXIMUM).astype(np.float32))
    predicted = predict_int8(layers, quantise_image(held_levels)[..., None])
    accuracy = float((predicted == held_labels).mean())
    print(f"held-out accuracy: {(scores.argmax(axis=1) == held_labels).mean():.2%} in floating point, {accuracy:.2%} in int8")
    if accuracy < ACCURACY_FLOOR:
        raise SystemExit(f"the held-out accuracy is below {ACCURACY_FLOOR:.0%}: nothing was written")
    write_header(layers, accuracy)
    write_vectors(held_levels, held_labels, predicted)


if __name__ == "__main__":
    main()
