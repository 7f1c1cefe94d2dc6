//! Ternary × int8 for a token with many zeros: blocks of columns whose activations are all zero are
//! skipped. Their products are zero, so no bit changes.

use super::{CHUNK, Walk, multiply, widen};
use crate::kernel::avx2::lanes::prefetch;
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS};
use std::arch::x86_64::*;
use std::ops::Range;

/// Live blocks between one that is multiplied and the one that is asked for: the processor foresees
/// no walk with gaps.
const AHEAD: usize = 24;
/// Skipping pays up to so many live blocks of [`OF`] (`cargo bench --bench sparse`).
const LIVE: usize = 3;
const OF: usize = 4;

/// Products of `panels` with a token of `N` planes, if enough of its blocks are all zero.
#[target_feature(enable = "avx2,fma,f16c")]
pub fn sparse<const N: usize>(
    walk: &Walk<'_>,
    panels: Range<usize>,
    y: &mut Columns<'_>,
    buffer: &mut AlignedVec<u32>,
) -> bool {
    let mut xs: [&[[i8; BLOCK_COLS]]; N] = [&[]; N];
    for (n, x) in xs.iter_mut().enumerate() {
        *x = &walk.x.row_chunks(n)[..walk.blocks];
    }
    let Some(list) = list(&xs, walk.blocks, buffer) else { return false };
    for panel in panels {
        self::panel(walk, panel, &xs, list, y);
    }
    true
}

/// Blocks in which some value is not zero, in order, and behind them the first ones of the next
/// panel, to be asked for; `None` where there are too many.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn list<'b, const N: usize>(
    xs: &[&[[i8; BLOCK_COLS]]; N],
    blocks: usize,
    buffer: &'b mut AlignedVec<u32>,
) -> Option<&'b [u32]> {
    let is_live = |b: usize| xs.iter().fold(0u128, |any, x| any | word(&x[b])) != 0;
    // Most tokens have few zeros: they pay for a look and no more.
    let live = (0..blocks).filter(|&b| is_live(b)).count();
    if live * OF > blocks * LIVE {
        return None;
    }
    buffer.grow(live + AHEAD);
    for (place, b) in buffer.iter_mut().zip((0..blocks).filter(|&b| is_live(b))) {
        *place = b as u32;
    }
    for i in 0..AHEAD {
        buffer[live + i] = if i < live { buffer[i] + blocks as u32 } else { 0 };
    }
    Some(&buffer[..live + AHEAD])
}

fn word(block: &[i8; BLOCK_COLS]) -> u128 {
    bytemuck::must_cast(*block)
}

/// One panel × one token.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn panel<const N: usize>(
    walk: &Walk<'_>,
    panel: usize,
    xs: &[&[[i8; BLOCK_COLS]]; N],
    list: &[u32],
    y: &mut Columns<'_>,
) {
    let codes = walk.codes(panel);
    let (mut at, live) = (0, list.len() - AHEAD);
    let mut totals = [[_mm256_setzero_ps(); 2]; N];
    for g in 0..walk.groups {
        let end = (g + 1) * walk.group_blocks;
        let most = live.min(at + walk.group_blocks);
        let group = at..at + list[at..most].partition_point(|&b| (b as usize) < end);
        at = group.end;
        let mut exact = [[_mm256_setzero_si256(); 2]; N];
        for first in group.clone().step_by(CHUNK) {
            let mut narrow = [[_mm256_setzero_si256(); 2]; N];
            for i in first..group.end.min(first + CHUNK) {
                let b = list[i] as usize;
                prefetch(codes.as_ptr().cast(), list[i + AHEAD] as usize * BLOCK_BYTES);
                multiply(&codes[b], &std::array::from_fn(|n| &xs[n][b]), &mut narrow);
            }
            widen(&narrow, &mut exact);
        }
        walk.scale(panel, g, 0, &exact, &mut totals);
    }
    walk.store(panel, 0, &totals, y);
}
