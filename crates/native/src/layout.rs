//! What compiled code and the host have in common: where things lie in an instance's context, and which number a trap has.
//!
//! The context is a block of memory of its own, out of reach of the guest's loads and stores: these reach linear memory
//! and the inaccessible pages behind it only. Compiled functions get its address as their first parameter.
//!
//! | offset | |
//! |---|---|
//! | 0 | address of the linear memory's first byte; never changes |
//! | 8 | address of a [`MemorySize`] |
//! | 16 | the function that leaves the guest for the host ([`ENTER_HOST`]) |
//! | 24 | the fiber that the guest runs on, which goes along when it enters the host |
//! | 32 | free for the host: whose context it is |
//! | 40 | for each table, the address of its [`Table`] |
//! | … | for each imported global, its address |
//! | … | each own global, 16 bytes |
//! | … | the [`FunctionReference`] of each imported function, and of each that is referred to |

use serde::{Deserialize, Serialize};
use std::ffi::c_void;

/// Bytes behind each memory that cannot be accessed, or only be read. Accesses at an offset below this need no check there.
pub const GUARD: u64 = 32 << 20;

/// What there is around a memory, 2 GiB below it and 4 GiB and [`GUARD`] from its begin on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// What is accessed there faults.
    Faults,
    /// The memory goes on to the next power of two; what lies behind that faults.
    Inside,
    /// What lies behind the memory is zeros that can be read; what is written there faults.
    Zeros,
}

/// A position in the context at which every context has the same: the memory's address.
pub const MEMORY: u32 = 0;
/// Of a [`MemorySize`]'s address.
pub const MEMORY_SIZE: u32 = 8;
/// Of the way to the host: `fn(fiber, number, slots, context)`, with the number of an imported function or of a [`Builtin`].
pub const ENTER_HOST: u32 = 16;
/// Of the fiber.
pub const FIBER: u32 = 24;
/// Of what is the host's.
pub const OWNER: u32 = 32;
const TABLES: u32 = 40;

/// Bytes of a global, of a parameter, and of a result, where they pass through memory.
pub const SLOT: u32 = 16;

/// The current size of a linear memory.
#[repr(C)]
pub struct MemorySize {
    /// In bytes.
    pub bytes: u64,
    /// In `mask` mode, which bits of an address count.
    pub mask: u64,
}

/// Of [`MemorySize::mask`].
pub const MASK: u32 = 8;

/// A table, followed by room for as many elements as it can grow to.
#[repr(C, align(32))]
pub struct Table {
    /// Elements that it has.
    pub length: u32,
}

/// Where a table's first element lies, from its [`Table`].
pub const ELEMENTS: u32 = 32;

/// An element of a table. A reference to a function is the address of one that does not change.
#[repr(C, align(32))]
#[derive(Clone, Copy, Debug)]
pub struct FunctionReference {
    /// Compiled code.
    pub code: *const c_void,
    /// The context it runs in.
    pub context: *const c_void,
    /// See [`signature`](crate::module::signature); 0 in an element that is null.
    pub signature: u64,
    /// The reference that the element holds: to this function, or whatever the host means by it.
    pub reference: *const c_void,
}

/// Where what lies in a [`FunctionReference`]: its code,
pub const CODE: u32 = 0;
/// its context,
pub const CONTEXT: u32 = 8;
/// its signature,
pub const SIGNATURE: u32 = 16;
/// and the reference.
pub const REFERENCE: u32 = 24;
/// Bytes of a [`FunctionReference`].
pub const ELEMENT: u32 = 32;

/// Where in the context what lies of which a module has any number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offsets {
    imported_globals: u32,
    globals: u32,
    functions: u32,
    /// Bytes of the context.
    pub size: u32,
}

impl Offsets {
    /// For a module with so many of each. `None` if they are more than an offset can tell.
    pub fn new(tables: u32, imported_globals: u32, globals: u32, functions: u32) -> Option<Self> {
        let imported_at = TABLES.checked_add(tables.checked_mul(8)?)?;
        let globals_at = imported_at
            .checked_add(imported_globals.checked_mul(8)?)?
            .checked_next_multiple_of(SLOT)?;
        let functions_at = globals_at
            .checked_add(globals.checked_mul(SLOT)?)?
            .checked_next_multiple_of(ELEMENT)?;
        let size = functions_at.checked_add(functions.checked_mul(ELEMENT)?)?;
        i32::try_from(size).ok()?;
        Some(Self {
            imported_globals: imported_at,
            globals: globals_at,
            functions: functions_at,
            size,
        })
    }

    /// Of a table's address.
    pub fn table(&self, index: u32) -> u32 {
        TABLES + 8 * index
    }

    /// Of the address of a global that another instance has.
    pub fn imported_global(&self, index: u32) -> u32 {
        self.imported_globals + 8 * index
    }

    /// Of a global by its place among the module's own.
    pub fn global(&self, index: u32) -> u32 {
        self.globals + SLOT * index
    }

    /// Of a [`FunctionReference`] by its place: imported functions first, then those that are referred to.
    pub fn function(&self, place: u32) -> u32 {
        self.functions + ELEMENT * place
    }
}

/// What the host does for the guest beside its imports, by the number with which it enters the host. The arguments lie in
/// slots; the answer takes the place of the first.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// `(pages) -> pages before, or -1`
    MemoryGrow,
    /// `(data segment, to, from, length)`
    MemoryInit,
    /// `(data segment)`
    DataDrop,
    /// `(table, elements, reference) -> elements before, or -1`
    TableGrow,
    /// `(table, from, reference, length)`
    TableFill,
    /// `(to table, from table, to, from, length)`
    TableCopy,
    /// `(table, element segment, to, from, length)`
    TableInit,
    /// `(element segment)`
    ElementsDrop,
}

impl Builtin {
    /// Numbers from here on are builtins; below, imported functions.
    pub const FIRST: u32 = 1 << 31;

    const ALL: [Self; 8] = [
        Self::MemoryGrow,
        Self::MemoryInit,
        Self::DataDrop,
        Self::TableGrow,
        Self::TableFill,
        Self::TableCopy,
        Self::TableInit,
        Self::ElementsDrop,
    ];

    /// With which the guest enters the host.
    pub fn number(self) -> u32 {
        Self::FIRST + self as u32
    }

    /// The one that has this number.
    pub fn from_number(number: u32) -> Option<Self> {
        let index = number.checked_sub(Self::FIRST)?;
        Self::ALL.get(index as usize).copied()
    }
}

/// Why a guest cannot go on. The number is part of the trapping instruction.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trap {
    /// `unreachable`.
    Unreachable,
    /// An access, or a range of memory, that is not inside.
    MemoryOutOfBounds,
    /// The same of a table.
    TableOutOfBounds,
    /// An indirect call of an element that the table does not have,
    UndefinedElement,
    /// of one that is null,
    UninitializedElement,
    /// and of a function of another type.
    IndirectCallType,
    /// A quotient, or a float as an integer, that is too large.
    IntegerOverflow,
    /// Also of a remainder.
    IntegerDivideByZero,
    /// Of what is no number.
    InvalidConversion,
    /// By a guard page, never by an instruction.
    StackOverflow,
}

impl Trap {
    /// By their numbers.
    pub const ALL: [Self; 10] = [
        Self::Unreachable,
        Self::MemoryOutOfBounds,
        Self::TableOutOfBounds,
        Self::UndefinedElement,
        Self::UninitializedElement,
        Self::IndirectCallType,
        Self::IntegerOverflow,
        Self::IntegerDivideByZero,
        Self::InvalidConversion,
        Self::StackOverflow,
    ];

    /// In the words of the specification's tests.
    pub fn message(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::MemoryOutOfBounds => "out of bounds memory access",
            Self::TableOutOfBounds => "out of bounds table access",
            Self::UndefinedElement => "undefined element",
            Self::UninitializedElement => "uninitialized element",
            Self::IndirectCallType => "indirect call type mismatch",
            Self::IntegerOverflow => "integer overflow",
            Self::IntegerDivideByZero => "integer divide by zero",
            Self::InvalidConversion => "invalid conversion to integer",
            Self::StackOverflow => "call stack exhausted",
        }
    }
}
