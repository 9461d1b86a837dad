//! The embedded S3 over HTTP, by presigned requests.

mod common;

use base64::{Engine, engine::general_purpose::STANDARD};
use common::{Client, Server, data, eventually, files, receive, started};
use sha2::Digest;
use std::{
    io::{Read, Write},
    sync::Arc,
    thread,
};
use store_objects::{Event, Objects, Options};
use tempfile::TempDir;

const PART: usize = 5 << 20;

#[test]
fn objects_of_all_sizes_come_back() {
    let (folder, server) = started();
    for (number, size) in [0, 1, 16 << 10, (16 << 10) + 1, 700_000, 3 << 20]
        .into_iter()
        .enumerate()
    {
        let body = data(number as u8, size);
        let path = format!("/pond/a/ü b/{size}");
        let put = server.client.put(&path, &body);
        assert_eq!(put.status, 200, "{}", put.text());
        let got = server.client.get(&path);
        assert_eq!((got.status, got.body.len()), (200, size));
        assert!(got.body == body);
        assert_eq!(got.field("etag"), put.field("etag"));
        if size > 10 {
            let part = server
                .client
                .call("GET", &path, &[], &[("range", "bytes=5-9")], b"");
            assert_eq!((part.status, part.body.as_slice()), (206, &body[5..10]));
            assert_eq!(part.field("content-range"), Some(format!("bytes 5-9/{size}")));
            let odd = server
                .client
                .call("GET", &path, &[], &[("range", "bytes=9-5")], b"");
            assert_eq!((odd.status, odd.body.len()), (200, size));
        }
    }
    let beyond = server
        .client
        .call("GET", "/pond/a/ü b/1", &[], &[("range", "bytes=1-")], b"");
    assert_eq!(
        (beyond.status, beyond.field("content-range")),
        (416, Some("bytes */1".to_owned()))
    );
    // Three of them are larger than what lies in the index.
    assert_eq!(files(folder.path()), 3);
}

#[test]
fn nothing_is_anonymous() {
    let (_folder, server) = started();
    let good = &server.client;
    good.put("/pond/a", b"secret");
    for target in ["/", "/pond", "/pond/a", "/pond/a?partNumber=1"] {
        let answer = good.raw("GET", target, &[], b"").unwrap();
        assert_eq!(answer.status, 403, "{target}");
    }
    assert_eq!(
        good.raw("GET", "/pond/a", &[("range", "odd")], b"")
            .unwrap()
            .status,
        403
    );
    assert_eq!(good.raw("PUT", "/pond/b", &[], b"x").unwrap().status, 403);
    let wrong = Client {
        secret: "other".to_owned(),
        ..good.clone()
    };
    assert!(wrong.get("/pond/a").text().contains("SignatureDoesNotMatch"));
    let stranger = Client {
        access: "nobody".to_owned(),
        ..good.clone()
    };
    assert!(stranger.get("/pond/a").text().contains("InvalidAccessKeyId"));
    let target = good
        .presign("GET", "/pond/a", &[])
        .replace("/pond/a?", "/pond/b?");
    assert_eq!(good.raw("GET", &target, &[], b"").unwrap().status, 403);
    // Also on the way of ranges that cannot be understood.
    assert_eq!(
        good.raw("GET", &target, &[("range", "odd")], b"").unwrap().status,
        403
    );
}

#[test]
fn what_is_not_what_the_client_says_is_not_kept() {
    let (folder, server) = started();
    for size in [10, 100_000] {
        let path = format!("/pond/{size}");
        assert_eq!(server.client.put(&path, &data(1, size)).status, 200);
        let zeros = STANDARD.encode([0; 16]);
        for (name, value) in [
            ("content-md5", zeros.as_str()),
            ("x-amz-checksum-crc32", "AAAAAA=="),
            ("x-amz-checksum-crc32c", "AAAAAA=="),
            ("x-amz-checksum-crc64nvme", "AAAAAAAAAAA="),
            ("x-amz-checksum-sha1", "AAAAAAAAAAAAAAAAAAAAAAAAAAA="),
            (
                "x-amz-checksum-sha256",
                "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            ),
        ] {
            let refused = server
                .client
                .call("PUT", &path, &[], &[(name, value)], &data(2, size));
            assert_eq!(refused.status, 400, "{name}");
            assert!(refused.text().contains("BadDigest"), "{name}: {}", refused.text());
        }
        for (name, value, code) in [
            ("content-md5", "short", "InvalidDigest"),
            ("x-amz-checksum-sha256", "AAAA", "InvalidRequest"),
            ("x-amz-server-side-encryption", "AES256", "NotImplemented"),
            ("x-amz-storage-class", "GLACIER", "InvalidStorageClass"),
            ("x-amz-acl", "public-read", "AccessControlListNotSupported"),
        ] {
            let refused = server
                .client
                .call("PUT", &path, &[], &[(name, value)], &data(2, size));
            assert!(refused.text().contains(code), "{name}: {}", refused.text());
        }
        assert!(server.client.get(&path).body == data(1, size));
    }
    assert_eq!(files(folder.path()), 1);
}

/// A body that breaks off leaves nothing, neither an entry nor a file.
#[test]
fn what_breaks_off_is_absent() {
    let (folder, server) = started();
    let target = server.client.presign("PUT", "/pond/a", &[]);
    let stream = server
        .client
        .send(
            "PUT",
            &target,
            &[("content-length", "9000000")],
            &data(1, 3 << 20),
        )
        .unwrap();
    eventually("the data is being written", || files(folder.path()) == 1);
    drop(stream);
    eventually("the draft is gone", || files(folder.path()) == 0);
    assert_eq!(server.client.get("/pond/a").status, 404);
}

/// Chunks that end early, checksums behind the data that are wrong or do not come, hashes that are not the data's.
#[test]
fn chunked_and_hashed_bodies_are_whole_or_refused() {
    let (_folder, server) = started();
    let client = &server.client;
    let put = |path: &str, fields: &[(&str, &str)], hash: &str, body: &[u8]| {
        let signed = client.sign("PUT", path, fields, hash);
        let signed: Vec<_> = signed
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let answer = client.raw("PUT", path, &signed, body).unwrap();
        (answer.status, answer.text())
    };
    let chunked = |path: &str, length: &str, body: &str| {
        let fields = [
            ("content-encoding", "gzip,aws-chunked"),
            ("x-amz-decoded-content-length", length),
            ("x-amz-trailer", "x-amz-checksum-crc32"),
        ];
        put(
            path,
            &fields,
            "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
            body.as_bytes(),
        )
    };
    let trailer = "x-amz-checksum-crc32:NhCmhg==\r\n\r\n";
    let whole = format!("2\r\nhe\r\n3\r\nllo\r\n0\r\n{trailer}");
    let (status, text) = chunked("/pond/good", "5", &whole);
    assert_eq!(status, 200, "{text}");
    let good = client.get("/pond/good");
    assert_eq!(
        (good.body.as_slice(), good.field("content-encoding")),
        (&b"hello"[..], Some("gzip".to_owned()))
    );
    for (number, (length, body, code)) in [
        ("5", "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", "MalformedTrailerError"),
        ("5", "2\r\nhe\r\n3\r\nllo\r\n", "MalformedTrailerError"),
        ("5", "2\r\nhe\r\n", "IncompleteBody"),
        ("5", "2\r\nhe\r\n3\r\nl", "IncompleteBody"),
        ("4", whole.as_str(), "IncompleteBody"),
        ("6", whole.as_str(), "IncompleteBody"),
        (
            "5",
            "5\r\nhellO\r\n0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n",
            "BadDigest",
        ),
        (
            "5",
            "5\r\nhello\r\n0\r\nx-amz-checksum-sha1:NhCmhg==\r\n\r\n",
            "MalformedTrailerError",
        ),
        ("5", "zz\r\nhello\r\n0\r\n\r\n", "IncompleteBody"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = format!("/pond/bad-{number}");
        let (status, text) = chunked(&path, length, body);
        assert!(status == 400 && text.contains(code), "{number}: {status} {text}");
        assert_eq!(client.get(&path).status, 404);
    }
    for size in [5, 100_000] {
        let body = data(1, size);
        let hash = common::hex(&sha2::Sha256::digest(&body));
        assert_eq!(put("/pond/hashed", &[], &hash, &body).0, 200);
        let (status, text) = put("/pond/mixed", &[], &hash, &data(2, size));
        assert!(
            status == 400 && text.contains("XAmzContentSHA256Mismatch"),
            "{status} {text}"
        );
        assert_eq!(client.get("/pond/mixed").status, 404);
    }
}

#[test]
fn a_reader_keeps_what_it_reads() {
    let (folder, server) = started();
    let old = data(1, 12 << 20);
    server.client.put("/pond/one", &old);
    let upload = started_upload(&server.client, "/pond/parts");
    let parts = [data(2, PART), data(3, PART)];
    let etags = put_parts(&server.client, "/pond/parts", &upload, &parts);
    assert_eq!(
        complete(&server.client, "/pond/parts", &upload, &etags).status,
        200
    );
    let read = |path: &str| {
        let target = server.client.presign("GET", path, &[]);
        let mut stream = server.client.send("GET", &target, &[], b"").unwrap();
        let mut first = vec![0; 100];
        stream.read_exact(&mut first).unwrap();
        (first, stream)
    };
    let (mut first, mut one) = read("/pond/one");
    let (mut other, mut both) = read("/pond/parts");
    server.client.put("/pond/one", b"new");
    assert_eq!(
        server.client.call("DELETE", "/pond/parts", &[], &[], b"").status,
        204
    );
    one.read_to_end(&mut first).unwrap();
    assert!(first.ends_with(&old));
    both.read_to_end(&mut other).unwrap();
    assert!(other.ends_with(&parts.concat()));
    assert_eq!(server.client.get("/pond/one").body, b"new");
    eventually("what nobody reads is gone", || files(folder.path()) == 0);
}

fn started_upload(client: &Client, path: &str) -> String {
    let begun = client.call("POST", path, &[("uploads", "")], &[], b"");
    assert_eq!(begun.status, 200, "{}", begun.text());
    begun.between("<UploadId>", "</UploadId>")
}

fn put_parts(client: &Client, path: &str, upload: &str, parts: &[Vec<u8>]) -> Vec<String> {
    let put = |(number, part): (usize, &Vec<u8>)| {
        let number = (number + 1).to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", upload)];
        let answer = client.call("PUT", path, &query, &[], part);
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.field("etag").unwrap()
    };
    parts.iter().enumerate().map(put).collect()
}

fn complete(client: &Client, path: &str, upload: &str, etags: &[String]) -> common::Answer {
    let parts: String = etags
        .iter()
        .enumerate()
        .map(|(number, etag)| {
            format!(
                "<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag></Part>",
                number + 1
            )
        })
        .collect();
    let document = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    client.call("POST", path, &[("uploadId", upload)], &[], document.as_bytes())
}

#[test]
fn parts_become_an_object_and_survive_a_restart() {
    let (folder, server) = started();
    let client = server.client.clone();
    let parts = [data(1, PART), data(2, PART), data(3, 10)];
    let upload = started_upload(&client, "/pond/big");
    let etags = put_parts(&client, "/pond/big", &upload, &parts);
    // Once more, as a client does that missed the answer: the first one's file goes.
    assert_eq!(put_parts(&client, "/pond/big", &upload, &parts[..1]), etags[..1]);
    assert_eq!(client.get("/pond/big").status, 404);
    drop(server);
    let server = Server::start(folder.path(), Options::default());
    let client = &server.client;
    assert_eq!(files(folder.path()), 3);
    // The middle one is left out.
    let short = complete(
        client,
        "/pond/big",
        &upload,
        &[etags[0].clone(), etags[0].clone()],
    );
    assert!(short.text().contains("InvalidPart"), "{}", short.text());
    let done = complete(client, "/pond/big", &upload, &etags);
    assert_eq!(done.status, 200, "{}", done.text());
    let got = client.get("/pond/big");
    assert!(got.body == parts.concat());
    assert!(got.field("etag").unwrap().ends_with("-3\""));
    let across = format!("bytes={}-{}", PART - 3, 2 * PART + 4);
    let ranged = client.call("GET", "/pond/big", &[], &[("range", &across)], b"");
    assert!(ranged.body == parts.concat()[PART - 3..=2 * PART + 4]);
    let second = client.call("GET", "/pond/big", &[("partNumber", "2")], &[], b"");
    assert_eq!(
        (second.status, second.field("x-amz-mp-parts-count")),
        (206, Some("3".to_owned()))
    );
    assert!(second.body == parts[1]);
    assert!(
        complete(client, "/pond/big", &upload, &etags)
            .text()
            .contains("NoSuchUpload")
    );
    // A copy is one object of its own.
    let copied = client.call(
        "PUT",
        "/pond/copy",
        &[],
        &[("x-amz-copy-source", "/pond/big")],
        b"",
    );
    assert_eq!(copied.status, 200, "{}", copied.text());
    assert_eq!(files(folder.path()), 4);
    client.call("DELETE", "/pond/big", &[], &[], b"");
    assert!(client.get("/pond/copy").body == parts.concat());
    eventually("the parts are gone", || files(folder.path()) == 1);
}

#[test]
fn of_writers_at_the_same_time_one_is_the_first() {
    let (_folder, server) = started();
    for size in [10, 50_000] {
        let path = format!("/pond/lock-{size}");
        let won: usize = thread::scope(|scope| {
            let attempts: Vec<_> = (0..12)
                .map(|number| {
                    let (client, path) = (&server.client, &path);
                    scope.spawn(move || {
                        let fields = [("if-none-match", "*")];
                        let answer = client.call("PUT", path, &[], &fields, &data(number, size));
                        assert!(matches!(answer.status, 200 | 412), "{}", answer.text());
                        usize::from(answer.status == 200)
                    })
                })
                .collect();
            attempts.into_iter().map(|attempt| attempt.join().unwrap()).sum()
        });
        assert_eq!(won, 1);
        let etag = server.client.get(&path).field("etag").unwrap();
        let write = |etag: &str| {
            server
                .client
                .call("PUT", &path, &[], &[("if-match", etag)], b"x")
                .status
        };
        assert_eq!((write(&etag), write(&etag)), (200, 412));
        let delete = |etag: &str| {
            server
                .client
                .call("DELETE", &path, &[], &[("if-match", etag)], b"")
                .status
        };
        let etag = server.client.get(&path).field("etag").unwrap();
        assert_eq!((delete("\"0\""), delete(&etag), delete(&etag)), (412, 204, 404));
    }
}

#[test]
fn what_is_wanted_is_told_until_it_was() {
    let folder = TempDir::new().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let options = || Options {
        wanted: Some(Arc::new(|created| created.key != "unwanted")),
        ..Options::default()
    };
    let server = Server::start(folder.path(), options());
    let client = &server.client;
    client.put("/pond", b"");
    assert_eq!(client.put("/pond/unwanted", b"x").status, 200);
    let put = client.put("/pond/a", b"hello");
    client.call("PUT", "/pond/b", &[], &[("x-amz-copy-source", "/pond/a")], b"");
    let upload = started_upload(client, "/pond/c");
    let etags = put_parts(client, "/pond/c", &upload, &[b"part".to_vec()]);
    complete(client, "/pond/c", &upload, &etags);
    client.call("PUT", "/pond/a", &[], &[("if-none-match", "*")], b"refused");
    client.call("DELETE", "/pond/a", &[], &[], b"");
    drop(server);

    // Nothing is lost with the process, and nothing counted anew.
    let objects = Objects::open(folder.path(), options()).unwrap();
    let heard = runtime.block_on(objects.events(10)).unwrap();
    let told: Vec<_> = heard
        .iter()
        .map(|(number, one)| (*number, one.key.as_str(), one.size, one.event))
        .collect();
    assert_eq!(
        told,
        [
            (1, "a", 5, Event::Put),
            (2, "b", 5, Event::Copy),
            (3, "c", 4, Event::CompleteMultipartUpload)
        ]
    );
    assert_eq!(put.field("etag"), Some(format!("\"{}\"", heard[0].1.etag)));
    assert_eq!(heard[2].1.event.name(), "ObjectCreated:CompleteMultipartUpload");
    runtime.block_on(objects.told(2)).unwrap();
    assert_eq!(runtime.block_on(objects.events(10)).unwrap(), heard[2..]);
    runtime.block_on(objects.told(3)).unwrap();
    drop(objects);

    let server = Server::start(folder.path(), options());
    server.client.put("/pond/d", b"");
    drop(server);
    let objects = Objects::open(folder.path(), options()).unwrap();
    let heard = runtime.block_on(objects.events(1)).unwrap();
    assert_eq!((heard[0].0, heard[0].1.key.as_str()), (4, "d"));
}

#[test]
fn buckets_end_empty() {
    let (folder, server) = started();
    let client = &server.client;
    client.put("/pond-2", b"");
    client.put("/pond/a", b"x");
    assert!(
        client
            .call("DELETE", "/pond", &[], &[], b"")
            .text()
            .contains("BucketNotEmpty")
    );
    // A neighbour whose name begins alike is not touched, and an upload goes with its bucket.
    client.put("/pond-2/z", &data(1, 20_000));
    let upload = started_upload(client, "/pond/b");
    put_parts(client, "/pond/b", &upload, &[data(2, 100)]);
    client.call("DELETE", "/pond/a", &[], &[], b"");
    assert_eq!(client.call("DELETE", "/pond", &[], &[], b"").status, 204);
    assert_eq!(client.call("DELETE", "/pond", &[], &[], b"").status, 404);
    assert!(client.get("/pond-2/z").body == data(1, 20_000));
    eventually("the part is gone", || files(folder.path()) == 1);
    let listed = client.get("/");
    assert!(listed.text().contains("<Name>pond-2</Name>") && !listed.text().contains("<Name>pond</Name>"));
}

/// Connections beyond the limit wait; they are not refused.
#[test]
fn connections_are_bounded() {
    let folder = TempDir::new().unwrap();
    let options = Options {
        connections: 1,
        ..Options::default()
    };
    let server = Server::start(folder.path(), options);
    let client = server.client.clone();
    let target = client.presign("PUT", "/pond", &[]);
    let mut first = client
        .send("PUT", &target, &[("content-length", "1")], b"")
        .unwrap();
    thread::scope(|scope| {
        let second = scope.spawn(|| client.get("/"));
        first.write_all(b" ").unwrap();
        receive(first).unwrap();
        assert_eq!(second.join().unwrap().status, 200);
    });
}
