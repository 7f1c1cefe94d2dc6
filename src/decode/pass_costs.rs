//! Costs of passes by their number of rows, which limit the length of drafts.

/// Time of a pass by its number of rows, relative to a pass of one row. Rows rarely cost the same: kernels take
/// some number of them at once.
///
/// ```
/// use wrinklefree::decode::PassCosts;
///
/// let costs = PassCosts::uniform(0.25);
/// assert_eq!((costs.of(1.0), costs.of(3.0), costs.of(33.0)), (1.0, 1.5, 9.0));
/// let measured = PassCosts::measured([1.0, 1.0, 1.2, 2.0, 4.0]);
/// assert_eq!((measured.of(2.0), measured.of(12.0), measured.of(24.0)), (1.0, 3.0, 6.0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PassCosts([f32; Self::ROWS.len()]);

impl PassCosts {
    /// Numbers of rows whose cost is known. Others lie on lines between these and through the last two.
    pub const ROWS: [usize; 5] = [1, 2, 4, 8, 16];
    /// Most that a row is said to cost: sums of such costs stay finite.
    const MOST: f32 = 1e6;

    /// Costs where each row after the first costs `row_cost` passes of one row. At 0 rows are free, and drafts
    /// are as long as possible.
    #[must_use]
    pub fn uniform(row_cost: f32) -> Self {
        let row_cost = row_cost.clamp(0.0, Self::MOST);
        Self(Self::ROWS.map(|rows| 1.0 + row_cost * (rows - 1) as f32))
    }

    /// Costs of passes that took such times, of [`ROWS`](Self::ROWS) rows, in any unit. If a clock is too coarse
    /// for a small model, rows count as free.
    #[must_use]
    pub fn measured(times: [f64; Self::ROWS.len()]) -> Self {
        let one = times[0];
        let mut most = 1.0;
        Self(times.map(|time| {
            if one > 0.0 {
                // More rows take no less time, whatever disturbed the clock.
                most = (time / one).clamp(most, f64::from(Self::MOST));
            }
            most as f32
        }))
    }

    /// Costs of passes of [`ROWS`](Self::ROWS) rows.
    #[must_use]
    pub fn known(&self) -> [f32; Self::ROWS.len()] {
        self.0
    }

    /// True if rows cost nothing.
    #[must_use]
    pub fn free(&self) -> bool {
        self.0.last() == Some(&1.0)
    }

    /// Cost of a pass of `rows` rows, at least one.
    #[must_use]
    pub fn of(&self, rows: f32) -> f32 {
        let after = Self::ROWS.partition_point(|&known| known as f32 <= rows);
        let from = after.clamp(1, Self::ROWS.len() - 1) - 1;
        let (low, high) = (Self::ROWS[from] as f32, Self::ROWS[from + 1] as f32);
        let (first, second) = (self.0[from], self.0[from + 1]);
        first + (second - first) * (rows - low) / (high - low)
    }
}

impl Default for PassCosts {
    /// Costs of machines that memory bounds.
    fn default() -> Self {
        Self::uniform(0.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_clock_says_costs_are_finite_and_grow() {
        assert_eq!(PassCosts::measured([0.0, 1.0, 2.0, 3.0, 4.0]), PassCosts::uniform(0.0));
        assert_eq!(PassCosts::measured([2.0, 1.0, 4.0, 3.0, 8.0]).0, [1.0, 1.0, 2.0, 2.0, 4.0]);
        assert!(PassCosts::uniform(-1.0).free());
        assert!(PassCosts::uniform(f32::MAX).of(1e6).is_finite());
    }
}
