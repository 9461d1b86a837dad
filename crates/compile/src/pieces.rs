//! Pieces: what one compile leaves to the next of the same function.
//!
//! A piece is the machine code of one function of a module, under a key that the compiler makes of all that the code
//! depends on. A program with an interpreter in it has tens of thousands of them, and an edit of what is interpreted
//! changes hardly one: the rest need not be compiled again.
//!
//! Pieces go from one compiler's process to the next as bytes, which the node keeps in a file and never reads. The file
//! may be short, old or damaged: each piece carries a digest, and one that does not match is compiled anew. That guards
//! against accidents. Against malice nothing can guard but where pieces go: who wrote them can choose the code that they
//! become, so they go to the function that they came from and to no other.
//!
//! | bytes | of a file of pieces |
//! |---|---|
//! | 16 | [`MAGIC`] |
//! | 32 | of each piece: its key |
//! | 32 | SHA-256 of its key and its bytes |
//! | 1 | its age: how many compiles ago it was of use |
//! | 4 | its length, little-endian |
//! | … | its bytes |

use sha2::{Digest as _, Sha256};
use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    fmt,
    io::{self, Write},
    ops::Range,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

/// Changes with the format.
const MAGIC: &[u8; 16] = b"millpond pieces1";

/// How many compiles a piece outlives without being of use. More than none: Cranelift makes a few functions' keys also
/// of what it compiled before them (it does not forget their exception tables), so that the same code comes with one
/// key today and another tomorrow.
const OLDEST: u8 = 4;

const HEAD: usize = 32 + 32 + 1 + 4;

type Key = [u8; 32];
type Check = [u8; 32];

/// The pieces of one function of the platform, while one compiler works. Its threads share them.
pub struct Pieces {
    file: Vec<u8>,
    kept: HashMap<Key, Kept>,
    /// Ordered, so that the same pieces make the same file.
    made: Mutex<BTreeMap<Key, Vec<u8>>>,
    reused: AtomicU32,
}

struct Kept {
    check: Check,
    age: u8,
    /// In the file.
    bytes: Range<usize>,
    used: AtomicBool,
}

impl Pieces {
    /// From the content of a file of pieces. Where it stops making sense, it ends.
    pub fn read(file: Vec<u8>) -> Self {
        let mut kept = HashMap::new();
        let mut at = if file.starts_with(MAGIC) {
            MAGIC.len()
        } else {
            file.len()
        };
        while let Some((key, piece)) = read_one(&file, at) {
            at = piece.bytes.end;
            kept.insert(key, piece);
        }
        Self {
            file,
            kept,
            made: Mutex::default(),
            reused: AtomicU32::new(0),
        }
    }

    /// The piece with this key, if it is kept and undamaged, or was made in this compile: many functions are the same.
    pub fn get(&self, key: &[u8]) -> Option<Cow<'_, [u8]>> {
        let key: &Key = key.try_into().ok()?;
        if let Some(kept) = self.kept.get(key) {
            let bytes = self.file.get(kept.bytes.clone())?;
            if check(key, bytes) == kept.check {
                kept.used.store(true, Ordering::Relaxed);
                self.reused.fetch_add(1, Ordering::Relaxed);
                return Some(Cow::Borrowed(bytes));
            }
        }
        self.made().get(key).map(|bytes| Cow::Owned(bytes.clone()))
    }

    /// Keeps a piece that was made; `false` if its key or its length is none that fits.
    pub fn insert(&self, key: &[u8], bytes: Vec<u8>) -> bool {
        let Ok(key) = key.try_into() else { return false };
        if u32::try_from(bytes.len()).is_err() {
            return false;
        }
        self.made().insert(key, bytes);
        true
    }

    /// How many look-ups found a piece of an earlier compile.
    pub fn reused(&self) -> u32 {
        self.reused.load(Ordering::Relaxed)
    }

    /// How many pieces were made in this compile.
    pub fn made_anew(&self) -> u32 {
        u32::try_from(self.made().len()).unwrap_or(u32::MAX)
    }

    /// Writes a file of no more than `most` bytes for the next compile: what this one used or made, then what it did not
    /// need but an earlier one did, the youngest first.
    pub fn write(&self, to: &mut dyn Write, most: u64) -> io::Result<()> {
        let made = self.made();
        let mut left = most.saturating_sub(MAGIC.len() as u64);
        to.write_all(MAGIC)?;
        let mut write = |key: &Key, check: &Check, age: u8, bytes: &[u8]| {
            let size = (HEAD + bytes.len()) as u64;
            let (Some(rest), Ok(length)) = (left.checked_sub(size), u32::try_from(bytes.len())) else {
                return Ok(());
            };
            left = rest;
            to.write_all(key)?;
            to.write_all(check)?;
            to.write_all(&[age])?;
            to.write_all(&length.to_le_bytes())?;
            to.write_all(bytes)
        };
        let mut old: Vec<_> = self
            .kept
            .iter()
            .filter(|(key, _)| !made.contains_key(*key))
            .map(|(key, kept)| {
                let used = kept.used.load(Ordering::Relaxed);
                (if used { 0 } else { kept.age.saturating_add(1) }, key, kept)
            })
            .filter(|(age, ..)| *age <= OLDEST)
            .collect();
        old.sort_unstable_by_key(|(age, key, _)| (*age, *key));
        let unused = old.partition_point(|(age, ..)| *age == 0);
        for (age, key, kept) in &old[..unused] {
            write(key, &kept.check, *age, &self.file[kept.bytes.clone()])?;
        }
        for (key, bytes) in &*made {
            write(key, &check(key, bytes), 0, bytes)?;
        }
        for (age, key, kept) in &old[unused..] {
            write(key, &kept.check, *age, &self.file[kept.bytes.clone()])?;
        }
        Ok(())
    }

    fn made(&self) -> MutexGuard<'_, BTreeMap<Key, Vec<u8>>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Pieces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pieces")
            .field("kept", &self.kept.len())
            .field("reused", &self.reused())
            .field("made", &self.made_anew())
            .finish()
    }
}

fn check(key: &Key, bytes: &[u8]) -> Check {
    Sha256::new()
        .chain_update(key)
        .chain_update(bytes)
        .finalize()
        .into()
}

fn read_one(file: &[u8], at: usize) -> Option<(Key, Kept)> {
    let (key, rest) = file.get(at..)?.split_first_chunk()?;
    let (check, rest) = rest.split_first_chunk()?;
    let (age, rest) = rest.split_first()?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    rest.get(..length)?;
    let begin = at + HEAD;
    Some((
        *key,
        Kept {
            check: *check,
            age: *age,
            bytes: begin..begin + length,
            used: AtomicBool::new(false),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn key(number: u8) -> Key {
        [number; 32]
    }

    fn bytes(number: u8) -> Vec<u8> {
        vec![number; usize::from(number) * 7]
    }

    /// The file after a compile that began with this one and asked for these pieces, making those that it did not find.
    fn compile(file: &[u8], wanted: &[u8], most: u64) -> (Vec<u8>, u32, u32) {
        let pieces = Pieces::read(file.to_vec());
        for number in wanted {
            match pieces.get(&key(*number)) {
                Some(found) => assert_eq!(*found, bytes(*number), "{number}"),
                None => assert!(pieces.insert(&key(*number), bytes(*number))),
            }
        }
        let mut next = Vec::new();
        pieces.write(&mut next, most).unwrap();
        assert!(next.len() as u64 <= most);
        (next, pieces.reused(), pieces.made_anew())
    }

    const ALL: u64 = u64::MAX;

    #[test]
    fn what_one_compile_makes_the_next_uses() {
        let (file, reused, made) = compile(b"", &[1, 2, 3, 3], ALL);
        assert_eq!((reused, made), (0, 3));
        let (file, reused, made) = compile(&file, &[1, 2, 3, 4], ALL);
        assert_eq!((reused, made), (3, 1));
        let (same, reused, made) = compile(&file, &[1, 2, 3, 4], ALL);
        assert_eq!((reused, made), (4, 0));
        assert_eq!(compile(&same, &[4, 3, 2, 1], ALL).0, same);
    }

    #[test]
    fn damage_costs_the_pieces_that_it_hit() {
        let wanted = [1, 2, 3, 4, 5];
        let (file, ..) = compile(b"", &wanted, ALL);
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 0x20;
            // Each piece that is found is compared with what it should be.
            let (mended, ..) = compile(&damaged, &wanted, ALL);
            assert_eq!(compile(&mended, &wanted, ALL).1, 5, "byte {at}");
            let (mended, ..) = compile(&file[..at], &wanted, ALL);
            assert_eq!(compile(&mended, &wanted, ALL).1, 5, "the first {at} bytes");
        }
        assert_eq!(compile(&vec![0xff; 1 << 16], &wanted, ALL).1, 0);
        assert_eq!(compile(&vec![0; 1 << 16], &wanted, ALL).1, 0);
    }

    #[test]
    fn a_torn_file_gives_what_is_whole_in_it() {
        let (file, ..) = compile(b"", &[1, 2, 3], ALL);
        assert_eq!(compile(&file[..file.len() - 1], &[1, 2, 3], ALL).1, 2);
    }

    #[test]
    fn what_is_of_no_use_goes() {
        let (mut file, ..) = compile(b"", &[1, 2], ALL);
        for _ in 0..OLDEST {
            file = compile(&file, &[1], ALL).0;
        }
        assert_eq!(compile(&file, &[1, 2], ALL).1, 2);
        file = compile(&file, &[1], ALL).0;
        assert_eq!(compile(&file, &[1, 2], ALL).1, 1);
    }

    #[test]
    fn the_file_is_bounded_and_what_was_of_use_comes_first() {
        let (file, ..) = compile(b"", &[1, 2, 3, 4], ALL);
        let two = (MAGIC.len() + 2 * HEAD + bytes(8).len() + bytes(9).len()) as u64;
        let (file, ..) = compile(&file, &[8, 9], two);
        assert_eq!(compile(&file, &[8, 9, 1], two).1, 2);
        assert_eq!(compile(&file, &[8, 9], 3 * 16).0, MAGIC);
    }

    #[test]
    fn threads_share_them() {
        let (file, ..) = compile(b"", &(0..100).collect::<Vec<_>>(), ALL);
        let pieces = Pieces::read(file);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for number in 0..200 {
                        match pieces.get(&key(number)) {
                            Some(found) => assert_eq!(*found, bytes(number)),
                            None => drop(pieces.insert(&key(number), bytes(number))),
                        }
                    }
                });
            }
        });
        assert_eq!((pieces.reused(), pieces.made_anew()), (400, 100));
    }

    #[test]
    fn other_keys_are_refused() {
        let pieces = Pieces::read(Vec::new());
        assert!(!pieces.insert(b"short", Vec::new()));
        assert!(pieces.get(b"short").is_none());
    }
}
