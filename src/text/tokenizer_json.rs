//! Reads a `tokenizer.json`, and builds a tokenizer from its parts.
//!
//! The `tokenizers` crate has its own reader, but that takes a second for a vocabulary of 128,000
//! tokens and panics on some malformed files. Byte-pair models, which language models use, are
//! therefore read here. Other models go through the crate's reader.

use super::{TextError, allowed_parts};
use serde::de::{Deserialize, Deserializer, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::{AddedToken, Tokenizer as Hf};

/// The parts of a `tokenizer.json` with a byte-pair model.
pub(super) struct TokenizerParts {
    pub(super) added_tokens: Vec<AddedToken>,
    pub(super) normalizer: Value,
    pub(super) pre_tokenizer: Value,
    pub(super) post_processor: Value,
    pub(super) decoder: Value,
    pub(super) model: Bpe,
}

/// A byte-pair model. `dropout` is ignored: it is for training, and would make ids random.
#[derive(serde::Deserialize)]
pub(super) struct Bpe {
    #[serde(default)]
    pub(super) unk_token: Option<String>,
    #[serde(default)]
    pub(super) continuing_subword_prefix: Option<String>,
    #[serde(default)]
    pub(super) end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub(super) fuse_unk: bool,
    #[serde(default)]
    pub(super) byte_fallback: bool,
    #[serde(default)]
    pub(super) ignore_merges: bool,
    pub(super) vocab: Vocab,
    pub(super) merges: Vec<Merge>,
}

/// Two tokens that merge.
pub(super) struct Merge(pub(super) String, pub(super) String);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Merge;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("\"left right\" or [\"left\", \"right\"]")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Merge, E> {
                match text.split_once(' ') {
                    Some((left, right)) if !right.contains(' ') => {
                        Ok(Merge(left.into(), right.into()))
                    }
                    _ => Err(E::custom(format!("the merge {text:?} is not two tokens"))),
                }
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Merge, A::Error> {
                use serde::de::Error;
                let missing = || A::Error::custom("a merge is not two tokens");
                let left = seq.next_element()?.ok_or_else(missing)?;
                let right = seq.next_element()?.ok_or_else(missing)?;
                match seq.next_element::<String>()? {
                    None => Ok(Merge(left, right)),
                    Some(_) => Err(missing()),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Reads a `tokenizer.json`.
pub(super) fn read(json: &[u8]) -> Result<Hf, TextError> {
    #[derive(serde::Deserialize)]
    struct File<'a> {
        #[serde(default)]
        added_tokens: Vec<AddedToken>,
        #[serde(default)]
        normalizer: Value,
        #[serde(default)]
        pre_tokenizer: Value,
        #[serde(default)]
        post_processor: Value,
        #[serde(default)]
        decoder: Value,
        #[serde(borrow)]
        model: &'a RawValue,
    }
    #[derive(serde::Deserialize)]
    struct Model {
        #[serde(default, rename = "type")]
        kind: String,
    }
    let bad = |what: String| TextError::Vocabulary(format!("tokenizer.json: {what}"));
    let text = std::str::from_utf8(json).map_err(|e| bad(e.to_string()))?;
    let file: File = serde_json::from_str(text).map_err(|e| bad(e.to_string()))?;
    let model: Model =
        serde_json::from_str(file.model.get()).map_err(|e| bad(format!("model: {e}")))?;
    // The oldest files do not name a kind; there was only BPE.
    if !["", "BPE"].contains(&model.kind.as_str()) {
        let (pre, post) = (&file.pre_tokenizer, &file.post_processor);
        allowed_parts::check(&file.normalizer, pre, &model.kind, post, &file.decoder)?;
        return serde_json::from_str(text).map_err(|e| bad(e.to_string()));
    }
    let parts = TokenizerParts {
        added_tokens: file.added_tokens,
        normalizer: file.normalizer,
        pre_tokenizer: file.pre_tokenizer,
        post_processor: file.post_processor,
        decoder: file.decoder,
        model: serde_json::from_str(file.model.get()).map_err(|e| bad(format!("model: {e}")))?,
    };
    parts.build()
}

impl TokenizerParts {
    /// Builds the tokenizer.
    pub(super) fn build(self) -> Result<Hf, TextError> {
        fn part<T: serde::de::DeserializeOwned>(
            name: &str,
            value: Value,
        ) -> Result<Option<T>, TextError> {
            serde_json::from_value(value).map_err(|e| TextError::Vocabulary(format!("{name}: {e}")))
        }
        let bad = |e: tokenizers::Error| TextError::Vocabulary(e.to_string());
        let (pre, post) = (&self.pre_tokenizer, &self.post_processor);
        allowed_parts::check(&self.normalizer, pre, "BPE", post, &self.decoder)?;
        let mut hf = Hf::new(self.model.build()?);
        let normalizer = part::<tokenizers::NormalizerWrapper>("normalizer", self.normalizer)?;
        hf.with_normalizer(normalizer).map_err(bad)?;
        let pre = part::<tokenizers::PreTokenizerWrapper>("pre_tokenizer", self.pre_tokenizer)?;
        hf.with_pre_tokenizer(pre);
        let post = part::<tokenizers::PostProcessorWrapper>("post_processor", self.post_processor)?;
        hf.with_post_processor(post);
        let decoder = part::<tokenizers::DecoderWrapper>("decoder", self.decoder)?;
        hf.with_decoder(decoder);
        hf.add_tokens(self.added_tokens).map_err(bad)?;
        Ok(hf)
    }
}

impl Bpe {
    fn build(self) -> Result<BPE, TextError> {
        let bad = |what: String| TextError::Vocabulary(format!("model: {what}"));
        let prefix = self.continuing_subword_prefix.as_deref().unwrap_or("");
        let longest = self.vocab.keys().map(String::len).max().unwrap_or(0);
        for Merge(left, right) in &self.merges {
            // The crate also checks that the tokens exist, but panics on these before.
            let right_length = right.strip_prefix(prefix).map(str::len);
            if right_length.is_none_or(|right| left.len() + right > longest) {
                let what = format!("the merge of {left:?} and {right:?} makes no token");
                return Err(bad(what));
            }
        }
        let merges = self.merges.into_iter().map(|m| (m.0, m.1)).collect();
        let mut builder = BPE::builder()
            .vocab_and_merges(self.vocab, merges)
            .fuse_unk(self.fuse_unk)
            .byte_fallback(self.byte_fallback)
            .ignore_merges(self.ignore_merges);
        if let Some(token) = self.unk_token {
            builder = builder.unk_token(token);
        }
        if let Some(prefix) = self.continuing_subword_prefix {
            builder = builder.continuing_subword_prefix(prefix);
        }
        if let Some(suffix) = self.end_of_word_suffix {
            builder = builder.end_of_word_suffix(suffix);
        }
        builder.build().map_err(|e| bad(e.to_string()))
    }
}
