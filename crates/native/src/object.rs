//! A loader for what the compiler made.
//!
//! The compiler's process and its tools are distrusted as far as that goes: the code itself must be what the translator asked for, but
//! nothing else that an object can ask of a loader is done for it. There are no libraries that it needs, no symbols that it
//! takes from elsewhere, no functions that run when it is loaded or that choose others (IFUNC), no thread-local storage, no relocations but
//! those by the address that it is loaded at, and nothing that is both writable and executable. In the end nothing of it is writable.

use object::{
    LittleEndian as Le,
    elf::{self, ProgramHeader64},
    read::elf::{Dyn as _, ElfFile64, ProgramHeader as _, Rela as _, SectionHeader as _, Sym as _},
};
use parking_lot::Mutex;
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

/// Objects of no more than this are copied: to map the file's pages, and to write to some of them, takes longer.
const SMALL: u64 = 64 << 10;

/// Mappings of copied objects that are no more, for others: their pages are there, which costs more than all else that such an object needs.
#[derive(Debug, Default)]
pub struct Vacated(Mutex<Vec<Mapping>>);

impl Vacated {
    /// Who takes one leaves one soon.
    const KEPT: usize = 16;
    /// Elsewhere the kernel sees to it that a processor does not run what it remembers of a page, and only for pages that are new.
    const WORKS: bool = cfg!(target_arch = "x86_64");

    /// One of this size that is all zeros and may be written to.
    fn take(&self, size: usize) -> Option<Mapping> {
        let mut kept = self.0.lock();
        let found = kept.iter().rposition(|mapping| mapping.size == size)?;
        Some(kept.remove(found))
    }

    fn put(&self, mapping: Mapping) {
        if !Self::WORKS {
            return;
        }
        // SAFETY: nobody runs or reads what is in it any more.
        let is_clear = unsafe {
            mprotect(
                mapping.base,
                mapping.size,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
            .map(|()| ptr::write_bytes(mapping.base.cast::<u8>(), 0, mapping.size))
            .is_ok()
        };
        if is_clear {
            let mut kept = self.0.lock();
            let oldest = (kept.len() >= Self::KEPT).then(|| kept.remove(0));
            kept.push(mapping);
            drop(kept);
            drop(oldest);
        }
    }
}

#[derive(Debug)]
struct Mapping {
    base: *mut c_void,
    size: usize,
}

// SAFETY: memory that belongs to this value alone.
unsafe impl Send for Mapping {}

impl Mapping {
    fn new(size: usize, rights: ProtFlags, flags: MapFlags) -> Result<Self, ObjectError> {
        // SAFETY: a new mapping, which nobody knows of.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), size, rights, MapFlags::PRIVATE | flags) };
        Ok(Self {
            base: base.map_err(host)?,
            size,
        })
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
    /// Gone once the object is.
    mapping: Option<Mapping>,
    base: *mut c_void,
    size: usize,
    /// Where its mapping goes that was copied.
    vacated: Option<Arc<Vacated>>,
    text: Vec<Range<usize>>,
    /// Addresses: the functions that are referred to, by place, then the entries.
    pub(crate) symbols: Vec<usize>,
}

// SAFETY: memory that nobody writes to once it is loaded.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Drop for Object {
    fn drop(&mut self) {
        if let (Some(mapping), Some(vacated)) = (self.mapping.take(), &self.vacated) {
            vacated.put(mapping);
        }
    }
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
    /// Maps an object that begins at an offset of a file, whose bytes from there on these are. It has so many symbols.
    pub fn load(
        file: impl AsFd,
        offset: u64,
        bytes: &[u8],
        symbols: usize,
        vacated: &Arc<Vacated>,
    ) -> Result<Self, ObjectError> {
        let checked = check(bytes, symbols)?;
        let size =
            usize::try_from(checked.size).map_err(|_| ObjectError::Refused("too large a segment".into()))?;
        let is_small = checked.size <= SMALL;
        let mapping = match is_small.then(|| vacated.take(size)).flatten() {
            Some(mapping) => mapping,
            None if is_small => Mapping::new(size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::POPULATE)?,
            None => Mapping::new(size, ProtFlags::empty(), MapFlags::NORESERVE)?,
        };
        let mut object = Self {
            base: mapping.base,
            mapping: Some(mapping),
            size,
            vacated: is_small.then(|| vacated.clone()),
            text: Vec::new(),
            symbols: Vec::new(),
        };
        for header in &checked.loads {
            if is_small {
                object.copy(bytes, header);
            } else {
                object.map(&file, offset, header)?;
            }
            if is_executable(header) {
                let begin = object.base.addr() + header.p_vaddr(Le) as usize;
                object.text.push(begin..begin + header.p_memsz(Le) as usize);
            }
        }
        object.relocate(&checked, symbols)?;
        if is_small {
            object.close_copy()?;
        } else {
            object.close(&checked)?;
        }
        Ok(object)
    }

    fn copy(&mut self, bytes: &[u8], header: &ProgramHeader64<Le>) {
        let to = self.base.wrapping_byte_add(header.p_vaddr(Le) as usize);
        let from = bytes.get(header.p_offset(Le) as usize..);
        let from = from.and_then(|from| from.get(..header.p_filesz(Le) as usize));
        let from = from.unwrap_or_default();
        // SAFETY: within the mapping that was reserved, and no larger than its segment, as `check` has seen; nobody has a reference to it.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.cast(), from.len()) };
    }

    fn map(
        &mut self,
        file: &impl AsFd,
        offset: u64,
        header: &ProgramHeader64<Le>,
    ) -> Result<(), ObjectError> {
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

    fn relocate(&mut self, checked: &Checked<'_>, symbols: usize) -> Result<(), ObjectError> {
        let base = self.base.addr() as u64;
        for (at, value) in &checked.relative {
            // SAFETY: eight bytes of a segment that is not executable, as `check` has seen.
            unsafe {
                let place = self.base.wrapping_byte_add(*at as usize).cast::<u64>();
                place.write_unaligned(base.wrapping_add(*value));
            }
        }
        let image = self.base.wrapping_byte_add(checked.image as usize);
        // SAFETY: so many symbols and the library are in the image, as `check` has seen; all of it is mapped and readable.
        let offsets = unsafe { std::slice::from_raw_parts(image.cast::<i32>().cast_const(), symbols + 1) };
        let mut addresses = offsets
            .iter()
            .map(|offset| image.addr().wrapping_add_signed(*offset as isize));
        let library = addresses.next().unwrap_or_default();
        let symbols: Vec<usize> = addresses.collect();
        if let Some(outside) = symbols.iter().find(|symbol| !self.is_text(**symbol)) {
            return Err(ObjectError::Damaged(format!(
                "a function at {outside:#x}, outside of its code"
            )));
        }
        self.symbols = symbols;
        self.fill_in(checked, library)
    }

    /// The library functions that LLVM makes calls of by itself.
    fn fill_in(&self, checked: &Checked<'_>, library: usize) -> Result<(), ObjectError> {
        let functions: [usize; 3] = [
            libc::memcpy as *const () as usize,
            libc::memmove as *const () as usize,
            libc::memset as *const () as usize,
        ];
        let at = library.wrapping_sub(self.base.addr()) as u64;
        if !is_writable(&checked.loads, at, size_of_val(&functions) as u64) {
            return Err(ObjectError::Damaged("its library is not among its data".into()));
        }
        let place = self.base.wrapping_byte_add(at as usize).cast::<[usize; 3]>();
        // SAFETY: within data that is mapped and writable yet.
        unsafe { place.write_unaligned(functions) };
        Ok(())
    }

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

    /// The same of one that was copied, by one call: where a part has rights of its own, the kernel divides the mapping and joins it again. So its
    /// constants can be executed, too. Who chooses them chooses the code beside them.
    fn close_copy(&self) -> Result<(), ObjectError> {
        let rights = MprotectFlags::READ | MprotectFlags::EXEC;
        // SAFETY: this object's own pages; nobody has a reference to them.
        unsafe { mprotect(self.base, self.size, rights).map_err(host) }
    }

    /// Whether this is the address of an instruction.
    pub(crate) fn is_text(&self, address: usize) -> bool {
        self.text.iter().any(|text| text.contains(&address))
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping(pages: usize) -> Mapping {
        let size = pages * page_size() as usize;
        let mapping = Mapping::new(size, ProtFlags::READ | ProtFlags::WRITE, MapFlags::POPULATE).unwrap();
        // SAFETY: this mapping's own bytes.
        unsafe { ptr::write_bytes(mapping.base.cast::<u8>(), 0xc3, size) };
        let all = MprotectFlags::READ | MprotectFlags::EXEC;
        // SAFETY: as above.
        unsafe { mprotect(mapping.base, size, all).unwrap() };
        mapping
    }

    #[test]
    fn what_is_vacated_is_clear_and_goes_to_one_of_its_size() {
        if !Vacated::WORKS {
            return;
        }
        let vacated = Vacated::default();
        let (one, two) = (mapping(1), mapping(2));
        let (size, place) = (one.size, one.base);
        vacated.put(one);
        vacated.put(two);
        assert!(vacated.take(3 * size).is_none());
        let taken = vacated.take(size).unwrap();
        assert_eq!(taken.base, place);
        // SAFETY: mapped, and readable and writable again, or this test ends here.
        let bytes = unsafe { std::slice::from_raw_parts_mut(taken.base.cast::<u8>(), size) };
        assert!(bytes.iter().all(|byte| *byte == 0));
        bytes.fill(1);
        assert!(vacated.take(size).is_none());
    }

    #[test]
    fn no_more_are_kept_than_are_of_use() {
        if !Vacated::WORKS {
            return;
        }
        let vacated = Vacated::default();
        (0..3 * Vacated::KEPT).for_each(|_| vacated.put(mapping(1)));
        let size = page_size() as usize;
        let kept: Vec<Mapping> = std::iter::from_fn(|| vacated.take(size)).collect();
        assert_eq!(kept.len(), Vacated::KEPT);
    }
}
