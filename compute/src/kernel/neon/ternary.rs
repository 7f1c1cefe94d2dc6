//! Ternary × int8, of matrices in the two-bit layout.

use super::lanes::{self, load, store, widen_f16};
use super::multiply::{CHUNK, Multiply, Sums};
use super::strips::{Row, STRIP, VECTORS};
use crate::kernel::Quantized;
use crate::matrix::Int8Panel;
use crate::par::{Columns, Scratch};
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, PANEL_ROWS, Scales, TernaryMatrix};
use std::arch::aarch64::*;
use std::ops::Range;

/// Scaled sums of one activation row with the 16 rows of a panel.
type Total = [float32x4_t; VECTORS];

/// See the scalar definition.
#[inline]
#[target_feature(enable = "neon")]
pub fn ternary<S: Multiply>(
    set: S,
    w: &TernaryMatrix,
    panels: Range<usize>,
    x: &Quantized<'_>,
    y: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let Scratch { ints, decoded, .. } = scratch;
    let (size, sums) = x.scale_groups(w, ints);
    let blocks = w.cols().div_ceil(BLOCK_COLS);
    let group_blocks = size / BLOCK_COLS;
    let groups = blocks.div_ceil(group_blocks);
    let args = TernaryArgs { w, x, sums, blocks, groups, group_blocks, first: panels.start };
    let in_memory = x.rows() >= S::DECODED_ROWS;
    if in_memory {
        decoded.grow(blocks * STRIP);
    }
    for panel in panels {
        let packed = args.codes(panel);
        let codes = if in_memory {
            let out = &mut decoded[..blocks * STRIP];
            // SAFETY: this module is only compiled for targets with NEON.
            unsafe { set.decode(&packed, out.as_chunks_mut().0) };
            Int8Panel { values: out, ..packed }
        } else {
            packed
        };
        let mut row = 0;
        while row < x.rows() {
            let panel = Panel { panel, codes, in_memory };
            row += match x.rows() - row {
                6.. if in_memory && S::ROWS >= 6 => args.tile::<S, 6>(set, panel, row, y),
                4.. if S::ROWS >= 4 => args.tile::<S, 4>(set, panel, row, y),
                2.. => args.tile::<S, 2>(set, panel, row, y),
                _ => args.tile::<S, 1>(set, panel, row, y),
            };
        }
    }
}

/// A panel and its codes.
#[derive(Clone, Copy)]
struct Panel<'a> {
    panel: usize,
    codes: Int8Panel<'a>,
    /// True if the codes are decoded.
    in_memory: bool,
}

/// Arguments of a product that all its tiles share.
struct TernaryArgs<'a> {
    w: &'a TernaryMatrix,
    x: &'a Quantized<'a>,
    /// Sums of activations, `[rows][groups]`.
    sums: &'a [i32],
    /// Number of blocks in a panel.
    blocks: usize,
    /// Number of groups of columns that share a scale.
    groups: usize,
    /// Number of blocks in a group.
    group_blocks: usize,
    /// First panel of the output view.
    first: usize,
}

impl<'a> TernaryArgs<'a> {
    /// Returns the packed codes of a panel.
    fn codes(&self, panel: usize) -> Int8Panel<'a> {
        let bytes = self.blocks * BLOCK_BYTES;
        Int8Panel { values: &self.w.codes()[panel * bytes..][..bytes], low: &[], fill: 0 }
    }

    /// Multiplies one panel × `N` activation rows from `row` on; returns `N`.
    #[inline]
    #[target_feature(enable = "neon")]
    fn tile<S: Multiply, const N: usize>(
        &self,
        set: S,
        Panel { panel, codes, in_memory }: Panel<'_>,
        row: usize,
        y: &mut Columns<'_>,
    ) -> usize {
        let xs: [Row<'_>; N] = std::array::from_fn(|n| &self.x.row_chunks(row + n)[..self.blocks]);
        let mut totals = [[vdupq_n_f32(0.0); VECTORS]; N];
        for g in 0..self.groups {
            let end = ((g + 1) * self.group_blocks).min(self.blocks);
            let mut exact = [[vdupq_n_s32(0); VECTORS]; N];
            for at in (g * self.group_blocks..end).step_by(CHUNK) {
                let strips = at..end.min(at + CHUNK);
                // SAFETY: this module is only compiled for targets with NEON.
                let sums = unsafe {
                    match in_memory {
                        true => set.decoded(&codes, strips, &xs),
                        false => set.two_bit(&codes, strips, &xs),
                    }
                };
                for n in 0..N {
                    for v in 0..VECTORS {
                        exact[n][v] = vaddq_s32(exact[n][v], sums[n][v]);
                    }
                }
            }
            self.scale(panel, g, row, &exact, &mut totals);
        }
        self.store(panel, row, &totals, y);
        N
    }

    /// Returns the scales of a panel's 16 rows in group `g`.
    #[inline]
    #[target_feature(enable = "neon")]
    fn scales(&self, panel: usize, g: usize) -> Total {
        match self.w.scales() {
            Scales::Tensor(s) => [vdupq_n_f32(*s); VECTORS],
            Scales::Groups(scales) => {
                let bytes = &scales.bytes().as_chunks::<32>().0[panel * self.groups + g];
                let codes: [[u16; 4]; VECTORS] = bytemuck::must_cast(*bytes);
                codes.map(|codes| widen_f16(lanes::load_codes(&codes)))
            }
        }
    }

    /// Adds (Σ c·q − Σ q) · scale of group `g`, for activation rows from `row` on.
    #[inline]
    #[target_feature(enable = "neon")]
    fn scale(&self, panel: usize, g: usize, row: usize, exact: &[Sums], totals: &mut [Total]) {
        let scales = self.scales(panel, g);
        for (n, (exact, total)) in exact.iter().zip(totals).enumerate() {
            let offset = vdupq_n_s32(self.sums[(row + n) * self.groups + g]);
            for v in 0..VECTORS {
                let value = vcvtq_f32_s32(vsubq_s32(exact[v], offset));
                total[v] = vaddq_f32(total[v], vmulq_f32(value, scales[v]));
            }
        }
    }

    /// Writes a panel's outputs of activation rows from `row` on.
    #[inline]
    #[target_feature(enable = "neon")]
    fn store(&self, panel: usize, row: usize, totals: &[Total], y: &mut Columns<'_>) {
        let from = (panel - self.first) * PANEL_ROWS;
        for (n, total) in totals.iter().enumerate() {
            let (out, adds) = self.x.target(row + n);
            let step = self.x.steps[row + n];
            let out = &mut y.row(out)[from..];
            let mut lanes = [0.0; PANEL_ROWS];
            let count = PANEL_ROWS.min(out.len());
            if adds {
                lanes[..count].copy_from_slice(&out[..count]);
            }
            for (lanes, total) in lanes.as_chunks_mut().0.iter_mut().zip(total) {
                let total = vmulq_n_f32(*total, step);
                store(lanes, if adds { vaddq_f32(load(lanes), total) } else { total });
            }
            out[..count].copy_from_slice(&lanes[..count]);
        }
    }
}
