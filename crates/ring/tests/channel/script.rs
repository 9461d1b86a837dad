//! A host, and a guest that follows a script, step by step: each answer of the host, and each byte that it writes, is what the table of
//! [`channel`](ring::channel) and the memory before the step say.
//!
//! The oracle is another implementation, on the file's bytes. While the guest is good, what one sends the other receives, whole and in order.

use ring::{
    HostEnd, Region,
    channel::{Corrupt, HEADER, Message, SendError, Sent},
};
use std::{collections::VecDeque, fs::File, ops::Range, os::unix::fs::FileExt as _};

/// Where the fields of one ring are.
#[derive(Clone, Copy)]
struct Ring {
    tail: usize,
    head: usize,
    sleeping: usize,
    slots: usize,
}

/// What a script is read from. After its end come zeros.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn number(&mut self, bytes: usize) -> u64 {
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// Small, near to a power of two, or any.
    fn wild(&mut self) -> u64 {
        let kind = self.byte();
        match kind % 4 {
            0 => self.number(1),
            1 => self.number(2),
            2 => (1_u64 << (kind >> 2))
                .wrapping_sub(2)
                .wrapping_add(self.number(1) % 4),
            _ => self.number(8),
        }
    }
}

struct World {
    host: HostEnd,
    file: File,
    slots: u32,
    size: usize,
    to_guest: Ring,
    to_host: Ring,
    /// The host's own indices, and whether it has seen one of the guest's that cannot be.
    tail: u32,
    head: u32,
    corrupt: bool,
    /// The guest's own.
    its_tail: u32,
    its_head: u32,
    /// Until it writes what it should not. What is under way to it, and from it.
    good: bool,
    to_it: VecDeque<Message>,
    from_it: VecDeque<Message>,
    messages: u64,
}

/// All of a script: the number of slots, the size of the bulk, and steps.
pub(crate) fn all(input: &[u8]) {
    let mut script = Script(input);
    let slots = 1 << (script.byte() % 4);
    let bulk = usize::from(script.byte());
    let mut world = World::new(slots, bulk);
    while !script.0.is_empty() {
        world.step(&mut script);
    }
    world.end();
}

fn word(memory: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(memory[offset..offset + 4].try_into().expect("four bytes"))
}

impl World {
    fn new(slots: u32, bulk: usize) -> Self {
        let size = HEADER + 128 * slots as usize + bulk;
        let region = Region::new(size).expect("the kernel gives memory");
        let host = HostEnd::new(region, slots).expect("it fits");
        let file = host
            .shared()
            .file()
            .try_clone_to_owned()
            .expect("a descriptor is left")
            .into();
        let ring = |indices, slots| Ring {
            tail: indices,
            head: indices + 64,
            sleeping: indices + 128,
            slots,
        };
        Self {
            host,
            file,
            slots,
            size,
            to_guest: ring(64, HEADER),
            to_host: ring(256, HEADER + 64 * slots as usize),
            tail: 0,
            head: 0,
            corrupt: false,
            its_tail: 0,
            its_head: 0,
            good: true,
            to_it: VecDeque::new(),
            from_it: VecDeque::new(),
            messages: 0,
        }
    }

    fn memory(&self) -> Vec<u8> {
        let mut memory = vec![0; self.size];
        self.file.read_exact_at(&mut memory, 0).expect("it is all there");
        memory
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        self.file
            .write_all_at(bytes, offset as u64)
            .expect("it is all there");
    }

    /// Of what index.
    fn slot(&self, ring: Ring, index: u32) -> Range<usize> {
        let start = ring.slots + 64 * (index % self.slots) as usize;
        start..start + 64
    }

    fn message(&mut self) -> Message {
        self.messages += 1;
        std::array::from_fn(|word| self.messages.rotate_right(8 * word as u32) ^ word as u64)
    }

    /// One step of either. Each begins with what the memory is, and checks what it has become.
    fn step(&mut self, script: &mut Script<'_>) {
        let mut memory = self.memory();
        match script.byte() % 10 {
            0 => self.send(&mut memory),
            1 => self.receive(&mut memory),
            2 => self.sleep(&mut memory),
            3 => {
                self.host.wake();
                memory[self.to_host.sleeping..][..4].fill(0);
            }
            4 => self.place(&mut memory, script),
            kind => {
                self.guest(kind, &memory, script);
                memory = self.memory();
            }
        }
        assert!(memory == self.memory(), "the host wrote something else");
        assert!(!(self.good && self.corrupt), "the guest was good");
    }

    /// How many messages are under way, unless the host finds that this cannot be.
    fn filled(&mut self, head: u32, tail: u32) -> Option<u32> {
        let filled = tail.wrapping_sub(head);
        self.corrupt |= filled > self.slots;
        (!self.corrupt).then_some(filled)
    }

    fn send(&mut self, memory: &mut [u8]) {
        let message = self.message();
        let ring = self.to_guest;
        let expected = match self.corrupt {
            true => None,
            false => self.filled(word(memory, ring.head), self.tail),
        };
        let outcome = self.host.send(message);
        match expected {
            None => assert_eq!(outcome, Err(SendError::Corrupt)),
            Some(filled) if filled == self.slots => assert_eq!(outcome, Err(SendError::Full(message))),
            Some(_) => {
                let must_ring = word(memory, ring.sleeping) != 0;
                assert_eq!(outcome, Ok(Sent { must_ring }));
                let words = message.iter().flat_map(|word| word.to_ne_bytes());
                memory[self.slot(ring, self.tail)].copy_from_slice(&words.collect::<Vec<_>>());
                self.tail = self.tail.wrapping_add(1);
                memory[ring.tail..][..4].copy_from_slice(&self.tail.to_ne_bytes());
                memory[ring.sleeping..][..4].fill(0);
                self.to_it.push_back(message);
            }
        }
    }

    fn receive(&mut self, memory: &mut [u8]) {
        let ring = self.to_host;
        let expected = match self.corrupt {
            true => None,
            false => self.filled(self.head, word(memory, ring.tail)),
        };
        let outcome = self.host.receive();
        match expected {
            None => assert_eq!(outcome, Err(Corrupt)),
            Some(0) => assert_eq!(outcome, Ok(None)),
            Some(_) => {
                let message = read(&memory[self.slot(ring, self.head)]);
                assert_eq!(outcome, Ok(Some(message)));
                self.head = self.head.wrapping_add(1);
                memory[ring.head..][..4].copy_from_slice(&self.head.to_ne_bytes());
                let sent = self.from_it.pop_front();
                assert!(!self.good || sent == Some(message));
            }
        }
    }

    fn sleep(&mut self, memory: &mut [u8]) {
        let ring = self.to_host;
        let outcome = self.host.sleep();
        if self.corrupt {
            return assert_eq!(outcome, Err(Corrupt));
        }
        let filled = self.filled(self.head, word(memory, ring.tail));
        assert_eq!(outcome, filled.map(|filled| filled == 0).ok_or(Corrupt));
        let flag = u32::from(filled.is_none_or(|filled| filled == 0));
        memory[ring.sleeping..][..4].copy_from_slice(&flag.to_ne_bytes());
        assert!(!self.good || filled.map(|filled| filled as usize) == Some(self.from_it.len()));
    }

    /// A message speaks of a place.
    fn place(&mut self, memory: &mut [u8], script: &mut Script<'_>) {
        let bulk = HEADER + 128 * self.slots as usize..self.size;
        // Often at its edges.
        let offset = match script.byte() % 3 {
            0 => script.wild(),
            1 => bulk.start as u64 - 2 + script.number(1) % 8,
            _ => bulk.end as u64 + 2 - script.number(1) % 8,
        };
        let length = script.wild();
        let end = u128::from(offset) + u128::from(length);
        let inside = u128::from(offset) >= bulk.start as u128 && end <= bulk.end as u128;
        let place = self.host.layout().place(offset, length);
        assert_eq!(place.is_some(), inside);
        let Some(place) = place else { return };
        assert_eq!(place.range(), offset as usize..end as usize);
        let mut bytes = vec![0; place.len()];
        assert_eq!(self.host.copy_out(place, &mut bytes), Ok(()));
        assert_eq!(bytes, memory[place.range()]);
        bytes
            .iter_mut()
            .for_each(|byte| *byte = byte.wrapping_mul(3).wrapping_add(1));
        assert_eq!(self.host.copy_in(place, &bytes), Ok(()));
        memory[place.range()].copy_from_slice(&bytes);
    }

    fn guest(&mut self, kind: u8, memory: &[u8], script: &mut Script<'_>) {
        match kind {
            // Sends.
            5 if self.good => {
                let ring = self.to_host;
                if self.its_tail.wrapping_sub(word(memory, ring.head)) == self.slots {
                    return;
                }
                let message = self.message();
                let words = message.iter().flat_map(|word| word.to_ne_bytes());
                self.put(self.slot(ring, self.its_tail).start, &words.collect::<Vec<_>>());
                self.its_tail = self.its_tail.wrapping_add(1);
                self.put(ring.tail, &self.its_tail.to_ne_bytes());
                self.put(ring.sleeping, &[0; 4]);
                self.from_it.push_back(message);
            }
            // Receives.
            6 if self.good => {
                let ring = self.to_guest;
                let filled = word(memory, ring.tail).wrapping_sub(self.its_head);
                assert_eq!(filled as usize, self.to_it.len());
                if let Some(sent) = self.to_it.pop_front() {
                    assert_eq!(read(&memory[self.slot(ring, self.its_head)]), sent);
                    self.its_head = self.its_head.wrapping_add(1);
                    self.put(ring.head, &self.its_head.to_ne_bytes());
                }
            }
            // Sleeps.
            7 => self.put(self.to_guest.sleeping, &1_u32.to_ne_bytes()),
            // Writes what it likes to a field, near to what is there or not,
            8 => {
                self.good = false;
                let offset = usize::from(script.byte() % 7) * 64;
                let value = script.wild() as u32;
                let value = match script.byte() % 2 {
                    0 => value,
                    _ => word(memory, offset).wrapping_add(value),
                };
                self.put(offset, &value.to_ne_bytes());
            }
            // and anywhere.
            _ => {
                self.good = false;
                let bytes = script.number(8).to_ne_bytes();
                let offset = script.number(2) as usize % self.size;
                let length = bytes.len().min(self.size - offset);
                self.put(offset, &bytes[..length]);
            }
        }
    }

    /// The guest has ended, and its memory is as it was left.
    fn end(self) {
        let memory = self.memory();
        drop(self.file);
        // SAFETY: the file was all that was left of it.
        let region = unsafe { self.host.into_shared().reclaim() };
        assert!(memory == region.bytes());
    }
}

fn read(slot: &[u8]) -> Message {
    let mut words = slot.chunks_exact(8);
    std::array::from_fn(|_| {
        let word = words.next().expect("a slot has eight words");
        u64::from_ne_bytes(word.try_into().expect("a word has eight bytes"))
    })
}
