//! `wf-run chat`: a conversation in the terminal.

mod conversation;
mod input;
mod settings;

use anyhow::{Context, bail};
use conversation::{Conversation, Length};
use input::{HELP, Input, Lines};
use rustyline::error::ReadlineError;
use rustyline::{Config, DefaultEditor};
use serde_json::json;
use settings::ChatSettings;
use std::fs;
use std::io::{self, ErrorKind, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use wf_run_cli::answer_format::AnswerFormat;
use wf_run_cli::args::{self, ComputeArgs, DrafterArgs, KvArgs, ModelArgs, ShiftArgs};
use wf_run_cli::atomic_file::Draft;
use wf_run_cli::config::{DecodeArgs, DryArgs};
use wf_run_cli::exit::Exit;
use wf_run_cli::result_format::ResultFormat;
use wf_run_cli::session::{Answer, Watcher};
use wf_run_cli::thinking::{AnswerView, Thinking};
use wf_run_cli::typed::Typed;
use wf_run_cli::{human, out, signals};
use wrinklefree::chat::tools::{CallFormat, Tools};
use wrinklefree::engine::FinishReason;
use wrinklefree::settings::{Reasoning, Sampling};
use wrinklefree_easy::Message;
use wrinklefree_easy::machine;
use wrinklefree_easy::models::{Loaded, grammar};

/// Talk with a model
///
/// /help in the conversation lists its commands. Ctrl-C stops an answer, Ctrl-D leaves. With JSON each
/// answer is an object on a line of its own, and a message without an answer gives its error.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run chat
  wf-run chat -m ./my-model --system \"Answer in one sentence.\"
  wf-run chat -o json < messages.txt | jq -r .text")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    drafter: DrafterArgs,
    /// A system message to start with
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Positions of the conversation
    ///
    /// [default: the model's, at most 4096]
    #[arg(short, long, value_name = "N", value_parser = args::positions())]
    context: Option<usize>,
    #[command(flatten)]
    shift: Typed<ShiftArgs>,
    /// Tokens of an answer at most
    #[arg(short = 'n', long, value_name = "N", default_value = "1024")]
    max_tokens: NonZeroUsize,
    #[command(flatten)]
    output: ResultFormat,
    #[command(flatten)]
    compute: ComputeArgs,
    #[command(flatten)]
    form: AnswerFormat,
    #[command(flatten)]
    kv: KvArgs,
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    dry: DryArgs,
    #[command(flatten)]
    reasoning: Typed<Reasoning>,
    #[command(flatten)]
    decoding: DecodeArgs,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    let runtime = machine::runtime(args.compute.threads())?;
    let loaded = args.model.open(Some((&args.decoding.settings()?, &args.drafter)), &runtime)?;
    let context = args::context(args.context, loaded.model.spec());
    let loaded = Loaded { model: args::allow(loaded.model, context), ..loaded };
    args::warn_beyond(context, loaded.model.spec());
    let sampling = (args.sampling, args.dry);
    let settings = ChatSettings::new(sampling, loaded.defaults.clone(), args.max_tokens);
    settings.params(loaded.tokenizer()?)?;
    let mode = args.decoding.mode(&loaded.capabilities())?;
    let shift = args.shift.keep(&mode, context)?;
    out::note(format_args!("{} · {context} positions · /help lists commands", loaded.name));
    let (kv, length) = (args.kv.config(), Length { context, shift });
    let form = args.form.constraint(&loaded, (&Tools::default(), CallFormat::default()))?;
    let mut conversation = Conversation::new(loaded, runtime, (settings, mode), (length, kv))?;
    (conversation.reasoning, conversation.form) = (args.reasoning, form);
    conversation.restart(args.system);
    signals::watch()?;

    let mut editor = editor()?;
    let history = io::stdin().is_terminal().then(history).flatten();
    if let Some(path) = &history {
        // A first start has no history to load.
        let _ = editor.load_history(path);
    }
    let ended = talk(&mut editor, &mut conversation, args.output.is_json());
    if let Some(path) = &history
        && let Err(error) = editor.save_history(path)
    {
        out::note(format_args!("warning: cannot save the history in {}: {error}", path.display()));
    }
    ended
}

fn editor() -> anyhow::Result<DefaultEditor> {
    let config = Config::builder().auto_add_history(true).max_history_size(1000)?.build();
    DefaultEditor::with_config(config).context("cannot read from the terminal")
}

/// Returns the file of earlier inputs, after creating its directory.
fn history() -> Option<PathBuf> {
    let directory = dirs::state_dir().or_else(dirs::data_local_dir)?.join("wf-run");
    std::fs::create_dir_all(&directory).ok()?;
    Some(directory.join("history"))
}

fn talk(
    editor: &mut DefaultEditor,
    conversation: &mut Conversation,
    json: bool,
) -> anyhow::Result<()> {
    let mut lines = Lines::default();
    let mut last = None;
    loop {
        let line = match editor.readline(if lines.is_open() { "… " } else { "> " }) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted) => {
                lines.clear();
                out::note("(Ctrl-D or /quit leaves)");
                continue;
            }
            Err(ReadlineError::Eof) => return Ok(()),
            Err(ReadlineError::Io(e)) if e.kind() == ErrorKind::InvalidData => {
                out::note("error: a line is not UTF-8: left it out");
                continue;
            }
            Err(error) => return Err(error).context("cannot read from the terminal"),
        };
        match lines.feed(&line) {
            None => {}
            Some(Input::Quit) => return Ok(()),
            Some(Input::Reset) => restart(conversation, conversation.system()),
            Some(Input::System(text)) => restart(conversation, text),
            Some(Input::Help) => out::note(HELP),
            Some(Input::Wrong(what)) => out::note(what),
            Some(Input::Stats) => out::note(stats(last.as_ref())),
            Some(Input::Thinking) => out::note(thinking(last.as_ref())),
            Some(Input::Raw) => raw(last.as_ref())?,
            Some(Input::Save(path)) => match save(conversation, &path) {
                Ok(()) => out::note(format_args!("saved {} messages", conversation.messages.len())),
                Err(error) => out::note(format_args!("error: {error:#}")),
            },
            Some(Input::Load(path)) => match load(conversation, &path) {
                Ok(count) => out::note(format_args!("loaded {count} messages")),
                Err(error) => out::note(format_args!("error: {error:#}")),
            },
            Some(Input::Set(None)) => out::note(conversation.settings.describe()),
            Some(Input::Set(Some((name, value)))) => {
                match conversation.settings.set(&name, &value) {
                    Ok(()) => {}
                    Err(error) => out::note(format_args!("error: {error}")),
                }
            }
            Some(Input::Regenerate) => answer(conversation, None, json, &mut last)?,
            Some(Input::Message(text)) => answer(conversation, Some(text), json, &mut last)?,
        }
    }
}

/// Answers a message, or the last one again, and keeps the answer, or prints why there is none.
///
/// # Errors
/// One after which the conversation cannot continue.
fn answer(
    conversation: &mut Conversation,
    text: Option<String>,
    json: bool,
    last: &mut Option<Answer>,
) -> anyhow::Result<()> {
    let answered =
        if json { answer_in_json(conversation, text) } else { answer_in_text(conversation, text) };
    match answered {
        Ok(answer) => *last = Some(answer),
        Err(error) if ends(&error) => return Err(error),
        // One line a message, so that a program can wait for it.
        Err(error) if json => out::json_line(&json!({"error": format!("{error:#}")}))?,
        Err(error) => out::note(format_args!("error: {error:#}")),
    }
    Ok(())
}

/// Returns true for an error after which the conversation cannot continue.
fn ends(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<Exit>() {
        // Another message may work.
        Some(Exit::NotFinite) => !io::stdin().is_terminal(),
        exit => exit.is_some(),
    }
}

fn restart(conversation: &mut Conversation, system: Option<String>) {
    let what = if system.is_some() { " with a system message" } else { "" };
    conversation.restart(system);
    out::note(format_args!("(a new conversation{what})"));
}

fn answer_in_text(conversation: &mut Conversation, text: Option<String>) -> anyhow::Result<Answer> {
    let view = AnswerView::new(Thinking::Folded);
    // The form of an answer is not Markdown.
    let view = if conversation.form.is_none() { view.with_markdown() } else { view };
    let answer = generate(conversation, text, view)?;
    out::print("\n")?;
    match answer.reason {
        FinishReason::Stop | FinishReason::StopString(_) | FinishReason::NotFinite => {}
        FinishReason::Constraint => out::note(grammar::TOO_COMPLEX),
        FinishReason::Length => out::note("(the answer reached its limit of tokens)"),
        FinishReason::Cancelled => out::note("(stopped)"),
    }
    can_continue(answer)
}

fn answer_in_json(conversation: &mut Conversation, text: Option<String>) -> anyhow::Result<Answer> {
    let answer = generate(conversation, text, |_: &str| Ok(()))?;
    out::json_line(&answer.json())?;
    can_continue(answer)
}

fn generate(
    conversation: &mut Conversation,
    text: Option<String>,
    view: impl Watcher,
) -> anyhow::Result<Answer> {
    signals::arm();
    let answer = match text {
        Some(text) => conversation.say(text, view),
        None => conversation.regenerate(view),
    };
    // While the next line is awaited, nothing checks for signals.
    signals::disarm();
    answer
}

/// Refuses an answer that was interrupted if no terminal can continue the conversation.
fn can_continue(answer: Answer) -> anyhow::Result<Answer> {
    match answer.reason {
        FinishReason::Cancelled if !io::stdin().is_terminal() => Err(Exit::Interrupted.into()),
        _ => Ok(answer),
    }
}

/// Writes the conversation to a file. One that holds a conversation is replaced, no other.
fn save(conversation: &Conversation, path: &Path) -> anyhow::Result<()> {
    let json = serde_json::to_string_pretty(&conversation.messages)? + "\n";
    if path.is_file() && read(path).is_err() {
        bail!("{} exists and is not a conversation: choose another name", path.display());
    }
    let mut draft = Draft::new(path, true)?;
    draft.write_all(json.as_bytes()).with_context(|| format!("cannot write {}", path.display()))?;
    draft.keep()
}

/// Reads the messages of a file.
fn read(path: &Path) -> anyhow::Result<Vec<Message>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a conversation", path.display()))
}

/// Continues the conversation of a file, and returns its number of messages.
fn load(conversation: &mut Conversation, path: &Path) -> anyhow::Result<usize> {
    conversation
        .load(read(path)?)
        .with_context(|| format!("{} is not a conversation", path.display()))?;
    Ok(conversation.messages.len())
}

/// Prints the last answer as the model wrote it.
fn raw(last: Option<&Answer>) -> anyhow::Result<()> {
    match last {
        None => out::note("no answer yet"),
        Some(answer) => out::print(&format!("{}\n", answer.text))?,
    }
    Ok(())
}

fn thinking(last: Option<&Answer>) -> &str {
    match last.map(|answer| answer.reasoning.as_str()) {
        None | Some("") => "no thinking before the last answer",
        Some(text) => text,
    }
}

fn stats(last: Option<&Answer>) -> String {
    let Some(answer) = last else { return "no answer yet".into() };
    let peak = machine::peak_memory().map_or("unknown".into(), human::bytes);
    format!("{} · peak memory {peak}", answer.timings.summary())
}
