//! Objects of the node's own S3, by the control API: the verbs that those who know `aws s3` expect.

mod answers;

use crate::{
    client::Client,
    failure::Failure,
    output::{Output, bytes_bar, columns, confirm, visible},
};
use answers::{Entry, Listed};
use clap::{Args, Subcommand};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::json;
use std::{
    fmt,
    fs::{self, File, Permissions},
    io::{self, Read},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    str::FromStr,
};
use ureq::{
    SendBody,
    http::{HeaderName, Method, header},
};

/// Look after the objects of the node's own S3
///
/// For a node with `embedded` of [s3] in its configuration. Names are s3://BUCKET/KEY, as for `aws s3`.
#[derive(Args, Debug)]
pub(crate) struct S3 {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Make a bucket
    Mb {
        /// s3://BUCKET
        #[arg(value_name = "BUCKET")]
        bucket: Place,
    },
    /// Remove an empty bucket
    Rb {
        /// s3://BUCKET
        #[arg(value_name = "BUCKET")]
        bucket: Place,
    },
    /// List buckets, or what is in one
    Ls {
        /// s3://BUCKET, or s3://BUCKET/PREFIX; all buckets, when absent
        #[arg(value_name = "PLACE")]
        place: Option<Place>,
        /// All keys, not only those up to the next slash
        #[arg(short, long)]
        recursive: bool,
    },
    /// Copy a file to an object, an object to a file, or an object to an object
    ///
    /// `-` is standard input or output. A destination that ends with `/`, or is a folder or bucket, gets the source's name.
    Cp {
        /// A file, or s3://BUCKET/KEY
        #[arg(value_name = "FROM")]
        from: End,
        /// A file, or s3://BUCKET/KEY
        #[arg(value_name = "TO")]
        to: End,
        /// A folder's files, or all objects whose keys begin so
        #[arg(short, long)]
        recursive: bool,
        /// The media type of what is uploaded
        #[arg(long, value_name = "TYPE")]
        content_type: Option<String>,
    },
    /// Remove an object
    Rm {
        /// s3://BUCKET/KEY
        #[arg(value_name = "OBJECT")]
        object: Place,
        /// All objects whose keys begin so
        #[arg(short, long)]
        recursive: bool,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
    },
}

/// A bucket, and the rest of the name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    bucket: String,
    key: String,
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rest = text
            .strip_prefix("s3://")
            .ok_or("it does not begin with s3://: write s3://BUCKET/KEY")?;
        let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err("it names no bucket: write s3://BUCKET/KEY".to_owned());
        }
        Ok(Self {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
        })
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "s3://{}", self.bucket),
            key => write!(f, "s3://{}/{key}", self.bucket),
        }
    }
}

/// What stands in paths as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~')
    .remove(b'/');

impl Place {
    fn with(&self, key: impl Into<String>) -> Self {
        Self {
            bucket: self.bucket.clone(),
            key: key.into(),
        }
    }

    /// In the control API.
    fn path(&self) -> String {
        match self.key.as_str() {
            "" => format!("/v1/s3/{}", encoded(&self.bucket)),
            key => format!("/v1/s3/{}/{}", encoded(&self.bucket), encoded(key)),
        }
    }

    /// The last part of its key.
    fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Object(Place),
    /// Standard input or output.
    Stream,
    File(PathBuf),
}

impl FromStr for End {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "-" => Ok(Self::Stream),
            text if text.starts_with("s3://") => text.parse().map(Self::Object),
            text => Ok(Self::File(text.into())),
        }
    }
}

impl S3 {
    pub(crate) fn run(self, client: &Client, output: Output) -> Result<(), Failure> {
        let node = Node { client };
        match self.verb {
            Verb::Mb { bucket } => {
                bucket_alone(&bucket)?;
                node.ask(Method::PUT, &bucket.path(), &[])?;
                output.answer(&json!({ "made": bucket.to_string() }), || {
                    format!("made {bucket}\n")
                })
            }
            Verb::Rb { bucket } => {
                bucket_alone(&bucket)?;
                node.ask(Method::DELETE, &bucket.path(), &[])?;
                let removed = json!({ "removed": [bucket.to_string()] });
                output.answer(&removed, || format!("removed {bucket}\n"))
            }
            Verb::Ls { place: None, .. } => {
                let buckets = answers::buckets(&node.read("/v1/s3")?)?;
                let listed: Vec<_> = buckets
                    .iter()
                    .map(|(name, created)| json!({ "bucket": name, "created": created }))
                    .collect();
                output.answer(&json!(listed), || {
                    let row = |(name, created): &(String, String)| vec![visible(created), visible(name)];
                    let rows: Vec<_> = buckets.iter().map(row).collect();
                    match rows.is_empty() {
                        true => "no buckets; make one with `millpond s3 mb s3://BUCKET`\n".to_owned(),
                        false => columns(&rows),
                    }
                })
            }
            Verb::Ls {
                place: Some(place),
                recursive,
            } => list(&node, &place, recursive, output),
            Verb::Cp {
                from,
                to,
                recursive,
                content_type,
            } => {
                let copies = copies(&node, from, to, recursive)?;
                for copy in &copies {
                    node.copy(copy, content_type.as_deref())?;
                }
                // What was asked for is on standard output.
                if copies
                    .iter()
                    .any(|copy| matches!(copy, Copy::Down(_, End::Stream)))
                {
                    return Ok(());
                }
                let said: Vec<_> = copies.iter().map(ToString::to_string).collect();
                output.answer(&json!({ "copied": said }), || {
                    said.iter().map(|copy| format!("{}\n", visible(copy))).collect()
                })
            }
            Verb::Rm {
                object,
                recursive,
                yes,
            } => {
                let all = match recursive {
                    true => {
                        let keys = node.keys(&object)?;
                        if !yes && !keys.is_empty() {
                            confirm(&format!("Remove {} objects of {object}?", keys.len()))?;
                        }
                        keys.into_iter().map(|key| object.with(key)).collect()
                    }
                    false if object.key.is_empty() => {
                        return Err(Failure::usage(
                            format!("{object} is a bucket"),
                            "name an object, add --recursive to empty the bucket, or remove it with `millpond s3 rb`",
                        ));
                    }
                    false => vec![object],
                };
                for place in &all {
                    node.ask(Method::DELETE, &place.path(), &[])?;
                }
                let said: Vec<_> = all.iter().map(ToString::to_string).collect();
                output.answer(&json!({ "removed": said }), || {
                    said.iter()
                        .map(|place| format!("removed {}\n", visible(place)))
                        .collect()
                })
            }
        }
    }
}

fn bucket_alone(place: &Place) -> Result<(), Failure> {
    match place.key.trim_matches('/') {
        "" => Ok(()),
        _ => Err(Failure::usage(
            format!("{place} is more than a bucket"),
            format!("write s3://{}", place.bucket),
        )),
    }
}

fn list(node: &Node<'_>, place: &Place, recursive: bool, output: Output) -> Result<(), Failure> {
    let entries = node.list(place, recursive)?;
    let listed: Vec<_> = entries
        .iter()
        .map(|entry| match entry {
            Entry::Prefix(prefix) => json!({ "prefix": prefix }),
            Entry::Object { key, size, modified } => {
                json!({ "key": key, "size": size, "modified": modified })
            }
        })
        .collect();
    output.answer(&json!(listed), || {
        let rows: Vec<_> = entries
            .iter()
            .map(|entry| match entry {
                Entry::Prefix(prefix) => vec![String::new(), "PRE".to_owned(), visible(prefix)],
                Entry::Object { key, size, modified } => {
                    vec![visible(modified), size.to_string(), visible(key)]
                }
            })
            .collect();
        columns(&rows)
    })
}

/// A file or object that is to be copied.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Copy {
    Up(End, Place),
    Down(Place, End),
    Over(Place, Place),
}

impl fmt::Display for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let local = |end: &End| match end {
            End::File(path) => path.display().to_string(),
            End::Object(place) => place.to_string(),
            End::Stream => "-".to_owned(),
        };
        match self {
            Self::Up(from, to) => write!(f, "{} -> {to}", local(from)),
            Self::Down(from, to) => write!(f, "{from} -> {}", local(to)),
            Self::Over(from, to) => write!(f, "{from} -> {to}"),
        }
    }
}

fn copies(node: &Node<'_>, from: End, to: End, recursive: bool) -> Result<Vec<Copy>, Failure> {
    let nameless = || {
        Failure::usage(
            "standard input has no name for the object".to_owned(),
            "name the whole key: s3://BUCKET/KEY",
        )
    };
    let is_open = |place: &Place| place.key.is_empty() || place.key.ends_with('/');
    match (from, to, recursive) {
        (End::Object(from), End::Object(to), false) => {
            let to = match is_open(&to) {
                true => to.with(format!("{}{}", to.key, from.name())),
                false => to,
            };
            Ok(vec![Copy::Over(from, to)])
        }
        (End::File(from), End::Object(to), false) => {
            if from.is_dir() {
                return Err(Failure::usage(
                    format!("{} is a folder", from.display()),
                    "add --recursive to copy its files",
                ));
            }
            let name = from.file_name().map(|name| name.to_string_lossy().into_owned());
            let to = match is_open(&to) {
                true => to.with(format!("{}{}", to.key, name.unwrap_or_default())),
                false => to,
            };
            Ok(vec![Copy::Up(End::File(from), to)])
        }
        (End::Stream, End::Object(to), false) if is_open(&to) => Err(nameless()),
        (End::Stream, End::Object(to), false) => Ok(vec![Copy::Up(End::Stream, to)]),
        (End::Object(from), to @ (End::File(_) | End::Stream), false) => {
            if from.key.is_empty() {
                return Err(Failure::usage(
                    format!("{from} is a bucket"),
                    "name an object, or add --recursive to copy all that it has",
                ));
            }
            let to = match to {
                End::File(path) if path.is_dir() || path.to_string_lossy().ends_with('/') => {
                    End::File(path.join(from.name()))
                }
                to => to,
            };
            Ok(vec![Copy::Down(from, to)])
        }
        (End::File(from), End::Object(to), true) => {
            let prefix = match is_open(&to) {
                true => to.key.clone(),
                false => format!("{}/", to.key),
            };
            let files = files(&from)?.into_iter();
            let up = |(path, name): (PathBuf, String)| {
                Copy::Up(End::File(path), to.with(format!("{prefix}{name}")))
            };
            Ok(files.map(up).collect())
        }
        (End::Object(from), End::Object(to), true) => {
            let keys = node.keys(&from)?.into_iter();
            let over = |key: String| {
                let rest = key.strip_prefix(&from.key).unwrap_or(&key);
                let to = to.with(format!("{}{rest}", to.key));
                Copy::Over(from.with(key), to)
            };
            Ok(keys.map(over).collect())
        }
        (End::Object(from), End::File(to), true) => {
            let keys = node.keys(&from)?.into_iter();
            keys.map(|key| {
                let rest = key
                    .strip_prefix(&from.key)
                    .unwrap_or(&key)
                    .trim_start_matches('/');
                let path = below(&to, rest).ok_or_else(|| {
                    Failure::local(
                        format!("{} has no place below {}", from.with(key.as_str()), to.display()),
                        "copy this object by itself, to a name of your choice",
                    )
                })?;
                Ok(Copy::Down(from.with(key), End::File(path)))
            })
            .collect()
        }
        (End::Stream, _, true) | (_, End::Stream, true) => Err(Failure::usage(
            "`-` is one object, and --recursive means many".to_owned(),
            "name a folder, or leave out --recursive",
        )),
        (End::File(_) | End::Stream, End::File(_) | End::Stream, _) => Err(Failure::usage(
            "neither end is an object".to_owned(),
            "write one of them as s3://BUCKET/KEY",
        )),
    }
}

/// A key's place below a folder, which no key leaves.
fn below(folder: &Path, rest: &str) -> Option<PathBuf> {
    let parts: Vec<_> = rest.split('/').collect();
    let is_good = |part: &&str| !part.is_empty() && *part != "." && *part != ".." && !part.contains('\0');
    parts.iter().all(is_good).then(|| folder.join(rest))
}

/// The files below a folder, with their names below it.
fn files(folder: &Path) -> Result<Vec<(PathBuf, String)>, Failure> {
    let failed = |path: &Path, error: &io::Error| {
        Failure::local(
            format!("cannot read {}: {error}", path.display()),
            "check that it is a folder that can be read",
        )
    };
    let mut found = Vec::new();
    let mut folders = vec![(folder.to_owned(), String::new())];
    while let Some((path, name)) = folders.pop() {
        let entries = fs::read_dir(&path).map_err(|error| failed(&path, &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| failed(&path, &error))?;
            let (path, name) = (
                entry.path(),
                format!("{name}{}", entry.file_name().to_string_lossy()),
            );
            let kind = fs::metadata(&path).map_err(|error| failed(&path, &error))?;
            match kind.is_dir() {
                true => folders.push((path, format!("{name}/"))),
                false => found.push((path, name)),
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// The node whose S3 is asked.
struct Node<'a> {
    client: &'a Client,
}

impl Node<'_> {
    fn ask(&self, method: Method, path: &str, headers: &[(HeaderName, String)]) -> Result<(), Failure> {
        let asked = self.client.control(method, path, headers, ());
        asked.map(drop).map_err(answers::refusal)
    }

    /// A document.
    fn read(&self, path: &str) -> Result<String, Failure> {
        let (attempt, mut response) = self.client.fetch(path).map_err(answers::refusal)?;
        response
            .body_mut()
            .read_to_string()
            .map_err(|error| Failure::Foreign {
                attempt,
                reason: error.to_string(),
            })
    }

    /// What is below a prefix: up to the next slash, or all of it.
    fn list(&self, place: &Place, recursive: bool) -> Result<Vec<Entry>, Failure> {
        let mut all = Vec::new();
        let mut token = String::new();
        loop {
            let delimiter = if recursive { "" } else { "&delimiter=%2F" };
            let path = format!(
                "/v1/s3/{}?list-type=2&encoding-type=url&prefix={}{delimiter}{token}",
                encoded(&place.bucket),
                encoded(&place.key)
            );
            let Listed { entries, next } = answers::list(&self.read(&path)?)?;
            all.extend(entries);
            match next {
                Some(next) => token = format!("&continuation-token={}", encoded(&next).replace('/', "%2F")),
                None => return Ok(all),
            }
        }
    }

    fn keys(&self, place: &Place) -> Result<Vec<String>, Failure> {
        let entries = self.list(place, true)?.into_iter();
        let key = |entry| match entry {
            Entry::Object { key, .. } => Some(key),
            Entry::Prefix(_) => None,
        };
        Ok(entries.filter_map(key).collect())
    }

    fn copy(&self, copy: &Copy, content_type: Option<&str>) -> Result<(), Failure> {
        match copy {
            Copy::Up(End::File(path), to) => self.upload(path, to, content_type),
            Copy::Up(_, to) => self.pass(to, content_type),
            Copy::Down(from, End::File(path)) => self.download(from, path),
            Copy::Down(from, _) => {
                let (attempt, response) = self.client.fetch(&from.path()).map_err(answers::refusal)?;
                let mut body = response.into_body().into_reader();
                copy_to(&mut body, &mut io::stdout().lock(), &attempt, Failure::Output)
            }
            Copy::Over(from, to) => {
                let source = format!("/{}/{}", encoded(&from.bucket), encoded(&from.key));
                let headers = [(HeaderName::from_static("x-amz-copy-source"), source)];
                self.ask(Method::PUT, &to.path(), &headers)
            }
        }
    }

    fn upload(&self, path: &Path, to: &Place, content_type: Option<&str>) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            Failure::local(
                format!("cannot read {}: {error}", path.display()),
                "check that it is a file that can be read",
            )
        };
        let file = File::open(path).map_err(failed)?;
        let length = file.metadata().map_err(failed)?.len();
        let bar = bytes_bar(&format!("upload {}", to.name()), length);
        // No more than it had when it was opened: that is what was promised.
        let mut reader = bar.wrap_read(file).take(length);
        let sent = self.send(to, &mut reader, length, content_type);
        bar.finish_and_clear();
        sent
    }

    /// Standard input, whose length is known once it is all there: it waits in a file.
    fn pass(&self, to: &Place, content_type: Option<&str>) -> Result<(), Failure> {
        let kept = tempfile::tempfile().and_then(|mut file| {
            let length = io::copy(&mut io::stdin().lock(), &mut file)?;
            io::Seek::rewind(&mut file)?;
            Ok((file, length))
        });
        let (mut file, length) = kept.map_err(|error| {
            Failure::local(
                format!("cannot keep standard input until it is sent: {error}"),
                "check that there is room in TMPDIR",
            )
        })?;
        self.send(to, &mut file, length, content_type)
    }

    fn send(
        &self,
        to: &Place,
        body: &mut impl Read,
        length: u64,
        content_type: Option<&str>,
    ) -> Result<(), Failure> {
        let mut headers = vec![(header::CONTENT_LENGTH, length.to_string())];
        headers.extend(content_type.map(|kind| (header::CONTENT_TYPE, kind.to_owned())));
        let sent = self
            .client
            .control(Method::PUT, &to.path(), &headers, SendBody::from_reader(body));
        sent.map(drop).map_err(answers::refusal)
    }

    /// The file is there once it is whole.
    fn download(&self, from: &Place, path: &Path) -> Result<(), Failure> {
        let failed = |error: io::Error| {
            Failure::local(
                format!("cannot write {}: {error}", path.display()),
                "check that the folder can be written to, and has room",
            )
        };
        let (attempt, response) = self.client.fetch(&from.path()).map_err(answers::refusal)?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        fs::create_dir_all(folder).map_err(failed)?;
        let mut file = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .map_err(failed)?;
        let length = response.body().content_length();
        let bar = bytes_bar(&format!("download {}", from.name()), length.unwrap_or_default());
        let mut body = bar.wrap_read(response.into_body().into_reader());
        let copied = copy_to(&mut body, &mut file, &attempt, failed);
        bar.finish_and_clear();
        copied?;
        file.persist(path).map_err(|error| failed(error.error))?;
        Ok(())
    }
}

/// What breaks off is the node's fault, what cannot be written is not.
fn copy_to(
    from: &mut impl Read,
    to: &mut impl io::Write,
    attempt: &str,
    unwritten: impl Fn(io::Error) -> Failure,
) -> Result<(), Failure> {
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = from.read(&mut buffer).map_err(|error| Failure::Foreign {
            attempt: attempt.to_owned(),
            reason: format!("the object breaks off: {error}"),
        })?;
        if count == 0 {
            return to.flush().map_err(unwritten);
        }
        to.write_all(&buffer[..count]).map_err(&unwritten)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_written() {
        let place: Place = "s3://photos/in/ä b.jpg".parse().unwrap();
        assert_eq!((place.bucket.as_str(), place.name()), ("photos", "ä b.jpg"));
        assert_eq!(place.path(), "/v1/s3/photos/in/%C3%A4%20b.jpg");
        assert_eq!(place.to_string(), "s3://photos/in/ä b.jpg");
        assert_eq!("s3://photos".parse::<Place>().unwrap().path(), "/v1/s3/photos");
        for wrong in ["photos/a", "s3://", "s3:///a"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_key_leaves_its_folder() {
        let folder = Path::new("here");
        assert_eq!(below(folder, "a/b"), Some("here/a/b".into()));
        for wrong in ["", "..", "../a", "a/../b", "a//b", "./a", "a/", "/a"] {
            assert_eq!(below(folder, wrong), None, "{wrong}");
        }
    }
}
