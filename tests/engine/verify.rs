//! Lossless speculative decoding: the output is that of autoregressive decoding, token for token, with any
//! drafter, sampling, batch and number of threads.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::decode::{
    Commit, DecodeMode, DiffusionParams, Drafter, Dry, Inside, Mirostat, PassCosts, SamplingParams,
    Unmask,
};
use wrinklefree::engine::{Engine, EngineConfig, EventKind, Request, SeqId, Step, SubmitError};
use wrinklefree::format::{File, load};
use wrinklefree::kernel::Kernels;
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;
use wrinklefree::text::Tokenizer;

const MASK: u32 = 0;

fn engine(threads: usize, pages: usize, rows: usize) -> Engine {
    engine_where_rows_cost(0.0, threads, pages, rows)
}

fn engine_where_rows_cost(row_cost: f32, threads: usize, pages: usize, rows: usize) -> Engine {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/default.wf.safetensors");
    let file = File { name: "default".into(), bytes: std::fs::read(path).unwrap().into() };
    let checkpoint = load(vec![file]).unwrap();
    let tokenizer = Tokenizer::new(checkpoint.text.vocabulary.as_ref().unwrap()).unwrap();
    let model = Model::new(checkpoint.spec, checkpoint.weights).unwrap();
    let runtime =
        Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(threads).unwrap() };
    let config = EngineConfig {
        max_context: 512,
        kv_pages: pages,
        max_sequences: 64,
        max_batch_tokens: rows,
        pass_costs: PassCosts::uniform(row_cost),
        prefix_cache: false,
        kv: KvConfig::EXACT,
    };
    Engine::new(model, Some(Arc::new(tokenizer)), runtime, config).unwrap()
}

/// A prompt that the model has an answer to.
fn prompt(engine: &Engine, i: usize) -> Vec<u32> {
    let who = ["fox", "girl", "boy", "owl", "frog", "cat", "bear", "mouse", "rabbit", "duck"];
    let what = ["a cake", "the forest", "a lost hat", "the rain", "a boat", "a birthday", "a song"];
    let text = match i % 3 {
        0 => format!("Tell me a story about a {} and {}.", who[i / 3 % 10], what[i % 7]),
        1 => format!("Write a story about {} the {}.", ["Leo", "Mia", "Pip"][i % 3], who[i % 10]),
        _ => format!("What is {} + {}?", i % 50, i * 7 % 50),
    };
    let ids = engine.tokenizer().unwrap().encode(&text, false).unwrap();
    [&[1, 3][..], &ids, &[4]].concat()
}

fn request(tokens: Vec<u32>, mode: DecodeMode, sampling: SamplingParams) -> Request {
    Request { tokens, max_tokens: 48, eos: vec![2], mode, sampling, ..Request::default() }
}

/// Returns the tokens of every sequence, in order of submission, and the number of passes.
fn run(engine: &mut Engine) -> (Vec<Vec<u32>>, usize) {
    let mut tokens: BTreeMap<SeqId, Vec<u32>> = BTreeMap::new();
    let mut passes = 0;
    while engine.step() != Step::Idle {
        passes += 1;
        while let Some(event) = engine.poll() {
            match event.kind {
                EventKind::Token { sampled, .. } => {
                    tokens.entry(event.seq).or_default().push(sampled.token);
                }
                EventKind::Finished { .. } => {
                    tokens.entry(event.seq).or_default();
                }
                other => unreachable!("{other:?} was not requested"),
            }
        }
    }
    (tokens.into_values().collect(), passes)
}

fn verify(drafter: Drafter) -> DecodeMode {
    DecodeMode::Verify { drafter, row_cost: None }
}

fn denoise(length: usize) -> DecodeMode {
    verify(Drafter::Denoise { length, mask: MASK, shift: true })
}

fn ngram(length: usize) -> DecodeMode {
    verify(Drafter::Ngram { length, matches: (1, 3) })
}

fn diffusion() -> DecodeMode {
    DecodeMode::Diffusion(DiffusionParams {
        block: 32,
        sub_block: 8,
        mask: MASK,
        unmask: Unmask::Above(0.7),
        inside: Inside::Bidirectional,
        clean_causal: true,
        shift: true,
        sub_cache: true,
        commit: Commit::Clean,
        suffix: Vec::new(),
        from_prompt: false,
    })
}

fn warm(seed: usize) -> SamplingParams {
    SamplingParams {
        temperature: 0.9,
        top_p: 0.95,
        repetition_penalty: 1.1,
        seed: seed as u64,
        xtc_probability: if seed % 4 == 1 { 0.5 } else { 0.0 },
        typical_p: if seed % 8 == 3 { 0.7 } else { 1.0 },
        mirostat: (seed % 4 == 3).then(Mirostat::default),
        dry: (seed % 8 == 5).then(Dry::default),
        ..SamplingParams::default()
    }
}

#[test]
fn hundreds_of_prompts_give_the_autoregressive_text() {
    let mut plain = engine(1, 16, 256);
    for i in 0..240 {
        let tokens = prompt(&plain, i);
        let sampling = if i % 2 == 0 { SamplingParams::default() } else { warm(i) };
        let mut alone = |mode: DecodeMode| {
            plain.submit(request(tokens.clone(), mode, sampling.clone())).unwrap();
            run(&mut plain)
        };
        let (want, _) = alone(DecodeMode::Autoregressive);
        for mode in [denoise(1), denoise(4), denoise(13), ngram(1), ngram(9)] {
            assert_eq!(alone(mode.clone()).0, want, "prompt {i}, {mode:?}");
        }
    }
}

#[test]
fn the_row_cost_does_not_change_the_text() {
    let tokens = prompt(&engine(1, 16, 256), 0);
    let passes = |row_cost: f32, mode: DecodeMode| {
        let mut engine = engine_where_rows_cost(row_cost, 1, 16, 256);
        let mut long = request(tokens.clone(), mode, SamplingParams::default());
        long.max_tokens = 110;
        engine.submit(long).unwrap();
        run(&mut engine)
    };
    let (want, one_by_one) = passes(0.0, DecodeMode::Autoregressive);
    let mut drafted = Vec::new();
    for row_cost in [0.0, 0.02, 0.1, 1.0] {
        let (got, passes) = passes(row_cost, denoise(8));
        assert_eq!(got, want, "{row_cost}");
        drafted.push(passes);
    }
    // Free rows are used. With expensive rows there are only probes.
    assert!(drafted[0] < one_by_one * 3 / 4, "{drafted:?} of {one_by_one}");
    assert!(drafted[3] >= one_by_one - 5, "{drafted:?} of {one_by_one}");
}

#[test]
fn batches_and_threads_change_nothing() {
    let modes = |i: usize| match i % 5 {
        0 => DecodeMode::Autoregressive,
        1 => denoise(4),
        2 => ngram(6),
        3 => diffusion(),
        _ => denoise(7),
    };
    let all = |engine: &Engine| -> Vec<Request> {
        (0..30)
            .map(|i| {
                let sampling = if i % 2 == 0 { SamplingParams::default() } else { warm(i) };
                request(prompt(engine, i), modes(i), sampling)
            })
            .collect()
    };
    let mut alone = engine(1, 16, 256);
    let requests = all(&alone);
    let want: Vec<Vec<u32>> = requests
        .iter()
        .flat_map(|r| {
            alone.submit(r.clone()).unwrap();
            run(&mut alone).0
        })
        .collect();
    // First too few pages and rows for all sequences, then plenty of both.
    for (threads, pages, rows) in [(1, 16, 40), (2, 24, 64), (3, 128, 512)] {
        let mut engine = engine(threads, pages, rows);
        for request in all(&engine) {
            engine.submit(request).unwrap();
        }
        assert_eq!(run(&mut engine).0, want, "{threads} threads, {pages} pages, {rows} rows");
    }
}

#[test]
fn repetition_is_decoded_in_fewer_passes() {
    let mut engine = engine(1, 16, 256);
    let ids = engine.tokenizer().unwrap().encode("one two three four five six ", false).unwrap();
    let tokens = [&[1, 3][..], &ids.repeat(6)].concat();
    let passes = |engine: &mut Engine, mode: DecodeMode| {
        let biased = SamplingParams { logit_bias: vec![(2, f32::NEG_INFINITY)], ..warm(0) };
        let cold = SamplingParams { temperature: 0.0, repetition_penalty: 1.0, ..biased };
        engine.submit(request(tokens.clone(), mode, cold)).unwrap();
        run(engine)
    };
    let (want, one_by_one) = passes(&mut engine, DecodeMode::Autoregressive);
    let (got, drafted) = passes(&mut engine, ngram(8));
    assert_eq!(got, want);
    assert!(drafted < one_by_one, "{drafted} passes with drafts, {one_by_one} without");
}

#[test]
fn no_sequence_waits_forever() {
    let mut engine = engine(1, 64, 32);
    let submit = |engine: &mut Engine, mode: DecodeMode| {
        let mut request = request(vec![1, 3, 9], mode, SamplingParams::default());
        (request.max_tokens, request.eos) = (40, Vec::new());
        engine.submit(request).unwrap()
    };
    // A pass has rows for one block alone, and there is always a text that needs a row.
    submit(&mut engine, DecodeMode::Autoregressive);
    engine.step();
    let block = submit(&mut engine, diffusion());
    let mut finished = None;
    for step in 0..2000 {
        if step % 20 == 0 {
            submit(&mut engine, DecodeMode::Autoregressive);
        }
        engine.step();
        while let Some(event) = engine.poll() {
            if event.seq == block && matches!(event.kind, EventKind::Finished { .. }) {
                finished = finished.or(Some(step));
            }
        }
    }
    assert!(finished.is_some_and(|step| step < 400), "{finished:?}");
}

#[test]
fn a_cancelled_draft_leaves_its_pages() {
    let mut engine = engine(1, 16, 64);
    for mode in [denoise(8), ngram(8), diffusion()] {
        let tokens = prompt(&engine, 0);
        let mut want = request(tokens.clone(), mode.clone(), SamplingParams::default());
        want.max_tokens = 400;
        for passes in 1..8 {
            let id = engine.submit(want.clone()).unwrap();
            for _ in 0..passes {
                engine.step();
            }
            engine.cancel(id);
            while engine.poll().is_some() {}
        }
        // All 16 pages are free again, or this would wait forever.
        engine.submit(want).unwrap();
        assert!(!run(&mut engine).0[0].is_empty());
    }
}

#[test]
fn bad_requests_are_refused() {
    let mut engine = engine(1, 16, 64);
    let vocab = engine.model().spec().vocab_size as u32;
    let mask = verify(Drafter::Denoise { length: 4, mask: vocab, shift: true });
    let DecodeMode::Diffusion(good) = diffusion() else { unreachable!() };
    let large = DecodeMode::Diffusion(DiffusionParams { block: 128, sub_block: 8, ..good });
    for (mode, what) in [(mask, "mask_token_id"), (large, "block_size 128")] {
        let request = request(vec![1, 3], mode, SamplingParams::default());
        let error = engine.submit(request).unwrap_err();
        assert!(matches!(error, SubmitError::Diffusion(_)) && error.to_string().contains(what));
    }
    for matches in [(0, 2), (3, 2), (1, usize::MAX)] {
        let mode = verify(Drafter::Ngram { length: 4, matches });
        let refused = engine.submit(request(vec![1, 3], mode, SamplingParams::default()));
        assert_eq!(refused, Err(SubmitError::NgramMatches { least: matches.0, most: matches.1 }));
    }
    // Block diffusion accepts an empty prompt.
    engine.submit(request(Vec::new(), diffusion(), SamplingParams::default())).unwrap();
    assert!(!run(&mut engine).0[0].is_empty());
    let empty = request(Vec::new(), ngram(4), SamplingParams::default());
    assert_eq!(engine.submit(empty), Err(SubmitError::EmptyPrompt));
}

/// Size of the small vocabulary.
const SMALL: usize = 10;

/// Returns the softmax of the logits after `tokens`, by definition.
fn next(model: &Model, rt: &Runtime, tokens: &[u32]) -> Vec<f64> {
    let mut kv = KvPool::new(model.spec(), 1, KvConfig::EXACT).unwrap();
    let seq = kv.open(tokens.len()).unwrap();
    let span = Span {
        seq,
        start: 0,
        tokens,
        attention_mask: AttentionMask::Causal,
        logits: LogitRows::Last,
    };
    let mut workspace = Workspace::default();
    let logits = model.forward(rt, &mut kv, &[span], &mut workspace);
    let weights: Vec<f64> = logits.row(0).iter().map(|&x| f64::from(x).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| w / sum).collect()
}

#[test]
fn warm_drafts_keep_the_autoregressive_distribution() {
    let runtime = || Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
    let (model, rt, prompt) =
        (crate::common::small_model(SMALL, 3, 3.0), runtime(), vec![1u32, 5, 2]);
    // The distribution of the third and fourth token, summed over the first and second.
    let mut expected = vec![0f64; SMALL * SMALL];
    let with = |tokens: &[u32], token: usize| [tokens, &[token as u32]].concat();
    for (a, pa) in next(&model, &rt, &prompt).iter().enumerate() {
        let tokens = with(&prompt, a);
        for (b, pb) in next(&model, &rt, &tokens).iter().enumerate() {
            let tokens = with(&tokens, b);
            for (c, pc) in next(&model, &rt, &tokens).iter().enumerate() {
                for (d, pd) in next(&model, &rt, &with(&tokens, c)).iter().enumerate() {
                    expected[c * SMALL + d] += pa * pb * pc * pd;
                }
            }
        }
    }
    let config = EngineConfig {
        max_context: 64,
        kv_pages: 2,
        max_sequences: 1,
        max_batch_tokens: 64,
        pass_costs: PassCosts::uniform(0.0),
        prefix_cache: true,
        kv: KvConfig::EXACT,
    };
    let mut engine = Engine::new(model, None, runtime(), config).unwrap();
    for mode in [denoise(5), ngram(5), DecodeMode::Autoregressive] {
        const DRAWS: u64 = 20_000;
        let (mut counts, mut passes) = (vec![0f64; SMALL * SMALL], 0);
        for seed in 0..DRAWS {
            let sampling = SamplingParams { temperature: 1.0, seed, ..SamplingParams::default() };
            let mut request = request(prompt.clone(), mode.clone(), sampling);
            (request.max_tokens, request.eos) = (4, Vec::new());
            engine.submit(request).unwrap();
            let (tokens, took) = run(&mut engine);
            counts[tokens[0][2] as usize * SMALL + tokens[0][3] as usize] += 1.0;
            passes += took;
        }
        // Rare pairs are counted together.
        let (mut rare, mut statistic) = ((0.0, 0.0), 0.0);
        for (&count, p) in counts.iter().zip(&expected) {
            let want = p * DRAWS as f64;
            if want < 10.0 {
                rare = (rare.0 + count, rare.1 + want)
            } else {
                statistic += (count - want).powi(2) / want
            }
        }
        if rare.1 > 0.0 {
            statistic += (rare.0 - rare.1).powi(2) / rare.1;
        }
        // For 99 degrees of freedom one in 100,000 exceeds 168.
        assert!(statistic < 168.0, "{mode:?}: {statistic}");
        let drafts = mode != DecodeMode::Autoregressive;
        assert_eq!(drafts, passes != 4 * DRAWS as usize, "drafts change the passes: {passes}");
    }
}
