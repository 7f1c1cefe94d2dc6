//! How long drafts should be: a longer one may give more tokens a round, and makes passes dearer.

/// Weight of what is known when there is another draft to learn from.
const MEMORY: f32 = 0.9;
/// What drafts are taken for before the first: right tokens of all tokens.
const PRIOR: (f32, f32) = (4.0, 5.0);
/// Tokens without a draft after drafts were not worth their cost, at first and at most.
const REST: (usize, usize) = (16, 256);
/// Length at most of a draft that only looks whether drafts have become better.
const PROBE: usize = 4;

/// Chooses lengths by what drafts cost and how often they were right.
#[derive(Clone, Debug)]
pub struct Reach {
    /// Passes of a round with a draft.
    passes: f32,
    /// What one more row adds to a pass, as a share of a pass of one row.
    row_cost: f32,
    /// Drafted tokens that were right, and all of which that is known; older ones weigh less.
    right: f32,
    known: f32,
    /// Tokens to come without a draft, and how many the next time.
    rest: usize,
    next_rest: usize,
    /// The next draft is a probe.
    probe: bool,
}

impl Reach {
    /// For rounds of so many passes, and passes whose cost is 1 + `row_cost` · (rows − 1). Where rows
    /// are free, drafts are always as long as they may be.
    pub fn new(passes: usize, row_cost: f32) -> Self {
        let (right, known) = PRIOR;
        let (passes, row_cost) = (passes as f32, row_cost.max(0.0));
        Self { passes, row_cost, right, known, rest: 0, next_rest: REST.0, probe: false }
    }

    /// Tokens of the next draft, at most `most`; 0 where none pays.
    pub fn length(&mut self, most: usize) -> usize {
        if self.rest > 0 {
            self.rest -= 1;
            self.probe = self.rest == 0;
            return 0;
        }
        if self.row_cost == 0.0 {
            return most;
        }
        let most = if self.probe { most.min(PROBE) } else { most };
        let (length, gain) = self.best(most);
        if gain > 1.0 || self.probe {
            return length;
        }
        self.rest = self.next_rest;
        self.next_rest = (2 * self.next_rest).min(REST.1);
        0
    }

    /// Learns from a draft of which the first `accepted` tokens of `drafted` were right.
    pub fn learn(&mut self, drafted: usize, accepted: usize) {
        if drafted == 0 {
            return;
        }
        // What follows the first wrong token was never looked at.
        self.right = MEMORY * self.right + accepted as f32;
        self.known = MEMORY * self.known + drafted.min(accepted + 1) as f32;
        if !self.probe {
            self.next_rest = REST.0;
        }
        self.probe = false;
    }

    /// The length up to `most` with the most tokens per cost, and how many that are; without a draft
    /// it is one.
    fn best(&self, most: usize) -> (usize, f32) {
        let rate = self.right / self.known;
        let (mut tokens, mut likely) = (1.0, 1.0);
        let mut best = (0, 0.0);
        for length in 1..=most {
            likely *= rate;
            tokens += likely;
            let gain = tokens / (self.passes * (1.0 + self.row_cost * length as f32));
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

    /// Cost of a token on average, when every drafted token is right with `rate`, against that of a
    /// token without drafts.
    fn cost(passes: usize, row_cost: f32, rate: f32) -> f32 {
        let mut reach = Reach::new(passes, row_cost);
        let (mut cost, mut tokens, mut random) = (0.0, 0, 1u32);
        while tokens < 20_000 {
            let drafted = reach.length(32);
            let accepted = (0..drafted)
                .take_while(|_| {
                    random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    ((random >> 8) as f32 / (1 << 24) as f32) < rate
                })
                .count();
            reach.learn(drafted, accepted);
            let rounds = if drafted > 0 { passes as f32 } else { 1.0 };
            cost += rounds * (1.0 + row_cost * drafted as f32);
            tokens += accepted + 1;
        }
        cost / tokens as f32
    }

    #[test]
    fn bad_drafts_cost_little_and_good_ones_pay() {
        for passes in [1, 2] {
            for row_cost in [0.05, 0.3, 1.0] {
                let bad = cost(passes, row_cost, 0.0);
                assert!(bad < 1.06, "{passes} passes, a row costs {row_cost}: {bad}");
            }
        }
        // The best lengths give 8.6, 5.1 and 2 tokens for 1.5, 1.35 and 2 · 1.15 times the cost.
        assert!(cost(1, 0.05, 0.9) < 0.3);
        assert!(cost(2, 0.05, 0.9) < 0.55);
        // 2 passes of dear rows do not pay, however right half of the tokens are.
        assert!(cost(2, 0.3, 0.5) < 1.06);
    }

    #[test]
    fn free_rows_are_all_taken() {
        assert_eq!(Reach::new(2, 0.0).length(13), 13);
        assert_eq!(Reach::new(1, 0.0).length(0), 0);
        let mut wrong = Reach::new(2, 0.0);
        for _ in 0..100 {
            assert_eq!(wrong.length(7), 7);
            wrong.learn(7, 0);
        }
    }
}
