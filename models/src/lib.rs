//! The small model inside the WrinkleFree runtime, and the texts that measure it, as bytes. They are a
//! crate because a published crate holds its own folder alone. To swap the model, replace the file
//! (made with `wf-run convert`).

/// Bytes at the beginning of a cache line, so that the weights are used in place.
#[repr(align(64))]
struct Aligned<T: ?Sized>(T);

static FILE: &Aligned<[u8]> = &Aligned(*include_bytes!("../default.wf.safetensors"));

/// A packed model file.
pub static DEFAULT: &[u8] = &FILE.0;

/// Held-out prompts of the model with their right continuations, one JSON object a line.
pub static PROMPTS: &str = include_str!("../eval/prompts.jsonl");

/// Words and facts that the model was taught, as JSON.
pub static VOCABULARY: &str = include_str!("../eval/vocabulary.json");
