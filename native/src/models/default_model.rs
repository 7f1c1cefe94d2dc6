//! The model inside the program. To swap it, replace the file (made with `wf-run convert`).

/// On a cache line, as the loader would place it: the weights are used where they lie.
#[repr(align(64))]
struct Aligned<T: ?Sized>(T);

static FILE: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../models/default.wf.safetensors"));

/// A packed model file.
pub static DEFAULT_MODEL: &[u8] = &FILE.0;

/// What the model is called in output.
pub const DEFAULT_NAME: &str = "default";
