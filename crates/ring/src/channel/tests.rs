//! Both ends in one thread, on memory that no kernel is needed for (so Miri can run these), and a guest that writes what it should not.

use super::*;
use std::{
    alloc::{Layout as Allocation, alloc_zeroed, dealloc},
    vec,
    vec::Vec,
};

struct Memory {
    start: NonNull<u8>,
    size: usize,
}

impl Memory {
    fn new(size: usize) -> Self {
        // SAFETY: the size is not 0.
        let start = NonNull::new(unsafe { alloc_zeroed(Self::allocation(size)) }).unwrap();
        Self { start, size }
    }

    fn allocation(size: usize) -> Allocation {
        Allocation::from_size_align(size, 64).unwrap()
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset + 4 <= self.size && offset.is_multiple_of(4));
        // SAFETY: it is inside and aligned.
        unsafe { self.start.add(offset).cast().as_ref() }
    }

    fn put(&self, offset: usize, value: u32) {
        self.word(offset).store(value, Ordering::Relaxed);
    }

    fn get(&self, offset: usize) -> u32 {
        self.word(offset).load(Ordering::Relaxed)
    }

    fn host(&self, slots: u32) -> End {
        let layout = Layout::new(slots, self.size).unwrap();
        for (number, word) in layout.header().chunks(4).enumerate() {
            self.put(number * 4, u32::from_ne_bytes(word.try_into().unwrap()));
        }
        // SAFETY: the tests drop it before the memory, and are of one thread.
        unsafe { End::host(self.start, layout) }.unwrap()
    }

    fn guest(&self) -> Result<End, Unfit> {
        // SAFETY: as above.
        unsafe { End::guest(self.start, self.size) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was allocated like this.
        unsafe { dealloc(self.start.as_ptr(), Self::allocation(self.size)) };
    }
}

const GUEST_TAIL: usize = 64;
const GUEST_HEAD: usize = 128;
const GUEST_SLEEPING: usize = 192;
const HOST_TAIL: usize = 256;
const HOST_HEAD: usize = 320;
const HOST_SLEEPING: usize = 384;

fn message(number: u64) -> Message {
    std::array::from_fn(|word| number * 8 + word as u64)
}

/// Through a full ring, over the end of the indices.
fn converse(sender: &mut End, receiver: &mut End, slots: u32) {
    let mut sent = 0;
    let mut received = 0;
    for round in 0..40 {
        for _ in 0..=round % (slots + 1) {
            match sender.send(message(sent)) {
                Ok(Sent { must_ring }) => {
                    assert!(!must_ring);
                    sent += 1;
                }
                Err(error) => {
                    assert_eq!(error, SendError::Full(message(sent)));
                    assert_eq!(sent - received, u64::from(slots));
                }
            }
        }
        for _ in 0..=round % 3 {
            match receiver.receive().unwrap() {
                Some(next) => {
                    assert_eq!(next, message(received));
                    received += 1;
                }
                None => assert_eq!(sent, received),
            }
        }
    }
    assert!(sent > 20);
    while receiver.receive().unwrap().is_some() {}
}

#[test]
fn messages_come_both_ways_in_order() {
    for slots in [1, 2, 8] {
        let memory = Memory::new(HEADER + 128 * slots as usize);
        let mut host = memory.host(slots);
        let mut guest = memory.guest().unwrap();
        assert_eq!(guest.layout(), host.layout());
        converse(&mut host, &mut guest, slots);
        converse(&mut guest, &mut host, slots);
    }
}

#[test]
fn indices_run_over() {
    let begin = u32::MAX - 5;
    let memory = Memory::new(HEADER + 128 * 4);
    let (mut host, mut guest) = (memory.host(4), memory.guest().unwrap());
    for offset in [GUEST_TAIL, GUEST_HEAD, HOST_TAIL, HOST_HEAD] {
        memory.put(offset, begin);
    }
    // SAFETY: as in `Memory::host`.
    let [to_guest, to_host] = unsafe { rings(memory.start.cast(), host.layout) };
    (host.producer, host.consumer) = (Producer::new(to_guest, begin), Consumer::new(to_host, begin));
    (guest.producer, guest.consumer) = (Producer::new(to_host, begin), Consumer::new(to_guest, begin));
    converse(&mut host, &mut guest, 4);
    converse(&mut guest, &mut host, 4);
    assert!(memory.get(HOST_HEAD) < 100);
}

#[test]
fn who_sleeps_is_rung_for_once() {
    let memory = Memory::new(HEADER + 128 * 4);
    let (mut host, mut guest) = (memory.host(4), memory.guest().unwrap());
    for _ in 0..2 {
        let sent = |end: &mut End| end.send(message(0)).unwrap().must_ring;
        assert_eq!(guest.sleep(), Ok(true));
        assert!(sent(&mut host));
        assert!(!sent(&mut host));
        // There is something to receive.
        assert_eq!(guest.sleep(), Ok(false));
        assert!(!sent(&mut host));
        while guest.receive().unwrap().is_some() {}
        assert_eq!(guest.sleep(), Ok(true));
        guest.wake();
        assert!(!sent(&mut host));
        assert_eq!(guest.receive(), Ok(Some(message(0))));
        std::mem::swap(&mut host, &mut guest);
    }
}

#[test]
fn a_layout_fits() {
    let needed = |slots: u32| HEADER + 128 * slots as usize;
    for slots in [1, 64, MOST_SLOTS] {
        assert_eq!(
            Layout::new(slots, needed(slots)).unwrap().bulk(),
            needed(slots)..needed(slots)
        );
        let size = needed(slots) - 1;
        assert_eq!(
            Layout::new(slots, size),
            Err(Unfit::Size {
                size,
                needed: needed(slots)
            })
        );
    }
    for slots in [0, 3, 65, 2 * MOST_SLOTS, u32::MAX] {
        assert_eq!(Layout::new(slots, usize::MAX), Err(Unfit::Slots(slots)));
    }
}

#[test]
fn a_guest_takes_no_other_memory_for_a_channel() {
    let memory = Memory::new(HEADER + 128 * 2);
    assert_eq!(memory.guest().unwrap_err(), Unfit::Magic(0));
    let _ = memory.host(2);
    assert!(memory.guest().is_ok());
    memory.put(8, 2);
    assert_eq!(memory.guest().unwrap_err(), Unfit::Version(2));
    memory.put(8, VERSION);
    for slots in [0, 3, u32::MAX] {
        memory.put(12, slots);
        assert_eq!(memory.guest().unwrap_err(), Unfit::Slots(slots));
    }
    memory.put(12, 4);
    assert_eq!(
        memory.guest().unwrap_err(),
        Unfit::Size {
            size: HEADER + 128 * 2,
            needed: HEADER + 128 * 4
        }
    );
    // SAFETY: the memory is larger.
    let [small, shifted] = unsafe {
        [
            End::guest(memory.start, 447),
            End::guest(memory.start.add(8), 600),
        ]
    };
    assert!(matches!(small, Err(Unfit::Size { size: 447, .. })));
    assert_eq!(shifted.unwrap_err(), Unfit::Alignment);
}

/// A host with 4 slots that has sent 3 messages of which the guest received 1, and the same the other way.
fn under_way(memory: &Memory) -> End {
    let (mut host, mut guest) = (memory.host(4), memory.guest().unwrap());
    for number in 0..3 {
        assert!(!host.send(message(number)).unwrap().must_ring);
        assert!(!guest.send(message(number)).unwrap().must_ring);
    }
    assert_eq!(host.receive(), Ok(Some(message(0))));
    assert_eq!(guest.receive(), Ok(Some(message(0))));
    host
}

fn is_dead(mut host: End, memory: &Memory) {
    // What would be good again is not believed.
    memory.put(GUEST_HEAD, memory.get(GUEST_TAIL));
    memory.put(HOST_TAIL, memory.get(HOST_HEAD));
    for _ in 0..2 {
        assert_eq!(host.send(message(9)), Err(SendError::Corrupt));
        assert_eq!(host.receive(), Err(Corrupt));
        assert_eq!(host.sleep(), Err(Corrupt));
        host.wake();
    }
}

#[test]
fn a_head_that_cannot_be_is_corrupt() {
    let memory = Memory::new(HEADER + 128 * 4);
    // The tail is 3.
    for head in [4, 5, 7, 100, 1 << 31, u32::MAX - 1, u32::MAX - 100] {
        let mut host = under_way(&memory);
        memory.put(GUEST_HEAD, head);
        assert_eq!(host.send(message(3)), Err(SendError::Corrupt), "{head}");
        is_dead(host, &memory);
    }
    // Four were under way, and none was received.
    let mut host = under_way(&memory);
    memory.put(GUEST_HEAD, u32::MAX);
    assert_eq!(host.send(message(3)), Err(SendError::Full(message(3))));
    memory.put(GUEST_HEAD, 3);
    assert!(host.send(message(3)).is_ok());
}

#[test]
fn a_tail_that_cannot_be_is_corrupt() {
    let memory = Memory::new(HEADER + 128 * 4);
    // The head is 1.
    for tail in [0, 6, 7, 100, 1 << 31, u32::MAX] {
        let mut host = under_way(&memory);
        memory.put(HOST_TAIL, tail);
        assert_eq!(host.receive(), Err(Corrupt), "{tail}");
        is_dead(host, &memory);
        let mut host = under_way(&memory);
        memory.put(HOST_TAIL, tail);
        assert_eq!(host.sleep(), Err(Corrupt), "{tail}");
        is_dead(host, &memory);
    }
    // As many as fit, two of which nobody has written.
    let mut host = under_way(&memory);
    memory.put(HOST_TAIL, 5);
    for _ in 0..4 {
        assert!(host.receive().unwrap().is_some());
    }
    assert_eq!(host.receive(), Ok(None));
}

#[test]
fn any_flag_but_0_is_rung_for_once() {
    let memory = Memory::new(HEADER + 128 * 4);
    for flag in [1, 2, 1 << 31, u32::MAX] {
        let mut host = under_way(&memory);
        memory.put(GUEST_SLEEPING, flag);
        assert!(host.send(message(3)).unwrap().must_ring);
        assert_eq!(memory.get(GUEST_SLEEPING), 0);
        memory.put(GUEST_HEAD, 4);
        assert!(!host.send(message(4)).unwrap().must_ring);
    }
}

/// What the host has written it does not read.
#[test]
fn what_is_the_hosts_is_not_believed_to_have_stayed() {
    let memory = Memory::new(HEADER + 128 * 4);
    let its = [
        0,
        4,
        8,
        12,
        GUEST_TAIL,
        HOST_HEAD,
        HOST_SLEEPING,
        448,
        448 + 3 * 64,
    ];
    for value in [1, 77, 1 << 31, u32::MAX] {
        let mut host = under_way(&memory);
        its.iter().for_each(|offset| memory.put(*offset, value));
        assert!(!host.send(message(3)).unwrap().must_ring);
        assert_eq!(memory.get(GUEST_TAIL), 4);
        assert_eq!(memory.get(448 + 3 * 64), 24);
        its.iter().for_each(|offset| memory.put(*offset, value));
        assert_eq!(host.receive(), Ok(Some(message(1))));
        assert_eq!(memory.get(HOST_HEAD), 2);
        its.iter().for_each(|offset| memory.put(*offset, value));
        assert_eq!(host.sleep(), Ok(false));
        assert_eq!(host.receive(), Ok(Some(message(2))));
        assert_eq!(host.sleep(), Ok(true));
        assert_eq!(host.layout().slots(), 4);
    }
}

#[test]
fn a_place_lies_in_the_bulk() {
    let layout = Layout::new(2, 1000).unwrap();
    let bulk = 448 + 256;
    for (offset, length) in [(bulk, 0), (bulk, 296), (1000, 0), (999, 1), (800, 100)] {
        let place = layout.place(offset, length).unwrap();
        assert_eq!(place.range(), offset as usize..(offset + length) as usize);
        assert_eq!(place.len() as u64, length);
    }
    let outside = [
        (0, 0),
        (0, 1000),
        (bulk - 1, 1),
        (bulk - 1, 0),
        (bulk, 297),
        (1000, 1),
        (1001, 0),
        (999, 2),
        (u64::MAX, 0),
        (u64::MAX, 1),
        (u64::MAX - 100, 1101),
        (bulk, u64::MAX),
        (bulk, u64::MAX - bulk),
        (1 << 63, 1 << 63),
    ];
    for (offset, length) in outside {
        assert_eq!(layout.place(offset, length), None, "{offset} {length}");
    }
}

#[test]
fn bulk_is_copied() {
    let memory = Memory::new(HEADER + 128 + 100);
    let (mut host, mut guest) = (memory.host(1), memory.guest().unwrap());
    let bulk = host.layout().bulk().start as u64;
    let place = host.layout().place(bulk + 3, 50).unwrap();
    let bytes: Vec<u8> = (1..=50).collect();
    host.copy_in(place, &bytes).unwrap();
    let mut all = vec![0; 100];
    let everything = guest.layout().place(bulk, 100).unwrap();
    guest.copy_out(everything, &mut all).unwrap();
    assert_eq!(all[3..53], bytes);
    assert!(all[..3].iter().chain(&all[53..]).all(|byte| *byte == 0));
    // SAFETY: nobody else uses it.
    unsafe { guest.pointer(place).unwrap().write(200) };
    guest
        .copy_in(guest.layout().place(bulk + 4, 1).unwrap(), &[201])
        .unwrap();
    let mut two = [0; 2];
    host.copy_out(host.layout().place(bulk + 3, 2).unwrap(), &mut two)
        .unwrap();
    assert_eq!(two, [200, 201]);
}

#[test]
fn another_channels_place_is_not_copied() {
    let memory = Memory::new(HEADER + 128 + 100);
    let mut host = memory.host(1);
    let larger = Layout::new(1, 1000).unwrap().place(600, 100).unwrap();
    let lower = Layout::new(1, HEADER + 128 + 100)
        .unwrap()
        .place(576, 50)
        .unwrap();
    assert_eq!(host.copy_out(larger, &mut [0; 100]), Err(Misfit));
    assert_eq!(host.copy_in(larger, &[0; 100]), Err(Misfit));
    assert_eq!(host.pointer(larger), None);
    assert_eq!(host.copy_in(lower, &[0; 50]), Ok(()));
    assert_eq!(host.copy_in(lower, &[0; 51]), Err(Misfit));
    assert_eq!(host.copy_out(lower, &mut [0; 49]), Err(Misfit));
    let (memory, before) = (Memory::new(HEADER + 256), lower);
    assert_eq!(memory.host(2).copy_in(before, &[0; 50]), Err(Misfit));
}
