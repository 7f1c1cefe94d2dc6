//! `wf-run eval`: what a model and its decode modes are worth.

mod agreement;
mod kv;
mod perplexity;

/// Measure quality: of a model on a text, or of decode modes on prompts
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    Agreement(Box<agreement::Args>),
    Kv(Box<kv::Args>),
    Perplexity(Box<perplexity::Args>),
}

/// Runs the command.
pub fn run(args: &Args) -> anyhow::Result<()> {
    match &args.what {
        What::Agreement(args) => agreement::run(args),
        What::Kv(args) => kv::run(args),
        What::Perplexity(args) => perplexity::run(args),
    }
}
