//! Messages of the two, as words.

use ring::channel::Message;

/// Which call, by a number of the guest's choice that no other call has that is under way.
pub type Id = u32;

/// Where bytes lie in the channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// From the beginning of the memory.
    pub offset: u64,
    /// In bytes.
    pub length: u64,
}

/// What a guest says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// A call begins.
    Call {
        /// Of this number.
        id: Id,
        /// What is asked.
        head: Span,
        /// The first piece of its body.
        body: Span,
        /// Bytes of all of the body.
        length: u64,
    },
    /// The next piece of the body.
    Piece {
        /// The call.
        id: Id,
        /// Where it is.
        body: Span,
    },
    /// A place of the host's was read and is free.
    Free {
        /// Where it begins.
        offset: u64,
    },
    /// A piece that lies in a [row](Tell::Head) stays where it is, and is not changed, until there is no channel any more.
    Keep {
        /// Where it begins.
        offset: u64,
    },
    /// The call, or the rest of its reply, is not wanted any more. It is the call's last word.
    Drop {
        /// The call.
        id: Id,
    },
}

/// What a host says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
    /// A piece of a body, other than the first, was copied.
    Taken {
        /// The call.
        id: Id,
    },
    /// The reply begins.
    Head {
        /// To this call.
        id: Id,
        /// What it is.
        head: Span,
        /// Bytes of all of the body, if they are known.
        length: Option<u64>,
        /// Where its first byte will be, if its pieces will lie in a row, with [`BEFORE`](crate::BEFORE) and [`BEHIND`](crate::BEHIND) around them, and may
        /// be kept: until the guest has freed one of them.
        row: Option<u64>,
    },
    /// The next piece of its body.
    Piece {
        /// The call.
        id: Id,
        /// Where it is; the last one may be of no length, and then is nowhere.
        body: Span,
        /// Whether it is the last.
        last: bool,
    },
    /// No reply comes, or no more of it.
    Failed {
        /// The call.
        id: Id,
        /// Why.
        reason: Span,
    },
}

const UNKNOWN: u64 = u64::MAX;

/// The header is there.
const NOWHERE: u64 = 0;

impl Ask {
    /// As a message.
    pub fn message(self) -> Message {
        match self {
            Self::Call {
                id,
                head,
                body,
                length,
            } => [
                1,
                id.into(),
                head.offset,
                head.length,
                body.offset,
                body.length,
                length,
                0,
            ],
            Self::Piece { id, body } => [2, id.into(), 0, 0, body.offset, body.length, 0, 0],
            Self::Free { offset } => [3, 0, offset, 0, 0, 0, 0, 0],
            Self::Drop { id } => [4, id.into(), 0, 0, 0, 0, 0, 0],
            Self::Keep { offset } => [5, 0, offset, 0, 0, 0, 0, 0],
        }
    }

    /// Of a message; `None` if it is none of these.
    pub fn read([kind, id, a, b, c, d, length, _]: Message) -> Option<Self> {
        let number = Id::try_from(id).ok()?;
        let (first, second) = (span(a, b), span(c, d));
        match kind {
            1 => Some(Self::Call {
                id: number,
                head: first,
                body: second,
                length,
            }),
            2 => Some(Self::Piece {
                id: number,
                body: second,
            }),
            3 => Some(Self::Free { offset: a }),
            4 => Some(Self::Drop { id: number }),
            5 => Some(Self::Keep { offset: a }),
            _ => None,
        }
    }
}

impl Tell {
    /// As a message.
    pub fn message(self) -> Message {
        match self {
            Self::Taken { id } => [1, id.into(), 0, 0, 0, 0, 0, 0],
            Self::Head {
                id,
                head,
                length,
                row,
            } => [
                2,
                id.into(),
                head.offset,
                head.length,
                length.unwrap_or(UNKNOWN),
                row.unwrap_or(NOWHERE),
                0,
                0,
            ],
            Self::Piece { id, body, last } => [3, id.into(), body.offset, body.length, last.into(), 0, 0, 0],
            Self::Failed { id, reason } => [4, id.into(), reason.offset, reason.length, 0, 0, 0, 0],
        }
    }

    /// Of a message; `None` if it is none of these.
    pub fn read([kind, id, a, b, c, d, ..]: Message) -> Option<Self> {
        let id = Id::try_from(id).ok()?;
        match kind {
            1 => Some(Self::Taken { id }),
            2 => Some(Self::Head {
                id,
                head: span(a, b),
                length: (c != UNKNOWN).then_some(c),
                row: (d != NOWHERE).then_some(d),
            }),
            3 => Some(Self::Piece {
                id,
                body: span(a, b),
                last: c != 0,
            }),
            4 => Some(Self::Failed {
                id,
                reason: span(a, b),
            }),
            _ => None,
        }
    }
}

fn span(offset: u64, length: u64) -> Span {
    Span { offset, length }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_were_meant() {
        let (one, two) = (span(1 << 40, 7), span(3, u64::MAX));
        for ask in [
            Ask::Call {
                id: u32::MAX,
                head: one,
                body: two,
                length: 9,
            },
            Ask::Piece { id: 2, body: one },
            Ask::Free { offset: 5 },
            Ask::Keep { offset: 5 },
            Ask::Drop { id: 0 },
        ] {
            assert_eq!(Ask::read(ask.message()), Some(ask));
        }
        for tell in [
            Tell::Taken { id: 1 },
            Tell::Head {
                id: 1,
                head: one,
                length: None,
                row: None,
            },
            Tell::Head {
                id: 1,
                head: one,
                length: Some(0),
                row: Some(4096),
            },
            Tell::Piece {
                id: 1,
                body: two,
                last: true,
            },
            Tell::Failed { id: 1, reason: one },
        ] {
            assert_eq!(Tell::read(tell.message()), Some(tell));
        }
        for kind in [0, 6, u64::MAX] {
            assert_eq!(Ask::read([kind; 8]), None);
            assert_eq!(Tell::read([kind; 8]), None);
        }
        assert_eq!(Ask::read([4, 1 << 32, 0, 0, 0, 0, 0, 0]), None);
    }
}
