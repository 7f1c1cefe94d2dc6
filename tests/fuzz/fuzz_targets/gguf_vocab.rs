//! Builds a tokenizer from any GGUF vocabulary, which must then encode and decode. The input has lines
//! of `type score token` after a first line with the other fields.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wrinklefree::format::{GgufVocab, Vocabulary};
use wrinklefree::text::Tokenizer;

const TEXT: &str = " \u{0}<s> aab é\u{301} 日本\u{AD}\r\n 12\u{200D}👩‍💻  ﷺ\u{FEFF}▁<0x0A>";

/// Parses the input. The first line is `model pre bos add_bos add_space_prefix`; a later line without
/// numbers is a merge.
fn vocab(text: &str) -> Option<GgufVocab> {
    let mut lines = text.split('\n');
    let mut first = lines.next()?.split(' ');
    let mut vocab = GgufVocab { model: first.next()?.into(), ..GgufVocab::default() };
    vocab.pre = first.next().map(Into::into);
    vocab.bos = first.next().and_then(|n| n.parse().ok());
    vocab.add_bos = first.next().map(|yes| yes == "1");
    vocab.add_space_prefix = first.next().map(|yes| yes == "1");
    for line in lines {
        let mut parts = line.splitn(3, ' ');
        match (parts.next()?.parse(), parts.next()?.parse(), parts.next()) {
            (Ok(kind), Ok(score), Some(token)) => {
                vocab.types.push(kind);
                vocab.scores.push(score);
                vocab.tokens.push(token.into());
            }
            _ => vocab.merges.push(line.into()),
        }
    }
    Some(vocab)
}

fuzz_target!(|data: &[u8]| {
    let Some(vocab) = std::str::from_utf8(data).ok().and_then(vocab) else { return };
    let Ok(tokenizer) = Tokenizer::new(&Vocabulary::Gguf(Box::new(vocab))) else { return };
    let ids = tokenizer.encode(TEXT, true).unwrap_or_default();
    assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
    let _ = tokenizer.decode(&ids);
});
