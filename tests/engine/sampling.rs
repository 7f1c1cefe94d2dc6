//! The sampler against brute force: the distribution, the tokens that filters keep, and repeatability.

use proptest::prelude::*;
use wrinklefree::decode::{Certainty, Sampler, SamplingParams};

fn sampler(params: SamplingParams) -> Sampler {
    params.validate(1 << 20).unwrap();
    Sampler::new(params, &[])
}

fn warm() -> SamplingParams {
    SamplingParams { temperature: 1.0, ..SamplingParams::default() }
}

/// Returns the distribution that the parameters define, by sorting everything: (id, probability).
fn brute_force(logits: &[f32], p: &SamplingParams) -> Vec<(u32, f64)> {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut all: Vec<(u32, f64)> = (0..)
        .zip(logits)
        .map(|(id, &x)| (id, (f64::from(x - max) / f64::from(p.temperature)).exp()))
        .collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if p.top_k > 0 {
        all.truncate(p.top_k);
    }
    let total: f64 = all.iter().map(|x| x.1).sum();
    let mut sum = 0.0;
    let kept = all.iter().take_while(|x| {
        let wanted = sum < f64::from(p.top_p) * total;
        sum += x.1;
        wanted
    });
    let count = kept.count().max(1);
    if p.top_p < 1.0 {
        all.truncate(count);
    }
    all.retain(|x| x.1 >= f64::from(p.min_p));
    let total: f64 = all.iter().map(|x| x.1).sum();
    all.iter_mut().for_each(|x| x.1 /= total);
    all.sort_by_key(|x| x.0);
    all
}

/// Returns Pearson's statistic of draws against a distribution; panics on a draw outside it.
fn chi_square(sampler: &mut Sampler, logits: &[f32], expected: &[(u32, f64)], draws: u64) -> f64 {
    let mut counts = vec![0u64; logits.len()];
    for position in 0..draws {
        counts[sampler.predict(logits, position, Certainty::Probability).token as usize] += 1;
    }
    let mut statistic = 0.0;
    for &(id, probability) in expected {
        let want = probability * draws as f64;
        statistic += (counts[id as usize] as f64 - want).powi(2) / want;
        counts[id as usize] = 0;
    }
    assert!(counts.iter().all(|&n| n == 0), "drawn from outside: {counts:?}");
    statistic
}

#[test]
fn draws_follow_the_distribution() {
    let logits = [1.0, 0.5, -0.5, 2.0, 0.0, -1.0, 1.5, 0.25];
    for (i, params) in [
        warm(),
        SamplingParams { temperature: 0.7, ..warm() },
        SamplingParams { temperature: 2.0, ..warm() },
        SamplingParams { top_k: 4, ..warm() },
        SamplingParams { top_p: 0.8, ..warm() },
        SamplingParams { min_p: 0.3, ..warm() },
        SamplingParams { top_k: 6, top_p: 0.9, min_p: 0.1, temperature: 1.3, ..warm() },
    ]
    .into_iter()
    .enumerate()
    {
        let expected = brute_force(&logits, &params);
        let params = SamplingParams { seed: i as u64, ..params };
        let statistic = chi_square(&mut sampler(params), &logits, &expected, 40_000);
        // For 7 degrees of freedom one in 100,000 exceeds 36.
        assert!(statistic < 36.0, "case {i}: {statistic}");
    }
}

proptest! {
    #[test]
    fn filters_keep_what_brute_force_keeps(
        // Multiples of 1/4: ties are common.
        logits in prop::collection::vec((-20i8..20).prop_map(|x| f32::from(x) / 4.0), 1..600),
        top_k in prop_oneof![Just(0usize), 1..40usize],
        top_p in prop_oneof![Just(1.0f32), 0.0..1.0f32],
        min_p in prop_oneof![Just(0.0f32), 0.0..1.0f32],
        temperature in 0.25..3.0f32,
        seed: u64,
    ) {
        let params = SamplingParams { temperature, top_k, top_p, min_p, seed, ..warm() };
        let expected = brute_force(&logits, &params);
        let mut sampler = sampler(params);
        for position in 0..20 {
            let choice = sampler.predict(&logits, position, Certainty::Probability);
            let kept = expected.iter().find(|x| x.0 == choice.token);
            // f32 weights may put a token on the other side of a threshold it sits on.
            if let Some(kept) = kept {
                let close = (f64::from(choice.certainty) - kept.1).abs() < 1e-2 * kept.1 + 1e-6;
                prop_assert!(close || expected.len() > 1, "{:?} {:?}", choice, kept);
            } else {
                prop_assert!(min_p > 0.0 || top_p < 1.0, "{:?} of {:?}", choice, expected);
            }
        }
    }

    #[test]
    fn greedy_is_the_first_highest(
        logits in prop::collection::vec(prop_oneof![
            (-4i8..4).prop_map(f32::from), Just(f32::NAN), Just(f32::NEG_INFINITY), Just(-0.0f32),
        ], 1..50),
        seed: u64,
    ) {
        let mut best = 0;
        for (i, &x) in logits.iter().enumerate() {
            if x > logits[best] || (logits[best].is_nan() || logits[best] == f32::NEG_INFINITY) && x > f32::NEG_INFINITY {
                best = i;
            }
        }
        if logits.iter().all(|x| x.is_nan() || *x == f32::NEG_INFINITY) {
            best = 0;
        }
        let greedy = SamplingParams { seed, ..SamplingParams::default() };
        prop_assert_eq!(sampler(greedy).sample(&logits).token, best as u32);
        // Top-1 and a top-p of 0 are greedy too.
        let top_1 = SamplingParams { seed, top_k: 1, ..warm() };
        prop_assert_eq!(sampler(top_1).sample(&logits).token, best as u32);
        let top_0 = SamplingParams { seed, top_p: 0.0, ..warm() };
        prop_assert_eq!(sampler(top_0).sample(&logits).token, best as u32);
    }

    #[test]
    fn any_logits_and_valid_parameters_give_a_token(
        logits in prop::collection::vec(any::<f32>(), 0..40),
        temperature in prop_oneof![Just(0.0f32), Just(1e-30f32), Just(f32::MAX), 0.0..5.0f32],
        top_k in 0..5usize, top_p in 0.0..1.0f32, min_p in 0.0..1.0f32,
        repetition_penalty in 1e-3..1e3f32, bias in any::<f32>().prop_filter("", |x| *x < f32::INFINITY),
        seed: u64,
    ) {
        let params = SamplingParams {
            temperature, top_k, top_p, min_p, repetition_penalty, seed,
            logit_bias: vec![(3, bias)], logprobs: Some(3), ..warm()
        };
        let mut sampler = sampler(params);
        for _ in 0..3 {
            let sampled = sampler.sample(&logits);
            prop_assert!((sampled.token as usize) < logits.len().max(1));
            prop_assert!(sampled.top.iter().all(|x| !x.1.is_nan()));
            let choice = sampler.predict(&logits, 0, Certainty::Probability);
            prop_assert!((0.0..=1.0).contains(&choice.certainty), "{choice:?}");
        }
    }
}

#[test]
fn a_sequence_can_be_resumed() {
    let logits = |i: u32| -> Vec<f32> {
        (0..64u32).map(|id| ((id * 37 + i * 11) % 29) as f32 / 7.0).collect()
    };
    let params =
        SamplingParams { repetition_penalty: 1.2, frequency_penalty: 0.1, seed: 42, ..warm() };
    let prompt = [1, 2, 3];
    let mut whole = Sampler::new(params.clone(), &prompt);
    let tokens: Vec<u32> = (0..50).map(|i| whole.sample(&logits(i)).token).collect();
    let mut again = Sampler::new(params.clone(), &prompt);
    for cut in [0, 1, 20, 49] {
        let mut resumed = Sampler::new(params.clone(), &prompt);
        tokens[..cut].iter().for_each(|&token| resumed.accept(token));
        assert_eq!(resumed.position(), cut as u64);
        for (i, &token) in (0u32..).zip(&tokens).skip(cut) {
            // A prediction changes nothing.
            let ahead = resumed.predict(&logits(i), u64::from(i), Certainty::Probability).token;
            assert_eq!(ahead, token);
            assert_eq!(resumed.sample(&logits(i)).token, token);
        }
    }
    assert_eq!((0..50).map(|i| again.sample(&logits(i)).token).collect::<Vec<_>>(), tokens);
    let mut other = Sampler::new(SamplingParams { seed: 43, ..params }, &prompt);
    assert_ne!((0..50).map(|i| other.sample(&logits(i)).token).collect::<Vec<_>>(), tokens);
}

#[test]
fn log_probabilities_ignore_sampling_parameters() {
    let logits = [0.0, 2.0, 1.0, 2.0, -1.0];
    let sum: f64 = logits.iter().map(|&x: &f32| f64::from(x).exp()).sum();
    let params = SamplingParams {
        temperature: 0.5,
        top_k: 1,
        logit_bias: vec![(4, 100.0)],
        logprobs: Some(3),
        ..warm()
    };
    let sampled = sampler(params.clone()).sample(&logits);
    assert_eq!(sampled.token, 4, "the bias decides");
    let near = |got: f32, logit: f32| {
        let want = f64::from(logit) - sum.ln();
        assert!((f64::from(got) - want).abs() < 1e-6, "{got} {want}");
    };
    near(sampled.logprob.unwrap(), -1.0);
    assert_eq!(sampled.top.iter().map(|x| x.0).collect::<Vec<_>>(), [1, 3, 2]);
    sampled.top.iter().for_each(|&(id, got)| near(got, logits[id as usize]));

    let none = SamplingParams { logprobs: None, ..params.clone() };
    let sampled = sampler(none).sample(&logits);
    assert_eq!((sampled.logprob, sampled.top), (None, Vec::new()));
    let zero = SamplingParams { logprobs: Some(0), ..params };
    let sampled = sampler(zero).sample(&logits);
    assert!(sampled.logprob.is_some() && sampled.top.is_empty());
}

#[test]
fn top_log_probabilities_of_a_large_vocabulary_are_the_sorted_ones() {
    let logits: Vec<f32> = (0..5000u32).map(|i| ((i * 7919) % 1237) as f32 / 100.0).collect();
    let mut sorted: Vec<u32> = (0..5000).collect();
    sorted.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
    for n in [1, 2, 20, 4999, 5000] {
        let params = SamplingParams { logprobs: Some(n), ..SamplingParams::default() };
        let top = sampler(params).sample(&logits).top;
        assert_eq!(top.iter().map(|x| x.0).collect::<Vec<_>>(), sorted[..n], "{n}");
    }
}

#[test]
fn a_banned_token_is_never_chosen() {
    let logits = [5.0, 1.0, 0.0];
    let params = SamplingParams { logit_bias: vec![(0, f32::NEG_INFINITY)], ..warm() };
    let mut banned = sampler(params.clone());
    assert!((0..500).all(|i| banned.predict(&logits, i, Certainty::Probability).token != 0));
    let greedy = SamplingParams { temperature: 0.0, ..params };
    assert_eq!(sampler(greedy).sample(&logits).token, 1);
}
