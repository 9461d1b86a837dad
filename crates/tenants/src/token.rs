//! A token's text: `mp_ID_SECRET`, where the id is 12 and the secret 64 hexadecimal digits of random bits.
//!
//! The prefix lets scanners find tokens that were published by mistake. The id is no secret and stands in audit lines; of the
//! secret only its SHA-256 is kept, which is enough for 256 random bits.

use contract::Digest;
use sha2::Digest as _;
use std::fmt;
use subtle::ConstantTimeEq as _;

const PREFIX: &str = "mp_";
const ID: usize = 6;
const SECRET: usize = 32;

/// Whether a text means to be a token of this platform.
pub fn is_token(text: &str) -> bool {
    text.starts_with(PREFIX)
}

/// A token as it is told once. It shows itself in no debug output.
pub struct Secret {
    pub(crate) id: String,
    secret: String,
}

impl Secret {
    /// Makes one.
    pub(crate) fn generate() -> Result<Self, getrandom::Error> {
        let (mut id, mut secret) = ([0; ID], [0; SECRET]);
        getrandom::fill(&mut id)?;
        getrandom::fill(&mut secret)?;
        Ok(Self {
            id: hex(&id),
            secret: hex(&secret),
        })
    }

    pub(crate) fn digest(&self) -> Digest {
        digest(&self.secret)
    }

    /// The text.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}_{}", self.id, self.secret)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({})", self.id)
    }
}

/// The id and the secret of a token's text; `None` if it is no token.
pub(crate) fn read(text: &str) -> Option<(&str, &str)> {
    let (id, secret) = text.strip_prefix(PREFIX)?.split_once('_')?;
    (is_hex(id, ID) && is_hex(secret, SECRET)).then_some((id, secret))
}

/// Whether this secret has this digest, in a time that does not depend on either.
pub(crate) fn matches(secret: &str, expected: &Digest) -> bool {
    digest(secret).0.ct_eq(&expected.0).into()
}

fn digest(secret: &str) -> Digest {
    Digest(sha2::Sha256::digest(secret).into())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_hex(text: &str, bytes: usize) -> bool {
    text.len() == 2 * bytes
        && text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_reads_back_and_hides() {
        let secret = Secret::generate().unwrap();
        let text = secret.reveal();
        let (id, shown) = read(&text).unwrap();
        assert_eq!(id, secret.id);
        assert!(matches(shown, &secret.digest()));
        assert!(!format!("{secret:?}").contains(shown));
        assert_ne!(text, Secret::generate().unwrap().reveal());
        let other = shown.replace(&shown[..1], if shown.starts_with('0') { "1" } else { "0" });
        assert!(!matches(&other, &secret.digest()));
    }

    #[test]
    fn what_is_no_token() {
        let text = Secret::generate().unwrap().reveal();
        let bad = [
            String::new(),
            "mp_".into(),
            "mp__".into(),
            text[1..].into(),
            text[..text.len() - 1].into(),
            format!("{text}0"),
            text.to_uppercase(),
            text.replace('_', "-"),
            format!("mp_é{}", &text[5..]),
        ];
        for bad in bad {
            assert_eq!(read(&bad), None, "{bad}");
        }
    }
}
