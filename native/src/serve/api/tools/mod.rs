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

mod grammar;
pub mod openai;
mod parse;
mod prompt;

pub use parse::{Block, Blocks, Call, Parser, Piece};
pub use prompt::conversation;

use crate::serve::error::ApiError;
use serde_json::{Value, json};

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
    /// A schema of which a part cannot be kept to is refused; otherwise that part is left out, as most
    /// tools' schemas were written for models that only read them.
    pub strict: bool,
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
            let Tool { name, description, parameters, .. } = tool;
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_tools_are_refused_by_name() {
        let wrong = |list: Vec<Tool>, choice: Choice| {
            Tools::new(list, choice, true).expect_err("wrong").message
        };
        let f =
            |parameters| Tool { name: "f".into(), description: None, parameters, strict: false };
        let ok = || f(json!({}));
        assert!(wrong(vec![ok(), ok()], Choice::Auto).contains("two tools are called `f`"));
        assert!(wrong(vec![Tool { name: "f g".into(), ..ok() }], Choice::Auto).contains("`f g`"));
        assert!(wrong(vec![ok()], Choice::Named("g".into())).contains("`g`"));
        assert!(wrong(Vec::new(), Choice::Required).contains("no tools"));
        let text = Tools::new(vec![f(json!("x"))], Choice::Auto, true).expect("named well");
        assert!(text.grammar(None).expect_err("no schema").contains("an object"));
    }
}
