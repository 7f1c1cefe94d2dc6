//! Sampling parameters of a request.

use super::options::GenerationOptions;
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use crate::ids;
use std::sync::Arc;
use wf_run_cli::config::{DryArgs, InvalidDry};
use wrinklefree::decode::{Dry, Infill, SamplingParams, TokenTexts};
use wrinklefree::settings::Sampling;
use wrinklefree::text::Tokenizer;

/// OpenAI's default temperature, for models whose files recommend none.
const TEMPERATURE: f32 = 1.0;
/// Maximum number of stop tokens.
const MAX_STOP_TOKENS: usize = 64;
/// Maximum number of bad words, and of bytes in one.
const MAX_BAD_WORDS: usize = 128;
const MAX_BAD_WORD: usize = 256;

/// The bytes of a tokenizer's tokens.
#[derive(Debug)]
struct Texts(Arc<Tokenizer>);

impl TokenTexts for Texts {
    fn bytes(&self, token: u32) -> &[u8] {
        if self.0.is_special(token) { &[] } else { self.0.bytes(token) }
    }
}

impl GenerationOptions {
    /// Returns the sampling parameters. `logprobs` is the number of alternatives per token, or `None` for
    /// no log-probabilities.
    ///
    /// # Errors
    /// Names the invalid field.
    pub fn sampling(
        &self,
        model: &ServedModel,
        logprobs: Option<usize>,
    ) -> Result<SamplingParams, ApiError> {
        let defaults = &model.defaults;
        if let Some(version @ 3..) = self.mirostat {
            let message = format!("mirostat is {version}: it must be 0, 1 or 2");
            return Err(ApiError::bad("mirostat", message));
        }
        // Above this threshold at most one token is a top choice, so that none is removed.
        let xtc_threshold = self.xtc_threshold.or(model.sampling.xtc_threshold);
        let in_use = |_: &f32| xtc_threshold.is_none_or(|x| x <= 0.5 || x > 1.0);
        let own = &model.sampling;
        let temperature = self.temperature.or(defaults.temperature).or(Some(TEMPERATURE));
        // The server's samplers do not refuse requests for the most likely tokens.
        let greedy = temperature == Some(0.0);
        let sampling = Sampling {
            temperature,
            top_k: self.top_k()?,
            top_p: self.top_p,
            min_p: self.min_p.or(own.min_p),
            typical_p: self.typical_p.or(own.typical_p.filter(|_| !greedy)),
            top_n_sigma: self.top_n_sigma.or(own.top_n_sigma).filter(|&n| n != -1.0),
            xtc_probability: self
                .xtc_probability
                .or(own.xtc_probability.filter(|_| !greedy))
                .filter(in_use),
            xtc_threshold,
            mirostat: self.mirostat.or(own.mirostat.filter(|_| !greedy)),
            mirostat_tau: self.mirostat_tau.or(own.mirostat_tau),
            mirostat_eta: self.mirostat_eta.or(own.mirostat_eta),
            repetition_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty.or(own.frequency_penalty),
            presence_penalty: self.presence_penalty.or(own.presence_penalty),
            logit_bias: self.biases()?,
            seed: Some(self.seed.map_or_else(ids::random, i64::cast_unsigned)),
        };
        let mut params = SamplingParams {
            logprobs,
            dry: self.dry(model)?,
            bad_words: self.bad_word_tokens(model)?,
            min_tokens: self.min_tokens.unwrap_or(0),
            ..sampling.params(defaults)
        };
        if let Some(samplers) = &self.samplers {
            // It is on where the request names it.
            params.infill = Some(self.infill(model)?);
            samplers.apply(&mut params)?;
        }
        Ok(params)
    }

    /// Returns the tokens that end the output.
    ///
    /// # Errors
    /// If there are too many, or one is outside the vocabulary.
    pub fn end_tokens(&self, model: &ServedModel) -> Result<Vec<u32>, ApiError> {
        let own = self.stop_token_ids.as_deref().unwrap_or_default();
        let bad = |message: String| Err(ApiError::bad("stop_token_ids", message));
        if own.len() > MAX_STOP_TOKENS {
            let count = own.len();
            return bad(format!("stop_token_ids has {count} ids: send at most {MAX_STOP_TOKENS}"));
        }
        if let Some(id) = own.iter().find(|&&id| id as usize >= model.vocab) {
            let vocab = model.vocab;
            return bad(format!("token id {id} is outside the vocabulary of {vocab} tokens"));
        }
        let eos = if self.ignore_eos.unwrap_or(false) { &[][..] } else { &model.defaults.eos[..] };
        Ok([eos, own].concat())
    }

    fn infill(&self, model: &ServedModel) -> Result<Infill, ApiError> {
        let texts = Arc::new(Texts(model.tokenizer.clone()));
        Ok(Infill { texts, end_tokens: self.end_tokens(model)? })
    }

    /// Returns the settings of DRY. Fields that are not set are the server's.
    fn dry(&self, model: &ServedModel) -> Result<Option<Dry>, ApiError> {
        let breakers = match &self.dry_sequence_breakers {
            Some(none) if none.is_empty() => vec![DryArgs::NONE.into()],
            texts => texts.clone().unwrap_or_default(),
        };
        let asked = DryArgs {
            dry_multiplier: self.dry_multiplier,
            dry_base: self.dry_base,
            dry_allowed_length: self.dry_allowed_length,
            dry_penalty_last_n: self.dry_penalty_last_n,
            dry_sequence_breakers: breakers,
        };
        let dry = asked.or(&model.dry).resolve(&model.tokenizer);
        dry.map_err(|InvalidDry { field, message }| ApiError::bad(field, message))
    }

    /// Returns the tokens of bad words, with and without a space before them.
    fn bad_word_tokens(&self, model: &ServedModel) -> Result<Vec<Vec<u32>>, ApiError> {
        let words = self.bad_words.as_deref().unwrap_or_default();
        let fits = |word: &String| !word.trim().is_empty() && word.len() <= MAX_BAD_WORD;
        if words.len() > MAX_BAD_WORDS || !words.iter().all(fits) {
            let message = format!(
                "send at most {MAX_BAD_WORDS} words of 1 to {MAX_BAD_WORD} bytes that are not blank"
            );
            return Err(ApiError::bad("bad_words", message));
        }
        let mut tokens = Vec::new();
        for word in words {
            let bare = word.trim_start();
            for text in [bare.to_string(), format!(" {bare}")] {
                let encoded = model.encode(&text, false, "bad_words")?;
                if !encoded.is_empty() && !tokens.contains(&encoded) {
                    tokens.push(encoded);
                }
            }
        }
        Ok(tokens)
    }
}
