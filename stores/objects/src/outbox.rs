//! New objects that somebody is to be told of: written in one transaction with the objects, and kept until they were told.

use crate::{
    Created, Error, Objects,
    index::OUTBOX,
    record::{decode, encode},
    writer::{Change, Tables},
};
use redb::ReadableTable;
use s3s::S3Result;

/// Where [`ABOUT`] has the number of the next one. It never goes back: numbers tell events from each other.
const NEXT: &str = "events";

impl Objects {
    /// New objects that were [wanted](crate::Options::wanted), by number, the oldest first, up to so many. Waits until there is one. They are told again
    /// until they are said to be [told](Self::told).
    ///
    /// # Errors
    /// The index cannot be read.
    pub async fn events(&self, most: usize) -> Result<Vec<(u64, Created)>, Error> {
        loop {
            // Before it is looked: what comes meanwhile is heard.
            let news = self.inner.news.notified();
            let found = self.inner.read("read events", move |transaction| {
                let table = transaction.open_table(OUTBOX)?;
                let mut found = Vec::new();
                for entry in table.iter()?.take(most) {
                    let (number, created) = entry?;
                    found.push((number.value(), decode(created.value())?));
                }
                Ok(Ok(found))
            });
            let found = found.await.map_err(|error| Error::of_events(&error))?;
            if !found.is_empty() {
                return Ok(found);
            }
            news.await;
        }
    }

    /// Forgets the events up to this one.
    ///
    /// # Errors
    /// The index cannot be changed: they will be told again.
    pub async fn told(&self, last: u64) -> Result<(), Error> {
        let change = self.inner.change(Told { last });
        change.await.map_err(|error| Error::of_events(&error))
    }
}

struct Told {
    last: u64,
}

impl Change for Told {
    type Answer = ();
    const FREES: bool = true;

    fn apply(self, tables: &mut Tables<'_>) -> Result<S3Result<()>, redb::Error> {
        tables.outbox.retain_in(..=self.last, |_, _| false)?;
        tables.after.changed = true;
        Ok(Ok(()))
    }
}

impl Tables<'_> {
    /// Keeps what is wanted.
    pub(crate) fn tell(&mut self, created: &Created) -> Result<(), redb::Error> {
        if !self.wanted.as_ref().is_some_and(|is_wanted| is_wanted(created)) {
            return Ok(());
        }
        let number = self.about.get(NEXT)?.map_or(1, |next| next.value());
        self.about.insert(NEXT, number + 1)?;
        let encoded =
            encode(created).map_err(|_| redb::Error::Corrupted("an event cannot be encoded".to_owned()))?;
        self.outbox.insert(number, encoded.as_slice())?;
        self.after.news = true;
        Ok(())
    }
}
