//! From a URI to a connection: the name's addresses, those that may be used, TCP, TLS.

use crate::upload::Berth;
use contract::{CallError, is_own_address};
use http::Uri;
use hyper_util::{
    client::legacy::connect::{Connected, Connection},
    rt::TokioIo,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName};
use std::{
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, lookup_host},
    time::{self, Sleep},
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use trailers::{Slip, Trailing};

/// How long a connection may take, its TLS included.
const CONNECT: Duration = Duration::from_secs(10);

/// Makes the pool's connections.
#[derive(Clone, Default)]
pub(crate) struct Connector {
    /// Made by the first request that needs it: reading the machine's roots takes milliseconds.
    tls: Arc<OnceLock<Result<TlsConnector, CallError>>>,
}

type Connecting = Pin<Box<dyn Future<Output = Result<TokioIo<Link>, CallError>> + Send>>;

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Link>;
    type Error = CallError;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        let connector = self.clone();
        Box::pin(async move {
            let linked = time::timeout(CONNECT, connector.link(&uri)).await;
            linked
                .unwrap_or(Err(CallError::Timeout("the connection")))
                .map(TokioIo::new)
        })
    }
}

impl Connector {
    async fn link(&self, uri: &Uri) -> Result<Link, CallError> {
        let secure = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
        let socket = reach(host, port).await?;
        // Requests are small and wait for their replies.
        let _ = socket.set_nodelay(true);
        if !secure {
            return Ok(Link::new(Stream::Plain(socket)));
        }
        let tls = self.tls.get_or_init(trust).clone()?;
        let name = ServerName::try_from(host.to_owned());
        let name = name.map_err(|error| CallError::Secure(error.to_string()))?;
        let shaken = tls.connect(name, socket).await;
        shaken
            .map(|stream| Link::new(Stream::Secure(Box::new(stream))))
            .map_err(|error| CallError::Secure(error.to_string()))
    }
}

async fn reach(host: &str, port: u16) -> Result<TcpStream, CallError> {
    let named = host.parse::<IpAddr>().is_err() && !host.eq_ignore_ascii_case("localhost");
    let found = lookup_host((host, port)).await;
    let addresses: Vec<SocketAddr> = found
        .map_err(|error| CallError::Name(format!("{host}: {error}")))?
        .collect();
    let mut last = CallError::Name(format!("{host}: there is none"));
    for address in addresses {
        if named && is_own_address(address.ip()) {
            last = CallError::Address(format!("{host} ({})", address.ip()));
            continue;
        }
        match TcpStream::connect(address).await {
            Ok(socket) => return Ok(socket),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                last = CallError::Refused(address.to_string());
            }
            Err(error) => last = CallError::Broken(format!("{address}: {error}")),
        }
    }
    Err(last)
}

/// The roots that this machine trusts: `SSL_CERT_FILE`, `SSL_CERT_DIR`, or the system's.
fn trust() -> Result<TlsConnector, CallError> {
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "a root certificate cannot be read");
    }
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(CallError::Secure(
            "this machine trusts no root certificate: install ca-certificates, or set SSL_CERT_FILE".into(),
        ));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| CallError::Secure(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A connection of the pool, where the requests on it leave their trailers, and which upload is on it: whoever has [`Connected`] finds both among its
/// extras.
pub(crate) struct Link {
    stream: Trailing<Stream>,
    slip: Slip,
    berth: Berth,
    /// Runs while an upload that nobody waits for is stuck.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl Link {
    fn new(stream: Stream) -> Self {
        let (stream, slip) = Trailing::new(stream);
        Self {
            stream,
            slip,
            berth: Berth::default(),
            stuck: None,
        }
    }

    /// What was attempted, unless it has not been possible for longer than the upload that is on here may be stuck.
    fn bounded<T>(
        &mut self,
        attempted: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if attempted.is_ready() {
            return attempted;
        }
        let allowed = ready!(self.berth.poll_allowed(context));
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(time::sleep(allowed)));
        ready!(stuck.as_mut().poll(context));
        // What lies in the socket is nobody's any more either.
        let _ = self.stream.get_ref().tcp().set_zero_linger();
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.berth.is_broken() {
            let _ = self.stream.get_ref().tcp().set_zero_linger();
        }
    }
}

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new()
            .extra(self.slip.clone())
            .extra(self.berth.clone())
    }
}

/// Secured or not.
enum Stream {
    Plain(TcpStream),
    Secure(Box<TlsStream<TcpStream>>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Secure(stream) => stream.get_ref().0,
        }
    }
}

/// Calls the same method of whichever stream it is.
macro_rules! either {
    ($self:ident, $method:ident($($argument:ident),*)) => {
        match $self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).$method($($argument),*),
            Stream::Secure(stream) => Pin::new(stream).$method($($argument),*),
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, poll_read(context, into))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        either!(self, poll_write(context, bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, poll_shutdown(context))
    }
}

impl AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for Link {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() {
            self.stuck = None;
        }
        self.bounded(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.bounded(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(shut, context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_lead_home() {
        for address in [
            "127.0.0.1",
            "127.8.8.8",
            "169.254.169.254",
            "0.0.0.0",
            "224.0.0.1",
            "::1",
            "::",
            "fe80::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
        ] {
            assert!(is_own_address(address.parse().unwrap()), "{address}");
        }
        for address in ["10.0.0.1", "192.168.1.1", "93.184.216.34", "2001:db8::1"] {
            assert!(!is_own_address(address.parse().unwrap()), "{address}");
        }
    }
}
