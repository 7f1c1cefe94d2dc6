//! Decoding options.

use crate::exit::usage;
use crate::loaded::Loaded;
use crate::{out, session};
use clap::{Args, ValueEnum};
use std::num::NonZeroUsize;
use wrinklefree::decode::{DecodeMode, DiffusionParams, Drafter, Inside, Unmask};
use wrinklefree::format::DlmConfig;
use wrinklefree::text::Tokenizer;

/// Tokens of a draft at most, when the user does not say.
const DRAFT: usize = 8;
/// Tokens that prompt lookup matches, at least and at most: a single one says little.
const MATCHES: (usize, usize) = (2, 4);

/// How an answer is decoded.
#[derive(Args, Debug)]
#[command(next_help_heading = "Decoding")]
pub struct DecodeArgs {
    /// One token after the other, or blocks of tokens at once
    #[arg(long, value_name = "MODE", value_enum, default_value_t)]
    decode_mode: Mode,
    /// What `verify` checks [default: denoise when the model can, else ngram]
    #[arg(long, value_name = "SOURCE", value_enum)]
    draft: Option<Draft>,
    /// Tokens of a draft at most
    #[arg(long, value_name = "N", default_value_t = NonZeroUsize::new(DRAFT).expect("not zero"))]
    draft_length: NonZeroUsize,
    /// Positions in a block [default: the model's]
    #[arg(long, value_name = "N")]
    block_size: Option<usize>,
    /// Positions in a sub-block; divides the block [default: 8, or the block]
    #[arg(long, value_name = "N")]
    small_block_size: Option<usize>,
    /// Confidence from which `iterative` and `adaptive` accept a token
    #[arg(long, value_name = "P", default_value_t = 0.9, allow_negative_numbers = true)]
    threshold: f32,
    /// The MASK token [default: the model's]
    #[arg(long, value_name = "ID")]
    mask_token_id: Option<u32>,
    /// What masked slots see of their own block
    #[arg(long, value_name = "WHAT", value_enum, default_value_t)]
    block_attention: Attention,
    /// Repeat passes over a sub-block alone, against the rest of the block as it was: faster, not
    /// quite exact
    #[arg(long)]
    sub_block_cache: bool,
}

/// Values of `--decode-mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
enum Mode {
    /// `iterative` for a model that can nothing else, otherwise `ar`
    #[default]
    Auto,
    /// Autoregressive: one token a pass
    Ar,
    /// Block diffusion: a whole block in one pass
    Greedy,
    /// Block diffusion: what is surer than the threshold, pass by pass
    Iterative,
    /// As `iterative`, with a threshold that starts low in each sub-block and rises
    Adaptive,
    /// The output of `ar` in fewer passes: drafts, checked by the model
    Verify,
}

/// Values of `--draft`.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Draft {
    /// One block-diffusion pass
    Denoise,
    /// What followed the same words before, in prompt or answer
    Ngram,
}

/// Values of `--block-attention`.
#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
enum Attention {
    /// All of it
    #[default]
    Bidirectional,
    /// What precedes them
    Causal,
}

impl DecodeArgs {
    /// The mode for a model.
    pub fn mode(&self, loaded: &Loaded) -> anyhow::Result<DecodeMode> {
        let dlm = loaded.dlm.as_ref();
        let unmask = match self.decode_mode {
            Mode::Auto if dlm.is_none_or(|d| d.ar_path) => return Ok(DecodeMode::Autoregressive),
            Mode::Ar => return Ok(DecodeMode::Autoregressive),
            Mode::Verify => {
                if dlm.is_some_and(|d| !d.ar_path) {
                    out::note(format_args!(
                        "warning: {} does not say that it has a trained autoregressive path, whose \
                         text `verify` gives",
                        loaded.name
                    ));
                }
                return Ok(DecodeMode::Verify(self.drafter(loaded)?));
            }
            Mode::Greedy => Unmask::All,
            Mode::Auto | Mode::Iterative => Unmask::Above(self.threshold),
            Mode::Adaptive => Unmask::Rising(self.threshold),
        };
        let params = self.diffusion(loaded, unmask)?;
        let vocab = loaded.model.spec().vocab_size;
        params.check(vocab, session::ROWS).map_err(|e| usage(e.to_string()))?;
        Ok(DecodeMode::Diffusion(params))
    }

    fn diffusion(&self, loaded: &Loaded, unmask: Unmask) -> anyhow::Result<DiffusionParams> {
        let mask = self.mask(loaded)?;
        let dlm = loaded.dlm.as_ref();
        let Some(block) = self.block_size.or(dlm.map(|d| d.bd_size)) else {
            return Err(usage(format!(
                "{} does not say how large its blocks are: is it a block-diffusion model? \
                 --block-size N says so",
                loaded.name
            )));
        };
        Ok(DiffusionParams {
            block,
            sub_block: self.small_block_size.unwrap_or(match block.is_multiple_of(8) {
                true => 8,
                false => block,
            }),
            mask,
            unmask,
            inside: match self.block_attention {
                Attention::Bidirectional => Inside::Bidirectional,
                Attention::Causal => Inside::Causal,
            },
            clean_causal: dlm.is_some_and(|d| d.clean_attention == "causal"),
            shift: dlm.is_none_or(|d| d.logit_shift == 1),
            sub_cache: self.sub_block_cache,
        })
    }

    fn drafter(&self, loaded: &Loaded) -> anyhow::Result<Drafter> {
        let length = self.draft_length.get();
        let can = loaded.dlm.is_some() || self.mask_token_id.is_some();
        match self.draft.unwrap_or(if can { Draft::Denoise } else { Draft::Ngram }) {
            Draft::Ngram => Ok(Drafter::Ngram { length, matches: MATCHES }),
            Draft::Denoise => {
                let shift = loaded.dlm.as_ref().is_none_or(|d| d.logit_shift == 1);
                Ok(Drafter::Denoise { length, mask: self.mask(loaded)?, shift })
            }
        }
    }

    /// The MASK token: what the user says, what the model's files say, what its tokenizer has.
    fn mask(&self, loaded: &Loaded) -> anyhow::Result<u32> {
        let stated = |d: &DlmConfig| d.mask_token_id;
        let vocab = loaded.model.spec().vocab_size;
        let known = self.mask_token_id.or_else(|| loaded.dlm.as_ref().and_then(stated));
        let tokenizer = loaded.tokenizer.as_ref();
        if let Some(id) = known.or_else(|| tokenizer.and_then(|t| t.id("|<MASK>|"))) {
            return match (id as usize) < vocab {
                true => Ok(id),
                false => {
                    Err(usage(format!("mask_token_id {id} is outside the vocabulary of {vocab}")))
                }
            };
        }
        match tokenizer.and_then(|t| guess(t, vocab)) {
            Some((id, text)) => {
                out::note(format_args!(
                    "warning: the model's files name no MASK token; taking {text:?} ({id}), \
                     --mask-token-id says otherwise"
                ));
                Ok(id)
            }
            None => Err(usage(format!(
                "{} has no MASK token, so it is no block-diffusion model: --decode-mode ar works \
                 with every model, --mask-token-id ID names the token if there is one",
                loaded.name
            ))),
        }
    }
}

/// The last special token whose text says mask.
fn guess(tokenizer: &Tokenizer, vocab: usize) -> Option<(u32, String)> {
    let ids = (0..u32::try_from(vocab).ok()?).rev().filter(|&id| tokenizer.is_special(id));
    ids.filter_map(|id| Some((id, tokenizer.token(id)?)))
        .find(|(_, text)| text.to_lowercase().contains("mask"))
}
