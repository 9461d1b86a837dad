//! A loader for what the compiler made.
//!
//! The compiler's process and its tools are distrusted as far as that goes: the code itself must be what the translator asked for, but
//! nothing else that an object can ask of a loader is done for it. There are no libraries that it needs, no symbols that it
//! takes from elsewhere, no functions that run when it is loaded or that choose others (IFUNC), no thread-local storage, no relocations but
//! those by the address that it is loaded at, and nothing that is both writable and executable. In the end nothing of it is writable.

use crate::arena::{Arena, SLOT, Slot};
use object::{
    LittleEndian as Le,
    elf::{self, ProgramHeader64},
    read::elf::{Dyn as _, ElfFile64, ProgramHeader as _, Rela as _, SectionHeader as _, Sym as _},
};
use rustix::{
    fd::AsFd,
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap},
    param,
};
use std::{ffi::c_void, ops::Range, ptr, sync::Arc};

/// Why an object is not loaded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ObjectError {
    /// It is none, or not a whole one.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// It asks for more than a loader does for it here.
    #[error("it has {0}, which code made here never has")]
    Refused(String),
    /// The host did not do what was asked of it.
    #[error("the host has no memory for it: {0}")]
    Host(String),
}

impl From<object::read::Error> for ObjectError {
    fn from(error: object::read::Error) -> Self {
        Self::Damaged(error.to_string())
    }
}

/// Address space that an object may have.
const MOST: u64 = 2 << 30;

#[derive(Debug)]
struct Mapping {
    base: *mut c_void,
    size: usize,
}

// SAFETY: memory that belongs to this value alone, and that nobody writes to once an object is loaded.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(size: usize, rights: ProtFlags, flags: MapFlags) -> Result<Self, ObjectError> {
        // SAFETY: a new mapping, which nobody knows of.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), size, rights, MapFlags::PRIVATE | flags) };
        Ok(Self {
            base: base.map_err(host)?,
            size,
        })
    }

    /// Maps a segment of a file.
    fn map(&self, file: &impl AsFd, offset: u64, header: &ProgramHeader64<Le>) -> Result<(), ObjectError> {
        let address = header.p_vaddr(Le);
        let page = address & !(page_size() - 1);
        let begin = self.base.wrapping_byte_add(page as usize);
        let in_file = header.p_filesz(Le) + (address - page);
        let in_memory = header.p_memsz(Le) + (address - page);
        let executable = is_executable(header);
        let rights = if executable {
            ProtFlags::READ | ProtFlags::EXEC
        } else {
            ProtFlags::READ | ProtFlags::WRITE
        };
        let from_file = in_file.next_multiple_of(page_size());
        // SAFETY: within the mapping that was reserved, as `check` has seen.
        unsafe {
            if header.p_filesz(Le) > 0 {
                let at = offset + header.p_offset(Le) - (address - page);
                mmap(
                    begin,
                    from_file as usize,
                    rights,
                    MapFlags::PRIVATE | MapFlags::FIXED,
                    file,
                    at,
                )
                .map_err(host)?;
            }
            let mapped = if header.p_filesz(Le) > 0 { from_file } else { 0 };
            let whole = in_memory.next_multiple_of(page_size());
            if whole > mapped {
                let rest = begin.wrapping_byte_add(mapped as usize);
                mmap_anonymous(
                    rest,
                    (whole - mapped) as usize,
                    rights,
                    MapFlags::PRIVATE | MapFlags::FIXED,
                )
                .map_err(host)?;
            }
            if !executable && mapped > 0 && in_file < mapped && in_memory > in_file {
                // What follows in the file is not the segment's.
                ptr::write_bytes(
                    begin.wrapping_byte_add(in_file as usize).cast::<u8>(),
                    0,
                    (mapped - in_file) as usize,
                );
            }
        }
        Ok(())
    }

    /// Has nothing of it writable any more.
    fn close(&self, checked: &Checked<'_>) -> Result<(), ObjectError> {
        for header in &checked.loads {
            if header.p_flags(Le) & elf::PF_X == 0 {
                let page = header.p_vaddr(Le) & !(page_size() - 1);
                let end = (header.p_vaddr(Le) + header.p_memsz(Le)).next_multiple_of(page_size());
                let begin = self.base.wrapping_byte_add(page as usize);
                // SAFETY: this object's own pages; nobody has a reference to them.
                unsafe { mprotect(begin, (end - page) as usize, MprotectFlags::READ).map_err(host)? };
            }
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value's own. Whoever runs code in it has an `Arc` of its object.
        let _ = unsafe { munmap(self.base, self.size) };
    }
}

/// Bytes of a page of the host's.
fn page_size() -> u64 {
    param::page_size() as u64
}

/// Compiled code in this process.
#[derive(Debug)]
pub struct Object {
    /// Where it is: in an arena,
    _slot: Option<Slot>,
    /// or in a mapping of its own.
    _mapping: Option<Mapping>,
    /// Addresses: the functions that are referred to, by place, then the entries.
    pub(crate) symbols: Vec<usize>,
}

fn refused<T>(what: impl Into<String>) -> Result<T, ObjectError> {
    Err(ObjectError::Refused(what.into()))
}

fn host(error: rustix::io::Errno) -> ObjectError {
    ObjectError::Host(error.to_string())
}

/// What is known of an object before it is mapped.
struct Checked<'d> {
    loads: Vec<&'d ProgramHeader64<Le>>,
    /// From the first byte of the first segment to the last of the last.
    size: u64,
    /// Where the addresses are (`@millpond`).
    image: u64,
    /// `(where, value)`
    relative: Vec<(u64, u64)>,
}

impl Object {
    /// Loads an object that begins at an offset of a file, whose bytes from there on these are. It has so many symbols. A small one is copied, to
    /// the arena if there is room: to map the file's pages, and to write to some of them, takes longer.
    pub fn load(
        file: impl AsFd,
        offset: u64,
        bytes: &[u8],
        symbols: usize,
        arena: Option<&Arc<Arena>>,
    ) -> Result<Self, ObjectError> {
        let checked = check(bytes, symbols)?;
        let size =
            usize::try_from(checked.size).map_err(|_| ObjectError::Refused("too large a segment".into()))?;
        if size > SLOT {
            return Self::map_whole(&file, offset, &checked, size, symbols);
        }
        let mut image = vec![0_u8; size];
        for header in &checked.loads {
            copy(&mut image, bytes, header);
        }
        let memory = image.as_mut_ptr().cast();
        if let Some(mut slot) = arena.and_then(|arena| arena.take(size)) {
            let base = slot.base();
            let symbols = relocate(memory, base, &checked, symbols)?;
            slot.write(&image).map_err(host)?;
            return Ok(Self {
                symbols,
                _slot: Some(slot),
                _mapping: None,
            });
        }
        let mapping = Mapping::new(size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::POPULATE)?;
        let base = mapping.base;
        let symbols = relocate(memory, base, &checked, symbols)?;
        // One call: where a part has rights of its own, the kernel divides the mapping. So, as in an arena, constants can be executed, too. Who
        // chooses them chooses the code beside them.
        let rights = MprotectFlags::READ | MprotectFlags::EXEC;
        // SAFETY: as many bytes, of a mapping that nobody has a reference to.
        unsafe {
            ptr::copy_nonoverlapping(image.as_ptr(), base.cast(), size);
            mprotect(base, size, rights).map_err(host)?;
        }
        Ok(Self {
            symbols,
            _slot: None,
            _mapping: Some(mapping),
        })
    }

    /// The same of a large one, in place of copying it.
    fn map_whole(
        file: &impl AsFd,
        offset: u64,
        checked: &Checked<'_>,
        size: usize,
        symbols: usize,
    ) -> Result<Self, ObjectError> {
        let mapping = Mapping::new(size, ProtFlags::empty(), MapFlags::NORESERVE)?;
        let base = mapping.base;
        for header in &checked.loads {
            mapping.map(file, offset, header)?;
        }
        let symbols = relocate(base, base, checked, symbols)?;
        mapping.close(checked)?;
        Ok(Self {
            symbols,
            _slot: None,
            _mapping: Some(mapping),
        })
    }
}

/// Copies a segment to where it belongs in an object's image.
fn copy(image: &mut [u8], bytes: &[u8], header: &ProgramHeader64<Le>) {
    let length = header.p_filesz(Le) as usize;
    let from = bytes
        .get(header.p_offset(Le) as usize..)
        .and_then(|from| from.get(..length));
    let to = image
        .get_mut(header.p_vaddr(Le) as usize..)
        .and_then(|to| to.get_mut(..length));
    if let (Some(from), Some(to)) = (from, to) {
        to.copy_from_slice(from);
    }
}

/// Fills in, in `memory`, what depends on where an object will be. Returns its symbols' addresses there.
fn relocate(
    memory: *mut c_void,
    base: *mut c_void,
    checked: &Checked<'_>,
    symbols: usize,
) -> Result<Vec<usize>, ObjectError> {
    let executable = checked.loads.iter().filter(|header| is_executable(header));
    let text: Vec<Range<usize>> = executable
        .map(|header| {
            let begin = base.addr() + header.p_vaddr(Le) as usize;
            begin..begin + header.p_memsz(Le) as usize
        })
        .collect();
    for (at, value) in &checked.relative {
        // SAFETY: eight bytes of a segment that is not executable, as `check` has seen.
        unsafe {
            let place = memory.wrapping_byte_add(*at as usize).cast::<u64>();
            place.write_unaligned((base.addr() as u64).wrapping_add(*value));
        }
    }
    let image = memory.wrapping_byte_add(checked.image as usize).cast::<i32>();
    let address = base.addr() + checked.image as usize;
    // SAFETY: so many symbols and the library are in the image, as `check` has seen; all of it is mapped and readable.
    let offsets = (0..=symbols).map(|number| unsafe { image.wrapping_add(number).read_unaligned() });
    let mut addresses = offsets.map(|offset| address.wrapping_add_signed(offset as isize));
    let library = addresses.next().unwrap_or_default();
    let symbols: Vec<usize> = addresses.collect();
    if let Some(outside) = symbols
        .iter()
        .find(|symbol| !text.iter().any(|text| text.contains(symbol)))
    {
        return Err(ObjectError::Damaged(format!(
            "a function at {outside:#x}, outside of its code"
        )));
    }
    fill_in(memory, library.wrapping_sub(base.addr()) as u64, checked)?;
    Ok(symbols)
}

/// The library functions that LLVM makes calls of by itself.
fn fill_in(memory: *mut c_void, at: u64, checked: &Checked<'_>) -> Result<(), ObjectError> {
    let functions: [usize; 3] = [
        libc::memcpy as *const () as usize,
        libc::memmove as *const () as usize,
        libc::memset as *const () as usize,
    ];
    if !is_writable(&checked.loads, at, size_of_val(&functions) as u64) {
        return Err(ObjectError::Damaged("its library is not among its data".into()));
    }
    let place = memory.wrapping_byte_add(at as usize).cast::<[usize; 3]>();
    // SAFETY: within data that is mapped and writable yet.
    unsafe { place.write_unaligned(functions) };
    Ok(())
}

fn is_executable(header: &ProgramHeader64<Le>) -> bool {
    header.p_flags(Le) & elf::PF_X != 0
}

fn is_writable(loads: &[&ProgramHeader64<Le>], at: u64, size: u64) -> bool {
    loads.iter().any(|header| {
        let begin = header.p_vaddr(Le);
        header.p_flags(Le) & elf::PF_W != 0
            && at >= begin
            && at
                .checked_add(size)
                .is_some_and(|end| end <= begin + header.p_memsz(Le))
    })
}

fn check(bytes: &[u8], symbols: usize) -> Result<Checked<'_>, ObjectError> {
    let file = ElfFile64::<Le>::parse(bytes)?;
    let header = file.elf_header();
    let machine = if cfg!(target_arch = "aarch64") {
        elf::EM_AARCH64
    } else {
        elf::EM_X86_64
    };
    if header.e_type.get(Le) != elf::ET_DYN || header.e_machine.get(Le) != machine {
        return refused("another type or processor");
    }
    let mut loads: Vec<&ProgramHeader64<Le>> = Vec::new();
    for segment in file.elf_program_headers() {
        match segment.p_type(Le) {
            elf::PT_LOAD => loads.push(segment),
            elf::PT_DYNAMIC => check_dynamic(segment, bytes)?,
            elf::PT_GNU_STACK if segment.p_flags(Le) & elf::PF_X == 0 => {}
            elf::PT_PHDR | elf::PT_NOTE | elf::PT_GNU_EH_FRAME | elf::PT_GNU_RELRO | elf::PT_GNU_PROPERTY => {
            }
            other => return refused(format!("a segment of type {other:#x}")),
        }
    }
    let size = check_loads(&loads, bytes.len() as u64)?;
    let image = check_symbols(&file, bytes)?;
    let image_size = 4 * (symbols as u64 + 1);
    if !loads.iter().any(|load| {
        let begin = load.p_vaddr(Le);
        image >= begin
            && image.is_multiple_of(4)
            && image
                .checked_add(image_size)
                .is_some_and(|end| end <= begin + load.p_memsz(Le))
    }) {
        return Err(ObjectError::Damaged(
            "its functions' addresses lie nowhere".into(),
        ));
    }
    Ok(Checked {
        relative: check_relocations(&file, bytes, &loads)?,
        loads,
        size,
        image,
    })
}

/// Of segments, that they follow each other with a page's boundary between and are as large in the file as they say; the last one's
/// end.
fn check_loads(loads: &[&ProgramHeader64<Le>], bytes: u64) -> Result<u64, ObjectError> {
    let mut end = 0_u64;
    for load in loads {
        let (address, offset) = (load.p_vaddr(Le), load.p_offset(Le));
        let (in_file, in_memory) = (load.p_filesz(Le), load.p_memsz(Le));
        let last = address.checked_add(in_memory).filter(|last| *last <= MOST);
        let Some(last) = last else {
            return refused("too large a segment");
        };
        let flags = load.p_flags(Le);
        if flags & elf::PF_X != 0 && (flags & elf::PF_W != 0 || in_file != in_memory) {
            return refused("code that is writable");
        }
        let apart = address & !(page_size() - 1) >= end;
        let in_place = address % page_size() == offset % page_size() && in_file <= in_memory;
        if !apart || !in_place || offset.checked_add(in_file).is_none_or(|end| end > bytes) {
            return Err(ObjectError::Damaged("a segment is not where it says".into()));
        }
        end = last.next_multiple_of(page_size());
    }
    Ok(end)
}

fn check_dynamic(segment: &ProgramHeader64<Le>, bytes: &[u8]) -> Result<(), ObjectError> {
    for entry in segment.dynamic(Le, bytes)?.unwrap_or_default() {
        match entry.tag(Le) {
            elf::DT_NULL => break,
            elf::DT_HASH
            | elf::DT_GNU_HASH
            | elf::DT_STRTAB
            | elf::DT_STRSZ
            | elf::DT_SYMTAB
            | elf::DT_SYMENT => {}
            elf::DT_RELA | elf::DT_RELASZ | elf::DT_RELAENT | elf::DT_RELACOUNT => {}
            other => return refused(format!("a dynamic entry of type {other:#x}")),
        }
    }
    Ok(())
}

/// That it takes and offers nothing but `millpond`, whose address it is.
fn check_symbols(file: &ElfFile64<'_, Le>, bytes: &[u8]) -> Result<u64, ObjectError> {
    let sections = file.elf_section_table();
    let symbols = sections.symbols(Le, bytes, elf::SHT_DYNSYM)?;
    let mut image = None;
    for symbol in symbols.iter().skip(1) {
        let name = symbols.symbol_name(Le, symbol)?;
        match symbol.st_type() {
            elf::STT_OBJECT if name == b"millpond" && !symbol.is_undefined(Le) => {
                image = Some(symbol.st_value(Le))
            }
            _ => return refused(format!("a symbol `{}`", String::from_utf8_lossy(name))),
        }
    }
    image.ok_or_else(|| ObjectError::Damaged("it says nothing of its functions".into()))
}

fn check_relocations(
    file: &ElfFile64<'_, Le>,
    bytes: &[u8],
    loads: &[&ProgramHeader64<Le>],
) -> Result<Vec<(u64, u64)>, ObjectError> {
    let relative = if cfg!(target_arch = "aarch64") {
        elf::R_AARCH64_RELATIVE
    } else {
        elf::R_X86_64_RELATIVE
    };
    let mut found = Vec::new();
    for section in file.elf_section_table().iter() {
        if section.rel(Le, bytes)?.is_some() {
            return refused("relocations without addends");
        }
        let Some((relocations, _)) = section.rela(Le, bytes)? else {
            continue;
        };
        for relocation in relocations {
            let at = relocation.r_offset(Le);
            if relocation.r_type(Le, false) != relative || !is_writable(loads, at, 8) {
                return refused("a relocation that is not relative");
            }
            found.push((at, relocation.r_addend(Le) as u64));
        }
    }
    Ok(found)
}
