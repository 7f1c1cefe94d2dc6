//! Chooses how many rows of prompts a pass may have, so that the streams next to them do not wait longer
//! than a target.

use std::time::Duration;

/// Rows by which the number changes: kernels compute blocks of 16.
const BLOCK: usize = 16;
/// Rows of the first passes, before the cost of a row is known.
const FIRST: usize = 32;
/// Weight of a new measurement below the average. One above it counts at once, because a pass that is too
/// long is what streams notice.
const WEIGHT: f64 = 0.25;

/// Chooses the number of rows from the times of earlier passes.
#[derive(Debug)]
pub struct PromptPacer {
    /// Longest time of a pass in seconds; `None` for any.
    target: Option<f64>,
    /// Maximum number of rows in a pass.
    most: usize,
    /// Seconds of a pass that only decodes.
    decode: Option<f64>,
    /// Seconds of a row of a prompt.
    row: Option<f64>,
}

impl PromptPacer {
    /// Aims at passes of at most `target` with at most `most` rows; zero is no target.
    pub fn new(target: Duration, most: usize) -> Self {
        let target = Some(target.as_secs_f64()).filter(|target| *target > 0.0);
        Self { target, most, decode: None, row: None }
    }

    /// Returns the maximum number of rows of prompts in the next pass, if sequences decode in it.
    pub fn rows(&self) -> usize {
        let Some(target) = self.target else { return self.most };
        let Some(row) = self.row else { return FIRST.min(self.most) };
        let left = (target - self.decode.unwrap_or(0.0)).max(0.0);
        // A float beyond the range of numbers becomes the largest one.
        let rows = (left / row.max(1e-9)) as usize / BLOCK * BLOCK;
        rows.clamp(BLOCK, self.most.max(BLOCK))
    }

    /// Learns from a pass with these numbers of rows.
    pub fn observe(&mut self, time: Duration, prefill_rows: usize, decode_rows: usize) {
        let seconds = time.as_secs_f64();
        match (prefill_rows, decode_rows) {
            (0, 0) => {}
            (0, _) => update(&mut self.decode, seconds, WEIGHT),
            (rows, _) => {
                let decoding = if decode_rows > 0 { self.decode.unwrap_or(0.0) } else { 0.0 };
                let row = (seconds - decoding).max(0.0) / rows as f64;
                let weight = if self.row.is_some_and(|known| row < known) { WEIGHT } else { 1.0 };
                update(&mut self.row, row, weight);
            }
        }
    }
}

/// Moves an average towards a new value.
fn update(average: &mut Option<f64>, value: f64, weight: f64) {
    *average = Some(average.map_or(value, |old| old + weight * (value - old)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn milliseconds(n: f64) -> Duration {
        Duration::from_secs_f64(n / 1e3)
    }

    /// Runs passes on a machine where a pass takes 40 ms and each row of a prompt `row` ms more.
    fn passes(pacer: &mut PromptPacer, row: f64, count: usize) -> f64 {
        let mut time = 0.0;
        for _ in 0..count {
            let rows = pacer.rows();
            time = 40.0 + row * rows as f64;
            pacer.observe(milliseconds(time), rows, 4);
        }
        time
    }

    #[test]
    fn passes_approach_the_target() {
        let mut pacer = PromptPacer::new(milliseconds(250.0), 256);
        pacer.observe(milliseconds(40.0), 0, 4);
        assert_eq!(pacer.rows(), FIRST, "nothing is known about prompts");
        let time = passes(&mut pacer, 2.0, 10);
        assert!((200.0..=250.0).contains(&time), "{time}");
        // Attention makes later rows of a long prompt slower.
        let time = passes(&mut pacer, 5.0, 2);
        assert!(time <= 250.0, "{time}: it reacts at once");
        let time = passes(&mut pacer, 2.0, 20);
        assert!((200.0..=250.0).contains(&time), "{time}: and recovers");
    }

    #[test]
    fn limits() {
        let mut slow = PromptPacer::new(milliseconds(10.0), 256);
        passes(&mut slow, 50.0, 3);
        assert_eq!(slow.rows(), BLOCK, "prompts go on, however slow");
        let mut fast = PromptPacer::new(milliseconds(250.0), 256);
        passes(&mut fast, 0.0, 3);
        assert_eq!(fast.rows(), 256);
        let mut off = PromptPacer::new(Duration::ZERO, 256);
        passes(&mut off, 50.0, 3);
        assert_eq!(off.rows(), 256);
    }
}
