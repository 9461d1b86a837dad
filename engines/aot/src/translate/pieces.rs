//! Large modules in pieces, so that several compilers work at one, and each with a bounded amount of memory.
//!
//! A piece is a run of functions, since those that call each other mostly lie close. What only its own functions call stays out of sight of the
//! other pieces, and LLVM may do with it what it likes. The first piece has, beside its functions, what a module has once: the library, the ways
//! in and out, and what the loader finds.

use super::Module;
use std::{collections::BTreeSet, ops::Range};
use wasmparser::Operator;

/// Bytes of Wasm code that make a piece: some ten thousand lines of C. It takes clang about six seconds and 150 MB (Go's, on a processor of 2023).
pub(crate) const PIECE: usize = 256 << 10;

/// Functions that are compiled together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// By their numbers.
    pub(super) functions: Range<u32>,
    /// Those of them that are used elsewhere.
    pub(super) shared: BTreeSet<u32>,
    /// Those of other pieces that it uses.
    pub(super) foreign: BTreeSet<u32>,
}

/// Pieces of a module, each of functions that together have `size` bytes of code, or hardly more. There is one at least.
pub(super) fn divide(module: &Module<'_>, size: usize) -> wasmparser::Result<Vec<Piece>> {
    let mut ends = Vec::new();
    let mut bytes = 0;
    for (function, body) in (module.imported_functions..).zip(&module.bodies) {
        if bytes >= size {
            ends.push(function);
            bytes = 0;
        }
        bytes += body.as_bytes().len();
    }
    ends.push(module.functions.len() as u32);
    let mut begin = module.imported_functions;
    let mut pieces: Vec<_> = ends
        .into_iter()
        .map(|end| Piece {
            functions: std::mem::replace(&mut begin, end)..end,
            shared: BTreeSet::new(),
            foreign: BTreeSet::new(),
        })
        .collect();
    if pieces.len() == 1 {
        return Ok(pieces);
    }
    pieces[0].foreign.extend(&module.referred);
    for piece in &mut pieces {
        for function in piece.functions.clone() {
            let body = &module.bodies[(function - module.imported_functions) as usize];
            for operator in body.get_operators_reader()? {
                if let Operator::Call { function_index } | Operator::ReturnCall { function_index } = operator?
                {
                    piece.foreign.insert(function_index);
                }
            }
        }
        let Range { start, end } = piece.functions;
        piece
            .foreign
            .retain(|function| *function >= module.imported_functions && !(start..end).contains(function));
    }
    let used: BTreeSet<u32> = pieces.iter().flat_map(|piece| &piece.foreign).copied().collect();
    for piece in &mut pieces {
        piece.shared = used.range(piece.functions.clone()).copied().collect();
    }
    Ok(pieces)
}
