//! The source of a template, checked before minijinja sees it.

use super::compile::{NAME, ONE, compile, syntax};
use crate::text::TextError;
use minijinja::machinery::{Token, Tokenizer};
use std::any::Any;
use std::borrow::Cow;
use std::panic::catch_unwind;

/// Largest source, in bytes. Published templates are far shorter.
const MAX_SOURCE: usize = 256 << 10;
/// Largest number of tokens of a `{{ … }}` or `{% … %}` that may lie around one another. minijinja's
/// parser and compiler recurse once for each `not`, `-`, `.`, `~`…, but not for the items of a list; this
/// many levels fit the stack of any thread.
const MAX_TOKENS: usize = 600;
/// Largest number of `elif`s in a template, for which they recurse as well.
const MAX_ELIFS: usize = 200;
/// Largest number of lines, and of bytes per line: minijinja counts both in 16 bits.
const MAX_LINES: usize = 60_000;

/// The source of a template, checked for constructs that would overflow minijinja's compiler.
#[derive(Clone, Debug)]
pub(crate) struct TemplateSource(String);

/// Methods that look for their argument in a text.
const LOOKING: &[&str] = &[
    "split",
    "rsplit",
    "partition",
    "rpartition",
    "replace",
    "startswith",
    "endswith",
    "find",
    "rfind",
    "index",
    "count",
    "strip",
    "lstrip",
    "rstrip",
    "removeprefix",
    "removesuffix",
];

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
        let source = with_newlines(source);
        let source = adapted(&source);
        // No panic is known; the compiler is not written for hostile templates.
        catch_unwind(|| {
            let ready = Self(checked(&source)?);
            compile(ready.text(), false).map_err(|e| TextError::TemplateSyntax(e.to_string()))?;
            Ok(ready)
        })
        .unwrap_or_else(|panic| {
            bad(format!("it makes the compiler panic: {}", panic_message(&*panic)))
        })
    }

    /// The text of the template, as it is compiled.
    pub(crate) fn text(&self) -> &str {
        &self.0
    }

    /// The texts that the template looks for in other texts: `'</think>' in content`,
    /// `content.split('</think>')`.
    pub(crate) fn read(&self) -> Vec<String> {
        let mut tokens = Tokenizer::new(&self.0, NAME, false, syntax());
        let mut read = Vec::new();
        let mut text: Option<String> = None;
        // Whether the text is an argument of a method that looks for it.
        let (mut looking, mut argument) = (false, false);
        while let Ok(Some((token, _))) = tokens.next_token() {
            if let Some(text) = text.take()
                && (argument || matches!(token, Token::Ident("in" | "not")))
            {
                read.push(text);
            }
            match &token {
                Token::Str(found) => text = Some((*found).to_owned()),
                Token::String(found) => text = Some(found.to_string()),
                Token::Ident(name) => looking = LOOKING.contains(name),
                Token::ParenOpen => argument = std::mem::take(&mut looking),
                Token::ParenClose => argument = false,
                _ => {}
            }
        }
        read
    }
}

/// Message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let message = panic.downcast_ref::<String>().map(String::as_str);
    message.or(panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Replaces all ends of lines by `\n`, as Jinja does.
fn with_newlines(source: &str) -> Cow<'_, str> {
    if source.contains('\r') {
        source.replace("\r\n", "\n").replace('\r', "\n").into()
    } else {
        source.into()
    }
}

/// Checks the limits of a source, and inserts [`ONE`] into its multiplications.
fn checked(source: &str) -> Result<String, TextError> {
    let bad = |what: String| Err(TextError::TemplateSyntax(what));
    let mut tokens = Tokenizer::new(source, NAME, false, syntax());
    let mut out = String::with_capacity(source.len());
    let (mut done, mut first, mut elifs) = (0, true, 0);
    // Tokens of the items that are open, the innermost last.
    let mut open = vec![0];
    let mut after_operand = false;
    loop {
        let next = tokens.next_token().map_err(|e| TextError::TemplateSyntax(e.to_string()))?;
        let Some((token, span)) = next else { break };
        match token {
            Token::VariableStart | Token::BlockStart | Token::TemplateData(_) => open = vec![0],
            Token::Ident("elif") if first => elifs += 1,
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => open.push(0),
            Token::ParenClose | Token::BracketClose | Token::BraceClose => drop(open.pop()),
            Token::Comma => {
                open.pop();
                open.push(0);
            }
            Token::Mul if after_operand => {
                let end = span.end_offset as usize;
                out.push_str(&source[done..end]);
                out += &format!(" {ONE} * ");
                done = end;
            }
            _ => {}
        }
        // After these, a `*` unpacks arguments.
        after_operand = !matches!(token, Token::ParenOpen | Token::Comma);
        first = matches!(token, Token::BlockStart);
        let here = open.pop().unwrap_or(0);
        open.push(here + 1);
        if open.iter().sum::<usize>() > MAX_TOKENS {
            let line = span.start_line;
            return bad(format!(
                "the expression or tag on line {line} has more than {MAX_TOKENS} tokens around one another"
            ));
        }
        if elifs > MAX_ELIFS {
            return bad(format!("it has more than {MAX_ELIFS} `elif`s"));
        }
    }
    Ok(out + &source[done..])
}

/// Replaces `{% generation %}`, which marks an assistant's text for training, by a block that always
/// runs, and keeps the end of line after `{% raw %}`, which minijinja would remove.
fn adapted(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let inside = start + "{%".len();
        let Some(length) = rest[inside..].find("%}") else {
            break;
        };
        let mut end = inside + length;
        let (tag, name) = (&rest[start..end], &rest[inside..end]);
        let name = name.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        out.push_str(&rest[..start]);
        match name {
            "generation" => out.push_str(&tag.replace(name, "if true")),
            "endgeneration" => out.push_str(&tag.replace(name, "endif")),
            "raw" => {
                out.push_str(tag);
                out.push_str(if tag.ends_with(['-', '+']) { "" } else { " +" });
                // What is inside stays as it is.
                let close = rest[end..].match_indices("{%").find(|(at, _)| {
                    let tag = rest[end + at + 2..].trim_start_matches(['-', '+']);
                    tag.trim_start().starts_with("endraw")
                });
                let next = close.map_or(rest.len(), |(at, _)| end + at);
                out.push_str(&rest[end..next]);
                end = next;
            }
            _ => out.push_str(tag),
        }
        rest = &rest[end..];
    }
    out + rest
}
