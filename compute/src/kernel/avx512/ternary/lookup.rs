//! Ternary × int8 for large batches, by lookup table. The algorithm is that of AVX2 ([`tables`]), with
//! vectors of 32 activation rows: a load and an addition for 128 multiply-adds, where `vpdpbusd` does 64.
//! It is faster on CPUs whose `vpdpbusd` is not faster than an addition.

use super::{Codes, registers};
use crate::kernel::avx2::Avx2;
use crate::kernel::avx2::ternary::lookup as tables;
use crate::kernel::avx512::Avx512;
use crate::kernel::simd::by_token;
use crate::kernel::ternary::TernaryArgs;
use crate::mem::AlignedVec;
use crate::par::Columns;
use std::arch::x86_64::*;
use std::ops::Range;
use std::sync::LazyLock;
pub use tables::LookupBuffers;
use tables::{IndexBuf, IndexWord, Lookup, Sums, TILE, Tables, VECTORS};

/// Number of activation rows from which the last tile uses tables.
const LEAST: usize = 25;
/// Most rows next to whole tiles that are computed like a small batch.
const STREAMED: usize = 3;
/// Number of rows from which tables are faster with few panels.
const MANY: usize = 2 * TILE;
/// Number of panels from which tables are faster with a single tile.
const LEAST_PANELS: usize = 20;

/// Returns true if tables are faster on this CPU. That is Zen 4, which computes 64 byte products and reads
/// 64 bytes of a table per cycle. Intel's cores with AVX-512 and Zen 5 compute 128 products.
pub fn is_faster() -> bool {
    static ZEN_4: LazyLock<bool> = LazyLock::new(|| {
        let vendor = __cpuid(0);
        let amd = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).concat();
        let family = __cpuid(1).eax;
        amd == b"AuthenticAMD" && (family >> 8 & 15) + (family >> 20 & 255) == 0x19
    });
    *ZEN_4
}

/// Returns the number of rows that use tables.
fn tabulated(rows: usize, panels: usize) -> usize {
    if rows < MANY && panels < LEAST_PANELS {
        return 0;
    }
    match rows % TILE {
        LEAST.. => rows,
        rest => rows - rest,
    }
}

/// Multiplies `panels` with all rows: whole tiles by table, the rest by multiplication.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn batch<C: Codes>(
    args: &TernaryArgs<'_, C>,
    panels: Range<usize>,
    y: &mut Columns<'_>,
    rearranged: &mut AlignedVec<i8>,
    buffers: &mut LookupBuffers<'_>,
) {
    let rows = args.x.rows();
    let most = tabulated(rows, panels.len());
    let (ops, narrow) = (C::lookup(args), args.with(Avx2::new()));
    for panels in tables::panel_blocks(panels) {
        let done = tables::lookup(&narrow, &ops, panels.clone(), 0..most, y, buffers);
        let rest = if done { most..rows } else { 0..rows };
        match rest.len() {
            ..=STREAMED => C::streams(args, panels, rest, y, rearranged),
            _ => registers::batch(args, panels, rest, y, rearranged),
        }
    }
}

/// The two-bit layout, encoded as with AVX2.
impl Lookup for Avx512 {
    fn encode_indices(
        &self,
        args: &TernaryArgs<'_, Avx2>,
        panel: usize,
        periods: Range<usize>,
        buf: &mut IndexBuf<'_>,
    ) -> bool {
        args.s.encode_indices(args, panel, periods, buf)
    }

    fn add(&self, tables: &Tables<VECTORS>, indices: &[IndexWord], narrow: &mut [Sums<VECTORS>]) {
        by_token!(self, add(tables, indices, narrow));
    }
}

/// Adds to each weight row's sums the table entries that its indices select. Not inlined, so that the
/// compiler keeps the sums in registers.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add(tables: &Tables<VECTORS>, indices: &[IndexWord], narrow: &mut [Sums<VECTORS>]) {
    for (indices, narrow) in indices.iter().zip(narrow) {
        let mut sums: __m512i = bytemuck::must_cast(*narrow);
        let word = u64::from_le_bytes(*indices);
        for (i, table) in tables.iter().enumerate() {
            let index = (word >> (8 * i)) & 0xFF;
            // SAFETY: `encode_indices` has rejected codes whose index would exceed the table.
            let entry = unsafe { table.get_unchecked(index as usize) };
            sums = _mm512_add_epi16(sums, bytemuck::must_cast(*entry));
        }
        *narrow = bytemuck::must_cast(sums);
    }
}
