"""Makes a smaller copy of a photograph."""

import hashlib
import io

import boto3
from PIL import Image, ImageStat

s3 = boto3.client("s3")


def handler(event, context):
    bucket = event["bucket"]
    photograph = Image.open(io.BytesIO(s3.get_object(Bucket=bucket, Key=event["photograph"])["Body"].read()))

    width = event["width"]
    height = round(photograph.height * width / photograph.width)
    copy = photograph.convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
    body = io.BytesIO()
    copy.save(body, "JPEG", quality=85)
    s3.put_object(Bucket=bucket, Key=event["output"], Body=body.getvalue(), ContentType="image/jpeg")
    return {
        "width": width,
        "height": height,
        "mean": [round(level, 1) for level in ImageStat.Stat(copy).mean],
        "sha256": hashlib.sha256(body.getvalue()).hexdigest(),
    }
