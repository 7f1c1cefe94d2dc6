//! Loads any bytes as a GGUF file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wrinklefree::format::{File, load};

fuzz_target!(|data: &[u8]| {
    let _ = load(vec![File { name: "model.gguf".into(), bytes: data.to_vec().into() }]);
});
