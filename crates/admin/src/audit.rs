//! Audit lines: who changed something and when, or was refused. JSON, one object a line, in a file of the node's data folder.
//!
//! A line is with the operating system before its answer is sent, so that it survives the node's end. Files are bounded: when
//! one has [`SIZE`] bytes it becomes the next older, and the oldest of [`KEPT`] goes. Whoever shows no token that is known could
//! so push lines out; of refusals of that kind a minute has at most [`STRANGERS`], and the next line says how many are left out.

use crate::wire::AuditLine as Line;
use axum::http::StatusCode;
use contract::Name;
use parking_lot::Mutex;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Instant, SystemTime},
};
use tenants::Token;
use tokio::sync::broadcast;

/// Bytes of a file.
const SIZE: u64 = 8 << 20;
/// Older files beside the one that is written.
const KEPT: u32 = 4;
/// Refusals of unknown callers that a minute's lines have.
const STRANGERS: u32 = 60;
/// Lines that a slow follower may be behind before it loses some.
const BEHIND: usize = 1024;

/// The node's audit lines. Clones are the same.
#[derive(Clone)]
pub struct Audit(Arc<Inner>);

impl std::fmt::Debug for Audit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Audit").field("path", &self.0.path).finish()
    }
}

struct Inner {
    path: PathBuf,
    file: Mutex<Open>,
    followers: broadcast::Sender<Arc<Line>>,
}

struct Open {
    file: File,
    size: u64,
    /// When the present minute of strangers began, and how many there were.
    minute: Instant,
    strangers: u32,
    left_out: u32,
}

impl Line {
    /// As JSON, with its newline.
    pub(crate) fn json(&self) -> Vec<u8> {
        // Texts and numbers: turning them into JSON does not fail.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

/// Who called.
pub(crate) struct Who {
    pub(crate) tenant: Option<Name>,
    pub(crate) token: Option<Arc<Token>>,
    /// It was found out who it is.
    pub(crate) known: bool,
    pub(crate) remote: Option<SocketAddr>,
}

/// What came of it.
pub(crate) struct Outcome<'a> {
    status: StatusCode,
    code: Option<&'a str>,
}

impl<'a> Outcome<'a> {
    pub(crate) fn of(status: StatusCode, code: Option<&'a str>) -> Self {
        Self { status, code }
    }

    fn word(&self) -> &'static str {
        match self.status.as_u16() {
            ..=399 => "done",
            401 | 403 => "refused",
            _ => "failed",
        }
    }
}

impl Audit {
    /// Goes on at the end of the file, or makes it.
    ///
    /// # Errors
    /// If it cannot be written to.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (file, size) = open(path)?;
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            file: Mutex::new(Open {
                file,
                size,
                minute: Instant::now(),
                strangers: 0,
                left_out: 0,
            }),
            followers: broadcast::Sender::new(BEHIND),
        })))
    }

    /// Writes a line. What cannot be written goes to the node's log instead.
    pub(crate) fn write(&self, who: &Who, action: &str, what: &str, outcome: Outcome<'_>) {
        let mut open = self.0.file.lock();
        if !who.known && !open.let_stranger_in() {
            return;
        }
        let line = Line {
            time: crate::wire::time(SystemTime::now()),
            tenant: who.tenant.clone(),
            by: match (&who.token, who.known) {
                (Some(_), _) => "token",
                (None, true) => "operator",
                (None, false) => "unknown",
            }
            .to_owned(),
            token: who.token.as_ref().map(|token| token.id.clone()),
            token_name: who.token.as_ref().and_then(|token| token.name.clone()),
            remote: who.remote,
            action: action.to_owned(),
            what: what.to_owned(),
            outcome: outcome.word().to_owned(),
            status: outcome.status.as_u16(),
            code: outcome.code.map(str::to_owned),
            left_out: std::mem::take(&mut open.left_out),
        };
        let text = line.json();
        if let Err(error) = self.0.append(&mut open, &text) {
            let text = String::from_utf8_lossy(&text);
            tracing::error!(%error, line = %text.trim_end(), "an audit line cannot be written");
        }
        // Nobody follows, as a rule.
        let _ = self.0.followers.send(Arc::new(line));
    }

    /// The last lines that are wanted, oldest first, and what comes after them.
    pub(crate) fn read(
        &self,
        most: usize,
        wanted: impl Fn(&Line) -> bool,
    ) -> io::Result<(Vec<Line>, broadcast::Receiver<Arc<Line>>)> {
        // Nothing is written between the two, so that nothing comes twice or never.
        let (files, followed) = {
            let _open = self.0.file.lock();
            (self.0.files()?, self.0.followers.subscribe())
        };
        let mut found = Vec::new();
        for (mut file, size) in files {
            if found.len() == most {
                break;
            }
            let mut text = Vec::new();
            io::Read::read_to_end(&mut io::Read::take(&mut file, size), &mut text)?;
            for line in text.rsplit(|byte| *byte == b'\n') {
                if found.len() == most {
                    break;
                }
                // One that a crash cut off is none.
                if let Ok(line) = serde_json::from_slice::<Line>(line)
                    && wanted(&line)
                {
                    found.push(line);
                }
            }
        }
        found.reverse();
        Ok((found, followed))
    }
}

impl Open {
    fn let_stranger_in(&mut self) -> bool {
        if self.minute.elapsed().as_secs() >= 60 {
            self.minute = Instant::now();
            self.strangers = 0;
        }
        self.strangers = self.strangers.saturating_add(1);
        let let_in = self.strangers <= STRANGERS;
        if !let_in {
            self.left_out = self.left_out.saturating_add(1);
        }
        let_in
    }
}

impl Inner {
    fn older(&self, number: u32) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    fn append(&self, open: &mut Open, text: &[u8]) -> io::Result<()> {
        if open.size >= SIZE {
            for number in (1..KEPT).rev() {
                rename(&self.older(number), &self.older(number + 1))?;
            }
            rename(&self.path, &self.older(1))?;
            (open.file, open.size) = self::open(&self.path)?;
        }
        open.file.write_all(text)?;
        open.size += text.len() as u64;
        Ok(())
    }

    /// Newest first, with their size at this moment.
    fn files(&self) -> io::Result<Vec<(File, u64)>> {
        let paths = std::iter::once(self.path.clone()).chain((1..=KEPT).map(|number| self.older(number)));
        let mut files = Vec::new();
        for path in paths {
            match File::open(path) {
                Ok(file) => {
                    let size = file.metadata()?.len();
                    files.push((file, size));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(files)
    }
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Opens the file for its owner alone, and ends a line that a crash cut off.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .mode(0o600)
        .open(path)?;
    let size = file.metadata()?.len();
    if size > 0 {
        let mut last = [0];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut last, size - 1)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
            return Ok((file, size + 1));
        }
    }
    Ok((file, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(known: bool) -> Who {
        Who {
            tenant: None,
            token: None,
            known,
            remote: None,
        }
    }

    fn what(audit: &Audit, most: usize) -> Vec<String> {
        let (lines, _) = audit.read(most, |_| true).unwrap();
        lines.into_iter().map(|line| line.what).collect()
    }

    fn write(audit: &Audit, known: bool, what: &str) {
        audit.write(&who(known), "test", what, Outcome::of(StatusCode::OK, None));
    }

    #[test]
    fn lines_outlive_the_node_and_a_torn_one_harms_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let audit = Audit::open(&path).unwrap();
        (0..5).for_each(|i| write(&audit, true, &i.to_string()));
        fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"time\":\"to")
            .unwrap();
        let audit = Audit::open(&path).unwrap();
        write(&audit, true, "5");
        assert_eq!(what(&audit, 100), ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(what(&audit, 2), ["4", "5"]);
        let (_, mut followed) = audit.read(0, |_| true).unwrap();
        write(&audit, true, "6");
        assert_eq!(followed.try_recv().unwrap().what, "6");
    }

    #[test]
    fn files_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(&folder.path().join("audit.log")).unwrap();
        let long = "x".repeat(1 << 20);
        (0..60).for_each(|i| write(&audit, true, &format!("{i} {long}")));
        let sizes: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().metadata().unwrap().len())
            .collect();
        assert_eq!(sizes.len(), 1 + KEPT as usize);
        assert!(sizes.iter().all(|size| *size < SIZE + (2 << 20)), "{sizes:?}");
        let last = what(&audit, 20);
        let numbers: Vec<_> = last.iter().map(|what| what.split(' ').next().unwrap()).collect();
        assert_eq!(numbers, (40..60).map(|i| i.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn strangers_do_not_push_others_out() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(&folder.path().join("audit.log")).unwrap();
        (0..1000).for_each(|_| write(&audit, false, "guess"));
        write(&audit, true, "deploy");
        let (lines, _) = audit.read(2000, |_| true).unwrap();
        assert_eq!(lines.len(), STRANGERS as usize + 1);
        assert_eq!(lines.last().unwrap().left_out, 1000 - STRANGERS);
    }
}
