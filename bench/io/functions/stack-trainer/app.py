"""Stacked training, a trainer: it fits one base model, and predicts each sample by a model that has not seen it."""

import io
import pickle

import boto3
import numpy as np
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict

s3 = boto3.client("s3")


def handler(event, context):
    bucket = event["bucket"]
    dataset = np.load(io.BytesIO(s3.get_object(Bucket=bucket, Key=event["dataset"])["Body"].read()))
    samples, target = dataset[:, :-1], dataset[:, -1]

    model = Ridge(alpha=event["alpha"])
    predictions = cross_val_predict(model, samples, target, cv=event["folds"])
    model.fit(samples, target)
    body = io.BytesIO()
    np.save(body, predictions)
    s3.put_object(Bucket=bucket, Key=event["predictions"], Body=body.getvalue())
    s3.put_object(Bucket=bucket, Key=event["model"], Body=pickle.dumps(model))
    return {
        "rows": len(predictions),
        "error": round(float(np.mean((predictions - target) ** 2)), 6),
        "coefficients": round(float(np.abs(model.coef_).sum()), 6),
    }
