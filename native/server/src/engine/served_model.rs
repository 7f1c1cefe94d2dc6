//! The loaded model, as request handlers see it.

use super::disk_cache::{DiskCache, PromptFiles};
use super::exact_history::ExactHistory;
use super::grammars::GrammarCompiler;
use super::slots::Slots;
use super::thread::EngineHandle;
use crate::error::ApiError;
use ring::digest::{Context, SHA256};
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use tokio::sync::Semaphore;
use wf_run_cli::config::DryArgs;
use wrinklefree::cache::KvConfig;
use wrinklefree::decode::{DecodeMode, DraftNet};
use wrinklefree::format::{DlmConfig, DrafterConfig, GenerationDefaults, Spec, Weights};
use wrinklefree::model::Sparsity;
use wrinklefree::settings::{ModelCapabilities, Reasoning, Sampling, Settings};
use wrinklefree::ternary::Layout;
use wrinklefree::text::{ChatTemplate, Tokenizer};
use wrinklefree_easy::machine::Threads;
use wrinklefree_easy::models::engine::MAX_BATCH_TOKENS;
use wrinklefree_easy::models::weight_sizes;

/// A loaded model and its settings.
pub struct ServedModel {
    /// Name in requests and responses.
    pub name: String,
    /// Unix time in seconds at which it was loaded.
    pub created: u64,
    /// Submits requests to the engine.
    pub engine: EngineHandle,
    /// Tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Chat template; `None` if the model has none.
    pub template: Option<ChatTemplate>,
    /// Generation defaults from the model's files.
    pub defaults: GenerationDefaults,
    /// Block-diffusion parameters from the model's files.
    pub dlm: Option<DlmConfig>,
    /// Decode settings for requests that do not set their own.
    pub settings: Settings,
    /// Samplers of requests that do not set their own.
    pub sampling: Sampling,
    /// Settings of DRY for requests that do not set their own.
    pub dry: DryArgs,
    /// Settings of reasoning for requests that do not set their own.
    pub reasoning: Reasoning,
    /// Shape of the model.
    pub spec: Spec,
    /// Size of its weights.
    pub size: ModelSize,
    /// Vocabulary size.
    pub vocab: usize,
    /// True for the long list of LongRoPE, false for the short one; `None` without LongRoPE.
    pub long_rope: Option<bool>,
    /// The net that drafts from its hidden states, if it has one.
    pub draft_net: Option<DraftNet>,
    /// How its drafter was read, if it has one.
    pub drafter: Option<DrafterConfig>,
    /// Maximum number of positions per sequence.
    pub context: usize,
    /// Slots of running requests.
    pub slots: Arc<Slots>,
    /// Types of the KV cache and the attention sparsity.
    pub kv: KvConfig,
    /// Rule that zeroes small activations.
    pub activation_sparsity: Sparsity,
    /// Layout of the ternary weights.
    pub layout: Layout,
    /// True if only shortlisted tokens get exact logits.
    pub screened: bool,
    /// Number of tokens kept when a full context shifts; `None` if it does not shift.
    pub context_shift: Option<usize>,
    /// Instruction set of the kernels.
    pub isa: &'static str,
    /// Compute threads.
    pub threads: Threads,
    /// Compiles the grammars of requests.
    pub grammars: Arc<GrammarCompiler>,
    /// Its part of the prompt cache on disk, if there is one.
    pub files: Option<PromptFiles>,
    /// Permit of the prompt that is prepared to be read ahead; `None` if none is.
    pub reading_ahead: Option<Semaphore>,
    /// Tokens of its last answers; `None` if prompts are always tokenized anew.
    pub history: Option<Arc<ExactHistory>>,
}

/// The parts of a model that an answer needs. It keeps no engine: a model can be unloaded while clients still
/// read its answers.
#[derive(Clone)]
pub struct ModelLabel {
    /// Name in responses.
    pub name: String,
    /// Tokenizer.
    pub tokenizer: Arc<Tokenizer>,
    /// Maximum number of positions per sequence.
    pub context: usize,
}

/// Size of a model's weights.
#[derive(Clone, Debug)]
pub struct ModelSize {
    /// Number of parameters.
    pub parameters: u64,
    /// Bytes in memory.
    pub bytes: u64,
    /// Element type that most parameters have.
    pub quantization: String,
    /// Digest of norms and of some rows of all matrices, which tells models of the same shape apart.
    pub fingerprint: String,
    /// Quantizations of the inputs of its matrices, each once.
    pub activations: String,
}

impl ModelSize {
    /// Measures weights.
    pub fn of(weights: &Weights) -> Self {
        let groups = weight_sizes::groups(weights);
        let mut kinds: HashMap<&str, u64> = HashMap::new();
        for group in &groups {
            *kinds.entry(&group.kind).or_default() += group.parameters;
        }
        let most = kinds.into_iter().max_by_key(|&(kind, parameters)| (parameters, kind));
        Self {
            parameters: groups.iter().map(|group| group.parameters).sum(),
            bytes: groups.iter().map(|group| group.bytes).sum(),
            quantization: most.map_or_else(String::new, |(kind, _)| kind.into()),
            fingerprint: fingerprint(weights),
            activations: activations(weights),
        }
    }
}

fn activations(weights: &Weights) -> String {
    let linears = weights.layers.iter().flat_map(weight_sizes::linears);
    let names: BTreeSet<String> =
        linears.map(|(_, linear)| format!("{:?}", linear.activations)).collect();
    names.into_iter().collect::<Vec<_>>().join(" ")
}

/// Returns a digest of norms and of rows of all matrices, the same for every layout.
fn fingerprint(weights: &Weights) -> String {
    let mut digest = Context::new(&SHA256);
    let mut add = |floats: &[f32]| {
        let bytes: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
        digest.update(&bytes);
    };
    let norms = weights.layers.iter().flat_map(weight_sizes::norms).map(|(_, norm)| norm);
    norms.chain([&weights.final_norm[..]]).for_each(&mut add);
    let of_layers = weights.layers.iter().flat_map(weight_sizes::linears);
    let matrices = of_layers.map(|(_, linear)| &linear.weight).chain([&weights.embed]);
    for matrix in matrices {
        let (rows, mut row) = (matrix.rows(), vec![0.0; matrix.cols()]);
        for index in [0, rows / 3, rows * 2 / 3, rows.saturating_sub(1)] {
            matrix.row_f32(index, &mut row);
            add(&row);
        }
    }
    digest.finish().as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl ServedModel {
    /// Returns what answers need of the model.
    pub fn label(&self) -> ModelLabel {
        let (name, tokenizer) = (self.name.clone(), self.tokenizer.clone());
        ModelLabel { name, tokenizer, context: self.context }
    }

    /// Returns the files of this model in the prompt cache on disk.
    pub fn prompt_files(&self, cache: &Arc<DiskCache>) -> PromptFiles {
        PromptFiles::new(cache, &self.cache_identity().to_string(), &self.spec, &self.kv)
    }

    /// Returns what decides the bytes of the prompt cache.
    pub fn cache_identity(&self) -> Value {
        let mut identity = json!({
            "spec": self.spec,
            "fingerprint": self.size.fingerprint,
            "keys": self.kv.keys.name(),
            "values": self.kv.values.name(),
            "attention": self.kv.selection.to_string(),
            "activations": self.size.activations,
            "isa": self.isa,
            "sparsity": self.activation_sparsity.to_string(),
            "long_rope": self.long_rope,
        });
        if let Some(drafter) = &self.drafter {
            identity["drafter"] = json!([drafter, format!("{:?}", self.kv.drafter)]);
        }
        identity
    }

    /// Returns true if it has recurrent states, which the prefix cache keeps at few positions only.
    pub fn is_recurrent(&self) -> bool {
        self.spec.linear_attention.is_some()
    }

    /// Returns true if it answers by block diffusion unless a request says otherwise.
    pub fn denoises(&self) -> bool {
        matches!(self.settings.mode(&self.capabilities()), Ok(DecodeMode::Diffusion(_)))
    }

    /// Returns true if a request's `model` field means this model.
    pub fn has_name(&self, name: &str) -> bool {
        let name = name.strip_suffix(":latest").unwrap_or(name);
        name == self.name || name == "default"
    }

    /// Converts a text that came in the field `param` to tokens. With `special`, the model's special
    /// tokens are added around it.
    ///
    /// # Errors
    /// If the text is longer than any that fits the context, or the tokenizer fails.
    pub fn encode(&self, text: &str, special: bool, param: &str) -> Result<Vec<u32>, ApiError> {
        self.check_length(text, self.context, param)?;
        self.tokenizer.encode(text, special).map_err(|e| ApiError::bad(param, e.to_string()))
    }

    /// Refuses a text that must have more than `tokens` tokens. Tokenizing takes time and about 30
    /// times the memory of the text, so hopeless texts are refused before.
    ///
    /// # Errors
    /// 400 `context_length_exceeded`.
    pub fn check_length(&self, text: &str, tokens: usize, param: &str) -> Result<(), ApiError> {
        let least = self.tokenizer.least_tokens(text.len());
        if least <= tokens {
            return Ok(());
        }
        Err(ApiError::overflow(param, least, tokens))
    }

    /// Returns the properties that decode settings are resolved against.
    pub fn capabilities(&self) -> ModelCapabilities<'_> {
        ModelCapabilities {
            name: &self.name,
            dlm: self.dlm.as_ref(),
            tokenizer: Some(&self.tokenizer),
            vocab: self.vocab,
            rows: MAX_BATCH_TOKENS,
            draft_net: self.draft_net,
        }
    }
}
