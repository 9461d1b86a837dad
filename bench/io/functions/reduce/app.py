"""Counts words, the second half: each thread reads what one mapper has counted of this reducer's words, and the counts are
added up."""

import hashlib
import json
from collections import Counter

import boto3
from joblib import Parallel, delayed

s3 = boto3.client("s3")


def read(bucket, key):
    return json.loads(s3.get_object(Bucket=bucket, Key=key)["Body"].read())


def handler(event, context):
    bucket = event["bucket"]
    with Parallel(n_jobs=len(event["parts"]), backend="threading") as parallel:
        parts = parallel(delayed(read)(bucket, key) for key in event["parts"])

    total = Counter()
    for part in parts:
        total.update(part)
    output = json.dumps(total, sort_keys=True).encode()
    s3.put_object(Bucket=bucket, Key=event["output"], Body=output)
    return {"words": total.total(), "distinct": len(total), "sha256": hashlib.sha256(output).hexdigest()}
