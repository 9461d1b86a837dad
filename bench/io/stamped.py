"""A function with stamps of the clock on its way to its first answer, beside its result. It stands for the handler `app.handler`."""

import time

BEGUN = time.monotonic_ns()

import boto3

boto3.client("s3")
SDK = time.monotonic_ns()

import resource

import app

IMPORTED = time.monotonic_ns()


def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


IMPORT_FAULTS = faults()


def handler(event, context):
    before, called = faults(), time.monotonic_ns()
    result = app.handler(event, context)
    returned, after = time.monotonic_ns(), faults()
    stamps = {"begun": BEGUN, "sdk": SDK, "imported": IMPORTED, "called": called, "returned": returned}
    # A fork's own count begins at 0: to it belongs what the process has touched that imported the module.
    everything = after if before >= IMPORT_FAULTS else IMPORT_FAULTS + after
    return {"result": result, "stamps": stamps | {"faults": after - before, "all_faults": everything}}
