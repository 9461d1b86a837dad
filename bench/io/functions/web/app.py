"""Makes a web page of a shop's catalogue, and keeps it where it is served from."""

import hashlib
import json

import boto3
from chameleon import PageTemplate

s3 = boto3.client("s3")

PAGE = PageTemplate("""<!DOCTYPE html>
<html>
<head><title>${title}</title></head>
<body>
<h1>${title}</h1>
<table>
<tr><th tal:repeat="column columns">${column}</th></tr>
<tr tal:repeat="row rows"><td tal:repeat="cell row">${cell}</td></tr>
</table>
</body>
</html>
""")


def handler(event, context):
    bucket = event["bucket"]
    catalogue = json.loads(s3.get_object(Bucket=bucket, Key=event["catalogue"])["Body"].read())

    page = PAGE.render(title=catalogue["title"], columns=catalogue["columns"], rows=catalogue["rows"]).encode()
    s3.put_object(Bucket=bucket, Key=event["page"], Body=page, ContentType="text/html; charset=utf-8")
    return {"rows": len(catalogue["rows"]), "bytes": len(page), "sha256": hashlib.sha256(page).hexdigest()}
