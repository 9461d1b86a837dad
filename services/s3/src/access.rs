//! What a request does, and who may. What is not in the table is denied: an operation that S3 gets tomorrow, a part of a query that
//! makes one into another.

use crate::target::{Source, Target, is_plain};
use contract::{S3Action, S3Grant};

/// What a request is, as far as it matters for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// What comes is an object's bytes.
    Object,
    /// What comes is a document of S3's, or nothing.
    Document,
    /// Deletes the keys in its body, each of which is asked for by itself.
    DeleteMany,
    /// Lists buckets, of which those that are granted are shown.
    Buckets,
    /// Has the fields of a form signed, whose conditions are in the body.
    Form,
}

/// What must have been granted for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Need {
    pub(crate) action: S3Action,
    pub(crate) bucket: String,
    /// The key, or how keys begin: a grant's prefix is its beginning. `None` if any part of the bucket will do.
    pub(crate) key: Option<String>,
}

/// A request that the table knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) kind: Kind,
    pub(crate) needs: Vec<Need>,
}

/// What a row asks for.
#[derive(Clone, Copy)]
enum Scope {
    /// The key.
    Key,
    /// The key, and the key that is copied if one is named.
    Duplicate,
    /// The listing's prefix.
    Listing,
    /// Some part of the bucket.
    Part,
    /// All of the bucket.
    Whole,
}

/// An operation: the method, the names in the query that make it this one, those that it may have beside them.
struct Row {
    method: &'static str,
    sub: &'static [&'static str],
    beside: &'static [&'static str],
    action: S3Action,
    scope: Scope,
    kind: Kind,
}

const fn row(
    method: &'static str,
    sub: &'static [&'static str],
    beside: &'static [&'static str],
    action: S3Action,
    scope: Scope,
) -> Row {
    Row {
        method,
        sub,
        beside,
        action,
        scope,
        kind: Kind::Document,
    }
}

const fn of(kind: Kind, row: Row) -> Row {
    Row { kind, ..row }
}

use S3Action::{Delete, Get, List, Put};
use Scope::{Duplicate, Key, Listing, Part, Whole};

const VERSION: &[&str] = &["versionId"];
const READ: &[&str] = &[
    "partNumber",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "versionId",
];

/// Operations on objects, by the names of the S3 API reference.
const OBJECTS: &[Row] = &[
    of(Kind::Object, row("GET", &[], READ, Get, Key)),
    of(Kind::Object, row("HEAD", &[], READ, Get, Key)),
    row("GET", &["tagging"], VERSION, Get, Key),
    row("GET", &["acl"], VERSION, Get, Key),
    row("GET", &["attributes"], VERSION, Get, Key),
    row("GET", &["retention"], VERSION, Get, Key),
    row("GET", &["legal-hold"], VERSION, Get, Key),
    // ListParts: of an upload that is being written.
    row(
        "GET",
        &["uploadId"],
        &["max-parts", "part-number-marker", "encoding-type"],
        Put,
        Key,
    ),
    row("PUT", &[], &[], Put, Duplicate),
    row("PUT", &["partNumber", "uploadId"], &[], Put, Duplicate),
    row("PUT", &["tagging"], VERSION, Put, Key),
    row("DELETE", &["tagging"], VERSION, Put, Key),
    row("POST", &["uploads"], &[], Put, Key),
    row("POST", &["uploadId"], &[], Put, Key),
    row("DELETE", &["uploadId"], &[], Put, Key),
    row("DELETE", &[], VERSION, Delete, Key),
];

/// Operations on buckets.
const BUCKETS: &[Row] = &[
    row(
        "GET",
        &[],
        &[
            "continuation-token",
            "delimiter",
            "encoding-type",
            "fetch-owner",
            "list-type",
            "marker",
            "max-keys",
            "prefix",
            "start-after",
        ],
        List,
        Listing,
    ),
    row(
        "GET",
        &["versions"],
        &[
            "delimiter",
            "encoding-type",
            "key-marker",
            "max-keys",
            "prefix",
            "version-id-marker",
        ],
        List,
        Listing,
    ),
    row(
        "GET",
        &["uploads"],
        &[
            "delimiter",
            "encoding-type",
            "key-marker",
            "max-uploads",
            "prefix",
            "upload-id-marker",
        ],
        List,
        Listing,
    ),
    row("HEAD", &[], &[], List, Part),
    row("GET", &["location"], &[], List, Part),
    row("GET", &["versioning"], &[], List, Part),
    row("GET", &["accelerate"], &[], Get, Whole),
    row("GET", &["acl"], &[], Get, Whole),
    row("GET", &["cors"], &[], Get, Whole),
    row("GET", &["encryption"], &[], Get, Whole),
    row("GET", &["lifecycle"], &[], Get, Whole),
    row("GET", &["logging"], &[], Get, Whole),
    row("GET", &["notification"], &[], Get, Whole),
    row("GET", &["object-lock"], &[], Get, Whole),
    row("GET", &["ownershipControls"], &[], Get, Whole),
    row("GET", &["policy"], &[], Get, Whole),
    row("GET", &["policyStatus"], &[], Get, Whole),
    row("GET", &["publicAccessBlock"], &[], Get, Whole),
    row("GET", &["replication"], &[], Get, Whole),
    row("GET", &["requestPayment"], &[], Get, Whole),
    row("GET", &["tagging"], &[], Get, Whole),
    row("GET", &["website"], &[], Get, Whole),
    row("PUT", &[], &[], Put, Whole),
    row("DELETE", &[], &[], Delete, Whole),
    of(Kind::DeleteMany, row("POST", &["delete"], &[], Delete, Part)),
];

/// Names in a query that have a value; the others that make an operation have none. Some servers take an upload's empty name for
/// none, which makes its end the object's.
const VALUED: [&str; 2] = ["partNumber", "uploadId"];

/// What a request does, if the table knows it.
pub(crate) fn classify(method: &str, target: &Target, source: Option<&Source>) -> Option<Operation> {
    let Some(bucket) = &target.bucket else {
        let beside = ["bucket-region", "continuation-token", "max-buckets", "prefix"];
        let is_listing = method == "GET"
            && source.is_none()
            && target.query.iter().all(|(name, _)| beside.contains(&&name[..]));
        return is_listing.then(|| Operation {
            kind: Kind::Buckets,
            needs: Vec::new(),
        });
    };
    let table = if target.key.is_some() { OBJECTS } else { BUCKETS };
    let row = table.iter().find(|row| {
        let names = || target.query.iter().map(|(name, _)| &name[..]);
        row.method == method
            && row.sub.iter().all(|sub| names().any(|name| name == *sub))
            && names().all(|name| row.sub.contains(&name) || row.beside.contains(&name))
    })?;
    let is_whole = |sub: &&str| target.value(sub).is_some_and(str::is_empty) != VALUED.contains(sub);
    if !row.sub.iter().all(is_whole) || (source.is_some() && !matches!(row.scope, Duplicate)) {
        return None;
    }
    let key = match row.scope {
        Key | Duplicate => target.key.clone(),
        Listing => Some(target.value("prefix").unwrap_or_default().to_owned()),
        Whole => Some(String::new()),
        Part => None,
    };
    let mut needs = vec![Need {
        action: row.action,
        bucket: bucket.clone(),
        key,
    }];
    needs.extend(source.map(|source| Need {
        action: Get,
        bucket: source.bucket.clone(),
        key: Some(source.key.clone()),
    }));
    Some(Operation {
        kind: row.kind,
        needs,
    })
}

/// Whether this was granted.
pub(crate) fn is_granted(grants: &[S3Grant], need: &Need) -> bool {
    grants.iter().any(|grant| {
        grant.bucket == need.bucket
            && grant.actions.contains(&need.action)
            && need
                .key
                .as_ref()
                .is_none_or(|key| key.starts_with(&grant.prefix) && is_plain(key))
    })
}

/// Whether buckets may be listed, which shows those of which something may be listed.
pub(crate) fn lists(grants: &[S3Grant], bucket: Option<&str>) -> bool {
    grants
        .iter()
        .any(|grant| grant.actions.contains(&List) && bucket.is_none_or(|bucket| bucket == grant.bucket))
}

#[cfg(test)]
mod tests;
