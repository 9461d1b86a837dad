//! A file system with nothing in it but what may be used.
//!
//! The new root is a small file system in memory. What may be used is cloned from the old one before that is out of sight, made
//! read-only (and without devices and set-user-ID), and put in the same place; symbolic links on the way to it are made again. Then the
//! roots are exchanged and the old one is let go.
//!
//! A process of root clones while it is root, from the descriptors of [`grants`](crate::grants): a clone is a mount that is nowhere yet, and can be
//! put into the namespace that the process makes when it is nobody. A descriptor alone would not do, since a namespace clones its own
//! mounts only. What a clone shows is what it was made of and what lies beneath; there is no way up from it.

use crate::{
    grants::{Access, Granted, Grants},
    limit::check,
};
use rustix::{
    fs::{CWD, Mode, OFlags, mkdirat, open, openat, symlinkat},
    io::Errno,
    process::{chdir, fchdir, getuid, pivot_root},
};
use std::{
    collections::BTreeMap,
    ffi::{CStr, CString},
    io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
};

/// A folder that there always is, and that is no longer needed when it disappears beneath the new root.
pub(crate) const UNDER: &CStr = c"/proc";

/// What a place of the new root holds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// A symbolic link to this.
    Link(PathBuf),
    /// What is there now, read-only.
    Same,
    /// The folder that is there now.
    Writable,
    /// An empty file system in memory.
    Memory(u64),
    /// The device that is there now.
    Device,
}

/// Which places the new root has: each once, outer ones before those in them.
type Plan = BTreeMap<PathBuf, Place>;

/// Something of the old root, to be mounted in the new one.
struct Clone {
    path: PathBuf,
    is_folder: bool,
    mount: OwnedFd,
}

/// A root that this process is about to get.
pub(crate) struct NewRoot {
    plan: Plan,
    /// Of places that hold what is elsewhere now: where.
    from: BTreeMap<PathBuf, PathBuf>,
    /// What could be cloned before the process gave its identity up.
    clones: Option<Vec<Clone>>,
}

impl NewRoot {
    /// What is granted, cloned if this process is root, who reaches more than nobody does. Others clone when they have a namespace of their
    /// own, and reach the same then as now.
    pub(crate) fn of(grants: &Grants) -> Self {
        let plan = plan(grants);
        let clones = getuid().is_root().then(|| {
            clones(&plan, |path| {
                let granted = grants.granted.iter().find(|granted| granted.path == path);
                let granted = granted.ok_or(Errno::NOENT)?;
                Ok((granted.is_folder, clone_tree(granted.file.as_fd(), c"")?))
            })
        });
        let from = grants.granted.iter();
        let from = from.filter_map(|granted| Some((granted.path.clone(), granted.from.clone()?)));
        Self {
            from: from.collect(),
            plan,
            // A root without capabilities is refused, and has a second try in its namespace.
            clones: clones.and_then(Result::ok),
        }
    }

    /// Exchanges the root of this process's mount namespace.
    pub(crate) fn enter(self) -> io::Result<()> {
        let Self {
            plan,
            from,
            clones: early,
        } = self;
        // Nothing that is mounted here is seen elsewhere, nor the other way round.
        mount(None, c"/", libc::MS_REC | libc::MS_PRIVATE, None)?;
        // While the old root can still be seen.
        let clones = early.map_or_else(
            || {
                clones(&plan, |path| {
                    let path = from.get(path).map_or(path, PathBuf::as_path);
                    let name = CString::new(path.as_os_str().as_bytes())?;
                    Ok((path.is_dir(), clone_tree(CWD, &name)?))
                })
            },
            Ok,
        )?;

        let unused = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
        mount(Some(c"tmpfs"), UNDER, unused, Some("mode=755,size=1m"))?;
        let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = open(UNDER, folder, Mode::empty())?;
        for clone in clones {
            make(root.as_fd(), &clone.path, clone.is_folder)?;
            let below = CString::new(inside(&clone.path).as_os_str().as_bytes())?;
            // SAFETY: both names end with a zero and outlive the call, and both descriptors are open.
            check(unsafe {
                libc::syscall(
                    libc::SYS_move_mount,
                    clone.mount.as_raw_fd(),
                    c"".as_ptr(),
                    root.as_raw_fd(),
                    below.as_ptr(),
                    libc::MOVE_MOUNT_F_EMPTY_PATH,
                )
            })?;
        }
        for (path, place) in &plan {
            match place {
                Place::Link(target) => {
                    make_parents(root.as_fd(), path)?;
                    ignore_existing(symlinkat(target, &root, inside(path)))?;
                }
                Place::Memory(_) => make(root.as_fd(), path, true)?,
                Place::Same | Place::Writable | Place::Device => {}
            }
        }

        fchdir(&root)?;
        pivot_root(".", ".")?;
        // SAFETY: the name ends with a zero and outlives the call.
        check(unsafe { libc::umount2(c".".as_ptr(), libc::MNT_DETACH) }.into())?;
        chdir("/")?;
        for (path, place) in &plan {
            if let Place::Memory(bytes) = place {
                let options = format!("mode=700,size={bytes},nr_inodes=4096");
                mount(
                    Some(c"tmpfs"),
                    &CString::new(path.as_os_str().as_bytes())?,
                    unused,
                    Some(&options),
                )?;
            }
        }
        let root = open("/", folder, Mode::empty())?;
        set_root_read_only(root.as_fd())
    }
}

/// Of all places that are something of the old root: whether it is a folder, and a copy of it with what is mounted in it.
fn clones(plan: &Plan, clone: impl Fn(&Path) -> io::Result<(bool, OwnedFd)>) -> io::Result<Vec<Clone>> {
    let mut clones = Vec::new();
    for (path, place) in plan {
        let quiet = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        let attributes = match place {
            Place::Same => quiet | libc::MOUNT_ATTR_RDONLY,
            Place::Writable => quiet | libc::MOUNT_ATTR_NOEXEC,
            Place::Device => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC,
            Place::Link(_) | Place::Memory(_) => continue,
        };
        let (is_folder, mount) = clone(path)?;
        set_attributes(mount.as_fd(), attributes)?;
        clones.push(Clone {
            path: path.clone(),
            is_folder,
            mount,
        });
    }
    Ok(clones)
}

fn plan(grants: &Grants) -> Plan {
    let links = grants
        .links
        .iter()
        .map(|(path, target)| (path.clone(), Place::Link(target.clone())));
    let mut plan: Plan = links.collect();
    for Granted { path, access, .. } in &grants.granted {
        let place = match access {
            Access::Read | Access::Execute => Place::Same,
            Access::Write { in_memory } => in_memory.map_or(Place::Writable, Place::Memory),
            Access::Nothing => Place::Device,
        };
        plan.entry(path.clone()).or_insert(place);
    }
    // What lies in a folder that is there anyhow comes with it.
    let folders: Vec<PathBuf> = plan
        .iter()
        .filter(|(_, place)| **place == Place::Same)
        .map(|(path, _)| path.clone())
        .collect();
    plan.retain(|path, place| {
        !matches!(place, Place::Same | Place::Link(_))
            || !folders
                .iter()
                .any(|folder| path != folder && path.starts_with(folder))
    });
    plan
}

/// The same path, seen from a root.
fn inside(path: &Path) -> &Path {
    path.strip_prefix("/").unwrap_or(path)
}

fn make_parents(root: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let mut parents: Vec<&Path> = inside(path).ancestors().skip(1).collect();
    parents.pop();
    for parent in parents.into_iter().rev() {
        ignore_existing(mkdirat(root, parent, Mode::from_raw_mode(0o755)))?;
    }
    Ok(())
}

/// Something to mount on.
fn make(root: BorrowedFd<'_>, path: &Path, is_folder: bool) -> io::Result<()> {
    make_parents(root, path)?;
    if is_folder {
        ignore_existing(mkdirat(root, inside(path), Mode::from_raw_mode(0o755)))
    } else {
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::WRONLY;
        ignore_existing(openat(root, inside(path), new, Mode::from_raw_mode(0o644)).map(drop))
    }
}

fn ignore_existing(result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::EXIST) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn mount(kind: Option<&CStr>, target: &CStr, flags: libc::c_ulong, data: Option<&str>) -> io::Result<()> {
    let kind = kind.map_or(std::ptr::null(), CStr::as_ptr);
    let data = data.map(CString::new).transpose()?;
    let data = data.as_ref().map_or(std::ptr::null(), |text| text.as_ptr());
    // SAFETY: each pointer is null where the call takes that, or a name that ends with a zero and outlives it.
    check(unsafe { libc::mount(kind, target.as_ptr(), kind, flags, data.cast()) }.into())
}

/// What is at a path seen from here, or, without one, what is open here: with what is mounted in it, to be mounted again.
fn clone_tree(from: BorrowedFd<'_>, path: &CStr) -> io::Result<OwnedFd> {
    let whole = (libc::AT_RECURSIVE | libc::AT_EMPTY_PATH) as libc::c_uint;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | whole;
    // SAFETY: the name ends with a zero and outlives the call, and the descriptor is open.
    let opened = unsafe { libc::syscall(libc::SYS_open_tree, from.as_raw_fd(), path.as_ptr(), flags) };
    check(opened)?;
    let opened = i32::try_from(opened).map_err(io::Error::other)?;
    // SAFETY: the kernel has just given it to this process, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

/// A copy of a mount that the host shares would be one of those that share it: what is mounted in one of them appears in all.
fn set_attributes(mount: BorrowedFd<'_>, set: u64) -> io::Result<()> {
    change(
        mount,
        set,
        libc::MS_PRIVATE,
        libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
    )
}

/// What is mounted in it stays as it is.
fn set_root_read_only(mount: BorrowedFd<'_>) -> io::Result<()> {
    change(mount, libc::MOUNT_ATTR_RDONLY, 0, libc::AT_EMPTY_PATH)
}

fn change(mount: BorrowedFd<'_>, set: u64, propagation: u64, flags: libc::c_int) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation,
        userns_fd: 0,
    };
    // SAFETY: the name ends with a zero, the structure is as long as said, and both outlive the call.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &attributes,
            size_of::<libc::mount_attr>(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Confinement, Folder};
    use std::fs;

    fn planned(confinement: &Confinement) -> Plan {
        plan(&Grants::find(confinement).unwrap())
    }

    #[test]
    fn links_on_the_way_are_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("usr/lib")).unwrap();
        fs::write(base.join("usr/lib/one.so.1"), "").unwrap();
        std::os::unix::fs::symlink("usr/lib", base.join("lib")).unwrap();
        std::os::unix::fs::symlink("../lib/one.so.1", base.join("usr/lib/one.so")).unwrap();
        let confinement = Confinement {
            read: vec![base.join("lib/one.so"), base.join("nowhere")],
            write: vec![Folder {
                path: base.join("work"),
                in_memory: None,
            }],
            ..Confinement::default()
        };
        fs::create_dir(base.join("work")).unwrap();
        let expected = Plan::from([
            (base.join("lib"), Place::Link("usr/lib".into())),
            (base.join("usr/lib/one.so"), Place::Link("../lib/one.so.1".into())),
            (base.join("usr/lib/one.so.1"), Place::Same),
            (base.join("work"), Place::Writable),
        ]);
        assert_eq!(planned(&confinement), expected);
    }

    #[test]
    fn what_lies_in_a_folder_comes_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("a/b")).unwrap();
        fs::write(base.join("a/b/c"), "").unwrap();
        let confinement = Confinement {
            read: vec![base.join("a/b/c"), base.join("a")],
            ..Confinement::default()
        };
        assert_eq!(planned(&confinement), Plan::from([(base.join("a"), Place::Same)]));
    }
}
