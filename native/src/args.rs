//! Options that several commands share.

use crate::exit::usage;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use std::num::NonZeroUsize;
use wrinklefree::model::Sparsity;

/// Which model.
#[derive(Args, Debug)]
pub struct ModelArgs {
    /// A directory, a .safetensors or .gguf file, or a hub id: org/name, org/name:QUANT,
    /// org/name/file.gguf [default: the small model inside this program]
    #[arg(id = "model_path", short, long = "model", value_name = "PATH|ID")]
    pub model: Option<String>,
    #[command(flatten)]
    pub hub: HubArgs,
    /// Which inputs of ternary layers stay, all others become zero: off (all stay), threshold:T (what
    /// is at least T times a row's largest), topk:R (the share R that is largest), adaptive (the
    /// fewest that hold 99 % of a row's Σx²); with @down behind it only in front of down_proj. AVX2
    /// skips blocks of zeros, other kernels do not. None pays on the model inside this
    /// program, which gets 0.87 to 0.99 times as fast (`wf-run eval activations`)
    #[arg(long, value_name = "RULE", default_value_t)]
    pub activation_sparsity: Sparsity,
}

/// Where on the hub.
#[derive(Args, Debug)]
pub struct HubArgs {
    /// Branch, tag or commit of a model on the hub
    #[arg(long, value_name = "REV", default_value = "main")]
    pub revision: String,
}

/// What to compute on. The environment variable `WF_ISA` chooses the kernels.
#[derive(Args, Debug)]
pub struct ComputeArgs {
    /// Threads [default: one per available core]
    #[arg(short, long, value_name = "N", value_parser = threads())]
    pub threads: Option<usize>,
}

/// Numbers of threads that make sense: more than machines have cores only hang.
pub fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=1024)
}

/// Positions when the user does not say: plenty for a conversation, modest in memory.
const CONTEXT: usize = 4096;

/// The value of `--context`, which cannot exceed what the model holds.
pub fn context(asked: Option<NonZeroUsize>, longest: usize) -> anyhow::Result<usize> {
    let context = asked.map_or(CONTEXT.min(longest), NonZeroUsize::get);
    if context > longest {
        return Err(usage(format!("--context {context}: the model holds {longest} positions")));
    }
    Ok(context)
}
