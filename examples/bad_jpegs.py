"""JPEGs that `resize` and `plate` must refuse, and how: shared by their generators."""

import subprocess


def segment(marker, content):
    """One JPEG segment."""
    return bytes([0xFF, marker]) + (len(content) + 2).to_bytes(2, "big") + content


def frame(width, height):
    """A baseline frame header of three components."""
    return segment(0xC0, b"\x08" + height.to_bytes(2, "big") + width.to_bytes(2, "big") + b"\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01")


def write(vectors, program, good):
    """Writes the bad inputs, made from the `good` JPEG where that helps, and the native program's messages.

    The decoder's own words are taken from the program; that it fails, and how it begins, is demanded here.
    """
    start = good.index(b"\xff\xda")
    scan = start + 2 + int.from_bytes(good[start + 2 : start + 4], "big")
    cases = {
        "empty": (b"", "there is no picture"),
        "not-a-jpeg": (b"\x89PNG\r\n\x1a\n", "not a JPEG"),
        "two-bytes": (b"\xff\xd8", "the JPEG cannot be decoded: "),
        "no-pixels": (good[:scan], "the JPEG cannot be decoded: "),
        "no-tables": (b"\xff\xd8" + frame(64, 64) + good[start:], "the JPEG cannot be decoded: "),
        "no-width": (b"\xff\xd8" + frame(0, 64) + good[start:], "the JPEG cannot be decoded: "),
        "enormous": (b"\xff\xd8" + frame(65500, 65500) + good[start:], "the picture has 65500 x 65500 pixels"),
        "cut-short": (good[: (scan + len(good)) // 2], "the JPEG cannot be decoded: "),
    }
    for name, (content, beginning) in cases.items():
        done = subprocess.run([program], input=content, capture_output=True, check=False)
        message = done.stderr.decode()
        if done.returncode != 1 or done.stdout or not message.startswith(f"{program.stem}: {beginning}"):
            raise SystemExit(f"{name}: exit code {done.returncode}, {len(done.stdout)} bytes, {message!r}")
        (vectors / f"bad-{name}.input.jpg").write_bytes(content)
        (vectors / f"bad-{name}.error.txt").write_text(message)
