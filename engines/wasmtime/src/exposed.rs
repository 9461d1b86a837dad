//! Which modules can be put back to their first state from outside, and how they are prepared for that.
//!
//! An instance is its linear memory, its globals, its tables, and which of its passive segments it has dropped. The host
//! reaches its memory anyway, and globals that are exported. So a module is compiled with all its mutable globals
//! exported, if nothing else of it can change. What clang, rustc and Go emit is of this kind: their tables only hold the
//! targets of indirect calls.

use std::{borrow::Cow, fmt};
use wasm_encoder::{ExportKind, ExportSection, Module, RawSection};
use wasmparser::{ExternalKind, GlobalType, Operator, Parser, Payload, TypeRef, ValType};

/// Names of exports that are the platform's: a module that has one of its own is refused.
pub(crate) const RESERVED: &str = "millpond:";

/// Exported by a module that was prepared, and by no other.
pub(crate) const MARK: &str = "millpond:restorable";

/// The export of a memory, where the host does not know the author's name for it.
pub(crate) const MEMORY: &str = "millpond:memory";

/// The export of the n-th mutable global.
#[derive(Clone, Copy)]
pub(crate) struct Exposed(pub(crate) usize);

impl fmt::Display for Exposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{RESERVED}global:{}", self.0)
    }
}

/// The module with its mutable globals exported, or as it is if that would not be all that can change. It has passed
/// [`crate::code::check_command`].
pub(crate) fn expose(bytes: &[u8]) -> Cow<'_, [u8]> {
    match rewrite(bytes) {
        Ok(Some(module)) => Cow::Owned(module),
        Ok(None) | Err(_) => Cow::Borrowed(bytes),
    }
}

fn rewrite(bytes: &[u8]) -> wasmparser::Result<Option<Vec<u8>>> {
    let mut start = None;
    let mut starts = false;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload? {
            Payload::ExportSection(section) => {
                for export in section {
                    let export = export?;
                    if export.name == "_start" {
                        start = Some(export.index);
                    }
                }
            }
            Payload::StartSection { .. } => starts = true,
            _ => {}
        }
    }
    // What a start section does belongs to the first state, but what it asks the host (the time, randomness) must not.
    let (Some(start), false) = (start, starts) else {
        return Ok(None);
    };
    Ok(expose_all(bytes, Some(start))?.map(|part| part.bytes))
}

/// A core module of a component, with its mutable globals and its memory exported.
pub(crate) struct Part {
    pub(crate) bytes: Vec<u8>,
    /// The types of its mutable globals.
    pub(crate) globals: Vec<wasm_encoder::ValType>,
    /// Whether it has a memory of its own.
    pub(crate) memory: bool,
}

/// None if the module can change in other ways than those, but for its start section.
pub(crate) fn expose_part(bytes: &[u8]) -> wasmparser::Result<Option<Part>> {
    expose_all(bytes, None)
}

/// `mark` is the function that the mark leads to; without one there is none, and the memory is exported.
fn expose_all(bytes: &[u8], mark: Option<u32>) -> wasmparser::Result<Option<Part>> {
    let mut module = Module::new();
    let (mut globals, mut types, mut position) = (Vec::new(), Vec::new(), 0_u32);
    let (mut memory, mut imported_memory) = (false, false);
    let mut exports = Some(ExportSection::new());
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        match &payload {
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports() {
                    match import?.ty {
                        TypeRef::Global(_) => position += 1,
                        TypeRef::Memory(_) => imported_memory = true,
                        _ => {}
                    }
                }
            }
            Payload::MemorySection(section) => memory = section.count() > 0,
            Payload::GlobalSection(section) => {
                for global in section.clone() {
                    let GlobalType {
                        content_type,
                        mutable,
                        ..
                    } = global?.ty;
                    match (mutable, content_type) {
                        (false, _) => {}
                        (true, ValType::Ref(_)) => return Ok(None),
                        (true, numeric) => {
                            globals.push(position);
                            types.push(encoded(numeric));
                        }
                    }
                    position += 1;
                }
            }
            Payload::CodeSectionEntry(body) => {
                for operator in body.get_operators_reader()? {
                    match operator? {
                        // Of what the checked features offer, these and no others change an instance beyond its memory
                        // and globals. A memory that grew shows by its size.
                        Operator::TableSet { .. }
                        | Operator::TableGrow { .. }
                        | Operator::TableFill { .. }
                        | Operator::TableCopy { .. }
                        | Operator::TableInit { .. }
                        | Operator::ElemDrop { .. }
                        | Operator::DataDrop { .. } => return Ok(None),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        let is_export = matches!(payload, Payload::ExportSection(_));
        let section = payload.as_section();
        // Custom sections may stand anywhere; those after the exports are in the order of the specification, not of ids.
        let behind = section.as_ref().is_some_and(|(id, _)| *id > EXPORTS);
        if (is_export || behind || matches!(payload, Payload::End(_)))
            && let Some(mut exports) = exports.take()
        {
            if let Payload::ExportSection(section) = &payload {
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
            }
            match mark {
                Some(mark) => {
                    exports.export(MARK, ExportKind::Func, mark);
                }
                None if memory && imported_memory => return Ok(None),
                None if memory => {
                    exports.export(MEMORY, ExportKind::Memory, 0);
                }
                None => {}
            }
            for (n, index) in globals.iter().enumerate() {
                exports.export(&Exposed(n).to_string(), ExportKind::Global, *index);
            }
            if !exports.is_empty() {
                module.section(&exports);
            }
        }
        if let Some((id, range)) = section
            && !is_export
        {
            let data = &bytes[range.start as usize..range.end as usize];
            module.section(&RawSection { id, data });
        }
    }
    Ok(Some(Part {
        bytes: module.finish(),
        globals: types,
        memory,
    }))
}

/// The id of the section of exports.
const EXPORTS: u8 = 7;

fn encoded(numeric: ValType) -> wasm_encoder::ValType {
    match numeric {
        ValType::I64 => wasm_encoder::ValType::I64,
        ValType::F32 => wasm_encoder::ValType::F32,
        ValType::F64 => wasm_encoder::ValType::F64,
        ValType::V128 => wasm_encoder::ValType::V128,
        _ => wasm_encoder::ValType::I32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmparser::Validator;

    const COMMAND: &str = r#"
        (memory (export "memory") 1) (table 4 funcref)
        (global $sp (mut i32) (i32.const 65536)) (global $fixed i64 (i64.const 1)) (global $v (mut v128) (v128.const i64x2 1 2))
        (elem declare func $f) (elem $passive func $f) (data $bytes "bytes")
        (func $f)"#;

    fn exported(body: &str) -> Option<Vec<String>> {
        let module = wat::parse_str(format!(
            r#"(module {COMMAND} (func (export "_start") {body}) (@custom "note" "kept"))"#
        ))
        .unwrap();
        let exposed = expose(&module);
        Validator::new().validate_all(&exposed).unwrap();
        let mut names = Vec::new();
        let mut notes = 0;
        for payload in Parser::new(0).parse_all(&exposed) {
            match payload.unwrap() {
                Payload::ExportSection(section) => {
                    names.extend(section.into_iter().map(|export| export.unwrap().name.to_owned()));
                }
                Payload::CustomSection(custom) if custom.name() == "note" => {
                    assert_eq!(custom.data(), b"kept");
                    notes += 1;
                }
                _ => {}
            }
        }
        assert_eq!(notes, 1);
        names.iter().any(|name| name == MARK).then_some(names)
    }

    #[test]
    fn mutable_globals_are_exported_and_nothing_else_is_touched() {
        let names = exported("(global.set $sp (i32.const 1)) (drop (memory.grow (i32.const 1)))").unwrap();
        let expected = ["memory", "_start", MARK, "millpond:global:0", "millpond:global:1"];
        assert_eq!(names, expected);
    }

    #[test]
    fn what_changes_out_of_reach_is_left_as_it_is() {
        for body in [
            "(table.set (i32.const 0) (ref.func $f))",
            "(drop (table.grow (ref.null func) (i32.const 1)))",
            "(table.fill (i32.const 0) (ref.null func) (i32.const 1))",
            "(table.copy (i32.const 0) (i32.const 1) (i32.const 1))",
            "(table.init $passive (i32.const 0) (i32.const 0) (i32.const 1))",
            "(elem.drop $passive)",
            "(data.drop $bytes)",
        ] {
            assert_eq!(exported(body), None, "{body}");
        }
        let start = format!(r#"(module {COMMAND} (func (export "_start")) (start $f))"#);
        let reference =
            format!(r#"(module {COMMAND} (func (export "_start")) (global (mut funcref) (ref.null func)))"#);
        for text in [start, reference] {
            let module = wat::parse_str(text).unwrap();
            assert_eq!(*expose(&module), *module);
        }
    }
}
