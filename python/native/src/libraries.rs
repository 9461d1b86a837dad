//! How libraries lie in memory: in as few pieces as can be, each of which costs every fork.
//!
//! A loader maps a library in five pieces, of which three are never written: what is read, what is executed, what is read. A fourth it has written and
//! closed. The kernel copies what it knows of each piece in each fork, and takes it apart when the fork ends. After scikit-learn's import a process has
//! some 180 libraries and 1,040 pieces; two for each library are half as many.

use std::{ffi::c_int, ptr};

/// A range of addresses, and what may be done there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    begin: usize,
    end: usize,
    /// What its addresses are ahead of the places in the file.
    ahead: usize,
    rights: c_int,
}

const READ: c_int = libc::PROT_READ;
const WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;
const EXECUTE: c_int = libc::PROT_READ | libc::PROT_EXEC;

/// What is to be changed of a library whose loaded pieces these are, in the order of their addresses: its constants may be executed as its code may, where they lie
/// beside that in memory and file; and what was closed once it was relocated, `closed`, may be written as what lies behind it may.
fn joining(loaded: &[Piece], closed: Option<Piece>) -> Vec<Piece> {
    let beside = |one: &Piece, other: &Piece| one.end == other.begin && one.ahead == other.ahead;
    let mut joined = vec![false; loaded.len()];
    for (n, code) in loaded
        .iter()
        .enumerate()
        .filter(|(_, piece)| piece.rights == EXECUTE)
    {
        let before = n.checked_sub(1).filter(|n| beside(&loaded[*n], code));
        let behind = Some(n + 1).filter(|n| loaded.get(*n).is_some_and(|next| beside(code, next)));
        for constants in before.into_iter().chain(behind) {
            joined[constants] = loaded[constants].rights == READ;
        }
    }
    let constants = loaded.iter().zip(joined).filter(|(_, joined)| *joined);
    let constants = constants.map(|(piece, _)| Piece {
        rights: EXECUTE,
        ..*piece
    });
    let closed = closed.filter(|closed| {
        let around = |piece: &&Piece| piece.begin <= closed.begin && closed.end < piece.end;
        let data = loaded.iter().find(around);
        data.is_some_and(|data| data.rights == WRITE)
    });
    constants.chain(closed).collect()
}

/// Joins the pieces of each library that is loaded. Where the kernel refuses, they stay as they are.
pub(crate) fn join() {
    // SAFETY: the function is what the loader calls for each library, and nothing is passed to it.
    unsafe { libc::dl_iterate_phdr(Some(each), ptr::null_mut()) };
}

unsafe extern "C" fn each(library: *mut libc::dl_phdr_info, _: usize, _: *mut libc::c_void) -> c_int {
    // SAFETY: the loader says it of a library that is loaded, and holds that meanwhile.
    let (base, headers) = unsafe {
        let library = &*library;
        if library.dlpi_phdr.is_null() {
            return 0;
        }
        let headers = std::slice::from_raw_parts(library.dlpi_phdr, library.dlpi_phnum.into());
        (library.dlpi_addr as usize, headers)
    };
    // SAFETY: it asks for a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) }.unsigned_abs() as usize;
    let (loaded, closed) = pieces(base, headers, page);
    for piece in joining(&loaded, closed) {
        // SAFETY: the library's own memory, which may be used as before and in one more way.
        unsafe {
            libc::mprotect(
                ptr::with_exposed_provenance_mut(piece.begin),
                piece.end - piece.begin,
                piece.rights,
            )
        };
    }
    0
}

/// What a loader makes of a library's headers: what it has mapped, and what of it it has closed.
fn pieces(base: usize, headers: &[Header], page: usize) -> (Vec<Piece>, Option<Piece>) {
    let mut loaded = Vec::new();
    let mut closed = None;
    for header in headers {
        let begin = base.wrapping_add(header.p_vaddr as usize);
        let Some(end) = begin.checked_add(header.p_memsz as usize) else {
            continue;
        };
        let right = |flag, right| if header.p_flags & flag != 0 { right } else { 0 };
        let ahead = (header.p_vaddr as usize).wrapping_sub(header.p_offset as usize);
        match header.p_type {
            libc::PT_LOAD => loaded.push(Piece {
                begin: begin & !(page - 1),
                end: end.next_multiple_of(page),
                ahead,
                rights: right(libc::PF_R, libc::PROT_READ)
                    | right(libc::PF_W, libc::PROT_WRITE)
                    | right(libc::PF_X, libc::PROT_EXEC),
            }),
            // What begins or ends within a page is open: the loader closes whole ones.
            libc::PT_GNU_RELRO => {
                closed = Some(Piece {
                    begin: begin & !(page - 1),
                    end: end & !(page - 1),
                    ahead,
                    rights: WRITE,
                });
            }
            _ => {}
        }
    }
    (loaded, closed.filter(|closed| closed.begin < closed.end))
}

#[cfg(target_pointer_width = "64")]
type Header = libc::Elf64_Phdr;
#[cfg(target_pointer_width = "32")]
type Header = libc::Elf32_Phdr;

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(begin: usize, end: usize, ahead: usize, rights: c_int) -> Piece {
        Piece {
            begin,
            end,
            ahead,
            rights,
        }
    }

    #[test]
    fn constants_join_code_and_what_was_closed_joins_what_is_written() {
        let loaded = [
            piece(0x1000, 0x3000, 0, READ),
            piece(0x3000, 0x6000, 0, EXECUTE),
            piece(0x6000, 0x8000, 0, READ),
            piece(0x8000, 0xc000, 0x1000, WRITE),
        ];
        let closed = piece(0x8000, 0x9000, 0x1000, WRITE);
        let expected = [
            piece(0x1000, 0x3000, 0, EXECUTE),
            piece(0x6000, 0x8000, 0, EXECUTE),
            closed,
        ];
        assert_eq!(joining(&loaded, Some(closed)), expected);
    }

    #[test]
    fn what_would_not_become_one_piece_stays_as_it_is() {
        // Not beside each other in memory, or in the file; nothing of code; all of it closed; nothing there to be written.
        for loaded in [
            &[piece(0x1000, 0x3000, 0, READ), piece(0x4000, 0x6000, 0, EXECUTE)][..],
            &[
                piece(0x3000, 0x6000, 0, EXECUTE),
                piece(0x6000, 0x8000, 0x1000, READ),
            ],
            &[piece(0x1000, 0x3000, 0, READ)],
            &[piece(0x8000, 0x9000, 0, WRITE)],
            &[],
        ] {
            let closed = piece(0x8000, 0x9000, 0, WRITE);
            assert_eq!(joining(loaded, Some(closed)), [], "{loaded:?}");
        }
    }

    #[test]
    fn this_process_goes_on_in_fewer_pieces() {
        let count = || {
            std::fs::read_to_string("/proc/self/maps")
                .unwrap()
                .lines()
                .count()
        };
        let before = count();
        join();
        let after = count();
        assert!(after < before, "{before} pieces, then {after}");
        join();
        assert!(count() <= after + 2, "{after} pieces, then {}", count());
    }
}
