//! How often drafts are right: of a drafter that knows the model, of rotated models, and as assumed.

use crate::drafter::{Text, by, crowded, follows, matrix, runtime, target, texts, tokens, with};
use crate::drafter_reference::random;
use crate::hybrid::{self, Kind};
use std::cell::Cell;
use wrinklefree::cache::KvConfig;
use wrinklefree::decode::{AssumedDrafts, DecodeMode, DraftCounts, PassCosts, SamplingParams};
use wrinklefree::engine::{Engine, EngineConfig, Request, Step};
use wrinklefree::format::{
    DraftLayout, DrafterCheckpoint, Linear, MarkovWeights, Mixer, Rotation, Spec, ValueOrder,
    Weights,
};
use wrinklefree::kernel::Kernels;
use wrinklefree::matrix::Matrix;
use wrinklefree::model::Model;

use DraftLayout::DSpark;

/// Runs requests in one engine, and counts their drafts.
fn counted(model: Model, config: EngineConfig, requests: &[Request]) -> (Vec<Text>, DraftCounts) {
    let mut engine = Engine::new(model, None, runtime(Kernels::best(), 1), config).unwrap();
    let texts = texts(&mut engine, requests);
    (texts, engine.stats().drafts)
}

#[test]
fn assumed_drafts_are_right_as_often_as_assumed_and_change_no_text() {
    let (spec, weights) = target(false);
    let (model, net) = with(&spec, &weights, &random(&spec, &[0, 2], DSpark, true, 4));
    let config = EngineConfig { kv_pages: 64, ..crowded(512) };
    let plain = Request { tokens: tokens(9, 131, 1), max_tokens: 200, ..Request::default() };
    let (want, _) = counted(
        Model::new(spec.clone(), weights.clone()).unwrap(),
        config,
        std::slice::from_ref(&plain),
    );
    let text = [&plain.tokens[..], &want[0].0[..]].concat();
    let mut engine = Engine::new(model, None, runtime(Kernels::best(), 1), config).unwrap();
    for accept in [0.0, 0.5, 1.0] {
        let drafts = AssumedDrafts { text: text.clone().into(), accept, seed: 7 };
        let request = Request { assumed_drafts: Some(drafts), mode: by(net, 0.0), ..plain.clone() };
        let before = engine.stats().drafts;
        assert_eq!(texts(&mut engine, &[request])[0].0, want[0].0, "{accept}");
        let DraftCounts { drafts, drafted, accepted } = engine.stats().drafts.since(before);
        match accept {
            0.0 => assert!(accepted == 0 && drafts > 190, "{drafts} {accepted}"),
            1.0 => assert!(accepted == drafted && drafts < 60, "{drafts} {accepted}"),
            _ => {
                // One token and 0.5 + 0.25 + … of the next ones a round.
                let each = accepted as f64 / drafts as f64;
                assert!((0.7..1.2).contains(&each), "{each}");
            }
        }
    }
}

/// A model in which a token depends on the one before it alone, and a drafter that computes the same.
fn bigrams(spec: &Spec) -> (Weights, DrafterCheckpoint) {
    let mut weights = hybrid::weights(spec, Kind::Exact, false, 17);
    let nothing = |linear: &Linear| matrix(linear.weight.rows(), linear.weight.cols(), |_, _| 0.0);
    for layer in &mut weights.layers {
        layer.down = nothing(&layer.down);
        match &mut layer.mixer {
            Mixer::Attention(w) => w.o = nothing(&w.o),
            Mixer::Linear(w) => w.out = nothing(&w.out),
        }
    }
    let head = weights.head.clone().unwrap();
    let mut drafter = random(spec, &[0], DSpark, false, 8);
    let (vocab, hidden) = (spec.vocab_size, spec.hidden_size);
    let states: Vec<Vec<f64>> = (0..vocab)
        .map(|token| {
            let x = crate::reference::row(&weights.embed, token);
            crate::reference::rms(&x, &weights.final_norm, spec)
        })
        .collect();
    drafter.weights.head = Some(matrix(vocab, hidden, |_, _| 0.0));
    drafter.weights.markov = Some(MarkovWeights {
        previous: matrix(vocab, hidden, |r, c| states[r][c] as f32).weight,
        next: head,
    });
    (weights, drafter)
}

#[test]
fn a_drafter_that_knows_the_model_is_always_right_at_every_temperature() {
    let spec = hybrid::plain();
    let (weights, drafter) = bigrams(&spec);
    let config = EngineConfig { kv_pages: 64, ..crowded(512) };
    let request = |i: usize, mode: DecodeMode| {
        let sampling = SamplingParams {
            temperature: [0.0, 0.7, 1.0, 1.6, 0.0][i % 5],
            top_p: if i.is_multiple_of(2) { 1.0 } else { 0.9 },
            repetition_penalty: if i < 5 { 1.0 } else { 1.3 },
            seed: i as u64,
            ..SamplingParams::default()
        };
        Request {
            tokens: tokens(9 + i, 131, 1),
            max_tokens: 80,
            sampling,
            mode,
            ..Request::default()
        }
    };
    let (model, net) = with(&spec, &weights, &drafter);
    let plain: Vec<Request> = (0..10).map(|i| request(i, DecodeMode::Autoregressive)).collect();
    let (want, _) = counted(Model::new(spec.clone(), weights.clone()).unwrap(), config, &plain);
    let drafted: Vec<Request> = (0..10).map(|i| request(i, by(net, 0.0))).collect();
    let (got, counts) = counted(model, config, &drafted);
    assert!(got.iter().map(|text| &text.0).eq(want.iter().map(|text| &text.0)));
    assert!(counts.drafted > 500 && counts.accepted == counts.drafted, "{counts:?}");
}

/// The same model without rotations, in f32.
fn unrotated(weights: &Weights) -> Weights {
    let plain = |weight: &Matrix, rotation: Option<&Rotation>| -> Linear {
        let rows: Vec<Vec<f64>> = (0..weight.rows())
            .map(|r| crate::reference::row(weight, r))
            .map(|row| match rotation {
                None => row,
                Some(r) => {
                    let signs = r.signs.as_ref().unwrap().iter();
                    let turned = crate::reference::hadamard(&row, r.block);
                    turned.iter().zip(signs).map(|(x, s)| x * f64::from(*s)).collect()
                }
            })
            .collect();
        matrix(weight.rows(), weight.cols(), |r, c| rows[r][c] as f32)
    };
    let mut weights = weights.clone();
    for linear in weights.layers.iter_mut().flat_map(|layer| layer.groups_mut()).flatten() {
        *linear = plain(&linear.weight, linear.rotation.as_deref());
    }
    let rotation = weights.embed_rotation.take();
    weights.embed = plain(&weights.embed, rotation.as_deref()).weight;
    weights
}

#[test]
fn a_rotated_model_accepts_as_many_drafts_as_the_same_model_without_rotation() {
    // A small vocabulary, so that random drafts are often right.
    let mut spec = Spec { vocab_size: 6, ..hybrid::rotated() };
    // Otherwise the order of heads depends on the rotation.
    spec.linear_attention.as_mut().unwrap().value_order = ValueOrder::Grouped;
    let drafter = random(&spec, &[0, 2], DSpark, true, 5);
    for kind in [Kind::Exact, Kind::Ternary] {
        let rotated = hybrid::weights(&spec, kind, true, 31);
        let run = |weights: &Weights| {
            let (model, net) = with(&spec, weights, &drafter);
            let request = |i: usize| Request {
                tokens: tokens(20, 6, i as u64),
                max_tokens: 230,
                sampling: SamplingParams {
                    temperature: 1.0,
                    seed: i as u64,
                    ..SamplingParams::default()
                },
                mode: by(net, 0.0),
                ..Request::default()
            };
            let config = EngineConfig { kv_pages: 256, max_sequences: 20, ..crowded(512) };
            counted(model, config, &(0..20).map(request).collect::<Vec<_>>())
        };
        let ((texts, counts), (plain_texts, plain)) = (run(&rotated), run(&unrotated(&rotated)));
        let share = |counts: DraftCounts| counts.accepted as f64 / counts.drafted as f64;
        let difference = (share(counts) - share(plain)).abs();
        assert!(counts.drafts >= 2000 && plain.drafts >= 2000, "{counts:?} {plain:?}");
        assert!((0.1..0.9).contains(&share(counts)) && difference < 0.02, "{counts:?} {plain:?}");
        if kind == Kind::Exact {
            assert_eq!((texts, counts), (plain_texts, plain));
        }
    }
}

#[test]
fn a_text_longer_than_those_of_the_training_is_reported_once() {
    let (spec, weights) = target(false);
    let mut drafter = follows(&spec, |token| (token + 1) % 131);
    drafter.spec.context_length = 40;
    let (model, net) = with(&spec, &weights, &drafter);
    let mut engine = Engine::new(model, None, runtime(Kernels::best(), 1), crowded(64)).unwrap();
    for (max_tokens, reports) in [(20, 0), (40, 1), (50, 0)] {
        let mode = by(net, 0.0);
        let tokens = tokens(9, 131, 1);
        let request = Request { tokens, max_tokens, mode, ..Request::default() };
        engine.submit(request).unwrap();
        let mut got = Vec::new();
        while engine.step() != Step::Idle {
            got.extend(engine.weak_drafter().filter(|text| text.contains("trained for")));
        }
        assert_eq!(got.len(), reports, "{got:?}");
        assert!(got.iter().all(|text| text.contains("the 40 tokens")), "{got:?}");
    }
}

#[test]
fn costs_of_drafts_are_measured_with_those_of_rows() {
    let (spec, weights) = target(false);
    let (model, net) = with(&spec, &weights, &random(&spec, &[0, 2], DSpark, true, 4));
    assert!(!net.measured);
    // A clock on which every pass and every draft takes as long.
    let clock = Cell::new(0.0);
    let now = || clock.replace(clock.get() + 1.0);
    let costs = model.pass_costs(&runtime(Kernels::best(), 1), KvConfig::EXACT, now).unwrap();
    let net = model.draft_net().unwrap();
    assert_eq!(costs, PassCosts::uniform(0.0));
    assert_eq!((net.pass_cost, net.token_cost, net.measured), (1.0, 0.0, true));
}
