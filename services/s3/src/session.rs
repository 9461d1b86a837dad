//! As whom the calls of a function are signed where the node takes a role: with the keys of a role session of its own, which a policy lets do what was granted and nothing
//! else. So it is S3 that says no, too, should a call ever come past module `access`.
//!
//! A policy says by IAM's
//! [actions and conditions](https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazons3.html) what the tables of `access` say by requests. What IAM
//! cannot say as narrowly is not in it: to see whether a bucket is there without listing it, unless all of it may be listed; to list the uploads below a prefix;
//! to list buckets. It has IAM's names that servers like S3 know as well, since some refuse a policy for one that they do not know; what AWS's own S3 wants beside
//! that is added for it alone.

use crate::endpoint::Endpoint;
use aws::{Credentials, Role};
use contract::{CallError, FunctionId, S3Action, S3Grant};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

/// How long a role session lasts: what every role allows.
pub(crate) const LIFETIME: Duration = Duration::from_hours(1);

/// Characters of a session policy:
/// <https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html>.
const LONGEST: usize = 2048;

/// Role sessions that are kept. Beyond that, those that end first are asked for again when they are needed.
const KEPT: usize = 4096;

/// Objects: those that a prefix is the beginning of.
const GET: &[&str] = &["s3:GetObject*"];
const PUT: &[&str] = &[
    "s3:PutObject",
    "s3:PutObject*Tagging",
    "s3:DeleteObject*Tagging",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
];
const DELETE: &[&str] = &["s3:DeleteObject", "s3:DeleteObjectVersion"];

/// Buckets, for grants without a prefix.
const GET_WHOLE: &[&str] = &["s3:GetBucket*", "s3:Get*Configuration"];
const PUT_WHOLE: &[&str] = &["s3:CreateBucket"];
const LIST_WHOLE: &[&str] = &[
    "s3:ListBucket",
    "s3:ListBucketVersions",
    "s3:ListBucketMultipartUploads",
];
const DELETE_WHOLE: &[&str] = &["s3:DeleteBucket"];

/// Buckets, for all grants to list.
const LIST_ANY: &[&str] = &["s3:GetBucketLocation", "s3:GetBucketVersioning"];
const LIST_BELOW: &[&str] = &["s3:ListBucket", "s3:ListBucketVersions"];

/// The access lists that `fields` lets an object be written with.
const OWN: [&str; 3] = ["private", "bucket-owner-read", "bucket-owner-full-control"];

/// A policy that no role session can have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the session policy for these grants has {0} characters, and {most} is the most: grant fewer buckets, or fewer and shorter prefixes",
    most = LONGEST
)]
pub struct TooLong(usize);

/// How policies are written for one S3.
#[derive(Clone, Debug)]
pub struct Policies {
    /// That of the role's ARN, which AWS calls its partition.
    partition: String,
    /// Whether AWS reads them.
    is_amazons: bool,
}

impl Policies {
    /// Of sessions of this role.
    pub(crate) fn new(role: &str, endpoint: &Endpoint) -> Self {
        let partition = role.split(':').nth(1).unwrap_or_default();
        Self {
            partition: match partition.starts_with("aws") {
                true => partition.to_owned(),
                false => "aws".to_owned(),
            },
            is_amazons: endpoint.is_amazons(),
        }
    }

    /// The policy that lets these be used, in ASCII: STS takes some other characters, and not all.
    ///
    /// # Errors
    /// There are too many.
    pub fn text(&self, grants: &[S3Grant]) -> Result<String, TooLong> {
        let policy = json!({ "Version": "2012-10-17", "Statement": self.statements(grants) }).to_string();
        let mut text = String::with_capacity(policy.len());
        for character in policy.chars() {
            match character {
                ' '..='~' => text.push(character),
                other => {
                    for unit in other.encode_utf16(&mut [0; 2]) {
                        text.push_str(&format!("\\u{unit:04x}"));
                    }
                }
            }
        }
        match text.len() {
            0..=LONGEST => Ok(text),
            length => Err(TooLong(length)),
        }
    }

    fn statements(&self, grants: &[S3Grant]) -> Vec<Value> {
        let (get, put) = (
            self.objects(grants, S3Action::Get),
            self.objects(grants, S3Action::Put),
        );
        let (list, whole) = (
            |grant: &&S3Grant| grant.actions.contains(&S3Action::List),
            |action| {
                self.buckets(
                    grants
                        .iter()
                        .filter(|grant| grant.prefix.is_empty() && grant.actions.contains(&action)),
                )
            },
        );
        let mut statements = Statements::default();
        statements.allow(GET, get.clone());
        statements.allow(PUT, put.clone());
        statements.allow(DELETE, self.objects(grants, S3Action::Delete));
        statements.allow(GET_WHOLE, whole(S3Action::Get));
        statements.allow(PUT_WHOLE, whole(S3Action::Put));
        statements.allow(LIST_WHOLE, whole(S3Action::List));
        statements.allow(DELETE_WHOLE, whole(S3Action::Delete));
        statements.allow(LIST_ANY, self.buckets(grants.iter().filter(list)));
        let mut all = statements.written();
        for (prefixes, buckets) in self.listings(grants.iter().filter(list)) {
            let condition = json!({ "StringLike": { "s3:prefix": one_or_more(prefixes) } });
            all.push(statement(LIST_BELOW, buckets, Some(condition)));
        }
        if self.is_amazons {
            all.extend(self.amazons(get, put));
        }
        all
    }

    /// What AWS's S3 wants to be allowed beside that. An access list that is written with an object is a right of its own. So is it to use the keys of KMS, as
    /// which objects are encrypted: by S3, and for what S3 allows.
    fn amazons(&self, get: Vec<String>, put: Vec<String>) -> Vec<Value> {
        let mut all = Vec::new();
        let keys: &[&str] = match (get.is_empty(), put.is_empty()) {
            (true, true) => return all,
            (false, true) => &["kms:Decrypt"],
            _ => &["kms:Decrypt", "kms:GenerateDataKey"],
        };
        if !put.is_empty() {
            let condition = json!({ "StringEquals": { "s3:x-amz-acl": OWN } });
            all.push(statement(&["s3:PutObjectAcl"], put, Some(condition)));
        }
        let condition = json!({ "StringLike": { "kms:ViaService": "s3.*" } });
        all.push(statement(keys, vec!["*".to_owned()], Some(condition)));
        all
    }

    /// The objects with which this may be done, each once.
    fn objects(&self, grants: &[S3Grant], action: S3Action) -> Vec<String> {
        let with = || grants.iter().filter(|grant| grant.actions.contains(&action));
        let is_covered = |grant: &S3Grant| {
            with().any(|other| {
                other.bucket == grant.bucket
                    && other.prefix != grant.prefix
                    && grant.prefix.starts_with(&other.prefix)
            })
        };
        let objects: BTreeSet<_> = with()
            .filter(|grant| !is_covered(grant))
            .map(|grant| format!("{}/{}*", self.bucket(&grant.bucket), literal(&grant.prefix)))
            .collect();
        objects.into_iter().collect()
    }

    /// The buckets of these, each once.
    fn buckets<'a>(&self, grants: impl Iterator<Item = &'a S3Grant>) -> Vec<String> {
        let buckets: BTreeSet<_> = grants.map(|grant| self.bucket(&grant.bucket)).collect();
        buckets.into_iter().collect()
    }

    /// The prefixes below which keys may be listed, and the buckets in which it is these. A bucket of which all may be listed has none.
    fn listings<'a>(&self, grants: impl Iterator<Item = &'a S3Grant>) -> BTreeMap<Vec<String>, Vec<String>> {
        let mut prefixes = BTreeMap::<_, BTreeSet<_>>::new();
        for grant in grants {
            prefixes.entry(&grant.bucket).or_default().insert(&grant.prefix);
        }
        let mut listings = BTreeMap::<_, Vec<_>>::new();
        for (bucket, prefixes) in prefixes {
            if prefixes.iter().any(|prefix| prefix.is_empty()) {
                continue;
            }
            let is_covered = |prefix: &String| {
                prefixes
                    .iter()
                    .any(|other| *other != prefix && prefix.starts_with(other.as_str()))
            };
            let patterns = prefixes.iter().filter(|prefix| !is_covered(prefix));
            let patterns: Vec<_> = patterns.map(|prefix| format!("{}*", literal(prefix))).collect();
            listings.entry(patterns).or_default().push(self.bucket(bucket));
        }
        listings
    }

    fn bucket(&self, bucket: &str) -> String {
        format!("arn:{}:s3:::{bucket}", self.partition)
    }
}

/// A text as itself, where some characters stand for others:
/// <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_variables.html#policy-vars-specialchars>.
fn literal(text: &str) -> String {
    let mut literal = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '*' | '?' | '$' => literal.extend(['$', '{', character, '}']),
            other => literal.push(other),
        }
    }
    literal
}

/// What is allowed without a condition: for the same resources, all actions are in one statement.
#[derive(Default)]
struct Statements(Vec<(Vec<String>, Vec<&'static str>)>);

impl Statements {
    fn allow(&mut self, actions: &'static [&'static str], resources: Vec<String>) {
        if resources.is_empty() {
            return;
        }
        match self.0.iter_mut().find(|(its, _)| *its == resources) {
            Some((_, all)) => all.extend(actions),
            None => self.0.push((resources, actions.to_vec())),
        }
    }

    fn written(self) -> Vec<Value> {
        let all = self.0.into_iter();
        all.map(|(resources, actions)| statement(&actions, resources, None))
            .collect()
    }
}

fn statement(actions: &[&str], resources: Vec<String>, condition: Option<Value>) -> Value {
    let actions = actions.iter().map(|action| (*action).to_owned());
    let mut statement = json!({
        "Effect": "Allow",
        "Action": one_or_more(actions.collect()),
        "Resource": one_or_more(resources),
    });
    if let Some(condition) = condition {
        statement["Condition"] = condition;
    }
    statement
}

/// A list of one is written without brackets: a policy may not be long.
fn one_or_more(mut texts: Vec<String>) -> Value {
    match texts.len() {
        1 => texts.remove(0).into(),
        _ => texts.into(),
    }
}

/// As whom calls are signed.
pub(crate) enum Signers {
    /// As the node, whoever calls.
    Node(Arc<Credentials>),
    /// By role sessions, one for each function and what it was granted.
    RoleSessions(RoleSessions),
}

/// Role sessions, those that are or were lately in use.
pub(crate) struct RoleSessions {
    role: Arc<Role>,
    policies: Policies,
    kept: Mutex<HashMap<(FunctionId, String), Arc<Credentials>>>,
}

impl Signers {
    /// For a function that was granted these.
    ///
    /// # Errors
    /// There can be no session for them.
    pub(crate) fn of(
        &self,
        function: &FunctionId,
        grants: &[S3Grant],
    ) -> Result<Arc<Credentials>, CallError> {
        match self {
            Self::Node(credentials) => Ok(credentials.clone()),
            Self::RoleSessions(sessions) => {
                let session = sessions.of(function, grants, SystemTime::now());
                session.map_err(|error| CallError::Credentials(error.to_string()))
            }
        }
    }
}

impl RoleSessions {
    pub(crate) fn new(role: Role, policies: Policies) -> Self {
        Self {
            role: Arc::new(role),
            policies,
            kept: Mutex::default(),
        }
    }

    fn of(
        &self,
        function: &FunctionId,
        grants: &[S3Grant],
        now: SystemTime,
    ) -> Result<Arc<Credentials>, TooLong> {
        let policy = self.policies.text(grants)?;
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let which = (function.clone(), policy);
        if let Some(session) = kept.get(&which) {
            return Ok(session.clone());
        }
        make_room(&mut kept, now);
        let session = Arc::new(self.role.session(&function.to_string(), which.1.clone()));
        kept.insert(which, session.clone());
        Ok(session)
    }
}

/// Leaves those that somebody uses or whose keys are still good, and fewer of these than are kept.
fn make_room(kept: &mut HashMap<(FunctionId, String), Arc<Credentials>>, now: SystemTime) {
    kept.retain(|_, session| Arc::strong_count(session) > 1 || session.ends().is_some_and(|ends| ends > now));
    while kept.len() >= KEPT {
        // Whoever uses one goes on with it.
        let first = kept.iter().min_by_key(|(_, session)| session.ends());
        let Some(first) = first.map(|(which, _)| which.clone()) else {
            break;
        };
        kept.remove(&first);
    }
}

#[cfg(test)]
mod tests;
