//! Gated DeltaNet (arXiv 2412.06464): the linear attention of hybrid models.
//!
//! A value head keeps a matrix S, `[key_dim][value_dim]`. Position t with query q, key k, value v, decay
//! e^g and weight β computes S ← e^g·S, n = β·(v − Sᵀk), S ← S + k·nᵀ, o = Sᵀq.
//!
//! Positions are computed in chunks of [`PAGE`]. The kept S is that of the chunk's beginning; the keys,
//! corrected values n and sums of decays G of the chunk's positions are kept next to it:
//!
//! - n_i = β_i·(v_i − e^{G_i}·Sᵀk_i − Σ_{j<i} e^{G_i−G_j}·(k_i·k_j)·n_j)
//! - o_i = e^{G_i}·Sᵀq_i + Σ_{j≤i} e^{G_i−G_j}·(q_i·k_j)·n_j
//! - after the last position S ← e^{G}·S + Σ_j e^{G−G_j}·k_j·n_jᵀ
//!
//! Prompts and single tokens take these steps in the same order. So a position's bits do not depend on how
//! a text is cut into passes, and a pass whose rows are rejected leaves nothing to restore.

use super::PAGE;
use super::simd::Simd;
use crate::par::{Columns, Scratch};
use std::ops::Range;

/// Number of positions whose inputs of the convolution are kept.
const RING: usize = 16;
/// Widths of keys are padded to this many floats, and those of values to [`BLOCK`].
const VECTOR: usize = 16;
/// Number of columns of S that stand together: a block is `[key_dim][BLOCK]`.
const BLOCK: usize = 32;
/// ε of the keys' and queries' norm.
const EPS: f32 = 1e-6;

/// Shape of one key head and the value heads that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeltaShape {
    /// Width of a key and of a query.
    pub key_dim: usize,
    /// Width of a value.
    pub value_dim: usize,
    /// Number of value heads.
    pub values: usize,
    /// Number of positions that the convolution reads, at most [`Self::MAX_TAPS`].
    pub taps: usize,
}

impl DeltaShape {
    /// Largest number of positions that a convolution may read.
    pub const MAX_TAPS: usize = RING / 2;

    /// Number of rows at the end of a pass that may be rejected and computed again. Their positions must
    /// all lie in the chunk of the first one, and not complete it.
    pub fn rejectable(&self) -> usize {
        RING + 1 - self.taps
    }

    /// Width of a padded key.
    pub fn key_width(&self) -> usize {
        self.key_dim.next_multiple_of(VECTOR)
    }

    /// Width of a padded value.
    pub fn value_width(&self) -> usize {
        self.value_dim.next_multiple_of(BLOCK)
    }

    /// Width of a row of inputs: query, key and values, each padded with zeros.
    pub fn channels(&self) -> usize {
        2 * self.key_width() + self.values * self.value_width()
    }

    /// Number of floats of the state. A state of zeros is that of an empty text.
    pub fn state_floats(&self) -> usize {
        let kept = self.values * PAGE * (self.value_width() + 1);
        self.snapshot_floats() + RING * self.channels() + PAGE * self.key_width() + kept
    }

    /// Number of floats at the beginning of the state that are a snapshot: the text up to the last
    /// multiple of [`PAGE`], whatever was computed since.
    pub fn snapshot_floats(&self) -> usize {
        self.tail_floats() + self.values * self.matrix_floats()
    }

    /// Makes a state that begins with a snapshot, or with as many zeros, the state of the snapshot's
    /// text.
    ///
    /// # Panics
    /// If `state` has not [`Self::state_floats`].
    pub fn resume(&self, state: &mut [f32]) {
        let (snapshot, rest) = state.split_at_mut(self.snapshot_floats());
        let ring = &mut rest[..RING * self.channels()];
        ring[(RING + 1 - self.taps) * self.channels()..]
            .copy_from_slice(&snapshot[..self.tail_floats()]);
    }

    /// Number of inputs before the chunk that the convolution reads.
    fn tail_floats(&self) -> usize {
        (self.taps - 1) * self.channels()
    }

    /// Number of floats of one S.
    fn matrix_floats(&self) -> usize {
        self.key_width() * self.value_width()
    }
}

/// Inputs of consecutive positions of one text.
pub struct DeltaRows<'a> {
    /// Shape of the heads.
    pub shape: DeltaShape,
    /// Position of the first row.
    pub position: usize,
    /// Weights of the convolution, `[taps][channels]`; the last tap meets the row itself.
    pub conv: &'a [f32],
    /// Query, key and values before the convolution, `[rows][channels]`.
    pub inputs: &'a [f32],
    /// g, the logarithms of the decays, `[rows][values]`; none is positive.
    pub decays: &'a [f32],
    /// β, `[rows][values]`.
    pub betas: &'a [f32],
}

impl DeltaRows<'_> {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.inputs.len() / self.shape.channels()
    }
}

/// The parts of a state.
struct State<'a> {
    /// The last inputs of the convolution before the chunk, `[taps − 1][channels]`.
    tail: &'a mut [f32],
    /// S of each value head, `[values][value blocks][key_width][BLOCK]`.
    matrices: &'a mut [f32],
    /// Inputs of the convolution by position modulo [`RING`], `[RING][channels]`.
    ring: &'a mut [f32],
    /// Keys of the chunk, `[key_width][PAGE]`.
    keys: &'a mut [f32],
    /// n of the chunk, `[values][value blocks][PAGE][BLOCK]`.
    corrected: &'a mut [f32],
    /// G of the chunk, `[values][PAGE]`.
    decays: &'a mut [f32],
}

impl<'a> State<'a> {
    #[inline(always)]
    fn new(shape: &DeltaShape, state: &'a mut [f32]) -> Self {
        let (tail, rest) = state.split_at_mut(shape.tail_floats());
        let (matrices, rest) = rest.split_at_mut(shape.values * shape.matrix_floats());
        let (ring, rest) = rest.split_at_mut(RING * shape.channels());
        let (keys, rest) = rest.split_at_mut(PAGE * shape.key_width());
        let (corrected, decays) = rest.split_at_mut(shape.values * PAGE * shape.value_width());
        Self { tail, matrices, ring, keys, corrected, decays }
    }
}

/// Buffers of a chunk's rows.
struct Buffers<'a> {
    /// Query, key and values after the convolution, `[rows][channels]`.
    mixed: &'a mut [f32],
    /// Key, then query of each row, `[rows][2][key_width]`.
    vectors: &'a mut [f32],
    /// Their products with the chunk's keys, `[rows][2][PAGE]`.
    pairs: &'a mut [f32],
    /// Their products with S, `[value blocks][rows][2][BLOCK]`.
    products: &'a mut [f32],
    /// Keys weighted with their decay, `[key_width][PAGE]`.
    weighted: &'a mut [f32],
    /// One row's output, `[value_width]`.
    out: &'a mut [f32],
}

impl<'a> Buffers<'a> {
    #[inline(always)]
    fn new(shape: &DeltaShape, scratch: &'a mut Scratch) -> Self {
        let (keys, values) = (shape.key_width(), shape.value_width());
        let sizes = [
            PAGE * shape.channels(),
            PAGE * 2 * keys,
            PAGE * 2 * PAGE,
            PAGE * 2 * values,
            PAGE * keys,
            values,
        ];
        scratch.floats.grow(sizes.iter().sum());
        let (mixed, rest) = scratch.floats.split_at_mut(sizes[0]);
        let (vectors, rest) = rest.split_at_mut(sizes[1]);
        let (pairs, rest) = rest.split_at_mut(sizes[2]);
        let (products, rest) = rest.split_at_mut(sizes[3]);
        let (weighted, rest) = rest.split_at_mut(sizes[4]);
        Self { mixed, vectors, pairs, products, weighted, out: &mut rest[..values] }
    }
}

/// Computes the outputs o of all rows, `[rows][values · value_dim]`, and updates the state.
#[inline(always)]
pub fn delta<S: Simd>(
    s: S,
    a: &DeltaRows<'_>,
    state: &mut [f32],
    out: &mut Columns<'_>,
    scratch: &mut Scratch,
) {
    let shape = &a.shape;
    let (mut state, mut buffers) = (State::new(shape, state), Buffers::new(shape, scratch));
    let mut first = 0;
    while first < a.rows() {
        let slot = (a.position + first) % PAGE;
        let rows = first..a.rows().min(first + PAGE - slot);
        let end = slot + rows.len();
        convolve_rows(s, a, rows.clone(), &mut state, &mut buffers);
        let vectors = &buffers.vectors[..2 * rows.len() * shape.key_width()];
        product(s, vectors, state.keys, buffers.pairs, None);
        for value in 0..shape.values {
            value_head(s, a, rows.clone(), value, &mut state, &mut buffers, out);
            if end == PAGE {
                fold(s, shape, value, &mut state, buffers.weighted);
            }
        }
        if end == PAGE {
            // A chunk ends where the ring does.
            state.tail.copy_from_slice(&state.ring[(RING + 1 - shape.taps) * shape.channels()..]);
        }
        first = rows.end;
    }
}

/// Convolves and normalizes the rows of a chunk, and writes their keys to it.
#[inline(always)]
fn convolve_rows<S: Simd>(
    s: S,
    a: &DeltaRows<'_>,
    rows: Range<usize>,
    state: &mut State<'_>,
    buffers: &mut Buffers<'_>,
) {
    let (channels, width) = (a.shape.channels(), a.shape.key_width());
    let scale = 1.0 / (a.shape.key_dim as f32).sqrt();
    let mixed = buffers.mixed.chunks_exact_mut(channels);
    let vectors = buffers.vectors.chunks_exact_mut(2 * width);
    for ((row, mixed), vectors) in rows.zip(mixed).zip(vectors) {
        let position = a.position + row;
        state.ring[position % RING * channels..][..channels]
            .copy_from_slice(&a.inputs[row * channels..][..channels]);
        convolve(s, a, position, state.ring, mixed);
        let (key, query) = vectors.split_at_mut(width);
        normalize(s, &mixed[width..2 * width], 1.0, key);
        normalize(s, &mixed[..width], scale, query);
        for (column, &k) in state.keys.chunks_exact_mut(PAGE).zip(key.iter()) {
            column[position % PAGE] = k;
        }
    }
}

/// Computes SiLU(Σ w_j · u_{position − taps + 1 + j}) of each channel.
#[inline(always)]
fn convolve<S: Simd>(s: S, a: &DeltaRows<'_>, position: usize, ring: &[f32], out: &mut [f32]) {
    let channels = a.shape.channels();
    for (i, out) in S::arrays_mut(out).iter_mut().enumerate() {
        let mut sum = s.splat(0.0);
        for (tap, weights) in a.conv.chunks_exact(channels).enumerate() {
            let row = (position + RING + 1 + tap - a.shape.taps) % RING;
            let u = s.load(&S::arrays(&ring[row * channels..][..channels])[i]);
            sum = s.add_product(u, s.load(&S::arrays(weights)[i]), sum);
        }
        s.store(out, s.silu(sum));
    }
}

/// Writes x · scale / √(Σx² + ε).
#[inline(always)]
fn normalize<S: Simd>(s: S, x: &[f32], scale: f32, out: &mut [f32]) {
    let mut squares = s.splat(0.0);
    for x in S::arrays(x) {
        squares = s.add_product(s.load(x), s.load(x), squares);
    }
    let factor = s.splat(scale / (s.sum(squares) + EPS).sqrt());
    for (x, out) in S::arrays(x).iter().zip(S::arrays_mut(out)) {
        s.store(out, s.mul(s.load(x), factor));
    }
}

/// Computes one value head's outputs of a chunk's rows.
#[inline(always)]
fn value_head<S: Simd>(
    s: S,
    a: &DeltaRows<'_>,
    rows: Range<usize>,
    value: usize,
    state: &mut State<'_>,
    buffers: &mut Buffers<'_>,
    out: &mut Columns<'_>,
) {
    let shape = &a.shape;
    let (keys, values, dim) = (shape.key_width(), shape.value_width(), shape.value_dim);
    let of_rows = rows.len() * 2 * BLOCK;
    let matrix = &state.matrices[value * shape.matrix_floats()..][..shape.matrix_floats()];
    let vectors = &buffers.vectors[..2 * rows.len() * keys];
    let products = buffers.products.chunks_exact_mut(of_rows);
    for (block, products) in matrix.chunks_exact(keys * BLOCK).zip(products) {
        product(s, vectors, block, products, None);
    }
    let decays = &mut state.decays[value * PAGE..][..PAGE];
    let corrected = &mut state.corrected[value * PAGE * values..][..PAGE * values];
    for (i, row) in rows.enumerate() {
        let slot = (a.position + row) % PAGE;
        let before = if slot == 0 { 0.0 } else { decays[slot - 1] };
        decays[slot] = before + a.decays[row * shape.values + value];
        let beta = a.betas[row * shape.values + value];
        let step = Step::new(s, slot, beta, decays, &buffers.pairs[i * 2 * PAGE..][..2 * PAGE]);
        let input = 2 * keys + value * values;
        let v = &buffers.mixed[i * shape.channels() + input..][..values];
        for (block, v) in v.chunks_exact(BLOCK).enumerate() {
            let from_state = &buffers.products[block * of_rows + i * 2 * BLOCK..][..2 * BLOCK];
            let corrected = &mut corrected[block * PAGE * BLOCK..][..PAGE * BLOCK];
            step.block(s, v, from_state, corrected, &mut buffers.out[block * BLOCK..][..BLOCK]);
        }
        out.row(row)[value * dim..][..dim].copy_from_slice(&buffers.out[..dim]);
    }
}

/// The coefficients of one position.
struct Step {
    slot: usize,
    beta: f32,
    /// e^{G_i}.
    decay: f32,
    /// −β_i·e^{G_i−G_j}·(k_i·k_j) by j.
    corrections: [f32; PAGE],
    /// e^{G_i−G_j}·(q_i·k_j) by j.
    weights: [f32; PAGE],
}

impl Step {
    /// `pairs` are k_i·k_j, then q_i·k_j.
    #[inline(always)]
    fn new<S: Simd>(s: S, slot: usize, beta: f32, decays: &[f32], pairs: &[f32]) -> Self {
        let (mut corrections, mut weights) = ([0.0; PAGE], [0.0; PAGE]);
        let own = s.splat(decays[slot]);
        let (keys, queries) = pairs.split_at(PAGE);
        for (i, decays) in S::arrays(decays).iter().enumerate() {
            let between = s.exp(s.sub(own, s.load(decays)));
            let correction = s.mul(s.mul(between, s.splat(-beta)), s.load(&S::arrays(keys)[i]));
            s.store(&mut S::arrays_mut(&mut corrections)[i], correction);
            let weight = s.mul(between, s.load(&S::arrays(queries)[i]));
            s.store(&mut S::arrays_mut(&mut weights)[i], weight);
        }
        let decay = super::exp(decays[slot]);
        Self { slot, beta, decay, corrections, weights }
    }

    /// Computes n and o of one block of columns. `from_state` are Sᵀk, then Sᵀq.
    #[inline(always)]
    fn block<S: Simd>(
        &self,
        s: S,
        v: &[f32],
        from_state: &[f32],
        corrected: &mut [f32],
        out: &mut [f32],
    ) {
        let (before, own) = corrected.split_at_mut(self.slot * BLOCK);
        let own = &mut own[..BLOCK];
        let (key, query) = from_state.split_at(BLOCK);
        let mut i = 0;
        while i < BLOCK / S::LANES {
            let decayed = s.mul(s.splat(-self.beta * self.decay), s.load(&S::arrays(key)[i]));
            let mut n = s.add_product(s.splat(self.beta), s.load(&S::arrays(v)[i]), decayed);
            let mut o = s.mul(s.splat(self.decay), s.load(&S::arrays(query)[i]));
            for (j, earlier) in before.chunks_exact(BLOCK).enumerate() {
                let earlier = s.load(&S::arrays(earlier)[i]);
                n = s.add_product(s.splat(self.corrections[j]), earlier, n);
                o = s.add_product(s.splat(self.weights[j]), earlier, o);
            }
            s.store(&mut S::arrays_mut(own)[i], n);
            o = s.add_product(s.splat(self.weights[self.slot]), n, o);
            s.store(&mut S::arrays_mut(out)[i], o);
            i += 1;
        }
    }
}

/// Moves a full chunk into S.
#[inline(always)]
fn fold<S: Simd>(
    s: S,
    shape: &DeltaShape,
    value: usize,
    state: &mut State<'_>,
    weighted: &mut [f32],
) {
    let (keys, values) = (shape.key_width(), shape.value_width());
    let decays = &state.decays[value * PAGE..][..PAGE];
    let last = decays[PAGE - 1];
    let mut i = 0;
    while i < PAGE / S::LANES {
        let weight = s.exp(s.sub(s.splat(last), s.load(&S::arrays(decays)[i])));
        let weighted = weighted.as_chunks_mut::<PAGE>().0;
        for (keys, weighted) in state.keys.as_chunks::<PAGE>().0.iter().zip(weighted) {
            let weighted = &mut S::arrays_mut(weighted)[i];
            s.store(weighted, s.mul(s.load(&S::arrays(keys)[i]), weight));
        }
        i += 1;
    }
    let matrix = &mut state.matrices[value * shape.matrix_floats()..][..shape.matrix_floats()];
    let corrected = &state.corrected[value * PAGE * values..][..PAGE * values];
    let blocks = matrix.chunks_exact_mut(keys * BLOCK).zip(corrected.chunks_exact(PAGE * BLOCK));
    for (matrix, corrected) in blocks {
        product(s, weighted, corrected, matrix, Some(super::exp(last)));
    }
}

/// Computes out = decay · out + Σ_d x[d] · m[d] for rows of `x`; without a decay, the sum alone. `m` is
/// `[depth][BLOCK]`, `x` `[rows][depth]` and `out` `[rows][BLOCK]`. Sums follow d, whatever the rows.
#[inline(always)]
fn product<S: Simd>(s: S, x: &[f32], m: &[f32], out: &mut [f32], decay: Option<f32>) {
    let depth = m.len() / BLOCK;
    let (rows, mut row) = (x.len() / depth, 0);
    while row + 4 <= rows {
        let out = &mut out[row * BLOCK..][..4 * BLOCK];
        tile::<S, 4, 2>(s, &x[row * depth..][..4 * depth], m, out, decay);
        row += 4;
    }
    while row + 2 <= rows {
        let (x, out) = (&x[row * depth..][..2 * depth], &mut out[row * BLOCK..][..2 * BLOCK]);
        if S::LANES == 16 {
            tile::<S, 2, 2>(s, x, m, out, decay);
        } else {
            tile::<S, 2, 4>(s, x, m, out, decay);
        }
        row += 2;
    }
}

/// [`product`] of `R` rows, `V` vectors at a time.
#[inline(always)]
fn tile<S: Simd, const R: usize, const V: usize>(
    s: S,
    x: &[f32],
    m: &[f32],
    out: &mut [f32],
    decay: Option<f32>,
) {
    let depth = m.len() / BLOCK;
    let mut first = 0;
    while first < BLOCK / S::LANES {
        let mut sums = [[s.splat(0.0); V]; R];
        if let Some(decay) = decay {
            for r in 0..R {
                let old = &S::arrays(&out[r * BLOCK..][..BLOCK])[first..][..V];
                for (sum, old) in sums[r].iter_mut().zip(old) {
                    *sum = s.mul(s.splat(decay), s.load(old));
                }
            }
        }
        for (d, m) in m.chunks_exact(BLOCK).enumerate() {
            let m = &S::arrays(m)[first..first + V];
            for r in 0..R {
                let x = s.splat(x[r * depth + d]);
                for v in 0..V {
                    sums[r][v] = s.add_product(x, s.load(&m[v]), sums[r][v]);
                }
            }
        }
        for r in 0..R {
            let out = &mut S::arrays_mut(&mut out[r * BLOCK..][..BLOCK])[first..][..V];
            for (out, sum) in out.iter_mut().zip(sums[r]) {
                s.store(out, sum);
            }
        }
        first += V;
    }
}
