"""Sums up sales: tables come in as objects in CSV, reports go out as objects in JSON."""

import csv
import json
from collections import defaultdict
from decimal import Decimal
from urllib.parse import unquote_plus

import boto3

s3 = boto3.client("s3")


def handler(event, context):
    """Writes a report for each object that the event tells of; returns their keys."""
    reports = []
    for record in event["Records"]:
        bucket = record["s3"]["bucket"]["name"]
        key = unquote_plus(record["s3"]["object"]["key"])
        table = s3.get_object(Bucket=bucket, Key=key)["Body"].read().decode()
        report = json.dumps(summed_up(csv.DictReader(table.splitlines())), indent=2) + "\n"
        name = "reports/" + key.rpartition("/")[2].removesuffix(".csv") + ".json"
        s3.put_object(Bucket=bucket, Key=name, Body=report.encode(), ContentType="application/json")
        print(f"{key}: {record['s3']['object']['size']} bytes, report in {name}")
        reports.append(name)
    return reports


def summed_up(sales):
    """Items sold and turnover, for each product and in all; the columns are `product`, `count` and `price`."""
    products = defaultdict(lambda: [0, Decimal(0)])
    for sale in sales:
        count = int(sale["count"])
        product = products[sale["product"]]
        product[0] += count
        product[1] += count * Decimal(sale["price"])
    by_turnover = sorted(products.items(), key=lambda entry: (-entry[1][1], entry[0]))
    return {
        "items": sum(count for count, _ in products.values()),
        "turnover": str(sum((turnover for _, turnover in products.values()), Decimal(0))),
        "products": [{"product": name, "items": count, "turnover": str(turnover)} for name, (count, turnover) in by_turnover],
    }
