//! A client of S3 as small as tests need: presigned requests, one to a connection.

#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use std::{
    fmt::Write as _,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    thread::JoinHandle,
};
use store_objects::{Key, Objects, Options};
use tempfile::TempDir;
use tokio::sync::oneshot;

pub const ACCESS: &str = "pondkey";
pub const SECRET: &str = "s3cr3t-of-the-pond";

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn sign(key: &[u8], text: &str) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text.as_bytes());
    mac.finalize().into_bytes().to_vec()
}

fn encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte))
            }
            _ => write!(text, "%{byte:02X}").unwrap(),
        }
        text
    })
}

#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub access: String,
    pub secret: String,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub fn field(&self, name: &str) -> Option<String> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(one, _)| one.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.to_owned())
    }

    pub fn between(&self, open: &str, close: &str) -> String {
        let text = self.text();
        let rest = text
            .split_once(open)
            .unwrap_or_else(|| panic!("no {open} in {text}"))
            .1;
        rest.split_once(close).unwrap().0.to_owned()
    }
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            access: ACCESS.to_owned(),
            secret: SECRET.to_owned(),
        }
    }

    /// The target of a presigned URL, <https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html>.
    pub fn presign(&self, method: &str, path: &str, query: &[(&str, &str)]) -> String {
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let scope = format!("{}/us-east-1/s3/aws4_request", &now[..8]);
        let path = path.split('/').map(encode).collect::<Vec<_>>().join("/");
        let credential = format!("{}/{scope}", self.access);
        let mut pairs: Vec<_> = query
            .iter()
            .map(|(name, value)| (encode(name), encode(value)))
            .collect();
        for (name, value) in [
            ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"),
            ("X-Amz-Credential", &credential),
            ("X-Amz-Date", &now),
            ("X-Amz-Expires", "600"),
            ("X-Amz-SignedHeaders", "host"),
        ] {
            pairs.push((encode(name), encode(value)));
        }
        pairs.sort();
        let query = pairs
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join("&");
        let canonical = format!(
            "{method}\n{path}\n{query}\nhost:{}\n\nhost\nUNSIGNED-PAYLOAD",
            self.address
        );
        let text = format!(
            "AWS4-HMAC-SHA256\n{now}\n{scope}\n{}",
            hex(&Sha256::digest(canonical))
        );
        let key = self.key(&now[..8]);
        format!("{path}?{query}&X-Amz-Signature={}", hex(&sign(&key, &text)))
    }

    /// The fields of a request that is signed with its header: these, what the body's hash is said to be, and the signature.
    /// <https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html>
    pub fn sign(
        &self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        hash: &str,
    ) -> Vec<(String, String)> {
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let scope = format!("{}/us-east-1/s3/aws4_request", &now[..8]);
        let mut all: Vec<(String, String)> = fields
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        all.push(("x-amz-content-sha256".to_owned(), hash.to_owned()));
        all.push(("x-amz-date".to_owned(), now.clone()));
        let mut signed = all.clone();
        signed.push(("host".to_owned(), self.address.to_string()));
        signed.sort();
        let names = signed
            .iter()
            .map(|(name, _)| name.as_str())
            .collect::<Vec<_>>()
            .join(";");
        let lines: String = signed
            .iter()
            .map(|(name, value)| format!("{name}:{value}\n"))
            .collect();
        let canonical = format!("{method}\n{path}\n\n{lines}\n{names}\n{hash}");
        let text = format!(
            "AWS4-HMAC-SHA256\n{now}\n{scope}\n{}",
            hex(&Sha256::digest(canonical))
        );
        let signature = hex(&sign(&self.key(&now[..8]), &text));
        all.push((
            "authorization".to_owned(),
            format!(
                "AWS4-HMAC-SHA256 Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
                self.access
            ),
        ));
        all
    }

    fn key(&self, day: &str) -> Vec<u8> {
        let key = sign(format!("AWS4{}", self.secret).as_bytes(), day);
        ["us-east-1", "s3", "aws4_request"]
            .iter()
            .fold(key, |key, part| sign(&key, part))
    }

    /// Sends a request, and its body if it says one.
    pub fn send(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(self.address)?;
        let mut head = format!(
            "{method} {target} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n",
            self.address
        );
        if !fields.iter().any(|(name, _)| *name == "content-length") {
            write!(head, "content-length: {}\r\n", body.len()).unwrap();
        }
        for (name, value) in fields {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        head.push_str("\r\n");
        stream.write_all(head.as_bytes())?;
        // Whoever refuses need not read it all.
        let _ = stream.write_all(body);
        Ok(stream)
    }

    pub fn raw(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        receive(self.send(method, target, fields, body)?)
    }

    pub fn try_call(
        &self,
        method: &str,
        path: &str,
        query: &[(&str, &str)],
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> io::Result<Answer> {
        self.raw(method, &self.presign(method, path, query), fields, body)
    }

    pub fn call(
        &self,
        method: &str,
        path: &str,
        query: &[(&str, &str)],
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> Answer {
        self.try_call(method, path, query, fields, body).unwrap()
    }

    pub fn put(&self, path: &str, body: &[u8]) -> Answer {
        self.call("PUT", path, &[], &[], body)
    }

    pub fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], &[], b"")
    }
}

pub fn receive(mut stream: TcpStream) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let broken = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let end = bytes
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .ok_or_else(broken)?;
    let body = bytes.split_off(end + 4);
    let head = String::from_utf8(bytes).map_err(|_| broken())?;
    let answer = Answer {
        status: head
            .get(9..12)
            .and_then(|status| status.parse().ok())
            .ok_or_else(broken)?,
        head,
        body,
    };
    let length = answer
        .field("content-length")
        .and_then(|length| length.parse::<usize>().ok());
    // An answer to HEAD has a length and no body.
    if length.is_some_and(|length| !answer.body.is_empty() && length != answer.body.len()) {
        return Err(broken());
    }
    Ok(answer)
}

/// A server in this process; dropping it ends it in order.
pub struct Server {
    pub client: Client,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    pub fn start(folder: &Path, options: Options) -> Self {
        let objects = Objects::open(folder, options).unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let (address, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            serve(objects, |one| address.send(one).unwrap(), async {
                let _ = ended.await;
            });
        });
        Self {
            client: Client::new(told.recv().unwrap()),
            end: Some(end),
            thread: Some(thread),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

pub fn serve(objects: Objects, tell: impl FnOnce(SocketAddr), end: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        tell(listener.local_addr().unwrap());
        let key = Key {
            access: ACCESS.to_owned(),
            secret: SECRET.to_owned(),
        };
        objects.serve(listener, [key], end).await.unwrap();
    });
}

/// How many files of data a folder has.
pub fn files(folder: &Path) -> usize {
    let list = |path: &Path| -> Vec<_> {
        std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect()
    };
    let outer = list(&folder.join("objects"));
    outer
        .iter()
        .flat_map(|outer| list(outer))
        .map(|inner| list(&inner).len())
        .sum()
}

/// Waits until something holds, which it must in a while.
pub fn eventually(what: &str, holds: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !holds() {
        assert!(begun.elapsed().as_secs() < 60, "it never came that {what}");
        std::thread::yield_now();
    }
}

/// A server with the bucket `pond`.
pub fn started() -> (TempDir, Server) {
    let folder = TempDir::new().unwrap();
    let server = Server::start(folder.path(), Options::default());
    assert_eq!(server.client.put("/pond", b"").status, 200);
    (folder, server)
}

/// Data that no cut or mixture of equals.
pub fn data(seed: u8, length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| (at as u64).wrapping_mul(0x9e37_79b9).to_be_bytes()[4] ^ seed ^ (at >> 16) as u8)
        .collect()
}
