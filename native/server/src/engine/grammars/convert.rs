//! Conversion of what requests ask for to grammars. It runs in the process that checks grammars: what a
//! client writes decides how long it takes and how much it makes.

use super::requested::{AnswerForm, CallableTools, RequestedGrammar};
use serde_json::{Value, json};
use wrinklefree_easy::models::grammar::{
    Effort, Grammar, Relaxed, call_grammar, check_depth, closed, gbnf_to_lark, is_gbnf, lenient,
    relax,
};

impl RequestedGrammar {
    /// Returns the grammar with the parts that `effort` keeps, and the places of those that it does not.
    ///
    /// # Errors
    /// If a text or schema is invalid, nested too deeply or too large.
    pub fn convert(&self, effort: Effort) -> Result<(Grammar, Vec<String>), String> {
        let Self { answer, tools, .. } = self;
        let Some(CallableTools { tools, format }) = tools else {
            let Some(answer) = answer else { return Err("nothing is asked for".into()) };
            return answer.convert(effort);
        };
        let answer = answer.as_ref().map(|answer| answer.convert(effort)).transpose()?;
        let (answer, left_out) = answer.unzip();
        Ok((call_grammar(tools, *format, answer)?, left_out.unwrap_or_default()))
    }
}

impl AnswerForm {
    fn convert(&self, effort: Effort) -> Result<(Grammar, Vec<String>), String> {
        let grammar = match self {
            Self::JsonObject | Self::JsonSchema(_) | Self::JsonSchemaText(_) => {
                let schema = closed(self.schema()?);
                if effort == Effort::Whole {
                    return Ok((Grammar::JsonSchema(schema), Vec::new()));
                }
                let Relaxed { schema, left_out } = relax(&schema, effort);
                return Ok((Grammar::JsonSchema(lenient(schema, effort)), left_out));
            }
            Self::Regex(regex) => Grammar::Regex(regex.clone()),
            Self::Grammar(text) if is_gbnf(text) => Grammar::Lark(gbnf_to_lark(text)?),
            Self::Grammar(text) => Grammar::Lark(text.clone()),
            // Lark's string literals are JSON's.
            Self::Choice(texts) => {
                let texts: Vec<String> = texts.iter().map(|text| json!(text).to_string()).collect();
                Grammar::Lark(format!("start: {}\n", texts.join(" | ")))
            }
        };
        Ok((grammar, Vec::new()))
    }

    /// Returns the schema of the answer.
    ///
    /// # Errors
    /// If it is a text that is not JSON, nested too deeply, or the answer has no schema.
    pub fn schema(&self) -> Result<Value, String> {
        let schema = match self {
            Self::JsonObject => json!({"type": "object"}),
            Self::JsonSchema(schema) => schema.clone(),
            Self::JsonSchemaText(text) => serde_json::from_str(text)
                .map_err(|error| format!("the text of the schema is not JSON: {error}"))?,
            _ => return Err("it has no JSON schema".into()),
        };
        check_depth(&schema)?;
        Ok(schema)
    }
}
