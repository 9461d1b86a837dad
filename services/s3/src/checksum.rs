//! The checksums that S3 takes and keeps with an object.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use crc::{CRC_32_ISCSI, CRC_64_NVME, Crc, Digest, Table};
use http::HeaderMap;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

static CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);
static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_NVME);

/// A kind of checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checksum {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
    Sha512,
}

impl Checksum {
    /// In the order in which botocore prefers them.
    const ALL: [Self; 6] = [
        Self::Crc64Nvme,
        Self::Crc32c,
        Self::Crc32,
        Self::Sha1,
        Self::Sha256,
        Self::Sha512,
    ];

    pub(crate) fn named(name: &str) -> Option<Self> {
        let mut known = Self::ALL.into_iter();
        known.find(|one| one.name().eq_ignore_ascii_case(name))
    }

    /// The checksum of all bytes of an object that is in the head of a reply; not one that was made of its parts' checksums, which ends with
    /// how many these are.
    pub(crate) fn told(headers: &HeaderMap) -> Option<(Self, String)> {
        Self::ALL.into_iter().find_map(|one| {
            let value = headers.get(one.field())?.to_str().ok()?;
            (!value.contains('-')).then(|| (one, value.to_owned()))
        })
    }

    /// As `x-amz-sdk-checksum-algorithm` names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
        }
    }

    /// The header field that it is in.
    pub(crate) fn field(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
            Self::Sha512 => "x-amz-checksum-sha512",
        }
    }

    pub(crate) fn begin(self) -> Summing {
        match self {
            Self::Crc32 => Summing::Crc32(crc32fast::Hasher::new()),
            Self::Crc32c => Summing::Crc32c(CRC32C.digest()),
            Self::Crc64Nvme => Summing::Crc64(CRC64.digest()),
            Self::Sha1 => Summing::Sha1(Sha1::new()),
            Self::Sha256 => Summing::Sha256(Sha256::new()),
            Self::Sha512 => Summing::Sha512(Box::new(Sha512::new())),
        }
    }

    /// Of these bytes, in base64.
    pub(crate) fn of(self, bytes: &[u8]) -> String {
        let mut summing = self.begin();
        summing.add(bytes);
        summing.end()
    }
}

/// A checksum of what has come so far.
pub(crate) enum Summing {
    Crc32(crc32fast::Hasher),
    Crc32c(Digest<'static, u32, Table<16>>),
    Crc64(Digest<'static, u64, Table<16>>),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Box<Sha512>),
}

impl Summing {
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32(hasher) => hasher.update(bytes),
            Self::Crc32c(digest) => digest.update(bytes),
            Self::Crc64(digest) => digest.update(bytes),
            Self::Sha1(hasher) => hasher.update(bytes),
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// In base64, the most significant byte first.
    pub(crate) fn end(self) -> String {
        match self {
            Self::Crc32(hasher) => STANDARD.encode(hasher.finalize().to_be_bytes()),
            Self::Crc32c(digest) => STANDARD.encode(digest.finalize().to_be_bytes()),
            Self::Crc64(digest) => STANDARD.encode(digest.finalize().to_be_bytes()),
            Self::Sha1(hasher) => STANDARD.encode(hasher.finalize()),
            Self::Sha256(hasher) => STANDARD.encode(hasher.finalize()),
            Self::Sha512(hasher) => STANDARD.encode(hasher.finalize()),
        }
    }
}

/// `content-md5` (RFC 1864).
pub(crate) fn md5(bytes: &[u8]) -> String {
    STANDARD.encode(Md5::digest(bytes))
}

/// The ETag of an object in parts, without quotes, by the ETags of its parts; `None` if there are none, or one is no MD5.
pub(crate) fn etag_of_parts(etags: &[&str]) -> Option<String> {
    let mut sum = Md5::new();
    for etag in etags {
        let digits = etag.trim_matches('"').as_bytes();
        let digit = |digit: u8| char::from(digit).to_digit(16);
        if digits.len() != 32 {
            return None;
        }
        for pair in digits.chunks_exact(2) {
            sum.update([(digit(pair[0])? * 16 + digit(pair[1])?) as u8]);
        }
    }
    (!etags.is_empty()).then(|| format!("{}-{}", hex(&sum.finalize()), etags.len()))
}

/// In lower-case hexadecimal digits, as signatures have it.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    /// The check values of the catalogue of CRCs, of RFC 1321, RFC 3174 and FIPS 180, over `123456789`.
    #[test]
    fn known_values() {
        for (name, value) in [
            ("crc32", "y/Q5Jg=="),
            ("crc32c", "4waSgw=="),
            ("crc64nvme", "rosUhgp5mIg="),
            ("sha1", "98O8HYCOBHMq32eZZczDTKeuNEE="),
            ("sha256", "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
            (
                "sha512",
                "2eZ2LdHI6vbWGzxhkvxAjU1tXxF20MKRabwk5xw/J0rSf81YEbMT1oH35V7ALXPUmclUVba1u1A6z1dPuo/+hQ==",
            ),
        ] {
            let checksum = Checksum::named(name).unwrap();
            assert_eq!(checksum.of(b"123456789"), value, "{name}");
            let mut summing = checksum.begin();
            for byte in b"123456789" {
                summing.add(&[*byte]);
            }
            assert_eq!(summing.end(), value, "{name}");
        }
        assert_eq!(md5(b"123456789"), "JfnnlDI7RTiF9RgfG2JNCw==");
        assert_eq!(Checksum::named("md5"), None);
    }

    #[test]
    fn of_what_is_told_that_of_all_bytes_counts() {
        let told = |fields: &[(&'static str, &'static str)]| {
            let fields = fields.iter();
            let headers =
                fields.map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
            Checksum::told(&headers.collect())
        };
        let of_parts = ("x-amz-checksum-crc32c", "4waSgw==-2");
        let sum = ("x-amz-checksum-sha1", "98O8HYCOBHMq32eZZczDTKeuNEE=");
        assert_eq!(told(&[of_parts]), None);
        assert_eq!(told(&[of_parts, sum]), Some((Checksum::Sha1, sum.1.to_owned())));
        let preferred = ("x-amz-checksum-crc64nvme", "rosUhgp5mIg=");
        assert_eq!(
            told(&[sum, preferred]),
            Some((Checksum::Crc64Nvme, preferred.1.to_owned()))
        );
    }
}
