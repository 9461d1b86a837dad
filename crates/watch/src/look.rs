//! See [`Look`].

use crate::{
    Found, ListError, Scope,
    list::{Listed, list},
    marks::{Held, Mark, Marks, short},
};
use contract::Session;
use std::{
    collections::HashSet,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};
use tokio::task::spawn_blocking;
use triggers::{Milliseconds, identity};

/// One time that a scope is listed: [`Look::page`] until there is none any more, and [`Look::keep`] for each.
pub struct Look<'a> {
    marks: Arc<Marks>,
    scope: &'a Scope,
    session: &'a dyn Session,
    held: Held,
    from: From,
    keys: HashSet<u64>,
    /// What was there before is new if it was changed from then on, by S3's clock; all is, when absent.
    since: Option<Milliseconds>,
}

enum From {
    Start,
    Token(String),
    End,
}

/// A part of a list.
pub struct Page {
    /// What has changed.
    pub new: Vec<Found>,
    marks: Vec<Mark>,
}

/// A look that could not be taken to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LookError {
    /// S3 gave no list.
    #[error(transparent)]
    List(#[from] ListError),
    /// What was seen could not be read or written.
    #[error("what was seen of objects cannot be kept: {0}")]
    Marks(redb::Error),
    /// Nobody wants its objects any more.
    #[error("`{}` of the bucket {} is not watched", .0.prefix, .0.bucket)]
    NotHeld(Scope),
}

impl<'a> Look<'a> {
    pub(crate) async fn begin(
        marks: Arc<Marks>,
        scope: &'a Scope,
        session: &'a dyn Session,
    ) -> Result<Self, LookError> {
        let held = blocking(&marks, {
            let scope = scope.clone();
            move |marks| marks.held(&scope)
        });
        let held = held.await?.ok_or_else(|| LookError::NotHeld(scope.clone()))?;
        Ok(Self {
            marks,
            scope,
            session,
            held,
            from: From::Start,
            keys: HashSet::new(),
            since: None,
        })
    }

    /// The next page; `None` once the list is at its end, and what it does not have is forgotten.
    ///
    /// # Errors
    /// See [`LookError`]. The look is over: the next one finds what this one has not kept.
    pub async fn page(&mut self) -> Result<Option<Page>, LookError> {
        let from = match &self.from {
            From::Start => None,
            From::Token(token) => Some(token.as_str()),
            From::End => {
                let (scope, number) = (self.scope.clone(), self.held.number);
                let keys = std::mem::take(&mut self.keys);
                blocking(&self.marks, move |marks| marks.complete(&scope, number, &keys)).await?;
                return Ok(None);
            }
        };
        let is_first = from.is_none();
        let Listed { found, next, at } = list(self.session, self.scope, from).await?;
        if is_first && !self.held.complete {
            // S3's clock is not this one. It told whole seconds, and so do times of change.
            let ahead = at.map_or(0, |at| i128::from(at) - i128::from(now()));
            let since = (i128::from(self.held.since) + ahead).max(0) / 1000 * 1000;
            self.since = Milliseconds::try_from(since).ok();
        }
        self.from = next.map_or(From::End, From::Token);
        let marks: Vec<Mark> = found
            .iter()
            .map(|found| (identity(&[found.key.as_bytes()]), found.version()))
            .collect();
        self.keys.extend(marks.iter().map(|(key, _)| short(*key)));
        let number = self.held.number;
        let (marks, unknown) = blocking(&self.marks, move |known| {
            let unknown = known.unknown(number, &marks)?;
            Ok((marks, unknown))
        })
        .await?;
        let mut page = Page {
            new: Vec::new(),
            marks: Vec::new(),
        };
        for ((found, mark), is_unknown) in found.into_iter().zip(marks).zip(unknown) {
            if is_unknown {
                page.marks.push(mark);
                page.new.extend(
                    self.since
                        .is_none_or(|since| found.modified >= since)
                        .then_some(found),
                );
            }
        }
        Ok(Some(page))
    }

    /// What is new of this page has been taken over, and is not given again.
    ///
    /// # Errors
    /// It could not be written: the same will be given again.
    pub async fn keep(&self, page: Page) -> Result<(), LookError> {
        if page.marks.is_empty() {
            return Ok(());
        }
        let (scope, number) = (self.scope.clone(), self.held.number);
        blocking(&self.marks, move |marks| marks.write(&scope, number, &page.marks)).await
    }
}

/// Reads and writes where it may wait for the disk.
async fn blocking<T: Send + 'static>(
    marks: &Arc<Marks>,
    act: impl FnOnce(&Marks) -> Result<T, redb::Error> + Send + 'static,
) -> Result<T, LookError> {
    let marks = marks.clone();
    let done = spawn_blocking(move || act(&marks)).await;
    // What did not run was ended with its runtime.
    done.unwrap_or(Err(redb::Error::PreviousIo))
        .map_err(LookError::Marks)
}

fn now() -> Milliseconds {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Milliseconds::try_from(since.as_millis()).unwrap_or(Milliseconds::MAX)
}
