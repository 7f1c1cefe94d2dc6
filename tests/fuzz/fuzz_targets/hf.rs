//! Loads any bytes as one of the small files of a directory with valid weights. The first byte selects
//! the file.
#![no_main]
#[path = "../../common/format.rs"]
mod fixtures;

use fixtures::{Hf, Style, file};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use wrinklefree::format::File;

static FILES: LazyLock<Vec<File>> = LazyLock::new(|| Hf::new("bitnet", Style::Packed).files());
const NAMES: [&str; 9] = [
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "dlm_config.json",
    "model.safetensors.index.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
];

fuzz_target!(|data: &[u8]| {
    let Some((&which, text)) = data.split_first() else { return };
    let name = NAMES[usize::from(which) % NAMES.len()];
    let mut files: Vec<File> = FILES.iter().filter(|f| f.name != name).cloned().collect();
    files.push(file(name, text));
    let _ = wrinklefree::format::load(files);
});
