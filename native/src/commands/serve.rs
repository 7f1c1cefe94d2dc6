//! `wf-run serve`: the model over HTTP.

use crate::args::{ComputeArgs, ModelArgs};
use crate::decoding::DecodeArgs;
use crate::exit::usage;
use crate::loaded::Loaded;
use crate::serve::{self, Keys, Limits, Options, Sizes, log};
use crate::{machine, session};
use anyhow::Context;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

/// Serve a model over HTTP, for OpenAI's clients
///
/// Answers /v1/chat/completions, /v1/completions and more. Many requests are answered at the same
/// time, in shared forward passes; each gets the text that it would get alone. Ctrl-C or SIGTERM
/// lets running requests finish.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  wf-run serve
  wf-run serve --model ./my-model --host 0.0.0.0 --port 8080 --api-key-file keys.txt
  curl http://127.0.0.1:30000/v1/chat/completions -H 'content-type: application/json' \\
    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'")]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Name that requests know the model by [default: its own]
    #[arg(long, value_name = "NAME")]
    served_model_name: Option<String>,
    /// Address to listen on
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Port to listen on; 0 takes any
    #[arg(long, value_name = "PORT", default_value_t = 30000)]
    port: u16,
    /// Key that requests must bring; may be repeated. On a command line others can see it
    #[arg(long, value_name = "KEY")]
    api_key: Vec<String>,
    /// File with keys, one a line
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,
    /// Listen on an address that others can reach, without a key
    #[arg(long)]
    insecure: bool,
    /// Positions a sequence may have [default: the model's, at most 4096]
    #[arg(short, long, value_name = "N")]
    context: Option<NonZeroUsize>,
    /// Sequences that run at the same time
    #[arg(long, value_name = "N", default_value = "16")]
    max_sequences: NonZeroUsize,
    /// Requests that wait; more get status 429
    #[arg(long, value_name = "N", default_value = "128")]
    max_waiting: usize,
    /// Positions of all sequences together [default: as many as they may have, in half of the memory]
    #[arg(long, value_name = "N")]
    kv_tokens: Option<NonZeroUsize>,
    /// Bytes of a request at most
    #[arg(long, value_name = "N", default_value = "4194304")]
    max_body: usize,
    /// Seconds until an answer must be complete
    #[arg(long, value_name = "SECONDS", default_value = "600")]
    request_timeout: u64,
    /// Seconds that running requests get when the server is to end
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    drain: u64,
    /// How log lines look
    #[arg(long, value_enum, default_value_t)]
    log: log::Format,
    #[command(flatten)]
    compute: ComputeArgs,
    #[command(flatten)]
    decoding: DecodeArgs,
}

/// Runs the command.
pub fn run(args: Args) -> anyhow::Result<()> {
    let keys = keys(&args)?;
    if keys.is_empty() && !args.host.is_loopback() && !args.insecure {
        return Err(usage(format!(
            "--host {}: others could use this server. --api-key-file FILE asks them for a key, \
             --insecure lets everybody in",
            args.host
        )));
    }
    log::start(args.log);
    // Wrong kernels and settings are said before anything listens.
    machine::kernels()?;
    let (settings, model) = (args.decoding.settings()?, args.model);
    serve::run(Options {
        load: Box::new(move || Loaded::open(&model)),
        name: args.served_model_name,
        host: args.host,
        port: args.port,
        keys,
        limits: Limits { body: args.max_body, time: Duration::from_secs(args.request_timeout) },
        drain: Duration::from_secs(args.drain),
        threads: machine::threads(&args.compute),
        engine: Sizes {
            context: args.context.map(NonZeroUsize::get),
            sequences: args.max_sequences.get(),
            waiting: args.max_waiting,
            kv_tokens: args.kv_tokens.map(NonZeroUsize::get),
            rows: session::ROWS,
        },
        settings,
    })
}

fn keys(args: &Args) -> anyhow::Result<Keys> {
    let mut keys = args.api_key.clone();
    if let Some(path) = &args.api_key_file {
        let name = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
        keys.extend(text.lines().map(Into::into));
        if Keys::new(keys.clone()).is_empty() {
            return Err(usage(format!("{name} has no key: expected one a line")));
        }
    }
    Ok(Keys::new(keys))
}
