//! Measures every kernel on every instruction set of this machine, at the shapes of BitNet b1.58 2B-4T:
//! `cargo bench --bench kernels`.
//!
//! The last lines compare the ternary with the int8 product of each instruction set. The two alternate in
//! one process.

mod common;
#[path = "common/timing.rs"]
mod timing;

use common::Noise;
use criterion::{Criterion, Throughput};
use std::hint::black_box;
use wrinklefree::kernel::{Attention, Isa, Kernels, KvType, PAGE, PageLayout, Quantized};
use wrinklefree::matrix::SplitMatrix;
use wrinklefree::mem::AlignedVec;
use wrinklefree::par::{Columns, Scratch};
use wrinklefree::ternary::TernaryMatrix;

const HIDDEN: usize = 2560;
const INTERMEDIATE: usize = 6912;
/// Batch sizes: decode, a small diffusion block, a block, a prefill chunk.
const BATCHES: [usize; 4] = [1, 8, 32, 256];

/// Numbers of tokens of a head: one, and those of a server's batch.
const HEAD_TOKENS: [usize; 6] = [1, 2, 4, 8, 16, 32];

/// Quantized noise.
struct Activations {
    values: AlignedVec<i8>,
    stride: usize,
    sums: Vec<i32>,
    steps: Vec<f32>,
    planes: usize,
}

impl Activations {
    fn new(rows: usize, cols: usize, noise: &mut Noise) -> Self {
        Self::in_planes(1, rows, cols, noise)
    }

    fn in_planes(planes: usize, tokens: usize, cols: usize, noise: &mut Noise) -> Self {
        let rows = planes * tokens;
        let stride = Quantized::stride_of(cols);
        let mut values = AlignedVec::zeroed(rows * stride);
        for row in values.chunks_exact_mut(stride) {
            // No −128, because two joined planes must fit 16 bits.
            row[..cols].fill_with(|| (noise.bits() as i8).max(-127));
        }
        let sums = values.chunks_exact(stride).map(|r| r.iter().map(|&v| i32::from(v)).sum());
        Self { stride, sums: sums.collect(), steps: vec![0.01; rows], values, planes }
    }

    fn view(&self) -> Quantized<'_> {
        Quantized {
            values: &self.values,
            stride: self.stride,
            sums: &self.sums,
            steps: &self.steps,
            planes: self.planes,
            groups: None,
        }
    }
}

fn products(c: &mut Criterion) {
    let mut noise = Noise(1);
    let ternary = common::ternary(HIDDEN, INTERMEDIATE, &mut noise);
    let int8 = common::int8(HIDDEN, INTERMEDIATE, &mut noise);
    for batch in BATCHES {
        let x = Activations::new(batch, INTERMEDIATE, &mut noise);
        let mut y = vec![0f32; batch * HIDDEN];
        let mut scratch = Scratch::default();
        // Throughput is in multiply-adds.
        let macs = Throughput::Elements((batch * HIDDEN * INTERMEDIATE) as u64);
        let panels = HIDDEN / 16;
        for k in Kernels::all() {
            let mut bench = |kind: &str, product: &dyn Fn(&mut Columns<'_>, &mut Scratch)| {
                let mut group = c.benchmark_group(format!("{kind}/{batch}"));
                group.throughput(macs.clone()).bench_function(k.isa().name(), |b| {
                    b.iter(|| product(&mut Columns::whole(&mut y, HIDDEN), &mut scratch));
                });
                group.finish();
            };
            bench("ternary", &|y, s| k.ternary(&ternary, 0..panels, &x.view(), y, s));
            bench("int8", &|y, s| (k.int8)(int8.view(), 0..panels, &x.view(), y, s));
        }
    }
}

/// Measures a head (int8 × 15 bits): whole, in planes, the upper plane alone, and six bits with a scale per
/// 16 columns.
fn head(c: &mut Criterion) {
    let (vocab, mut noise) = (16_384, Noise(6));
    let int8 = common::int8(vocab, HIDDEN, &mut noise);
    let split = SplitMatrix::new(&int8);
    let six = common::six_bits(vocab, HIDDEN, &mut noise);
    let forms = [
        ("whole", int8.view()),
        ("planes", split.view()),
        ("upper", split.upper()),
        ("six", six.view()),
    ];
    for tokens in HEAD_TOKENS {
        let x = Activations::in_planes(2, tokens, HIDDEN, &mut noise);
        let mut y = vec![0f32; tokens * vocab];
        let mut scratch = Scratch::default();
        let mut group = c.benchmark_group(format!("head/{tokens}"));
        group.throughput(Throughput::Elements((tokens * vocab * HIDDEN) as u64));
        for k in Kernels::all().filter(|k| k.isa() != Isa::Scalar) {
            for (form, w) in forms {
                group.bench_function(format!("{form}/{}", k.isa().name()), |b| {
                    b.iter(|| {
                        let y = &mut Columns::whole(&mut y, vocab);
                        (k.int8)(w, 0..vocab / 16, &x.view(), y, &mut scratch);
                    });
                });
            }
        }
        group.finish();
    }
}

fn rows(c: &mut Criterion) {
    let mut noise = Noise(2);
    let x: Vec<f32> = (0..INTERMEDIATE).map(|_| noise.float()).collect();
    let weight = vec![1f32; INTERMEDIATE];
    let (mut out, mut low, mut high) =
        (x.clone(), vec![0i8; INTERMEDIATE], vec![0i8; INTERMEDIATE]);
    for k in Kernels::all() {
        let isa = k.isa().name();
        c.bench_function(&format!("rms_norm/{isa}"), |b| {
            b.iter(|| (k.rms_norm)(&x, &weight, 1e-5, &mut out));
        });
        c.bench_function(&format!("relu2_mul/{isa}"), |b| {
            b.iter(|| (k.relu2_mul)(black_box(&mut out), &weight));
        });
        c.bench_function(&format!("silu_mul/{isa}"), |b| {
            b.iter(|| (k.silu_mul)(black_box(&mut out), &weight));
        });
        c.bench_function(&format!("quantize8/{isa}"), |b| {
            b.iter(|| (k.quantize8)(&x, &mut low));
        });
        c.bench_function(&format!("quantize16/{isa}"), |b| {
            b.iter(|| (k.quantize16)(&x, &mut high, &mut low));
        });
        c.bench_function(&format!("sum_exp/{isa}"), |b| {
            b.iter(|| (k.sum_exp)(black_box(&x), 1.0));
        });
    }
}

fn attention(c: &mut Criterion) {
    let (head_dim, group) = (128, 4);
    let mut noise = Noise(3);
    for (end, rows) in [(64, 1), (512, 1), (4096, 1), (512, 8), (4096, 4)] {
        let count = end / PAGE;
        let layout = PageLayout { head_dim, keys: KvType::F32, values: KvType::F32 };
        let mut pages = AlignedVec::<u8>::zeroed(count * layout.bytes());
        for number in pages.chunks_exact_mut(4) {
            number.copy_from_slice(&noise.float().to_le_bytes());
        }
        let table: Vec<u32> = (0..count as u32).collect();
        let queries: Vec<f32> = (0..rows * group * head_dim).map(|_| noise.float()).collect();
        let mut out = vec![0f32; queries.len()];
        let a = Attention {
            queries: &queries,
            scale: 0.1,
            layout,
            pages: &pages,
            table: &table,
            ends: &vec![end; rows],
        };
        let macs = Throughput::Elements((2 * end * queries.len()) as u64);
        for k in Kernels::all() {
            let mut scratch = Scratch::default();
            let mut bench = c.benchmark_group(format!("attend/{end}/{rows}"));
            bench.throughput(macs.clone()).bench_function(k.isa().name(), |b| {
                b.iter(|| {
                    let out = &mut Columns::whole(&mut out, group * head_dim);
                    (k.attend)(&a, out, &mut scratch);
                });
            });
            bench.finish();
        }
    }
}

/// Compares ternary with int8 products, alternating.
fn ratios() {
    let mut noise = Noise(4);
    let ternary = common::ternary(HIDDEN, INTERMEDIATE, &mut noise);
    let int8 = common::int8(HIDDEN, INTERMEDIATE, &mut noise);
    let (mut scratch, mut other) = (Scratch::default(), Scratch::default());
    for k in Kernels::all() {
        for batch in BATCHES {
            let x = Activations::new(batch, INTERMEDIATE, &mut noise);
            let (mut y, mut z) = (vec![0f32; batch * HIDDEN], vec![0f32; batch * HIDDEN]);
            let panels = HIDDEN / 16;
            let a = || {
                let y = &mut Columns::whole(&mut y, HIDDEN);
                (k.int8)(int8.view(), 0..panels, &x.view(), y, &mut scratch);
            };
            let b = || {
                let z = &mut Columns::whole(&mut z, HIDDEN);
                k.ternary(&ternary, 0..panels, &x.view(), z, &mut other);
            };
            let turns = if k.isa() == Isa::Scalar { 1 } else { 21 };
            let (isa, ratio) = (k.isa().name(), timing::ratio(a, b, turns));
            println!("{isa}, {batch} rows: ternary is {ratio:.2} times as fast as int8");
        }
    }
}

/// Compares the AVX2 product by tables with that by multiplication, alternating. A matrix with a fourth code
/// uses multiplication.
fn tables() {
    let mut noise = Noise(5);
    let ternary = common::ternary(HIDDEN, INTERMEDIATE, &mut noise);
    let mut codes = ternary.codes().to_vec();
    let panel = codes.len() / (HIDDEN / 16);
    codes.chunks_exact_mut(panel).for_each(|panel| panel[0] |= 3);
    let scales = ternary.scales().clone();
    let fourth = TernaryMatrix::from_panels(HIDDEN, INTERMEDIATE, codes.into(), scales).unwrap();
    let (mut scratch, mut other) = (Scratch::default(), Scratch::default());
    for batch in [12, 16, 24, 32, 64, 256] {
        let x = Activations::new(batch, INTERMEDIATE, &mut noise);
        let (mut y, mut z) = (vec![0f32; batch * HIDDEN], vec![0f32; batch * HIDDEN]);
        let k = Kernels::for_isa(Isa::Avx2).expect("asked for by main");
        let a = || {
            let y = &mut Columns::whole(&mut y, HIDDEN);
            k.ternary(&fourth, 0..HIDDEN / 16, &x.view(), y, &mut scratch);
        };
        let b = || {
            let z = &mut Columns::whole(&mut z, HIDDEN);
            k.ternary(&ternary, 0..HIDDEN / 16, &x.view(), z, &mut other);
        };
        let ratio = timing::ratio(a, b, 21);
        println!("avx2, {batch} rows: tables are {ratio:.2} times as fast as multiplication");
    }
}

fn main() {
    let mut c = timing::criterion();
    products(&mut c);
    head(&mut c);
    rows(&mut c);
    attention(&mut c);
    c.final_summary();
    ratios();
    if Kernels::for_isa(Isa::Avx2).is_some() {
        tables();
    }
}
