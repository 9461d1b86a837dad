//! NaNs whose bits are the same everywhere.
//!
//! Of arithmetic that gives a NaN, WebAssembly leaves its sign and its payload open: `0 / 0` has its sign set on x86 and not on ARM, and which
//! of two NaNs a sum takes its payload from depends on how a compiler orders them. The specification's deterministic profile says that it is
//! the canonical one: positive, and of its payload only the highest bit. Everything else that has to do with NaNs is exact already (loads, stores,
//! constants, reinterpretations, `neg`, `abs`, `copysign`), so programs that keep something in a NaN's payload go on doing so.
//!
//! To compare each result with itself would be simple, and cost more. But nobody sees most results' bits: arithmetic,
//! comparisons and conversions to integers ask only whether something is a NaN. So such a result is *open* as long as it goes into these alone, and is
//! *settled*, by a select behind the operator that gave it, where its bits can be seen: by a store, a reinterpretation, a change of its sign, an integer
//! operator on vectors; or where it goes out of sight: into calls, results, globals, out of blocks. What this module knows of is short; whatever
//! else takes an open value settles it, so an operator that is forgotten here costs time, and not correctness.
//!
//! A local is open if all that is ever put into it is open or *plain* (no NaN, or the canonical one, like the zero that it begins with). Reading
//! it is then an operator that gives an open value: a sum in a loop is settled once, where it is read in the end. A local that also gets settled
//! values, or vectors of both kinds, is settled whenever something open is put into it: a merge of both could only be settled at the cost of payloads.
//! Which locals are open depends on which others are; they all are at first, and the function is looked at again until nothing changes.

use std::borrow::Cow;
use wasm_encoder::{CodeSection, Encode as _, Ieee32, Ieee64, Instruction, Module, RawSection};
use wasmparser::{
    BinaryReaderError, BlockType, CompositeInnerType, ContType, FrameKind, FuncType, FunctionBody,
    ModuleArity, Operator, Parser, Payload, RefType, SubType, TypeRef, ValType,
};

/// Why a module that was thought to be valid cannot be rewritten.
#[derive(Debug)]
pub(crate) struct Error(pub(crate) String);

impl From<BinaryReaderError> for Error {
    fn from(error: BinaryReaderError) -> Self {
        Self(error.to_string())
    }
}

type Result<T> = std::result::Result<T, Error>;

/// The canonical NaNs.
const NAN_32: u32 = 0x7fc0_0000;
const NAN_64: u64 = 0x7ff8_0000_0000_0000;

/// How often a function is looked at, before all its locals are taken for settled.
const ROUNDS: usize = 6;

/// The floats that an open value consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lanes {
    F32,
    F64,
    F32x4,
    F64x2,
}

/// A value on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// Its bits are the same everywhere.
    Settled,
    /// And it is no NaN, or the canonical one.
    Plain,
    /// If it is a NaN, that is to be the canonical one. It came from the operator with this number.
    Open(usize, Lanes),
}

/// What is ever put into a local.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Local {
    Plain,
    Open(Lanes),
    Settled,
}

/// What an operator has to do with NaNs. Operands are in the order in which they are pushed.
enum Role {
    /// If it gives a NaN, it is any.
    Arithmetic { takes: &'static [Lanes], gives: Lanes },
    /// It asks no more than whether an operand is a NaN.
    Asks(&'static [Lanes]),
    /// It gives an operand's floats, with their payloads, or several operands'.
    Passes { takes: &'static [Lanes], gives: Lanes },
    /// It gives no NaN, or the canonical one, of so many operands that are no floats.
    Plain(usize),
    /// Something else.
    Other,
}

fn role(operator: &Operator<'_>) -> Role {
    use Lanes::{F32, F32x4, F64, F64x2};
    use Operator as O;
    let plain = |plain| if plain { Role::Plain(0) } else { Role::Other };
    macro_rules! arithmetic {
        ($takes:expr, $gives:expr) => {
            Role::Arithmetic {
                takes: &$takes,
                gives: $gives,
            }
        };
    }
    macro_rules! passes {
        ($takes:expr, $gives:expr) => {
            Role::Passes {
                takes: &$takes,
                gives: $gives,
            }
        };
    }
    match operator {
        O::F32Add | O::F32Sub | O::F32Mul | O::F32Div | O::F32Min | O::F32Max => arithmetic!([F32, F32], F32),
        O::F32Sqrt | O::F32Ceil | O::F32Floor | O::F32Trunc | O::F32Nearest => arithmetic!([F32], F32),
        O::F64Add | O::F64Sub | O::F64Mul | O::F64Div | O::F64Min | O::F64Max => arithmetic!([F64, F64], F64),
        O::F64Sqrt | O::F64Ceil | O::F64Floor | O::F64Trunc | O::F64Nearest => arithmetic!([F64], F64),
        O::F32DemoteF64 => arithmetic!([F64], F32),
        O::F64PromoteF32 => arithmetic!([F32], F64),
        O::F32x4Add | O::F32x4Sub | O::F32x4Mul | O::F32x4Div | O::F32x4Min | O::F32x4Max => {
            arithmetic!([F32x4, F32x4], F32x4)
        }
        O::F32x4Sqrt | O::F32x4Ceil | O::F32x4Floor | O::F32x4Trunc | O::F32x4Nearest => {
            arithmetic!([F32x4], F32x4)
        }
        O::F64x2Add | O::F64x2Sub | O::F64x2Mul | O::F64x2Div | O::F64x2Min | O::F64x2Max => {
            arithmetic!([F64x2, F64x2], F64x2)
        }
        O::F64x2Sqrt | O::F64x2Ceil | O::F64x2Floor | O::F64x2Trunc | O::F64x2Nearest => {
            arithmetic!([F64x2], F64x2)
        }
        O::F32x4DemoteF64x2Zero => arithmetic!([F64x2], F32x4),
        O::F64x2PromoteLowF32x4 => arithmetic!([F32x4], F64x2),

        O::F32Eq | O::F32Ne | O::F32Lt | O::F32Gt | O::F32Le | O::F32Ge => Role::Asks(&[F32, F32]),
        O::F64Eq | O::F64Ne | O::F64Lt | O::F64Gt | O::F64Le | O::F64Ge => Role::Asks(&[F64, F64]),
        O::I32TruncF32S
        | O::I32TruncF32U
        | O::I64TruncF32S
        | O::I64TruncF32U
        | O::I32TruncSatF32S
        | O::I32TruncSatF32U
        | O::I64TruncSatF32S
        | O::I64TruncSatF32U => Role::Asks(&[F32]),
        O::I32TruncF64S
        | O::I32TruncF64U
        | O::I64TruncF64S
        | O::I64TruncF64U
        | O::I32TruncSatF64S
        | O::I32TruncSatF64U
        | O::I64TruncSatF64S
        | O::I64TruncSatF64U => Role::Asks(&[F64]),
        O::F32x4Eq | O::F32x4Ne | O::F32x4Lt | O::F32x4Gt | O::F32x4Le | O::F32x4Ge => {
            Role::Asks(&[F32x4, F32x4])
        }
        O::F64x2Eq | O::F64x2Ne | O::F64x2Lt | O::F64x2Gt | O::F64x2Le | O::F64x2Ge => {
            Role::Asks(&[F64x2, F64x2])
        }
        O::I32x4TruncSatF32x4S | O::I32x4TruncSatF32x4U => Role::Asks(&[F32x4]),
        O::I32x4TruncSatF64x2SZero | O::I32x4TruncSatF64x2UZero => Role::Asks(&[F64x2]),

        // Without its sign, the canonical NaN is itself.
        O::F32Abs => passes!([F32], F32),
        O::F64Abs => passes!([F64], F64),
        O::F32x4Abs => passes!([F32x4], F32x4),
        O::F64x2Abs => passes!([F64x2], F64x2),
        // These choose by a comparison.
        O::F32x4PMin | O::F32x4PMax => passes!([F32x4, F32x4], F32x4),
        O::F64x2PMin | O::F64x2PMax => passes!([F64x2, F64x2], F64x2),
        O::F32x4ExtractLane { .. } => passes!([F32x4], F32),
        O::F64x2ExtractLane { .. } => passes!([F64x2], F64),
        O::F32x4ReplaceLane { .. } => passes!([F32x4, F32], F32x4),
        O::F64x2ReplaceLane { .. } => passes!([F64x2, F64], F64x2),
        O::F32x4Splat => passes!([F32], F32x4),
        O::F64x2Splat => passes!([F64], F64x2),

        O::F32Const { value } => plain(is_plain_32(value.bits())),
        O::F64Const { value } => plain(is_plain_64(value.bits())),
        O::V128Const { value } => plain(has_no_nan(*value.bytes())),
        O::F32ConvertI32S
        | O::F32ConvertI32U
        | O::F32ConvertI64S
        | O::F32ConvertI64U
        | O::F64ConvertI32S
        | O::F64ConvertI32U
        | O::F64ConvertI64S
        | O::F64ConvertI64U => Role::Plain(1),
        _ => Role::Other,
    }
}

fn is_plain_32(bits: u32) -> bool {
    !f32::from_bits(bits).is_nan() || bits == NAN_32
}

fn is_plain_64(bits: u64) -> bool {
    !f64::from_bits(bits).is_nan() || bits == NAN_64
}

/// Whichever lanes one sees in it.
fn has_no_nan(bytes: [u8; 16]) -> bool {
    let (words, _) = bytes.as_chunks();
    let (doubles, _) = bytes.as_chunks();
    !words.iter().any(|word| f32::from_le_bytes(*word).is_nan())
        && !doubles.iter().any(|double| f64::from_le_bytes(*double).is_nan())
}

/// A control structure that is open.
struct Frame {
    block: BlockType,
    kind: FrameKind,
    /// Of the stack, without what the block takes.
    height: usize,
    /// Whether code here can be reached,
    live: bool,
    /// and its beginning could.
    entered: bool,
}

/// What the arity of operators depends on.
#[derive(Default)]
struct Types {
    types: Vec<SubType>,
    /// The types of functions, imported ones first.
    functions: Vec<u32>,
    frames: Vec<Frame>,
}

impl ModuleArity for Types {
    fn sub_type_at(&self, index: u32) -> Option<&SubType> {
        self.types.get(index as usize)
    }

    fn tag_type_arity(&self, _: u32) -> Option<(u32, u32)> {
        None
    }

    fn type_index_of_function(&self, function: u32) -> Option<u32> {
        self.functions.get(function as usize).copied()
    }

    fn func_type_of_cont_type(&self, _: &ContType) -> Option<&FuncType> {
        None
    }

    fn sub_type_of_ref_type(&self, kind: &RefType) -> Option<&SubType> {
        self.sub_type_at(kind.type_index()?.as_module_index()?)
    }

    fn control_stack_height(&self) -> u32 {
        u32::try_from(self.frames.len()).unwrap_or(u32::MAX)
    }

    fn label_block(&self, depth: u32) -> Option<(BlockType, FrameKind)> {
        let index = self.frames.len().checked_sub(depth as usize + 1)?;
        self.frames.get(index).map(|frame| (frame.block, frame.kind))
    }
}

/// The module, which is valid, with all NaNs canonical that its code can see.
pub(crate) fn canonical(bytes: &[u8]) -> Result<Cow<'_, [u8]>> {
    let mut types = Types::default();
    let (mut module, mut code) = (Module::new(), CodeSection::new());
    let (mut imported, mut defined, mut bodies, mut changed) = (0_usize, 0_usize, 0_u32, false);
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        match &payload {
            Payload::TypeSection(section) => {
                for group in section.clone() {
                    types.types.extend(group?.into_types());
                }
            }
            Payload::ImportSection(section) => {
                for import in section.clone().into_imports() {
                    if let TypeRef::Func(kind) | TypeRef::FuncExact(kind) = import?.ty {
                        types.functions.push(kind);
                    }
                }
                imported = types.functions.len();
            }
            Payload::FunctionSection(section) => {
                for kind in section.clone() {
                    types.functions.push(kind?);
                }
            }
            Payload::CodeSectionStart { count, .. } => bodies = *count,
            Payload::CodeSectionEntry(body) => {
                let kind = types.functions.get(imported + defined).copied();
                let kind = kind.ok_or_else(|| broken(body.range().start))?;
                match Function::new(&mut types, kind, body)?.rewrite()? {
                    Some(rewritten) => {
                        changed = true;
                        code.raw(&rewritten);
                    }
                    None => {
                        code.raw(body.as_bytes());
                    }
                }
                defined += 1;
                bodies = bodies.saturating_sub(1);
                if bodies == 0 {
                    module.section(&code);
                }
                continue;
            }
            // Names are by number. Others may be by places in the code, which are others now.
            Payload::CustomSection(custom) if custom.name() != "name" => continue,
            _ => {}
        }
        if let Some((id, range)) = payload.as_section().filter(|(id, _)| *id != CODE) {
            let data = &bytes[range.start as usize..range.end as usize];
            module.section(&RawSection { id, data });
        }
    }
    Ok(match changed {
        true => Cow::Owned(module.finish()),
        false => Cow::Borrowed(bytes),
    })
}

/// The id of the section of code.
const CODE: u8 = 10;

/// Validation should not have let it in.
fn broken(at: u64) -> Error {
    Error(format!("a pure function cannot have what is at offset {at:#x}"))
}

/// One function on its way through this.
struct Function<'a, 'm> {
    types: &'m mut Types,
    kind: u32,
    body: &'a FunctionBody<'a>,
    stack: Vec<Value>,
    locals: Vec<Local>,
    /// Whether one is not what it was thought to be.
    changed: bool,
    /// By operator: what it gives is to be settled.
    sites: Vec<Option<Lanes>>,
}

impl<'a, 'm> Function<'a, 'm> {
    fn new(types: &'m mut Types, kind: u32, body: &'a FunctionBody<'a>) -> Result<Self> {
        let parameters = match types.sub_type_at(kind).map(|kind| &kind.composite_type.inner) {
            Some(CompositeInnerType::Func(kind)) => kind.params().len(),
            _ => return Err(broken(body.range().start)),
        };
        // What it is given is settled.
        let mut locals = vec![Local::Settled; parameters];
        for group in body.get_locals_reader()? {
            let (count, kind) = group?;
            let local = match kind {
                ValType::F32 | ValType::F64 | ValType::V128 => Local::Plain,
                _ => Local::Settled,
            };
            locals.extend(std::iter::repeat_n(local, count as usize));
        }
        Ok(Self {
            types,
            kind,
            body,
            stack: Vec::new(),
            locals,
            changed: false,
            sites: Vec::new(),
        })
    }

    /// The body anew, if something of it is to be settled.
    fn rewrite(mut self) -> Result<Option<Vec<u8>>> {
        for round in 0.. {
            self.changed = false;
            if round == ROUNDS {
                self.locals.fill(Local::Settled);
            }
            self.look()?;
            if !self.changed {
                break;
            }
        }
        match self.sites.iter().any(Option::is_some) {
            true => self.write().map(Some),
            false => Ok(None),
        }
    }

    fn look(&mut self) -> Result<()> {
        self.sites.clear();
        self.stack.clear();
        self.types.frames.clear();
        self.types.frames.push(Frame {
            block: BlockType::FuncType(self.kind),
            kind: FrameKind::Block,
            height: 0,
            live: true,
            entered: true,
        });
        let mut reader = self.body.get_operators_reader()?;
        while !reader.eof() {
            let at = reader.original_position();
            let operator = reader.read()?;
            self.sites.push(None);
            self.step(&operator).ok_or_else(|| broken(at))?;
        }
        Ok(())
    }

    /// `None` if this is nothing that a valid module can have.
    fn step(&mut self, operator: &Operator<'_>) -> Option<()> {
        use Operator as O;
        let live = self.types.frames.last()?.live;
        match operator {
            O::Block { blockty } => self.enter(*blockty, FrameKind::Block, live),
            O::Loop { blockty } => self.enter(*blockty, FrameKind::Loop, live),
            O::If { blockty } => {
                if live {
                    self.take();
                }
                self.enter(*blockty, FrameKind::If, live)
            }
            O::Else => {
                let (parameters, _) = self.leave(live)?;
                let frame = self.types.frames.last_mut()?;
                frame.kind = FrameKind::Else;
                frame.live = frame.entered;
                self.give(parameters);
                Some(())
            }
            O::End => {
                let (_, results) = self.leave(live)?;
                self.types.frames.pop()?;
                self.give(results);
                Some(())
            }
            // Nobody comes here.
            _ if !live => Some(()),
            O::LocalGet { local_index } => {
                let value = match self.locals.get(*local_index as usize)? {
                    Local::Plain => Value::Plain,
                    Local::Open(lanes) => Value::Open(self.here(), *lanes),
                    Local::Settled => Value::Settled,
                };
                self.stack.push(value);
                Some(())
            }
            O::LocalSet { local_index } => self.put(*local_index).map(drop),
            O::LocalTee { local_index } => {
                let value = self.put(*local_index)?;
                self.stack.push(value);
                Some(())
            }
            O::Drop => {
                self.take();
                Some(())
            }
            O::Select | O::TypedSelect { .. } => {
                self.take();
                let (b, a) = (self.take(), self.take());
                let lanes = match (a, b) {
                    (Value::Open(_, lanes), _) | (_, Value::Open(_, lanes)) => Some(lanes),
                    _ => None,
                };
                self.pass(&[a, b], &[lanes, lanes], lanes);
                Some(())
            }
            operator => self.operate(operator),
        }
    }

    fn operate(&mut self, operator: &Operator<'_>) -> Option<()> {
        match role(operator) {
            Role::Arithmetic { takes, gives } => {
                self.ask(takes);
                let here = self.here();
                self.stack.push(Value::Open(here, gives));
            }
            Role::Asks(takes) => {
                self.ask(takes);
                self.stack.push(Value::Settled);
            }
            Role::Passes { takes, gives } => {
                let mut values = [Value::Settled; 2];
                let values = &mut values[..takes.len()];
                for value in values.iter_mut().rev() {
                    *value = self.take();
                }
                let mut wanted = [None; 2];
                for (wanted, lanes) in wanted.iter_mut().zip(takes) {
                    *wanted = Some(*lanes);
                }
                let values: Vec<Value> = values.to_vec();
                self.pass(&values, &wanted[..takes.len()], Some(gives));
            }
            Role::Plain(operands) => {
                for _ in 0..operands {
                    self.take();
                }
                self.stack.push(Value::Plain);
            }
            Role::Other => {
                let (takes, gives) = operator.operator_arity(self.types)?;
                for _ in 0..takes {
                    let value = self.take();
                    self.settle(value);
                }
                let ends = matches!(
                    operator,
                    Operator::Unreachable
                        | Operator::Br { .. }
                        | Operator::BrTable { .. }
                        | Operator::Return
                        | Operator::ReturnCall { .. }
                        | Operator::ReturnCallIndirect { .. }
                        | Operator::ReturnCallRef { .. }
                );
                if ends {
                    let frame = self.types.frames.last_mut()?;
                    frame.live = false;
                    self.stack.truncate(frame.height);
                } else {
                    self.give(gives);
                }
            }
        }
        Some(())
    }

    /// The number of the operator that is looked at.
    fn here(&self) -> usize {
        self.sites.len() - 1
    }

    fn take(&mut self) -> Value {
        self.stack.pop().unwrap_or(Value::Settled)
    }

    /// So many settled values, where code can be reached.
    fn give(&mut self, count: u32) {
        if self.types.frames.last().is_some_and(|frame| frame.live) {
            let height = self.stack.len() + count as usize;
            self.stack.resize(height, Value::Settled);
        }
    }

    fn settle(&mut self, value: Value) {
        if let Value::Open(site, lanes) = value
            && let Some(site) = self.sites.get_mut(site)
        {
            *site = Some(lanes);
        }
    }

    /// Takes operands whose bits are not looked at, if they are those of these floats.
    fn ask(&mut self, takes: &[Lanes]) {
        for lanes in takes.iter().rev() {
            let value = self.take();
            if !matches!(value, Value::Open(_, its) if its == *lanes) {
                self.settle(value);
            }
        }
    }

    /// Gives what one of these has, or some of each. Settled ones settle the others.
    fn pass(&mut self, values: &[Value], wanted: &[Option<Lanes>], gives: Option<Lanes>) {
        let fits = |(value, wanted): (&Value, &Option<Lanes>)| match value {
            Value::Settled => false,
            Value::Plain => true,
            Value::Open(_, lanes) => Some(*lanes) == *wanted,
        };
        let all = values.iter().zip(wanted).all(fits);
        let open = values.iter().any(|value| matches!(value, Value::Open(..)));
        let result = match gives {
            Some(gives) if all && open => Value::Open(self.here(), gives),
            // Of a vector it is not known as which lanes it will be seen.
            None if all => Value::Plain,
            _ => {
                for value in values {
                    self.settle(*value);
                }
                Value::Settled
            }
        };
        self.stack.push(result);
    }

    /// Puts a value into a local; what is then on the stack, if it stays there.
    fn put(&mut self, index: u32) -> Option<Value> {
        let value = self.take();
        let local = self.locals.get_mut(index as usize)?;
        let becomes = match (*local, value) {
            (Local::Settled, _) | (_, Value::Settled) => Local::Settled,
            (before, Value::Plain) => before,
            (Local::Plain, Value::Open(_, lanes)) => Local::Open(lanes),
            (Local::Open(before), Value::Open(_, lanes)) if before == lanes => Local::Open(lanes),
            (Local::Open(_), Value::Open(..)) => Local::Settled,
        };
        self.changed |= *local != becomes;
        *local = becomes;
        if becomes == Local::Settled {
            self.settle(value);
            return Some(match value {
                Value::Open(..) => Value::Settled,
                value => value,
            });
        }
        Some(value)
    }

    fn enter(&mut self, block: BlockType, kind: FrameKind, live: bool) -> Option<()> {
        let (parameters, _) = self.types.block_type_arity(block)?;
        if live {
            for _ in 0..parameters {
                let value = self.take();
                self.settle(value);
            }
        }
        self.types.frames.push(Frame {
            block,
            kind,
            height: self.stack.len(),
            live,
            entered: live,
        });
        self.give(parameters);
        Some(())
    }

    /// At the end of a block, or of one of two: what it takes and gives.
    fn leave(&mut self, live: bool) -> Option<(u32, u32)> {
        let frame = self.types.frames.last()?;
        let height = frame.height;
        let (parameters, results) = self.types.block_type_arity(frame.block)?;
        if live {
            for _ in 0..results {
                let value = self.take();
                self.settle(value);
            }
        }
        self.stack.truncate(height);
        Some((parameters, results))
    }

    /// The body with its sites settled.
    fn write(&self) -> Result<Vec<u8>> {
        // A local of each type that is settled, behind all others.
        let mut scratch: Vec<(wasm_encoder::ValType, u32)> = Vec::new();
        let mut reader = self.body.get_operators_reader()?;
        let mut code: Vec<u8> = Vec::with_capacity(self.body.as_bytes().len() * 2);
        let begin = self.body.range().start;
        let bytes = self.body.as_bytes();
        let part = |from: u64, to: u64| &bytes[(from - begin) as usize..(to - begin) as usize];
        let mut copied = reader.original_position();
        for site in &self.sites {
            let operator = reader.read()?;
            let Some(lanes) = site else { continue };
            let behind = reader.original_position();
            code.extend_from_slice(part(copied, behind));
            copied = behind;
            let local = match operator {
                Operator::LocalGet { local_index } => local_index,
                _ => {
                    let kind = match lanes {
                        Lanes::F32 => wasm_encoder::ValType::F32,
                        Lanes::F64 => wasm_encoder::ValType::F64,
                        Lanes::F32x4 | Lanes::F64x2 => wasm_encoder::ValType::V128,
                    };
                    let known = scratch.iter().find(|(known, _)| *known == kind);
                    let local = known.map_or(self.locals.len() + scratch.len(), |(_, local)| *local as usize);
                    let local = u32::try_from(local).map_err(|_| broken(behind))?;
                    if known.is_none() {
                        scratch.push((kind, local));
                    }
                    Instruction::LocalTee(local).encode(&mut code);
                    local
                }
            };
            settle(*lanes, local, &mut code);
        }
        code.extend_from_slice(part(copied, begin + bytes.len() as u64));
        let mut locals = self.body.get_locals_reader()?;
        let groups = locals.get_count();
        let from = locals.original_position();
        for _ in 0..groups {
            locals.read()?;
        }
        let mut body = Vec::with_capacity(code.len() + 64);
        (groups as usize + scratch.len()).encode(&mut body);
        body.extend_from_slice(part(from, locals.original_position()));
        for (kind, _) in scratch {
            1_u32.encode(&mut body);
            kind.encode(&mut body);
        }
        body.extend(code);
        Ok(body)
    }
}

/// Settles what is on the stack and in this local.
fn settle(lanes: Lanes, local: u32, code: &mut Vec<u8>) {
    let (nan, equal, choose) = match lanes {
        Lanes::F32 => (
            Instruction::F32Const(Ieee32::new(NAN_32)),
            Instruction::F32Eq,
            Instruction::Select,
        ),
        Lanes::F64 => (
            Instruction::F64Const(Ieee64::new(NAN_64)),
            Instruction::F64Eq,
            Instruction::Select,
        ),
        Lanes::F32x4 => (
            Instruction::V128Const(i128::from_le_bytes(
                [NAN_32.to_le_bytes(); 4].concat().try_into().unwrap_or_default(),
            )),
            Instruction::F32x4Eq,
            Instruction::V128Bitselect,
        ),
        Lanes::F64x2 => (
            Instruction::V128Const(i128::from_le_bytes(
                [NAN_64.to_le_bytes(); 2].concat().try_into().unwrap_or_default(),
            )),
            Instruction::F64x2Eq,
            Instruction::V128Bitselect,
        ),
    };
    nan.encode(code);
    Instruction::LocalGet(local).encode(code);
    Instruction::LocalGet(local).encode(code);
    equal.encode(code);
    choose.encode(code);
}
