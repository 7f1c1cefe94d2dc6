//! Loads any bytes as a packed file. A loaded model must survive writing and loading.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wrinklefree::format::{File, LoadOptions, Vocabulary, load_with, write_packed};
use wrinklefree::loader::WeightLoader;

fn read(bytes: Vec<u8>) -> Option<wrinklefree::format::Checkpoint> {
    let files = vec![File { name: "model.packed".into(), bytes: bytes.into() }];
    load_with(files, LoadOptions { mtp: true }, &mut WeightLoader::alone()).ok()
}

fuzz_target!(|data: &[u8]| {
    let Some(model) = read(data.to_vec()) else { return };
    let tokenizer = match &model.text.vocabulary {
        Some(Vocabulary::Json(text)) => Some(&text[..]),
        _ => None,
    };
    let mut out = Vec::new();
    write_packed(&model, tokenizer, &mut out).expect("writing to memory");
    let again = read(out).expect("a written file loads");
    assert_eq!(model.spec, again.spec);
});
