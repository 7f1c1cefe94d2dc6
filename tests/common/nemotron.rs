//! The small trained Nemotron-Labs-Diffusion of `tests/golden/models/nemotron`.

use std::path::{Path, PathBuf};
use wrinklefree::format::{Checkpoint, File, load};

/// The directory of the model and of what the reference computed with it.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/models/nemotron")
}

/// The files of the model, with the adapter for drafts or without it.
pub fn files(adapter: bool) -> Vec<File> {
    let plain = ["config.json", "model.safetensors", "tokenizer.json"];
    let adapted =
        ["linear_spec_lora/adapter_config.json", "linear_spec_lora/adapter_model.safetensors"];
    let file = |name: &&str| File {
        name: (*name).into(),
        bytes: std::fs::read(directory().join(name)).unwrap().into(),
    };
    plain.iter().chain(adapted.iter().filter(|_| adapter)).map(file).collect()
}

/// Reads the model.
pub fn checkpoint(adapter: bool) -> Checkpoint {
    load(files(adapter)).unwrap()
}
