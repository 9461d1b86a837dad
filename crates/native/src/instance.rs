//! Instances: a context with tables, and a linear memory.

use crate::{
    layout::{self, Builtin, ELEMENT, ELEMENTS, FunctionReference, MemorySize, Outside, SLOT, Table, Trap},
    memory::{FirstMemory, MemoryHandle, PAGE, Space, fits_memory},
    object::Object,
    plan::{Exported, Imported, Plan, Segment, Slot, Step, slot},
    table::{TABLE_MOST, TableHandle, fits_table, room},
    types::{GlobalType, MemoryType},
};
use fresh::{Area, Guard, Restorer, Watched};
use rustix::io::Errno;
use serde_bytes::ByteBuf;
use std::{
    ffi::c_void,
    ptr::{self, NonNull},
    sync::Arc,
};

/// Compiled code, and how instances of it are made.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) plan: Plan,
    pub(crate) object: Object,
    pub(crate) outside: Outside,
    places: Places,
}

impl Image {
    pub(crate) fn new(plan: Plan, object: Object, outside: Outside) -> Result<Self, InstanceError> {
        Ok(Self {
            places: Places::new(&plan)?,
            plan,
            object,
            outside,
        })
    }

    /// Bytes that an instance needs for all but its memory.
    pub(crate) fn block(&self) -> usize {
        self.places.end
    }
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

/// What an import gets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum External {
    /// With its type's number.
    Function(FunctionReference),
    /// The host's own: the guest enters it with the import's number.
    Host,
    Table(TableHandle),
    Memory(MemoryHandle),
    Global(GlobalType, NonNull<Slot>),
}

#[derive(Debug)]
pub(crate) struct Instance {
    pub(crate) image: Arc<Image>,
    pub(crate) memory: Option<MemoryHandle>,
    tables: Vec<TableHandle>,
    /// Whether what the host did for the guest has changed tables.
    changed_tables: bool,
    /// Segments that are gone.
    dropped_data: Vec<bool>,
    dropped_elements: Vec<bool>,
    /// The context, and behind it what it has the addresses of.
    block: NonNull<c_void>,
    space: Option<Space>,
}

/// Where what lies in a block.
#[derive(Debug)]
struct Places {
    size: usize,
    /// Where its own tables are, and room for how many elements they have.
    tables: Vec<(usize, u32)>,
    end: usize,
}

impl Places {
    fn new(plan: &Plan) -> Result<Self, InstanceError> {
        let mut at = (plan.offsets.size as usize).next_multiple_of(ELEMENT as usize);
        let size = at;
        at += size_of::<MemorySize>().next_multiple_of(ELEMENT as usize);
        let mut tables = Vec::new();
        let own = plan.tables.get(plan.imported_tables as usize..);
        for (kind, _) in own.unwrap_or_default() {
            let room = room(kind)?;
            tables.push((at, room));
            at += ELEMENTS as usize + room as usize * ELEMENT as usize;
        }
        Ok(Self {
            size,
            tables,
            end: at,
        })
    }
}

impl Instance {
    /// Of this image, with these imports in their order. `fiber` is what its code runs on. Its memory, if it has one of its own, is made in
    /// this space, and larger than it says if so many bytes are given. Active segments are not copied yet: see [`Self::initialize`].
    ///
    /// # Safety
    /// The block is the instance's alone as long as it is used. It has [`Image::block`] bytes, all zeros, aligned as a cache's
    /// lines are.
    pub(crate) unsafe fn new(
        image: &Arc<Image>,
        imports: &[External],
        fiber: *const c_void,
        block: NonNull<c_void>,
        (space, bytes): (Option<Space>, Option<u64>),
    ) -> Result<Box<Self>, InstanceError> {
        let plan = &image.plan;
        let own_memory = plan.memory.filter(|_| !plan.imported_memory);
        let space = own_memory.map(|_| space.map_or_else(|| Space::new(image.outside), Ok));
        let mut instance = Box::new(Self {
            image: image.clone(),
            memory: None,
            tables: Vec::new(),
            changed_tables: false,
            dropped_data: vec![false; plan.data.len()],
            dropped_elements: vec![false; plan.elements.len()],
            block,
            space: space.transpose().map_err(InstanceError::Host)?,
        });
        let owner: *mut Self = &raw mut *instance;
        instance.write(layout::ENTER_HOST, fiber::enter_host());
        instance.write(layout::FIBER, fiber);
        instance.write(layout::OWNER, owner);
        instance.link(imports)?;
        instance.own_tables();
        if let Some(kind) = own_memory {
            instance.own_memory(kind, bytes)?;
        }
        instance.references();
        instance.globals();
        instance.fill_tables();
        Ok(instance)
    }

    /// What compiled code gets.
    pub(crate) fn context(&self) -> *mut c_void {
        self.block.as_ptr()
    }

    fn at<T>(&self, offset: u32) -> *mut T {
        self.context().wrapping_byte_add(offset as usize).cast()
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
                (Imported::Function, Some(given)) => {
                    let reference = match given {
                        External::Host => self.reference(function),
                        External::Function(reference)
                            if reference.signature == plan.type_of(function).signature =>
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

    fn own_tables(&mut self) {
        let image = self.image.clone();
        let plan = &image.plan;
        let own = plan.tables.get(plan.imported_tables as usize..);
        for ((kind, _), (place, room)) in own.unwrap_or_default().iter().zip(&image.places.tables) {
            // SAFETY: not null: within the block.
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
            self.write(plan.offsets.table(index), table);
        }
    }

    fn own_memory(&mut self, kind: MemoryType, bytes: Option<u64>) -> Result<(), InstanceError> {
        let Some(space) = &self.space else { return Ok(()) };
        let base = space.base();
        // SAFETY: not null: within the block.
        let size = unsafe { NonNull::new_unchecked(self.at::<MemorySize>(self.image.places.size as u32)) };
        let memory = MemoryHandle { base, size, kind };
        space.begin(&memory);
        self.use_memory(memory);
        self.set_memory(&memory, bytes).map_err(InstanceError::Host)
    }

    /// The reference to a function of this module, by place, as its own code has it.
    fn reference(&self, place: u32) -> FunctionReference {
        let plan = &self.image.plan;
        FunctionReference {
            code: ptr::with_exposed_provenance(self.image.object.symbols[place as usize]),
            context: self.context(),
            signature: plan.type_of(place).signature,
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
        self.initialize_tables()?;
        let image = self.image.clone();
        for (index, segment) in image.plan.data.iter().enumerate() {
            if let Some(at) = self.active(segment) {
                self.init_memory(index, at, 0, segment.content.len() as u32)?;
                self.dropped_data[index] = true;
            }
        }
        Ok(())
    }

    /// The same in memory that is to hold what its active segments say.
    pub(crate) fn initialize_with(&mut self, first: &FirstMemory) -> Result<(), InstanceError> {
        if let Some(memory) = &self.memory {
            first.put(memory).map_err(InstanceError::Host)?;
        }
        self.initialize_tables()?;
        let image = self.image.clone();
        for (dropped, segment) in self.dropped_data.iter_mut().zip(&image.plan.data) {
            *dropped = segment.at.is_some();
        }
        Ok(())
    }

    fn initialize_tables(&mut self) -> Result<(), Trap> {
        let image = self.image.clone();
        for (index, segment) in image.plan.elements.iter().enumerate() {
            self.dropped_elements[index] = false;
            if let Some((table, at)) = &segment.at {
                let at = u32::from_le_bytes(first(self.evaluate(at)));
                self.init_table(*table, index, at, 0, segment.content.len() as u32)?;
            }
            self.dropped_elements[index] = segment.at.is_some() || segment.declared;
        }
        Ok(())
    }

    /// Where a segment goes to.
    fn active(&self, segment: &Segment<ByteBuf>) -> Option<u32> {
        let (_, at) = segment.at.as_ref()?;
        Some(u32::from_le_bytes(first(self.evaluate(at))))
    }

    fn evaluate(&self, expression: &[Step]) -> Slot {
        if let [Step::Constant(value)] = expression {
            return *value;
        }
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
                    slot(
                        &operation
                            .on_i32(i32::from_le_bytes(first(a)), i32::from_le_bytes(first(b)))
                            .to_le_bytes(),
                    )
                }
                Step::I64(operation) => {
                    let (a, b) = two(&mut stack);
                    slot(
                        &operation
                            .on_i64(i64::from_le_bytes(first(a)), i64::from_le_bytes(first(b)))
                            .to_le_bytes(),
                    )
                }
            };
            stack.push(value);
        }
        stack.pop().unwrap_or_default()
    }

    // --- putting back ---

    /// What its memory holds once it is [initialised](Self::initialize).
    pub(crate) fn first_memory(&self) -> Result<FirstMemory, Errno> {
        let plan = &self.image.plan;
        let bytes = plan.memory.map_or(0, |memory| memory.initial) * PAGE;
        let segments = plan.data.iter().filter_map(|segment| {
            let at = self.active(segment)? as usize;
            Some((at, segment.content.as_slice()))
        });
        let segments: Vec<(usize, &[u8])> = segments.filter(|(_, content)| !content.is_empty()).collect();
        FirstMemory::new(bytes, &segments)
    }

    /// The space that its memory was made in, for another instance, if it [has been put back](Self::restore).
    pub(crate) fn vacate(mut self, first: &FirstMemory) -> Option<Space> {
        self.space.take()?.vacate(&self.memory?, first).ok()
    }

    /// Makes it what it was when it had begun. `false` if it is of no use any more.
    pub(crate) fn restore(
        &mut self,
        (first, extended): (&FirstMemory, &mut Option<u64>),
        restorer: Option<&Restorer<'_>>,
        guard: &mut Option<Guard>,
        watch: impl FnOnce(Arc<Watched>),
    ) -> bool {
        self.globals();
        if self.image.plan.sets_tables || self.changed_tables {
            self.changed_tables = false;
            for table in &self.tables {
                table.reset();
            }
            self.fill_tables();
            if self.initialize_tables().is_err() {
                return false;
            }
        }
        for (dropped, segment) in self.dropped_data.iter_mut().zip(&self.image.plan.data) {
            *dropped = segment.at.is_some();
        }
        let Some(memory) = &self.memory else { return true };
        // What was given for sets stays, unless the code has asked for more besides.
        *extended = extended.filter(|bytes| *bytes == memory.bytes());
        let bytes = extended.unwrap_or(first.bytes);
        if memory.shrink(bytes, self.image.outside).is_err() {
            return false;
        }
        let area = Area::new(memory.base.as_ptr(), memory.mapped(self.image.outside) as usize);
        // SAFETY: this instance's memory, whose code does not run; the handle is ours alone. A guest drops its guard first.
        let restored =
            restorer.is_some_and(|restorer| unsafe { restorer.restore(guard, area, first.content(), watch) });
        if restored {
            return true;
        }
        *guard = None;
        memory.discard(self.image.outside).is_ok() && first.put_again(memory).is_ok()
    }

    /// Makes its memory larger than it says, or as large as that.
    pub(crate) fn set_memory(&self, memory: &MemoryHandle, bytes: Option<u64>) -> Result<(), Errno> {
        let bytes = bytes.unwrap_or_default().max(memory.kind.initial * PAGE);
        match bytes < memory.bytes() {
            true => memory.shrink(bytes, self.image.outside),
            false => memory.resize(bytes, self.image.outside),
        }
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
        not(feature = "spec"),
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
        let entry = plan.functions.len() + plan.functions[place as usize] as usize;
        let entry = self.image.object.symbols[entry];
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
            Builtin::TableGrow => {
                self.changed_tables = true;
                self.tables[word(0) as usize].grow(word(1), reference(2))
            }
            Builtin::MemoryInit => return self.init_memory(word(0) as usize, word(1), word(2), word(3)),
            Builtin::DataDrop => {
                self.dropped_data[word(0) as usize] = true;
                return Ok(());
            }
            Builtin::TableFill => {
                self.changed_tables = true;
                return self.tables[word(0) as usize].fill(word(1), reference(2), word(3));
            }
            Builtin::TableCopy => {
                self.changed_tables = true;
                let (to, from) = (self.tables[word(0) as usize], self.tables[word(1) as usize]);
                return to.copy(&from, word(2), word(3), word(4));
            }
            Builtin::TableInit => {
                self.changed_tables = true;
                return self.init_table(word(0), word(1) as usize, word(2), word(3), word(4));
            }
            Builtin::ElementsDrop => {
                self.changed_tables = true;
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
            .map_or(u32::MAX, |memory| memory.grow(pages, self.image.outside))
    }

    fn init_memory(&self, segment: usize, to: u32, from: u32, length: u32) -> Result<(), Trap> {
        let content = if self.dropped_data[segment] {
            &[]
        } else {
            self.image.plan.data[segment].content.as_slice()
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

const _: () = assert!(size_of::<Slot>() == SLOT as usize);
