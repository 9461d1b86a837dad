//! Which modules can be put back to their first state from outside, and how they are prepared for that.
//!
//! An instance is its linear memory, its globals, its tables, and which of its passive segments it has dropped. The host
//! reaches its memory anyway, and globals that are exported. So a module is compiled with all its mutable globals
//! exported, if nothing else of it can change. What clang, rustc and Go emit is of this kind: their tables only hold the
//! targets of indirect calls.

use std::{borrow::Cow, fmt};
use wasm_encoder::{ExportKind, ExportSection, Module, RawSection};
use wasmparser::{ExternalKind, GlobalType, Operator, Parser, Payload, ValType};

/// Names of exports that are the platform's: a module that has one of its own is refused.
pub(crate) const RESERVED: &str = "millpond:";

/// Exported by a module that was prepared, and by no other.
pub(crate) const MARK: &str = "millpond:restorable";

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
    let mut module = Module::new();
    let (mut globals, mut position) = (Vec::new(), 0_u32);
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        match &payload {
            // Its effects belong to the first state, but what it asks the host (the time, randomness) must not.
            Payload::StartSection { .. } => return Ok(None),
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
                        (true, _) => globals.push(position),
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
        if let Payload::ExportSection(section) = payload {
            let mut exports = ExportSection::new();
            let mut start = None;
            for export in section {
                let export = export?;
                let kind = match export.kind {
                    ExternalKind::Func | ExternalKind::FuncExact => ExportKind::Func,
                    ExternalKind::Table => ExportKind::Table,
                    ExternalKind::Memory => ExportKind::Memory,
                    ExternalKind::Global => ExportKind::Global,
                    ExternalKind::Tag => ExportKind::Tag,
                };
                if export.name == "_start" {
                    start = Some(export.index);
                }
                exports.export(export.name, kind, export.index);
            }
            let Some(start) = start else { return Ok(None) };
            exports.export(MARK, ExportKind::Func, start);
            for (n, index) in globals.iter().enumerate() {
                exports.export(&Exposed(n).to_string(), ExportKind::Global, *index);
            }
            module.section(&exports);
        } else if let Some((id, range)) = payload.as_section() {
            let data = &bytes[range.start as usize..range.end as usize];
            module.section(&RawSection { id, data });
        }
    }
    Ok(Some(module.finish()))
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
