//! Which inputs of ternary layers take part in a product: small ones may become zero.
//!
//! A rule looks at a row's quantized magnitudes alone, counted in steps of a 127th of the largest
//! (15-bit values are rounded to such steps), and finds one cut: what is below it becomes zero,
//! what is alike is treated alike. Integers decide, so every instruction set does the same, and a
//! row's result depends on nothing but the row.

use std::fmt;
use std::str::FromStr;

/// Magnitudes: those of 8 bits end with 128 (NaN is −128), those of 15 with 127.
const MAGNITUDES: usize = 129;
/// Percent of Σx² that [`Rule::Adaptive`] keeps.
const ENERGY: u64 = 99;

/// Which inputs of ternary layers stay; all others become zero. The output head gets all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sparsity {
    /// Which of a row's values stay.
    pub rule: Rule,
    /// Of which rows.
    pub place: Place,
}

/// Which of a row's values stay.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Rule {
    /// All.
    #[default]
    Off,
    /// Those with |x| ≥ T · max |x|; 0 ≤ T ≤ 1.
    Threshold(f32),
    /// This share, the largest, and what is as large as the last of them; 0 < R ≤ 1.
    TopK(f32),
    /// The fewest that hold 99 % of Σx².
    Adaptive,
}

/// Which rows a rule is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// The inputs of all ternary layers.
    #[default]
    All,
    /// Those of `down`, where ReLU² has left zeros already.
    Down,
}

/// A text is no [`Sparsity`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected off, threshold:T with T from 0 to 1, topk:R with R above 0 and at most 1, or adaptive, \
     the last three also with @down behind them"
)]
pub struct SparsityError;

impl FromStr for Sparsity {
    type Err = SparsityError;

    /// `off`, `threshold:0.05`, `topk:0.3`, `adaptive`; `topk:0.3@down` for [`Place::Down`].
    fn from_str(text: &str) -> Result<Self, SparsityError> {
        let (rule, place) = match text.strip_suffix("@down") {
            Some(rule) => (rule, Place::Down),
            None => (text, Place::All),
        };
        let (name, value) = rule.split_once(':').unwrap_or((rule, ""));
        let number = value.parse::<f32>().ok().filter(|v| (0.0..=1.0).contains(v));
        let rule = match (name, number) {
            ("off", _) if text == name => Rule::Off,
            ("adaptive", _) if rule == name => Rule::Adaptive,
            ("threshold", Some(t)) => Rule::Threshold(t),
            ("topk", Some(r)) if r > 0.0 => Rule::TopK(r),
            _ => return Err(SparsityError),
        };
        Ok(Self { rule, place })
    }
}

impl fmt::Display for Sparsity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.rule {
            Rule::Off => f.write_str("off"),
            Rule::Threshold(t) => write!(f, "threshold:{t}"),
            Rule::TopK(r) => write!(f, "topk:{r}"),
            Rule::Adaptive => f.write_str("adaptive"),
        }?;
        f.write_str(if self.place == Place::Down { "@down" } else { "" })
    }
}

impl Sparsity {
    /// The rule for all rows but those of `down`.
    pub(super) fn elsewhere(self) -> Rule {
        match self.place {
            Place::All => self.rule,
            Place::Down => Rule::Off,
        }
    }
}

impl Rule {
    /// Makes zeros of what does not stay of a row of 8-bit values, whose sum is kept up.
    pub(super) fn thin8(self, values: &mut [i8], sum: &mut i32) {
        if self == Self::Off {
            return;
        }
        let cut = self.cut(values.iter().map(|v| v.unsigned_abs()), values.len());
        for v in values.iter_mut() {
            *v = if v.unsigned_abs() < cut { 0 } else { *v };
        }
        *sum = values.iter().map(|&v| i32::from(v)).sum();
    }

    /// The same with values of 15 bits in two planes.
    pub(super) fn thin16(self, high: &mut [i8], low: &mut [i8], sums: [&mut i32; 2]) {
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

    /// The least magnitude that stays of a row of `width`.
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

/// How often each magnitude occurs.
fn count(magnitudes: impl Iterator<Item = u8>) -> [u64; MAGNITUDES] {
    // In turn into two tables: to count the same number twice in a row takes longer.
    let mut tables = [[0u32; MAGNITUDES]; 2];
    let place = |m: u8| usize::from(m).min(MAGNITUDES - 1);
    magnitudes.enumerate().for_each(|(i, m)| tables[i % 2][place(m)] += 1);
    std::array::from_fn(|m| u64::from(tables[0][m] + tables[1][m]))
}

/// The largest magnitude down to which the sum of what each is worth is enough.
fn down_to(worth: &[u64; MAGNITUDES], enough: u64) -> usize {
    let mut sum = 0;
    let reaches = |&m: &usize| {
        sum += worth[m];
        sum >= enough
    };
    (0..MAGNITUDES).rev().find(reaches).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thinned(policy: &str, row: &[i8]) -> (Vec<i8>, i32) {
        let (mut row, mut sum) = (row.to_vec(), row.iter().map(|&v| i32::from(v)).sum());
        policy.parse::<Sparsity>().expect(policy).rule.thin8(&mut row, &mut sum);
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
        Rule::TopK(0.75).thin16(&mut high, &mut low, [&mut a, &mut b]);
        assert_eq!((high, low), ([127, -64, 1, 0], [0, 3, -128, 0]));
        assert_eq!((a, b), (64, -125));
        Rule::Threshold(0.5).thin16(&mut high, &mut low, [&mut a, &mut b]);
        assert_eq!((high, low), ([127, -64, 0, 0], [0, 3, 0, 0]));
        assert_eq!((a, b), (63, 3));
    }
}
