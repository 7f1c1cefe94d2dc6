//! Options for opening a model: its location, and how its weights and logits are used.

use super::drafter::DrafterOptions;
use super::mapped::Files;
use super::rope_scaling::RopeRule;
use super::source::Placement;
use std::ffi::OsString;
use std::time::Instant;
use wrinklefree::loader::WeightSource;
use wrinklefree::model::{Model, Runtime, Sparsity};
use wrinklefree::ternary::Layout;

/// Options for opening a model.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// A path or a hub id; `None`: the embedded model.
    pub model: Option<OsString>,
    /// Branch, tag or commit on the hub.
    pub revision: String,
    /// RoPE scaling instead of the one that the model's files ask for.
    pub rope_scaling: Option<RopeRule>,
    /// Rule that sets inputs of ternary layers to zero.
    pub activation_sparsity: Sparsity,
    /// Accuracy of the logits.
    pub logits: Logits,
    /// Accuracy of the activations of matrices that were not trained with eight bits.
    pub activations: ActivationBits,
    /// Layout of ternary weights in memory.
    pub layout: LayoutChoice,
    /// Place of the weights of a packed file.
    pub weights: Placement,
    /// True if control tokens that stand in messages act as such; else they are text there.
    pub allow_control_tokens: bool,
    /// True to load the block for multi-token prediction, if the model has one:
    /// [`Settings::may_use_mtp`](wrinklefree::settings::Settings::may_use_mtp).
    pub mtp: bool,
    /// The drafter to load, if decoding may use one:
    /// [`Settings::may_use_draft_model`](wrinklefree::settings::Settings::may_use_draft_model).
    pub drafter: Option<DrafterOptions>,
    /// Tokens that end a text in addition to those of the model's files and those that are known by name: exact
    /// names, or ids.
    pub stop_tokens: Vec<String>,
    /// Chat template instead of that of the model's files: a known name, a file, or Jinja.
    pub chat_template: Option<String>,
    /// True if chat templates that are known to be wrong are replaced, with a warning.
    pub template_fixes: bool,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            model: None,
            revision: "main".into(),
            rope_scaling: None,
            activation_sparsity: Sparsity::default(),
            logits: Logits::default(),
            activations: ActivationBits::default(),
            layout: LayoutChoice::default(),
            weights: Placement::default(),
            allow_control_tokens: false,
            mtp: false,
            drafter: None,
            stop_tokens: Vec::new(),
            chat_template: None,
            template_fixes: true,
        }
    }
}

/// Layout of ternary weights in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayoutChoice {
    /// The layout that decodes faster on this machine.
    #[default]
    Auto,
    /// Four weights in a byte.
    TwoBit,
    /// Three weights in five bits.
    Tight,
    /// Eight weights in a byte, where none is zero.
    OneBit,
}

impl LayoutChoice {
    /// All choices.
    pub const ALL: &[Self] = &[Self::Auto, Self::TwoBit, Self::Tight, Self::OneBit];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::TwoBit => Layout::TwoBit.name(),
            Self::Tight => Layout::Tight.name(),
            Self::OneBit => Layout::OneBit.name(),
        }
    }
}

/// Accuracy of the logits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Logits {
    /// All of them exactly.
    #[default]
    Exact,
    /// Those of promising tokens exactly, the others approximately.
    Screened,
}

impl Logits {
    /// All choices.
    pub const ALL: &[Self] = &[Self::Exact, Self::Screened];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Screened => "screened",
        }
    }
}

/// Accuracy of the activations of quantized matrices that were not trained with eight bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ActivationBits {
    /// 8 bits for matrices in a rotated basis, whose inputs have no outliers, and 15 bits for others.
    #[default]
    Auto,
    /// 15 bits, in two planes.
    Exact,
    /// 8 bits, with a scale per row and group of columns where the weights have groups: half of the
    /// arithmetic.
    Int8,
}

impl ActivationBits {
    /// All choices.
    pub const ALL: &[Self] = &[Self::Auto, Self::Exact, Self::Int8];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Exact => "exact",
            Self::Int8 => "int8",
        }
    }
}

impl OpenOptions {
    /// Prepares a model that is in memory already, such as a synthetic one, for `runtime`. Returns
    /// warnings about options that have no effect on it.
    pub fn prepare(&self, model: Model, runtime: &Runtime) -> (Model, Vec<String>) {
        self.prepare_from(model, &Files::new(Vec::new()), runtime)
    }

    /// Loads the weights of `model` from `source` in the layout that these options ask for. The
    /// threads of `runtime` copy the weights that they will read.
    pub fn prepare_from(
        &self,
        model: Model,
        source: &dyn WeightSource,
        runtime: &Runtime,
    ) -> (Model, Vec<String>) {
        let begin = Instant::now();
        let model = match self.activations {
            ActivationBits::Auto => model.with_int8_rotated_activations(),
            ActivationBits::Exact => model,
            ActivationBits::Int8 => model.with_int8_activations(),
        };
        let layout = match self.layout {
            LayoutChoice::Auto => {
                model.fastest_layout(runtime, source, || begin.elapsed().as_secs_f64())
            }
            LayoutChoice::TwoBit => Layout::TwoBit,
            LayoutChoice::Tight => Layout::Tight,
            LayoutChoice::OneBit => Layout::OneBit,
        };
        let screened = self.logits == Logits::Screened;
        let mut model = model.repack(layout, screened, runtime, source);
        model.sparsity = self.activation_sparsity;
        let mut warnings = Vec::new();
        let asked = matches!(self.layout, LayoutChoice::Tight | LayoutChoice::OneBit);
        if asked && !model.has_layout(layout) {
            let (isa, name) = (runtime.kernels.isa().name(), self.layout.name());
            let why = if runtime.kernels.reads(layout) {
                format!("no matrix of this model fits the {name} layout")
            } else {
                format!("{isa} kernels do not read the {name} layout here")
            };
            warnings.push(format!("{why}: weights are kept in two bits"));
        }
        if screened && !model.is_screened() {
            warnings.push(
                "this head is not int8, or its vocabulary is small: all logits are exact".into(),
            );
        }
        (model, warnings)
    }
}
