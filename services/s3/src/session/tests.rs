//! What policies say, as IAM reads them: a reader of the part of IAM that they use is here.

use super::*;
use crate::{
    access::{Need, is_granted},
    endpoint::Options,
};
use proptest::prelude::*;

const ALL: [S3Action; 4] = [S3Action::Get, S3Action::Put, S3Action::List, S3Action::Delete];

fn granted(bucket: &str, prefix: &str, actions: &[S3Action]) -> S3Grant {
    S3Grant {
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        actions: actions.to_vec(),
    }
}

fn policies(endpoint: Option<&str>, role: &str) -> Policies {
    let options = Options {
        endpoint: endpoint.map(str::to_owned),
        ..Options::default()
    };
    Policies::new(role, &Endpoint::of(&options).unwrap())
}

fn amazons() -> Policies {
    policies(None, "arn:aws:iam::123456789012:role/pond")
}

fn others() -> Policies {
    policies(Some("http://127.0.0.1:9000"), "arn:xxx:xxx:xxx:xxxx")
}

fn read(policies: &Policies, grants: &[S3Grant]) -> Value {
    serde_json::from_str(&policies.text(grants).unwrap()).unwrap()
}

/// Whether a pattern of IAM's is of a text.
fn is_of(pattern: &str, text: &str) -> bool {
    let Some(first) = pattern.chars().next() else {
        return text.is_empty();
    };
    let (rest, mut letters) = (&pattern[first.len_utf8()..], text.chars());
    match first {
        '*' => {
            let ends = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            ends.into_iter().any(|at| is_of(rest, &text[at..]))
        }
        '?' => letters.next().is_some() && is_of(rest, letters.as_str()),
        // A variable that stands for one character.
        '$' if rest.starts_with('{') && rest[1..].chars().nth(1) == Some('}') => {
            letters.next() == rest[1..].chars().next() && is_of(&rest[3..], letters.as_str())
        }
        other => letters.next() == Some(other) && is_of(rest, letters.as_str()),
    }
}

fn each(value: &Value) -> Vec<&str> {
    match value {
        Value::String(one) => vec![one],
        many => many
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one.as_str().unwrap())
            .collect(),
    }
}

/// Whether this may be done with that, in a request that has these keys for conditions.
fn allows(policy: &Value, action: &str, resource: &str, keys: &[(&str, &str)]) -> bool {
    assert_eq!(policy["Version"], "2012-10-17");
    policy["Statement"].as_array().unwrap().iter().any(|statement| {
        assert_eq!(statement["Effect"], "Allow");
        let has = |name: &str, text: &str| each(&statement[name]).iter().any(|pattern| is_of(pattern, text));
        let conditions = statement.get("Condition").map(|all| all.as_object().unwrap());
        let is_met = conditions.into_iter().flatten().all(|(operator, wanted)| {
            wanted.as_object().unwrap().iter().all(|(key, patterns)| {
                let value = keys.iter().find(|(its, _)| its == key).map(|(_, value)| *value);
                value.is_some_and(|value| {
                    each(patterns).iter().any(|pattern| match operator.as_str() {
                        "StringLike" => is_of(pattern, value),
                        "StringEquals" => *pattern == value,
                        other => panic!("{other}"),
                    })
                })
            })
        });
        has("Action", action) && has("Resource", resource) && is_met
    })
}

#[test]
fn a_policy_says_what_was_granted() {
    let policy = read(&others(), &[granted("pond", "in/", &[S3Action::Get])]);
    let expected = json!({
        "Version": "2012-10-17",
        "Statement": [{ "Effect": "Allow", "Action": "s3:GetObject*", "Resource": "arn:aws:s3:::pond/in/*" }],
    });
    assert_eq!(policy, expected);
    let grants = [
        granted("pond", "in/", &[S3Action::Get, S3Action::List]),
        granted("sea", "in/", &[S3Action::List]),
        granted("sea", "", &[S3Action::Delete]),
    ];
    let expected = json!({
        "Version": "2012-10-17",
        "Statement": [
            { "Effect": "Allow", "Action": "s3:GetObject*", "Resource": "arn:aws:s3:::pond/in/*" },
            { "Effect": "Allow", "Action": ["s3:DeleteObject", "s3:DeleteObjectVersion"], "Resource": "arn:aws:s3:::sea/*" },
            { "Effect": "Allow", "Action": "s3:DeleteBucket", "Resource": "arn:aws:s3:::sea" },
            {
                "Effect": "Allow",
                "Action": ["s3:GetBucketLocation", "s3:GetBucketVersioning"],
                "Resource": ["arn:aws:s3:::pond", "arn:aws:s3:::sea"],
            },
            {
                "Effect": "Allow",
                "Action": ["s3:ListBucket", "s3:ListBucketVersions"],
                "Resource": ["arn:aws:s3:::pond", "arn:aws:s3:::sea"],
                "Condition": { "StringLike": { "s3:prefix": "in/*" } },
            },
        ],
    });
    assert_eq!(read(&others(), &grants), expected);
}

#[test]
fn amazons_own_has_what_only_it_knows() {
    let policy = read(&amazons(), &[granted("pond", "in/", &[S3Action::Get])]);
    let key = "arn:aws:kms:us-east-1:123456789012:key/1";
    let by = [("kms:ViaService", "s3.us-east-1.amazonaws.com")];
    assert!(allows(&policy, "kms:Decrypt", key, &by));
    assert!(!allows(&policy, "kms:GenerateDataKey", key, &by));
    assert!(
        !allows(&policy, "kms:Decrypt", key, &[]),
        "by S3, and by nobody else"
    );
    assert!(!allows(
        &policy,
        "kms:Decrypt",
        key,
        &[("kms:ViaService", "sqs.us-east-1.amazonaws.com")]
    ));

    let policy = read(&amazons(), &[granted("pond", "in/", &[S3Action::Put])]);
    assert!(allows(&policy, "kms:GenerateDataKey", key, &by) && allows(&policy, "kms:Decrypt", key, &by));
    let acl = |resource: &str, acl: &str| {
        let resource = format!("arn:aws:s3:::{resource}");
        allows(&policy, "s3:PutObjectAcl", &resource, &[("s3:x-amz-acl", acl)])
    };
    assert!(acl("pond/in/k", "private") && acl("pond/in/k", "bucket-owner-full-control"));
    assert!(!acl("pond/in/k", "public-read") && !acl("pond/out/k", "private"));
    assert!(!allows(&policy, "s3:PutObjectAcl", "arn:aws:s3:::pond/in/k", &[]));

    for grants in [[granted("pond", "", &ALL)], [granted("pond", "in/", &ALL)]] {
        let text = others().text(&grants).unwrap();
        assert!(!text.contains("kms:") && !text.contains("Acl"), "{text}");
    }
    let text = amazons().text(&[granted("pond", "in/", &[S3Action::List, S3Action::Delete])]);
    assert!(!text.unwrap().contains("kms:"));
}

#[test]
fn arns_are_those_of_the_roles_partition() {
    for (role, partition) in [
        ("arn:aws:iam::1:role/r", "aws"),
        ("arn:aws-cn:iam::1:role/r", "aws-cn"),
        ("arn:aws-us-gov:iam::1:role/r", "aws-us-gov"),
        ("arn:minio:iam:::role/r", "aws"),
    ] {
        let text = policies(None, role)
            .text(&[granted("pond", "", &[S3Action::Delete])])
            .unwrap();
        assert!(text.contains(&format!("\"arn:{partition}:s3:::pond\"")), "{text}");
    }
}

/// What IAM wants for the operations of module `access`, as the pages of the API reference say it, by the action that grants them: with the key, and whether it is
/// below a prefix that they may be.
const WANTED: &[(S3Action, &str, &str, bool)] = &[
    (S3Action::Get, "s3:GetObject", "/in/k", true),
    (S3Action::Get, "s3:GetObjectVersion", "/in/k", true),
    (S3Action::Get, "s3:GetObjectTagging", "/in/k", true),
    (S3Action::Get, "s3:GetObjectVersionTagging", "/in/k", true),
    (S3Action::Get, "s3:GetObjectAcl", "/in/k", true),
    (S3Action::Get, "s3:GetObjectVersionAcl", "/in/k", true),
    (S3Action::Get, "s3:GetObjectAttributes", "/in/k", true),
    (S3Action::Get, "s3:GetObjectVersionAttributes", "/in/k", true),
    (S3Action::Get, "s3:GetObjectRetention", "/in/k", true),
    (S3Action::Get, "s3:GetObjectLegalHold", "/in/k", true),
    (S3Action::Put, "s3:PutObject", "/in/k", true),
    (S3Action::Put, "s3:PutObjectTagging", "/in/k", true),
    (S3Action::Put, "s3:PutObjectVersionTagging", "/in/k", true),
    (S3Action::Put, "s3:DeleteObjectTagging", "/in/k", true),
    (S3Action::Put, "s3:DeleteObjectVersionTagging", "/in/k", true),
    (S3Action::Put, "s3:AbortMultipartUpload", "/in/k", true),
    (S3Action::Put, "s3:ListMultipartUploadParts", "/in/k", true),
    (S3Action::Delete, "s3:DeleteObject", "/in/k", true),
    (S3Action::Delete, "s3:DeleteObjectVersion", "/in/k", true),
    (S3Action::List, "s3:ListBucket", "", true),
    (S3Action::List, "s3:ListBucketVersions", "", true),
    (S3Action::List, "s3:GetBucketLocation", "", true),
    (S3Action::List, "s3:GetBucketVersioning", "", true),
    // It has no condition by which prefixes could be told apart.
    (S3Action::List, "s3:ListBucketMultipartUploads", "", false),
    (S3Action::Get, "s3:GetAccelerateConfiguration", "", false),
    (S3Action::Get, "s3:GetBucketAcl", "", false),
    (S3Action::Get, "s3:GetBucketCORS", "", false),
    (S3Action::Get, "s3:GetEncryptionConfiguration", "", false),
    (S3Action::Get, "s3:GetLifecycleConfiguration", "", false),
    (S3Action::Get, "s3:GetBucketLogging", "", false),
    (S3Action::Get, "s3:GetBucketNotification", "", false),
    (S3Action::Get, "s3:GetBucketObjectLockConfiguration", "", false),
    (S3Action::Get, "s3:GetBucketOwnershipControls", "", false),
    (S3Action::Get, "s3:GetBucketPolicy", "", false),
    (S3Action::Get, "s3:GetBucketPolicyStatus", "", false),
    (S3Action::Get, "s3:GetBucketPublicAccessBlock", "", false),
    (S3Action::Get, "s3:GetReplicationConfiguration", "", false),
    (S3Action::Get, "s3:GetBucketRequestPayment", "", false),
    (S3Action::Get, "s3:GetBucketTagging", "", false),
    (S3Action::Get, "s3:GetBucketWebsite", "", false),
    (S3Action::Put, "s3:CreateBucket", "", false),
    (S3Action::Delete, "s3:DeleteBucket", "", false),
];

#[test]
fn operations_have_what_iam_wants_of_them_by_their_own_action_alone() {
    for (action, wanted, of, is_below) in WANTED {
        for by in ALL {
            for (prefix, bucket) in [("", "pond"), ("in/", "pond"), ("out/", "pond"), ("", "sea")] {
                let policy = read(&amazons(), &[granted(bucket, prefix, &[by])]);
                let keys = [("s3:prefix", "in/")];
                let allowed = allows(&policy, wanted, &format!("arn:aws:s3:::pond{of}"), &keys);
                // Where a bucket is, and whether it has versions, is no secret of a prefix.
                let is_some_part = ["s3:GetBucketLocation", "s3:GetBucketVersioning"].contains(wanted);
                let is_reached = bucket == "pond"
                    && (prefix.is_empty() || (*is_below && (prefix == "in/" || is_some_part)));
                // Who reads a bucket's settings reads these, too.
                let is_setting = is_some_part && by == S3Action::Get && (bucket, prefix) == ("pond", "");
                let expected = (by == *action && is_reached) || is_setting;
                assert_eq!(
                    allowed, expected,
                    "{wanted} of pond{of} by {by:?} of {bucket}/{prefix}"
                );
            }
        }
    }
}

#[test]
fn what_no_function_may_no_session_may() {
    let policy = read(&amazons(), &[granted("pond", "", &ALL)]);
    for action in [
        "s3:PutBucketPolicy",
        "s3:PutBucketAcl",
        "s3:DeleteBucketPolicy",
        "s3:PutLifecycleConfiguration",
        "s3:PutEncryptionConfiguration",
        "s3:PutObjectRetention",
        "s3:PutObjectLegalHold",
        "s3:BypassGovernanceRetention",
        "s3:RestoreObject",
        "s3:ListAllMyBuckets",
        "iam:CreateUser",
        "sts:AssumeRole",
    ] {
        for resource in ["*", "arn:aws:s3:::pond", "arn:aws:s3:::pond/k"] {
            assert!(!allows(&policy, action, resource, &[]), "{action} of {resource}");
        }
    }
    let listed = |keys: &[(&str, &str)]| {
        let policy = read(&amazons(), &[granted("pond", "in/", &[S3Action::List])]);
        allows(&policy, "s3:ListBucket", "arn:aws:s3:::pond", keys)
    };
    assert!(listed(&[("s3:prefix", "in/")]) && listed(&[("s3:prefix", "in/deeper")]));
    assert!(!listed(&[]) && !listed(&[("s3:prefix", "")]) && !listed(&[("s3:prefix", "out/")]));
}

#[test]
fn a_policy_is_ascii_and_not_too_long() {
    let grants = [granted(
        "pond",
        "é/日本/🦀\n\"*?${aws:username}\u{7f}",
        &[S3Action::Get, S3Action::List],
    )];
    let text = others().text(&grants).unwrap();
    assert!(text.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{text}");
    assert!(text.contains("${*}${?}${$}{aws:username}"), "{text}");
    let policy = read(&others(), &grants);
    let prefix = &grants[0].prefix;
    assert!(allows(
        &policy,
        "s3:GetObject",
        &format!("arn:aws:s3:::pond/{prefix}k"),
        &[]
    ));
    assert!(!allows(
        &policy,
        "s3:GetObject",
        "arn:aws:s3:::pond/é/日本/🦀\n\"xx${aws:username}\u{7f}k",
        &[]
    ));

    let many = |count: usize| -> Vec<_> {
        (0..count)
            .map(|number| granted("pond", &format!("tenants/{number:03}/"), &[S3Action::Get]))
            .collect()
    };
    assert!(others().text(&many(40)).is_ok());
    let error = others().text(&many(100)).unwrap_err();
    assert!(error.0 > LONGEST && error.to_string().contains("2048"), "{error}");
    // One that holds the others is enough.
    let mut held = many(100);
    held.push(granted("pond", "tenants/", &[S3Action::Get]));
    assert!(others().text(&held).is_ok());
}

fn action() -> impl Strategy<Value = S3Action> {
    prop::sample::select(ALL.to_vec())
}

fn grant() -> impl Strategy<Value = S3Grant> {
    let bucket = prop::sample::select(vec!["pond", "sea"]);
    (bucket, "[ab/*?${}é]{0,3}", prop::collection::vec(action(), 1..4))
        .prop_map(|(bucket, prefix, actions)| granted(bucket, &prefix, &actions))
}

proptest! {
    /// What a policy lets be done with a key is what `access` would say, whatever is in keys and prefixes.
    #[test]
    fn a_policy_is_as_wide_as_its_grants(
        grants in prop::collection::vec(grant(), 1..4),
        bucket in prop::sample::select(vec!["pond", "sea"]),
        key in "[ab/*?${}é]{0,4}",
    ) {
        let policy = read(&others(), &grants);
        let resource = format!("arn:aws:s3:::{bucket}/{key}");
        for (action, wanted) in [
            (S3Action::Get, "s3:GetObject"),
            (S3Action::Put, "s3:PutObject"),
            (S3Action::Delete, "s3:DeleteObject"),
            (S3Action::List, "s3:ListBucket"),
        ] {
            let need = Need { action, bucket: bucket.to_owned(), key: Some(key.clone()) };
            let allowed = match action {
                S3Action::List => allows(&policy, wanted, &format!("arn:aws:s3:::{bucket}"), &[("s3:prefix", &key)]),
                _ => allows(&policy, wanted, &resource, &[]),
            };
            prop_assert_eq!(allowed, is_granted(&grants, &need), "{} {:?} {}", wanted, need, policy);
        }
        let whole = Need { action: S3Action::Delete, bucket: bucket.to_owned(), key: Some(String::new()) };
        let allowed = allows(&policy, "s3:DeleteBucket", &format!("arn:aws:s3:::{bucket}"), &[]);
        prop_assert_eq!(allowed, is_granted(&grants, &whole));
    }
}

fn sessions() -> RoleSessions {
    let keys = Credentials::environment(|name| Some(format!("{name}-value"))).unwrap();
    let role = aws::RoleOptions {
        arn: "arn:aws:iam::123456789012:role/pond".to_owned(),
        endpoint: "http://127.0.0.1:1".to_owned(),
        region: "us-east-1".to_owned(),
        lifetime: LIFETIME,
    };
    RoleSessions::new(Role::new(Arc::new(keys), role).unwrap(), others())
}

#[test]
fn a_function_has_one_session_for_what_it_was_granted() {
    let (sessions, now) = (sessions(), SystemTime::now());
    let of =
        |function: &str, grants: &[S3Grant]| sessions.of(&function.parse().unwrap(), grants, now).unwrap();
    let (some, more) = (
        [granted("pond", "in/", &[S3Action::Get])],
        [granted("pond", "", &[S3Action::Get])],
    );
    let one = of("shop.f", &some);
    assert!(Arc::ptr_eq(&one, &of("shop.f", &some)));
    assert!(!Arc::ptr_eq(&one, &of("shop.g", &some)) && !Arc::ptr_eq(&one, &of("shop.f", &more)));
    assert!(Arc::ptr_eq(&one, &of("shop.f", &some)), "who is in use stays");
}

#[test]
fn sessions_that_nobody_uses_are_not_kept_for_ever() {
    let (sessions, now) = (sessions(), SystemTime::now());
    let grants = [granted("pond", "", &ALL)];
    let of = |number: usize| {
        let function = format!("shop.f{number}").parse().unwrap();
        sessions.of(&function, &grants, now).unwrap()
    };
    let kept = || sessions.kept.lock().unwrap().len();
    for number in 0..10 {
        drop(of(number));
    }
    assert_eq!(kept(), 1, "none of the others had keys that would still be good");
    let held: Vec<_> = (0..KEPT + 10).map(of).collect();
    assert_eq!(kept(), KEPT);
    drop(held);
    drop(of(KEPT + 10));
    assert_eq!(kept(), 1);
}
