//! Text ↔ token ids. Encoding is the `tokenizers` crate's, so ids equal those of the model's
//! authors; decoding is the same machine that streams ([`Detokenizer`]), so a streamed answer and
//! a whole one cannot differ.

use super::{Detokenizer, TextError, gguf_vocab, parts, pieces::Pieces};
use crate::format::Vocabulary;
use std::sync::Arc;

/// Text ↔ token ids. Cheap to clone; usable from many threads.
#[derive(Clone)]
pub struct Tokenizer {
    inner: Arc<Inner>,
}

struct Inner {
    hf: tokenizers::Tokenizer,
    pieces: Pieces,
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("vocab_size", &self.vocab_size()).finish_non_exhaustive()
    }
}

impl Tokenizer {
    /// Builds the tokenizer that a model file holds.
    ///
    /// # Errors
    /// When the vocabulary is malformed, or a GGUF vocabulary needs a pre-tokenizer that is not
    /// known here.
    pub fn new(vocabulary: &Vocabulary) -> Result<Self, TextError> {
        match vocabulary {
            Vocabulary::Json(bytes) => Self::from_json(bytes),
            Vocabulary::Gguf(vocab) => Self::from_hf(gguf_vocab::parts(vocab)?.build()?),
        }
    }

    /// Builds a tokenizer from the text of a `tokenizer.json`.
    ///
    /// # Errors
    /// When the text is not one.
    pub fn from_json(json: &[u8]) -> Result<Self, TextError> {
        Self::from_hf(parts::read(json)?)
    }

    fn from_hf(mut hf: tokenizers::Tokenizer) -> Result<Self, TextError> {
        // Some files carry the limits of a training run; they would cut or pad prompts in silence.
        hf.with_truncation(None).expect("no truncation is valid");
        hf.with_padding(None);
        let pieces = Pieces::new(&hf)?;
        // The frame around a text has ids of its own, which index a model's embedding like others.
        let frame = hf.encode_fast("", true).map_err(|e| TextError::Encode(e.to_string()))?;
        if let Some(id) = frame.get_ids().iter().find(|&&id| id as usize >= pieces.len()) {
            let len = pieces.len();
            return Err(TextError::Vocabulary(format!(
                "the post_processor adds the id {id}, but the vocabulary has ids below {len}"
            )));
        }
        Ok(Self { inner: Arc::new(Inner { hf, pieces }) })
    }

    /// Ids of a text. `add_special` puts the model's own frame (BOS…) around it. Special tokens
    /// written out in the text become those tokens, as chat templates need it.
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

    /// Text of ids, special tokens left out. Bytes that are no UTF-8 become U+FFFD; ids that no
    /// token has give nothing. Spaces stay as they are (`clean_up_tokenization_spaces` of older
    /// models loses text).
    #[must_use]
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut stream = Detokenizer::new(self);
        let mut text = String::new();
        for &id in ids {
            text += &stream.push(id);
        }
        text + &stream.finish()
    }

    /// The id of a token by its exact text.
    #[must_use]
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.hf.token_to_id(token)
    }

    /// A token's name as the vocabulary spells it (`Ġthe`, `<0x0A>`, `<|eot_id|>`).
    #[must_use]
    pub fn token(&self, id: u32) -> Option<String> {
        self.inner.hf.id_to_token(id)
    }

    /// The bytes that a token stands for in the middle of a text, special tokens included;
    /// possibly a part of a character. Empty for ids without a token.
    #[must_use]
    pub fn bytes(&self, id: u32) -> &[u8] {
        self.inner.pieces.bytes(id)
    }

    /// Whether [`Tokenizer::decode`] leaves this token out.
    #[must_use]
    pub fn is_special(&self, id: u32) -> bool {
        self.inner.pieces.is_special(id)
    }

    /// One more than the largest id.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.inner.pieces.len()
    }

    /// Checks that a model with `embedded` rows in its embedding has one for every id. Models
    /// often have more rows than tokens (padded to a round number); that is fine.
    ///
    /// # Errors
    /// [`TextError::Mismatch`] with both numbers.
    pub fn check(&self, embedded: usize) -> Result<(), TextError> {
        if self.vocab_size() <= embedded {
            return Ok(());
        }
        Err(TextError::Mismatch { tokenizer: self.vocab_size(), model: embedded })
    }

    /// The text of a `tokenizer.json` that builds the same tokenizer.
    #[must_use]
    pub fn to_json(&self) -> String {
        self.inner.hf.to_string(false).expect("a tokenizer that was read can be written")
    }

    pub(super) fn pieces(&self) -> &Pieces {
        &self.inner.pieces
    }

    pub(super) fn hf(&self) -> &tokenizers::Tokenizer {
        &self.inner.hf
    }
}
