//! A drafter: a small net in files of its own that drafts blocks of tokens from hidden states of the model
//! that it was trained for (DFlash, DSpark).

use super::index::TensorIndex;
use super::{LayerWeights, Linear, LoadError, LoadErrorKind as Kind, Spec};
use crate::loader::WeightLoader;
use crate::matrix::Matrix;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The contents of a drafter's files.
#[derive(Clone, Debug)]
pub struct DrafterCheckpoint {
    /// Shape and constants of its layers; the vocabulary is that of its head, or 0 if the files have none.
    pub spec: Spec,
    /// How it drafts.
    pub config: DrafterConfig,
    /// All tensors.
    pub weights: DrafterWeights,
    /// Number of subnormal weights that loading has set to zero.
    pub flushed: usize,
    /// Number of tensors of each element type.
    pub stored_types: BTreeMap<&'static str, usize>,
}

/// How a drafter reads hidden states and drafts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DrafterConfig {
    /// Number of rows in a block: the newest token, then MASK tokens.
    pub block: usize,
    /// Id of the MASK token.
    pub mask: u32,
    /// Layers of the model after which the hidden states are taken, counted from 0, in the order in which
    /// the drafter reads them.
    pub taps: Vec<usize>,
    /// Tokens that the rows of a block predict.
    pub layout: DraftLayout,
    /// True if the files state the layout, false if it was concluded.
    pub layout_stated: bool,
    /// True if a row of a block sees no later ones.
    pub causal: bool,
    /// Smallest and largest logarithm of the signal-to-noise ratio that rows are conditioned on.
    pub log_snr: Option<(f64, f64)>,
    /// Number of positions that a row of each layer sees up to its own, `[layers]`; `None` for all of them.
    /// Later rows of a block are not counted. Empty if no layer has a window.
    pub windows: Vec<Option<usize>>,
    /// Factors and bound of embeddings and logits.
    pub scales: DrafterScales,
}

/// Factors and bound of a drafter's embeddings and logits.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DrafterScales {
    /// Factor of embeddings.
    pub embedding: f32,
    /// Factor of logits.
    pub logit: f32,
    /// Bound c of logits x, which become c · tanh(x / c), after their factor.
    pub logit_cap: Option<f32>,
}

impl Default for DrafterScales {
    fn default() -> Self {
        Self { embedding: 1.0, logit: 1.0, logit_cap: None }
    }
}

impl DrafterScales {
    /// The factors and the bound that files state; those that are left out or 0 have no effect.
    pub(super) fn stated(embedding: Option<f64>, logit: Option<f64>, cap: Option<f64>) -> Self {
        let [embedding, logit, cap] =
            [embedding, logit, cap].map(|x| x.map(|x| x as f32).filter(|x| *x != 0.0));
        Self { embedding: embedding.unwrap_or(1.0), logit: logit.unwrap_or(1.0), logit_cap: cap }
    }

    fn are_finite(&self) -> bool {
        let cap = self.logit_cap.unwrap_or(1.0);
        self.embedding.is_finite() && self.logit.is_finite() && cap.is_finite() && cap > 0.0
    }
}

/// Tokens that the rows of a drafted block predict. The block begins with the newest token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DraftLayout {
    /// A row predicts the token at its own position; the first row predicts nothing.
    DFlash,
    /// A row predicts the token after its position, from the newest token on (`sample_from_anchor`).
    DSpark,
}

impl DraftLayout {
    /// The layouts.
    pub const ALL: [Self; 2] = [Self::DFlash, Self::DSpark];

    /// Name of the layout.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DFlash => "dflash",
            Self::DSpark => "dspark",
        }
    }

    /// The layout of a file that states whether blocks predict from the newest token on, or does not. Then a
    /// Markov head tells DSpark.
    pub(super) fn concluded(from_anchor: Option<bool>, markov: bool) -> Self {
        if from_anchor.unwrap_or(markov) { Self::DSpark } else { Self::DFlash }
    }

    /// Number of rows of a block where the files state none.
    pub(super) fn usual_block(self) -> usize {
        match self {
            Self::DFlash => 16,
            Self::DSpark => 7,
        }
    }

    /// Number of first rows of a block that predict nothing.
    #[must_use]
    pub fn unread_rows(self) -> usize {
        match self {
            Self::DFlash => 1,
            Self::DSpark => 0,
        }
    }
}

impl DrafterConfig {
    /// Describes how the drafter was read, for messages.
    #[must_use]
    pub fn describe(&self) -> String {
        let source = if self.layout_stated {
            "as stated"
        } else {
            "not stated by the files; `--draft-layout` changes it"
        };
        format!(
            "layout {} ({source}), blocks of {}, hidden states after layers {:?}",
            self.layout.name(),
            self.block,
            self.taps
        )
    }
}

/// All tensors of a drafter.
#[derive(Clone, Debug)]
pub struct DrafterWeights {
    /// Projection of the concatenated hidden states, `[hidden_size][taps · hidden size of the model]`.
    pub input: Linear,
    /// RMSNorm of that projection, `[hidden_size]`.
    pub hidden_norm: Vec<f32>,
    /// The layers, first to last; their mixers attend.
    pub layers: Vec<LayerWeights>,
    /// RMSNorm before the head, `[hidden_size]`.
    pub final_norm: Vec<f32>,
    /// Token embeddings, `[vocab_size][hidden_size]`; `None` for those of the model.
    pub embed: Option<Matrix>,
    /// Embedding of MASK tokens, `[hidden_size]`; `None` for their row of the embeddings.
    pub mask_row: Option<Vec<f32>>,
    /// Output head, `[vocab_size][hidden_size]`, or a row for each of the `target_ids`; `None` for that of
    /// the model.
    pub head: Option<Linear>,
    /// Ids of the tokens that the head's rows predict; `None` for all, in their order.
    pub target_ids: Option<Vec<u32>>,
    /// Head that corrects the logits by the token before.
    pub markov: Option<MarkovWeights>,
    /// Head that predicts whether a token is right: `[1][hidden_size + rank]`, with a bias.
    pub confidence: Option<Linear>,
    /// Both matrices of the conditioning on the logarithm of the signal-to-noise ratio.
    pub log_snr: Option<[Linear; 2]>,
}

/// Tensors of a Markov head: logits += next · previous[token before].
#[derive(Clone, Debug)]
pub struct MarkovWeights {
    /// A row for each token that may stand before, `[vocab_size][rank]`.
    pub previous: Matrix,
    /// A row for each row of the head, `[…][rank]`.
    pub next: Linear,
}

impl DrafterWeights {
    /// Its matrices except the embeddings and the Markov head's rows of tokens.
    pub fn linears(&self) -> impl Iterator<Item = &Linear> {
        let layers = self.layers.iter().flat_map(LayerWeights::linears);
        let heads = [self.head.as_ref(), self.confidence.as_ref()].into_iter().flatten();
        let markov = self.markov.iter().map(|markov| &markov.next);
        let snr = self.log_snr.iter().flatten();
        [&self.input].into_iter().chain(layers).chain(heads).chain(markov).chain(snr)
    }

    /// Its matrices that are not linear layers: rows that are looked up.
    pub fn tables(&self) -> impl Iterator<Item = &Matrix> {
        self.embed.iter().chain(self.markov.iter().map(|markov| &markov.previous))
    }

    /// Brings all matrices to their final memory.
    pub fn relocate(&mut self, loader: &mut WeightLoader<'_, '_>) {
        let layers = self.layers.iter_mut().flat_map(LayerWeights::groups_mut).flatten();
        let heads = [self.head.as_mut(), self.confidence.as_mut()].into_iter().flatten();
        let snr = self.log_snr.iter_mut().flatten();
        for linear in [&mut self.input].into_iter().chain(layers).chain(heads).chain(snr) {
            linear.weight = linear.weight.relocate(loader);
        }
        if let Some(MarkovWeights { previous, next }) = &mut self.markov {
            *previous = previous.relocate(loader);
            next.weight = next.weight.relocate(loader);
        }
        if let Some(embed) = &mut self.embed {
            *embed = embed.relocate(loader);
        }
    }

    /// Bytes of all matrices.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let linears = self.linears().map(|linear| linear.weight.bytes());
        linears.chain(self.tables().map(Matrix::bytes)).sum()
    }
}

impl DrafterCheckpoint {
    /// Takes another layout than the files state or let conclude.
    ///
    /// # Errors
    /// When the block is too short for it.
    pub fn with_layout(mut self, layout: DraftLayout) -> Result<Self, LoadError> {
        (self.config.layout, self.config.layout_stated) = (layout, true);
        self.check("drafter")?;
        Ok(self)
    }

    /// Checks the numbers of a configuration, which `file` states.
    pub(super) fn check(&self, file: &str) -> Result<(), LoadError> {
        let config = &self.config;
        let error = |want: String, found: String| LoadError::new(Kind::Value, file, want, found);
        let rows = config.layout.unread_rows() + 1;
        if !(rows..=MOST_ROWS).contains(&config.block) {
            let want = format!("a block of {rows} to {MOST_ROWS} rows");
            return Err(error(want, config.block.to_string()));
        }
        if config.taps.is_empty() || !config.taps.is_sorted_by(|a, b| a < b) {
            let want = "a list of layers of the model in ascending order".to_owned();
            return Err(error(want, format!("{:?}", config.taps)));
        }
        if config.windows.contains(&Some(0)) {
            return Err(error("a sliding window of at least 1".to_owned(), "0".to_owned()));
        }
        if !config.scales.are_finite() {
            let want = "finite factors, and a bound of logits above 0".to_owned();
            return Err(error(want, format!("{:?}", config.scales)));
        }
        match config.log_snr {
            Some((min, max)) if !(min.is_finite() && max.is_finite() && min < max) => Err(error(
                "`min_log_snr` below `max_log_snr`, both finite".into(),
                format!("{min} and {max}"),
            )),
            _ => Ok(()),
        }
    }
}

/// Takes the ids of the tokens that a reduced head predicts. Files state them as they are, or as
/// `differences` from the index of the row. A list of the tokens that have a row is dropped: it says the same.
pub(super) fn take_target_ids(
    index: &mut TensorIndex,
    differences: bool,
) -> Result<Option<Vec<u32>>, LoadError> {
    index.take("t2d");
    let Some(t) = index.take("d2t") else { return Ok(None) };
    let base = |row: usize| if differences { row as i64 } else { 0 };
    let id = |(row, id): (usize, i64)| u32::try_from(id.checked_add(base(row))?).ok();
    let ids: Option<Vec<u32>> = t.integers()?.into_iter().enumerate().map(id).collect();
    let error = || t.error(Kind::Value, "ids of tokens", "an id below 0 or above 4294967295");
    ids.ok_or_else(error).map(Some)
}

/// Most rows of a block.
const MOST_ROWS: usize = 256;
