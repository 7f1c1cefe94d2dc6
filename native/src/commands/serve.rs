//! `wf-run serve`: models over HTTP.

mod models;

use super::Cli;
use anyhow::Context;
use clap::{CommandFactory, FromArgMatches};
use models::ModelSettings;
use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use wf_run_cli::args::{self, DrafterArgs, KvArgs, ModelArgs};
use wf_run_cli::config::{
    self, BenchmarkArgs, Bytes, Host, Keys, Layers, ModelEntry, SchedulerArgs, ServerArgs,
};
use wf_run_cli::exit::usage;
use wf_run_cli::{malloc, open, out};
use wf_run_server::{
    Access, ApiKeys, Benchmark, EngineBuilder, EngineLimits, LoadModel, Models, NamedKey,
    RequestLimits, ServerConfig, Tls, Warmup, log,
};
use wrinklefree::format::GenerationDefaults;
use wrinklefree::settings::Settings;
use wrinklefree_easy::machine;
use wrinklefree_easy::models::engine::MAX_BATCH_TOKENS;
use wrinklefree_easy::models::{DrafterOptions, Loaded, OpenOptions, Synthetic};

/// Maximum size of the prompt cache on disk in bytes.
const DEFAULT_CACHE_SIZE: u64 = 16 << 30;

/// Serve a model over HTTP, for OpenAI's clients
///
/// Answers /v1/chat/completions, /v1/completions and more. Requests share forward passes; each gets
/// the text that it would get alone. On Ctrl-C or SIGTERM the server finishes running requests and
/// exits.
///
/// Every option is also a key of a YAML file (--generate-config prints one) and an environment
/// variable, such as WF_MAX_SEQUENCES; MODEL_PATH names the model. The command line takes
/// precedence over the file, and the file over the environment.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run serve
  wf-run serve -m ./my-model --host 0.0.0.0 --api-key-file keys.txt
  wf-run serve --generate-config > wf.yaml; wf-run serve --config wf.yaml
  curl http://127.0.0.1:30000/v1/chat/completions \\
    -H 'content-type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'")]
pub struct Args {
    /// YAML file with settings [default: $WF_CONFIG]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print a configuration file and exit
    ///
    /// The file has every key, its default and an explanation.
    #[arg(long)]
    generate_config: bool,
    /// Print the settings in effect and exit
    ///
    /// Prints the value of every key and its source: command line, file, environment or default.
    #[arg(long)]
    print_config: bool,
    /// Random weights instead of a model
    ///
    /// Random weights of this shape, with the tokenizer of the embedded model: for measuring speed
    /// without a download.
    #[arg(long, value_parser = args::synthetic(),
        conflicts_with_all = ["model_path", "rope_scaling", "draft_model"])]
    synthetic: Option<Synthetic>,
    #[command(flatten)]
    keys: Keys,
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if args.generate_config {
        return out::print(&config::example());
    }
    malloc::share();
    // The command line was read to find the file; now again, with what the file says as defaults.
    let layers = Layers::read(args.config.as_deref())?;
    let command = Cli::command().mut_subcommand("serve", |serve| layers.defaults(serve));
    let (_, matches) = command.get_matches().remove_subcommand().expect("this one");
    if args.print_config {
        open::warn(&layers.warnings);
        out::print(&config::effective(&layers, &matches))
    } else {
        let keys = Keys::from_arg_matches(&matches)?;
        wf_run_server::run(server_config(keys, args.synthetic, layers)?)
    }
}

/// Returns the server's configuration.
fn server_config(
    keys: Keys,
    synthetic: Option<Synthetic>,
    layers: Layers,
) -> anyhow::Result<ServerConfig> {
    let Keys {
        model,
        drafter,
        models,
        host,
        port,
        compute,
        warmup,
        server,
        sampling,
        dry,
        scheduler,
        kv,
        benchmark,
        settings,
        reasoning,
    } = keys;
    let files = AccessFiles {
        keys: server.api_key.clone(),
        key_file: server.api_key_file.clone(),
        certificate: server.tls_cert.clone(),
        certificate_key: server.tls_key.clone(),
    };
    let access = files.read()?;
    let open = access.keys.is_empty() && !server.insecure;
    check_host(host, open)?;
    log::start(server.log_format)?;
    for warning in &layers.warnings {
        tracing::warn!("{warning}");
    }
    // Wrong kernels and settings are said before anything listens.
    machine::kernels()?;
    settings.check()?;
    check_cache(&server, &scheduler)?;
    sampling.over(GenerationDefaults::default()).map_err(|error| usage(error.to_string()))?;
    let drafter = only_drafter(&drafter, models.is_some() || !layers.models.is_empty())?;
    let (models, name) =
        served_models(&server, &model, (models, layers.models), synthetic.is_some())?;
    Ok(ServerConfig {
        load: load_model(synthetic, &settings, drafter),
        models,
        manage_models: server.manage_models,
        builder: EngineBuilder {
            name,
            threads: compute.threads(),
            limits: engine_limits(&scheduler, &kv),
            settings,
            sampling,
            dry,
            reasoning,
            warmup: warm_up(warmup, &benchmark),
            memory: None,
        },
        host,
        port,
        access,
        reread: Arc::new(move || files.read()),
        origins: server.cors_origin,
        proxies: server.trusted_proxy,
        host_names: server.allowed_host,
        demo: server.demo,
        slot_save_path: server.slot_save_path,
        disk_cache: server.cache_dir.map(|folder| {
            (folder, server.cache_size.map_or(DEFAULT_CACHE_SIZE, |Bytes(bytes)| bytes))
        }),
        limits: RequestLimits {
            body: server.max_body,
            time: Duration::from_secs(server.request_timeout),
        },
        drain: Duration::from_secs(server.drain),
    })
}

/// Refuses options about the prompt cache that need others.
fn check_cache(server: &ServerArgs, scheduler: &SchedulerArgs) -> anyhow::Result<()> {
    if server.cache_size.is_some() && server.cache_dir.is_none() {
        return Err(usage("--cache-size is the size of --cache-dir FOLDER: name the folder"));
    }
    if server.cache_dir.is_some() && !scheduler.enable_radix_cache {
        return Err(usage("--cache-dir is for the prompt cache: it needs the radix cache"));
    }
    if scheduler.read_ahead && !(scheduler.enable_radix_cache && scheduler.exact_history) {
        return Err(usage(
            "--read-ahead fills the prompt cache: it needs the radix cache and exact history",
        ));
    }
    Ok(())
}

/// Returns the drafter of the only model; refuses one where there are `several` models.
fn only_drafter(drafter: &DrafterArgs, several: bool) -> anyhow::Result<Option<DrafterOptions>> {
    let drafter = drafter.options()?;
    if drafter.is_some() && several {
        return Err(usage(
            "--draft-model drafts for one model, but this server has several: `draft_model` in an entry of \
             the list `models` is the drafter of that model",
        ));
    }
    Ok(drafter)
}

/// Returns the models of a folder and a list, or the only one, and its name.
fn served_models(
    server: &ServerArgs,
    model: &ModelArgs,
    (folder, list): (Option<PathBuf>, Vec<ModelEntry>),
    synthetic: bool,
) -> anyhow::Result<(Models, Option<String>)> {
    if server.manage_models && !folder.as_deref().is_some_and(models::is_store) {
        return Err(usage("--manage-models changes the local store: it needs --models store"));
    }
    let mut names = server.served_model_name.iter().cloned();
    let name = names.next();
    let models = ModelSettings {
        args: model,
        folder,
        list,
        keep_alive: server.keep_alive,
        memory_limit: server.memory_limit,
        names: names.collect(),
        aliases: server.alias.clone(),
        any_name: server.any_model,
    };
    let models = models.models()?;
    if models.on_demand && (name.is_some() || synthetic) {
        return Err(usage("--served-model-name and --synthetic are for a server of one model"));
    }
    Ok((models, name))
}

/// Refuses an address that others can reach, if the server is open to everybody.
fn check_host(host: Host, open: bool) -> anyhow::Result<()> {
    if open && !host.is_loopback() {
        return Err(usage(format!(
            "--host {host}: others could use this server. --api-key-file FILE asks them for a key, \
             --insecure lets everybody in"
        )));
    }
    Ok(())
}

/// Returns the function that reads a model, or makes one of this shape, with what these settings may draft
/// with: the drafter, or the block for multi-token prediction.
fn load_model(
    synthetic: Option<Synthetic>,
    settings: &Settings,
    drafter: Option<DrafterOptions>,
) -> LoadModel {
    let (may_use_mtp, may_use_drafter) = (settings.may_use_mtp(), settings.may_use_draft_model());
    Box::new(move |source, runtime, progress| {
        let drafter = source.open.drafter.clone().or(drafter.clone());
        let mtp = may_use_mtp && drafter.is_none();
        let drafter = drafter.filter(|_| may_use_drafter);
        let options = OpenOptions { mtp, drafter, ..source.open.clone() };
        let loaded = Loaded::open(&options, runtime, progress)?;
        Ok(match synthetic {
            None => loaded,
            // No model was named, so this is the one inside the program.
            Some(shape) => shape.loaded().prepared(&options, runtime).with_text_of(loaded),
        })
    })
}

/// Returns the work before the server is ready.
fn warm_up(enabled: bool, benchmark: &BenchmarkArgs) -> Warmup {
    let measured = Benchmark {
        iterations: benchmark.benchmark_iterations.get(),
        max_tokens: benchmark.benchmark_max_tokens.get(),
    };
    Warmup { enabled, benchmark: benchmark.benchmark_enabled.then_some(measured) }
}

fn engine_limits(scheduler: &SchedulerArgs, kv: &KvArgs) -> EngineLimits {
    EngineLimits {
        context: scheduler.context,
        context_shift: scheduler.context_shift,
        sequences: scheduler.max_sequences.get(),
        waiting: scheduler.max_waiting,
        kv_tokens: scheduler.kv_tokens.map(NonZeroUsize::get),
        state_memory: scheduler.state_memory.map(|Bytes(bytes)| bytes),
        kv: kv.config(),
        rows: MAX_BATCH_TOKENS,
        token_time: Duration::from_millis(scheduler.target_token_ms),
        radix_cache: scheduler.enable_radix_cache,
        exact_history: scheduler.exact_history,
        read_ahead: scheduler.read_ahead,
    }
}

/// The files and keys that decide who may connect and how.
struct AccessFiles {
    keys: Vec<String>,
    key_file: Option<PathBuf>,
    certificate: Option<PathBuf>,
    certificate_key: Option<PathBuf>,
}

impl AccessFiles {
    /// Reads the files.
    fn read(&self) -> anyhow::Result<Access> {
        Ok(Access { keys: self.api_keys()?, tls: self.tls()? })
    }

    /// Reads the certificate, if one is configured.
    fn tls(&self) -> anyhow::Result<Option<Tls>> {
        match (&self.certificate, &self.certificate_key) {
            (Some(certificate), Some(key)) => Tls::read(certificate, key).map(Some),
            (None, None) => Ok(None),
            (Some(_), None) => Err(usage("a TLS certificate needs its key: --tls-key FILE")),
            (None, Some(_)) => Err(usage("a TLS key needs its certificate: --tls-cert FILE")),
        }
    }

    /// Reads the API keys of the command line and of the key file.
    fn api_keys(&self) -> anyhow::Result<ApiKeys> {
        let named = |key: &String| NamedKey { key: key.clone(), name: None };
        let mut keys: Vec<NamedKey> = self.keys.iter().map(named).collect();
        if keys.iter().any(|named| named.key.trim().is_empty()) {
            return Err(usage("an API key is empty"));
        }
        if let Some(path) = &self.key_file {
            let name = path.display();
            let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
            let in_file = ApiKeys::in_file(&text);
            // An empty file must not open the server to everybody.
            if in_file.is_empty() && keys.is_empty() {
                return Err(usage(format!("{name} has no key: expected one a line")));
            }
            keys.extend(in_file);
        }
        Ok(ApiKeys::new(keys))
    }
}
