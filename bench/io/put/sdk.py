"""Puts an object of 1 MiB as often as it is told, by the real boto3.

    sdk.py BUCKET BODY COUNT
"""

import sys

import boto3
from measured import measured

bucket, body, count = sys.argv[1:]
with open(body, "rb") as file:
    body = file.read()
s3 = boto3.client("s3")
measured(lambda: s3.put_object(Bucket=bucket, Key="put", Body=body), int(count))
