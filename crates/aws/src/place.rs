//! Where services are.

use http::Uri;

/// What the names of AWS's hosts in a region end with. China has a domain of its own:
/// <https://docs.amazonaws.cn/en_us/aws/latest/userguide/endpoints-arns.html>.
pub fn domain(region: &str) -> &'static str {
    match region.starts_with("cn-") {
        true => "amazonaws.com.cn",
        false => "amazonaws.com",
    }
}

/// Whether this can be the name of a region.
pub fn is_region(text: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.bytes().all(is_name)
}

/// An endpoint's scheme and authority; `None` if there is more to it, or less, or it is no place for HTTP.
pub fn origin(endpoint: &str) -> Option<String> {
    let uri: Uri = endpoint.parse().ok()?;
    let authority = uri.authority()?;
    let is_plain =
        matches!(uri.path(), "" | "/") && uri.query().is_none() && !authority.as_str().contains('@');
    match uri.scheme_str() {
        Some(scheme @ ("http" | "https")) if is_plain => Some(format!("{scheme}://{authority}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_an_endpoint() {
        for (endpoint, expected) in [
            ("https://h", Some("https://h")),
            ("http://h:8080/", Some("http://h:8080")),
            ("https://[::1]:1", Some("https://[::1]:1")),
            ("h", None),
            ("ftp://h", None),
            ("https://h/p", None),
            ("https://h/?a", None),
            ("https://user@h", None),
            ("", None),
        ] {
            assert_eq!(origin(endpoint).as_deref(), expected, "{endpoint}");
        }
        assert_eq!(
            (domain("cn-north-1"), domain("us-east-1")),
            ("amazonaws.com.cn", "amazonaws.com")
        );
        assert!(is_region("eu-west-1") && !is_region("") && !is_region("US") && !is_region("a.b"));
    }
}
