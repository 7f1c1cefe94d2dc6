//! Holes between two texts. A model fills them that was trained with tokens around prefix and suffix, or
//! that denoises blocks: it sees both sides of a block.

use crate::api::body::{Body, GenerationOptions};
use crate::engine::served_model::ServedModel;
use crate::error::ApiError;
use wrinklefree::engine::Request;
use wrinklefree::settings::{self, Settings};
use wrinklefree::text::FimTokens;

/// A hole between two texts, with the names of the request fields that the texts came in.
pub struct Hole<'a> {
    /// Text before the hole.
    pub prefix: (&'a str, &'static str),
    /// Text after the hole.
    pub suffix: (&'a str, &'static str),
    /// Names and texts of other files of the project.
    pub extra: Vec<(String, String)>,
    /// Beginning of the text in the hole.
    pub begin: String,
    /// Number of tokens to generate for requests that do not say, where the hole has no limit itself.
    pub tokens: Option<usize>,
}

/// Returns true if a model can fill holes.
pub fn is_supported(model: &ServedModel) -> bool {
    model.dlm.is_some() || FimTokens::find(&model.tokenizer).is_some()
}

impl<'a> Hole<'a> {
    /// Makes a hole without other files.
    pub fn new(prefix: (&'a str, &'static str), suffix: (&'a str, &'static str)) -> Self {
        Self { prefix, suffix, extra: Vec::new(), begin: String::new(), tokens: None }
    }

    /// Makes the engine's request for the text in the hole: with the tokenizer's tokens for holes, or by
    /// block diffusion.
    ///
    /// # Errors
    /// If the model cannot fill holes, or an option is invalid.
    pub fn request(
        &self,
        model: &ServedModel,
        body: &Body,
        options: &GenerationOptions,
        logprobs: Option<usize>,
    ) -> Result<Request, ApiError> {
        if let Some(fim) = FimTokens::find(&model.tokenizer) {
            let tokens = self.fim_prompt(model, &fim)?;
            let mut options = options.clone();
            if let Some(tokens) = self.tokens {
                options.limit_to(tokens);
            }
            let mut request = options.request(model, &body.tenant, tokens, logprobs)?;
            if !request.eos.is_empty() {
                request.eos.extend(fim.ends);
            }
            return Ok(request);
        }
        if model.dlm.is_some() {
            return self.denoised(model, body, options, logprobs);
        }
        let message = format!(
            "`{}`: {} cannot fill a hole: its tokenizer has no tokens for it, such as \
             <|fim_prefix|>, and it is no block-diffusion model",
            self.suffix.1, model.name
        );
        Err(ApiError { code: "unsupported", ..ApiError::bad(self.suffix.1, message) })
    }

    /// Makes the request for block diffusion. Hole and suffix must fit the block in which the prefix ends.
    fn denoised(
        &self,
        model: &ServedModel,
        body: &Body,
        options: &GenerationOptions,
        logprobs: Option<usize>,
    ) -> Result<Request, ApiError> {
        let (prefix, prefix_field) = self.prefix;
        if !self.extra.is_empty() {
            let message = "`input_extra`: this model has no tokens for other files: leave it out";
            return Err(ApiError::bad("input_extra", message));
        }
        let tokens = model.encode(&format!("{prefix}{}", self.begin), true, prefix_field)?;
        let suffix = model.encode(self.suffix.0, false, self.suffix.1)?;
        let (length, limit) = (tokens.len(), options.limit());
        let mut options = options.clone();
        let hole = settings::Hole::Diffusion { suffix };
        let asked = Settings { decode_mode: options.decode_mode, ..Settings::default() };
        let settings = hole.settings(asked, &model.settings);
        options.decode_mode =
            settings.map_err(|error| ApiError::bad("decode_mode", error.to_string()))?.decode_mode;
        let mut request = options.request(model, &body.tenant, tokens, logprobs)?;
        // Without a limit the hole takes all slots that are left.
        if let Some(room) = hole.shape(&mut request.mode, &mut request.eos, length) {
            request.max_tokens = limit.unwrap_or(room);
        }
        Ok(request)
    }

    /// Returns the prompt for a model with tokens for holes: other files, prefix, suffix, and the
    /// beginning of the text in the hole.
    fn fim_prompt(&self, model: &ServedModel, fim: &FimTokens) -> Result<Vec<u32>, ApiError> {
        let (prefix, prefix_field) = self.prefix;
        let (suffix, suffix_field) = self.suffix;
        let mut tokens = model.encode("", true, prefix_field)?;
        if !self.extra.is_empty() {
            if let Some(project) = fim.project {
                tokens.push(project);
                tokens.extend(model.encode("project\n", false, "input_extra")?);
            }
            let files = self.extra.iter().map(|(name, text)| format!("{name}\n{text}"));
            let own = fim.file.is_some().then(|| "file\n".to_string());
            for text in files.chain(own) {
                tokens.extend(fim.file);
                tokens.extend(model.encode(&text, false, "input_extra")?);
            }
        }
        let prefix = model.encode(prefix, false, prefix_field)?;
        let suffix = model.encode(suffix, false, suffix_field)?;
        let mut tokens = fim.prompt(tokens, &prefix, &suffix);
        tokens.extend(model.encode(&self.begin, false, "prompt")?);
        Ok(tokens)
    }
}
