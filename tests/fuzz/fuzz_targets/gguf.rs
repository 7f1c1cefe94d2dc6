//! Loads any bytes as a GGUF file, with a block for multi-token prediction if it has one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wrinklefree::format::{File, LoadOptions, load_with};
use wrinklefree::loader::WeightLoader;

fuzz_target!(|data: &[u8]| {
    let files = vec![File { name: "model.gguf".into(), bytes: data.to_vec().into() }];
    let _ = load_with(files, LoadOptions { mtp: true }, &mut WeightLoader::alone());
});
