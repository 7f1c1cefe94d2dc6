//! Options that several commands share.

use crate::exit::usage;
use clap::Args;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use std::num::NonZeroUsize;
use wrinklefree::cache::{KvConfig, KvType, PageSelection};

/// Which model.
#[derive(Args, Debug)]
pub struct ModelArgs {
    /// A directory, a .safetensors or .gguf file, or a hub id: org/name, org/name:QUANT,
    /// org/name/file.gguf [default: the small model inside this program]
    #[arg(id = "model_path", short, long = "model", value_name = "PATH|ID")]
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
    #[arg(short, long, value_name = "N", value_parser = threads())]
    pub threads: Option<usize>,
}

/// What is kept of keys and values, and what is read of them.
#[derive(Args, Clone, Debug)]
#[group(id = "kv")]
#[command(next_help_heading = "KV cache")]
pub struct KvArgs {
    /// Type of the keys and values that are kept: 16 bits take half of the memory of f32, 8 bits a
    /// quarter and a scale per position and head
    #[arg(long, value_name = "TYPE", value_parser = kv_type(), default_value = KvType::F32.name())]
    pub kv_dtype: KvType,
    /// Type of the keys alone [default: that of both]
    #[arg(long, value_name = "TYPE", value_parser = kv_type())]
    pub kv_k: Option<KvType>,
    /// Type of the values alone [default: that of both]
    #[arg(long, value_name = "TYPE", value_parser = kv_type())]
    pub kv_v: Option<KvType>,
    /// What a token attends to, in whole pages of 32 positions: dense (all), window:W or
    /// window:W,sinks:S (the last W positions and the first S), topk:K (the most promising K
    /// positions), threshold:T (pages with T times the weight of the best), dynamic or dynamic:MIN,MAX
    /// (a share of the context that grows with the entropy of the pages' weights)
    #[arg(long, value_name = "WHAT", default_value_t)]
    pub attention: PageSelection,
}

impl KvArgs {
    /// For a pool.
    pub fn config(&self) -> KvConfig {
        KvConfig {
            keys: self.kv_k.unwrap_or(self.kv_dtype),
            values: self.kv_v.unwrap_or(self.kv_dtype),
            selection: self.attention,
        }
    }
}

/// Names of types.
pub fn kv_type() -> impl TypedValueParser<Value = KvType> {
    PossibleValuesParser::new(KvType::ALL.map(KvType::name))
        .map(|name| KvType::parse(&name).expect("it is one of the names"))
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
