//! AWS's own examples of signatures, and what becomes of a request that was changed after it was signed.

use super::*;
use contract::{HeadBuilder, RequestId};
use proptest::prelude::*;

const ID: &str = "AKIDEXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const DATE: &str = "20150830T123600Z";
/// Of the examples; they are of no service that there is.
const EXAMPLE: &str = "service";

fn keys() -> Keys {
    [(ID.to_owned(), Secret::new(SECRET.to_owned()))]
        .into_iter()
        .collect()
}

fn at(text: &str) -> SystemTime {
    basic(text).unwrap()
}

/// A request as it comes.
#[derive(Clone, Debug)]
struct Request {
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    fn head(&self) -> Box<Head> {
        let mut head = HeadBuilder::new(&self.method, &self.target, 0);
        for (name, value) in &self.headers {
            head.header(name, value.as_bytes());
        }
        head.build(RequestId(1))
    }

    fn check(&self, service: &str, now: &str) -> Result<(), Rejection> {
        let claim = keys().claim_for(service, &self.head(), at(now))?;
        claim.check(&self.body)
    }

    fn error(&self) -> (u16, &'static str) {
        let error = self.check(SERVICE, DATE).unwrap_err();
        assert!(!format!("{error:?}").contains(SECRET));
        (error.status, error.error)
    }

    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.to_owned(), value.into()));
    }
}

fn authorization(service: &str, signed: &str, signature: &str) -> String {
    format!(
        "{ALGORITHM} Credential={ID}/20150830/us-east-1/{service}/aws4_request, SignedHeaders={signed}, Signature={signature}"
    )
}

/// An invocation with a good signature.
fn signed() -> Request {
    let mut request = Request {
        method: "POST".into(),
        target: "/2015-03-31/functions/shop%2Eecho/invocations?Qualifier=7&x=y".into(),
        headers: vec![
            ("Host".into(), "127.0.0.1:8080".into()),
            ("X-Amz-Date".into(), DATE.into()),
            ("X-Amz-Invocation-Type".into(), "Event".into()),
            ("Content-Type".into(), "application/json".into()),
            ("User-Agent".into(), "not signed".into()),
        ],
        body: br#"{"key": "value"}"#.to_vec(),
    };
    let names = "content-type;host;x-amz-date;x-amz-invocation-type";
    let unsigned = authorization(SERVICE, names, &"0".repeat(64));
    request.set("Authorization", unsigned);
    let claim = keys().claim_for(SERVICE, &request.head(), at(DATE)).unwrap();
    let digest = Sha256::new()
        .chain_update(&claim.canonical)
        .chain_update(hex(&Sha256::digest(&request.body)))
        .finalize();
    let mac = claim.mac.clone().chain_update(&claim.to_sign);
    let signature = mac.chain_update(hex(&digest)).finalize().into_bytes();
    request.set("Authorization", authorization(SERVICE, names, &hex(&signature)));
    request
}

/// Method, target, headers beside `Host` and `X-Amz-Date`, body, names of the signed headers, signature.
type Example = (
    &'static str,
    &'static str,
    &'static [(&'static str, &'static str)],
    &'static str,
    &'static str,
    &'static str,
);

const PLAIN: &str = "host;x-amz-date";
const UNRESERVED: &str = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const FORM: &str = "content-length;content-type;host;x-amz-content-sha256;x-amz-date";
const FORM_DIGEST: &str = "9095672bbd1f56dfc5b65f3e153adc8731a4a654192329106275f4c7b24d0b6e";
const TOKEN: &str = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";

#[rustfmt::skip]
const EXAMPLES: &[Example] = &[
    ("GET", "/", &[], "", PLAIN, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    ("POST", "/", &[], "", PLAIN, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    // Headers: their order, their case, their white space, several of one name.
    ("GET", "/", &[("My-Header1", "value2"), ("My-Header1", "value2"), ("My-Header1", "value1")], "", "host;my-header1;x-amz-date", "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea"),
    ("GET", "/", &[("My-Header1", "value1\n  value2\n     value3")], "", "host;my-header1;x-amz-date", "cfd34249e4b1c8d6b91ef74165d41a32e5fab3306300901bb65a51a73575eefd"),
    ("GET", "/", &[("My-Header1", "value4"), ("My-Header1", "value1"), ("My-Header1", "value3"), ("My-Header1", "value2")], "", "host;my-header1;x-amz-date", "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01"),
    ("GET", "/", &[("My-Header1", " value1"), ("My-Header2", " \"a   b   c\"")], "", "host;my-header1;my-header2;x-amz-date", "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736"),
    ("POST", "/", &[("My-Header1", "value1")], "", "host;my-header1;x-amz-date", "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c"),
    ("POST", "/", &[("My-Header1", "VALUE1")], "", "host;my-header1;x-amz-date", "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d"),
    ("GET", "/", &[("X-Amz-Security-Token", TOKEN)], "", "host;x-amz-date;x-amz-security-token", "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8"),
    ("POST", "/", &[("X-Amz-Security-Token", "added afterwards")], "", PLAIN, "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
    // Paths: dots, slashes, bytes that are encoded.
    ("GET", "/example/..", &[], "", PLAIN, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    ("GET", "/example1/example2/../..", &[], "", PLAIN, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    ("GET", "/./", &[], "", PLAIN, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    ("GET", "//", &[], "", PLAIN, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
    ("GET", "/./example", &[], "", PLAIN, "ef75d96142cf21edca26f06005da7988e4f8dc83a165a80865db7089db637ec5"),
    ("GET", "//example//", &[], "", PLAIN, "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84"),
    ("GET", "/example space/", &[], "", PLAIN, "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741"),
    ("GET", "/-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", &[], "", PLAIN, "07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f"),
    ("GET", "/ሴ", &[], "", PLAIN, "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"),
    // Queries: their order, what is encoded and what is not.
    ("GET", "/?Param1=value1", &[], "", PLAIN, "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb"),
    ("GET", "/?Param-3=Value3&Param=Value2&%E1%88%B4=Value1", &[], "", PLAIN, "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac"),
    ("GET", "/?Param2=value2&Param1=value1", &[], "", PLAIN, "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500"),
    ("GET", "/?ሴ=bar", &[], "", PLAIN, "2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04"),
    ("POST", "/?Param1=value1", &[], "", PLAIN, "28038455d6de14eafc1f9222cf5aa6f1a96197d7deb8263271d420d138af7f11"),
    // Bodies.
    ("POST", "/", &[("Content-Type", "application/x-www-form-urlencoded"), ("Content-Length", "13"), ("X-Amz-Content-Sha256", FORM_DIGEST)], "Param1=value1", FORM, "d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b"),
    ("POST", "/", &[("Content-Type", "application/x-www-form-urlencoded; charset=utf-8"), ("Content-Length", "13"), ("X-Amz-Content-Sha256", FORM_DIGEST)], "Param1=value1", FORM, "328d1b9eaadca9f5818ef05e8392801e091653bafec24fcab71e7344e7f51422"),
];

fn example(
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
    signed: &str,
    signature: &str,
) -> Request {
    let mut all = vec![
        ("Host".to_owned(), "example.amazonaws.com".to_owned()),
        ("X-Amz-Date".to_owned(), DATE.to_owned()),
        (
            "Authorization".to_owned(),
            authorization(EXAMPLE, signed, signature),
        ),
    ];
    all.extend(
        headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned())),
    );
    Request {
        method: method.into(),
        target: target.into(),
        headers: all,
        body: body.into(),
    }
}

#[test]
fn the_examples_of_awss_test_suite_are_good() {
    for (method, target, headers, body, signed, signature) in EXAMPLES {
        let request = example(method, target, headers, body, signed, signature);
        assert_eq!(request.check(EXAMPLE, DATE), Ok(()), "{request:?}");
    }
    let query = format!("/?{UNRESERVED}={UNRESERVED}");
    let signature = "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197";
    let request = example("GET", &query, &[], "", PLAIN, signature);
    assert_eq!(request.check(EXAMPLE, DATE), Ok(()));
}

#[test]
fn without_keys_nothing_is_asked() {
    let head = HeadBuilder::new("POST", "/", 0).build(RequestId(1));
    assert!(Keys::default().claim(&head, SystemTime::now()).unwrap().is_none());
    assert_eq!(keys().claim(&head, at(DATE)).unwrap_err().status, 403);
}

#[test]
fn nothing_shows_a_secret() {
    let claim = keys().claim_for(SERVICE, &signed().head(), at(DATE)).unwrap();
    let shown = format!("{:?} {claim:?}", keys());
    assert!(shown.contains(ID) && !shown.contains(SECRET), "{shown}");
    for wrong in ["17", "[\"hidden\"]", "{\"a\": \"hidden\"}"] {
        let error = serde_json::from_str::<Secret>(wrong).unwrap_err().to_string();
        assert!(!error.contains("17") && !error.contains("hidden"), "{error}");
    }
}

#[test]
fn a_signature_holds_for_five_minutes() {
    let request = signed();
    for now in ["20150830T123600Z", "20150830T124100Z", "20150830T123100Z"] {
        assert_eq!(request.check(SERVICE, now), Ok(()), "{now}");
    }
    let late = request.check(SERVICE, "20150830T124101Z").unwrap_err();
    assert_eq!(late.error, "InvalidSignatureException");
    assert_eq!(
        late.message,
        "Signature expired: 20150830T123600Z is now earlier than 20150830T123601Z (20150830T124101Z - 5 min.)"
    );
    let early = request.check(SERVICE, "20150830T123059Z").unwrap_err();
    assert_eq!(
        early.message,
        "Signature not yet current: 20150830T123600Z is still later than 20150830T123559Z (20150830T123059Z + 5 min.)"
    );
}

#[test]
fn errors_have_awss_names() {
    const MISSING: (u16, &str) = (403, "MissingAuthenticationTokenException");
    const INCOMPLETE: (u16, &str) = (400, "IncompleteSignatureException");
    const UNKNOWN: (u16, &str) = (403, "UnrecognizedClientException");
    const INVALID: (u16, &str) = (403, "InvalidSignatureException");
    let good = signed();
    assert_eq!(good.check(SERVICE, DATE), Ok(()));
    let value = |name: &str| {
        good.headers
            .iter()
            .find(|(known, _)| known == name)
            .unwrap()
            .1
            .clone()
    };
    let authorization = value("Authorization");

    let mut without = good.clone();
    without.headers.retain(|(name, _)| name != "Authorization");
    assert_eq!(without.error(), MISSING);
    let mut twice = good.clone();
    twice
        .headers
        .push(("authorization".into(), authorization.clone()));
    assert_eq!(twice.error(), INCOMPLETE);

    for (from, to, error) in [
        (ALGORITHM, "AWS4-ECDSA-P256-SHA256", INCOMPLETE),
        (&authorization, "", INCOMPLETE),
        (&authorization, "Bearer AKIDEXAMPLE", INCOMPLETE),
        (&authorization, ALGORITHM, INCOMPLETE),
        ("Credential=", "Credentials=", INCOMPLETE),
        ("SignedHeaders=", "Signature=", INCOMPLETE),
        (", Signature=", ", Signature=0", INCOMPLETE),
        (", Signature=", ", x=", INCOMPLETE),
        ("/us-east-1/", "/", INCOMPLETE),
        ("/us-east-1/", "/us/east/", INCOMPLETE),
        ("/us-east-1/", "//", INVALID),
        ("/us-east-1/", "/us-west-1/", INVALID),
        ("/lambda/", "/s3/", INVALID),
        ("aws4_request", "aws5_request", INVALID),
        ("/20150830/", "/20150831/", INVALID),
        ("/20150830/", "/2015/", INVALID),
        ("/20150830/", "//", INVALID),
        (ID, "AKIDANOTHER", UNKNOWN),
        (ID, "", UNKNOWN),
        (";host;", ";", INVALID),
        (";x-amz-date", "", INVALID),
        (";x-amz-invocation-type", "", INVALID),
        (";host;", ";Host;", INVALID),
        (";host;", ";host;host;", INVALID),
        (";host;", ";absent;host;", INVALID),
        (";host;", ";;host;", INVALID),
    ] {
        let mut request = good.clone();
        let changed = authorization.replace(from, to);
        assert_ne!(changed, authorization);
        request.set("Authorization", changed);
        assert_eq!(request.error(), error, "{from} {to}");
    }
    for date in [
        "",
        "2015-08-30T12:36:00Z",
        "20150830T123600",
        "20151330T123600Z",
        "20150830T123600+",
        "２0150830T1236Z",
    ] {
        let mut request = good.clone();
        request.set("X-Amz-Date", date);
        assert_eq!(request.error(), INCOMPLETE, "{date}");
    }
    let mut request = good.clone();
    request.headers.retain(|(name, _)| name != "X-Amz-Date");
    assert_eq!(request.error(), INCOMPLETE);
    let mut request = good;
    request.headers.push(("x-amz-log-type".into(), "Tail".into()));
    assert_eq!(request.error(), INVALID);
}

#[test]
fn what_means_the_same_is_signed_the_same() {
    let good = signed();
    for target in [
        good.target.replace("Qualifier=7&x=y", "x=y&Qualifier=7"),
        good.target.replace("Qualifier=7", "%51ualifier=%37"),
    ] {
        let mut request = good.clone();
        request.target = target;
        assert_eq!(request.check(SERVICE, DATE), Ok(()));
        let invoke = crate::Invoke::read(&request.head()).unwrap();
        assert_eq!(invoke.function.to_string(), "shop.echo:7");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_request_is_refused(part in 0..6usize, place: prop::sample::Index, to in "[A-Za-z0-9%-]", byte: u8) {
        let good = signed();
        let mut request = good.clone();
        let change = |text: &mut String| {
            let at = place.index(text.len());
            text.replace_range(at..=at, &to);
        };
        match part {
            0 => change(&mut request.method),
            1 => change(&mut request.target),
            2 => {
                // All but the last two, of which one is not signed.
                let at = place.index(good.headers.len() - 2);
                change(&mut request.headers[at].1);
            }
            3 => {
                let at = place.index(good.headers.len() - 2);
                change(&mut request.headers[at].0);
            }
            4 => {
                let (_, authorization) = request.headers.last_mut().unwrap();
                change(authorization);
            }
            _ => {
                let at = place.index(request.body.len());
                request.body[at] = byte;
            }
        }
        let same = |name: &str, other: &str| name.eq_ignore_ascii_case(other);
        let unchanged = request.method == good.method
            && request.target == good.target
            && request.body == good.body
            && request.headers.iter().zip(&good.headers).all(|(a, b)| same(&a.0, &b.0) && a.1 == b.1);
        prop_assume!(!unchanged);
        prop_assert!(request.check(SERVICE, DATE).is_err(), "{request:?}");
    }

    #[test]
    fn a_body_that_is_longer_or_shorter_is_refused(length in 0..40usize) {
        let mut request = signed();
        let good = request.body.clone();
        request.body = good.iter().copied().cycle().take(length).collect();
        prop_assert_eq!(request.check(SERVICE, DATE).is_ok(), request.body == good);
    }

    #[test]
    fn nothing_panics(target in "(/|%|\\?|&|=|\\.|[a-c]|ü){0,12}", authorization in "(AWS4-HMAC-SHA256 |Credential=|SignedHeaders=|Signature=|,|;|/|=|a|é|host| ){0,16}", date in ".{0,17}") {
        let request = Request {
            method: "POST".into(),
            target,
            headers: vec![("Authorization".into(), authorization), ("X-Amz-Date".into(), date), ("Host".into(), "h".into())],
            body: Vec::new(),
        };
        prop_assert!(request.check(SERVICE, DATE).is_err());
    }
}
