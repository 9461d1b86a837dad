//! A guest that writes anything, at any time, while the host works: the host answers, and touches nothing but the memory that they share.

#![cfg(feature = "std")]

extern crate millpond_ring as ring;

#[path = "channel/mapping.rs"]
mod mapping;
#[path = "channel/random.rs"]
mod random;

use mapping::Mapping;
use random::Random;
use ring::{
    Heard, HostEnd, Region, bells,
    channel::{HEADER, SendError},
};
use rustix::{
    fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl},
    io::read,
    pipe::pipe,
};
use std::{
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    thread,
};

const SLOTS: u32 = 8;
const SIZE: usize = 3 * 4096 + 40;

/// How a guest misbehaves.
#[derive(Clone, Copy, Debug)]
enum Malice {
    /// Any word anywhere.
    Everywhere,
    /// Everything but the two indices that are believed, which are often such as could be.
    Plausible,
    /// Pages go away, and are 0 when they are read.
    Holes,
}

/// Until told to stop.
fn scribble(mapping: &Mapping, file: impl AsFd, malice: Malice, seed: u64, stop: &AtomicBool) {
    let mut random = Random(seed);
    // SAFETY: these are in the mapping and aligned; as atomics, for the host's mapping is another.
    let word = |index: u64| unsafe { mapping.start.cast::<AtomicU64>().add(index as usize).as_ref() };
    // SAFETY: as above.
    let number = |offset: usize| unsafe { mapping.start.add(offset).cast::<AtomicU32>().as_ref() };
    while !stop.load(Ordering::Relaxed) {
        match malice {
            Malice::Everywhere => word(random.below(SIZE as u64 / 8)).store(random.next(), Ordering::Relaxed),
            Malice::Plausible => {
                // As many as the host has sent, or fewer; and more than it has received.
                let tail = number(64).load(Ordering::Relaxed);
                number(128).store(tail.wrapping_sub(random.below(2) as u32), Ordering::Relaxed);
                let head = number(320).load(Ordering::Relaxed);
                number(256).store(head.wrapping_add(1 + random.below(2) as u32), Ordering::Relaxed);
                number(192).store(random.next() as u32, Ordering::Relaxed);
                let slots = HEADER as u64 / 8;
                let index = slots + random.below(SIZE as u64 / 8 - slots);
                word(index).store(random.next() % (2 * SIZE as u64), Ordering::Relaxed);
            }
            Malice::Holes => {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(&file, hole, random.below(3) * 4096, 4096).unwrap();
                number(256).store(random.below(9) as u32, Ordering::Relaxed);
            }
        }
    }
}

/// How many messages a host got, and sent, before the channel was corrupt or so many rounds were over.
fn host(host: &mut HostEnd, random: &mut Random) -> (u32, u32) {
    let (mut received, mut sent) = (0, 0);
    let mut buffer = vec![0; SIZE];
    for _ in 0..1_000 {
        match host.send([random.next(); 8]) {
            Ok(_) => sent += 1,
            Err(SendError::Full(_)) => {}
            Err(SendError::Corrupt) => break,
        }
        match host.receive() {
            Ok(Some([offset, length, ..])) => {
                received += 1;
                let place = host.layout().place(offset, length);
                let bulk = host.layout().bulk();
                let end = u128::from(offset) + u128::from(length);
                assert_eq!(
                    place.is_some(),
                    offset >= bulk.start as u64 && end <= bulk.end as u128
                );
                if let Some(place) = place {
                    host.copy_out(place, &mut buffer[..place.len()]).unwrap();
                    host.copy_in(place, &buffer[..place.len()]).unwrap();
                }
            }
            Ok(None) => {}
            Err(_) => break,
        }
        let bulk = host.layout().bulk();
        let all = host.layout().place(bulk.start as u64, bulk.len() as u64).unwrap();
        host.copy_out(all, &mut buffer[..all.len()]).unwrap();
        // What was copied stays.
        let sum = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0_u64, |sum, byte| sum.rotate_left(5) ^ u64::from(*byte))
        };
        let before = sum(&buffer[..all.len()]);
        if host.sleep().is_err() {
            break;
        }
        host.wake();
        assert_eq!(sum(&buffer[..all.len()]), before);
    }
    (received, sent)
}

fn run(malice: Malice, channels: u64) -> (u32, u32) {
    let (mut received, mut sent) = (0, 0);
    for seed in 0..channels {
        let mut end = HostEnd::new(Region::new(SIZE).unwrap(), SLOTS).unwrap();
        let mapping = Mapping::new(end.shared().file());
        let file = end.shared().file().try_clone_to_owned().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let its = stop.clone();
        let guest = thread::spawn(move || scribble(&mapping, file, malice, seed, &its));
        let (more_received, more_sent) = host(&mut end, &mut Random(!seed));
        received += more_received;
        sent += more_sent;
        stop.store(true, Ordering::Relaxed);
        guest.join().unwrap();
        // SAFETY: the guest's mapping and file are gone.
        let region = unsafe { end.into_shared().reclaim() };
        assert_eq!(region.bytes().len(), SIZE);
    }
    (received, sent)
}

#[test]
fn a_guest_that_writes_everywhere_is_survived() {
    run(Malice::Everywhere, 100);
}

#[test]
fn a_guest_that_is_nearly_good_is_survived() {
    let (received, sent) = run(Malice::Plausible, 10);
    assert!(received > 0 && sent > 0, "{received} {sent}");
}

#[test]
fn a_guest_that_punches_holes_is_survived() {
    run(Malice::Holes, 50);
}

/// A guest changes its flags, rings without end, gives files that nobody asked for, and hears nothing.
#[test]
fn a_host_never_waits_at_a_doorbell() {
    let (host, guest) = bells().unwrap();
    let flags = fcntl_getfl(&guest).unwrap();
    fcntl_setfl(&guest, flags - OFlags::NONBLOCK).unwrap();
    assert_eq!(host.heard(), Ok(Heard::Nothing));
    for _ in 0..10_000 {
        guest.ring().unwrap();
    }
    while host.heard().unwrap() == Heard::Rung {}
    let (reader, writer) = pipe().unwrap();
    guest.give(writer.as_fd()).unwrap();
    drop(writer);
    assert_eq!(host.heard(), Ok(Heard::Rung));
    for _ in 0..10_000 {
        host.ring().unwrap();
    }
    drop(guest);
    host.ring().unwrap();
    while host.heard().unwrap() != Heard::Gone {}
    // Nothing of what it gave is left open here: the pipe has no writer.
    assert_eq!(read(&reader, &mut [0; 1]), Ok(0));
}
