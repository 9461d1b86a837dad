//! What an ELF executable says of itself, checked: it is untrusted code.

use crate::{instructions, page};
use contract::PrepareError;
use object::{
    LittleEndian as Le, Object as _, ObjectSymbol as _,
    elf::{self, FileHeader64},
    read::elf::{ElfFile64, ElfSymbol, FileHeader as _, ProgramHeader as _},
};
use pure::system_data;
use serde::{Deserialize, Serialize};
use std::{ops::Range, path::PathBuf};

/// The lowest address that a pure function may have, and the one above the highest. What a process has besides lies outside.
pub(crate) const ADDRESSES: Range<u64> = 0x1_0000..0x1000_0000_0000;

/// The processor of this host.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") {
    elf::EM_AARCH64
} else {
    elf::EM_X86_64
};

/// What is known of an executable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Executable {
    /// Who loads it, if not the kernel alone.
    pub(crate) interpreter: Option<PathBuf>,
    /// Libraries that it asks for, by name.
    pub(crate) libraries: Vec<String>,
    /// How it is laid out as a pure function, if it can be one; or why it cannot.
    pub(crate) pure: Result<Layout, String>,
}

/// Where the parts of a pure function lie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Layout {
    /// Its first instruction.
    pub(crate) entry: u64,
    /// Its `__dandelion_system_data`.
    pub(crate) system_data: u64,
    /// Whole pages that it takes, before any heap.
    pub(crate) span: Range<u64>,
    /// In the order of their addresses; no two share a page.
    pub(crate) segments: Vec<Segment>,
}

/// A part of an executable in memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Segment {
    /// Where it begins.
    pub(crate) address: u64,
    /// Bytes in memory. Those that are not in the file are 0.
    pub(crate) size: u64,
    /// Where it begins in the file.
    pub(crate) offset: u64,
    /// Bytes in the file.
    pub(crate) filled: u64,
    /// Whether it can be written to.
    pub(crate) write: bool,
    /// Whether it can be run.
    pub(crate) execute: bool,
}

impl Segment {
    /// The pages that it lies in.
    pub(crate) fn pages(&self) -> Range<u64> {
        page::down(self.address)..page::up(self.address + self.size)
    }
}

fn malformed(reason: impl ToString) -> PrepareError {
    PrepareError::Malformed(reason.to_string())
}

/// Reads an executable.
pub(crate) fn read(bytes: &[u8]) -> Result<Executable, PrepareError> {
    if !bytes.starts_with(&elf::ELFMAG) {
        return Err(PrepareError::Unsupported(
            "it is no ELF executable, which the engine `process` runs".to_owned(),
        ));
    }
    let file = ElfFile64::<Le>::parse(bytes).map_err(malformed)?;
    let (header, endian) = (file.elf_header(), file.endian());
    if header.e_machine(endian) != MACHINE {
        return Err(PrepareError::Unsupported(format!(
            "it is for another processor (ELF machine {}) than this host's ({MACHINE})",
            header.e_machine(endian)
        )));
    }
    let kind = header.e_type(endian);
    if kind != elf::ET_EXEC && kind != elf::ET_DYN {
        return Err(PrepareError::Unsupported(
            "it is an object or a core, not an executable".to_owned(),
        ));
    }
    let mut interpreter = None;
    for program in file.elf_program_headers() {
        if let Some(path) = program.interpreter(endian, bytes).map_err(malformed)? {
            let path = std::str::from_utf8(path).map_err(malformed)?;
            interpreter = Some(PathBuf::from(path));
        }
    }
    let pure = layout(&file, bytes, interpreter.is_some());
    Ok(Executable {
        interpreter,
        libraries: libraries(&file, bytes)?,
        pure,
    })
}

/// The names of libraries that it asks for.
fn libraries(file: &ElfFile64<'_, Le>, bytes: &[u8]) -> Result<Vec<String>, PrepareError> {
    let table = file.elf_section_table();
    let dynamic = table.dynamic_table(Le, bytes).map_err(malformed)?;
    let needed = dynamic.iter().filter(|entry| entry.tag == elf::DT_NEEDED);
    needed
        .map(|entry| {
            let name = dynamic.string(entry).map_err(malformed)?;
            Ok(std::str::from_utf8(name).map_err(malformed)?.to_owned())
        })
        .collect()
}

/// How it is laid out as a pure function, or why it is none.
fn layout(file: &ElfFile64<'_, Le>, bytes: &[u8], interpreted: bool) -> Result<Layout, String> {
    if !cfg!(target_arch = "x86_64") {
        return Err("pure functions in native code run on x86-64 hosts only".to_owned());
    }
    let export = |symbol: &ElfSymbol<'_, '_, FileHeader64<Le>>| symbol.name() == Ok(system_data::EXPORT);
    let symbol = file
        .symbols()
        .find(export)
        .or_else(|| file.dynamic_symbols().find(export));
    let system_data = symbol
        .filter(|symbol| symbol.is_definition())
        .map(|symbol| symbol.address())
        .ok_or_else(|| {
            format!(
                "it defines no `{}` (was it stripped of its symbols?)",
                system_data::EXPORT
            )
        })?;
    if interpreted || file.elf_header().e_type(Le) != elf::ET_EXEC {
        return Err("it is not at a fixed address by itself: link it with `-static -no-pie`".to_owned());
    }
    let mut segments = Vec::new();
    for program in file.elf_program_headers() {
        match program.p_type(Le) {
            elf::PT_TLS if program.p_memsz(Le) > 0 => {
                return Err("it has thread-local variables, and there are no threads".to_owned());
            }
            elf::PT_LOAD if program.p_memsz(Le) > 0 => {}
            _ => continue,
        }
        let flags = program.p_flags(Le);
        let segment = Segment {
            address: program.p_vaddr(Le),
            size: program.p_memsz(Le),
            offset: program.p_offset(Le),
            filled: program.p_filesz(Le),
            write: flags & elf::PF_W != 0,
            execute: flags & elf::PF_X != 0,
        };
        check(&segment, bytes.len() as u64)?;
        segments.push(segment);
    }
    if segments.len() > MOST_SEGMENTS {
        return Err(format!("it has more than {MOST_SEGMENTS} segments"));
    }
    if let Some([first, second]) = segments
        .array_windows()
        .find(|[first, second]| first.pages().end > second.pages().start)
    {
        return Err(format!(
            "its segments at {:#x} and {:#x} share a page: link it with `-z separate-code`",
            first.address, second.address
        ));
    }
    let (Some(first), Some(last)) = (segments.first(), segments.last()) else {
        return Err("it has nothing to load".to_owned());
    };
    let span = first.pages().start..last.pages().end;
    let entry = file.elf_header().e_entry(Le);
    let within = |segment: &&Segment, at: u64, bytes: u64| {
        at >= segment.address && at.saturating_add(bytes) <= segment.address + segment.size
    };
    if !segments
        .iter()
        .any(|segment| segment.execute && within(&segment, entry, 1))
    {
        return Err("it begins outside of its code".to_owned());
    }
    for (address, code) in runnable(&segments, bytes) {
        if let Some(found) = instructions::find(&code, address) {
            return Err(found.to_string());
        }
    }
    let size = system_data::size::<u64>() as u64;
    let writable = |segment: &&Segment| segment.write && within(segment, system_data, size);
    if !segments.iter().any(|segment| writable(&segment)) {
        return Err(format!(
            "its `{}` is not among its variables",
            system_data::EXPORT
        ));
    }
    Ok(Layout {
        entry,
        system_data,
        span,
        segments,
    })
}

/// All that can be run, as it will lie in memory, and from which address on: whole pages, whatever else of the file is on them, and those that
/// follow each other in one piece.
fn runnable(segments: &[Segment], bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
    for segment in segments.iter().filter(|segment| segment.execute) {
        let pages = segment.pages();
        let from = page::down(segment.offset) as usize;
        let to = from + (pages.end - pages.start) as usize;
        let mut code = bytes.get(from..to.min(bytes.len())).unwrap_or_default().to_vec();
        code.resize(to - from, 0);
        match pieces.last_mut() {
            Some((begin, before)) if *begin + before.len() as u64 == pages.start => before.extend(code),
            _ => pieces.push((pages.start, code)),
        }
    }
    pieces
}

/// More than any linker makes.
const MOST_SEGMENTS: usize = 16;

/// Whether a segment can be mapped as it is.
fn check(segment: &Segment, file: u64) -> Result<(), String> {
    let at = format!("its segment at {:#x}", segment.address);
    let end = segment.address.checked_add(segment.size);
    if segment.address < ADDRESSES.start || end.is_none_or(|end| page::up(end) > ADDRESSES.end) {
        return Err(format!(
            "{at} lies outside of {:#x} to {:#x}",
            ADDRESSES.start, ADDRESSES.end
        ));
    }
    if segment.filled > segment.size
        || segment
            .offset
            .checked_add(segment.filled)
            .is_none_or(|end| end > file)
    {
        return Err(format!("{at} is larger than the file says"));
    }
    if segment.address % page::SIZE != segment.offset % page::SIZE {
        return Err(format!("{at} is not aligned to pages as in the file"));
    }
    if segment.write && segment.execute {
        return Err(format!("{at} can be both written to and run"));
    }
    if !segment.write && page::up(segment.address + segment.filled) < page::up(segment.address + segment.size)
    {
        return Err(format!("{at} is empty and cannot be written to"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = page::SIZE;

    fn code(address: u64, offset: u64, size: u64) -> Segment {
        Segment {
            address,
            size,
            offset,
            filled: size,
            write: false,
            execute: true,
        }
    }

    #[test]
    fn all_that_can_be_run_is_looked_at() {
        let mut file = vec![0x90; 4 * PAGE as usize + 100];
        // Two that follow each other in memory, and not in the file; one that shares its pages with others' bytes; and data.
        let segments = [
            code(0x40_0000, 2 * PAGE, PAGE),
            code(0x40_0000 + PAGE, 0, PAGE),
            code(0x50_0010, 4 * PAGE + 0x10, 8),
            Segment {
                execute: false,
                ..code(0x60_0000, 3 * PAGE, PAGE)
            },
        ];
        let found = |file: &[u8]| {
            let pieces = runnable(&segments, file);
            assert_eq!(
                pieces.iter().map(|(at, _)| *at).collect::<Vec<_>>(),
                [0x40_0000, 0x50_0000]
            );
            assert!(
                pieces
                    .iter()
                    .map(|(_, code)| code.len() as u64)
                    .eq([2 * PAGE, PAGE])
            );
            pieces
                .iter()
                .find_map(|(at, code)| instructions::find(code, *at))
                .map(|found| found.to_string())
        };
        assert_eq!(found(&file), None);
        let mut put = |places: [u64; 3], at: &str| {
            let before = file.clone();
            for (place, byte) in places.into_iter().zip([0x0f, 0xc7, 0xf0]) {
                file[place as usize] = byte;
            }
            match (found(&file), at) {
                (Some(text), at) if !at.is_empty() => assert!(text.contains(at), "{text}"),
                (None, "") => {}
                (found, at) => panic!("{places:?}: {found:?}, not {at}"),
            }
            file = before;
        };
        put([2 * PAGE + 5, 2 * PAGE + 6, 2 * PAGE + 7], "0x400005");
        // From one segment into the next.
        put([3 * PAGE - 1, 0, 1], "0x400fff");
        put([3 * PAGE - 2, 3 * PAGE - 1, 0], "0x400ffe");
        // Before and behind a segment, on its page.
        put([4 * PAGE, 4 * PAGE + 1, 4 * PAGE + 2], "0x500000");
        put([4 * PAGE + 97, 4 * PAGE + 98, 4 * PAGE + 99], "0x500061");
        // What cannot be run may look like anything.
        put([3 * PAGE + 5, 3 * PAGE + 6, 3 * PAGE + 7], "");
        put([PAGE + 5, PAGE + 6, PAGE + 7], "");
    }
}
