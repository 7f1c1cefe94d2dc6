//! Nemotron-Labs-Diffusion: logits of a small trained model compared with those of a plain reference in
//! f64 (`tests/golden/nemotron.py`), and the mistakes that still write fluent text.

#[path = "../common/nemotron.rs"]
mod files;

use crate::golden::{TOLERANCE, compare};
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::format::{Checkpoint, RopeScaling};
use wrinklefree::kernel::Kernels;
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;

const BLOCK: usize = 8;
const MASK: u32 = 4;

fn model(checkpoint: Checkpoint) -> Model {
    Model::new(checkpoint.spec, checkpoint.weights).unwrap()
}

fn tokens() -> Vec<u32> {
    crate::npy::ids(&files::directory().join("tokens.npy"))
}

/// Text before a block that is on no grid, and the block: some of its slots are known.
fn canvas() -> (Vec<u32>, Vec<u32>) {
    let tokens = tokens();
    let block = [tokens[45], MASK, MASK, tokens[48], MASK, MASK, MASK, MASK];
    (tokens[..45].to_vec(), block.to_vec())
}

/// Logits of the block's rows, `[BLOCK][vocab]`, after a prompt and a block with these masks.
fn block(model: &Model, kernels: Kernels, masks: [AttentionMask; 2]) -> Vec<f32> {
    let rt = Runtime { kernels, thread_pool: ThreadPool::new(2).unwrap() };
    let mut kv = KvPool::new(model.spec(), 4, KvConfig::EXACT).unwrap();
    let seq = kv.open(64).unwrap();
    let mut ws = Workspace::default();
    let (prompt, block) = canvas();
    let span =
        |start, tokens, attention_mask, logits| Span { seq, start, tokens, attention_mask, logits };
    model.forward(&rt, &mut kv, &[span(0, &prompt, masks[0], LogitRows::None)], &mut ws);
    let rows = span(prompt.len(), &block, masks[1], LogitRows::All);
    model.forward(&rt, &mut kv, &[rows], &mut ws).values().to_vec()
}

/// Both directions inside the block.
fn open() -> AttentionMask {
    AttentionMask::Prefix(canvas().0.len() + BLOCK)
}

/// Largest difference to a golden file, relative to its largest logit.
fn off(found: &[f32], file: &str) -> f32 {
    let (shape, want) = crate::npy::floats(&files::directory().join(file));
    assert_eq!(shape[0], BLOCK);
    let largest = want.iter().fold(0f32, |most, x| most.max(x.abs()));
    let worst = found.iter().zip(&want).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
    worst / largest
}

#[test]
fn causal_logits() {
    let expected = files::directory().join("causal.npy");
    for kernels in Kernels::all() {
        let model = model(files::checkpoint(true));
        compare(&model, kernels, &tokens(), AttentionMask::Causal, &expected);
    }
}

#[test]
fn logits_of_a_block_that_begins_where_the_prompt_ends() {
    for kernels in Kernels::all() {
        let model = model(files::checkpoint(true));
        let found = block(&model, kernels, [AttentionMask::Causal, open()]);
        let off = off(&found, "block.npy");
        assert!(off <= TOLERANCE, "{}: off by {off}", kernels.isa().name());
    }
}

/// Mistakes whose text is fluent are far outside the tolerance.
#[test]
fn mistakes_are_seen_in_the_logits() {
    let yarn = |change: fn(&mut Option<RopeScaling>)| {
        let mut checkpoint = files::checkpoint(false);
        change(&mut checkpoint.spec.rope.scaling);
        model(checkpoint)
    };
    let right = || yarn(|_| {});
    let unscaled = yarn(|scaling| {
        let Some(RopeScaling::Yarn(yarn)) = scaling else { panic!("{scaling:?}") };
        yarn.query_beta = 0.0;
    });
    let sharpened = yarn(|scaling| {
        let Some(RopeScaling::Yarn(yarn)) = scaling else { panic!("{scaling:?}") };
        assert_eq!(yarn.attention_factor, 1.0);
        yarn.attention_factor = 1.277;
    });
    let causal = AttentionMask::Causal;
    for (mistake, model, masks) in [
        ("no YaRN", yarn(|scaling| *scaling = None), [causal, open()]),
        ("the attention factor of YaRN", sharpened, [causal, open()]),
        ("queries are not scaled", unscaled, [causal, open()]),
        ("a block-causal prompt", right(), [AttentionMask::BlockCausal(BLOCK), open()]),
        ("a causal block", right(), [causal, causal]),
        ("a block on the grid", right(), [causal, AttentionMask::BlockCausal(BLOCK)]),
    ] {
        let off = off(&block(&model, Kernels::best(), masks), "block.npy");
        println!("{mistake}: {off}");
        assert!(off > 10.0 * TOLERANCE, "{mistake}: off by {off} only");
    }
}

/// The adapter changes rows of drafts alone, whatever rows are in the same pass.
#[test]
fn the_adapter_changes_drafts_alone() {
    let draft = AttentionMask::Draft(canvas().0.len() + BLOCK);
    for kernels in Kernels::all() {
        let (adapted, plain) = (model(files::checkpoint(true)), model(files::checkpoint(false)));
        let logits = |model, mask| block(model, kernels, [AttentionMask::Causal, mask]);
        let found = off(&logits(&adapted, draft), "block_lora.npy");
        assert!(found <= TOLERANCE, "{}: off by {found}", kernels.isa().name());
        assert_eq!(logits(&adapted, open()), logits(&plain, open()));
        assert_eq!(logits(&plain, draft), logits(&plain, open()));
        let without = off(&logits(&plain, draft), "block_lora.npy");
        assert!(without > 10.0 * TOLERANCE, "left out: off by {without} only");
    }
}

#[test]
fn drafts_and_other_rows_share_a_pass() {
    let rt = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(2).unwrap() };
    let model = model(files::checkpoint(true));
    let (prompt, tokens) = canvas();
    let run = |masks: &[AttentionMask]| -> Vec<Vec<f32>> {
        let mut kv = KvPool::new(model.spec(), 8, KvConfig::EXACT).unwrap();
        let mut ws = Workspace::default();
        let seqs: Vec<_> = masks.iter().map(|_| kv.open(64).unwrap()).collect();
        for &seq in &seqs {
            let (attention_mask, logits) = (AttentionMask::Causal, LogitRows::None);
            let span = Span { seq, start: 0, tokens: &prompt, attention_mask, logits };
            model.forward(&rt, &mut kv, &[span], &mut ws);
        }
        let span = |(&seq, &attention_mask)| Span {
            seq,
            start: prompt.len(),
            tokens: &tokens,
            attention_mask,
            logits: LogitRows::Only(&[1, 5]),
        };
        let spans: Vec<_> = seqs.iter().zip(masks).map(span).collect();
        let logits = model.forward(&rt, &mut kv, &spans, &mut ws);
        (0..logits.len()).map(|row| logits.row(row).to_vec()).collect()
    };
    let (draft, causal) = (AttentionMask::Draft(prompt.len() + BLOCK), AttentionMask::Causal);
    let alone = [causal, draft, open()].map(|mask| run(&[mask]));
    assert_eq!(run(&[causal, draft, open()]), alone.concat());
}
