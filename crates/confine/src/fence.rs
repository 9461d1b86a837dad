//! Landlock: files by right, whatever the file system looks like.

use crate::{
    Folder,
    grants::{Access, Grants},
};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use std::io;

/// The newest that this was written for. Older kernels know less of it, which is used.
const KNOWN: ABI = ABI::V6;

/// Rules that are not in force yet. They are of files and folders, not of paths: wherever these are mounted later, the rules go with them.
pub(crate) struct Fence(RulesetCreated);

impl Fence {
    /// Forbids everything that is not granted: files, TCP, signals to processes outside and their abstract sockets.
    pub(crate) fn of(grants: &Grants) -> io::Result<Self> {
        build(grants).map(Self).map_err(io::Error::other)
    }

    /// The same rules, for another process.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// Puts it up, for good. Of these folders those in memory were not there before.
    pub(crate) fn put_up(self, folders: &[Folder]) -> io::Result<()> {
        match self.restrict(folders).map_err(io::Error::other)? {
            RulesetStatus::NotEnforced => Err(io::Error::from(io::ErrorKind::Unsupported)),
            _ => Ok(()),
        }
    }

    fn restrict(self, folders: &[Folder]) -> Result<RulesetStatus, RulesetError> {
        let Self(mut ruleset) = self;
        for folder in folders.iter().filter(|folder| folder.in_memory.is_some()) {
            // What is not there needs no rule.
            let Ok(opened) = PathFd::new(&folder.path) else {
                continue;
            };
            ruleset = ruleset.add_rule(PathBeneath::new(opened, write()))?;
        }
        Ok(ruleset.restrict_self()?.ruleset)
    }
}

fn build(grants: &Grants) -> Result<RulesetCreated, RulesetError> {
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))?
        .handle_access(AccessNet::from_all(KNOWN))?
        .scope(Scope::from_all(KNOWN))?
        .create()?;
    for granted in &grants.granted {
        let access = match granted.access {
            Access::Read => read(),
            Access::Execute => read() | AccessFs::Execute,
            Access::Write { in_memory: None } => write(),
            Access::Write { in_memory: Some(_) } => continue,
            Access::Nothing => AccessFs::ReadFile | AccessFs::WriteFile,
        };
        // Rights that a file can have, if it is one.
        let access = match granted.is_folder {
            true => access,
            false => access & AccessFs::from_file(KNOWN),
        };
        ruleset = ruleset.add_rule(PathBeneath::new(&granted.file, access))?;
    }
    Ok(ruleset)
}

fn read() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::ReadDir
}

/// Plain files and folders: no devices, no sockets, nothing to run, and no links to lead others elsewhere.
fn write() -> BitFlags<AccessFs> {
    read()
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir
}
