//! Drafts by a model's block for multi-token prediction: they are those of the formula in f64 on every
//! instruction set, they are accepted where they are right, and without a request for them the block
//! costs nothing.

use crate::common::Noise;
use crate::hybrid::Kind;
use crate::reference;
use wrinklefree::cache::{KvConfig, KvPool, KvSeq, PageSelection};
use wrinklefree::decode::{DecodeMode, DraftNet, Drafter, PassCosts};
use wrinklefree::engine::{Engine, EngineConfig, EventKind, Request, Step, SubmitError};
use wrinklefree::format::{Linear, Mixer, MtpWeights, Spec, Weights};
use wrinklefree::kernel::Kernels;
use wrinklefree::matrix::{FloatMatrix, FloatType, Matrix};
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;

fn tokens(n: usize, seed: u64) -> Vec<u32> {
    let mut noise = Noise(seed);
    (0..n).map(|_| (noise.bits() >> 20) as u32 % 131).collect()
}

/// Largest difference, relative to the norm of a row.
fn off(got: &[f32], want: &[f64]) -> f64 {
    assert_eq!(got.len(), want.len());
    let square = |x: f64| x * x;
    let difference: f64 = got.iter().zip(want).map(|(a, b)| square(f64::from(*a) - b)).sum();
    (difference / want.iter().map(|b| square(*b)).sum::<f64>()).sqrt()
}

fn models() -> Vec<(Spec, Weights)> {
    let shapes = [(crate::hybrid::plain(), false, false), (crate::hybrid::rotated(), true, false)];
    let model = |(spec, rotated, own): (Spec, bool, bool)| {
        let weights = crate::hybrid::weights(&spec, Kind::Exact, rotated, 31);
        crate::hybrid::with_mtp(spec, weights, Kind::Exact, own)
    };
    shapes.into_iter().chain([(crate::hybrid::tiled(), false, true)]).map(model).collect()
}

fn span<'a>(seq: KvSeq, start: usize, tokens: &'a [u32], logits: LogitRows<'a>) -> Span<'a> {
    Span { seq, start, tokens, attention_mask: AttentionMask::Causal, logits }
}

/// The trunk's hidden states after zeros for the position before the text, in two passes, and the logits
/// of some rows.
fn trunk(
    model: &Model,
    rt: &Runtime,
    (kv, seq): (&mut KvPool, KvSeq),
    text: &[u32],
) -> (Vec<f32>, Vec<f32>) {
    let (mut hidden, mut logits) = (vec![0.0; model.spec().hidden_size], Vec::new());
    let mut ws = Workspace::default();
    for (start, part, rows) in
        [(0, &text[..41], LogitRows::Only(&[3, 40])), (41, &text[41..], LogitRows::All)]
    {
        let span = span(seq, start, part, rows);
        let (rows, states) = model.forward_keeping(rt, kv, &[span], &[true], &mut ws);
        hidden.extend_from_slice(states);
        logits.extend_from_slice(rows.values());
        kv.commit(seq, start + part.len());
    }
    (hidden, logits)
}

#[test]
fn drafts_are_those_of_the_formula() {
    let text = tokens(75, 9);
    for (spec, weights) in models() {
        let (size, vocab) = (spec.hidden_size, spec.vocab_size);
        let states = reference::hidden(&spec, &weights, &text);
        let mut before = [&[vec![0.0; size]], &states[..text.len() - 1]].concat();
        let want = reference::drafts(&spec, &weights, &text, &before);
        // A draft after a draft reads the block's own output.
        let longer = [&text[..], &[7]].concat();
        before.push(want[text.len() - 1].0.clone());
        let second = reference::drafts(&spec, &weights, &longer, &before).pop().unwrap();
        let logits_of_text = reference::logits(&spec, &weights, &text);
        for kernels in Kernels::all() {
            let rt = Runtime { kernels, thread_pool: ThreadPool::new(2).unwrap() };
            let isa = rt.kernels.isa().name();
            let model = Model::new(spec.clone(), weights.clone()).unwrap();
            let mut kv = KvPool::new(model.spec(), 4, KvConfig::EXACT).unwrap();
            let seq = kv.open(100).unwrap();
            let (hidden, logits) = trunk(&model, &rt, (&mut kv, seq), &text);
            for (row, state) in states.iter().enumerate() {
                let found = off(&hidden[(row + 1) * size..][..size], state);
                assert!(found < 1e-4, "{isa}: state {row} is off by {found}");
            }
            for (row, position) in [3, 40].into_iter().chain(41..text.len()).enumerate() {
                let want = &logits_of_text[position * vocab..(position + 1) * vocab];
                let found = off(&logits[row * vocab..(row + 1) * vocab], want);
                assert!(found < 1e-4, "{isa}: logits at {position} are off by {found}");
            }
            // The block reads the text in parts of any size.
            let mut ws = Workspace::default();
            let (mut row, mut output) = (0, Vec::new());
            for end in [1, 34, 70, 75] {
                let span = span(seq, row, &text[row..end], LogitRows::All);
                let states = &hidden[row * size..end * size];
                let drafts = model.mtp_pass(&rt, &mut kv, &[span], states, &mut ws);
                for i in 0..end - row {
                    let (state, want) = &want[row + i];
                    let found = off(drafts.logits.row(i), want);
                    let found = found.max(off(&drafts.hidden[i * size..(i + 1) * size], state));
                    assert!(found < 1e-4, "{isa}: row {} is off by {found}", row + i);
                }
                output = drafts.hidden[(end - row - 1) * size..].to_vec();
                row = end;
            }
            let span = span(seq, text.len(), &[7], LogitRows::Last);
            let drafts = model.mtp_pass(&rt, &mut kv, &[span], &output, &mut ws);
            let found = off(drafts.logits.row(0), &second.1);
            assert!(found < 1e-4, "{isa}: the second draft is off by {found}");
        }
    }
}

/// The model's own logits are the same bits with the block and without it, whatever it has written.
#[test]
fn the_block_is_no_layer() {
    let text = tokens(60, 4);
    let rt = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
    for (spec, weights) in models() {
        let plain = Model::new(
            Spec { mtp_layers: 0, ..spec.clone() },
            Weights { mtp: None, ..weights.clone() },
        );
        let (plain, model) = (plain.unwrap(), Model::new(spec, weights).unwrap());
        assert_eq!(plain.bytes_per_token(), model.bytes_per_token());
        let size = model.spec().hidden_size;
        let logits = |model: &Model, drafts: bool| {
            let mut kv = KvPool::new(model.spec(), 2, KvConfig::EXACT).unwrap();
            let (seq, mut ws) = (kv.open(64).unwrap(), Workspace::default());
            let mut bits: Vec<u32> = Vec::new();
            for (start, part) in [(0, &text[..30]), (30, &text[30..])] {
                let span = span(seq, start, part, LogitRows::All);
                let rows = model.forward(&rt, &mut kv, &[span], &mut ws);
                bits.extend(rows.values().iter().map(|x| x.to_bits()));
                if drafts {
                    let before = vec![0.5; part.len() * size];
                    model.mtp_pass(&rt, &mut kv, &[span], &before, &mut ws);
                }
            }
            bits
        };
        assert!(logits(&plain, false) == logits(&model, true));
    }
}

/// A sequence whose block has not read all of its text drafts the same whatever was in its pages before.
#[test]
fn pages_of_the_block_hold_nothing_of_another_sequence() {
    let rt = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
    let (spec, weights) = models().remove(0);
    let model = Model::new(spec, weights).unwrap();
    let (size, mut ws) = (model.spec().hidden_size, Workspace::default());
    for selection in [PageSelection::Dense, PageSelection::TopK(64)] {
        let config = KvConfig { selection, ..KvConfig::EXACT };
        let mut kv = KvPool::new(model.spec(), 4, config).unwrap();
        // Only the last row of the text is read.
        let draft = |kv: &mut KvPool, ws: &mut Workspace| {
            let seq = kv.open(100).unwrap();
            let span = span(seq, 99, &[5], LogitRows::Last);
            let drafts = model.mtp_pass(&rt, kv, &[span], &vec![0.25; size], ws);
            let bits: Vec<u32> = drafts.logits.values().iter().map(|x| x.to_bits()).collect();
            kv.close(seq);
            bits
        };
        let fresh = draft(&mut kv, &mut ws);
        let other = kv.open(128).unwrap();
        let text = tokens(128, 3);
        let span = span(other, 0, &text, LogitRows::None);
        model.mtp_pass(&rt, &mut kv, &[span], &vec![0.5; 128 * size], &mut ws);
        kv.close(other);
        assert!(draft(&mut kv, &mut ws) == fresh, "{selection:?}");
    }
}

/// A model without the block pays neither for its weights nor for a layer of its keys and values.
#[test]
fn a_block_that_is_not_loaded_costs_nothing() {
    let (spec, weights) = models().remove(1);
    let plain = Spec { mtp_layers: 0, ..spec.clone() };
    let kv = KvConfig::default();
    let [without, with] = [&plain, &spec].map(|spec| KvPool::bytes(spec, 8, &kv));
    // One layer of three attends.
    assert_eq!(with, 2 * without);
    assert!(Workspace::bytes(&plain, 64) < Workspace::bytes(&spec, 64));
    let engine = |spec: &Spec, mtp: bool| {
        let mtp = if mtp { weights.mtp.clone() } else { None };
        let model = Model::new(spec.clone(), Weights { mtp, ..weights.clone() }).unwrap();
        let rt = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
        Engine::new(model, None, rt, EngineConfig::default()).unwrap()
    };
    let request = Request { tokens: vec![1, 2], max_tokens: 4, mode: mtp(2), ..Request::default() };
    let error = engine(&plain, false).submit(request.clone()).unwrap_err();
    assert_eq!((&error, error.code()), (&SubmitError::NoMtp, "bad_decoding_parameter"));
    assert!(error.to_string().contains("multi-token prediction"));
    engine(&spec, true).submit(request).unwrap();
    let broken = Model::new(spec.clone(), Weights { mtp: None, ..weights.clone() }).err().unwrap();
    assert!(broken.to_string().contains("block for multi-token prediction: expected 1"));
}

fn mtp(length: usize) -> DecodeMode {
    DecodeMode::Verify {
        drafter: Drafter::Net { length, net: DraftNet::mtp(0.1), threshold: 0.0 },
        row_cost: Some(0.0),
    }
}

fn matrix(rows: usize, cols: usize, value: impl Fn(usize, usize) -> f32) -> Linear {
    let at = |i: usize| value(i / cols, i % cols).to_le_bytes();
    let bytes: Vec<u8> = (0..rows * cols).flat_map(at).collect();
    let matrix = FloatMatrix::new(rows, cols, FloatType::F32, bytes.into()).unwrap();
    Linear::new(Matrix::Float(matrix), None)
}

/// A model whose next token is a function of the last one: its layers add nothing, and its head has each
/// token's embedding in the row of the token that follows.
fn chain(follower: impl Fn(usize) -> usize) -> (Spec, Weights) {
    let spec = crate::hybrid::plain();
    let mut weights = crate::hybrid::weights(&spec, Kind::Exact, false, 5);
    let (vocab, size) = (spec.vocab_size, spec.hidden_size);
    for layer in &mut weights.layers {
        layer.down = matrix(size, spec.intermediate_size, |_, _| 0.0);
        match &mut layer.mixer {
            Mixer::Attention(w) => w.o = matrix(size, w.o.weight.cols(), |_, _| 0.0),
            Mixer::Linear(w) => w.out = matrix(size, w.out.weight.cols(), |_, _| 0.0),
        }
    }
    weights.final_norm = vec![1.0; size];
    weights.head = Some(head(&weights, vocab, follower));
    (spec, weights)
}

/// A head that finds the token whose embedding a hidden state is, and gives the one that follows.
fn head(weights: &Weights, vocab: usize, follower: impl Fn(usize) -> usize) -> Linear {
    let size = weights.embed.cols();
    let mut rows = vec![vec![0.0; size]; vocab];
    for token in 0..vocab {
        let mut row = vec![0.0; size];
        weights.embed.row_f32(token, &mut row);
        let length = row.iter().map(|x| x * x).sum::<f32>().sqrt();
        rows[follower(token)] = row.iter().map(|x| x / length).collect();
    }
    matrix(vocab, size, |row, col| rows[row][col])
}

/// A block that hands on one half of its inputs.
fn block(spec: &Spec, weights: &Weights, half: usize, head: Option<Linear>) -> Box<MtpWeights> {
    let size = spec.hidden_size;
    let mut layer = weights.layers.last().unwrap().clone();
    assert!(layer.mixer.attention().is_some());
    layer.mixer_norm = vec![1.0; size];
    Box::new(MtpWeights {
        embed_norm: vec![1.0; size],
        hidden_norm: vec![1.0; size],
        input: matrix(size, 2 * size, |r, c| f32::from(u8::from(c == half * size + r))),
        layer,
        head_norm: None,
        embed: None,
        head,
    })
}

/// Runs requests in one engine, and returns the tokens of each per pass, after its prompt's.
fn per_pass(spec: &Spec, weights: &Weights, mode: &DecodeMode, rows: usize) -> Vec<f64> {
    let spec = Spec { mtp_layers: 1, ..spec.clone() };
    let model = Model::new(spec, weights.clone()).unwrap();
    let rt = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
    let config = EngineConfig {
        max_context: 256,
        kv_pages: 40,
        max_batch_tokens: rows,
        pass_costs: PassCosts::uniform(0.0),
        ..EngineConfig::default()
    };
    let mut engine = Engine::new(model, None, rt, config).unwrap();
    let follow = |token: u32| (token * 7 + 3) % 131;
    let mut firsts = std::collections::BTreeMap::new();
    for first in [2, 90, 17] {
        // The prompt is no chain, so its last hidden state must be the right one.
        let prompt: Vec<u32> = (0..40 + first % 5).map(|i| (first + i * i * 3) % 131).collect();
        let last = *prompt.last().unwrap();
        let request =
            Request { tokens: prompt, max_tokens: 120, mode: mode.clone(), ..Request::default() };
        firsts.insert(engine.submit(request).unwrap(), last);
    }
    let mut rates = Vec::new();
    while engine.step() != Step::Idle {
        while let Some(event) = engine.poll() {
            match event.kind {
                EventKind::Token { sampled, .. } => {
                    let last = firsts.get_mut(&event.seq).unwrap();
                    assert_eq!(sampled.token, follow(*last), "the text is the chain");
                    *last = sampled.token;
                }
                EventKind::Finished { passes, .. } => {
                    rates.push(120.0 / (passes - 43usize.div_ceil(rows).min(passes - 1)) as f64);
                }
                other => panic!("{other:?} was not asked for"),
            }
        }
    }
    rates
}

/// A block that knows the follower of the token at its own position drafts as many tokens as a pass may
/// have, all of them right.
#[test]
fn right_drafts_of_the_token_are_accepted() {
    let (spec, mut weights) = chain(|token| (token * 7 + 3) % 131);
    weights.mtp = Some(block(&spec, &weights, 0, None));
    for rows in [64, 512] {
        let rates = per_pass(&spec, &weights, &mtp(6), rows);
        assert!(rates.len() == 3 && rates.iter().all(|rate| *rate > 4.0), "{rows}: {rates:?}");
    }
}

/// A block that knows the second follower of the token whose hidden state it gets: right only if each row
/// gets the state of the position before it, from prompts in parts, passes with drafts and without.
#[test]
fn right_drafts_of_the_hidden_state_are_accepted() {
    let follow = |token: usize| (token * 7 + 3) % 131;
    let (spec, mut weights) = chain(follow);
    let second = head(&weights, spec.vocab_size, |token| follow(follow(token)));
    weights.mtp = Some(block(&spec, &weights, 1, Some(second)));
    for rows in [13, 512] {
        let rates = per_pass(&spec, &weights, &mtp(1), rows);
        assert!(rates.len() == 3 && rates.iter().all(|rate| *rate > 1.5), "{rows}: {rates:?}");
    }
    // A block that is always wrong gives the same text in as many passes as tokens.
    let wrong = head(&weights, spec.vocab_size, |token| (token + 1) % 131);
    weights.mtp = Some(block(&spec, &weights, 1, Some(wrong)));
    let rates = per_pass(&spec, &weights, &mtp(1), 512);
    assert!(rates.len() == 3 && rates.iter().all(|rate| *rate < 1.1), "{rates:?}");
}
