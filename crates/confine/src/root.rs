//! A file system with nothing in it but what may be used.
//!
//! The new root is a small file system in memory. What may be used is cloned from the old one before that is out of sight, made
//! read-only (and without devices and set-user-ID), and put in the same place; symbolic links on the way to it are made again. Then the
//! roots are exchanged and the old one is let go.

use crate::{Confinement, NOTHING, Processes, limit::check};
use rustix::{
    fs::{CWD, Mode, OFlags, mkdirat, open, openat, symlinkat},
    io::Errno,
    process::{chdir, fchdir, pivot_root},
};
use std::{
    collections::BTreeMap,
    ffi::{CStr, CString, OsString},
    fs, io,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Component, Path, PathBuf},
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

/// Exchanges the root of this process's mount namespace.
pub(crate) fn replace(confinement: &Confinement) -> io::Result<()> {
    let plan = plan(confinement)?;
    // Nothing that is mounted here is seen elsewhere, nor the other way round.
    mount(None, c"/", libc::MS_REC | libc::MS_PRIVATE, None)?;
    // While the old root can still be seen.
    let mut clones = Vec::new();
    for (path, place) in &plan {
        let quiet = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
        let attributes = match place {
            Place::Same => quiet | libc::MOUNT_ATTR_RDONLY,
            Place::Writable => quiet | libc::MOUNT_ATTR_NOEXEC,
            Place::Device => libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC,
            Place::Link(_) | Place::Memory(_) => continue,
        };
        let clone = clone_tree(path)?;
        set_attributes(clone.as_fd(), attributes)?;
        clones.push((path, path.is_dir(), clone));
    }

    let unused = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    mount(Some(c"tmpfs"), UNDER, unused, Some("mode=755,size=1m"))?;
    let folder = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open(UNDER, folder, Mode::empty())?;
    for (path, is_folder, clone) in clones {
        make(root.as_fd(), path, is_folder)?;
        let below = CString::new(inside(path).as_os_str().as_bytes())?;
        // SAFETY: both names end with a zero and outlive the call, and both descriptors are open.
        check(unsafe {
            libc::syscall(
                libc::SYS_move_mount,
                clone.as_raw_fd(),
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

fn plan(confinement: &Confinement) -> io::Result<Plan> {
    let mut plan = Plan::new();
    for folder in &confinement.write {
        let place = folder.in_memory.map_or(Place::Writable, Place::Memory);
        add(&mut plan, &folder.path, place)?;
    }
    if confinement.processes == Processes::Children {
        add(&mut plan, Path::new(NOTHING), Place::Device)?;
    }
    for path in confinement.read.iter().chain(&confinement.execute) {
        add(&mut plan, path, Place::Same)?;
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
    Ok(plan)
}

/// Links on the way to this, and what is at its end. What does not exist is left out.
fn add(plan: &mut Plan, path: &Path, place: Place) -> io::Result<()> {
    const MOST_LINKS: usize = 40;
    let mut rest: Vec<OsString> = names(path);
    let mut at = PathBuf::from("/");
    let mut links = 0;
    while let Some(name) = rest.pop() {
        if name == ".." {
            at.pop();
            continue;
        }
        let next = at.join(&name);
        let Ok(found) = fs::symlink_metadata(&next) else {
            return Ok(());
        };
        if !found.is_symlink() {
            at = next;
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(Errno::LOOP.into());
        }
        let target = fs::read_link(&next)?;
        if target.is_absolute() {
            at = PathBuf::from("/");
        }
        rest.extend(names(&target));
        plan.insert(next, Place::Link(target));
    }
    plan.entry(at).or_insert(place);
    Ok(())
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

/// What is at a path, with what is mounted in it, to be mounted again.
fn clone_tree(path: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC | libc::AT_RECURSIVE as libc::c_uint;
    // SAFETY: the name ends with a zero and outlives the call.
    let opened = unsafe { libc::syscall(libc::SYS_open_tree, CWD.as_raw_fd(), path.as_ptr(), flags) };
    check(opened)?;
    let opened = i32::try_from(opened).map_err(io::Error::other)?;
    // SAFETY: the kernel has just given it to this process, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(opened) })
}

fn set_attributes(mount: BorrowedFd<'_>, set: u64) -> io::Result<()> {
    change(mount, set, libc::AT_EMPTY_PATH | libc::AT_RECURSIVE)
}

/// What is mounted in it stays as it is.
fn set_root_read_only(mount: BorrowedFd<'_>) -> io::Result<()> {
    change(mount, libc::MOUNT_ATTR_RDONLY, libc::AT_EMPTY_PATH)
}

fn change(mount: BorrowedFd<'_>, set: u64, flags: libc::c_int) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: 0,
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
    use crate::Folder;

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
        assert_eq!(plan(&confinement).unwrap(), expected);
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
        assert_eq!(
            plan(&confinement).unwrap(),
            Plan::from([(base.join("a"), Place::Same)])
        );
    }

    #[test]
    fn links_in_a_circle_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("circle");
        std::os::unix::fs::symlink("circle", &path).unwrap();
        assert!(add(&mut Plan::new(), &path, Place::Same).is_err());
    }
}
