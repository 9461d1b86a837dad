//! New objects in an S3 that tells nobody of them: it is listed again and again, and compared with what was there before.
//!
//! A [`Scope`] is what a bucket has below a prefix. Of each of its objects a *mark* is known, some dozen bytes on the disk: which key, and which ETag, size and time of change it
//! had. A [`Look`] lists a scope page by page:
//!
//! 1. what of a page has another mark than the one that is known is new,
//! 2. whoever watches keeps it durably,
//! 3. then its marks are written.
//!
//! Who is killed between the last two is given the same again: [`Found::version`] says that it is the same. Marks of objects that a complete list did not have are
//! forgotten. The order of a list makes no difference (servers on folders do not list in that of the bytes), and a look keeps a number of 8 bytes in memory for each object until its end.
//!
//! The first complete look at a scope finds what was there before: new is of that only what has changed since the scope was [held](Watch::hold), by the clock of S3.

#![forbid(unsafe_code)]

mod list;
mod look;
mod marks;

pub use list::{Found, ListError};
pub use look::{Look, LookError, Page};
pub use marks::OpenError;

use contract::Session;
use marks::Marks;
use std::{collections::BTreeSet, path::Path, sync::Arc};
use triggers::Milliseconds;

/// What a bucket has below a prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope {
    /// The bucket.
    pub bucket: String,
    /// What keys begin with.
    pub prefix: String,
}

/// The scopes of one S3 that are watched, and what was seen there.
#[derive(Clone)]
pub struct Watch {
    marks: Arc<Marks>,
}

impl Watch {
    /// Opens the file of marks, or makes it. The origin is where S3 is: scopes of another one are other scopes.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(path: &Path, origin: &str) -> Result<Self, OpenError> {
        let marks = Arc::new(Marks::open(path, origin)?);
        Ok(Self { marks })
    }

    /// Watches these scopes and no others. Those that were not watched begin now; of those that no longer are, all is forgotten, in a while by [`Watch::tidy`].
    ///
    /// # Errors
    /// The file cannot be changed; then nothing has.
    pub fn hold(&self, scopes: &BTreeSet<Scope>, now: Milliseconds) -> Result<(), LookError> {
        self.marks.hold(scopes, now).map_err(LookError::Marks)
    }

    /// Forgets the marks of scopes that are not held any more.
    ///
    /// # Errors
    /// The file cannot be changed. What is left can be forgotten later.
    pub fn tidy(&self) -> Result<(), LookError> {
        while self.marks.tidy().map_err(LookError::Marks)? {}
        Ok(())
    }

    /// Begins a look at a scope, through a session that may list it.
    ///
    /// # Errors
    /// The scope is not held, or the file cannot be read.
    pub async fn look<'a>(&self, scope: &'a Scope, session: &'a dyn Session) -> Result<Look<'a>, LookError> {
        Look::begin(self.marks.clone(), scope, session).await
    }
}
