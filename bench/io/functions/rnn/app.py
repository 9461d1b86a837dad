"""Serves a recurrent network that writes on: beginnings of texts in, the texts out, letter by letter, each time the likeliest."""

import hashlib

import boto3
import numpy as np
import onnxruntime

LETTERS = "abcdefghijklmnopqrstuvwxyz .,'-!"

s3 = boto3.client("s3")


def get(bucket, key):
    return s3.get_object(Bucket=bucket, Key=key)["Body"].read()


def handler(event, context):
    bucket = event["bucket"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    network = onnxruntime.InferenceSession(get(bucket, event["model"]), options, providers=["CPUExecutionProvider"])
    texts = get(bucket, event["beginnings"]).decode().splitlines()

    state = np.zeros((1, len(texts), event["state"]), np.float32)
    letters = np.array([[LETTERS.index(letter) for letter in text] for text in texts]).T
    for _ in range(event["letters"]):
        scores, state = network.run(None, {"letters": letters, "state": state})
        letters = scores.argmax(axis=1)[np.newaxis]
        texts = [text + LETTERS[letter] for text, letter in zip(texts, letters[0])]

    output = "\n".join(texts).encode()
    s3.put_object(Bucket=bucket, Key=event["output"], Body=output)
    return {"texts": len(texts), "sha256": hashlib.sha256(output).hexdigest()}
