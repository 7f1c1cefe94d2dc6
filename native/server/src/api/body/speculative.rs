//! llama-server's fields of speculative decoding. None of them changes the text.

use crate::error::ApiError;
use serde::Deserialize;
use std::num::NonZeroUsize;
use utoipa::ToSchema;
use wrinklefree::decode::{DecodeMode, DraftNetKind, Drafter};
use wrinklefree::settings::{Draft, Settings};

/// Longest draft that a request can ask for.
const MAX_DRAFT: i64 = 64;

/// Fields of speculative decoding, under llama-server's names.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct SpeculativeFields {
    /// Maximum number of tokens of a draft. 0 drafts nothing.
    #[serde(rename = "speculative.n_max")]
    n_max: Option<i64>,
    /// Confidence below which a drafter's drafts end, for drafters with a confidence head.
    #[serde(rename = "speculative.p_min")]
    #[schema(minimum = 0, maximum = 1)]
    p_min: Option<f32>,
    /// Source of drafts; `none` drafts nothing.
    #[serde(rename = "speculative.type")]
    kind: Option<SpeculativeType>,
}

/// Source of drafts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SpeculativeType {
    /// No drafts.
    None,
    /// The server's draft model.
    #[serde(alias = "draft-simple", alias = "draft-dflash", alias = "draft-dspark")]
    Draft,
    /// The model's block for multi-token prediction.
    #[serde(alias = "mtp")]
    DraftMtp,
    /// Tokens that followed the same tokens before.
    #[serde(alias = "ngram_simple")]
    NgramSimple,
    /// A denoising pass of the model.
    Denoise,
}

impl SpeculativeType {
    /// Returns the type of a mode's drafts.
    pub fn of(mode: &DecodeMode) -> &'static str {
        match mode {
            DecodeMode::Verify { drafter, .. } => match drafter {
                Drafter::Denoise { .. } => "denoise",
                Drafter::Ngram { .. } => "ngram-simple",
                Drafter::Net { net, .. } => match net.kind {
                    DraftNetKind::Mtp => "draft-mtp",
                    DraftNetKind::Blocks => "draft",
                },
            },
            _ => "none",
        }
    }

    fn draft(self) -> Option<Draft> {
        match self {
            Self::None => None,
            Self::Draft => Some(Draft::Model),
            Self::DraftMtp => Some(Draft::Mtp),
            Self::NgramSimple => Some(Draft::Ngram),
            Self::Denoise => Some(Draft::Denoise),
        }
    }
}

impl SpeculativeFields {
    /// Returns true if a source of drafts is named.
    pub fn names_drafts(&self) -> bool {
        self.kind.is_some_and(|kind| kind != SpeculativeType::None)
    }

    /// Returns the settings with the source and the length of drafts.
    ///
    /// # Errors
    /// If the settings name another source.
    pub fn settings(&self, settings: Settings) -> Result<Settings, ApiError> {
        let asked = self.kind.and_then(SpeculativeType::draft);
        if let (Some(own), Some(asked)) = (settings.draft, asked)
            && own != asked
        {
            let message = "`speculative.type` and `draft` name different sources: leave one out";
            return Err(ApiError::bad("speculative.type", message));
        }
        let length = self.n_max.and_then(|n| NonZeroUsize::new(n.clamp(0, MAX_DRAFT) as usize));
        let (draft, draft_length) = (settings.draft.or(asked), length.or(settings.draft_length));
        Ok(Settings { draft, draft_length, ..settings })
    }

    /// Applies what depends on the mode: whether it drafts, and where its drafts end.
    ///
    /// # Errors
    /// If the least confidence is out of range, or the drafter has no confidence head.
    pub fn apply(&self, mode: &mut DecodeMode) -> Result<(), ApiError> {
        let bad = |message: String| Err(ApiError::bad("speculative.p_min", message));
        let least = self.p_min.unwrap_or(0.0);
        if !(0.0..=1.0).contains(&least) {
            return bad(format!("`speculative.p_min` is {least}: it must be from 0 to 1"));
        }
        let DecodeMode::Verify { drafter, .. } = mode else { return Ok(()) };
        if self.n_max.is_some_and(|n| n <= 0) || self.kind == Some(SpeculativeType::None) {
            *mode = DecodeMode::Autoregressive;
            return Ok(());
        }
        match drafter {
            _ if least == 0.0 => Ok(()),
            Drafter::Net { net, threshold, .. } if net.confident => {
                *threshold = least;
                Ok(())
            }
            _ => bad(
                "`speculative.p_min` needs a drafter with a confidence head, which this server does \
                 not draft with: leave it out, or send 0"
                    .into(),
            ),
        }
    }
}
