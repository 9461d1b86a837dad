//! Connections, and what went wrong with one in the contract's words.

use contract::{BodyError, CallError};
use hyper::body::Incoming;
use hyper_rustls::{ConfigBuilderExt, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{self, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use std::{
    error::Error,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time;

/// How long an idle connection is kept: services end it themselves soon after.
const IDLE_TIME: Duration = Duration::from_secs(15);

/// How long the other side may take nothing of what is sent: as long as a request may last. A call that was given up would keep its connection beyond
/// that, for hyper sends what it has of a request before it closes one.
const STUCK: Duration = Duration::from_secs(3600);

/// Bytes that are read or written ahead on one connection.
const AHEAD: usize = 256 << 10;

/// How much of a request's body has gone, as whoever gives it counts.
pub type Progress = Arc<AtomicU64>;

/// No certificate can be checked.
#[derive(Debug, thiserror::Error)]
#[error("TLS: {0}: install ca-certificates, or set SSL_CERT_FILE")]
pub struct TrustError(String);

/// A pool of connections, for requests with bodies of one kind.
pub struct Client<B>(legacy::Client<HttpsConnector<HttpConnector>, B>);

impl<B> Client<B>
where
    B: http_body::Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    /// A connection may take so long to come, and so many idle ones are kept for each host. What is not `secure` goes by `http` alone.
    pub fn new(connect: Duration, idle: usize, is_secure: bool) -> Result<Self, TrustError> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect));
        connector.set_tcp_user_timeout(Some(STUCK));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(trust(is_secure)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        // A request of which nothing has gone when its connection ends is sent again on another.
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(idle)
            .pool_idle_timeout(IDLE_TIME)
            .pool_timer(TokioTimer::new())
            .retry_canceled_requests(true)
            .http1_max_buf_size(AHEAD)
            .build(connector);
        Ok(Self(client))
    }

    /// Sends a request, and waits for the beginning of a reply as long as that: anew whenever a piece of the body has gone.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn send(
        &self,
        request: http::Request<B>,
        progress: &AtomicU64,
        patience: Duration,
    ) -> Result<http::Response<Incoming>, CallError> {
        let mut sent = std::pin::pin!(self.0.request(request));
        let mut gone = progress.load(Relaxed);
        loop {
            match time::timeout(patience, &mut sent).await {
                Ok(response) => return response.map_err(|error| explain(&error)),
                Err(_) if progress.load(Relaxed) != gone => gone = progress.load(Relaxed),
                Err(_) => return Err(CallError::Timeout("the beginning of a reply")),
            }
        }
    }
}

/// The roots that this machine trusts; none where they are not needed.
fn trust(is_secure: bool) -> Result<ClientConfig, TrustError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TrustError(error.to_string()))?;
    let builder = match is_secure {
        true => builder
            .with_native_roots()
            .map_err(|error| TrustError(error.to_string()))?,
        false => builder.with_root_certificates(RootCertStore::empty()),
    };
    Ok(builder.with_no_client_auth())
}

/// The reason of reasons.
fn explain(error: &legacy::Error) -> CallError {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    let mut text = error.to_string();
    while let Some(one) = cause {
        text = one.to_string();
        if one.is::<rustls::Error>() {
            return CallError::Secure(text);
        }
        if one.is::<BodyError>() {
            return CallError::Broken(format!("the request's body: {text}"));
        }
        if text.starts_with("dns error") {
            return CallError::Name(one.source().map_or(text, ToString::to_string));
        }
        cause = match one.downcast_ref::<io::Error>() {
            Some(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                return CallError::Refused(text);
            }
            Some(error) if error.kind() == io::ErrorKind::TimedOut => {
                return CallError::Timeout("the connection");
            }
            // An error within one is not its source.
            Some(error) => error.get_ref().map(|inner| inner as &(dyn Error + 'static)),
            None => one.source(),
        };
    }
    CallError::Broken(text)
}
