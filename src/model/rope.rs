//! Angles of the rotary position embedding.

use crate::format::{Llama3Scaling, Rope};
use std::f64::consts::TAU;

/// Radians per position of each pair of dimensions, `[head_dim / 2]`.
pub(super) struct Frequencies(Vec<f32>);

impl Frequencies {
    /// θ^(−2i/head_dim), rescaled where the model asks for it.
    pub fn new(head_dim: usize, rope: &Rope) -> Self {
        let frequency = |i: usize| {
            let f = libm::pow(rope.theta, -2.0 * i as f64 / head_dim as f64);
            rope.scaling.as_ref().map_or(f, |s| llama3(f, s)) as f32
        };
        Self((0..head_dim / 2).map(frequency).collect())
    }

    /// Cosines and sines at one position, each `[head_dim / 2]`.
    pub fn angles(&self, position: usize, cos: &mut [f32], sin: &mut [f32]) {
        for ((f, c), s) in self.0.iter().zip(cos).zip(sin) {
            // The product is rounded to f32 as in `transformers`; far positions depend on it.
            let angle = f64::from(position as f32 * f);
            *c = libm::cos(angle) as f32;
            *s = libm::sin(angle) as f32;
        }
    }
}

/// Llama-3.1's scaling: long wavelengths are stretched by `factor`, short ones kept, those between
/// interpolated.
fn llama3(frequency: f64, s: &Llama3Scaling) -> f64 {
    let wavelength = TAU / frequency;
    let original = s.original_context as f64;
    if wavelength < original / s.high_freq_factor {
        frequency
    } else if wavelength > original / s.low_freq_factor {
        frequency / s.factor
    } else {
        let smooth =
            (original / wavelength - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor);
        (1.0 - smooth) * frequency / s.factor + smooth * frequency
    }
}
