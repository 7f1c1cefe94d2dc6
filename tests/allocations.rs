//! After warm-up a pass allocates no memory: on every instruction set of the machine, with one and two
//! threads, for single rows and batches. It is one test, because it counts the allocations of the process.

#[path = "../benches/common/mod.rs"]
mod common;
#[path = "../benches/common/hybrid.rs"]
mod hybrid;

use common::bitnet;
use hybrid::Kind;
use wrinklefree::cache::{KvConfig, KvPool};
use wrinklefree::format::{Activation, Architecture, Rope, Spec, Weights};
use wrinklefree::kernel::{Isa, Kernels};
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::ThreadPool;
use wrinklefree::ternary::Layout;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Large enough for a pass of a few rows to use a second thread.
const SPEC: Spec = Spec {
    architecture: Architecture::BitNet,
    vocab_size: 4096,
    hidden_size: 1024,
    intermediate_size: 2560,
    layers: 4,
    heads: 8,
    kv_heads: 2,
    head_dim: 128,
    context_length: 512,
    norm_eps: 1e-5,
    activation: Activation::Relu2,
    rope: Rope { theta: 1e4, scaling: None },
    rotary_dim: None,
    attention_gate: false,
    linear_attention: None,
    mixers: Vec::new(),
    factors: None,
    mtp_layers: 0,
};

#[test]
fn a_pass_like_one_before_allocates_nothing() {
    let _profiler = dhat::Profiler::builder().testing().build();
    // The scalar reference may allocate.
    for kernels in Kernels::all().filter(|k| k.isa() != Isa::Scalar) {
        for threads in [1, 2] {
            let rt = Runtime { kernels, thread_pool: ThreadPool::new(threads).unwrap() };
            for layout in [Layout::TwoBit, Layout::Tight] {
                let model = Model::new(SPEC, weights()).unwrap().with_layout(layout, &rt);
                for kv in [KvConfig::EXACT, KvConfig::default()] {
                    for rows in [1, 2, 4, 9, 33] {
                        let what = (kernels.isa(), threads, layout, kv, rows);
                        assert!(settles(&model, &rt, kv, rows), "{what:?}");
                    }
                }
            }
            // States take at most 13 positions back.
            let (spec, kv) = (hybrid::rotated(), KvConfig::default());
            let weights = hybrid::weights(&spec, Kind::Ternary, true, 4);
            let model = Model::new(spec, weights).unwrap();
            for rows in [1, 2, 4] {
                assert!(settles(&model, &rt, kv, rows), "{:?} {threads} {rows}", kernels.isa());
            }
        }
    }
}

/// Weights with norms of queries and keys in some layers.
fn weights() -> Weights {
    let mut weights = bitnet(&SPEC, 3);
    for layer in weights.layers.iter_mut().step_by(2) {
        let attention = layer.mixer.attention_mut().unwrap();
        attention.q_norm = Some(vec![1.0; SPEC.head_dim]);
        attention.k_norm = Some(vec![1.0; SPEC.head_dim]);
    }
    weights
}

/// Returns true if passes of `rows` rows stop to allocate. Parts of a step go to workers at random, so a
/// worker may get its first part of a kind late, and allocates then.
fn settles(model: &Model, rt: &Runtime, kv: KvConfig, rows: usize) -> bool {
    let tokens: Vec<u32> = (0..rows).map(|i| (i * 37 % model.spec().vocab_size) as u32).collect();
    let mut kv = KvPool::new(model.spec(), 16, kv).unwrap();
    let seq = kv.open(256).unwrap();
    let mut workspace = Workspace::default();
    let mut allocations = || {
        let before = dhat::HeapStats::get().total_blocks;
        for start in 0..8 {
            let tokens = &tokens;
            let span = Span {
                seq,
                start,
                tokens,
                attention_mask: AttentionMask::Causal,
                logits: LogitRows::Last,
            };
            model.forward(rt, &mut kv, &[span], &mut workspace);
        }
        dhat::HeapStats::get().total_blocks - before
    };
    (0..50).any(|_| allocations() == 0)
}
