//! Models with recurrent states: the positions at which the prefix cache keeps a copy of a sequence's
//! states, and the rows that a pass may take.
//!
//! Keys and values can be reused up to any page, but a state only where a copy of it was kept. So a
//! prompt's states are kept where other prompts probably go on: at the end of its stable prefix, where an
//! earlier text has left its own, and at regular distances of a long one.

use crate::cache::PAGE;

/// Smallest distance of snapshots in a long prompt, in positions.
const SPACING: usize = 64 * PAGE;
/// Number of parts of a long prompt between snapshots.
const PARTS: usize = 4;

/// The positions of a prompt at which its states are kept: ends of pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct SnapshotPlan {
    prompt: usize,
    /// End of the text that later prompts probably begin with.
    stable: usize,
    /// End of the text that earlier prompts have in common with this one.
    branch: usize,
}

impl SnapshotPlan {
    /// Makes the plan of a prompt of `prompt` tokens, the first `stable` of which probably stay the same
    /// in later prompts. At least its last token is always computed.
    pub fn new(prompt: usize, stable: Option<usize>) -> Self {
        let last = prompt.saturating_sub(1);
        let stable = stable.unwrap_or(last).min(last) / PAGE * PAGE;
        Self { prompt, stable, branch: 0 }
    }

    /// Plans a snapshot at the end of the text in common with earlier ones.
    pub fn branch_at(&mut self, position: usize) {
        self.branch = position;
    }

    /// Returns true if the states at this end of a page are kept.
    pub fn keeps(&self, page_end: usize) -> bool {
        page_end > 0 && self.next(page_end - 1) == Some(page_end)
    }

    /// Returns the number of rows of known text that a pass may take from `start` on: it has to end
    /// within the page behind the next snapshot.
    pub fn prompt_rows(&self, start: usize) -> usize {
        self.next(start).map_or(usize::MAX, |next| next + PAGE - 1 - start)
    }

    /// Returns the next position behind `position`.
    fn next(&self, position: usize) -> Option<usize> {
        let spacing = SPACING.max(self.prompt.div_ceil(PARTS).next_multiple_of(PAGE));
        let regular = (position / spacing + 1) * spacing;
        let regular = Some(regular).filter(|&regular| regular <= self.prompt);
        let others = [self.stable, self.branch].into_iter().filter(|&other| other > position);
        others.chain(regular).min()
    }
}

/// Returns the number of rows that a pass with a draft may take from `start` on: the states keep room for
/// `rejectable` wrong ones, and none of them may complete a page.
pub(super) fn draft_rows(start: usize, rejectable: usize) -> usize {
    let to_last_of_page = PAGE - 1 - start % PAGE;
    // The first row is no draft. If it completes its page, the draft is on the next one.
    let rows = if to_last_of_page == 0 { PAGE } else { to_last_of_page };
    rows.min(1 + rejectable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(plan: SnapshotPlan) -> Vec<usize> {
        (0..=plan.prompt / PAGE).map(|page| page * PAGE).filter(|&end| plan.keeps(end)).collect()
    }

    #[test]
    fn states_are_kept_at_the_stable_prefix_and_at_distances() {
        assert_eq!(kept(SnapshotPlan::new(100, Some(90))), [64]);
        assert!(kept(SnapshotPlan::new(100, Some(20))).is_empty());
        assert_eq!(kept(SnapshotPlan::new(96, None)), [64], "the last token is always computed");
        assert_eq!(kept(SnapshotPlan::new(97, None)), [96]);
        assert_eq!(kept(SnapshotPlan::new(5000, Some(4990))), [2048, 4096, 4960]);
        let mut plan = SnapshotPlan::new(20_000, None);
        plan.branch_at(64);
        assert_eq!(kept(plan), [64, 5024, 10_048, 15_072, 19_968]);
        assert!(kept(SnapshotPlan::new(0, None)).is_empty());
    }

    #[test]
    fn a_pass_ends_in_the_page_behind_a_snapshot() {
        let plan = SnapshotPlan::new(300, Some(70));
        assert_eq!(plan.prompt_rows(0), 95);
        assert_eq!(plan.prompt_rows(63), 32);
        assert_eq!(plan.prompt_rows(64), usize::MAX);
    }

    #[test]
    fn no_draft_completes_a_page() {
        for (start, rows) in [(0, 14), (16, 14), (17, 14), (18, 13), (30, 1), (31, 14), (63, 14)] {
            assert_eq!(draft_rows(start, 13), rows, "{start}");
        }
        assert_eq!([draft_rows(0, 40), draft_rows(31, 40)], [31, 32]);
    }
}
