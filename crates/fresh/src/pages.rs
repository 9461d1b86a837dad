//! Putting written pages back, and only those.
//!
//! Linux tells which pages of a range are this process's own copies (`PAGEMAP_SCAN`, since 6.7): of a private mapping,
//! exactly those that were written at some time, or were put back after that. Pages that went to swap count: they are
//! not present, and written all the same.

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    ioctl::{Ioctl, IoctlOutput, Opcode, opcode},
};
use std::{ffi::c_void, fs::File, mem::MaybeUninit, ops::Range, ptr};

/// `struct page_region` of `linux/fs.h`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// `struct pm_scan_arg` of `linux/fs.h`.
#[repr(C)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const FILE: u64 = 1 << 2;
const PRESENT: u64 = 1 << 3;
const SWAPPED: u64 = 1 << 4;
const ZERO: u64 = 1 << 5;

// SAFETY: the opcode is that of `PAGEMAP_SCAN`, whose argument this is, laid out as the kernel's; the kernel writes to
// `walk_end` and to the `vec_len` regions at `vec`, which `Pages::restore` keeps alive across the call. The output is the
// count that the kernel returns.
unsafe impl Ioctl for &mut Scan {
    type Output = usize;
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        opcode::read_write::<Scan>(b'f', 16)
    }

    fn as_ptr(&mut self) -> *mut c_void {
        ptr::from_mut(*self).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<usize> {
        usize::try_from(out).map_err(|_| Errno::INVAL)
    }
}

/// A few ranges of whole pages of a memory, in bytes from its begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    runs: [Range<usize>; Self::RUNS],
    count: usize,
}

impl Written {
    pub(crate) const RUNS: usize = 4;
    /// To put back more than this in vain costs more than to ask the kernel.
    const BYTES: usize = 64 << 10;

    /// They.
    pub fn runs(&self) -> &[Range<usize>] {
        &self.runs[..self.count]
    }

    /// None if these are not few any more.
    fn and(mut self, run: Range<usize>) -> Option<Self> {
        *self.runs.get_mut(self.count)? = run;
        self.count += 1;
        let bytes: usize = self.runs().iter().map(Range::len).sum();
        (bytes <= Self::BYTES).then_some(self)
    }
}

/// What became of a memory that was to be restored.
#[derive(Debug, PartialEq, Eq)]
pub enum Restored {
    /// The pages that were ever written, if these are few.
    All(Option<Written>),
    /// More was written than was to be restored, or the kernel failed: the memory is in between.
    Not,
}

/// This process's map of pages.
pub struct Pages {
    map: File,
    page: usize,
}

impl Pages {
    /// None if this kernel does not tell.
    pub fn open() -> Option<Self> {
        let map = rustix::fs::open(
            "/proc/self/pagemap",
            OFlags::RDONLY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .ok()?;
        let pages = Self {
            map: map.into(),
            page: rustix::param::page_size(),
        };
        let mut regions = [MaybeUninit::uninit()];
        pages.scan(0, 0, 1, &mut regions).ok()?;
        Some(pages)
    }

    /// Where the scan ended, and what it found before: at most `most` pages.
    fn scan<'a>(
        &self,
        start: usize,
        end: usize,
        most: usize,
        regions: &'a mut [MaybeUninit<Region>],
    ) -> rustix::io::Result<(usize, &'a [Region])> {
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            flags: 0,
            start: start as u64,
            end: end as u64,
            walk_end: 0,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            max_pages: most as u64,
            category_inverted: ZERO | FILE,
            category_mask: ZERO | FILE,
            category_anyof_mask: PRESENT | SWAPPED,
            return_mask: 0,
        };
        // SAFETY: see the implementation of `Ioctl`; `regions` outlives the call.
        let found = unsafe { rustix::ioctl::ioctl(&self.map, &mut scan) }?;
        let found = &regions[..found.min(regions.len())];
        // SAFETY: the kernel has filled as many regions as it returned.
        let found = unsafe { &*(ptr::from_ref(found) as *const [Region]) };
        Ok((scan.walk_end as usize, found))
    }

    /// Makes memory equal to `image` at `at` and zero elsewhere, if no more than `most` bytes of pages were ever written.
    pub fn restore(&self, memory: &mut [u8], image: &[u8], at: usize, most: usize) -> Restored {
        const REGIONS: usize = 32;
        let range = memory.as_mut_ptr_range();
        let (base, end) = (range.start as usize, range.end as usize);
        let mut left = most / self.page;
        let mut start = base;
        let mut written = Some(Written::default());
        // To the kernel, no pages are as many as there are.
        while start < end && left > 0 {
            let mut regions = [MaybeUninit::uninit(); REGIONS];
            let Ok((walked, found)) = self.scan(start, end, left, &mut regions) else {
                return Restored::Not;
            };
            for region in found {
                let (from, to) = (region.start as usize - base, region.end as usize - base);
                left = left.saturating_sub((to - from) / self.page);
                restore(&mut memory[from..to], image, at, from);
                written = written.and_then(|written| written.and(from..to));
            }
            if walked >= end {
                return Restored::All(written);
            }
            if found.len() < REGIONS {
                // It stopped for the number of pages.
                return Restored::Not;
            }
            start = walked;
        }
        if start >= end {
            Restored::All(written)
        } else {
            Restored::Not
        }
    }
}

/// Fills `part`, which begins at `from` in its memory.
pub(crate) fn restore(part: &mut [u8], image: &[u8], at: usize, from: usize) {
    let to = from + part.len();
    let (first, last) = (at.clamp(from, to), (at + image.len()).clamp(from, to));
    zero(&mut part[..first - from]);
    if first < last {
        part[first - from..last - from].copy_from_slice(&image[first - at..last - at]);
    }
    zero(&mut part[last.max(first) - from..]);
}

/// glibc fills a few bytes by a masked store, and no bytes by one whose mask is empty. At the begin of a page that may not be
/// written, as the one after `part` often is, the processor takes 70 ns to find that there is nothing to fault for;
/// to zero all of a page takes 24 (glibc 2.36, Intel 6/207).
fn zero(bytes: &mut [u8]) {
    if !bytes.is_empty() {
        bytes.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

    struct Map(*mut c_void, usize);

    impl Map {
        fn new(bytes: usize) -> Self {
            // SAFETY: a new mapping, which nobody else knows.
            let at = unsafe {
                mmap_anonymous(
                    ptr::null_mut(),
                    bytes,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::PRIVATE,
                )
            };
            Self(at.unwrap(), bytes)
        }

        fn bytes(&mut self) -> &mut [u8] {
            // SAFETY: mapped, readable and writable, for as long as `self`.
            unsafe { std::slice::from_raw_parts_mut(self.0.cast(), self.1) }
        }
    }

    impl Drop for Map {
        fn drop(&mut self) {
            // SAFETY: mapped by `new`; `bytes` borrows `self`.
            unsafe { munmap(self.0, self.1) }.unwrap();
        }
    }

    fn pages() -> Option<Pages> {
        let pages = Pages::open();
        if pages.is_none() {
            println!("skipped: this kernel has no PAGEMAP_SCAN");
        }
        pages
    }

    fn restored(pages: &Pages, memory: &mut [u8], image: &[u8], at: usize, most: usize) -> bool {
        matches!(pages.restore(memory, image, at, most), Restored::All(_))
    }

    #[test]
    fn few_written_pages_are_told() {
        let Some(pages) = pages() else { return };
        const PAGE: usize = 4096;
        let mut map = Map::new(100 * PAGE);
        let mut told = |write: &[usize]| {
            for page in write {
                map.bytes()[page * PAGE + page] = 1;
            }
            let Restored::All(written) = pages.restore(map.bytes(), &[], 0, 100 * PAGE) else {
                panic!("it is restored");
            };
            written.map(|written| written.runs().to_vec())
        };
        let run = |from, to| from * PAGE..to * PAGE;
        assert_eq!(told(&[]), Some(vec![]));
        assert_eq!(told(&[3, 4]), Some(vec![run(3, 5)]));
        assert_eq!(told(&[90]), Some(vec![run(3, 5), run(90, 91)]));
        assert!(told(&[7, 99]).is_some_and(|runs| runs.len() == 4));
        // One run too many; and one that is too long.
        assert_eq!(told(&[50]), None);
        let mut map = Map::new(100 * PAGE);
        map.bytes()[..17 * PAGE].fill(1);
        assert_eq!(
            pages.restore(map.bytes(), &[], 0, 100 * PAGE),
            Restored::All(None)
        );
    }

    #[test]
    fn written_pages_become_what_they_were() {
        let Some(pages) = pages() else { return };
        const PAGE: usize = 4096;
        // The image begins and ends within pages, and pages lie before, in and after it.
        let (image, at) = ((0..3 * PAGE).map(|i| i as u8 | 1).collect::<Vec<_>>(), PAGE + 100);
        let mut expected = vec![0; 200 * PAGE];
        expected[at..at + image.len()].copy_from_slice(&image);
        let mut map = Map::new(expected.len());
        map.bytes().copy_from_slice(&expected);
        for stride in [1, 2, 3, 7, 50] {
            for (n, byte) in map.bytes().iter_mut().step_by(stride * 1000).enumerate() {
                *byte = n as u8 ^ 0x55;
            }
            assert!(restored(&pages, map.bytes(), &image, at, 200 * PAGE));
            assert!(map.bytes() == expected, "stride {stride}");
        }
    }

    #[test]
    fn more_regions_than_one_scan_reports() {
        let Some(pages) = pages() else { return };
        let mut map = Map::new(400 * 4096);
        for page in (0..400).step_by(2) {
            map.bytes()[page * 4096 + page] = 1;
        }
        assert!(restored(&pages, map.bytes(), &[], 0, 200 * 4096));
        assert!(map.bytes().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn too_much_is_left_to_others() {
        let Some(pages) = pages() else { return };
        let mut map = Map::new(100 * 4096);
        map.bytes()[..40 * 4096].fill(1);
        for most in [0, 1, 4095, 39 * 4096] {
            assert_eq!(pages.restore(map.bytes(), &[], 0, most), Restored::Not);
        }
        assert!(restored(&pages, map.bytes(), &[], 0, 40 * 4096));
    }
}
