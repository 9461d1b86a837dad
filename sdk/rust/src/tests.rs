use crate::heap::Heap;
use core::alloc::{GlobalAlloc as _, Layout};
use std::{boxed::Box, collections::BTreeMap, vec};

fn range() -> (usize, usize) {
    let room = Box::leak(vec![0_u128; 4096].into_boxed_slice());
    let begin = room.as_mut_ptr().expose_provenance();
    (begin, begin + 16 * room.len())
}

#[test]
fn pieces_do_not_overlap_and_are_used_again() {
    let heap = Heap::new(range);
    let mut alive: BTreeMap<usize, Layout> = BTreeMap::new();
    let mut number = 1_u64;
    for _ in 0..20_000 {
        // Xorshift.
        number ^= number << 13;
        number ^= number >> 7;
        number ^= number << 17;
        let size = (number % 700 + 1) as usize;
        let layout = Layout::from_size_align(size, 1 << (number >> 20 & 7)).unwrap();
        if alive.len() < 20 {
            // SAFETY: it has a size.
            let at = unsafe { heap.alloc(layout) };
            assert!(!at.is_null() && at.addr().is_multiple_of(layout.align()));
            // SAFETY: the piece is ours.
            unsafe { at.write_bytes(0xaa, size) };
            let at = at.expose_provenance();
            let before = alive.range(..at).next_back();
            assert!(before.is_none_or(|(before, layout)| before + layout.size() <= at));
            assert!(
                alive
                    .range(at..)
                    .next()
                    .is_none_or(|(after, _)| at + size <= *after)
            );
            alive.insert(at, layout);
        } else {
            let (at, layout) = alive.pop_first().unwrap();
            // SAFETY: it was handed out with this layout.
            unsafe { heap.dealloc(core::ptr::with_exposed_provenance_mut(at), layout) };
        }
    }
}

#[test]
fn a_heap_ends() {
    let heap = Heap::new(range);
    let layout = Layout::from_size_align(4096, 16).unwrap();
    // SAFETY: it has a size.
    let count = (0..100)
        .take_while(|_| unsafe { !heap.alloc(layout).is_null() })
        .count();
    assert_eq!(count, 16);
    let huge = Layout::from_size_align(isize::MAX as usize - 100, 16).unwrap();
    // SAFETY: as above.
    assert!(unsafe { heap.alloc(huge).is_null() });
}
