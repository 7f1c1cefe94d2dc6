//! Saved prompt caches: restored pages give the text that computed ones give.

use wrinklefree::cache::{
    KvConfig, KvPool, KvType, Namespace, PAGE, PageSelection, SaltHash, SavedError, SavedPrefix,
    StateLimits,
};
use wrinklefree::engine::{Engine, EngineConfig, EventKind, Request, Step};
use wrinklefree::format::Spec;
use wrinklefree::kernel::Kernels;
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;

const VOCAB: usize = 40;

fn engine(model: Model, kv: KvConfig) -> Engine {
    let runtime = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
    let config =
        EngineConfig { kv_pages: 16, max_context: 16 * PAGE, kv, ..EngineConfig::default() };
    Engine::new(model, None, runtime, config).unwrap()
}

fn small() -> Model {
    crate::common::small_model(VOCAB, 11, 6.0)
}

/// Returns the tokens that follow a prompt, and the number of its tokens that were cached.
fn run(engine: &mut Engine, tokens: &[u32]) -> (Vec<u32>, usize) {
    let request = Request {
        tokens: tokens.to_vec(),
        max_tokens: 70,
        cache_salt: "own".into(),
        ..Request::default()
    };
    engine.submit(request).unwrap();
    let (mut output, mut found) = (Vec::new(), 0);
    while engine.step() != Step::Idle {}
    while let Some(event) = engine.poll() {
        match event.kind {
            EventKind::Token { sampled, .. } => output.push(sampled.token),
            EventKind::Finished { cached, .. } => found = cached,
            _ => {}
        }
    }
    (output, found)
}

fn prompt() -> Vec<u32> {
    (0..100).map(|i| (i * 7 + 3) % VOCAB as u32).collect()
}

#[test]
fn repeated_pages_are_copies() {
    let (model, tokens) = (small(), prompt());
    let runtime = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
    let selection = PageSelection::TopK(2 * PAGE);
    let mut kv =
        KvPool::new(model.spec(), 4, KvConfig { selection, ..KvConfig::default() }).unwrap();
    let namespace = Namespace { salt: SaltHash::new(""), block: 1 };
    let (seq, _) = kv.open_shared(&namespace, &tokens);
    kv.grow(seq, tokens.len()).unwrap();
    let (attention_mask, logits) = (AttentionMask::Causal, LogitRows::None);
    let span = Span { seq, start: 0, tokens: &tokens[..PAGE], attention_mask, logits };
    model.forward(&runtime, &mut kv, &[span], &mut Workspace::default());
    kv.repeat_pages(seq, tokens.len());
    assert_eq!(kv.written(seq), 3 * PAGE, "whole pages of 100 positions");
    kv.commit(seq, 3 * PAGE);
    kv.publish(seq, &tokens);
    let saved = kv.save(&namespace, &tokens);
    let pages: Vec<&[u8]> = saved.bytes.chunks_exact(saved.bytes.len() / 3).collect();
    assert!(pages[0].iter().any(|&byte| byte != 0));
    assert!(pages[1] == pages[0] && pages[2] == pages[0]);
}

#[test]
fn restored_pages_give_the_same_text() {
    let selection = PageSelection::TopK(2 * PAGE);
    for kv in [
        KvConfig::default(),
        KvConfig { keys: KvType::Int8, values: KvType::Fp8E4m3, ..KvConfig::default() },
        KvConfig { selection, ..KvConfig::EXACT },
    ] {
        let (mut first, prompt) = (engine(small(), kv), prompt());
        let (want, cached) = run(&mut first, &prompt);
        assert_eq!((want.len(), cached), (70, 0));
        let text = [&prompt[..], &want].concat();
        let whole = (text.len() - 1) / PAGE * PAGE;
        let saved = first.save_prefix(("own", 1), &text);
        assert_eq!(saved.positions, whole);
        assert_eq!(first.save_prefix(("other", 1), &text).positions, 0);
        assert_eq!(first.forget_prefix(("own", 1), &text), whole);
        assert_eq!(first.stats().free_pages, 16);
        assert_eq!(run(&mut first, &prompt), (want.clone(), 0));

        let mut second = engine(small(), kv);
        let restored = second.restore_prefix(("own", 1), &text[..whole], &saved);
        assert_eq!(restored, Ok(whole));
        assert_eq!(second.stats().idle_pages, whole / PAGE);
        // The last token of a prompt is always computed.
        assert_eq!(run(&mut second, &prompt), (want.clone(), prompt.len() / PAGE * PAGE));
        let again = second.save_prefix(("own", 1), &text);
        assert_eq!(again, saved, "what is there already stays");
        assert_eq!(second.restore_prefix(("own", 1), &text[..whole], &saved), Ok(whole));
    }
}

#[test]
fn other_bytes_and_full_pools_are_refused() {
    let mut engine = engine(small(), KvConfig::default());
    let prompt = prompt();
    let (output, _) = run(&mut engine, &prompt);
    let text = [prompt, output].concat();
    let saved = engine.save_prefix(("own", 1), &text);
    let tokens = &text[..saved.positions];
    let with = |bytes: Vec<u8>| SavedPrefix { bytes, ..SavedPrefix::default() };
    let short = with(saved.bytes[1..].to_vec());
    let restored = engine.restore_prefix(("own", 1), tokens, &short);
    assert!(matches!(restored, Err(SavedError::Size { pages: 5, .. })), "{restored:?}");
    let long: Vec<u32> = tokens.iter().copied().cycle().take(17 * PAGE).collect();
    let bytes = with(vec![0; saved.bytes.len() / 5 * 17]);
    let restored = engine.restore_prefix(("own", 1), &long, &bytes);
    assert!(matches!(restored, Err(SavedError::Full(_))), "{restored:?}");
    let none = engine.restore_prefix(("own", 1), &text[..PAGE - 1], &with(Vec::new()));
    assert_eq!(none, Ok(0));
}

fn recurrent() -> Model {
    let spec = Spec { vocab_size: VOCAB, ..crate::hybrid::rotated() };
    let weights = crate::hybrid::weights(&spec, crate::hybrid::Kind::Ternary, true, 12);
    Model::new(spec, weights).unwrap()
}

#[test]
fn restored_states_give_the_same_text() {
    let config = KvConfig::default();
    let (mut first, prompt) = (engine(recurrent(), config), prompt());
    let (answer, _) = run(&mut first, &prompt);
    let text = [&prompt[..], &answer, &prompt[..40]].concat();
    let (want, cached) = run(&mut first, &text);
    let saved = first.save_prefix(("own", 1), &text);
    assert!(saved.positions >= cached && cached > prompt.len(), "{} {cached}", saved.positions);

    let mut second = engine(recurrent(), config);
    let known = &text[..saved.positions];
    assert_eq!(second.restore_prefix(("own", 1), known, &saved), Ok(saved.positions));
    assert_eq!(second.continuations(("own", 1), &text), saved.states);
    assert_eq!(second.save_prefix(("own", 1), &text), saved);
    assert_eq!(second.restore_prefix(("own", 1), known, &saved), Ok(saved.positions));
    assert_eq!(run(&mut second, &text), (want.clone(), saved.positions));

    // Pages that are there without their state get it.
    let mut third = engine(recurrent(), config);
    assert_eq!(run(&mut third, &text).0, want);
    third.forget_prefix(("own", 1), &text);
    assert_eq!(third.restore_prefix(("own", 1), known, &saved), Ok(saved.positions));
    assert_eq!(run(&mut third, &text), (want, saved.positions));

    let mut without = saved.clone();
    without.bytes.truncate(saved.bytes.len() - size_of::<f32>());
    let refused = third.restore_prefix(("own", 1), known, &without);
    assert!(matches!(refused, Err(SavedError::Size { .. })), "{refused:?}");
    for end in [1, saved.positions + PAGE] {
        let mut elsewhere = saved.clone();
        elsewhere.states[0] = end;
        let refused = third.restore_prefix(("own", 1), known, &elsewhere);
        assert_eq!(refused, Err(SavedError::Unknown));
    }
    assert_eq!(third.save_prefix(("own", 1), &text[..PAGE - 1]).positions, 0);
    let nothing = SavedPrefix::default();
    assert_eq!(third.restore_prefix(("own", 1), &text[..PAGE - 1], &nothing), Ok(0));
}

#[test]
fn parts_are_restored_one_after_the_other_while_all_sequences_are_busy() {
    let config =
        KvConfig { states: StateLimits { sequences: 2, snapshots: 4 }, ..KvConfig::default() };
    let mut kv = KvPool::new(recurrent().spec(), 16, config).unwrap();
    let namespace = Namespace { salt: SaltHash::new("own"), block: 1 };
    let mut engine = engine(recurrent(), KvConfig::default());
    let text = prompt();
    run(&mut engine, &text);
    let saved = engine.save_prefix(("own", 1), &text);
    let text = &text[..saved.positions];
    let pages = |range| engine.save_pages(("own", 1), text, range).unwrap();
    let states = engine.save_states(("own", 1), text).unwrap();
    assert_eq!(saved.states, [text.len()]);
    assert_eq!(engine.save_pages(("own", 1), text, 2..9), None);
    assert_eq!(engine.save_states(("own", 1), &text[..PAGE]), None);
    let parts = [pages(0..2), pages(2..text.len() / PAGE)];
    assert_eq!([&parts[0][..], &parts[1], &states].concat(), saved.bytes);

    kv.open(1).unwrap();
    kv.open(1).unwrap();
    assert_eq!(kv.restore_pages(&namespace, text, 2, &parts[1]), Err(SavedError::Unknown));
    assert_eq!(kv.restore_states(&namespace, text, &states), Err(SavedError::Unknown));
    let free = kv.free_pages();
    assert_eq!(kv.restore_pages(&namespace, &text[..2 * PAGE], 0, &parts[0]), Ok(()));
    assert_eq!((kv.idle_pages(), kv.free_pages()), (2, free - 2));
    assert_eq!(kv.restore_pages(&namespace, text, 2, &parts[1]), Ok(()));
    assert_eq!(kv.cached_prefix(&namespace, text), Some(0), "without states");
    assert_eq!(kv.restore_states(&namespace, text, &states), Ok(()));
    assert_eq!(kv.cached_prefix(&namespace, text), Some(text.len()));
    assert_eq!(kv.save(&namespace, text), saved);
}
