//! Measures the forward pass at the width of BitNet b1.58 2B-4T (four of its layers, a small vocabulary), and
//! its overhead compared with the products: `cargo bench --bench forward`.
//!
//! The last lines alternate each pass with its matrix products alone, in one process and on one thread, and
//! print the ratio of their times.

mod common;
#[path = "common/timing.rs"]
mod timing;

use common::{bitnet, bitnet_2b};
use criterion::{Criterion, Throughput};
use std::hint::black_box;
use wrinklefree::cache::{KvConfig, KvPool, KvSeq, PAGE};
use wrinklefree::format::Spec;
use wrinklefree::kernel::{Kernels, Quantized};
use wrinklefree::matrix::Matrix;
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::par::{Columns, Scratch, ThreadPool};

/// Numbers of rows of a pass: decode, a diffusion block, a chunk of a prompt.
const ROWS: [usize; 3] = [1, 32, 256];
/// Number of keys in the cache before a decoding row.
const CONTEXT: usize = 256;

fn spec() -> Spec {
    Spec { layers: 4, vocab_size: 4096, ..bitnet_2b() }
}

/// A model with the state that a pass needs.
struct Bench<'m> {
    model: &'m Model,
    rt: Runtime,
    kv: KvPool,
    seq: KvSeq,
    ws: Workspace,
}

impl<'m> Bench<'m> {
    fn new(model: &'m Model, threads: usize) -> Self {
        let rt =
            Runtime { kernels: Kernels::best(), thread_pool: ThreadPool::new(threads).unwrap() };
        let mut kv = KvPool::new(model.spec(), 2 * CONTEXT / PAGE, KvConfig::EXACT).unwrap();
        let seq = kv.open(2 * CONTEXT).unwrap();
        let mut this = Self { model, rt, kv, seq, ws: Workspace::default() };
        this.pass(CONTEXT, 0);
        this
    }

    /// Runs one pass over `rows` rows from `start` on.
    fn pass(&mut self, rows: usize, start: usize) {
        let tokens: Vec<u32> = (0..rows as u32).map(|i| i * 7919 % 4096).collect();
        let (attention_mask, logits) = (AttentionMask::Causal, LogitRows::Last);
        let span = Span { seq: self.seq, start, tokens: &tokens, attention_mask, logits };
        let logits = self.model.forward(&self.rt, &mut self.kv, &[span], &mut self.ws);
        black_box(logits.row(0));
    }

    /// Runs a pass as it is timed: one row after a context, several rows from the start.
    fn timed(&mut self, rows: usize) {
        self.pass(rows, if rows == 1 { CONTEXT } else { 0 });
    }
}

/// Computes only the products of a pass: all matrices of all layers, and the head for one row.
fn products(model: &Model, k: &Kernels, rows: usize, scratch: &mut Scratch, y: &mut [f32]) {
    let mut product = |w: &Matrix, tokens: usize, planes: usize| {
        let (rows, stride) = (tokens * planes, Quantized::stride_of(w.cols()));
        let values = vec![1i8; rows * stride];
        let (sums, steps) = (vec![w.cols() as i32; rows], vec![1f32; rows]);
        let x =
            Quantized { values: &values, stride, sums: &sums, steps: &steps, planes, groups: None };
        let panels = 0..w.rows().div_ceil(16);
        let y = &mut Columns::whole(&mut y[..tokens * w.rows()], w.rows());
        match w {
            Matrix::Ternary(w) => k.ternary(w, panels, &x, y, scratch),
            Matrix::Int8(w) => (k.int8)(w.view(), panels, &x, y, scratch),
            Matrix::Split(w) => (k.int8)(w.view(), panels, &x, y, scratch),
            Matrix::Float(_) => unreachable!("the model has none"),
        }
    };
    let weights = model.weights();
    for l in &weights.layers {
        for linear in l.linears() {
            product(&linear.weight, rows, 1);
        }
    }
    // The head takes 15-bit activations: two planes.
    product(&weights.embed, 1, 2);
    black_box(y);
}

fn main() {
    let model = Model::new(spec(), bitnet(&spec(), 7)).unwrap();
    let mut c: Criterion = timing::criterion();
    for threads in [1, 2] {
        let mut bench = Bench::new(&model, threads);
        let mut group = c.benchmark_group(format!("forward/{threads}-threads"));
        for rows in ROWS {
            let name = format!("{rows}-rows");
            group.throughput(Throughput::Elements(rows as u64));
            group.bench_function(name, |b| b.iter(|| bench.timed(rows)));
        }
        group.finish();
    }
    c.final_summary();

    let mut scratch = Scratch::default();
    let mut y = vec![0f32; 256 * spec().intermediate_size];
    let k = Kernels::best();
    let mut bench = Bench::new(&model, 1);
    for rows in ROWS {
        let bare = || products(&model, &k, rows, &mut scratch, &mut y);
        let ratio = timing::ratio(|| bench.timed(rows), bare, 21);
        println!("{rows} rows: the pass takes {ratio:.2} of its products' time");
    }
    let (mut one, mut two) = (Bench::new(&model, 1), Bench::new(&model, 2));
    for rows in ROWS {
        let ratio = timing::ratio(|| one.timed(rows), || two.timed(rows), 21);
        println!("{rows} rows: two threads are {ratio:.2} times as fast as one");
    }
}
