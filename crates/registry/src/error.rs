use crate::Beyond;
use contract::{
    ApplicationId, ByteSize, Digest, FunctionId, FunctionRef, Name, PrepareError, Problem, Qualifier,
    StoreError, VersionNumber,
};
use std::{io, path::PathBuf};

/// What the registry could not do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such application.
    #[error("there is no application `{0}` on this node")]
    UnknownApplication(ApplicationId),
    /// No such function.
    #[error("there is no function `{0}` on this node")]
    UnknownFunction(FunctionRef),
    /// A function's name without its application, and several applications have one.
    #[error("several applications have a function `{function}`")]
    AmbiguousFunction {
        /// The name.
        function: Name,
        /// All functions of that name.
        candidates: Vec<FunctionId>,
    },
    /// The function has no such version or alias.
    #[error("`{function}` has no {}", said(.qualifier))]
    UnknownVersion {
        /// The function.
        function: FunctionId,
        /// What it does not have.
        qualifier: Qualifier,
        /// The versions it has.
        versions: Vec<VersionNumber>,
    },
    /// No version before the live one is kept.
    #[error("`{function}` has no version before {live} to roll back to")]
    NoEarlierVersion {
        /// The function.
        function: FunctionId,
        /// Its live version.
        live: VersionNumber,
    },
    /// `live` cannot be deleted.
    #[error("the alias `live` of `{0}` cannot be deleted: it is what requests run")]
    LiveAlias(FunctionId),
    /// A version or alias was given where a whole function is meant.
    #[error("`{0}` names one version, but the whole function is meant here")]
    Unqualified(FunctionRef),
    /// The deployment names no code for a function, or code for a function that is not in the manifest.
    #[error("{0}")]
    CodeMap(String),
    /// Code that has not been uploaded, or is damaged.
    #[error("the code {} is not on this node", list(.0))]
    CodeMissing(Vec<Digest>),
    /// Code that no engine takes.
    #[error("the code of `{function}` was refused: {reason}")]
    CodeRefused {
        /// The function.
        function: FunctionId,
        /// By the engine, for this reason.
        reason: PrepareError,
    },
    /// A limit under which no sandbox of the code can begin.
    #[error("`{function}` may use {limit} of memory, but its code begins with {initial}")]
    MemoryTooSmall {
        /// The function.
        function: FunctionId,
        /// What its manifest says.
        limit: ByteSize,
        /// What its module declares.
        initial: ByteSize,
    },
    /// An upload that is not what its name says.
    #[error("the uploaded code has the SHA-256 {actual}, not {claimed}")]
    DigestMismatch {
        /// What its name says.
        claimed: Digest,
        /// What it is.
        actual: Digest,
    },
    /// An upload beyond the limit.
    #[error("the code is larger than {limit}")]
    CodeTooLarge {
        /// The limit.
        limit: ByteSize,
    },
    /// The manifest breaks a rule.
    #[error("the manifest is not valid: {}", list(.0))]
    Manifest(Vec<manifest::Diagnostic>),
    /// The manifest has grants.
    #[error("`{function}` asks for grants ({services}), which this node does not offer to it")]
    GrantsUnavailable {
        /// The function.
        function: FunctionId,
        /// Those of `http`, `s3`, `aws` and `lambda`.
        services: String,
    },
    /// There are too many of them.
    #[error("`{function}` asks for grants (s3) that this node cannot give it together: {reason}")]
    GrantsTooMany {
        /// The function.
        function: FunctionId,
        /// Why not.
        reason: String,
    },
    /// The manifest has a trigger for objects.
    #[error("`{function}` is to run when objects are written, of which this node does not hear")]
    TriggerUnavailable {
        /// The function.
        function: FunctionId,
    },
    /// A tenant's function asks for what listens on this machine alone.
    #[error("`{function}` asks for the host `{host}`, which is this machine itself")]
    GrantForbidden {
        /// The function.
        function: FunctionId,
        /// The host.
        host: String,
    },
    /// A tenant's function asks for what the operator has not permitted to its tenant.
    #[error("`{function}` asks for {}, and the tenant `{tenant}` may have {}", .beyond.asked, .beyond.permitted)]
    NotPermitted {
        /// The function.
        function: FunctionId,
        /// Whose it is.
        tenant: Name,
        /// What it asks for.
        beyond: Box<Beyond>,
    },
    /// A tenant's function names another tenant as the one that it runs for.
    #[error("`{function}` names the tenant `{named}`, and belongs to the tenant `{owner}`")]
    TenantMismatch {
        /// The function.
        function: FunctionId,
        /// Whom it names.
        named: Name,
        /// Whose it is.
        owner: Name,
    },
    /// No such engine here.
    #[error("`{function}` asks for the engine `{engine}`, and this node has {available}")]
    EngineUnavailable {
        /// The function.
        function: FunctionId,
        /// What it asks for.
        engine: String,
        /// What there is.
        available: String,
    },
    /// This host does not keep what the manifest asks for.
    #[error("`{function}` would run with less than its manifest demands: {reason}")]
    LimitsUnavailable {
        /// The function.
        function: FunctionId,
        /// What is not kept.
        reason: String,
    },
    /// Another application has this route.
    #[error("the route `{route}` cannot be told from `{other}` of the application `{application}`")]
    RouteConflict {
        /// The new route.
        route: String,
        /// The one that is there.
        other: String,
        /// Whose it is.
        application: ApplicationId,
    },
    /// Somebody else changed the application at the same time.
    #[error(
        "the application `{0}` was changed by somebody else at the same time, and this change was not made"
    )]
    Conflict(ApplicationId),
    /// The tenant may have no more functions.
    #[error("there would be {functions} functions, and this tenant may have {limit}")]
    FunctionQuota {
        /// How many there would be.
        functions: usize,
        /// How many there may be.
        limit: usize,
    },
    /// The tenant was deleted meanwhile, or never was: a function is to run for it.
    #[error("there is no tenant `{0}` on this node")]
    UnknownTenant(Name),
    /// A version's code cannot be made ready to run.
    #[error("version {version} of `{function}` cannot be made ready to run: {reason}")]
    ImageUnavailable {
        /// The function.
        function: FunctionId,
        /// Its version.
        version: VersionNumber,
        /// What came of it.
        reason: String,
    },
    /// A record of the store that cannot be read.
    #[error("the record `{key}` of the store is damaged: {reason}")]
    Record {
        /// Its key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The disk failed.
    #[error("cannot {attempt} {path}: {source}")]
    Disk {
        /// What was attempted.
        attempt: &'static str,
        /// On what.
        path: PathBuf,
        /// The operating system's word.
        source: io::Error,
    },
}

fn said(qualifier: &Qualifier) -> String {
    match qualifier {
        Qualifier::Version(number) => {
            format!("version {number}; it may have been deleted to make place for newer ones")
        }
        Qualifier::Alias(alias) => format!("alias `{alias}`"),
    }
}

fn list<T: ToString>(items: &[T]) -> String {
    items.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

impl Error {
    /// The error in the names that a tenant knows.
    pub fn local(mut self) -> Self {
        match &mut self {
            Self::UnknownApplication(application)
            | Self::Conflict(application)
            | Self::RouteConflict { application, .. } => *application = application.local(),
            Self::UnknownFunction(reference) | Self::Unqualified(reference) => *reference = reference.local(),
            Self::AmbiguousFunction { candidates, .. } => {
                candidates.iter_mut().for_each(|one| *one = one.local());
            }
            Self::UnknownVersion { function, .. }
            | Self::NoEarlierVersion { function, .. }
            | Self::LiveAlias(function)
            | Self::CodeRefused { function, .. }
            | Self::MemoryTooSmall { function, .. }
            | Self::GrantsUnavailable { function, .. }
            | Self::GrantsTooMany { function, .. }
            | Self::TriggerUnavailable { function }
            | Self::GrantForbidden { function, .. }
            | Self::NotPermitted { function, .. }
            | Self::TenantMismatch { function, .. }
            | Self::EngineUnavailable { function, .. }
            | Self::LimitsUnavailable { function, .. }
            | Self::ImageUnavailable { function, .. } => *function = function.local(),
            Self::CodeMap(_)
            | Self::CodeMissing(_)
            | Self::DigestMismatch { .. }
            | Self::CodeTooLarge { .. }
            | Self::Manifest(_)
            | Self::FunctionQuota { .. }
            | Self::UnknownTenant(_)
            | Self::Record { .. }
            | Self::Store(_)
            | Self::Disk { .. } => {}
        }
        self
    }

    /// The error as a client reads it.
    pub fn problem(&self) -> Problem {
        let (status, code, hint) = match self {
            Self::UnknownApplication(_) => (
                404,
                "application-unknown",
                "see the deployed ones with `millpond list`".to_owned(),
            ),
            Self::UnknownFunction(_) => (
                404,
                "function-unknown",
                "see the deployed ones with `millpond list`".to_owned(),
            ),
            Self::AmbiguousFunction { candidates, .. } => (
                409,
                "function-ambiguous",
                format!("write one of {}", list(candidates)),
            ),
            Self::UnknownVersion { versions, .. } => (
                404,
                "version-unknown",
                format!("its versions are {}", list(versions)),
            ),
            Self::NoEarlierVersion { .. } => (
                409,
                "version-none-earlier",
                "see its versions with `millpond describe`".to_owned(),
            ),
            Self::FunctionQuota { .. } => (
                409,
                "quota-functions",
                "delete some, or ask the node's operator to raise the quota: `millpond tenant update`"
                    .to_owned(),
            ),
            Self::UnknownTenant(_) => (
                404,
                "tenant-unknown",
                "see the tenants with `millpond tenant list`".to_owned(),
            ),
            Self::LiveAlias(_) => (
                409,
                "alias-live",
                "point it at another version, or delete the function".to_owned(),
            ),
            Self::Unqualified(_) => (
                422,
                "reference-qualified",
                "leave out what follows `:`".to_owned(),
            ),
            Self::CodeMap(_) => (
                422,
                "code-map",
                "`code` maps every function of the manifest to the SHA-256 of its code".to_owned(),
            ),
            Self::CodeMissing(_) => (
                409,
                "code-missing",
                "upload it with PUT /v1/code/SHA256, then deploy again".to_owned(),
            ),
            Self::CodeRefused { reason, .. } => (422, "code-refused", refusal_hint(reason)),
            Self::MemoryTooSmall { initial, .. } => (
                422,
                "memory-too-small",
                format!("set `memory` of this function in millpond.toml to {initial} or more"),
            ),
            Self::DigestMismatch { .. } => (
                422,
                "code-digest",
                "name the code by the SHA-256 of its bytes, or send it again".to_owned(),
            ),
            Self::CodeTooLarge { .. } => (
                413,
                "code-too-large",
                "strip debug information, or make the program smaller".to_owned(),
            ),
            Self::Manifest(_) => (
                422,
                "manifest-invalid",
                "the rules are in GET /manifest.schema.json".to_owned(),
            ),
            Self::GrantsUnavailable { function, .. } => {
                let name = &function.function;
                (
                    422,
                    "grants-unavailable",
                    format!(
                        "remove `[[function.{name}.grants.…]]` from the manifest; functions to invoke and AWS's services are for functions with a `handler`; objects and AWS's services for nodes whose configuration has `[s3]` and `[aws]`"
                    ),
                )
            }
            Self::GrantsTooMany { function, .. } => (
                422,
                "grants-unavailable",
                format!(
                    "shorten `[[function.{}.grants.s3]]` in the manifest, or make several functions of this one",
                    function.function
                ),
            ),
            Self::TriggerUnavailable { .. } => (
                422,
                "trigger-unavailable",
                "remove `[[trigger.object]]` from the manifest; a node hears of objects where its configuration has `[s3]`"
                    .to_owned(),
            ),
            Self::GrantForbidden { .. } => (
                422,
                "grant-forbidden",
                "remove the grant: functions of tenants reach other machines only".to_owned(),
            ),
            Self::NotPermitted { tenant, beyond, .. } => (
                422,
                "not-permitted",
                format!(
                    "ask for less, or have the node's operator permit it, by `[[tenant.{tenant}.{}]]` of its configuration and a new start",
                    beyond.key
                ),
            ),
            Self::TenantMismatch { function, .. } => (
                422,
                "tenant-mismatch",
                format!(
                    "remove `tenant` of `[function.{}]`: a tenant's functions always use its own share and quotas",
                    function.function
                ),
            ),
            Self::EngineUnavailable { .. } => (
                422,
                "engine-unavailable",
                "leave `engine` out, or write \"auto\"".to_owned(),
            ),
            Self::LimitsUnavailable { .. } => (
                422,
                "limits-unavailable",
                "have the node make control groups that count it: run it as root, or delegate memory, pids and cpu to it (systemd: Delegate=yes, \
                 DelegateSubgroup=node), and see `millpond doctor`; or set `allow_uncounted = true` in `[process]` of its configuration"
                    .to_owned(),
            ),
            Self::RouteConflict { .. } => (
                409,
                "route-conflict",
                "give one of them another path, method or host".to_owned(),
            ),
            Self::Conflict(_) => (
                409,
                "deployment-conflict",
                "look at what is deployed now, and try again".to_owned(),
            ),
            Self::ImageUnavailable { .. } => (
                503,
                "image-unavailable",
                "see the node's log; deploying again uploads the code anew".to_owned(),
            ),
            Self::Record { .. } => (
                500,
                "store-damaged",
                "restore the data folder from a backup".to_owned(),
            ),
            Self::Store(_) => (
                500,
                "store-failed",
                "see the node's log, and whether its disk is full".to_owned(),
            ),
            Self::Disk { source, .. }
                if matches!(
                    source.kind(),
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
                ) =>
            {
                (
                    507,
                    "disk-full",
                    "free some space in the node's data folder".to_owned(),
                )
            }
            Self::Disk { .. } => (
                500,
                "disk-failed",
                "see the node's log, and the permissions of its data folder".to_owned(),
            ),
        };
        Problem::new(status, code, self.to_string(), hint)
    }
}

fn refusal_hint(reason: &PrepareError) -> String {
    match reason {
        PrepareError::Malformed(_) => "is `source` in the manifest the compiled program, a .wasm file?",
        PrepareError::Unsupported(_) => {
            "this node runs commands of WASI 0.1 and 0.2, and HTTP handlers of WASI 0.2: compile for wasm32-wasip1 (wasm32-wasi in C) or wasm32-wasip2"
        }
        _ => "try another compiler or another optimisation level, and report this",
    }
    .to_owned()
}
