//! Who may what: each operation by itself, and what is not one.

use super::*;

fn granted(bucket: &str, prefix: &str, actions: &[S3Action]) -> S3Grant {
    S3Grant {
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        actions: actions.to_vec(),
    }
}

/// Whether it may be asked by whom these are granted; whatever is no target may not.
fn may(grants: &[S3Grant], method: &str, target: &str, source: Option<&str>) -> bool {
    let source = match source.map(Source::parse) {
        None => None,
        Some(Some(source)) => Some(source),
        Some(None) => return false,
    };
    let Some(target) = Target::parse(target) else {
        return false;
    };
    classify(method, &target, source.as_ref()).is_some_and(|operation| match operation.kind {
        Kind::Buckets => lists(grants, None),
        _ => operation.needs.iter().all(|need| is_granted(grants, need)),
    })
}

const ALL: [S3Action; 4] = [Get, Put, List, Delete];

/// Each operation on `bucket`, below `in/` where it is about keys, and the one action that it takes.
const OPERATIONS: &[(&str, &str, S3Action)] = &[
    ("GET", "/bucket/in/k", Get),
    ("GET", "/bucket/in/k?versionId=1&partNumber=2", Get),
    ("GET", "/bucket/in/k?response-content-type=text%2Fplain", Get),
    ("HEAD", "/bucket/in/k", Get),
    ("GET", "/bucket/in/k?tagging&versionId=1", Get),
    ("GET", "/bucket/in/k?acl", Get),
    ("GET", "/bucket/in/k?attributes", Get),
    ("PUT", "/bucket/in/k", Put),
    ("PUT", "/bucket/in/", Put),
    ("PUT", "/bucket/in/k?x-id=PutObject", Put),
    ("PUT", "/bucket/in/k?tagging", Put),
    ("DELETE", "/bucket/in/k?tagging", Put),
    ("POST", "/bucket/in/k?uploads", Put),
    ("PUT", "/bucket/in/k?partNumber=1&uploadId=u", Put),
    ("GET", "/bucket/in/k?uploadId=u&max-parts=1", Put),
    ("POST", "/bucket/in/k?uploadId=u", Put),
    ("DELETE", "/bucket/in/k?uploadId=u", Put),
    ("DELETE", "/bucket/in/k", Delete),
    ("DELETE", "/bucket/in/k?versionId=1", Delete),
    ("GET", "/bucket?prefix=in/", List),
    (
        "GET",
        "/bucket?list-type=2&prefix=in%2Fa&delimiter=%2F&start-after=x",
        List,
    ),
    ("GET", "/bucket/?versions&prefix=in/", List),
    ("GET", "/bucket?uploads&prefix=in/", List),
    ("HEAD", "/bucket", List),
    ("GET", "/bucket?location", List),
    ("GET", "/bucket?versioning", List),
    ("POST", "/bucket?delete", Delete),
    ("GET", "/", List),
    ("GET", "/?max-buckets=1", List),
];

#[test]
fn each_operation_takes_its_action_on_its_bucket() {
    for (method, target, action) in OPERATIONS {
        let others: Vec<_> = ALL.into_iter().filter(|other| other != action).collect();
        for (grants, expected) in [
            (vec![granted("bucket", "", &[*action])], true),
            (vec![granted("bucket", "in/", &[*action])], true),
            (vec![granted("bucket", "", &others)], false),
            (
                vec![
                    granted("other", "", &others),
                    granted("bucket", "in/", &[*action]),
                ],
                true,
            ),
            // Two grants do not make a third.
            (
                vec![granted("other", "", &[*action]), granted("bucket", "", &others)],
                false,
            ),
            (Vec::new(), false),
        ] {
            // Which buckets there are is shown, with those left out that are not granted.
            let expected = expected || (target.starts_with("/?") || *target == "/") && lists(&grants, None);
            assert_eq!(
                may(&grants, method, target, None),
                expected,
                "{method} {target}: {grants:?}"
            );
        }
    }
}

#[test]
fn keys_and_listings_stay_within_their_prefix() {
    for (method, target, _) in OPERATIONS.iter().filter(|(_, target, _)| target.contains("in")) {
        let is_about_keys = target.contains("in/") || target.contains("in%2F");
        let narrow = [
            granted("bucket", "in/deeper/", &ALL),
            granted("bucket", "i/", &ALL),
        ];
        assert_eq!(
            may(&narrow, method, target, None),
            !is_about_keys,
            "{method} {target}"
        );
    }
    let within = [granted("bucket", "in/", &ALL)];
    for (method, target) in [
        ("GET", "/bucket"),
        ("GET", "/bucket?list-type=2"),
        ("GET", "/bucket?prefix="),
        ("GET", "/bucket?prefix=in"),
        ("GET", "/bucket?prefix=/in/"),
        ("GET", "/bucket?versions"),
        ("GET", "/bucket?uploads"),
        ("GET", "/bucket?uploads&prefix=out/"),
        ("GET", "/bucket?Prefix=in/"),
        ("GET", "/bucket?start-after=in/"),
        ("GET", "/bucket?prefix=in/../"),
        ("GET", "/bucket/in"),
        ("GET", "/bucket/in%5C"),
        ("GET", "/bucket//in/k"),
        ("GET", "/bucket/IN/k"),
        ("GET", "/bucket/in/../out"),
        ("GET", "/bucket/in/%2e%2e/out"),
        ("GET", "/bucket/in/.%2E%2fout"),
        ("GET", "/bucket/in%2f..%2fout"),
        ("GET", "/bucket/in/./k"),
        ("GET", "/bucket/out/k"),
        ("DELETE", "/bucket/in/.."),
        ("PUT", "/bucket/in%00/k/.."),
    ] {
        assert!(!may(&within, method, target, None), "{method} {target}");
    }
}

#[test]
fn what_the_table_does_not_know_is_denied() {
    let all = [granted("bucket", "", &ALL), granted("other", "", &ALL)];
    for (method, target) in [
        ("PUT", "/"),
        ("HEAD", "/"),
        ("GET", "/?x=1"),
        ("PUT", "/bucket?acl"),
        ("PUT", "/bucket?policy"),
        ("DELETE", "/bucket?policy"),
        ("PUT", "/bucket?cors"),
        ("DELETE", "/bucket?lifecycle"),
        ("PUT", "/bucket?versioning"),
        ("PUT", "/bucket?tagging"),
        ("PUT", "/bucket?replication"),
        ("PUT", "/bucket?notification"),
        ("PUT", "/bucket?publicAccessBlock"),
        ("GET", "/bucket?analytics"),
        ("GET", "/bucket?inventory&id=1"),
        ("POST", "/bucket"),
        ("POST", "/bucket/k"),
        ("POST", "/bucket?delete&x=1"),
        ("POST", "/bucket?delete=1"),
        ("POST", "/bucket/k?delete"),
        ("PUT", "/bucket/k?acl"),
        ("PUT", "/bucket/k?retention"),
        ("PUT", "/bucket/k?legal-hold"),
        ("POST", "/bucket/k?restore"),
        ("POST", "/bucket/k?select&select-type=2"),
        ("PUT", "/bucket/k?renameObject"),
        ("PUT", "/bucket/k?append"),
        ("PUT", "/bucket/k?versionId=1"),
        ("DELETE", "/bucket/k?uploadId="),
        ("DELETE", "/bucket/k?uploadId"),
        ("PUT", "/bucket/k?partNumber=1&uploadId="),
        ("PUT", "/bucket/k?partNumber=1"),
        ("PUT", "/bucket/k?uploadId=u"),
        ("PUT", "/bucket/k?tagging=x"),
        ("DELETE", "/bucket/k?tagging&uploadId=u"),
        ("GET", "/bucket/k?acl&tagging"),
        ("GET", "/bucket/k?policy"),
        ("GET", "/bucket/k?list-type=2&prefix=x"),
        ("GET", "/bucket/k?X-Amz-Signature=1"),
        ("GET", "/bucket/k?X-Amz-Security-Token=1"),
        ("GET", "/bucket?prefix=a&AWSAccessKeyId=1"),
        ("get", "/bucket/k"),
        ("PATCH", "/bucket/k"),
        ("OPTIONS", "/bucket/k"),
        ("TRACE", "/bucket/k"),
        ("CONNECT", "/bucket/k"),
        ("", "/bucket/k"),
    ] {
        assert!(!may(&all, method, target, None), "{method} {target}");
    }
}

#[test]
fn what_is_about_the_bucket_takes_all_of_it() {
    for (method, target, action) in [
        ("PUT", "/bucket", Put),
        ("PUT", "/bucket/", Put),
        ("DELETE", "/bucket", Delete),
        ("GET", "/bucket?policy", Get),
        ("GET", "/bucket?cors", Get),
        ("GET", "/bucket?encryption", Get),
        ("GET", "/bucket?lifecycle", Get),
        ("GET", "/bucket?acl", Get),
        ("GET", "/bucket?tagging", Get),
    ] {
        let others: Vec<_> = ALL.into_iter().filter(|other| *other != action).collect();
        assert!(
            may(&[granted("bucket", "", &[action])], method, target, None),
            "{method} {target}"
        );
        assert!(!may(&[granted("bucket", "", &others)], method, target, None));
        assert!(!may(&[granted("bucket", "in/", &ALL)], method, target, None));
        assert!(!may(&[granted("other", "", &ALL)], method, target, None));
    }
}

#[test]
fn a_copy_takes_its_source_too() {
    let grants = [granted("bucket", "out/", &[Put]), granted("other", "in/", &[Get])];
    for (target, source, expected) in [
        ("/bucket/out/k", "other/in/k", true),
        ("/bucket/out/k", "/other/in/k?versionId=1", true),
        ("/bucket/out/k", "other%2Fin%2Fk", true),
        ("/bucket/out/k?partNumber=1&uploadId=u", "other/in/k", true),
        ("/bucket/out/k", "other/out/k", false),
        ("/bucket/out/k", "other/in/../k", false),
        ("/bucket/out/k", "other/in/%2e%2e/k", false),
        ("/bucket/out/k", "bucket/out/k", false),
        ("/bucket/out/k", "third/in/k", false),
        ("/bucket/in/k", "other/in/k", false),
        ("/bucket/out/k", "arn:aws:s3:::other/in/k", false),
        ("/bucket/out/k?tagging", "other/in/k", false),
        ("/bucket/out/k", "", false),
    ] {
        assert_eq!(
            may(&grants, "PUT", target, Some(source)),
            expected,
            "{target} {source}"
        );
    }
    let all = [granted("bucket", "", &ALL)];
    for (method, target) in [
        ("GET", "/bucket/k"),
        ("POST", "/bucket/k?uploads"),
        ("PUT", "/bucket"),
        ("DELETE", "/bucket/k"),
        ("GET", "/"),
    ] {
        assert!(!may(&all, method, target, Some("bucket/k")), "{method} {target}");
    }
}
