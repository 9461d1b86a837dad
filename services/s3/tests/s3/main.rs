//! The service from outside: against a server that does what it is told, and against one that is S3.

mod gateway;
mod sessions;
mod told;
mod trust;

use contract::{
    Body, BodyError, BodyStream, Call, CallError, Caller, Grant, Reply, S3Action, S3Grant, Service, Trailers,
};
use egress::testing;
use millpond_service_s3::{Credentials, Options, S3};
use std::{
    collections::VecDeque,
    future::poll_fn,
    net::SocketAddr,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};
use tokio::{net::TcpSocket, runtime::Runtime};

const ALL: [S3Action; 4] = [S3Action::Get, S3Action::Put, S3Action::List, S3Action::Delete];

/// The service, and the runtime that it works on.
struct Ours {
    service: Arc<S3>,
    runtime: Runtime,
}

impl Ours {
    /// Asks what is there, as whom the credentials say.
    fn start(endpoint: String, credentials: Credentials, change: impl FnOnce(&mut Options)) -> Self {
        let runtime = testing::runtime().unwrap();
        let mut options = Options {
            endpoint: Some(endpoint),
            calls: 4096,
            ..Options::default()
        };
        change(&mut options);
        let service = S3::new(runtime.handle().clone(), credentials, &options).unwrap();
        Self {
            service: Arc::new(service),
            runtime,
        }
    }

    fn ask(&self, s3: Vec<S3Grant>, call: Call) -> Result<Reply, CallError> {
        let session = self.service.bind(&grant(s3)).unwrap();
        self.runtime.block_on(session.call(call))
    }

    /// Status and body; a body that breaks off is an error.
    fn text(&self, s3: Vec<S3Grant>, call: Call) -> (u16, Result<String, BodyError>) {
        let reply = self.ask(s3, call).unwrap();
        let body = self.runtime.block_on(bytes(reply.body));
        (
            reply.head.status,
            body.map(|body| String::from_utf8(body).unwrap()),
        )
    }
}

/// A port that nobody listens on, but for a server that is told of it and binds it again (`SO_REUSEADDR`). As long as this socket has it, the
/// kernel gives it to no other that asks for any.
fn port() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// All of a body.
async fn bytes(body: Body) -> Result<Vec<u8>, BodyError> {
    let mut stream = match body {
        Body::Whole(bytes) => return Ok(bytes.to_vec()),
        Body::Stream(stream) => stream,
    };
    let mut all = Vec::new();
    while let Some(piece) = poll_fn(|context| stream.poll_next(context.waker())).await? {
        all.extend_from_slice(&piece);
    }
    Ok(all)
}

fn grant(s3: Vec<S3Grant>) -> Grant {
    Grant {
        s3,
        ..Grant::nothing("shop.f".parse().unwrap())
    }
}

fn granted(bucket: &str, prefix: &str) -> S3Grant {
    S3Grant {
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        actions: ALL.to_vec(),
    }
}

fn call(method: &str, target: &str, fields: &[(&'static str, &'static str)], body: &'static str) -> Call {
    let fields = fields.iter();
    Call {
        operation: method.to_owned(),
        target: target.to_owned(),
        parameters: fields
            .map(|(name, value)| ((*name).into(), value.as_bytes().into()))
            .collect(),
        body: Body::Whole(body.into()),
        patience: Some(Duration::from_secs(60)),
        pause: None,
        caller: Caller::default(),
    }
}

/// A body in these pieces.
struct Pieces(VecDeque<bytes::Bytes>);

impl BodyStream for Pieces {
    fn poll_next(&mut self, _: &Waker) -> Poll<Result<Option<bytes::Bytes>, BodyError>> {
        Poll::Ready(Ok(self.0.pop_front()))
    }

    fn trailers(&mut self) -> Trailers {
        Trailers::new()
    }
}

fn streamed(fields: &[(&'static str, &'static str)], pieces: &[&'static str]) -> Call {
    let pieces = pieces.iter().map(|piece| (*piece).into()).collect();
    Call {
        body: Body::Stream(Box::new(Pieces(pieces))),
        ..call("PUT", "/bucket/k", fields, "")
    }
}
