//! Compiles a template with minijinja, and inserts an instruction that charges the budget in front of
//! each instruction whose cost depends on a value's size.

use super::budget::refused;
use crate::text::TextError;
use minijinja::machinery::{CodeGenerator, Instruction, Instructions, Token, Tokenizer, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, value::Value};

const NAME: &str = "chat_template";
/// Largest source, in bytes. Published templates are far shorter.
const MAX_SOURCE: usize = 256 << 10;
/// Largest number of tokens in a `{{ … }}` or `{% … %}`. minijinja's parser and compiler recurse once
/// for each `not`, `-`, `.`, `~`…; this many levels fit the stack of any thread.
const MAX_TOKENS: usize = 600;
/// Largest number of `elif`s in a template, for which they recurse as well.
const MAX_ELIFS: usize = 200;
/// Largest number of lines, and of bytes per line: minijinja counts both in 16 bits.
const MAX_LINES: usize = 60_000;
/// A variable with the value 1. The compiler would compute `'x' * 100000000` without any charge, but
/// not `'x' * __one * 100000000`.
pub(super) const ONE: &str = "__one";

/// The filters that [`rewrite`] inserts. No template can spell their names.
pub(super) mod charge {
    pub const ITEM: &str = "[]";
    pub const SLICE: &str = "[:]";
    pub const ADD: &str = "+";
    pub const MULTIPLY: &str = "*";
    pub const ALL: &str = "~";
    pub const CONTAINS: &str = "in ";
    pub const LIST: &str = "held ";
    pub const ATTRIBUTE: &str = "kept ";
    pub const TEXT: &str = "light ";
    pub const SHALLOW: &str = "shallow ";
    pub const MATERIALIZE: &str = "solid ";
}

/// The source of a template, checked for constructs that would overflow minijinja's compiler.
#[derive(Clone, Debug)]
pub(crate) struct TemplateSource(String);

impl TemplateSource {
    pub(crate) fn new(source: &str) -> Result<Self, TextError> {
        let bad = |what: String| Err(TextError::TemplateSyntax(what));
        if source.len() > MAX_SOURCE {
            let len = source.len();
            return bad(format!("it has {len} bytes; at most {MAX_SOURCE} are accepted"));
        }
        let longest = source.split('\n').map(str::len).max().unwrap_or(0);
        if longest.max(source.split('\n').count()) > MAX_LINES {
            let what = format!("it has more than {MAX_LINES} lines, or more bytes in a line");
            return bad(what);
        }
        let source = without_generation_tags(source);
        let source = checked(&source)?;
        let ready = Self(source);
        compile(&ready).map_err(|e| TextError::TemplateSyntax(e.to_string()))?;
        Ok(ready)
    }
}

/// Checks the limits of a source, and inserts [`ONE`] into its multiplications.
fn checked(source: &str) -> Result<String, TextError> {
    let bad = |what: String| Err(TextError::TemplateSyntax(what));
    let mut tokens = Tokenizer::new(source, NAME, false, syntax());
    let mut out = String::with_capacity(source.len());
    let (mut done, mut count, mut elifs) = (0, 0, 0);
    let mut after_operand = false;
    loop {
        let next = tokens.next_token().map_err(|e| TextError::TemplateSyntax(e.to_string()))?;
        let Some((token, span)) = next else { break };
        count += 1;
        match token {
            Token::VariableStart | Token::BlockStart | Token::TemplateData(_) => count = 0,
            Token::Ident("elif") if count == 1 => elifs += 1,
            Token::Mul if after_operand => {
                let end = span.end_offset as usize;
                out.push_str(&source[done..end]);
                out += &format!(" {ONE} * ");
                done = end;
            }
            _ => {}
        }
        // Behind these, a `*` unpacks arguments.
        after_operand = !matches!(token, Token::ParenOpen | Token::Comma);
        if count > MAX_TOKENS {
            let line = span.start_line;
            return bad(format!(
                "the expression or tag on line {line} has more than {MAX_TOKENS} tokens"
            ));
        }
        if elifs > MAX_ELIFS {
            return bad(format!("it has more than {MAX_ELIFS} `elif`s"));
        }
    }
    Ok(out + &source[done..])
}

fn syntax() -> SyntaxConfig {
    SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .expect("Jinja's own delimiters")
}

/// Compiles a template to instructions that charge the budget for their work.
pub(crate) fn compile(source: &TemplateSource) -> Result<Instructions<'_>, Error> {
    let tree = parse(&source.0, NAME, syntax())?;
    let mut generator = CodeGenerator::new(NAME, &source.0);
    generator.compile_stmt(&tree);
    let (instructions, blocks) = generator.finish();
    match blocks.keys().next() {
        Some(name) => {
            Err(refused(&format!("`block {name}`: there is no template to inherit from")))
        }
        None => rewrite(&instructions),
    }
}

fn rewrite<'a>(old: &Instructions<'a>) -> Result<Instructions<'a>, Error> {
    let mut new = Instructions::new(old.name(), old.source());
    // New position of each old instruction, for jumps.
    let mut starts = Vec::new();
    let mut len = 0;
    for at in 0.. {
        starts.push(len);
        let Some(instruction) = old.get(at) else { break };
        for instruction in expand(instruction)? {
            len = 1 + match (old.get_span(at), old.get_line(at)) {
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

fn expand<'a>(instruction: &Instruction<'a>) -> Result<Vec<Instruction<'a>>, Error> {
    use Instruction::*;
    let filter = |name, args| ApplyFilter(name, Some(args), !0);
    // Charges for the topmost values and puts them back on the stack.
    let look = |name, args: usize| -> Result<Vec<Instruction<'a>>, Error> {
        let count = u16::try_from(args).map_err(|_| refused("a literal has too many items"))?;
        Ok(vec![filter(name, count), UnpackList(args)])
    };
    let this = instruction.clone();
    let mut out = match instruction {
        // `Emit` charges for text, which may be captured.
        EmitRaw(text) => return Ok(vec![LoadConst(Value::from(*text)), Emit]),
        GetItem => look(charge::ITEM, 2)?,
        Slice => look(charge::SLICE, 4)?,
        Add => look(charge::ADD, 2)?,
        Mul => look(charge::MULTIPLY, 2)?,
        In => look(charge::CONTAINS, 2)?,
        StringConcat | Eq | Ne | Gt | Gte | Lt | Lte | CompareAndPreserve(_) => {
            look(charge::ALL, 2)?
        }
        BuildMap(pairs) if *pairs > 0 => look(charge::ALL, 2 * pairs)?,
        UnpackList(_) => vec![filter(charge::SHALLOW, 1)],
        PushLoop(_) => vec![filter(charge::TEXT, 1), filter(charge::MATERIALIZE, 1)],
        // The callee may be a recursive loop, which iterates over its argument.
        FastRecurse | CallFunction(_, Some(1)) | CallObject(Some(2)) => {
            vec![filter(charge::TEXT, 1)]
        }
        SetAttr(_) => vec![Swap, filter(charge::ATTRIBUTE, 1), Swap],
        UnpackLists(_) | MergeKwargs(_) => {
            return Err(refused("`*` and `**` in front of an argument are not supported"));
        }
        LoadBlocks | Include(_) | CallBlock(_) | FastSuper | ExportLocals => {
            return Err(refused("there is no other template to include, import or extend"));
        }
        _ => Vec::new(),
    };
    out.push(this);
    match instruction {
        Slice | Add | Mul => out.push(filter(charge::MATERIALIZE, 1)),
        BuildList(_) | BuildTuple(_) => out.push(filter(charge::LIST, 1)),
        _ => {}
    }
    Ok(out)
}

/// Replaces `{% generation %}`, which marks an assistant's text for training, by a block that always
/// runs.
fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let inside = start + "{%".len();
        let Some(length) = rest[inside..].find("%}") else {
            break;
        };
        let end = inside + length;
        let (tag, name) = (&rest[start..end], &rest[inside..end]);
        let name = name.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        out.push_str(&rest[..start]);
        match name {
            "generation" => out.push_str(&tag.replace(name, "if true")),
            "endgeneration" => out.push_str(&tag.replace(name, "endif")),
            _ => out.push_str(tag),
        }
        rest = &rest[end..];
    }
    out + rest
}
