//! The worth of kept recurrent states: which of them goes when another one needs its place.
//!
//! Each request of a conversation continues from the end of the last one, and the next question often
//! continues from the last question, because templates change what is between them. So the states of a
//! conversation that matter are the ends of its system text, of its last question and of its text. All
//! others on the way are replaced by these.

use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Place of a recurrent state in a text, for which the prefix cache keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatePlace {
    /// The end of the system text and tools: other conversations continue there.
    SystemEnd,
    /// The end of a conversation's last question: later prompts continue there as long as the
    /// conversation lives.
    QuestionEnd,
    /// Any other end of a page. A later one of the same text replaces it.
    OnTheWay,
    /// The end of an answer. The next prompt may not repeat it as it was, so it replaces nothing before
    /// it is used.
    AnswerEnd,
}

/// The history of a kept state. Requests are numbered from 1 on, in the order of their admission.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StateUse {
    /// Number of pages before it.
    pub pages: usize,
    /// Last request that kept it or continued from it.
    pub request: u64,
    /// Last request that has the end of its system text or question here; 0 if none has.
    pub message_end: u64,
    /// True if that is the end of a question.
    pub question: bool,
    /// Number of requests when a text was last used that has it on its way.
    pub used: u64,
    /// True for the end of an answer that no prompt has repeated.
    pub answer_end: bool,
    /// Index of the last state before it on its way.
    pub parent: Option<usize>,
    /// Root of its namespace in the prefix tree.
    pub root: usize,
}

/// Reason why a state is worth little, from the least worth on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Its text has gone on without it.
    Replaced,
    /// No text with it has been used for a long time.
    Unused,
    /// The end of an answer follows, from which the next prompt probably continues.
    Answered,
    /// A system text that one conversation alone uses, which has its own states.
    Single,
    /// A conversation continues from it.
    Needed,
}

impl StateUse {
    /// A request that is numbered so continues from this state.
    pub fn resume(&mut self, request: u64) {
        (self.request, self.answer_end) = (request, false);
    }

    /// The state is kept for a request at this place.
    pub fn keep(&mut self, place: StatePlace, request: u64) {
        self.request = self.request.max(request);
        self.answer_end &= place == StatePlace::AnswerEnd;
        self.mark(place, request);
    }

    /// A request has this place in its text where the state is.
    pub fn mark(&mut self, place: StatePlace, request: u64) {
        if matches!(place, StatePlace::SystemEnd | StatePlace::QuestionEnd) {
            self.message_end = self.message_end.max(request);
            self.question = place == StatePlace::QuestionEnd;
        }
    }
}

/// Common properties of the states after a state on the same ways.
#[derive(Clone, Copy, Default)]
struct After {
    /// True if there are any.
    any: bool,
    /// True if there are others than ends of answers.
    prompts: bool,
    /// Latest request of them.
    request: u64,
    /// Latest message end of them.
    message_end: u64,
    /// Number of the last ones on their ways.
    last: usize,
}

/// Returns the index of the state that is worth least after `requests` requests. `lifetime` is the number of
/// requests after which a conversation that none of them has used counts as ended.
pub(super) fn least(states: &[StateUse], requests: u64, lifetime: u64) -> Option<usize> {
    let after = after(states);
    // Latest request after the question that a state follows.
    let mut going_on = vec![0; states.len()];
    let mut by_depth: Vec<usize> = (0..states.len()).collect();
    by_depth.sort_unstable_by_key(|&i| states[i].pages);
    for &i in &by_depth {
        let Some(parent) = states[i].parent else { continue };
        going_on[i] = match (states[parent].message_end, states[parent].question) {
            (0, _) => going_on[parent],
            (_, true) => after[parent].request,
            (_, false) => 0,
        };
    }
    let rank = |i: usize| {
        let (state, after) = (&states[i], &after[i]);
        let replaced = match state.message_end {
            0 => after.prompts || going_on[i] > state.request,
            end => after.message_end > end,
        };
        match () {
            () if replaced => Rank::Replaced,
            () if requests.saturating_sub(state.used) > lifetime => Rank::Unused,
            () if state.message_end == 0 && after.any => Rank::Answered,
            () if state.message_end > 0 && !state.question && after.last == 1 => Rank::Single,
            () => Rank::Needed,
        }
    };
    // A namespace that has more states than others gives one first, so none can take the place of all.
    let mut of_root = BTreeMap::<usize, usize>::new();
    states.iter().for_each(|state| *of_root.entry(state.root).or_default() += 1);
    // Conversations that live are used in any order, so what counts is what would be computed again.
    let lost = |i: usize| states[i].pages - states[i].parent.map_or(0, |p| states[p].pages);
    (0..states.len()).min_by_key(|&i| match rank(i) {
        Rank::Needed => {
            let others = Reverse(of_root[&states[i].root]);
            (Rank::Needed, others, lost(i) as u64, states[i].used as usize)
        }
        rank => (rank, Reverse(0), states[i].used, states[i].pages),
    })
}

fn after(states: &[StateUse]) -> Vec<After> {
    let mut all = vec![After::default(); states.len()];
    let mut by_depth: Vec<usize> = (0..states.len()).collect();
    by_depth.sort_unstable_by_key(|&i| Reverse(states[i].pages));
    for i in by_depth {
        let (state, after) = (states[i], all[i]);
        let Some(parent) = state.parent else { continue };
        let before = &mut all[parent];
        before.any = true;
        before.prompts |= !state.answer_end || after.prompts;
        before.request = before.request.max(after.request).max(state.request);
        before.message_end = before.message_end.max(after.message_end).max(state.message_end);
        before.last += after.last.max(1);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::StatePlace::{AnswerEnd, OnTheWay, QuestionEnd, SystemEnd};
    use super::*;

    /// A state of a text that a request keeps.
    fn state(parent: Option<usize>, pages: usize, request: u64, place: StatePlace) -> StateUse {
        let answer_end = place == StatePlace::AnswerEnd;
        let mut state =
            StateUse { pages, used: request, answer_end, parent, ..StateUse::default() };
        state.keep(place, request);
        state
    }

    /// Indices in the order in which the states go.
    fn order(mut states: Vec<StateUse>, requests: u64) -> Vec<usize> {
        let mut names: Vec<usize> = (0..states.len()).collect();
        let mut gone = Vec::new();
        while let Some(least) = least(&states, requests, 20) {
            gone.push(names.remove(least));
            let parent = states.remove(least).parent;
            for state in &mut states {
                if state.parent == Some(least) {
                    state.parent = parent;
                }
                state.parent = state.parent.map(|p| p - usize::from(p > least));
            }
        }
        gone
    }

    #[test]
    fn states_on_the_way_go_first_and_questions_stay() {
        // The system text, a question, two calls, the end of the last answer.
        let states = vec![
            state(None, 30, 3, SystemEnd),
            state(Some(0), 35, 3, QuestionEnd),
            state(Some(1), 40, 2, OnTheWay),
            state(Some(2), 50, 3, OnTheWay),
            state(Some(3), 60, 3, AnswerEnd),
        ];
        assert_eq!(order(states, 3), [2, 3, 0, 4, 1]);
    }

    #[test]
    fn a_new_question_replaces_the_last_one_and_the_calls_after_it() {
        let mut states = vec![
            state(None, 30, 9, SystemEnd),
            state(Some(0), 35, 8, QuestionEnd),
            state(Some(1), 60, 8, AnswerEnd),
            // The template has changed the calls, so it follows the last question.
            state(Some(1), 50, 9, QuestionEnd),
        ];
        states[1].used = 9;
        assert_eq!(order(states, 9)[..2], [2, 1]);
    }

    #[test]
    fn a_system_text_of_two_conversations_stays() {
        let states = vec![
            state(None, 30, 9, SystemEnd),
            state(Some(0), 35, 8, QuestionEnd),
            state(Some(0), 37, 9, AnswerEnd),
        ];
        assert_eq!(order(states, 9), [1, 0, 2]);
    }

    #[test]
    fn conversations_that_have_ended_go_before_those_that_live() {
        let states = vec![
            state(None, 900, 9, QuestionEnd),
            state(None, 30, 40, SystemEnd),
            state(Some(1), 35, 40, QuestionEnd),
        ];
        assert_eq!(order(states, 40)[0], 0);
    }

    #[test]
    fn a_namespace_with_many_states_gives_one_first() {
        let mut states = vec![
            state(None, 900, 1, QuestionEnd),
            state(None, 800, 2, QuestionEnd),
            state(None, 10, 3, QuestionEnd),
        ];
        states[2].root = 1;
        assert_eq!(order(states, 3)[0], 1);
    }
}
