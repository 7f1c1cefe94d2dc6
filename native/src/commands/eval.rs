//! `wf-run eval`: what a model and its decode modes are worth.

mod activations;
mod agreement;
mod perplexity;

use crate::exit::usage;
use crate::loaded::Loaded;
use std::num::NonZeroUsize;

/// Tokens of a window, when the user does not say.
const WINDOW: usize = 512;

/// Measure quality: of a model on a text, of decode modes on prompts, of thinned activations
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Activations(Box<activations::Args>),
    Agreement(Box<agreement::Args>),
    Perplexity(Box<perplexity::Args>),
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.what {
        What::Activations(args) => activations::run(args),
        What::Agreement(args) => agreement::run(args),
        What::Perplexity(args) => perplexity::run(args),
    }
}

/// The value of `--window`, which cannot exceed what the model holds.
fn window(asked: Option<NonZeroUsize>, loaded: &Loaded) -> anyhow::Result<usize> {
    let longest = loaded.model.spec().context_length;
    let window = asked.map_or(WINDOW.min(longest), NonZeroUsize::get);
    if window > longest || window < 2 {
        return Err(usage(format!(
            "--window {window}: from 2 to {longest}, which the model holds"
        )));
    }
    Ok(window)
}
