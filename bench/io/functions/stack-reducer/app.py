"""Stacked training, the reducer: it gathers what the trainers made, and lays their predictions side by side as the features from
which the meta-model will be trained."""

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
    predictions = [np.load(io.BytesIO(get(bucket, key))) for key in event["predictions"]]
    models = [pickle.loads(get(bucket, key)) for key in event["models"]]

    features = np.column_stack(predictions)
    body = io.BytesIO()
    np.save(body, features)
    s3.put_object(Bucket=bucket, Key=event["features"], Body=body.getvalue())
    s3.put_object(Bucket=bucket, Key=event["ensemble"], Body=pickle.dumps(models))
    return {
        "rows": features.shape[0],
        "columns": features.shape[1],
        "models": [type(model).__name__ for model in models],
        "largest": [round(float(column.max()), 6) for column in predictions],
    }
