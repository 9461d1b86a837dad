"""Serves a convolutional network: a photograph in, the five likeliest classes out."""

import io
import json

import boto3
import numpy as np
import onnxruntime
from PIL import Image

s3 = boto3.client("s3")


def get(bucket, key):
    return s3.get_object(Bucket=bucket, Key=key)["Body"].read()


def handler(event, context):
    bucket = event["bucket"]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    network = onnxruntime.InferenceSession(get(bucket, event["model"]), options, providers=["CPUExecutionProvider"])
    photograph = Image.open(io.BytesIO(get(bucket, event["photograph"])))

    pixels = np.asarray(photograph.convert("RGB").resize((224, 224), Image.Resampling.BILINEAR), np.float32)
    pixels = (pixels / 127.5 - 1).transpose(2, 0, 1)[np.newaxis]
    (chances,) = network.run(None, {"pixels": pixels})[0]
    best = np.argsort(-chances)[:5]
    classes = [{"class": int(index), "chance": round(float(chances[index]), 5)} for index in best]
    s3.put_object(Bucket=bucket, Key=event["output"], Body=json.dumps(classes).encode(), ContentType="application/json")
    return {"classes": classes}
