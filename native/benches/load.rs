//! Loading a packed model of the size of BitNet b1.58 2B-4T, with a tokenizer of its size, as
//! `wf-run generate` does: `cargo bench -p wf-run --bench load`.
//!
//! Writes 1 GB of random weights to a temporary file; the baseline is reading that file once, from
//! the page cache, in the same minute.

#[path = "../../benches/common/mod.rs"]
mod common;

use common::{bitnet, bitnet_2b};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{BufWriter, Read};
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use wrinklefree::format::{Checkpoint, GenerationDefaults, TextParts, write_packed};

const TURNS: usize = 5;

/// A byte-level BPE of `size` tokens: all bytes, then pairs of bytes, then triples.
fn tokenizer(size: usize) -> Vec<u8> {
    // The printable stand-ins of byte-level BPE: these bytes are themselves, others move up.
    let own = |b: u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let moved = (0..256).filter(|&b| !own(b)).zip(256..).collect::<Vec<_>>();
    let text = |b: u32| {
        let code = moved.iter().find(|m| m.0 == b).map_or(b, |m| m.1);
        char::from_u32(code).expect("below the surrogates").to_string()
    };
    let bytes: Vec<String> = (0..256).map(text).collect();
    let pairs = bytes.iter().flat_map(|a| bytes.iter().map(move |b| (a.clone(), b.clone())));
    let triples = pairs.clone().flat_map(|(a, b)| {
        let pair = a + &b;
        bytes[..4].iter().map(move |c| (pair.clone(), c.clone()))
    });
    let merges: Vec<(String, String)> = pairs.chain(triples).take(size - 256).collect();
    let texts = bytes.iter().cloned().chain(merges.iter().map(|(a, b)| format!("{a}{b}")));
    let vocab: Map<String, Value> = texts.zip(0..).map(|(t, i)| (t, json!(i))).collect();
    let level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let json = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
        "normalizer": null, "pre_tokenizer": level, "post_processor": null, "decoder": level,
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
            "ignore_merges": false, "vocab": vocab, "merges": merges,
        },
    });
    json.to_string().into_bytes()
}

/// Seconds that the program says loading took, and its peak memory in bytes.
fn load(path: &Path) -> (f64, f64) {
    let args = ["generate", "--raw", "hello", "-n", "1", "--json", "--model"];
    let out = Command::new(env!("CARGO_BIN_EXE_wf-run")).args(args).arg(path).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    let seconds = json["load_seconds"].as_f64().unwrap();
    (seconds, json["peak_memory_bytes"].as_f64().unwrap())
}

/// Seconds that reading the file into one small buffer takes.
fn read(path: &Path) -> f64 {
    let (mut file, mut buffer) = (File::open(path).unwrap(), vec![0; 1 << 20]);
    let start = Instant::now();
    while file.read(&mut buffer).unwrap() > 0 {}
    start.elapsed().as_secs_f64()
}

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bitnet-2b.wf.safetensors");
    let spec = bitnet_2b();
    let checkpoint = Checkpoint {
        weights: bitnet(&spec, 1),
        text: TextParts::default(),
        generation: GenerationDefaults::default(),
        dlm: None,
        spec,
    };
    let tokenizer = tokenizer(checkpoint.spec.vocab_size);
    let mut out = BufWriter::new(File::create(&path).unwrap());
    write_packed(&checkpoint, Some(&tokenizer), &mut out).unwrap();
    drop((checkpoint, out));
    let size = path.metadata().unwrap().len() as f64;
    read(&path);
    for _ in 0..TURNS {
        let ((loading, memory), reading) = (load(&path), read(&path));
        println!(
            "{:.0} MB: loaded in {loading:.3} s, {:.2} of the {reading:.3} s that reading it takes; \
             peak memory {:.0} MB, {:.2} of the file",
            size / 1e6,
            loading / reading,
            memory / 1e6,
            memory / size,
        );
    }
}
