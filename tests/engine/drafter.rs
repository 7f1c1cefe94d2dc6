//! Drafters in files of their own: they draft what the plain reference drafts, with the same confidences,
//! and the text is that of autoregressive decoding whatever they say.

use crate::common::Noise;
use crate::drafter_reference::{Mistake, Pair, best, random};
use crate::hybrid::{self, Kind};
use std::collections::BTreeMap;
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::decode::{
    DecodeMode, DraftNet, DraftNetKind, Drafter, PassCosts, Sampler, SamplingParams,
};
use wrinklefree::engine::{Engine, EngineConfig, EventKind, Request, Step, SubmitError};
use wrinklefree::format::{
    DraftLayout, DrafterCheckpoint, DrafterConfig, DrafterScales, Linear, MarkovWeights, Spec,
    Weights,
};
use wrinklefree::kernel::Kernels;
use wrinklefree::matrix::{FloatMatrix, FloatType, Matrix};
use wrinklefree::model::{AttentionMask, DraftJob, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;

use DraftLayout::{DFlash, DSpark};

pub fn tokens(n: usize, vocab: usize, seed: u64) -> Vec<u32> {
    let mut noise = Noise(seed);
    (0..n).map(|_| (noise.bits() >> 20) as u32 % vocab as u32).collect()
}

/// A target without linear attention that a rotation does not change, and one in a rotated basis.
pub fn target(rotated: bool) -> (Spec, Weights) {
    let spec = if rotated { hybrid::rotated() } else { hybrid::plain() };
    let weights = hybrid::weights(&spec, Kind::Exact, rotated, 31);
    (spec, weights)
}

pub fn runtime(kernels: Kernels, threads: usize) -> Runtime {
    Runtime { kernels, thread_pool: ThreadPool::new(threads).unwrap() }
}

/// Drafts of the model after the first `n` + 1 tokens of a text, for several n.
fn drafted(
    rt: &Runtime,
    pair: &Pair<'_>,
    text: &[u32],
    ends: &[usize],
    threshold: f32,
) -> Vec<Vec<(u32, Option<f32>)>> {
    let model = Model::new(pair.spec.clone(), pair.weights.clone()).unwrap();
    let model = model.with_drafter(pair.drafter.clone()).unwrap();
    let config = KvConfig { drafter: model.draft_layers(), ..KvConfig::EXACT };
    let mut kv = KvPool::new(model.spec(), 4, config).unwrap();
    let (seq, mut ws) = (kv.open(100).unwrap(), Workspace::default());
    let mut states = Vec::new();
    for (start, part, logits) in
        [(0, &text[..41], LogitRows::None), (41, &text[41..], LogitRows::Last)]
    {
        let span = Span { seq, start, tokens: part, attention_mask: AttentionMask::Causal, logits };
        let (_, kept) = model.forward_keeping(rt, &mut kv, &[span], &[true], &mut ws);
        states.extend_from_slice(kept);
        kv.commit(seq, start + part.len());
    }
    let (width, mut read) = (model.state_width(), 0);
    let mut all = Vec::new();
    for &n in ends {
        let job = DraftJob {
            seq,
            tokens: &text[..n + 1],
            positions: read..n,
            states: &states[read * width..n * width],
            wanted: model.draft_net().unwrap().longest,
            threshold,
            sampler: None,
        };
        let draft = model.draft(rt, &mut kv, &mut [job], &mut ws).remove(0);
        let confidences = draft.confidences.iter().copied().map(Some);
        let confidences = confidences.chain(std::iter::repeat(None));
        all.push(draft.tokens.into_iter().zip(confidences).collect());
        read = n;
    }
    all
}

const ENDS: [usize; 9] = [1, 2, 5, 30, 31, 32, 33, 50, 74];

/// Returns true if tokens and confidences of drafts are those of the reference.
fn agree(got: &[Vec<(u32, Option<f32>)>], want: &[Vec<(u32, Option<f64>)>]) -> bool {
    got.iter().flatten().count() == want.iter().flatten().count()
        && got.iter().flatten().zip(want.iter().flatten()).all(|(got, want)| {
            let close = match (got.1, want.1) {
                (Some(a), Some(b)) => (f64::from(a) - b).abs() < 1e-4,
                (None, None) => true,
                _ => false,
            };
            got.0 == want.0 && close
        })
}

/// Compares the drafts of every instruction set and number of threads with the reference's, which must see
/// each of these mistakes.
fn drafts_are_those_of_the_reference<'a>(
    pair: impl Fn(Mistake) -> Pair<'a>,
    text: &[u32],
    mistakes: impl Iterator<Item = Mistake>,
) {
    let DrafterConfig { block, layout, .. } = pair(Mistake::None).drafter.config;
    let reference = |mistake| -> Vec<_> {
        let pair = pair(mistake);
        let features = pair.features(text);
        let wanted = block - layout.unread_rows();
        let draft = |&n| pair.draft(&text[..n + 1], &features, wanted, &mut best);
        ENDS.iter().map(draft).collect()
    };
    let want = reference(Mistake::None);
    let mut got = Vec::new();
    for kernels in Kernels::all() {
        let isa = kernels.isa().name();
        for threads in [1, 2] {
            let rt = runtime(kernels, threads);
            got = drafted(&rt, &pair(Mistake::None), text, &ENDS, 0.0);
            assert!(agree(&got, &want), "{isa}, {layout:?}: {got:?}, not {want:?}");
        }
    }
    for mistake in mistakes {
        assert!(!agree(&got, &reference(mistake)), "{layout:?}: {mistake:?} is not seen");
    }
}

#[test]
fn drafts_and_confidences_are_those_of_the_formula_and_no_mistake_is_unseen() {
    let text = tokens(75, 131, 9);
    for (rotated, layout, heads, causal) in [
        (false, DFlash, false, false),
        (false, DSpark, true, false),
        (true, DSpark, true, true),
        (true, DFlash, false, false),
    ] {
        let (spec, weights) = target(rotated);
        // The last layer of the model is among those that are read.
        let taps = if rotated { vec![0, 2] } else { vec![1, 2, 3] };
        let mut drafter = random(&spec, &taps, layout, heads, 5);
        drafter.config.causal = causal;
        let everywhere = [
            Mistake::OtherLayout,
            Mistake::Positions,
            Mistake::NoHiddenNorm,
            Mistake::EarlierTaps,
            Mistake::ShortContext,
            Mistake::OtherMask,
        ];
        let of_heads = [Mistake::NoMarkov, Mistake::Conditioning];
        let pair = |mistake| Pair { spec: &spec, weights: &weights, drafter: &drafter, mistake };
        let mistakes = everywhere.into_iter().chain(of_heads.into_iter().filter(|_| heads));
        drafts_are_those_of_the_reference(pair, &text, mistakes);
    }
}

#[test]
fn a_draft_ends_before_the_first_token_of_less_confidence() {
    let text = tokens(75, 131, 9);
    let (spec, weights) = target(false);
    let drafter = random(&spec, &[1, 3], DSpark, true, 5);
    let pair = Pair { spec: &spec, weights: &weights, drafter: &drafter, mistake: Mistake::None };
    let rt = runtime(Kernels::best(), 1);
    let all = drafted(&rt, &pair, &text, &ENDS, 0.0);
    let mut confidences: Vec<f32> = all.iter().flatten().map(|(_, c)| c.unwrap()).collect();
    confidences.sort_by(f32::total_cmp);
    let threshold = confidences[confidences.len() / 3];
    let some = drafted(&rt, &pair, &text, &ENDS, threshold);
    let mut shorter = 0;
    for (all, some) in all.iter().zip(&some) {
        let sure = all.iter().take_while(|(_, c)| c.unwrap() >= threshold).count();
        assert_eq!(some[..], all[..sure]);
        shorter += usize::from(sure < all.len());
    }
    assert!(0 < shorter && some.iter().any(|draft| !draft.is_empty()), "{some:?}");
}

/// A text, and the number of passes that it took.
pub type Text = (Vec<u32>, usize);

/// Runs requests in one engine.
fn run(model: Model, config: EngineConfig, requests: &[Request]) -> Vec<Text> {
    texts(&mut Engine::new(model, None, runtime(Kernels::best(), 1), config).unwrap(), requests)
}

pub fn texts(engine: &mut Engine, requests: &[Request]) -> Vec<Text> {
    let mut texts: BTreeMap<_, Text> = BTreeMap::new();
    for request in requests {
        texts.insert(engine.submit(request.clone()).unwrap(), Text::default());
    }
    while engine.step() != Step::Idle {
        while let Some(event) = engine.poll() {
            let text = texts.get_mut(&event.seq).unwrap();
            match event.kind {
                EventKind::Token { sampled, .. } => text.0.push(sampled.token),
                EventKind::Finished { passes, .. } => text.1 = passes,
                _ => {}
            }
        }
    }
    texts.into_values().collect()
}

/// An engine in which several sequences do not find room at a time.
pub fn crowded(rows: usize) -> EngineConfig {
    EngineConfig {
        max_context: 256,
        kv_pages: 12,
        max_sequences: 5,
        max_batch_tokens: rows,
        pass_costs: PassCosts::uniform(0.0),
        kv: KvConfig::EXACT,
        ..EngineConfig::default()
    }
}

pub fn with(spec: &Spec, weights: &Weights, drafter: &DrafterCheckpoint) -> (Model, DraftNet) {
    let model = Model::new(spec.clone(), weights.clone()).unwrap();
    let model = model.with_drafter(drafter.clone()).unwrap();
    let net = model.draft_net().unwrap();
    (model, net)
}

pub fn by(net: DraftNet, threshold: f32) -> DecodeMode {
    let drafter = Drafter::Net { length: net.longest, net, threshold };
    DecodeMode::Verify { drafter, row_cost: None }
}

/// Requests with common beginnings, some of them warm.
fn requests(vocab: usize, mode: &DecodeMode) -> Vec<Request> {
    let common = tokens(70, vocab, 3);
    let request = |i: usize| {
        let own = tokens(3 + 13 * i, vocab, 40 + i as u64);
        let from = if i.is_multiple_of(2) { 0 } else { 70 };
        let temperature = if i < 4 { 0.0 } else { 0.9 };
        let sampling = SamplingParams { temperature, seed: i as u64, ..SamplingParams::default() };
        Request {
            tokens: [&common[from..], &own[..]].concat(),
            // One text fills its context, and loses its older part.
            max_tokens: if i == 1 { 300 } else { 60 + i },
            context_shift: (i == 1).then_some(4),
            eos: if i == 1 { Vec::new() } else { vec![5] },
            sampling,
            mode: mode.clone(),
            ..Request::default()
        }
    };
    (0..8).map(request).collect()
}

/// f32 matrix of this function of row and column.
pub fn matrix(rows: usize, cols: usize, value: impl Fn(usize, usize) -> f32) -> Linear {
    let at = |i: usize| value(i / cols, i % cols).to_le_bytes();
    let bytes: Vec<u8> = (0..rows * cols).flat_map(at).collect();
    let matrix = FloatMatrix::new(rows, cols, FloatType::F32, bytes.into()).unwrap();
    Linear::new(Matrix::Float(matrix), None)
}

/// A drafter that drafts a function of the token before, whatever the model computed.
pub fn follows(spec: &Spec, follower: impl Fn(usize) -> usize) -> DrafterCheckpoint {
    let mut drafter = random(spec, &[0, 1], DSpark, false, 8);
    let vocab = spec.vocab_size;
    drafter.config.block = 7;
    drafter.weights.markov = Some(MarkovWeights {
        previous: matrix(vocab, vocab, |r, c| f32::from(u8::from(r == c))).weight,
        next: matrix(vocab, vocab, |r, c| if r == follower(c) { 1e4 } else { 0.0 }),
    });
    drafter
}

#[test]
fn the_text_is_that_of_autoregressive_decoding_whatever_is_drafted() {
    for rotated in [false, true] {
        let (spec, weights) = target(rotated);
        let plain = || Model::new(spec.clone(), weights.clone()).unwrap();
        let ar = requests(spec.vocab_size, &DecodeMode::Autoregressive);
        let want = run(plain(), EngineConfig { kv_pages: 64, ..crowded(512) }, &ar);
        let drafters = [
            random(&spec, &[0, 2], DFlash, false, 3),
            random(&spec, &[1], DSpark, true, 4),
            follows(&spec, |token| (token + 1) % 131),
            follows(&spec, |_| 5),
        ];
        for (i, drafter) in drafters.iter().enumerate() {
            let (model, net) = with(&spec, &weights, drafter);
            let threshold = if i == 1 { 0.5 } else { 0.0 };
            let rows = [512, 40, 9, 512][i];
            let got = run(model, crowded(rows), &requests(spec.vocab_size, &by(net, threshold)));
            for (got, want) in got.iter().zip(&want) {
                assert_eq!(got.0, want.0, "drafter {i}, rotated: {rotated}");
            }
        }
    }
}

/// Each round accepts as many drafts as the reference says, so the drafter has read the right states: of
/// prompts in parts, after accepted and rejected drafts, after a cached prefix and next to others.
#[test]
fn as_many_drafts_are_accepted_as_by_the_reference() {
    // A small vocabulary, so that guesses are often right.
    let recurrent = Spec { vocab_size: 6, ..hybrid::plain() };
    let attends = Spec { mixers: Vec::new(), linear_attention: None, ..recurrent.clone() };
    for (spec, layout, heads, taps) in [
        (&attends, DFlash, false, &[1, 3]),
        (&attends, DSpark, true, &[0, 2]),
        (&recurrent, DFlash, false, &[1, 3]),
    ] {
        let weights = hybrid::weights(spec, Kind::Exact, false, 12);
        let drafter = random(spec, taps, layout, heads, 21);
        let (model, net) = with(spec, &weights, &drafter);
        let requests: Vec<Request> = (0..3)
            .map(|i| Request {
                tokens: tokens(20 + 30 * i, 6, 2 + i as u64),
                max_tokens: 70,
                sampling: SamplingParams { temperature: 1.5, seed: 3, ..SamplingParams::default() },
                mode: by(net, 0.0),
                ..Request::default()
            })
            .collect();
        let config = EngineConfig { kv_pages: 64, ..crowded(512) };
        let texts = run(model, config, &requests);
        let mode = DecodeMode::Autoregressive;
        let ar = requests.iter().map(|r| Request { mode: mode.clone(), ..r.clone() });
        let ar: Vec<Request> = ar.collect();
        let plain = run(Model::new(spec.clone(), weights.clone()).unwrap(), config, &ar);
        let passes = |mistake| -> Vec<usize> {
            let pair = Pair { spec, weights: &weights, drafter: &drafter, mistake };
            let passes = |((request, (text, _)), (same, ar)): ((&Request, &Text), &Text)| {
                assert_eq!(text, same);
                let all = [&request.tokens[..], text].concat();
                let features = pair.features(&all);
                // The prompt takes as many passes as without drafts.
                let (mut known, mut passes) = (request.tokens.len() + 1, ar + 1 - text.len());
                while known < all.len() {
                    let n = known - 1;
                    let most = (all.len() - known - 1).min(net.longest);
                    // No draft completes a page, on which a recurrent state is kept.
                    let most = match 31 - n % 32 {
                        _ if spec.linear_attention.is_none() => most,
                        0 => most,
                        rows => most.min(rows - 1),
                    };
                    let draft = match most {
                        0 => Vec::new(),
                        most => {
                            // Each token is drawn as the text's token at its place.
                            let mut at = (known - request.tokens.len()) as u64;
                            let mut draw = |logits: &[f64]| {
                                let logits: Vec<f32> = logits.iter().map(|&x| x as f32).collect();
                                at += 1;
                                Sampler::new(request.sampling.clone(), &[]).next(&logits, at - 1)
                            };
                            pair.draft(&all[..known], &features, most, &mut draw)
                        }
                    };
                    let right = draft.iter().zip(&all[known..]);
                    known += right.take_while(|((token, _), want)| token == *want).count() + 1;
                    passes += 1;
                }
                passes
            };
            requests.iter().zip(&texts).zip(&plain).map(passes).collect()
        };
        let got: Vec<usize> = texts.iter().map(|(_, passes)| *passes).collect();
        assert!(texts.iter().all(|(text, _)| text.len() == 70), "{texts:?}");
        assert_eq!(got, passes(Mistake::None), "{layout:?}");
        assert!(got.iter().all(|&passes| passes < 66), "drafts are accepted: {got:?}");
        // A Markov head decides more of these drafts than the states do.
        if !heads {
            assert_ne!(got, passes(Mistake::ShortContext), "{layout:?}");
            assert_ne!(got, passes(Mistake::EarlierTaps), "{layout:?}");
        }
    }
}

#[test]
fn a_drafter_must_fit_its_model() {
    let (spec, weights) = target(false);
    let add = |change: &dyn Fn(&mut DrafterCheckpoint)| {
        let mut drafter = random(&spec, &[1, 3], DSpark, true, 5);
        change(&mut drafter);
        let model = Model::new(spec.clone(), weights.clone()).unwrap();
        model.with_drafter(drafter).map(|_| ()).unwrap_err().to_string()
    };
    for (error, words) in [
        (
            add(&|d| d.spec.vocab_size = 130),
            "vocabulary: expected the model's 131 tokens, found 130",
        ),
        (add(&|d| d.config.mask = 131), "`mask_token_id`: expected an id below 131, found 131"),
        (add(&|d| d.config.taps = vec![1, 4]), "below the model's 4, found 4"),
        (add(&|d| d.config.taps = vec![1]), "drafter input: expected 90 × 90, found 90 × 180"),
        (add(&|d| d.spec.hidden_size = 80), "hidden size: expected the model's 90"),
    ] {
        assert!(error.contains(words), "{error}");
    }
    let reduced = |d: &mut DrafterCheckpoint, ids: Vec<u32>| {
        d.weights.head = Some(matrix(2, 90, |_, _| 0.0));
        d.weights.markov.as_mut().unwrap().next = matrix(2, 7, |_, _| 0.0);
        d.weights.target_ids = Some(ids);
    };
    for (error, words) in [
        (
            add(&|d| reduced(d, vec![3, 131])),
            "`d2t`: expected ids below the model's 131, found 131",
        ),
        (add(&|d| reduced(d, vec![3])), "drafter head: expected 1 × 90, found 2 × 90"),
        (add(&|d| d.weights.target_ids = Some(vec![3])), "head: expected its own"),
        (
            add(&|d| d.config.windows = vec![None]),
            "windows: expected 2, one for each layer, found 1",
        ),
        (add(&|d| d.weights.mask_row = Some(vec![0.0])), "drafter mask embedding: expected 90"),
    ] {
        assert!(error.contains(words), "{error}");
    }
    let model = || Model::new(spec.clone(), weights.clone()).unwrap();
    let (with, net) = with(&spec, &weights, &random(&spec, &[0], DFlash, false, 5));
    assert_eq!((net.kind, net.longest, net.confident), (DraftNetKind::Blocks, 4, false));
    assert!(net.pass_cost > 0.0 && net.token_cost == 0.0, "{net:?}");
    assert!(Workspace::bytes(with.spec(), 9) > 0 && with.drafter_bytes() > 0);
    let rt = || runtime(Kernels::best(), 1);
    let mut engine = Engine::new(model(), None, rt(), crowded(64)).unwrap();
    let request =
        |net| Request { tokens: vec![2], max_tokens: 3, mode: by(net, 0.0), ..Request::default() };
    assert_eq!(engine.submit(request(net)).unwrap_err(), SubmitError::NoDrafter);
    let mut engine = Engine::new(with, None, rt(), crowded(64)).unwrap();
    assert_eq!(engine.submit(request(DraftNet::mtp(0.1))).unwrap_err(), SubmitError::NoMtp);
}

#[test]
fn drafts_are_counted_and_a_drafter_that_is_always_wrong_is_reported_once() {
    let (spec, weights) = target(false);
    for right in [false, true] {
        let mut drafter = follows(&spec, |token| (token + 1) % 131);
        if right {
            // The model's own head says what the newest token's state is followed by.
            drafter = random(&spec, &[3], DFlash, false, 1);
        }
        let (model, net) = with(&spec, &weights, &drafter);
        let mut engine =
            Engine::new(model, None, runtime(Kernels::best(), 1), crowded(64)).unwrap();
        let request = Request {
            tokens: tokens(9, 131, 1),
            max_tokens: 100,
            mode: by(net, 0.0),
            ..Request::default()
        };
        engine.submit(request).unwrap();
        let mut reports = Vec::new();
        while engine.step() != Step::Idle {
            reports.extend(engine.weak_drafter());
        }
        let drafts = engine.stats().drafts;
        assert!(drafts.drafts > 40 && drafts.drafted > drafts.drafts, "{drafts:?}");
        if drafts.accepted * 5 < drafts.drafts {
            assert_eq!(reports.len(), 1, "{drafts:?}");
            let words = ["layout", "after layers", "another model"];
            assert!(words.iter().all(|word| reports[0].contains(word)), "{reports:?}");
        } else {
            assert!(reports.is_empty() && right, "{reports:?}");
        }
    }
}

#[test]
fn windows_scales_masks_and_reduced_heads_are_those_of_the_formula_and_no_mistake_is_unseen() {
    let text = tokens(75, 131, 9);
    let (spec, weights) = target(false);
    for (layout, heads, causal, windows) in [
        (DSpark, true, false, vec![Some(40), Some(7)]),
        (DFlash, false, true, vec![None, Some(33)]),
        (DFlash, false, false, vec![Some(1), Some(64)]),
    ] {
        let mut drafter = random(&spec, &[1, 3], layout, heads, 5);
        let mut noise = Noise(6);
        let ids: Vec<u32> = (0..131).filter(|id| id % 3 == 2).rev().collect();
        drafter.weights.head = Some(hybrid::exact(ids.len(), spec.hidden_size, &mut noise));
        if let Some(markov) = &mut drafter.weights.markov {
            markov.next = hybrid::exact(ids.len(), markov.previous.cols(), &mut noise);
        }
        drafter.weights.target_ids = Some(ids);
        drafter.weights.mask_row = Some(hybrid::norm(spec.hidden_size, &mut noise));
        drafter.config.windows = windows;
        drafter.config.causal = causal;
        drafter.config.scales = DrafterScales { embedding: 0.25, logit: 4.0, logit_cap: Some(1.5) };
        let everywhere = [
            Mistake::NoWindow,
            Mistake::LongerWindow,
            Mistake::OtherWindows,
            Mistake::NoEmbeddingScale,
            Mistake::MaskOfTable,
            Mistake::FirstTokens,
        ];
        // Without a Markov head they do not change which logit is the largest.
        let of_heads = [Mistake::NoLogitScale, Mistake::NoLogitCap];
        let pair = |mistake| Pair { spec: &spec, weights: &weights, drafter: &drafter, mistake };
        let mistakes = everywhere.into_iter().chain(of_heads.into_iter().filter(|_| heads));
        drafts_are_those_of_the_reference(pair, &text, mistakes);
    }
}
