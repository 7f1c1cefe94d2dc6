//! A template as minijinja compiles it, with an instruction that pays in front of each that could
//! cost more than it looks.

use super::budget::refused;
use crate::text::TextError;
use minijinja::machinery::{CodeGenerator, Instruction, Instructions, Token, Tokenizer, parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Error, value::Value};

const NAME: &str = "chat_template";
/// Published templates are far shorter.
const MAX_SOURCE: usize = 256 << 10;
/// Tokens of a `{{ … }}` or `{% … %}`. minijinja's parser and compiler call themselves once for
/// each `not`, `-`, `.`, `~`…: so many fit the stack of any thread.
const MAX_TOKENS: usize = 600;
/// `elif`s of a template: another thing that they recurse for.
const MAX_ELIFS: usize = 200;
/// Lines, and bytes of each: minijinja counts both in 16 bits.
const MAX_LINES: usize = 60_000;
/// A variable that is 1. `'x' * 100000000` would be worked out while compiling, which nothing can
/// pay for; `'x' * __one * 100000000` is not.
pub(super) const ONE: &str = "__one";

/// The filters that [`rewrite`] puts in. No template can spell them.
pub(super) mod pay {
    pub const ITEM: &str = "[]";
    pub const SLICE: &str = "[:]";
    pub const ADD: &str = "+";
    pub const MULTIPLY: &str = "*";
    pub const ALL: &str = "~";
    pub const CONTAINS: &str = "in ";
    pub const HELD: &str = "held ";
    pub const KEPT: &str = "kept ";
    pub const LIGHT: &str = "light ";
    pub const SHALLOW: &str = "shallow ";
    pub const SOLID: &str = "solid ";
}

/// A template's text, checked for what minijinja's compiler cannot take.
#[derive(Clone, Debug)]
pub(crate) struct Source(String);

impl Source {
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

/// The source with [`ONE`] in its multiplications.
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
        // Elsewhere a `*` unpacks arguments.
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

/// Instructions that pay for what they do.
pub(crate) fn compile(source: &Source) -> Result<Instructions<'_>, Error> {
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
    // Where the instructions now begin, for jumps.
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
    // Looks at the topmost values and puts them back.
    let look = |name, args: usize| -> Result<Vec<Instruction<'a>>, Error> {
        let count = u16::try_from(args).map_err(|_| refused("a literal has too many items"))?;
        Ok(vec![filter(name, count), UnpackList(args)])
    };
    let this = instruction.clone();
    let mut out = match instruction {
        // Text that is captured is paid for where it is written.
        EmitRaw(text) => return Ok(vec![LoadConst(Value::from(*text)), Emit]),
        GetItem => look(pay::ITEM, 2)?,
        Slice => look(pay::SLICE, 4)?,
        Add => look(pay::ADD, 2)?,
        Mul => look(pay::MULTIPLY, 2)?,
        In => look(pay::CONTAINS, 2)?,
        StringConcat | Eq | Ne | Gt | Gte | Lt | Lte | CompareAndPreserve(_) => look(pay::ALL, 2)?,
        BuildMap(pairs) if *pairs > 0 => look(pay::ALL, 2 * pairs)?,
        UnpackList(_) => vec![filter(pay::SHALLOW, 1)],
        PushLoop(_) => vec![filter(pay::LIGHT, 1), filter(pay::SOLID, 1)],
        // What is called may be a recursive loop, which walks through its argument.
        FastRecurse | CallFunction(_, Some(1)) | CallObject(Some(2)) => vec![filter(pay::LIGHT, 1)],
        SetAttr(_) => vec![Swap, filter(pay::KEPT, 1), Swap],
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
        Slice | Add | Mul => out.push(filter(pay::SOLID, 1)),
        BuildList(_) | BuildTuple(_) => out.push(filter(pay::HELD, 1)),
        _ => {}
    }
    Ok(out)
}

/// `{% generation %}` marks for training what an assistant says; for prompts it is a block that
/// always runs.
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
