//! How components are prepared for being put back to their first state from outside.
//!
//! What [`crate::exposed`] does for a module takes more here: nothing but functions of a component can be reached from
//! outside. So its core modules get their mutable globals and their memory exported, and one more core module, the *keeper*,
//! is added and linked to all of these. The component exports two functions of it, which no author of a component
//! can name: one notes the globals and tells the host where the memory lies, the other puts the globals back. The latter
//! also drops the handles that the guest has left, as the host tells them: wasi-libc keeps those of its three streams. Where the
//! host is mistaken ([`super::table::Table::left`]), that traps, and the instance is not kept. Last it puts the free numbers of
//! handles in order, by taking all and giving them back from the last to the first: else the numbers that a guest gets would
//! tell in which order an earlier one dropped its own.
//!
//! A component is left as it is if something of it could change that neither of these reaches: tables, dropped segments,
//! resources of its own, more than one memory, core modules in components in it. What a start function did is part of the
//! first state, unless it asked the host for anything (the caller sees to that).

use super::table::Kind;
use crate::{
    code,
    exposed::{self, Exposed},
};
use std::borrow::Cow;
use wasm_encoder::{
    Alias, BlockType, CanonicalFunctionSection, CanonicalOption, CodeSection, Component,
    ComponentAliasSection, ComponentExportKind, ComponentExportSection, ComponentImportSection,
    ComponentTypeRef, ComponentTypeSection, ComponentValType, ConstExpr, EntityType, ExportKind,
    ExportSection, Function, FunctionSection, GlobalSection, GlobalType, ImportSection, InstanceSection,
    MemoryType, Module, ModuleArg, ModuleSection, PrimitiveValType, RawSection, TypeBounds, TypeSection,
    ValType,
};
use wasmparser::{
    BinaryReaderError, CanonicalFunction, ComponentAlias, ComponentExternalKind, Instance, Parser, Payload,
    Validator,
    component_types::{ComponentAnyTypeId, ComponentEntityType},
};

/// What the keeper calls, with the memory's pages, an empty list at its begin, and the number of the first handle.
pub(crate) const MEMORY: &str = "millpond-memory";
/// A resource type, and
pub(crate) const TOKEN: &str = "millpond-token";
/// what makes one of these.
pub(crate) const TAKE: &str = "millpond-take";
/// Which handle to drop next: its type and its number, as [`left`] makes them.
pub(crate) const LEFT: &str = "millpond-left";
/// To be called once, in a new instance.
pub(crate) const BEGIN: &str = "millpond-begin";
/// Puts the globals back, and so many handles in order, of which so many are to be dropped.
pub(crate) const RESTORE: &str = "millpond-restore";

/// Bits of a handle's number in [`LEFT`]'s answer. No instance is put back that has had so many.
const NUMBER: u32 = 16;

/// A handle for [`LEFT`].
pub(crate) fn left(kind: Kind, handle: usize) -> u32 {
    (kind as u32) << NUMBER | (handle as u32) & ((1 << NUMBER) - 1)
}

/// Whether a component's export has a name of the platform's.
pub(crate) fn is_reserved(name: &str) -> bool {
    name == BEGIN || name == RESTORE
}

/// The component with a keeper, or as it is. It has passed [`code::check`].
pub(crate) fn prepare(bytes: &[u8]) -> Cow<'_, [u8]> {
    match rewrite(bytes) {
        Ok(Some(component)) if code::validator().validate_all(&component).is_ok() => Cow::Owned(component),
        _ => Cow::Borrowed(bytes),
    }
}

/// What there is of each kind in a component.
struct Counts {
    types: u32,
    functions: u32,
    modules: u32,
    instances: u32,
    core_functions: u32,
    core_globals: u32,
    core_memories: u32,
}

impl Counts {
    fn of(validator: &Validator) -> Option<Self> {
        let types = validator.types(0)?;
        Some(Self {
            types: types.component_type_count(),
            functions: types.component_function_count(),
            modules: types.module_count(),
            instances: types.core_instance_count(),
            core_functions: types.function_count(),
            core_globals: types.global_count(),
            core_memories: types.memory_count(),
        })
    }
}

/// What of the component's instances the keeper is linked to.
#[derive(Default)]
struct Kept {
    /// The instance with the memory.
    memory: Option<u32>,
    /// The instance, which of its mutable globals, and the type.
    globals: Vec<(u32, Exposed, ValType)>,
    /// The types of handles, each with the imported instance that it comes from, and its name there.
    resources: Vec<(Kind, u32, &'static str)>,
}

/// Of which imported instance each type of handles is.
fn resources(validator: &Validator, imports: &[(&str, u32)]) -> Vec<(Kind, u32, &'static str)> {
    let Some(types) = validator.types(0) else {
        return Vec::new();
    };
    let has = |instance, name| {
        let export = types[types.component_instance_at(instance)].exports.get(name);
        matches!(
            export.map(|export| export.ty),
            Some(ComponentEntityType::Type {
                referenced: ComponentAnyTypeId::Resource(_),
                ..
            })
        )
    };
    let all = Kind::ALL.iter().filter_map(|(kind, interface, name)| {
        let mut of = imports.iter().filter(|(import, instance)| {
            let import = import.strip_prefix(interface);
            import.is_some_and(|version| version.starts_with("@0.2.")) && has(*instance, *name)
        });
        of.next().map(|(_, instance)| (*kind, *instance, *name))
    });
    all.collect()
}

fn rewrite(bytes: &[u8]) -> Result<Option<Vec<u8>>, BinaryReaderError> {
    let mut component = Component::new();
    let (mut depth, mut modules, mut instances) = (0_u32, Vec::new(), Vec::new());
    let (mut validator, mut counts) = (code::validator(), None);
    let (mut kept, mut imports) = (Kept::default(), Vec::new());
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        if matches!(payload, Payload::End(_)) && depth == 1 {
            counts = Counts::of(&validator);
            kept.resources = resources(&validator, &imports);
        }
        if let Payload::ComponentImportSection(section) = &payload
            && depth == 1
        {
            let known = validator
                .types(0)
                .map_or(0, |types| types.component_instance_count());
            let section = section.clone().into_iter().collect::<Result<Vec<_>, _>>()?;
            let of_instances = section
                .iter()
                .filter(|import| matches!(import.ty, wasmparser::ComponentTypeRef::Instance(_)));
            imports.extend(of_instances.map(|import| import.name.name).zip(known..));
        }
        validator.payload(&payload)?;
        match &payload {
            Payload::Version { .. } => depth += 1,
            Payload::End(_) => depth -= 1,
            Payload::InstanceSection(section) => {
                for instance in section.clone() {
                    instances.push(match instance? {
                        Instance::Instantiate { module_index, .. } => Some(module_index),
                        Instance::FromExports(_) => None,
                    });
                }
            }
            Payload::ComponentAliasSection(section) => {
                for alias in section.clone() {
                    if let ComponentAlias::InstanceExport {
                        kind: ComponentExternalKind::Module,
                        ..
                    }
                    | ComponentAlias::Outer {
                        kind: wasmparser::ComponentOuterAliasKind::CoreModule,
                        ..
                    } = alias?
                    {
                        return Ok(None);
                    }
                }
            }
            Payload::ComponentCanonicalSection(section) => {
                for function in section.clone() {
                    match function? {
                        CanonicalFunction::Lift { .. }
                        | CanonicalFunction::Lower { .. }
                        | CanonicalFunction::ResourceDrop { .. } => {}
                        _ => return Ok(None),
                    }
                }
            }
            Payload::ComponentStartSection { .. } => return Ok(None),
            _ => {}
        }
        if depth > 1
            && matches!(
                payload,
                Payload::InstanceSection(_) | Payload::ModuleSection { .. }
            )
        {
            return Ok(None);
        }
        if depth != 1 {
            continue;
        }
        if let Payload::ModuleSection { unchecked_range, .. } = &payload {
            let module = &bytes[unchecked_range.start as usize..unchecked_range.end as usize];
            let Some(module) = exposed::expose_part(module)? else {
                return Ok(None);
            };
            component.section(&RawSection {
                id: 1,
                data: &module.bytes,
            });
            modules.push(module);
        } else if let Some((id, range)) = payload.as_section() {
            let data = &bytes[range.start as usize..range.end as usize];
            component.section(&RawSection { id, data });
        }
    }
    let Some(counts) = counts else { return Ok(None) };
    if counts.modules as usize != modules.len() {
        return Ok(None);
    }
    for (index, module) in (0..).zip(instances) {
        let Some(part) = module.and_then(|module| modules.get(module as usize)) else {
            continue;
        };
        let globals = (0..).zip(&part.globals);
        let globals = globals.map(|(n, its)| (index, Exposed(n), *its));
        kept.globals.extend(globals);
        if part.memory && kept.memory.replace(index).is_some() {
            return Ok(None);
        }
    }
    Ok(kept.memory.map(|memory| {
        add_keeper(&mut component, &counts, memory, &kept);
        component.finish()
    }))
}

fn add_keeper(component: &mut Component, counts: &Counts, memory: u32, kept: &Kept) {
    let Kept {
        globals, resources, ..
    } = kept;
    let number = ComponentValType::Primitive(PrimitiveValType::U32);
    let mut imports = ComponentImportSection::new();
    imports.import(TOKEN, ComponentTypeRef::Type(TypeBounds::SubResource));
    component.section(&imports);
    let token = counts.types;

    let (bytes, tell, own, take, left, begin, restore) = (
        token + 1,
        token + 2,
        token + 3,
        token + 4,
        token + 5,
        token + 6,
        token + 7,
    );
    let mut types = ComponentTypeSection::new();
    types.defined_type().list(PrimitiveValType::U8);
    types
        .function()
        .params([
            ("pages", number),
            ("begin", ComponentValType::Type(bytes)),
            ("handle", number),
        ])
        .result(None);
    types.defined_type().own(token);
    let none: [(&str, ComponentValType); 0] = [];
    types
        .function()
        .params(none)
        .result(Some(ComponentValType::Type(own)));
    types.function().params(none).result(Some(number));
    types.function().params(none).result(None);
    types
        .function()
        .params([("handles", number), ("left", number)])
        .result(None);
    component.section(&types);

    let mut imports = ComponentImportSection::new();
    imports.import(MEMORY, ComponentTypeRef::Func(tell));
    imports.import(TAKE, ComponentTypeRef::Func(take));
    imports.import(LEFT, ComponentTypeRef::Func(left));
    component.section(&imports);

    let mut aliases = ComponentAliasSection::new();
    let memory_name = exposed::MEMORY;
    aliases.alias(Alias::CoreInstanceExport {
        instance: memory,
        kind: ExportKind::Memory,
        name: memory_name,
    });
    for (instance, name, _) in globals {
        aliases.alias(Alias::CoreInstanceExport {
            instance: *instance,
            kind: ExportKind::Global,
            name: &name.to_string(),
        });
    }
    for (_, instance, name) in resources {
        aliases.alias(Alias::InstanceExport {
            instance: *instance,
            kind: ComponentExportKind::Type,
            name,
        });
    }
    component.section(&aliases);

    let mut canonical = CanonicalFunctionSection::new();
    canonical.lower(counts.functions, [CanonicalOption::Memory(counts.core_memories)]);
    canonical.lower(counts.functions + 1, []);
    canonical.lower(counts.functions + 2, []);
    canonical.resource_drop(token);
    for (aliased, _) in (restore + 1..).zip(resources) {
        canonical.resource_drop(aliased);
    }
    component.section(&canonical);
    let core_functions = counts.core_functions + 4 + resources.len() as u32;

    component.section(&ModuleSection(&keeper(globals, resources)));
    let mut items = vec![
        (MEMORY.to_owned(), ExportKind::Func, counts.core_functions),
        (TAKE.to_owned(), ExportKind::Func, counts.core_functions + 1),
        (LEFT.to_owned(), ExportKind::Func, counts.core_functions + 2),
        (TOKEN.to_owned(), ExportKind::Func, counts.core_functions + 3),
        ("memory".to_owned(), ExportKind::Memory, counts.core_memories),
    ];
    for ((_, _, name), index) in resources.iter().zip(counts.core_functions + 4..) {
        items.push(((*name).to_owned(), ExportKind::Func, index));
    }
    for (n, index) in (0..globals.len()).zip(counts.core_globals..) {
        items.push((Exposed(n).to_string(), ExportKind::Global, index));
    }
    let mut instances = InstanceSection::new();
    instances.export_items(
        items
            .iter()
            .map(|(name, kind, index)| (name.as_str(), *kind, *index)),
    );
    instances.instantiate(counts.modules, [(HOST, ModuleArg::Instance(counts.instances))]);
    component.section(&instances);

    let mut aliases = ComponentAliasSection::new();
    let mut lifted = CanonicalFunctionSection::new();
    let mut exports = ComponentExportSection::new();
    // Lifted functions come before exports, each of which adds one more to the functions that there are.
    for (n, (name, its)) in (0..).zip([(BEGIN, begin), (RESTORE, restore)]) {
        aliases.alias(Alias::CoreInstanceExport {
            instance: counts.instances + 1,
            kind: ExportKind::Func,
            name,
        });
        lifted.lift(core_functions + n, its, []);
        exports.export(name, ComponentExportKind::Func, counts.functions + 3 + n, None);
    }
    component.section(&aliases);
    component.section(&lifted);
    component.section(&exports);
}

/// What the keeper imports from.
const HOST: &str = "host";

fn keeper(globals: &[(u32, Exposed, ValType)], resources: &[(Kind, u32, &str)]) -> Module {
    let mut types = TypeSection::new();
    types.ty().function([ValType::I32; 4], []);
    types.ty().function([], []);
    types.ty().function([], [ValType::I32]);
    types.ty().function([ValType::I32], []);
    types.ty().function([ValType::I32; 2], []);
    let mut imports = ImportSection::new();
    let drops = resources.iter().map(|(_, _, name)| (*name, 3));
    for (name, its) in [(MEMORY, 0), (TAKE, 2), (LEFT, 2), (TOKEN, 3)]
        .into_iter()
        .chain(drops)
    {
        imports.import(HOST, name, EntityType::Function(its));
    }
    let (tell, take, left, give, drop) = (0, 1, 2, 3, 4);
    let own_functions = drop + resources.len() as u32;
    let any = MemoryType {
        minimum: 0,
        maximum: None,
        memory64: false,
        shared: false,
        page_size_log2: None,
    };
    imports.import(HOST, "memory", any);
    let mut own = GlobalSection::new();
    let mut begin = Function::new([(1, ValType::I32)]);
    let mut restore = Function::new([(2, ValType::I32)]);
    for (n, (_, _, its)) in globals.iter().enumerate() {
        let its = GlobalType {
            val_type: *its,
            mutable: true,
            shared: false,
        };
        imports.import(HOST, &Exposed(n).to_string(), its);
        own.global(its, &zero(its.val_type));
        let (theirs, noted) = (n as u32, (globals.len() + n) as u32);
        begin.instructions().global_get(theirs).global_set(noted);
        restore.instructions().global_get(noted).global_set(theirs);
    }
    begin.instructions().call(take).local_tee(0).call(give);
    begin
        .instructions()
        .memory_size(0)
        .i32_const(0)
        .i32_const(0)
        .local_get(0)
        .call(tell)
        .end();
    // The parameters are how many there are, and how many of them are left.
    let (handles, to_drop, one, taken) = (0, 1, 2, 3);
    restore
        .instructions()
        .block(BlockType::Empty)
        .loop_(BlockType::Empty);
    restore
        .instructions()
        .local_get(to_drop)
        .i32_eqz()
        .br_if(1)
        .local_get(to_drop)
        .i32_const(1)
        .i32_sub()
        .local_set(to_drop)
        .call(left)
        .local_set(one);
    for (drop, (kind, _, _)) in (drop..).zip(resources) {
        restore
            .instructions()
            .local_get(one)
            .i32_const(NUMBER as i32)
            .i32_shr_u()
            .i32_const(*kind as i32)
            .i32_eq()
            .if_(BlockType::Empty)
            .local_get(one)
            .i32_const((1 << NUMBER) - 1)
            .i32_and()
            .call(drop)
            .br(1)
            .end();
    }
    restore.instructions().unreachable().end().end();
    restore
        .instructions()
        .loop_(BlockType::Empty)
        .call(take)
        .drop()
        .local_get(taken)
        .i32_const(1)
        .i32_add()
        .local_tee(taken)
        .local_get(handles)
        .i32_lt_u()
        .br_if(0)
        .end();
    restore
        .instructions()
        .loop_(BlockType::Empty)
        .local_get(taken)
        .call(give)
        .local_get(taken)
        .i32_const(1)
        .i32_sub()
        .local_tee(taken)
        .br_if(0)
        .end();
    restore.instructions().end();
    let (mut functions, mut exports, mut code) =
        (FunctionSection::new(), ExportSection::new(), CodeSection::new());
    for (index, (name, its, body)) in (own_functions..).zip([(BEGIN, 1, begin), (RESTORE, 4, restore)]) {
        functions.function(its);
        exports.export(name, ExportKind::Func, index);
        code.function(&body);
    }
    let mut module = Module::new();
    module
        .section(&types)
        .section(&imports)
        .section(&functions)
        .section(&own)
        .section(&exports)
        .section(&code);
    module
}

fn zero(its: ValType) -> ConstExpr {
    match its {
        ValType::I64 => ConstExpr::i64_const(0),
        ValType::F32 => ConstExpr::f32_const(0.0.into()),
        ValType::F64 => ConstExpr::f64_const(0.0.into()),
        ValType::V128 => ConstExpr::v128_const(0),
        _ => ConstExpr::i32_const(0),
    }
}
