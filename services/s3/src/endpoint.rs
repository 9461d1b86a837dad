//! Where S3 is, and what the operator says of it.

use crate::{session::Policies, target::Target};
use aws::{domain, is_region};
use http::{Uri, uri::Scheme};
use std::time::Duration;

/// How the service does its work.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where S3 is, as `https://host:port/path`; AWS's in the region if there is none.
    pub endpoint: Option<String>,
    /// What requests are signed for.
    pub region: String,
    /// The role that is taken for each function, if calls are not to be signed with the node's own keys.
    pub role: Option<RoleOptions>,
    /// Where a bucket is named; by default in the path if there is an endpoint, in the host's name if not.
    pub addressing: Option<Addressing>,
    /// Whether signatures are of bodies too.
    pub payload: Payload,
    /// Calls under way at once, replies that are still being read included: each takes a descriptor.
    pub calls: usize,
    /// Idle connections that are kept to one host.
    pub idle: usize,
    /// How long a connection may take.
    pub connect: Duration,
    /// How long a reply may take to begin, if the sandbox has not said otherwise: counted anew whenever a piece of the
    /// request's body has gone.
    pub patience: Duration,
    /// For how long a reply's body may pause, if the sandbox has not said otherwise.
    pub pause: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: "us-east-1".to_owned(),
            role: None,
            addressing: None,
            payload: Payload::Auto,
            calls: 1024,
            idle: 64,
            connect: Duration::from_secs(10),
            patience: Duration::from_secs(60),
            pause: Duration::from_secs(60),
        }
    }
}

/// A role, which is taken for one function at a time: a role session can do what that was granted.
#[derive(Clone, Debug)]
pub struct RoleOptions {
    /// Its ARN.
    pub arn: String,
    /// Where STS is, as `https://host:port`; AWS's in the region if there is none.
    pub sts: Option<String>,
}

/// Where a bucket is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressing {
    /// `https://host/bucket/key`.
    Path,
    /// `https://bucket.host/key`; for a bucket with a dot, whose host no certificate of `*.host` is for, as [`Self::Path`].
    Virtual,
}

/// Whether signatures are of bodies too. Those that are not signed are safe from change by TLS alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// They are; a body in pieces that is not kept in memory first is signed chunk by chunk.
    Signed,
    /// They are not.
    Unsigned,
    /// By `http`, they are of bodies in memory; by `https`, not.
    Auto,
}

/// Options that contradict themselves, or a machine that lacks what they need.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// Not a place that can be reached.
    #[error("`{0}` is not the endpoint of an S3 service: write it as `https://host:port`")]
    Endpoint(String),
    /// Not the name of a region.
    #[error("`{0}` is not the name of a region")]
    Region(String),
    /// Not a role that can be taken.
    #[error(transparent)]
    Role(#[from] aws::RoleError),
    /// No certificate can be checked.
    #[error(transparent)]
    Trust(#[from] aws::TrustError),
}

impl Options {
    /// How session policies are written, if there are to be any.
    ///
    /// # Errors
    /// Where the options make no sense.
    pub fn policies(&self) -> Result<Option<Policies>, OptionsError> {
        let endpoint = Endpoint::of(self)?;
        let role = self.role.as_ref();
        Ok(role.map(|role| Policies::new(&role.arn, &endpoint)))
    }

    /// Where STS is, if it is asked.
    pub(crate) fn sts(&self) -> Option<String> {
        let role = self.role.as_ref()?;
        let amazons = || format!("https://sts.{}.{}", self.region, domain(&self.region));
        Some(role.sts.clone().unwrap_or_else(amazons))
    }
}

/// Where requests go.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    scheme: Scheme,
    authority: String,
    /// Without a slash at its end.
    path: String,
    addressing: Addressing,
    pub(crate) region: String,
}

impl Endpoint {
    pub(crate) fn of(options: &Options) -> Result<Self, OptionsError> {
        let region = options.region.clone();
        if !is_region(&region) {
            return Err(OptionsError::Region(region));
        }
        let text = options.endpoint.clone();
        let text = text.unwrap_or_else(|| format!("https://s3.{region}.{}", domain(&region)));
        let wrong = || OptionsError::Endpoint(text.clone());
        let uri: Uri = text.parse().map_err(|_| wrong())?;
        let scheme = uri.scheme().cloned().ok_or_else(wrong)?;
        let authority = uri.authority().ok_or_else(wrong)?;
        let is_http = [Scheme::HTTP, Scheme::HTTPS].contains(&scheme);
        if !is_http || uri.query().is_some() || authority.as_str().contains('@') {
            return Err(wrong());
        }
        let addressing = match options.endpoint {
            Some(_) => Addressing::Path,
            None => Addressing::Virtual,
        };
        Ok(Self {
            authority: authority.to_string(),
            path: uri.path().trim_end_matches('/').to_owned(),
            addressing: options.addressing.unwrap_or(addressing),
            scheme,
            region,
        })
    }

    /// Whether it is reached by TLS.
    pub(crate) fn is_secure(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Whether AWS itself serves it.
    pub(crate) fn is_amazons(&self) -> bool {
        let host = self
            .authority
            .rsplit_once(':')
            .map_or(&self.authority[..], |(host, _)| host);
        host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn")
    }

    /// The URL of a target.
    pub(crate) fn url(&self, target: &Target) -> String {
        let bucket = target.bucket.as_deref().filter(|bucket| !bucket.contains('.'));
        let (scheme, authority, path) = (&self.scheme, &self.authority, &self.path);
        match (self.addressing, bucket) {
            (Addressing::Virtual, Some(bucket)) => {
                format!("{scheme}://{bucket}.{authority}{path}{}", target.encoded(false))
            }
            _ => format!("{scheme}://{authority}{path}{}", target.encoded(true)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(endpoint: Option<&str>, addressing: Option<Addressing>, target: &str) -> String {
        let options = Options {
            endpoint: endpoint.map(str::to_owned),
            addressing,
            region: "eu-west-1".to_owned(),
            ..Options::default()
        };
        let endpoint = Endpoint::of(&options).unwrap();
        endpoint.url(&Target::parse(target).unwrap())
    }

    #[test]
    fn where_a_target_is() {
        let aws = "s3.eu-west-1.amazonaws.com";
        assert_eq!(
            url(None, None, "/bucket/a/../b?acl"),
            format!("https://bucket.{aws}/a/../b?acl=")
        );
        assert_eq!(url(None, None, "/bucket"), format!("https://bucket.{aws}/"));
        assert_eq!(url(None, None, "/"), format!("https://{aws}/"));
        assert_eq!(
            url(None, None, "/my.bucket/k"),
            format!("https://{aws}/my.bucket/k")
        );
        assert_eq!(
            url(None, Some(Addressing::Path), "/bucket/k"),
            format!("https://{aws}/bucket/k")
        );
        let local = Some("http://127.0.0.1:7070");
        assert_eq!(
            url(local, None, "/bucket//k/"),
            "http://127.0.0.1:7070/bucket//k/"
        );
        assert_eq!(
            url(Some("http://h/p/"), None, "/bucket?uploads"),
            "http://h/p/bucket?uploads="
        );
        let named = url(Some("http://h:1/p"), Some(Addressing::Virtual), "/bucket/k");
        assert_eq!(named, "http://bucket.h:1/p/k");
    }

    #[test]
    fn where_sts_is() {
        let sts = |region: &str, sts: Option<&str>| {
            let role = RoleOptions {
                arn: "arn:aws:iam::1:role/r".to_owned(),
                sts: sts.map(str::to_owned),
            };
            let options = Options {
                region: region.to_owned(),
                role: Some(role),
                ..Options::default()
            };
            options.sts().unwrap()
        };
        assert_eq!(sts("eu-west-1", None), "https://sts.eu-west-1.amazonaws.com");
        assert_eq!(sts("cn-north-1", None), "https://sts.cn-north-1.amazonaws.com.cn");
        assert_eq!(sts("us-east-1", Some("https://h:9000")), "https://h:9000");
        assert_eq!(Options::default().sts(), None);
    }

    #[test]
    fn whose_it_is() {
        for (endpoint, is_amazons) in [
            (None, true),
            (Some("https://s3.cn-north-1.amazonaws.com.cn"), true),
            (
                Some("https://bucket.vpce-1.s3.us-east-1.vpce.amazonaws.com:443"),
                true,
            ),
            (Some("https://s3.example.org"), false),
            (Some("http://127.0.0.1:9000"), false),
            (Some("http://[::1]"), false),
            (Some("https://amazonaws.com.example.org"), false),
        ] {
            let options = Options {
                endpoint: endpoint.map(str::to_owned),
                ..Options::default()
            };
            assert_eq!(
                Endpoint::of(&options).unwrap().is_amazons(),
                is_amazons,
                "{endpoint:?}"
            );
        }
    }

    #[test]
    fn what_is_no_endpoint() {
        for bad in [
            "",
            "host",
            "host:80",
            "ftp://host",
            "http://",
            "http://user@host",
            "http://h/?a",
            "http://a b",
        ] {
            let options = Options {
                endpoint: Some(bad.to_owned()),
                ..Options::default()
            };
            assert!(Endpoint::of(&options).is_err(), "{bad}");
        }
        for bad in ["", "US", "a.b", "a/b"] {
            let options = Options {
                region: bad.to_owned(),
                ..Options::default()
            };
            assert!(
                matches!(Endpoint::of(&options), Err(OptionsError::Region(_))),
                "{bad}"
            );
        }
    }
}
