//! Tokenizer. The `tokenizers` crate encodes, so ids equal those of the model's authors. The streaming
//! [`Detokenizer`] decodes, so a streamed text equals a whole one.

use super::token_bytes::TokenBytes;
use super::{Detokenizer, TextError, gguf_vocab, pretokenize, tokenizer_json};
use crate::format::Vocabulary;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Converts text to token ids and back. Cheap to clone, and usable from many threads.
///
/// ```
/// use wrinklefree::text::Tokenizer;
///
/// let json = r#"{"model": {"type": "BPE", "vocab": {"h": 0, "i": 1, "hi": 2}, "merges": ["h i"]},
///     "decoder": {"type": "ByteFallback"}}"#;
/// let tokenizer = Tokenizer::from_json(json.as_bytes())?;
/// let ids = tokenizer.encode("hii", false)?;
/// assert_eq!(ids, [2, 1]);
/// assert_eq!(tokenizer.decode(&ids), "hii");
/// # Ok::<(), wrinklefree::text::TextError>(())
/// ```
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

/// Tokens by a text that they have, or begin with (true).
type KeptTokens = BTreeMap<(&'static str, bool), Arc<[u32]>>;

struct Inner {
    hf: tokenizers::Tokenizer,
    token_bytes: TokenBytes,
    /// Most bytes of a text that one token can stand for.
    longest: usize,
    guessed_pre: Option<&'static str>,
    kept: Mutex<KeptTokens>,
}

/// Largest factor by which normalization makes a text shorter: NFKC composes three characters.
const SHRINKS: usize = 4;

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Builds the tokenizer of a model file.
    ///
    /// # Errors
    /// When the vocabulary is malformed or not supported.
    pub fn new(vocabulary: &Vocabulary) -> Result<Self, TextError> {
        match vocabulary {
            Vocabulary::Json(bytes) => Self::from_json(bytes),
            Vocabulary::Gguf(vocab) => {
                let guessed = pretokenize::guessed(vocab);
                Self::from_hf(gguf_vocab::parts(vocab)?.build()?, guessed)
            }
        }
    }

    /// Builds a tokenizer from the text of a `tokenizer.json`.
    ///
    /// # Errors
    /// When the text is malformed or the tokenizer is not supported.
    pub fn from_json(json: &[u8]) -> Result<Self, TextError> {
        Self::from_hf(tokenizer_json::read(json)?, None)
    }

    fn from_hf(
        mut hf: tokenizers::Tokenizer,
        guessed_pre: Option<&'static str>,
    ) -> Result<Self, TextError> {
        // Some files have the limits of a training run, which would silently cut or pad prompts.
        hf.with_truncation(None).expect("no truncation is valid");
        hf.with_padding(None);
        let token_bytes = TokenBytes::new(&hf)?;
        // Ids of added special tokens index a model's embedding, too.
        let special = hf.encode_fast("", true).map_err(|e| TextError::Encode(e.to_string()))?;
        if let Some(id) = special.get_ids().iter().find(|&&id| id as usize >= token_bytes.len()) {
            let len = token_bytes.len();
            return Err(TextError::Vocabulary(format!(
                "the post_processor adds the id {id}, but the vocabulary has ids below {len}"
            )));
        }
        let ids = 0..u32::try_from(token_bytes.len()).unwrap_or(u32::MAX);
        let longest = ids.map(|id| token_bytes.bytes(id).len()).max().unwrap_or(0).max(1);
        let longest = if hf.get_normalizer().is_some() { longest * SHRINKS } else { longest };
        let kept = Mutex::default();
        Ok(Self { inner: Arc::new(Inner { hf, token_bytes, longest, guessed_pre, kept }) })
    }

    /// Encodes a text. With `add_special`, the model's special tokens (BOS…) are added around it. The
    /// text of a special token becomes that token, as chat templates need it.
    ///
    /// # Errors
    /// When the tokenizer fails.
    pub fn encode(&self, text: &str, add_special: bool) -> Result<Vec<u32>, TextError> {
        let encoding = self
            .inner
            .hf
            .encode_fast(text, add_special)
            .map_err(|e| TextError::Encode(e.to_string()))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// The most bytes that a token stands for.
    #[must_use]
    pub fn longest_token(&self) -> usize {
        self.inner.longest
    }

    /// The least number of tokens that a text of so many bytes has. Vocabularies without byte tokens may
    /// have fewer for texts of unknown characters.
    #[must_use]
    pub fn least_tokens(&self, bytes: usize) -> usize {
        bytes.div_ceil(self.inner.longest)
    }

    /// Decodes ids to a text without special tokens. Invalid UTF-8 becomes U+FFFD; ids without a token
    /// are skipped. Spaces are kept: `clean_up_tokenization_spaces` of older models would lose text.
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut stream = Detokenizer::new(self);
        let mut text = String::new();
        for &id in ids {
            text += &stream.push(id);
        }
        text + &stream.finish()
    }

    /// The id of the token with this exact name.
    #[must_use]
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.hf.token_to_id(token)
    }

    /// The name of a token in the vocabulary (`Ġthe`, `<0x0A>`, `<|eot_id|>`).
    #[must_use]
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.hf.id_to_token(id)
    }

    /// The bytes of a token in the middle of a text, which may be part of a character. Special tokens
    /// have bytes too; ids without a token have none.
    #[must_use]
    pub fn bytes(&self, id: u32) -> &[u8] {
        self.inner.token_bytes.bytes(id)
    }

    /// Returns the ids of the tokens that have `text` in their bytes. They are kept, because finding them
    /// reads the whole vocabulary.
    pub fn tokens_with(&self, text: &'static str) -> Arc<[u32]> {
        let has =
            |bytes: &[u8]| bytes.windows(text.len().max(1)).any(|part| part == text.as_bytes());
        self.kept_tokens((text, false), has)
    }

    /// Returns the ids of the tokens whose bytes begin with `text`, which are kept too.
    pub fn tokens_from(&self, text: &'static str) -> Arc<[u32]> {
        self.kept_tokens((text, true), |bytes| bytes.starts_with(text.as_bytes()))
    }

    fn kept_tokens(&self, key: (&'static str, bool), fits: impl Fn(&[u8]) -> bool) -> Arc<[u32]> {
        let mut known = self.inner.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let find = || (0..self.vocab_size() as u32).filter(|&id| fits(self.bytes(id))).collect();
        known.entry(key).or_insert_with(find).clone()
    }

    /// Returns true if [`Tokenizer::decode`] leaves this token out.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.inner.token_bytes.is_special(id)
    }

    /// One more than the largest id.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.inner.token_bytes.len()
    }

    /// The pre-tokenizer (`llama-bpe`, `qwen2`…) that was guessed because the GGUF file names none;
    /// `None`: it was not guessed.
    #[must_use]
    pub fn guessed_pre_tokenizer(&self) -> Option<&'static str> {
        self.inner.guessed_pre
    }

    /// Checks that a model whose embedding has `embedded` rows has one for every id. More rows than
    /// tokens are common (padding) and accepted.
    ///
    /// # Errors
    /// [`TextError::Mismatch`] when there are fewer rows than ids.
    pub fn check(&self, embedded: usize) -> Result<(), TextError> {
        if self.vocab_size() <= embedded {
            return Ok(());
        }
        Err(TextError::Mismatch { tokenizer: self.vocab_size(), model: embedded })
    }

    /// Writes the text of a `tokenizer.json` that builds the same tokenizer.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.inner.hf.to_string(false).expect("a tokenizer that was read can be written")
    }

    pub(super) fn token_bytes(&self) -> &TokenBytes {
        &self.inner.token_bytes
    }

    pub(super) fn hf(&self) -> &tokenizers::Tokenizer {
        &self.inner.hf
    }
}
