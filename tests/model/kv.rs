//! Types of the KV cache and page selection: results that they may change, and results that they must
//! not. (`tests/engine/requests.rs` holds that batching, chunks and preemption change nothing with any of them.)

use crate::common::small_model;
use wrinklefree::cache::{KvConfig, KvPool, KvSeq, KvType, PAGE, PageSelection};
use wrinklefree::kernel::Kernels;
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;

const VOCAB: usize = 40;
const LENGTH: usize = 300;

fn tokens() -> Vec<u32> {
    let mut noise = crate::common::Noise(0x0123_4567_89ab_cdef);
    (0..LENGTH).map(|_| (noise.bits() >> 20) as u32 % VOCAB as u32).collect()
}

/// A sequence in its own pool.
struct Run<'a> {
    model: &'a Model,
    rt: &'a Runtime,
    kv: KvPool,
    seq: KvSeq,
    workspace: Workspace,
}

impl<'a> Run<'a> {
    fn new(model: &'a Model, rt: &'a Runtime, config: KvConfig) -> Self {
        let mut kv = KvPool::new(model.spec(), LENGTH.div_ceil(PAGE), config).unwrap();
        let seq = kv.open(LENGTH).unwrap();
        Self { model, rt, kv, seq, workspace: Workspace::default() }
    }

    /// Computes and commits `tokens`; returns the logits of all rows.
    fn pass(&mut self, start: usize, tokens: &[u32]) -> Vec<f32> {
        let span = Span {
            seq: self.seq,
            start,
            tokens,
            attention_mask: AttentionMask::Causal,
            logits: LogitRows::All,
        };
        let logits = self.model.forward(self.rt, &mut self.kv, &[span], &mut self.workspace);
        let logits = logits.values().to_vec();
        self.kv.commit(self.seq, start + tokens.len());
        logits
    }

    /// Logits of all rows of the text, computed in chunks of `cut` tokens.
    fn text(model: &'a Model, rt: &'a Runtime, config: KvConfig, cut: usize) -> Vec<f32> {
        let mut run = Self::new(model, rt, config);
        let passes = tokens();
        let passes = passes.chunks(cut).enumerate();
        passes.flat_map(|(i, tokens)| run.pass(i * cut, tokens)).collect()
    }
}

fn each(test: impl Fn(&Model, &Runtime)) {
    let model = small_model(VOCAB, 5, 6.0);
    for kernels in Kernels::all() {
        println!("runs on {}", kernels.isa().name());
        test(&model, &Runtime { kernels, thread_pool: ThreadPool::new(1).unwrap() });
    }
}

fn selecting(selection: PageSelection) -> KvConfig {
    KvConfig { selection, ..KvConfig::EXACT }
}

fn cosines(a: &[f32], b: &[f32]) -> impl Iterator<Item = f32> {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let cosine = move |(a, b): (&[f32], &[f32])| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt();
    let all: Vec<f32> = a.chunks(VOCAB).zip(b.chunks(VOCAB)).map(cosine).collect();
    all.into_iter()
}

#[test]
fn a_selection_of_all_pages_changes_no_bit() {
    each(|model, rt| {
        let dense = Run::text(model, rt, KvConfig::EXACT, LENGTH);
        for selection in [
            PageSelection::Window { window: LENGTH, sinks: 0 },
            PageSelection::TopK(LENGTH),
            PageSelection::Threshold(f32::MIN_POSITIVE),
            PageSelection::Dynamic { min: 1.0, max: 1.0 },
        ] {
            assert!(Run::text(model, rt, selecting(selection), 64) == dense, "{selection}");
        }
    });
}

#[test]
fn a_row_that_sees_only_the_beginning_reads_it() {
    each(|model, rt| {
        let look = |config| {
            let mut run = Run::new(model, rt, config);
            run.pass(0, &tokens()[..200]);
            let (tokens, attention_mask) = (&tokens()[200..204], AttentionMask::Prefix(10));
            let span =
                Span { seq: run.seq, start: 200, tokens, attention_mask, logits: LogitRows::All };
            let logits = run.model.forward(run.rt, &mut run.kv, &[span], &mut run.workspace);
            logits.values().to_vec()
        };
        let dense = look(KvConfig::EXACT);
        for selection in [
            PageSelection::TopK(32),
            PageSelection::Threshold(1.0),
            PageSelection::Dynamic { min: 0.1, max: 0.1 },
        ] {
            // The pages between are selected differently, but they are not visible.
            assert!(look(selecting(selection)) == dense, "{selection}");
        }
    });
}

#[test]
fn types_stay_near_f32() {
    each(|model, rt| {
        let dense = Run::text(model, rt, KvConfig::EXACT, 64);
        for (dtype, least) in [
            (KvType::F32, 1.0),
            (KvType::F16, 0.9999),
            (KvType::Bf16, 0.999),
            (KvType::Int8, 0.999),
            (KvType::Fp8E4m3, 0.99),
            (KvType::Fp8E5m2, 0.97),
        ] {
            let config = KvConfig { keys: dtype, values: dtype, ..KvConfig::EXACT };
            let got = Run::text(model, rt, config, 64);
            let mean = cosines(&got, &dense).sum::<f32>() / LENGTH as f32;
            assert!(mean >= least - 1e-6, "{dtype:?}: {mean}");
            assert_eq!(got == dense, dtype == KvType::F32, "{dtype:?} is another type");
        }
    });
}

#[test]
fn fewer_pages_are_read_and_the_best_matter_most() {
    each(|model, rt| {
        let dense = Run::text(model, rt, KvConfig::EXACT, LENGTH);
        let mean = |selection: PageSelection| {
            let mut run = Run::new(model, rt, selecting(selection));
            let got = run.pass(0, &tokens());
            let (read, seen) = run.kv.reads();
            (cosines(&got, &dense).sum::<f32>() / LENGTH as f32, read as f64 / seen as f64)
        };
        let best = mean(PageSelection::TopK(160));
        let last = mean(PageSelection::Window { window: 64, sinks: 0 });
        let dynamic = mean(PageSelection::Dynamic { min: 0.1, max: 0.5 });
        assert!(best.1 < 0.8 && last.1 < 0.55 && dynamic.1 < 0.65, "{best:?} {last:?} {dynamic:?}");
        assert!(best.0 > 0.96 && best.0 > last.0 && dynamic.0 > last.0, "{best:?} {last:?}");
    });
}

#[test]
fn a_window_gives_pages_back_and_goes_on_without_them() {
    each(|model, rt| {
        for (window, sinks) in [(1, 0), (64, 4), (65, 33), (40, 1000)] {
            let config = selecting(PageSelection::Window { window, sinks });
            let whole = Run::text(model, rt, config, LENGTH);
            assert!(whole == Run::text(model, rt, config, 7), "{config:?}");
            let mut run = Run::new(model, rt, config);
            let all = run.kv.pages();
            for (i, tokens) in tokens().chunks(30).enumerate() {
                run.pass(30 * i, tokens);
                let end = 30 * i + tokens.len();
                // The next row's window, and the beginning.
                let first = (end + 1).saturating_sub(window) / PAGE;
                let kept = all - first.max(sinks.div_ceil(PAGE).min(first));
                let sinks = sinks.div_ceil(PAGE).min(first);
                assert_eq!(run.kv.free_pages(), all - kept - sinks, "{config:?} at {end}");
            }
            run.kv.close(run.seq);
            assert_eq!(run.kv.free_pages(), all);
        }
    });
}

#[test]
fn pool_size_follows_the_types() {
    let model = small_model(VOCAB, 5, 6.0);
    let (spec, pages) = (model.spec(), 7);
    let numbers = 2 * spec.layers * spec.kv_heads * spec.head_dim * PAGE * pages;
    let scales = 2 * spec.layers * spec.kv_heads * PAGE * pages * 4;
    for dtype in KvType::ALL {
        let config = KvConfig { keys: dtype, values: dtype, ..KvConfig::EXACT };
        let want = numbers * dtype.size() + if dtype.size() == 1 { scales } else { 0 };
        assert_eq!(KvPool::bytes(spec, pages, &config), want, "{dtype:?}");
    }
}

#[test]
fn page_selections_are_parsed_and_printed() {
    for text in [
        "dense",
        "window:512,sinks:4",
        "window:1,sinks:0",
        "topk:1024",
        "threshold:0.01",
        "dynamic:0.1,0.5",
    ] {
        assert_eq!(text.parse::<PageSelection>().unwrap().to_string(), text);
    }
    assert_eq!("dynamic".parse(), "dynamic:0.1,0.5".parse::<PageSelection>());
    assert_eq!("window:9".parse(), "window:9,sinks:4".parse::<PageSelection>());
    for text in [
        "",
        "Dense",
        "dense:1",
        "window",
        "window:",
        "window:0",
        "window:-1",
        "window:5,4",
        "window:5,sinks:",
        "window:5,sinks:4,5",
        "topk:0",
        "topk:0.5",
        "threshold:0",
        "threshold:1.1",
        "threshold:NaN",
        "dynamic:",
        "dynamic:0.5",
        "dynamic:0.5,0.1",
        "dynamic:0,0.5",
        "dynamic:0.1,inf",
    ] {
        let error = text.parse::<PageSelection>().expect_err(text).to_string();
        assert!(error.starts_with(&format!("{text:?} is not a page selection: expected dense")));
    }
}
