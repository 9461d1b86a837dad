//! Against a server that does what it is told: the seam's suite, and what goes out and comes in.

use super::{Ours, call, grant, granted, streamed};
use contract::{BodyError, Call, CallError, Grant, Reply, Service, conformance};
use egress::testing::Server;
use millpond_service_s3::{Credentials, Options, Payload};
use std::{sync::Arc, time::Duration};

fn start(server: &Server, change: impl FnOnce(&mut Options)) -> Ours {
    let credentials = Credentials::environment(|name| Some(format!("{name}-value")));
    Ours::start(server.uri(""), credentials.unwrap(), change)
}

fn value<'a>(head: &'a http::request::Parts, name: &str) -> Option<&'a str> {
    let mut all = head.headers.get_all(name).iter();
    let first = all.next().map(|value| value.to_str().unwrap());
    assert!(all.next().is_none(), "{name} is there twice");
    first
}

/// What came last.
fn last(server: &Server) -> (http::request::Parts, bytes::Bytes) {
    let seen = server.last().unwrap();
    (seen.head, seen.body)
}

/// Has it answer this from now on.
fn answer(server: &Server, status: u16, media_type: &str, body: &'static str) {
    server.answer((status, vec![("content-type", media_type.to_owned())], body.into()));
}

/// Both sides, as the suite wants them.
struct Peer {
    ours: Ours,
    server: Server,
}

impl conformance::service::Peer for Peer {
    fn service(&self) -> Arc<dyn Service> {
        self.ours.service.clone()
    }

    fn open(&self, grant: &mut Grant) {
        grant.s3.push(granted("bucket", ""));
    }

    fn open_elsewhere(&self, grant: &mut Grant) {
        grant.s3.push(granted("elsewhere", ""));
    }

    fn ask(&self, call: &mut Call, what: conformance::service::Asked) {
        call.operation = "PUT".to_owned();
        call.target = format!("/bucket/{}", Server::path(what));
    }

    fn is_denied(&self, answer: &Result<Reply, CallError>) -> bool {
        matches!(answer, Ok(reply) if reply.head.status == 403)
    }

    fn reached(&self) -> usize {
        self.server.reached()
    }

    fn under_way(&self) -> usize {
        self.server.under_way()
    }
}

#[test]
fn it_conforms() {
    let server = Server::start().unwrap();
    let ours = start(&server, |_| ());
    conformance::service::run(&Peer { ours, server });
}

#[test]
fn a_denied_call_is_answered_as_s3_would_and_not_sent() {
    let server = Server::start().unwrap();
    let ours = start(&server, |_| ());
    let json = [("x-millpond-document", "json")];
    for (method, target, fields, status, code) in [
        ("GET", "/other/k", &[][..], 403, "<Code>AccessDenied</Code>"),
        ("GET", "/bucket/out/k", &json, 403, r#""Code":"AccessDenied""#),
        (
            "PUT",
            "/bucket/in/k",
            &[("x-amz-acl", "public-read")],
            403,
            "AccessDenied",
        ),
        (
            "PUT",
            "/bucket/in/k",
            &[("x-amz-copy-source", "other/k")],
            403,
            "AccessDenied",
        ),
        (
            "PUT",
            "/bucket/in/k",
            &[("x-amz-copy-source", "arn:aws:s3:x")],
            400,
            "InvalidArgument",
        ),
        (
            "PUT",
            "/bucket/in/k",
            &[("range", "a"), ("Range", "b")],
            400,
            "InvalidRequest",
        ),
        (
            "PUT",
            "/bucket/in/k",
            &[("content-length", "7")],
            400,
            "IncompleteBody",
        ),
        (
            "GET",
            "/bucket/in/k",
            &[("content-length", "7")],
            400,
            "IncompleteBody",
        ),
        ("GET", "//in/k", &[], 400, "InvalidURI"),
        ("GET", "/My_Bucket/in/k", &[], 400, "InvalidBucketName"),
        ("GET", "http://elsewhere/bucket/in/k", &[], 400, "InvalidURI"),
        ("HEAD", "/bucket/out/k", &[], 403, ""),
        (
            "POST",
            "/bucket?delete",
            &[("x-millpond-presign", "60")],
            403,
            "AccessDenied",
        ),
        ("GET", "/", &[("x-millpond-presign", "60")], 403, "AccessDenied"),
    ] {
        let (its, body) = ours.text(vec![granted("bucket", "in/")], call(method, target, fields, ""));
        let body = body.unwrap();
        assert_eq!(its, status, "{method} {target} {fields:?}: {body}");
        assert!(
            body.contains(code) && (method != "HEAD" || body.is_empty()),
            "{body}"
        );
    }
    assert_eq!(server.reached(), 0);
}

#[test]
fn what_goes_out_is_the_nodes() {
    let server = Server::start().unwrap();
    let ours = start(&server, |_| ());
    let fields = [
        ("host", "elsewhere"),
        ("authorization", "mine"),
        ("x-amz-date", "mine"),
        ("x-amz-security-token", "mine"),
        ("x-amz-content-sha256", "mine"),
        ("transfer-encoding", "chunked"),
        ("content-type", "text/plain"),
        ("x-amz-meta-a", "b"),
        ("x-millpond-checksum", "crc32"),
        ("x-millpond-md5", "1"),
    ];
    let (status, _) = ours.text(
        vec![granted("bucket", "")],
        call("PUT", "/bucket/%61//b%2fc+d?x-id=PutObject", &fields, "123456789"),
    );
    let (head, body) = last(&server);
    assert_eq!((status, &body[..]), (200, &b"123456789"[..]));
    assert_eq!(head.uri, "/bucket/a//b/c%2Bd");
    let address = server.address.to_string();
    for (name, expected) in [
        ("host", Some(&address[..])),
        ("content-length", Some("9")),
        ("content-type", Some("text/plain")),
        ("x-amz-meta-a", Some("b")),
        ("x-amz-checksum-crc32", Some("y/Q5Jg==")),
        ("x-amz-sdk-checksum-algorithm", Some("CRC32")),
        ("content-md5", Some("JfnnlDI7RTiF9RgfG2JNCw==")),
        ("x-amz-security-token", Some("AWS_SESSION_TOKEN-value")),
        // By `http` a body in memory is signed.
        (
            "x-amz-content-sha256",
            Some("15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
        ),
        ("transfer-encoding", None),
        ("x-millpond-checksum", None),
    ] {
        assert_eq!(value(&head, name), expected, "{name}");
    }
    let authorization = value(&head, "authorization").unwrap();
    assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AWS_ACCESS_KEY_ID-value/"));
}

#[test]
fn a_body_in_pieces_goes_as_it_comes() {
    let server = Server::start().unwrap();
    let ours = start(&server, |_| ());
    let all = || vec![granted("bucket", "")];
    let length = ("content-length", "9");
    let (status, _) = ours.text(all(), streamed(&[length], &["1234", "56789"]));
    let (head, body) = last(&server);
    assert_eq!((status, &body[..]), (200, &b"123456789"[..]));
    assert_eq!(value(&head, "content-length"), Some("9"));
    assert_eq!(value(&head, "x-amz-content-sha256"), Some("UNSIGNED-PAYLOAD"));

    let checksum = ("x-millpond-checksum", "crc32");
    let gzip = ("content-encoding", "gzip");
    let _ = ours.text(all(), streamed(&[length, checksum, gzip], &["1234", "56789"]));
    let (head, body) = last(&server);
    assert_eq!(
        body,
        "9\r\n123456789\r\n0\r\nx-amz-checksum-crc32:y/Q5Jg==\r\n\r\n"
    );
    for (name, expected) in [
        ("content-encoding", "gzip"),
        ("x-amz-decoded-content-length", "9"),
        ("x-amz-trailer", "x-amz-checksum-crc32"),
        ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ("content-length", &body.len().to_string()),
    ] {
        assert_eq!(value(&head, name), Some(expected));
    }

    // One whose length nobody knows is put together, as far as that goes.
    let _ = ours.text(all(), streamed(&[checksum], &["1234", "56789"]));
    let (head, body) = last(&server);
    assert_eq!(body, "123456789");
    assert_eq!(value(&head, "x-amz-checksum-crc32"), Some("y/Q5Jg=="));
    let long: &'static str = "x".repeat(3 << 20).leak();
    let reached = server.reached();
    let (status, body) = ours.text(all(), streamed(&[], &[long, long, long]));
    assert_eq!(status, 411);
    assert!(body.unwrap().contains("MissingContentLength"));
    assert_eq!(server.reached(), reached);

    // One that is shorter or longer than it says is not sent as if it were whole.
    for pieces in [&["1234"][..], &["1234", "567890"]] {
        for fields in [&[length][..], &[length, checksum]] {
            assert!(matches!(
                ours.ask(all(), streamed(fields, pieces)),
                Err(CallError::Broken(_))
            ));
        }
    }
    let signed = start(&server, |options| options.payload = Payload::Signed);
    let _ = signed.text(all(), streamed(&[length], &["1234", "56789"]));
    let hash = "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225";
    assert_eq!(value(&last(&server).0, "x-amz-content-sha256"), Some(hash));
    let (status, _) = signed.text(all(), streamed(&[length], &["1234"]));
    assert_eq!(status, 400);
    // What is not kept in memory is signed chunk by chunk.
    let length = ("content-length", "9437184");
    for (fields, said) in [
        (&[length][..], "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
        (&[length, checksum], "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"),
    ] {
        let _ = signed.text(all(), streamed(fields, &[long, long, long]));
        let (head, body) = last(&server);
        let body = String::from_utf8(body.to_vec()).unwrap();
        assert_eq!(value(&head, "x-amz-content-sha256"), Some(said));
        assert_eq!(value(&head, "x-amz-decoded-content-length"), Some("9437184"));
        assert_eq!(body.matches(";chunk-signature=").count(), 36 + 1);
        assert_eq!(body.contains("x-amz-trailer-signature:"), fields.len() > 1);
    }
}

#[test]
fn documents_come_as_json_where_they_are_wanted() {
    let server = Server::start().unwrap();
    let ours = start(&server, |_| ());
    let text = |method, target, fields: &[(&'static str, &'static str)]| {
        ours.text(vec![granted("bucket", "")], call(method, target, fields, ""))
    };
    let json = [("x-millpond-document", "json")];
    answer(&server, 200, "application/xml", "<R><K>1</K></R>");
    assert_eq!(
        text("GET", "/bucket?list-type=2", &json),
        (200, Ok(r#"{"K":"1"}"#.into()))
    );
    assert_eq!(
        text("GET", "/bucket?list-type=2", &[]),
        (200, Ok("<R><K>1</K></R>".into()))
    );
    // An object's bytes are its own, whatever they look like.
    assert_eq!(
        text("GET", "/bucket/k", &json),
        (200, Ok("<R><K>1</K></R>".into()))
    );
    answer(
        &server,
        404,
        "application/xml",
        "<Error><Code>NoSuchKey</Code></Error>",
    );
    assert_eq!(
        text("GET", "/bucket/k", &json),
        (404, Ok(r#"{"Code":"NoSuchKey"}"#.into()))
    );
    assert_eq!(text("HEAD", "/bucket/k", &json), (404, Ok(String::new())));
    answer(&server, 200, "application/json", r#"{"Version":"x"}"#);
    assert_eq!(
        text("GET", "/bucket?policy", &json),
        (200, Ok(r#"{"Version":"x"}"#.into()))
    );
    answer(&server, 502, "text/html", "<html><p></html>");
    assert_eq!(
        text("GET", "/bucket/k", &json),
        (502, Ok("<html><p></html>".into()))
    );
    answer(&server, 200, "application/xml", "");
    assert_eq!(text("PUT", "/bucket/k", &json), (200, Ok(String::new())));
    answer(&server, 200, "application/xml", "<R><K>1</R>");
    let broken = ours.ask(vec![granted("bucket", "")], call("GET", "/bucket", &json, ""));
    assert!(matches!(broken, Err(CallError::Broken(_))), "{broken:?}");
    let reply = {
        answer(&server, 200, "application/xml", "<R><K>1</K></R>");
        ours.ask(vec![granted("bucket", "")], call("GET", "/bucket", &json, ""))
    };
    let headers = reply.unwrap().head.headers;
    let field = |name: &str| {
        headers
            .iter()
            .filter(|(its, _)| its == name)
            .map(|(_, value)| &value[..])
            .collect::<Vec<_>>()
    };
    assert_eq!(field("content-type"), [b"application/json"]);
    assert_eq!(field("content-length"), [b"9"]);
    assert!(field("transfer-encoding").is_empty() && field("connection").is_empty());
}

#[test]
fn an_object_that_does_not_have_its_checksum_breaks_off() {
    let server = Server::start().unwrap();
    let ours = start(&server, |_| ());
    let wrong = "x-amz-checksum-crc32";
    let ask = |mode: &[(&'static str, &'static str)], body: &'static str| {
        let fields = vec![(wrong, "y/Q5Jg==".to_owned())];
        server.answer((200, fields, body.into()));
        ours.text(vec![granted("bucket", "")], call("GET", "/bucket/k", mode, ""))
            .1
    };
    let enabled = [("x-amz-checksum-mode", "ENABLED")];
    assert_eq!(ask(&enabled, "123456789"), Ok("123456789".to_owned()));
    assert_eq!(ask(&enabled, "123456780"), Err(BodyError::Damaged));
    assert_eq!(ask(&enabled, ""), Err(BodyError::Damaged));
    assert_eq!(ask(&[], "123456780"), Ok("123456780".to_owned()), "nobody asked");
}

#[test]
fn the_end_of_an_upload_that_has_come_to_it_is_known_by_its_object() {
    let server = Server::start().unwrap();
    let ours = start(&server, |_| ());
    let parts = "<CompleteMultipartUpload>\
        <Part><PartNumber>1</PartNumber><ETag>&quot;79b281060d337b9b2b84ccf390adcf74&quot;</ETag></Part>\
        <Part><PartNumber>2</PartNumber><ETag>82136b4240d6ce4ea7d03e51469a393b</ETag></Part>\
        </CompleteMultipartUpload>";
    let odd = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>odd</ETag></Part></CompleteMultipartUpload>";
    let gone = "<Error><Code>NoSuchUpload</Code></Error>";
    let (json, repeated) = (("x-millpond-document", "json"), ("x-millpond-repeated", "1"));
    // The value that AWS gives two parts of 5 MiB of `a` and 10 bytes of `b`.
    let etag = "\"8b0be7847da5564ae08e97af63b60885-2\"";
    let put_only = || contract::S3Grant {
        actions: vec![contract::S3Action::Put],
        ..granted("bucket", "in/")
    };
    let end = |fields: &[(&'static str, &'static str)], parts: &'static str, (status, etag): (u16, &str)| {
        let media_type = vec![("content-type", "application/xml".to_owned())];
        server.answer_first((404, media_type, gone.into()));
        server.answer((status, vec![("etag", etag.to_owned())], "".into()));
        let (status, text) = ours.text(
            vec![put_only()],
            call("POST", "/bucket/in/k?uploadId=u", fields, parts),
        );
        let (head, _) = last(&server);
        (status, text.unwrap(), format!("{} {}", head.method, head.uri))
    };
    let (status, text, asked) = end(&[json, repeated], parts, (200, etag));
    assert_eq!((status, &asked[..]), (200, "HEAD /bucket/in/k"));
    for said in [
        r#""ETag":"\"8b0be7847da5564ae08e97af63b60885-2\"""#,
        r#""Key":"in/k""#,
    ] {
        assert!(text.contains(said), "{text}");
    }
    let (on_object, on_upload) = ("HEAD /bucket/in/k", "POST /bucket/in/k?uploadId=u");
    for (fields, parts, found, asked) in [
        (&[repeated][..], parts, (200, "\"other-2\""), on_object),
        (&[repeated], parts, (403, etag), on_object),
        (&[repeated], odd, (200, etag), on_upload),
        (&[], parts, (200, etag), on_upload),
        (&[repeated, ("if-none-match", "*")], parts, (200, etag), on_upload),
    ] {
        let (status, text, was_asked) = end(fields, parts, found);
        assert_eq!((status, &was_asked[..], &text[..]), (404, asked, gone));
    }
}

#[test]
fn an_upload_that_is_said_to_be_complete_has_its_object() {
    let server = Server::start().unwrap();
    let ours = start(&server, |_| ());
    let parts = "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\
        79b281060d337b9b2b84ccf390adcf74</ETag></Part></CompleteMultipartUpload>";
    let well = "<CompleteMultipartUploadResult><Key>k</Key><ETag>&quot;its-1&quot;</ETag></CompleteMultipartUploadResult>";
    let late = "<Error><Code>InternalError</Code></Error>";
    let (json, repeated) = (("x-millpond-document", "json"), ("x-millpond-repeated", "1"));
    let condition = ("if-none-match", "*");
    let (on_object, on_version) = ("HEAD /bucket/k", "HEAD /bucket/k?versionId=v1");
    let on_upload = "POST /bucket/k?uploadId=u";
    let is_there = (200, "\"its-1\"");
    for (fields, version, said, found, asked, status) in [
        (&[json, repeated][..], false, well, is_there, on_object, 200),
        (&[repeated], false, well, is_there, on_object, 200),
        (&[repeated], true, well, is_there, on_version, 200),
        (&[repeated], false, well, (200, "its-1"), on_object, 200),
        // Who may not see it has to take S3's word.
        (&[repeated], false, well, (403, ""), on_object, 200),
        (&[repeated], false, well, (400, ""), on_object, 200),
        (&[json, repeated], false, well, (404, ""), on_object, 500),
        (&[repeated], false, well, (404, ""), on_object, 500),
        (&[repeated, condition], false, well, (404, ""), on_object, 500),
        (&[repeated], true, well, (404, ""), on_version, 500),
        // What was there before.
        (&[repeated], false, well, (200, "\"other-1\""), on_object, 500),
        (&[repeated], false, well, (500, ""), on_object, 500),
        // It was asked once, or is an error already.
        (&[], false, well, (404, ""), on_upload, 200),
        (&[repeated], false, late, (404, ""), on_upload, 200),
    ] {
        let mut first = vec![("content-type", "application/xml".to_owned())];
        first.extend(version.then(|| ("x-amz-version-id", "v1".to_owned())));
        server.answer_first((200, first, said.into()));
        server.answer((found.0, vec![("etag", found.1.to_owned())], "".into()));
        let call = call("POST", "/bucket/k?uploadId=u", fields, parts);
        let (its, text) = ours.text(vec![granted("bucket", "")], call);
        let (head, _) = last(&server);
        let case = format!("{fields:?} {said} {found:?}");
        assert_eq!(
            (its, &format!("{} {}", head.method, head.uri)[..]),
            (status, asked),
            "{case}"
        );
        let text = text.unwrap();
        match (status, said == well) {
            (200, true) => assert!(text.contains("its-1"), "{case}: {text}"),
            (500, _) => assert!(text.contains("its object is not there"), "{case}: {text}"),
            _ => assert_eq!(text, said, "{case}"),
        }
    }
}

#[test]
fn of_many_deletions_those_that_are_not_granted_are_left_out() {
    let server = Server::start().unwrap();
    let ours = start(&server, |_| ());
    let body = "<Delete><Object><Key>in/a</Key></Object><Object><Key>out/b</Key></Object></Delete>";
    let delete = |fields: &[(&'static str, &'static str)]| {
        ours.text(
            vec![granted("bucket", "in/")],
            call("POST", "/bucket?delete", fields, body),
        )
    };
    answer(
        &server,
        200,
        "application/xml",
        "<DeleteResult><Deleted><Key>in/a</Key></Deleted></DeleteResult>",
    );
    let (status, text) = delete(&[
        ("x-millpond-document", "json"),
        ("content-md5", "of what is not sent"),
        ("x-amz-checksum-crc32", "of what is not sent"),
    ]);
    assert_eq!(
        (status, text.unwrap().as_str()),
        (
            200,
            r#"{"Deleted":{"Key":"in/a"},"Error":{"Code":"AccessDenied","Key":"out/b","Message":"Access Denied"}}"#
        )
    );
    let (head, sent) = last(&server);
    let sent = std::str::from_utf8(&sent).unwrap();
    assert!(sent.contains("in/a") && !sent.contains("out/b"), "{sent}");
    assert!(value(&head, "content-md5").unwrap().ends_with("=="));
    assert_eq!(value(&head, "x-amz-checksum-crc32"), None);
    let (_, text) = delete(&[]);
    assert!(
        text.unwrap()
            .contains("<Error><Code>AccessDenied</Code><Key>out/b</Key>")
    );
    // An error that is S3's own is passed on.
    answer(
        &server,
        400,
        "application/xml",
        "<Error><Code>MalformedXML</Code></Error>",
    );
    assert_eq!(
        delete(&[]),
        (400, Ok("<Error><Code>MalformedXML</Code></Error>".into()))
    );
    let reached = server.reached();
    let none = call(
        "POST",
        "/bucket?delete",
        &[],
        "<Delete><Object><Key>out/b</Key></Object></Delete>",
    );
    let (status, text) = ours.text(vec![granted("bucket", "in/")], none);
    assert!(status == 200 && text.unwrap().contains("AccessDenied"));
    let no = call("POST", "/bucket?delete", &[], "<Delete>");
    assert_eq!(ours.text(vec![granted("bucket", "in/")], no).0, 400);
    assert_eq!(server.reached(), reached);
}

#[test]
fn buckets_that_are_not_granted_are_not_shown() {
    let server = Server::start().unwrap();
    let ours = start(&server, |_| ());
    let listing =
        "<L><Buckets><Bucket><Name>bucket</Name></Bucket><Bucket><Name>hidden</Name></Bucket></Buckets></L>";
    answer(&server, 200, "application/xml", listing);
    for fields in [&[][..], &[("x-millpond-document", "json")]] {
        let (status, text) = ours.text(vec![granted("bucket", "in/")], call("GET", "/", fields, ""));
        let text = text.unwrap();
        assert!(
            status == 200 && text.contains("bucket") && !text.contains("hidden"),
            "{text}"
        );
    }
    answer(&server, 200, "text/plain", listing);
    let broken = ours.ask(vec![granted("bucket", "")], call("GET", "/", &[], ""));
    assert!(
        matches!(broken, Err(CallError::Broken(_))),
        "what cannot be changed is not shown"
    );
}

#[test]
fn a_presigned_url_is_made_here() {
    let server = Server::start().unwrap();
    let ours = start(&server, |_| ());
    let presign = [("x-millpond-presign", "60"), ("content-type", "a/b")];
    let (status, url) = ours.text(
        vec![granted("bucket", "")],
        call("PUT", "/bucket/a%20b", &presign, ""),
    );
    let (url, start) = (url.unwrap(), format!("{}/bucket/a%20b?", server.uri("")));
    assert!(status == 200 && url.starts_with(&start), "{url}");
    assert!(
        url.contains("X-Amz-Expires=60") && url.contains("content-type%3Bhost"),
        "{url}"
    );
    assert_eq!(server.reached(), 0);
}

#[test]
fn no_more_calls_are_under_way_than_may_be() {
    let server = Server::start().unwrap();
    let ours = start(&server, |options| options.calls = 1);
    let all = || vec![granted("bucket", "")];
    let session = ours.service.bind(&grant(all())).unwrap();
    let silent = session.call(call("GET", "/bucket/silence", &[], ""));
    let (status, text) = ours.text(all(), call("GET", "/bucket/k", &[], ""));
    assert!(status == 503 && text.unwrap().contains("SlowDown"));
    drop(silent);
    while ours.text(all(), call("GET", "/bucket/k", &[], "")).0 != 200 {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn where_nobody_listens_the_connection_is_refused() {
    let server = Server::start().unwrap();
    let (_port, free) = super::port();
    for (endpoint, expected) in [
        (format!("http://{free}"), "Refused"),
        ("http://nobody.invalid".into(), "Name"),
    ] {
        let ours = start(&server, |options| options.endpoint = Some(endpoint));
        let failed = ours.ask(vec![granted("bucket", "")], call("GET", "/bucket/k", &[], ""));
        assert!(format!("{:?}", failed.unwrap_err()).starts_with(expected));
    }
}
