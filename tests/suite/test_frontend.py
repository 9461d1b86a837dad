"""What boto3 for functions does without what would take longer to load than itself: that it does, and that this comes to the same."""

import subprocess
import sys

from harness import ROOT

GUEST = ROOT / "python/guest"


def said(code):
    """What an interpreter says that has run nothing, and finds what functions find."""
    command = [sys.executable, "-I", "-S", "-c", f"import sys\nsys.path.append({str(GUEST)!r})\n{code}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_client_needs_neither_expressions_nor_documents():
    made = 'import boto3\nboto3.client({!r}, region_name="us-east-1")\nprint({{"re", "json", "enum"}} & set(sys.modules) or "none")'
    for service in ("s3", "lambda"):
        assert said(made.format(service)) == "none"


def test_names_are_what_regular_expressions_make_of_them():
    code = r"""
import random, re
from botocore._names import ARN, BUCKET, is_arn, is_bucket, quoted, snake, unquoted

unsafe, encoded = re.compile(rb"[^A-Za-z0-9._~/-]"), re.compile(rb"%([0-9A-Fa-f]{2})")
word = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])")
draw = random.Random(7)
arns = ["arn:aws:s3:us-east-1:123456789012:accesspoint/x", "arn:aws:s3-outposts:eu-west-1:123456789012:outpost/o:accesspoint/x", "arn:aws:s3:x", "arn:"]
texts = ["", "a" * 255, "a" * 256, "bucket\n", *arns]
texts += ["".join(draw.choices("aZ09 %+2fF_/-.~:\n\u00e9\u4e2d", k=draw.randrange(12))) for _ in range(20_000)]
for text in texts:
    data = text.encode()
    assert quoted(text) == unsafe.sub(lambda match: b"%%%02X" % match[0][0], data).decode(), text
    spaced = text.replace("+", " ").encode()
    assert unquoted(text) == encoded.sub(lambda match: bytes([int(match[1], 16)]), spaced).decode(errors="replace"), text
    assert is_arn(text) == bool(re.search(ARN, text)), text
    assert is_bucket(text) == bool(re.search(BUCKET, text) or re.search(ARN, text)), text
for _ in range(20_000):
    name = "".join(draw.choices("aZQ9bX", k=1 + draw.randrange(12)))
    assert snake(name) == word.sub("_", name).lower(), name
print("same")
"""
    assert said(code) == "same"


def test_times_are_read_in_each_form():
    code = """
from botocore._time import parsed

moment = parsed("Sun, 06 Nov 1994 08:49:37 GMT")
forms = ["06 Nov 1994 08:49:37 GMT", "Sun, 06-Nov-1994 08:49:37 GMT", "1994-11-06T08:49:37Z", "784111777", "Sun, 06 Nov 1994 08:49:37 -0000", "1994-11-06T10:49:37+02:00"]
assert moment.timestamp() == 784111777 and all(parsed(form) == moment for form in forms)
assert parsed("Sun Nov  6 08:49:37 1994") == moment.replace(tzinfo=None)
for wrong in ("Sun, 06-Nov-1994 08:49:37 GMT!", "xxxxxxxxxxxxxxxxxxxxxxxxx GMT", "Sun, 06 Nox 1994 08:49:37 GMT", "x x x x xxxxxxxxxxxxxxxxx GMT"):
    try:
        print("read:", parsed(wrong))
    except ValueError:
        pass
print("read")
"""
    assert said(code) == "read"
