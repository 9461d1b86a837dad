//! Room for deleting when there is room for nothing else.
//!
//! The index copies what it changes, so a deletion, too, needs some room before it gives any. A file of nothing, the
//! *ballast*, keeps that room. When the disk is about to be full the ballast goes; until it can be made again, only changes
//! that free something are taken.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

/// Bytes of the ballast.
const BALLAST: usize = 4 << 20;
/// Bytes that the disk should have for a batch of deletions.
const SCARCE: u64 = 1 << 20;

pub(crate) struct Room {
    folder: PathBuf,
    /// Whether the ballast is there.
    held: bool,
}

impl Room {
    /// Makes the ballast in this folder if it is absent, and there is room.
    pub(crate) fn open(folder: &Path) -> Self {
        let mut room = Self {
            folder: folder.to_owned(),
            held: false,
        };
        if !room.hold() {
            tracing::warn!(
                "the disk of {} is full: objects can be read and deleted, not written",
                folder.display()
            );
        }
        room
    }

    fn path(&self) -> PathBuf {
        self.folder.join("ballast")
    }

    /// Whether there is room for more than deletions: makes the ballast if it is absent.
    pub(crate) fn hold(&mut self) -> bool {
        if self.held {
            return true;
        }
        let path = self.path();
        let make = || -> io::Result<()> {
            if fs::metadata(&path).is_ok_and(|found| found.len() == BALLAST as u64) {
                return Ok(());
            }
            let mut file = fs::File::create(&path)?;
            let zeros = [0; 64 << 10];
            for _ in 0..BALLAST / zeros.len() {
                file.write_all(&zeros)?;
            }
            // Room that is only promised is none.
            file.sync_all()
        };
        match make() {
            Ok(()) => self.held = true,
            Err(_) => self.release(),
        }
        self.held
    }

    /// Gives the room to whoever needs it now.
    pub(crate) fn release(&mut self) {
        self.held = false;
        match fs::remove_file(self.path()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!("cannot remove {}: {error}", self.path().display());
            }
            _ => {}
        }
    }

    /// Whether a batch of deletions may not find the room that it needs.
    pub(crate) fn is_scarce(&self) -> bool {
        rustix::fs::statvfs(&self.folder)
            .is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) < SCARCE)
    }
}
