"""S3 as objects: what each kind is known by, what can be done to it, and what it has."""

from botocore.client import operation_of
from botocore.exceptions import ClientError

from boto3.resources import base
from boto3.resources.base import Many, action, waits


def _items(operation, name):
    """The members of what a list has."""
    return list(operation_of(operation).document[name].type.type)


def _objects(bucket, page):
    return [bucket.made(ObjectSummary, bucket.name, one["Key"], data=one) for one in page.get("Contents") or ()]


def _versions(bucket, page):
    found = [*(page.get("Versions") or ()), *(page.get("DeleteMarkers") or ())]
    return [bucket.made(ObjectVersion, bucket.name, one["Key"], one["VersionId"], data=one) for one in found]


def _uploads(bucket, page):
    return [bucket.made(MultipartUpload, bucket.name, one["Key"], one["UploadId"], data=one) for one in page.get("Uploads") or ()]


def _parts(upload, page):
    names = (upload.bucket_name, upload.object_key, upload.id)
    return [upload.made(MultipartUploadPart, *names, one["PartNumber"], data=one) for one in page.get("Parts") or ()]


def _buckets(service, page):
    return [service.made(Bucket, one["Name"], data=one) for one in page.get("Buckets") or ()]


def _initiated(self, _parameters, answer):
    return self.made(MultipartUpload, self.bucket_name, self.key, answer["UploadId"])


def _sub(kind, *names):
    """A method that makes a resource from these identifiers of this one, and those that it is given."""

    def make(self, *args, **kwargs):
        return globals()[kind](*(getattr(self, name) for name in names), *args, client=self.meta.client, **kwargs)

    return make


def _transfer(name, names):
    """A method that calls a transfer of the client with this resource as what it is to or from."""

    def call(self, *args, **kwargs):
        from boto3.s3 import inject

        order = {
            "upload_file": ("Filename", "Key"),
            "upload_fileobj": ("Fileobj", "Key"),
            "download_file": ("Key", "Filename"),
            "download_fileobj": ("Key", "Fileobj"),
            "copy": ("CopySource", "Key"),
        }[name]
        given = [parameter for parameter in order if parameter not in names]
        rest = ["ExtraArgs", "Callback", "SourceClient", "Config"] if name == "copy" else ["ExtraArgs", "Callback", "Config"]
        arguments = dict(zip([*given, *rest], args, strict=False)) | kwargs
        own = {parameter: getattr(self, attribute) for parameter, attribute in names.items()}
        return getattr(inject, name)(self.meta.client, **own, **arguments)

    return call


class Bucket(base.ServiceResource):
    identifiers = {"name": "Bucket"}

    @classmethod
    def shape(cls):
        return _items("ListBuckets", "Buckets")

    def load(self):
        """Looks for it in the list of buckets; one that is not there has nothing."""
        self.meta.data = {}
        try:
            for one in self.meta.client.list_buckets()["Buckets"]:
                if one["Name"] == self.name:
                    self.meta.data = one
                    break
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") != "AccessDenied":
                raise

    create = action("CreateBucket")
    delete = action("DeleteBucket")
    delete_objects = action("DeleteObjects")
    put_object = action("PutObject", lambda self, parameters, _: self.made(Object, self.name, parameters["Key"]))
    wait_until_exists = waits("bucket_exists")
    wait_until_not_exists = waits("bucket_not_exists")
    objects = Many("ListObjects", "ObjectSummary", _objects, batch=True)
    object_versions = Many("ListObjectVersions", "ObjectVersion", _versions, batch=True)
    multipart_uploads = Many("ListMultipartUploads", "MultipartUpload", _uploads)
    Object = _sub("Object", "name")
    Acl = _sub("BucketAcl", "name")
    Cors = _sub("BucketCors", "name")
    Lifecycle = _sub("BucketLifecycle", "name")
    LifecycleConfiguration = _sub("BucketLifecycleConfiguration", "name")
    Logging = _sub("BucketLogging", "name")
    Notification = _sub("BucketNotification", "name")
    Policy = _sub("BucketPolicy", "name")
    RequestPayment = _sub("BucketRequestPayment", "name")
    Tagging = _sub("BucketTagging", "name")
    Versioning = _sub("BucketVersioning", "name")
    Website = _sub("BucketWebsite", "name")


class _ObjectLike(base.ServiceResource):
    identifiers = {"bucket_name": "Bucket", "key": "Key"}
    get = action("GetObject")
    put = action("PutObject")
    delete = action("DeleteObject")
    copy_from = action("CopyObject")
    restore_object = action("RestoreObject")
    initiate_multipart_upload = action("CreateMultipartUpload", _initiated)
    wait_until_exists = waits("object_exists")
    wait_until_not_exists = waits("object_not_exists")
    Bucket = _sub("Bucket", "bucket_name")
    Acl = _sub("ObjectAcl", "bucket_name", "key")
    Version = _sub("ObjectVersion", "bucket_name", "key")
    MultipartUpload = _sub("MultipartUpload", "bucket_name", "key")

    def parameters_of_batch(self):
        return {"Key": self.key}


class Object(_ObjectLike):
    loads = "HeadObject"


class ObjectSummary(_ObjectLike):
    Object = _sub("Object", "bucket_name", "key")

    @classmethod
    def shape(cls):
        return _items("ListObjects", "Contents")

    def load(self):
        """What a list would say of it."""
        about = self.meta.client.head_object(**self.parameters())
        about["Size"] = about.pop("ContentLength", None)
        self.meta.data = about


class ObjectVersion(base.ServiceResource):
    identifiers = {"bucket_name": "Bucket", "object_key": "Key", "id": "VersionId"}
    get = action("GetObject")
    head = action("HeadObject")
    delete = action("DeleteObject")
    Object = _sub("Object", "bucket_name", "object_key")

    @classmethod
    def shape(cls):
        return _items("ListObjectVersions", "Versions")

    def parameters_of_batch(self):
        return {"Key": self.object_key, "VersionId": self.id}


class MultipartUpload(base.ServiceResource):
    identifiers = {"bucket_name": "Bucket", "object_key": "Key", "id": "UploadId"}
    abort = action("AbortMultipartUpload")
    complete = action("CompleteMultipartUpload", lambda self, _parameters, _: self.made(Object, self.bucket_name, self.object_key))
    parts = Many("ListParts", "MultipartUploadPart", _parts)
    Object = _sub("Object", "bucket_name", "object_key")
    Part = _sub("MultipartUploadPart", "bucket_name", "object_key", "id")

    @classmethod
    def shape(cls):
        return _items("ListMultipartUploads", "Uploads")


class MultipartUploadPart(base.ServiceResource):
    identifiers = {"bucket_name": "Bucket", "object_key": "Key", "multipart_upload_id": "UploadId", "part_number": "PartNumber"}
    upload = action("UploadPart")
    copy_from = action("UploadPartCopy")
    MultipartUpload = _sub("MultipartUpload", "bucket_name", "object_key", "multipart_upload_id")

    @classmethod
    def shape(cls):
        return _items("ListParts", "Parts")

    def parameters(self):
        return super().parameters() | {"PartNumber": int(self.part_number)}


class _BucketPart(base.ServiceResource):
    identifiers = {"bucket_name": "Bucket"}
    Bucket = _sub("Bucket", "bucket_name")


class BucketAcl(_BucketPart):
    loads = "GetBucketAcl"
    put = action("PutBucketAcl")


class BucketCors(_BucketPart):
    loads = "GetBucketCors"
    put = action("PutBucketCors")
    delete = action("DeleteBucketCors")


class BucketLifecycleConfiguration(_BucketPart):
    loads = "GetBucketLifecycleConfiguration"
    put = action("PutBucketLifecycleConfiguration")
    delete = action("DeleteBucketLifecycle")


class BucketLifecycle(_BucketPart):
    loads = "GetBucketLifecycle"
    put = action("PutBucketLifecycle")
    delete = action("DeleteBucketLifecycle")


class BucketLogging(_BucketPart):
    loads = "GetBucketLogging"
    put = action("PutBucketLogging")


class BucketNotification(_BucketPart):
    loads = "GetBucketNotificationConfiguration"
    put = action("PutBucketNotificationConfiguration")


class BucketRequestPayment(_BucketPart):
    loads = "GetBucketRequestPayment"
    put = action("PutBucketRequestPayment")


class BucketWebsite(_BucketPart):
    loads = "GetBucketWebsite"
    put = action("PutBucketWebsite")
    delete = action("DeleteBucketWebsite")


class BucketPolicy(_BucketPart):
    loads = "GetBucketPolicy"
    put = action("PutBucketPolicy")
    delete = action("DeleteBucketPolicy")


class BucketTagging(_BucketPart):
    loads = "GetBucketTagging"
    put = action("PutBucketTagging")
    delete = action("DeleteBucketTagging")


class BucketVersioning(_BucketPart):
    loads = "GetBucketVersioning"
    put = action("PutBucketVersioning")
    enable = action("PutBucketVersioning", VersioningConfiguration={"Status": "Enabled"})
    suspend = action("PutBucketVersioning", VersioningConfiguration={"Status": "Suspended"})


class ObjectAcl(base.ServiceResource):
    identifiers = {"bucket_name": "Bucket", "object_key": "Key"}
    loads = "GetObjectAcl"
    put = action("PutObjectAcl")
    Object = _sub("Object", "bucket_name", "object_key")


class ServiceResource(base.ServiceResource):
    """S3 itself."""

    create_bucket = action("CreateBucket", lambda self, parameters, _: self.made(Bucket, parameters["Bucket"]))
    buckets = Many("ListBuckets", "Bucket", _buckets)

    @classmethod
    def shape(cls):
        return []


# How the parameters of transfers are called here.
_BUCKET, _OBJECT = {"Bucket": "name"}, {"Bucket": "bucket_name", "Key": "key"}

for _name in ("upload_file", "upload_fileobj", "download_file", "download_fileobj", "copy"):
    setattr(Bucket, _name, _transfer(_name, _BUCKET))
    setattr(Object, _name, _transfer(_name, _OBJECT))
for _kind in (
    Bucket,
    Object,
    ObjectSummary,
    ObjectVersion,
    MultipartUpload,
    MultipartUploadPart,
    ObjectAcl,
    BucketAcl,
    BucketCors,
    BucketLifecycle,
    BucketLifecycleConfiguration,
    BucketLogging,
    BucketNotification,
    BucketPolicy,
    BucketRequestPayment,
    BucketTagging,
    BucketVersioning,
    BucketWebsite,
):
    setattr(ServiceResource, _kind.__name__.removeprefix("s3."), _sub(_kind.__name__.removeprefix("s3.")))
