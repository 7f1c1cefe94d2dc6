//! The keys of the configuration. Each is defined once, as a clap option with type, default and
//! help; the file, the environment and their errors use the same definition.

use super::{Bytes, DryArgs, Host, KeepAlive, LogFormat, Origin, TrustedProxy};
use crate::args::{ComputeArgs, DrafterArgs, KEEP, KvArgs, ModelArgs, positions};
use crate::client::PORT;
use clap::builder::{BoolishValueParser, RangedU64ValueParser};
use clap::{ArgAction, Args, Command};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use wrinklefree::decode::SamplingError;
use wrinklefree::format::GenerationDefaults;
use wrinklefree::settings::{Reasoning, Sampling, Settings};

/// The sections of the file: groups of options with these names. Flags of the last two begin with
/// `--kv-` and `--benchmark-` if the key alone is unclear. Other keys stand outside of sections.
pub const SECTIONS: [&str; 7] =
    ["server", "sampling", "reasoning", "dlm", "scheduler", "kv", "benchmark"];

/// The group of options about DRY, and the section that it is in.
const DRY: &str = "dry";
const SAMPLING: &str = "sampling";

/// The key whose value is never printed.
const SECRET: &str = "api_key";

/// All keys.
#[derive(Args)]
pub struct Keys {
    /// The model and how it is opened.
    #[command(flatten)]
    pub model: ModelArgs,
    /// The drafter of the model.
    #[command(flatten)]
    pub drafter: DrafterArgs,
    /// Address or name to listen on
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    pub host: Host,
    /// Port to listen on; 0: any free port
    #[arg(long, value_name = "PORT", default_value_t = PORT)]
    pub port: u16,
    /// Folder of models, or `store`
    ///
    /// Serves all models of a folder: files, folders with a model each, and repositories of the hub's
    /// cache. `store` is the local store of `wf-run pull`. Each is loaded when a request names it. A
    /// list `models` in the file adds others.
    #[arg(id = "models_dir", long = "models", value_name = "DIR",
        conflicts_with_all = ["model_path", "served_model_name"])]
    pub models: Option<PathBuf>,
    /// Threads.
    #[command(flatten)]
    pub compute: ComputeArgs,
    /// Run a little before reporting ready
    ///
    /// Generates a few tokens before /health reports that the server is ready.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", default_value = "false")]
    pub warmup: bool,
    /// Access, encryption and limits.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Defaults of sampling.
    #[command(flatten)]
    pub sampling: SamplingDefaults,
    /// Defaults of DRY.
    #[command(flatten)]
    pub dry: DryArgs,
    /// Limits of the engine.
    #[command(flatten)]
    pub scheduler: SchedulerArgs,
    /// KV cache and page selection.
    #[command(flatten)]
    pub kv: KvArgs,
    /// The measurement before the server is ready.
    #[command(flatten)]
    pub benchmark: BenchmarkArgs,
    /// Settings of decoding.
    #[command(flatten)]
    pub settings: Settings,
    /// Defaults of thinking.
    #[command(flatten)]
    pub reasoning: Reasoning,
}

/// Options of the server: access, encryption and limits.
#[derive(Args)]
#[group(id = "server")]
#[command(next_help_heading = "Server")]
pub struct ServerArgs {
    /// Name of the model in the API; repeatable
    ///
    /// The name that requests know the model by [default: its own]. Of several names, responses have the
    /// first one, and /v1/models lists all.
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub served_model_name: Vec<String>,
    /// Further name that is not listed; repeatable
    ///
    /// For programs that ask for models by names of their own, such as `claude-sonnet-4-5`.
    #[arg(long, value_name = "NAME")]
    pub alias: Vec<String>,
    /// Accept any model name
    ///
    /// Requests that name an unknown model get this server's model.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", default_value = "false")]
    pub any_model: bool,
    /// Time in memory without requests
    ///
    /// A model of several stays in memory so long after its last request: 30s, 5m, 1h, or -1 for
    /// forever.
    #[arg(
        long,
        hide_short_help = true,
        value_name = "TIME",
        default_value = "5m",
        allow_negative_numbers = true
    )]
    pub keep_alive: KeepAlive,
    /// Memory of all models together
    ///
    /// Bytes of weights, KV caches and buffers of all models, such as 8G. The model that was not used
    /// for the longest time is unloaded for another one. A server of one model has no such limit
    /// [default: nine tenths of the memory that is free at the start].
    #[arg(long, hide_short_help = true, value_name = "BYTES")]
    pub memory_limit: Option<Bytes>,
    /// Let clients pull and delete models
    ///
    /// POST /api/pull downloads models of the hub to the local store, and DELETE /api/delete deletes them.
    /// Needs `--models store`.
    #[arg(long, hide_short_help = true, value_name = "BOOL", action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub manage_models: bool,
    /// Key that requests must bring; repeatable
    ///
    /// May be given several times. Other users of the machine can see a command line: prefer
    /// --api-key-file.
    #[arg(long, value_name = "KEY")]
    pub api_key: Vec<String>,
    /// File with API keys, one per line
    ///
    /// What follows `#` is a comment. SIGHUP reads the file again, and the certificate.
    #[arg(long, value_name = "FILE")]
    pub api_key_file: Option<PathBuf>,
    /// Allow public access without a key
    ///
    /// Listens on an address that others can reach although no key is set.
    #[arg(long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", default_value = "false")]
    pub insecure: bool,
    /// Web origin that may ask; repeatable
    ///
    /// Origin of web pages that may send requests from a browser, as `https://example.org`; `*`
    /// allows all [default: none].
    #[arg(long, value_name = "ORIGIN")]
    pub cors_origin: Vec<Origin>,
    /// Other name of this server; repeatable
    ///
    /// A name besides localhost, such as a proxy's. It is needed only if the server listens for
    /// this machine alone and has no key [default: none].
    #[arg(long, value_name = "NAME")]
    pub allowed_host: Vec<String>,
    /// Proxy that names its clients; repeatable
    ///
    /// Address or network of a proxy, such as 10.0.0.0/8. Without API keys, limits count each address.
    /// Behind this proxy they count the address in its X-Forwarded-For or Forwarded header
    /// [default: none].
    #[arg(long, value_name = "IP")]
    pub trusted_proxy: Vec<TrustedProxy>,
    /// Serve the browser demo at /demo
    ///
    /// Folder of the browser demo, which `web/build` writes to web/demo/dist.
    #[arg(long, value_name = "FOLDER")]
    pub demo: Option<PathBuf>,
    /// Folder for saved prompt caches of slots
    ///
    /// POST /slots/{id}?action=save and restore write and read files there [default: none].
    #[arg(long, hide_short_help = true, value_name = "FOLDER")]
    pub slot_save_path: Option<PathBuf>,
    /// Keep the prompt cache in this folder, too
    ///
    /// After an answer its text's keys, values and recurrent states are written there, and a prompt that begins
    /// with it reads them after a restart. Each API key has texts of its own; those with a cache_salt stay in
    /// memory. The folder holds what users wrote, in a form that can be turned back [default: none].
    #[arg(long, hide_short_help = true, value_name = "FOLDER")]
    pub cache_dir: Option<PathBuf>,
    /// Most bytes in the folder of --cache-dir
    ///
    /// The texts that were not used for the longest time are removed [default: 16G].
    #[arg(long, hide_short_help = true, value_name = "SIZE")]
    pub cache_size: Option<Bytes>,
    /// Serve HTTPS with this certificate (PEM)
    ///
    /// The file holds the certificate chain, the server's own certificate first.
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM)
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Largest request body in bytes
    #[arg(long, value_name = "N", default_value = "4194304",
        value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    pub max_body: usize,
    /// Seconds until an answer must be complete
    #[arg(long, value_name = "SECONDS", default_value = "600",
        value_parser = RangedU64ValueParser::<u64>::new().range(1..))]
    pub request_timeout: u64,
    /// Seconds for running requests at shutdown
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    pub drain: u64,
    /// Format of log lines
    ///
    /// The environment variable `WF_LOG` chooses which lines are logged.
    #[arg(long, alias = "log", value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
}

/// Sampling of requests that do not set their own.
#[derive(Args, Clone, Copy, Debug, Default)]
#[group(id = "sampling")]
#[command(next_help_heading = "Sampling")]
pub struct SamplingDefaults {
    /// Temperature where a request has none
    ///
    /// [default: what the model's files recommend, else 1]
    #[arg(long, hide_short_help = true, value_name = "T", allow_negative_numbers = true)]
    pub temperature: Option<f32>,
    /// Keep the K most likely tokens; 0: all
    ///
    /// For requests without `top_k` [default: what the model's files recommend, else 0].
    #[arg(long, hide_short_help = true, value_name = "K")]
    pub top_k: Option<usize>,
    /// Keep the most likely tokens up to P together
    ///
    /// For requests without `top_p` [default: what the model's files recommend, else 1].
    #[arg(long, hide_short_help = true, value_name = "P", allow_negative_numbers = true)]
    pub top_p: Option<f32>,
    /// Drop tokens below P × the most likely one
    #[arg(long, hide_short_help = true, value_name = "P", allow_negative_numbers = true)]
    pub min_p: Option<f32>,
    /// Keep tokens near the entropy, up to P together
    #[arg(long, hide_short_help = true, value_name = "P", allow_negative_numbers = true)]
    pub typical_p: Option<f32>,
    /// Keep logits within N standard deviations
    #[arg(long, hide_short_help = true, value_name = "N", allow_negative_numbers = true)]
    pub top_n_sigma: Option<f32>,
    /// Probability to remove the most likely tokens
    #[arg(long, hide_short_help = true, value_name = "P", allow_negative_numbers = true)]
    pub xtc_probability: Option<f32>,
    /// Probability of the tokens that XTC removes [default: 0.1]
    #[arg(long, hide_short_help = true, value_name = "P", allow_negative_numbers = true)]
    pub xtc_threshold: Option<f32>,
    /// Keep the surprise near a target: 1, 2; 0: off
    ///
    /// Mirostat, of this version.
    #[arg(long, hide_short_help = true, value_name = "VERSION",
        value_parser = clap::value_parser!(u8).range(0..=2))]
    pub mirostat: Option<u8>,
    /// Target of Mirostat in bits [default: 5]
    #[arg(long, hide_short_help = true, value_name = "BITS", allow_negative_numbers = true)]
    pub mirostat_tau: Option<f32>,
    /// Rate of Mirostat [default: 0.1]
    #[arg(long, hide_short_help = true, value_name = "RATE", allow_negative_numbers = true)]
    pub mirostat_eta: Option<f32>,
    /// Subtract X per earlier occurrence
    #[arg(long, hide_short_help = true, value_name = "X", allow_negative_numbers = true)]
    pub frequency_penalty: Option<f32>,
    /// Subtract X from tokens that occurred
    #[arg(long, hide_short_help = true, value_name = "X", allow_negative_numbers = true)]
    pub presence_penalty: Option<f32>,
    /// Make repeated tokens less likely; 1: off
    ///
    /// For requests without `repetition_penalty` [default: what the model's files recommend, else 1].
    #[arg(long, hide_short_help = true, value_name = "X", allow_negative_numbers = true)]
    pub repetition_penalty: Option<f32>,
    /// Use what the model's files recommend
    ///
    /// Temperature, top_k, top_p and repetition penalty of generation_config.json are the defaults of
    /// requests.
    #[arg(long, hide_short_help = true, value_name = "BOOL", action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true")]
    pub generation_config: bool,
}

impl SamplingDefaults {
    /// Returns the defaults of requests: these, else those of the model's files.
    ///
    /// # Errors
    /// If a number is out of range. The error names the flag.
    pub fn over(&self, model: GenerationDefaults) -> Result<GenerationDefaults, SamplingError> {
        let model = if self.generation_config {
            model
        } else {
            let (bos, eos) = (model.bos, model.eos);
            GenerationDefaults { bos, eos, ..GenerationDefaults::default() }
        };
        let defaults = GenerationDefaults {
            temperature: self.temperature.or(model.temperature),
            top_k: self.top_k.or(model.top_k),
            top_p: self.top_p.or(model.top_p),
            repetition_penalty: self.repetition_penalty.or(model.repetition_penalty),
            ..model
        };
        Sampling::default().params(&defaults).validate(usize::MAX)?;
        // Some samplers need a temperature, which a request without one gets.
        let samplers = Sampling { temperature: Some(1.0), ..self.samplers() };
        samplers.params(&defaults).validate(usize::MAX)?;
        Ok(defaults)
    }

    /// Returns the settings that a model's files never recommend.
    pub fn samplers(&self) -> Sampling {
        Sampling {
            min_p: self.min_p,
            typical_p: self.typical_p,
            top_n_sigma: self.top_n_sigma,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            mirostat: self.mirostat,
            mirostat_tau: self.mirostat_tau,
            mirostat_eta: self.mirostat_eta,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            ..Sampling::default()
        }
    }
}

/// Options of the scheduler.
#[derive(Args)]
#[group(id = "scheduler")]
#[command(next_help_heading = "Scheduler")]
pub struct SchedulerArgs {
    /// Sequences that run at the same time
    #[arg(long, value_name = "N", default_value = "16")]
    pub max_sequences: NonZeroUsize,
    /// Requests that wait; more get status 429
    #[arg(long, value_name = "N", default_value = "128")]
    pub max_waiting: usize,
    /// Positions of a sequence
    ///
    /// [default: the model's, as far as memory allows]
    #[arg(short, long, value_name = "N", value_parser = positions())]
    pub context: Option<usize>,
    /// If full: drop half, keep KEEP tokens
    ///
    /// When a sequence that asks for more tokens fills its context, it continues without the older
    /// half of its text. The first KEEP tokens stay (4 if no number is given) [default: it ends].
    #[arg(long, value_name = "KEEP", num_args = 0..=1, require_equals = true, default_missing_value = KEEP)]
    pub context_shift: Option<usize>,
    /// Positions of all sequences together
    ///
    /// [default: as many as they may have, in at most half of the free memory]
    #[arg(long, value_name = "N")]
    pub kv_tokens: Option<NonZeroUsize>,
    /// Memory for states that the prefix cache keeps
    ///
    /// Models with linear attention continue a text only where their recurrent state was kept. At least
    /// four states are kept [default: a quarter of what they share with the KV cache]
    #[arg(long, hide_short_help = true, value_name = "SIZE")]
    pub state_memory: Option<Bytes>,
    /// Milliseconds between tokens to aim at
    ///
    /// A long prompt is computed in parts, so that streams next to it wait about this long for their next
    /// token, and not for a whole batch. A larger number computes prompts faster. 0: no limit.
    #[arg(long, hide_short_help = true, value_name = "MS", default_value = "250")]
    pub target_token_ms: u64,
    /// Keep the tokens of answers in histories
    ///
    /// Where a conversation shows an answer of this server, it gets the tokens that were generated, so that
    /// the KV cache is reused. With `off` the tokenizer chooses them anew, and may choose others.
    #[arg(long, hide_short_help = true, value_name = "on|off", action = ArgAction::Set,
        default_value = "on", value_parser = BoolishValueParser::new())]
    pub exact_history: bool,
    /// Read the next prompt of a chat ahead
    ///
    /// When the server has nothing else to do after an answer, it computes what the next prompt of the
    /// conversation begins with. Other requests end that. Needs `--exact-history on`.
    #[arg(long, hide_short_help = true, value_name = "BOOL", action = ArgAction::Set,
        num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub read_ahead: bool,
    /// Do not reuse the KV cache of equal prefixes
    ///
    /// By default, prompts that begin alike share what was computed for their beginning.
    #[arg(long = "no-radix-cache", action = ArgAction::SetFalse)]
    pub enable_radix_cache: bool,
}

/// Options of the benchmark at the start.
#[derive(Args)]
#[group(id = "benchmark")]
#[command(next_help_heading = "Benchmark")]
pub struct BenchmarkArgs {
    /// Measure and log the speed first
    ///
    /// Measures and logs the speed of answers before the server reports ready.
    #[arg(long = "benchmark", value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1,
        require_equals = true, default_missing_value = "true", default_value = "false")]
    pub benchmark_enabled: bool,
    /// Answers to measure
    #[arg(long, value_name = "N", default_value = "3")]
    pub benchmark_iterations: NonZeroUsize,
    /// Tokens of each answer
    #[arg(long, value_name = "N", default_value = "64")]
    pub benchmark_max_tokens: NonZeroUsize,
}

/// Returns a command with the keys alone.
pub fn command() -> Command {
    let bare = Command::new("keys").no_binary_name(true);
    Keys::augment_args(bare.disable_help_flag(true))
}

/// A key.
pub struct Key {
    /// Its flag.
    pub arg: clap::Arg,
    /// Its section; empty if it stands outside of sections.
    pub section: &'static str,
}

impl Key {
    /// Returns all keys, in the order of the sections.
    pub fn all() -> Vec<Self> {
        let command = command();
        let section = |arg: &clap::Arg| {
            let of = |group: &&clap::ArgGroup| group.get_args().any(|id| id == arg.get_id());
            let groups = command.get_groups().filter(of).map(|group| group.get_id().as_str());
            let group = |id| if id == DRY { SAMPLING } else { id };
            let mut sections = groups.filter_map(|id| SECTIONS.iter().find(|s| **s == group(id)));
            sections.next().copied().unwrap_or_default()
        };
        let key = |arg: &clap::Arg| Self { section: section(arg), arg: arg.clone() };
        let mut keys: Vec<Self> = command.get_arguments().map(key).collect();
        keys.sort_by_key(|key| SECTIONS.iter().position(|s| *s == key.section));
        keys
    }

    /// Returns the id that clap knows it by.
    pub fn id(&self) -> &str {
        self.arg.get_id().as_str()
    }

    /// Returns its name in its section.
    pub fn name(&self) -> &str {
        let prefix = self.id().strip_prefix(self.section);
        prefix.and_then(|rest| rest.strip_prefix('_')).unwrap_or(self.id())
    }

    /// Returns the name of its environment variable.
    pub fn variable(&self) -> String {
        format!("WF_{}", self.id().to_uppercase())
    }

    /// Returns true if it has several values.
    pub fn is_list(&self) -> bool {
        matches!(self.arg.get_action(), ArgAction::Append)
    }

    /// Returns true if its value must not be shown.
    pub fn is_secret(&self) -> bool {
        self.id() == SECRET
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_section_has_keys_and_names_are_unique() {
        let keys = Key::all();
        let names = |section: &str| -> Vec<String> {
            keys.iter().filter(|k| k.section == section).map(|k| k.name().into()).collect()
        };
        assert_eq!(
            names(""),
            [
                "model_path",
                "revision",
                "rope_scaling",
                "activation_sparsity",
                "logits",
                "activations",
                "layout",
                "weights",
                "allow_control_tokens",
                "stop_token",
                "chat_template",
                "template_fixes",
                "draft_model",
                "draft_layout",
                "host",
                "port",
                "models_dir",
                "threads",
                "prefill_threads",
                "pin_threads",
                "warmup"
            ],
            "outside of sections"
        );
        assert_eq!(names("kv"), ["dtype", "k", "v", "attention"]);
        assert_eq!(names("benchmark"), ["enabled", "iterations", "max_tokens"]);
        let all: Vec<String> = SECTIONS.iter().flat_map(|section| names(section)).collect();
        for key in ["log_format", "max_sequences", "kv_tokens", "enable_radix_cache", "threshold"] {
            assert!(all.contains(&key.to_string()), "{key}: {all:?}");
        }
        for key in &keys {
            assert!(!SECTIONS.contains(&key.id()), "{}", key.id());
            assert!(key.arg.get_long().is_some() && key.arg.get_help().is_some(), "{}", key.id());
        }
    }
}
