//! Copies to memory whose pages are not there yet. Alone in its process: it looks at what is mapped.

use millpond_ring::{GuestEnd, HostEnd, Region, bells};
use std::{fs, ops::Range};

/// Bytes of all regions' pages in this process's mappings.
fn resident() -> u64 {
    let maps = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_region = false;
    let mut sum = 0;
    for line in maps.lines() {
        if line.contains("-") && line.contains(" rw-s ") {
            is_region = line.contains("millpond-region");
        }
        if let Some(kib) = line.strip_prefix("Rss:").filter(|_| is_region) {
            sum += kib.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10;
            is_region = false;
        }
    }
    sum
}

fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed | 1;
    std::iter::repeat_with(|| {
        state = state
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (state >> 56) as u8
    })
    .take(length)
    .collect()
}

#[test]
fn what_is_copied_is_there_whether_its_pages_were_or_not() {
    let (host_bell, guest_bell) = bells().unwrap();
    let mut host = HostEnd::new(Region::new(16 << 20).unwrap(), 8).unwrap();
    host_bell.give(host.shared().file()).unwrap();
    let mut guest = GuestEnd::open(guest_bell.take().unwrap().unwrap()).unwrap();
    let bulk = guest.bulk();
    let mut expected = vec![0; bulk.len()];

    // The first bytes of pages are written to without faults at them.
    let before = resident();
    let megabyte = pattern(1, 1 << 20);
    host.copy_in(guest.place((bulk.start + 5) as u64, 1 << 20).unwrap(), &megabyte)
        .unwrap();
    expected[5..5 + (1 << 20)].copy_from_slice(&megabyte);
    let grown = resident() - before;
    assert!(grown < 64 << 10, "{grown} bytes of the mapping have come");

    // Of either end: small and large, before, within and beyond what was written to, with gaps, and the same place again.
    let kib = |from: usize, length: usize| (from << 10)..(from << 10) + length;
    let places: [Range<usize>; 10] = [
        kib(3000, 100_000),
        kib(3000, 100_000),
        kib(2990, 64 << 10),
        kib(3097, 1),
        kib(3098, (16 << 10) - 1),
        kib(3200, 16 << 10),
        kib(3216, (2 << 20) + 77),
        kib(1, 5000),
        kib(0, 2 << 20),
        bulk.len() - 70_000..bulk.len(),
    ];
    for (number, range) in places.into_iter().enumerate() {
        for is_host in [true, false] {
            let bytes = pattern(number as u64 * 2 + 7 + u64::from(is_host), range.len());
            let place = guest
                .place((bulk.start + range.start) as u64, range.len() as u64)
                .unwrap();
            match is_host {
                true => host.copy_in(place, &bytes).unwrap(),
                false => guest.copy_in(place, &bytes).unwrap(),
            }
            expected[range.clone()].copy_from_slice(&bytes);
            let all = guest.place(bulk.start as u64, bulk.len() as u64).unwrap();
            let mut seen = vec![1; bulk.len()];
            match is_host {
                true => guest.copy_out(all, &mut seen).unwrap(),
                false => host.copy_out(all, &mut seen).unwrap(),
            }
            assert!(seen == expected, "{range:?}, {is_host}");
        }
    }

    // As ever, a place is of so many bytes.
    let place = guest.place(bulk.start as u64, 1 << 20).unwrap();
    assert!(host.copy_in(place, &megabyte[1..]).is_err());
    assert!(guest.copy_in(place, &megabyte[1..]).is_err());
}
