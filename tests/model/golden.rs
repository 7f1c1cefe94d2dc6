//! Compares logits with Hugging Face `transformers` in f32 (`tests/golden/README.md`): every family and
//! format, causal and block attention, on every instruction set of this machine.

use std::path::{Path, PathBuf};
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::decode::{DecodeMode, PassCosts, Pooling};
use wrinklefree::engine::{Engine, EngineConfig, EventKind, Request, Step};
use wrinklefree::format::{File, load};
use wrinklefree::kernel::Kernels;
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;

/// Largest accepted |difference|, relative to the largest |logit|.
pub const TOLERANCE: f32 = 1e-3;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/models")
}

/// All model files of a directory, or the one file.
fn model(path: &Path) -> Model {
    let paths: Vec<PathBuf> = if path.is_dir() {
        std::fs::read_dir(path).unwrap().map(|e| e.unwrap().path()).collect()
    } else {
        vec![path.to_owned()]
    };
    let wanted = |p: &&PathBuf| {
        let ending = p.extension().and_then(|e| e.to_str());
        matches!(ending, Some("json" | "safetensors")) || *p == path
    };
    let file = |p: &PathBuf| File {
        name: p.file_name().unwrap().to_str().unwrap().into(),
        bytes: std::fs::read(p).unwrap().into(),
    };
    let files: Vec<File> = paths.iter().filter(wanted).map(file).collect();
    let checkpoint = load(files).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    Model::new(checkpoint.spec, checkpoint.weights).unwrap()
}

fn argmax(row: &[f32]) -> usize {
    (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap()
}

/// Compares all logits under one attention mask with a golden file.
pub fn compare(
    model: &Model,
    kernels: Kernels,
    tokens: &[u32],
    attention_mask: AttentionMask,
    expected: &Path,
) {
    let rt = Runtime { kernels, thread_pool: ThreadPool::new(2).unwrap() };
    let mut kv = KvPool::new(model.spec(), 4, KvConfig::EXACT).unwrap();
    let seq = kv.open(tokens.len()).unwrap();
    let span = Span { seq, start: 0, tokens, attention_mask, logits: LogitRows::All };
    let mut ws = Workspace::default();
    let logits = model.forward(&rt, &mut kv, &[span], &mut ws);
    let (shape, want) = crate::npy::floats(expected);
    assert_eq!(shape, [tokens.len(), model.spec().vocab_size]);
    let largest = want.iter().fold(0f32, |m, v| m.max(v.abs()));
    let worst = logits.values().iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    let what = format!("{} on {}", expected.display(), kernels.isa().name());
    println!("{what}: {:.1e}", worst / largest);
    assert!(worst <= TOLERANCE * largest, "{what}: off by {} of {largest}", worst);
    for (i, want) in want.chunks(shape[1]).enumerate() {
        assert_eq!(argmax(logits.row(i)), argmax(want), "{what}: argmax at {i}");
    }
}

fn check(name: &str, file: &str, blocks: bool) {
    let directory = golden().join(name);
    let model = model(&directory.join(file));
    let tokens = crate::npy::ids(&directory.join("tokens.npy"));
    for kernels in Kernels::all() {
        compare(&model, kernels, &tokens, AttentionMask::Causal, &directory.join("causal.npy"));
        for size in [5, 32].into_iter().filter(|_| blocks) {
            let file = directory.join(format!("blocks{size}.npy"));
            compare(&model, kernels, &tokens, AttentionMask::BlockCausal(size), &file);
        }
    }
}

/// Compares the engine's pooled embeddings with those of the golden hidden states.
fn check_hidden(name: &str) {
    let directory = golden().join(name);
    let tokens = crate::npy::ids(&directory.join("tokens.npy"));
    let (shape, want) = crate::npy::floats(&directory.join("hidden.npy"));
    let rows: Vec<&[f32]> = want.chunks(shape[1]).collect();
    let sum = |j: usize| rows.iter().map(|row| f64::from(row[j])).sum::<f64>();
    let mean: Vec<f64> = (0..shape[1]).map(sum).collect();
    let last: Vec<f64> = rows[rows.len() - 1].iter().map(|&x| f64::from(x)).collect();
    for kernels in Kernels::all() {
        for (pooling, want) in [(Pooling::Mean, &mean), (Pooling::Last, &last)] {
            let length = want.iter().map(|x| x * x).sum::<f64>().sqrt();
            let vector = embed(model(&directory), kernels, tokens.clone(), pooling);
            let off = |(got, want): (&f32, &f64)| (f64::from(*got) - want / length).abs();
            let worst = vector.iter().zip(want).map(off).fold(0.0, f64::max);
            let isa = kernels.isa().name();
            assert!(worst < f64::from(TOLERANCE), "{name} on {isa}, {pooling:?}: off by {worst}");
        }
    }
}

/// The embedding of a prompt that is computed in chunks of 7 tokens.
fn embed(model: Model, kernels: Kernels, tokens: Vec<u32>, pooling: Pooling) -> Vec<f32> {
    let runtime = Runtime { kernels, thread_pool: ThreadPool::new(1).unwrap() };
    let (context, rows) = (tokens.len(), 7);
    let config = EngineConfig {
        max_context: context,
        kv_pages: 4,
        max_sequences: 1,
        max_batch_tokens: rows,
        pass_costs: PassCosts::uniform(0.0),
        prefix_cache: true,
        kv: KvConfig::EXACT,
    };
    let mut engine = Engine::new(model, None, runtime, config).unwrap();
    let mode = DecodeMode::Embed(pooling);
    engine.submit(Request { tokens, mode, ..Request::default() }).unwrap();
    while engine.step() != Step::Idle {}
    match engine.poll().map(|event| event.kind) {
        Some(EventKind::Embedded(vector)) => vector,
        other => panic!("{other:?}"),
    }
}

macro_rules! directories {
    ($($test:ident $name:literal),+ $(,)?) => {
        $(#[test]
        fn $test() {
            check($name, "", true);
            check_hidden($name);
        })+
    };
}

directories! {
    bitnet_online "bitnet-online",
    bitnet_packed "bitnet-packed",
    llama_bitlinear "llama-bitlinear",
    llama_plain "llama-plain",
    qwen2 "qwen2",
    qwen3 "qwen3",
    qwen3_online "qwen3-online",
    qwen3_groups "qwen3-groups",
    llama_linear "llama-linear",
    qwen3_yarn "qwen3-yarn",
    qwen2_yarn "qwen2-yarn",
}

/// The packed file that `wf-run` embeds.
fn default_model() -> (Model, PathBuf) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    (model(&root.join("models/default.wf.safetensors")), root.join("tests/golden/pilot"))
}

#[test]
fn the_default_model() {
    let (model, directory) = default_model();
    let tokens = crate::npy::ids(&directory.join("tokens.npy"));
    for kernels in Kernels::all() {
        compare(&model, kernels, &tokens, AttentionMask::Causal, &directory.join("causal.npy"));
    }
}

#[test]
fn the_default_model_continues_as_transformers_does() {
    let (model, directory) = default_model();
    let json = std::fs::read(directory.join("greedy.json")).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let ids = |key: &str| -> Vec<u32> { serde_json::from_value(json[key].clone()).unwrap() };
    let (prompt, want) = (ids("prompt"), ids("continuation"));
    for kernels in Kernels::all() {
        let rt = Runtime { kernels, thread_pool: ThreadPool::new(1).unwrap() };
        let mut kv = KvPool::new(model.spec(), 4, KvConfig::EXACT).unwrap();
        let seq = kv.open(prompt.len() + want.len()).unwrap();
        let mut ws = Workspace::default();
        let (mut input, mut found) = (prompt.clone(), Vec::new());
        while found.len() < want.len() {
            let (attention_mask, logits) = (AttentionMask::Causal, LogitRows::Last);
            let start = kv.written(seq);
            let span = Span { seq, start, tokens: &input, attention_mask, logits };
            let next = argmax(model.forward(&rt, &mut kv, &[span], &mut ws).row(0)) as u32;
            found.push(next);
            input = vec![next];
        }
        assert_eq!(found, want, "{}", kernels.isa().name());
    }
}

#[test]
fn qwen3_groups_gguf() {
    check("qwen3-groups", "q2_0.gguf", true);
}

#[test]
fn gguf_with_scaled_positions() {
    check("llama-linear", "f16.gguf", true);
    check("qwen3-yarn", "f16.gguf", true);
}

#[test]
fn bitnet_gguf() {
    check("gguf-bitnet", "tq2_0.gguf", false);
    check("gguf-bitnet", "tq1_0.gguf", false);
}

#[test]
fn llama_gguf() {
    check("gguf-llama", "f16.gguf", false);
}

#[test]
fn qwen3_gguf() {
    check("gguf-qwen3", "q8_0.gguf", false);
}

#[test]
fn models_of_one_to_two_bits_and_their_families() {
    for (name, directory) in [
        ("hunyuan", true),
        ("hunyuan-new", true),
        ("hunyuan-stq", false),
        ("bonsai-q1", false),
        ("minicpm-long", true),
        ("minicpm-short", true),
        ("minicpm-tq2", false),
    ] {
        check(name, "model.gguf", false);
        if directory {
            check(name, "", false);
        }
    }
}
