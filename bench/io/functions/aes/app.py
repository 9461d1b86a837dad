"""Encrypts the confidential beginning of a document with AES-256 in counter mode, and leaves the rest as it is."""

import hashlib

import boto3
import pyaes

s3 = boto3.client("s3")


def get(bucket, key):
    return s3.get_object(Bucket=bucket, Key=key)["Body"].read()


def handler(event, context):
    bucket, confidential = event["bucket"], event["confidential_bytes"]
    secret = get(bucket, event["secret"])
    document = get(bucket, event["document"])

    cipher = pyaes.AESModeOfOperationCTR(secret, counter=pyaes.Counter(event["counter"]))
    encrypted = cipher.encrypt(document[:confidential]) + document[confidential:]
    s3.put_object(Bucket=bucket, Key=event["output"], Body=encrypted)
    return {"bytes": len(encrypted), "sha256": hashlib.sha256(encrypted).hexdigest()}
