//! Digests of data: the MD5 that becomes an ETag, and the checksums that clients ask for.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/userguide/checking-object-integrity.html>

use base64::{Engine, engine::general_purpose::STANDARD};
use crc_fast::{CrcAlgorithm, checksum_combine};
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256};
use serde::{Deserialize, Serialize};

/// What S3 can check data with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
}

impl Algorithm {
    pub(crate) const ALL: [Self; 5] = [
        Self::Crc32,
        Self::Crc32c,
        Self::Crc64Nvme,
        Self::Sha1,
        Self::Sha256,
    ];

    /// As the protocol writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|one| one.name().eq_ignore_ascii_case(name))
    }

    /// Bytes of a digest.
    fn length(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The CRC, if it is one: only those can be combined.
    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Self::Sha1 | Self::Sha256 => None,
        }
    }

    /// Of an upload in parts whose client did not say the kind.
    pub(crate) fn default_kind(self) -> Kind {
        if self == Self::Crc64Nvme {
            Kind::FullObject
        } else {
            Kind::Composite
        }
    }

    /// Whether an upload in parts can have it.
    pub(crate) fn takes(self, kind: Kind) -> bool {
        match kind {
            Kind::FullObject => self.crc().is_some(),
            Kind::Composite => self != Self::Crc64Nvme,
        }
    }

    /// Whether a text can be a digest in base 64.
    pub(crate) fn is_digest(self, text: &str) -> bool {
        STANDARD
            .decode(text)
            .is_ok_and(|bytes| bytes.len() == self.length())
    }
}

/// What a checksum is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// The object's bytes.
    FullObject,
    /// The digests of its parts.
    Composite,
}

impl Kind {
    /// As the protocol writes it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FullObject => "FULL_OBJECT",
            Self::Composite => "COMPOSITE",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::FullObject, Self::Composite]
            .into_iter()
            .find(|one| one.name() == name)
    }
}

/// A checksum that is kept with an object or a part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sum {
    pub(crate) algorithm: Algorithm,
    pub(crate) kind: Kind,
    /// In base 64; a composite one ends in `-` and the number of parts.
    pub(crate) value: String,
}

enum State {
    Crc32(Crc32),
    Crc32c(Crc32c),
    Crc64Nvme(Crc64Nvme),
    Sha1(Sha1),
    Sha256(Sha256),
}

impl State {
    fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Crc32 => Self::Crc32(Crc32::new()),
            Algorithm::Crc32c => Self::Crc32c(Crc32c::new()),
            Algorithm::Crc64Nvme => Self::Crc64Nvme(Crc64Nvme::new()),
            Algorithm::Sha1 => Self::Sha1(Sha1::new()),
            Algorithm::Sha256 => Self::Sha256(Sha256::new()),
        }
    }

    fn update(&mut self, data: &[u8]) {
        match self {
            Self::Crc32(state) => state.update(data),
            Self::Crc32c(state) => state.update(data),
            Self::Crc64Nvme(state) => state.update(data),
            Self::Sha1(state) => state.update(data),
            Self::Sha256(state) => state.update(data),
        }
    }

    fn finish(self) -> String {
        match self {
            Self::Crc32(state) => STANDARD.encode(state.finalize()),
            Self::Crc32c(state) => STANDARD.encode(state.finalize()),
            Self::Crc64Nvme(state) => STANDARD.encode(state.finalize()),
            Self::Sha1(state) => STANDARD.encode(state.finalize()),
            Self::Sha256(state) => STANDARD.encode(state.finalize()),
        }
    }
}

/// Digests of data that comes piece by piece.
pub(crate) struct Hasher {
    md5: Md5,
    sums: Vec<(Algorithm, State)>,
    size: u64,
}

/// What a [`Hasher`] came to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Digests {
    pub(crate) md5: [u8; 16],
    /// In base 64.
    pub(crate) sums: Vec<(Algorithm, String)>,
    /// Bytes.
    pub(crate) size: u64,
}

impl Hasher {
    /// MD5, and each of these algorithms once.
    pub(crate) fn new(algorithms: &[Algorithm]) -> Self {
        let mut sums: Vec<(Algorithm, State)> = Vec::with_capacity(algorithms.len());
        for &algorithm in algorithms {
            if sums.iter().all(|(one, _)| *one != algorithm) {
                sums.push((algorithm, State::new(algorithm)));
            }
        }
        Self {
            md5: Md5::new(),
            sums,
            size: 0,
        }
    }

    pub(crate) fn update(&mut self, data: &[u8]) {
        self.md5.update(data);
        for (_, state) in &mut self.sums {
            state.update(data);
        }
        self.size += data.len() as u64;
    }

    pub(crate) fn finish(self) -> Digests {
        Digests {
            md5: self.md5.finalize(),
            sums: self
                .sums
                .into_iter()
                .map(|(algorithm, state)| (algorithm, state.finish()))
                .collect(),
            size: self.size,
        }
    }
}

impl Digests {
    pub(crate) fn sum(&self, algorithm: Algorithm) -> Option<&str> {
        let (_, value) = self.sums.iter().find(|(one, _)| *one == algorithm)?;
        Some(value)
    }

    /// The ETag of an object that was put at once, without quotes.
    pub(crate) fn etag(&self) -> String {
        hex(&self.md5)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The MD5 in base 64, as `Content-MD5` has it.
pub(crate) fn decode_md5(text: &str) -> Option<[u8; 16]> {
    STANDARD.decode(text).ok()?.try_into().ok()
}

/// The ETag of an object in parts, of the ETags of its parts; `None` if one is no MD5.
pub(crate) fn etag_of_parts<'a>(etags: impl ExactSizeIterator<Item = &'a str>) -> Option<String> {
    let count = etags.len();
    let mut md5 = Md5::new();
    for etag in etags {
        if etag.len() != 32 || !etag.is_ascii() {
            return None;
        }
        for at in (0..32).step_by(2) {
            md5.update(&[u8::from_str_radix(etag.get(at..at + 2)?, 16).ok()?]);
        }
    }
    Some(format!("{}-{count}", hex(&md5.finalize())))
}

/// The checksum of an object in parts, of those of its parts with their sizes in bytes; `None` if one is no digest.
pub(crate) fn sum_of_parts(algorithm: Algorithm, kind: Kind, parts: &[(&str, u64)]) -> Option<Sum> {
    let value = match kind {
        Kind::Composite => {
            let mut state = State::new(algorithm);
            for (part, _) in parts {
                state.update(&STANDARD.decode(part).ok()?);
            }
            format!("{}-{}", state.finish(), parts.len())
        }
        Kind::FullObject => {
            let crc = algorithm.crc()?;
            // The CRC of nothing is 0 in all three.
            let mut whole = 0;
            for (part, size) in parts {
                let digest = STANDARD.decode(part).ok()?;
                let digest = digest.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                whole = checksum_combine(crc, whole, digest, *size);
            }
            let bytes = whole.to_be_bytes();
            STANDARD.encode(bytes.get(8 - algorithm.length()..)?)
        }
    };
    Some(Sum {
        algorithm,
        kind,
        value,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn digests(data: &[u8]) -> Digests {
        let mut hasher = Hasher::new(&Algorithm::ALL);
        hasher.update(data);
        hasher.finish()
    }

    /// Values of `md5sum`, `sha1sum`, `sha256sum`, and of awscrt's checksums.
    #[test]
    fn known_digests() {
        let digests = digests(b"hello");
        assert_eq!(digests.etag(), "5d41402abc4b2a76b9719d911017c592");
        assert_eq!(digests.sum(Algorithm::Crc32), Some("NhCmhg=="));
        assert_eq!(digests.sum(Algorithm::Crc32c), Some("mnG7TA=="));
        assert_eq!(digests.sum(Algorithm::Sha1), Some("qvTGHdzF6KLavt4PO0gs2a6pQ00="));
        assert_eq!(
            digests.sum(Algorithm::Sha256),
            Some("LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=")
        );
        // The check value of CRC-64/NVME, https://reveng.sourceforge.io/crc-catalogue/all.htm
        let check = super::tests::digests(b"123456789");
        let crc = STANDARD.decode(check.sum(Algorithm::Crc64Nvme).unwrap()).unwrap();
        assert_eq!(hex(&crc), "ae8b14860a799888");
    }

    /// The value that AWS gives two parts of 5 MiB of `a` and 10 bytes of `b`; `md5sum` says the same.
    #[test]
    fn etag_of_two_parts() {
        let parts = [digests(&vec![b'a'; 5 << 20]).etag(), digests(&[b'b'; 10]).etag()];
        let whole: Vec<u8> = parts
            .iter()
            .flat_map(|etag| {
                (0..32)
                    .step_by(2)
                    .map(|at| u8::from_str_radix(&etag[at..at + 2], 16).unwrap())
            })
            .collect();
        assert_eq!(
            etag_of_parts(parts.iter().map(String::as_str)),
            Some(format!("{}-2", digests(&whole).etag()))
        );
        assert_eq!(etag_of_parts(["é".repeat(16).as_str()].into_iter()), None);
    }

    proptest! {
        #[test]
        fn a_full_checksum_of_parts_is_that_of_the_whole(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..6)) {
            let whole = digests(&parts.concat());
            let pieces: Vec<_> = parts.iter().map(|part| digests(part)).collect();
            for algorithm in [Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Crc64Nvme] {
                let sums: Vec<_> = pieces.iter().map(|piece| (piece.sum(algorithm).unwrap(), piece.size)).collect();
                let combined = sum_of_parts(algorithm, Kind::FullObject, &sums).unwrap();
                prop_assert_eq!(Some(combined.value.as_str()), whole.sum(algorithm));
            }
        }
    }
}
