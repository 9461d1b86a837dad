use super::{Result, blocking};
use crate::{
    Context,
    failure::{Failure, Names, drain, name},
    guard::Caller,
    wire,
};
use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, StatusCode, header},
};
use bytes::{Buf, Bytes};
use contract::Digest;
use futures_util::StreamExt;
use registry::Stored;
use std::io::{self, Read};
use tokio::sync::mpsc;

/// Pieces of an upload that wait for the disk.
const PIECES: usize = 16;

/// Upload code under its SHA-256
///
/// For a deployment to come: code that no deployment uses within a day may be removed. The node checks the digest.
#[utoipa::path(put, operation_id = "upload_code", path = "/v1/code/{sha256}", tag = "deployments",
    params(("sha256" = String, Path, description = "SHA-256 of the code, in hexadecimal digits")),
    request_body(content = String, content_type = "application/wasm", description = "The code"),
    responses(
        (status = 201, description = "The code is here now", body = wire::Code),
        (status = 200, description = "The code was here before", body = wire::Code),
    ))]
pub(crate) async fn upload(
    State(context): State<Context>,
    caller: Caller,
    Names(sha256): Names<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<wire::Code>)> {
    let digest: Digest = name(&sha256)?;
    let registry = context.state.registry.clone();
    let limit = registry.code_limit();
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    let mut body = body.into_data_stream();
    if length.is_some_and(|length| length > limit.0) {
        // Whoever asked first, with `Expect`, has sent nothing yet.
        if !headers.contains_key(header::EXPECT) {
            drain(&mut body).await;
        }
        return Err(registry::Error::CodeTooLarge { limit }.into());
    }
    let (sender, pieces) = mpsc::channel(PIECES);
    let stored = tokio::spawn(blocking("receive code", move || {
        let mut reader = Pieces {
            pieces,
            current: Bytes::new(),
        };
        registry
            .put_code_for(caller.tenant(), digest, &mut reader)
            .map_err(Failure::from)
    }));
    loop {
        // The writer goes early if it has an answer already: this is too large, or the disk failed.
        let piece = tokio::select! {
            piece = body.next() => piece.map(|piece| piece.map_err(io::Error::other)),
            () = sender.closed() => break,
        };
        // Unlike a dropped sender, `None` says that the body was complete.
        let last = !matches!(piece, Some(Ok(_)));
        if sender.send(piece).await.is_err() || last {
            break;
        }
    }
    drop(sender);
    let stored = match stored.await {
        Ok(stored) => stored,
        Err(error) => Err(Failure::internal("receive code", &error)),
    };
    if stored.is_err() {
        drain(&mut body).await;
    }
    let status = match stored? {
        Stored::New => StatusCode::CREATED,
        Stored::Known => StatusCode::OK,
    };
    Ok((status, Json(wire::Code { digest })))
}

/// The pieces of a body, for a thread that may block.
struct Pieces {
    pieces: mpsc::Receiver<Option<io::Result<Bytes>>>,
    current: Bytes,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                Some(Some(piece)) => self.current = piece?,
                Some(None) => return Ok(0),
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
        let n = self.current.len().min(buffer.len());
        self.current.copy_to_slice(&mut buffer[..n]);
        Ok(n)
    }
}
