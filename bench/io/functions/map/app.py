"""Counts words, the first half: each thread counts those of one text; then each reducer gets a file with the words that are
its own."""

import json
import zlib
from collections import Counter

import boto3
from joblib import Parallel, delayed

s3 = boto3.client("s3")


def count(bucket, key):
    text = s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode()
    return Counter(text.lower().split())


def write(bucket, key, counts):
    s3.put_object(Bucket=bucket, Key=key, Body=json.dumps(counts, sort_keys=True).encode())


def handler(event, context):
    bucket, outputs = event["bucket"], event["outputs"]
    with Parallel(n_jobs=len(event["texts"]), backend="threading") as parallel:
        total = sum(parallel(delayed(count)(bucket, key) for key in event["texts"]), Counter())

        parts = [{} for _ in outputs]
        for word, number in total.items():
            parts[zlib.crc32(word.encode()) % len(parts)][word] = number
        parallel(delayed(write)(bucket, key, part) for key, part in zip(outputs, parts))
    return {"words": total.total(), "distinct": len(total), "parts": [len(part) for part in parts]}
