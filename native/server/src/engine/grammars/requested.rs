//! The form that a request asks of its outputs, as data.

use crate::error::ApiError;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use wrinklefree::chat::tools::{CallFormat, Tools};
use wrinklefree_easy::models::grammar::{TEXT, json_size, without_annotations};

/// The form that a request asks its outputs to have: what the client wrote, and nothing made of it.
///
/// A client chooses all of it, so the server checks its size ([`checked`](Self::checked)) and hands it to
/// the process that checks grammars, which converts it (`super::convert`) and may be ended. What comes
/// back is a [`PreparedGrammar`](wrinklefree_easy::models::grammar::PreparedGrammar). A further kind of grammar is
/// a variant of [`AnswerForm`], or a field here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequestedGrammar {
    /// Form of outputs without calls; any text without it.
    pub answer: Option<AnswerForm>,
    /// Tools that an output may call, or must.
    pub tools: Option<CallableTools>,
    /// Leave out what no grammar can hold of a JSON schema, and validate outputs afterwards.
    pub best_effort: bool,
    /// The request field that it came in, for errors.
    #[serde(skip)]
    pub field: &'static str,
}

/// The form of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AnswerForm {
    /// Any JSON object.
    JsonObject,
    /// JSON that matches a schema.
    JsonSchema(Value),
    /// JSON that matches a schema, which is a text itself.
    JsonSchemaText(String),
    /// A text that a regular expression matches as a whole.
    Regex(String),
    /// A text of a grammar in GBNF or Lark.
    Grammar(String),
    /// One of these texts.
    Choice(Vec<String>),
}

/// Tools with the format in which a model calls them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CallableTools {
    /// The tools, and which of them may be called.
    pub tools: Tools,
    /// Format of calls.
    pub format: CallFormat,
}

impl RequestedGrammar {
    /// Returns the grammar of answers that come in this field.
    pub fn of_answer(answer: AnswerForm, field: &'static str) -> Self {
        Self { answer: Some(answer), tools: None, best_effort: false, field }
    }

    /// Returns the grammar of outputs that call tools, or else have the form that `answer` asks for.
    ///
    /// # Errors
    /// If the answer is not JSON: calls cannot be told apart from others.
    pub fn with_tools(answer: Option<Self>, tools: CallableTools) -> Result<Self, ApiError> {
        let best_effort = answer.as_ref().is_some_and(|answer| answer.best_effort);
        let answer = answer.and_then(|answer| answer.answer);
        if let Some(AnswerForm::Regex(_) | AnswerForm::Grammar(_) | AnswerForm::Choice(_)) = answer
        {
            let message = "tools can be combined with JSON output only, not with a regular \
                           expression, a choice or a grammar";
            return Err(ApiError::bad("tools", message));
        }
        Ok(Self { answer, tools: Some(tools), best_effort, field: "tools" })
    }

    /// Returns the grammar without the annotations of its schemas, if it is small enough.
    ///
    /// # Errors
    /// If it is larger than [`TEXT`], or a schema is nested too deeply.
    pub fn checked(mut self) -> Result<Self, ApiError> {
        let bad = |error: String| super::invalid(self.field, &error);
        if let Some(AnswerForm::JsonSchema(schema)) = &mut self.answer {
            *schema = without_annotations(schema).map_err(bad)?;
        }
        if let Some(CallableTools { tools, .. }) = &mut self.tools {
            *tools = tools.with_parameters(without_annotations).map_err(bad)?;
        }
        if json_size(&self, TEXT + FRAME).is_none() {
            return Err(bad(format!("it has more than {TEXT} bytes without annotations")));
        }
        Ok(self)
    }

    /// Returns the schema of answers if outputs are validated afterwards.
    pub fn validated(&self) -> Option<&AnswerForm> {
        let schemas = |answer: &&AnswerForm| {
            use AnswerForm::{JsonObject, JsonSchema, JsonSchemaText};
            matches!(answer, JsonObject | JsonSchema(_) | JsonSchemaText(_))
        };
        self.answer.as_ref().filter(|_| self.best_effort).filter(schemas)
    }
}

/// Bytes of the JSON around what a client wrote.
const FRAME: usize = 256;
