"""Signatures of Version 4 as AWS's services check them, by botocore."""

from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials


def scope(fields):
    """What a request says that it is signed with and for: an access key's id, a date, a region, a service."""
    return fields["authorization"].partition("Credential=")[2].partition("/aws4_request")[0].split("/")


def is_signed(method, path, fields, body, key, secret, token=None):
    """Whether a request has the signature that these keys make of its bytes, and says the token that goes with them."""
    signer, _, region, service = scope(fields)
    names = fields["authorization"].partition("SignedHeaders=")[2].partition(",")[0].split(";")
    request = AWSRequest(method, f"http://{fields['host']}{path}", headers={}, data=body)
    for name in names:
        request.headers[name] = fields[name]
    request.context["timestamp"] = fields["x-amz-date"]
    auth = SigV4Auth(Credentials(key, secret, token), service, region)
    signature = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
    is_right = fields["authorization"].endswith(f"Signature={signature}") and fields.get("x-amz-security-token") == token
    return is_right and signer == key and "host" in names
