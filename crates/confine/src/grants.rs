//! What may be used, opened while it can be.
//!
//! A process of root reaches files in folders that nobody else may enter: rustup keeps its compilers in `/root`. When it has given its
//! identity up, it no longer does. So what is granted is looked up and opened before, and the walls that come later go by the descriptors:
//! [`root`](crate::root) clones what they lead to, [`fence`](crate::fence) makes its rules of them.
//!
//! So a process of root opens for nobody what nobody could not, and this is how far that goes.
//!
//! - **Only what is granted.** The list is our program's, made before anything hostile was read. In the new root the folders on the way to a
//!   file are empty ones of the same name: what lies beside it is not there. And a file whose own mode says that others may not read it is not
//!   read by nobody either.
//! - **Once.** Each part of a path is opened in the one before, and a link is read, not followed. Who exchanges folders or links
//!   meanwhile changes what is found, as they could have done before, and not what one wall or the other makes of it.
//! - **Nothing stays open.** The descriptors name files and cannot read them (`O_PATH`), or are mounts that are nowhere yet. The kernel closes
//!   them when a program is started; the process that stays outside closes its copies, and in the one inside all are closed when
//!   [`Confinement::enter`] returns.

use crate::{Confinement, NOTHING, Placed, Processes};
use rustix::{
    fs::{FileType, Mode, OFlags, fstat, open, openat, readlinkat},
    io::Errno,
};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    io, iter,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::ffi::OsStringExt as _,
    },
    path::{Component, Path, PathBuf},
};

/// In what way something may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Execute,
    Write {
        /// See [`Folder`](crate::Folder).
        in_memory: Option<u64>,
    },
    /// The device that takes everything and gives nothing.
    Nothing,
}

/// A file or folder that may be used.
#[derive(Debug)]
pub(crate) struct Granted {
    /// Where it is, without links.
    pub(crate) path: PathBuf,
    pub(crate) access: Access,
    pub(crate) file: OwnedFd,
    pub(crate) is_folder: bool,
    /// Where it was found, if it is to be found elsewhere from now on.
    pub(crate) from: Option<PathBuf>,
}

/// All that may be used.
#[derive(Debug, Default)]
pub(crate) struct Grants {
    /// Of a path that is granted in several ways, the one that says what a file system has there comes first.
    pub(crate) granted: Vec<Granted>,
    /// Symbolic links on the way, and what they say.
    pub(crate) links: BTreeMap<PathBuf, PathBuf>,
}

impl Grants {
    /// What does not exist, or leads nowhere, is left out.
    pub(crate) fn find(confinement: &Confinement) -> io::Result<Self> {
        let writes = confinement.write.iter().map(|folder| {
            let in_memory = folder.in_memory;
            (folder.path.as_path(), Access::Write { in_memory })
        });
        let nothing =
            (confinement.processes == Processes::Children).then_some((Path::new(NOTHING), Access::Nothing));
        let reads = confinement.read.iter().map(|path| (path.as_path(), Access::Read));
        let executes = confinement
            .execute
            .iter()
            .map(|path| (path.as_path(), Access::Execute));
        let mut grants = Self::default();
        let root = open("/", WHERE, Mode::empty())?;
        for (path, access) in writes.chain(nothing).chain(reads).chain(executes) {
            grants.add(&root, path, access)?;
        }
        for Placed { path, at } in &confinement.placed {
            let mut found = Self::default();
            found.add(&root, path, Access::Execute)?;
            // The links that led there lead nowhere in the new place.
            grants
                .granted
                .extend(found.granted.into_iter().map(|granted| Granted {
                    from: Some(granted.path),
                    path: at.clone(),
                    ..granted
                }));
        }
        Ok(grants)
    }

    fn add(&mut self, root: &OwnedFd, path: &Path, access: Access) -> io::Result<()> {
        const MOST_LINKS: usize = 40;
        let mut rest = names(path);
        // The folders that lead to where this is, by name.
        let mut way: Vec<(OsString, OwnedFd)> = Vec::new();
        let mut links = Vec::new();
        while let Some(name) = rest.pop() {
            if name == ".." {
                way.pop();
                continue;
            }
            let parent = way.last().map_or(root, |(_, folder)| folder).as_fd();
            let next = match openat(parent, &name, WHERE, Mode::empty()) {
                Ok(next) => next,
                Err(error @ (Errno::MFILE | Errno::NFILE)) => return Err(error.into()),
                Err(_) => return Ok(()),
            };
            if kind(&next)? != FileType::Symlink {
                way.push((name, next));
                continue;
            }
            if links.len() == MOST_LINKS {
                return Ok(());
            }
            let Ok(target) = readlinkat(&next, "", Vec::new()) else {
                return Ok(());
            };
            let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
            links.push((whole(&way).join(name), target.clone()));
            if target.is_absolute() {
                way.clear();
            }
            rest.extend(names(&target));
        }
        self.links.extend(links);
        let path = whole(&way);
        // A root that was granted is what the walk began with.
        let file = way.pop().map_or_else(|| root.try_clone(), |(_, file)| Ok(file))?;
        self.granted.push(Granted {
            path,
            access,
            is_folder: kind(&file)? == FileType::Directory,
            file,
            from: None,
        });
        Ok(())
    }
}

/// A descriptor that says where something is, link or not, and can do no more.
const WHERE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn kind(file: &OwnedFd) -> io::Result<FileType> {
    Ok(FileType::from_raw_mode(fstat(file)?.st_mode))
}

fn whole(way: &[(OsString, OwnedFd)]) -> PathBuf {
    let names = way.iter().map(|(name, _)| name.as_os_str());
    iter::once(OsStr::new("/")).chain(names).collect()
}

/// The parts of a path, the last one first.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let mut names: Vec<_> = names.collect();
    names.reverse();
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    fn read(path: PathBuf) -> Grants {
        Grants::find(&Confinement {
            read: vec![path],
            ..Confinement::default()
        })
        .unwrap()
    }

    #[test]
    fn what_leads_nowhere_is_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        symlink("circle", path("circle")).unwrap();
        symlink("nowhere", path("broken")).unwrap();
        fs::write(path("file"), "").unwrap();
        for name in ["circle", "broken", "nowhere", "file/below"] {
            let grants = read(path(name));
            assert!(grants.granted.is_empty() && grants.links.is_empty(), "{name}");
        }
    }

    #[test]
    fn what_is_placed_elsewhere_is_found_there() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        fs::create_dir(base.join("one")).unwrap();
        symlink("one", base.join("link")).unwrap();
        let grants = Grants::find(&Confinement {
            placed: vec![Placed {
                path: base.join("link"),
                at: "/var/task".into(),
            }],
            ..Confinement::default()
        })
        .unwrap();
        let [granted] = &grants.granted[..] else {
            panic!("{grants:?}")
        };
        assert_eq!(granted.path, Path::new("/var/task"));
        assert_eq!(granted.from.as_deref(), Some(base.join("one").as_path()));
        assert!(granted.is_folder && grants.links.is_empty());
    }

    #[test]
    fn what_was_found_stays_what_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        fs::create_dir(base.join("one")).unwrap();
        fs::write(base.join("one/file"), "1").unwrap();
        symlink("one", base.join("link")).unwrap();
        let grants = read(base.join("link/../link/file"));
        let [granted] = &grants.granted[..] else {
            panic!("{grants:?}")
        };
        assert_eq!(
            (&granted.path, granted.is_folder),
            (&base.join("one/file"), false)
        );
        assert_eq!(grants.links, BTreeMap::from([(base.join("link"), "one".into())]));
        fs::rename(base.join("one"), base.join("two")).unwrap();
        let now = fs::metadata(base.join("two/file")).unwrap();
        assert_eq!(
            fstat(&granted.file).unwrap().st_ino,
            std::os::unix::fs::MetadataExt::ino(&now)
        );
    }
}
