//! Adaptive draft length: a longer draft may give more tokens per round, but its passes cost more.

use super::pass_costs::PassCosts;

/// Weight that earlier observations keep with each new draft.
const MEMORY: f32 = 0.9;
/// Assumed observations before the first draft: right tokens, and all tokens.
const PRIOR: (f32, f32) = (4.0, 5.0);
/// Number of tokens without a draft after drafts did not pay off: at first, and at most.
const COOLDOWN: (usize, usize) = (16, 256);
/// Maximum length of a probe: a draft that tests if drafts pay off again.
const PROBE: usize = 4;

/// Chooses the length of drafts from their cost and from their recent acceptance rate.
#[derive(Clone, Debug)]
pub struct DraftLength {
    /// Number of passes in a round with a draft.
    passes: f32,
    costs: PassCosts,
    /// Costs of drafting, and of drafting each token, relative to a pass of one row.
    draft_cost: (f32, f32),
    /// Number of drafted tokens that were right, and of those that were checked; older ones weigh less.
    right: f32,
    checked: f32,
    /// Number of next tokens without a draft.
    cooldown: usize,
    /// Length of the next cooldown.
    next_cooldown: usize,
    /// True if the next draft is a probe.
    probe: bool,
    /// Number of sequences that share a pass.
    sequences: f32,
}

impl DraftLength {
    /// Makes a controller for rounds of `passes` passes, with their costs. A draft costs the first of
    /// `draft_cost` more, and each of its tokens the second. If rows are free, drafts are always as long as
    /// possible.
    pub fn new(passes: usize, costs: PassCosts, draft_cost: (f32, f32)) -> Self {
        let (right, checked) = PRIOR;
        let passes = passes as f32;
        let draft_cost = (draft_cost.0.max(0.0), draft_cost.1.max(0.0));
        let (cooldown, next_cooldown, probe) = (0, COOLDOWN.0, false);
        let sequences = 1.0;
        Self {
            passes,
            costs,
            draft_cost,
            right,
            checked,
            cooldown,
            next_cooldown,
            probe,
            sequences,
        }
    }

    /// Learns how many sequences share a pass.
    pub fn share_pass(&mut self, sequences: usize) {
        self.sequences = sequences.max(1) as f32;
    }

    /// Returns the length of the next draft, at most `most`; 0 if no draft pays off.
    pub fn length(&mut self, most: usize) -> usize {
        if self.cooldown > 0 {
            self.cooldown -= 1;
            self.probe = self.cooldown == 0;
            return 0;
        }
        if self.costs.free() {
            return most;
        }
        let most = if self.probe { most.min(PROBE) } else { most };
        let (length, gain) = self.best(most);
        if gain > 1.0 || self.probe {
            return length;
        }
        self.cooldown = self.next_cooldown;
        self.next_cooldown = (2 * self.next_cooldown).min(COOLDOWN.1);
        0
    }

    /// Records that the first `accepted` of `drafted` tokens were right.
    pub fn record(&mut self, drafted: usize, accepted: usize) {
        if drafted == 0 {
            return;
        }
        // Tokens after the first wrong one were not checked.
        self.right = MEMORY * self.right + accepted as f32;
        self.checked = MEMORY * self.checked + drafted.min(accepted + 1) as f32;
        if !self.probe {
            self.next_cooldown = COOLDOWN.0;
        }
        self.probe = false;
    }

    /// Returns the length up to `most` with the most tokens per unit of cost, and this number of tokens.
    /// Without a draft it is one token.
    fn best(&self, most: usize) -> (usize, f32) {
        let rate = self.right / self.checked;
        let (mut tokens, mut likely) = (1.0, 1.0);
        let mut best = (0, 0.0);
        // This sequence's part of a pass in which each sequence has so many rows.
        let part = |rows: f32| self.costs.of(self.sequences * rows) / self.sequences;
        let alone = part(1.0);
        for length in 1..=most {
            likely *= rate;
            tokens += likely;
            let (once, each) = self.draft_cost;
            // Sequences that share passes of the model share those of the net that drafts.
            let drafted = each * length as f32 + once * alone;
            let gain = tokens * alone / (self.passes * part(1.0 + length as f32) + drafted);
            if gain > best.1 {
                best = (length, gain);
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the average cost of a token if drafted tokens are right with probability `rate`. A token
    /// without drafts costs 1.
    fn cost(passes: usize, row_cost: f32, token_cost: f32, rate: f32) -> f32 {
        let costs = PassCosts::uniform(row_cost);
        let mut length = DraftLength::new(passes, costs, (0.0, token_cost));
        let (mut cost, mut tokens, mut random) = (0.0, 0, 1u32);
        while tokens < 20_000 {
            let drafted = length.length(32);
            let accepted = (0..drafted)
                .take_while(|_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    ((random >> 8) as f32 / (1 << 24) as f32) < rate
                })
                .count();
            length.record(drafted, accepted);
            let rounds = if drafted > 0 { passes as f32 } else { 1.0 };
            cost += rounds * (1.0 + row_cost * drafted as f32) + token_cost * drafted as f32;
            tokens += accepted + 1;
        }
        cost / tokens as f32
    }

    #[test]
    fn bad_drafts_cost_little_and_good_ones_pay_off() {
        for passes in [1, 2] {
            for row_cost in [0.05, 0.3, 1.0] {
                let bad = cost(passes, row_cost, 0.0, 0.0);
                assert!(bad < 1.06, "{passes} passes, row cost {row_cost}: {bad}");
            }
        }
        // The best lengths give 8.6, 5.1 and 2 tokens for 1.5, 1.35 and 2 · 1.15 times the cost.
        assert!(cost(1, 0.05, 0.0, 0.9) < 0.3);
        assert!(cost(2, 0.05, 0.0, 0.9) < 0.55);
        // Two passes with expensive rows do not pay off, though half of the tokens are right.
        assert!(cost(2, 0.3, 0.0, 0.5) < 1.06);
        // Nor do tokens that are expensive to draft; cheaper ones do.
        assert!(cost(1, 0.1, 0.9, 0.9) < 1.06);
        assert!(cost(1, 0.1, 0.2, 0.9) < 0.65);
    }

    #[test]
    fn drafts_are_shorter_in_a_shared_pass() {
        let mut length = DraftLength::new(1, PassCosts::uniform(0.05), (0.0, 0.0));
        let alone = length.length(32);
        length.share_pass(20);
        let shared = length.length(32);
        assert!(alone > 4 && (1..alone / 2).contains(&shared), "{alone} and {shared}");
    }

    #[test]
    fn a_net_whose_pass_is_expensive_drafts_much_or_nothing() {
        let costs = PassCosts::uniform(0.05);
        let length = |once, most| DraftLength::new(1, costs, (once, 0.0)).length(most);
        assert!(length(1.0, 8) >= length(0.0, 8) && length(1.0, 8) > 4);
        assert_eq!((length(1.0, 1), length(3.5, 8)), (0, 0));
    }

    #[test]
    fn drafts_end_where_rows_become_expensive() {
        let costs = PassCosts::measured([1.0, 1.05, 1.1, 4.0, 8.0]);
        assert_eq!(DraftLength::new(1, costs, (0.0, 0.0)).length(15), 3);
    }

    #[test]
    fn free_rows_are_all_used() {
        let free = PassCosts::uniform(0.0);
        assert_eq!(DraftLength::new(2, free, (0.0, 0.5)).length(13), 13);
        assert_eq!(DraftLength::new(1, free, (0.0, 0.0)).length(0), 0);
        let mut wrong = DraftLength::new(2, free, (0.0, 0.0));
        for _ in 0..100 {
            assert_eq!(wrong.length(7), 7);
            wrong.record(7, 0);
        }
    }
}
