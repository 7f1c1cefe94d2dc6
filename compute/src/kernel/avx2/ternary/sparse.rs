//! Ternary × int8 for a token with many zeros. Blocks of columns whose activations are all zero are
//! skipped. Their products are zero, so the result has the same bits.

use super::{CHUNK, TernaryArgs};
use crate::kernel::avx2::lanes::prefetch;
use crate::kernel::byte_dot::{multiply, widen};
use crate::kernel::panel_rows;
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS};
use std::arch::x86_64::*;
use std::ops::Range;

/// Prefetch distance in live blocks. The hardware prefetcher does not follow a stream with gaps.
const AHEAD: usize = 24;
/// Skipping is faster up to `MOST_LIVE / MOST_LIVE_OF` live blocks (`cargo bench --bench sparse`).
const MOST_LIVE: usize = 3;
const MOST_LIVE_OF: usize = 4;

/// Multiplies `panels` with a token of `N` planes. Returns false, with nothing done, if too few of its
/// blocks are all zero.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn sparse<const N: usize>(
    args: &TernaryArgs<'_>,
    panels: Range<usize>,
    y: &mut Columns<'_>,
    buffer: &mut AlignedVec<u32>,
) -> bool {
    let xs = args.activations::<N>(0);
    let Some(live) = live_blocks(&xs, args.blocks, buffer) else { return false };
    for panel in panels {
        self::panel(args, panel, &xs, live, y);
    }
    true
}

/// Returns the blocks in which some value is not zero, in order, followed by the first ones of the next
/// panel, for prefetching. Returns `None` if there are too many.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn live_blocks<'b, const N: usize>(
    xs: &[&[[i8; BLOCK_COLS]]; N],
    blocks: usize,
    buffer: &'b mut AlignedVec<u32>,
) -> Option<&'b [u32]> {
    let is_live = |b: usize| xs.iter().fold(0u128, |any, x| any | word(&x[b])) != 0;
    // Most tokens have few zeros; for them this count is the only cost.
    let live = (0..blocks).filter(|&b| is_live(b)).count();
    if live * MOST_LIVE_OF > blocks * MOST_LIVE {
        return None;
    }
    buffer.grow(live + AHEAD);
    for (out, b) in buffer.iter_mut().zip((0..blocks).filter(|&b| is_live(b))) {
        *out = b as u32;
    }
    for i in 0..AHEAD {
        buffer[live + i] = if i < live { buffer[i] + blocks as u32 } else { 0 };
    }
    Some(&buffer[..live + AHEAD])
}

fn word(block: &[i8; BLOCK_COLS]) -> u128 {
    bytemuck::must_cast(*block)
}

/// Multiplies one panel × one token.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn panel<const N: usize>(
    args: &TernaryArgs<'_>,
    panel: usize,
    xs: &[&[[i8; BLOCK_COLS]]; N],
    blocks: &[u32],
    y: &mut Columns<'_>,
) {
    let codes = args.codes(panel);
    let (mut at, live) = (0, blocks.len() - AHEAD);
    let mut totals = [[_mm256_setzero_ps(); 2]; N];
    for g in 0..args.groups {
        let end = (g + 1) * args.group_blocks;
        let most = live.min(at + args.group_blocks);
        let group = at..at + blocks[at..most].partition_point(|&b| (b as usize) < end);
        at = group.end;
        let mut exact = [[_mm256_setzero_si256(); 2]; N];
        for first in group.clone().step_by(CHUNK) {
            let mut narrow = [[[_mm256_setzero_si256(); 2]; 4]; N];
            for i in first..group.end.min(first + CHUNK) {
                let b = blocks[i] as usize;
                prefetch(codes.as_ptr().cast(), blocks[i + AHEAD] as usize * BLOCK_BYTES);
                multiply(args.s, &codes[b], &std::array::from_fn(|n| &xs[n][b]), &mut narrow);
            }
            for (exact, narrow) in exact.iter_mut().zip(&narrow) {
                panel_rows::add_ints(args.s, exact, &widen(args.s, &narrow[..1]));
            }
        }
        args.scale(panel, g, 0, &exact, &mut totals);
    }
    args.store(panel, 0, &totals, y);
}
