//! Who sent a request: AWS Signature Version 4, as
//! [its reference](https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html) has it,
//! in the form of an `Authorization` header.
//!
//! A request is checked in two steps. [`Keys::claim`] reads the head, before anything is done for the request: which key it
//! names, for what, and when; what is wrong with that is known at once. [`Claim::check`] has the payload too, whose digest is
//! the last line of what was signed. The order of refusals is AWS's: nobody without a good signature learns more than that.
//!
//! What was signed is made from the request as it was received. Lambda's paths are encoded once more than they are on the wire
//! (`%3A` is signed as `%253A`); only S3's are not.

use crate::Rejection;
use contract::{Head, Name};
use hmac::{Hmac, KeyInit as _, Mac as _};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use serde::{Deserialize, Deserializer, de};
use sha2::{Digest as _, Sha256};
use std::{
    collections::HashMap,
    fmt,
    time::{Duration, SystemTime},
};
use zeroize::Zeroizing;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "lambda";
const TERMINATOR: &str = "aws4_request";
/// How far a request's date may be from the node's clock, in either direction.
const WINDOW: Duration = Duration::from_secs(5 * 60);
/// All but the unreserved characters (RFC 3986, section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
const IN_PATHS: &AsciiSet = &RESERVED.remove(b'/');
/// Some clients add it after they have signed. It belongs to credentials that others issue, and means nothing here.
const UNSIGNED: &str = "x-amz-security-token";

const NO_MATCH: &str = "The request signature we calculated does not match the signature you provided. Check your AWS Secret \
                        Access Key and signing method. Consult the service documentation for details.";

/// The secret half of an access key. It shows itself nowhere, and its memory is wiped when it goes.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes it.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// Whether there is nothing to it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // What stands there by mistake may be the secret all the same, and an error would show it.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Value {
            Text(String),
            Other(de::IgnoredAny),
        }
        match Value::deserialize(deserializer)? {
            Value::Text(text) => Ok(Self::new(text)),
            Value::Other(_) => Err(de::Error::custom("a secret is a text, in quotes")),
        }
    }
}

/// The access keys with which requests may be signed, by their ids. Without any, every request is taken, signed or not.
#[derive(Debug, Default)]
pub struct Keys(HashMap<String, Key>);

/// The secret of an access key, and whose requests it signs.
#[derive(Clone, Debug)]
pub struct Key {
    /// What its holder signs with.
    pub secret: Secret,
    /// The tenant; `None` is the node's own.
    pub tenant: Option<Name>,
}

impl From<Secret> for Key {
    /// A key of the node's own tenant.
    fn from(secret: Secret) -> Self {
        Self { secret, tenant: None }
    }
}

impl<K: Into<Key>> FromIterator<(String, K)> for Keys {
    fn from_iter<T: IntoIterator<Item = (String, K)>>(keys: T) -> Self {
        Self(keys.into_iter().map(|(id, key)| (id, key.into())).collect())
    }
}

impl Keys {
    /// What a request's head says of who signed it, to be checked with the payload; `None` if there are no keys.
    pub fn claim(&self, head: &Head, now: SystemTime) -> Result<Option<Claim>, Rejection> {
        if self.0.is_empty() {
            return Ok(None);
        }
        self.claim_for(SERVICE, head, now).map(Some)
    }

    fn claim_for(&self, service: &str, head: &Head, now: SystemTime) -> Result<Claim, Rejection> {
        let said = Authorization::read(head)?;
        let date = Date::read(head)?;
        let scope = said.credential.scope(service, date.text)?;
        // The ids are no secrets: whoever looks for one is told that it is none.
        let key = self
            .0
            .get(said.credential.id)
            .ok_or_else(Rejection::unknown_key)?;
        date.check(now)?;
        let canonical = canonical(head, said.signed)?;
        Ok(Claim {
            mac: signing_mac(&key.secret, &said.credential),
            tenant: key.tenant.clone(),
            canonical,
            to_sign: format!("{ALGORITHM}\n{}\n{scope}\n", date.text),
            signature: said.signature,
        })
    }
}

/// A signature that is good if the payload is.
pub struct Claim {
    /// Under the key that this secret has for a day, a region and a service.
    mac: Hmac<Sha256>,
    /// The canonical request but for its last line, the payload's digest.
    canonical: Vec<u8>,
    /// The string to sign but for its last line, the canonical request's digest.
    to_sign: String,
    signature: [u8; 32],
    tenant: Option<Name>,
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claim").finish_non_exhaustive()
    }
}

impl Claim {
    /// Whose key it names; `None` is the node's own tenant.
    pub fn tenant(&self) -> Option<&Name> {
        self.tenant.as_ref()
    }

    /// Whether the holder of the key signed the head with this payload. Takes as long for a bad signature as for a good one.
    pub fn check(&self, payload: &[u8]) -> Result<(), Rejection> {
        let request = Sha256::new()
            .chain_update(&self.canonical)
            .chain_update(hex(&Sha256::digest(payload)))
            .finalize();
        self.mac
            .clone()
            .chain_update(&self.to_sign)
            .chain_update(hex(&request))
            .verify_slice(&self.signature)
            .map_err(|_| Rejection::signature(NO_MATCH))
    }
}

/// What the `Authorization` header says.
struct Authorization<'a> {
    credential: Credential<'a>,
    /// The names of the signed headers, separated by `;`.
    signed: &'a str,
    signature: [u8; 32],
}

struct Credential<'a> {
    id: &'a str,
    day: &'a str,
    region: &'a str,
    service: &'a str,
    terminator: &'a str,
}

impl<'a> Authorization<'a> {
    fn read(head: &'a Head) -> Result<Self, Rejection> {
        let mut all = head
            .headers()
            .filter(|(name, _)| name.eq_ignore_ascii_case("authorization"));
        let value = match (all.next(), all.next()) {
            (None, _) => return Err(Rejection::no_signature()),
            (Some((_, value)), None) => std::str::from_utf8(value).unwrap_or_default().trim(),
            (Some(_), Some(_)) => {
                return Err(Rejection::incomplete(
                    "there is more than one Authorization header",
                ));
            }
        };
        let (algorithm, parameters) = value.split_once(' ').unwrap_or((value, ""));
        if algorithm != ALGORITHM {
            return Err(Rejection::incomplete(format!(
                "Authorization header requires the algorithm '{ALGORITHM}' at its beginning"
            )));
        }
        let mut found = [("Credential", None), ("SignedHeaders", None), ("Signature", None)];
        for parameter in parameters.split(',') {
            let (name, value) = parameter.trim().split_once('=').unwrap_or_default();
            match found.iter_mut().find(|(known, _)| *known == name) {
                Some((_, place @ None)) => *place = Some(value),
                _ => {
                    return Err(Rejection::incomplete(
                        "Authorization header has a parameter that is not one of 'Credential', 'SignedHeaders' and \
                         'Signature', or one of them twice",
                    ));
                }
            }
        }
        let [(_, Some(credential)), (_, Some(signed)), (_, Some(signature))] = found else {
            let missing = found.iter().filter(|(_, value)| value.is_none());
            let messages =
                missing.map(|(name, _)| format!("Authorization header requires '{name}' parameter."));
            return Err(Rejection::incomplete(messages.collect::<Vec<_>>().join(" ")));
        };
        let parts: Vec<_> = credential.split('/').collect();
        let [id, day, region, service, terminator] = parts[..] else {
            return Err(Rejection::incomplete(
                "Credential must have exactly 5 slash-delimited elements: keyid/date/region/service/aws4_request",
            ));
        };
        Ok(Self {
            credential: Credential {
                id,
                day,
                region,
                service,
                terminator,
            },
            signed,
            signature: unhex(signature).ok_or_else(|| {
                Rejection::incomplete("Signature must be 64 hexadecimal digits, in lower case")
            })?,
        })
    }
}

impl Credential<'_> {
    /// What the signing key is for, if that is this service, and the day of the request's date.
    fn scope(&self, service: &str, date: &str) -> Result<String, Rejection> {
        if self.terminator != TERMINATOR {
            return Err(Rejection::signature(format!(
                "Credential should be scoped with a valid terminator: '{TERMINATOR}'."
            )));
        }
        if self.service != service {
            return Err(Rejection::signature(format!(
                "Credential should be scoped to correct service: '{service}'."
            )));
        }
        if self.region.is_empty() {
            return Err(Rejection::signature("Credential should be scoped to a region."));
        }
        if !date.starts_with(self.day) || self.day.len() != DAY {
            return Err(Rejection::signature(format!(
                "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: {date}"
            )));
        }
        Ok(format!("{}/{}/{service}/{TERMINATOR}", self.day, self.region))
    }
}

/// When a request says that it was made.
struct Date<'a> {
    /// As `20150830T123600Z`.
    text: &'a str,
    time: SystemTime,
}

/// Length of `YYYYMMDD`.
const DAY: usize = 8;

impl<'a> Date<'a> {
    fn read(head: &'a Head) -> Result<Self, Rejection> {
        let value = head.header("x-amz-date").ok_or_else(|| {
            Rejection::incomplete("Authorization header requires existence of a 'X-Amz-Date' header.")
        })?;
        let parsed = std::str::from_utf8(value)
            .ok()
            .map(str::trim)
            .and_then(|text| Some((text, basic(text)?)));
        match parsed {
            Some((text, time)) => Ok(Self { text, time }),
            None => Err(Rejection::incomplete(
                "Date must be in ISO-8601 'basic format', as 20150830T123600Z. See http://en.wikipedia.org/wiki/ISO_8601",
            )),
        }
    }

    fn check(&self, now: SystemTime) -> Result<(), Rejection> {
        let (then, text) = (self.time, self.text);
        let earliest = now.checked_sub(WINDOW).unwrap_or(SystemTime::UNIX_EPOCH);
        if then < earliest {
            return Err(Rejection::signature(format!(
                "Signature expired: {text} is now earlier than {} ({} - 5 min.)",
                basic_text(earliest),
                basic_text(now)
            )));
        }
        let latest = now + WINDOW;
        if then > latest {
            return Err(Rejection::signature(format!(
                "Signature not yet current: {text} is still later than {} ({} + 5 min.)",
                basic_text(latest),
                basic_text(now)
            )));
        }
        Ok(())
    }
}

/// Reads `20150830T123600Z`.
fn basic(text: &str) -> Option<SystemTime> {
    let digits = |from: usize, to: usize| {
        let part = text.get(from..to)?;
        part.bytes().all(|b| b.is_ascii_digit()).then_some(part)
    };
    if text.len() != 16 || text.get(8..9)? != "T" || text.get(15..)? != "Z" {
        return None;
    }
    let (year, month, day) = (digits(0, 4)?, digits(4, 6)?, digits(6, 8)?);
    let (hour, minute, second) = (digits(9, 11)?, digits(11, 13)?, digits(13, 15)?);
    humantime::parse_rfc3339(&format!("{year}-{month}-{day}T{hour}:{minute}:{second}Z")).ok()
}

fn basic_text(time: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.replace(['-', ':'], "")
}

/// The canonical request but for the payload's digest. `signed` names the signed headers.
fn canonical(head: &Head, signed: &str) -> Result<Vec<u8>, Rejection> {
    let names: Vec<_> = signed.split(';').collect();
    // Without these a request could be led elsewhere, or its meaning be changed.
    let needed = head.headers().map(|(name, _)| name.to_ascii_lowercase());
    let needed = needed.filter(|name| name.starts_with("x-amz-") && name != UNSIGNED);
    let mut needed = std::iter::once("host".to_owned()).chain(needed);
    if let Some(name) = needed.find(|name| !names.contains(&name.as_str())) {
        return Err(Rejection::signature(format!(
            "'{name}' must be a 'SignedHeader' in the AWS Authorization."
        )));
    }
    let mut text = Vec::with_capacity(1024);
    text.extend_from_slice(head.method().as_bytes());
    text.push(b'\n');
    text.extend_from_slice(canonical_path(head.path()).as_bytes());
    text.push(b'\n');
    text.extend_from_slice(canonical_query(head.query()).as_bytes());
    text.push(b'\n');
    for wanted in names {
        text.extend_from_slice(wanted.as_bytes());
        text.push(b':');
        let mut values = head
            .headers()
            .filter(|(name, _)| is_lower_of(wanted, name))
            .map(|(_, value)| value)
            .peekable();
        if values.peek().is_none() {
            return Err(Rejection::signature(format!(
                "the signed header '{wanted}' did not arrive; names of signed headers are in lower case, and what a proxy \
                 takes out cannot be signed"
            )));
        }
        for (index, value) in values.enumerate() {
            if index > 0 {
                text.push(b',');
            }
            let words = value
                .split(u8::is_ascii_whitespace)
                .filter(|word| !word.is_empty());
            for (index, word) in words.enumerate() {
                if index > 0 {
                    text.push(b' ');
                }
                text.extend_from_slice(word);
            }
        }
        text.push(b'\n');
    }
    text.push(b'\n');
    text.extend_from_slice(signed.as_bytes());
    text.push(b'\n');
    Ok(text)
}

fn is_lower_of(lower: &str, name: &str) -> bool {
    lower.len() == name.len()
        && lower
            .bytes()
            .zip(name.bytes())
            .all(|(lower, byte)| lower == byte.to_ascii_lowercase())
}

/// Without dot segments and empty ones (RFC 3986, section 5.2.4), each byte encoded, what was encoded already once more.
fn canonical_path(path: &str) -> String {
    let mut segments = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                segments.pop();
            }
            other => segments.push(other),
        }
    }
    let mut normal = format!("/{}", segments.join("/"));
    if path.ends_with('/') && !segments.is_empty() {
        normal.push('/');
    }
    percent_encode(normal.as_bytes(), IN_PATHS).to_string()
}

/// Names and values encoded in one way, in the order of the names, then of the values.
fn canonical_query(query: &str) -> String {
    let encode = |text: &str| {
        let bytes: Vec<u8> = percent_decode_str(text).collect();
        percent_encode(&bytes, RESERVED).to_string()
    };
    let mut pairs: Vec<_> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (encode(name), encode(value)))
        .collect();
    pairs.sort();
    let pairs = pairs.iter().map(|(name, value)| format!("{name}={value}"));
    pairs.collect::<Vec<_>>().join("&")
}

/// An HMAC under the key that is derived from the secret for a day, a region and a service.
fn signing_mac(secret: &Secret, credential: &Credential<'_>) -> Hmac<Sha256> {
    let first = Zeroizing::new([b"AWS4", secret.0.as_bytes()].concat());
    let steps = [
        credential.day,
        credential.region,
        credential.service,
        credential.terminator,
    ];
    steps.iter().fold(mac(&first), |key, step| {
        mac(&key.chain_update(step).finalize().into_bytes())
    })
}

fn mac(key: &[u8]) -> Hmac<Sha256> {
    // Longer keys than a block are hashed, shorter ones filled up.
    Hmac::new_from_slice(key).expect("a key of HMAC has any length")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads 64 digits, in lower case as they are made.
fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let digits = text.as_bytes();
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    if digits.len() != 64 {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
#[path = "signature_tests.rs"]
mod tests;
