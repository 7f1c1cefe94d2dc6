//! Block diffusion: the decoder against a plain reference, on random models and on the embedded one, and
//! properties of every text, replayed without a model.

#[path = "../diffusion/reference.rs"]
mod reference;

use reference::Reference;
use std::path::Path;
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::decode::{
    Autoregressive, BlockDiffusion, Commit, Decoder, DiffusionError, DiffusionParams, FinishReason,
    Inside, RowRequest, SamplingParams, Unmask,
};
use wrinklefree::format::{File, load};
use wrinklefree::kernel::Kernels;
use wrinklefree::model::{LogitRows, Logits, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;

const BLOCK: usize = 32;

fn params(unmask: Unmask, sub_block: usize) -> DiffusionParams {
    crate::parameters::params(BLOCK, sub_block, unmask)
}

/// A random model whose logits are far enough apart for thresholds to matter.
fn random() -> Model {
    crate::common::small_model(40, 11, 10.0)
}

fn embedded() -> Model {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/default.wf.safetensors");
    let file = File { name: "default".into(), bytes: std::fs::read(path).unwrap().into() };
    let checkpoint = load(vec![file]).unwrap();
    Model::new(checkpoint.spec, checkpoint.weights).unwrap().with_supported_layout(&runtime())
}

fn runtime() -> Runtime {
    Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() }
}

fn prompt(model: &Model, length: usize) -> Vec<u32> {
    let vocab = model.spec().vocab_size as u32;
    (0..length as u32).map(|i| 5 + (i * 7919 + 13) % (vocab - 5)).collect()
}

/// Runs a decoder on a model. Calls `look` with the tokens and logits of every denoising pass. Returns the
/// output and the number of passes.
fn drive(
    model: &Model,
    rt: &Runtime,
    decoder: &mut dyn Decoder,
    budget: usize,
    mut look: impl FnMut(&[u32], Logits<'_>),
) -> (Vec<u32>, usize) {
    let mut kv = KvPool::new(model.spec(), 16, KvConfig::EXACT).unwrap();
    let seq = kv.open(16 * BLOCK).unwrap();
    let mut ws = Workspace::default();
    let (mut output, mut passes) = (Vec::new(), 0);
    while let Some(request) = decoder.next_rows(budget) {
        let RowRequest { start, tokens, attention_mask, logits } = request;
        assert!(tokens.len() <= budget);
        let denoises = matches!(logits, LogitRows::Only(_));
        let tokens = tokens.to_vec();
        let span = Span { seq, start, tokens: &tokens, attention_mask, logits };
        let logits = model.forward(rt, &mut kv, &[span], &mut ws);
        if denoises {
            look(&tokens, logits);
        }
        let outcome = decoder.accept(logits);
        kv.commit(seq, outcome.committed);
        output.extend(outcome.tokens.iter().map(|t| t.token));
        passes += 1;
    }
    (output, passes)
}

fn decoder(p: DiffusionParams, prompt: &[u32], max_tokens: usize) -> BlockDiffusion {
    BlockDiffusion::new(p, prompt.to_vec(), max_tokens, Vec::new(), SamplingParams::default())
}

/// Compares blocks and logits of every pass, and the text, with the reference.
fn agrees(model: &Model, rt: &Runtime, p: &DiffusionParams, length: usize, max_tokens: usize) {
    let prompt = prompt(model, length);
    let reference = Reference {
        model,
        rt,
        block: p.block,
        sub_block: p.sub_block,
        unmask: p.unmask,
        mask: p.mask,
        clean_causal: p.clean_causal,
        causal: p.inside == Inside::Causal,
        stale: p.sub_cache,
        fused: p.commit == Commit::Fused,
        shift: p.shift,
    };
    let want = reference.run(&prompt, max_tokens);
    let mut passes = want.passes.iter();
    let what = format!("prompt of {length}, {p:?}");
    let mut decoder = decoder(p.clone(), &prompt, max_tokens);
    let (output, _) = drive(model, rt, &mut decoder, 128, |tokens, logits| {
        let pass = passes.next().unwrap_or_else(|| panic!("{what}: too many passes"));
        // Whole blocks, with the finished block before them if the pass computes it.
        // (Without a shift the reference computes a finished block separately.)
        let apart = p.commit == Commit::Fused && !p.shift;
        if tokens.len() >= p.block && !apart {
            assert!(pass.block.starts_with(tokens), "{what}: {tokens:?} of {:?}", pass.block);
        }
        assert_eq!(logits.len(), pass.logits.len(), "{what}");
        for (row, want) in pass.logits.iter().enumerate() {
            let pairs = logits.row(row).iter().zip(want);
            let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            assert!(worst <= 1e-4, "{what}: logits differ by {worst}");
        }
    });
    assert_eq!(output, want.output[..max_tokens], "{what}");
}

#[test]
fn prompts_of_every_length_decode_as_in_the_paper() {
    let rt = runtime();
    for model in [random(), embedded()] {
        for length in 0..=70 {
            for clean_causal in [false, true] {
                let p = DiffusionParams { clean_causal, ..params(Unmask::Above(0.9), 8) };
                agrees(&model, &rt, &p, length, 35);
            }
        }
    }
}

#[test]
fn every_threshold_and_sub_block_decodes_as_in_the_paper() {
    let rt = runtime();
    for model in [random(), embedded()] {
        for length in [0, 1, 31, 32, 45] {
            for sub_block in [4, 8, 32] {
                for threshold in [0.5, 0.6, 0.7, 0.8, 0.9, 1.0] {
                    for sub_cache in [false, true] {
                        let base = params(Unmask::Above(threshold), sub_block);
                        let p =
                            DiffusionParams { sub_cache, clean_causal: length % 2 == 0, ..base };
                        agrees(&model, &rt, &p, length, 20);
                    }
                }
            }
        }
    }
}

#[test]
fn causal_attention_inside_the_block_reuses_only_what_is_exact() {
    // The reference does not reuse anything.
    let rt = runtime();
    for model in [random(), embedded()] {
        for length in [0, 3, 32, 50] {
            for (threshold, sub_block) in [(0.5, 8), (0.9, 4), (0.9, 32)] {
                let base = params(Unmask::Above(threshold), sub_block);
                let p = DiffusionParams { inside: Inside::Causal, ..base };
                agrees(&model, &rt, &p, length, 40);
            }
        }
    }
}

#[test]
fn every_selector_unmasks_what_its_definition_says() {
    let rt = runtime();
    let selectors = [
        Unmask::All,
        Unmask::Rising(0.9),
        Unmask::Rising(0.6),
        Unmask::Margin(0.3),
        Unmask::Margin(0.8),
        Unmask::Factor(0.5),
        Unmask::Factor(1.0),
        Unmask::Factor(3.0),
        Unmask::Entropy(0.0),
        Unmask::Entropy(0.2),
        Unmask::Entropy(2.0),
        Unmask::Top(1),
        Unmask::Top(3),
    ];
    for model in [random(), embedded()] {
        for unmask in selectors {
            // `All` has one sub-block, the whole block.
            let sub_blocks = if unmask == Unmask::All { &[32][..] } else { &[8, 32] };
            for &sub_block in sub_blocks {
                for (length, sub_cache) in [(0, false), (33, true), (45, false)] {
                    let p = DiffusionParams { sub_cache, ..params(unmask, sub_block) };
                    agrees(&model, &rt, &p, length, 70);
                }
            }
        }
    }
}

#[test]
fn fused_commits_give_what_one_pass_over_both_blocks_gives() {
    let rt = runtime();
    for model in [random(), embedded()] {
        for length in [0, 31, 45, 64] {
            for (unmask, sub_block) in [
                (Unmask::All, 32),
                (Unmask::Above(0.5), 8),
                (Unmask::Above(0.9), 4),
                (Unmask::Above(0.9), 1),
                (Unmask::Top(2), 32),
            ] {
                for (clean_causal, inside, sub_cache) in [
                    (true, Inside::Bidirectional, false),
                    (false, Inside::Bidirectional, true),
                    (true, Inside::Causal, false),
                    (false, Inside::Causal, false),
                ] {
                    let base = params(unmask, sub_block);
                    let commit = Commit::Fused;
                    let p = DiffusionParams { clean_causal, inside, sub_cache, commit, ..base };
                    agrees(&model, &rt, &p, length, 80);
                }
            }
        }
    }
}

#[test]
fn blocks_of_every_size_with_and_without_a_shift() {
    let (model, rt) = (random(), runtime());
    for (block, sub_blocks) in
        [(1, &[1][..]), (2, &[1, 2]), (3, &[1, 3]), (4, &[1, 2, 4]), (24, &[8]), (48, &[16])]
    {
        for &sub_block in sub_blocks {
            for (shift, commit) in [
                (true, Commit::Clean),
                (true, Commit::Fused),
                (false, Commit::Clean),
                (false, Commit::Fused),
            ] {
                for (clean_causal, sub_cache) in [(true, false), (false, false), (false, true)] {
                    for unmask in [Unmask::Above(0.6), Unmask::Top(2)] {
                        for length in [0, block - 1, block, 37] {
                            let own = DiffusionParams { block, shift, commit, ..params(unmask, 8) };
                            let p = DiffusionParams { sub_block, clean_causal, sub_cache, ..own };
                            agrees(&model, &rt, &p, length, 30);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn without_a_shift_fused_commits_save_a_pass_a_block_and_change_nothing() {
    let (model, rt) = (embedded(), runtime());
    let prompt = prompt(&model, 40);
    for unmask in [Unmask::All, Unmask::Above(0.7), Unmask::Factor(1.0)] {
        for inside in [Inside::Bidirectional, Inside::Causal] {
            let run = |commit: Commit| {
                let p = DiffusionParams { commit, inside, shift: false, ..params(unmask, 8) };
                drive(&model, &rt, &mut decoder(p, &prompt, 4 * BLOCK - 8), 64, |_, _| {})
            };
            let (clean, fused) = (run(Commit::Clean), run(Commit::Fused));
            assert_eq!(clean.0, fused.0, "{unmask:?}");
            // Blocks 2 to 5; no block follows the last.
            assert_eq!(clean.1, fused.1 + 3, "{unmask:?}");
        }
    }
}

#[test]
fn the_budget_of_a_pass_changes_nothing() {
    let (model, rt) = (embedded(), runtime());
    for clean_causal in [false, true] {
        let p = DiffusionParams { clean_causal, ..params(Unmask::Above(0.7), 8) };
        let prompt = prompt(&model, 100);
        let run = |budget: usize| {
            let mut decoder = decoder(p.clone(), &prompt, 50);
            drive(&model, &rt, &mut decoder, budget, |_, _| {}).0
        };
        assert_eq!(run(40), run(200));
        assert_eq!(decoder(p.clone(), &prompt, 50).next_rows(20).is_some(), clean_causal);
    }
}

/// Runs a decoder with logits that depend on a row's position alone; they are certain at the positions
/// where `sure` returns true. Returns the output, the number of passes, and the reason of the end.
fn replay(
    decoder: &mut dyn Decoder,
    vocab: usize,
    sure: impl Fn(usize) -> bool,
) -> (Vec<u32>, usize, Option<FinishReason>) {
    let (mut output, mut passes, mut finished) = (Vec::new(), 0, None);
    while let Some(request) = decoder.next_rows(64) {
        let rows: Vec<usize> = match request.logits {
            LogitRows::None => Vec::new(),
            LogitRows::Last => vec![request.tokens.len() - 1],
            LogitRows::All => (0..request.tokens.len()).collect(),
            LogitRows::Only(rows) => rows.to_vec(),
        };
        let mut values = vec![0f32; rows.len() * vocab];
        for (row, logits) in rows.iter().zip(values.chunks_exact_mut(vocab)) {
            let position = request.start + row;
            // MASK is always the most likely token, and must never be output.
            logits[0] = 100.0;
            logits[1 + position % (vocab - 1)] = if sure(position) { 50.0 } else { 1.0 };
        }
        let outcome = decoder.accept(Logits::new(&values, vocab));
        output.extend(outcome.tokens.iter().map(|t| t.token));
        passes += 1;
        finished = finished.or(outcome.finished);
    }
    (output, passes, finished)
}

/// The output of [`replay`] for the positions from `from` on.
fn said(from: usize, count: usize, vocab: usize) -> Vec<u32> {
    (from..from + count).map(|p| (1 + (p - 1) % (vocab - 1)) as u32).collect()
}

#[test]
fn output_ends_exactly_at_max_tokens_and_at_the_end_of_text() {
    for length in [1, 31, 32, 33, 64, 70] {
        for max_tokens in [1, 2, 31, 32, 33, 64, 65] {
            let prompt = vec![7; length];
            for unmask in [Unmask::All, Unmask::Above(0.9), Unmask::Rising(0.9)] {
                for commit in [Commit::Clean, Commit::Fused] {
                    let p = DiffusionParams { commit, ..params(unmask, 8) };
                    let mut d = decoder(p, &prompt, max_tokens);
                    let (output, _, reason) = replay(&mut d, 90, |p| p % 3 == 0);
                    assert_eq!(output, said(length, max_tokens, 90), "{length} {max_tokens}");
                    assert_eq!(reason, Some(FinishReason::Length));
                }
            }
        }
    }
    let eos = said(40, 1, 90);
    let p = params(Unmask::Above(0.9), 8);
    let mut d = BlockDiffusion::new(p, vec![7; 20], 100, eos, SamplingParams::default());
    let (output, _, reason) = replay(&mut d, 90, |_| true);
    assert_eq!((output, reason), (said(20, 21, 90), Some(FinishReason::Stop)));
}

#[test]
fn passes_are_as_many_as_the_mode_says() {
    let prompt = [7; 32];
    let passes = |p: DiffusionParams, sure: bool| {
        replay(&mut decoder(p, &prompt, 3 * BLOCK), 90, |_| sure).1
    };
    // The prompt; for each block a denoising pass and a commit, but no commit of the last block.
    assert_eq!(passes(params(Unmask::All, 8), false), 1 + 3 * 2 - 1);
    // With fused commits: the prompt, and a pass for each block.
    let fused = DiffusionParams { commit: Commit::Fused, ..params(Unmask::All, 8) };
    assert_eq!(passes(fused, false), 1 + 3);
    // A pass for each sub-block if all slots are certain.
    assert_eq!(passes(params(Unmask::Above(0.9), 8), true), 1 + 3 * 5 - 1);
    // A pass for each token, except the first one of a block, if no slot is certain.
    assert_eq!(passes(params(Unmask::Above(1.0), 8), true), 1 + 3 * 32 - 1);
    assert_eq!(passes(params(Unmask::Above(0.9), 8), false), 1 + 3 * 32 - 1);
}

#[test]
fn blocks_of_one_are_autoregressive() {
    let (model, rt) = (embedded(), runtime());
    let prompt = prompt(&model, 20);
    let p = DiffusionParams { block: 1, sub_block: 1, ..params(Unmask::Above(0.9), 8) };
    let mut blocks = decoder(p, &prompt, 60);
    let sampling =
        SamplingParams { logit_bias: vec![(0, f32::NEG_INFINITY)], ..Default::default() };
    let mut ar = Autoregressive::new(prompt, 60, Vec::new(), sampling);
    let blocks = drive(&model, &rt, &mut blocks, 64, |_, _| {});
    // The pass over the prompt gives the first token, each token's pass the next one.
    assert_eq!(blocks.1, 60);
    assert_eq!(blocks.0, drive(&model, &rt, &mut ar, 64, |_, _| {}).0);
}

#[test]
fn without_a_shift_every_slot_is_predicted_by_its_own_row() {
    let p = DiffusionParams { shift: false, ..params(Unmask::Above(0.9), 4) };
    for length in [0, 5, 32] {
        let mut d = decoder(p.clone(), &vec![7; length], 40);
        let (output, _, _) = replay(&mut d, 90, |p| p % 2 == 0);
        assert_eq!(output, said(length + 1, 40, 90));
    }
}

#[test]
fn every_token_follows_the_sampling_parameters() {
    let (model, rt) = (embedded(), runtime());
    let prompt = prompt(&model, 33);
    let run = |sampling: SamplingParams| {
        let p = params(Unmask::Above(0.5), 8);
        let mut d = BlockDiffusion::new(p, prompt.clone(), 90, Vec::new(), sampling);
        drive(&model, &rt, &mut d, 64, |_, _| {}).0
    };
    const EOS: u32 = 2;
    // Without this the text would end at once: the prompt makes little sense to the model.
    let never = |tokens: &[u32]| tokens.iter().map(|&t| (t, f32::NEG_INFINITY)).collect();
    let endless = SamplingParams { logit_bias: never(&[EOS]), ..Default::default() };
    let warm = |seed: u64| SamplingParams { temperature: 1.0, seed, ..endless.clone() };
    assert_eq!(run(warm(1)), run(warm(1)));
    assert_ne!(run(warm(1)), run(warm(2)));
    assert!(run(warm(3)).iter().all(|&t| t != 0), "MASK is never output");
    let greedy = run(endless.clone());
    let banned = [EOS, greedy[0], greedy[40]];
    let without = run(SamplingParams { logit_bias: never(&banned), ..Default::default() });
    assert!(without.iter().all(|t| !banned.contains(t)));
    let varied = run(SamplingParams { presence_penalty: 50.0, ..endless });
    let most = |tokens: &[u32]| {
        tokens.iter().map(|t| tokens.iter().filter(|o| *o == t).count()).max().unwrap()
    };
    assert!(most(&varied) < most(&greedy), "{} {}", most(&varied), most(&greedy));
}

#[test]
fn invalid_parameters_are_refused_by_name() {
    let good = params(Unmask::Above(0.9), 8);
    assert_eq!(good.check(90, 32), Ok(()));
    let check = |p: DiffusionParams| p.check(90, 32).unwrap_err().to_string();
    for (sub_block, block) in [(5, 32), (0, 32), (64, 32)] {
        let error = check(DiffusionParams { sub_block, block, ..good.clone() });
        assert!(error.contains("small_block_size"), "{error}");
    }
    let error = check(DiffusionParams { mask: 90, ..good.clone() });
    assert_eq!(error, "mask_token_id 90 is outside the vocabulary of 90");
    for threshold in [0.0, -1.0, 1.01, f32::NAN] {
        for unmask in [Unmask::Above(threshold), Unmask::Rising(threshold)] {
            let error = check(DiffusionParams { unmask, ..good.clone() });
            assert!(error.contains("threshold"), "{error}");
        }
    }
    for (unmask, what) in [
        (Unmask::Margin(1.5), "threshold"),
        (Unmask::Factor(0.0), "factor"),
        (Unmask::Factor(f32::NAN), "factor"),
        (Unmask::Factor(f32::INFINITY), "factor"),
        (Unmask::Entropy(-0.1), "entropy_bound"),
        (Unmask::Entropy(f32::NAN), "entropy_bound"),
        (Unmask::Top(0), "slots_per_pass"),
    ] {
        let error = check(DiffusionParams { unmask, ..good.clone() });
        assert!(error.contains(what), "{error}");
    }
    let stale = DiffusionParams { inside: Inside::Causal, sub_cache: true, ..good.clone() };
    assert_eq!(stale.check(90, 32), Err(DiffusionError::SubCache));
    let fused = DiffusionParams { commit: Commit::Fused, ..good.clone() };
    assert_eq!(fused.check(90, 64), Ok(()));
    let rows = DiffusionError::Rows { block: 32, needed: 64, rows: 63 };
    assert_eq!(fused.check(90, 63), Err(rows));
    assert_eq!(good.check(90, 31), Err(DiffusionError::Rows { block: 32, needed: 32, rows: 31 }));
}

#[test]
fn a_hole_is_filled_between_prompt_and_suffix() {
    let (model, rt) = (random(), runtime());
    let suffix = [9, 17, 23, 11, 30, 6];
    for (length, hole, shift, sub_block) in
        [(40, 5, true, BLOCK), (40, 5, false, BLOCK), (3, 23, true, 8), (64, 12, true, 8)]
    {
        let p =
            DiffusionParams { shift, suffix: suffix.to_vec(), ..params(Unmask::Top(1), sub_block) };
        let prompt = prompt(&model, length);
        let known = length % BLOCK;
        // The canvas: end of the prompt, hole, suffix, and slots that nobody decodes.
        let mut canvas = prompt[length - known..].to_vec();
        canvas.resize(known + hole, p.mask);
        canvas.extend(suffix);
        canvas.resize(BLOCK, p.mask);
        let is_open = |canvas: &[u32], slot: &usize| canvas[*slot] == p.mask;
        let (output, _) =
            drive(&model, &rt, &mut decoder(p.clone(), &prompt, hole), 64, |tokens, logits| {
                if shift && known == 0 && canvas[0] == p.mask {
                    // The end of the prompt predicts the first slot.
                    canvas[0] = tokens[0];
                }
                assert_eq!(tokens, canvas, "{length} {hole} {shift}");
                let mut slots: Vec<usize> =
                    (known..known + hole).filter(|slot| is_open(&canvas, slot)).collect();
                let first = slots[0];
                slots.retain(|slot| slot / sub_block == first / sub_block);
                let best = |row: usize| {
                    let row = logits.row(row);
                    let others = || (0..row.len()).filter(|&id| id as u32 != p.mask);
                    let best = others().max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
                    let sum: f32 = others().map(|id| (row[id] - row[best]).exp()).sum();
                    (1.0 / sum, best as u32)
                };
                let choices = slots.iter().enumerate().map(|(row, &slot)| (best(row), slot));
                let certain = choices.max_by(|a, b| a.0.0.total_cmp(&b.0.0)).unwrap();
                canvas[certain.1] = certain.0.1;
            });
        assert_eq!(output, canvas[known..known + hole], "{length} {hole} {shift}");
        let other = DiffusionParams { suffix: vec![3; 6], ..p.clone() };
        let (changed, _) = drive(&model, &rt, &mut decoder(other, &prompt, hole), 64, |_, _| ());
        assert_ne!(output, changed, "the hole sees what follows");
    }
}

#[test]
fn hole_and_suffix_must_fit_one_block() {
    let p = DiffusionParams { suffix: vec![5; 10], ..params(Unmask::All, 8) };
    assert_eq!(p.hole_slots(40), 24);
    assert_eq!(p.check_hole(40, 14, 90), Ok(()));
    let error = p.check_hole(40, 15, 90).unwrap_err().to_string();
    assert!(error.contains("at most 24 fit"), "{error}");
    assert!(p.check_hole(40, usize::MAX, 90).is_err());
    let causal = DiffusionParams { inside: Inside::Causal, ..p.clone() };
    assert_eq!(causal.check_hole(40, 14, 90), Err(DiffusionError::CausalSuffix));
    let unknown = Err(DiffusionError::Suffix { id: 5, vocab: 5 });
    assert_eq!(p.check_hole(40, 14, 5), unknown);
    let none = DiffusionParams { suffix: Vec::new(), ..causal };
    assert_eq!(none.check_hole(40, 1000, 90), Ok(()));
}

/// The MASK token in a prompt would be a hole that nobody fills.
#[test]
fn mask_tokens_in_texts_are_refused() {
    let p = DiffusionParams { suffix: vec![5, 0], ..params(Unmask::All, 8) };
    let refused = |text, at| Err(DiffusionError::MaskedText { text, at, mask: 0 });
    assert_eq!(p.check_texts(&[7, 9, 0]), refused("prompt", 2));
    assert_eq!(p.check_texts(&[7, 9]), refused("suffix", 1));
    let other = DiffusionParams { mask: 3, ..p };
    assert_eq!(other.check_texts(&[7, 9, 0]), Ok(()));
}
