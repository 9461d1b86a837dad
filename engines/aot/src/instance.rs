//! Instances: a context, tables and a linear memory in one piece of address space.

use crate::{
    layout::{self, Builtin, ELEMENT, ELEMENTS, FunctionReference, MemorySize, SLOT, Table, Trap},
    object::Object,
    plan::{Exported, Expression, Imported, Plan, Slot, Step, slot},
    translate::{Bounds, GUARD, SIGNED_PAGES, signed_addresses},
};
use rustix::{
    io::Errno,
    mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap},
};
use std::{
    ffi::c_void,
    ptr::{self, NonNull},
    sync::Arc,
};

/// Bytes of a page of Wasm's.
pub(crate) const PAGE: u64 = 64 << 10;
/// What 32 bits can address,
const RESERVED: u64 = 4 << 30;
/// and how far below a memory a signed number of 32 bits leads.
const BELOW: usize = 2 << 30;
/// The most elements that a table has room for.
const TABLE_MOST: u64 = 64 << 10;
/// Bytes of a page of the processor's.
const HOST_PAGE: usize = 4096;

/// Compiled code, and how instances of it are made.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) plan: Plan,
    pub(crate) object: Object,
    pub(crate) bounds: Bounds,
}

/// Why there is no instance.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum InstanceError {
    /// What was given for an import is not of its type.
    #[error("incompatible import type")]
    Import,
    #[error("a table of {0} elements, where this engine has room for {TABLE_MOST}")]
    Table(u64),
    #[error("{}", .0.message())]
    Trap(Trap),
    #[error("the host refuses memory: {0}")]
    Host(Errno),
}

impl From<Trap> for InstanceError {
    fn from(trap: Trap) -> Self {
        Self::Trap(trap)
    }
}

/// A table, wherever it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableHandle {
    table: NonNull<Table>,
    kind: wasmparser::TableType,
    room: u32,
}

/// A linear memory, wherever it lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryHandle {
    pub(crate) base: NonNull<u8>,
    size: NonNull<MemorySize>,
    kind: wasmparser::MemoryType,
}

/// What an import gets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum External {
    /// With its type's number.
    Function(FunctionReference),
    /// The host's own: the guest enters it with the import's number.
    Host,
    Table(TableHandle),
    Memory(MemoryHandle),
    Global(wasmparser::GlobalType, NonNull<Slot>),
}

/// Address space of an instance's own.
#[derive(Debug)]
struct Space {
    begin: *mut c_void,
    size: usize,
}

impl Space {
    fn new(size: usize) -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping, which nobody knows of.
        let begin = unsafe { mmap_anonymous(ptr::null_mut(), size, ProtFlags::empty(), flags)? };
        Ok(Self { begin, size })
    }

    fn allow(&self, from: usize, size: usize) -> Result<(), Errno> {
        debug_assert!(from + size <= self.size, "a range of the space");
        if size == 0 {
            return Ok(());
        }
        // SAFETY: a range of this space.
        unsafe {
            mprotect(
                self.begin.wrapping_byte_add(from),
                size,
                MprotectFlags::READ | MprotectFlags::WRITE,
            )
        }
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // SAFETY: this value's own.
        let _ = unsafe { munmap(self.begin, self.size) };
    }
}

#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) image: Arc<Image>,
    pub(crate) memory: Option<MemoryHandle>,
    tables: Vec<TableHandle>,
    /// Segments that are gone.
    dropped_data: Vec<bool>,
    dropped_elements: Vec<bool>,
    space: Space,
}

/// Where what lies in a space.
struct Places {
    size: usize,
    tables: Vec<usize>,
    /// Up to here there is something else.
    usable: usize,
    memory: usize,
    whole: usize,
}

impl Places {
    fn new(plan: &Plan, rooms: &[u32]) -> Self {
        let mut at = (plan.offsets.size as usize).next_multiple_of(ELEMENT as usize);
        let size = at;
        at += size_of::<MemorySize>().next_multiple_of(ELEMENT as usize);
        let mut tables = Vec::new();
        for room in rooms {
            tables.push(at);
            at += ELEMENTS as usize + *room as usize * ELEMENT as usize;
        }
        let usable = at.next_multiple_of(HOST_PAGE);
        let own = plan.memory.is_some() && !plan.imported_memory;
        let (below, above) = if own {
            (BELOW, (RESERVED + GUARD) as usize)
        } else {
            (0, 0)
        };
        Self {
            size,
            tables,
            usable,
            memory: usable + below,
            whole: usable + below + above,
        }
    }
}

impl Instance {
    /// Of this image, with these imports in their order. `fiber` is what its code runs on. Active segments are not copied yet: see
    /// [`Self::initialize`].
    pub(crate) fn new(
        image: &Arc<Image>,
        imports: &[External],
        fiber: *const c_void,
    ) -> Result<Box<Self>, InstanceError> {
        let plan = &image.plan;
        let own_tables = plan
            .tables
            .get(plan.imported_tables as usize..)
            .unwrap_or_default();
        let rooms = own_tables
            .iter()
            .map(|(kind, _)| room(kind))
            .collect::<Result<Vec<_>, _>>()?;
        let places = Places::new(plan, &rooms);
        let space = Space::new(places.whole.max(HOST_PAGE)).map_err(InstanceError::Host)?;
        space.allow(0, places.usable).map_err(InstanceError::Host)?;
        let mut instance = Box::new(Self {
            image: image.clone(),
            memory: None,
            tables: Vec::new(),
            dropped_data: vec![false; plan.data.len()],
            dropped_elements: vec![false; plan.elements.len()],
            space,
        });
        let owner: *mut Self = &raw mut *instance;
        instance.write(layout::ENTER_HOST, fiber::enter_host());
        instance.write(layout::FIBER, fiber);
        instance.write(layout::OWNER, owner);
        instance.link(imports)?;
        instance.own(&places, own_tables, &rooms)?;
        instance.references();
        instance.globals();
        instance.fill_tables();
        Ok(instance)
    }

    /// What compiled code gets.
    pub(crate) fn context(&self) -> *mut c_void {
        self.space.begin
    }

    fn at<T>(&self, offset: u32) -> *mut T {
        self.space.begin.wrapping_byte_add(offset as usize).cast()
    }

    fn write<T>(&self, offset: u32, value: T) {
        // SAFETY: a field of the context, which is mapped and of this type there.
        unsafe { self.at::<T>(offset).write(value) }
    }

    // --- making ---

    fn link(&mut self, imports: &[External]) -> Result<(), InstanceError> {
        let image = self.image.clone();
        let plan = &image.plan;
        let (mut function, mut global) = (0, 0);
        for (index, import) in plan.imports.iter().enumerate() {
            match (&import.kind, imports.get(index)) {
                (Imported::Function(_), Some(given)) => {
                    let reference = match given {
                        External::Host => self.reference(function),
                        External::Function(reference)
                            if reference.signature == plan.functions[function as usize].signature =>
                        {
                            FunctionReference {
                                reference: self.at::<c_void>(plan.offsets.function(function)),
                                ..*reference
                            }
                        }
                        _ => return Err(InstanceError::Import),
                    };
                    self.write(plan.offsets.function(function), reference);
                    function += 1;
                }
                (Imported::Table(wanted), Some(External::Table(table))) if fits_table(wanted, table) => {
                    let index = self.tables.len() as u32;
                    self.tables.push(*table);
                    self.write(plan.offsets.table(index), table.table);
                }
                (Imported::Memory(wanted), Some(External::Memory(memory))) if fits_memory(wanted, memory) => {
                    self.use_memory(*memory);
                }
                (Imported::Global(wanted), Some(External::Global(kind, place))) if wanted == kind => {
                    self.write(plan.offsets.imported_global(global), *place);
                    global += 1;
                }
                _ => return Err(InstanceError::Import),
            }
        }
        Ok(())
    }

    fn use_memory(&mut self, memory: MemoryHandle) {
        self.write(layout::MEMORY, memory.base);
        self.write(layout::MEMORY_SIZE, memory.size);
        self.memory = Some(memory);
    }

    fn own(
        &mut self,
        places: &Places,
        tables: &[(wasmparser::TableType, Option<Expression>)],
        rooms: &[u32],
    ) -> Result<(), InstanceError> {
        for (((kind, _), place), room) in tables.iter().zip(&places.tables).zip(rooms) {
            // SAFETY: not null: within the space.
            let table = unsafe { NonNull::new_unchecked(self.at::<Table>(*place as u32)) };
            let length = u32::try_from(kind.initial).unwrap_or(u32::MAX);
            // SAFETY: a table's place; it is all zeros, which are null elements.
            unsafe { table.as_ptr().write(Table { length }) };
            let index = self.tables.len() as u32;
            self.tables.push(TableHandle {
                table,
                kind: *kind,
                room: *room,
            });
            self.write(self.image.plan.offsets.table(index), table);
        }
        if let (Some(kind), false) = (self.image.plan.memory, self.image.plan.imported_memory) {
            // SAFETY: not null: within the space.
            let (base, size) = unsafe {
                let base = self.space.begin.wrapping_byte_add(places.memory).cast();
                (
                    NonNull::new_unchecked(base),
                    NonNull::new_unchecked(self.at::<MemorySize>(places.size as u32)),
                )
            };
            let memory = MemoryHandle { base, size, kind };
            self.use_memory(memory);
            memory
                .resize(kind.initial * PAGE, self.image.bounds)
                .map_err(InstanceError::Host)?;
        }
        Ok(())
    }

    /// The reference to a function of this module, by place, as its own code has it.
    fn reference(&self, place: u32) -> FunctionReference {
        let plan = &self.image.plan;
        FunctionReference {
            code: ptr::with_exposed_provenance(self.image.object.symbols[place as usize]),
            context: self.context(),
            signature: plan.functions[place as usize].signature,
            reference: self.at::<c_void>(plan.offsets.function(place)),
        }
    }

    fn references(&self) {
        let plan = &self.image.plan;
        for place in plan.imported_functions..plan.functions.len() as u32 {
            self.write(plan.offsets.function(place), self.reference(place));
        }
    }

    fn globals(&self) {
        let plan = &self.image.plan;
        for (index, (_, init)) in (0..).zip(&plan.globals) {
            if let Some(init) = init {
                let value = self.evaluate(init);
                // SAFETY: a global's place.
                unsafe { self.global(index).write(value) };
            }
        }
    }

    fn fill_tables(&self) {
        let plan = &self.image.plan;
        for (table, (_, init)) in self.tables.iter().zip(&plan.tables) {
            if let Some(init) = init {
                let value = pointer(self.evaluate(init));
                for index in 0..table.length() {
                    // SAFETY: an element that the table has.
                    unsafe { table.set(index, value) };
                }
            }
        }
    }

    /// Copies active segments.
    pub(crate) fn initialize(&mut self) -> Result<(), Trap> {
        let image = self.image.clone();
        for (index, segment) in image.plan.elements.iter().enumerate() {
            if let Some((table, at)) = &segment.at {
                let at = u32::from_le_bytes(first(self.evaluate(at)));
                self.init_table(*table, index, at, 0, segment.content.len() as u32)?;
            }
            if segment.at.is_some() || segment.declared {
                self.dropped_elements[index] = true;
            }
        }
        for (index, segment) in image.plan.data.iter().enumerate() {
            if let Some((_, at)) = &segment.at {
                let at = u32::from_le_bytes(first(self.evaluate(at)));
                self.init_memory(index, at, 0, segment.content.len() as u32)?;
                self.dropped_data[index] = true;
            }
        }
        Ok(())
    }

    fn evaluate(&self, expression: &[Step]) -> Slot {
        let mut stack: Vec<Slot> = Vec::new();
        let two = |stack: &mut Vec<Slot>| {
            let b = stack.pop().unwrap_or_default();
            (stack.pop().unwrap_or_default(), b)
        };
        for step in expression {
            let value = match step {
                Step::Constant(value) => *value,
                // SAFETY: a global that has its value: validation lets expressions refer to earlier ones only.
                Step::Global(index) => unsafe { self.global(*index).read() },
                Step::Function(place) => {
                    let reference = self.at::<c_void>(self.image.plan.offsets.function(*place));
                    slot(&reference.addr().to_le_bytes())
                }
                Step::I32(operation) => {
                    let (a, b) = two(&mut stack);
                    slot(&operation(i32::from_le_bytes(first(a)), i32::from_le_bytes(first(b))).to_le_bytes())
                }
                Step::I64(operation) => {
                    let (a, b) = two(&mut stack);
                    slot(&operation(i64::from_le_bytes(first(a)), i64::from_le_bytes(first(b))).to_le_bytes())
                }
            };
            stack.push(value);
        }
        stack.pop().unwrap_or_default()
    }

    // --- using ---

    /// Where a global's value is.
    pub(crate) fn global(&self, index: u32) -> *mut Slot {
        let plan = &self.image.plan;
        match index.checked_sub(plan.imported_globals) {
            Some(own) => self.at(plan.offsets.global(own)),
            // SAFETY: `link` has written an address there.
            None => unsafe { self.at::<*mut Slot>(plan.offsets.imported_global(index)).read() },
        }
    }

    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "only the official tests link modules with each other")
    )]
    pub(crate) fn export(&self, name: &str) -> Option<External> {
        let plan = &self.image.plan;
        let (_, exported) = plan.exports.iter().find(|(export, _)| &**export == name)?;
        Some(match *exported {
            // SAFETY: a reference that `link` or `references` has written.
            Exported::Function(place) => External::Function(unsafe {
                self.at::<FunctionReference>(plan.offsets.function(place)).read()
            }),
            Exported::Table(index) => External::Table(self.tables[index as usize]),
            Exported::Memory => External::Memory(self.memory?),
            Exported::Global(index) => {
                External::Global(plan.globals[index as usize].0, NonNull::new(self.global(index))?)
            }
        })
    }

    /// A function that is referred to, and how to call it: with the entry for its type, and its reference.
    pub(crate) fn callee(&self, place: u32) -> (*const c_void, FunctionReference) {
        let plan = &self.image.plan;
        let function = &plan.functions[place as usize];
        let entry = self.image.object.symbols[plan.functions.len() + function.entry];
        // SAFETY: as above.
        let reference = unsafe { self.at::<FunctionReference>(plan.offsets.function(place)).read() };
        (ptr::with_exposed_provenance(entry), reference)
    }

    // --- what the guest has the host do ---

    /// Answers a builtin whose arguments lie in these slots.
    ///
    /// # Safety
    /// The slots are there.
    pub(crate) unsafe fn builtin(&mut self, builtin: Builtin, slots: *mut Slot) -> Result<(), Trap> {
        // SAFETY: see above.
        let word = |index: usize| u32::from_le_bytes(first(unsafe { slots.add(index).read() }));
        // SAFETY: see above.
        let reference = |index: usize| pointer(unsafe { slots.add(index).read() });
        let answer = match builtin {
            Builtin::MemoryGrow => self.grow_memory(word(0)),
            Builtin::TableGrow => self.tables[word(0) as usize].grow(word(1), reference(2)),
            Builtin::MemoryInit => return self.init_memory(word(0) as usize, word(1), word(2), word(3)),
            Builtin::DataDrop => {
                self.dropped_data[word(0) as usize] = true;
                return Ok(());
            }
            Builtin::TableFill => return self.tables[word(0) as usize].fill(word(1), reference(2), word(3)),
            Builtin::TableCopy => {
                let (to, from) = (self.tables[word(0) as usize], self.tables[word(1) as usize]);
                return to.copy(&from, word(2), word(3), word(4));
            }
            Builtin::TableInit => {
                return self.init_table(word(0), word(1) as usize, word(2), word(3), word(4));
            }
            Builtin::ElementsDrop => {
                self.dropped_elements[word(0) as usize] = true;
                return Ok(());
            }
        };
        // SAFETY: see above.
        unsafe { slots.write(slot(&answer.to_le_bytes())) };
        Ok(())
    }

    fn grow_memory(&self, pages: u32) -> u32 {
        self.memory
            .map_or(u32::MAX, |memory| memory.grow(pages, self.image.bounds))
    }

    fn init_memory(&self, segment: usize, to: u32, from: u32, length: u32) -> Result<(), Trap> {
        let content = if self.dropped_data[segment] {
            &[]
        } else {
            &*self.image.plan.data[segment].content
        };
        let out = Trap::MemoryOutOfBounds;
        let part = part(content, from, length).ok_or(out)?;
        let memory = self.memory.ok_or(out)?;
        if u64::from(to) + u64::from(length) > memory.bytes() {
            return Err(out);
        }
        // SAFETY: within the memory, to which nobody has a reference.
        unsafe { ptr::copy_nonoverlapping(part.as_ptr(), memory.base.as_ptr().add(to as usize), part.len()) };
        Ok(())
    }

    fn init_table(&self, table: u32, segment: usize, to: u32, from: u32, length: u32) -> Result<(), Trap> {
        let content = if self.dropped_elements[segment] {
            &[]
        } else {
            &*self.image.plan.elements[segment].content
        };
        let table = self.tables[table as usize];
        let out = Trap::TableOutOfBounds;
        let part = part(content, from, length).ok_or(out)?;
        if u64::from(to) + u64::from(length) > u64::from(table.length()) {
            return Err(out);
        }
        for (index, expression) in (to..).zip(part) {
            // SAFETY: an element that the table has.
            unsafe { table.set(index, pointer(self.evaluate(expression))) };
        }
        Ok(())
    }
}

fn part<T>(content: &[T], from: u32, length: u32) -> Option<&[T]> {
    content.get(from as usize..)?.get(..length as usize)
}

fn first<const N: usize>(value: Slot) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&value[..N]);
    bytes
}

fn pointer(value: Slot) -> *const c_void {
    ptr::with_exposed_provenance(usize::from_le_bytes(first(value)))
}

/// Elements that a table gets room for.
fn room(kind: &wasmparser::TableType) -> Result<u32, InstanceError> {
    if kind.initial > TABLE_MOST {
        return Err(InstanceError::Table(kind.initial));
    }
    let most = kind.maximum.unwrap_or(TABLE_MOST).min(TABLE_MOST);
    Ok(u32::try_from(most).unwrap_or(u32::MAX))
}

fn fits_table(wanted: &wasmparser::TableType, given: &TableHandle) -> bool {
    wanted.element_type == given.kind.element_type
        && within(
            wanted.initial,
            wanted.maximum,
            u64::from(given.length()),
            given.kind.maximum,
        )
}

fn fits_memory(wanted: &wasmparser::MemoryType, given: &MemoryHandle) -> bool {
    within(
        wanted.initial,
        wanted.maximum,
        given.bytes() / PAGE,
        given.kind.maximum,
    )
}

fn within(least: u64, most: Option<u64>, has: u64, can_have: Option<u64>) -> bool {
    has >= least && most.is_none_or(|most| can_have.is_some_and(|can_have| can_have <= most))
}

impl TableHandle {
    pub(crate) fn length(&self) -> u32 {
        // SAFETY: a table that lives as long as its handles are used.
        unsafe { self.table.as_ref().length }
    }

    fn element(&self, index: u32) -> *mut FunctionReference {
        let offset = ELEMENTS as usize + index as usize * ELEMENT as usize;
        self.table.as_ptr().wrapping_byte_add(offset).cast()
    }

    /// # Safety
    /// There is room for this element.
    unsafe fn set(&self, index: u32, reference: *const c_void) {
        let functions = self.kind.element_type.heap_type() == wasmparser::HeapType::FUNC;
        let null = FunctionReference {
            code: ptr::null(),
            context: ptr::null(),
            signature: 0,
            reference: ptr::null(),
        };
        // SAFETY: see above; a reference to a function is the address of one.
        unsafe {
            let element = if functions && !reference.is_null() {
                reference.cast::<FunctionReference>().read()
            } else {
                FunctionReference { reference, ..null }
            };
            self.element(index).write(element);
        }
    }

    fn grow(&self, count: u32, reference: *const c_void) -> u32 {
        let before = self.length();
        let Some(length) = before.checked_add(count).filter(|length| *length <= self.room) else {
            return u32::MAX;
        };
        for index in before..length {
            // SAFETY: there is room.
            unsafe { self.set(index, reference) };
        }
        // SAFETY: as in `length`.
        unsafe { (*self.table.as_ptr()).length = length };
        before
    }

    fn fill(&self, from: u32, reference: *const c_void, count: u32) -> Result<(), Trap> {
        if u64::from(from) + u64::from(count) > u64::from(self.length()) {
            return Err(Trap::TableOutOfBounds);
        }
        for index in from..from + count {
            // SAFETY: an element that it has.
            unsafe { self.set(index, reference) };
        }
        Ok(())
    }

    fn copy(&self, from_table: &Self, to: u32, from: u32, count: u32) -> Result<(), Trap> {
        let ends =
            |table: &Self, begin: u32| u64::from(begin) + u64::from(count) <= u64::from(table.length());
        if !ends(self, to) || !ends(from_table, from) {
            return Err(Trap::TableOutOfBounds);
        }
        // SAFETY: elements that they have.
        unsafe { ptr::copy(from_table.element(from), self.element(to), count as usize) };
        Ok(())
    }
}

impl MemoryHandle {
    pub(crate) fn bytes(&self) -> u64 {
        // SAFETY: a memory that lives as long as its handles are used.
        unsafe { self.size.as_ref().bytes }
    }

    /// The most bytes that it can ever have.
    pub(crate) fn most(&self) -> u64 {
        let most = match signed_addresses(&self.kind) {
            true => SIGNED_PAGES,
            false => RESERVED / PAGE,
        };
        self.kind.maximum.map_or(most, |maximum| maximum.min(most)) * PAGE
    }

    fn grow(&self, pages: u32, bounds: Bounds) -> u32 {
        let before = self.bytes() / PAGE;
        let after = before + u64::from(pages);
        if after * PAGE > self.most() || self.resize(after * PAGE, bounds).is_err() {
            return u32::MAX;
        }
        u32::try_from(before).unwrap_or(u32::MAX)
    }

    /// Makes it so large.
    fn resize(&self, bytes: u64, bounds: Bounds) -> Result<(), Errno> {
        let accessible = match bounds {
            Bounds::Mask => bytes.next_power_of_two().max(PAGE),
            _ => bytes,
        };
        let before = match bounds {
            Bounds::Mask if self.bytes() > 0 => self.bytes().next_power_of_two().max(PAGE),
            _ => self.bytes(),
        };
        if accessible > before {
            let rights = MprotectFlags::READ | MprotectFlags::WRITE;
            // SAFETY: reserved for this memory.
            unsafe {
                let from = self.base.as_ptr().wrapping_add(before as usize);
                mprotect(from.cast(), (accessible - before) as usize, rights)?;
            }
        }
        let size = MemorySize {
            bytes,
            mask: accessible.wrapping_sub(1),
        };
        // SAFETY: as in `bytes`.
        unsafe { self.size.as_ptr().write(size) };
        Ok(())
    }
}

const _: () = assert!(size_of::<FunctionReference>() == ELEMENT as usize);
const _: () = assert!(size_of::<Slot>() == SLOT as usize);
