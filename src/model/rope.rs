//! Angles of the rotary position embedding.

use crate::format::{Llama3Scaling, Rope, RopeScaling, YarnScaling};
use std::f64::consts::TAU;

/// Rotation speed of each pair of dimensions.
pub(super) struct Frequencies {
    /// Radians per position, `[head_dim / 2]`.
    radians: Vec<f32>,
    /// Factor of cosines and sines.
    attention: f32,
}

impl Frequencies {
    /// Computes θ^(−2i/head_dim), rescaled if the model has a scaling, for at most `context` positions.
    pub fn new(head_dim: usize, rope: &Rope, context: usize) -> Self {
        let frequency = |i: usize| {
            let f = libm::pow(rope.theta, -2.0 * i as f64 / head_dim as f64);
            let scaled = match &rope.scaling {
                None => f,
                Some(RopeScaling::Llama3(s)) => llama3(f, s),
                Some(RopeScaling::Divisors(d)) => f / f64::from(d[i]),
                Some(RopeScaling::LongRope(s)) => f / f64::from(s.divisors(context)[i]),
                Some(RopeScaling::Linear(factor)) => f / factor,
                Some(RopeScaling::Yarn(s)) => {
                    let interpolated = interpolated(i, head_dim, rope.theta, s);
                    f / s.factor * interpolated + f * (1.0 - interpolated)
                }
            };
            scaled as f32
        };
        let attention = match &rope.scaling {
            Some(RopeScaling::Yarn(s)) => s.attention_factor as f32,
            Some(RopeScaling::LongRope(s)) => s.attention_factor as f32,
            _ => 1.0,
        };
        Self { radians: (0..head_dim / 2).map(frequency).collect(), attention }
    }

    /// Computes cosines and sines of one position, each `[head_dim / 2]`.
    pub fn angles(&self, position: usize, cos: &mut [f32], sin: &mut [f32]) {
        for ((f, c), s) in self.radians.iter().zip(cos).zip(sin) {
            // Rounding the product to f32, as `transformers` does, matters at far positions.
            let angle = f64::from(position as f32 * f);
            *c = libm::cos(angle) as f32 * self.attention;
            *s = libm::sin(angle) as f32 * self.attention;
        }
    }
}

/// Share of interpolation of pair `i` in YaRN, from 0 to 1: a ramp between the dimensions that turn
/// `beta_fast` and `beta_slow` times within the original context.
fn interpolated(i: usize, head_dim: usize, theta: f64, s: &YarnScaling) -> f64 {
    let original = s.original_context as f64;
    let dimension = |turns: f64| {
        head_dim as f64 * libm::log(original / (turns * TAU)) / (2.0 * libm::log(theta))
    };
    let (mut low, mut high) = (dimension(s.beta_fast), dimension(s.beta_slow));
    if s.truncate {
        (low, high) = (libm::floor(low), libm::ceil(high));
    }
    let (low, high) = (low.max(0.0), high.min(head_dim as f64 - 1.0));
    // As in `transformers`: equal bounds give a step.
    let width = if low == high { 0.001 } else { high - low };
    ((i as f64 - low) / width).clamp(0.0, 1.0)
}

/// Llama 3.1's scaling stretches long wavelengths by `factor`, keeps short ones and interpolates those
/// between.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares pairs 0, 20, 30, 40 and 63 of 64 at θ = 10⁶, and the attention factor.
    fn check(scaling: RopeScaling, want: [f64; 5], attention: f64) {
        let rope = Rope { theta: 1e6, scaling: Some(scaling) };
        let found = Frequencies::new(128, &rope, 1);
        for (i, want) in [0, 20, 30, 40, 63].into_iter().zip(want) {
            let off = (f64::from(found.radians[i]) / want - 1.0).abs();
            assert!(off < 2e-6, "{rope:?}: pair {i} is off by {off}");
        }
        assert!((f64::from(found.attention) - attention).abs() < 1e-6, "{rope:?}");
    }

    #[test]
    fn queries_grow_with_every_original_context() {
        let yarn = YarnScaling { query_beta: 0.1, ..YarnScaling::new(16.0, 32) };
        let rope = Rope { theta: 1e6, scaling: Some(RopeScaling::Yarn(yarn)) };
        for (position, want) in
            [(0, 1.0), (31, 1.0), (32, 1.069_314_7), (95, 1.109_861_2), (96, 1.138_629_4)]
        {
            assert!((rope.query_factor(position) - want).abs() < 1e-6, "{position}");
        }
        assert_eq!(Rope { theta: 1e6, scaling: None }.query_factor(1000), 1.0);
    }

    /// Expected numbers come from `transformers` 5.23 (`ROPE_INIT_FUNCTIONS`, in f32).
    #[test]
    fn scaled_frequencies_are_those_of_transformers() {
        let low = 3.102_344_4e-7;
        let linear = [0.25, 0.003_333_803_7, 3.849_816_3e-4, 4.445_698_5e-5, low];
        check(RopeScaling::Linear(4.0), linear, 1.0);
        let qwen3 = YarnScaling::new(4.0, 32_768);
        let want = [1.0, 0.013_335_215, 0.001_064_361, 4.445_698_5e-5, low];
        check(RopeScaling::Yarn(qwen3.clone()), want, 1.138_629_4);
        let narrow = YarnScaling { beta_fast: 16.0, beta_slow: 2.0, truncate: false, ..qwen3 };
        let want = [1.0, 0.013_335_215, 0.001_157_093_6, 4.445_698_5e-5, low];
        check(RopeScaling::Yarn(narrow), want, 1.138_629_4);
        let far = YarnScaling { attention_factor: 1.25, ..YarnScaling::new(40.0, 4096) };
        let want = [1.0, 0.008_278_945, 1.219_108_8e-4, 4.445_698_3e-6, low / 10.0];
        check(RopeScaling::Yarn(far), want, 1.25);
        // A factor below 1 compresses nothing and stretches frequencies: `transformers` divides by it too.
        let short = YarnScaling { attention_factor: 1.0, ..YarnScaling::new(0.25, 16_384) };
        let want = [1.0, 0.013_335_214, 0.004_257_443_9, 7.113_117_6e-4, 4.963_751e-6];
        check(RopeScaling::Yarn(short), want, 1.0);
        let deepseek =
            YarnScaling::attention_scale(40.0, 1.0) / YarnScaling::attention_scale(40.0, 0.707);
        assert!((deepseek - 1.085_726_399_256).abs() < 1e-9);
    }
}
