//! Error numbers.

/// What a function answers its guest: 0 for success, or why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct Errno(pub u16);

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $number:literal;)*) => {
        impl Errno {
            $($(#[$doc])* pub const $name: Self = Self($number);)*
        }
    };
}

errnos! {
    /// It was done.
    SUCCESS = 0;
    /// Not an open descriptor.
    BADF = 8;
    /// A pointer outside of the guest's memory.
    FAULT = 21;
    /// An argument that makes no sense.
    INVAL = 28;
    /// Not a directory.
    NOTDIR = 54;
    /// Not a socket.
    NOTSOCK = 57;
    /// Not offered here.
    NOTSUP = 58;
    /// A number that does not fit.
    OVERFLOW = 61;
    /// A stream has no positions.
    SPIPE = 70;
    /// A right that the descriptor does not carry.
    NOTCAPABLE = 76;
}

impl From<Errno> for i32 {
    /// As a guest receives it.
    fn from(errno: Errno) -> Self {
        Self::from(errno.0)
    }
}
