//! Requests of functions, and what becomes of them.

use bytes::Bytes;
use contract::{AwsGrant, Body, Call, CallError, Caller, Grant, Reply, Service as _};
use egress::testing::{self, Server};
use service_aws::{Aws, Credentials, Options, OptionsError};
use tokio::runtime::Runtime;

struct Ours {
    service: Aws,
    runtime: Runtime,
    server: Server,
}

impl Ours {
    fn start() -> Self {
        let (runtime, server) = (testing::runtime().unwrap(), Server::start().unwrap());
        let options = Options {
            endpoint: Some(server.uri("")),
            region: "eu-west-1".to_owned(),
            ..Options::default()
        };
        let keys = Credentials::environment(|name| Some(format!("{name}-value"))).unwrap();
        Self {
            service: Aws::new(runtime.handle().clone(), keys, &options).unwrap(),
            runtime,
            server,
        }
    }

    fn ask(&self, grants: &[AwsGrant], call: Call) -> Result<Reply, CallError> {
        let grant = Grant {
            aws: grants.to_vec(),
            ..Grant::nothing("shop.f".parse().unwrap())
        };
        let session = self.service.bind(&grant).unwrap();
        self.runtime.block_on(session.call(call))
    }
}

fn grant(service: &str, actions: &[&str], resources: &[&str]) -> AwsGrant {
    let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
    AwsGrant {
        service: service.to_owned(),
        actions: owned(actions),
        resources: owned(resources),
    }
}

fn call(service: &'static str, fields: &[(&'static str, &'static str)], body: &'static str) -> Call {
    let is_json = fields.iter().any(|(name, _)| *name == "x-amz-target");
    let kind = match is_json {
        true => "application/x-amz-json-1.0",
        false => "application/x-www-form-urlencoded; charset=utf-8",
    };
    let more = [("x-millpond-service", service), ("content-type", kind)];
    let fields = fields.iter().chain(&more);
    Call {
        operation: "POST".to_owned(),
        target: "/".to_owned(),
        parameters: fields
            .map(|(name, value)| ((*name).into(), Bytes::from(*value)))
            .collect(),
        body: Body::Whole(body.into()),
        patience: None,
        pause: None,
        caller: Caller::default(),
    }
}

fn target(operation: &'static str) -> (&'static str, &'static str) {
    ("x-amz-target", operation)
}

const ORDERS: &str = r#"{"TableName":"orders"}"#;

#[test]
fn what_is_granted_goes_out_signed_and_with_no_other_field() {
    let ours = Ours::start();
    let get = call(
        "dynamodb",
        &[
            target("DynamoDB_20120810.GetItem"),
            ("authorization", "AWS4-HMAC-SHA256 of another's"),
            ("x-amz-security-token", "another's"),
            ("host", "elsewhere"),
            ("x-forwarded-for", "x"),
        ],
        ORDERS,
    );
    let reply = ours
        .ask(&[grant("dynamodb", &["Get*"], &["orders"])], get)
        .unwrap();
    assert_eq!(reply.head.status, 200);
    let seen = ours.server.last().unwrap();
    assert_eq!(
        (seen.head.method.as_str(), seen.head.uri.path(), &seen.body[..]),
        ("POST", "/", ORDERS.as_bytes())
    );
    let mut names: Vec<_> = seen.head.headers.keys().map(|name| name.as_str()).collect();
    names.sort_unstable();
    let expected = [
        "authorization",
        "content-length",
        "content-type",
        "host",
        "x-amz-date",
        "x-amz-security-token",
        "x-amz-target",
    ];
    assert_eq!(names, expected);
    let said = |name: &str| seen.head.headers[name].to_str().unwrap();
    assert!(said("authorization").starts_with("AWS4-HMAC-SHA256 Credential=AWS_ACCESS_KEY_ID-value/"));
    assert!(said("authorization").contains("/eu-west-1/dynamodb/aws4_request"));
    assert_eq!(said("x-amz-security-token"), "AWS_SESSION_TOKEN-value");
}

#[test]
fn what_is_not_granted_is_answered_here() {
    let ours = Ours::start();
    let grants = [
        grant("dynamodb", &["GetItem"], &["orders", "a"]),
        grant("dynamodb", &["PutItem"], &["bills"]),
        grant("sns", &["Publish"], &["*:news"]),
    ];
    let json = |operation, body| call("dynamodb", &[target(operation)], body);
    for (asked, status) in [
        (json("DynamoDB_20120810.GetItem", r#"{"TableName":"bills"}"#), 400),
        (json("DynamoDB_20120810.PutItem", ORDERS), 400),
        (json("DynamoDB_20120810.ListTables", "{}"), 400),
        (
            json(
                "DynamoDB_20120810.GetItem",
                r#"{"TableName":"arn:aws:dynamodb:r:1:table/orders"}"#,
            ),
            400,
        ),
        (
            call(
                "sns",
                &[],
                "Action=Publish&TopicArn=arn:aws:sns:r:1:other&Message=m",
            ),
            403,
        ),
        (
            call("sns", &[], "Action=DeleteTopic&TopicArn=arn:aws:sns:r:1:news"),
            403,
        ),
        (
            call(
                "sqs",
                &[target("AmazonSQS.SendMessage")],
                r#"{"QueueUrl":"https://h/1/q"}"#,
            ),
            400,
        ),
    ] {
        let said = format!("{asked:?}");
        assert_eq!(ours.ask(&grants, asked).unwrap().head.status, status, "{said}");
    }
    // Nor is what cannot be understood.
    let mut elsewhere = json("DynamoDB_20120810.GetItem", ORDERS);
    elsewhere.target = "/?Action=PutItem".to_owned();
    let mut get = json("DynamoDB_20120810.GetItem", ORDERS);
    get.operation = "GET".to_owned();
    let mut form = json("DynamoDB_20120810.GetItem", ORDERS);
    form.parameters.retain(|(name, _)| name != "content-type");
    let kind = (
        "content-type".into(),
        Bytes::from("application/x-www-form-urlencoded"),
    );
    form.parameters.push(kind);
    for asked in [
        elsewhere,
        get,
        form,
        json(
            "DynamoDB_20120810.GetItem",
            r#"{"TableName":"orders","TableName":"bills"}"#,
        ),
        json("DynamoDBStreams_20120810.GetItem", ORDERS),
        json("DynamoDB_20120810.GetItem", "no JSON"),
        json("GetItem", ORDERS),
        call("dynamodb", &[], "TableName=orders"),
        call("iam", &[], "Action=CreateAccessKey"),
        call("sts", &[], "Action=AssumeRole"),
    ] {
        let said = format!("{asked:?}");
        assert!(
            matches!(ours.ask(&grants, asked), Err(CallError::Denied(_))),
            "{said}"
        );
    }
    assert_eq!(ours.server.reached(), 0);
    let all = [grant("dynamodb", &["*"], &["*"])];
    assert_eq!(
        ours.ask(&all, json("DynamoDB_20120810.ListTables", "{}"))
            .unwrap()
            .head
            .status,
        200
    );
    assert!(matches!(
        ours.ask(&all, call("dynamodb", &[target("a.B"), target("a.C")], "{}")),
        Err(CallError::Target(_))
    ));
}

#[test]
fn who_has_no_grant_has_no_session() {
    let ours = Ours::start();
    assert!(
        ours.service
            .bind(&Grant::nothing("shop.f".parse().unwrap()))
            .is_none()
    );
}

#[test]
fn options_make_sense() {
    let runtime = testing::runtime().unwrap();
    let make = |change: &dyn Fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        Aws::new(runtime.handle().clone(), Credentials::anonymous(), &options)
    };
    for endpoint in [
        "nowhere",
        "ftp://host",
        "https://host/path",
        "http://user@host",
        "http://host?x",
    ] {
        let made = make(&|options| options.endpoint = Some(endpoint.to_owned()));
        assert!(matches!(made, Err(OptionsError::Endpoint(_))), "{endpoint}");
    }
    for region in ["", "eu west", "x/../y", "evil.example.org#"] {
        let made = make(&|options| options.region = region.to_owned());
        assert!(matches!(made, Err(OptionsError::Region(_))), "{region}");
    }
}
