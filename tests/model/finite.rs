//! A model that computes a number which is not finite ends the request that it computes for, and no
//! other one.

use std::collections::BTreeMap;
use wrinklefree::cache::{KvConfig, KvType};
use wrinklefree::decode::{
    Commit, DecodeMode, DiffusionParams, Drafter, Inside, Pooling, SamplingParams, Unmask,
};
use wrinklefree::engine::{Engine, EngineConfig, EventKind, FinishReason, Request, SeqId, Step};
use wrinklefree::format::{Linear, Weights};
use wrinklefree::kernel::Kernels;
use wrinklefree::matrix::{FloatMatrix, FloatType, Int8Matrix, Matrix};
use wrinklefree::model::{Model, Runtime};
use wrinklefree::par::ThreadPool;

const VOCAB: usize = 40;
/// The token whose embedding is too large.
const BAD: u32 = 33;

/// A small model after a change of its weights. Its head is not the embeddings.
fn model(change: impl FnOnce(&mut Weights)) -> Model {
    let small = crate::common::small_model(VOCAB, 11, 6.0);
    let (spec, mut weights) = (small.spec().clone(), small.weights().clone());
    weights.head.get_or_insert_with(|| Linear::new(weights.embed.clone(), None));
    change(&mut weights);
    Model::new(spec, weights).expect("the shapes are the same")
}

/// Multiplies the embedding of [`BAD`] by a factor.
fn enlarge(weights: &mut Weights, factor: f32) {
    let (rows, cols) = (weights.embed.rows(), weights.embed.cols());
    let mut bytes = Vec::new();
    let mut row = vec![0f32; cols];
    for i in 0..rows {
        weights.embed.row_f32(i, &mut row);
        let factor = if i == BAD as usize { factor } else { 1.0 };
        bytes.extend(row.iter().flat_map(|x| (x * factor).to_le_bytes()));
    }
    let embed = FloatMatrix::new(rows, cols, FloatType::F32, bytes.into()).expect("its size");
    weights.embed = Matrix::Float(embed);
}

fn engine(model: Model, kernels: Kernels, kv: KvConfig) -> Engine {
    let runtime = Runtime { kernels, thread_pool: ThreadPool::new(2).expect("two threads") };
    let config = EngineConfig {
        max_context: 200,
        kv_pages: 12,
        max_batch_tokens: 40,
        kv,
        ..EngineConfig::default()
    };
    Engine::new(model, None, runtime, config).expect("memory")
}

/// The tokens, numbers and reason of each request.
type Outputs = BTreeMap<SeqId, (Vec<u32>, Vec<u32>, FinishReason)>;

fn run(engine: &mut Engine, requests: Vec<Request>) -> Vec<(Vec<u32>, Vec<u32>, FinishReason)> {
    let mut outputs = Outputs::new();
    for request in requests {
        let id = engine.submit(request).expect("valid");
        outputs.insert(id, (Vec::new(), Vec::new(), FinishReason::Cancelled));
    }
    loop {
        let step = engine.step();
        while let Some(event) = engine.poll() {
            let (tokens, numbers, reason) = outputs.get_mut(&event.seq).expect("submitted");
            let bits = |all: Vec<f32>| all.into_iter().map(f32::to_bits).collect::<Vec<_>>();
            match event.kind {
                EventKind::Token { sampled, .. } => {
                    tokens.push(sampled.token);
                    numbers.extend(sampled.logprob.map(f32::to_bits));
                }
                EventKind::Embedded(vector) | EventKind::Logits(vector) => {
                    numbers.extend(bits(vector))
                }
                EventKind::Scored(tokens) => {
                    numbers.extend(tokens.iter().filter_map(|t| t.logprob).map(f32::to_bits));
                }
                EventKind::Finished { reason: found, .. } => *reason = found,
                EventKind::Slots(_) => {}
            }
        }
        if step == Step::Idle {
            return outputs.into_values().collect();
        }
    }
}

/// A request of each mode with a prompt that has the token `at` some position.
fn requests(token: u32, length: usize) -> Vec<Request> {
    let diffusion = |inside, commit| {
        DecodeMode::Diffusion(DiffusionParams {
            block: 8,
            sub_block: 4,
            mask: 39,
            unmask: Unmask::Above(0.5),
            inside,
            clean_causal: false,
            shift: true,
            sub_cache: false,
            commit,
            suffix: Vec::new(),
            from_prompt: false,
        })
    };
    let ngram = Drafter::Ngram { length: 6, matches: (1, 3) };
    let modes = [
        DecodeMode::Autoregressive,
        DecodeMode::Verify { drafter: ngram, row_cost: Some(0.0) },
        diffusion(Inside::Bidirectional, Commit::Clean),
        diffusion(Inside::Causal, Commit::Fused),
        DecodeMode::Embed(Pooling::Mean),
        DecodeMode::Embed(Pooling::Last),
        DecodeMode::Logits,
    ];
    let mut tokens: Vec<u32> = (0..length as u32).map(|i| i * 7 % 31).collect();
    tokens[length / 2] = token;
    let request = |mode: DecodeMode| Request {
        tokens: tokens.clone(),
        max_tokens: 12,
        // The output must not have the bad token either.
        sampling: SamplingParams {
            logprobs: Some(0),
            logit_bias: vec![(BAD, -1e9)],
            ..SamplingParams::default()
        },
        mode,
        ..Request::default()
    };
    let mut all: Vec<_> = modes.into_iter().map(request).collect();
    all.push(request(DecodeMode::Autoregressive));
    all.last_mut().expect("pushed").sampling.score_prompt = true;
    all
}

/// Runs requests with and without the bad token together, and those without it alone.
fn only_bad_requests_fail(make: &dyn Fn() -> Model, kernels: Kernels, kv: KvConfig, what: &str) {
    let mut engine = engine(make(), kernels, kv);
    for length in [9, 70] {
        let good = requests(1, length);
        let alone: Vec<_> =
            good.iter().flat_map(|request| run(&mut engine, vec![request.clone()])).collect();
        let bad = requests(BAD, length);
        let both = bad.iter().zip(&good).flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
        for (i, pair) in run(&mut engine, both).chunks(2).enumerate() {
            let (tokens, numbers, reason) = &pair[0];
            assert_eq!(*reason, FinishReason::NotFinite, "{what}: request {i} of {length}");
            assert!(tokens.is_empty(), "{what}: request {i}: {tokens:?}");
            // Only the part of a prompt before the token has log-probabilities.
            assert!(numbers.len() <= length / 2, "{what}: request {i}");
            assert_eq!(pair[1], alone[i], "{what}: request {i} of {length}");
            assert_ne!(alone[i].2, FinishReason::NotFinite, "{what}: request {i}");
        }
        let after: Vec<_> = good.into_iter().flat_map(|r| run(&mut engine, vec![r])).collect();
        assert_eq!(after, alone, "{what}: pages that held other numbers");
    }
}

#[test]
fn a_request_that_cannot_be_computed_ends_and_others_go_on() {
    // Its square is not finite; it is finite itself.
    let make = || model(|weights| enlarge(weights, 1e25));
    for kernels in Kernels::all() {
        let isa = kernels.isa().name();
        for dtype in KvType::ALL {
            let kv = KvConfig { keys: dtype, values: dtype, ..KvConfig::default() };
            only_bad_requests_fail(&make, kernels, kv, &format!("{isa} {}", dtype.name()));
        }
    }
}

#[test]
fn every_kind_of_matrix_passes_it_on() {
    let int8 = |linear: &mut Linear| {
        let weight = &linear.weight;
        let (rows, cols) = (weight.rows(), weight.cols());
        let int8 = Int8Matrix::quantize_rows(rows, cols, |row, out| weight.row_f32(row, out));
        *linear = Linear::new(Matrix::Int8(int8.expect("finite")), None);
    };
    let float = |linear: &mut Linear| {
        let weight = &linear.weight;
        let (rows, cols) = (weight.rows(), weight.cols());
        let mut row = vec![0f32; cols];
        let mut bytes = Vec::new();
        for i in 0..rows {
            weight.row_f32(i, &mut row);
            bytes.extend(row.iter().flat_map(|x| x.to_le_bytes()));
        }
        let float = FloatMatrix::new(rows, cols, FloatType::F32, bytes.into());
        *linear = Linear::new(Matrix::Float(float.expect("its size")), None);
    };
    let all = |convert: &dyn Fn(&mut Linear)| {
        model(|weights| {
            enlarge(weights, 1e25);
            weights.linears_mut().for_each(convert);
            convert(weights.head.as_mut().expect("it has one"));
        })
    };
    for kernels in Kernels::all() {
        let isa = kernels.isa().name();
        only_bad_requests_fail(
            &|| all(&int8),
            kernels,
            KvConfig::default(),
            &format!("{isa} int8"),
        );
        only_bad_requests_fail(
            &|| all(&float),
            kernels,
            KvConfig::default(),
            &format!("{isa} f32"),
        );
    }
}

/// Runs a request that needs every layer.
fn ends_with(model: Model, kernels: Kernels) -> FinishReason {
    let mut engine = engine(model, kernels, KvConfig::default());
    let tokens = (0..20).collect();
    let request = Request { tokens, max_tokens: 4, ..Request::default() };
    run(&mut engine, vec![request])[0].2
}

#[test]
fn products_that_are_too_large_are_noticed_wherever_they_are() {
    type Change = fn(&mut Weights);
    let changes: [(&str, Change); 6] = [
        ("nothing", |_| ()),
        ("the norm of the output", |w| w.final_norm.fill(3e38)),
        ("a norm in front of queries", |w| w.layers[1].mixer_norm.fill(1e38)),
        ("a norm in front of the gate", |w| w.layers[0].ffn_norm.fill(1e38)),
        ("the bias of the head", |w| {
            w.head.as_mut().expect("it has one").bias = Some(vec![f32::MAX; VOCAB]);
            w.final_norm.fill(3e37);
        }),
        ("a sub-norm", |w| w.layers[1].ffn_sub_norm.as_mut().expect("BitNet").fill(3e38)),
    ];
    for kernels in Kernels::all() {
        for (what, change) in changes {
            let want = match what {
                "nothing" => FinishReason::Length,
                _ => FinishReason::NotFinite,
            };
            assert_eq!(ends_with(model(change), kernels), want, "{:?}: {what}", kernels.isa());
        }
    }
}
