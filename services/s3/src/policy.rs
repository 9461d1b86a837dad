//! Forms by which others upload an object, as browsers do: what they may say is a signed
//! [policy](https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-HTTPPOSTConstructPolicy.html).

use crate::{
    access::{Kind, Need, Operation},
    fields::{OWN, Unfit},
    sign::Signer,
    target::Target,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use contract::S3Action;
use serde_json::{Map, Value, json};
use std::time::{Duration, SystemTime};

/// Bytes of a list of conditions: S3's policies are shorter than 20 KB.
pub(crate) const LONGEST: usize = 16 << 10;

/// In a key, the name of the file that is uploaded.
const FILENAME: &str = "${filename}";

/// Fields of a form that mean something to S3.
const PLAIN: [&str; 15] = [
    "acl",
    "bucket",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-type",
    "expires",
    "key",
    "redirect",
    "success_action_redirect",
    "success_action_status",
    "tagging",
    "x-amz-storage-class",
    "x-amz-website-redirect-location",
    "content-length-range",
];
/// Families of them.
const FAMILIES: [&str; 4] = [
    "x-amz-checksum-",
    "x-amz-meta-",
    "x-amz-server-side-encryption",
    "x-ignore-",
];

/// What a form does: it puts an object. One whose key its user completes may have any in the bucket.
pub(crate) fn operation(method: &str, target: &Target) -> Option<Operation> {
    let (bucket, key) = (target.bucket.clone()?, target.key.clone()?);
    let is_form = method == "POST" && target.query.is_empty();
    is_form.then(|| Operation {
        kind: Kind::Form,
        needs: vec![Need {
            action: S3Action::Put,
            bucket,
            key: Some(match key.contains(FILENAME) {
                true => String::new(),
                false => key,
            }),
        }],
    })
}

/// Conditions of a caller's own, if they are of fields that a sandbox could set itself.
pub(crate) fn conditions(text: &[u8]) -> Result<Vec<Value>, Unfit> {
    let wrong = Unfit::Invalid(
        "The conditions of a form are a list of objects with one field, and of lists of three.",
    );
    let Ok(conditions) = serde_json::from_slice::<Vec<Value>>(text) else {
        return Err(wrong);
    };
    for condition in &conditions {
        let (how, name, value) = match condition {
            Value::Object(one) if one.len() == 1 => match one.iter().next() {
                Some((name, value)) => ("eq", name.as_str(), value),
                None => return Err(wrong),
            },
            Value::Array(three) => match &three[..] {
                [Value::String(range), _, _] if range == "content-length-range" => continue,
                [Value::String(how), Value::String(name), value] => {
                    (how.as_str(), name.strip_prefix('$').unwrap_or(name), value)
                }
                _ => return Err(wrong),
            },
            _ => return Err(wrong),
        };
        let name = name.to_ascii_lowercase();
        let is_known = PLAIN.contains(&&*name) || FAMILIES.iter().any(|family| name.starts_with(family));
        let is_own = || how == "eq" && value.as_str().is_some_and(|acl| OWN.contains(&acl.as_bytes()));
        if !is_known || (name == "acl" && !is_own()) {
            return Err(Unfit::Denied(name));
        }
    }
    Ok(conditions)
}

/// The fields of a form that uploads to this key until then, under these conditions.
pub(crate) fn fields(
    signer: &Signer<'_>,
    (bucket, key): (&str, &str),
    mut conditions: Vec<Value>,
    lifetime: Duration,
) -> Option<Map<String, Value>> {
    let mut fields = Map::new();
    fields.insert("key".to_owned(), key.into());
    let Some(keys) = signer.keys() else {
        return Some(fields);
    };
    conditions.push(json!({ "bucket": bucket }));
    conditions.push(match key.strip_suffix(FILENAME) {
        Some(start) => json!(["starts-with", "$key", start]),
        None => json!({ "key": key }),
    });
    let (now, end) = (stamp(signer.time)?, stamp(signer.time + lifetime)?);
    let date = now.strftime("%Y%m%d").to_string();
    let mut signed = vec![
        ("x-amz-algorithm", "AWS4-HMAC-SHA256".to_owned()),
        (
            "x-amz-credential",
            format!(
                "{}/{date}/{}/s3/aws4_request",
                keys.access_key_id(),
                signer.region
            ),
        ),
        ("x-amz-date", now.strftime("%Y%m%dT%H%M%SZ").to_string()),
    ];
    signed.extend(
        keys.session_token()
            .map(|token| ("x-amz-security-token", token.to_owned())),
    );
    for (name, value) in signed {
        conditions.push(json!({ name: value }));
        fields.insert(name.to_owned(), value.into());
    }
    let policy = json!({
        "expiration": end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "conditions": conditions,
    });
    let policy = BASE64_STANDARD.encode(policy.to_string());
    let signature = signer.signature(policy.as_bytes())?;
    fields.insert("policy".to_owned(), policy.into());
    fields.insert("x-amz-signature".to_owned(), signature.into());
    Some(fields)
}

fn stamp(time: SystemTime) -> Option<jiff::civil::DateTime> {
    let stamp = jiff::Timestamp::try_from(time).ok()?;
    Some(jiff::tz::TimeZone::UTC.to_datetime(stamp))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws::identity;
    use std::time::UNIX_EPOCH;

    /// That of the S3 API reference, "Examples: Browser-Based Upload using HTTP POST", is of a text with line breaks, which is signed as it is.
    #[test]
    fn the_example_of_the_reference_has_its_signature() {
        let keys = identity(
            "AKIAIOSFODNN7EXAMPLE",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            None,
            None,
        );
        let signer = Signer {
            identity: Some(&keys),
            region: "us-east-1",
            time: UNIX_EPOCH + Duration::from_secs(1_451_347_200),
        };
        let policy = "eyAiZXhwaXJhdGlvbiI6ICIyMDE1LTEyLTMwVDEyOjAwOjAwLjAwMFoiLA0KICAiY29uZGl0aW9ucyI6IFsNCiAgICB7ImJ1Y2tldCI6ICJzaWd2NGV4YW1wbGVidWNrZXQifSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRrZXkiLCAidXNlci91c2VyMS8iXSwNCiAgICB7ImFjbCI6ICJwdWJsaWMtcmVhZCJ9LA0KICAgIHsic3VjY2Vzc19hY3Rpb25fcmVkaXJlY3QiOiAiaHR0cDovL3NpZ3Y0ZXhhbXBsZWJ1Y2tldC5zMy5hbWF6b25hd3MuY29tL3N1Y2Nlc3NmdWxfdXBsb2FkLmh0bWwifSwNCiAgICBbInN0YXJ0cy13aXRoIiwgIiRDb250ZW50LVR5cGUiLCAiaW1hZ2UvIl0sDQogICAgeyJ4LWFtei1tZXRhLXV1aWQiOiAiMTQzNjUxMjM2NTEyNzQifSwNCiAgICB7IngtYW16LXNlcnZlci1zaWRlLWVuY3J5cHRpb24iOiAiQUVTMjU2In0sDQogICAgWyJzdGFydHMtd2l0aCIsICIkeC1hbXotbWV0YS10YWciLCAiIl0sDQoNCiAgICB7IngtYW16LWNyZWRlbnRpYWwiOiAiQUtJQUlPU0ZPRE5ON0VYQU1QTEUvMjAxNTEyMjkvdXMtZWFzdC0xL3MzL2F3czRfcmVxdWVzdCJ9LA0KICAgIHsieC1hbXotYWxnb3JpdGhtIjogIkFXUzQtSE1BQy1TSEEyNTYifSwNCiAgICB7IngtYW16LWRhdGUiOiAiMjAxNTEyMjlUMDAwMDAwWiIgfQ0KICBdDQp9";
        assert_eq!(
            signer.signature(policy.as_bytes()).unwrap(),
            "8afdbf4008c03f22c2cd3cdb72e4afbb1f6a588f3255ac628749a66d7f09699e"
        );
    }

    #[test]
    fn conditions_say_what_a_sandbox_could_do_itself() {
        for good in [
            "[]",
            r#"[{"Content-Type": "image/png"}, ["starts-with", "$x-amz-meta-by", ""], ["content-length-range", 1, 10]]"#,
            r#"[{"acl": "private"}, {"success_action_status": "201"}, ["eq", "$key", "k"]]"#,
        ] {
            assert!(conditions(good.as_bytes()).is_ok(), "{good}");
        }
        for denied in [
            r#"[{"acl": "public-read"}]"#,
            r#"[["starts-with", "$acl", ""]]"#,
            r#"[["starts-with", "$ACL", "private"]]"#,
            r#"[{"x-amz-grant-read": "id=1"}]"#,
            r#"[{"x-amz-credential": "other"}]"#,
        ] {
            assert!(
                matches!(conditions(denied.as_bytes()), Err(Unfit::Denied(_))),
                "{denied}"
            );
        }
        for wrong in [
            "",
            "{}",
            "[1]",
            "[{}]",
            r#"[["eq", "$key"]]"#,
            r#"[{"a": 1, "b": 2}]"#,
        ] {
            assert!(
                matches!(conditions(wrong.as_bytes()), Err(Unfit::Invalid(_))),
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_key_that_others_complete_may_be_any() {
        let needed = |target: &str| {
            operation("POST", &Target::parse(target).unwrap()).unwrap().needs[0]
                .key
                .clone()
        };
        assert_eq!(needed("/bucket/a%20b").as_deref(), Some("a b"));
        assert_eq!(needed("/bucket/in/%24%7Bfilename%7D").as_deref(), Some(""));
        assert!(operation("PUT", &Target::parse("/bucket/k").unwrap()).is_none());
        assert!(operation("POST", &Target::parse("/bucket").unwrap()).is_none());
        assert!(operation("POST", &Target::parse("/bucket/k?uploads").unwrap()).is_none());
    }
}
