//! The services that are known: how they are reached, what a request asks of them, and of what.
//!
//! A request of AWS's JSON protocols says its operation in `x-amz-target`, one of the query protocol in its form
//! (<https://smithy.io/2.0/aws/protocols/index.html>). What it is about stands in members that differ by service; an operation in which none of those stands
//! is about all that there is. So what is not in this table is granted by `*` alone.

use serde_json::Value;
use std::collections::BTreeSet;

/// A service.
#[derive(Debug)]
pub(crate) struct Known {
    /// As boto3 and AWS's command line call it.
    pub(crate) name: &'static str,
    /// The first label of its host's name.
    pub(crate) host: &'static str,
    /// What its requests are signed for.
    pub(crate) signing: &'static str,
    /// Where its requests say what they are about: members, `[]` for each item, `{}` for each key, `*` for each value.
    members: &'static [&'static str],
}

const SERVICES: &[Known] = &[
    Known {
        name: "dynamodb",
        host: "dynamodb",
        signing: "dynamodb",
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
        members: &["Entries.[].EventBusName", "EventBusName", "Name", "Rule"],
    },
    Known {
        name: "firehose",
        host: "firehose",
        signing: "firehose",
        members: &["DeliveryStreamName", "DeliveryStreamARN"],
    },
    Known {
        name: "kinesis",
        host: "kinesis",
        signing: "kinesis",
        members: &["StreamName", "StreamARN", "ConsumerARN", "ResourceARN"],
    },
    Known {
        name: "kms",
        host: "kms",
        signing: "kms",
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
        members: &["SecretId", "SecretIdList.[]", "Name"],
    },
    Known {
        name: "sns",
        host: "sns",
        signing: "sns",
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
        members: &["QueueUrl", "QueueName", "SourceArn", "DestinationArn"],
    },
    Known {
        name: "ssm",
        host: "ssm",
        signing: "ssm",
        members: &["Name", "Names.[]", "Path", "ResourceId"],
    },
    Known {
        name: "stepfunctions",
        host: "states",
        signing: "states",
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
    /// What a request asks, by its `x-amz-target` and its body; `None` if it is in another form.
    pub(crate) fn question(&self, target: Option<&str>, body: &[u8]) -> Option<Question> {
        match target {
            Some(target) => {
                let (_, action) = target.rsplit_once('.')?;
                let document: Value = match body {
                    b"" => Value::Null,
                    body => serde_json::from_slice(body).ok()?,
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
            None => {
                let (mut action, mut resources) = (None, BTreeSet::new());
                let mut seen = BTreeSet::new();
                for (name, value) in form_urlencoded::parse(body) {
                    // Of two, the service might take the other.
                    if !seen.insert(name.to_string()) {
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

/// Whether a pattern, in which `*` stands for any text, is of this text.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(start) else {
        return false;
    };
    // The last piece has to be the end, those between may be anywhere, one behind the other.
    let (mut pieces, mut text) = (rest.split('*').peekable(), text);
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return text.ends_with(piece);
        }
        match text.find(piece) {
            Some(at) => text = &text[at + piece.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(service: &str, target: &str, body: &str) -> Option<(String, Vec<String>)> {
        let question = known(service).unwrap().question(Some(target), body.as_bytes())?;
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
            ("DynamoDB_20120810.GetItem", "no JSON"),
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
        let ask = |body: &str| known("sns").unwrap().question(None, body.as_bytes());
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
    }

    #[test]
    fn patterns() {
        for (pattern, text, fits) in [
            ("orders", "orders", true),
            ("orders", "orders2", false),
            ("orders*", "orders2", true),
            ("*", "", true),
            ("*", "x", true),
            ("a*b*c", "a1b2c", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "acb", false),
            ("a*a", "a", false),
            ("*b", "ab", true),
            ("*b", "ba", false),
            ("arn:*:table/o", "arn:aws:dynamodb:r:1:table/o", true),
            ("a**c", "abc", true),
        ] {
            assert_eq!(matches(pattern, text), fits, "{pattern} {text}");
        }
    }
}
