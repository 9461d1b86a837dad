//! From core Wasm to textual LLVM IR.
//!
//! Each function becomes one of the same control flow, whose first parameter is the context ([`crate::layout`]). Locals and
//! what blocks answer are stack slots, which LLVM makes values of. Linear memory is reached through an address that is read
//! from the context once, in the function's first block, and marked as never changing; loads and stores of linear memory and
//! those of the context are in alias scopes of their own, so that neither holds up the other.
//!
//! What traps in Wasm and is undefined in LLVM has an explicit check in front of it. A trap is an instruction that
//! contains its number. In `guard` mode accesses of linear memory are not checked: they fault. LLVM knows
//! nothing of that and deletes a load whose value nobody uses; see [`function::force`].
//!
//! A loop of which it is known before it begins how often it turns, and where, gets another one in front of it that LLVM understands better
//! ([`counted`]), or that has wider vectors ([`widen`]).

mod control;
mod counted;
mod function;
mod memory;
mod needs;
mod numeric;
mod pieces;
mod reference;
mod simd;
mod widen;

#[cfg(test)]
mod calls;

pub(crate) use pieces::PIECE;

use native::{
    Module, Refusal,
    layout::{self, Offsets, SLOT},
    module::signature,
};
use pieces::Piece;
use std::fmt::Write as _;
use wasmparser::{FuncType, ValType};

/// How accesses of linear memory are kept inside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Bounds {
    /// Address space is reserved around each memory, as far as an address can lead; what is not used of it cannot be accessed, and an
    /// access there faults.
    /// Which of the stores around a trap have happened is left open: in loops, also stores that come a few turns later may have.
    #[default]
    Guard,
    /// Every access is compared with the memory's size.
    Software,
    /// Addresses lose the bits that lead out of the memory, whose size is a power of two: nothing traps, and what lies outside
    /// is read and written somewhere inside.
    Mask,
    /// Nothing keeps the guest inside. To measure only.
    None,
}

impl Bounds {
    /// All there are.
    pub const ALL: [Self; 4] = [Self::Guard, Self::Software, Self::Mask, Self::None];

    /// Those of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bounds| bounds.name() == name)
    }

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Guard => "guard",
            Self::Software => "software",
            Self::Mask => "mask",
            Self::None => "none",
        }
    }
}

/// For which processors code is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// x86-64 with SSE 4.2.
    X86_64,
    /// 64-bit ARM.
    Aarch64,
}

impl Target {
    /// That of this process.
    pub const HERE: Self = if cfg!(target_arch = "aarch64") {
        Self::Aarch64
    } else {
        Self::X86_64
    };

    /// As LLVM says it.
    pub const fn triple(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64-unknown-linux-gnu",
            Self::Aarch64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The instruction that traps with this number: what `llvm.ubsantrap` becomes, of which LLVM thinks that nobody reads
    /// memory after it.
    fn trap(self, number: u8) -> String {
        match self {
            // ud1l number(%eax), %eax
            Self::X86_64 => format!(".byte 103, 15, 185, 64, {number}"),
            Self::Aarch64 => format!("brk #{}", 0x5500 + u32::from(number)),
        }
    }

    /// Whether it has vectors of 256 bits: only known of the processor that this runs on, which is the one that code is then made for.
    fn has_wide_vectors(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self == Self::HERE && std::arch::is_x86_feature_detected!("avx2");
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// The constraint of inline assembly for a register of floats and vectors.
    fn vector_register(self) -> &'static str {
        match self {
            Self::X86_64 => "x",
            Self::Aarch64 => "w",
        }
    }
}

/// Of a branch to a loop's begin: the loop is not to be vectorised.
const NEVER_VECTORS: &str = ", !llvm.loop !10";

/// A type of LLVM's.
fn llvm(kind: ValType) -> &'static str {
    match kind {
        ValType::I32 => "i32",
        ValType::I64 => "i64",
        ValType::F32 => "float",
        ValType::F64 => "double",
        ValType::V128 => "<16 x i8>",
        ValType::Ref(_) => "ptr",
    }
}

/// Whether a function leaves its results in slots that its caller has for them, because they do not fit registers on every
/// processor: LLVM would do the same unseen, but then it cannot make tail calls of such functions.
fn returns_in_memory(kind: &FuncType) -> bool {
    const REGISTERS: usize = 2;
    let (integers, others): (Vec<ValType>, Vec<ValType>) = kind
        .results()
        .iter()
        .partition(|kind| matches!(kind, ValType::I32 | ValType::I64 | ValType::Ref(_)));
    integers.len() > REGISTERS || others.len() > REGISTERS
}

/// What a function returns.
fn results(kind: &FuncType) -> String {
    match kind.results() {
        [] => "void".into(),
        _ if returns_in_memory(kind) => "void".into(),
        [one] => llvm(*one).into(),
        several => {
            let several: Vec<_> = several.iter().map(|kind| llvm(*kind)).collect();
            format!("{{ {} }}", several.join(", "))
        }
    }
}

fn parameters(kind: &FuncType) -> String {
    // It has aliases: what is called indirectly gets its context from a table.
    let mut text = String::from("ptr noundef nonnull %c");
    if returns_in_memory(kind) {
        text.push_str(", ptr noundef nonnull noalias %r");
    }
    for (index, kind) in kind.params().iter().enumerate() {
        let _ = write!(text, ", {} %p{index}", llvm(*kind));
    }
    text
}

/// How a module is translated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) bounds: Bounds,
    pub(crate) target: Target,
    /// Bytes of Wasm code that go into one piece, or hardly more.
    pub(crate) piece: usize,
}

impl Settings {
    /// For this process.
    pub(crate) fn here(bounds: Bounds) -> Self {
        Self {
            bounds,
            target: Target::HERE,
            piece: PIECE,
        }
    }
}

/// A module on its way to LLVM IR, in one or several pieces, of which each becomes an object.
pub(crate) struct Translation<'m, 'a> {
    module: &'m Module<'a>,
    offsets: Offsets,
    settings: Settings,
    pieces: Vec<Piece>,
}

impl<'m, 'a> Translation<'m, 'a> {
    pub(crate) fn new(module: &'m Module<'a>, settings: Settings) -> Result<Self, Refusal> {
        module.refuse_collisions()?;
        Ok(Self {
            module,
            offsets: module.offsets()?,
            settings,
            pieces: pieces::divide(module, settings.piece)?,
        })
    }

    pub(crate) fn target(&self) -> Target {
        self.settings.target
    }

    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The LLVM IR of a piece.
    pub(crate) fn piece(&self, index: usize) -> Result<String, Refusal> {
        let (module, piece) = (self.module, &self.pieces[index]);
        let mut text = prelude(self.settings.target);
        for index in piece.functions.clone() {
            let linkage = match piece.shared.contains(&index) {
                true => "hidden",
                false => "internal",
            };
            let body = &module.bodies[(index - module.imported_functions) as usize];
            function::Function::new(module, &self.offsets, self.settings, index)
                .translate(linkage, body, &mut text)?;
        }
        for index in &piece.foreign {
            let kind = module.type_of(*index);
            let _ = writeln!(
                text,
                "declare hidden {} {} @f{index}({}) #0",
                module.convention(),
                results(kind),
                parameters(kind)
            );
        }
        if index == 0 {
            for import in 0..module.imported_functions {
                host_call(module, import, &mut text);
            }
            let entries = entries(module, &mut text);
            image(module, &entries, &mut text);
            text.push_str(LIBRARY);
        }
        text.push_str(DECLARATIONS);
        Ok(text)
    }
}

/// What every piece has.
pub(crate) const DECLARATIONS: &str = include_str!("declarations.ll");
/// What one piece has.
pub(crate) const LIBRARY: &str = include_str!("library.ll");

fn prelude(target: Target) -> String {
    format!("target triple = \"{}\"\n", target.triple())
}

/// `@h0`: from a call of an imported function to the host, with parameters and results in memory.
fn host_call(module: &Module<'_>, import: u32, text: &mut String) {
    let kind = module.type_of(import);
    let slots = kind.params().len().max(kind.results().len());
    let _ = writeln!(
        text,
        "define hidden {} {} @h{import}({}) #1 {{",
        module.convention(),
        results(kind),
        parameters(kind)
    );
    let _ = writeln!(text, "  %a = alloca [{} x i8], align 16", slots * SLOT as usize);
    for (index, kind) in kind.params().iter().enumerate() {
        let _ = writeln!(
            text,
            "  %a{index} = getelementptr i8, ptr %a, i64 {}",
            index * SLOT as usize
        );
        let _ = writeln!(text, "  store {} %p{index}, ptr %a{index}, align 16", llvm(*kind));
    }
    let _ = writeln!(
        text,
        "  %e = getelementptr i8, ptr %c, i64 {}",
        layout::ENTER_HOST
    );
    text.push_str("  %h = load ptr, ptr %e, align 8, !invariant.load !0\n");
    let _ = writeln!(text, "  %o = getelementptr i8, ptr %c, i64 {}", layout::FIBER);
    text.push_str("  %i = load ptr, ptr %o, align 8\n");
    let _ = writeln!(text, "  call void %h(ptr %i, i32 {import}, ptr %a, ptr %c)");
    return_slots(kind, text);
    text.push_str("}\n");
}

/// Returns what lies in slots.
fn return_slots(kind: &FuncType, text: &mut String) {
    if returns_in_memory(kind) {
        let bytes = kind.results().len() * SLOT as usize;
        let _ = writeln!(
            text,
            "  call void @llvm.memcpy.p0.p0.i64(ptr align 16 %r, ptr align 16 %a, i64 {bytes}, i1 false)\n  ret void"
        );
        return;
    }
    let kinds = kind.results();
    for (index, kind) in kinds.iter().enumerate() {
        let _ = writeln!(
            text,
            "  %s{index} = getelementptr i8, ptr %a, i64 {}",
            index * SLOT as usize
        );
        let _ = writeln!(
            text,
            "  %r{index} = load {}, ptr %s{index}, align 16",
            llvm(*kind)
        );
    }
    match kinds {
        [] => text.push_str("  ret void\n"),
        [one] => {
            let _ = writeln!(text, "  ret {} %r0", llvm(*one));
        }
        several => {
            let whole: Vec<_> = several.iter().map(|kind| llvm(*kind)).collect();
            let whole = format!("{{ {} }}", whole.join(", "));
            let mut value = String::from("poison");
            for (index, kind) in several.iter().enumerate() {
                let _ = writeln!(
                    text,
                    "  %w{index} = insertvalue {whole} {value}, {} %r{index}, {index}",
                    llvm(*kind)
                );
                value = format!("%w{index}");
            }
            let _ = writeln!(text, "  ret {whole} {value}");
        }
    }
}

/// `@e0`: for each type of a function that is referred to, from the host to a function of that type. The types, in the order
/// of their numbers.
fn entries(module: &Module<'_>, text: &mut String) -> Vec<u32> {
    let mut types: Vec<u32> = module
        .referred
        .iter()
        .map(|function| module.functions[*function as usize].type_index)
        .collect();
    types.sort_unstable();
    types.dedup();
    let convention = module.convention();
    for type_index in &types {
        let kind = &module.types[*type_index as usize];
        let _ = writeln!(
            text,
            "define hidden void @e{type_index}(ptr %f, ptr %c, ptr %a) #1 {{"
        );
        let mut arguments = String::from("ptr %c");
        if returns_in_memory(kind) {
            arguments.push_str(", ptr %a");
        }
        for (index, kind) in kind.params().iter().enumerate() {
            let _ = writeln!(
                text,
                "  %a{index} = getelementptr i8, ptr %a, i64 {}",
                index * SLOT as usize
            );
            let _ = writeln!(
                text,
                "  %p{index} = load {}, ptr %a{index}, align 16",
                llvm(*kind)
            );
            let _ = write!(arguments, ", {} %p{index}", llvm(*kind));
        }
        let whole = results(kind);
        if whole == "void" {
            let _ = writeln!(text, "  call {convention} void %f({arguments})\n  ret void\n}}");
            continue;
        }
        let _ = writeln!(text, "  %r = call {convention} {whole} %f({arguments})");
        for (index, kind) in kind.results().iter().enumerate() {
            let _ = writeln!(
                text,
                "  %s{index} = getelementptr i8, ptr %a, i64 {}",
                index * SLOT as usize
            );
            let value = if whole.starts_with('{') {
                let _ = writeln!(text, "  %r{index} = extractvalue {whole} %r, {index}");
                format!("%r{index}")
            } else {
                "%r".into()
            };
            let _ = writeln!(text, "  store {} {value}, ptr %s{index}, align 16", llvm(*kind));
        }
        text.push_str("  ret void\n}\n");
    }
    types
}

/// What a loader finds: how far from `@millpond` lie the addresses of library functions that it has to fill in, the code of each
/// function that is referred to (of imported ones, what leads to the host), and that of each entry.
fn image(module: &Module<'_>, entries: &[u32], text: &mut String) {
    let functions = module.referred.iter().map(|function| {
        let kind = if *function < module.imported_functions {
            'h'
        } else {
            'f'
        };
        format!("{kind}{function}")
    });
    let symbols: Vec<_> = ["library".into()]
        .into_iter()
        .chain(functions)
        .chain(entries.iter().map(|kind| format!("e{kind}")))
        .collect();
    let _ = writeln!(text, "@millpond = constant [{} x i32] [", symbols.len());
    for (index, symbol) in symbols.iter().enumerate() {
        let comma = if index + 1 < symbols.len() { "," } else { "" };
        let _ = writeln!(
            text,
            "  i32 trunc (i64 sub (i64 ptrtoint (ptr @{symbol} to i64), i64 ptrtoint (ptr @millpond to i64)) to i32){comma}"
        );
    }
    text.push_str("], align 4\n");
}
