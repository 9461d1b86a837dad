//! Signature Version 4 of requests to services of AWS other than S3, whose rules are
//! [its own](https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html).

use crate::Identity;
use aws_sigv4::{
    http_request::{SignableBody, SignableRequest, SigningSettings, sign as signature},
    sign::v4,
};
use contract::CallError;
use std::time::SystemTime;

/// Who signs, for which service of which region, when.
pub struct Signer<'a> {
    /// As whom.
    pub identity: &'a Identity,
    /// The name by which the service checks signatures, such as `sts`.
    pub service: &'a str,
    /// Its region.
    pub region: &'a str,
    /// When. Services take what is not more than some minutes away from their own clock.
    pub time: SystemTime,
}

impl Signer<'_> {
    /// Signs a request with this body, which will have no fields but its own, `host` and those that are added.
    ///
    /// # Errors
    /// It has something that cannot be signed. What that is is not said: an error's text might have a part of what signs.
    pub fn sign<B>(&self, request: &mut http::Request<B>, body: &[u8]) -> Result<(), CallError> {
        let unfit = || CallError::Broken("the request cannot be signed".to_owned());
        let parameters = v4::SigningParams::builder()
            .identity(self.identity)
            .region(self.region)
            .name(self.service)
            .time(self.time)
            .settings(SigningSettings::default())
            .build();
        let parameters = parameters.map_err(|_| unfit())?.into();
        let fields = request.headers().iter();
        let fields = fields.filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)));
        let url = request.uri().to_string();
        let body = SignableBody::Bytes(body);
        let signable = SignableRequest::new(request.method().as_str(), url, fields, body);
        let signed = signable.and_then(|signable| signature(signable, &parameters));
        let (instructions, _) = signed.map_err(|_| unfit())?.into_parts();
        instructions.apply_to_request_http1x(request);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity;
    use http::HeaderMap;
    use std::time::{Duration, UNIX_EPOCH};

    /// That of AWS's test suite of Signature Version 4, `aws-sig-v4-test-suite`, for 30 August 2015, 12:36.
    fn signed(method: &str, path: &str, kind: Option<&str>, token: Option<&str>, body: &[u8]) -> HeaderMap {
        let identity = identity(
            "AKIDEXAMPLE",
            "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
            token,
            None,
        );
        let signer = Signer {
            identity: &identity,
            service: "service",
            region: "us-east-1",
            time: UNIX_EPOCH + Duration::from_secs(1_440_938_160),
        };
        let mut request = http::Request::builder()
            .method(method)
            .uri(format!("https://example.amazonaws.com{path}"));
        if let Some(kind) = kind {
            request = request.header("content-type", kind);
        }
        let mut request = request.body(()).unwrap();
        signer.sign(&mut request, body).unwrap();
        request.headers().clone()
    }

    #[test]
    fn the_vectors_of_the_test_suite() {
        const TOKEN: &str = "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA==";
        const FORM: &str = "application/x-www-form-urlencoded";
        for (name, (method, path), kind, token, body, names, signature) in [
            (
                "get-vanilla",
                ("GET", "/"),
                None,
                None,
                &b""[..],
                "host;x-amz-date",
                "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            ),
            (
                "get-vanilla-query-order-key-case",
                ("GET", "/?Param2=value2&Param1=value1"),
                None,
                None,
                b"",
                "host;x-amz-date",
                "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            ),
            (
                "post-vanilla",
                ("POST", "/"),
                None,
                None,
                b"",
                "host;x-amz-date",
                "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            ),
            (
                "post-x-www-form-urlencoded",
                ("POST", "/"),
                Some(FORM),
                None,
                b"Param1=value1",
                "content-type;host;x-amz-date",
                "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            ),
            (
                "post-sts-header-before",
                ("POST", "/"),
                None,
                Some(TOKEN),
                b"",
                "host;x-amz-date;x-amz-security-token",
                "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead",
            ),
        ] {
            let fields = signed(method, path, kind, token, body);
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, \
                 SignedHeaders={names}, Signature={signature}"
            );
            assert_eq!(fields["authorization"], expected, "{name}");
            assert_eq!(fields["x-amz-date"], "20150830T123600Z", "{name}");
        }
    }

    #[test]
    fn what_signs_is_not_shown() {
        let fields = signed("POST", "/", None, Some("hidden"), b"");
        assert!(fields["x-amz-security-token"].is_sensitive());
        assert!(!format!("{fields:?}").contains("hidden"));
    }
}
