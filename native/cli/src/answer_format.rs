//! Options for the form of an answer.

use super::exit::usage;
use super::open;
use anyhow::Context;
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use wrinklefree::chat::tools::{CallFormat, Tools};
use wrinklefree::decode::Constraint;
use wrinklefree_easy::models::Loaded;
use wrinklefree_easy::models::grammar::{Grammar, Grammars, call_grammar, without_annotations};

/// The form that an answer must have.
#[derive(Args, Debug)]
pub struct AnswerFormat {
    /// JSON of this schema: text or a file
    ///
    /// As `response_format` of the server. The answer is JSON on one line.
    #[arg(long, value_name = "SCHEMA", group = "form")]
    json_schema: Option<String>,
    /// Text of this grammar: Lark or a file
    ///
    /// As `guided_grammar` of the server, in llguidance's dialect of Lark.
    #[arg(long, value_name = "GRAMMAR", group = "form")]
    grammar: Option<String>,
    /// Text that this expression matches as a whole
    #[arg(long, value_name = "REGEX", group = "form")]
    regex: Option<String>,
    /// Images are not supported
    #[arg(long, value_name = "FILE", hide = true)]
    image: Vec<PathBuf>,
}

impl AnswerFormat {
    /// Returns the constraint of an answer that may call these tools in this format, if there is any.
    ///
    /// # Errors
    /// If the form cannot be used; the message names the option.
    pub fn constraint(
        &self,
        loaded: &Loaded,
        (tools, format): (&Tools, CallFormat),
    ) -> anyhow::Result<Option<Box<dyn Constraint>>> {
        if let Some(path) = self.image.first() {
            let path = path.display();
            return Err(usage(format!(
                "--image {path}: wf-run reads text only; describe the image in words"
            )));
        }
        let answer = self.grammar()?;
        let (option, grammar) = match (tools.of_grammar(answer.is_some()), answer) {
            (None, None) => return Ok(None),
            (None, Some(answer)) => answer,
            (Some(tools), answer) => {
                let wrong = |error| usage(format!("--tools: {error}"));
                let tools = tools.with_parameters(without_annotations).map_err(wrong)?;
                let answer = answer.map(|(_, answer)| answer);
                ("--tools", call_grammar(&tools, format, answer).map_err(wrong)?)
            }
        };
        let size = loaded.model.spec().vocab_size;
        let grammars = Grammars::new(loaded.tokenizer()?, size, &loaded.defaults.eos)
            .context("cannot use a grammar with this vocabulary")?;
        let compiled = grammars.compile(grammar).map_err(|e| usage(format!("{option}: {e}")))?;
        open::warn(&compiled.warnings);
        Ok(Some(compiled.constraint))
    }

    fn grammar(&self) -> anyhow::Result<Option<(&'static str, Grammar)>> {
        if let Some(schema) = &self.json_schema {
            let option = "--json-schema";
            let inline = schema.trim_start().starts_with(['{', 't', 'f']);
            let text = if inline && !Path::new(schema).is_file() {
                schema.clone()
            } else {
                read(option, schema)?
            };
            let schema = serde_json::from_str(&text)
                .map_err(|e| usage(format!("{option}: expected a JSON schema: {e}")))?;
            return Ok(Some((option, Grammar::JsonSchema(schema))));
        }
        if let Some(grammar) = &self.grammar {
            let option = "--grammar";
            let text = if grammar.contains(':') && !Path::new(grammar).is_file() {
                grammar.clone()
            } else {
                read(option, grammar)?
            };
            return Ok(Some((option, Grammar::Lark(text))));
        }
        Ok(self.regex.clone().map(|regex| ("--regex", Grammar::Regex(regex))))
    }
}

fn read(option: &str, path: &str) -> anyhow::Result<String> {
    fs::read_to_string(path).map_err(|e| usage(format!("{option}: cannot read {path}: {e}")))
}
