//! A request of HTTP/2 as one of HTTP/1.1, and an answer of HTTP/1.1 as one of HTTP/2 (RFC 9113, section 8).

use contract::Problem;
use http::{
    HeaderMap, HeaderName, HeaderValue, Uri, Version, header, request, response,
    uri::{Parts, PathAndQuery},
};

/// Fields that say how a message travels on one connection (RFC 9110, section 7.6.1). HTTP/2 has none of them.
const HOP: [HeaderName; 6] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    header::TE,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Makes a request of HTTP/2 one of HTTP/1.1. What it means is not looked at: the gateway does that.
pub(crate) fn request(parts: &mut request::Parts, has_body: bool) {
    let headers = &mut parts.headers;
    for name in &HOP {
        headers.remove(name);
    }
    // `:authority` is what counts (section 8.3.1). Without it `Host` is, as often as it is there: the gateway is strict.
    if let Some(authority) = parts.uri.authority()
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        headers.insert(header::HOST, host);
    }
    // Whoever speaks HTTP/2 can be sent trailers.
    headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    join_cookies(headers);
    if has_body && headers.contains_key(header::TRAILER) {
        // HTTP/1.1 has no place for trailers behind a body of a given length. HTTP/2 itself holds the body to it.
        headers.remove(header::CONTENT_LENGTH);
    }
    if has_body && !headers.contains_key(header::CONTENT_LENGTH) {
        headers.insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if parts.method != http::Method::CONNECT {
        let path = parts.uri.path_and_query().cloned();
        let mut origin = Parts::default();
        origin.path_and_query = Some(path.unwrap_or(PathAndQuery::from_static("/")));
        // A path alone is always a target.
        parts.uri = Uri::from_parts(origin).unwrap_or_default();
    }
    parts.version = Version::HTTP_11;
}

/// What HTTP/2 may split for the sake of compression is one field in HTTP/1.1 (section 8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let mut crumbs = headers.get_all(header::COOKIE).iter();
    let (Some(first), Some(second)) = (crumbs.next(), crumbs.next()) else {
        return;
    };
    let mut all = first.as_bytes().to_vec();
    for crumb in std::iter::once(second).chain(crumbs) {
        all.extend_from_slice(b"; ");
        all.extend_from_slice(crumb.as_bytes());
    }
    if let Ok(all) = HeaderValue::from_bytes(&all) {
        headers.insert(header::COOKIE, all);
    }
}

/// Makes an answer of HTTP/1.1 one of HTTP/2.
pub(crate) fn response(parts: &mut response::Parts) {
    for name in &HOP {
        parts.headers.remove(name);
    }
    parts.version = Version::HTTP_2;
}

/// The answer to a request that no gateway took.
pub(crate) fn not_taken() -> (response::Parts, Vec<u8>) {
    let problem = Problem::new(
        503,
        "no-core",
        "no core of this node took the request: all have as many connections as they may, or the node shuts down",
        "try again; raise `connections` in the node's configuration if this happens often",
    );
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut parts = http::Response::new(()).into_parts().0;
    parts.status = http::StatusCode::SERVICE_UNAVAILABLE;
    parts.headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(Problem::MEDIA_TYPE),
    );
    parts
        .headers
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    parts
        .headers
        .insert("x-millpond-error", HeaderValue::from_static("no-core"));
    (parts, body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Request;

    fn translated(request: Request<()>, has_body: bool) -> request::Parts {
        let mut parts = request.into_parts().0;
        super::request(&mut parts, has_body);
        parts
    }

    #[test]
    fn the_authority_is_the_host() {
        let request = Request::get("https://example.org:1/a?b=c")
            .header("host", "evil")
            .header("host", "worse");
        let parts = translated(request.body(()).unwrap(), false);
        assert_eq!(parts.uri.to_string(), "/a?b=c");
        let hosts: Vec<_> = parts.headers.get_all("host").iter().collect();
        assert_eq!(hosts, ["example.org:1"]);
    }

    #[test]
    fn crumbs_of_a_cookie_are_joined() {
        let request = Request::get("/")
            .header("cookie", "a=1")
            .header("cookie", "b=2")
            .header("cookie", "c=3");
        let parts = translated(request.body(()).unwrap(), false);
        let cookies: Vec<_> = parts.headers.get_all("cookie").iter().collect();
        assert_eq!(cookies, ["a=1; b=2; c=3"]);
    }

    #[test]
    fn a_body_is_framed_even_where_it_is_unusual() {
        let request = |length: bool| {
            let request = Request::get("/").header("te", "gzip;q=0.5");
            let request = if length {
                request.header("content-length", "3")
            } else {
                request
            };
            request.body(()).unwrap()
        };
        let parts = translated(request(false), true);
        assert_eq!(parts.headers["transfer-encoding"], "chunked");
        assert_eq!(parts.headers["te"], "trailers");
        assert!(
            !translated(request(false), false)
                .headers
                .contains_key("transfer-encoding")
        );
        assert!(
            !translated(request(true), true)
                .headers
                .contains_key("transfer-encoding")
        );
    }

    #[test]
    fn a_length_gives_way_to_trailers_that_are_announced() {
        let request = |has_body| {
            let request = Request::post("/")
                .header("content-length", "3")
                .header("trailer", "x-sum");
            translated(request.body(()).unwrap(), has_body).headers
        };
        let headers = request(true);
        assert_eq!(headers["transfer-encoding"], "chunked");
        assert_eq!(headers["trailer"], "x-sum");
        assert!(!headers.contains_key("content-length"));
        assert!(!request(false).contains_key("transfer-encoding"));
    }

    #[test]
    fn an_asterisk_stays_one() {
        let request = Request::options("*").body(()).unwrap();
        assert_eq!(translated(request, false).uri.to_string(), "*");
    }
}
