//! DRY, Mirostat, XTC, typical-p and top-nσ against definitions that enumerate, and lossless drafts with
//! them.

use proptest::prelude::*;
use std::collections::BTreeMap;
use wrinklefree::decode::{Certainty, Dry, Mirostat, MirostatVersion, Sampler, SamplingParams};

fn warm() -> SamplingParams {
    SamplingParams { temperature: 1.0, ..SamplingParams::default() }
}

fn sampler(params: SamplingParams) -> Sampler {
    params.validate(1 << 20).expect("valid");
    Sampler::new(params, &[])
}

/// Returns the softmax by definition.
fn softmax(logits: &[f32]) -> Vec<f64> {
    let weights: Vec<f64> = logits.iter().map(|&x| f64::from(x).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| w / sum).collect()
}

/// Returns the tokens that are drawn at the first positions of an output.
fn drawn(params: SamplingParams, logits: &[f32], positions: u64) -> Vec<u32> {
    let mut sampler = sampler(params);
    let draw = |position| sampler.predict(logits, position, Certainty::Probability).token;
    (0..positions).map(draw).collect()
}

/// Returns the tokens that are drawn at least once, sorted.
fn support(params: SamplingParams, logits: &[f32]) -> Vec<u32> {
    let mut tokens = drawn(params, logits, 3000);
    tokens.sort_unstable();
    tokens.dedup();
    tokens
}

/// Logits without ties and without values near any limit below.
const LOGITS: [f32; 8] = [1.0, 0.5, -0.5, 2.0, 0.0, -1.0, 1.5, 0.25];

#[test]
fn top_n_sigma_keeps_logits_near_the_highest() {
    let mean = LOGITS.iter().sum::<f32>() / 8.0;
    let sigma = (LOGITS.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 8.0).sqrt();
    for n in [0.3, 0.7, 1.2, 2.0, 5.0] {
        let near = (0..8u32).filter(|&i| LOGITS[i as usize] >= 2.0 - n * sigma);
        for temperature in [1.0, 2.5] {
            let params = SamplingParams { top_n_sigma: n, temperature, ..warm() };
            assert_eq!(support(params, &LOGITS), near.clone().collect::<Vec<_>>(), "{n}");
        }
    }
}

#[test]
fn typical_p_keeps_the_tokens_nearest_to_the_entropy() {
    let p = softmax(&LOGITS);
    let entropy: f64 = p.iter().map(|p| -p * p.ln()).sum();
    let mut order: Vec<usize> = (0..8).collect();
    let distance = |i: usize| (-p[i].ln() - entropy).abs();
    order.sort_by(|&a, &b| distance(a).total_cmp(&distance(b)));
    assert_ne!(order[0], 3, "the most likely token is not the most typical one");
    for mass in [0.05f32, 0.3, 0.6, 0.9] {
        let (mut sum, mut kept) = (0.0, Vec::new());
        for &i in &order {
            if sum < f64::from(mass) {
                kept.push(i as u32);
            }
            sum += p[i];
        }
        kept.sort_unstable();
        assert_eq!(support(SamplingParams { typical_p: mass, ..warm() }, &LOGITS), kept, "{mass}");
    }
}

#[test]
fn xtc_removes_the_top_choices_but_the_last() {
    // Probabilities of about 0.37, 0.22, 0.14, 0.08 …
    let always = |xtc_threshold| SamplingParams { xtc_probability: 1.0, xtc_threshold, ..warm() };
    assert_eq!(support(always(0.1), &LOGITS), [0, 1, 2, 4, 5, 7]);
    assert_eq!(support(always(0.2), &LOGITS), [0, 1, 2, 4, 5, 6, 7]);
    assert_eq!(support(always(0.3), &LOGITS), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(support(always(0.9), &LOGITS), [0, 1, 2, 3, 4, 5, 6, 7]);
    // Token 3 needs the coin's other side, so it comes half as often.
    let count = |xtc_probability| {
        let params = SamplingParams { xtc_probability, xtc_threshold: 0.1, ..warm() };
        drawn(params, &LOGITS, 20_000).iter().filter(|&&token| token == 3).count() as f64
    };
    let share = count(0.5) / count(0.0);
    assert!((share - 0.5).abs() < 0.05, "{share}");
}

/// Samples by definition: returns the tokens that may come and the limit after each of them.
fn mirostat(settings: Mirostat, logits: &[f32], limit: f64) -> BTreeMap<u32, f64> {
    let p = softmax(logits);
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&a, &b| p[b].total_cmp(&p[a]));
    let kept = match settings.version {
        MirostatVersion::Two => order.iter().filter(|&&i| -p[i].log2() <= limit).count().max(1),
        MirostatVersion::One => {
            let (mut above, mut below) = (0.0, 0.0);
            for i in 0..(order.len() - 1).min(99) {
                let t = ((i as f64 + 2.0) / (i as f64 + 1.0)).ln();
                above += t * (p[order[i]] / p[order[i + 1]]).ln();
                below += t * t;
            }
            let (s, e) = (above / below, above / below - 1.0);
            let k = ((e * limit.exp2()) / (1.0 - (p.len() as f64).powf(-e))).powf(1.0 / s);
            (k as usize).clamp(1, p.len())
        }
    };
    let total: f64 = order[..kept].iter().map(|&i| p[i]).sum();
    let next = |&i: &usize| {
        let surprise = -(p[i] / total).log2();
        (i as u32, limit - f64::from(settings.rate) * (surprise - f64::from(settings.target)))
    };
    order[..kept].iter().map(next).collect()
}

proptest! {
    #[test]
    fn mirostat_follows_its_definition(
        logits in prop::collection::vec(-6.0f32..6.0, 3..150),
        target in 0.5f32..4.0, rate in 0.05f32..0.9, first: bool, seed: u64,
    ) {
        let version = if first { MirostatVersion::One } else { MirostatVersion::Two };
        let settings = Mirostat { version, target, rate };
        let params = SamplingParams { mirostat: Some(settings), seed, ..warm() };
        let mut sampler = sampler(params);
        let mut limit = 2.0 * f64::from(target);
        for _ in 0..20 {
            let possible = mirostat(settings, &logits, limit);
            // A token at the limit may fall on either side in f32.
            let near = mirostat(settings, &logits, limit + 1e-4);
            let token = sampler.sample(&logits).token;
            prop_assert!(near.contains_key(&token), "{token} of {possible:?}");
            limit = possible.get(&token).or(near.get(&token)).copied().unwrap();
        }
    }

    #[test]
    fn dry_penalizes_what_continues_a_repetition(
        text in prop::collection::vec(0u32..4, 0..60),
        allowed_length in 0usize..4,
        window in prop_oneof![Just(usize::MAX), 1usize..40],
        breakers in prop::collection::vec(prop::collection::vec(0u32..5, 1..3), 0..2),
        seed: u64,
    ) {
        let dry = Dry { multiplier: 0.5, base: 1.5, allowed_length, window, breakers };
        let penalties = penalties(&dry, &text);
        // Without noise greedy decoding takes the token with the least penalty; biases make a token win.
        for token in 0..6u32 {
            let lead = 3.0 + (seed % 7) as f32;
            let logits: Vec<f32> = (0..6).map(|t| if t == token { lead } else { 0.0 }).collect();
            let want: Vec<f32> =
                logits.iter().enumerate().map(|(t, x)| x - penalties[t] as f32).collect();
            let best = (0..6u32).max_by(|&a, &b| {
                want[a as usize].total_cmp(&want[b as usize]).then(b.cmp(&a))
            });
            let params = SamplingParams { dry: Some(dry.clone()), ..SamplingParams::default() };
            let mut whole = Sampler::new(params, &text);
            let prediction = whole.predict(&logits, 0, Certainty::Probability);
            prop_assert_eq!(Some(prediction.token), best, "{:?}", want);
            // The certainty is the softmax of the penalized logits, so it has all penalties.
            let certain = softmax(&want)[prediction.token as usize];
            prop_assert!((f64::from(prediction.certainty) - certain).abs() < 1e-4);
        }
    }
}

/// Returns the penalty of each of 6 tokens after a text, by comparing all places.
fn penalties(dry: &Dry, text: &[u32]) -> [f64; 6] {
    let text = &text[text.len().saturating_sub(dry.window)..];
    let n = text.len();
    let broken = |length: usize| {
        dry.breakers.iter().any(|b| n - length >= b.len() && text[..n - length].ends_with(b))
    };
    let most = (0..=n).find(|&length| length == n || broken(length)).unwrap_or(n);
    let mut penalties = [0f64; 6];
    if most < dry.allowed_length {
        return penalties;
    }
    for next in 1..n {
        let same = (0..most.min(next)).take_while(|&i| text[next - 1 - i] == text[n - 1 - i]);
        let length = same.count();
        let single = dry.breakers.iter().any(|b| b[..] == [text[next]]);
        if length > 0 && length >= dry.allowed_length && !single {
            let exponent = (length - dry.allowed_length) as i32;
            let penalty = f64::from(dry.multiplier) * f64::from(dry.base).powi(exponent);
            let entry = &mut penalties[text[next] as usize];
            *entry = entry.max(penalty);
        }
    }
    penalties
}

#[test]
fn a_repetition_ends_with_dry() {
    let dry = Some(Dry { multiplier: 2.0, ..Dry::default() });
    let mut sampler = Sampler::new(SamplingParams { dry, ..SamplingParams::default() }, &[]);
    // The model repeats three tokens for ever.
    let tokens: Vec<u32> = (0..30)
        .map(|i| {
            let logits: Vec<f32> = (0..5).map(|t| if t == i % 3 { 9.0 } else { 0.0 }).collect();
            sampler.sample(&logits).token
        })
        .collect();
    let cycle: Vec<u32> = (0..30).map(|i| i % 3).collect();
    assert_eq!(tokens[..5], cycle[..5]);
    assert_ne!(tokens, cycle);
}

#[test]
fn bad_words_never_come() {
    let bad_words = vec![vec![3], vec![6, 0], vec![1, 1]];
    let params = SamplingParams { bad_words: bad_words.clone(), seed: 5, ..warm() };
    let mut sampler = sampler(params);
    let text: Vec<u32> = (0..2000).map(|_| sampler.sample(&LOGITS).token).collect();
    for word in &bad_words {
        assert!(!text.windows(word.len()).any(|w| w == word), "{word:?}");
    }
    assert!(text.contains(&6) && text.contains(&0) && text.contains(&1));
    // Only the output counts, not the prompt.
    let greedy = SamplingParams { bad_words: vec![vec![7, 3]], ..SamplingParams::default() };
    assert_eq!(Sampler::new(greedy, &[7]).sample(&LOGITS).token, 3);
}

#[test]
fn end_tokens_wait_for_the_minimum() {
    let params = SamplingParams { min_tokens: 4, ..SamplingParams::default() };
    let mut sampler = Sampler::new(params, &[]).ending_with(&[3, 6]);
    let text: Vec<u32> = (0..6).map(|_| sampler.sample(&LOGITS).token).collect();
    assert_eq!(text, [0, 0, 0, 0, 3, 3]);
}
