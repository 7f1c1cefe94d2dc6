//! From files to a model that answers.

use crate::error::Error;
use crate::threads;
use serde::Deserialize;
use std::sync::Arc;
use wasm_bindgen::prelude::wasm_bindgen;
use wrinklefree::cache::{KvConfig, KvPool, KvType, PAGE, PageSelection, SelectionError};
use wrinklefree::engine::{Engine, EngineConfig};
use wrinklefree::format::{self, Checkpoint, DlmConfig, File, GenerationDefaults};
use wrinklefree::kernel::Kernels;
use wrinklefree::model::{Model, Runtime};
use wrinklefree::settings::Ability;
use wrinklefree::ternary::Layout;
use wrinklefree::text::{ChatTemplate, Tokenizer};

/// Rows of one pass at most: few enough to stop soon on a slow machine.
const ROWS: usize = 128;
/// Positions a sequence may have where the caller does not say: keys and values take memory.
const CONTEXT: usize = 2048;
/// Sequences that run together where the caller does not say.
const SEQUENCES: usize = 8;
/// Bytes of keys and values beyond those of one whole sequence.
const SHARED: usize = 64 << 20;

#[wasm_bindgen]
extern "C" {
    /// Milliseconds, from any beginning.
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn milliseconds() -> f64;
}

/// What the caller says about a session.
#[derive(Deserialize)]
pub struct Options {
    /// The model's name in messages.
    pub name: String,
    /// Members of the thread pool.
    pub threads: usize,
    context: Option<usize>,
    sequences: Option<usize>,
    #[serde(default)]
    kv: Kv,
}

/// Types of keys and values, and what is read of them, by their names; what is not said is
/// [`KvConfig::default()`].
#[derive(Default, Deserialize)]
struct Kv {
    keys: Option<String>,
    values: Option<String>,
    attention: Option<String>,
}

impl Kv {
    fn config(&self) -> Result<KvConfig, Error> {
        let parse = |name: &Option<String>| match name {
            None => Ok(KvConfig::default().keys),
            Some(name) => KvType::parse(name).ok_or_else(|| {
                let names = KvType::ALL.map(KvType::name).join(", ");
                Error::bad_request(format!("kvType: {name:?} is none of {names}"))
            }),
        };
        let selection = self.attention.as_deref().map_or(Ok(PageSelection::Dense), str::parse);
        let selection =
            selection.map_err(|e: SelectionError| Error::bad_request(format!("attention: {e}")))?;
        Ok(KvConfig { keys: parse(&self.keys)?, values: parse(&self.values)?, selection })
    }
}

/// A model ready to run.
pub struct Loaded {
    pub name: String,
    pub threads: usize,
    pub isa: &'static str,
    pub engine: Engine,
    pub tokenizer: Option<Arc<Tokenizer>>,
    pub template: Option<ChatTemplate>,
    pub defaults: GenerationDefaults,
    pub dlm: Option<DlmConfig>,
    /// Bytes of its files.
    pub bytes: usize,
    /// What is kept of keys and values.
    pub kv: KvConfig,
    /// Bytes of its keys and values.
    pub kv_bytes: usize,
}

impl Loaded {
    pub fn open(files: Vec<File>, options: Options) -> Result<Self, Error> {
        let kv = options.kv.config()?;
        let bytes = files.iter().map(|f| f.bytes.len()).sum();
        let Checkpoint { spec, weights, text, generation, dlm, .. } = format::load(files)?;
        let tokenizer = match &text.vocabulary {
            Some(vocabulary) => Some(Arc::new(Tokenizer::new(vocabulary)?)),
            None => None,
        };
        let template = ChatTemplate::new(&text)?;
        let kernels = Kernels::best();
        let runtime = Runtime { kernels, thread_pool: threads::thread_pool(options.threads)? };
        let model = Model::new(spec, weights)?.with_layout(Layout::TwoBit, &runtime);
        if let Some(tokenizer) = &tokenizer {
            tokenizer.check(model.spec().vocab_size)?;
        }
        let row_cost = match dlm.as_ref().is_some_and(|d| d.ar_path) {
            true => model.row_cost(&runtime, kv, || milliseconds() / 1e3)?,
            false => 0.0,
        };
        let config = sizes(&model, &options, kv, row_cost);
        let kv_bytes = KvPool::bytes(model.spec(), config.pages, &config.kv);
        let engine = Engine::new(model, tokenizer.clone(), runtime, config)?;
        Ok(Self {
            name: options.name,
            threads: options.threads.max(1),
            isa: kernels.isa().name(),
            engine,
            tokenizer,
            template,
            defaults: generation,
            dlm,
            bytes,
            kv,
            kv_bytes,
        })
    }

    /// What matters for decoding.
    pub fn ability(&self) -> Ability<'_> {
        Ability {
            name: &self.name,
            dlm: self.dlm.as_ref(),
            tokenizer: self.tokenizer.as_deref(),
            vocab: self.engine.model().spec().vocab_size,
            rows: ROWS,
        }
    }

    pub fn tokenizer(&self) -> Result<&Tokenizer, Error> {
        self.tokenizer.as_deref().ok_or_else(|| {
            let name = &self.name;
            Error::new(
                "no_tokenizer",
                format!("{name} has no tokenizer: add its tokenizer.json to the files"),
            )
        })
    }
}

/// Pages for one whole sequence, and for more as far as memory is shared out freely.
fn sizes(model: &Model, options: &Options, kv: KvConfig, row_cost: f32) -> EngineConfig {
    let longest = model.spec().context_length;
    let context = options.context.unwrap_or(CONTEXT).min(longest).max(1);
    let sequences = options.sequences.unwrap_or(SEQUENCES).max(1);
    let whole = context.div_ceil(PAGE);
    let more = SHARED / KvPool::bytes(model.spec(), 1, &kv).max(1);
    EngineConfig {
        context,
        pages: (whole * sequences).min(whole + more),
        sequences,
        rows: ROWS,
        row_cost,
        prefix_cache: true,
        kv,
    }
}
