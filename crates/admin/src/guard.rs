//! Who may call.

use crate::{Context, failure::Failure};
use axum::{
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Paths that say nothing but a state, and that load balancers ask for without a token.
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// Lets a request through, or answers it.
pub(crate) async fn check(State(context): State<Context>, request: Request, next: Next) -> Response {
    let allowed = match context.state.token.as_deref().filter(|token| !token.is_empty()) {
        _ if OPEN.contains(&request.uri().path()) => Ok(()),
        Some(token) => check_token(request.headers(), token),
        None => check_local(&request),
    };
    match allowed {
        Ok(()) => next.run(request).await,
        Err(failure) => failure.into_response(),
    }
}

fn check_token(headers: &HeaderMap, token: &str) -> Result<(), Failure> {
    let shown = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let shown = shown.and_then(|value| value.split_once(' '));
    match shown {
        Some((scheme, shown)) if scheme.eq_ignore_ascii_case("bearer") && same(shown.trim(), token) => Ok(()),
        _ => Err(Failure::new(
            StatusCode::UNAUTHORIZED,
            "unauthorized",
            "this node's control API needs its token",
            "send `Authorization: Bearer TOKEN`; for the command set MILLPOND_TOKEN",
        )),
    }
}

/// In a time that depends on neither text: their digests have one length.
fn same(a: &str, b: &str) -> bool {
    Sha256::digest(a).ct_eq(&Sha256::digest(b)).into()
}

/// Without a token, only what was meant for this machine: a name that an attacker points at 127.0.0.1 is his own in the
/// browser's `Host`, and his page is in its `Origin`.
fn check_local(request: &Request) -> Result<(), Failure> {
    let text = |name| {
        request
            .headers()
            .get(name)
            .map(|value| value.to_str().unwrap_or("?"))
    };
    // An absolute target speaks of its own host, whatever the header says.
    let host = request
        .uri()
        .authority()
        .map(|authority| authority.as_str())
        .or_else(|| text(header::HOST));
    let forbidden = |code: &str, detail: String| {
        let hint = "ask for http://127.0.0.1, http://localhost or http://[::1], or give the node a token";
        Err(Failure::new(StatusCode::FORBIDDEN, code, detail, hint))
    };
    let Some(host) = host.filter(|host| is_loopback(host)) else {
        return forbidden(
            "host-forbidden",
            format!(
                "this control API does not answer for the host `{}`",
                host.unwrap_or_default()
            ),
        );
    };
    match text(header::ORIGIN) {
        Some(origin) if origin.strip_prefix("http://") != Some(host) => forbidden(
            "origin-forbidden",
            format!("this control API does not answer pages of `{origin}`"),
        ),
        _ => Ok(()),
    }
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
        _ => authority,
    };
    host.eq_ignore_ascii_case("localhost") || host == "127.0.0.1" || host == "[::1]"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_few_names() {
        for good in [
            "localhost",
            "LOCALHOST:9080",
            "127.0.0.1",
            "127.0.0.1:1",
            "[::1]",
            "[::1]:9080",
        ] {
            assert!(is_loopback(good), "{good}");
        }
        for bad in [
            "",
            ":",
            "::1",
            "localhost.evil.example",
            "evil.example:80",
            "127.0.0.1.nip.example",
            "127.0.0.1:x",
            "[::1",
            "127.0.0.2",
        ] {
            assert!(!is_loopback(bad), "{bad}");
        }
    }

    #[test]
    fn tokens_are_compared_whole() {
        let shown = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::AUTHORIZATION, value.parse().unwrap());
            check_token(&headers, "secret").is_ok()
        };
        assert!(shown("Bearer secret") && shown("bearer  secret "));
        for bad in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer secre",
            "Bearer secrets",
            "Basic secret",
            "secret",
        ] {
            assert!(!shown(bad), "{bad}");
        }
        assert!(check_token(&HeaderMap::new(), "secret").is_err());
    }
}
