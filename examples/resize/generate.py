#!/usr/bin/env python3
"""Writes `vectors/`: photographs as JPEG, and the half-size PNGs of the native program after a check against numpy.

    make -C .. resize.native && python3 generate.py
"""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from skimage import data
from sklearn.datasets import load_sample_images

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import bad_jpegs  # noqa: E402  (beside this folder)

VECTORS = HERE / "vectors"
PROGRAM = HERE.parents[1] / "build" / "examples" / "resize.native"
PSNR_FLOOR = 45.0  # dB; the two JPEG decoders differ by a level here and there


def jpeg(image, **options):
    """The image as JPEG."""
    file = io.BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def flower():
    """scikit-learn's flower.jpg as it is, without a change."""
    names = load_sample_images().filenames
    return Path(next(name for name in names if name.endswith("flower.jpg"))).read_bytes()


def inputs():
    """The JPEG of each vector: sizes even and odd, baseline and progressive, colour and grey, with and without subsampling."""
    coffee, chelsea = Image.fromarray(data.coffee()), Image.fromarray(data.chelsea())
    return {
        "flower": flower(),
        "coffee-progressive": jpeg(coffee, quality=80, progressive=True),
        "cat-grey": jpeg(chelsea.convert("L"), quality=85),
        "cat-odd": jpeg(chelsea.crop((100, 30, 301, 231)), quality=90, subsampling=0),
        "one-pixel": jpeg(Image.new("RGB", (1, 1), (200, 30, 90)), quality=95),
    }


def halve(pixels):
    """Catmull-Rom at exactly half size, in floating point."""
    for axis in (0, 1):
        size = pixels.shape[axis]
        total = 0
        for tap in range(-3, 5):
            x = abs(tap - 0.5) / 2
            weight = 1.5 * x**3 - 2.5 * x**2 + 1 if x < 1 else -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
            at = np.clip(2 * np.arange((size + 1) // 2) + tap, 0, size - 1)
            total = total + weight / 2 * np.take(pixels, at, axis)
        pixels = np.clip(total, 0, 255)
    return pixels


def main():
    VECTORS.mkdir(exist_ok=True)
    for name, content in inputs().items():
        output = subprocess.run([PROGRAM], input=content, capture_output=True, check=True).stdout
        found = np.asarray(Image.open(io.BytesIO(output)).convert("RGB"), float)
        original = Image.open(io.BytesIO(content))
        wanted = halve(np.asarray(original.convert("RGB"), float))
        if found.shape != wanted.shape:
            raise SystemExit(f"{name}: {found.shape} instead of {wanted.shape}")
        psnr = 10 * np.log10(255**2 / max(np.mean((found - wanted) ** 2), 1e-9))
        print(f"{name:20} {original.size} {len(content):6} bytes -> {len(output):6} bytes, {psnr:.1f} dB")
        if psnr < PSNR_FLOOR:
            raise SystemExit(f"{name}: {psnr:.1f} dB from numpy's result, at least {PSNR_FLOOR} wanted")
        (VECTORS / f"{name}.input.jpg").write_bytes(content)
        (VECTORS / f"{name}.output.png").write_bytes(output)
    bad_jpegs.write(VECTORS, PROGRAM, (VECTORS / "cat-odd.input.jpg").read_bytes())


if __name__ == "__main__":
    main()
