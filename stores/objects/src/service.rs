//! The operations of S3 that there are. Those that are not here answer `NotImplemented`.

use crate::{Inner, attributes, buckets, lists, objects, parts, read, tags};
use s3s::{
    S3, S3Request, S3Response, S3Result,
    dto::{
        AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput,
        CompleteMultipartUploadOutput, CopyObjectInput, CopyObjectOutput, CreateBucketInput,
        CreateBucketOutput, CreateMultipartUploadInput, CreateMultipartUploadOutput, DeleteBucketInput,
        DeleteBucketOutput, DeleteObjectInput, DeleteObjectOutput, DeleteObjectTaggingInput,
        DeleteObjectTaggingOutput, DeleteObjectsInput, DeleteObjectsOutput, GetBucketLocationInput,
        GetBucketLocationOutput, GetBucketVersioningInput, GetBucketVersioningOutput,
        GetObjectAttributesInput, GetObjectAttributesOutput, GetObjectInput, GetObjectOutput,
        GetObjectTaggingInput, GetObjectTaggingOutput, HeadBucketInput, HeadBucketOutput, HeadObjectInput,
        HeadObjectOutput, ListBucketsInput, ListBucketsOutput, ListMultipartUploadsInput,
        ListMultipartUploadsOutput, ListObjectVersionsInput, ListObjectVersionsOutput, ListObjectsInput,
        ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output, ListPartsInput, ListPartsOutput,
        PutObjectInput, PutObjectOutput, PutObjectTaggingInput, PutObjectTaggingOutput, UploadPartCopyInput,
        UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
    },
};
use std::sync::Arc;

/// What s3s asks.
pub(crate) struct Service(pub(crate) Arc<Inner>);

/// Each operation's method: the name, what it takes and gives, and who does it.
macro_rules! operations {
    ($($name:ident: $input:ident => $output:ident = $function:path;)*) => {
        #[async_trait::async_trait]
        impl S3 for Service {
            $(
                async fn $name(&self, request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                    $function(&self.0, request).await
                }
            )*
        }
    };
}

operations! {
    create_bucket: CreateBucketInput => CreateBucketOutput = buckets::create_bucket;
    head_bucket: HeadBucketInput => HeadBucketOutput = buckets::head_bucket;
    delete_bucket: DeleteBucketInput => DeleteBucketOutput = buckets::delete_bucket;
    list_buckets: ListBucketsInput => ListBucketsOutput = buckets::list_buckets;
    get_bucket_location: GetBucketLocationInput => GetBucketLocationOutput = buckets::get_bucket_location;
    get_bucket_versioning: GetBucketVersioningInput => GetBucketVersioningOutput = buckets::get_bucket_versioning;
    put_object: PutObjectInput => PutObjectOutput = objects::put_object;
    copy_object: CopyObjectInput => CopyObjectOutput = objects::copy_object;
    delete_object: DeleteObjectInput => DeleteObjectOutput = objects::delete_object;
    delete_objects: DeleteObjectsInput => DeleteObjectsOutput = objects::delete_objects;
    get_object: GetObjectInput => GetObjectOutput = read::get_object;
    head_object: HeadObjectInput => HeadObjectOutput = read::head_object;
    get_object_attributes: GetObjectAttributesInput => GetObjectAttributesOutput = attributes::get_object_attributes;
    list_objects: ListObjectsInput => ListObjectsOutput = lists::list_objects;
    list_objects_v2: ListObjectsV2Input => ListObjectsV2Output = lists::list_objects_v2;
    list_object_versions: ListObjectVersionsInput => ListObjectVersionsOutput = lists::list_object_versions;
    list_multipart_uploads: ListMultipartUploadsInput => ListMultipartUploadsOutput = lists::list_multipart_uploads;
    create_multipart_upload: CreateMultipartUploadInput => CreateMultipartUploadOutput = parts::create;
    upload_part: UploadPartInput => UploadPartOutput = parts::upload_part;
    upload_part_copy: UploadPartCopyInput => UploadPartCopyOutput = parts::upload_part_copy;
    complete_multipart_upload: CompleteMultipartUploadInput => CompleteMultipartUploadOutput = parts::complete;
    abort_multipart_upload: AbortMultipartUploadInput => AbortMultipartUploadOutput = parts::abort;
    list_parts: ListPartsInput => ListPartsOutput = parts::list_parts;
    get_object_tagging: GetObjectTaggingInput => GetObjectTaggingOutput = tags::get_object_tagging;
    put_object_tagging: PutObjectTaggingInput => PutObjectTaggingOutput = tags::put_object_tagging;
    delete_object_tagging: DeleteObjectTaggingInput => DeleteObjectTaggingOutput = tags::delete_object_tagging;
}
