//! Context shift: the tokens that it keeps, and the continuation, which is as if they had been the prompt.

use wrinklefree::cache::KvConfig;
use wrinklefree::decode::{
    DecodeMode, DiffusionParams, Drafter, PassCosts, Sampled, SamplingParams, Unmask,
};
use wrinklefree::engine::{
    Engine, EngineConfig, EventKind, FinishReason, Request, Step, SubmitError,
};
use wrinklefree::kernel::Kernels;
use wrinklefree::model::Runtime;
use wrinklefree::par::ThreadPool;

const VOCAB: usize = 40;
const CONTEXT: usize = 64;

fn engine(prefix_cache: bool) -> Engine {
    let model = crate::common::small_model(VOCAB, 11, 6.0);
    let runtime = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
    let config = EngineConfig {
        max_context: CONTEXT,
        kv_pages: 4,
        max_sequences: 2,
        max_batch_tokens: 32,
        pass_costs: PassCosts::uniform(0.0),
        prefix_cache,
        kv: KvConfig::EXACT,
    };
    Engine::new(model, None, runtime, config).unwrap()
}

fn prompt(length: usize) -> Vec<u32> {
    (0..length).map(|i| (i * 7 % VOCAB) as u32).collect()
}

/// A request with a context shift.
fn request(mode: DecodeMode, keep: usize, max_tokens: usize) -> Request {
    let sampling = SamplingParams { logprobs: Some(3), ..SamplingParams::default() };
    let (tokens, context_shift) = (prompt(20), Some(keep));
    Request { tokens, max_tokens, mode, context_shift, sampling, ..Request::default() }
}

/// The output of one request.
fn run(engine: &mut Engine, request: Request) -> (Vec<Sampled>, FinishReason) {
    engine.submit(request).unwrap();
    let (mut output, mut reason) = (Vec::new(), None);
    while engine.step() != Step::Idle {
        while let Some(event) = engine.poll() {
            match event.kind {
                EventKind::Token { sampled, .. } => output.push(sampled),
                EventKind::Finished { reason: why, .. } => reason = Some(why),
                _ => {}
            }
        }
    }
    (output, reason.expect("it ends"))
}

/// The autoregressive mode, and two that draft as long as they can.
fn modes() -> [DecodeMode; 3] {
    let verify = |drafter| DecodeMode::Verify { drafter, row_cost: Some(0.0) };
    [
        DecodeMode::Autoregressive,
        verify(Drafter::Ngram { length: 40, matches: (1, 3) }),
        verify(Drafter::Denoise { length: 9, mask: 3, shift: true }),
    ]
}

/// The same output from separate requests: the prompt of each is what a shift keeps.
fn one_request_a_shift(keep: usize, max_tokens: usize) -> Vec<Sampled> {
    let (mut engine, mut text, mut output) = (engine(false), prompt(20), Vec::new());
    loop {
        let left = (max_tokens - output.len()).min(CONTEXT - text.len());
        let plain = request(DecodeMode::Autoregressive, keep, left);
        let plain = Request { tokens: text.clone(), context_shift: None, ..plain };
        let (said, reason) = run(&mut engine, plain);
        assert_eq!((said.len(), reason), (left, FinishReason::Length));
        text.extend(said.iter().map(|s| s.token));
        output.extend(said);
        if output.len() == max_tokens {
            return output;
        }
        assert_eq!(text.len(), CONTEXT);
        text.drain(keep..keep + (CONTEXT - keep).div_ceil(2));
    }
}

#[test]
fn the_output_goes_on_as_if_what_is_kept_were_the_prompt() {
    for keep in [0, 4, 33, CONTEXT - 1] {
        let want = one_request_a_shift(keep, 150);
        for mode in modes() {
            for prefix_cache in [false, true] {
                let (got, reason) =
                    run(&mut engine(prefix_cache), request(mode.clone(), keep, 150));
                assert_eq!(reason, FinishReason::Length);
                assert_eq!(got, want, "{mode:?}, {keep} kept: tokens and log-probabilities");
            }
        }
    }
}

#[test]
fn without_a_shift_the_output_ends_with_the_context() {
    let plain = Request { context_shift: None, ..request(DecodeMode::Autoregressive, 4, 150) };
    let (got, reason) = run(&mut engine(false), plain);
    assert_eq!((got.len(), reason), (CONTEXT - 20, FinishReason::Length));
    let (shifted, _) = run(&mut engine(false), request(DecodeMode::Autoregressive, 4, 150));
    assert_eq!(shifted[..got.len()], got, "until then they are the same");
}

/// With a temperature, and with the events for display.
#[test]
fn verify_gives_the_output_of_ar() {
    let sampled = |mode| {
        let sampling = SamplingParams { temperature: 0.9, seed: 5, ..SamplingParams::default() };
        Request { sampling, watch: true, ..request(mode, 2, 300) }
    };
    let [ar, ngram, denoise] = modes().map(|mode| run(&mut engine(true), sampled(mode)));
    assert_eq!((&ngram, &denoise), (&ar, &ar));
    assert_eq!(ar.0.len(), 300);
}

/// Tokens that a shift has dropped are penalized like those that it has kept.
#[test]
fn penalties_count_the_whole_output() {
    let sampling = SamplingParams { frequency_penalty: 1e6, ..SamplingParams::default() };
    for mode in modes() {
        let request = Request {
            sampling: sampling.clone(),
            tokens: prompt(50),
            ..request(mode, 4, 2 * VOCAB)
        };
        let (output, _) = run(&mut engine(true), request);
        for round in output.chunks(VOCAB) {
            let mut tokens: Vec<u32> = round.iter().map(|s| s.token).collect();
            tokens.sort_unstable();
            assert!(tokens.iter().copied().eq(0..VOCAB as u32), "each once: {tokens:?}");
        }
    }
}

#[test]
fn prompts_are_scored_before_anything_is_dropped() {
    let scored = SamplingParams { score_prompt: true, ..SamplingParams::default() };
    let scored = Request { sampling: scored, ..request(DecodeMode::Autoregressive, 4, 100) };
    let mut engine = engine(true);
    engine.submit(scored).unwrap();
    let mut scores = Vec::new();
    while engine.step() != Step::Idle {
        while let Some(event) = engine.poll() {
            if let EventKind::Scored(tokens) = event.kind {
                scores.extend(tokens.into_iter().map(|s| s.token));
            }
        }
    }
    assert_eq!(scores, prompt(20)[1..]);
}

#[test]
fn impossible_shifts_are_refused() {
    let mut engine = engine(true);
    let mut refuse = |request| engine.submit(request).expect_err("refused");
    // The prompt does not have the token 1.
    let params = DiffusionParams { mask: 1, ..crate::parameters::params(8, 8, Unmask::All) };
    let error = refuse(request(DecodeMode::Diffusion(params), 4, 10));
    assert_eq!(error, SubmitError::NoContextShift);
    assert!(error.to_string().contains("context shift works with the decode modes ar and verify"));
    assert_eq!(error.code(), "bad_decoding_parameter");
    let all = refuse(request(DecodeMode::Autoregressive, CONTEXT, 100));
    assert_eq!(all, SubmitError::KeepsAll { keep: CONTEXT, context: CONTEXT });
    assert!(all.to_string().contains("keep fewer"), "{all}");
    let long = Request { tokens: prompt(CONTEXT), ..request(DecodeMode::Autoregressive, 4, 10) };
    assert_eq!(refuse(long), SubmitError::PromptTooLong { prompt: CONTEXT, context: CONTEXT });
    let short = request(DecodeMode::Autoregressive, CONTEXT, 10);
    assert_eq!(run(&mut engine, short).0.len(), 10, "no shift is needed");
}
