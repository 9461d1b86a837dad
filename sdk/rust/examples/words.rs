//! A pure function of two kinds of input: counts the words of each item of `texts`, and multiplies the matrices `a` and `b` of `matrices`.
//!
//! `counts` gets an item for each text, of the same name and key: its words in the order of their bytes, each with its count. `product` gets `c`.
//! Matrices are square, of little-endian doubles. sdk/c/examples/words.c is the same function.

#![no_std]

extern crate alloc;

use alloc::{collections::BTreeMap, string::ToString as _, vec::Vec};
use millpond_pure::{Failure, Inputs, Item, Outputs};

millpond_pure::main!(words);

fn words(inputs: &Inputs<'_>, outputs: &mut Outputs) -> Result<(), Failure> {
    for text in inputs.set("texts").iter().flat_map(|texts| texts.items()) {
        outputs.give_with_key("counts", text.name, text.key, count(text.data))?;
    }
    let matrix = |name| inputs.set("matrices").and_then(|set| set.item(name));
    match (matrix("a"), matrix("b")) {
        (None, None) => Ok(()),
        (Some(a), Some(b)) => outputs.give("product", "c", multiply(a, b).ok_or(Failure(4))?),
        _ => Err(Failure(5)),
    }
}

fn count(text: &[u8]) -> Vec<u8> {
    let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
    let words = text.split(|byte| byte.is_ascii() && !byte.is_ascii_alphabetic());
    for word in words.filter(|word| !word.is_empty()) {
        *counts.entry(word).or_default() += 1;
    }
    let mut lines = Vec::new();
    for (word, count) in counts {
        lines.extend_from_slice(word);
        lines.push(b' ');
        lines.extend_from_slice(count.to_string().as_bytes());
        lines.push(b'\n');
    }
    lines
}

fn multiply(left: Item<'_>, right: Item<'_>) -> Option<Vec<u8>> {
    let (a, b) = (doubles(left.data)?, doubles(right.data)?);
    let size = a.len().isqrt();
    if size * size != a.len() || b.len() != a.len() {
        return None;
    }
    let mut product = Vec::with_capacity(left.data.len());
    for i in 0..size {
        for j in 0..size {
            let mut sum = 0.0;
            for k in 0..size {
                sum += a[i * size + k] * b[k * size + j];
            }
            product.extend_from_slice(&f64::to_le_bytes(sum));
        }
    }
    Some(product)
}

fn doubles(bytes: &[u8]) -> Option<Vec<f64>> {
    let (doubles, rest) = bytes.as_chunks();
    rest.is_empty()
        .then(|| doubles.iter().map(|double| f64::from_le_bytes(*double)).collect())
}
