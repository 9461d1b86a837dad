//! The embedded S3, by the control API's authorization in place of S3's.

use super::Result;
use crate::{
    Context,
    failure::{Failure, drain},
};
use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, Uri, header, uri::PathAndQuery},
    response::Response,
};

const AT: &str = "/v1/s3";

/// All buckets
///
/// As `ListBuckets` of S3's REST interface: XML. The operations below this path are those of S3, too, for the operator, without signatures.
#[utoipa::path(get, operation_id = "list_buckets", path = "/v1/s3", tag = "objects",
    responses((status = 200, description = "The buckets", body = String, content_type = "application/xml")))]
pub(crate) async fn buckets(State(context): State<Context>, request: Request) -> Result<Response> {
    answer(&context, request).await
}

/// Read an object, or list a bucket
///
/// As `GetObject`, `HeadObject` and `ListObjectsV2` (`/v1/s3/BUCKET?list-type=2`) of S3's REST interface. Errors are S3's: XML.
#[utoipa::path(get, operation_id = "read_objects", path = "/v1/s3/{*path}", tag = "objects",
    params(("path" = String, Path, description = "The bucket, or the bucket and the object's key")),
    responses((status = 200, description = "The object, or the list", body = Vec<u8>, content_type = "application/octet-stream")))]
pub(crate) async fn read(State(context): State<Context>, request: Request) -> Result<Response> {
    answer(&context, request).await
}

/// Write an object, or make a bucket
///
/// As `PutObject`, `CopyObject`, `UploadPart` and `CreateBucket` of S3's REST interface.
#[utoipa::path(put, operation_id = "write_objects", path = "/v1/s3/{*path}", tag = "objects",
    params(("path" = String, Path, description = "The bucket, or the bucket and the object's key")),
    request_body(content = Vec<u8>, content_type = "application/octet-stream", description = "The object"),
    responses((status = 200, description = "It is on the disk")))]
pub(crate) async fn write(State(context): State<Context>, request: Request) -> Result<Response> {
    answer(&context, request).await
}

/// Begin or complete an upload in parts, or delete objects by a list
///
/// As `CreateMultipartUpload`, `CompleteMultipartUpload` and `DeleteObjects` of S3's REST interface.
#[utoipa::path(post, operation_id = "change_objects", path = "/v1/s3/{*path}", tag = "objects",
    params(("path" = String, Path, description = "The bucket, or the bucket and the object's key")),
    request_body(content = Vec<u8>, content_type = "application/xml", description = "S3's document"),
    responses((status = 200, description = "S3's document", body = String, content_type = "application/xml")))]
pub(crate) async fn change(State(context): State<Context>, request: Request) -> Result<Response> {
    answer(&context, request).await
}

/// Delete an object, or an empty bucket
///
/// As `DeleteObject`, `DeleteBucket` and `AbortMultipartUpload` of S3's REST interface.
#[utoipa::path(delete, operation_id = "delete_objects", path = "/v1/s3/{*path}", tag = "objects",
    params(("path" = String, Path, description = "The bucket, or the bucket and the object's key")),
    responses((status = 204, description = "It is gone")))]
pub(crate) async fn delete(State(context): State<Context>, request: Request) -> Result<Response> {
    answer(&context, request).await
}

async fn answer(context: &Context, request: Request) -> Result<Response> {
    let Some(objects) = &context.state.objects else {
        // Whoever asked first, with `Expect`, has sent nothing yet.
        if !request.headers().contains_key(header::EXPECT) {
            drain(&mut request.into_body().into_data_stream()).await;
        }
        return Err(Failure::new(
            StatusCode::NOT_FOUND,
            "s3-not-embedded",
            "this node has no S3 of its own",
            "set `embedded` of `[s3]` in the node's configuration; an S3 elsewhere is looked after with its own tools",
        ));
    };
    let (mut head, body) = request.into_parts();
    head.uri = inside(&head.uri).unwrap_or_default();
    // What showed that this is the operator is nothing for S3.
    head.headers.remove(header::AUTHORIZATION);
    let mut response = objects.answer(Request::from_parts(head, body)).await;
    // A page among the objects is not one of this API: it must not act for whoever opens it.
    let fields = [
        (header::CONTENT_SECURITY_POLICY, "sandbox; default-src 'none'"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in fields {
        response
            .headers_mut()
            .insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// The same without what stands before the bucket. There is one, as the request came here.
fn inside(uri: &Uri) -> Option<Uri> {
    let rest = uri.path_and_query()?.as_str().strip_prefix(AT)?;
    let rest = match rest.starts_with('/') {
        true => rest.to_owned(),
        false => format!("/{rest}"),
    };
    Some(PathAndQuery::try_from(rest).ok()?.into())
}
