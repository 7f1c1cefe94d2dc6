//! A model that is ready to run, with its text parts.

use super::engine::MAX_BATCH_TOKENS;
use super::fit::MemoryNeed;
use super::mapped::Files;
use super::source::{self, Source};
use super::{NoTokenizer, OpenError, OpenOptions, Placement, Progress, weight_sizes};
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wrinklefree::format::{
    Checkpoint, DlmConfig, GenerationDefaults, LoadError, LoadOptions, Spec, TextParts, Weights,
};
use wrinklefree::loader::WeightLoader;
use wrinklefree::model::{Model, Runtime};
use wrinklefree::par::Bound;
use wrinklefree::settings::ModelCapabilities;
use wrinklefree::text::{
    ChatTemplate, EndToken, ModelText, TextError, TextOptions, Tokenizer, template_names,
    template_text,
};

/// A model with everything that generating text needs.
pub struct Loaded {
    /// Name in output.
    pub name: String,
    /// Shape and weights.
    pub model: Model,
    /// `None`: the model takes and gives token ids only.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// `None`: the model only continues text.
    pub template: Option<ChatTemplate>,
    /// Special ids and recommended sampling. Its `eos` are the ids of `end_tokens`.
    pub defaults: GenerationDefaults,
    /// Tokens that end a text, with the reasons.
    pub end_tokens: Vec<EndToken>,
    /// `None`: the model's files do not mention block diffusion.
    pub dlm: Option<DlmConfig>,
    /// Time that loading took.
    pub time: Duration,
    /// Options that have no effect on this model, and weights that loading changed, for the caller to
    /// print or log.
    pub warnings: Vec<String>,
}

/// A model without its text parts.
pub struct OpenedWeights {
    /// Name in output.
    pub name: String,
    /// Shape and weights, prepared for the runtime.
    pub model: Model,
    /// Bytes of the weights as the files hold them. The layout that runs here may need others.
    pub stored_bytes: u64,
    /// Options that have no effect on this model, and weights that loading changed, for the caller to
    /// print or log.
    pub warnings: Vec<String>,
}

/// A checkpoint that was read, and the files that its weights come from.
pub struct Opened {
    /// Name in output.
    pub name: String,
    /// Everything that the files hold.
    pub checkpoint: Checkpoint,
    /// The mapped files.
    pub files: Files,
}

/// Reads a checkpoint from a path or a hub id, or the embedded one. The threads of `runtime` check its
/// numbers.
///
/// # Errors
/// If the files cannot be found, downloaded, read or understood, or a weight is not finite.
pub fn checkpoint(
    model: Option<&OsStr>,
    revision: &str,
    placement: Placement,
    load: LoadOptions,
    runtime: &Runtime,
    progress: &mut dyn Progress,
) -> Result<Opened, OpenError> {
    let Source { name, files, mapped } = source::open(model, revision, placement, progress)?;
    let need = MemoryNeed { weights: mapped.copied(&files), ..MemoryNeed::default() };
    let shown = || model.map_or(name.as_str().into(), OsStr::to_string_lossy).into_owned();
    need.check().map_err(|error| OpenError::Memory { model: shown(), source: error })?;
    progress.loading(&name);
    let checkpoint = runtime.thread_pool.run(Bound::Memory, |scope| {
        wrinklefree::format::load_with(files, load, &mut WeightLoader::new(scope, &mapped))
    });
    let checkpoint =
        checkpoint.map_err(|error| OpenError::Format { model: shown(), source: error })?;
    progress.loaded();
    Ok(Opened { name, checkpoint, files: mapped })
}

/// Returns a warning if loading has set subnormal weights to zero.
fn flushed(count: usize) -> Option<String> {
    (count > 0).then(|| {
        format!(
            "{count} subnormal weights (smaller than 1.2e-38) were set to zero: many processors \
             multiply them slowly"
        )
    })
}

/// Returns a warning if the block for multi-token prediction cannot be used.
fn mtp_fault(fault: Option<&LoadError>) -> Option<String> {
    fault.map(|fault| format!("the block for multi-token prediction is not used: {fault}"))
}

/// Builds the tokenizer of a model whose embedding has `embedded` rows; `None`: the model has none.
///
/// # Errors
/// If the vocabulary is broken or larger than the embedding.
pub fn tokenizer(
    name: &str,
    text: &TextParts,
    embedded: usize,
) -> Result<Option<Tokenizer>, OpenError> {
    let build = |vocabulary| -> Result<_, TextError> {
        let tokenizer = Tokenizer::new(vocabulary)?;
        tokenizer.check(embedded)?;
        Ok(tokenizer)
    };
    let tokenizer = text.vocabulary.as_ref().map(build).transpose();
    tokenizer.map_err(|source| OpenError::Tokenizer { model: name.into(), source })
}

/// Makes the model of a checkpoint.
fn model(name: &str, spec: Spec, weights: Weights) -> Result<Model, OpenError> {
    Model::new(spec, weights).map_err(|source| OpenError::Weights { model: name.into(), source })
}

impl OpenOptions {
    /// Opens a model without its text parts.
    ///
    /// # Errors
    /// As [`checkpoint`], or if the weights are inconsistent.
    pub fn open_weights(
        &self,
        runtime: &Runtime,
        progress: &mut dyn Progress,
    ) -> Result<OpenedWeights, OpenError> {
        let Opened { name, checkpoint, files } = self.checkpoint(runtime, progress)?;
        let flushed = flushed(checkpoint.flushed);
        let mtp = mtp_fault(checkpoint.mtp_fault.as_ref());
        let stored_bytes = weight_sizes::bytes(&checkpoint.weights);
        let model = model(&name, checkpoint.spec, checkpoint.weights)?;
        let (model, mut warnings) = self.prepare_from(model, &files, runtime);
        warnings.extend(flushed.into_iter().chain(mtp).chain(checkpoint.notes));
        Ok(OpenedWeights { name, model, stored_bytes, warnings })
    }

    /// Reads the checkpoint, with the RoPE scaling of these options.
    fn checkpoint(
        &self,
        runtime: &Runtime,
        progress: &mut dyn Progress,
    ) -> Result<Opened, OpenError> {
        let (model, revision) = (self.model.as_deref(), &self.revision);
        let load = LoadOptions { mtp: self.mtp };
        let mut opened = checkpoint(model, revision, self.weights, load, runtime, progress)?;
        if let Some(rule) = self.rope_scaling {
            let model = model.map_or_else(String::new, |name| name.to_string_lossy().into());
            rule.apply(&mut opened.checkpoint.spec)
                .map_err(|cause| OpenError::Files { model, cause })?;
        }
        Ok(opened)
    }
}

impl OpenOptions {
    /// Builds the text parts of a model whose files state that the ids `stated` end a text. A chat
    /// template that is neither known by name nor Jinja is read from a file.
    ///
    /// # Errors
    /// If the file cannot be read, or the text parts or these options cannot be used.
    pub fn text(
        &self,
        name: &str,
        parts: TextParts,
        stated: &[u32],
        mask: Option<u32>,
    ) -> Result<ModelText, OpenError> {
        let read = |template: &String| match template_text(template) {
            Some(_) => Ok(template.clone()),
            None => std::fs::read_to_string(template).map_err(|error| OpenError::Template {
                template: template.clone(),
                known: template_names(),
                error,
            }),
        };
        let options = TextOptions {
            allow_control_tokens: self.allow_control_tokens,
            stop_tokens: self.stop_tokens.clone(),
            chat_template: self.chat_template.as_ref().map(read).transpose()?,
            template_fixes: self.template_fixes,
        };
        ModelText::open(parts, stated, mask, &options)
            .map_err(|source| OpenError::Tokenizer { model: name.into(), source })
    }
}

impl Loaded {
    /// Opens model, tokenizer and chat template, to compute on `runtime`.
    ///
    /// # Errors
    /// As [`checkpoint`], or if weights or tokenizer cannot be used.
    pub fn open(
        options: &OpenOptions,
        runtime: &Runtime,
        progress: &mut dyn Progress,
    ) -> Result<Self, OpenError> {
        let start = Instant::now();
        let Opened { name, checkpoint, files } = options.checkpoint(runtime, progress)?;
        let mtp = mtp_fault(checkpoint.mtp_fault.as_ref());
        let Checkpoint { spec, weights, text, mut generation, dlm, flushed: count, notes, .. } =
            checkpoint;
        let model = model(&name, spec, weights)?;
        let (mut model, mut warnings) = options.prepare_from(model, &files, runtime);
        if let Some(drafter) = &options.drafter {
            let (with, concluded) = drafter.add_to(model, runtime, progress)?;
            model = with;
            warnings.extend(concluded);
        }
        warnings.extend(flushed(count).into_iter().chain(mtp).chain(notes));
        let mask = dlm.as_ref().and_then(|dlm| dlm.mask_token_id);
        let ModelText { tokenizer, template, end_tokens, notes } =
            options.text(&name, text, &generation.eos, mask)?;
        if let Some(tokenizer) = &tokenizer {
            let checked = tokenizer.check(model.spec().vocab_size);
            checked.map_err(|source| OpenError::Tokenizer { model: name.clone(), source })?;
        }
        warnings.extend(notes.into_iter().map(|note| format!("{name}: {note}")));
        generation.eos = end_tokens.iter().map(|end| end.id).collect();
        let (defaults, time) = (generation, start.elapsed());
        Ok(Self { name, model, tokenizer, template, defaults, end_tokens, dlm, time, warnings })
    }

    /// Prepares the model for `runtime`, as these options say.
    #[must_use]
    pub fn prepared(self, options: &OpenOptions, runtime: &Runtime) -> Self {
        let (model, warnings) = options.prepare(self.model, runtime);
        Self { model, warnings, ..self }
    }

    /// Replaces tokenizer and chat template by those of `other`, whose vocabulary must not be
    /// larger.
    #[must_use]
    pub fn with_text_of(self, other: Self) -> Self {
        let Self { tokenizer, template, .. } = other;
        Self { tokenizer, template, ..self }
    }

    /// Returns what decode modes need to know of the model.
    pub fn capabilities(&self) -> ModelCapabilities<'_> {
        ModelCapabilities {
            name: &self.name,
            dlm: self.dlm.as_ref(),
            tokenizer: self.tokenizer.as_deref(),
            vocab: self.model.spec().vocab_size,
            rows: MAX_BATCH_TOKENS,
            draft_net: self.model.draft_net(),
        }
    }

    /// Returns the tokenizer.
    ///
    /// # Errors
    /// If the model has none; the message says what to do.
    pub fn tokenizer(&self) -> Result<&Tokenizer, NoTokenizer> {
        self.tokenizer.as_deref().ok_or_else(|| NoTokenizer { model: self.name.clone() })
    }
}
