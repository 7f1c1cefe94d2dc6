//! `wf-run eval`: what a model and its decode modes are worth.

mod activations;
mod agreement;
mod kv;
mod modes;
mod perplexity;
mod quality;

use wf_run_cli::args;
use wf_run_cli::exit::usage;
use wrinklefree_easy::models::Loaded;

/// Tokens of a window, when the user does not say.
const WINDOW: usize = 512;

/// Measure quality: of models, decode modes, KV caches and sparsity
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Activations(Box<activations::Args>),
    Agreement(Box<agreement::Args>),
    Kv(Box<kv::Args>),
    Perplexity(Box<perplexity::Args>),
    Quality(Box<quality::Args>),
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.what {
        What::Activations(args) => activations::run(args),
        What::Agreement(args) => agreement::run(args),
        What::Kv(args) => kv::run(args),
        What::Perplexity(args) => perplexity::run(args),
        What::Quality(args) => quality::run(args),
    }
}

/// Returns the value of `--window`, and warns if it is more than the model was trained for.
fn window(asked: Option<usize>, loaded: &Loaded) -> anyhow::Result<usize> {
    let spec = loaded.model.spec();
    let window = asked.unwrap_or(WINDOW.min(spec.context_length));
    if window < 2 {
        return Err(usage(format!("--window {window}: 2 at least")));
    }
    args::warn_beyond(window, spec);
    Ok(window)
}
