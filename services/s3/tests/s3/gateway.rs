//! Against a server that is S3: versitygw, with a folder behind it.

use super::{Ours, Pieces, call, granted};
use bytes::Bytes;
use contract::{Body, Call, S3Action, S3Grant};
use egress::testing;
use md5::{Digest, Md5};
use millpond_service_s3::{Credentials, Options, Payload};
use serde_json::Value;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../build/tools/bin/versitygw");

/// The server, which ends with this.
pub(crate) struct Gateway {
    child: Child,
    pub(crate) address: SocketAddr,
    folder: TempDir,
    _port: tokio::net::TcpSocket,
}

impl Gateway {
    /// Nothing if it is not installed, which is said.
    fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    pub(crate) fn start_with(options: &[&Path]) -> Option<Self> {
        if !Path::new(PROGRAM).exists() {
            println!("skipped: there is no {PROGRAM}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let (_port, address) = super::port();
        let child = Command::new(PROGRAM)
            .args(["--port", &address.to_string(), "--keep-alive", "--quiet"])
            .args(options)
            .arg("posix")
            .arg(folder.path())
            .env("ROOT_ACCESS_KEY", "AKIAGATEWAY")
            .env("ROOT_SECRET_KEY", "hidden")
            .stdout(Stdio::null())
            .spawn();
        let gateway = Self {
            child: child.unwrap(),
            address,
            folder,
            _port,
        };
        let begun = Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        Some(gateway)
    }

    fn service(&self, change: impl FnOnce(&mut Options)) -> Ours {
        self.service_as("hidden", change)
    }

    fn service_as(&self, secret: &str, change: impl FnOnce(&mut Options)) -> Ours {
        let credentials = Credentials::environment(|name| match name {
            "AWS_ACCESS_KEY_ID" => Some("AKIAGATEWAY".to_owned()),
            "AWS_SECRET_ACCESS_KEY" => Some(secret.to_owned()),
            _ => None,
        });
        Ours::start(format!("http://{}", self.address), credentials.unwrap(), change)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A reply, all of it.
pub(crate) struct Came {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
}

impl Came {
    fn field(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(its, _)| its == name);
        found.map_or("", |(_, value)| value)
    }

    fn json(&self) -> Value {
        let text = String::from_utf8_lossy(&self.body);
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[track_caller]
    fn is(self, status: u16) -> Self {
        let text = String::from_utf8_lossy(&self.body[..self.body.len().min(1000)]);
        assert_eq!(self.status, status, "{text}");
        self
    }
}

const JSON: (&str, &str) = ("x-millpond-document", "json");

pub(crate) fn ask(ours: &Ours, grants: &[S3Grant], call: Call) -> Came {
    let reply = ours.ask(grants.to_vec(), call).unwrap();
    let headers = reply.head.headers.into_iter();
    Came {
        status: reply.head.status,
        headers: headers
            .map(|(name, value)| (name.into_owned(), String::from_utf8_lossy(&value).into_owned()))
            .collect(),
        body: ours.runtime.block_on(super::bytes(reply.body)).unwrap().into(),
    }
}

fn noise(length: usize) -> Bytes {
    (0..length)
        .map(|i| ((i * 31) >> 3) as u8)
        .collect::<Vec<_>>()
        .into()
}

fn with(body: Body, call: Call) -> Call {
    Call { body, ..call }
}

fn pieces(bytes: &Bytes) -> Body {
    let pieces = bytes.chunks(200_000).map(Bytes::copy_from_slice);
    Body::Stream(Box::new(Pieces(pieces.collect())))
}

/// A bucket to work in.
fn prepared(gateway: &Gateway, change: impl FnOnce(&mut Options)) -> (Ours, Vec<S3Grant>) {
    let ours = gateway.service(change);
    let all = vec![granted("bucket", "")];
    ask(&ours, &all, call("PUT", "/bucket", &[], "")).is(200);
    (ours, all)
}

#[test]
fn objects_come_back_as_they_went() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    for payload in [Payload::Auto, Payload::Signed, Payload::Unsigned] {
        let ours = gateway.service(|options| options.payload = payload);
        let all = [granted("bucket", "")];
        let made = ask(&ours, &all, call("PUT", "/bucket", &[], ""));
        assert!(matches!(made.status, 200 | 409));
        for (i, checksum) in ["crc32", "crc32c", "crc64nvme", "sha1", "sha256"]
            .into_iter()
            .enumerate()
        {
            let length = [0, 1, 100_000, 5 << 20, 20 << 20][i];
            let bytes = noise(length);
            let said: &'static str = length.to_string().leak();
            let fields = [
                ("content-length", said),
                ("x-millpond-checksum", checksum),
                ("x-millpond-md5", "1"),
                ("x-amz-meta-a", "b"),
                ("content-type", "a/b"),
                JSON,
            ];
            let target = format!("/bucket/{checksum}");
            let whole = with(Body::Whole(bytes.clone()), call("PUT", &target, &fields, ""));
            let streamed = with(
                pieces(&bytes),
                call("PUT", &target, &[fields[0], fields[1], fields[3], fields[4]], ""),
            );
            let plain = with(
                pieces(&bytes),
                call("PUT", &target, &[fields[0], fields[3], fields[4]], ""),
            );
            for (how, put) in [("whole", whole), ("trailed", streamed), ("plain", plain)] {
                let put = ask(&ours, &all, put).is(200);
                let came = ask(
                    &ours,
                    &all,
                    call("GET", &target, &[JSON, ("x-amz-checksum-mode", "ENABLED")], ""),
                );
                let came = came.is(200);
                assert!(came.body == bytes, "{payload:?} {checksum} {how}");
                assert_eq!(came.field("content-length"), said);
                assert_eq!(came.field("content-encoding"), "");
                assert_eq!(
                    (came.field("x-amz-meta-a"), came.field("content-type")),
                    ("b", "a/b")
                );
                assert_eq!(came.field("etag"), put.field("etag"));
                if how != "plain" {
                    assert_ne!(came.field(&format!("x-amz-checksum-{checksum}")), "", "{how}");
                }
            }
        }
    }
}

#[test]
fn reads_of_all_kinds() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let (ours, all) = prepared(&gateway, |_| ());
    let get = |method, target: &str, fields: &[(&'static str, &'static str)]| {
        ask(&ours, &all, call(method, target, fields, ""))
    };
    let put = ask(&ours, &all, call("PUT", "/bucket/k", &[], "123456789")).is(200);
    let range = get("GET", "/bucket/k", &[("range", "bytes=2-4")]).is(206);
    assert_eq!(
        (&range.body[..], range.field("content-range")),
        (&b"345"[..], "bytes 2-4/9")
    );
    let head = get("HEAD", "/bucket/k", &[JSON]).is(200);
    assert_eq!((head.body.len(), head.field("content-length")), (0, "9"));
    let etag: &'static str = put.field("etag").to_owned().leak();
    get("GET", "/bucket/k", &[("if-none-match", etag)]).is(304);
    get("GET", "/bucket/k", &[("if-match", "\"x\"")]).is(412);
    let missing = get("GET", "/bucket/none", &[JSON]).is(404);
    assert_eq!(missing.json()["Code"], "NoSuchKey");
    assert_eq!(missing.field("content-type"), "application/json");
    get("HEAD", "/bucket/none", &[JSON]).is(404);
    let named = get("GET", "/bucket/k?response-content-type=x%2Fy%20z", &[]).is(200);
    assert_eq!(named.field("content-type"), "x/y z");
    get("HEAD", "/bucket", &[]).is(200);
    assert!(get("GET", "/bucket?location", &[JSON]).is(200).json().is_string());
    assert_eq!(
        get("GET", "/bucket?policy", &[JSON]).is(404).json()["Code"],
        "NoSuchBucketPolicy"
    );

    let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b @ c</Value></Tag></TagSet></Tagging>";
    let tagged = call("PUT", "/bucket/k?tagging", &[("x-millpond-md5", "1")], tags);
    ask(&ours, &all, tagged).is(200);
    let tags = get("GET", "/bucket/k?tagging", &[JSON]).is(200).json();
    assert_eq!(tags["TagSet"]["Tag"]["Value"], "b @ c");
    let attributes = [JSON, ("x-amz-object-attributes", "ETag,ObjectSize")];
    let attributes = get("GET", "/bucket/k?attributes", &attributes).is(200).json();
    assert_eq!(attributes["ObjectSize"], "9");
}

#[test]
fn keys_are_whatever_they_are() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let (ours, all) = prepared(&gateway, |_| ());
    let keys = [
        "plain",
        "in/deeper/k",
        "a b+c&d=e;f,g:h@i!j$k'l(m)n*o~p",
        "é/日本/🦀",
        "100%/%2F/%252e",
        "q?x=1#f",
        "<&\">",
        "back\\slash",
    ];
    for key in keys {
        // Whatever is not a letter or a slash, encoded.
        let encoded: String = key
            .bytes()
            .map(|byte| match byte {
                b'/' => "/".to_owned(),
                byte if byte.is_ascii_alphanumeric() => char::from(byte).to_string(),
                byte => format!("%{byte:02x}"),
            })
            .collect();
        let target = format!("/bucket/{encoded}");
        let body: &'static str = key.to_owned().leak();
        ask(&ours, &all, call("PUT", &target, &[], body)).is(200);
        assert_eq!(ask(&ours, &all, call("GET", &target, &[], "")).is(200).body, key);
        let listing = call(
            "GET",
            &format!("/bucket?list-type=2&prefix={}", encoded.replace('/', "%2F")),
            &[JSON],
            "",
        );
        let listed = ask(&ours, &all, listing).is(200).json();
        assert_eq!(listed["Contents"]["Key"], key, "{listed}");
        let source: &'static str = format!("bucket/{encoded}").leak();
        let copied = call("PUT", "/bucket/copy", &[JSON, ("x-amz-copy-source", source)], "");
        assert!(ask(&ours, &all, copied).is(200).json()["ETag"].is_string());
        assert_eq!(
            ask(&ours, &all, call("GET", "/bucket/copy", &[], ""))
                .is(200)
                .body,
            key
        );
    }
    let listed = ask(
        &ours,
        &all,
        call("GET", "/bucket?list-type=2&delimiter=%2F", &[JSON], ""),
    )
    .json();
    assert_eq!(
        listed["CommonPrefixes"].as_array().map(Vec::len),
        Some(3),
        "{listed}"
    );

    // Some with a narrower grant, by the body of one request.
    let delete = "<Delete><Object><Key>in/deeper/k</Key></Object><Object><Key>plain</Key></Object>\
        <Object><Key>in/../plain</Key></Object></Delete>";
    let narrow = [granted("bucket", "in/")];
    let deleted = ask(&ours, &narrow, call("POST", "/bucket?delete", &[JSON], delete))
        .is(200)
        .json();
    assert_eq!(deleted["Deleted"]["Key"], "in/deeper/k", "{deleted}");
    assert_eq!(deleted["Error"].as_array().map(Vec::len), Some(2), "{deleted}");
    ask(&ours, &all, call("HEAD", "/bucket/plain", &[], "")).is(200);
    ask(&ours, &all, call("HEAD", "/bucket/in/deeper/k", &[], "")).is(404);
    ask(&ours, &all, call("DELETE", "/bucket/plain", &[], "")).is(204);
    ask(&ours, &all, call("HEAD", "/bucket/plain", &[], "")).is(404);
}

#[test]
fn an_object_in_parts() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let (ours, all) = prepared(&gateway, |_| ());
    let put_only = [S3Grant {
        actions: vec![S3Action::Put],
        ..granted("bucket", "parts/")
    }];
    let begin = call("POST", "/bucket/parts/k?uploads", &[JSON], "");
    let begun = ask(&ours, &put_only, begin).is(200).json();
    let upload = begun["UploadId"].as_str().unwrap();
    let (first, second) = (noise(6 << 20), noise(1000));
    let mut complete = String::from("<CompleteMultipartUpload>");
    for (i, bytes) in [&first, &second].into_iter().enumerate() {
        let number = i + 1;
        let length: &'static str = bytes.len().to_string().leak();
        let target = format!("/bucket/parts/k?partNumber={number}&uploadId={upload}");
        let part = call("PUT", &target, &[("content-length", length)], "");
        let part = ask(&ours, &put_only, with(pieces(bytes), part)).is(200);
        let etag = part.field("etag");
        complete += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
    }
    complete += "</CompleteMultipartUpload>";
    let target = format!("/bucket/parts/k?uploadId={upload}");
    let parts = ask(&ours, &put_only, call("GET", &target, &[JSON], ""))
        .is(200)
        .json();
    assert_eq!(parts["Part"].as_array().map(Vec::len), Some(2), "{parts}");
    let uploads = ask(&ours, &all, call("GET", "/bucket?uploads", &[JSON], ""))
        .is(200)
        .json();
    assert_eq!(uploads["Upload"]["Key"], "parts/k");
    let complete: &'static str = complete.leak();
    for fields in [&[JSON][..], &[JSON, ("x-millpond-repeated", "1")]] {
        let done = ask(&ours, &put_only, call("POST", &target, fields, complete))
            .is(200)
            .json();
        assert_eq!(done["Key"], "parts/k");
    }
    let came = ask(&ours, &all, call("GET", "/bucket/parts/k", &[], "")).is(200);
    assert!(came.body == [&first[..], &second[..]].concat());

    let again = call("POST", "/bucket/parts/l?uploads", &[JSON], "");
    let again = ask(&ours, &put_only, again).is(200).json();
    let target = format!("/bucket/parts/l?uploadId={}", again["UploadId"].as_str().unwrap());
    ask(&ours, &put_only, call("DELETE", &target, &[], "")).is(204);
    ask(&ours, &put_only, call("DELETE", "/bucket/parts/k", &[], "")).is(403);
    ask(
        &ours,
        &put_only,
        call("DELETE", "/bucket/parts/k?uploadId=", &[], ""),
    )
    .is(403);
    ask(&ours, &all, call("HEAD", "/bucket/parts/k", &[], "")).is(200);
}

#[test]
fn a_presigned_url_is_good_for_anyone() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let (ours, all) = prepared(&gateway, |_| ());
    let anyone = |method: &str, url: &[u8], body: &str| {
        let url = std::str::from_utf8(url).unwrap();
        let path = url.strip_prefix(&format!("http://{}", gateway.address)).unwrap();
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        let (host, length) = (gateway.address, body.len());
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    let presign = ("x-millpond-presign", "60");
    let url = ask(&ours, &all, call("PUT", "/bucket/a%20%2B%2Fb", &[presign], "")).is(200);
    let put = anyone("PUT", &url.body, "123456789");
    assert!(put.starts_with("HTTP/1.1 200"), "{put}");
    let url = ask(&ours, &all, call("GET", "/bucket/a%20%2B%2Fb", &[presign], "")).is(200);
    let came = anyone("GET", &url.body, "");
    assert!(
        came.starts_with("HTTP/1.1 200") && came.ends_with("123456789"),
        "{came}"
    );
    let other = anyone("DELETE", &url.body, "");
    assert!(other.starts_with("HTTP/1.1 403"), "{other}");
}

#[test]
fn who_asks_is_whose_keys_they_are() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let (ours, all) = prepared(&gateway, |_| ());
    ask(&ours, &all, call("PUT", "/hidden", &[], "")).is(403);
    let both = [granted("bucket", ""), granted("hidden", "")];
    ask(&ours, &both, call("PUT", "/hidden", &[], "")).is(200);
    let shown = ask(&ours, &all, call("GET", "/", &[JSON], "")).is(200).json();
    assert_eq!(shown["Buckets"]["Bucket"]["Name"], "bucket", "{shown}");

    let wrong = gateway.service_as("other", |_| ());
    let failed = ask(&wrong, &all, call("GET", "/bucket/k", &[JSON], "")).is(403);
    assert_eq!(failed.json()["Code"], "SignatureDoesNotMatch");
    let endpoint = format!("http://{}", gateway.address);
    let nobody = Ours::start(endpoint, Credentials::anonymous(), |_| ());
    ask(&nobody, &all, call("GET", "/bucket/k", &[], "")).is(403);
}

#[test]
fn many_at_once() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let (ours, all) = prepared(&gateway, |_| ());
    let session = contract::Service::bind(&*ours.service, &super::grant(all)).unwrap();
    let calls = testing::runtime().unwrap();
    let all: Vec<_> = (0..64)
        .map(|i| {
            let session = session.clone();
            calls.spawn(async move {
                for turn in 0..8 {
                    let target = format!("/bucket/{i}/{turn}");
                    let body: &'static str = target.clone().leak();
                    let put = session.call(call("PUT", &target, &[], body)).await.unwrap();
                    assert_eq!(put.head.status, 200);
                    let got = session.call(call("GET", &target, &[], "")).await.unwrap();
                    assert_eq!(super::bytes(got.body).await.unwrap(), body.as_bytes());
                }
            })
        })
        .collect();
    for one in all {
        calls.block_on(one).unwrap();
    }
}

#[test]
fn an_upload_whose_end_a_kill_cut_off_is_not_taken_for_complete() {
    let Some(gateway) = Gateway::start() else {
        return;
    };
    let (ours, all) = prepared(&gateway, |_| ());
    let begun = ask(&ours, &all, call("POST", "/bucket/cut?uploads", &[JSON], "")).is(200);
    let upload = begun.json()["UploadId"].as_str().unwrap().to_owned();
    let part = format!("/bucket/cut?partNumber=1&uploadId={upload}");
    let put = ask(
        &ours,
        &all,
        with(Body::Whole(noise(1000)), call("PUT", &part, &[], "")),
    );
    let etag = put.is(200).field("etag").trim_matches('"').to_owned();
    // What the server has on its disk when it is killed before the parts are put together: it has renamed the upload's folder to `UPLOAD.ETAG.inprogress`.
    let uploads = gateway.folder.path().join("bucket/.sgwtmp/multipart");
    let mut objects = uploads.read_dir().unwrap();
    let of_object = objects.next().unwrap().unwrap().path();
    let digits = |at: usize| u8::from_str_radix(&etag[at..at + 2], 16).unwrap();
    let sum: Vec<u8> = (0..etag.len()).step_by(2).map(digits).collect();
    let hex = |sum: &[u8]| sum.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let whole = format!("{}-1", hex(&Md5::digest(&sum)));
    std::fs::rename(
        of_object.join(&upload),
        of_object.join(format!("{upload}.{whole}.inprogress")),
    )
    .unwrap();
    let parts = format!(
        "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></CompleteMultipartUpload>"
    );
    let end = |fields: &[(&'static str, &'static str)]| {
        let call = call("POST", &format!("/bucket/cut?uploadId={upload}"), fields, "");
        ask(&ours, &all, with(Body::Whole(parts.clone().into()), call))
    };
    // So says the server, and there is nothing.
    assert_eq!(end(&[JSON]).is(200).json()["ETag"], format!("\"{whole}\""));
    ask(&ours, &all, call("HEAD", "/bucket/cut", &[], "")).is(404);
    let said = end(&[JSON, ("x-millpond-repeated", "1")]).is(500).json();
    assert_eq!(said["Code"], "InternalError");
}
