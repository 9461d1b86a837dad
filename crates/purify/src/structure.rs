//! Modules whose sets lie in their memory: [`pure::system_data`].

use contract::PrepareError;
use pure::system_data::{self, EXPORT};
use std::borrow::Cow;
use wasm_encoder::{ExportKind, ExportSection, MemorySection, RawSection};
use wasmparser::{
    BinaryReaderError, ExternalKind, Global, MemoryType, Operator, Parser, Payload, TypeRef, ValType,
};

/// What engines look for.
const MEMORY: &str = "memory";

/// Bytes of a page.
const PAGE: u64 = 64 << 10;

/// The ids of sections that this module looks at. Those behind the memory's come after it but for custom ones.
const CUSTOM: u8 = 0;
const IMPORTS: u8 = 2;
const MEMORIES: u8 = 5;
const EXPORTS: u8 = 7;

/// What is looked at.
#[derive(Default)]
struct Seen<'a> {
    /// What it exports by that name.
    structure: Option<(ExternalKind, u32)>,
    exports_memory: bool,
    memory: Option<MemoryType>,
    imports_memory: bool,
    /// Something else that it imports.
    other: Option<String>,
    globals: Vec<Global<'a>>,
    starts: bool,
}

fn unsupported<T>(what: impl Into<String>) -> Result<T, PrepareError> {
    Err(PrepareError::Unsupported(what.into()))
}

fn malformed(error: BinaryReaderError) -> PrepareError {
    PrepareError::Malformed(error.to_string())
}

/// A valid module as it is, if it has no such structure or all that belongs to one. If it imports its memory, it gets one of its own.
pub(crate) fn prepare(bytes: &[u8]) -> Result<Cow<'_, [u8]>, PrepareError> {
    let seen = look(bytes).map_err(malformed)?;
    let Some((kind, index)) = seen.structure else {
        return Ok(Cow::Borrowed(bytes));
    };
    if let Some(other) = seen.other {
        return unsupported(format!(
            "it exports `{EXPORT}` and imports `{other}`; a function that has its sets in its memory imports nothing, and one that has \
             them as files does not export that"
        ));
    }
    if seen.starts {
        return unsupported(format!(
            "it exports `{EXPORT}` and has a start section, which would run before its sets are there"
        ));
    }
    let Some(memory) = seen.memory else {
        return unsupported(format!(
            "it exports `{EXPORT}` and has no memory for it to lie in"
        ));
    };
    if memory.maximum.is_some_and(|maximum| maximum <= memory.initial) {
        return unsupported(
            "its sets would lie in its memory, which cannot grow: link it without a maximum of memory, or with a larger one",
        );
    }
    let global = seen.globals.get(index as usize);
    let address = global
        .filter(|_| kind == ExternalKind::Global)
        .and_then(constant)
        .ok_or_else(|| {
            PrepareError::Unsupported(format!(
                "its `{EXPORT}` is not a constant global of 32 bits, the structure's address"
            ))
        })?;
    if u64::from(address) + system_data::size::<u32>() as u64 > memory.initial.saturating_mul(PAGE) {
        return unsupported(format!("its `{EXPORT}` lies outside its memory"));
    }
    if seen.exports_memory && !seen.imports_memory {
        return Ok(Cow::Borrowed(bytes));
    }
    rewrite(
        bytes,
        &seen_memory(memory),
        seen.imports_memory,
        seen.exports_memory,
    )
    .map(Cow::Owned)
    .map_err(malformed)
}

fn look(bytes: &[u8]) -> wasmparser::Result<Seen<'_>> {
    let mut seen = Seen::default();
    for payload in Parser::new(0).parse_all(bytes) {
        match payload? {
            Payload::ImportSection(section) => {
                for import in section.into_imports() {
                    let import = import?;
                    match import.ty {
                        TypeRef::Memory(memory) if seen.memory.is_none() => {
                            seen.memory = Some(memory);
                            seen.imports_memory = true;
                        }
                        _ => seen.other = Some(format!("{}.{}", import.module, import.name)),
                    }
                }
            }
            Payload::MemorySection(section) => {
                for memory in section {
                    seen.memory = Some(memory?);
                }
            }
            Payload::GlobalSection(section) => {
                seen.globals = section.into_iter().collect::<Result<_, _>>()?
            }
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export?;
                    match export.name {
                        EXPORT => seen.structure = Some((export.kind, export.index)),
                        MEMORY => seen.exports_memory = true,
                        _ => {}
                    }
                }
            }
            Payload::StartSection { .. } => seen.starts = true,
            _ => {}
        }
    }
    Ok(seen)
}

fn constant(global: &Global<'_>) -> Option<u32> {
    if global.ty.mutable || global.ty.content_type != ValType::I32 {
        return None;
    }
    let mut steps = global.init_expr.get_operators_reader();
    let Ok(Operator::I32Const { value }) = steps.read() else {
        return None;
    };
    matches!(steps.read(), Ok(Operator::End)).then_some(value.cast_unsigned())
}

fn seen_memory(memory: MemoryType) -> wasm_encoder::MemoryType {
    wasm_encoder::MemoryType {
        minimum: memory.initial,
        maximum: memory.maximum,
        memory64: memory.memory64,
        shared: memory.shared,
        page_size_log2: memory.page_size_log2,
    }
}

/// The module with a memory that is its own and exported.
fn rewrite(
    bytes: &[u8],
    memory: &wasm_encoder::MemoryType,
    imported: bool,
    exported: bool,
) -> wasmparser::Result<Vec<u8>> {
    let mut module = wasm_encoder::Module::new();
    let mut owed = imported;
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        let section = payload.as_section();
        let behind = section.as_ref().is_some_and(|(id, _)| *id > MEMORIES);
        if owed && (behind || matches!(payload, Payload::End(_))) {
            let mut own = MemorySection::new();
            own.memory(*memory);
            module.section(&own);
            owed = false;
        }
        match &payload {
            Payload::ExportSection(section) if !exported => {
                let mut exports = ExportSection::new();
                for export in section.clone() {
                    let export = export?;
                    let kind = match export.kind {
                        ExternalKind::Func | ExternalKind::FuncExact => ExportKind::Func,
                        ExternalKind::Table => ExportKind::Table,
                        ExternalKind::Memory => ExportKind::Memory,
                        ExternalKind::Global => ExportKind::Global,
                        ExternalKind::Tag => ExportKind::Tag,
                    };
                    exports.export(export.name, kind, export.index);
                }
                exports.export(MEMORY, ExportKind::Memory, 0);
                module.section(&exports);
            }
            _ => {
                let dropped = |id| id == CUSTOM || id == IMPORTS && imported || id == EXPORTS && !exported;
                if let Some((id, range)) = section.filter(|(id, _)| !dropped(*id)) {
                    let data = &bytes[range.start as usize..range.end as usize];
                    module.section(&RawSection { id, data });
                }
            }
        }
    }
    Ok(module.finish())
}
