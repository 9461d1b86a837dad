use contract::{Name, Problem, StoreError};

/// What could not be done about tenants.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such tenant.
    #[error("there is no tenant `{0}` on this node")]
    Unknown(Name),
    /// There is one already.
    #[error("there is a tenant `{0}` already")]
    Exists(Name),
    /// There was one.
    #[error("`{0}` was the name of a tenant that was deleted, and is not given again")]
    Used(Name),
    /// It still has applications.
    #[error("the tenant `{tenant}` still has {applications} applications")]
    NotEmpty {
        /// Which.
        tenant: Name,
        /// How many.
        applications: usize,
    },
    /// A host that is none.
    #[error("`{0}` is not the name of a host")]
    Host(String),
    /// Another tenant has this host.
    #[error("the host `{host}` is the tenant `{tenant}`'s")]
    HostTaken {
        /// Which host.
        host: String,
        /// Whose it is.
        tenant: Name,
    },
    /// A token that may do nothing.
    #[error("a token needs at least one role")]
    NoRole,
    /// No such token.
    #[error("the tenant `{tenant}` has no token `{id}`")]
    UnknownToken {
        /// Whose.
        tenant: Name,
        /// Its id.
        id: String,
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
    /// The system gave no random bits.
    #[error("failed to make a token: {0}")]
    Random(String),
}

impl Error {
    /// The error as a client reads it.
    pub fn problem(&self) -> Problem {
        let (status, code, hint) = match self {
            Self::Unknown(_) => (
                404,
                "tenant-unknown",
                "see the tenants with `millpond tenant list`",
            ),
            Self::Exists(_) => (
                409,
                "tenant-exists",
                "change it with `millpond tenant update`, or choose another name",
            ),
            Self::Used(_) => (
                409,
                "tenant-exists",
                "choose another name: logs and audit lines still speak of this one",
            ),
            Self::NotEmpty { .. } => (
                409,
                "tenant-not-empty",
                "delete them first: `millpond --tenant NAME list` shows them",
            ),
            Self::Host(_) => (
                422,
                "tenant-host",
                "write a name as it stands in a URL, without a port: api.example.org",
            ),
            Self::HostTaken { .. } => (
                409,
                "tenant-host",
                "a host is one tenant's: take it from the other first",
            ),
            Self::NoRole => (
                422,
                "token-role",
                "give it one of the roles deploy, invoke and read",
            ),
            Self::UnknownToken { .. } => (
                404,
                "token-unknown",
                "see its tokens with `millpond token list TENANT`",
            ),
            Self::Record { .. } => (500, "store-damaged", "restore the data folder from a backup"),
            Self::Store(_) | Self::Random(_) => (
                500,
                "store-failed",
                "see the node's log, and whether its disk is full",
            ),
        };
        Problem::new(status, code, self.to_string(), hint)
    }
}
