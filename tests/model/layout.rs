//! A model computes the same bits in both layouts of its weights, and chooses the faster one.

use crate::common::{bitnet, bitnet_2b, odd};
use std::cell::Cell;
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::format::Spec;
use wrinklefree::kernel::Kernels;
use wrinklefree::loader::InMemory;
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;
use wrinklefree::ternary::Layout;

fn runtime(kernels: Kernels) -> Runtime {
    Runtime { kernels, thread_pool: ThreadPool::new(2).unwrap() }
}

fn logits(model: &Model, rt: &Runtime, tokens: &[u32]) -> Vec<u32> {
    let mut kv = KvPool::new(model.spec(), 4, KvConfig::EXACT).unwrap();
    let seq = kv.open(tokens.len()).unwrap();
    let span = Span {
        seq,
        start: 0,
        tokens,
        attention_mask: AttentionMask::Causal,
        logits: LogitRows::All,
    };
    let mut workspace = Workspace::default();
    let logits = model.forward(rt, &mut kv, &[span], &mut workspace);
    logits.values().iter().map(|x| x.to_bits()).collect()
}

#[test]
fn logits_are_the_same_bit_for_bit_on_every_instruction_set() {
    for kernels in Kernels::all() {
        let (rt, isa) = (runtime(kernels), kernels.isa());
        let model = || Model::new(odd(), bitnet(&odd(), 5)).unwrap();
        let (plain, tight) = (model(), model().with_layout(Layout::Tight, &rt));
        assert_eq!(tight.is_tight(), kernels.reads(Layout::Tight), "{isa:?}");
        for count in [1, 3, 5, 9, 70] {
            let tokens: Vec<u32> = (0..count).map(|i| i * 37 % 131).collect();
            assert_eq!(logits(&tight, &rt, &tokens), logits(&plain, &rt, &tokens), "{isa:?}");
        }
        let less = tight.bytes_per_token() < plain.bytes_per_token();
        assert_eq!(less, tight.is_tight());
        let back = tight.with_layout(Layout::TwoBit, &rt);
        assert_eq!(back.bytes_per_token(), plain.bytes_per_token());
        assert!(!back.is_tight());
    }
}

#[test]
fn a_model_that_fits_in_caches_takes_two_bits_without_timing() {
    let rt = runtime(Kernels::best());
    let model = Model::new(odd(), bitnet(&odd(), 5)).unwrap().with_layout(Layout::Tight, &rt);
    let layout = model.fastest_layout(&rt, &InMemory, || panic!("nobody asks for the time"));
    assert_eq!(layout, Layout::TwoBit);
}

#[test]
fn a_large_model_takes_the_layout_that_was_faster() {
    let Some(kernels) = Kernels::all().find(|k| k.reads(Layout::Tight)) else {
        eprintln!("skipped: no kernels of this machine read the tight layout");
        return;
    };
    let rt = runtime(kernels);
    // 278 million weights; the embedding is small.
    let spec = Spec { layers: 4, vocab_size: 64, ..bitnet_2b() };
    let weights = bitnet(&spec, 6);
    for tight_is_faster in [true, false] {
        // The layouts take turns, two bits first, and each pass reads the clock twice.
        let (read, time) = (Cell::new(0), Cell::new(0.0));
        let now = || {
            let pass = read.get() / 2;
            if read.get() % 2 == 1 {
                let fast = (pass % 2 == 1) == tight_is_faster;
                time.set(time.get() + if fast { 1.0 } else { 2.0 });
            }
            read.set(read.get() + 1);
            time.get()
        };
        let model = Model::new(spec.clone(), weights.clone()).unwrap();
        let layout = model.fastest_layout(&rt, &InMemory, now);
        assert_eq!(layout == Layout::Tight, tight_is_faster);
        assert!(read.get() > 0 && read.get() % 4 == 0, "{} times", read.get());
    }
}
