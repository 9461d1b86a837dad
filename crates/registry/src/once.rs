//! Code that runs without being deployed.

use crate::{
    Error, Registry, Version,
    record::VersionRecord,
    registry::{application_of, milliseconds_since_1970},
};
use contract::{Digest, FunctionId, Name, VersionNumber};
use manifest::Manifest;
use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc};

impl Registry {
    /// The only function of a manifest as a version that is ready to run and that nobody else knows of: nothing is written down of
    /// it but its artefact, which is kept for as long as any that no deployment uses.
    ///
    /// May block for as long as compiling takes.
    ///
    /// # Errors
    /// As [`Registry::deploy_for`]; without its code [`Error::CodeMissing`].
    pub fn once(
        &self,
        tenant: Option<&Name>,
        manifest: &Manifest,
        code: &BTreeMap<Name, Digest>,
    ) -> Result<Version, Error> {
        let application = application_of(tenant, manifest);
        let wanted = self.wanted(&application, manifest, code)?;
        let mut functions = wanted.into_iter();
        let (Some((name, (settings, code))), None) = (functions.next(), functions.next()) else {
            return Err(Error::CodeMap("one function runs at a time".to_owned()));
        };
        if !self.has_code(&self.snapshot(), tenant, code) {
            return Err(Error::CodeMissing(vec![code]));
        }
        let function = FunctionId {
            application,
            function: name,
        };
        let ready = self.ready(&function, &settings, code)?;
        let record = VersionRecord {
            code,
            code_size: self.code().size(code)?,
            created: milliseconds_since_1970(),
            settings,
        };
        let usage = self.no_usage();
        let number = VersionNumber(NonZeroU32::MIN);
        let (images, permits) = (Arc::clone(self.images()), self.permits());
        Ok(Version::new(function, number, record, images, usage, permits).with_image(ready))
    }
}
