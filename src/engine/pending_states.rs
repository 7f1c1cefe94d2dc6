//! Hidden states that wait for the net that drafts from them.

use crate::model::Model;
use std::ops::Range;

/// Hidden states of a sequence that the net has not read.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PendingStates {
    /// States of consecutive positions, `[positions][width]`.
    states: Vec<f32>,
    /// The first of these positions.
    first: usize,
    /// Number of first positions of the text that the net has read.
    read: usize,
}

/// Shape of the states that a net reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct StateShape {
    /// Number of values of a state.
    pub width: usize,
    /// Distance from the position whose state is read to the position that reads it: 1 for a block for
    /// multi-token prediction, 0 for a drafter.
    pub lag: usize,
}

impl StateShape {
    pub fn of(model: &Model) -> Self {
        Self { width: model.state_width(), lag: 1 - model.unread_tokens() }
    }
}

impl PendingStates {
    /// Starts with a cache of `cached` positions.
    pub fn restart(&mut self, cached: usize) {
        self.states.clear();
        (self.first, self.read) = (cached, cached);
    }

    /// Adds the states of a pass from position `start` on. They replace those of a rejected draft.
    pub fn push(&mut self, start: usize, states: &[f32], width: usize) {
        let kept = start.saturating_sub(self.first) * width;
        if start >= self.first && kept <= self.states.len() {
            self.states.truncate(kept)
        } else {
            self.states.clear()
        }
        self.first = start - self.states.len() / width;
        self.states.extend_from_slice(states);
    }

    /// Positions of a text of `length` tokens that the net can read now.
    pub fn readable(&self, length: usize, shape: StateShape) -> Range<usize> {
        let end = self.first + self.states.len() / shape.width + shape.lag;
        // States after it are those of rejected drafts.
        let length = length.saturating_sub(1 - shape.lag);
        self.read.min(length)..end.min(length).max(self.read.min(length))
    }

    /// The states that these positions read: zeros where they are unknown.
    pub fn read_by(&self, positions: Range<usize>, shape: StateShape) -> Vec<f32> {
        let mut out = Vec::with_capacity(positions.len() * shape.width);
        for position in positions {
            let at = position.checked_sub(self.first + shape.lag).map(|i| i * shape.width);
            match at.and_then(|at| self.states.get(at..at + shape.width)) {
                Some(state) => out.extend_from_slice(state),
                None => out.resize(out.len() + shape.width, 0.0),
            }
        }
        out
    }

    /// Drops the states that the net has read with the positions up to `end`.
    pub fn mark_read(&mut self, end: usize, shape: StateShape) {
        let dropped = end.saturating_sub(self.first + shape.lag) * shape.width;
        self.states.drain(..dropped.min(self.states.len()));
        (self.first, self.read) = (self.first.max(end.saturating_sub(shape.lag)), end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// States of two values: the position, and its negative.
    fn states(positions: Range<usize>) -> Vec<f32> {
        positions.flat_map(|p| [p as f32, -(p as f32)]).collect()
    }

    /// States of a block for multi-token prediction, and of a drafter.
    const AFTER: StateShape = StateShape { width: 2, lag: 1 };
    const AT: StateShape = StateShape { width: 2, lag: 0 };

    fn read_by(pending: &PendingStates, positions: Range<usize>, shape: StateShape) -> Vec<f32> {
        pending.read_by(positions, shape).into_iter().step_by(2).collect()
    }

    fn before(pending: &PendingStates, positions: Range<usize>) -> Vec<f32> {
        read_by(pending, positions, AFTER)
    }

    #[test]
    fn a_drafter_reads_the_states_of_the_positions_themselves() {
        let mut pending = PendingStates::default();
        pending.restart(32);
        pending.push(32, &states(32..35), 2);
        assert_eq!(pending.readable(36, AT), 32..35, "the newest token has no state");
        assert_eq!(read_by(&pending, 32..35, AT), [32.0, 33.0, 34.0]);
        pending.mark_read(35, AT);
        assert_eq!(pending, PendingStates { states: Vec::new(), first: 35, read: 35 });
        // A row and a draft of three, of which one is right.
        pending.push(35, &states(35..39), 2);
        assert_eq!(pending.readable(38, AT), 35..37);
        assert_eq!(read_by(&pending, 35..37, AT), [35.0, 36.0]);
        pending.mark_read(37, AT);
        pending.push(37, &states(37..38), 2);
        assert_eq!(pending.readable(39, AT), 37..38);
    }

    #[test]
    fn states_wait_until_the_tokens_behind_them_are_known() {
        let mut pending = PendingStates::default();
        pending.restart(32);
        pending.push(32, &states(32..35), 2);
        assert_eq!(pending.readable(35, AFTER), 32..35);
        assert_eq!(pending.readable(36, AFTER), 32..36);
        assert_eq!(before(&pending, 32..36), [0.0, 32.0, 33.0, 34.0], "31 is unknown");
        pending.mark_read(36, AFTER);
        assert_eq!(pending.readable(36, AFTER), 36..36);
        // A row and a draft of three, of which one is right.
        pending.push(35, &states(35..39), 2);
        assert_eq!(pending.readable(38, AFTER), 36..38);
        assert_eq!(before(&pending, 36..38), [35.0, 36.0]);
        // No draft was due; the next pass replaces the rejected states.
        pending.push(37, &states(37..38), 2);
        assert_eq!(pending.readable(39, AFTER), 36..39);
        assert_eq!(before(&pending, 36..39), [35.0, 36.0, 37.0]);
        pending.mark_read(39, AFTER);
        assert_eq!(pending, PendingStates { states: Vec::new(), first: 38, read: 39 });
    }

    #[test]
    fn a_text_that_starts_again_forgets_its_states() {
        let mut pending = PendingStates::default();
        pending.push(0, &states(0..40), 2);
        pending.restart(0);
        pending.push(0, &states(0..3), 2);
        assert_eq!(pending.readable(100, AFTER), 0..4);
        assert_eq!(before(&pending, 0..4), [0.0, 0.0, 1.0, 2.0]);
    }
}
