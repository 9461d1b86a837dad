//! Signature Version 4, by the rules of S3: a path is signed as it is sent, neither encoded twice nor made plain.

use aws::{Fields, Identity};
use aws_credential_types::Credentials;
use aws_sigv4::{
    SigningOutput,
    http_request::{
        PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SignatureLocation,
        SigningSettings, UriPathNormalizationMode, sign as signature,
    },
    sign::v4::{self, sign_chunk, sign_trailer},
};
use bytes::Bytes;
use contract::CallError;
use http::{HeaderMap, HeaderValue};
use std::time::{Duration, SystemTime};

/// What a signature says of the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// Its SHA-256, in hexadecimal digits.
    Hashed(String),
    /// Nothing.
    Unsigned,
    /// Nothing, and that a checksum comes behind it.
    Trailed,
    /// That each chunk is signed.
    Chunks,
    /// The same, and that a checksum comes behind them, which is, too.
    TrailedChunks,
}

impl Content {
    /// Whether a [`Chain`] is to sign what comes.
    pub(crate) fn is_chunks(&self) -> bool {
        matches!(self, Self::Chunks | Self::TrailedChunks)
    }

    fn signable(&self) -> SignableBody<'static> {
        match self {
            Self::Hashed(digest) => SignableBody::Precomputed(digest.clone()),
            Self::Unsigned => SignableBody::UnsignedPayload,
            Self::Trailed => SignableBody::StreamingUnsignedPayloadTrailer,
            // In place of a digest, it is signed and sent as one is.
            Self::Chunks => SignableBody::Precomputed("STREAMING-AWS4-HMAC-SHA256-PAYLOAD".to_owned()),
            Self::TrailedChunks => SignableBody::StreamingSignedPayloadTrailer,
        }
    }
}

/// Who signs, for where, when. Without an identity nothing is signed.
pub(crate) struct Signer<'a> {
    pub(crate) identity: Option<&'a Identity>,
    pub(crate) region: &'a str,
    pub(crate) time: SystemTime,
}

impl Signer<'_> {
    /// Signs a request that will have no fields but these, `host` and those that are added.
    pub(crate) fn sign<B>(&self, request: &mut http::Request<B>, content: &Content) -> Result<(), CallError> {
        let Some(identity) = self.identity else {
            if *content == Content::Trailed {
                let said = HeaderValue::from_static("STREAMING-UNSIGNED-PAYLOAD-TRAILER");
                request.headers_mut().insert("x-amz-content-sha256", said);
            }
            return Ok(());
        };
        let mut settings = settings();
        settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
        self.apply(request, identity, settings, content.signable())
    }

    /// What signs the chunks of a request's body, once its head is signed; `None` if nobody has.
    pub(crate) fn chain<B>(&self, request: &http::Request<B>) -> Option<Chain> {
        let authorization = request.headers().get(http::header::AUTHORIZATION)?;
        let (_, last) = authorization.to_str().ok()?.rsplit_once("Signature=")?;
        // Whose keys are of another kind would not have signed.
        self.keys()?;
        Some(Chain {
            identity: self.identity?.clone(),
            region: self.region.to_owned(),
            time: self.time,
            last: last.to_owned(),
        })
    }

    /// A URL by which anyone can do this until then, with these fields.
    pub(crate) fn presign(
        &self,
        method: &http::Method,
        url: &str,
        fields: &HeaderMap,
        lifetime: Duration,
    ) -> Result<String, CallError> {
        let Some(identity) = self.identity else {
            return Ok(url.to_owned());
        };
        let mut request = http::Request::new(());
        *request.method_mut() = method.clone();
        *request.uri_mut() = url.parse().map_err(|_| unfit())?;
        *request.headers_mut() = fields.clone();
        let mut settings = settings();
        settings.signature_location = SignatureLocation::QueryParams;
        settings.expires_in = Some(lifetime);
        self.apply(&mut request, identity, settings, SignableBody::UnsignedPayload)?;
        Ok(request.uri().to_string())
    }

    /// Who signs, if anybody does.
    pub(crate) fn keys(&self) -> Option<&Credentials> {
        self.identity?.data()
    }

    /// The signature of a text, in hexadecimal digits.
    pub(crate) fn signature(&self, text: &[u8]) -> Option<String> {
        let secret = self.keys()?.secret_access_key();
        let key = v4::generate_signing_key(secret, self.time, self.region, "s3");
        Some(v4::calculate_signature(key, text))
    }

    fn apply<B>(
        &self,
        request: &mut http::Request<B>,
        identity: &Identity,
        settings: SigningSettings,
        body: SignableBody<'_>,
    ) -> Result<(), CallError> {
        let parameters = v4::SigningParams::builder()
            .identity(identity)
            .region(self.region)
            .name("s3")
            .time(self.time)
            .settings(settings)
            .build();
        let parameters = parameters.map_err(|_| unfit())?.into();
        let fields = request.headers().iter();
        // Those that are no text were not taken.
        let fields = fields
            .filter_map(|(name, value)| Some((name.as_str(), std::str::from_utf8(value.as_bytes()).ok()?)));
        let url = request.uri().to_string();
        let signable = SignableRequest::new(request.method().as_str(), url, fields, body);
        let signed = signable.and_then(|signable| signature(signable, &parameters));
        let (instructions, _) = signed.map_err(|_| unfit())?.into_parts();
        instructions.apply_to_request_http1x(request);
        Ok(())
    }
}

/// Signs chunks in their order: each signature is of the one before it, too.
pub(crate) struct Chain {
    identity: Identity,
    region: String,
    time: SystemTime,
    last: String,
}

impl Chain {
    /// Of the next chunk, in hexadecimal digits.
    pub(crate) fn chunk(&mut self, chunk: &Bytes) -> Option<&str> {
        self.next(|last, parameters| sign_chunk(chunk, last, parameters))
    }

    /// Of the one field that comes behind the last.
    pub(crate) fn trailer(&mut self, name: &'static str, value: String) -> Option<&str> {
        let mut fields = Fields::new();
        fields.insert(name, value);
        self.next(|last, parameters| sign_trailer(&fields, last, parameters))
    }

    fn next<E>(
        &mut self,
        sign: impl FnOnce(&str, &v4::SigningParams<'_, ()>) -> Result<SigningOutput<()>, E>,
    ) -> Option<&str> {
        let parameters = v4::SigningParams::builder()
            .identity(&self.identity)
            .region(&self.region)
            .name("s3")
            .time(self.time)
            .settings(())
            .build()
            .ok()?;
        let (_, signature) = sign(&self.last, &parameters).ok()?.into_parts();
        self.last = signature;
        Some(&self.last)
    }
}

/// What cannot be signed is not said: an error's text might have a part of what signs.
fn unfit() -> CallError {
    CallError::Broken("the request cannot be signed".to_owned())
}

fn settings() -> SigningSettings {
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::checksum::sha256_hex;
    use aws::identity;
    use std::time::UNIX_EPOCH;

    /// The examples of "Signature Calculations for the Authorization Header" and "Authenticating Requests: Using Query
    /// Parameters" in the Amazon S3 API reference, all on 24 May 2013.
    const THEN: Duration = Duration::from_secs(1_369_353_600);

    fn keys(token: Option<&str>) -> Identity {
        identity(
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            token,
            None,
        )
    }

    fn signer(identity: &Identity) -> Signer<'_> {
        Signer {
            identity: Some(identity),
            region: "us-east-1",
            time: UNIX_EPOCH + THEN,
        }
    }

    /// After a head with this signature.
    pub(crate) fn chain(last: &str) -> Chain {
        Chain {
            identity: keys(None),
            region: "us-east-1".to_owned(),
            time: UNIX_EPOCH + THEN,
            last: last.to_owned(),
        }
    }

    fn signed(method: &str, path: &str, fields: &[(&'static str, &str)], body: &[u8]) -> HeaderMap {
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("https://examplebucket.s3.amazonaws.com{path}"));
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).unwrap();
        let content = Content::Hashed(sha256_hex(body));
        signer(&keys(None)).sign(&mut request, &content).unwrap();
        request.headers().clone()
    }

    #[test]
    fn the_examples_of_the_reference() {
        for (method, path, fields, body, signature) in [
            (
                "GET",
                "/test.txt",
                &[("range", "bytes=0-9")][..],
                &b""[..],
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                "PUT",
                "/test%24file.text",
                &[
                    ("date", "Fri, 24 May 2013 00:00:00 GMT"),
                    ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                ],
                b"Welcome to Amazon S3.",
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                "GET",
                "/?lifecycle",
                &[],
                b"",
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                "GET",
                "/?max-keys=2&prefix=J",
                &[],
                b"",
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            let fields = signed(method, path, fields, body);
            let authorization = fields["authorization"].to_str().unwrap();
            assert!(
                authorization.ends_with(&format!("Signature={signature}")),
                "{path}: {authorization}"
            );
            assert_eq!(fields["x-amz-date"], "20130524T000000Z");
            assert_eq!(fields["x-amz-content-sha256"], sha256_hex(body));
        }
    }

    #[test]
    fn the_example_of_a_presigned_url() {
        let identity = keys(None);
        let url = signer(&identity).presign(
            &http::Method::GET,
            "https://examplebucket.s3.amazonaws.com/test.txt",
            &HeaderMap::new(),
            Duration::from_secs(86400),
        );
        let url = url.unwrap();
        assert!(
            url.ends_with("X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"),
            "{url}"
        );
        for part in [
            "https://examplebucket.s3.amazonaws.com/test.txt?",
            "X-Amz-Algorithm=AWS4-HMAC-SHA256",
            "X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request",
            "X-Amz-Date=20130524T000000Z",
            "X-Amz-Expires=86400",
            "X-Amz-SignedHeaders=host",
        ] {
            assert!(url.contains(part), "{url}: {part}");
        }
    }

    #[test]
    fn what_is_sent_is_not_made_plain() {
        let identity = keys(Some("token"));
        let path = "https://h/bucket//a/../%2525/./?prefix=a%2Bb";
        let mut request = http::Request::builder().uri(path).body(()).unwrap();
        signer(&identity).sign(&mut request, &Content::Unsigned).unwrap();
        assert_eq!(request.uri(), path);
        assert_eq!(request.headers()["x-amz-security-token"], "token");
        assert_eq!(request.headers()["x-amz-content-sha256"], "UNSIGNED-PAYLOAD");
        assert!(request.headers()["x-amz-security-token"].is_sensitive());
        let presigned = signer(&identity).presign(
            &http::Method::PUT,
            path,
            &[(http::header::CONTENT_TYPE, HeaderValue::from_static("a/b"))]
                .into_iter()
                .collect(),
            Duration::from_secs(1),
        );
        let presigned = presigned.unwrap();
        assert!(
            presigned.starts_with("https://h/bucket//a/../%2525/./?prefix=a%2Bb&"),
            "{presigned}"
        );
        assert!(
            presigned.contains("X-Amz-SignedHeaders=content-type%3Bhost"),
            "{presigned}"
        );
        assert!(presigned.contains("X-Amz-Security-Token=token"), "{presigned}");
    }

    #[test]
    fn without_an_identity_nothing_is_signed() {
        let nobody = Signer {
            identity: None,
            region: "us-east-1",
            time: UNIX_EPOCH,
        };
        let mut request = http::Request::builder().uri("http://h/b").body(()).unwrap();
        nobody.sign(&mut request, &Content::Unsigned).unwrap();
        assert!(request.headers().is_empty());
        let url = nobody.presign(&http::Method::GET, "http://h/b", &HeaderMap::new(), THEN);
        assert_eq!(url.as_deref(), Ok("http://h/b"));
    }
}
