//! Models write the same tokens on every instruction set of this machine, in every decode mode: those of
//! `golden/transcripts.json`, which x86 and ARM share. Floats differ in their last bits between
//! sets, by the order of sums, so logits are compared within a tolerance (`golden.rs`,
//! `golden_qwen35.rs`) and tokens here. `-- --ignored` writes the file, from what the scalar kernels
//! compute.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use wrinklefree::cache::KvConfig;
use wrinklefree::decode::{
    Commit, DecodeMode, DiffusionParams, DraftNet, Drafter, Inside, PassCosts, SamplingParams,
    Unmask,
};
use wrinklefree::engine::{Engine, EngineConfig, EventKind, Request, Step};
use wrinklefree::format::{File, LoadOptions, load_with};
use wrinklefree::kernel::{Isa, Kernels, KvType};
use wrinklefree::loader::WeightLoader;
use wrinklefree::model::{Model, Runtime};
use wrinklefree::par::ThreadPool;

/// The embedded model: ternary with 8-bit activations, an int8 head.
const EMBEDDED: &str = "models/default.wf.safetensors";
/// A hybrid whose ternary weights have a scale per group: 15-bit activations.
const TERNARY: &str = "tests/golden/models/qwen35-gguf-q2_0/model.gguf";
/// A hybrid in bf16 with a block for multi-token prediction.
const FLOAT: &str = "tests/golden/models/qwen35-gguf-bf16-tied-mtp/model.gguf";

/// Tokens of each transcript: `[model][how]`.
type Transcripts = BTreeMap<String, BTreeMap<String, Vec<u32>>>;

fn path(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

fn json<T: serde::de::DeserializeOwned>(of: &str) -> T {
    serde_json::from_slice(&std::fs::read(path(of)).unwrap()).unwrap()
}

fn engine(file: &str, kernels: Kernels, kv: KvConfig) -> Engine {
    let bytes = std::fs::read(path(file)).unwrap().into();
    let files = vec![File { name: file.rsplit('/').next().unwrap().into(), bytes }];
    let options = LoadOptions { mtp: true };
    let checkpoint = load_with(files, options, &mut WeightLoader::alone()).unwrap();
    let model = Model::new(checkpoint.spec, checkpoint.weights).unwrap();
    let runtime = Runtime { kernels, thread_pool: ThreadPool::new(2).unwrap() };
    let config = EngineConfig {
        max_context: 160,
        kv_pages: 8,
        max_sequences: 1,
        max_batch_tokens: 64,
        pass_costs: PassCosts::uniform(0.0),
        prefix_cache: false,
        kv,
    };
    Engine::new(model, None, runtime, config).unwrap()
}

/// A generation: the name of its transcript, how it decodes, and its dice.
struct Generation {
    name: &'static str,
    mode: DecodeMode,
    temperature: f32,
}

fn generation(name: &'static str, mode: DecodeMode) -> Generation {
    Generation { name, mode, temperature: if name == "sampled" { 0.8 } else { 0.0 } }
}

fn verify(drafter: Drafter) -> DecodeMode {
    DecodeMode::Verify { drafter, row_cost: None }
}

fn lookup() -> DecodeMode {
    verify(Drafter::Ngram { length: 8, matches: (1, 3) })
}

fn denoise() -> DecodeMode {
    verify(Drafter::Denoise { length: 8, mask: 0, shift: true })
}

fn diffusion(unmask: Unmask) -> DiffusionParams {
    crate::parameters::params(16, 4, unmask)
}

/// Every way to generate, and the name of its transcript: drafts change no token.
fn embedded() -> Vec<Generation> {
    let fused = DiffusionParams {
        sub_cache: true,
        commit: Commit::Fused,
        ..diffusion(Unmask::Rising(0.9))
    };
    let causal = DiffusionParams { inside: Inside::Causal, ..diffusion(Unmask::Above(0.6)) };
    let blockwise = DiffusionParams { clean_causal: false, ..diffusion(Unmask::Top(1)) };
    let hole = DiffusionParams { suffix: vec![18, 297], ..diffusion(Unmask::Top(2)) };
    let diffuse = |name, params| generation(name, DecodeMode::Diffusion(params));
    vec![
        generation("greedy", DecodeMode::Autoregressive),
        generation("greedy", lookup()),
        generation("greedy", denoise()),
        generation("sampled", DecodeMode::Autoregressive),
        generation("sampled", lookup()),
        diffuse("diffusion, whole block", diffusion(Unmask::All)),
        diffuse("diffusion, threshold", diffusion(Unmask::Above(0.9))),
        diffuse("diffusion, margin", diffusion(Unmask::Margin(0.5))),
        diffuse("diffusion, factor", diffusion(Unmask::Factor(1.0))),
        diffuse("diffusion, entropy", diffusion(Unmask::Entropy(0.1))),
        diffuse("diffusion, two slots a pass", diffusion(Unmask::Top(2))),
        diffuse("diffusion, causal", causal),
        diffuse("diffusion, finished blocks bidirectional", blockwise),
        diffuse("diffusion, cached and fused", fused),
        diffuse("diffusion, a hole", hole),
    ]
}

fn hybrid() -> Vec<Generation> {
    let sampled = generation("sampled", DecodeMode::Autoregressive);
    vec![
        generation("greedy", DecodeMode::Autoregressive),
        generation("greedy", lookup()),
        generation("sampled", lookup()),
        sampled,
    ]
}

fn with_mtp() -> Vec<Generation> {
    let mtp = generation(
        "greedy",
        verify(Drafter::Net { length: 3, net: DraftNet::mtp(0.1), threshold: 0.0 }),
    );
    hybrid().into_iter().chain([mtp]).collect()
}

/// Generates 20 tokens, or 3 into a hole: the scalar kernels are slow.
fn tokens(engine: &mut Engine, generation: &Generation, prompt: &[u32]) -> Vec<u32> {
    let Generation { mode, temperature, .. } = generation;
    let hole = matches!(mode, DecodeMode::Diffusion(params) if !params.suffix.is_empty());
    let request = Request {
        tokens: prompt.to_vec(),
        max_tokens: if hole { 3 } else { 20 },
        sampling: SamplingParams {
            temperature: *temperature,
            top_p: 0.95,
            seed: 7,
            ..SamplingParams::default()
        },
        mode: mode.clone(),
        ..Request::default()
    };
    engine.submit(request).unwrap();
    while engine.step() != Step::Idle {}
    let mut out = Vec::new();
    while let Some(event) = engine.poll() {
        match event.kind {
            EventKind::Token { sampled, .. } => out.push(sampled.token),
            EventKind::Finished { .. } | EventKind::Slots(_) => {}
            other => panic!("{other:?}"),
        }
    }
    out
}

/// Prompts of the models: a chat about a boat, and the first tokens of a golden text.
fn prompt(file: &str) -> Vec<u32> {
    match file {
        EMBEDDED => {
            let facts: serde_json::Value = json("tests/golden/pilot/greedy.json");
            serde_json::from_value(facts["prompt"].clone()).unwrap()
        }
        _ => (3..40).map(|i| i * i % 97).collect(),
    }
}

/// A model, how its keys and values are kept, and what it generates.
struct Case {
    name: &'static str,
    file: &'static str,
    kv: KvConfig,
    generations: Vec<Generation>,
}

impl Case {
    /// A case with exact keys and values, named as its file is.
    fn new(file: &'static str, generations: Vec<Generation>) -> Self {
        Self { name: file, file, kv: KvConfig::EXACT, generations }
    }

    /// The embedded model with keys and values of another type.
    fn with_kv(name: &'static str, kv: KvType) -> Self {
        let generations = vec![generation("greedy", DecodeMode::Autoregressive)];
        let kv = KvConfig { keys: kv, values: kv, ..KvConfig::EXACT };
        Self { name, kv, ..Self::new(EMBEDDED, generations) }
    }

    /// Generates everything, in order.
    fn run(&self, kernels: Kernels) -> Vec<Vec<u32>> {
        let (mut engine, prompt) = (engine(self.file, kernels, self.kv), prompt(self.file));
        self.generations.iter().map(|g| tokens(&mut engine, g, &prompt)).collect()
    }

    /// Checks all generations on every instruction set.
    fn check(&self) {
        let golden: Transcripts = json("tests/golden/transcripts.json");
        let mut wrong = String::new();
        for kernels in Kernels::all() {
            let isa = kernels.isa().name();
            let all = self.run(kernels);
            println!("{} on {isa}: {} generations", self.name, all.len());
            for (g, found) in self.generations.iter().zip(all) {
                if golden[self.name].get(g.name) != Some(&found) {
                    wrong +=
                        &format!("\n{} on {isa}: {}, {:?}: {found:?}", self.name, g.name, g.mode);
                }
            }
        }
        assert!(wrong.is_empty(), "other tokens than in the file:{wrong}");
    }
}

fn cases() -> [Case; 6] {
    [
        Case::new(EMBEDDED, embedded()),
        Case::new(TERNARY, hybrid()),
        Case::new(FLOAT, with_mtp()),
        Case::with_kv("bf16 keys and values", KvType::Bf16),
        Case::with_kv("fp8 keys and values", KvType::Fp8E4m3),
        Case::with_kv("int8 keys and values", KvType::Int8),
    ]
}

#[test]
fn the_embedded_model_writes_its_transcripts() {
    cases()[0].check();
}

#[test]
fn hybrids_write_their_transcripts() {
    cases()[1..3].iter().for_each(Case::check);
}

#[test]
fn narrow_keys_and_values_write_their_transcripts() {
    cases()[3..].iter().for_each(Case::check);
}

#[test]
#[ignore = "writes the file"]
fn write() {
    let mut out = Transcripts::new();
    for case in cases() {
        let all = case.run(Kernels::for_isa(Isa::Scalar).unwrap());
        let names = case.generations.iter().map(|g| g.name.to_owned());
        // Of generations with one name the first is kept, without drafts.
        let transcripts = names.zip(all).rev().collect();
        out.insert(case.name.into(), transcripts);
    }
    let text = serde_json::to_string(&out).unwrap().replace("],", "],\n");
    std::fs::write(path("tests/golden/transcripts.json"), text + "\n").unwrap();
}
