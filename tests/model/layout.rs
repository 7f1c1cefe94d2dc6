//! A model computes the same bits in all layouts of its weights, and chooses the faster one.

use crate::common::{Noise, bitnet, bitnet_2b, odd};
use half::f16;
use std::cell::Cell;
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::format::{Spec, Weights};
use wrinklefree::kernel::Kernels;
use wrinklefree::loader::InMemory;
use wrinklefree::matrix::{GroupScales, Matrix, Scales, TernaryMatrix};
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

/// A model of signs with a scale for each 128 of them, of which the head is one matrix.
fn signs(spec: &Spec) -> Weights {
    let mut weights = bitnet(spec, 9);
    let mut noise = Noise(77);
    let mut signs = |rows: usize, cols: usize| {
        let scales = GroupScales::from_rows(rows, cols, 128, |_, scales| {
            scales.fill_with(|| f16::from_f32(noise.float()));
        });
        let codes = |row: usize, out: &mut [u8]| {
            (row..).zip(out).for_each(|(i, code)| *code = 2 * (i * i / 7 % 2) as u8);
        };
        let packed = TernaryMatrix::pack(rows, cols, Scales::Groups(scales.unwrap()), codes);
        Matrix::Ternary(packed.unwrap())
    };
    for linear in weights.linears_mut() {
        linear.weight = signs(linear.weight.rows(), linear.weight.cols());
    }
    weights.embed = signs(spec.vocab_size, spec.hidden_size);
    weights
}

#[test]
fn signs_give_the_same_logits_in_every_layout_on_every_instruction_set() {
    let spec = Spec { hidden_size: 384, intermediate_size: 1408, heads: 6, head_dim: 64, ..odd() };
    for kernels in Kernels::all() {
        let (rt, isa) = (runtime(kernels), kernels.isa());
        let model = || Model::new(spec.clone(), signs(&spec)).unwrap();
        let (plain, single) = (model(), model().with_layout(Layout::OneBit, &rt));
        assert_eq!(single.has_layout(Layout::OneBit), kernels.reads(Layout::OneBit), "{isa:?}");
        for count in [1, 2, 5, 9, 70] {
            let tokens: Vec<u32> = (0..count).map(|i| i * 37 % 131).collect();
            assert_eq!(logits(&single, &rt, &tokens), logits(&plain, &rt, &tokens), "{isa:?}");
        }
        if kernels.reads(Layout::OneBit) {
            assert!(single.bytes_per_token() < plain.bytes_per_token() * 6 / 10, "head and layers");
        }
        for layout in [Layout::Tight, Layout::TwoBit] {
            let other = model().with_layout(Layout::OneBit, &rt).with_layout(layout, &rt);
            assert!(!other.has_layout(Layout::OneBit), "{isa:?}");
        }
        let back = single.with_layout(Layout::TwoBit, &rt);
        assert_eq!(back.bytes_per_token(), plain.bytes_per_token());
    }
}

#[test]
fn matrices_that_do_not_fit_one_bit_stay_in_a_layout_that_kernels_read() {
    for kernels in Kernels::all() {
        let rt = runtime(kernels);
        let mut weights = bitnet(&odd(), 5);
        weights.set_layout(Layout::Tight);
        let model = Model::new(odd(), weights).unwrap().with_layout(Layout::OneBit, &rt);
        assert!(!model.has_layout(Layout::OneBit));
        assert_eq!(model.is_tight(), kernels.reads(Layout::Tight) && kernels.reads(Layout::OneBit));
    }
}

#[test]
fn a_large_model_of_signs_is_timed_in_one_bit() {
    let Some(kernels) = Kernels::all().find(|k| k.reads(Layout::OneBit)) else {
        eprintln!("skipped: no kernels of this machine read the one-bit layout");
        return;
    };
    let rt = runtime(kernels);
    let spec = Spec {
        hidden_size: 2560,
        intermediate_size: 7680,
        layers: 3,
        vocab_size: 64,
        ..bitnet_2b()
    };
    let model = Model::new(spec.clone(), signs(&spec)).unwrap();
    for single_is_faster in [true, false] {
        let (read, time) = (Cell::new(0), Cell::new(0.0));
        let now = || {
            if read.get() % 2 == 1 {
                let fast = (read.get() / 2 % 2 == 1) == single_is_faster;
                time.set(time.get() + if fast { 1.0 } else { 2.0 });
            }
            read.set(read.get() + 1);
            time.get()
        };
        let layout = model.fastest_layout(&rt, &InMemory, now);
        assert_eq!(layout == Layout::OneBit, single_is_faster);
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
