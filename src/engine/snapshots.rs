//! Models with recurrent states: the positions at which the prefix cache keeps a copy of a sequence's
//! states, and the rows that a pass may take.
//!
//! Keys and values can be reused up to any page, but a state only where a copy of it was kept. So a
//! prompt's states are kept where other prompts probably go on: at the ends of messages that the request
//! names, at the end of its stable prefix, and where an earlier text has left its own. A prompt whose
//! messages are not known has its states kept at regular distances, too.

use super::MessageEnds;
use crate::cache::{PAGE, StatePlace};

/// Smallest distance of snapshots in a long prompt without known messages, in positions.
const SPACING: usize = 64 * PAGE;
/// Number of parts of such a prompt between snapshots.
const PARTS: usize = 4;

/// The positions of a prompt at which its states are kept: ends of pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct SnapshotPlan {
    prompt: usize,
    /// End of the system text and of the last question; 0 if it is not known.
    system: usize,
    question: usize,
    /// End of the text that later prompts probably begin with.
    stable: usize,
    /// End of the text that earlier prompts have in common with this one.
    branch: usize,
}

impl SnapshotPlan {
    /// Makes the plan of a prompt of `prompt` tokens, the first `stable` of which probably stay the same
    /// in later prompts. At least its last token is always computed.
    pub fn new(prompt: usize, stable: Option<usize>, ends: MessageEnds) -> Self {
        let last = prompt.saturating_sub(1);
        let to_page = |position: usize| position.min(last) / PAGE * PAGE;
        let [system, question] = [ends.system, ends.question].map(|end| end.map_or(0, to_page));
        Self { prompt, system, question, stable: to_page(stable.unwrap_or(last)), branch: 0 }
    }

    /// Plans a snapshot at the end of the text in common with earlier ones.
    pub fn branch_at(&mut self, position: usize) {
        self.branch = position;
    }

    /// Returns the ends of messages, as ends of pages.
    pub fn message_ends(&self) -> [(usize, StatePlace); 2] {
        // In one page, the end is that of the system text, which more conversations use.
        [(self.question, StatePlace::QuestionEnd), (self.system, StatePlace::SystemEnd)]
    }

    /// Returns true if the prompt consists of messages that are known.
    fn has_messages(&self) -> bool {
        self.system.max(self.question) > 0
    }

    /// Returns the kind of place that this end of a page is if the states there are kept.
    pub fn place(&self, page_end: usize) -> Option<StatePlace> {
        if page_end == 0 || self.next(page_end - 1) != Some(page_end) {
            return None;
        }
        Some(match page_end {
            end if end == self.system => StatePlace::SystemEnd,
            end if end == self.question => StatePlace::QuestionEnd,
            // Without known messages, only the text in common shows where prompts part.
            end if end == self.branch && !self.has_messages() => StatePlace::SystemEnd,
            _ => StatePlace::OnTheWay,
        })
    }

    /// Returns the last position up to `common`, an end of a page after `committed`, at which states are
    /// kept for another prompt with so many first tokens in common. Plans one more where that is worth it.
    pub fn share(&mut self, common: usize, committed: usize) -> usize {
        let ends = std::iter::successors(self.next(committed), |&end| self.next(end));
        let last = ends.take_while(|&end| end <= common).last().unwrap_or(committed);
        if common <= last + PAGE || self.branch > committed {
            return last;
        }
        self.branch = common;
        common
    }

    /// Returns the number of rows of known text that a pass may take from `start` on: it has to end
    /// within the page after the next snapshot.
    pub fn prompt_rows(&self, start: usize) -> usize {
        self.next(start).map_or(usize::MAX, |next| next + PAGE - 1 - start)
    }

    /// Returns the next position after `position`.
    fn next(&self, position: usize) -> Option<usize> {
        let spacing = SPACING.max(self.prompt.div_ceil(PARTS).next_multiple_of(PAGE));
        let regular = (position / spacing + 1) * spacing;
        let spaced = !self.has_messages() && regular <= self.prompt;
        let others = [self.stable, self.branch, self.system, self.question].into_iter();
        others.filter(|&other| other > position).chain(spaced.then_some(regular)).min()
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

    fn kept(plan: &SnapshotPlan) -> Vec<usize> {
        let ends = (0..=plan.prompt / PAGE).map(|page| page * PAGE);
        ends.filter(|&end| plan.place(end).is_some()).collect()
    }

    #[test]
    fn states_are_kept_at_the_stable_prefix_and_at_distances() {
        let kept =
            |prompt, stable| kept(&SnapshotPlan::new(prompt, stable, MessageEnds::default()));
        assert_eq!(kept(100, Some(90)), [64]);
        assert!(kept(100, Some(20)).is_empty());
        assert_eq!(kept(96, None), [64], "the last token is always computed");
        assert_eq!(kept(97, None), [96]);
        assert_eq!(kept(5000, Some(4990)), [2048, 4096, 4960]);
        assert!(kept(0, None).is_empty());
        let mut plan = SnapshotPlan::new(20_000, None, MessageEnds::default());
        plan.branch_at(64);
        assert_eq!(super::tests::kept(&plan), [64, 5024, 10_048, 15_072, 19_968]);
        assert_eq!(plan.place(64), Some(StatePlace::SystemEnd));
    }

    #[test]
    fn states_are_kept_at_message_ends_and_not_at_distances() {
        use StatePlace::{OnTheWay, QuestionEnd, SystemEnd};
        let ends = |system, question| MessageEnds { system, question };
        let mut plan = SnapshotPlan::new(20_000, Some(19_990), ends(Some(4100), Some(9000)));
        plan.branch_at(640);
        assert_eq!(kept(&plan), [640, 4096, 8992, 19_968]);
        let places = [640, 4096, 8992, 19_968].map(|end| plan.place(end));
        assert_eq!(places, [OnTheWay, SystemEnd, QuestionEnd, OnTheWay].map(Some));
        let short = SnapshotPlan::new(90, Some(80), ends(Some(31), Some(70)));
        assert_eq!((kept(&short), short.place(64)), (vec![64], Some(QuestionEnd)));
        let beyond = SnapshotPlan::new(65, Some(usize::MAX), ends(Some(64), Some(usize::MAX)));
        assert_eq!((kept(&beyond), beyond.place(64)), (vec![64], Some(SystemEnd)));
    }

    #[test]
    fn a_pass_ends_in_the_page_after_a_snapshot() {
        let plan = SnapshotPlan::new(300, Some(70), MessageEnds::default());
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
