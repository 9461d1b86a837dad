//! See [`HostEnd`].

use crate::{
    Region, Shared,
    channel::{Corrupt, End, HEADER, Layout, Message, Misfit, Place, SendError, Sent, Unfit},
    pages::Pages,
};

/// The host's end of a channel, and the memory that it is in.
///
/// It gives out no [`End`] of its own, which would point to another's memory if it were exchanged.
#[derive(Debug)]
pub struct HostEnd {
    end: End,
    pages: Pages,
    shared: Shared,
}

impl HostEnd {
    /// A channel with so many slots in each ring, in all of a region. From here on a sandbox may have it.
    ///
    /// # Errors
    /// So many slots are no power of two or too many, or do not fit.
    pub fn new(mut region: Region, slots: u32) -> Result<Self, Unfit> {
        let layout = Layout::new(slots, region.bytes().len())?;
        // The layout says that it fits.
        if let Some(header) = region.bytes_mut().first_chunk_mut::<HEADER>() {
            *header = layout.header();
        }
        let shared = region.share();
        // SAFETY: the memory is mapped as long as `shared` is there, which is as long as this end is; the header was just written. Nothing
        // in this process but `end` has this mapping's address.
        let end = unsafe { End::host(shared.start(), layout) }?;
        Ok(Self {
            end,
            pages: Pages::default(),
            shared,
        })
    }

    /// What the guest maps.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The channel has ended, and its memory is left, for [`Shared::reclaim`].
    pub fn into_shared(self) -> Shared {
        self.shared
    }

    /// How the memory is laid out.
    pub fn layout(&self) -> &Layout {
        self.end.layout()
    }

    /// [`End::send`].
    ///
    /// # Errors
    /// The same.
    pub fn send(&mut self, message: Message) -> Result<Sent, SendError> {
        self.end.send(message)
    }

    /// [`End::receive`].
    ///
    /// # Errors
    /// The same.
    pub fn receive(&mut self) -> Result<Option<Message>, Corrupt> {
        self.end.receive()
    }

    /// [`End::sleep`].
    ///
    /// # Errors
    /// The same.
    pub fn sleep(&mut self) -> Result<bool, Corrupt> {
        self.end.sleep()
    }

    /// [`End::wake`].
    pub fn wake(&mut self) {
        self.end.wake();
    }

    /// [`End::copy_out`].
    ///
    /// # Errors
    /// The same.
    pub fn copy_out(&self, place: Place, to: &mut [u8]) -> Result<(), Misfit> {
        self.end.copy_out(place, to)
    }

    /// [`End::copy_in`].
    ///
    /// # Errors
    /// The same.
    pub fn copy_in(&mut self, place: Place, from: &[u8]) -> Result<(), Misfit> {
        self.pages.copy_in(&mut self.end, self.shared.file(), place, from)
    }
}
