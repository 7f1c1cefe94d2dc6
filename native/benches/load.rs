//! Loading a packed model of the size of BitNet b1.58 2B-4T, with a tokenizer of its size, as
//! `wf-run generate` does, warm and in every form: `cargo bench -p wf-run --bench load`.
//!
//! Writes 1.6 GB of random weights to temporary files. Two bars, and NO next to what misses one: the
//! slowest run takes a second, and memory is at most the model, as it stands in the end, its keys and
//! values, and 200 MB.

#[path = "../../benches/common/mod.rs"]
mod common;

use common::{bitnet, bitnet_2b};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::process::Command;
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::format::{Checkpoint, GenerationDefaults, TextParts, write_packed};
use wrinklefree::kernel::{Isa, Kernels};
use wrinklefree::mem::WeightVec;
use wrinklefree::ternary::Layout;

const TURNS: usize = 5;
const SECONDS: f64 = 1.0;
/// Memory for everything that is not weights, keys or values.
const REST: f64 = 200e6;

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

/// Brings the file into the page cache, and memory to the system: a virtual machine may have given
/// what was free back to its host, and getting it again takes longer than all else.
fn warm(path: &Path) {
    let length = io::copy(&mut File::open(path).unwrap(), &mut io::sink()).unwrap();
    WeightVec::<u8>::zeroed(length as usize * 3 / 2).fill(1);
}

/// Seconds that the program says loading took, and in bytes its peak memory and the weights.
fn load(path: &Path, isa: Isa, how: &[&str]) -> [f64; 3] {
    let args = ["generate", "--raw", "hello", "-n", "1", "--json", "--model"];
    let mut run = Command::new(env!("CARGO_BIN_EXE_wf-run"));
    let out = run.args(args).arg(path).args(how).env("WF_ISA", isa.name()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    ["load_seconds", "peak_memory_bytes", "weights_bytes"].map(|key| json[key].as_f64().unwrap())
}

/// A line of the table: how often the file is loaded, the slowest time and the largest memory.
fn measure((name, path): (&str, &Path), kv: f64, isa: Isa, [logits, weights]: [&str; 2]) {
    let how = ["--logits", logits, "--weights", weights];
    let turn = |_| {
        warm(path);
        load(path, isa, &how)
    };
    let runs: Vec<_> = (0..TURNS).map(turn).collect();
    let most = |of: usize| runs.iter().map(|run| run[of]).fold(0.0, f64::max);
    let seconds: Vec<_> = runs.iter().map(|run| format!("{:.2}", run[0])).collect();
    let (memory, allowed) = (most(1), most(2) + kv + REST);
    let no = |missed: bool| if missed { "NO" } else { "" };
    println!(
        "{name:<8} {logits:<8} {:<7} {weights:<7} {:>24} {:2} {:>5.0} {:>7.0} {}",
        isa.name(),
        seconds.join(" "),
        no(most(0) > SECONDS),
        memory / 1e6,
        allowed / 1e6,
        no(memory > allowed)
    );
}

fn main() {
    let directory = tempfile::tempdir().unwrap();
    let spec = bitnet_2b();
    let mut checkpoint = Checkpoint {
        weights: bitnet(&spec, 1),
        text: TextParts::default(),
        generation: GenerationDefaults::default(),
        dlm: None,
        training: None,
        flushed: 0,
        mtp_fault: None,
        stored_types: BTreeMap::new(),
        notes: Vec::new(),
        spec: spec.clone(),
    };
    let tokenizer = tokenizer(spec.vocab_size);
    let files = [("two-bit", Layout::TwoBit), ("tight", Layout::Tight)].map(|(name, layout)| {
        let path = directory.path().join(name);
        checkpoint.weights.set_layout(layout);
        let mut out = BufWriter::new(File::create(&path).unwrap());
        write_packed(&checkpoint, Some(&tokenizer), &mut out).unwrap();
        (name, path)
    });
    drop(checkpoint);
    // A prompt of a token and its answer are on one page.
    let kv = KvPool::bytes(&spec, 1, &KvConfig::default()) as f64;
    let best = Kernels::best().isa();
    let avx2 = Some(Isa::Avx2).filter(|&isa| isa != best && Kernels::for_isa(isa).is_some());
    println!("file     logits   kernels weights  seconds, slowest <= 1        MB <= allowed");
    for (name, path) in &files {
        for isa in [Some(best), avx2].into_iter().flatten() {
            for logits in ["exact", "screened"] {
                for weights in ["auto", "mapped"] {
                    measure((name, path), kv, isa, [logits, weights]);
                }
            }
        }
    }
}
