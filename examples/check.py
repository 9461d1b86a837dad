#!/usr/bin/env python3
"""Runs the examples on their test vectors and compares every byte. Needs Python's standard library only.

    ./check.py                                  every native program on every vector
    ./check.py --wasm-runner 'wasmtime run'     the same, and every Wasm module: CMD MODULE < input > output
    ./check.py ocr plate                        only these examples

`NAME/vectors/` holds, for each vector V:

    V.input.EXT     standard input
    V.output.EXT    standard output, exit code 0; or
    V.error.txt     standard error, with nothing on standard output and exit code 1
    V.truth.txt     what is really there, where an example can err; how near the output must come is in `MEASURES`

Exit code: 0 all equal, 1 a difference or a program that is missing, 2 usage.
"""

import argparse
import math
import shlex
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parent / "build" / "examples"
TIMEOUT_SECONDS = 60
# Handlers have no standard input and output: only a node can run them, and `scripts/demo.py` does.
HANDLERS = {"hello-http-js", "hello-http-python", "hello-http-rust", "sales-report"}


# --- how near an output is to the truth -------------------------------------------------------------------------


def same_lines(output, truth):
    """The share of lines that are right."""
    found, wanted = output.split(), truth.split()
    return sum(a == b for a, b in zip(found, wanted)) / max(len(found), len(wanted)) if wanted else 0.0


def same_characters(output, truth):
    """1 - edit distance (Levenshtein) / length of the truth."""
    found, wanted = output.decode(), truth.decode()
    row = list(range(len(wanted) + 1))
    for i, a in enumerate(found, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(wanted, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return 1 - row[-1] / len(wanted)


def distance(output, truth):
    """Metres between the positions that both begin their `state` lines with."""

    def position(text):
        line = next(line for line in text.decode().splitlines() if line.startswith("state "))
        return [float(word) for word in line.split()[1:4]]

    return math.dist(position(output), position(truth))


def overlap(output, truth):
    """Intersection over union of the box in a JPEG's comment and the true one, both `plate x y width height`."""

    def box(text):
        word, *numbers = text.split()
        if word != b"plate" or len(numbers) != 4:
            raise ValueError(f"no box but {text!r}")
        return [int(number) for number in numbers]

    ax, ay, aw, ah = box(jpeg_comment(output))
    bx, by, bw, bh = box(truth)
    width = max(0, min(ax + aw, bx + bw) - max(ax, bx))
    height = max(0, min(ay + ah, by + bh) - max(ay, by))
    return width * height / (aw * ah + bw * bh - width * height)


def jpeg_comment(jpeg):
    """The text of the first COM segment (ITU-T T.81, B.2.4.5)."""
    at = 2
    while at + 4 <= len(jpeg) and jpeg[at] == 0xFF and jpeg[at + 1] != 0xDA:
        length = int.from_bytes(jpeg[at + 2 : at + 4], "big")
        if jpeg[at + 1] == 0xFE:
            return jpeg[at + 4 : at + 2 + length]
        at += 2 + length
    raise ValueError("the JPEG has no comment")


# Example: (measure, its name, [(first letters of the vector's name, bound)]). A measure named "m" must stay below its
# bound, the others must reach it; the first matching line counts.
MEASURES = {
    "digits": (same_lines, "right", [("", 0.95)]),
    "ocr": (same_characters, "right", [("clean", 1.0), ("scan", 0.96), ("", 0.97)]),
    "gps-ekf": (distance, "m", [("", 12.0)]),
    "plate": (overlap, "overlap", [("", 0.5)]),
}


# --- running ----------------------------------------------------------------------------------------------------


def vectors(example):
    """(name, input, expected output or None, expected error or None, truth or None) of each vector."""
    for given in sorted((HERE / example / "vectors").glob("*.input.*")):
        name = given.name.split(".input.")[0]
        expected = sorted(given.parent.glob(f"{name}.output.*"))
        error = given.parent / f"{name}.error.txt"
        truth = given.parent / f"{name}.truth.txt"
        if len(expected) + error.exists() != 1:
            raise SystemExit(f"{given}: wants exactly one of {name}.output.* and {error.name}")
        yield name, given, expected[0] if expected else None, error if error.exists() else None, truth if truth.exists() else None


def first_difference(found, wanted):
    """Where two byte strings part."""
    at = next((i for i, (a, b) in enumerate(zip(found, wanted)) if a != b), min(len(found), len(wanted)))
    return f"{len(found)} bytes instead of {len(wanted)}, the first difference at byte {at}: {found[at : at + 40]!r} instead of {wanted[at : at + 40]!r}"


def run(command, given, expected, error):
    """(problem or None, output, seconds) of one program on one vector."""
    started = time.perf_counter()
    try:
        with given.open("rb") as stdin:
            done = subprocess.run(command, stdin=stdin, capture_output=True, timeout=TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return f"not done after {TIMEOUT_SECONDS} s", b"", TIMEOUT_SECONDS
    except OSError as failure:
        return f"cannot run {command[0]}: {failure}", b"", 0
    seconds = time.perf_counter() - started
    problem = None
    if expected is not None:
        wanted = expected.read_bytes()
        if done.returncode != 0:
            problem = f"exit code {done.returncode}: {done.stderr.decode(errors='replace').strip()}"
        elif done.stdout != wanted:
            problem = first_difference(done.stdout, wanted)
    elif done.returncode != 1:
        problem = f"exit code {done.returncode} instead of 1"
    elif done.stdout:
        problem = f"{len(done.stdout)} bytes on standard output beside an error"
    elif done.stderr != error.read_bytes():
        problem = "standard error: " + first_difference(done.stderr, error.read_bytes())
    return problem, done.stdout, seconds


def accuracy(example, name, output, truth):
    """(text, problem or None)"""
    measure, unit, bounds = MEASURES[example]
    bound = next(bound for prefix, bound in bounds if name.startswith(prefix))
    try:
        value = measure(output, truth.read_bytes())
    except (ValueError, StopIteration, UnicodeDecodeError) as failure:
        return "", f"the output cannot be measured: {failure}"
    good = value <= bound if unit == "m" else value >= bound
    text = f"{value:.2f} m" if unit == "m" else f"{value:.2%} {unit}"
    return text, None if good else f"{text}, the bound is {bound}"


def main():
    names = sorted(path.parent.name for path in HERE.glob("*/millpond.toml") if path.parent.name not in HANDLERS)
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("example", nargs="*", help="only these")
    parser.add_argument("--wasm-runner", metavar="CMD", help="a command that runs the WASI module named after it")
    options = parser.parse_args()
    unknown = [name for name in options.example if name not in names]
    if unknown:
        parser.error(f"no such example: {', '.join(unknown)}; there are {', '.join(names)}")

    failures = 0
    for example in options.example or names:
        ways = [("native", [str(BUILD / f"{example}.native")])]
        if options.wasm_runner:
            ways.append(("wasm", [*shlex.split(options.wasm_runner), str(BUILD / f"{example}.wasm")]))
        count = 0
        for name, given, expected, error, truth in vectors(example):
            count += 1
            for way, command in ways:
                problem, output, seconds = run(command, given, expected, error)
                note = ""
                if problem is None and truth is not None:
                    note, problem = accuracy(example, name, output, truth)
                failures += problem is not None
                print(f"{'FAIL' if problem else 'ok  '} {example:8} {name:24} {way:6} {seconds * 1000:8.1f} ms  {problem or note}".rstrip())
        if count == 0:
            failures += 1
            print(f"FAIL {example:8} has no vectors")
    print(f"{failures} failed" if failures else "all equal")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
