//! Nemotron-Labs-Diffusion: decodings of a small trained model, pass by pass, compared with those of a
//! plain reference without caches (`tests/golden/nemotron.py`).

#[path = "../common/nemotron.rs"]
mod files;

use serde::Deserialize;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::decode::{
    DecodeMode, DiffusionParams, Drafter, FinishReason, PassCosts, SamplingParams,
};
use wrinklefree::engine::{Engine, EngineConfig, EventKind, Request, SeqId, Step};
use wrinklefree::format::DlmConfig;
use wrinklefree::kernel::Kernels;
use wrinklefree::model::{AttentionMask, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;
use wrinklefree::settings::{Commit, Mode, ModelCapabilities, Selector, Settings};

const EOS: u32 = 2;
const MASK: u32 = 4;
const BLOCK: usize = 8;

/// Results of the reference for a prompt.
#[derive(Deserialize)]
struct Case {
    prompt: Vec<u32>,
    max_tokens: usize,
    ar: Vec<u32>,
    iterative: Vec<Iterative>,
    speculative: Vec<Speculative>,
}

/// A text that was denoised block by block: the block before each pass.
#[derive(Deserialize)]
struct Iterative {
    rule: String,
    value: f32,
    passes: Vec<Vec<u32>>,
    output: Vec<u32>,
}

/// Rounds of linear self-speculation.
#[derive(Deserialize)]
struct Speculative {
    window: usize,
    lora: bool,
    rounds: Vec<Round>,
}

/// A drafted block, its first token known, and the number of tokens that a round gave.
#[derive(Deserialize)]
struct Round {
    block: Vec<u32>,
    taken: usize,
}

/// The small model and how it is decoded.
struct Small {
    model: Model,
    dlm: DlmConfig,
    runtime: Runtime,
}

/// A pass of a decoder.
struct Pass {
    tokens: Vec<u32>,
    causal: bool,
    prefilling: bool,
    /// Number of tokens that became final.
    given: usize,
}

impl Small {
    fn new(adapter: bool) -> Self {
        let checkpoint = files::checkpoint(adapter);
        let runtime =
            Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
        let dlm = checkpoint.dlm.unwrap();
        Self { model: Model::new(checkpoint.spec, checkpoint.weights).unwrap(), dlm, runtime }
    }

    fn capabilities(&self) -> ModelCapabilities<'_> {
        let (name, vocab) = ("small", self.model.spec().vocab_size);
        ModelCapabilities {
            name,
            dlm: Some(&self.dlm),
            tokenizer: None,
            vocab,
            rows: 64,
            draft_net: None,
        }
    }

    fn mode(&self, settings: &Settings) -> DecodeMode {
        settings.mode(&self.capabilities()).unwrap()
    }

    fn denoise(&self, run: &Iterative) -> DecodeMode {
        let mut settings = settings(Mode::Iterative);
        match run.rule.as_str() {
            "threshold" => settings.threshold = Some(run.value),
            "product" | "threshold_factor" | "threshold_or_factor" => {
                settings.threshold = Some(run.value);
                settings.selector = Some(match run.rule.as_str() {
                    "product" => Selector::Product,
                    "threshold_factor" => Selector::ThresholdFactor,
                    _ => Selector::ThresholdOrFactor,
                });
            }
            "fixed" => {
                settings.selector = Some(Selector::Topk);
                settings.slots_per_pass = Some(run.value as usize);
            }
            other => panic!("{other}"),
        }
        self.mode(&settings)
    }

    fn speculate(&self, window: usize) -> DecodeMode {
        let length = NonZeroUsize::new(window - 1);
        let drafts =
            Settings { draft_length: length, row_cost: Some(0.0), ..settings(Mode::Verify) };
        self.mode(&drafts)
    }

    /// Decodes a prompt, at most `budget` rows a pass.
    fn run(
        &self,
        mode: DecodeMode,
        prompt: &[u32],
        max_tokens: usize,
        budget: usize,
    ) -> (Vec<Pass>, Vec<u32>) {
        let mut decoder = mode.decoder(
            prompt.to_vec(),
            max_tokens,
            vec![EOS],
            SamplingParams::default(),
            PassCosts::default(),
        );
        let mut kv = KvPool::new(self.model.spec(), 8, KvConfig::EXACT).unwrap();
        let seq = kv.open(256).unwrap();
        let (mut ws, mut passes, mut output) = (Workspace::default(), Vec::new(), Vec::new());
        loop {
            let prefilling = decoder.prefilling();
            let Some(request) = decoder.next_rows(budget) else { break };
            let (tokens, start) = (request.tokens.to_vec(), request.start);
            let (attention_mask, logits) = (request.attention_mask, request.logits);
            let span = Span { seq, start, tokens: &tokens, attention_mask, logits };
            let logits = self.model.forward(&self.runtime, &mut kv, &[span], &mut ws);
            let outcome = decoder.accept(logits);
            kv.commit(seq, outcome.committed);
            output.extend(outcome.tokens.iter().map(|t| t.token));
            let (causal, given) = (attention_mask == AttentionMask::Causal, outcome.tokens.len());
            passes.push(Pass { tokens, causal, prefilling, given });
            if outcome.finished.is_some() {
                break;
            }
        }
        (passes, output)
    }
}

fn settings(mode: Mode) -> Settings {
    Settings { decode_mode: Some(mode), ..Settings::default() }
}

fn cases() -> Vec<Case> {
    let text = std::fs::read(files::directory().join("decodings.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn one_token_after_the_other() {
    let small = Small::new(true);
    for case in cases() {
        let (_, output) =
            small.run(small.mode(&settings(Mode::Ar)), &case.prompt, case.max_tokens, 7);
        assert_eq!(output, case.ar, "{:?}", case.prompt);
    }
}

#[test]
fn blocks_are_denoised_pass_by_pass_as_the_reference_does() {
    let small = Small::new(true);
    let mut blocks_cut = 0;
    for case in cases() {
        for run in &case.iterative {
            let what = format!("{:?}, {} {}", case.prompt, run.rule, run.value);
            let mode = small.denoise(run);
            let (passes, output) = small.run(mode, &case.prompt, case.max_tokens, 16);
            assert_eq!(output, run.output, "{what}");
            let denoising = passes.iter().filter(|pass| !pass.causal);
            let blocks: Vec<&Vec<u32>> = denoising.map(|pass| &pass.tokens).collect();
            // A text ends with its EOS; the reference fills the rest of the block.
            let rest = run.passes.get(blocks.len()..).unwrap_or_default();
            assert!(rest.is_empty() || output.contains(&EOS), "{what}: {} passes", blocks.len());
            for (found, want) in blocks.iter().zip(&run.passes) {
                assert_eq!(*found, want, "{what}");
            }
            assert!(blocks.len() <= run.passes.len(), "{what}");
            // Finished blocks are committed once, causally, as they were decoded.
            let commits = passes.iter().filter(|pass| pass.causal && !pass.prefilling);
            let committed: Vec<u32> = commits.flat_map(|pass| pass.tokens.clone()).collect();
            assert!(output.starts_with(&committed), "{what}: {committed:?}");
            blocks_cut += usize::from(blocks.last().is_some_and(|block| block.len() < BLOCK));
        }
    }
    assert!(blocks_cut > 20, "blocks that end with the output: {blocks_cut}");
}

#[test]
fn linear_self_speculation_drafts_and_accepts_as_the_reference_does() {
    for adapter in [false, true] {
        let small = Small::new(adapter);
        for case in cases() {
            for run in case.speculative.iter().filter(|run| run.lora == adapter) {
                let what = format!("{:?}, window {}, {adapter}", case.prompt, run.window);
                let mode = small.speculate(run.window);
                let (passes, output) = small.run(mode, &case.prompt, case.max_tokens, 64);
                assert_eq!(output, case.ar, "{what}");
                let verifying = passes.iter().filter(|pass| pass.causal && !pass.prefilling);
                let found: Vec<_> = verifying.map(|pass| (&pass.tokens, pass.given)).collect();
                let want: Vec<_> = run.rounds.iter().map(|r| (&r.block, r.taken)).collect();
                assert_eq!(found, want, "{what}");
            }
        }
    }
}

/// Text is `ar`'s at any temperature, whatever the drafts say and how long they are.
#[test]
fn speculation_changes_no_token_at_any_temperature() {
    let small = Small::new(true);
    let case = &cases()[4];
    for (temperature, seed) in [(0.0, 0), (0.7, 1), (0.7, 2), (1.5, 3)] {
        let sampling = SamplingParams { temperature, seed, ..SamplingParams::default() };
        let text = |settings: &Settings, rows| {
            let mut engine = engine(&small, 8, rows);
            let tokens = case.prompt.clone();
            let (mode, sampling) = (small.mode(settings), sampling.clone());
            let request = Request { tokens, max_tokens: 60, mode, sampling, ..Request::default() };
            engine.submit(request).unwrap();
            finish(&mut engine).into_values().next().unwrap()
        };
        let want = text(&settings(Mode::Ar), 64);
        for row_cost in [None, Some(0.0), Some(0.3)] {
            for rows in [1, 5, 64] {
                let verify = Settings { row_cost, ..settings(Mode::Verify) };
                assert_eq!(text(&verify, rows), want, "{temperature}, {row_cost:?}, {rows} rows");
            }
        }
    }
}

fn engine(small: &Small, kv_pages: usize, max_batch_tokens: usize) -> Engine {
    let Small { model, .. } = Small::new(true);
    let runtime = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(2).unwrap() };
    let config = EngineConfig {
        max_context: 160.min(small.model.spec().context_length),
        kv_pages,
        max_sequences: 5,
        max_batch_tokens,
        pass_costs: PassCosts::uniform(0.0),
        prefix_cache: true,
        kv: KvConfig::EXACT,
    };
    Engine::new(model, None, runtime, config).unwrap()
}

/// Runs all requests to their end.
fn finish(engine: &mut Engine) -> BTreeMap<SeqId, Vec<u32>> {
    let mut texts: BTreeMap<SeqId, Vec<u32>> = BTreeMap::new();
    while engine.step() != Step::Idle {
        while let Some(event) = engine.poll() {
            let text = texts.entry(event.seq).or_default();
            match event.kind {
                EventKind::Token { sampled, .. } => text.push(sampled.token),
                EventKind::Finished { reason, .. } => {
                    assert!(matches!(reason, FinishReason::Stop | FinishReason::Length));
                }
                other => panic!("{other:?}"),
            }
        }
    }
    texts
}

/// Modes share passes, pages and cached prefixes; sequences are preempted. Only committed tokens are
/// shared, so all texts are those of the reference.
#[test]
fn modes_mix_in_passes_and_share_committed_tokens_alone() {
    let (small, cases) = (Small::new(true), cases());
    for (pages, rows) in [(40, 64), (7, 48), (6, 9)] {
        let mut engine = engine(&small, pages, rows);
        let mut want = BTreeMap::new();
        let mut submit = |mode: DecodeMode, case: &Case, text: &Vec<u32>| {
            let (tokens, max_tokens, eos) = (case.prompt.clone(), case.max_tokens, vec![EOS]);
            let request = Request { tokens, max_tokens, eos, mode, ..Request::default() };
            want.insert(engine.submit(request).unwrap(), text.clone());
        };
        for case in &cases {
            submit(small.mode(&settings(Mode::Ar)), case, &case.ar);
            submit(small.speculate(BLOCK), case, &case.ar);
            case.iterative.iter().for_each(|run| submit(small.denoise(run), case, &run.output));
        }
        let found = finish(&mut engine);
        assert_eq!(found.len(), want.len());
        for (seq, text) in &want {
            assert_eq!(found[seq], *text, "{pages} pages, {rows} rows");
        }
        let stats = engine.stats();
        assert!(pages > 10 || stats.preempted > 0, "{pages} pages: nothing was preempted");
    }
}

#[test]
fn the_default_speculates_and_other_settings_have_their_range() {
    let small = Small::new(false);
    let DecodeMode::Verify { drafter, .. } = small.mode(&Settings::default()) else {
        panic!("the default is lossless")
    };
    assert_eq!(drafter, Drafter::Denoise { length: BLOCK - 1, mask: MASK, shift: false });
    let fused = Settings { commit: Some(Commit::Fused), ..settings(Mode::Iterative) };
    let error = fused.mode(&small.capabilities()).unwrap_err().to_string();
    assert!(error.contains("commit fused") && error.contains("commit clean"), "{error}");
}

/// A hole is filled in one block whose slots all see both sides.
#[test]
fn a_hole_begins_where_the_prompt_ends() {
    let small = Small::new(false);
    let case = &cases()[0];
    let DecodeMode::Diffusion(params) = small.mode(&settings(Mode::Iterative)) else {
        panic!("iterative denoises")
    };
    assert_eq!(params.hole_slots(case.prompt.len()), BLOCK);
    let filled = DecodeMode::Diffusion(DiffusionParams { suffix: vec![40, 41, 42], ..params });
    let (passes, output) = small.run(filled, &case.prompt, 4, 16);
    assert_eq!(output.len(), 4);
    let first = passes.iter().find(|pass| !pass.causal).unwrap();
    assert_eq!(first.tokens, [MASK, MASK, MASK, MASK, 40, 41, 42]);
}
