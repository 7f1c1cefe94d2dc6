//! Which inputs of ternary layers take part in a product: small ones may become zero.
//!
//! A rule looks at a row's quantised magnitudes alone, counted in steps of a 127th of the largest
//! (15-bit values are rounded to such steps), and finds one cut: what is below it becomes zero,
//! what is alike is treated alike. Integers decide, so every instruction set does the same, and a
//! row's result depends on nothing but the row.

use std::fmt;
use std::str::FromStr;

/// Magnitudes that are told apart: NaN is −128 in 8 bits.
const MAGNITUDES: usize = 129;
/// Percent of Σx² that [`Sparsity::Adaptive`] keeps.
const ENERGY: u64 = 99;

/// Which inputs of ternary layers stay; all others become zero. The output head gets all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Sparsity {
    /// All.
    #[default]
    Off,
    /// Those with |x| ≥ T · max |x| of their row; 0 ≤ T ≤ 1.
    Threshold(f32),
    /// This share of a row, the largest, and what is as large as the last of them; 0 < R ≤ 1.
    TopK(f32),
    /// The fewest that hold 99 % of their row's Σx².
    Adaptive,
}

/// A text is no [`Sparsity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected off, threshold:T with T from 0 to 1, topk:R with R above 0 and at most 1, or adaptive"
)]
pub struct SparsityError;

impl FromStr for Sparsity {
    type Err = SparsityError;

    /// `off`, `threshold:0.05`, `topk:0.3` or `adaptive`.
    fn from_str(text: &str) -> Result<Self, SparsityError> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let number = value.parse::<f32>().ok().filter(|v| (0.0..=1.0).contains(v));
        match (name, number) {
            ("off", _) if text == name => Ok(Self::Off),
            ("adaptive", _) if text == name => Ok(Self::Adaptive),
            ("threshold", Some(t)) => Ok(Self::Threshold(t)),
            ("topk", Some(r)) if r > 0.0 => Ok(Self::TopK(r)),
            _ => Err(SparsityError),
        }
    }
}

impl fmt::Display for Sparsity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Threshold(t) => write!(f, "threshold:{t}"),
            Self::TopK(r) => write!(f, "topk:{r}"),
            Self::Adaptive => f.write_str("adaptive"),
        }
    }
}

impl Sparsity {
    /// Makes zeros of what does not stay of a token, given as its planes and their sums.
    pub(super) fn thin<const PLANES: usize>(
        self,
        mut planes: [&mut [i8]; PLANES],
        sums: [&mut i32; PLANES],
    ) {
        if self == Self::Off {
            return;
        }
        let width = planes[0].len();
        let magnitude = |planes: &[&mut [i8]; PLANES], i: usize| {
            let joined = planes.iter().fold(0, |value, plane| 256 * value + i32::from(plane[i]));
            let (half, shift) = if PLANES == 1 { (0, 0) } else { (128, 8) };
            ((joined.abs() + half) >> shift) as usize
        };
        let mut counts = [0u32; MAGNITUDES];
        (0..width).for_each(|i| counts[magnitude(&planes, i)] += 1);
        let cut = self.cut(&counts, width);
        for i in 0..width {
            let stays = magnitude(&planes, i) >= cut;
            planes.iter_mut().for_each(|plane| plane[i] *= i8::from(stays));
        }
        for (plane, sum) in planes.iter().zip(sums) {
            *sum = plane.iter().map(|&v| i32::from(v)).sum();
        }
    }

    /// The least magnitude that stays of a row of `width` with so many values of each.
    fn cut(self, counts: &[u32; MAGNITUDES], width: usize) -> usize {
        // The largest magnitude down to which `worth` adds up to `enough`.
        let down_to = |enough: u64, worth: &dyn Fn(usize) -> u64| {
            let mut sum = 0;
            let reaches = |&m: &usize| {
                sum += worth(m) * u64::from(counts[m]);
                sum >= enough
            };
            (0..MAGNITUDES).rev().find(reaches).unwrap_or(0)
        };
        let energy = |m: usize| (m * m) as u64;
        match self {
            Self::Off => 0,
            Self::Threshold(t) => {
                let largest = counts.iter().rposition(|&n| n > 0).unwrap_or(0);
                (t * largest as f32).ceil() as usize
            }
            Self::TopK(share) => down_to((share * width as f32).ceil() as u64, &|_| 1),
            Self::Adaptive => {
                let total: u64 = (0..MAGNITUDES).map(|m| energy(m) * u64::from(counts[m])).sum();
                down_to((total * ENERGY).div_ceil(100), &energy)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thinned(policy: &str, row: &[i8]) -> (Vec<i8>, i32) {
        let (mut row, mut sum) = (row.to_vec(), row.iter().map(|&v| i32::from(v)).sum());
        policy.parse::<Sparsity>().expect(policy).thin([&mut row], [&mut sum]);
        (row, sum)
    }

    #[test]
    fn policies_are_spelled_as_they_are_printed() {
        for text in ["off", "threshold:0", "threshold:0.05", "threshold:1", "topk:0.3", "adaptive"]
        {
            assert_eq!(text.parse::<Sparsity>().expect(text).to_string(), text);
        }
        for text in [
            "",
            "on",
            "off:",
            "off:1",
            "threshold",
            "threshold:",
            "threshold:-0.1",
            "threshold:1.1",
            "threshold:NaN",
            "topk",
            "topk:0",
            "topk:-0",
            "topk:1.01",
            "topk:inf",
            "adaptive:0.5",
            "Off",
            " off",
        ] {
            assert_eq!(text.parse::<Sparsity>(), Err(SparsityError), "{text}");
        }
        assert!(SparsityError.to_string().contains("topk:R"));
    }

    #[test]
    fn each_keeps_what_it_says() {
        let row = [100, -100, 50, -50, 10, -10, 1, -1, 0, 0];
        assert_eq!(thinned("off", &row).0, row);
        assert_eq!(thinned("threshold:0", &row).0, row);
        assert_eq!(thinned("threshold:0.5", &row).0, [100, -100, 50, -50, 0, 0, 0, 0, 0, 0]);
        assert_eq!(thinned("threshold:0.51", &row).0, [100, -100, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(thinned("threshold:1", &row).0, [100, -100, 0, 0, 0, 0, 0, 0, 0, 0]);
        // As many as asked for, and those as large as the last of them.
        assert_eq!(thinned("topk:0.3", &row).0, [100, -100, 50, -50, 0, 0, 0, 0, 0, 0]);
        assert_eq!(thinned("topk:0.01", &row).0, [100, -100, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(thinned("topk:1", &row).0, row);
        // Σx² is 25,202: the first four hold 25,000 of it, which is 99.2 %.
        assert_eq!(thinned("adaptive", &row).0, [100, -100, 50, -50, 0, 0, 0, 0, 0, 0]);
        assert_eq!(thinned("adaptive", &[100, 50, 20, 0]).0, [100, 50, 20, 0]);
        assert_eq!(thinned("adaptive", &[100, 50, 11, -2]), (vec![100, 50, 0, 0], 150));
    }

    #[test]
    fn rows_of_zeros_of_nan_and_of_nothing_stay_what_they_are() {
        for policy in ["threshold:0.5", "threshold:1", "topk:0.1", "adaptive"] {
            assert_eq!(thinned(policy, &[0; 20]), (vec![0; 20], 0), "{policy}");
            assert_eq!(thinned(policy, &[-128; 20]), (vec![-128; 20], -2560), "{policy}");
            assert_eq!(thinned(policy, &[]), (vec![], 0), "{policy}");
            assert_eq!(thinned(policy, &[0, -3]), (vec![0, -3], -3), "{policy}: a tiny row");
        }
    }

    #[test]
    fn fifteen_bits_are_cut_at_the_same_steps_in_both_planes() {
        // 32,512, −16,384 + 3, 128 (half a step) and 127 (less).
        let (mut high, mut low) = ([127, -64, 0, 0], [0, 3, -128, 127]);
        (high[2], low[2]) = (1, -128);
        let (mut a, mut b) = (0, 0);
        Sparsity::TopK(0.75).thin([&mut high, &mut low], [&mut a, &mut b]);
        assert_eq!((high, low), ([127, -64, 1, 0], [0, 3, -128, 0]));
        assert_eq!((a, b), (64, -125));
        Sparsity::Threshold(0.5).thin([&mut high, &mut low], [&mut a, &mut b]);
        assert_eq!((high, low), ([127, -64, 0, 0], [0, 3, 0, 0]));
        assert_eq!((a, b), (63, 3));
    }
}
