//! The services that are known: how they are reached, what a request asks of them, and of what.
//!
//! A request of AWS's JSON protocols says its operation in `x-amz-target`, one of the query protocol in its form
//! (<https://smithy.io/2.0/aws/protocols/index.html>). What it is about stands in members that differ by service; an operation in which none of those stands
//! is about all that there is. So what is not in this table is granted by `*` alone.
//!
//! A sandbox chooses the bytes, and the service reads them by itself: whatever two readers could understand differently is not understood here. So the
//! protocol has to be one of the service's, its `content-type` that protocol's, the operation's prefix that service's, and a name may stand once in an object or a form.

use serde::{
    Deserialize, Deserializer,
    de::{Error, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Value};
use std::{collections::BTreeSet, fmt};

/// A service.
#[derive(Debug)]
pub(crate) struct Known {
    /// As boto3 and AWS's command line call it.
    pub(crate) name: &'static str,
    /// The first label of its host's name.
    pub(crate) host: &'static str,
    /// What its requests are signed for.
    pub(crate) signing: &'static str,
    /// What stands before an operation's name in `x-amz-target`, if the service speaks a JSON protocol.
    target: Option<&'static str>,
    /// Which `Version` stands in its forms, if it speaks the query protocol.
    version: Option<&'static str>,
    /// Where its requests say what they are about: members, `[]` for each item, `{}` for each key, `*` for each value.
    members: &'static [&'static str],
}

const SERVICES: &[Known] = &[
    Known {
        name: "dynamodb",
        host: "dynamodb",
        signing: "dynamodb",
        target: Some("DynamoDB_20120810"),
        version: None,
        members: &[
            "TableName",
            "TableArn",
            "RequestItems.{}",
            "TransactItems.[].*.TableName",
            "SourceTableName",
            "SourceTableArn",
            "TargetTableName",
            "GlobalTableName",
            "BackupArn",
            "ExportArn",
            "ImportArn",
            "ResourceArn",
            "TableCreationParameters.TableName",
        ],
    },
    Known {
        name: "events",
        host: "events",
        signing: "events",
        target: Some("AWSEvents"),
        version: None,
        members: &["Entries.[].EventBusName", "EventBusName", "Name", "Rule"],
    },
    Known {
        name: "firehose",
        host: "firehose",
        signing: "firehose",
        target: Some("Firehose_20150804"),
        version: None,
        members: &["DeliveryStreamName", "DeliveryStreamARN"],
    },
    Known {
        name: "kinesis",
        host: "kinesis",
        signing: "kinesis",
        target: Some("Kinesis_20131202"),
        version: None,
        members: &["StreamName", "StreamARN", "ConsumerARN", "ResourceARN"],
    },
    Known {
        name: "kms",
        host: "kms",
        signing: "kms",
        target: Some("TrentService"),
        version: None,
        members: &[
            "KeyId",
            "SourceKeyId",
            "DestinationKeyId",
            "AliasName",
            "TargetKeyId",
        ],
    },
    Known {
        name: "logs",
        host: "logs",
        signing: "logs",
        target: Some("Logs_20140328"),
        version: None,
        members: &[
            "logGroupName",
            "logGroupNames.[]",
            "logGroupIdentifier",
            "logGroupIdentifiers.[]",
            "resourceArn",
        ],
    },
    Known {
        name: "secretsmanager",
        host: "secretsmanager",
        signing: "secretsmanager",
        target: Some("secretsmanager"),
        version: None,
        members: &["SecretId", "SecretIdList.[]", "Name"],
    },
    Known {
        name: "sns",
        host: "sns",
        signing: "sns",
        target: None,
        version: Some("2010-03-31"),
        members: &[
            "TopicArn",
            "TargetArn",
            "ResourceArn",
            "PhoneNumber",
            "PlatformApplicationArn",
            "EndpointArn",
            "SubscriptionArn",
        ],
    },
    Known {
        name: "sqs",
        host: "sqs",
        signing: "sqs",
        target: Some("AmazonSQS"),
        version: Some("2012-11-05"),
        members: &["QueueUrl", "QueueName", "SourceArn", "DestinationArn"],
    },
    Known {
        name: "ssm",
        host: "ssm",
        signing: "ssm",
        target: Some("AmazonSSM"),
        version: None,
        members: &["Name", "Names.[]", "Path", "ResourceId"],
    },
    Known {
        name: "stepfunctions",
        host: "states",
        signing: "states",
        target: Some("AWSStepFunctions"),
        version: None,
        members: &[
            "stateMachineArn",
            "executionArn",
            "activityArn",
            "resourceArn",
            "mapRunArn",
            "stateMachineAliasArn",
            "stateMachineVersionArn",
        ],
    },
];

/// The service of this name.
pub(crate) fn known(name: &str) -> Option<&'static Known> {
    SERVICES.iter().find(|known| known.name == name)
}

/// What a request asks.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// The operation.
    pub(crate) action: String,
    /// What it is about, as the request names it; nothing where no member says it.
    pub(crate) resources: BTreeSet<String>,
    /// How its answers are written.
    pub(crate) form: Form,
}

/// How a service's answers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Xml,
}

impl Known {
    /// What a request asks, by its `x-amz-target`, its `content-type` and its body; `None` if it is in a form that the service might read otherwise.
    pub(crate) fn question(&self, target: Option<&str>, kind: &str, body: &[u8]) -> Option<Question> {
        match target {
            Some(target) if matches!(kind, "application/x-amz-json-1.0" | "application/x-amz-json-1.1") => {
                self.of_json(target, body)
            }
            None if kind == FORM || kind.strip_prefix(FORM)?.starts_with(';') => self.of_form(body),
            _ => None,
        }
    }

    fn of_json(&self, target: &str, body: &[u8]) -> Option<Question> {
        let action = target.strip_prefix(self.target?)?.strip_prefix('.')?;
        let document = match body {
            b"" => Value::Null,
            body => serde_json::from_slice::<Once>(body).ok()?.0,
        };
        let mut resources = BTreeSet::new();
        for member in self.members {
            let path: Vec<_> = member.split('.').collect();
            collect(&document, &path, false, &mut resources)?;
        }
        Some(Question {
            action: action.to_owned(),
            resources,
            form: Form::Json,
        })
    }

    fn of_form(&self, body: &[u8]) -> Option<Question> {
        let version = self.version?;
        let (mut action, mut resources) = (None, BTreeSet::new());
        let mut seen = BTreeSet::new();
        for (name, value) in form_urlencoded::parse(body) {
            if !seen.insert(name.to_string()) || (name == "Version" && value != version) {
                return None;
            }
            if name == "Action" {
                action = Some(value.into_owned());
            } else if self.members.contains(&&*name) {
                resources.insert(value.into_owned());
            }
        }
        Some(Question {
            action: action?,
            resources,
            form: Form::Xml,
        })
    }
}

/// The query protocol's kind of content.
const FORM: &str = "application/x-www-form-urlencoded";

/// A document of JSON in which no object has a name twice.
struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OnceVisitor)
    }
}

struct OnceVisitor;

impl<'de> Visitor<'de> for OnceVisitor {
    type Value = Once;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON in which no object has a name twice")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Once, E> {
        Ok(Once(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Once, E> {
        Ok(Once(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Once, E> {
        Ok(Once(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Once, E> {
        Ok(Once(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Once, E> {
        Ok(Once(value.into()))
    }

    fn visit_unit<E: Error>(self) -> Result<Once, E> {
        Ok(Once(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Once, A::Error> {
        let mut all = Vec::new();
        while let Some(Once(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(Once(all.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Once, A::Error> {
        let mut all = Map::new();
        while let Some((name, Once(member))) = members.next_entry::<String, _>()? {
            if all.contains_key(&name) {
                return Err(A::Error::custom(format!("`{name}` is there twice")));
            }
            all.insert(name, member);
        }
        Ok(Once(all.into()))
    }
}

/// Adds what lies at this path of a document; nothing named, where one of several has none: that is for `*` alone. `None` where something else lies there than a text.
fn collect(
    document: &Value,
    path: &[&str],
    is_one_of_several: bool,
    found: &mut BTreeSet<String>,
) -> Option<()> {
    let Some((first, rest)) = path.split_first() else {
        found.insert(document.as_str()?.to_owned());
        return Some(());
    };
    match (*first, document) {
        (_, Value::Null) => {}
        ("[]", Value::Array(items)) => {
            for item in items {
                collect(item, rest, true, found)?;
            }
        }
        ("{}", Value::Object(members)) if rest.is_empty() => found.extend(members.keys().cloned()),
        ("*", Value::Object(members)) => {
            for member in members.values() {
                collect(member, rest, true, found)?;
            }
        }
        ("[]" | "{}" | "*", _) => return None,
        (name, Value::Object(members)) => match members.get(name) {
            Some(member) if !member.is_null() => collect(member, rest, is_one_of_several, found)?,
            _ if is_one_of_several => drop(found.insert(String::new())),
            _ => {}
        },
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(service: &str, target: &str, body: &str) -> Option<(String, Vec<String>)> {
        let question =
            known(service)
                .unwrap()
                .question(Some(target), "application/x-amz-json-1.0", body.as_bytes())?;
        assert_eq!(question.form, Form::Json);
        Some((question.action, question.resources.into_iter().collect()))
    }

    #[test]
    fn each_service_is_there_once_and_none_gives_credentials() {
        let mut names: Vec<_> = SERVICES.iter().map(|known| known.name).collect();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.is_sorted());
        assert!(known("iam").is_none() && known("sts").is_none());
        assert_eq!(names, contract::AWS_SERVICES);
    }

    #[test]
    fn what_a_request_is_about() {
        let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (service, target, body, action, resources) in [
            (
                "dynamodb",
                "DynamoDB_20120810.GetItem",
                r#"{"TableName":"orders","Key":{}}"#,
                "GetItem",
                of(&["orders"]),
            ),
            (
                "dynamodb",
                "DynamoDB_20120810.ListTables",
                "{}",
                "ListTables",
                of(&[]),
            ),
            (
                "dynamodb",
                "DynamoDB_20120810.BatchGetItem",
                r#"{"RequestItems":{"a":{"Keys":[]},"b":{}}}"#,
                "BatchGetItem",
                of(&["a", "b"]),
            ),
            (
                "dynamodb",
                "DynamoDB_20120810.TransactWriteItems",
                r#"{"TransactItems":[{"Put":{"TableName":"a","Item":{}}},{"Delete":{"TableName":"b"}}]}"#,
                "TransactWriteItems",
                of(&["a", "b"]),
            ),
            (
                "sqs",
                "AmazonSQS.SendMessage",
                r#"{"QueueUrl":"https://h/1/q"}"#,
                "SendMessage",
                of(&["https://h/1/q"]),
            ),
            (
                "events",
                "AWSEvents.PutEvents",
                r#"{"Entries":[{"EventBusName":"bus"},{"Detail":"{}"}]}"#,
                "PutEvents",
                of(&["", "bus"]),
            ),
        ] {
            assert_eq!(
                json(service, target, body),
                Some((action.to_owned(), resources)),
                "{target}"
            );
        }
        for (target, body) in [
            ("GetItem", "{}"),
            ("DynamoDB_20120810GetItem", "{}"),
            ("AmazonSQS.SendMessage", "{}"),
            ("DynamoDB_20120810.GetItem", "no JSON"),
            (
                "DynamoDB_20120810.GetItem",
                r#"{"TableName":"orders","TableName":"bills"}"#,
            ),
            (
                "DynamoDB_20120810.GetItem",
                r#"{"TableName":"orders","Table\u004eame":"bills"}"#,
            ),
            (
                "DynamoDB_20120810.TransactWriteItems",
                r#"{"TransactItems":[{"Put":{"TableName":"a"},"Put":{"TableName":"b"}}]}"#,
            ),
            (
                "DynamoDB_20120810.TransactWriteItems",
                r#"{"TransactItems":[{"Put":{"TableName":"a","TableName":"b"}}]}"#,
            ),
            ("DynamoDB_20120810.GetItem", r#"{"TableName":["orders"]}"#),
            ("DynamoDB_20120810.GetItem", "[]"),
            ("DynamoDB_20120810.BatchGetItem", r#"{"RequestItems":[]}"#),
            ("DynamoDB_20120810.TransactWriteItems", r#"{"TransactItems":{}}"#),
        ] {
            assert_eq!(json("dynamodb", target, body), None, "{target} {body}");
        }
    }

    #[test]
    fn what_a_form_is_about() {
        let ask = |body: &str| known("sns").unwrap().question(None, FORM, body.as_bytes());
        let asked =
            ask("Action=Publish&Version=2010-03-31&TopicArn=arn%3Aaws%3Asns%3Ar%3A1%3At&Message=m").unwrap();
        assert_eq!((asked.action.as_str(), asked.form), ("Publish", Form::Xml));
        assert_eq!(
            asked.resources.into_iter().collect::<Vec<_>>(),
            ["arn:aws:sns:r:1:t"]
        );
        assert_eq!(ask("Message=m"), None);
        assert_eq!(ask("Action=Publish&TopicArn=a&TopicArn=b"), None);
        assert_eq!(ask("Action=Publish&Action=CreateTopic"), None);
        assert_eq!(ask("Action=CreateQueue&Version=2012-11-05"), None);
    }

    #[test]
    fn a_request_is_in_a_protocol_of_its_service() {
        let of = |service: &str, target: Option<&str>, kind: &str, body: &str| {
            known(service).unwrap().question(target, kind, body.as_bytes())
        };
        let json = "application/x-amz-json-1.0";
        let target = Some("AmazonSQS.SendMessage");
        // SQS speaks both: read as a form, this body is to delete a queue.
        let both = r#"{"QueueUrl":"https://h/1/q","x":"&Action=DeleteQueue&QueueUrl=https://h/1/r&y="}"#;
        assert!(of("sqs", target, json, both).is_some());
        for kind in ["", FORM, "application/json", "application/cbor", "text/plain"] {
            assert_eq!(of("sqs", target, kind, both), None, "{kind}");
        }
        let form = "Action=SendMessage&QueueUrl=https://h/1/q";
        assert!(of("sqs", None, FORM, form).is_some());
        assert!(
            of(
                "sqs",
                None,
                "application/x-www-form-urlencoded; charset=utf-8",
                form
            )
            .is_some()
        );
        for kind in ["", json, "application/x-www-form-urlencodedx"] {
            assert_eq!(of("sqs", None, kind, form), None, "{kind}");
        }
        assert_eq!(
            of("dynamodb", None, FORM, "Action=GetItem&TableName=orders"),
            None
        );
        assert_eq!(of("sns", Some("SNS.Publish"), json, "{}"), None);
    }

    #[test]
    fn documents_are_read_as_serde_json_reads_them() {
        for text in [
            "null",
            "true",
            "-3",
            "18446744073709551615",
            "1.5e300",
            r#""\u00e9\n""#,
            r#"[1,[],{},{"a":{"b":[null]}},"x"]"#,
            r#"{"Key":{"id":{"S":"1"},"Id":{"N":"2"}}}"#,
        ] {
            let plain: Value = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::from_str::<Once>(text).unwrap().0, plain, "{text}");
        }
        // Nor does a deep one end the process.
        assert!(serde_json::from_str::<Once>(&"[".repeat(100_000)).is_err());
    }
}
