//! Folders with unpacked packages: one for each package, for as long as a version has it.

use contract::{Digest, PrepareError};
use parking_lot::Mutex;
use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

/// All of them.
pub(crate) struct Packages {
    place: PathBuf,
    /// Those that an image has.
    known: Mutex<HashMap<String, Weak<Folder>>>,
}

/// One, which stays while somebody has this.
pub(crate) struct Folder {
    path: PathBuf,
    /// No version has it any more.
    is_unused: AtomicBool,
}

impl Folder {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if *self.is_unused.get_mut() {
            remove(&self.path);
        }
    }
}

impl Packages {
    pub(crate) fn new(place: PathBuf) -> Self {
        Self {
            place,
            known: Mutex::default(),
        }
    }

    /// The folder of a package, made if it is not there.
    pub(crate) fn folder(
        &self,
        digest: Digest,
        make: impl FnOnce(&Path) -> Result<(), PrepareError>,
    ) -> Result<Arc<Folder>, PrepareError> {
        let name = digest.to_string();
        // Nobody removes it meanwhile, nor makes it twice.
        let mut known = self.known.lock();
        if let Some(folder) = known.get(&name).and_then(Weak::upgrade) {
            return Ok(folder);
        }
        let path = self.place.join(&name);
        if !path.is_dir() {
            make(&path)?;
        }
        let folder = Arc::new(Folder {
            path,
            is_unused: AtomicBool::new(false),
        });
        known.retain(|_, folder| folder.strong_count() > 0);
        known.insert(name, Arc::downgrade(&folder));
        Ok(folder)
    }

    /// Removes folders of packages that no version has: at once, or when the last image that has one goes.
    pub(crate) fn collect(&self, used: &dyn Fn(Digest) -> bool) {
        let known = self.known.lock();
        for entry in fs::read_dir(&self.place).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_str().unwrap_or_default();
            let is_unused = !name.parse().is_ok_and(used);
            match known.get(name).and_then(Weak::upgrade) {
                Some(folder) => folder.is_unused.store(is_unused, Ordering::Relaxed),
                None if is_unused => remove(&entry.path()),
                None => {}
            }
        }
    }
}

fn remove(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder) {
        tracing::warn!(folder = %folder.display(), %error, "a package that no version has cannot be removed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stays_as_long_as_a_version_or_an_image_has_it() {
        let place = tempfile::tempdir().unwrap();
        let packages = Packages::new(place.path().to_owned());
        let make =
            |path: &Path| fs::create_dir(path).map_err(|error| PrepareError::Artefact(error.to_string()));
        let [one, other] = [1, 2].map(|byte| Digest([byte; 32]));
        let (first, second) = (
            packages.folder(one, make).unwrap(),
            packages.folder(other, make).unwrap(),
        );
        let [first_path, second_path] = [&first, &second].map(|folder| folder.path().to_owned());
        drop(first);
        assert!(first_path.is_dir(), "its version is there");
        packages.collect(&|digest| digest == other);
        assert!(!first_path.exists());
        assert!(second_path.is_dir());
        packages.collect(&|_| false);
        assert!(second_path.is_dir(), "an image has it");
        drop(packages.folder(other, |_| panic!("it is there")).unwrap());
        drop(second);
        assert!(!second_path.exists());
        let again = packages.folder(other, make).unwrap();
        packages.collect(&|_| false);
        packages.collect(&|_| true);
        drop(again);
        assert!(second_path.is_dir(), "a version has it again");
        fs::create_dir(place.path().join("half.new")).unwrap();
        packages.collect(&|_| true);
        assert!(!place.path().join("half.new").exists());
    }
}
