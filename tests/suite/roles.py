"""A real S3 server that has a role, and STS before it.

versitygw's IAM has roles, and role sessions with a session policy, a token and an end, by which it judges each request. It gives them for tokens of others (AssumeRoleWithWebIdentity) and not for
keys, so AssumeRole is here: `Sts` checks the signature and what is asked for, has the IAM read the policy, and writes the session into the IAM's file as it would be itself.
"""

import json
import os
import re
import secrets
import signal
import threading
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl

import boto3
from botocore.exceptions import ClientError
from harness import PATIENCE
from objects import KEY, SECRET, S3Server, free_port
from signed import is_signed, scope

ROLE = "arn:aws:iam::000000000000:role/pond"
REGION = "us-east-1"
TRUST = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": {"AWS": "arn:aws:iam::000000000000:root"}, "Action": "sts:AssumeRole"}]}
ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}


class RoleServer(S3Server):
    """S3, with a role that may do all of it."""

    def start(self):
        users = self.folder / "users"
        users.mkdir(exist_ok=True)
        port, socket = free_port(), self.folder / "iam"
        self.options = ("--access-log", self.folder / "requests", "--iam-standalone-endpoint", socket)
        self.iam = self.run(port, "iam", "--dir", users, "--private-ports", socket, "--disable-oidc-thumbprint-autofetch")
        self.iam_endpoint, self.sessions = f"http://127.0.0.1:{port}", users / "iam.json"
        iam = self.of_iam("iam")
        assert iam.create_role(RoleName="pond", AssumeRolePolicyDocument=json.dumps(TRUST))["Role"]["Arn"] == ROLE
        iam.put_role_policy(RoleName="pond", PolicyName="all", PolicyDocument=json.dumps(ALL))
        # A use that is yet to come is not written over: so the IAM does not write this file while `Sts` does.
        kept = json.loads(self.sessions.read_text())
        kept["roles"]["pond"]["RoleLastUsed"] = {"LastUsedDate": "2100-01-01T00:00:00Z", "Region": REGION}
        self.sessions.write_text(json.dumps(kept))
        return super().start()

    def stop(self, how=signal.SIGTERM):
        super().stop(how)
        self.iam.send_signal(how)
        self.iam.wait(timeout=30)

    def of_iam(self, service):
        return boto3.client(service, endpoint_url=self.iam_endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name=REGION)

    def requests(self):
        """Who has asked for what: an access key's id, an operation, a key, of each request that has been answered."""
        return re.findall(r"\] \S+ (\S+) \S+ (\S+) (\S+) ", (self.folder / "requests").read_text())


class Sts:
    """STS on loopback. `fault` answers in its place, and sessions last so many seconds, whatever is asked for."""

    def __init__(self, s3):
        self.s3, self.lifetime, self.fault = s3, 3600, None
        # What was asked for; the keys that were given; requests that were not signed as they should have been.
        self.asked, self.keys, self.wrong = [], [], []
        self.lock, self.over, self.port = threading.Lock(), threading.Event(), 0
        self.up()
        self.endpoint = f"http://127.0.0.1:{self.port}"

    def up(self):
        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Answers)
        self.server.sts, self.port = self, self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def down(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def let_go(self):
        """Those that wait for an answer have none."""
        self.over, over = threading.Event(), self.over
        over.set()

    def close(self):
        self.over.set()
        self.down()

    def reads(self, policy):
        """Whether the IAM takes this for a session policy: it looks at that before it looks at the token, which is none."""
        try:
            self.s3.of_iam("sts").assume_role_with_web_identity(RoleArn=ROLE, RoleSessionName="reads", WebIdentityToken="none", Policy=policy)
        except ClientError as error:
            return error.response["Error"]["Code"] == "InvalidIdentityToken"
        raise AssertionError("it has given keys for nothing")

    def session(self, asked):
        """Keys that can do what is asked for."""
        key, secret, token = f"ASIA{secrets.token_hex(8).upper()}", secrets.token_hex(20), secrets.token_hex(100)
        begins = datetime.now(UTC)
        begins, ends = (f"{at:%Y-%m-%dT%H:%M:%S.%f}Z" for at in (begins, begins + timedelta(seconds=self.lifetime)))
        with self.lock:
            kept = json.loads(self.s3.sessions.read_text())
            role = kept["roles"]["pond"]
            kept["sessions"][key] = {
                "accessKeyId": key, "secretAccessKey": secret, "sessionToken": token,
                "roleArn": role["Arn"], "roleName": role["RoleName"], "roleId": role["RoleID"], "roleSessionName": asked["RoleSessionName"],
                "provider": "", "audience": "", "subject": "", "createDate": begins, "expiration": ends, "policy": asked["Policy"],
            }
            draft = self.s3.sessions.with_suffix(".draft")
            draft.write_text(json.dumps(kept))
            os.rename(draft, self.s3.sessions)
            self.asked.append({"name": asked["RoleSessionName"], "seconds": int(asked["DurationSeconds"]), "policy": json.loads(asked["Policy"])})
            self.keys.append((key, secret, token))
        return (
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>'
            f"<AssumedRoleUser><Arn>{ROLE}/x</Arn><AssumedRoleId>A:x</AssumedRoleId></AssumedRoleUser>"
            f"<Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>"
            f"<Expiration>{ends}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
        )

    def client(self, which=-1):
        """S3's, with the keys of a session: what could be done by whoever had them."""
        key, secret, token = self.keys[which]
        return boto3.client("s3", endpoint_url=self.s3.endpoint, aws_access_key_id=key, aws_secret_access_key=secret, aws_session_token=token, region_name=REGION)

    def named(self, name):
        """What was asked for in the name of a function."""
        return [asked for asked in self.asked if asked["name"] == name]


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        sts, body = self.server.sts, self.rfile.read(int(self.headers["content-length"]))
        if sts.fault:
            return sts.fault(self)
        if scope(self.headers)[2:] != [REGION, "sts"] or not is_signed("POST", self.path, self.headers, body, KEY, SECRET):
            sts.wrong.append(dict(self.headers))
            return self.answer(403, refusal("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided."))
        asked = dict(parse_qsl(body.decode()))
        if (asked["Action"], asked["Version"], asked["RoleArn"]) != ("AssumeRole", "2011-06-15", ROLE) or len(asked["Policy"]) > 2048:
            return self.answer(400, refusal("ValidationError", "it is no AssumeRole"))
        if not sts.reads(asked["Policy"]):
            return self.answer(400, refusal("MalformedPolicyDocument", "it is no session policy"))
        self.answer(200, sts.session(asked))

    def answer(self, status, text, media_type="text/xml"):
        body = text.encode()
        self.send_response(status)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def refusal(code, message):
    return f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error><RequestId>1</RequestId></ErrorResponse>"


# What is answered in place of a session.


def refuses(handler):
    handler.answer(403, refusal("AccessDenied", f"User: arn:of:the:node is not authorized to perform: sts:AssumeRole on resource: {ROLE}"))


def speaks_nonsense(handler):
    handler.answer(200, "<html>this is no STS</html>", "text/html")


def fails(handler):
    handler.answer(503, "overloaded", "text/plain")


def hangs(handler):
    handler.server.sts.over.wait(PATIENCE)
    handler.close_connection = True
