//! Holes between two texts. A model fills them that was trained with tokens around prefix and suffix, or
//! that denoises blocks: it sees both sides of a block.

use crate::error::Error;
use crate::model::LoadedModel;
use wrinklefree::decode::DecodeMode;
use wrinklefree::engine;
use wrinklefree::settings::{Mode, Settings};
use wrinklefree::text::FimTokens;

/// A hole, as the model of a request fills it.
pub enum Hole {
    /// By tokens around the texts: further tokens that end the output.
    Tokens { ends: Vec<u32> },
    /// By block diffusion: the tokens after the hole.
    Diffusion { suffix: Vec<u32> },
}

impl Hole {
    /// Returns the hole after `prefix`, and the tokens of the prompt.
    ///
    /// # Errors
    /// `"unsupported"` if the model cannot fill holes, or those of the tokenizer.
    pub fn new(
        loaded: &LoadedModel,
        prefix: &str,
        suffix: &str,
    ) -> Result<(Self, Vec<u32>), Error> {
        let tokenizer = loaded.tokenizer()?;
        let after = tokenizer.encode(suffix, false)?;
        if let Some(fim) = FimTokens::find(tokenizer) {
            let begin = tokenizer.encode("", true)?;
            let tokens = fim.prompt(begin, &tokenizer.encode(prefix, false)?, &after);
            return Ok((Self::Tokens { ends: fim.ends }, tokens));
        }
        if loaded.dlm.is_some() {
            return Ok((Self::Diffusion { suffix: after }, tokenizer.encode(prefix, true)?));
        }
        let message = format!(
            "suffix: {} cannot fill a hole: its tokenizer has no tokens for it, such as \
             <|fim_prefix|>, and it is not a block-diffusion model",
            loaded.name
        );
        Err(Error::new("unsupported", message))
    }

    /// Returns the settings with a decode mode that fills the hole.
    ///
    /// # Errors
    /// `"bad_decoding_parameter"` for a mode that cannot.
    pub fn settings(&self, settings: Settings) -> Result<Settings, Error> {
        if matches!(self, Self::Tokens { .. }) {
            return Ok(settings);
        }
        match settings.decode_mode.filter(|&mode| mode != Mode::Auto) {
            None => Ok(Settings { decode_mode: Some(Mode::Iterative), ..settings }),
            Some(Mode::Greedy | Mode::Iterative | Mode::Adaptive) => Ok(settings),
            Some(mode) => {
                let message = format!(
                    "decode_mode {} cannot fill a hole with this model: use iterative, or leave it out",
                    mode.name()
                );
                Err(Error::new("bad_decoding_parameter", message))
            }
        }
    }

    /// Makes a request fill the hole. Without a limit (`limited`) the output takes all slots of the block
    /// that are left.
    pub fn shape(self, request: &mut engine::Request, limited: bool) {
        match (self, &mut request.mode) {
            (Self::Tokens { ends }, _) if !request.eos.is_empty() => request.eos.extend(ends),
            (Self::Diffusion { suffix }, DecodeMode::Diffusion(params)) => {
                let room = params.hole_slots(request.tokens.len()).saturating_sub(suffix.len());
                if !limited {
                    request.max_tokens = room.max(1);
                }
                params.suffix = suffix;
            }
            _ => {}
        }
    }
}
