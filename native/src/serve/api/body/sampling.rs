//! Sampling parameters of a request.

use super::options::GenerationOptions;
use crate::serve::error::ApiError;
use crate::serve::ids;
use crate::serve::served_model::ServedModel;
use wrinklefree::decode::{Dry, SamplingParams};
use wrinklefree::settings::Sampling;

/// OpenAI's default temperature, for models whose files recommend none.
const TEMPERATURE: f32 = 1.0;
/// Maximum number of stop tokens.
const MAX_STOP_TOKENS: usize = 64;
/// Maximum number of bad words, and of bytes in one.
const MAX_BAD_WORDS: usize = 128;
const MAX_BAD_WORD: usize = 256;
/// Maximum number of breakers of DRY.
const MAX_BREAKERS: usize = 32;
/// llama-server's breakers of DRY.
const BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

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
        let in_use = |_: &f32| self.xtc_threshold.is_none_or(|x| x <= 0.5 || x > 1.0);
        let sampling = Sampling {
            temperature: self.temperature.or(defaults.temperature).or(Some(TEMPERATURE)),
            top_k: self.top_k()?,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            top_n_sigma: self.top_n_sigma.filter(|&n| n != -1.0),
            xtc_probability: self.xtc_probability.filter(in_use),
            xtc_threshold: self.xtc_threshold,
            mirostat: self.mirostat,
            mirostat_tau: self.mirostat_tau,
            mirostat_eta: self.mirostat_eta,
            repetition_penalty: self.repetition_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            logit_bias: self.biases()?,
            seed: self.seed.map_or_else(ids::random, i64::cast_unsigned),
        };
        Ok(SamplingParams {
            logprobs,
            dry: self.dry(model)?,
            bad_words: self.bad_word_tokens(model)?,
            min_tokens: self.min_tokens.unwrap_or(0),
            ..sampling.params(defaults)
        })
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
        let eos = match self.ignore_eos.unwrap_or(false) {
            true => &[][..],
            false => &model.defaults.eos[..],
        };
        Ok([eos, own].concat())
    }

    fn dry(&self, model: &ServedModel) -> Result<Option<Dry>, ApiError> {
        let window = match self.dry_penalty_last_n.unwrap_or(-1) {
            -1 => usize::MAX,
            n => usize::try_from(n).map_err(|_| {
                let message = format!("dry_penalty_last_n is {n}: at least 0, or -1 for all");
                ApiError::bad("dry_penalty_last_n", message)
            })?,
        };
        let Some(multiplier) = self.dry_multiplier.filter(|&x| x != 0.0 && window > 0) else {
            return Ok(None);
        };
        let breakers = match &self.dry_sequence_breakers {
            Some(texts) if texts.len() > MAX_BREAKERS || texts.iter().any(String::is_empty) => {
                let message = format!("send at most {MAX_BREAKERS} texts that are not empty");
                return Err(ApiError::bad("dry_sequence_breakers", message));
            }
            Some(texts) => breakers(model, texts.iter().map(String::as_str)),
            None => breakers(model, BREAKERS.into_iter()),
        };
        let default = Dry::default();
        Ok(Some(Dry {
            multiplier,
            base: self.dry_base.unwrap_or(default.base),
            allowed_length: self.dry_allowed_length.unwrap_or(default.allowed_length),
            window,
            breakers,
        }))
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

/// Returns the tokens of DRY's breakers: each token that contains one, and the tokens of those that no
/// token contains.
fn breakers<'a>(model: &ServedModel, texts: impl Iterator<Item = &'a str>) -> Vec<Vec<u32>> {
    let mut breakers = Vec::new();
    for text in texts {
        let contains = |&id: &u32| {
            let bytes = model.tokenizer.bytes(id);
            bytes.windows(text.len()).any(|part| part == text.as_bytes())
        };
        breakers.extend((0..model.vocab as u32).filter(contains).map(|id| vec![id]));
        breakers.extend(model.tokenizer.encode(text, false).ok().filter(|ids| ids.len() > 1));
    }
    breakers
}
