//! `wf-run generate`: a prompt in, text out.

mod diffusion_view;

use anyhow::{Context, anyhow};
use diffusion_view::DiffusionView;
use serde_json::{Map, Value, json};
use std::io::{self, IsTerminal, Read};
use std::num::NonZeroUsize;
use wf_run_cli::answer_format::AnswerFormat;
use wf_run_cli::args::{self, ComputeArgs, DrafterArgs, KvArgs, ModelArgs, ShiftArgs};
use wf_run_cli::config::{DecodeArgs, DryArgs};
use wf_run_cli::exit::{Exit, usage};
use wf_run_cli::result_format::ResultFormat;
use wf_run_cli::session::{self, Answer};
use wf_run_cli::thinking::{AnswerView, Thinking};
use wf_run_cli::tool_args::ToolArgs;
use wf_run_cli::typed::Typed;
use wf_run_cli::{human, open, out, signals};
use wrinklefree::chat::tools::Tools;
use wrinklefree::chat::{ChatModel, ChatPrompt, Conversation, OutputParser};
use wrinklefree::decode::{Sampled, SamplingParams};
use wrinklefree::engine::{FinishReason, Request};
use wrinklefree::settings::{Hole, Reasoning, Sampling, describe};
use wrinklefree::text::Tokenizer;
use wrinklefree_easy::Message;
use wrinklefree_easy::machine;
use wrinklefree_easy::models::chat_prompt::today;
use wrinklefree_easy::models::engine::SingleSequence;
use wrinklefree_easy::models::{Loaded, grammar, weight_sizes};

/// Most tokens of an answer.
const MAX_TOKENS: usize = 512;

/// Answer a prompt
///
/// The prompt is an argument or comes from standard input. It goes through the model's chat
/// template when it has one. Text streams to standard output, a summary goes to standard error. JSON
/// holds the text, token ids, finish reason and timings.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run generate \"Tell me a story about a fox named Pip.\"
  wf-run generate -m ./my-model --temperature 0.7 \"Why is the sky blue?\"
  wf-run generate --raw --max-tokens 32 --stop . \"Once upon a time\"
  wf-run generate --regex \"(fox|owl)\" \"Who is there?\"
  wf-run generate -o json < question.txt | jq -r .text")]
pub struct Args {
    /// The prompt; `-` or none reads standard input
    prompt: Option<String>,
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    drafter: DrafterArgs,
    /// A system message for the chat template
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    system: Option<String>,
    /// Use the prompt without a chat template
    #[arg(long)]
    raw: bool,
    /// Text after the output, which fills the hole between prompt and it
    ///
    /// Without --max-tokens, a model of block diffusion fills all slots of the block that are left.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["system", "raw"])]
    suffix: Option<String>,
    /// Tokens to generate at most [default: 512]
    #[arg(short = 'n', long, value_name = "N")]
    max_tokens: Option<NonZeroUsize>,
    /// End before this text; repeatable
    #[arg(long, value_name = "S")]
    stop: Vec<String>,
    /// Positions of prompt and answer
    ///
    /// [default: what they need, at most those that the model was trained for]
    #[arg(short, long, value_name = "N", value_parser = args::positions())]
    context: Option<usize>,
    #[command(flatten)]
    shift: Typed<ShiftArgs>,
    #[command(flatten)]
    compute: ComputeArgs,
    /// Print the block or draft after each pass
    ///
    /// New tokens are bright and guesses dim; without a color terminal they are `[new]` and
    /// `(guess)`. A slot without a token yet is `_`.
    #[arg(long)]
    show_steps: bool,
    #[command(flatten)]
    output: ResultFormat,
    /// Add N log-probabilities to JSON
    ///
    /// Adds the log-probabilities of the chosen token and of the N most likely ones.
    #[arg(long, value_name = "N")]
    logprobs: Option<usize>,
    #[command(flatten)]
    form: AnswerFormat,
    #[command(flatten)]
    tools: ToolArgs,
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

impl Args {
    /// Refuses options that make no sense together.
    fn check(&self) -> anyhow::Result<()> {
        if self.stop.iter().any(String::is_empty) {
            return Err(usage("--stop needs a text"));
        }
        match self.output.is_json() {
            true if self.show_steps => Err(usage("--show-steps cannot be used with -o json")),
            false if self.logprobs.is_some() => Err(usage("--logprobs needs -o json")),
            _ => Ok(()),
        }
    }
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    args.check()?;
    // A wrong file costs no loading.
    let (tools, documents) = (args.tools.tools()?, args.tools.documents()?);
    let prompt = prompt(args.prompt.as_deref())?;
    let threads = args.compute.threads();
    let runtime = machine::runtime(threads)?;
    let isa = runtime.kernels.isa().name();
    let loaded = args.model.open(Some((&args.decoding.settings()?, &args.drafter)), &runtime)?;
    let longest = args.context.unwrap_or(loaded.model.spec().context_length);
    args::warn_beyond(longest, loaded.model.spec());
    let (request, parser) = request(args, &loaded, (&prompt, &tools, documents), longest)?;
    let context = longest.min(request.tokens.len().saturating_add(request.max_tokens));
    let Loaded { name, model, tokenizer, time, .. } = loaded;
    let model = args::allow(model, longest);
    let weights = weight_sizes::bytes(model.weights());
    let mode = describe(&request.mode);
    let modes = std::slice::from_ref(&request.mode);
    let needs = SingleSequence { context, kv: args.kv.config(), modes };
    let mut engine = needs.engine(model, tokenizer, runtime)?;

    signals::watch()?;
    signals::arm();
    let json = args.output.is_json();
    let answer = match args.show_steps {
        true => session::run(&mut engine, request, parser, DiffusionView::new()),
        false if json => session::run(&mut engine, request, parser, |_: &str| Ok(())),
        false => session::run(&mut engine, request, parser, AnswerView::new(Thinking::Shown)),
    };
    let answer = answer.context("cannot answer the prompt")?;
    open::warn(&std::iter::from_fn(|| engine.weak_drafter()).collect::<Vec<_>>());
    if args.show_steps {
        out::print(&answer.text)?;
    }
    if json {
        let mut report = Map::new();
        report.insert("model".into(), json!(name));
        report.insert("decode_mode".into(), json!(mode));
        report.extend(answer.json());
        let logprobs = args.logprobs.map(|_| logprobs(&answer.tokens, engine.tokenizer()));
        report.insert("logprobs".into(), json!(logprobs));
        report.insert("load_seconds".into(), json!(time.as_secs_f64()));
        report.insert("weights_bytes".into(), json!(weights));
        report.insert("peak_memory_bytes".into(), json!(machine::peak_memory()));
        report.insert("isa".into(), json!(isa));
        report.insert("threads".into(), json!(threads.decode));
        report.insert("prefill_threads".into(), json!(threads.prefill));
        out::json(&report)?;
    } else {
        if !answer.text.ends_with('\n') && (!answer.text.is_empty() || answer.calls.is_empty()) {
            out::print("\n")?;
        }
        for call in answer.calls_as_json() {
            out::print(&format!("{call}\n"))?;
        }
        out::note(summary(&answer));
    }
    match answer.reason {
        FinishReason::Cancelled => Err(Exit::Interrupted.into()),
        FinishReason::Constraint => Err(anyhow!("{}", grammar::TOO_COMPLEX)),
        FinishReason::NotFinite => Err(Exit::NotFinite.into()),
        FinishReason::Stop | FinishReason::StopString(_) | FinishReason::Length => Ok(()),
    }
}

/// The argument, or standard input without its last line break.
fn prompt(argument: Option<&str>) -> anyhow::Result<String> {
    let text = match argument {
        Some(text) if text != "-" => text.to_string(),
        None if io::stdin().is_terminal() => {
            return Err(usage("no prompt: give one as an argument or on standard input"));
        }
        _ => {
            let mut bytes = Vec::new();
            io::stdin().read_to_end(&mut bytes).context("cannot read standard input")?;
            let mut text = String::from_utf8(bytes).context("the prompt on standard input")?;
            text.truncate(text.strip_suffix('\n').unwrap_or(&text).len());
            text.truncate(text.strip_suffix('\r').unwrap_or(&text).len());
            text
        }
    };
    if text.is_empty() {
        return Err(usage("the prompt is empty"));
    }
    Ok(text)
}

/// Builds the request for an engine whose context holds at most `longest` positions.
fn request(
    args: &Args,
    loaded: &Loaded,
    (prompt, tools, documents): (&str, &Tools, Option<Vec<Value>>),
    longest: usize,
) -> anyhow::Result<(Request, OutputParser)> {
    let (prompt, hole) = encode(loaded, args, (prompt, tools, documents))?;
    let stop_scope = prompt.stop_scope(&args.stop);
    let ChatPrompt { tokens, reasoning, format, parser, .. } = prompt;
    let decoding = args.decoding.clone();
    let decoding = match &hole {
        Some(hole) => decoding.filling(hole)?,
        None => decoding,
    };
    let mode = decoding.mode(&loaded.capabilities())?;
    let dry = args.dry.resolve(loaded.tokenizer()?).map_err(|invalid| usage(invalid.message))?;
    let params = SamplingParams { dry, ..args.sampling.params(&loaded.defaults) };
    let form = args.form.constraint(loaded, (tools, format))?;
    let constraint = reasoning.constrain(loaded.tokenizer()?, &loaded.defaults.eos, form)?;
    let mut request = Request {
        context_shift: args.shift.keep(&mode, longest)?,
        mode,
        max_tokens: args.max_tokens.map_or(MAX_TOKENS, NonZeroUsize::get),
        sampling: SamplingParams { logprobs: args.logprobs, constraint, ..params },
        stop: args.stop.clone(),
        stop_scope,
        eos: loaded.defaults.eos.clone(),
        watch: args.show_steps,
        tokens,
        ..Request::default()
    };
    if let Some(hole) = hole {
        let room = hole.shape(&mut request.mode, &mut request.eos, request.tokens.len());
        request.max_tokens = args.max_tokens.map(NonZeroUsize::get).or(room).unwrap_or(MAX_TOKENS);
    }
    Ok((request, parser))
}

/// Returns the prompt as the model reads it, and the hole that the output fills.
fn encode(
    loaded: &Loaded,
    args: &Args,
    (prompt, tools, documents): (&str, &Tools, Option<Vec<Value>>),
) -> anyhow::Result<(ChatPrompt, Option<Hole>)> {
    let tokenizer = loaded.tokenizer()?;
    if let Some(suffix) = &args.suffix {
        if args.reasoning.is_typed {
            return Err(usage("--suffix has no thinking: leave the options of reasoning out"));
        }
        let model = (&*loaded.name, tokenizer, loaded.dlm.is_some());
        let (hole, tokens) = Hole::new(model, prompt, suffix)?;
        return Ok((ChatPrompt { tokens, ..ChatPrompt::default() }, Some(hole)));
    }
    let Some(template) = loaded.template.as_ref().filter(|_| !args.raw) else {
        if args.system.is_some() {
            return Err(usage("--system needs a model with a chat template"));
        }
        if tools.any() || documents.is_some() {
            return Err(usage("--tools and --documents need a model with a chat template"));
        }
        if args.reasoning.is_typed {
            return Err(usage("options of reasoning need a chat template, and are not for --raw"));
        }
        let tokens = tokenizer.encode(prompt, true).context("cannot encode the prompt")?;
        return Ok((ChatPrompt { tokens, ..ChatPrompt::default() }, None));
    };
    if args.system.is_some() {
        open::warn_unheard(template);
    }
    let mut messages: Vec<_> = args.system.iter().map(Message::system).collect();
    messages.push(Message::user(prompt));
    let (date, (asked, configured)) = (Some(today()), args.reasoning.parts());
    let (recurrent, context, reasoning) = (false, None, configured);
    let chat = ChatModel { template, tokenizer, recurrent, context, date, reasoning };
    let conversation = Conversation {
        tools: tools.clone(),
        documents,
        reasoning: asked,
        ..Conversation::new(messages)?
    };
    Ok((chat.prompt(&conversation)?, None))
}

fn logprobs(tokens: &[Sampled], tokenizer: Option<&Tokenizer>) -> Vec<Value> {
    let text = |id: u32| tokenizer.map(|t| t.decode(&[id]));
    let one =
        |id: u32, logprob: Option<f32>| json!({"token": id, "text": text(id), "logprob": logprob});
    let entry = |t: &Sampled| {
        let mut entry = one(t.token, t.logprob);
        entry["top"] = t.top.iter().map(|&(id, p)| one(id, Some(p))).collect();
        entry
    };
    tokens.iter().map(entry).collect()
}

fn summary(answer: &Answer) -> String {
    let peak = machine::peak_memory().map_or("unknown".into(), human::bytes);
    let reason = session::reason_name(answer.reason);
    format!("[{} · {reason} · peak memory {peak}]", answer.timings.summary())
}
