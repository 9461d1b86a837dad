//! Names and identifiers.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, num::NonZeroU32, str::FromStr, sync::Arc};

/// The name of an application, function or alias: 1 to 63 of `a-z`, `0-9` and `-`, beginning with a letter and not
/// ending with `-` (a DNS label, so that it can become a host name).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

/// A name that breaks the rules of [`Name`], [`FunctionRef`] or [`Digest`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{given}` is not {expected}")]
pub struct NameError {
    given: String,
    expected: &'static str,
}

impl NameError {
    pub(crate) fn new(given: &str, expected: &'static str) -> Self {
        let given = given.chars().take(80).flat_map(char::escape_default).collect();
        Self { given, expected }
    }
}

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Name {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let bytes = text.as_bytes();
        let good = matches!(bytes.len(), 1..=63)
            && bytes[0].is_ascii_lowercase()
            && bytes[bytes.len() - 1] != b'-'
            && bytes
                .iter()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-');
        if good {
            Ok(Self(text.into()))
        } else {
            Err(NameError::new(
                text,
                "a name: use 1 to 63 of a-z, 0-9 and `-`, beginning with a letter and not ending with `-`",
            ))
        }
    }
}

/// A version's number: 1, 2, 3 … for each function, never used twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VersionNumber(pub NonZeroU32);

impl fmt::Display for VersionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for VersionNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// Which application: a tenant's, or one of the node itself. Written `application`, or `tenant/application`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApplicationId {
    /// Whose it is; `None` is the node's own (default) tenant.
    pub tenant: Option<Name>,
    /// Its name, which is unique within its tenant.
    pub name: Name,
}

impl ApplicationId {
    /// The name as its tenant knows it.
    pub fn local(&self) -> Self {
        self.name.clone().into()
    }
}

impl From<Name> for ApplicationId {
    /// An application of the node's own tenant.
    fn from(name: Name) -> Self {
        Self { tenant: None, name }
    }
}

impl fmt::Display for ApplicationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_tenant(f, self.tenant.as_ref())?;
        write!(f, "{}", self.name)
    }
}

fn write_tenant(f: &mut fmt::Formatter<'_>, tenant: Option<&Name>) -> fmt::Result {
    tenant.map_or(Ok(()), |tenant| write!(f, "{tenant}/"))
}

/// A name's tenant, and what follows it.
fn split_tenant(text: &str) -> Result<(Option<Name>, &str), NameError> {
    match text.split_once('/') {
        None => Ok((None, text)),
        Some((tenant, rest)) => Ok((Some(tenant.parse()?), rest)),
    }
}

impl FromStr for ApplicationId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let (tenant, name) = split_tenant(text)?;
        Ok(Self {
            tenant,
            name: name.parse()?,
        })
    }
}

/// Which function: function names are unique within an application. Written `[tenant/]application.function`, which is a key of
/// the store and has no character that a shell knows; [`FunctionId::file_name`] has no slash.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FunctionId {
    /// The application that holds it.
    pub application: ApplicationId,
    /// Its name there.
    pub function: Name,
}

impl FunctionId {
    /// Whose it is; `None` is the node's own tenant.
    pub fn tenant(&self) -> Option<&Name> {
        self.application.tenant.as_ref()
    }

    /// The name as its tenant knows it.
    pub fn local(&self) -> Self {
        Self {
            application: self.application.local(),
            function: self.function.clone(),
        }
    }

    /// The name of a file or folder of its own: `tenant@application.function`.
    pub fn file_name(&self) -> String {
        self.to_string().replace('/', "@")
    }

    /// The function whose [file](Self::file_name) this is.
    pub fn from_file_name(name: &str) -> Result<Self, NameError> {
        name.replace('@', "/").parse()
    }
}

impl fmt::Display for FunctionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.application, self.function)
    }
}

impl FromStr for FunctionId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let (application, function) = text
            .split_once('.')
            .ok_or_else(|| NameError::new(text, "APPLICATION.FUNCTION, for example shop.resize"))?;
        Ok(Self {
            application: application.parse()?,
            function: function.parse()?,
        })
    }
}

/// Which version of a function is meant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Qualifier {
    /// This version, whatever the aliases say.
    Version(VersionNumber),
    /// The version that this alias names now.
    Alias(Name),
}

/// A function as a person writes it: `[TENANT/][APPLICATION.]FUNCTION[:VERSION|:ALIAS]`.
///
/// Without an application the name must be unique in its tenant; without a qualifier the alias `live` is meant. A tenant writes
/// its own functions without its name, and cannot write others'.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FunctionRef {
    /// Whose it is; `None` is the node's own tenant.
    pub tenant: Option<Name>,
    /// The application, where given.
    pub application: Option<Name>,
    /// The function's name.
    pub function: Name,
    /// The version or alias, where given.
    pub qualifier: Option<Qualifier>,
}

impl FunctionRef {
    /// The same as its tenant writes it.
    pub fn local(&self) -> Self {
        Self {
            tenant: None,
            ..self.clone()
        }
    }

    /// The same, of this tenant.
    pub fn of(self, tenant: Option<Name>) -> Self {
        Self { tenant, ..self }
    }
}

impl From<&FunctionId> for FunctionRef {
    fn from(function: &FunctionId) -> Self {
        Self {
            tenant: function.tenant().cloned(),
            application: Some(function.application.name.clone()),
            function: function.function.clone(),
            qualifier: None,
        }
    }
}

impl FromStr for FunctionRef {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let (tenant, rest) = split_tenant(text)?;
        let (path, qualifier) = match rest.split_once(':') {
            None => (rest, None),
            Some((path, qualifier)) => {
                let qualifier = match qualifier.parse::<NonZeroU32>() {
                    Ok(number) => Qualifier::Version(VersionNumber(number)),
                    Err(_) => Qualifier::Alias(qualifier.parse()?),
                };
                (path, Some(qualifier))
            }
        };
        let (application, function) = match path.split_once('.') {
            None => (None, path.parse()?),
            Some((application, function)) => (Some(application.parse()?), function.parse()?),
        };
        Ok(Self {
            tenant,
            application,
            function,
            qualifier,
        })
    }
}

impl fmt::Display for FunctionRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_tenant(f, self.tenant.as_ref())?;
        if let Some(application) = &self.application {
            write!(f, "{application}.")?;
        }
        write!(f, "{}", self.function)?;
        match &self.qualifier {
            None => Ok(()),
            Some(Qualifier::Version(number)) => write!(f, ":{number}"),
            Some(Qualifier::Alias(alias)) => write!(f, ":{alias}"),
        }
    }
}

/// Identifies one request on its way through the node, its logs and its response: 32 hexadecimal digits.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u128);

impl RequestId {
    /// The 32 lower-case hexadecimal digits.
    pub fn hex(self) -> [u8; 32] {
        let mut out = [0; 32];
        for (eight, four) in out.chunks_exact_mut(8).zip(self.0.to_be_bytes().chunks_exact(4)) {
            let bits = four.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
            eight.copy_from_slice(&eight_digits(bits).to_be_bytes());
        }
        out
    }
}

/// The hexadecimal digits of 32 bits, all at once: each response has four times as many.
fn eight_digits(bits: u64) -> u64 {
    let pairs = (bits << 16 | bits) & 0x0000_ffff_0000_ffff;
    let bytes = (pairs << 8 | pairs) & 0x00ff_00ff_00ff_00ff;
    let nibbles = (bytes << 4 | bytes) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = ((nibbles + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    nibbles + 0x3030_3030_3030_3030 + letters * u64::from(b'a' - b'9' - 1)
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for RequestId {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let error = || NameError::new(text, "a request id: 32 hexadecimal digits");
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(error());
        }
        u128::from_str_radix(text, 16).map(Self).map_err(|_| error())
    }
}

/// A SHA-256 of some content: the content's name wherever it is kept.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for Digest {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        let error = || NameError::new(text, "a SHA-256 digest: 64 hexadecimal digits");
        if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(error());
        }
        let mut digest = [0; 32];
        for (i, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| error())?;
        }
        Ok(Self(digest))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
as_text!(Name, ApplicationId, FunctionId, FunctionRef, RequestId, Digest);

macro_rules! debug_as_display {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}
debug_as_display!(Name, ApplicationId, FunctionId, RequestId, Digest);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels() {
        for good in ["a", "gps-ekf", "x9"] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        let long = "a".repeat(64);
        for bad in ["", "-a", "a-", "9a", "A", "a.b", "a/b", "a b", "é", long.as_str()] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }

    #[test]
    fn references_read_back() {
        for text in [
            "resize",
            "shop.resize",
            "resize:3",
            "shop.resize:blue",
            "acme/resize",
            "acme/shop.resize:3",
        ] {
            assert_eq!(text.parse::<FunctionRef>().unwrap().to_string(), text);
        }
        for bad in [
            "", ".", "a.b.c", "a:", "a:0x", "a:B", ":1", "a:1:2", "/a", "a/", "a/b/c", "a.b/c",
        ] {
            assert!(bad.parse::<FunctionRef>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_tenant_is_told_apart_everywhere_and_left_out_for_itself() {
        let (own, other): (FunctionId, FunctionId) = (
            "shop.resize".parse().unwrap(),
            "acme/shop.resize".parse().unwrap(),
        );
        assert_ne!(own, other);
        assert_eq!(other.local(), own);
        assert_eq!(other.tenant().unwrap().as_str(), "acme");
        for id in [own, other] {
            assert_eq!(id.to_string().parse::<FunctionId>().unwrap(), id);
            assert_eq!(FunctionRef::from(&id).to_string(), id.to_string());
            assert!(!id.file_name().contains('/'));
            assert_eq!(FunctionId::from_file_name(&id.file_name()).unwrap(), id);
        }
        for bad in ["a/b/c.d", "/b.c", "a/.c", "a.b/c", "a@b.c"] {
            assert!(bad.parse::<FunctionId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn hex_is_what_display_says() {
        let id = RequestId(0x0123_4567_89ab_cdef_0000_0000_0000_002a);
        assert_eq!(std::str::from_utf8(&id.hex()).unwrap(), id.to_string());
        assert_eq!(id.to_string().parse::<RequestId>().unwrap(), id);
        let digest = Digest([0xab; 32]);
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
    }
}
