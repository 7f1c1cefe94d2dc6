//! Random requests: others in the batch and their cancellation change no output, and every request ends.

#[path = "grammar.rs"]
mod grammar;
#[path = "../common/samplers.rs"]
mod samplers;

use crate::common::Noise;
use grammar::Steps;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use wrinklefree::cache::{KvConfig, KvType, PageSelection};
use wrinklefree::decode::{
    Commit, Constraint, DecodeMode, DiffusionParams, DraftNet, Drafter, Inside, Next, PassCosts,
    Pooling, Sampled, SamplingParams, Unmask,
};
use wrinklefree::engine::{
    Engine, EngineConfig, EngineStats, EventKind, FinishReason, MessageEnds, Request, SeqId, Step,
};
use wrinklefree::format::Spec;
use wrinklefree::kernel::Kernels;
use wrinklefree::model::{Model, Runtime, Sparsity};
use wrinklefree::par::ThreadPool;

const VOCAB: usize = 40;

fn small() -> Model {
    crate::common::small_model(VOCAB, 11, 6.0)
}

/// A model with recurrent states.
fn recurrent() -> Model {
    let spec = Spec { vocab_size: VOCAB, ..crate::hybrid::rotated() };
    let weights = crate::hybrid::weights(&spec, crate::hybrid::Kind::Ternary, true, 12);
    Model::new(spec, weights).unwrap()
}

/// A model with a block that drafts tokens.
fn drafting<const ATTENDS: bool>() -> Model {
    let mut spec = Spec { vocab_size: VOCAB, ..crate::hybrid::rotated() };
    if ATTENDS {
        (spec.linear_attention, spec.mixers, spec.layers) = (None, Vec::new(), 2);
    }
    let weights = crate::hybrid::weights(&spec, crate::hybrid::Kind::Ternary, !ATTENDS, 12);
    let (spec, weights) =
        crate::hybrid::with_mtp(spec, weights, crate::hybrid::Kind::Ternary, ATTENDS);
    Model::new(spec, weights).unwrap()
}

fn engine(mut model: Model, config: EngineConfig, sparsity: Sparsity) -> Engine {
    model.sparsity = sparsity;
    let runtime = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
    Engine::new(model, None, runtime, config).unwrap()
}

/// Page selections that read all pages of the texts here.
const ALL: [PageSelection; 5] = [
    PageSelection::Dense,
    PageSelection::Window { window: 1000, sinks: 0 },
    PageSelection::TopK(1000),
    PageSelection::Threshold(f32::MIN_POSITIVE),
    PageSelection::Dynamic { min: 1.0, max: 1.0 },
];
/// An activation sparsity that keeps all activations.
const EVERYTHING: &str = "threshold:0";

/// Returns the cache and sparsity of the reference: plain ones where the result must be the same, otherwise
/// the given ones.
fn reference(kv: KvConfig, sparsity: Sparsity) -> (KvConfig, Sparsity) {
    let exact = kv.keys == KvType::F32 && kv.values == KvType::F32 && ALL.contains(&kv.selection);
    let kv = if exact { KvConfig::EXACT } else { kv };
    let all = EVERYTHING.parse() == Ok(sparsity);
    (kv, if all { Sparsity::default() } else { sparsity })
}

/// Random choices.
struct Dice(Noise);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        (self.0.bits() >> 20) as usize % n
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    fn config(&mut self) -> EngineConfig {
        EngineConfig {
            max_context: 1 + self.below(200),
            kv_pages: 1 + self.below(10),
            max_sequences: 1 + self.below(6),
            max_batch_tokens: self.of(&[1, 2, 7, 32, 64, 128]),
            pass_costs: PassCosts::uniform(0.1),
            prefix_cache: self.of(&[true, true, false]),
            kv: self.cache(),
        }
    }

    /// A third of them are exact: f32, and all pages are read.
    fn cache(&mut self) -> KvConfig {
        let f32 = KvConfig::EXACT;
        match self.below(3) {
            0 => KvConfig { selection: self.of(&ALL), ..f32 },
            _ => KvConfig {
                keys: self.of(&KvType::ALL),
                values: self.of(&KvType::ALL),
                selection: self.of(&[
                    PageSelection::Dense,
                    PageSelection::Window { window: 40, sinks: 4 },
                    PageSelection::Window { window: 1, sinks: 0 },
                    PageSelection::TopK(96),
                    PageSelection::Threshold(0.9),
                    PageSelection::Dynamic { min: 0.1, max: 0.5 },
                ]),
                ..f32
            },
        }
    }

    fn sparsity(&mut self) -> Sparsity {
        let rules = [EVERYTHING, EVERYTHING, "topk:0.3", "threshold:0.1@down", "adaptive"];
        self.of(&rules).parse().unwrap()
    }

    fn mode(&mut self) -> DecodeMode {
        let length = 1 + self.below(40);
        match self.below(8) {
            0 => DecodeMode::Autoregressive,
            7 => DecodeMode::Logits,
            6 => DecodeMode::Embed(self.of(&[Pooling::Mean, Pooling::Last])),
            1 => DecodeMode::Verify {
                drafter: Drafter::Denoise {
                    length,
                    // One of them is outside the vocabulary.
                    mask: self.below(VOCAB + 1) as u32,
                    shift: self.of(&[true, false]),
                },
                row_cost: self.of(&[Some(0.0), None, Some(f32::MAX)]),
            },
            2 => DecodeMode::Verify {
                drafter: Drafter::Ngram { length, matches: (1, 3) },
                row_cost: None,
            },
            _ => DecodeMode::Diffusion(DiffusionParams {
                block: self.of(&[1, 2, 3, 4, 8, 24, 32, 40]),
                sub_block: self.of(&[1, 1, 2, 4, 8]),
                mask: self.below(VOCAB) as u32,
                unmask: self.of(&[
                    Unmask::All,
                    Unmask::Above(0.5),
                    Unmask::Rising(0.9),
                    Unmask::Margin(0.4),
                    Unmask::Factor(1.0),
                    Unmask::Entropy(0.5),
                    Unmask::Top(3),
                ]),
                inside: self.of(&[Inside::Bidirectional, Inside::Causal]),
                clean_causal: self.of(&[true, false]),
                shift: self.of(&[true, false]),
                sub_cache: self.of(&[false, false, true]),
                commit: self.of(&[Commit::Clean, Commit::Fused]),
                suffix: Vec::new(),
                from_prompt: false,
            }),
        }
    }

    fn request(&mut self) -> Request {
        let temperature = self.of(&[0.0, 0.7, 1.5, 1e-40, 1e30]);
        let sampling = SamplingParams {
            temperature,
            top_k: self.below(5),
            top_p: self.of(&[1.0, 0.9, 0.0]),
            seed: self.0.bits(),
            logprobs: self.of(&[None, Some(0), Some(5)]),
            score_prompt: self.below(4) == 0,
            constraint: match self.below(3) {
                0 => {
                    let length = self.below(120);
                    let time =
                        [Duration::ZERO, Duration::from_millis(6), Duration::MAX][length % 3];
                    Some(Box::new(Steps { length, time, polls: length % 4, ..Steps::default() }))
                }
                _ => None,
            },
            ..samplers::some(|n| self.below(n), temperature > 0.0)
        };
        let count = self.below(90);
        let mut tokens: Vec<u32> = (0..count).map(|_| self.below(VOCAB) as u32).collect();
        // Many texts share a prefix.
        let alike = self.of(&[0, 31, 64, 64, 69]).min(count);
        (0..).zip(&mut tokens[..alike]).for_each(|(i, token)| *token = i * 7 % VOCAB as u32);
        let context_shift = self.of(&[None, None, Some(0), Some(4), Some(33)]);
        // A text that shifts ends nowhere else.
        let longest = if context_shift.is_some() { 150 } else { usize::MAX };
        Request {
            tokens,
            max_tokens: self.of(&[0, 1, 2, 31, 32, 33, 100, longest]),
            context_shift,
            sampling,
            eos: (0..self.below(3)).map(|_| self.below(VOCAB) as u32).collect(),
            mode: self.mode(),
            watch: self.of(&[true, false]),
            cache_salt: self.of(&["", "", "salt"]).into(),
            ..Request::default()
        }
    }
}

/// Events of all sequences, collected.
#[derive(Default)]
struct Collected {
    tokens: BTreeMap<SeqId, Vec<u32>>,
    scored: BTreeMap<SeqId, Vec<Sampled>>,
    vectors: BTreeMap<SeqId, Vec<f32>>,
    ends: BTreeMap<SeqId, FinishReason>,
    /// Number of prompt tokens that were cached.
    cached: usize,
}

/// A request, its tokens, scores and vector alone, and true if it is cancelled.
type Submitted = (SeqId, Request, (Vec<u32>, Vec<Sampled>, Option<Vec<f32>>), bool);

impl Collected {
    /// Compares outputs with those of the same requests alone.
    fn agree(&mut self, live: &[Submitted], config: &EngineConfig) {
        for (id, request, (want, scores, vector), cancelled) in live {
            let got = self.tokens.remove(id).unwrap_or_default();
            let scored = self.scored.remove(id).unwrap_or_default();
            assert!(self.ends.contains_key(id), "{request:?} ends");
            if *cancelled {
                assert!(want.starts_with(&got), "{request:?}")
            } else {
                assert_eq!(&got, want, "{request:?} with {config:?}");
                assert_eq!(&scored, scores, "{request:?} with {config:?}");
                assert_eq!(self.vectors.get(id), vector.as_ref(), "{request:?} with {config:?}");
            }
        }
    }

    fn poll(&mut self, engine: &mut Engine) {
        while let Some(event) = engine.poll() {
            let seq = event.seq;
            match event.kind {
                EventKind::Token { sampled, .. } => {
                    self.tokens.entry(seq).or_default().push(sampled.token);
                }
                EventKind::Slots(_) => {}
                EventKind::Scored(tokens) => {
                    self.scored.entry(seq).or_default().extend(tokens);
                }
                EventKind::Embedded(vector) | EventKind::Logits(vector) => {
                    assert!(
                        self.vectors.insert(seq, vector).is_none(),
                        "a sequence has one vector"
                    );
                }
                EventKind::Finished { reason, cached, .. } => {
                    self.cached += cached;
                    assert!(self.ends.insert(seq, reason).is_none(), "a sequence ends once");
                }
            }
        }
    }

    /// Runs the engine until it is idle; calls `after` after each step.
    fn run(&mut self, engine: &mut Engine, mut after: impl FnMut(&mut Engine, usize)) {
        for step in 0.. {
            assert!(step < 20_000, "every request ends");
            let ran = engine.step();
            self.poll(engine);
            if ran == Step::Idle {
                return;
            }
            after(engine, step);
        }
    }
}

/// Number of interesting cases in all rounds.
#[derive(Debug, Default)]
struct Tally {
    taken: usize,
    preempted: u64,
    cached: usize,
    guided: usize,
    /// Outputs that are longer than the context.
    shifted: usize,
}

/// Returns the mode whose output a mode gives.
fn undrafted(mode: &DecodeMode) -> DecodeMode {
    if mode.draft_net().is_some() { DecodeMode::Autoregressive } else { mode.clone() }
}

/// Runs six requests in one engine. Each must give the output that it gives alone, in an engine without a
/// prefix cache.
fn round(
    dice: &mut Dice,
    model: fn() -> Model,
    config: EngineConfig,
    tally: &mut Tally,
    next: impl Fn(&mut Dice) -> Request,
) -> EngineStats {
    let thinned = dice.sparsity();
    let (kv, sparsity) = reference(config.kv, thinned);
    let plain = EngineConfig { prefix_cache: false, kv, ..config };
    let (mut crowded, mut quiet) =
        (engine(model(), config, thinned), engine(model(), plain, sparsity));
    let mut collected = Collected::default();
    let mut live = Vec::new();
    for _ in 0..6 {
        let request = next(dice);
        let Ok(id) = crowded.submit(request.clone()) else {
            assert!(quiet.submit(request).is_err(), "both engines refuse the same requests");
            continue;
        };
        let mut alone = Collected::default();
        let same = quiet.submit(Request { mode: undrafted(&request.mode), ..request.clone() });
        let same = same.unwrap();
        alone.run(&mut quiet, |_, _| {});
        let want = alone.tokens.remove(&same).unwrap_or_default();
        let scores = alone.scored.remove(&same).unwrap_or_default();
        let vector = alone.vectors.remove(&same);
        assert_eq!(want.is_empty(), request.max_tokens == 0 || vector.is_some());
        assert_eq!(vector.is_some(), request.mode.reads_only());
        if request.sampling.score_prompt && vector.is_none() {
            assert!(scores.iter().map(|s| s.token).eq(request.tokens[1..].iter().copied()));
        }
        assert!(alone.ends.contains_key(&same) && want.len() <= request.max_tokens);
        if let (Some(mut grammar), None) = (request.sampling.constraint.clone(), &vector) {
            // Panics if a token is not allowed.
            want.iter().for_each(|&token| grammar.accept(token));
            let complete = grammar.next() == Next::End;
            assert!(complete || alone.ends[&same] != FinishReason::Stop || !request.eos.is_empty());
            tally.guided += 1;
        }
        tally.shifted += usize::from(request.tokens.len() + want.len() > config.max_context);
        live.push((id, request, (want, scores, vector), dice.below(5) == 0));
        tally.taken += 1;
        // Some are in the middle of their text when the next one is submitted.
        for _ in 0..dice.below(4) {
            crowded.step();
            collected.poll(&mut crowded);
        }
    }
    let mut parked = None;
    loop {
        collected.run(&mut crowded, |engine, step| {
            parked.take().into_iter().for_each(|id| engine.resume(id));
            // Rarely, because a sequence without a prefix cache computes its whole text again.
            if dice.below(40) == 0 && engine.stats().running > 1 {
                let (id, ..) = live[dice.below(live.len())];
                engine.park(id);
                parked = Some(id);
            }
            let cancelled = live.iter().filter(|(.., cancelled)| *cancelled && step == 4);
            for (id, ..) in cancelled {
                engine.cancel(*id);
                engine.cancel(*id);
            }
        });
        // The others may have ended meanwhile.
        let Some(id) = parked.take() else { break };
        crowded.resume(id);
    }
    collected.agree(&live, &config);
    let stats = crowded.stats();
    assert_eq!((stats.running, stats.waiting), (0, 0));
    assert_eq!(stats.free_pages + stats.idle_pages, stats.kv_pages);
    assert!(config.prefix_cache || stats.idle_pages == 0);
    tally.preempted += stats.preempted;
    tally.cached += collected.cached;
    stats
}

#[test]
fn batching_changes_nothing() {
    let (mut dice, mut tally) = (Dice(Noise(0x1234_5678_9abc_def1)), Tally::default());
    for _ in 0..300 {
        let config = dice.config();
        round(&mut dice, small, config, &mut tally, Dice::request);
    }
    assert!(tally.taken > 500, "{} requests were accepted", tally.taken);
    assert!(tally.guided > 100, "{} followed a grammar", tally.guided);
    assert!(tally.shifted > 40, "{} were longer than their context", tally.shifted);
    assert!(tally.cached > 200, "{} prompt tokens were cached", tally.cached);
}

#[test]
fn preempted_sequences_continue_where_they_were() {
    let (mut dice, mut tally) = (Dice(Noise(0x0dd0_5eed_0dd0_5eed)), Tally::default());
    for _ in 0..150 {
        // Room for the longest text, and hardly for two.
        let config =
            EngineConfig { max_context: 224, kv_pages: 7, max_sequences: 6, ..dice.config() };
        round(&mut dice, small, config, &mut tally, |dice| {
            let mut request = dice.request();
            request.tokens.truncate(30);
            request.eos.clear();
            request.max_tokens = 60 + dice.below(100);
            // Some outgrow the context.
            request.max_tokens += request.context_shift.map_or(0, |_| 200);
            request
        });
    }
    assert!(tally.shifted > 40, "{} were longer than their context", tally.shifted);
    assert!(tally.preempted > 100, "{} preemptions", tally.preempted);
}

/// States go back after rejected drafts, continue from snapshots, and are computed again after a
/// preemption: nothing of it changes a bit.
#[test]
fn recurrent_states_change_nothing() {
    let (mut dice, mut tally) = (Dice(Noise(0x57a7_e5ee_d57a_7e51)), Tally::default());
    let (mut kept, mut refused) = (0, 0);
    for _ in 0..150 {
        let mut config = dice.config();
        let crowded = dice.below(2) == 0;
        if crowded {
            // Room for the longest text, and hardly for two.
            (config.max_context, config.kv_pages, config.max_sequences) = (224, 7, 6);
        }
        config.kv.states.snapshots = dice.of(&[0, 1, 2, 8]);
        let before = tally.taken;
        let stats = round(&mut dice, recurrent, config, &mut tally, |dice| {
            let mut request = dice.request();
            // Half of what needs attention to later positions is submitted, and refused.
            if !request.mode.reads_only() && dice.below(2) == 0 {
                let drafter = Drafter::Ngram { length: 1 + dice.below(20), matches: (1, 2) };
                request.mode = dice.of(&[
                    DecodeMode::Autoregressive,
                    DecodeMode::Verify { drafter, row_cost: Some(0.0) },
                ]);
            }
            request.stable_prefix = dice.of(&[None, Some(0), Some(64), Some(1000)]);
            let ends = [None, Some(0), Some(32), Some(64), Some(70), Some(1000)];
            let (system, question) = (dice.of(&ends), dice.of(&ends));
            request.message_ends = MessageEnds { system, question };
            if crowded && !request.mode.reads_only() {
                request.eos.clear();
                request.max_tokens = 60 + dice.below(100);
                // Some outgrow the context.
                request.max_tokens += request.context_shift.map_or(0, |_| 200);
            }
            request
        });
        assert!(stats.snapshots <= config.kv.states.snapshots);
        kept += stats.snapshots;
        refused += 6 - (tally.taken - before);
    }
    assert!(tally.taken > 300 && refused > 100, "{} requests, {refused} not", tally.taken);
    assert!(tally.preempted > 20, "{} preemptions", tally.preempted);
    assert!(tally.shifted > 20, "{} were longer than their context", tally.shifted);
    assert!(tally.cached > 50 && kept > 50, "{} tokens of {kept} snapshots", tally.cached);
}

/// Drafts of the model's block in every situation: the output is that of `ar`, bit for bit.
#[test]
fn multi_token_prediction_changes_nothing() {
    let (mut dice, mut tally) = (Dice(Noise(0x3b10_c4d2)), Tally::default());
    let drafted = Cell::new(0);
    for i in 0..120 {
        let mut config = dice.config();
        let crowded = i % 4 < 2;
        if crowded {
            (config.max_context, config.kv_pages, config.max_sequences) = (224, 7, 6);
        }
        let model = [drafting::<false>, drafting::<true>][i % 2];
        round(&mut dice, model, config, &mut tally, |dice| {
            let mut request = dice.request();
            if dice.below(4) > 0 && !request.mode.reads_only() {
                let drafter = Drafter::Net {
                    length: 1 + dice.below(12),
                    net: DraftNet::mtp(0.2),
                    threshold: 0.0,
                };
                let row_cost = dice.of(&[Some(0.0), Some(0.0), None]);
                request.mode = DecodeMode::Verify { drafter, row_cost };
                drafted.set(drafted.get() + 1);
            }
            if crowded && !request.mode.reads_only() {
                request.eos.clear();
                request.max_tokens = 60 + dice.below(300);
            }
            request
        });
    }
    assert!(tally.taken > 400 && drafted.get() > 300, "{} taken, {drafted:?}", tally.taken);
    assert!(tally.preempted.min(tally.shifted as u64) > 20 && tally.cached > 100, "{tally:?}");
}

/// Modes whose rows see later ones are refused, with the reason.
#[test]
fn linear_attention_refuses_what_looks_ahead() {
    let mut engine = engine(recurrent(), EngineConfig::default(), Sparsity::default());
    let denoise = Drafter::Denoise { length: 4, mask: 1, shift: true };
    let mut dice = Dice(Noise(5));
    let diffusion = std::iter::repeat_with(|| dice.mode())
        .find(|mode| matches!(mode, DecodeMode::Diffusion(_)))
        .unwrap();
    for (mode, name) in [
        (DecodeMode::Verify { drafter: denoise, row_cost: None }, "a denoising draft needs"),
        (diffusion, "block diffusion needs"),
    ] {
        let request = Request { tokens: vec![1], max_tokens: 4, mode, ..Request::default() };
        let error = engine.submit(request).unwrap_err();
        assert_eq!(error.code(), "bad_decoding_parameter");
        assert!(error.to_string().contains(name), "{error}");
    }
}

/// Grammars whose every step takes long: a step of the engine waits for one of them, not for all, and
/// sequences without a grammar get a token in each step.
#[test]
fn expensive_grammars_do_not_delay_other_sequences() {
    let config = EngineConfig { max_context: 128, kv_pages: 64, ..EngineConfig::default() };
    let mut engine = engine(small(), config, Sparsity::default());
    let (calls, time) = (Arc::new(AtomicUsize::new(0)), Duration::from_secs(1));
    let lookup = DecodeMode::Verify {
        drafter: Drafter::Ngram { length: 8, matches: (1, 3) },
        row_cost: Some(0.0),
    };
    let request = |mode: &DecodeMode, constraint: Option<Box<dyn Constraint>>| Request {
        tokens: vec![1, 2, 3, 4],
        max_tokens: 40,
        mode: mode.clone(),
        sampling: SamplingParams { constraint, ..SamplingParams::default() },
        ..Request::default()
    };
    for index in 0..8 {
        let (calls, polls) = (calls.clone(), index % 3);
        let steps = Steps { length: 30, time, calls, polls, ..Steps::default() };
        let mode = [DecodeMode::Autoregressive, lookup.clone()][index % 2].clone();
        engine.submit(request(&mode, Some(Box::new(steps)))).unwrap();
    }
    let plain = engine.submit(request(&DecodeMode::Autoregressive, None)).unwrap();
    let mut collected = Collected::default();
    for step in 1..=40 {
        let before = calls.load(Ordering::Relaxed);
        engine.step();
        collected.poll(&mut engine);
        assert!(calls.load(Ordering::Relaxed) - before <= 2, "step {step}");
        assert_eq!(collected.tokens[&plain].len(), step);
    }
    collected.run(&mut engine, |_, _| {});
    for (id, reason) in &collected.ends {
        let want = if *id == plain { (40, FinishReason::Length) } else { (30, FinishReason::Stop) };
        assert_eq!((collected.tokens[id].len(), *reason), want);
    }
    assert_eq!(collected.ends.len(), 9);
}
