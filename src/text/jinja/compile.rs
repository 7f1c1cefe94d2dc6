//! Compiles a template with minijinja, and changes its instructions: an instruction whose cost depends
//! on a value's size is preceded by one that charges the budget, operators that differ from Python's
//! are replaced, and `break` and `continue` close the blocks that they leave.

use super::budget::refused;
use super::unwind::{Block, Exits};
use minijinja::machinery::{CodeGenerator, Instruction, Instructions, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, value::Value};

pub(super) const NAME: &str = "chat_template";
/// A variable with the value 1. The compiler would compute `'x' * 100000000` without any charge, but
/// not `'x' * __one * 100000000`.
pub(super) const ONE: &str = "__one";

/// The filters that [`rewrite`] inserts. No template can spell their names.
pub(super) mod inserted {
    pub const ITEM: &str = "[]";
    pub const SLICE: &str = "[:]";
    pub const ADD: &str = "+";
    pub const MULTIPLY: &str = "*";
    pub const REMAINDER: &str = "%";
    pub const CONCATENATE: &str = "~";
    pub const COMPARE: &str = "<>";
    pub const CONTAINS: &str = "in ";
    pub const UNPACK: &str = "unpack ";
    pub const LIST: &str = "held ";
    pub const NAMESPACE: &str = "kept ";
    pub const TEXT: &str = "light ";
    pub const SHALLOW: &str = "shallow ";
    pub const ITEMS: &str = "solid ";
    pub const ATTRIBUTE: &str = ".";
    pub const METHOD: &str = ".()";
    pub const ONE_MORE: &str = "+1";
    pub const LINE: &str = "line ";
}

/// Jinja's syntax with the options of `transformers`.
pub(super) fn syntax() -> SyntaxConfig {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("Jinja's own delimiters")
}

/// Compiles a template to instructions that charge the budget for their work. With `mark_lines`, they
/// also report each line that they reach to the filter [`inserted::LINE`].
pub(crate) fn compile(source: &str, mark_lines: bool) -> Result<Instructions<'_>, Error> {
    let tree = parse(source, NAME, syntax())?;
    let mut generator = CodeGenerator::new(NAME, source);
    generator.compile_stmt(&tree);
    let (instructions, blocks) = generator.finish();
    match blocks.keys().next() {
        Some(name) => {
            Err(refused(&format!("`block {name}`: there is no template to inherit from")))
        }
        None => rewrite(&instructions, mark_lines),
    }
}

fn rewrite<'a>(old: &Instructions<'a>, mark_lines: bool) -> Result<Instructions<'a>, Error> {
    let exits = Exits::of(old)?;
    let mut new = Instructions::new(old.name(), old.source());
    // New position of each old instruction, for jumps.
    let mut starts = Vec::new();
    let mut len = 0;
    let mut marked = None;
    for at in 0.. {
        starts.push(len);
        let Some(instruction) = old.get(at) else { break };
        let line = old.get_line(at);
        let mark = mark_lines && line != marked;
        marked = line;
        let mut code = if mark { line.map_or_else(Vec::new, report) } else { Vec::new() };
        code.extend(exits.left_by(at).iter().flat_map(close));
        code.extend(expand(instruction)?);
        for instruction in code {
            len = 1 + match (old.get_span(at), line) {
                (Some(span), _) => new.add_with_span(instruction, span),
                (None, Some(line)) => new.add_with_line(instruction, line as u16),
                (None, None) => new.add(instruction),
            };
        }
    }
    for at in 0..len {
        use Instruction::*;
        match new.get_mut(at).expect("it was just added") {
            Jump(to)
            | JumpIfFalse(to)
            | JumpIfFalseOrPop(to)
            | JumpIfTrueOrPop(to)
            | Iterate(to)
            | BuildMacro(_, to, _) => *to = starts[*to as usize],
            _ => {}
        }
    }
    Ok(new)
}

fn filter<'a>(name: &'a str, args: u16) -> Instruction<'a> {
    Instruction::ApplyFilter(name, Some(args), !0)
}

/// Reports a line to the filter that keeps it.
fn report<'a>(line: usize) -> Vec<Instruction<'a>> {
    let line = Instruction::LoadConst(Value::from(line));
    vec![line, filter(inserted::LINE, 1), Instruction::DiscardTop]
}

/// Closes a block that a jump leaves.
fn close<'a>(block: &Block) -> Vec<Instruction<'a>> {
    match block {
        Block::Frame => vec![Instruction::PopFrame],
        Block::Capture => vec![Instruction::EndCapture, Instruction::DiscardTop],
        Block::Escape => vec![Instruction::PopAutoEscape],
        Block::Loop => vec![Instruction::PopLoopFrame],
    }
}

/// Returns the instructions that replace one.
fn expand<'a>(instruction: &Instruction<'a>) -> Result<Vec<Instruction<'a>>, Error> {
    use Instruction::*;
    // Charges for the topmost values and puts them back on the stack.
    let look = |name, args: usize| -> Result<Vec<Instruction<'a>>, Error> {
        let count = u16::try_from(args).map_err(|_| refused("a literal has too many items"))?;
        Ok(vec![filter(name, count), UnpackList(args)])
    };
    let mut out = match instruction {
        // `Emit` charges for text, which may be captured.
        EmitRaw(text) => return Ok(vec![LoadConst(Value::from(*text)), Emit]),
        Slice => return Ok(vec![filter(inserted::SLICE, 4)]),
        Add => return Ok(vec![filter(inserted::ADD, 2)]),
        Mul => return Ok(vec![filter(inserted::MULTIPLY, 2)]),
        Rem => return Ok(vec![filter(inserted::REMAINDER, 2)]),
        StringConcat => return Ok(vec![filter(inserted::CONCATENATE, 2)]),
        GetAttr(name) => {
            return Ok(vec![LoadConst(Value::from(*name)), filter(inserted::ATTRIBUTE, 2)]);
        }
        CallMethod(name, args) => return call_method(name, *args),
        GetItem => look(inserted::ITEM, 2)?,
        In => look(inserted::CONTAINS, 2)?,
        Eq | Ne | Gt | Gte | Lt | Lte | CompareAndPreserve(_) => look(inserted::COMPARE, 2)?,
        BuildMap(pairs) if *pairs > 0 => look(inserted::COMPARE, 2 * pairs)?,
        MergeKwargs(count) => look(inserted::COMPARE, *count)?,
        UnpackLists(count) => look(inserted::UNPACK, *count)?,
        UnpackList(_) => vec![filter(inserted::SHALLOW, 1)],
        PushLoop(_) => vec![filter(inserted::TEXT, 1), filter(inserted::ITEMS, 1)],
        // The callee may be a recursive loop, which iterates over its argument.
        FastRecurse | CallFunction(_, Some(1)) => {
            vec![filter(inserted::TEXT, 1)]
        }
        SetAttr(_) => vec![Swap, filter(inserted::NAMESPACE, 1), Swap],
        LoadBlocks | Include(_) | CallBlock(_) | FastSuper | ExportLocals => {
            return Err(refused("there is no other template to include, import or extend"));
        }
        _ => Vec::new(),
    };
    out.push(instruction.clone());
    if let BuildList(_) | BuildTuple(_) = instruction {
        out.push(filter(inserted::LIST, 1));
    }
    Ok(out)
}

/// Calls a method: its name becomes the last argument.
fn call_method<'a>(name: &'a str, args: Option<u16>) -> Result<Vec<Instruction<'a>>, Error> {
    use Instruction::*;
    let name = LoadConst(Value::from(name));
    let count = |args: u16| args.checked_add(1).ok_or_else(|| refused("too many arguments"));
    match args {
        Some(args) => Ok(vec![name, filter(inserted::METHOD, count(args)?)]),
        // The number of arguments lies above them on the stack.
        None => Ok(vec![
            name,
            Swap,
            filter(inserted::ONE_MORE, 1),
            ApplyFilter(inserted::METHOD, None, !0),
        ]),
    }
}
