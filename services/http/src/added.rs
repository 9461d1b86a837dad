//! Header fields that the node adds to requests, with secrets in them.
//!
//! A function must not come to know what they are, nor choose where they go:
//!
//! - They are filled in after the request has left the sandbox, from secrets as they are then, and go to the host of that grant
//!   alone. Nothing is followed: where a redirect leads, the function asks itself, and what that host is granted decides.
//! - A field of the same name that the function has set is left out, in the head and in the trailers: it can neither replace
//!   them nor stand beside them.
//! - Secrets go by TLS, to this machine itself, or where the manifest says `clear_text`. Else the call is denied.
//! - A method that has the other side send back what it got is denied.
//!
//! What remains is the other side's: a server that tells its callers what they sent tells the function.

use contract::{ApplicationId, CallError, HttpGrant, Piece, SecretName, Template};
use http::{HeaderName, HeaderValue, Method, Uri};
use secrets::Values;
use std::net::IpAddr;
use zeroize::Zeroizing;

/// What is added to each request to a host.
pub(crate) struct Added {
    fields: Vec<(HeaderName, Template)>,
    clear_text: bool,
    has_secrets: bool,
}

impl Added {
    pub(crate) fn of(grant: &HttpGrant) -> Self {
        let fields = grant.headers.iter().filter_map(|(name, value)| {
            // The manifest's rules let no other names through.
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            Some((name, value.clone()))
        });
        let fields: Vec<_> = fields.collect();
        Self {
            has_secrets: fields.iter().any(|(_, value)| value.secrets().next().is_some()),
            clear_text: grant.clear_text,
            fields,
        }
    }

    /// Whether this field is the node's to set.
    pub(crate) fn has(&self, name: &HeaderName) -> bool {
        self.fields.iter().any(|(its, _)| its == name)
    }

    /// Whether it may go where this request goes.
    pub(crate) fn permit(&self, method: &Method, uri: &Uri, host: &str) -> Result<(), CallError> {
        if !self.has_secrets {
            return Ok(());
        }
        if matches!(*method, Method::TRACE | Method::CONNECT) {
            let what =
                format!("the method {method} to the host {host}, which could show the function a secret");
            return Err(CallError::Denied(what));
        }
        let is_secure = uri.scheme_str() == Some("https");
        if !(is_secure || self.clear_text || is_this_machine(host)) {
            let what = format!(
                "secrets without TLS to the host {host}: ask it by https, or set `clear_text` beside `headers`"
            );
            return Err(CallError::Denied(what));
        }
        Ok(())
    }

    /// Whether files have to be read for [`Added::fields`].
    pub(crate) fn has_secrets(&self) -> bool {
        self.has_secrets
    }

    /// The fields as they are now, for a function of this application.
    pub(crate) fn fields(
        &self,
        values: &Values,
        application: &ApplicationId,
    ) -> Result<Vec<(HeaderName, HeaderValue)>, CallError> {
        let fields = self.fields.iter().map(|(name, template)| {
            let mut value = filled(template, values, application).map_err(CallError::Unset)?;
            value.set_sensitive(template.secrets().next().is_some());
            Ok((name.clone(), value))
        });
        fields.collect()
    }
}

/// A template with its secrets; the first that is not set.
fn filled(
    template: &Template,
    values: &Values,
    application: &ApplicationId,
) -> Result<HeaderValue, SecretName> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(256));
    let mut last = None;
    for piece in template.pieces() {
        match piece {
            Piece::Text(text) => bytes.extend_from_slice(text.as_bytes()),
            Piece::Secret(name) => {
                let found = values.value(application, name).unwrap_or_else(|error| {
                    tracing::error!(%application, %error, "a secret cannot be used, as if it were not set");
                    None
                });
                let value = found.ok_or_else(|| name.clone())?;
                bytes.extend_from_slice(value.expose());
                last = Some(name);
            }
        }
    }
    // Both kinds of pieces were checked for what a header can hold, so it is one.
    match (HeaderValue::from_bytes(&bytes), last) {
        (Ok(value), _) => Ok(value),
        (Err(_), Some(name)) => Err(name.clone()),
        (Err(_), None) => Ok(HeaderValue::from_static("")),
    }
}

/// Whether this is a name or an address of this machine that no other machine can have.
fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use secrets::{SecretId, Secrets, Value};

    fn added(value: &str, clear_text: bool) -> Added {
        Added::of(&HttpGrant {
            host: "x".to_owned(),
            headers: vec![("authorization".to_owned(), value.parse().unwrap())],
            clear_text,
        })
    }

    fn permits(added: &Added, method: &str, uri: &str) -> bool {
        let uri: Uri = uri.parse().unwrap();
        let host = uri.host().unwrap().trim_matches(['[', ']']).to_owned();
        let permitted = added.permit(&method.parse().unwrap(), &uri, &host);
        assert!(matches!(permitted, Ok(()) | Err(CallError::Denied(_))));
        permitted.is_ok()
    }

    #[test]
    fn secrets_go_in_clear_text_only_to_this_machine_or_where_it_is_said() {
        let secret = added("Bearer {secret:A}", false);
        for good in [
            "https://example.org/",
            "https://192.0.2.1/",
            "http://localhost:1/",
            "http://127.0.0.1/",
            "http://127.9.9.9/",
            "http://[::1]/",
        ] {
            assert!(permits(&secret, "GET", good), "{good}");
        }
        for bad in [
            "http://example.org/",
            "http://192.0.2.1/",
            "http://10.0.0.1/",
            "http://0.0.0.0/",
            "http://localhost.example.org/",
            "http://[2001:db8::1]/",
        ] {
            assert!(!permits(&secret, "GET", bad), "{bad}");
            assert!(permits(&added("Bearer {secret:A}", true), "GET", bad), "{bad}");
            assert!(permits(&added("no secret", false), "GET", bad), "{bad}");
        }
    }

    #[test]
    fn methods_that_show_what_was_sent_are_denied() {
        for method in ["TRACE", "CONNECT"] {
            assert!(
                !permits(&added("{secret:A}", true), method, "https://x/"),
                "{method}"
            );
            assert!(
                permits(&added("no secret", true), method, "https://x/"),
                "{method}"
            );
        }
        assert!(permits(&added("{secret:A}", false), "PROPFIND", "https://x/"));
    }

    #[test]
    fn a_header_is_filled_with_what_is_set_now() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = Secrets::open(folder.path()).unwrap();
        let shop: ApplicationId = "shop".parse().unwrap();
        let id = SecretId {
            application: Some(shop.clone()),
            name: "A".parse().unwrap(),
        };
        let added = added("a {{{secret:A}}} {secret:A}", false);
        let values = Values::of(folder.path().to_owned());
        let unset = added.fields(&values, &shop);
        assert_eq!(unset, Err(CallError::Unset("A".parse().unwrap())));
        for text in ["one", "two"] {
            let value = Value::new(text.as_bytes().to_vec().into()).unwrap();
            secrets.set(&id, value).unwrap();
            let fields = added.fields(&values, &shop).unwrap();
            let [(name, filled)] = &fields[..] else {
                panic!("it has one: {fields:?}");
            };
            assert_eq!(name, "authorization");
            assert_eq!(filled, &format!("a {{{text}}} {text}")[..]);
            assert!(filled.is_sensitive() && !format!("{fields:?}").contains(text));
        }
        let other = added.fields(&values, &"other".parse().unwrap());
        assert!(other.is_err(), "it is another application's");
        // As if it were not set: what stands there, nobody is told.
        std::fs::write(folder.path().join("shop.A"), "no\nvalue").unwrap();
        let broken = added.fields(&values, &shop);
        assert_eq!(broken, Err(CallError::Unset("A".parse().unwrap())));
    }
}
