//! Changes of what is deployed: aliases, and what is deleted.

use super::Registry;
use crate::{Error, LIVE, record::ApplicationRecord, snapshot::unknown_version};
use contract::{ApplicationId, FunctionId, FunctionRef, Name, Qualifier, VersionNumber};
use std::collections::BTreeMap;

impl Registry {
    /// Points the alias at a version, whose image is made ready first. Returns the function, and the version that the
    /// alias named before.
    pub fn set_alias(
        &self,
        reference: &FunctionRef,
        alias: &Name,
        number: VersionNumber,
    ) -> Result<(FunctionId, Option<VersionNumber>), Error> {
        let id = self.whole_function(reference)?;
        let version = Qualifier::Version(number);
        let exact = FunctionRef {
            qualifier: Some(version.clone()),
            ..FunctionRef::from(&id)
        };
        self.snapshot().version(&exact)?.image()?;
        let mut before = None;
        self.change(&id.application, |snapshot, record| {
            let (id, function) = snapshot.function(&exact)?;
            let target = function
                .version(Some(&version))
                .ok_or_else(|| unknown_version(id.clone(), function, Some(version)))?;
            // It may have been set aside between the two looks; as a rule this has been done already.
            target.image()?;
            if let Some(record) = record.functions.get_mut(&id.function) {
                before = record.aliases.insert(alias.clone(), number);
            }
            Ok(())
        })?;
        Ok((id, before))
    }

    /// Points `live` at an earlier version: `to`, or the one with the next lower number. Returns the function, the
    /// version that was live and the one that is.
    pub fn rollback(
        &self,
        reference: &FunctionRef,
        to: Option<VersionNumber>,
    ) -> Result<(FunctionId, VersionNumber, VersionNumber), Error> {
        let id = self.whole_function(reference)?;
        let snapshot = self.snapshot();
        let (_, function) = snapshot.function(reference)?;
        let live = function
            .live()
            .ok_or_else(|| unknown_version(id.clone(), function, None))?
            .number;
        let earlier = || {
            function
                .versions
                .range(..live)
                .next_back()
                .map(|(number, _)| *number)
        };
        let Some(to) = to.or_else(earlier) else {
            return Err(Error::NoEarlierVersion { function: id, live });
        };
        let (id, before) = self.set_alias(reference, &LIVE, to)?;
        Ok((id, before.unwrap_or(live), to))
    }

    /// Deletes an alias; returns the version that it named.
    pub fn delete_alias(&self, reference: &FunctionRef, alias: &Name) -> Result<VersionNumber, Error> {
        let id = self.whole_function(reference)?;
        if *alias == *LIVE {
            return Err(Error::LiveAlias(id));
        }
        let mut before = None;
        self.change(&id.application, |_, record| {
            before = record
                .functions
                .get_mut(&id.function)
                .and_then(|function| function.aliases.remove(alias));
            Ok(())
        })?;
        let snapshot = self.snapshot();
        let (id, function) = snapshot.function(reference)?;
        before.ok_or_else(|| unknown_version(id, function, Some(Qualifier::Alias(alias.clone()))))
    }

    /// Deletes a function with all its versions, aliases and routes, and its application with the last one.
    pub fn delete_function(&self, reference: &FunctionRef) -> Result<FunctionId, Error> {
        let id = self.whole_function(reference)?;
        self.change(&id.application, |_, record| {
            record.functions.remove(&id.function);
            record.triggers.retain(|trigger| trigger.function != id.function);
            record.schedules.retain(|trigger| trigger.function != id.function);
            record
                .subscriptions
                .retain(|trigger| trigger.function != id.function);
            record.objects.retain(|trigger| trigger.function != id.function);
            Ok(())
        })?;
        Ok(id)
    }

    /// Deletes an application with all that it has.
    pub fn delete_application(&self, application: &ApplicationId) -> Result<(), Error> {
        let none = ApplicationRecord {
            functions: BTreeMap::new(),
            triggers: Vec::new(),
            schedules: Vec::new(),
            subscriptions: Vec::new(),
            objects: Vec::new(),
        };
        self.change(application, |_, record| {
            *record = none;
            Ok(())
        })
        .map(drop)
    }

    fn whole_function(&self, reference: &FunctionRef) -> Result<FunctionId, Error> {
        if reference.qualifier.is_some() {
            return Err(Error::Unqualified(reference.clone()));
        }
        self.snapshot().function(reference).map(|(id, _)| id)
    }
}
