//! A model ready to run, with its text parts.

use crate::args::ModelArgs;
use crate::mapped::Files;
use crate::model_source::Placement;
use crate::{model_source, progress, session};
use anyhow::{Context, anyhow};
use std::sync::Arc;
use std::time::{Duration, Instant};
use wrinklefree::format::{Checkpoint, DlmConfig, GenerationDefaults, TextParts};
use wrinklefree::model::{Model, Runtime};
use wrinklefree::settings::Ability;
use wrinklefree::text::{ChatTemplate, TextError, Tokenizer};

/// Everything that generating text needs.
pub struct Loaded {
    /// Name in output.
    pub name: String,
    /// Shape and weights.
    pub model: Model,
    /// `None`: the model takes and gives ids only.
    pub tokenizer: Option<Arc<Tokenizer>>,
    /// `None`: the model only continues text.
    pub template: Option<ChatTemplate>,
    /// Special ids and recommended sampling.
    pub defaults: GenerationDefaults,
    /// `None`: the files say nothing of block diffusion.
    pub dlm: Option<DlmConfig>,
    /// How long loading took.
    pub time: Duration,
}

/// Reads a checkpoint from a path, a hub id or the program itself: its name, and what it comes from.
pub fn checkpoint(
    model: Option<&str>,
    revision: &str,
    place: Placement,
) -> anyhow::Result<(String, Checkpoint, Files)> {
    let source = model_source::open(model, revision, place)?;
    let _turning = progress::spinner(format!("loading {}", source.name));
    let checkpoint = wrinklefree::format::load(source.files)
        .with_context(|| format!("cannot load {}", model.unwrap_or(&source.name)))?;
    Ok((source.name, checkpoint, source.origin))
}

impl ModelArgs {
    /// The model that these name, without its text, to compute on this runtime.
    pub fn model(&self, runtime: &Runtime) -> anyhow::Result<(String, Model)> {
        let (name, c, origin) = self.checkpoint()?;
        let model = Model::new(c.spec, c.weights);
        let model = model.with_context(|| format!("cannot run {name}"))?;
        Ok((name, self.apply(model, &origin, runtime)))
    }

    /// The checkpoint that these name, its positions stretched as they say.
    fn checkpoint(&self) -> anyhow::Result<(String, Checkpoint, Files)> {
        let (name, mut checkpoint, origin) =
            checkpoint(self.model.as_deref(), &self.hub.revision, self.weights)?;
        if let Some(stretch) = self.rope_scaling {
            stretch.apply(&mut checkpoint.spec);
        }
        Ok((name, checkpoint, origin))
    }
}

/// The tokenizer of a model that embeds so many tokens, if it brings one.
pub fn tokenizer(
    name: &str,
    text: &TextParts,
    embedded: usize,
) -> anyhow::Result<Option<Tokenizer>> {
    let build = |vocabulary| -> Result<_, TextError> {
        let tokenizer = Tokenizer::new(vocabulary)?;
        tokenizer.check(embedded)?;
        Ok(tokenizer)
    };
    let tokenizer = text.vocabulary.as_ref().map(build).transpose();
    tokenizer.with_context(|| format!("cannot use the tokenizer of {name}"))
}

impl Loaded {
    /// Loads model, tokenizer and chat template; the model is to compute on this runtime.
    pub fn open(args: &ModelArgs, runtime: &Runtime) -> anyhow::Result<Self> {
        let start = Instant::now();
        let (name, checkpoint, origin) = args.checkpoint()?;
        let Checkpoint { spec, weights, text, generation, dlm, .. } = checkpoint;
        let model = Model::new(spec, weights).with_context(|| format!("cannot load {name}"))?;
        let model = args.apply(model, &origin, runtime);
        let tokenizer = tokenizer(&name, &text, model.spec().vocab_size)?.map(Arc::new);
        let template = ChatTemplate::new(&text);
        let template =
            template.with_context(|| format!("cannot use the chat template of {name}"))?;
        let (defaults, time) = (generation, start.elapsed());
        Ok(Self { name, model, tokenizer, template, defaults, dlm, time })
    }

    /// The same model, computing as these say on this runtime.
    #[must_use]
    pub fn computing(self, how: &ModelArgs, runtime: &Runtime) -> Self {
        Self { model: how.apply(self.model, &Files::new(Vec::new()), runtime), ..self }
    }

    /// The same weights with the words of another model, of which there are no more.
    pub fn speaking(self, other: Self) -> Self {
        let Self { tokenizer, template, .. } = other;
        Self { tokenizer, template, ..self }
    }

    /// What matters for decoding.
    pub fn ability(&self) -> Ability<'_> {
        Ability {
            name: &self.name,
            dlm: self.dlm.as_ref(),
            tokenizer: self.tokenizer.as_deref(),
            vocab: self.model.spec().vocab_size,
            rows: session::ROWS,
        }
    }

    /// The tokenizer, or what to do without one.
    pub fn tokenizer(&self) -> anyhow::Result<&Tokenizer> {
        self.tokenizer.as_deref().ok_or_else(|| {
            anyhow!(
                "{} has no tokenizer: put its tokenizer.json beside the weights (`wf-run logits` \
                 works on token ids alone)",
                self.name
            )
        })
    }
}
