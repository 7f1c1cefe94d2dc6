//! Holes between two texts. A model fills them that was trained with tokens around prefix and suffix, or
//! that denoises blocks: it sees both sides of a block.

use super::{Mode, Settings};
use crate::decode::DecodeMode;
use crate::text::{FimTokens, TextError, Tokenizer};

/// A hole, as a model fills it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hole {
    /// The model fills it by tokens around the texts.
    Tokens {
        /// Further tokens that end the output.
        ends: Vec<u32>,
    },
    /// The model fills it by block diffusion.
    Diffusion {
        /// Tokens after the hole.
        suffix: Vec<u32>,
    },
}

/// Error: a hole cannot be filled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HoleError {
    /// The model has no tokens for holes and does not denoise blocks.
    #[error(
        "suffix: {model} cannot fill a hole: its tokenizer has no tokens for it, such as <|fim_prefix|>, \
         and it is not a block-diffusion model"
    )]
    Unsupported {
        /// Name of the model.
        model: String,
    },
    /// The decode mode sees one side of a hole.
    #[error(
        "decode_mode {} cannot fill a hole with this model: use iterative, or leave it out",
        .0.name()
    )]
    Mode(Mode),
    /// A text could not be tokenized.
    #[error(transparent)]
    Text(#[from] TextError),
}

impl HoleError {
    /// Returns a stable code for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unsupported { .. } => "unsupported",
            Self::Mode(_) => "bad_decoding_parameter",
            Self::Text(error) => error.code(),
        }
    }
}

impl Hole {
    /// Returns the hole between two texts, and the tokens of the prompt. `model` is the model's name;
    /// `denoises` is true for models of block diffusion.
    ///
    /// # Errors
    /// If the model cannot fill holes, or a text cannot be tokenized.
    pub fn new(
        (model, tokenizer, denoises): (&str, &Tokenizer, bool),
        prefix: &str,
        suffix: &str,
    ) -> Result<(Self, Vec<u32>), HoleError> {
        let after = tokenizer.encode(suffix, false)?;
        if let Some(fim) = FimTokens::find(tokenizer) {
            let begin = tokenizer.encode("", true)?;
            let tokens = fim.prompt(begin, &tokenizer.encode(prefix, false)?, &after);
            return Ok((Self::Tokens { ends: fim.ends }, tokens));
        }
        if denoises {
            return Ok((Self::Diffusion { suffix: after }, tokenizer.encode(prefix, true)?));
        }
        Err(HoleError::Unsupported { model: model.into() })
    }

    /// Returns the settings of a request over the defaults of its shell, with a decode mode that fills the
    /// hole: the request's, else the default one if it can, else `iterative`.
    ///
    /// # Errors
    /// If the request's own mode cannot.
    pub fn settings(&self, request: Settings, default: &Settings) -> Result<Settings, HoleError> {
        if matches!(self, Self::Tokens { .. }) {
            return Ok(request.or(default.clone()));
        }
        let mode = match request.decode_mode.filter(|&mode| mode != Mode::Auto) {
            None => default.decode_mode.filter(|mode| mode.denoises()).unwrap_or(Mode::Iterative),
            Some(mode) if mode.denoises() => mode,
            Some(mode) => return Err(HoleError::Mode(mode)),
        };
        Ok(Settings { decode_mode: Some(mode), ..request.or(default.clone()) })
    }

    /// Makes a request fill the hole: its decode mode, and the tokens that end it. Returns the tokens that
    /// the hole takes after `prompt` tokens, where blocks bound it.
    pub fn shape(self, mode: &mut DecodeMode, eos: &mut Vec<u32>, prompt: usize) -> Option<usize> {
        match (self, mode) {
            (Self::Tokens { ends }, _) if !eos.is_empty() => {
                eos.extend(ends);
                None
            }
            (Self::Diffusion { suffix }, DecodeMode::Diffusion(params)) => {
                let room = params.hole_slots(prompt).saturating_sub(suffix.len());
                params.suffix = suffix;
                Some(room.max(1))
            }
            _ => None,
        }
    }
}
