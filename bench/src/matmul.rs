//! The function of bench-engines, compiled into the server: bench/engines/matmul.c says what it is.

use anyhow::{Context as _, Result};
use std::{fs, path::PathBuf};

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
pub(crate) fn product(matrix: &[u8]) -> Option<Vec<u8>> {
    let size = (matrix.len() / 8).isqrt();
    if size * size * 8 != matrix.len() {
        return None;
    }
    let values: Vec<u64> = matrix
        .chunks_exact(8)
        .map(|bytes| {
            bytes
                .iter()
                .rev()
                .fold(0, |value, byte| value << 8 | u64::from(*byte))
        })
        .collect();
    let mut product = Vec::with_capacity(matrix.len());
    multiply(&values, size, &mut product);
    Some(product)
}

/// By what this processor has, as the compilers of guests do.
fn multiply(values: &[u64], size: usize, product: &mut Vec<u8>) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512dq") && is_x86_feature_detected!("avx512vl") {
        #[expect(
            unsafe_code,
            reason = "the processor has just been asked for these instructions"
        )]
        // SAFETY: as above.
        return unsafe { wide(values, size, product) };
    }
    rows(values, size, product);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512dq,avx512vl,avx512bw")]
fn wide(values: &[u64], size: usize, product: &mut Vec<u8>) {
    rows(values, size, product);
}

#[inline(always)]
fn rows(values: &[u64], size: usize, product: &mut Vec<u8>) {
    for row in values.chunks_exact(size.max(1)) {
        for other in values.chunks_exact(size.max(1)) {
            let sum = row
                .iter()
                .zip(other)
                .fold(0_u64, |sum, (a, b)| sum.wrapping_add(a.wrapping_mul(*b)));
            product.extend_from_slice(&sum.to_le_bytes());
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

    #[test]
    fn wide_and_narrow_sums_are_the_same() {
        let size = 37;
        let values: Vec<u64> = (0..size * size)
            .map(|n| (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
            .collect();
        let (mut any, mut narrow) = (Vec::new(), Vec::new());
        multiply(&values, size, &mut any);
        rows(&values, size, &mut narrow);
        assert_eq!(any, narrow);
    }
}
