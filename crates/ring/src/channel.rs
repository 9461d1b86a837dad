//! The channel between the host and one guest: messages of a fixed size both ways, and room for what is larger.
//!
//! It lies in memory that the two share and nobody else has. A guest may write anything there at any time, so the host reads each field once,
//! checks what it read, and keeps for itself what only it may change. An index that cannot be makes the channel [`Corrupt`], and it stays so:
//! the host ends such a guest.
//!
//! # Where things are
//!
//! With S slots in each ring, a power of two up to [`MOST_SLOTS`]; numbers are the machine's own:
//!
//! | offset | bytes | what | who writes |
//! |---|---|---|---|
//! | 0 | 8 | [`MAGIC`] | the host, before it shares the memory |
//! | 8 | 4 | [`VERSION`] | the same |
//! | 12 | 4 | S | the same |
//! | 64 | 4 | to the guest: tail, the index of the next message to be sent | the host |
//! | 128 | 4 | to the guest: head, the index of the next message to be received | the guest |
//! | 192 | 4 | to the guest: sleeping | the guest sets and clears, the host clears |
//! | 256 | 4 | to the host: tail | the guest |
//! | 320 | 4 | to the host: head | the host |
//! | 384 | 4 | to the host: sleeping | the host sets and clears, the guest clears |
//! | 448 | 64 S | slots to the guest, eight words of 64 bits each | the host |
//! | 448 + 64 S | 64 S | slots to the host | the guest |
//! | 448 + 128 S | what is left | bulk: whatever messages speak of, by [`Place`] | as they agree |
//!
//! A slot's number is what remains of its index. All that is not said is 0 and left alone.
//!
//! # Doorbells
//!
//! Who finds nothing to [receive](End::receive) calls [`sleep`](End::sleep), and if that allows it waits for its doorbell. Who
//! [sends](End::send) rings the other's if [told to](Sent::must_ring). Whoever is awake for any reason receives until there is nothing more.
//! A guest can send for ever, so a host receives so many at a time, and then comes back by itself: it did not say that it sleeps.
//!
//! A full ring has no doorbell. Who sends more than fits waits for a message that says that others were received; so whoever asks for answers
//! asks for no more at a time than there are slots, and no answer finds its ring full.

mod place;
pub(crate) mod ring;
#[cfg(all(test, feature = "std"))]
mod tests;

pub use place::{Misfit, Place};

use crate::sync::{AtomicU32, AtomicU64, Ordering, WORDS};
use core::{
    error, fmt,
    mem::{align_of, offset_of, size_of},
    ops::Range,
    ptr::NonNull,
};
use ring::{Consumer, Indices, Line, Producer, Ring, Slot};

/// At the beginning: `millpond`, as bytes of a little-endian machine.
pub const MAGIC: u64 = u64::from_le_bytes(*b"millpond");

/// Of the layout.
pub const VERSION: u32 = 1;

/// In each ring.
pub const MOST_SLOTS: u32 = 1 << 16;

/// What it means is between the two.
pub type Message = [u64; WORDS];

/// What lies before the slots.
#[repr(C)]
struct Header {
    identity: Line<Identity>,
    to_guest: Indices,
    to_host: Indices,
}

#[repr(C)]
struct Identity {
    magic: AtomicU64,
    version: AtomicU32,
    slots: AtomicU32,
}

/// The header's bytes.
pub const HEADER: usize = size_of::<Header>();

// The table above.
const _: () = {
    assert!(offset_of!(Identity, version) == 8 && offset_of!(Identity, slots) == 12);
    assert!(offset_of!(Header, to_guest) == 64 && offset_of!(Header, to_host) == 256);
    assert!(offset_of!(Indices, head) == 64 && offset_of!(Indices, sleeping) == 128);
    assert!(HEADER == 448 && size_of::<Slot>() == 64);
    assert!(align_of::<Header>() == 64 && align_of::<Slot>() == 64);
};

/// How many slots a channel has, in how many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    slots: u32,
    size: usize,
}

impl Layout {
    /// # Errors
    /// So many slots are no power of two or too many, or do not fit.
    pub const fn new(slots: u32, size: usize) -> Result<Self, Unfit> {
        if !slots.is_power_of_two() || slots > MOST_SLOTS {
            return Err(Unfit::Slots(slots));
        }
        let layout = Self { slots, size };
        if layout.bulk().start > size {
            return Err(Unfit::Size {
                size,
                needed: layout.bulk().start,
            });
        }
        Ok(layout)
    }

    /// In each ring.
    pub const fn slots(&self) -> u32 {
        self.slots
    }

    /// Of all of the memory.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Where bulk lies.
    pub const fn bulk(&self) -> Range<usize> {
        HEADER + 2 * self.slots as usize * size_of::<Slot>()..self.size
    }

    /// What lies at the beginning of the memory before it is shared.
    pub fn header(&self) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        header[8..12].copy_from_slice(&VERSION.to_ne_bytes());
        header[12..16].copy_from_slice(&self.slots.to_ne_bytes());
        header
    }

    /// `None` unless all of it is bulk.
    pub fn place(&self, offset: u64, length: u64) -> Option<Place> {
        Place::new(self, offset, length)
    }
}

/// One end of a channel.
///
/// What a host has is [`HostEnd`](crate::HostEnd), which owns the memory, too.
pub struct End {
    start: NonNull<u8>,
    layout: Layout,
    producer: Producer,
    consumer: Consumer,
    corrupt: bool,
}

// SAFETY: what it points to is no thread's own: by `host` and `guest` it is there as long as the end is, and nobody else in the process
// accesses it but by atomics.
unsafe impl Send for End {}
// SAFETY: as above; a shared end only reads bulk.
unsafe impl Sync for End {}

impl End {
    /// The host's.
    ///
    /// # Errors
    /// The memory is not aligned to 64 bytes.
    ///
    /// # Safety
    /// - `start` is memory of `layout`'s size that can be read and written as long as this end is used.
    /// - It began with [`Layout::header`] when it was shared, and there was no other host's end since.
    /// - In this process, others access it by atomics only, or through another mapping of it.
    pub unsafe fn host(start: NonNull<u8>, layout: Layout) -> Result<Self, Unfit> {
        let header = aligned(start)?;
        // SAFETY: as this function's.
        let [to_guest, to_host] = unsafe { rings(header, layout) };
        Ok(Self {
            start,
            layout,
            producer: Producer::new(to_guest, 0),
            consumer: Consumer::new(to_host, 0),
            corrupt: false,
        })
    }

    /// The guest's.
    ///
    /// # Errors
    /// There is no channel of this version in it, or it is not aligned to 64 bytes.
    ///
    /// # Safety
    /// - `start` is memory of `size` bytes that can be read and written as long as this end is used.
    /// - There was no other guest's end in it.
    /// - In this process, others access it by atomics only, or through another mapping of it; but who has [`End::pointer`] may do with that
    ///   place as it likes while the end is not asked to copy it.
    pub unsafe fn guest(start: NonNull<u8>, size: usize) -> Result<Self, Unfit> {
        let header = aligned(start)?;
        if size < HEADER {
            return Err(Unfit::Size { size, needed: HEADER });
        }
        // SAFETY: it is aligned and in the memory, and its fields are atomics.
        let identity = unsafe { &(*header.as_ptr()).identity.0 };
        let magic = identity.magic.load(Ordering::Relaxed);
        if magic != MAGIC {
            return Err(Unfit::Magic(magic));
        }
        let version = identity.version.load(Ordering::Relaxed);
        if version != VERSION {
            return Err(Unfit::Version(version));
        }
        let layout = Layout::new(identity.slots.load(Ordering::Relaxed), size)?;
        // SAFETY: as this function's.
        let [to_guest, to_host] = unsafe { rings(header, layout) };
        Ok(Self {
            start,
            layout,
            producer: Producer::new(to_host, 0),
            consumer: Consumer::new(to_guest, 0),
            corrupt: false,
        })
    }

    /// Sends.
    ///
    /// # Errors
    /// The ring is full, and the message comes back; or the channel is corrupt.
    pub fn send(&mut self, message: Message) -> Result<Sent, SendError> {
        let sent = self.unless_corrupt(|end| end.producer.send(&message))?;
        sent.ok_or(SendError::Full(message))
    }

    /// The next message, if there is one.
    ///
    /// # Errors
    /// The channel is corrupt.
    pub fn receive(&mut self) -> Result<Option<Message>, Corrupt> {
        self.unless_corrupt(|end| end.consumer.receive())
    }

    /// Before this end waits for its doorbell: whether it may, as there is nothing to receive.
    ///
    /// # Errors
    /// The channel is corrupt.
    pub fn sleep(&mut self) -> Result<bool, Corrupt> {
        self.unless_corrupt(|end| end.consumer.sleep())
    }

    /// This end was woken by something else, and wants no doorbell.
    pub fn wake(&mut self) {
        self.consumer.wake();
    }

    fn unless_corrupt<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, Corrupt>) -> Result<T, Corrupt> {
        if self.corrupt {
            return Err(Corrupt);
        }
        let outcome = act(self);
        self.corrupt = outcome.is_err();
        outcome
    }

    /// How the memory is laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Copies what is at a place. The bytes may be of several moments; what was copied does not change any more.
    ///
    /// # Errors
    /// The place is another channel's, or not of that length.
    pub fn copy_out(&self, place: Place, to: &mut [u8]) -> Result<(), Misfit> {
        let from = self
            .pointer(place)
            .filter(|_| to.len() == place.len())
            .ok_or(Misfit)?;
        // SAFETY: `pointer` and the comparison say that both are of that length, and no slice lies in shared memory.
        unsafe { place::copy(from.as_ptr(), to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    /// Copies to a place.
    ///
    /// # Errors
    /// The place is another channel's, or not of that length.
    pub fn copy_in(&mut self, place: Place, from: &[u8]) -> Result<(), Misfit> {
        let to = self
            .pointer(place)
            .filter(|_| from.len() == place.len())
            .ok_or(Misfit)?;
        // SAFETY: as above, and nobody else in this process copies, since the end is borrowed.
        unsafe { place::copy(from.as_ptr(), to.as_ptr(), from.len()) };
        Ok(())
    }

    /// Where a place is, for work in it. `None` if it is another channel's.
    pub fn pointer(&self, place: Place) -> Option<NonNull<u8>> {
        // Of a smaller channel, it would be outside.
        let range = place.range();
        let bulk = self.layout.bulk();
        let inside = bulk.start <= range.start && range.end <= bulk.end;
        // SAFETY: by `host` and `guest` the memory is there up to the bulk's end.
        inside.then(|| unsafe { self.start.add(range.start) })
    }
}

fn aligned(start: NonNull<u8>) -> Result<NonNull<Header>, Unfit> {
    let header = start.cast::<Header>();
    if !header.is_aligned() {
        return Err(Unfit::Alignment);
    }
    Ok(header)
}

/// To the guest, and to the host.
///
/// # Safety
/// At the header's address are `layout.size()` bytes, for which the rest of [`Ring::new`] holds.
unsafe fn rings(header: NonNull<Header>, layout: Layout) -> [Ring; 2] {
    let slots = layout.slots;
    // SAFETY: `Layout::new` checked that the header and all slots are in the memory and that they are a power of two; they are aligned
    // since the header is.
    unsafe {
        let to_guest = &raw mut (*header.as_ptr()).to_guest;
        let to_host = &raw mut (*header.as_ptr()).to_host;
        let first = header.add(1).cast::<Slot>();
        [
            Ring::new(NonNull::new_unchecked(to_guest), first, slots),
            Ring::new(NonNull::new_unchecked(to_host), first.add(slots as usize), slots),
        ]
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End")
            .field("layout", &self.layout)
            .field("corrupt", &self.corrupt)
            .finish_non_exhaustive()
    }
}

/// A message is there for the other end.
#[must_use = "the other end may be asleep"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The other end waits, and only its doorbell wakes it.
    pub must_ring: bool,
}

/// The other end wrote what no end of a channel writes. There is no more to expect of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the channel is corrupt: its other end wrote an index that cannot be")
    }
}

impl error::Error for Corrupt {}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The other end has to receive first. This is the message.
    Full(Message),
    /// See [`Corrupt`].
    Corrupt,
}

impl From<Corrupt> for SendError {
    fn from(Corrupt: Corrupt) -> Self {
        Self::Corrupt
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(_) => f.write_str("the channel's ring is full: its other end has to receive first"),
            Self::Corrupt => Corrupt.fmt(f),
        }
    }
}

impl error::Error for SendError {}

/// Why memory is no channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// So many slots are no power of two, or more than [`MOST_SLOTS`].
    Slots(u32),
    /// The memory has fewer bytes than header and slots need.
    Size {
        /// What it has.
        size: usize,
        /// What they need.
        needed: usize,
    },
    /// It begins with this, and not with [`MAGIC`].
    Magic(u64),
    /// The layout is this version's.
    Version(u32),
    /// It does not begin at a multiple of 64.
    Alignment,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the memory cannot be a channel: ")?;
        match self {
            Self::Slots(slots) => write!(f, "{slots} slots are not a power of two up to {MOST_SLOTS}"),
            Self::Size { size, needed } => write!(f, "it has {size} bytes, and {needed} are needed"),
            Self::Magic(magic) => write!(f, "it begins with {magic:#x}, not with {MAGIC:#x}"),
            Self::Version(version) => write!(f, "its version is {version}, not {VERSION}"),
            Self::Alignment => f.write_str("it does not begin at a multiple of 64"),
        }
    }
}

impl error::Error for Unfit {}
