"""A real S3 server for the tests: versitygw on a folder, with keys of its own."""

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from harness import ROOT, clean_environment, eventually

VERSITYGW = ROOT / "build/tools/bin/versitygw"

KEY = "pondkey"
SECRET = "s3cr3t-of-the-pond-0123456789abcdefXYZ"


def free_port():
    """A port of loopback on which nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def listens(port):
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


class S3Server:
    """S3 on loopback. `stop` and `start` as often as a test likes; what was stored stays."""

    # Of the server, beside those that it always has.
    options = ()

    def __init__(self, folder):
        if not VERSITYGW.exists():
            pytest.skip("there is no S3 server: versitygw is built by `make test` where Go 1.25 or later is")
        self.folder = Path(folder)
        for name in ("objects", "versions"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.process = None

    def start(self):
        self.process = self.run(self.port, *self.options, "posix", "--versioning-dir", self.folder / "versions", self.folder / "objects")
        return self

    def run(self, port, *options):
        """A process of the server's program that listens at this port."""
        command = [VERSITYGW, "--port", f"127.0.0.1:{port}", "--access", KEY, "--secret", SECRET, "--keep-alive", "--quiet", *options]
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(command, env=clean_environment(), stdout=log, stderr=log)
        eventually(lambda: listens(port), "the S3 server listens")
        return process

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait(timeout=30)

    def environment(self):
        """With which the real boto3 finds it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_REGION": "us-east-1",
        }

    def client(self):
        """The real boto3."""
        import boto3

        return boto3.client(
            "s3", endpoint_url=self.endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name="us-east-1"
        )

    def configuration(self, folder, **more):
        """Of a node that has the keys in a file."""
        path = Path(folder) / "credentials"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
        os.chmod(path, 0o600)
        settings = {"endpoint": self.endpoint, "credentials_file": str(path)} | more
        return "[s3]\n" + "".join(f'{key} = "{value}"\n' for key, value in settings.items())


def granted(bucket, *actions, prefix=""):
    """A grant, as a manifest has it: of everything, unless actions are named."""
    return {"bucket": bucket, "prefix": prefix, "actions": list(actions) or ["get", "put", "list", "delete"]}
