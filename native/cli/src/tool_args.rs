//! Options for the tools that an answer may call, and for documents.

use super::exit::usage;
use clap::Args;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use wrinklefree::chat::tools::{ChatToolFields, Tools};

/// Tools and documents of a conversation.
#[derive(Args, Debug)]
pub struct ToolArgs {
    /// Functions that the model may call: a JSON file
    ///
    /// A list in the form of OpenAI's API, as `tools` of the server. Calls are lines of JSON after the text.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["raw", "suffix"])]
    tools: Option<PathBuf>,
    /// Calls: none, auto, required, or a function's name [default: auto]
    #[arg(long, value_name = "CHOICE", requires = "tools", hide_short_help = true)]
    tool_choice: Option<String>,
    /// Documents to answer from: a JSON file
    ///
    /// A list of objects, mostly with `title` and `text`, for chat templates that take documents.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["raw", "suffix"], hide_short_help = true)]
    documents: Option<PathBuf>,
}

impl ToolArgs {
    /// Reads the tools.
    ///
    /// # Errors
    /// Names the file, and the place in it.
    pub fn tools(&self) -> anyhow::Result<Tools> {
        let Some(path) = &self.tools else { return Ok(Tools::default()) };
        let choice = self.tool_choice.as_deref().map(|choice| match choice {
            "none" | "auto" | "required" => json!(choice),
            name => json!({"function": {"name": name}}),
        });
        let fields = json!({"tools": list("--tools", path)?, "tool_choice": choice});
        let wrong = |error: String| usage(format!("--tools {}: {error}", path.display()));
        let fields = serde_path_to_error::deserialize::<_, ChatToolFields>(fields)
            .map_err(|error| wrong(error.to_string()))?;
        fields.tools().map_err(|error| wrong(error.to_string()))
    }

    /// Reads the documents.
    ///
    /// # Errors
    /// Names the file.
    pub fn documents(&self) -> anyhow::Result<Option<Vec<Value>>> {
        self.documents.as_ref().map(|path| list("--documents", path)).transpose()
    }
}

/// Reads a list of objects.
fn list(option: &str, path: &Path) -> anyhow::Result<Vec<Value>> {
    let wrong = |why: String| usage(format!("{option} {}: {why}", path.display()));
    let text =
        fs::read_to_string(path).map_err(|error| wrong(format!("cannot read it: {error}")))?;
    match serde_json::from_str(&text) {
        Ok(Value::Array(list)) if list.iter().all(Value::is_object) => Ok(list),
        Ok(_) => Err(wrong("expected a list of objects".into())),
        Err(error) => Err(wrong(format!("expected JSON: {error}"))),
    }
}
