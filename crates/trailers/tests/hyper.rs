//! Under hyper's own client, over connections that take a few bytes at a time or as many as there are.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use http_body::{Body, Frame};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use millpond_trailers::{Slip, Trailing};
use std::{
    collections::VecDeque,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    task::JoinHandle,
    time::timeout,
};

/// Nothing takes this long; who waits longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pieces, one at a time, and then trailers on their way past hyper.
struct Pieces {
    pieces: VecDeque<Bytes>,
    trailers: HeaderMap,
    slip: Slip,
    /// Whether the next poll says that there is nothing yet, so that what went before is flushed.
    pauses: bool,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.pauses = !self.pauses;
        if self.pauses {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        match self.pieces.pop_front() {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None => {
                self.slip.put(&self.trailers);
                Poll::Ready(None)
            }
        }
    }
}

fn fields(fields: &[(&'static str, &'static str)]) -> HeaderMap {
    let fields = fields.iter();
    fields
        .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
        .collect()
}

/// Reads a request of which this is expected behind its head.
async fn expect(server: &mut DuplexStream, body: &str) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(server.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.contains("transfer-encoding: chunked"), "{head}");
    let mut came = vec![0; body.len()];
    server.read_exact(&mut came).await.unwrap();
    assert_eq!(String::from_utf8(came).unwrap(), body);
}

struct Client {
    sender: SendRequest<Pieces>,
    slip: Slip,
    server: DuplexStream,
    driver: JoinHandle<hyper::Result<()>>,
}

impl Client {
    async fn connect(room: usize) -> Self {
        let (ours, server) = duplex(room);
        let (io, slip) = Trailing::new(ours);
        let (sender, connection) = http1::handshake(TokioIo::new(io)).await.unwrap();
        Self {
            sender,
            slip,
            server,
            driver: tokio::spawn(connection),
        }
    }

    /// Sends a body of these pieces, which should look like this to the server.
    async fn send(
        &mut self,
        pieces: &[&'static str],
        trailers: &[(&'static str, &'static str)],
        chunks: &str,
    ) {
        let body = Pieces {
            pieces: pieces
                .iter()
                .map(|piece| Bytes::from_static(piece.as_bytes()))
                .collect(),
            trailers: fields(trailers),
            slip: self.slip.clone(),
            pauses: false,
        };
        let request = Request::post("/").header("host", "h").body(body).unwrap();
        let answer = self.sender.send_request(request);
        let answered = async {
            expect(&mut self.server, chunks).await;
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
            self.server.write_all(answer).await.unwrap();
        };
        let (answer, ()) = timeout(PATIENCE, async { tokio::join!(answer, answered) })
            .await
            .unwrap();
        assert_eq!(answer.unwrap().status(), 200);
        self.sender.ready().await.unwrap();
    }
}

#[tokio::test]
async fn each_message_of_a_connection_has_its_own() {
    let sum = ("x-sum", "12");
    for room in [1, 7, 1 << 16] {
        let mut client = Client::connect(room).await;
        for _ in 0..2 {
            client.send(&["two"], &[], "3\r\ntwo\r\n0\r\n\r\n").await;
            let trailed = "3\r\ntwo\r\n0\r\nx-sum: 12\r\nx-last: yes\r\n\r\n";
            client.send(&["two"], &[sum, ("x-last", "yes")], trailed).await;
            client.send(&[], &[sum], "0\r\nx-sum: 12\r\n\r\n").await;
        }
        drop(client.sender);
        client.driver.await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn what_looks_like_an_end_within_a_body_is_none() {
    let chunks = "3\r\none\r\n5\r\n0\r\n\r\n\r\n5\r\n0\r\n\r\n\r\n0\r\nx-sum: 12\r\n\r\n";
    for room in [1, 7, 1 << 16] {
        let mut client = Client::connect(room).await;
        let pieces = ["one", "0\r\n\r\n", "0\r\n\r\n"];
        client.send(&pieces, &[("x-sum", "12")], chunks).await;
    }
}

#[tokio::test]
async fn what_may_not_trail_a_message_does_not() {
    let mut client = Client::connect(1 << 16).await;
    let trailers = [("content-length", "5"), ("x-sum", "12"), ("authorization", "no")];
    client
        .send(&["two"], &trailers, "3\r\ntwo\r\n0\r\nx-sum: 12\r\n\r\n")
        .await;
    client
        .send(&["two"], &[("host", "h")], "3\r\ntwo\r\n0\r\n\r\n")
        .await;
}
