//! Sets, items, and what they may be called.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// Items in all sets of one call, at most.
pub const MOST_ITEMS: usize = 1 << 16;

/// Bytes of a name, at most.
pub(crate) const LONGEST_NAME: usize = 255;

/// A named group of items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// As the manifest calls it.
    pub name: String,
    /// In the order in which they were given.
    pub items: Vec<Item>,
}

/// Some bytes with a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// No other item of its set has it. Good for a file: see [`check_name`].
    pub name: String,
    /// By which compositions tell items apart; 0 if nobody said otherwise.
    pub key: u64,
    /// The bytes.
    pub data: Bytes,
}

/// Why something cannot be called so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// It has no characters, or more than 255 bytes.
    #[error("a name has 1 to 255 bytes")]
    Length,
    /// It has a `/` or a control character.
    #[error("a name has no `/` and no control characters")]
    Character,
    /// It is `.` or `..`.
    #[error("`.` and `..` are no names")]
    Dots,
    /// It is not text.
    #[error("a name is UTF-8")]
    NotText,
}

/// Whether a set or an item may be called so: as a file may, since functions may have them as files.
pub fn check_name(name: &str) -> Result<(), BadName> {
    if name.is_empty() || name.len() > LONGEST_NAME {
        return Err(BadName::Length);
    }
    if name.chars().any(|c| c == '/' || c.is_control()) {
        return Err(BadName::Character);
    }
    if name == "." || name == ".." {
        return Err(BadName::Dots);
    }
    Ok(())
}

/// 32 bytes that are equal for equal sets, and for no others: SHA-256 of what they consist of.
pub fn seed(sets: &[Set]) -> [u8; 32] {
    let mut hash = Sha256::new();
    // Each part is preceded by its length: nothing else looks like it.
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    for set in sets {
        part(set.name.as_bytes());
        part(&(set.items.len() as u64).to_le_bytes());
        for item in &set.items {
            part(item.name.as_bytes());
            part(&item.key.to_le_bytes());
            part(&item.data);
        }
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_files() {
        for good in ["a", "..a", "Größe", &"x".repeat(255)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("", BadName::Length),
            (&*"x".repeat(256), BadName::Length),
            ("a/b", BadName::Character),
            ("a\0", BadName::Character),
            ("a\n", BadName::Character),
            (".", BadName::Dots),
            ("..", BadName::Dots),
        ] {
            assert_eq!(check_name(bad), Err(why), "{bad:?}");
        }
    }

    fn set(name: &str, items: &[(&str, u64, &str)]) -> Set {
        let items = items.iter().map(|(name, key, data)| Item {
            name: (*name).to_owned(),
            key: *key,
            data: Bytes::copy_from_slice(data.as_bytes()),
        });
        Set {
            name: name.to_owned(),
            items: items.collect(),
        }
    }

    #[test]
    fn seeds_differ_wherever_sets_do() {
        let one = || vec![set("a", &[("x", 0, "12"), ("y", 0, "3")])];
        let others = [
            vec![],
            vec![set("a", &[("x", 0, "1"), ("y", 0, "23")])],
            vec![set("a", &[("x", 1, "12"), ("y", 0, "3")])],
            vec![set("a", &[("x", 0, "12")]), set("y", &[("", 0, "3")])],
            vec![set("ax", &[("", 0, "12"), ("y", 0, "3")])],
            vec![set("a", &[("x", 0, "12"), ("y", 0, "3")]), set("b", &[])],
        ];
        assert_eq!(seed(&one()), seed(&one()));
        for other in &others {
            assert_ne!(seed(&one()), seed(other), "{other:?}");
        }
    }
}
