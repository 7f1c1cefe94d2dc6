//! Options that several commands share.

use clap::Args;
use std::num::NonZeroUsize;

/// Which model.
#[derive(Args, Debug)]
pub struct ModelArgs {
    /// A directory, a .safetensors or .gguf file, or a hub id: org/name, org/name:QUANT,
    /// org/name/file.gguf [default: the small model inside this program]
    #[arg(short, long, value_name = "PATH|ID")]
    pub model: Option<String>,
    #[command(flatten)]
    pub hub: HubArgs,
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
    #[arg(short, long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
}
