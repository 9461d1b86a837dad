//! Answers one request.

use wstd::http::{Body, Error, Request, Response};

#[wstd::http_server]
async fn main(request: Request<Body>) -> Result<Response<Body>, Error> {
    let (head, mut body) = request.into_parts();
    let body = body.contents().await?;
    let name = String::from_utf8_lossy(body);
    let name = match name.trim() {
        "" => "world",
        name => name,
    };
    // Standard error is the log.
    eprintln!("greeted {name}");

    let text = format!(
        "Hello, {name}!\nYou sent {} to {} with the query \"{}\" and {} bytes.\n",
        head.method,
        head.uri.path(),
        head.uri.query().unwrap_or_default(),
        body.len()
    );
    let response = Response::builder()
        .header("content-type", "text/plain; charset=utf-8")
        .header("cache-control", "no-store")
        .body(text.into())?;
    Ok(response)
}
