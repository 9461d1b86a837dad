//! The function of bench-engines without a sandbox (bench/engines/product.h says what it is): as a part of the server, from the same source and
//! compiler as the guests, and once more in Rust, by which all answers are checked.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use std::{
    ffi::{CStr, CString},
    fs, hint,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    ptr,
    time::{Duration, Instant},
};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// A file with a matrix.
    matrix: PathBuf,
    /// Where its product goes.
    product: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let matrix = fs::read(&options.matrix)?;
    let product = product(&matrix).context("this is no square matrix of 64-bit integers")?;
    Ok(fs::write(&options.product, product)?)
}

/// A square matrix of 64-bit integers by its transpose. `None` if these bytes are no such matrix.
fn product(matrix: &[u8]) -> Option<Vec<u8>> {
    let size = rows_in(matrix)?;
    let (values, _) = matrix.as_chunks::<8>();
    let values: Vec<_> = values.iter().copied().map(u64::from_le_bytes).collect();
    let mut product = Vec::with_capacity(matrix.len());
    for row in values.chunks_exact(size.max(1)) {
        for other in values.chunks_exact(size.max(1)) {
            let sum = row
                .iter()
                .zip(other)
                .fold(0_u64, |sum, (a, b)| sum.wrapping_add(a.wrapping_mul(*b)));
            product.extend_from_slice(&sum.to_le_bytes());
        }
    }
    Some(product)
}

fn rows_in(matrix: &[u8]) -> Option<usize> {
    let size = (matrix.len() / 8).isqrt();
    (size * size * 8 == matrix.len()).then_some(size)
}

/// Native code for this processor, which is a part of this process: as fast as the function can be.
#[derive(Clone, Copy)]
pub(crate) struct Native {
    multiply: Multiply,
    /// How it was compiled.
    pub(crate) way: &'static CStr,
}

/// Reads so many rows of as many integers, and writes as many.
type Multiply = unsafe extern "C" fn(*const u64, usize, *mut u64);

/// What the library of bench/engines/Makefile has, compiled from one source in several ways.
const WAYS: [&CStr; 3] = [c"product_plain", c"product_unrolled", c"product_widest"];

/// For a matrix of so many rows the fastest way is chosen.
const CHOSEN_FOR: usize = 128;
/// Rounds of all of them, to choose by each one's fastest.
const ROUNDS: usize = 20;

impl Native {
    /// The fastest of a library. It is never unloaded.
    pub(crate) fn load(library: &Path) -> Result<Self> {
        let shown = library.display();
        let path = CString::new(library.as_os_str().as_bytes())?;
        #[expect(
            unsafe_code,
            reason = "a library that was linked in could not be for this very processor"
        )]
        // SAFETY: it has no constructors: it is made of bench/engines/baremetal.c and nothing else.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        anyhow::ensure!(
            !handle.is_null(),
            "cannot load {shown}: make it with `make -C bench/engines`"
        );
        let mut ways = Vec::new();
        for way in WAYS {
            #[expect(unsafe_code, reason = "as above")]
            // SAFETY: the handle is an open library's, and the name is terminated.
            let symbol = unsafe { libc::dlsym(handle, way.as_ptr()) };
            anyhow::ensure!(!symbol.is_null(), "{shown} has no {}", way.to_string_lossy());
            #[expect(unsafe_code, reason = "as above")]
            // SAFETY: each of these is declared as `Multiply` there.
            let multiply = unsafe { std::mem::transmute::<*mut libc::c_void, Multiply>(symbol) };
            ways.push((Self { multiply, way }, Duration::MAX));
        }
        let matrix = vec![3; CHOSEN_FOR * CHOSEN_FOR];
        for _ in 0..ROUNDS {
            for (native, fastest) in &mut ways {
                let begin = Instant::now();
                hint::black_box(native.multiply(hint::black_box(&matrix), CHOSEN_FOR));
                *fastest = begin.elapsed().min(*fastest);
            }
        }
        let fastest = ways.into_iter().min_by_key(|(_, time)| *time);
        Ok(fastest.context("there is no way to multiply")?.0)
    }

    /// The product of a request's body, which is read where it lies. `None` if it is no square matrix.
    pub(crate) fn product(self, matrix: &[u8]) -> Option<Bytes> {
        let size = rows_in(matrix)?;
        // Where the compiler could not count on its place, it is put where it can.
        let (before, values, _) = aligned(matrix);
        let product = match before {
            [] => self.multiply(values, size),
            _ => {
                let (values, _) = matrix.as_chunks::<8>();
                let values: Vec<_> = values.iter().copied().map(u64::from_ne_bytes).collect();
                self.multiply(&values, size)
            }
        };
        Some(Bytes::from_owner(Product(product)))
    }

    fn multiply(self, matrix: &[u64], size: usize) -> Vec<u64> {
        assert_eq!(matrix.len(), size * size, "a square matrix");
        let mut product = Vec::with_capacity(matrix.len());
        #[expect(unsafe_code, reason = "the function is C's")]
        // SAFETY: it reads `size * size` integers, which are there, and writes as many, for which there is room.
        unsafe {
            (self.multiply)(matrix.as_ptr(), size, product.as_mut_ptr());
            product.set_len(matrix.len());
        }
        product
    }
}

/// The integers that lie where they may, and what is left before and behind them.
fn aligned(bytes: &[u8]) -> (&[u8], &[u64], &[u8]) {
    #[expect(unsafe_code, reason = "a copy would be work that the function does not have")]
    // SAFETY: any eight bytes are an integer.
    unsafe {
        bytes.align_to()
    }
}

struct Product(Vec<u64>);

impl AsRef<[u8]> for Product {
    fn as_ref(&self) -> &[u8] {
        #[expect(unsafe_code, reason = "as for what is read")]
        // SAFETY: an integer is eight bytes, each of which has been written.
        unsafe {
            std::slice::from_raw_parts(ptr::from_ref(&*self.0).cast(), size_of_val(&*self.0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    #[test]
    fn a_matrix_by_its_transpose() {
        let product = product(&bytes(&[1, 2, 3, u64::MAX])).unwrap();
        assert_eq!(product, bytes(&[5, 1, 1, 10]));
        assert_eq!(super::product(&[]), Some(Vec::new()));
        assert_eq!(super::product(&[0; 16]), None);
    }

    /// As the library does it.
    extern "C" fn slow(rows: *const u64, size: usize, product: *mut u64) {
        for place in 0..size * size {
            let (row, other) = (place / size, place % size);
            let sum = (0..size).fold(0_u64, |sum, k| {
                #[expect(unsafe_code, reason = "it stands for a function of C's")]
                // SAFETY: `multiply` has made sure of the pointers.
                let (a, b) = unsafe { (*rows.add(row * size + k), *rows.add(other * size + k)) };
                sum.wrapping_add(a.wrapping_mul(b))
            });
            #[expect(unsafe_code, reason = "as above")]
            // SAFETY: as above.
            unsafe {
                *product.add(place) = sum;
            }
        }
    }

    #[test]
    fn a_body_is_multiplied_wherever_it_lies() {
        let native = Native {
            multiply: slow,
            way: c"slow",
        };
        let size = 5;
        let values: Vec<u64> = (0..size * size)
            .map(|n| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        let matrix = bytes(&values);
        for shift in 0..8 {
            let shifted = [&vec![7; shift][..], &matrix].concat();
            assert_eq!(
                native.product(&shifted[shift..]).as_deref(),
                product(&matrix).as_deref(),
                "{shift} bytes further"
            );
        }
        assert_eq!(native.product(&[]).as_deref(), Some(&[][..]));
        assert_eq!(native.product(&[0; 16]), None);
    }

    #[test]
    fn each_way_of_the_library_computes_the_same() {
        let library = Path::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../build/bench/engines/baremetal.so"
        ));
        if !library.exists() {
            println!(
                "skipped: {} is not there: `make -C bench/engines` makes it",
                library.display()
            );
            return;
        }
        let native = Native::load(library).unwrap();
        println!("the fastest: {}", native.way.to_string_lossy());
        for size in [0, 1, 3, 37, 128] {
            let values: Vec<u64> = (0..size * size)
                .map(|n| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
                .collect();
            let matrix = bytes(&values);
            assert_eq!(native.product(&matrix).as_deref(), product(&matrix).as_deref());
        }
    }
}
