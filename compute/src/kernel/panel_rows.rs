//! Operations on numbers of a panel's 16 rows, in as many vectors as they fill.

use super::operands::MatrixGroupSteps;
use super::simd::Simd;
use crate::matrix::{Int8Scales, PARTS};
use crate::ternary::PANEL_ROWS;
use bytemuck::pod_read_unaligned;

/// Loads little-endian f32.
#[inline(always)]
pub fn load<S: Simd>(s: S, x: &[u8; 4 * PANEL_ROWS]) -> S::Panel {
    let mut out = s.panel(s.splat(0.0));
    for (i, out) in out.as_mut().iter_mut().enumerate() {
        let size = size_of::<S::Array>();
        *out = s.load(&pod_read_unaligned(&x[i * size..][..size]));
    }
    out
}

/// Loads little-endian f16.
#[inline(always)]
pub fn load_f16<S: Simd>(s: S, x: &[u8; 2 * PANEL_ROWS]) -> S::Panel {
    let mut out = s.panel(s.splat(0.0));
    for (i, out) in out.as_mut().iter_mut().enumerate() {
        let size = size_of::<S::Codes>();
        *out = s.load_f16(&pod_read_unaligned(&x[i * size..][..size]));
    }
    out
}

/// Returns the scales of a group of an int8 matrix.
#[inline(always)]
pub fn int8_scales<S: Simd>(s: S, scales: &Int8Scales<'_>, group: usize) -> S::Panel {
    match scales {
        Int8Scales::Float(scales) => load(s, &scales[group]),
        Int8Scales::Parts(parts, factors) => {
            let mut out = load(s, &factors[group / PARTS]);
            for (i, out) in out.as_mut().iter_mut().enumerate() {
                let size = size_of::<S::Int8s>();
                let part = s.ints(&pod_read_unaligned(&parts[group][i * size..][..size]));
                *out = s.mul(s.floats(part), *out);
            }
            out
        }
    }
}

/// Adds integers.
#[inline(always)]
pub fn add_ints<S: Simd>(s: S, total: &mut S::IntPanel, x: &S::IntPanel) {
    for (total, x) in total.as_mut().iter_mut().zip(x.as_ref()) {
        *total = s.add_ints(*total, *x);
    }
}

/// Returns 256 · high + low.
#[inline(always)]
pub fn join<S: Simd>(s: S, high: S::IntPanel, low: S::IntPanel) -> S::IntPanel {
    let mut out = high;
    for (high, low) in out.as_mut().iter_mut().zip(low.as_ref()) {
        *high = s.add_ints(s.left8(*high), *low);
    }
    out
}

/// Returns x − offset as floats.
#[inline(always)]
pub fn floats<S: Simd>(s: S, x: S::IntPanel, offset: i32) -> S::Panel {
    let mut out = s.panel(s.splat(0.0));
    for (out, x) in out.as_mut().iter_mut().zip(x.as_ref()) {
        *out = s.floats(s.sub_ints(*x, s.splat_int(offset)));
    }
    out
}

/// Adds value · scales. Not fused: every instruction set rounds the product, so that all agree bit for
/// bit.
#[inline(always)]
pub fn add_scaled<S: Simd>(s: S, total: &mut S::Panel, value: S::Panel, scales: S::Panel) {
    let values = value.as_ref().iter().zip(scales.as_ref());
    for (total, (value, scale)) in total.as_mut().iter_mut().zip(values) {
        *total = s.add(*total, s.mul(*value, *scale));
    }
}

/// As [`add_scaled`], if a group of activations may have a scale: adds (value · group step) · scales.
#[inline(always)]
pub fn add_scaled_group<S: Simd>(
    s: S,
    total: &mut S::Panel,
    mut value: S::Panel,
    scales: S::Panel,
    steps: Option<MatrixGroupSteps<'_>>,
    (row, g): (usize, usize),
) {
    if let Some(steps) = steps {
        let step = s.splat(steps.of(row, g));
        for value in value.as_mut() {
            *value = s.mul(*value, step);
        }
    }
    add_scaled(s, total, value, scales);
}

/// Writes total · step to the first 16 elements of `out`, or adds it.
#[inline(always)]
pub fn store<S: Simd>(s: S, total: S::Panel, step: f32, out: &mut [f32], adds: bool) {
    let mut lanes = [0.0; PANEL_ROWS];
    for (lanes, total) in S::arrays_mut(&mut lanes).iter_mut().zip(total.as_ref()) {
        s.store(lanes, s.mul(*total, s.splat(step)));
    }
    match out.first_chunk_mut::<PANEL_ROWS>() {
        Some(out) if adds => out.iter_mut().zip(lanes).for_each(|(o, l)| *o += l),
        Some(out) => *out = lanes,
        None => store_rest(out, &lanes, adds),
    }
}

/// Writes the outputs of a last panel with fewer than 16 rows. It is not inlined, because the compiler
/// would use a copy of variable length for all panels.
#[cold]
fn store_rest(out: &mut [f32], lanes: &[f32; PANEL_ROWS], adds: bool) {
    for (o, l) in out.iter_mut().zip(lanes) {
        *o = if adds { *o + l } else { *l };
    }
}
