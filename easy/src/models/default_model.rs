//! The embedded model. To swap it, replace the file (made with `wf-run convert`).

/// Aligned to a cache line, so that the weights are used in place.
#[repr(align(64))]
struct Aligned<T: ?Sized>(T);

static FILE: &Aligned<[u8]> = &Aligned(*include_bytes!("../../../models/default.wf.safetensors"));

/// A packed model file.
pub static DEFAULT_MODEL: &[u8] = &FILE.0;

/// Name of the model in output.
pub const DEFAULT_NAME: &str = "default";
