//! Peak memory of loading: the weights in their final form, and little next to them.

#[path = "../../../benches/common/mod.rs"]
mod bench;

use crate::common::server::Server;
use crate::common::wf_run;
use bench::{bitnet, bitnet_2b};
use serde_json::Value;
use std::fs::{self, File};
use wrinklefree::format::{
    self, Checkpoint, GenerationDefaults, Spec, Vocabulary, load, write_packed,
};
use wrinklefree::kernel::{Isa, Kernels};
use wrinklefree::ternary::Layout;

const DEFAULT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/default.wf.safetensors");

/// Allowance next to the weights: buffers, parts being loaded, huge pages that are not full.
const REST: u64 = 24 << 20;

/// Allowance of an idle server next to weights and tokenizer.
const IDLE: u64 = 100_000_000;

/// 48 MiB of ternary weights in two bits and more, which is when layouts are measured, and 45 of head.
fn spec() -> Spec {
    Spec { layers: 6, hidden_size: 1280, heads: 10, vocab_size: 36_864, ..bitnet_2b() }
}

/// Peak memory and weights of a run in bytes; nothing where the system does not tell.
fn peak(how: &[&str], isa: Option<Isa>) -> Option<(u64, u64)> {
    let args = ["generate", "--raw", "Once", "-n", "1", "--threads", "2", "--json"];
    let mut run = wf_run(&[&args[..], how].concat());
    if let Some(isa) = isa {
        run.env("WF_ISA", isa.name());
    }
    let out = run.output().expect("wf-run starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let json: Value = serde_json::from_slice(&out.stdout).expect("one JSON value");
    Some((json["peak_memory_bytes"].as_u64()?, json["weights_bytes"].as_u64().expect("a number")))
}

#[test]
fn nothing_is_in_memory_twice() {
    let Some((program, _)) = peak(&[], None) else {
        eprintln!("skipped: this system does not tell how much memory a process had");
        return;
    };
    let bytes = fs::read(DEFAULT).expect("there").into();
    let small = load(vec![format::File { name: "default".into(), bytes }]).expect("loads");
    let Some(Vocabulary::Json(tokenizer)) = &small.text.vocabulary else { panic!("it has one") };
    let directory = tempfile::tempdir().expect("a directory");
    let mut model = Checkpoint {
        weights: bitnet(&spec(), 1),
        generation: GenerationDefaults::default(),
        spec: spec(),
        ..small.clone()
    };
    let avx2 = Some(Isa::Avx2).filter(|&isa| Kernels::for_isa(isa).is_some());
    for layout in [Layout::TwoBit, Layout::Tight] {
        let path = directory.path().join("model.safetensors");
        model.weights.set_layout(layout);
        write_packed(&model, Some(tokenizer), &mut File::create(&path).expect("a file"))
            .expect("written");
        let path = path.to_str().expect("UTF-8");
        for logits in ["exact", "screened"] {
            for (weights, layout) in [
                ("copied", "auto"),
                ("copied", "two-bit"),
                ("copied", "tight"),
                ("mapped", "two-bit"),
                ("mapped", "tight"),
            ] {
                for isa in [None, avx2] {
                    let how = ["--logits", logits, "--weights", weights, "--layout", layout];
                    let found = peak(&[&["--model", path], &how[..]].concat(), isa);
                    let (peak, weights) = found.expect("as before");
                    let most = program + weights + REST;
                    assert!(peak <= most, "{how:?} on {isa:?}: {peak} bytes, not {most}");
                }
            }
        }
    }
}

/// Shape of SmolLM2 135M, with positions for 8K tokens.
fn small_shape() -> Spec {
    Spec {
        vocab_size: 49_152,
        hidden_size: 576,
        intermediate_size: 1536,
        heads: 9,
        kv_heads: 3,
        head_dim: 64,
        context_length: 8192,
        ..bitnet_2b()
    }
}

/// Resident memory of a process in bytes.
fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// A server without requests takes weights and tokenizer, whatever texts and requests it is ready for.
#[test]
fn an_idle_server_takes_no_memory_for_its_context() {
    let bytes = fs::read(DEFAULT).expect("there").into();
    let small = load(vec![format::File { name: "default".into(), bytes }]).expect("loads");
    let Some(Vocabulary::Json(tokenizer)) = &small.text.vocabulary else { panic!("it has one") };
    let tokenizer = tokenizer.clone();
    let generation = GenerationDefaults::default();
    let weights = bitnet(&small_shape(), 1);
    let model = Checkpoint { weights, generation, spec: small_shape(), ..small };
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("model.safetensors");
    write_packed(&model, Some(&tokenizer), &mut File::create(&path).expect("a file"))
        .expect("written");
    let path = path.to_str().expect("UTF-8");
    let inspected = crate::common::run(&["inspect", "--json", path]).ends(0, &[]);
    let report: Value = serde_json::from_str(&inspected.stdout).expect("JSON");
    let part = |name: &str| report["memory"][name].as_u64().expect("bytes");
    let most = part("weights") + part("tokenizer") + IDLE;
    for settings in [&["--context", "512"][..], &[], &["--max-sequences", "64"]] {
        let server = Server::start(&[&["--model", path, "--weights", "copied"], settings].concat());
        let Some(found) = resident(server.child.id()) else {
            eprintln!("skipped: this system does not tell how much memory a process has");
            return;
        };
        println!("{settings:?}: {} kB of at most {} kB", found >> 10, most >> 10);
        assert!(found <= most, "{settings:?}: {found} bytes, not {most}");
    }
}
