//! The embedded S3 of a node: its key, its address, and the calls that its new objects make.

use crate::{objects::S3Options, wanted::Wanted};
use axum::{
    body::{Body, HttpBody as _},
    http::{Request, Response, StatusCode},
};
use calls::{CallId, SubmitError, Timestamp};
use gateway::{Later, events::Cause};
use registry::{Permits, Snapshot};
use std::{
    fs::{self, File},
    future::Future,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use store_objects::{Created, Key, Objects, Options, Owner};
use tokio::{
    runtime::{Builder, Handle, Runtime},
    sync::oneshot,
};
use triggers::Object;

/// Threads that receive, check and send objects; what waits for the disk has others.
const THREADS: usize = 2;

/// Events that become calls at a time.
const EVENTS: usize = 64;

/// Before it is tried again to make calls of events.
const RETRY: Duration = Duration::from_secs(1);

/// The file with its key, in the node's folder.
const CREDENTIALS: &str = "s3-credentials";

/// An S3 in a node. It ends when it is dropped, after the requests that are under way.
pub(crate) struct Embedded {
    objects: Objects,
    region: String,
    address: SocketAddr,
    credentials: PathBuf,
    wanted: Wanted,
    end: Option<oneshot::Sender<()>>,
    served: Option<oneshot::Receiver<()>>,
    /// `None` only while dropping.
    runtime: Option<Runtime>,
}

impl Embedded {
    /// Opens the objects in the node's folder, and serves them at this address from now on. The first time, a key is made.
    pub(crate) fn start(data: &Path, address: SocketAddr, region: &str) -> Result<Self, String> {
        let credentials = data.join(CREDENTIALS);
        let key = key(&credentials)
            .map_err(|error| format!("the key of the embedded S3, {}: {error}", credentials.display()))?;
        let wanted = Wanted::default();
        let known = wanted.clone();
        let options = Options {
            region: region.to_owned(),
            wanted: Some(Arc::new(move |created: &Created| {
                known.has(&created.bucket, &created.key)
            })),
            ..Options::default()
        };
        let objects = Objects::open(&data.join("objects"), options).map_err(|error| error.to_string())?;
        let listening = |error: io::Error| {
            format!("the embedded S3 cannot listen on {address}: {error}; set another `embedded`")
        };
        let listener = TcpListener::bind(address).map_err(listening)?;
        listener.set_nonblocking(true).map_err(listening)?;
        let address = listener.local_addr().map_err(listening)?;
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("objects")
            .enable_all()
            .build()
            .map_err(|error| format!("the threads of the embedded S3 cannot be started: {error}"))?;
        let (end, ending) = oneshot::channel::<()>();
        let (done, served) = oneshot::channel();
        let serving = objects.clone();
        runtime.spawn(async move {
            let served = async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let ending = async {
                    let _ = ending.await;
                };
                serving
                    .serve(listener, [key], ending)
                    .await
                    .map_err(io::Error::other)
            };
            if let Err(error) = served.await {
                tracing::error!(%error, "the embedded S3 has ended");
            }
            drop(serving);
            let _ = done.send(());
        });
        Ok(Self {
            objects,
            region: region.to_owned(),
            address,
            credentials,
            wanted,
            end: Some(end),
            served: Some(served),
            runtime: Some(runtime),
        })
    }

    /// Where it is.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How the backend finds it.
    pub(crate) fn options(&self, given: &S3Options) -> S3Options {
        S3Options {
            endpoint: Some(format!("http://{}", reached(self.address))),
            credentials_file: Some(self.credentials.clone()),
            embedded: None,
            ..given.clone()
        }
    }

    /// For the control API.
    pub(crate) fn owner(&self) -> Arc<dyn admin::Objects> {
        let runtime = self.runtime.as_ref().map(|runtime| runtime.handle().clone());
        Arc::new(ForOperator {
            owner: self.objects.owner(),
            runtime: runtime.unwrap_or_else(Handle::current),
        })
    }

    /// Learns, from each snapshot that it is told, which objects make functions run.
    pub(crate) fn learner(&self, permits: Arc<Permits>) -> impl Fn(&Arc<Snapshot>) + Send + 'static {
        let wanted = self.wanted.clone();
        move |snapshot| wanted.learn(snapshot, &permits)
    }

    /// Makes calls of new objects from now on.
    pub(crate) fn tell(&self, later: Later) {
        let teller = Teller {
            objects: self.objects.clone(),
            region: self.region.clone(),
            wanted: self.wanted.clone(),
            later,
        };
        if let Some(runtime) = &self.runtime {
            runtime.spawn(teller.run());
        }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        drop(self.end.take());
        if let (Some(runtime), Some(served)) = (self.runtime.take(), self.served.take()) {
            // It is told when the server has gone, whatever became of it.
            let _ = runtime.block_on(served);
            // What still waits for events has nothing to lose.
            runtime.shutdown_background();
        }
    }
}

/// A server on every address is reached on this machine's own.
fn reached(address: SocketAddr) -> SocketAddr {
    let mut reached = address;
    if address.ip().is_unspecified() {
        reached.set_ip(match address {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    reached
}

/// Requests of the control API. They run where the objects do: many of them hold up no other operation.
struct ForOperator {
    owner: Owner,
    runtime: Handle,
}

impl admin::Objects for ForOperator {
    fn answer(&self, request: Request<Body>) -> Pin<Box<dyn Future<Output = Response<Body>> + Send>> {
        let owner = self.owner.clone();
        let request = request.map(|body| match body.size_hint().exact() {
            Some(0) => store_objects::Body::empty(),
            _ => store_objects::Body::http_body_unsync(body),
        });
        let answer = self.runtime.spawn(async move { owner.answer(request).await });
        Box::pin(async move {
            match answer.await {
                Ok(response) => response.map(Body::new),
                Err(error) => {
                    tracing::error!(%error, "a request of the operator to the embedded S3 has no answer");
                    let mut response = Response::new(Body::empty());
                    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                    response
                }
            }
        })
    }
}

/// Makes calls of new objects. An object's calls are known by it: whoever crashes between the acceptance of the calls and
/// the note that the object was told of tells again, and calls refuse an id that they know.
struct Teller {
    objects: Objects,
    region: String,
    wanted: Wanted,
    later: Later,
}

impl Teller {
    async fn run(self) {
        loop {
            if let Err(reason) = self.tell().await {
                tracing::warn!(
                    reason,
                    "new objects wait to make functions run; it is tried again"
                );
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    async fn tell(&self) -> Result<(), String> {
        let events = self.objects.events(EVENTS).await;
        let events = events.map_err(|error| error.to_string())?;
        let calls: Vec<_> = events
            .iter()
            .flat_map(|(number, created)| self.calls(*number, created))
            .collect();
        if !calls.is_empty() {
            let later = self.later.clone();
            let submit = move || later.calls.submit_all(&calls, now());
            let submitted = tokio::task::spawn_blocking(submit).await;
            submitted
                .map_err(|error| error.to_string())?
                .map_err(|error: SubmitError| error.to_string())?;
        }
        let last = events.last().map_or(0, |(number, _)| *number);
        self.objects.told(last).await.map_err(|error| error.to_string())
    }

    fn calls(&self, number: u64, new: &Created) -> Vec<(CallId, calls::Request)> {
        // Objects of a folder that was replaced have the same numbers.
        let place = format!("{}/{}/{}", new.bucket, new.key, new.modified);
        let object = Object {
            region: &self.region,
            bucket: &new.bucket,
            key: &new.key,
            size: new.size,
            etag: &new.etag,
            how: new.event.name(),
            at: new.modified,
            sequencer: number,
        };
        self.wanted
            .calls(&self.later, Cause::Object(&place, number), &object)
    }
}

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Reads the key, or makes one. The file has the form of AWS's `credentials`, so that its tools read it, too.
fn key(path: &Path) -> io::Result<Key> {
    match File::open(path) {
        Ok(mut file) => {
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            read_key(&text).ok_or_else(|| {
                io::Error::other("it does not hold `aws_access_key_id` and `aws_secret_access_key`: delete it, and another is made")
            })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_key(path),
        Err(error) => Err(error),
    }
}

fn read_key(text: &str) -> Option<Key> {
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        let (_, value) = lines.find(|(key, _)| key.trim() == name)?;
        Some(value.trim().to_owned()).filter(|value| !value.is_empty())
    };
    Some(Key {
        access: value("aws_access_key_id")?,
        secret: value("aws_secret_access_key")?,
    })
}

fn make_key(path: &Path) -> io::Result<Key> {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut random = [0; 20 + 40];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    let text: String = random
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 32)]))
        .collect();
    let (access, secret) = text.split_at(20);
    let draft = path.with_extension("new");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)?;
    write!(
        file,
        "[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n"
    )?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    Ok(Key {
        access: access.to_owned(),
        secret: secret.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(CREDENTIALS);
        let made = key(&path).unwrap();
        let read = key(&path).unwrap();
        assert_eq!((&made.access, &made.secret), (&read.access, &read.secret));
        assert_eq!((made.access.len(), made.secret.len()), (20, 40));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let other = key(&folder.path().join("other")).unwrap();
        assert_ne!(other.secret, made.secret);
        fs::write(&path, "[default]\naws_access_key_id = A\n").unwrap();
        assert!(key(&path).unwrap_err().to_string().contains("delete it"));
    }
}
