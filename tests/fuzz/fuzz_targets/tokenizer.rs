//! Builds a tokenizer from any text as `tokenizer.json`, which must then encode and decode.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wrinklefree::text::Tokenizer;

const TEXT: &str = " \u{0}<s> aab é\u{301} 日本\u{AD}\r\n 12\u{200D}👩‍💻  ﷺ\u{FEFF}▁<0x0A>";

fuzz_target!(|data: &[u8]| {
    let Ok(tokenizer) = Tokenizer::from_json(data) else { return };
    let ids = tokenizer.encode(TEXT, true).unwrap_or_default();
    assert!(ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()));
    let _ = tokenizer.decode(&ids);
    let _ = tokenizer.decode(&[0, 1, 2, 3, 255, u32::MAX]);
});
