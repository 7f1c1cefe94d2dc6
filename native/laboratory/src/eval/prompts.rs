//! Prompts with known answers, a JSON object a line.

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use std::fs;
use std::path::Path;
use wrinklefree::settings::explain_json_error;
use wrinklefree::text::Message;
use wrinklefree_easy::models::Loaded;
use wrinklefree_easy::models::chat_prompt;

/// Stories, small tasks and questions about stories, for the model inside this program, which has
/// not seen them in training.
static HELD_OUT: &str = wrinklefree_model::PROMPTS;

/// A prompt, ready for the model.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// Its tokens.
    pub tokens: Vec<u32>,
    /// The right answer.
    pub answer: Option<String>,
    /// Category of the prompt.
    pub category: Option<String>,
    /// Requirements of a story, if the prompt asks for one.
    pub story: Option<Story>,
}

/// Requirements that a request for a story names.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Story {
    /// Words that the story must have: names, species and places.
    #[serde(default)]
    pub asked: Vec<String>,
    /// The thing that is lost and found.
    pub thing: Option<String>,
}

/// A line: a conversation that the model continues, or plain text.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    messages: Option<Vec<Message>>,
    prompt: Option<String>,
    answer: Option<String>,
    category: Option<String>,
    story: Option<Story>,
}

/// The prompts of a file, or those inside this program; `limit` of them, evenly spread.
///
/// # Errors
/// Names the file and the line that is wrong.
pub fn read(
    path: Option<&Path>,
    limit: Option<usize>,
    loaded: &Loaded,
) -> anyhow::Result<Vec<Prompt>> {
    loaded.tokenizer()?;
    if path.is_none() && loaded.template.is_none() {
        bail!(
            "{} has no chat template, which the prompts of this program need: --prompts FILE has \
             others",
            loaded.name
        );
    }
    let (name, text) = match path {
        Some(path) => {
            let name = path.display().to_string();
            let text = fs::read_to_string(path);
            let text = text.with_context(|| format!("cannot read the prompts {name}"))?;
            (name, text)
        }
        None => ("the prompts of this program".into(), HELD_OUT.into()),
    };
    let lines: Vec<(usize, &str)> =
        (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        bail!("{name}: no prompts, expected a JSON object a line");
    }
    let count = limit.unwrap_or(lines.len()).min(lines.len());
    let chosen = (0..count).map(|i| lines[i * lines.len() / count]);
    let prompt =
        |(number, line)| encode(line, loaded).with_context(|| format!("{name}, line {number}"));
    chosen.map(prompt).collect()
}

fn encode(line: &str, loaded: &Loaded) -> anyhow::Result<Prompt> {
    let Line { messages, prompt, answer, category, story } =
        serde_json::from_str(line).map_err(|error| anyhow!(explain_json_error(error)))?;
    let tokenizer = loaded.tokenizer()?;
    let tokens = match (messages, prompt) {
        (Some(messages), None) => {
            let Some(template) = &loaded.template else {
                bail!("`messages` need a chat template, and {} has none", loaded.name);
            };
            let prompt = chat_prompt::render(template, &messages);
            prompt.context("the chat template refuses the messages")?.encode(tokenizer)
        }
        (None, Some(text)) => tokenizer.encode(&text, true),
        _ => bail!("expected either `messages` or `prompt`"),
    };
    let tokens = tokens.context("cannot encode the prompt")?;
    let longest = loaded.model.spec().context_length;
    match tokens.len() {
        0 => bail!("the prompt is empty"),
        n if n >= longest => bail!("the prompt has {n} tokens, and the model holds {longest}"),
        _ => Ok(Prompt { tokens, answer, category, story }),
    }
}
