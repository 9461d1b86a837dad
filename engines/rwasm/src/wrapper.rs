//! What the code of a module stands on: the only part of a crate made by this engine in which anything can go wrong with memory. The text is
//! the same for all modules; what differs are the numbers and names that its macros are given in `roots`.

use core::{
    arch::asm,
    cell::{Cell, UnsafeCell},
    ffi::c_void,
    panic::PanicInfo,
    ptr,
};

/// A parameter, a result or a global in memory.
#[derive(Clone, Copy)]
#[repr(C, align(16))]
pub struct Slot(u64, u64);

/// The size of a linear memory: bytes, and, for others, a mask.
#[repr(C)]
struct MemorySize {
    bytes: Cell<u64>,
    mask: u64,
}

/// An element of a table; also what a reference to a function is the address of.
#[repr(C, align(32))]
struct FunctionReference {
    code: *const c_void,
    context: *const c_void,
    signature: u64,
    reference: *const c_void,
}

const NULL: FunctionReference = FunctionReference {
    code: ptr::null(),
    context: ptr::null(),
    signature: 0,
    reference: ptr::null(),
};

/// A reference to a function, or to what the host knows. The code cannot make one, nor one of the other.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Reference<const FUNCTION: bool>(*const c_void);

pub type Funcref = Reference<true>;
pub type Externref = Reference<false>;

impl<const FUNCTION: bool> Reference<FUNCTION> {
    pub const NULL: Self = Self(ptr::null());

    #[inline(always)]
    pub fn is_null(self) -> i32 {
        self.0.is_null() as i32
    }
}

/// The context of an instance, whose begin is the same in all of them.
#[repr(C)]
pub struct Context {
    memory: *const Cell<u8>,
    size: *const MemorySize,
    enter_host: unsafe extern "C-unwind" fn(*const c_void, u32, *mut Slot, *const Context),
    fiber: *const c_void,
    owner: *const c_void,
    // Nothing is known of its content from one call of the host's to the next.
    changes: UnsafeCell<()>,
}

/// Where in the context what lies of which a module has any number, and how many there are.
pub struct Places {
    pub tables: u32,
    pub imported_globals: u32,
    pub own_globals: u32,
    /// Whether each holds a reference, and whether that is one to a function.
    pub references: &'static [Option<bool>],
    /// Whether the elements of each are functions.
    pub function_tables: &'static [bool],
    pub imported_globals_at: usize,
    pub globals_at: usize,
    pub functions: u32,
    pub functions_at: usize,
}

const TABLES_AT: usize = 40;
const ELEMENTS_AT: usize = 32;

use super::roots::PLACES;

/// A type of functions: what calls one has to find as the signature.
///
/// # Safety
/// The number is that of the type, and no other's.
pub unsafe trait Function: Copy {
    const SIGNATURE: u64;
}

/// Ends the guest with this trap. Nobody reads memory afterwards.
#[cold]
#[inline(always)]
pub fn trap<const NUMBER: u8>() -> ! {
    // SAFETY: an instruction that faults, which the host takes for the end of the guest.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(".byte 103, 15, 185, 64, {number}", number = const NUMBER, options(noreturn, nomem, nostack))
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("brk #({number} + 0x5500)", number = const NUMBER, options(noreturn, nomem, nostack))
    }
}

/// Something to be done after a call, so that the caller's frame stays for it.
#[inline(always)]
pub fn stay() {
    // SAFETY: nothing is done.
    unsafe { asm!("", options(nomem, nostack, preserves_flags)) }
}

pub const UNREACHABLE: u8 = 0;
const MEMORY: u8 = 1;
const TABLE: u8 = 2;
const UNDEFINED: u8 = 3;
const UNINITIALIZED: u8 = 4;
const TYPE: u8 = 5;
const OVERFLOW: u8 = 6;
const ZERO: u8 = 7;
const CONVERSION: u8 = 8;

// --- memory ---

/// As far as an address and the offsets that are added without a check lead.
#[cfg(bounds = "mask")]
const REACH: usize = (4 << 30) + (32 << 20);
#[cfg(bounds = "mask")]
pub type Memory<'c> = &'c [Cell<u8>; REACH];
#[cfg(bounds = "checked")]
pub type Memory<'c> = &'c [Cell<u8>];

/// One cell of so many.
#[inline(always)]
fn whole<const BYTES: usize>(cells: &[Cell<u8>]) -> &Cell<[u8; BYTES]> {
    if cells.len() != BYTES {
        trap::<MEMORY>()
    }
    // SAFETY: cells of bytes are laid out as a cell of as many bytes.
    unsafe { &*cells.as_ptr().cast() }
}

#[cfg(bounds = "checked")]
#[inline(always)]
pub fn at<const BYTES: usize>(memory: Memory<'_>, address: i32, offset: u32) -> &Cell<[u8; BYTES]> {
    let begin = address as u32 as usize + offset as usize;
    match memory.get(begin..begin + BYTES) {
        Some(cells) => whole(cells),
        None => trap::<MEMORY>(),
    }
}

#[cfg(bounds = "mask")]
#[inline(always)]
pub fn at<const BYTES: usize>(memory: Memory<'_>, address: i32, offset: u32) -> &Cell<[u8; BYTES]> {
    let begin = match offset as usize + BYTES <= 32 << 20 {
        true => address as u32 as usize + offset as usize,
        false => (address as u32).wrapping_add(offset) as usize,
    };
    match memory.get(begin..begin + BYTES) {
        Some(cells) => whole(cells),
        None => trap::<MEMORY>(),
    }
}

impl Context {
    #[cfg(bounds = "checked")]
    #[inline(always)]
    pub fn memory(&self) -> Memory<'_> {
        // SAFETY: a memory of this size, which never gets smaller nor moves while the code runs.
        unsafe { core::slice::from_raw_parts(self.memory, (*self.size).bytes.get() as usize) }
    }

    #[cfg(bounds = "mask")]
    #[inline(always)]
    pub fn memory(&self) -> Memory<'_> {
        // SAFETY: as far as this reaches, there is something that can be read; what is written behind the memory faults.
        unsafe { &*self.memory.cast() }
    }

    #[inline(always)]
    fn bytes(&self) -> u64 {
        // SAFETY: the address of a memory's size.
        unsafe { (*self.size).bytes.get() }
    }

    #[inline(always)]
    pub fn memory_size(&self) -> i32 {
        (self.bytes() >> 16) as i32
    }

    /// Where a range of memory begins that is checked in every mode.
    #[inline(always)]
    fn range(&self, from: i32, length: i32) -> *mut u8 {
        if from as u32 as u64 + length as u32 as u64 > self.bytes() {
            trap::<MEMORY>()
        }
        self.memory.cast::<u8>().cast_mut().wrapping_add(from as u32 as usize)
    }

    #[inline(always)]
    pub fn memory_fill(&self, to: i32, byte: i32, length: i32) {
        // SAFETY: within the memory, of which there are cells only.
        unsafe { ptr::write_bytes(self.range(to, length), byte as u8, length as u32 as usize) }
    }

    #[inline(always)]
    pub fn memory_copy(&self, to: i32, from: i32, length: i32) {
        let (from, to) = (self.range(from, length), self.range(to, length));
        // SAFETY: as above.
        unsafe { ptr::copy(from, to, length as u32 as usize) }
    }
}

// --- the host ---

pub trait Value: Copy {
    fn to_slot(self) -> Slot;
    fn of_slot(slot: Slot) -> Self;
}

macro_rules! value {
    ($kind:ty, $to:expr, $of:expr) => {
        impl Value for $kind {
            #[inline(always)]
            fn to_slot(self) -> Slot {
                let to: fn(Self) -> u64 = $to;
                Slot(to(self), 0)
            }

            #[inline(always)]
            fn of_slot(slot: Slot) -> Self {
                let of: fn(u64) -> Self = $of;
                of(slot.0)
            }
        }
    };
}

value!(i32, |value| value as u32 as u64, |bits| bits as i32);
value!(i64, |value| value as u64, |bits| bits as i64);
value!(f32, |value| value.to_bits() as u64, |bits| f32::from_bits(bits as u32));
value!(f64, |value| value.to_bits(), |bits| f64::from_bits(bits));

/// Arguments for the host, and what it answers.
pub struct Slots<const COUNT: usize>([Slot; COUNT]);

impl<const COUNT: usize> Slots<COUNT> {
    #[inline(always)]
    pub fn new() -> Self {
        Self([Slot(0, 0); COUNT])
    }

    #[inline(always)]
    pub fn set<T: Value>(&mut self, index: usize, value: T) {
        if let Some(slot) = self.0.get_mut(index) {
            *slot = value.to_slot();
        }
    }

    #[inline(always)]
    pub fn get<T: Value>(&self, index: usize) -> T {
        match self.0.get(index) {
            Some(slot) => T::of_slot(*slot),
            None => trap::<UNREACHABLE>(),
        }
    }

    #[inline(always)]
    pub fn set_reference<const FUNCTION: bool>(&mut self, index: usize, value: Reference<FUNCTION>) {
        if let Some(slot) = self.0.get_mut(index) {
            *slot = Slot(value.0 as u64, 0);
        }
    }

    #[inline(always)]
    pub fn get_reference<const FUNCTION: bool>(&self, index: usize) -> Reference<FUNCTION> {
        match self.0.get(index) {
            Some(slot) => Reference(slot.0 as *const c_void),
            None => trap::<UNREACHABLE>(),
        }
    }
}

impl Context {
    #[inline(always)]
    pub fn enter<const COUNT: usize>(&self, number: u32, slots: &mut Slots<COUNT>) {
        // SAFETY: the host's own function, and as many slots as this number takes and answers.
        unsafe { (self.enter_host)(self.fiber, number, slots.0.as_mut_ptr(), self) }
    }

    #[inline(always)]
    fn place<T>(&self, at: usize) -> *const T {
        ptr::from_ref(self).wrapping_byte_add(at).cast()
    }

    // --- globals ---

    #[inline(always)]
    fn global_at<const INDEX: u32>(&self) -> *const Slot {
        match INDEX.checked_sub(PLACES.imported_globals) {
            Some(own) => self.place(PLACES.globals_at + 16 * own as usize),
            // SAFETY: the address of an imported global.
            None => unsafe { *self.place::<*const Slot>(PLACES.imported_globals_at + 8 * INDEX as usize) },
        }
    }

    #[inline(always)]
    pub fn global<const INDEX: u32, T: Value>(&self) -> T {
        const { assert!(PLACES.references[INDEX as usize].is_none()) }
        // SAFETY: a global's slot.
        T::of_slot(unsafe { Slot(self.global_at::<INDEX>().cast::<u64>().read(), 0) })
    }

    #[inline(always)]
    pub fn set_global<const INDEX: u32, T: Value>(&self, value: T) {
        const { assert!(PLACES.references[INDEX as usize].is_none()) }
        // SAFETY: as above; nobody has a reference to it.
        unsafe { self.global_at::<INDEX>().cast_mut().cast::<u64>().write(value.to_slot().0) }
    }

    #[inline(always)]
    pub fn global_reference<const INDEX: u32, const FUNCTION: bool>(&self) -> Reference<FUNCTION> {
        const { assert!(matches!(PLACES.references[INDEX as usize], Some(function) if function == FUNCTION)) }
        // SAFETY: a global that holds a reference.
        unsafe { self.global_at::<INDEX>().cast::<Reference<FUNCTION>>().read() }
    }

    #[inline(always)]
    pub fn set_global_reference<const INDEX: u32, const FUNCTION: bool>(&self, value: Reference<FUNCTION>) {
        const { assert!(matches!(PLACES.references[INDEX as usize], Some(function) if function == FUNCTION)) }
        // SAFETY: as above.
        unsafe { self.global_at::<INDEX>().cast_mut().cast::<Reference<FUNCTION>>().write(value) }
    }

    // --- functions and tables ---

    #[inline(always)]
    pub fn function<const PLACE: u32>(&self) -> Funcref {
        const { assert!(PLACE < PLACES.functions) }
        Reference(self.place(PLACES.functions_at + 32 * PLACE as usize))
    }

    /// An imported function, and the context that it runs in.
    #[inline(always)]
    pub fn imported<const PLACE: u32, F: Function>(&self) -> (F, &Self) {
        const { assert!(PLACE < PLACES.functions) }
        // SAFETY: the place of a function's reference.
        let function = unsafe { &*self.place::<FunctionReference>(PLACES.functions_at + 32 * PLACE as usize) };
        self.callable(function)
    }

    #[inline(always)]
    fn callable<F: Function>(&self, function: &FunctionReference) -> (F, &Self) {
        if function.signature != F::SIGNATURE {
            match function.signature {
                0 => trap::<UNINITIALIZED>(),
                _ => trap::<TYPE>(),
            }
        }
        const { assert!(size_of::<F>() == size_of::<*const c_void>()) }
        // SAFETY: code of this type, as its signature says, and the context of its instance, which lives as long as this one.
        unsafe {
            (
                ptr::from_ref(&function.code).cast::<F>().read(),
                &*function.context.cast(),
            )
        }
    }

    #[inline(always)]
    fn table<const INDEX: u32>(&self) -> *const u32 {
        const { assert!(INDEX < PLACES.tables) }
        // SAFETY: the address of a table.
        unsafe { *self.place::<*const u32>(TABLES_AT + 8 * INDEX as usize) }
    }

    #[inline(always)]
    pub fn table_size<const INDEX: u32>(&self) -> i32 {
        // SAFETY: a table, which begins with its length.
        unsafe { *self.table::<INDEX>() as i32 }
    }

    #[inline(always)]
    fn element<const INDEX: u32>(&self, index: i32) -> Option<*mut FunctionReference> {
        let table = self.table::<INDEX>();
        let elements = table.wrapping_byte_add(ELEMENTS_AT).cast::<FunctionReference>();
        // SAFETY: as above.
        let length = unsafe { *table };
        ((index as u32) < length).then(|| elements.wrapping_add(index as u32 as usize).cast_mut())
    }

    /// A table's element, if it is a function of this type.
    #[inline(always)]
    pub fn callee<const INDEX: u32, F: Function>(&self, index: i32) -> (F, &Self) {
        const { assert!(PLACES.function_tables[INDEX as usize]) }
        match self.element::<INDEX>(index) {
            // SAFETY: an element that the table has.
            Some(element) => self.callable(unsafe { &*element }),
            None => trap::<UNDEFINED>(),
        }
    }

    #[inline(always)]
    pub fn table_get<const INDEX: u32, const FUNCTION: bool>(&self, index: i32) -> Reference<FUNCTION> {
        const { assert!(PLACES.function_tables[INDEX as usize] == FUNCTION) }
        match self.element::<INDEX>(index) {
            // SAFETY: as above.
            Some(element) => Reference(unsafe { (*element).reference }),
            None => trap::<TABLE>(),
        }
    }

    /// In a table of functions.
    #[inline(always)]
    pub fn table_set_function<const INDEX: u32>(&self, index: i32, value: Funcref) {
        const { assert!(PLACES.function_tables[INDEX as usize]) }
        let Some(element) = self.element::<INDEX>(index) else {
            trap::<TABLE>()
        };
        // SAFETY: as above. A reference to a function is the address of one.
        unsafe {
            element.write(match value.0.is_null() {
                true => NULL,
                false => value.0.cast::<FunctionReference>().read(),
            })
        }
    }

    /// In a table of what the host knows.
    #[inline(always)]
    pub fn table_set<const INDEX: u32>(&self, index: i32, Reference(reference): Externref) {
        const { assert!(!PLACES.function_tables[INDEX as usize]) }
        let Some(element) = self.element::<INDEX>(index) else {
            trap::<TABLE>()
        };
        // SAFETY: as above.
        unsafe { element.write(FunctionReference { reference, ..NULL }) }
    }
}

// --- numbers ---

macro_rules! integer {
    ($div_s:ident, $div_u:ident, $rem_s:ident, $rem_u:ident, $signed:ty, $unsigned:ty) => {
        #[inline(always)]
        pub fn $div_s(a: $signed, b: $signed) -> $signed {
            match a.checked_div(b) {
                Some(quotient) => quotient,
                None if b == 0 => trap::<ZERO>(),
                None => trap::<OVERFLOW>(),
            }
        }

        #[inline(always)]
        pub fn $div_u(a: $signed, b: $signed) -> $signed {
            match (a as $unsigned).checked_div(b as $unsigned) {
                Some(quotient) => quotient as $signed,
                None => trap::<ZERO>(),
            }
        }

        #[inline(always)]
        pub fn $rem_s(a: $signed, b: $signed) -> $signed {
            match b {
                0 => trap::<ZERO>(),
                _ => a.wrapping_rem(b),
            }
        }

        #[inline(always)]
        pub fn $rem_u(a: $signed, b: $signed) -> $signed {
            match (a as $unsigned).checked_rem(b as $unsigned) {
                Some(rest) => rest as $signed,
                None => trap::<ZERO>(),
            }
        }
    };
}

integer!(i32_div_s, i32_div_u, i32_rem_s, i32_rem_u, i32, u32);
integer!(i64_div_s, i64_div_u, i64_rem_s, i64_rem_u, i64, u64);

/// Floats as integers: the largest that is too small, and the smallest that is too large.
macro_rules! truncate {
    ($($name:ident: $from:ty, $through:ty, $to:ty, $below:literal, $above:literal;)*) => {
        $(
            #[inline(always)]
            pub fn $name(value: $from) -> $to {
                if value != value {
                    trap::<CONVERSION>()
                }
                if value <= $below || value >= $above {
                    trap::<OVERFLOW>()
                }
                value as $through as $to
            }
        )*
    };
}

truncate! {
    i32_trunc_f32_s: f32, i32, i32, -2147483904.0, 2147483648.0;
    i32_trunc_f64_s: f64, i32, i32, -2147483649.0, 2147483648.0;
    i32_trunc_f32_u: f32, u32, i32, -1.0, 4294967296.0;
    i32_trunc_f64_u: f64, u32, i32, -1.0, 4294967296.0;
    i64_trunc_f32_s: f32, i64, i64, -9223373136366403584.0, 9223372036854775808.0;
    i64_trunc_f64_s: f64, i64, i64, -9223372036854777856.0, 9223372036854775808.0;
    i64_trunc_f32_u: f32, u64, i64, -1.0, 18446744073709551616.0;
    i64_trunc_f64_u: f64, u64, i64, -1.0, 18446744073709551616.0;
}

macro_rules! float {
    ($min:ident, $max:ident, $hidden:ident, $ceil:ident, $floor:ident, $trunc:ident, $nearest:ident, $kind:ty, $whole:literal) => {
        #[inline(always)]
        pub fn $min(a: $kind, b: $kind) -> $kind {
            if a < b {
                a
            } else if b < a {
                b
            } else if a == b {
                // One of them may be -0.
                <$kind>::from_bits(a.to_bits() | b.to_bits())
            } else {
                a + b
            }
        }

        #[inline(always)]
        pub fn $max(a: $kind, b: $kind) -> $kind {
            if a > b {
                a
            } else if b > a {
                b
            } else if a == b {
                <$kind>::from_bits(a.to_bits() & b.to_bits())
            } else {
                a + b
            }
        }

        /// A value of which the compiler knows nothing: it takes `x * 1` for `x`, which leaves a signalling NaN one.
        #[inline(always)]
        pub fn $hidden(mut value: $kind) -> $kind {
            // SAFETY: nothing is done.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                asm!("/* {0} */", inout(xmm_reg) value, options(pure, nomem, nostack, preserves_flags))
            }
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            unsafe {
                asm!("/* {0:v} */", inout(vreg) value, options(pure, nomem, nostack, preserves_flags))
            }
            value
        }
    };
}

float!(f32_min, f32_max, f32_hidden, f32_ceil, f32_floor, f32_trunc, f32_nearest, f32, 8388608.0);
float!(f64_min, f64_max, f64_hidden, f64_ceil, f64_floor, f64_trunc, f64_nearest, f64, 4503599627370496.0);

/// What `core` has no stable functions for.
#[cfg(target_arch = "x86_64")]
mod rounding {
    use core::arch::x86_64::*;

    macro_rules! round {
        ($($name:ident: $kind:ty, $set:ident, $get:ident, $value:ident => $vector:expr;)*) => {
            $(
                #[inline(always)]
                pub fn $name(value: $kind) -> $kind {
                    // SAFETY: code is made for processors that have SSE 4.1 only.
                    unsafe {
                        let $value = $set(value);
                        $get($vector)
                    }
                }
            )*
        };
    }

    const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    const DOWN: i32 = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
    const UP: i32 = _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC;
    const TO_ZERO: i32 = _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC;

    round! {
        // LLVM knows that a root of what is negative is a NaN, and takes `if root != root { nan } else { root }` for the root: the bits would be lost
        // that the code asks for.
        f32_sqrt: f32, _mm_set1_ps, _mm_cvtss_f32, v => core::hint::black_box(_mm_sqrt_ps(v));
        f32_ceil: f32, _mm_set_ss, _mm_cvtss_f32, v => _mm_round_ss::<UP>(v, v);
        f32_floor: f32, _mm_set_ss, _mm_cvtss_f32, v => _mm_round_ss::<DOWN>(v, v);
        f32_trunc: f32, _mm_set_ss, _mm_cvtss_f32, v => _mm_round_ss::<TO_ZERO>(v, v);
        f32_nearest: f32, _mm_set_ss, _mm_cvtss_f32, v => _mm_round_ss::<NEAREST>(v, v);
        f64_sqrt: f64, _mm_set1_pd, _mm_cvtsd_f64, v => core::hint::black_box(_mm_sqrt_pd(v));
        f64_ceil: f64, _mm_set_sd, _mm_cvtsd_f64, v => _mm_round_sd::<UP>(v, v);
        f64_floor: f64, _mm_set_sd, _mm_cvtsd_f64, v => _mm_round_sd::<DOWN>(v, v);
        f64_trunc: f64, _mm_set_sd, _mm_cvtsd_f64, v => _mm_round_sd::<TO_ZERO>(v, v);
        f64_nearest: f64, _mm_set_sd, _mm_cvtsd_f64, v => _mm_round_sd::<NEAREST>(v, v);
    }
}

#[cfg(target_arch = "x86_64")]
pub use rounding::*;

// --- what the loader finds ---

/// Gives a type of functions its signature.
macro_rules! signatures {
    ($($kind:ty = $number:literal;)*) => {
        $(
            // SAFETY: the translator has seen to it that no two types have one number.
            unsafe impl $crate::wrapper::Function for $kind {
                const SIGNATURE: u64 = $number;
            }
        )*
    };
}

/// From the host to a function of a type, with parameters and results in slots.
macro_rules! entry {
    ($name:ident, ($($index:literal $parameter:ty,)*), ($($place:tt $result_index:literal $result:ty,)*), $kind:ty) => {
        unsafe extern "C" fn $name(
            code: *const core::ffi::c_void,
            context: &$crate::wrapper::Context,
            slots: *mut $crate::wrapper::Slot,
        ) {
            // SAFETY: the host gives a function of this type, its context, and as many slots as it has parameters or results.
            unsafe {
                let code: $kind = core::mem::transmute(code);
                let _results = code(context, $(slots.add($index).cast::<$parameter>().read(),)*);
                $(slots.add($result_index).cast::<$result>().write(results!($place _results));)*
            }
        }
    };
}

macro_rules! results {
    (whole $results:ident) => {
        $results
    };
    ($place:tt $results:ident) => {
        $results.$place
    };
}

/// The functions that are referred to, by place, and the entries.
macro_rules! image {
    ($($function:path,)*) => {
        core::arch::global_asm!(
            ".section .rodata.millpond,\"a\",@progbits",
            ".globl millpond",
            ".type millpond,@object",
            ".balign 4",
            "millpond:",
            ".long {} - millpond",
            $(concat!("/* ", stringify!($function), " */ .long {} - millpond"),)*
            ".size millpond, . - millpond",
            ".text",
            sym $crate::wrapper::LIBRARY,
            $(sym $function,)*
        );
    };
}

pub(crate) use {entry, image, results, signatures};

/// Functions of the host's: `memcpy`, `memmove`, `memset`.
pub struct Library([UnsafeCell<usize>; 3]);

// SAFETY: the loader fills it in before anything runs.
unsafe impl Sync for Library {}

pub static LIBRARY: Library = Library([const { UnsafeCell::new(1) }; 3]);

impl Library {
    #[inline(always)]
    fn get(&self, index: usize) -> usize {
        // SAFETY: nobody writes to it any more.
        unsafe { self.0[index].get().read_volatile() }
    }
}

/// What the compiler calls by itself.
mod library {
    use super::{LIBRARY, c_void};

    type Copy = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;
    type Set = unsafe extern "C" fn(*mut c_void, i32, usize) -> *mut c_void;

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcpy(to: *mut c_void, from: *const c_void, length: usize) -> *mut c_void {
        // SAFETY: the host's `memcpy`.
        unsafe { core::mem::transmute::<usize, Copy>(LIBRARY.get(0))(to, from, length) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memmove(to: *mut c_void, from: *const c_void, length: usize) -> *mut c_void {
        // SAFETY: the host's `memmove`.
        unsafe { core::mem::transmute::<usize, Copy>(LIBRARY.get(1))(to, from, length) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memset(to: *mut c_void, byte: i32, length: usize) -> *mut c_void {
        // SAFETY: the host's `memset`.
        unsafe { core::mem::transmute::<usize, Set>(LIBRARY.get(2))(to, byte, length) }
    }

    /// Of elements before the first that is 0. Volatile, or the compiler would call what it makes.
    unsafe fn length<T: PartialEq + Default>(text: *const T) -> usize {
        let mut length = 0;
        // SAFETY: there is such an element.
        while unsafe { text.add(length).read_volatile() } != T::default() {
            length += 1;
        }
        length
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn strlen(text: *const u8) -> usize {
        // SAFETY: as the caller says.
        unsafe { length(text) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn wcslen(text: *const u32) -> usize {
        // SAFETY: as the caller says.
        unsafe { length(text) }
    }

    unsafe fn compare(a: *const u8, b: *const u8, length: usize) -> i32 {
        for index in 0..length {
            // SAFETY: as the caller says.
            let (a, b) = unsafe { (a.add(index).read_volatile(), b.add(index).read_volatile()) };
            if a != b {
                return a as i32 - b as i32;
            }
        }
        0
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, length: usize) -> i32 {
        // SAFETY: as the caller says.
        unsafe { compare(a, b, length) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, length: usize) -> i32 {
        // SAFETY: as the caller says.
        unsafe { compare(a, b, length) }
    }
}

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    trap::<UNREACHABLE>()
}

/// What `core` was compiled to refer to.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}
