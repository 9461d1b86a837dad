use super::*;
use crate::credentials::{Due, TRY_AGAIN};
use egress::testing::Server;
use jiff::Timestamp;
use std::{
    collections::HashMap,
    net::{TcpListener, TcpStream},
    time::{Instant, UNIX_EPOCH},
};
use tokio::runtime::Runtime;

const ARN: &str = "arn:aws:iam::123456789012:role/pond";
const POLICY: &str = r#"{"Version":"2012-10-17","Statement":[]}"#;

fn node() -> Arc<Credentials> {
    let keys = Credentials::environment(|name| Some(format!("{name}-value")));
    Arc::new(keys.unwrap())
}

fn options(endpoint: String) -> RoleOptions {
    RoleOptions {
        arn: ARN.to_owned(),
        endpoint,
        region: "eu-west-1".to_owned(),
        lifetime: Duration::from_hours(1),
    }
}

struct Sts {
    server: Server,
    role: Arc<Role>,
    runtime: Runtime,
}

impl Sts {
    fn start() -> Self {
        let server = Server::start().unwrap();
        Self {
            role: Arc::new(Role::new(node(), options(server.uri(""))).unwrap()),
            runtime: egress::testing::runtime().unwrap(),
            server,
        }
    }

    /// Answers with a session of this key, which ends in so many seconds.
    fn gives(&self, key: &str, seconds: i64) {
        self.server.answer(answer(200, session(key, seconds)));
    }

    fn session(&self) -> Arc<Credentials> {
        Arc::new(self.role.session("acme/shop.f", POLICY.to_owned()))
    }

    fn key(&self, session: &Arc<Credentials>) -> Result<String, CallError> {
        let identity = self.runtime.block_on(session.identity())?.unwrap();
        let keys: &Keys = identity.data().unwrap();
        Ok(keys.access_key_id().to_owned())
    }

    /// What the function hears.
    fn failure(&self, session: &Arc<Credentials>) -> String {
        self.key(session).unwrap_err().to_string()
    }
}

fn answer(status: u16, text: String) -> egress::testing::Answer {
    (status, vec![("content-type", "text/xml".to_owned())], text.into())
}

fn session(key: &str, seconds: i64) -> String {
    let ends = Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
    format!(
        "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>{key}</AccessKeyId><SecretAccessKey>hidden</SecretAccessKey>\
         <SessionToken>token-of-{key}</SessionToken><Expiration>{ends}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"
    )
}

fn refusal(code: &str, message: &str) -> String {
    format!(
        "<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error></ErrorResponse>"
    )
}

/// Lets what has failed be tried again.
fn age(session: &Credentials) {
    session.held.lock().unwrap().tried = Instant::now().checked_sub(TRY_AGAIN);
}

#[test]
fn a_session_is_asked_for_as_the_reference_says() {
    let sts = Sts::start();
    sts.gives("ASIA1", 3600);
    let session = sts.session();
    assert_eq!(sts.key(&session).as_deref(), Ok("ASIA1"));
    let seen = sts.server.last().unwrap();
    assert_eq!((seen.head.method.as_str(), seen.head.uri.path()), ("POST", "/"));
    let asked: HashMap<_, _> = form_urlencoded::parse(&seen.body).into_owned().collect();
    let expected = [
        ("Action", "AssumeRole"),
        ("Version", "2011-06-15"),
        ("RoleArn", ARN),
        ("RoleSessionName", "acme+shop.f"),
        ("DurationSeconds", "3600"),
        ("Policy", POLICY),
    ];
    let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(asked, HashMap::from(expected));
    let field = |name: &str| seen.head.headers[name].to_str().unwrap().to_owned();
    assert_eq!(
        field("content-type"),
        "application/x-www-form-urlencoded; charset=utf-8"
    );
    assert_eq!(field("x-amz-security-token"), "AWS_SESSION_TOKEN-value");
    let authorization = field("authorization");
    assert!(
        authorization.starts_with("AWS4-HMAC-SHA256 Credential=AWS_ACCESS_KEY_ID-value/")
            && authorization.contains("/eu-west-1/sts/aws4_request, SignedHeaders=content-type;host;x-amz-date;x-amz-security-token,"),
        "{authorization}"
    );
    let identity = sts.runtime.block_on(session.identity()).unwrap().unwrap();
    let keys: &Keys = identity.data().unwrap();
    assert_eq!(keys.session_token(), Some("token-of-ASIA1"));
    let shown = format!("{session:?} {identity:?}");
    assert!(
        !shown.contains("hidden") && !shown.contains("token-of"),
        "{shown}"
    );
}

#[test]
fn however_many_ask_sts_is_asked_once_for_each_session() {
    let sts = Sts::start();
    sts.gives("ASIA1", 3600);
    let (one, other) = (sts.session(), sts.session());
    sts.runtime.block_on(async {
        let asking: Vec<_> = (0..20)
            .map(|_| {
                let one = one.clone();
                tokio::spawn(async move { one.identity().await.map(|identity| identity.is_some()) })
            })
            .collect();
        for asked in asking {
            assert_eq!(asked.await.unwrap(), Ok(true));
        }
    });
    assert_eq!(sts.server.reached(), 1);
    assert!(sts.key(&one).is_ok() && sts.key(&other).is_ok());
    assert_eq!(sts.server.reached(), 2);
}

#[test]
fn keys_are_renewed_when_half_of_their_time_is_over() {
    let sts = Sts::start();
    sts.gives("ASIA1", 3600);
    let session = sts.session();
    let now = SystemTime::now();
    assert!(sts.key(&session).is_ok());
    let in_minutes = |minutes| now + Duration::from_mins(minutes);
    age(&session);
    let held = session.held();
    for (minutes, due) in [
        (0, Due::No),
        (29, Due::No),
        (31, Due::Soon),
        (59, Due::Soon),
        (61, Due::Now),
    ] {
        assert_eq!(session.due(&held, in_minutes(minutes)), due, "{minutes}");
    }
    // What is held will do until another is there, and if there is none.
    session.held.lock().unwrap().late = Some(now);
    sts.server.answer(answer(403, refusal("AccessDenied", "no")));
    let renewed = |session: &Credentials| {
        sts.runtime.block_on(async {
            drop(session.renewing.lock().await);
        });
    };
    assert_eq!(sts.key(&session).as_deref(), Ok("ASIA1"));
    renewed(&session);
    assert_eq!(
        (sts.key(&session).as_deref(), sts.server.reached()),
        (Ok("ASIA1"), 2)
    );
    age(&session);
    sts.gives("ASIA2", 3600);
    assert_eq!(sts.key(&session).as_deref(), Ok("ASIA1"));
    renewed(&session);
    assert_eq!(
        (sts.key(&session).as_deref(), sts.server.reached()),
        (Ok("ASIA2"), 3)
    );
}

#[test]
fn who_is_refused_is_told_why_and_asks_again_later() {
    let sts = Sts::start();
    let session = sts.session();
    sts.server.answer(answer(
        403,
        refusal("AccessDenied", "arn:of:somebody is not authorized"),
    ));
    for _ in 0..3 {
        let failure = sts.failure(&session);
        assert!(failure.contains("STS refuses it (AccessDenied)"), "{failure}");
        for private in [ARN, "127.0.0.1", "arn:of:somebody", "-value"] {
            assert!(!failure.contains(private), "{failure}");
        }
    }
    assert_eq!(
        sts.server.reached(),
        1,
        "a refusal is not asked for again at once"
    );
    age(&session);
    sts.gives("ASIA1", 3600);
    assert_eq!(sts.key(&session).as_deref(), Ok("ASIA1"));
    assert!(session.held().failure.is_none());
}

#[test]
fn what_passes_is_asked_again_at_once() {
    let sts = Sts::start();
    sts.gives("ASIA1", 3600);
    for (reached, first) in [
        (2, answer(503, "<html>overloaded</html>".to_owned())),
        (4, answer(400, refusal("Throttling", "Rate exceeded"))),
        (6, answer(500, refusal("InternalFailure", "x"))),
    ] {
        sts.server.answer_first(first);
        assert_eq!(sts.key(&sts.session()).as_deref(), Ok("ASIA1"));
        assert_eq!(sts.server.reached(), reached);
    }
    sts.server.answer(answer(500, String::new()));
    let failure = sts.failure(&sts.session());
    assert!(failure.contains("STS does not answer with one"), "{failure}");
    assert_eq!(sts.server.reached(), 6 + 1 + PAUSES.len());
}

#[test]
fn what_is_no_session_is_no_key() {
    let sts = Sts::start();
    let ended = session("ASIA1", -1);
    let unfit = session("ASIA 1", 3600);
    let long = "x".repeat(100_000);
    let texts = ["", "nonsense", "<html>hidden</html>", &ended, &unfit, &long];
    for (reached, text) in texts.into_iter().enumerate() {
        sts.server.answer(answer(200, text.to_owned()));
        let failure = sts.failure(&sts.session());
        assert!(failure.contains("STS does not answer with one"), "{failure}");
        assert!(!failure.contains("hidden"), "{failure}");
        assert_eq!(sts.server.reached(), reached + 1, "it is not asked again at once");
    }
}

#[test]
fn who_is_not_there_is_not_reached() {
    // A port that is a connection's own: nobody listens on it, and nobody else is given it meanwhile.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let free = taken.local_addr().unwrap();
    let sts = Sts::start();
    let role = Arc::new(Role::new(node(), options(format!("http://{free}"))).unwrap());
    let failure = sts.failure(&Arc::new(role.session("f", POLICY.to_owned())));
    assert!(failure.contains("STS is not reached"), "{failure}");
}

#[test]
fn what_the_log_says_has_no_secret() {
    let sts = Sts::start();
    let ask = |message: &str| {
        sts.server
            .answer(answer(403, refusal("SignatureDoesNotMatch", message)));
        let session = RoleSession {
            role: sts.role.clone(),
            name: "f".to_owned(),
            policy: POLICY.to_owned(),
        };
        let error = sts.runtime.block_on(session.ask()).err().unwrap();
        format!("{error} {error:?}")
    };
    for message in [
        "It should have been x-amz-security-token:AWS_SESSION_TOKEN-value, and not",
        "no\nx-amz-security-token:AWS_SESSION_TOKEN-value",
        "AWS_SECRET_ACCESS_KEY-value",
    ] {
        let said = ask(message);
        assert!(
            !said.contains("TOKEN-value") && !said.contains("KEY-value"),
            "{said}"
        );
        for told in [
            "SignatureDoesNotMatch",
            ARN,
            "127.0.0.1",
            "check the node's own keys",
        ] {
            assert!(said.contains(told), "{said}: {told}");
        }
    }
}

#[test]
fn names_of_sessions() {
    for (name, expected) in [
        ("shop.f", "shop.f"),
        ("acme/shop.f", "acme+shop.f"),
        ("é", "++"),
        ("", "++"),
    ] {
        assert_eq!(session_name(name), expected);
    }
    assert_eq!(session_name(&"x".repeat(100)).len(), 64);
}

#[test]
fn what_is_no_role() {
    let good = || options("https://sts.eu-west-1.amazonaws.com".to_owned());
    let wrong = |options| Role::new(node(), options).err().unwrap().to_string();
    for arn in ["", "pond", "arn:aws:iam", "role/pond", "arn:aws:iam::1:role/a b"] {
        let arn = arn.to_owned();
        assert!(wrong(RoleOptions { arn, ..good() }).contains("is not the ARN"));
    }
    for endpoint in ["", "sts", "ftp://sts", "https://sts/path"] {
        let endpoint = endpoint.to_owned();
        assert!(wrong(RoleOptions { endpoint, ..good() }).contains("is not the endpoint"));
    }
    for endpoint in [
        "http://sts",
        "http://10.0.0.1:9000",
        "http://localhost.example.org",
    ] {
        let endpoint = endpoint.to_owned();
        assert!(wrong(RoleOptions { endpoint, ..good() }).contains("without TLS"));
    }
    for endpoint in ["http://localhost:1", "http://127.0.0.2", "http://[::1]:9000"] {
        assert!(
            Role::new(node(), options(endpoint.to_owned())).is_ok(),
            "{endpoint}"
        );
    }
    for minutes in [0, 14, 12 * 60 + 1] {
        let lifetime = Duration::from_mins(minutes);
        assert!(wrong(RoleOptions { lifetime, ..good() }).contains("cannot last"));
    }
    let region = "US".to_owned();
    assert!(wrong(RoleOptions { region, ..good() }).contains("region"));
    let nobody = Role::new(Arc::new(Credentials::anonymous()), good());
    assert!(matches!(nobody, Err(RoleError::Nobody)));
}

#[test]
fn nobody_who_has_no_keys_asks() {
    let sts = Sts::start();
    let failing = Arc::new(Credentials::command(vec!["/nowhere".to_owned()]));
    let role = Arc::new(Role::new(failing, options(sts.server.uri(""))).unwrap());
    let failure = sts.failure(&Arc::new(role.session("f", POLICY.to_owned())));
    assert!(
        failure.contains("the node has no keys to ask for it"),
        "{failure}"
    );
    assert!(!failure.contains("/nowhere") && sts.server.reached() == 0);
}

#[test]
fn a_signature_is_of_the_moment() {
    let sts = Sts::start();
    let session = RoleSession {
        role: sts.role.clone(),
        name: "f".to_owned(),
        policy: POLICY.to_owned(),
    };
    let identity = sts.runtime.block_on(node().identity()).unwrap().unwrap();
    let at = |seconds| {
        let request = session.request(&identity, UNIX_EPOCH + Duration::from_secs(seconds));
        request.unwrap().headers()["authorization"].clone()
    };
    assert_eq!(at(1_440_938_160), at(1_440_938_160));
    assert_ne!(at(1_440_938_160), at(1_440_938_161));
}
