//! Tool calls: the tools of a request, the grammar of calls and the parser of outputs.
//!
//! The model writes calls as its chat template does ([`mod@format`]). For templates without calls it is told
//! to write them as Hermes 2 does:
//!
//! ```text
//! <tool_call>
//! {"name": "weather", "arguments": {"city": "Oslo"}}
//! </tool_call>
//! ```
//!
//! A grammar guarantees that each call names a tool and that its arguments match the tool's schema.

mod definitions;
mod format;
mod grammar;
mod held_text;
mod json_calls;
mod output;
mod parameters;
mod prompt;
mod values;
mod xml;
mod xml_grammar;

pub use format::CallFormat;
pub use output::{CallParser, OutputBlock, OutputBlocks, OutputDelta, OutputParser, ToolCall};
pub use prompt::for_template;

use crate::models::grammar::without_annotations;
use crate::serve::error::ApiError;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Maximum number of tools per request.
const MAX_TOOLS: usize = 128;
/// Maximum length of a tool's name.
const MAX_NAME: usize = 64;
/// A function that the model may call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Place in the request's list.
    pub index: usize,
    /// Name: letters, digits, `_` and `-`.
    pub name: String,
    /// Description for the model.
    pub description: Option<String>,
    /// JSON schema of the arguments.
    pub parameters: Value,
    /// Refuse unsupported keywords of the schema. Otherwise they are ignored: most tools' schemas were
    /// written for models that only read them.
    pub strict: bool,
}

/// Constraint on the calls of an output.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum ToolChoice {
    /// No call.
    None,
    /// Calls are optional.
    #[default]
    Auto,
    /// At least one call.
    Required,
    /// One call of this tool.
    Named(String),
}

/// The tools of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tools {
    list: Vec<Tool>,
    choice: ToolChoice,
    /// Allow several calls in one output.
    parallel: bool,
}

impl Tools {
    /// Checks the tools of a request.
    ///
    /// # Errors
    /// If there are too many, a name is invalid or occurs twice, or the choice names no tool.
    pub fn new(list: Vec<Tool>, choice: ToolChoice, parallel: bool) -> Result<Self, ApiError> {
        if list.len() > MAX_TOOLS {
            let message = format!("{} tools: send at most {MAX_TOOLS}", list.len());
            return Err(ApiError::bad("tools", message));
        }
        for (index, tool) in list.iter().enumerate() {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
            let name = &tool.name;
            let bad = |message: String| {
                let param = format!("tools[{}]", tool.index);
                Err(ApiError::bad(&param, format!("{param}: {message}")))
            };
            if name.is_empty() {
                return bad("the function has no `name`".into());
            }
            if !(1..=MAX_NAME).contains(&name.len()) || !name.chars().all(allowed) {
                return bad(format!(
                    "invalid tool name `{name}`: expected 1 to {MAX_NAME} letters, digits, `_` and \
                     `-`"
                ));
            }
            if list[..index].iter().any(|other| other.name == *name) {
                return bad(format!("another tool has the name `{name}`, too"));
            }
        }
        let exists = |name: &str| list.iter().any(|tool| tool.name == name);
        match &choice {
            ToolChoice::Named(name) if !exists(name) => {
                let message = format!("tool_choice names `{name}`, but there is no such tool");
                Err(ApiError::bad("tool_choice", message))
            }
            ToolChoice::Required if list.is_empty() => Err(ApiError::bad(
                "tool_choice",
                "tool_choice requires a call, but there are no tools",
            )),
            _ => {
                // A named function is called once, as by OpenAI's API.
                let parallel = parallel && !matches!(choice, ToolChoice::Named(_));
                Ok(Self { list, choice, parallel })
            }
        }
    }

    /// Returns the tools without what only describes them.
    ///
    /// # Errors
    /// If a schema is nested too deeply.
    pub fn without_annotations(&self) -> Result<Self, String> {
        let bare = |tool: &Tool| {
            let parameters = without_annotations(&tool.parameters)
                .map_err(|error| format!("the parameters of `{}`: {error}", tool.name))?;
            Ok(Tool { name: tool.name.clone(), description: None, parameters, ..*tool })
        };
        let list = self.list.iter().map(bare).collect::<Result<_, String>>()?;
        Ok(Self { list, choice: self.choice.clone(), parallel: self.parallel })
    }

    /// Returns true if there are any.
    pub fn any(&self) -> bool {
        !self.list.is_empty()
    }

    /// Returns the tools of outputs without calls, whatever the tools are.
    pub fn none() -> Self {
        Self { choice: ToolChoice::None, ..Self::default() }
    }

    /// Returns true if the output may contain calls.
    pub fn callable(&self) -> bool {
        self.any() && self.choice != ToolChoice::None
    }

    /// Returns a parser of outputs with these tools, after the reasoning.
    pub fn parser(&self, format: CallFormat) -> CallParser {
        match format {
            _ if !self.callable() => CallParser::Plain,
            format => {
                let required = matches!(self.choice, ToolChoice::Required | ToolChoice::Named(_));
                format.parser(self.list.iter(), required)
            }
        }
    }

    /// Returns the same parser, but arguments in XML are texts, as the model spells them.
    pub fn spelling_parser(&self, format: CallFormat) -> CallParser {
        let texts = json!({"additionalProperties": {"type": "string"}});
        let spelled = |tool: &Tool| Tool { parameters: texts.clone(), ..tool.clone() };
        Self { list: self.list.iter().map(spelled).collect(), ..self.clone() }.parser(format)
    }

    /// Returns the tools in the format of OpenAI's API and chat templates. They stay in the prompt where
    /// calls are not allowed, so that it begins as those of other turns.
    pub fn definitions(&self) -> Vec<Value> {
        let definition = |tool: &Tool| {
            let Tool { name, description, parameters, .. } = tool;
            // Templates print what is there: an empty description would be tokens of its own.
            let function = match description {
                Some(text) => json!({"name": name, "description": text, "parameters": parameters}),
                None => json!({"name": name, "parameters": parameters}),
            };
            json!({"type": "function", "function": function})
        };
        self.list.iter().map(definition).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_tool() {
        let error = |list: Vec<Tool>, choice: ToolChoice| {
            Tools::new(list, choice, true).expect_err("invalid").message
        };
        let f = |parameters| Tool { name: "f".into(), parameters, ..Tool::default() };
        let ok = || f(json!({}));
        assert!(
            error(vec![ok(), Tool { index: 1, ..ok() }], ToolChoice::Auto).contains("tools[1]")
        );
        assert!(error(vec![Tool::default()], ToolChoice::Auto).contains("tools[0]"));
        assert!(
            error(vec![Tool { name: "f g".into(), ..ok() }], ToolChoice::Auto).contains("`f g`")
        );
        assert!(error(vec![ok()], ToolChoice::Named("g".into())).contains("`g`"));
        assert!(error(Vec::new(), ToolChoice::Required).contains("no tools"));
        let text = Tools::new(vec![f(json!("x"))], ToolChoice::Auto, true).expect("valid");
        for format in [CallFormat::Hermes, CallFormat::QwenXml] {
            let error = text.grammar(None, format).expect_err("no schema");
            assert!(error.contains("an object") && error.contains("tools[0]"), "{error}");
        }
    }
}
