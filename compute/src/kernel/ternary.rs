//! Ternary × int8: what products of all instruction sets share.

use super::operands::MatrixGroupSteps;
use super::simd::{Simd, align_stack};
use super::{Quantized, panel_rows};
use crate::mem::AlignedVec;
use crate::par::Columns;
use crate::ternary::{BLOCK_BYTES, BLOCK_COLS, PANEL_ROWS, Scales, TernaryMatrix, one_bit};
use std::ops::Range;

/// Arguments of a product that all its tiles share.
pub struct TernaryArgs<'a, S> {
    /// Proof that the CPU has the instruction set.
    pub s: S,
    pub w: &'a TernaryMatrix,
    pub x: &'a Quantized<'a>,
    /// Sums of activations, `[rows][groups]`.
    sums: &'a [i32],
    /// Scales of groups of activations.
    steps: Option<MatrixGroupSteps<'a>>,
    /// Number of blocks of 16 columns in a panel.
    pub blocks: usize,
    /// Number of groups of columns that share a scale.
    pub groups: usize,
    /// Number of blocks in a group.
    pub group_blocks: usize,
    /// First panel of the output view.
    first: usize,
}

impl<'a, S: Simd> TernaryArgs<'a, S> {
    /// Collects the arguments; `sums` is a buffer for sums of activations.
    #[inline(always)]
    pub fn new(
        s: S,
        w: &'a TernaryMatrix,
        x: &'a Quantized<'a>,
        first: usize,
        sums: &'a mut AlignedVec<i32>,
    ) -> Self {
        let (size, sums) = x.scale_groups(w, sums);
        let steps = x.matrix_group_steps(w.cols(), size);
        let (blocks, group_blocks) = (w.cols().div_ceil(BLOCK_COLS), size / BLOCK_COLS);
        let groups = blocks.div_ceil(group_blocks);
        Self { s, w, x, sums, steps, blocks, groups, group_blocks, first }
    }

    /// Returns the same arguments for another instruction set.
    #[cfg(target_arch = "x86_64")]
    pub fn with<T>(&self, s: T) -> TernaryArgs<'a, T> {
        let Self { w, x, sums, steps, blocks, groups, group_blocks, first, .. } = *self;
        TernaryArgs { s, w, x, sums, steps, blocks, groups, group_blocks, first }
    }

    /// Returns the blocks of group `g`.
    #[inline(always)]
    pub fn group(&self, g: usize) -> Range<usize> {
        g * self.group_blocks..((g + 1) * self.group_blocks).min(self.blocks)
    }

    /// Splits the blocks of group `g` into chunks of `size`.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    pub fn chunks(&self, g: usize, size: usize) -> impl Iterator<Item = Range<usize>> + use<S> {
        let Range { start, end } = self.group(g);
        (start..end).step_by(size).map(move |at| at..end.min(at + size))
    }

    /// Returns the bytes of a panel's codes.
    #[inline(always)]
    pub fn panel(&self, panel: usize) -> &'a [u8] {
        let bytes = self.w.panel_bytes();
        &self.w.codes()[panel * bytes..][..bytes]
    }

    /// Unpacks some blocks of a panel in the one-bit layout to two-bit codes, and returns these.
    #[inline(always)]
    pub fn two_bits<'b>(
        &self,
        panel: usize,
        blocks: Range<usize>,
        buffer: &'b mut [[u8; BLOCK_BYTES]],
    ) -> &'b [[u8; BLOCK_BYTES]] {
        let buffer = &mut buffer[..blocks.len()];
        one_bit::unpack(self.codes(panel), self.w.cols(), blocks, buffer);
        buffer
    }

    /// Returns the blocks of a panel, of two-bit codes or of single bits.
    #[inline(always)]
    pub fn codes(&self, panel: usize) -> &'a [[u8; BLOCK_BYTES]] {
        self.panel(panel).as_chunks().0
    }

    /// Returns the activations of `N` rows from `row` on, by block.
    #[cfg(any(not(target_arch = "wasm32"), feature = "relaxed-simd"))]
    #[inline(always)]
    pub fn activations<const N: usize>(&self, row: usize) -> [&'a [[i8; BLOCK_COLS]]; N] {
        let mut xs: [&[[i8; BLOCK_COLS]]; N] = [&[]; N];
        for (n, x) in xs.iter_mut().enumerate() {
            *x = &self.x.row_chunks(row + n)[..self.blocks];
        }
        xs
    }

    /// Returns the scales of a panel's 16 rows in group `g`.
    #[inline(always)]
    pub fn scales(&self, panel: usize, g: usize) -> S::Panel {
        match self.w.scales() {
            Scales::Tensor(scale) => self.s.panel(self.s.splat(*scale)),
            Scales::Groups(scales) => {
                let halves = &scales.bytes().as_chunks().0[panel * self.groups + g];
                panel_rows::load_f16(self.s, halves)
            }
        }
    }

    /// Returns the scales of group `g` of the activation rows from `row` on; `None` if rows have one
    /// scale.
    #[cfg(not(target_arch = "aarch64"))]
    #[inline(always)]
    pub fn group_steps<const N: usize>(&self, row: usize, g: usize) -> Option<[f32; N]> {
        let (steps, last) = (self.steps?, self.x.rows() - 1);
        let mut out = [0.0; N];
        for (n, out) in out.iter_mut().enumerate() {
            *out = steps.of((row + n).min(last), g);
        }
        Some(out)
    }

    /// Adds (Σ c·q − Σ q) · group step · scale of an activation row and a group to its total, from the
    /// exact Σ c·q.
    #[inline(always)]
    pub fn add_scaled(
        &self,
        total: &mut S::Panel,
        exact: S::IntPanel,
        (row, g): (usize, usize),
        scales: S::Panel,
    ) {
        let value = panel_rows::floats(self.s, exact, self.sum(row, g));
        self.add_value(total, value, (row, g), scales);
    }

    /// Returns the sum of an activation row in group `g`.
    #[inline(always)]
    pub fn sum(&self, row: usize, g: usize) -> i32 {
        self.sums[row * self.groups + g]
    }

    /// Adds value · group step · scale of an activation row and a group to its total.
    #[inline(always)]
    pub fn add_value(
        &self,
        total: &mut S::Panel,
        value: S::Panel,
        (row, g): (usize, usize),
        scales: S::Panel,
    ) {
        panel_rows::add_scaled_group(self.s, total, value, scales, self.steps, (row, g));
    }

    /// As [`add_scaled`](Self::add_scaled), for activation rows from `row` on.
    #[inline(always)]
    pub fn scale(
        &self,
        panel: usize,
        g: usize,
        row: usize,
        exact: &[S::IntPanel],
        totals: &mut [S::Panel],
    ) {
        let scales = self.scales(panel, g);
        for (n, (exact, total)) in exact.iter().zip(totals).enumerate() {
            self.add_scaled(total, *exact, (row + n, g), scales);
        }
    }

    /// Writes a panel's outputs of activation rows from `row` on.
    #[inline(always)]
    pub fn store(&self, panel: usize, row: usize, totals: &[S::Panel], y: &mut Columns<'_>) {
        let from = (panel - self.first) * PANEL_ROWS;
        for (n, total) in totals.iter().enumerate() {
            let (token, adds) = self.x.target(row + n);
            let out = &mut y.row(token)[from..];
            panel_rows::store(self.s, *total, self.x.steps[row + n], out, adds);
        }
    }
}

/// Products of blocks of codes: by default two-bit codes, which decode in registers.
pub trait TernaryDot<Codes = [u8; BLOCK_BYTES]>: Simd {
    /// A block's activations of one row.
    type Block;
    /// Most blocks whose products fit the sums of [`dot`](Self::dot).
    const CHUNK: usize;

    /// Returns Σ c·q of the blocks of `P` panels × `N` activation rows, at most [`CHUNK`](Self::CHUNK).
    fn dot<const P: usize, const N: usize>(
        self,
        codes: [&[Codes]; P],
        xs: [&[Self::Block]; N],
    ) -> [[Self::IntPanel; N]; P];
}

/// Multiplies `P` panels × `N` activation rows from `row` on, whose blocks are `xs`.
#[cfg(not(target_arch = "aarch64"))]
#[inline(always)]
pub fn tile<S: TernaryDot, const P: usize, const N: usize>(
    args: &TernaryArgs<'_, S>,
    panels: [usize; P],
    row: usize,
    xs: [&[S::Block]; N],
    y: &mut Columns<'_>,
) {
    let mut codes = [&[][..]; P];
    for (codes, panel) in codes.iter_mut().zip(panels) {
        *codes = args.codes(panel);
    }
    tile_of(args, (panels, codes), row, xs, y);
}

/// As [`tile`], of any blocks of codes.
#[inline(always)]
pub fn tile_of<Codes, S: TernaryDot<Codes>, const P: usize, const N: usize>(
    args: &TernaryArgs<'_, S>,
    (panels, codes): ([usize; P], [&[Codes]; P]),
    row: usize,
    xs: [&[S::Block]; N],
    y: &mut Columns<'_>,
) {
    align_stack();
    let s = args.s;
    let mut totals = [[s.panel(s.splat(0.0)); N]; P];
    for g in 0..args.groups {
        let exact = sums(s, codes, xs, args.group(g));
        for p in 0..P {
            args.scale(panels[p], g, row, &exact[p], &mut totals[p]);
        }
    }
    for (panel, totals) in panels.into_iter().zip(totals) {
        args.store(panel, row, &totals, y);
    }
}

/// Returns Σ c·q of a group's blocks. Those that fit a chunk have no loop around them, whose sums the
/// compiler would keep in memory.
#[inline(always)]
fn sums<Codes, S: TernaryDot<Codes>, const P: usize, const N: usize>(
    s: S,
    codes: [&[Codes]; P],
    xs: [&[S::Block]; N],
    Range { mut start, end }: Range<usize>,
) -> [[S::IntPanel; N]; P] {
    if end - start <= S::CHUNK {
        return chunk(s, codes, xs, start..end);
    }
    let mut exact = [[s.int_panel(s.splat_int(0)); N]; P];
    while start < end {
        let next = end.min(start + S::CHUNK);
        let more = chunk(s, codes, xs, start..next);
        for (exact, more) in exact.as_flattened_mut().iter_mut().zip(more.as_flattened()) {
            panel_rows::add_ints(s, exact, more);
        }
        start = next;
    }
    exact
}

/// Returns Σ c·q of a chunk of blocks.
#[inline(always)]
fn chunk<Codes, S: TernaryDot<Codes>, const P: usize, const N: usize>(
    s: S,
    mut codes: [&[Codes]; P],
    mut xs: [&[S::Block]; N],
    blocks: Range<usize>,
) -> [[S::IntPanel; N]; P] {
    for codes in &mut codes {
        *codes = &codes[blocks.clone()];
    }
    for x in &mut xs {
        *x = &x[blocks.clone()];
    }
    s.dot(codes, xs)
}
