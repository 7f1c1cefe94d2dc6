//! Reads `tokenizer.model`: a SentencePiece model as a protocol buffer.
//!
//! Only directories without a `tokenizer.json` need it. A vocabulary with merges (BPE) becomes the same
//! one that a GGUF file would have.

use super::{find, json};
use crate::format::index::File;
use crate::format::{GgufVocab, LoadError, LoadErrorKind as Kind, Vocabulary};
use serde::Deserialize;
use std::collections::BTreeMap;

/// `ModelProto.TrainerSpec.model_type` of vocabularies with merges.
const BPE: u64 = 2;
/// Token types, which GGUF has from SentencePiece.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
/// Largest number of ids without a token that added tokens may leave.
const MAX_GAP: usize = 1 << 16;

/// Reads the vocabulary of a directory, if it has a `tokenizer.model`.
pub(super) fn vocabulary(files: &[File]) -> Result<Option<Vocabulary>, LoadError> {
    let Some(file) = find(files, "tokenizer.model") else { return Ok(None) };
    let bytes = file.bytes.whole();
    let mut model = Model::read(&bytes).ok_or_else(|| {
        LoadError::new(Kind::Malformed, &file.name, "a SentencePiece model", "other bytes")
    })?;
    if model.kind != BPE {
        let found = if model.kind == 1 { "Unigram".into() } else { format!("type {}", model.kind) };
        return Err(LoadError::new(
            Kind::UnsupportedFeature,
            &file.name,
            "a BPE vocabulary",
            found,
        )
        .advice("put the model's tokenizer.json next to the weights"));
    }
    add_tokens(files, &mut model.vocab)?;
    Ok(Some(Vocabulary::Gguf(Box::new(model.vocab))))
}

/// Tokens that were added to a vocabulary after its training.
#[derive(Default, Deserialize)]
struct AddedTokens {
    #[serde(default)]
    added_tokens_decoder: BTreeMap<u32, AddedToken>,
    add_bos_token: Option<bool>,
}

#[derive(Deserialize)]
struct AddedToken {
    content: String,
    #[serde(default)]
    special: bool,
}

/// Adds the tokens of `tokenizer_config.json` and `added_tokens.json`.
fn add_tokens(files: &[File], vocab: &mut GgufVocab) -> Result<(), LoadError> {
    let mut added = AddedTokens::default();
    let mut source = None;
    if let Some(file) = find(files, "added_tokens.json") {
        let ids: BTreeMap<String, u32> = json::parse(file)?;
        let token = |(content, id)| (id, AddedToken { content, special: true });
        added.added_tokens_decoder = ids.into_iter().map(token).collect();
        source = Some(file);
    }
    if let Some(file) = find(files, "tokenizer_config.json") {
        let config: AddedTokens = json::parse(file)?;
        added.added_tokens_decoder.extend(config.added_tokens_decoder);
        added.add_bos_token = config.add_bos_token;
        source = source.or(Some(file));
    }
    vocab.add_bos = added.add_bos_token.or(vocab.add_bos);
    for (id, AddedToken { content, special }) in added.added_tokens_decoder {
        let id = id as usize;
        if id > vocab.tokens.len() + MAX_GAP {
            let name = source.map_or("added tokens", |file| file.name.as_str());
            let want = format!("added tokens after the {} of the vocabulary", vocab.tokens.len());
            return Err(LoadError::new(Kind::Value, name, want, format!("the id {id}")));
        }
        while vocab.tokens.len() <= id {
            vocab.tokens.push(format!("[PAD{}]", vocab.tokens.len()));
            vocab.scores.push(0.0);
            vocab.types.push(UNUSED);
        }
        // Added tokens repeat those that the vocabulary has.
        if vocab.tokens[id] != content {
            vocab.tokens[id] = content;
            vocab.types[id] = if special { CONTROL } else { USER_DEFINED };
        }
    }
    Ok(())
}

/// A SentencePiece model.
struct Model {
    /// `model_type`.
    kind: u64,
    vocab: GgufVocab,
}

impl Model {
    /// Reads a model; `None` if the bytes are no such model.
    fn read(bytes: &[u8]) -> Option<Self> {
        let vocab = GgufVocab { model: "llama".into(), unk: Some(0), ..GgufVocab::default() };
        let mut this = Self { kind: 1, vocab };
        (this.vocab.bos, this.vocab.eos) = (Some(1), Some(2));
        this.vocab.add_bos = Some(true);
        for field in Fields(bytes) {
            match field? {
                (1, Field::Bytes(piece)) => this.piece(piece)?,
                (2, Field::Bytes(trainer)) => this.trainer(trainer)?,
                (3, Field::Bytes(normalizer)) => this.normalizer(normalizer)?,
                _ => {}
            }
        }
        (!this.vocab.tokens.is_empty()).then_some(this)
    }

    fn piece(&mut self, bytes: &[u8]) -> Option<()> {
        let (mut text, mut score, mut kind) = ("", 0.0, NORMAL);
        for field in Fields(bytes) {
            match field? {
                (1, Field::Bytes(bytes)) => text = std::str::from_utf8(bytes).ok()?,
                (2, Field::Fixed32(bits)) => score = f32::from_bits(bits),
                (3, Field::Number(n)) => kind = i32::try_from(n).ok()?,
                _ => {}
            }
        }
        self.vocab.tokens.push(text.into());
        self.vocab.scores.push(score);
        self.vocab.types.push(kind);
        Some(())
    }

    fn trainer(&mut self, bytes: &[u8]) -> Option<()> {
        for field in Fields(bytes) {
            match field? {
                (3, Field::Number(kind)) => self.kind = kind,
                // A negative id, as ten bytes, is none.
                (40, Field::Number(id)) => self.vocab.unk = u32::try_from(id).ok(),
                (41, Field::Number(id)) => self.vocab.bos = u32::try_from(id).ok(),
                (42, Field::Number(id)) => self.vocab.eos = u32::try_from(id).ok(),
                _ => {}
            }
        }
        Some(())
    }

    fn normalizer(&mut self, bytes: &[u8]) -> Option<()> {
        for field in Fields(bytes) {
            if let (3, Field::Number(on)) = field? {
                self.vocab.add_space_prefix = Some(on != 0);
            }
        }
        Some(())
    }
}

/// The value of a field of a protocol buffer.
enum Field<'a> {
    Number(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
    /// A value of eight bytes, which no field that is read has.
    Fixed64,
}

/// Iterates over the fields of a message: their numbers and values; `None` where bytes are no message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn field(&mut self) -> Option<(u64, Field<'a>)> {
        let key = self.number()?;
        let value = match key & 7 {
            0 => Field::Number(self.number()?),
            1 => self.take(8).map(|_| Field::Fixed64)?,
            2 => {
                let len = usize::try_from(self.number()?).ok()?;
                Field::Bytes(self.take(len)?)
            }
            5 => Field::Fixed32(u32::from_le_bytes(self.take(4)?.try_into().ok()?)),
            _ => return None,
        };
        Some((key >> 3, value))
    }

    /// A number in groups of seven bits, the lowest first.
    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let [byte] = *self.take(1)?.first_chunk()?;
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Option<(u64, Field<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field)
    }
}
