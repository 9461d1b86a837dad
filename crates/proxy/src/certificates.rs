//! The certificate and the key of the files, and their successors.
//!
//! Both files are read as a whole, whatever the clock says of them, and compared with what was tried last: a file may be
//! replaced by another of the same age, through a link or in place. Between the writing of one file and the other the two do not
//! fit together; that is a failure like others, after which what was there stays in use.

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::{
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use sha2::{Digest as _, Sha256};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What the node shows to its clients, as it is now.
#[derive(Debug)]
pub struct Certificates {
    certificate: PathBuf,
    key: PathBuf,
    provider: Arc<CryptoProvider>,
    current: ArcSwap<CertifiedKey>,
    /// A digest of what was tried last, be it good or bad.
    tried: Mutex<[u8; 32]>,
}

/// What came of reading the files again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reloaded {
    /// They are as they were.
    Same,
    /// New connections are shown what they hold now.
    New,
}

/// Files that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("failed to read the TLS {what} {path}: {source}. Check the path, and that this user may read it")]
    Read {
        /// Which of the two.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
    /// A file holds something else.
    #[error("the TLS {what} {path} cannot be used: {reason}")]
    Content {
        /// Which of the two.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to try.
        reason: String,
    },
    /// The two files do not belong together.
    #[error(
        "the TLS certificate {certificate} and the key {key} cannot be used together: {reason}. The first certificate of the \
         file must be the server's own, made for this key"
    )]
    Pair {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// In the library's words.
        reason: String,
    },
}

/// A file of certificates and keys is a few kilobytes.
const LARGEST: u64 = 1 << 20;

impl Certificates {
    /// Reads both files: a chain of certificates that begins with the server's own, and its private key, in PEM.
    pub fn load(certificate: &Path, key: &Path) -> Result<Self, CertificateError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let texts = read_both(certificate, key)?;
        let pair = parse(certificate, key, &texts, &provider)?;
        Ok(Self {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            provider,
            current: ArcSwap::from_pointee(pair),
            tried: Mutex::new(digest(&texts)),
        })
    }

    /// Reads both files again. Connections that are open keep what they were shown. A failure leaves everything as it is, and
    /// is told once for each content of the files.
    pub fn reload(&self) -> Result<Reloaded, CertificateError> {
        // Files that cannot be read at all are a content, too.
        let texts = read_both(&self.certificate, &self.key);
        let digest = match &texts {
            Ok(texts) => digest(texts),
            Err(error) => Sha256::digest(error.to_string()).into(),
        };
        let mut tried = self.tried.lock();
        if std::mem::replace(&mut *tried, digest) == digest {
            return Ok(Reloaded::Same);
        }
        let pair = parse(&self.certificate, &self.key, &texts?, &self.provider)?;
        self.current.store(Arc::new(pair));
        Ok(Reloaded::New)
    }

    pub(crate) fn provider(&self) -> Arc<CryptoProvider> {
        self.provider.clone()
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current.load_full())
    }
}

fn read_both(certificate: &Path, key: &Path) -> Result<[Vec<u8>; 2], CertificateError> {
    Ok([read("certificate", certificate)?, read("key", key)?])
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, CertificateError> {
    let failed = |source| CertificateError::Read {
        what,
        path: path.to_owned(),
        source,
    };
    // What is no file may have no end.
    let meta = fs::metadata(path).map_err(failed)?;
    if !meta.is_file() || meta.len() > LARGEST {
        return Err(CertificateError::Content {
            what,
            path: path.to_owned(),
            reason: "it is no file of at most 1 MiB".to_owned(),
        });
    }
    fs::read(path).map_err(failed)
}

fn digest(texts: &[Vec<u8>; 2]) -> [u8; 32] {
    let mut sum = Sha256::new();
    for text in texts {
        sum.update((text.len() as u64).to_le_bytes());
        sum.update(text);
    }
    sum.finalize().into()
}

fn parse(
    certificate: &Path,
    key: &Path,
    [chain, secret]: &[Vec<u8>; 2],
    provider: &CryptoProvider,
) -> Result<CertifiedKey, CertificateError> {
    let content = |what, path: &Path, reason: String| CertificateError::Content {
        what,
        path: path.to_owned(),
        reason,
    };
    let chain = CertificateDer::pem_slice_iter(chain)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| content("certificate", certificate, format!("it is not PEM: {error}")))?;
    if chain.is_empty() {
        let reason =
            "there is no CERTIFICATE in it. Give the server's own first, then those that lead to its root";
        return Err(content("certificate", certificate, reason.to_owned()));
    }
    let secret = PrivateKeyDer::from_pem_slice(secret).map_err(|error| {
        let reason = format!(
            "there is no private key in PEM in it ({error}). One with a passphrase must be unlocked: `openssl pkey -in FILE -out \
             NEW`"
        );
        content("key", key, reason)
    })?;
    CertifiedKey::from_der(chain, secret, provider).map_err(|error| CertificateError::Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
        reason: error.to_string(),
    })
}
