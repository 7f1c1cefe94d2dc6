//! Compares logits of hybrid models (`qwen35`) with Hugging Face `transformers` in f32: directories and
//! GGUF, dense and ternary, rotated and not, on every instruction set of this machine. The files are small
//! and random; `tests/golden/qwen35.py` makes them and many more.

use std::path::{Path, PathBuf};
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::format::{Checkpoint, File, LoadOptions, load_with, write_packed};
use wrinklefree::kernel::Kernels;
use wrinklefree::loader::WeightLoader;
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;

/// Largest accepted norm of the difference, relative to the norm of the logits: float models.
const FLOAT: f64 = 2e-5;
/// The same for quantized models, whose activations have 15 bits.
const QUANTIZED: f64 = 6e-4;

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/models").join(name)
}

fn file(path: &Path) -> File {
    let name = path.file_name().unwrap().to_str().unwrap().into();
    File { name, bytes: std::fs::read(path).unwrap().into() }
}

fn load(files: Vec<File>) -> Checkpoint {
    load_with(files, LoadOptions { mtp: true }, &mut WeightLoader::alone()).unwrap()
}

/// The GGUF file of a directory, or else its configuration and weights; with a block that drafts, if there
/// is one.
fn open(directory: &Path) -> Checkpoint {
    let gguf = directory.join("model.gguf");
    let names: &[&str] =
        if gguf.exists() { &["model.gguf"] } else { &["config.json", "model.safetensors"] };
    load(names.iter().map(|name| file(&directory.join(name))).collect())
}

/// Largest difference of the model's logits from the golden ones, over all instruction sets.
fn check(what: &str, checkpoint: Checkpoint, directory: &Path, limit: f64) {
    let model = Model::new(checkpoint.spec, checkpoint.weights).unwrap();
    let tokens = crate::npy::ids(&directory.join("tokens.npy"));
    let (shape, want) = crate::npy::floats(&directory.join("causal.npy"));
    // The golden rows are the last ones of equal parts of the text.
    let (rows, vocab) = (shape[0], model.spec().vocab_size);
    let every = tokens.len() / rows;
    assert_eq!((shape[1], rows * every), (vocab, tokens.len()));
    for kernels in Kernels::all() {
        let rt = Runtime { kernels, thread_pool: ThreadPool::new(2).unwrap() };
        let mut kv = KvPool::new(model.spec(), 8, KvConfig::EXACT).unwrap();
        let seq = kv.open(tokens.len()).unwrap();
        let mut ws = Workspace::default();
        let mut logits = Vec::new();
        // Cuts that fall into chunks of the recurrence and between them.
        for piece in [&tokens[..1], &tokens[1..71], &tokens[71..192], &tokens[192..]] {
            let (attention_mask, start) = (AttentionMask::Causal, kv.written(seq));
            let span = Span { seq, start, tokens: piece, attention_mask, logits: LogitRows::All };
            let rows = model.forward(&rt, &mut kv, &[span], &mut ws);
            logits.extend_from_slice(rows.values());
            kv.commit(seq, start + piece.len());
        }
        let square = |x: f32| f64::from(x) * f64::from(x);
        let parts = logits.chunks(every * vocab).zip(want.chunks(vocab));
        let pairs = parts.flat_map(|(part, want)| part[(every - 1) * vocab..].iter().zip(want));
        let off: f64 = pairs.map(|(a, b)| square(a - b)).sum();
        let off = (off / want.iter().map(|&x| square(x)).sum::<f64>()).sqrt();
        println!("{what} on {}: {off:.1e}", kernels.isa().name());
        assert!(off <= limit, "{what} on {}: off by {off}", kernels.isa().name());
    }
}

/// Checks a model as it is and through a packed file.
fn golden(name: &str, limit: f64) {
    let directory = directory(&format!("qwen35-{name}"));
    let checkpoint = open(&directory);
    assert_eq!(checkpoint.spec.mtp_layers, usize::from(name.ends_with("-mtp")));
    let mut packed = Vec::new();
    write_packed(&checkpoint, None, &mut packed).unwrap();
    check(name, checkpoint, &directory, limit);
    let packed = File { name: "model.wf.safetensors".into(), bytes: packed.into() };
    check(&format!("packed {name}"), load(vec![packed]), &directory, limit);
}

macro_rules! goldens {
    ($($test:ident $name:literal $limit:ident;)+) => {
        $(#[test]
        fn $test() {
            golden($name, $limit);
        })+
    };
}

goldens! {
    flat_f32_tied "flat-f32-tied" FLOAT;
    flat_bf16_with_more_value_heads "flat-bf16" FLOAT;
    wrapped_bf16_tied "wrapped-bf16-tied" FLOAT;
    wrapped_f16_with_more_value_heads "wrapped-f16" FLOAT;
    gguf_bf16_with_a_drafting_block "gguf-bf16-tied-mtp" FLOAT;
    q2_0_without_rotation "gguf-q2_0" QUANTIZED;
    q2_0_in_blocks_below_a_group_identity "gguf-q2_0-b32-identity" QUANTIZED;
    q2_0_of_128_tied_and_tiled "gguf-q2_0-old-b32-tied" QUANTIZED;
    q2_0_in_blocks_above_a_group_tied "gguf-q2_0-b128-tied" QUANTIZED;
    pq2_0_tiled_outputs "gguf-pq2_0-b64-tiled" QUANTIZED;
    pq2_0_folded_by_name "gguf-pq2_0-some" QUANTIZED;
    ptq1_0_in_blocks_of_a_group "gguf-ptq1_0-b128" QUANTIZED;
}
