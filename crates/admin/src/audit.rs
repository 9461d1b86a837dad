//! Audit lines: who changed something and when, or was refused. JSON, one object a line, in files of the node's data folder.
//!
//! A line is with the operating system before its answer is sent, so that it survives the node's end. Files are bounded: when
//! one has [`SIZE`] bytes it becomes the next older, and the oldest of [`KEPT`] goes. So that nobody can push out what others
//! did, each tenant's tokens write to a file of their own, `audit.TENANT.log`; the operator writes to `audit.log`, as do those of whom
//! nothing is known, of whose refusals a minute has at most [`STRANGERS`], and the next line says how many are left out.

use crate::wire::AuditLine as Line;
use axum::http::StatusCode;
use contract::Name;
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, btree_map::Entry},
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
        f.debug_struct("Audit").field("folder", &self.0.folder).finish()
    }
}

struct Inner {
    folder: PathBuf,
    files: Mutex<Files>,
    followers: broadcast::Sender<Arc<Line>>,
}

/// The files that are written.
struct Files {
    /// By the tenant whose tokens wrote there; `None` is the operator's.
    open: BTreeMap<Option<Name>, Open>,
    /// When the present minute of strangers began, and how many there were.
    minute: Instant,
    strangers: u32,
    left_out: u32,
}

struct Open {
    file: File,
    size: u64,
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
    /// Goes on at the end of the files in this folder, or makes them.
    ///
    /// # Errors
    /// If the operator's cannot be written to.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let own = open(&path(folder, None, 0))?;
        Ok(Self(Arc::new(Inner {
            folder: folder.to_owned(),
            files: Mutex::new(Files {
                open: BTreeMap::from([(None, own)]),
                minute: Instant::now(),
                strangers: 0,
                left_out: 0,
            }),
            followers: broadcast::Sender::new(BEHIND),
        })))
    }

    /// Writes a line. What cannot be written goes to the node's log instead.
    pub(crate) fn write(&self, who: &Who, action: &str, what: &str, outcome: Outcome<'_>) {
        let mut files = self.0.files.lock();
        if !who.known && !files.let_stranger_in() {
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
            what: without_secrets(what),
            outcome: outcome.word().to_owned(),
            status: outcome.status.as_u16(),
            code: outcome.code.map(str::to_owned),
            left_out: std::mem::take(&mut files.left_out),
        };
        let text = line.json();
        let writer = who.token.as_ref().map(|token| token.tenant.clone());
        if let Err(error) = self.0.append(&mut files, writer, &text) {
            let text = String::from_utf8_lossy(&text);
            tracing::error!(%error, line = %text.trim_end(), "an audit line cannot be written");
        }
        // Nobody follows, as a rule.
        let _ = self.0.followers.send(Arc::new(line));
    }

    /// The last lines that are wanted, oldest first, and what comes after them. With a tenant, only files are looked at that have
    /// something of its own.
    pub(crate) fn read(
        &self,
        tenant: Option<&Name>,
        most: usize,
        wanted: impl Fn(&Line) -> bool,
    ) -> io::Result<(Vec<Line>, broadcast::Receiver<Arc<Line>>)> {
        // Nothing is written between the two, so that nothing comes twice or never.
        let (series, followed) = {
            let _files = self.0.files.lock();
            let writers = match tenant {
                Some(tenant) => vec![None, Some(tenant.clone())],
                None => self.0.writers()?,
            };
            let series = writers.iter().map(|writer| self.0.series(writer.as_ref()));
            (
                series.collect::<io::Result<Vec<_>>>()?,
                self.0.followers.subscribe(),
            )
        };
        let mut found = Vec::new();
        for files in series {
            let mut last = Vec::new();
            for (file, size) in files {
                if last.len() == most {
                    break;
                }
                read_back(&file, size, most, &wanted, &mut last)?;
            }
            last.reverse();
            found.append(&mut last);
        }
        // The sort is stable: lines of one file stay in their order.
        found.sort_by(|a, b| a.time.cmp(&b.time));
        found.drain(..found.len().saturating_sub(most));
        Ok((found, followed))
    }
}

/// Adds a file's last lines that are wanted, newest first, until there are enough.
fn read_back(
    file: &File,
    size: u64,
    most: usize,
    wanted: &impl Fn(&Line) -> bool,
    found: &mut Vec<Line>,
) -> io::Result<()> {
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(file, size), &mut text)?;
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
    Ok(())
}

/// A path without the secrets of tokens that somebody wrote into it.
fn without_secrets(what: &str) -> String {
    let mut parts = what.split("mp_");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(part.len());
        let (token, rest) = part.split_at(end);
        let id = token.split('_').next().unwrap_or_default();
        text.push_str(&format!("mp_{id}{}{rest}", if id == token { "" } else { "_…" }));
    }
    text
}

impl Files {
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
    fn append(&self, files: &mut Files, writer: Option<Name>, text: &[u8]) -> io::Result<()> {
        let path = |number| path(&self.folder, writer.as_ref(), number);
        let open = match files.open.entry(writer.clone()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(open(&path(0))?),
        };
        if open.size >= SIZE {
            for number in (0..KEPT).rev() {
                rename(&path(number), &path(number + 1))?;
            }
            *open = self::open(&path(0))?;
        }
        open.file.write_all(text)?;
        open.size += text.len() as u64;
        Ok(())
    }

    /// Whose files there are.
    fn writers(&self) -> io::Result<Vec<Option<Name>>> {
        let mut writers = vec![None];
        for entry in fs::read_dir(&self.folder)? {
            let name = entry?.file_name();
            let tenant = name
                .to_str()
                .and_then(|name| name.strip_prefix("audit.")?.strip_suffix(".log")?.parse().ok());
            writers.extend(tenant.map(Some));
        }
        Ok(writers)
    }

    /// Newest first, with their size at this moment.
    fn series(&self, writer: Option<&Name>) -> io::Result<Vec<(File, u64)>> {
        let mut files = Vec::new();
        for number in 0..=KEPT {
            match File::open(path(&self.folder, writer, number)) {
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

/// A file's place; 0 is the one that is written.
fn path(folder: &Path, writer: Option<&Name>, number: u32) -> PathBuf {
    let tenant = writer.map_or(String::new(), |tenant| format!(".{tenant}"));
    let age = if number == 0 {
        String::new()
    } else {
        format!(".{number}")
    };
    folder.join(format!("audit{tenant}.log{age}"))
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Opens the file for its owner alone, and ends a line that a crash cut off.
fn open(path: &Path) -> io::Result<Open> {
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
            return Ok(Open { file, size: size + 1 });
        }
    }
    Ok(Open { file, size })
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
        let (lines, _) = audit.read(None, most, |_| true).unwrap();
        lines.into_iter().map(|line| line.what).collect()
    }

    fn write(audit: &Audit, known: bool, what: &str) {
        audit.write(&who(known), "test", what, Outcome::of(StatusCode::OK, None));
    }

    #[test]
    fn lines_outlive_the_node_and_a_torn_one_harms_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let audit = Audit::open(folder.path()).unwrap();
        (0..5).for_each(|i| write(&audit, true, &i.to_string()));
        fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"time\":\"to")
            .unwrap();
        let audit = Audit::open(folder.path()).unwrap();
        write(&audit, true, "5");
        assert_eq!(what(&audit, 100), ["0", "1", "2", "3", "4", "5"]);
        assert_eq!(what(&audit, 2), ["4", "5"]);
        let (_, mut followed) = audit.read(None, 0, |_| true).unwrap();
        write(&audit, true, "6");
        assert_eq!(followed.try_recv().unwrap().what, "6");
    }

    #[test]
    fn files_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let audit = Audit::open(folder.path()).unwrap();
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
        let audit = Audit::open(folder.path()).unwrap();
        (0..1000).for_each(|_| write(&audit, false, "guess"));
        write(&audit, true, "deploy");
        let (lines, _) = audit.read(None, 2000, |_| true).unwrap();
        assert_eq!(lines.len(), STRANGERS as usize + 1);
        assert_eq!(lines.last().unwrap().left_out, 1000 - STRANGERS);
    }

    #[test]
    fn a_token_in_a_path_is_not_kept() {
        let secret = "0".repeat(64);
        for (what, kept) in [
            ("/v1/functions/shop.f".to_owned(), "/v1/functions/shop.f"),
            (format!("/a/mp_12ab_{secret}?x=mp_1"), "/a/mp_12ab_…?x=mp_1"),
            (format!("mp__{secret}"), "mp__…"),
        ] {
            assert_eq!(without_secrets(&what), kept);
        }
    }
}
