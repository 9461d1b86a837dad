#!/usr/bin/env python3
"""Writes `vectors/`: street scenes with a number plate as JPEG, the true box, and the native program's pictures.

    make -C .. plate.native && python3 generate.py

A scene is a photograph, before it the back of a car drawn by us (body, window, lights, bumper, a grille of bars: things that a
finder could take for a plate), and on it a plate rendered from DejaVu Sans Condensed Bold, seen at an angle, with uneven light, out of
focus, grainy, and compressed. The seed is fixed. The true box is the smallest upright one around the plate's four corners.
"""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from skimage import data

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import bad_jpegs  # noqa: E402  (beside this folder)
import check  # noqa: E402

VECTORS = HERE / "vectors"
PROGRAM = HERE.parents[1] / "build" / "examples" / "plate.native"
FONT = "/usr/share/fonts/truetype/dejavu/DejaVuSansCondensed-Bold.ttf"
SEED = 11
SIZE = (800, 600)
QUALITY = 72
PLATE = (520, 112)  # millimetres, and pixels before it is placed

DARK_ON_WHITE = ((20, 20, 24), (236, 236, 230))
DARK_ON_YELLOW = ((24, 22, 20), (236, 190, 40))
WHITE_ON_BLACK = ((232, 232, 228), (24, 24, 28))
# name: (photograph, text, colours, width of the plate, slope and shear in pixels, body colour, blur, grain)
SCENES = {
    "coffee": ("coffee", "MP 4307 K", DARK_ON_WHITE, 210, (8, 3), (120, 24, 30), 0.7, 5),
    "brick": ("brick", "KX 19 POND", DARK_ON_YELLOW, 260, (-10, -4), (40, 60, 90), 0.9, 8),
    "rocket": ("rocket", "B-WH 2718", DARK_ON_WHITE, 150, (4, 2), (150, 150, 156), 0.6, 6),
    "gravel": ("gravel", "314 MLL", WHITE_ON_BLACK, 190, (-5, 0), (60, 84, 60), 0.7, 6),
    "night": ("chelsea", "WM 85 31", DARK_ON_WHITE, 170, (6, 4), (22, 24, 30), 0.8, 9),
}


def photograph(name):
    """A photograph of scikit-image, filling the scene."""
    image = Image.fromarray(getattr(data, name)()).convert("RGB")
    scale = max(SIZE[0] / image.width, SIZE[1] / image.height)
    image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = (image.width - SIZE[0]) // 2, (image.height - SIZE[1]) // 2
    return image.crop((left, top, left + SIZE[0], top + SIZE[1]))


def plate(text, ink, ground):
    """A plate from the front."""
    image = Image.new("RGB", PLATE, ground)
    draw = ImageDraw.Draw(image)
    draw.rounded_rectangle((3, 3, PLATE[0] - 4, PLATE[1] - 4), 10, outline=ink, width=4)
    size = 120
    while draw.textlength(text, font=ImageFont.truetype(FONT, size)) > PLATE[0] - 60:
        size -= 1
    draw.text((PLATE[0] / 2, PLATE[1] / 2), text, ink, ImageFont.truetype(FONT, min(size, 98)), anchor="mm")
    return image


def coefficients(corners):
    """Pillow's perspective that takes the picture's points `corners` to those of the plate."""
    rows, right = [], []
    for (x, y), (u, v) in zip(corners, ((0, 0), (PLATE[0], 0), PLATE, (0, PLATE[1]))):
        rows += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return np.linalg.solve(np.array(rows, float), np.array(right, float))


def car(draw, body, left, top, right, bottom):
    """The back of a car."""
    light = tuple(min(255, c + 45) for c in body)
    shade = tuple(c * 6 // 10 for c in body)
    width, height = right - left, bottom - top
    draw.ellipse((left + 20, bottom - 50, left + 110, bottom + 40), (18, 18, 18))
    draw.ellipse((right - 110, bottom - 50, right - 20, bottom + 40), (18, 18, 18))
    draw.rounded_rectangle((left, top, right, bottom), 46, body)
    draw.polygon([(left + 60, top + 10), (left + 100, top - 80), (right - 100, top - 80), (right - 60, top + 10)], body)
    draw.polygon([(left + 80, top + 2), (left + 112, top - 68), (right - 112, top - 68), (right - 80, top + 2)], (52, 66, 78))
    draw.line((left + 24, top + 34, right - 24, top + 30), light, 4)
    for x in (left + 16, right - 86):
        draw.rounded_rectangle((x, top + 50, x + 70, top + 94), 10, (168, 26, 22))
        draw.rectangle((x + 24, top + 56, x + 44, top + 88), (236, 206, 190))
    draw.rounded_rectangle((left + 6, bottom - 62, right - 6, bottom - 14), 14, shade)
    for x in range(left + width // 2 - 110, left + width // 2 + 110, 11):  # a grille: too many bars, too close
        draw.rectangle((x, bottom - 46, x + 4, bottom - 28), (12, 12, 12))
    draw.line((left + 30, top + height // 2 + 62, right - 30, top + height // 2 + 66), shade, 3)


def scene(generator, photo, text, colours, wide, slope, body, blur, grain, dim):
    """(picture, true box x y width height)"""
    image = photograph(photo)
    draw = ImageDraw.Draw(image)
    middle = SIZE[0] // 2 + int(generator.integers(-80, 80))
    half = int(wide * 1.05) + 90
    car(draw, body, middle - half, 290, middle + half, 545)
    x, y = middle - wide / 2 + generator.uniform(-12, 12), 372 + generator.uniform(-8, 8)
    high = wide * PLATE[1] / PLATE[0]
    rise, shear = slope
    corners = [(x + shear, y), (x + wide + shear, y + rise), (x + wide, y + high * 1.04 + rise), (x, y + high)]
    warp = coefficients(corners)
    # Bicubic at the plate's own size would alias: render it near the size at which it is seen.
    front = plate(text, *colours).filter(ImageFilter.GaussianBlur(PLATE[0] / wide * 0.45))
    placed = front.transform(SIZE, Image.Transform.PERSPECTIVE, warp, Image.Resampling.BICUBIC)
    mask = Image.new("L", PLATE, 255).transform(SIZE, Image.Transform.PERSPECTIVE, warp, Image.Resampling.BICUBIC)
    image.paste(placed, mask=mask)
    pixels = np.asarray(image.filter(ImageFilter.GaussianBlur(blur)), float)
    across = np.linspace(1.0, 0.78, SIZE[0])[None, :, None]
    pixels = pixels * across * dim + generator.normal(0, grain, pixels.shape)
    xs, ys = zip(*corners)
    left, top, right, bottom = int(min(xs)), int(min(ys)), int(np.ceil(max(xs))), int(np.ceil(max(ys)))
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)), (left, top, right - left, bottom - top)


def main():
    VECTORS.mkdir(exist_ok=True)
    generator = np.random.default_rng(SEED)
    scenes = {name: scene(generator, *parts, dim=0.45 if name == "night" else 1.0) for name, parts in SCENES.items()}
    scenes["no-plate"] = (photograph("coffee").resize((400, 300), Image.Resampling.BOX), None)
    for name, (image, box) in scenes.items():
        file = io.BytesIO()
        image.save(file, "JPEG", quality=QUALITY)
        output = subprocess.run([PROGRAM], input=file.getvalue(), capture_output=True, check=True).stdout
        (VECTORS / f"{name}.input.jpg").write_bytes(file.getvalue())
        (VECTORS / f"{name}.output.jpg").write_bytes(output)
        comment = check.jpeg_comment(output)
        note = ""
        if box:
            truth = "plate {} {} {} {}\n".format(*box)
            (VECTORS / f"{name}.truth.txt").write_text(truth)
            note = f"{check.overlap(output, truth.encode()):.0%} overlap with {truth.strip()}" if comment != b"no plate" else "MISSED"
        print(f"{name:10} {len(file.getvalue()):7} bytes -> {len(output):7} bytes: {comment.decode()} {note}")
    bad_jpegs.write(VECTORS, PROGRAM, (VECTORS / "no-plate.input.jpg").read_bytes())


if __name__ == "__main__":
    main()
