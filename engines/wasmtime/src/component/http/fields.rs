//! Header fields and trailers: which a guest may set, and which it sees.

use bytes::Bytes;
use contract::Head;
use std::mem;
use wasi::CONNECTION_FIELDS;
use wasmtime::{
    Error, Result,
    component::{ComponentType, Lift, Lower},
};

#[derive(ComponentType, Lift, Lower)]
#[component(variant)]
pub(super) enum HeaderError {
    #[component(name = "invalid-syntax")]
    InvalidSyntax,
    #[component(name = "forbidden")]
    Forbidden,
    #[component(name = "immutable")]
    Immutable,
}

/// Fields of one message at most.
const MOST_FIELDS: usize = 512;

/// Whether a field is the connection's, which a guest neither sees nor sets.
fn forbidden(name: &str) -> bool {
    let is = |its: &&str| name.eq_ignore_ascii_case(its);
    is(&"host") || CONNECTION_FIELDS.iter().any(is)
}

/// A token (RFC 9110, section 5.6.2).
pub(super) fn is_token(name: &str) -> bool {
    let special = |byte| b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || special(byte))
}

fn is_value(value: &[u8]) -> bool {
    let blank = |byte: Option<&u8>| byte.is_some_and(|byte| b" \t".contains(byte));
    !value.iter().any(|byte| matches!(byte, 0..=8 | 10..=31 | 127))
        && !blank(value.first())
        && !blank(value.last())
}

/// What `fields` stands for.
#[derive(Clone, Default)]
pub(crate) struct Headers {
    pub(super) entries: Vec<(String, Bytes)>,
    bytes: usize,
    pub(super) immutable: bool,
}

impl Headers {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The request's, without what concerns its connection only.
    pub(super) fn of(head: &Head) -> Self {
        let mut headers = Self::default();
        for (name, value) in head.headers() {
            // Which host it was sent to is the request's authority, and a header that guests look for.
            if !forbidden(name) || name.eq_ignore_ascii_case("host") {
                headers.push(name.to_owned(), Bytes::copy_from_slice(value));
            }
        }
        headers.immutable = true;
        headers
    }

    pub(super) fn push(&mut self, name: String, value: Bytes) {
        self.bytes += name.len() + value.len() + size_of::<(String, Bytes)>();
        self.entries.push((name, value));
    }

    /// Those of a message that came, without what concerns its connection only.
    pub(crate) fn shown_of(fields: contract::Trailers) -> Self {
        let mut headers = Self::default();
        for (name, value) in fields {
            if !forbidden(&name) {
                headers.push(name.into_owned(), value);
            }
        }
        headers.immutable = true;
        headers
    }

    /// As the contract has them.
    pub(crate) fn listed(self) -> contract::Trailers {
        let all = self.entries.into_iter();
        all.map(|(name, value)| (name.into(), value)).collect()
    }

    pub(super) fn values(&self, name: &str) -> Vec<Bytes> {
        let its = self.entries.iter();
        let its = its.filter(|(its, _)| its.eq_ignore_ascii_case(name));
        its.map(|(_, value)| value.clone()).collect()
    }

    /// Whether a change to the fields of this name is allowed.
    fn changeable(&self, name: &str) -> Result<(), HeaderError> {
        match () {
            () if self.immutable => Err(HeaderError::Immutable),
            () if !is_token(name) => Err(HeaderError::InvalidSyntax),
            () if forbidden(name) => Err(HeaderError::Forbidden),
            () => Ok(()),
        }
    }

    pub(super) fn append(&mut self, name: String, value: Vec<u8>) -> Result<Result<(), HeaderError>> {
        if let Err(error) = self.changeable(&name) {
            return Ok(Err(error));
        }
        if !is_value(&value) {
            return Ok(Err(HeaderError::InvalidSyntax));
        }
        if self.entries.len() >= MOST_FIELDS {
            return Err(Error::msg("it makes too many header fields"));
        }
        self.push(name, value.into());
        Ok(Ok(()))
    }

    pub(super) fn delete(&mut self, name: &str) -> Result<(), HeaderError> {
        self.changeable(name)?;
        for (its, value) in mem::take(self).entries {
            if !its.eq_ignore_ascii_case(name) {
                self.push(its, value);
            }
        }
        Ok(())
    }

    pub(super) fn set(&mut self, name: String, values: Vec<Vec<u8>>) -> Result<Result<(), HeaderError>> {
        if !values.iter().all(|value| is_value(value)) {
            return Ok(Err(HeaderError::InvalidSyntax));
        }
        if let Err(error) = self.delete(&name) {
            return Ok(Err(error));
        }
        for value in values {
            if let Err(error) = self.append(name.clone(), value)? {
                return Ok(Err(error));
            }
        }
        Ok(Ok(()))
    }

    /// What the fields say of the body's length.
    pub(super) fn content_length(&self) -> Option<u64> {
        let values = self.values("content-length");
        std::str::from_utf8(values.first()?).ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(of: &[(&str, &str)]) -> Headers {
        let mut headers = Headers::default();
        for (name, value) in of {
            let appended = headers.append((*name).to_owned(), value.as_bytes().to_vec());
            assert!(matches!(appended, Ok(Ok(()))), "{name}: {value}");
        }
        headers
    }

    #[test]
    fn fields_are_counted_however_they_change() {
        let mut headers = fields(&[("A", "1"), ("b", "2"), ("a", "3")]);
        assert_eq!(headers.values("a"), ["1", "3"]);
        assert!(matches!(headers.set("a".into(), vec![b"4".to_vec()]), Ok(Ok(()))));
        assert_eq!(headers.values("A"), ["4"]);
        assert_eq!(headers.bytes(), fields(&[("b", "2"), ("a", "4")]).bytes());
        assert!(headers.delete("B").is_ok() && headers.delete("A").is_ok());
        assert_eq!((headers.bytes(), headers.entries.len()), (0, 0));
    }

    #[test]
    fn fields_that_could_speak_to_the_connection_are_refused() {
        let mut headers = Headers::default();
        for name in ["Connection", "HOST", "transfer-encoding", "Upgrade", "te"] {
            let refused = headers.append(name.to_owned(), b"x".to_vec());
            assert!(matches!(refused, Ok(Err(HeaderError::Forbidden))), "{name}");
        }
        for (name, value) in [
            ("", "x"),
            ("a b", "x"),
            ("ü", "x"),
            ("a", "x\r\ny: z"),
            ("a", "\0"),
            ("a", " x"),
        ] {
            let refused = headers.append(name.to_owned(), value.as_bytes().to_vec());
            assert!(
                matches!(refused, Ok(Err(HeaderError::InvalidSyntax))),
                "{name:?}: {value:?}"
            );
        }
        headers.immutable = true;
        let refused = headers.append("a".to_owned(), b"x".to_vec());
        assert!(matches!(refused, Ok(Err(HeaderError::Immutable))));
        assert!(headers.entries.is_empty());
    }
}
