//! The thread that listens to all zygotes, and to guests that answer.

use super::zygote::Zygote;
use parking_lot::Mutex;
use rustix::{event::epoll, io::Errno};
use std::{
    collections::HashMap,
    io,
    os::fd::{AsRawFd as _, OwnedFd},
    sync::{Arc, Weak},
    task::Waker,
    thread,
};

/// What the listener does when there is something to be read.
#[derive(Clone)]
enum Heard {
    Zygote(Weak<Zygote>),
    Answer(Arc<Mutex<Waker>>),
}

/// See [`super::Host::listen_to`]. It goes before the socket does.
pub(crate) struct Listening {
    listener: Arc<Listener>,
    key: u64,
    waker: Arc<Mutex<Waker>>,
}

impl Listening {
    /// Has this waker woken from now on.
    pub(crate) fn wakes(&self, waker: &Waker) {
        self.waker.lock().clone_from(waker);
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // The kernel forgets the socket with its last descriptor.
        self.listener.heard.lock().remove(&self.key);
    }
}

/// Listens to all zygotes, and to guests that answer.
pub(super) struct Listener {
    epoll: OwnedFd,
    /// By their sockets.
    heard: Mutex<HashMap<u64, Heard>>,
}

impl Listener {
    /// One with a thread of its own.
    pub(super) fn start() -> io::Result<Arc<Self>> {
        let this = Arc::new(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            heard: Mutex::default(),
        });
        let listening = this.clone();
        thread::Builder::new()
            .name("processes".to_owned())
            .spawn(move || listening.listen())?;
        Ok(this)
    }

    /// Has this waker woken when there is something to be read from a socket.
    pub(super) fn answer(self: &Arc<Self>, socket: &OwnedFd, waker: &Waker) -> io::Result<Listening> {
        let key = socket.as_raw_fd() as u64;
        let waker = Arc::new(Mutex::new(waker.clone()));
        let listening = Listening {
            listener: self.clone(),
            key,
            waker: waker.clone(),
        };
        self.heard.lock().insert(key, Heard::Answer(waker));
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(key), flags)?;
        Ok(listening)
    }

    pub(super) fn add(&self, zygote: &Arc<Zygote>) -> rustix::io::Result<()> {
        let key = zygote.socket().as_raw_fd() as u64;
        let heard = Heard::Zygote(Arc::downgrade(zygote));
        self.heard.lock().insert(key, heard);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(
            &self.epoll,
            zygote.socket(),
            epoll::EventData::new_u64(key),
            flags,
        )
    }

    /// Has those zygotes end that were not used for the longest time, until there are only so many. This one stays, and so do those with guests.
    pub(super) fn retire(&self, most: usize, newest: &Arc<Zygote>) {
        let heard = self.heard.lock();
        let mut others: Vec<_> = heard
            .values()
            .filter_map(|heard| match heard {
                Heard::Zygote(zygote) => zygote.upgrade(),
                Heard::Answer(_) => None,
            })
            .filter(|zygote| !zygote.is_gone() && !Arc::ptr_eq(zygote, newest))
            .collect();
        drop(heard);
        let mut surplus = (others.len() + 1).saturating_sub(most);
        if surplus == 0 {
            return;
        }
        others.sort_by_key(|zygote| zygote.last_used());
        for zygote in others {
            if surplus > 0 && zygote.retire() {
                surplus -= 1;
            }
        }
    }

    fn listen(&self) {
        let mut events = Vec::with_capacity(64);
        let mut buffer = vec![0; 4096];
        loop {
            events.clear();
            match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "nobody listens to processes any more");
                    return;
                }
            }
            for event in &events {
                let key = event.data.u64();
                let known = self.heard.lock().get(&key).cloned();
                let known = match known {
                    Some(Heard::Zygote(zygote)) => zygote,
                    Some(Heard::Answer(waker)) => {
                        waker.lock().wake_by_ref();
                        continue;
                    }
                    None => continue,
                };
                let zygote = known.upgrade();
                let heard = zygote.as_ref().is_some_and(|zygote| zygote.hear(&mut buffer));
                if let (false, Some(zygote)) = (heard, &zygote) {
                    let _ = epoll::delete(&self.epoll, zygote.socket());
                    zygote.lose();
                }
                let mut all = self.heard.lock();
                // The number may be another's by now.
                if !heard && matches!(all.get(&key), Some(Heard::Zygote(other)) if other.ptr_eq(&known)) {
                    all.remove(&key);
                }
            }
        }
    }
}
