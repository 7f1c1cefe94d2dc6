//! Compares the types of the KV cache with bf16: the time to write a token and to attend to a long context,
//! alternating in one process: `cargo bench --bench kv`.
//!
//! The shape is that of BitNet b1.58 2B-4T (5 KV heads of 128, 4 queries each). A copy per layer makes the
//! context larger than the CPU caches.

mod common;
#[path = "common/timing.rs"]
mod timing;

use common::Noise;
use wrinklefree::kernel::{Attention, Isa, Kernels, KvType, PAGE, PageLayout};
use wrinklefree::mem::AlignedVec;
use wrinklefree::par::{Columns, Scratch};

const HEAD_DIM: usize = 128;
const GROUP: usize = 4;
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
        let pages = context / PAGE;
        let mut head = || {
            let mut head = AlignedVec::<u8>::zeroed(pages * layout.bytes());
            for page in head.chunks_exact_mut(layout.bytes()) {
                for slot in 0..PAGE {
                    let mut floats = || (0..HEAD_DIM).map(|_| noise.float()).collect::<Vec<_>>();
                    layout.write(&k.kv, page, slot, (&floats(), &floats()));
                }
            }
            head
        };
        let heads = (0..HEADS).map(|_| head()).collect();
        Self { layout, heads, table: (0..pages as u32).collect() }
    }

    /// Computes attention of a token over the whole context, in all heads.
    fn attend(&self, k: &Kernels, queries: &[f32], out: &mut [f32], scratch: &mut Scratch) {
        for pages in &self.heads {
            let ends = &[self.table.len() * PAGE];
            let (scale, layout, table) = (0.1, self.layout, &self.table);
            let a = Attention { queries, scale, layout, pages, table, ends };
            (k.attend)(&a, &mut Columns::whole(out, GROUP * HEAD_DIM), scratch);
        }
    }

    /// Writes a page of tokens to all heads.
    fn write(&mut self, k: &Kernels, vector: &[f32]) {
        for head in &mut self.heads {
            let page = &mut head[..self.layout.bytes()];
            (0..PAGE).for_each(|slot| self.layout.write(&k.kv, page, slot, (vector, vector)));
        }
    }
}

fn main() {
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
