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
    /// There is one of this name.
    EXIST = 20;
    /// A pointer outside of the guest's memory.
    FAULT = 21;
    /// An argument that makes no sense.
    INVAL = 28;
    /// A directory.
    ISDIR = 31;
    /// Too many descriptors.
    MFILE = 33;
    /// A name that is too long.
    NAMETOOLONG = 37;
    /// There is none of this name.
    NOENT = 44;
    /// No room.
    NOSPC = 51;
    /// Not a directory.
    NOTDIR = 54;
    /// A directory that has something in it.
    NOTEMPTY = 55;
    /// Not a socket.
    NOTSOCK = 57;
    /// Not offered here.
    NOTSUP = 58;
    /// A number that does not fit.
    OVERFLOW = 61;
    /// What cannot be changed.
    ROFS = 69;
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
