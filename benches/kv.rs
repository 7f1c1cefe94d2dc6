//! Measures attention to a long context: `cargo bench --bench kv -- bandwidth` prints the bytes of keys and
//! values per second that each type is read at, compared with the machine's read bandwidth, on one thread and on
//! two. `cargo bench --bench kv -- types` compares the types with bf16, and the time to write a token. What
//! is compared alternates in one process.
//!
//! The main shape is that of BitNet b1.58 2B-4T (5 KV heads of 128, 4 queries each). A copy per layer makes
//! the context larger than the CPU caches.

mod common;
#[path = "common/timing.rs"]
mod timing;

use common::Noise;
use std::hint::black_box;
use std::time::Instant;
use wrinklefree::kernel::{Attention, Isa, Kernels, KvType, PAGE, PageLayout};
use wrinklefree::mem::AlignedVec;
use wrinklefree::par::{Bound, Chunks, Columns, Scratch, ThreadPool};

const HEAD_DIM: usize = 128;
const GROUP: usize = 4;
/// Shapes whose bandwidth is measured: queries of a KV head, width of a head.
const SHAPES: [(usize, usize); 3] = [(GROUP, HEAD_DIM), (8, 128), (4, 64)];
/// Number of KV heads that are read in turn: enough for more bytes than a cache holds.
const BYTES: usize = 100 << 20;
/// Number of KV heads of a few layers.
const HEADS: usize = 20;
const CONTEXTS: [usize; 3] = [1024, 4096, 8192];
const TURNS: usize = 15;

/// Pages of all heads.
struct Cache {
    layout: PageLayout,
    heads: Vec<AlignedVec<u8>>,
    table: Vec<u32>,
}

impl Cache {
    fn new(k: &Kernels, dtype: KvType, context: usize, noise: &mut Noise) -> Self {
        let layout = PageLayout { head_dim: HEAD_DIM, keys: dtype, values: dtype };
        Self::of(k, layout, context, HEADS, noise)
    }

    /// Pages of `heads` heads.
    fn of(
        k: &Kernels,
        layout: PageLayout,
        context: usize,
        heads: usize,
        noise: &mut Noise,
    ) -> Self {
        let pages = context / PAGE;
        let mut head = || {
            let mut head = AlignedVec::<u8>::zeroed(pages * layout.bytes());
            for page in head.chunks_exact_mut(layout.bytes()) {
                for slot in 0..PAGE {
                    let mut floats =
                        || (0..layout.head_dim).map(|_| noise.float()).collect::<Vec<_>>();
                    layout.write(&k.kv, page, slot, (&floats(), &floats()));
                }
            }
            head
        };
        let heads = (0..heads).map(|_| head()).collect();
        Self { layout, heads, table: (0..pages as u32).collect() }
    }

    /// Computes attention of a token over the whole context, in all heads.
    fn attend(&self, k: &Kernels, queries: &[f32], out: &mut [f32], scratch: &mut Scratch) {
        for pages in &self.heads {
            let ends = &[self.table.len() * PAGE];
            let (scale, layout, table) = (0.1, self.layout, &self.table);
            let a = Attention { queries, scale, layout, pages, table, ends };
            k.attention(&a, &mut Columns::whole(out, GROUP * HEAD_DIM), scratch);
        }
    }

    /// Computes all parts of all heads on the workers of a pool, as decoding does.
    fn attend_in_parts(&self, k: &Kernels, pool: &ThreadPool, queries: &[f32], out: &mut [f32]) {
        let ends = &[self.table.len() * PAGE];
        let attention = |pages| {
            let (scale, layout, table) = (0.1, self.layout, &self.table);
            Attention { queries, scale, layout, pages, table, ends }
        };
        let (parts, width) = (attention(&self.heads[0]).parts(), attention(&[]).part_width());
        pool.run(Bound::Memory, |scope| {
            let (count, out) = (self.heads.len() * parts, Chunks::new(out, width));
            scope.chunks(count, true, out, |i, out, scratch| {
                let a = attention(&self.heads[i / parts]);
                k.attend_part(&a, i % parts, &mut Columns::whole(out, width), scratch);
            });
        });
    }

    /// Number of bytes of the pages.
    fn bytes(&self) -> usize {
        self.heads.iter().map(|pages| pages.len()).sum()
    }

    /// Writes a page of tokens to all heads.
    fn write(&mut self, k: &Kernels, vector: &[f32]) {
        for head in &mut self.heads {
            let page = &mut head[..self.layout.bytes()];
            (0..PAGE).for_each(|slot| self.layout.write(&k.kv, page, slot, (vector, vector)));
        }
    }
}

/// Seconds that a call takes.
fn seconds(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64()
}

/// Prints the bandwidth of one type and shape compared with that of reading.
fn bandwidth(k: &Kernels, (group, head_dim): (usize, usize), dtype: KvType, context: usize) {
    let mut noise = Noise(7);
    let layout = PageLayout { head_dim, keys: dtype, values: dtype };
    let heads = BYTES.div_ceil(layout.bytes() * context / PAGE);
    let cache = Cache::of(k, layout, context, heads, &mut noise);
    let queries: Vec<f32> = (0..group * head_dim).map(|_| noise.float()).collect();
    let mut out = vec![0f32; heads * context.div_ceil(Attention::PART) * group * (head_dim + 2)];
    // Written once: pages that nobody has written share one page of zeros.
    let mut memory = AlignedVec::<[u64; 8]>::zeroed(cache.bytes() / 64);
    memory.fill([1; 8]);
    let lines: Vec<&[[u64; 8]]> = memory.chunks(1 << 14).collect();
    for threads in [1, 2] {
        let pool = ThreadPool::new(threads).expect("threads");
        let read = || {
            pool.run(Bound::Memory, |scope| {
                scope.chunks(lines.len(), true, (), |i, (), _| {
                    black_box((k.read)(lines[i]));
                });
            });
        };
        let mut rates: Vec<[f64; 2]> = (0..TURNS)
            .map(|_| {
                let attending =
                    seconds(|| cache.attend_in_parts(k, &pool, &queries, black_box(&mut out)));
                [attending, seconds(read)].map(|time| cache.bytes() as f64 / time / 1e9)
            })
            .collect();
        rates.sort_by(|a, b| (a[0] / a[1]).total_cmp(&(b[0] / b[1])));
        let [attention, reading] = rates[TURNS / 2];
        println!(
            "{}, {group} queries of {head_dim}, {context} keys, {threads} threads: {} is read at \
             {attention:.1} GB/s, {:.0} % of {reading:.1}",
            k.isa().name(),
            dtype.name(),
            attention / reading * 100.0
        );
    }
}

fn main() {
    // Cargo adds arguments of its own.
    let asked = |name: &str| {
        let names = || std::env::args().skip(1).filter(|arg| !arg.starts_with('-'));
        names().next().is_none() || names().any(|arg| arg == name)
    };
    if asked("bandwidth") {
        for k in Kernels::all().filter(|k| k.isa() != Isa::Scalar) {
            for dtype in [KvType::F32, KvType::Bf16, KvType::Int8] {
                SHAPES.iter().for_each(|&shape| bandwidth(&k, shape, dtype, 8192));
            }
        }
    }
    if asked("types") {
        types();
    }
}

/// Compares the types.
fn types() {
    let mut noise = Noise(7);
    let floats = |n: usize, noise: &mut Noise| (0..n).map(|_| noise.float()).collect::<Vec<_>>();
    let (vector, queries) = (floats(HEAD_DIM, &mut noise), floats(GROUP * HEAD_DIM, &mut noise));
    let (mut out, mut other) = (queries.clone(), queries.clone());
    let (mut scratch, mut spare) = (Scratch::default(), Scratch::default());
    for k in Kernels::all().filter(|k| k.isa() != Isa::Scalar) {
        let isa = k.isa().name();
        for context in CONTEXTS {
            let mut bf16 = Cache::new(&k, KvType::Bf16, context, &mut noise);
            for dtype in KvType::ALL {
                let (mut cache, name) = (Cache::new(&k, dtype, context, &mut noise), dtype.name());
                let ratio = timing::ratio(
                    || cache.attend(&k, &queries, &mut out, &mut scratch),
                    || bf16.attend(&k, &queries, &mut other, &mut spare),
                    TURNS,
                );
                println!(
                    "{isa}, attention to {context}: {name} takes {ratio:.2} × the time of bf16"
                );
                if context == CONTEXTS[0] {
                    let ratio = timing::ratio(
                        || cache.write(&k, &vector),
                        || bf16.write(&k, &vector),
                        TURNS,
                    );
                    println!("{isa}, writing: {name} takes {ratio:.2} × the time of bf16");
                }
            }
        }
    }
}
