//! Landlock: files by right, whatever the file system looks like.

use crate::{Confinement, NOTHING, Processes};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use std::{io, path::Path};

/// The newest that this was written for. Older kernels know less of it, which is used.
const KNOWN: ABI = ABI::V6;

/// Forbids everything that is not granted: files, TCP, signals to processes outside and their abstract sockets.
pub(crate) fn put_up(confinement: &Confinement) -> io::Result<()> {
    restrict(ruleset(confinement)?)
}

/// What is granted, for [`restrict`].
pub(crate) fn ruleset(confinement: &Confinement) -> io::Result<RulesetCreated> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let execute = read | AccessFs::Execute;
    let write = writing();
    let nothing = (confinement.processes == Processes::Children)
        .then_some((Path::new(NOTHING), AccessFs::ReadFile | AccessFs::WriteFile));
    let rules = (confinement.read.iter().map(|path| (path.as_path(), read)))
        .chain(confinement.execute.iter().map(|path| (path.as_path(), execute)))
        .chain(
            confinement
                .write
                .iter()
                .map(|folder| (folder.path.as_path(), write)),
        )
        .chain(nothing);
    let create = || -> Result<RulesetCreated, RulesetError> {
        let mut ruleset = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(KNOWN))?
            .handle_access(AccessNet::from_all(KNOWN))?
            .scope(Scope::from_all(KNOWN))?
            .create()?;
        for (path, access) in rules {
            // What is not there needs no rule.
            let Ok(opened) = PathFd::new(path) else { continue };
            ruleset = ruleset.add_rule(PathBeneath::new(opened, fit(path, access)))?;
        }
        Ok(ruleset)
    };
    create().map_err(io::Error::other)
}

/// Plain files and folders: no devices, no sockets, nothing to run, and no links to lead others elsewhere.
fn writing() -> BitFlags<AccessFs> {
    AccessFs::ReadFile
        | AccessFs::ReadDir
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
}

/// Grants a folder besides, to be written to: what is mounted on a folder that was granted is not that folder.
pub(crate) fn grant(ruleset: RulesetCreated, folder: &Path) -> io::Result<RulesetCreated> {
    let opened = PathFd::new(folder).map_err(io::Error::other)?;
    ruleset
        .add_rule(PathBeneath::new(opened, writing()))
        .map_err(io::Error::other)
}

/// Forbids this process what is not in there, for good.
pub(crate) fn restrict(ruleset: RulesetCreated) -> io::Result<()> {
    match ruleset.restrict_self().map_err(io::Error::other)?.ruleset {
        RulesetStatus::NotEnforced => Err(io::Error::from(io::ErrorKind::Unsupported)),
        _ => Ok(()),
    }
}

/// Rights that a file can have, if it is one.
fn fit(path: &Path, access: BitFlags<AccessFs>) -> BitFlags<AccessFs> {
    if path.is_dir() {
        access
    } else {
        access & AccessFs::from_file(KNOWN)
    }
}
