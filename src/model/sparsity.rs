//! Activation sparsity: zeroes small inputs of ternary layers.
//!
//! A rule finds one cut per row, and values below it become zero. It looks at the row's quantized
//! magnitudes alone, in steps of a 127th of the largest (15-bit values are rounded to such steps).
//! Equal magnitudes are treated alike. Integers decide, so every instruction set gives the same
//! result, and a row's result depends on that row alone.

use std::fmt;
use std::str::FromStr;

/// Number of magnitudes: 8-bit values go up to 128 (NaN is −128), 15-bit ones up to 127.
const MAGNITUDES: usize = 129;
/// Percentage of Σx² that [`SparsityRule::Adaptive`] keeps.
const ENERGY: u64 = 99;

/// Selection of the inputs of ternary layers to keep; all others become zero. The output head always
/// gets all inputs.
///
/// ```
/// use wrinklefree::model::{Sparsity, SparsityRule, SparsityTarget};
///
/// let sparsity: Sparsity = "topk:0.3@down".parse()?;
/// assert_eq!(sparsity.rule, SparsityRule::TopK(0.3));
/// assert_eq!(sparsity.target, SparsityTarget::Down);
/// assert_eq!(sparsity.to_string(), "topk:0.3@down");
/// # Ok::<(), wrinklefree::model::SparsityError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sparsity {
    /// Selection of the values of a row.
    pub rule: SparsityRule,
    /// The rows that the rule applies to.
    pub target: SparsityTarget,
}

/// Selection of the values of a row to keep.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum SparsityRule {
    /// Keeps all values.
    #[default]
    Off,
    /// Keeps values with |x| ≥ T · max |x|; 0 ≤ T ≤ 1.
    Threshold(f32),
    /// Keeps the share R of values that are largest, and ties of the last one; 0 < R ≤ 1.
    TopK(f32),
    /// Keeps the fewest values that hold 99 % of Σx².
    Adaptive,
}

/// The rows that a rule applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SparsityTarget {
    /// Inputs of all ternary layers.
    #[default]
    All,
    /// Inputs of `down`, where ReLU² already leaves zeros.
    Down,
}

/// A text does not describe a [`Sparsity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected off, threshold:T (0 ≤ T ≤ 1), topk:R (0 < R ≤ 1) or adaptive, \
     optionally followed by @down"
)]
pub struct SparsityError;

impl FromStr for Sparsity {
    type Err = SparsityError;

    /// Parses `off`, `threshold:0.05`, `topk:0.3` or `adaptive`; with [`SparsityTarget::Down`] for
    /// example `topk:0.3@down`.
    fn from_str(text: &str) -> Result<Self, SparsityError> {
        let (rule, target) = match text.strip_suffix("@down") {
            Some(rule) => (rule, SparsityTarget::Down),
            None => (text, SparsityTarget::All),
        };
        let (name, value) = rule.split_once(':').unwrap_or((rule, ""));
        let number = value.parse::<f32>().ok().filter(|v| (0.0..=1.0).contains(v));
        let rule = match (name, number) {
            ("off", _) if text == name => SparsityRule::Off,
            ("adaptive", _) if rule == name => SparsityRule::Adaptive,
            ("threshold", Some(t)) => SparsityRule::Threshold(t),
            ("topk", Some(r)) if r > 0.0 => SparsityRule::TopK(r),
            _ => return Err(SparsityError),
        };
        Ok(Self { rule, target })
    }
}

impl fmt::Display for Sparsity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            SparsityRule::Off => f.write_str("off"),
            SparsityRule::Threshold(t) => write!(f, "threshold:{t}"),
            SparsityRule::TopK(r) => write!(f, "topk:{r}"),
            SparsityRule::Adaptive => f.write_str("adaptive"),
        }?;
        f.write_str(if self.target == SparsityTarget::Down { "@down" } else { "" })
    }
}

impl Sparsity {
    /// The rule for all rows except inputs of `down`.
    pub(super) fn rule_except_down(self) -> SparsityRule {
        match self.target {
            SparsityTarget::All => self.rule,
            SparsityTarget::Down => SparsityRule::Off,
        }
    }
}

impl SparsityRule {
    /// Zeroes the values of an 8-bit row that the rule drops, and updates the row's sum.
    pub(super) fn apply8(self, values: &mut [i8], sum: &mut i32) {
        if self == Self::Off {
            return;
        }
        let cut = self.cut(values.iter().map(|v| v.unsigned_abs()), values.len());
        for v in values.iter_mut() {
            *v = if v.unsigned_abs() < cut { 0 } else { *v };
        }
        *sum = values.iter().map(|&v| i32::from(v)).sum();
    }

    /// As [`Self::apply8`], for 15-bit values in two planes.
    pub(super) fn apply16(self, high: &mut [i8], low: &mut [i8], sums: [&mut i32; 2]) {
        if self == Self::Off {
            return;
        }
        let magnitude = |high: i8, low: i8| {
            let joined = 256 * i32::from(high) + i32::from(low);
            ((joined.abs() + 128) >> 8) as u8
        };
        let pairs = high.iter().zip(low.iter());
        let cut = self.cut(pairs.map(|(&h, &l)| magnitude(h, l)), high.len());
        for (h, l) in high.iter_mut().zip(low.iter_mut()) {
            (*h, *l) = if magnitude(*h, *l) < cut { (0, 0) } else { (*h, *l) };
        }
        for (sum, plane) in sums.into_iter().zip([high, low]) {
            *sum = plane.iter().map(|&v| i32::from(v)).sum();
        }
    }

    /// The smallest magnitude that the rule keeps of a row of `width` values.
    fn cut(self, magnitudes: impl Iterator<Item = u8>, width: usize) -> u8 {
        let least = match self {
            Self::Off => 0,
            Self::Threshold(t) => {
                let largest = magnitudes.fold(0, u8::max);
                (t * f32::from(largest)).ceil() as usize
            }
            Self::TopK(share) => down_to(&count(magnitudes), (share * width as f32).ceil() as u64),
            Self::Adaptive => {
                let mut energies = count(magnitudes);
                (0..).zip(&mut energies).for_each(|(m, n)| *n *= m * m);
                let total: u64 = energies.iter().sum();
                down_to(&energies, (total * ENERGY).div_ceil(100))
            }
        };
        // The largest magnitude is 128.
        least as u8
    }
}

/// Counts how often each magnitude occurs.
fn count(magnitudes: impl Iterator<Item = u8>) -> [u64; MAGNITUDES] {
    // Two tables in turn: incrementing the same counter twice in a row is slower.
    let mut tables = [[0u32; MAGNITUDES]; 2];
    let index = |m: u8| usize::from(m).min(MAGNITUDES - 1);
    magnitudes.enumerate().for_each(|(i, m)| tables[i % 2][index(m)] += 1);
    std::array::from_fn(|m| u64::from(tables[0][m] + tables[1][m]))
}

/// The largest magnitude from which the weights of all magnitudes upwards sum to at least `total`.
fn down_to(weights: &[u64; MAGNITUDES], total: u64) -> usize {
    let mut sum = 0;
    let reaches = |&m: &usize| {
        sum += weights[m];
        sum >= total
    };
    (0..MAGNITUDES).rev().find(reaches).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sparsified(policy: &str, row: &[i8]) -> (Vec<i8>, i32) {
        let (mut row, mut sum) = (row.to_vec(), row.iter().map(|&v| i32::from(v)).sum());
        policy.parse::<Sparsity>().expect(policy).rule.apply8(&mut row, &mut sum);
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
            "off@down",
            "@down",
            "topk:0.3@up",
            "topk:0.3@down@down",
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
        assert_eq!(sparsified("off", &row).0, row);
        assert_eq!(sparsified("threshold:0", &row).0, row);
        assert_eq!(sparsified("threshold:0.5", &row).0, [100, -100, 50, -50, 0, 0, 0, 0, 0, 0]);
        assert_eq!(sparsified("threshold:0.51", &row).0, [100, -100, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(sparsified("threshold:1", &row).0, [100, -100, 0, 0, 0, 0, 0, 0, 0, 0]);
        // The requested share, and ties of the last value.
        assert_eq!(sparsified("topk:0.3", &row).0, [100, -100, 50, -50, 0, 0, 0, 0, 0, 0]);
        assert_eq!(sparsified("topk:0.01", &row).0, [100, -100, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(sparsified("topk:1", &row).0, row);
        // Σx² is 25,202: the first four hold 25,000 of it, which is 99.2 %.
        assert_eq!(sparsified("adaptive", &row).0, [100, -100, 50, -50, 0, 0, 0, 0, 0, 0]);
        assert_eq!(sparsified("adaptive", &[100, 50, 20, 0]).0, [100, 50, 20, 0]);
        assert_eq!(sparsified("adaptive", &[100, 50, 11, -2]), (vec![100, 50, 0, 0], 150));
    }

    #[test]
    fn rows_of_zeros_of_nan_and_of_nothing_stay_what_they_are() {
        for policy in ["threshold:0.5", "threshold:1", "topk:0.1", "adaptive"] {
            assert_eq!(sparsified(policy, &[0; 20]), (vec![0; 20], 0), "{policy}");
            assert_eq!(sparsified(policy, &[-128; 20]), (vec![-128; 20], -2560), "{policy}");
            assert_eq!(sparsified(policy, &[]), (vec![], 0), "{policy}");
            assert_eq!(sparsified(policy, &[0, -3]), (vec![0, -3], -3), "{policy}: a tiny row");
        }
    }

    #[test]
    fn fifteen_bits_are_cut_at_the_same_steps_in_both_planes() {
        // 32,512, −16,384 + 3, 128 (half a step) and 127 (less).
        let (mut high, mut low) = ([127, -64, 0, 0], [0, 3, -128, 127]);
        (high[2], low[2]) = (1, -128);
        let (mut a, mut b) = (0, 0);
        SparsityRule::TopK(0.75).apply16(&mut high, &mut low, [&mut a, &mut b]);
        assert_eq!((high, low), ([127, -64, 1, 0], [0, 3, -128, 0]));
        assert_eq!((a, b), (64, -125));
        SparsityRule::Threshold(0.5).apply16(&mut high, &mut low, [&mut a, &mut b]);
        assert_eq!((high, low), ([127, -64, 0, 0], [0, 3, 0, 0]));
        assert_eq!((a, b), (63, 3));
    }
}
