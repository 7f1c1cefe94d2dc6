//! Loads any bytes as the weights of an otherwise valid directory.
#![no_main]
#[path = "../../common/format.rs"]
mod fixtures;

use fixtures::{Hf, Style, file};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static HF: LazyLock<Hf> = LazyLock::new(|| Hf::new("bitnet", Style::Packed));

fuzz_target!(|data: &[u8]| {
    let config = file("config.json", HF.config.to_string());
    let _ = wrinklefree::format::load(vec![config, file("model.safetensors", data)]);
});
