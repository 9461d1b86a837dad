//! Serving connections: HTTP/1.1, so many at a time, until the shutdown.

use crate::{
    Error, Inner, Key, Objects,
    protocol::{Asked, Ranges, refusal},
    service::Service,
};
use http::{Request, Response, StatusCode};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use s3s::{
    Body, HttpError, S3Result,
    auth::{S3Auth, SecretKey},
    config::{S3Config, StaticConfigProvider},
    service::{S3Service, S3ServiceBuilder},
};
use std::{
    collections::HashMap,
    future::Future,
    io,
    pin::{Pin, pin},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};

/// How long a client may take for the head of a request, and a connection be idle.
const HEAD: Duration = Duration::from_secs(60);
/// How long to wait when the system gives no more connections.
const BACK_OFF: Duration = Duration::from_millis(100);
/// Bytes of a document in a request, at most. The largest that S3 defines names 1000 keys, or 10,000 parts.
const DOCUMENT: usize = 4 << 20;

impl Objects {
    /// Serves S3 to those who have a key, until `shutdown` is ready; requests that are under way then may end in
    /// [`crate::Options::grace`]. Several sockets can be served at a time.
    pub async fn serve(
        &self,
        listener: TcpListener,
        keys: impl IntoIterator<Item = Key>,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let handler = Handler(service(Arc::clone(&self.inner), keys));
        let places = Arc::new(Semaphore::new(self.inner.options.connections));
        let graceful = GracefulShutdown::new();
        let mut shutdown = pin!(shutdown);
        loop {
            let next = async {
                let place = Arc::clone(&places).acquire_owned().await;
                (place, listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                () = &mut shutdown => break,
                next = next => next,
            };
            match accepted {
                Ok((stream, _)) => {
                    let connection = connection(stream, handler.clone());
                    let connection = graceful.watch(connection);
                    tokio::spawn(async move {
                        if let Err(error) = connection.await {
                            tracing::debug!("a connection of the embedded S3 broke off: {error}");
                        }
                        drop(place);
                    });
                }
                Err(error) if passes(&error) => {
                    tracing::warn!("the embedded S3 cannot accept a connection: {error}");
                    sleep(BACK_OFF).await;
                }
                Err(source) => return Err(Error::Listen { source }),
            }
        }
        drop(listener);
        if timeout(self.inner.options.grace, graceful.shutdown())
            .await
            .is_err()
        {
            tracing::warn!("requests to the embedded S3 were still under way at its end");
        }
        Ok(())
    }
}

/// Whether it is this connection's trouble, or will be over.
fn passes(error: &io::Error) -> bool {
    !matches!(
        error.kind(),
        io::ErrorKind::InvalidInput | io::ErrorKind::NotConnected | io::ErrorKind::Unsupported
    )
}

impl Objects {
    /// For requests of the owner, in the same process: they need no signature.
    pub fn owner(&self) -> Owner {
        Owner(open(Arc::clone(&self.inner)).build())
    }
}

/// Answers requests as the owner's, who may do all.
#[derive(Clone)]
pub struct Owner(S3Service);

impl Owner {
    /// What S3 answers to this.
    pub async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let broken = |error: HttpError| {
            tracing::error!("the embedded S3 has no answer: {error:?}");
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        };
        answer(&self.0, request).await.unwrap_or_else(broken)
    }
}

fn open(inner: Arc<Inner>) -> S3ServiceBuilder {
    let mut config = S3Config::default();
    config.xml_max_body_size = DOCUMENT;
    let mut builder = S3ServiceBuilder::new(Service(inner));
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(config))));
    builder
}

fn service(inner: Arc<Inner>, keys: impl IntoIterator<Item = Key>) -> S3Service {
    let keys = keys.into_iter();
    let keys = Keys(
        keys.map(|key| (key.access, SecretKey::from(key.secret)))
            .collect(),
    );
    let ranges = open(Arc::clone(&inner)).build();
    let mut builder = open(inner);
    // Without access rules of our own, whoever signs may do all, and nobody else anything.
    builder.set_auth(keys);
    builder.set_route(Ranges { service: ranges });
    builder.build()
}

/// Who may use it: secrets by their access keys.
struct Keys(HashMap<String, SecretKey>);

#[async_trait::async_trait]
impl S3Auth for Keys {
    async fn get_secret_key(&self, access: &str) -> S3Result<SecretKey> {
        self.0.get(access).cloned().ok_or_else(|| {
            s3s::s3_error!(
                InvalidAccessKeyId,
                "The AWS Access Key Id you provided does not exist in our records."
            )
        })
    }
}

/// What answers the requests of a connection.
#[derive(Clone)]
struct Handler(S3Service);

impl hyper::service::Service<Request<Incoming>> for Handler {
    type Response = Response<Body>;
    type Error = HttpError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, HttpError>> + Send>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let service = self.0.clone();
        Box::pin(async move { answer(&service, request.map(Body::from)).await })
    }
}

async fn answer(service: &S3Service, request: Request<Body>) -> Result<Response<Body>, HttpError> {
    let asked = Asked::new(&request);
    let mut response = match refusal(&request) {
        Some(error) => error
            .to_http_response()
            .map_err(|error| HttpError::new(Box::new(error)))?,
        None => service.call(request).await?,
    };
    asked.mend(&mut response);
    Ok(response)
}

fn connection(stream: TcpStream, handler: Handler) -> http1::Connection<TokioIo<TcpStream>, Handler> {
    // A failure costs some speed at most.
    let _ = stream.set_nodelay(true);
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), handler)
}
