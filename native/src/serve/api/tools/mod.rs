//! Functions that the model may call. It writes a call as
//!
//! ```text
//! <tool_call>
//! {"name": "weather", "arguments": {"city": "Oslo"}}
//! </tool_call>
//! ```
//!
//! (the format of Hermes 2 and of Qwen's templates), and a grammar sees to it that it is one: its name is that of
//! a tool, its arguments fit the tool's schema.

mod parse;
mod prompt;

pub use parse::{Call, Parser, Piece, read};
pub use prompt::conversation;

use crate::grammar::{Grammar, compact};
use crate::serve::error::ApiError;
use serde_json::{Value, json};
use std::fmt::Write;

/// Tools of a request at most.
const MAX_TOOLS: usize = 128;
/// Letters of a name at most.
const MAX_NAME: usize = 64;
/// What stands around a call, and inside before and after the name.
const OPEN: &str = "<tool_call>";
const BEFORE_NAME: &str = "\n{\"name\": \"";
const AFTER_NAME: &str = "\", \"arguments\": ";
const CLOSE: &str = "}\n</tool_call>";

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub struct Tool {
    /// Its name: letters, digits, `_` and `-`.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// A JSON schema of its arguments.
    pub parameters: Value,
}

/// Which tools may be called.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Choice {
    /// None.
    None,
    /// Any, or none.
    #[default]
    Auto,
    /// One at least.
    Required,
    /// This one.
    Named(String),
}

/// The tools of a request.
#[derive(Clone, Debug, Default)]
pub struct Tools {
    list: Vec<Tool>,
    choice: Choice,
    /// Several calls in one answer.
    parallel: bool,
}

impl Tools {
    /// Checks the tools of a request.
    pub fn new(list: Vec<Tool>, choice: Choice, parallel: bool) -> Result<Self, ApiError> {
        let bad = |message: String| Err(ApiError::bad("tools", message));
        if list.len() > MAX_TOOLS {
            return bad(format!("{} tools, {MAX_TOOLS} at most", list.len()));
        }
        for (index, tool) in list.iter().enumerate() {
            let fits = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
            let name = &tool.name;
            if !(1..=MAX_NAME).contains(&name.len()) || !name.chars().all(fits) {
                return bad(format!(
                    "the name of a tool has 1 to {MAX_NAME} letters, digits, `_` and `-`, but is \
                     `{name}`"
                ));
            }
            if list[..index].iter().any(|other| other.name == *name) {
                return bad(format!("two tools are called `{name}`"));
            }
        }
        let there = |name: &str| list.iter().any(|tool| tool.name == name);
        match &choice {
            Choice::Named(name) if !there(name) => {
                let message = format!("tool_choice names `{name}`, which is not among the tools");
                Err(ApiError::bad("tool_choice", message))
            }
            Choice::Required if list.is_empty() => Err(ApiError::bad(
                "tool_choice",
                "tool_choice asks for a call, but there are no tools",
            )),
            _ => Ok(Self { list, choice, parallel }),
        }
    }

    /// Whether an answer can hold calls.
    pub fn callable(&self) -> bool {
        !self.list.is_empty() && self.choice != Choice::None
    }

    /// The tools as OpenAI's API and chat templates describe them; nothing when none may be called.
    pub fn described(&self) -> Vec<Value> {
        let describe = |tool: &Tool| {
            let Tool { name, description, parameters } = tool;
            let description = description.as_deref().unwrap_or_default();
            let function =
                json!({"name": name, "description": description, "parameters": parameters});
            json!({"type": "function", "function": function})
        };
        match self.choice {
            Choice::None => Vec::new(),
            _ => self.list.iter().map(describe).collect(),
        }
    }

    /// The grammar of an answer that may hold calls. Where it holds none it is `answer`, or any text.
    pub fn grammar(&self, answer: Option<Value>) -> Result<Grammar, String> {
        let text = |text: &str| json!(text).to_string();
        let mut lark = String::from("%llguidance {}\n");
        let mut alternatives = Vec::new();
        for (index, tool) in self.callable_tools().enumerate() {
            let head = text(&format!("{BEFORE_NAME}{}{AFTER_NAME}", tool.name));
            let schema = compact(tool.parameters.clone())?;
            alternatives.push(format!("call_{index}"));
            let _ = writeln!(lark, "call_{index}: {head} args_{index} {}", text(CLOSE));
            let _ = writeln!(lark, "args_{index}: %json {schema}");
        }
        let _ = writeln!(lark, "call: {}", alternatives.join(" | "));
        let (open, next) = (text(OPEN), text(&format!("\n{OPEN}")));
        let calls = match self.parallel {
            true => format!("calls: {open} call ({next} call)*"),
            false => format!("calls: {open} call"),
        };
        let start = match (&self.choice, answer) {
            (Choice::Required | Choice::Named(_), _) => format!("start: calls\n{calls}"),
            (_, Some(schema)) => {
                let schema = compact(schema)?;
                format!("start: calls | answer\n{calls}\nanswer: %json {schema}")
            }
            (_, None) => {
                let repeat = if self.parallel {
                    "start: (before call)* AFTER"
                } else {
                    "start: before call | AFTER"
                };
                // `before` ends where a call begins, and AFTER has none.
                format!(
                    "{repeat}\nbefore[lazy]: /(.|\\n)*{OPEN}/\n\
                     AFTER: /(.|\\n)*/ & ~/(.|\\n)*{OPEN}(.|\\n)*/"
                )
            }
        };
        Ok(Grammar::Lark(lark + &start + "\n"))
    }

    fn callable_tools(&self) -> impl Iterator<Item = &Tool> {
        let fits = |tool: &&Tool| match &self.choice {
            Choice::Named(name) => *name == tool.name,
            _ => true,
        };
        self.list.iter().filter(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{HubArgs, ModelArgs};
    use crate::grammar::Grammars;
    use crate::loaded::Loaded;
    use wrinklefree::decode::Next;

    fn tool(name: &str, parameters: Value) -> Tool {
        Tool { name: name.into(), description: None, parameters }
    }

    fn tools(choice: Choice, parallel: bool) -> Tools {
        let city = json!({"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}},
            "required": ["city"], "additionalProperties": false});
        let none = json!({"type": "object", "additionalProperties": false});
        Tools::new(vec![tool("weather", city), tool("time", none)], choice, parallel).expect("good")
    }

    /// Whether a grammar has a text, by the embedded model's tokenizer.
    fn allows(loaded: &Loaded, tools: &Tools, answer: Option<Value>, text: &str) -> bool {
        let tokenizer = loaded.tokenizer().expect("has one");
        let vocab = loaded.model.spec().vocab_size;
        let grammars = Grammars::new(tokenizer, vocab, &loaded.defaults.eos).expect("made");
        let grammar = tools.grammar(answer).expect("schemas");
        let mut constraint = grammars.compile(grammar).expect("compiles");
        let ids = tokenizer.encode(text, false).expect("text");
        for token in ids.iter().chain(&loaded.defaults.eos[..1]) {
            match constraint.next() {
                Next::Tokens(set) if set[*token as usize / 32] >> (token % 32) & 1 == 1 => {
                    constraint.accept(*token);
                }
                // Whatever comes after the end is an end.
                Next::End => return loaded.defaults.eos.contains(token),
                _ => return false,
            }
        }
        constraint.next() == Next::End
    }

    const OSLO: &str =
        "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
    const TIME: &str = "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>";

    #[test]
    fn grammars_of_calls() {
        let hub = HubArgs { revision: "main".into() };
        let loaded = Loaded::open(&ModelArgs { model: None, hub }).expect("loads");
        let both = format!("{OSLO}\n{TIME}");
        let talk = format!("Let me see, 1 < 2.\n{OSLO}\n{TIME}\nSo.");
        let paris = OSLO.replace("Oslo", "Paris");
        let named = || Choice::Named("time".into());
        #[rustfmt::skip]
        let cases = [
            (Choice::Auto, true, &[(OSLO, true), (&both, true), (&talk, true), ("No.", true), (&paris, false), ("a<tool_call>b", false)][..]),
            (Choice::Auto, false, &[(OSLO, true), (&both, false), ("No.", true)]),
            (Choice::Required, true, &[(OSLO, true), (&both, true), (&talk, false), ("No.", false)]),
            (Choice::Required, false, &[(TIME, true), (&both, false)]),
            (named(), true, &[(TIME, true), (OSLO, false)]),
        ];
        for (choice, parallel, texts) in cases {
            let tools = tools(choice.clone(), parallel);
            for (text, want) in texts {
                let got = allows(&loaded, &tools, None, text);
                assert_eq!(got, *want, "{choice:?}, parallel: {parallel}: {text}");
            }
        }
        let schema = json!({"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]});
        for (text, want) in [("{\"ok\": true}", true), (OSLO, true), ("No.", false)] {
            assert_eq!(
                allows(&loaded, &tools(Choice::Auto, true), Some(schema.clone()), text),
                want
            );
        }
    }

    #[test]
    fn wrong_tools_are_refused_by_name() {
        let wrong = |list: Vec<Tool>, choice: Choice| {
            Tools::new(list, choice, true).expect_err("wrong").message
        };
        let ok = || tool("f", json!({}));
        assert!(wrong(vec![ok(), ok()], Choice::Auto).contains("two tools are called `f`"));
        assert!(wrong(vec![tool("f g", json!({}))], Choice::Auto).contains("`f g`"));
        assert!(wrong(vec![ok()], Choice::Named("g".into())).contains("`g`"));
        assert!(wrong(Vec::new(), Choice::Required).contains("no tools"));
        let text = Tools::new(vec![tool("f", json!("x"))], Choice::Auto, true).expect("named well");
        assert!(text.grammar(None).expect_err("no schema").contains("an object"));
    }
}
