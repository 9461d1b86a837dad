"""Puts an object of 1 MiB as often as it is told, by the boto3 that a function finds, and says how long each took and what this process used of its processor."""

import hashlib
import resource
import time

import boto3

s3 = boto3.client("s3")


def handler(event, context):
    body = s3.get_object(Bucket=event["bucket"], Key="put-body")["Body"].read()
    for _ in range(3):
        s3.put_object(Bucket=event["bucket"], Key="put", Body=body)
    times = []
    before, spent = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
    for _ in range(event["count"]):
        began = time.perf_counter()
        s3.put_object(Bucket=event["bucket"], Key="put", Body=body)
        times.append(time.perf_counter() - began)
    spent, after = time.process_time() - spent, resource.getrusage(resource.RUSAGE_SELF)
    user, kernel = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    count = event["count"]
    return {"times": times, "cpu": spent / count, "user": user / count, "kernel": kernel / count, "sha256": hashlib.sha256(body).hexdigest()}
