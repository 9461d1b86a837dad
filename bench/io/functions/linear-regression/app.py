"""Serves a linear regression: a model and a batch of samples in, predictions out."""

import io
import pickle

import boto3
import numpy as np
import sklearn.linear_model  # Unpickling a model would import it in the first request.

s3 = boto3.client("s3")


def get(bucket, key):
    return s3.get_object(Bucket=bucket, Key=key)["Body"].read()


def handler(event, context):
    bucket = event["bucket"]
    model = pickle.loads(get(bucket, event["model"]))
    samples = np.load(io.BytesIO(get(bucket, event["samples"])))

    predictions = model.predict(samples)
    body = io.BytesIO()
    np.save(body, predictions)
    s3.put_object(Bucket=bucket, Key=event["output"], Body=body.getvalue())
    return {
        "rows": len(predictions),
        "mean": round(float(predictions.mean()), 6),
        "largest": int(predictions.argmax()),
    }
