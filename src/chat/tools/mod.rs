//! Tool calls: the tools of a request, the formats of calls and their parsers.
//!
//! The model writes calls as its chat template does ([`CallFormat`]). For templates without calls it is told
//! to write them as Hermes 2 does:
//!
//! ```text
//! <tool_call>
//! {"name": "weather", "arguments": {"city": "Oslo"}}
//! </tool_call>
//! ```
//!
//! A grammar guarantees that each call names a tool and that its arguments match the tool's schema. The core
//! has no grammars: [`Tools`] and a [`CallFormat`] are the data that one is made of.

mod call_parser;
mod fields;
mod format;
mod held_text;
mod json_calls;
mod parameters;
mod prompt;
mod values;
mod xml;

pub use call_parser::CallParser;
pub use fields::{ChatToolFields, FunctionDefinition, FunctionName, ToolChoiceMode};
pub use format::CallFormat;
pub use json_calls::JsonFormat;
pub use parameters::{Parameter, Parameters, alternatives, pointer};
pub use prompt::for_template;
pub use values::{MOST_STEPS, Values};
pub use xml::{END_OF_CALL, OPEN, XmlDialect};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Maximum number of tools per request.
const MAX_TOOLS: usize = 128;
/// Maximum length of a tool's name.
const MAX_NAME: usize = 64;

/// Error: the tools of a request cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ToolsError {
    /// There are more than 128.
    #[error("tools has {0} items: send at most {MAX_TOOLS}")]
    TooMany(usize),
    /// A tool that is not a function.
    #[error("tools[{index}].type: unsupported tool type `{kind}`: expected `function`")]
    Kind {
        /// Place in the request's list.
        index: usize,
        /// The type.
        kind: String,
    },
    /// A tool has no name.
    #[error("tools[{0}]: the function has no `name`")]
    NoName(usize),
    /// A name has other characters than templates and grammars can write.
    #[error(
        "tools[{index}]: invalid tool name `{name}`: expected 1 to {MAX_NAME} letters, digits, `_` and \
         `-`"
    )]
    Name {
        /// Place in the request's list.
        index: usize,
        /// The name.
        name: String,
    },
    /// Two tools have one name.
    #[error("tools[{index}]: another tool has the name `{name}`, too")]
    Twice {
        /// Place of the second one in the request's list.
        index: usize,
        /// The name.
        name: String,
    },
    /// The choice names a tool that does not exist.
    #[error("tool_choice names `{0}`, but there is no such tool")]
    NoSuchTool(String),
    /// A call is required, and there are no tools.
    #[error("tool_choice requires a call, but there are no tools")]
    NoTools,
}

impl ToolsError {
    /// Returns the field of a request that has the error.
    #[must_use]
    pub fn field(&self) -> String {
        match self {
            Self::TooMany(_) => "tools".into(),
            Self::Kind { index, .. } => format!("tools[{index}].type"),
            Self::NoName(index) | Self::Name { index, .. } | Self::Twice { index, .. } => {
                format!("tools[{index}]")
            }
            Self::NoSuchTool(_) | Self::NoTools => "tool_choice".into(),
        }
    }
}

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
    pub fn new(list: Vec<Tool>, choice: ToolChoice, parallel: bool) -> Result<Self, ToolsError> {
        if list.len() > MAX_TOOLS {
            return Err(ToolsError::TooMany(list.len()));
        }
        for (place, Tool { index, name, .. }) in list.iter().enumerate() {
            let (index, name) = (*index, name.clone());
            let allowed = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
            if name.is_empty() {
                return Err(ToolsError::NoName(index));
            }
            if name.len() > MAX_NAME || !name.chars().all(allowed) {
                return Err(ToolsError::Name { index, name });
            }
            if list[..place].iter().any(|other| other.name == name) {
                return Err(ToolsError::Twice { index, name });
            }
        }
        let exists = |name: &str| list.iter().any(|tool| tool.name == name);
        match choice {
            ToolChoice::Named(name) if !exists(&name) => Err(ToolsError::NoSuchTool(name)),
            ToolChoice::Required if list.is_empty() => Err(ToolsError::NoTools),
            choice => {
                // A named function is called once, as by OpenAI's API.
                let parallel = parallel && !matches!(choice, ToolChoice::Named(_));
                Ok(Self { list, choice, parallel })
            }
        }
    }

    /// Returns the constraint on calls.
    #[must_use]
    pub fn choice(&self) -> &ToolChoice {
        &self.choice
    }

    /// Returns true if an output may have several calls.
    #[must_use]
    pub fn are_parallel(&self) -> bool {
        self.parallel
    }

    /// Returns the tools that an output may call if it may call any: the named one, or all.
    pub fn chosen(&self) -> impl Iterator<Item = &Tool> {
        let chosen = |tool: &&Tool| match &self.choice {
            ToolChoice::Named(name) => *name == tool.name,
            _ => true,
        };
        self.list.iter().filter(chosen)
    }

    /// Returns the tools without descriptions and with other schemas of their arguments.
    ///
    /// # Errors
    /// If `parameters` fails, with the name of the tool.
    pub fn with_parameters(
        &self,
        parameters: impl Fn(&Value) -> Result<Value, String>,
    ) -> Result<Self, String> {
        let bare = |tool: &Tool| {
            let parameters = parameters(&tool.parameters)
                .map_err(|error| format!("the parameters of `{}`: {error}", tool.name))?;
            Ok(Tool { name: tool.name.clone(), description: None, parameters, ..*tool })
        };
        let list = self.list.iter().map(bare).collect::<Result<_, String>>()?;
        Ok(Self { list, choice: self.choice.clone(), parallel: self.parallel })
    }

    /// Returns true if there are any.
    #[must_use]
    pub fn any(&self) -> bool {
        !self.list.is_empty()
    }

    /// Returns the tools of outputs without calls, whatever the tools are.
    #[must_use]
    pub fn none() -> Self {
        Self { choice: ToolChoice::None, ..Self::default() }
    }

    /// Returns true if the output may contain calls.
    #[must_use]
    pub fn callable(&self) -> bool {
        self.any() && self.choice != ToolChoice::None
    }

    /// Returns the tools that the grammar of outputs needs to know, next to the form of an answer if there
    /// is one.
    #[must_use]
    pub fn of_grammar(&self, has_answer: bool) -> Option<Self> {
        match (self.callable(), self.any() && !has_answer) {
            (true, _) => Some(self.clone()),
            // A model that sees tools may call them where it is told not to.
            (false, true) => Some(Self::none()),
            (false, false) => None,
        }
    }

    /// Returns the field that only a grammar can hold; `None` if a parser alone serves these tools.
    #[must_use]
    pub fn needs_grammar(&self) -> Option<String> {
        let strict = || self.chosen().find(|tool| tool.strict);
        match self.choice {
            ToolChoice::Required | ToolChoice::Named(_) => Some("tool_choice".into()),
            ToolChoice::None => None,
            ToolChoice::Auto => {
                let field = strict().map(|tool| format!("tools[{}].function.strict", tool.index));
                // A parser would have to drop the calls after the first one.
                field.or((self.any() && !self.parallel).then(|| "parallel_tool_calls".into()))
            }
        }
    }

    /// Returns a parser of outputs with these tools, after the reasoning.
    #[must_use]
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
    #[must_use]
    pub fn spelling_parser(&self, format: CallFormat) -> CallParser {
        let texts = json!({"additionalProperties": {"type": "string"}});
        let spelled = |tool: &Tool| Tool { parameters: texts.clone(), ..tool.clone() };
        Self { list: self.list.iter().map(spelled).collect(), ..self.clone() }.parser(format)
    }

    /// Returns the tools in the format of OpenAI's API and chat templates. They stay in the prompt where
    /// calls are not allowed, so that it begins as those of other turns.
    #[must_use]
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
            Tools::new(list, choice, true).expect_err("invalid").to_string()
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
    }

    #[test]
    fn a_grammar_is_needed_for_what_a_parser_cannot_hold() {
        let tool = |strict| Tool { name: "f".into(), strict, ..Tool::default() };
        let field = |list: Vec<Tool>, choice: ToolChoice, parallel: bool| {
            Tools::new(list, choice, parallel).expect("valid").needs_grammar()
        };
        for (strict, choice, parallel, want) in [
            (false, ToolChoice::Auto, true, None),
            (false, ToolChoice::Auto, false, Some("parallel_tool_calls")),
            (true, ToolChoice::Auto, true, Some("tools[0].function.strict")),
            (true, ToolChoice::None, false, None),
            (false, ToolChoice::Required, true, Some("tool_choice")),
            (false, ToolChoice::Named("f".into()), true, Some("tool_choice")),
        ] {
            let case = format!("{strict} {choice:?} {parallel}");
            assert_eq!(field(vec![tool(strict)], choice, parallel).as_deref(), want, "{case}");
        }
        assert_eq!(field(Vec::new(), ToolChoice::Auto, false), None);
    }
}
