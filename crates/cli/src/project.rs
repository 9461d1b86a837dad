//! A folder with a manifest, as `deploy`, `build` and `up` use it.

use crate::{failure::Failure, package};
use contract::{Digest, Name};
use manifest::Manifest;
use sha2::{Digest as _, Sha256};
use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Where a manifest is.
#[derive(Clone, Debug)]
pub(crate) struct Project {
    /// The manifest.
    pub(crate) path: PathBuf,
    /// Its folder: what its paths are relative to, and where its commands run.
    pub(crate) folder: PathBuf,
}

/// The code of each function, with its digest.
pub(crate) type Code<'a> = BTreeMap<&'a Name, (Digest, Vec<u8>)>;

impl Project {
    /// The manifest at this path, or the millpond.toml in this folder.
    pub(crate) fn at(place: PathBuf) -> Self {
        let path = if place.is_dir() {
            place.join("millpond.toml")
        } else {
            place
        };
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."))
            .to_owned();
        Self { path, folder }
    }

    /// Reads the manifest.
    pub(crate) fn manifest(&self) -> Result<Manifest, Failure> {
        let path = &self.path;
        let text = fs::read_to_string(path).map_err(|error| {
            let hint = match error.kind() {
                io::ErrorKind::NotFound => {
                    "name the manifest or its folder, for example `millpond deploy FOLDER`; \
                     `millpond new` begins an application"
                }
                io::ErrorKind::InvalidData => "a manifest is TOML in UTF-8",
                _ => "",
            };
            Failure::usage(
                format!("cannot read the manifest {}: {error}", path.display()),
                hint,
            )
        })?;
        manifest::parse(&text).map_err(|faults| Failure::Manifest {
            path: path.clone(),
            text,
            faults,
        })
    }

    /// Reads the code of all functions.
    pub(crate) fn code<'a>(&self, manifest: &'a Manifest) -> Result<Code<'a>, Failure> {
        let read = |(name, function): (&'a Name, &'a manifest::Function)| {
            if function.handler.is_some() {
                let bytes = package::package(&self.folder, name.as_str(), function)?;
                return Ok((name, (Digest(Sha256::digest(&bytes).into()), bytes)));
            }
            let path = self.folder.join(&function.source);
            let bytes = fs::read(&path).map_err(|error| {
                let hint = match (&function.build, error.kind()) {
                    (Some(_), io::ErrorKind::NotFound) => "build it with `millpond build` or --build",
                    (None, io::ErrorKind::NotFound) => "build it first; `source` is relative to the manifest",
                    _ => "",
                };
                Failure::usage(
                    format!("cannot read the code of `{name}` at {}: {error}", path.display()),
                    hint,
                )
            })?;
            Ok((name, (Digest(Sha256::digest(&bytes).into()), bytes)))
        };
        manifest.function.iter().map(read).collect()
    }
}
