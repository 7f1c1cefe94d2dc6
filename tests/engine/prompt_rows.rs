//! Rows of prompts next to sequences that decode.

use wrinklefree::engine::{Engine, EngineConfig, EventKind, Request, Step};
use wrinklefree::kernel::Kernels;
use wrinklefree::model::Runtime;
use wrinklefree::par::ThreadPool;

const VOCAB: usize = 40;

fn engine(config: EngineConfig) -> Engine {
    let runtime = Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(1).unwrap() };
    Engine::new(crate::common::small_model(VOCAB, 11, 6.0), None, runtime, config).unwrap()
}

/// A caller with a clock bounds how long a prompt delays sequences that decode.
#[test]
fn prompts_have_few_rows_beside_sequences_that_decode() {
    let config = EngineConfig {
        max_batch_tokens: 64,
        max_context: 256,
        kv_pages: 32,
        prefix_cache: false,
        ..EngineConfig::default()
    };
    let request = |tokens: usize, max_tokens| Request {
        tokens: (0..tokens).map(|i| (i % VOCAB) as u32).collect(),
        max_tokens,
        ..Request::default()
    };
    let run = |rows: Option<usize>| {
        let mut engine = engine(config);
        if let Some(rows) = rows {
            engine.set_prompt_rows(rows);
        }
        let (mut outputs, mut passes) = (Vec::new(), Vec::new());
        engine.submit(request(100, 40)).unwrap();
        loop {
            match engine.step() {
                Step::Idle => return (outputs, passes),
                Step::Ran { prefill_rows, decode_rows } => passes.push((prefill_rows, decode_rows)),
            }
            if passes.len() == 3 {
                engine.submit(request(150, 4)).unwrap();
            }
            while let Some(event) = engine.poll() {
                if let EventKind::Token { sampled, .. } = event.kind {
                    outputs.push((event.seq, sampled.token));
                }
            }
            outputs.sort_by_key(|(seq, _)| *seq);
        }
    };
    let ((outputs, free), (same, limited)) = (run(None), run(Some(5)));
    assert_eq!(outputs, same);
    assert_eq!(limited[0], (64, 0), "a prompt alone is not limited");
    assert!(free.iter().any(|&(prefill, decode)| prefill > 5 && decode > 0), "{free:?}");
    assert!(limited.iter().all(|&(prefill, decode)| prefill <= 5 || decode == 0), "{limited:?}");
}
