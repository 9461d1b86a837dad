# The pure function of sdk/c/examples/words.c in Python, which knows its sets as files.
import math
import re
import struct
import sys
from collections import Counter
from pathlib import Path


def give(set_name, item, data):
    Path("/out", set_name, item).write_bytes(data)


def count(text):
    words = Counter(re.findall(rb"[A-Za-z\x80-\xff]+", text))
    return b"".join(b"%s %d\n" % pair for pair in sorted(words.items()))


def multiply(left, right):
    size = math.isqrt(len(left) // 8)
    if size * size * 8 != len(left) or len(right) != len(left):
        print("these are no matrices of one size", file=sys.stderr)
        sys.exit(4)
    a, b = (struct.unpack(f"<{size * size}d", matrix) for matrix in (left, right))
    product = []
    for i in range(size):
        for j in range(size):
            total = 0.0
            for k in range(size):
                total += a[i * size + k] * b[k * size + j]
            product.append(total)
    return struct.pack(f"<{size * size}d", *product)


for text in Path("/in/texts").iterdir():
    give("counts", text.name, count(text.read_bytes()))
matrices = [path.read_bytes() for path in (Path("/in/matrices/a"), Path("/in/matrices/b")) if path.exists()]
if len(matrices) == 1:
    print("one matrix has no other", file=sys.stderr)
    sys.exit(5)
if matrices:
    give("product", "c", multiply(*matrices))
