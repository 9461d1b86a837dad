//! A role's sessions: with whose keys calls are signed, and what becomes of them when there are none.

use super::{Ours, call, grant, granted};
use contract::{CallError, S3Action, S3Grant, Service as _};
use egress::testing::Server;
use millpond_service_s3::{Credentials, Options, OptionsError, RoleOptions, S3};
use std::collections::BTreeSet;

const SESSION: &str = "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ASIASESSION</AccessKeyId>\
    <SecretAccessKey>hidden</SecretAccessKey><SessionToken>token-of-the-session</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration>\
    </Credentials></AssumeRoleResult></AssumeRoleResponse>";

fn role(sts: Option<String>) -> RoleOptions {
    RoleOptions {
        arn: "arn:aws:iam::123456789012:role/pond".to_owned(),
        sts,
    }
}

/// S3, STS, and the service between them.
fn start(session: (u16, &'static str)) -> (Server, Server, Ours) {
    let (s3, sts) = (Server::start().unwrap(), Server::start().unwrap());
    sts.answer((session.0, vec![], session.1.into()));
    let keys = Credentials::environment(|name| Some(format!("{name}-value"))).unwrap();
    let ours = Ours::start(s3.uri(""), keys, |options| {
        options.role = Some(role(Some(sts.uri(""))))
    });
    (s3, sts, ours)
}

fn field(server: &Server, name: &str) -> String {
    let seen = server.last().unwrap();
    seen.head.headers[name].to_str().unwrap().to_owned()
}

#[test]
fn calls_are_signed_with_the_functions_own_session() {
    let (s3, sts, ours) = start((200, SESSION));
    for reached in 1..4 {
        ours.ask(
            vec![granted("bucket", "in/")],
            call("GET", "/bucket/in/k", &[], ""),
        )
        .unwrap();
        assert_eq!((s3.reached(), sts.reached()), (reached, 1));
    }
    let authorization = field(&s3, "authorization");
    assert!(
        authorization.contains("Credential=ASIASESSION/"),
        "{authorization}"
    );
    assert_eq!(field(&s3, "x-amz-security-token"), "token-of-the-session");
    let asked = String::from_utf8(sts.last().unwrap().body.to_vec()).unwrap();
    assert!(
        asked.contains("RoleSessionName=shop.f&") && asked.contains("bucket%2Fin%2F*"),
        "{asked}"
    );

    // What was granted is the session's, not the link's.
    ours.ask(vec![granted("bucket", "")], call("GET", "/bucket/in/k", &[], ""))
        .unwrap();
    assert_eq!(sts.reached(), 2);

    let url = ours.text(
        vec![granted("bucket", "in/")],
        call("GET", "/bucket/in/k", &[("x-millpond-presign", "60")], ""),
    );
    let url = url.1.unwrap();
    assert!(
        url.contains("X-Amz-Security-Token=token-of-the-session") && url.contains("Credential=ASIASESSION"),
        "{url}"
    );
    assert_eq!(sts.reached(), 2);
}

#[test]
fn what_is_not_granted_needs_no_session() {
    let (s3, sts, ours) = start((200, SESSION));
    let denied = ours.text(vec![granted("bucket", "in/")], call("GET", "/bucket/k", &[], ""));
    assert_eq!((denied.0, s3.reached(), sts.reached()), (403, 0, 0));
}

#[test]
fn without_a_session_nothing_is_sent() {
    let refused =
        "<ErrorResponse><Error><Code>AccessDenied</Code><Message>no</Message></Error></ErrorResponse>";
    for (answer, told) in [
        ((403, refused), "STS refuses it (AccessDenied)"),
        ((200, "nonsense"), "STS does not answer with one"),
    ] {
        let (s3, _sts, ours) = start(answer);
        for (method, body) in [("GET", ""), ("PUT", "x")] {
            let failed = ours.ask(vec![granted("bucket", "")], call(method, "/bucket/k", &[], body));
            let Err(CallError::Credentials(text)) = failed else {
                panic!("{failed:?}");
            };
            assert!(text.contains(told) && !text.contains("-value"), "{text}");
        }
        assert_eq!(s3.reached(), 0);
    }
}

#[test]
fn grants_that_no_policy_has_room_for_are_told() {
    let (s3, sts, ours) = start((200, SESSION));
    let grants: Vec<_> = (0..200)
        .map(|number| S3Grant {
            bucket: "bucket".to_owned(),
            prefix: format!("tenants/{number}/"),
            actions: vec![S3Action::Get],
        })
        .collect();
    let failed = ours.ask(grants.clone(), call("GET", "/bucket/tenants/1/k", &[], ""));
    let told = failed.err().unwrap();
    assert!(
        matches!(&told, CallError::Credentials(text) if text.contains("2048") && text.contains("grant fewer")),
        "{told}"
    );
    assert!(ours.service.bind(&grant(grants)).is_some());
    assert_eq!((s3.reached(), sts.reached()), (0, 0));
}

#[test]
fn what_is_no_role() {
    let runtime = egress::testing::runtime().unwrap();
    let made = |keys: Credentials, role: RoleOptions| {
        let options = Options {
            endpoint: Some("http://127.0.0.1:1".to_owned()),
            role: Some(role),
            ..Options::default()
        };
        S3::new(runtime.handle().clone(), keys, &options).err()
    };
    let keys = || Credentials::environment(|name| Some(format!("{name}-value"))).unwrap();
    let here = || Some("http://127.0.0.1:1".to_owned());
    assert!(made(keys(), role(here())).is_none());
    let wrong = [
        made(Credentials::anonymous(), role(here())),
        made(keys(), role(Some("http://sts.example.org".to_owned()))),
        made(keys(), role(Some("sts".to_owned()))),
        made(
            keys(),
            RoleOptions {
                arn: "pond".to_owned(),
                ..role(here())
            },
        ),
    ];
    let told: BTreeSet<_> = wrong
        .into_iter()
        .map(|error| match error {
            Some(OptionsError::Role(error)) => error.to_string(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(told.len(), 4);
}
