//! Constrained decoding: a grammar decides which tokens may come next.

use std::fmt::Debug;
use std::time::Duration;

/// The state of a grammar in one text: decides which tokens may come next.
///
/// The program's grammars (JSON schema, regular expressions, Lark) implement it; the core knows no
/// grammar language.
///
/// ```
/// use wrinklefree::decode::{Constraint, Next, Sampler, SamplingParams};
///
/// /// Allows token 3 a number of times, then the text ends.
/// #[derive(Clone, Debug)]
/// struct Threes(usize);
///
/// impl Constraint for Threes {
///     fn next(&mut self) -> Next {
///         if self.0 == 0 { Next::End } else { Next::Tokens(vec![1 << 3]) }
///     }
///     fn accept(&mut self, _: u32) {
///         self.0 -= 1;
///     }
///     fn rewind(&mut self, tokens: usize) {
///         self.0 += tokens;
///     }
///     fn boxed_clone(&self) -> Box<dyn Constraint> {
///         Box::new(self.clone())
///     }
/// }
///
/// let constraint: Box<dyn Constraint> = Box::new(Threes(2));
/// let params = SamplingParams { constraint: Some(constraint), ..SamplingParams::default() };
/// let mut sampler = Sampler::new(params, &[]);
/// assert_eq!(sampler.sample(&[9.0, 0.0, 0.0, 0.0]).token, 3);
/// assert_eq!(sampler.end(), None);
/// sampler.accept(3);
/// assert!(sampler.end().is_some());
/// ```
pub trait Constraint: Debug + Send + Sync {
    /// Returns the tokens that may follow those accepted so far.
    fn next(&mut self) -> Next;

    /// Appends a token, one of those that [`next`](Self::next) allows.
    fn accept(&mut self, token: u32);

    /// Removes the last `tokens` tokens.
    fn rewind(&mut self, tokens: usize);

    /// Returns what [`next`](Self::next) does, or `None` if it would take longer than is left of
    /// `budget`: then another call asks again. The time that the engine lost is taken from `budget`, so
    /// that slow grammars do not delay other sequences. By default, a call is always cheap.
    fn poll(&mut self, _budget: &mut Duration) -> Option<Next> {
        Some(self.next())
    }

    /// Returns a copy with a state of its own.
    fn boxed_clone(&self) -> Box<dyn Constraint>;
}

impl Clone for Box<dyn Constraint> {
    fn clone(&self) -> Self {
        self.as_ref().boxed_clone()
    }
}

/// The tokens that may come next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A set of at least one token: token t is bit t % 32 of word t / 32.
    Tokens(Vec<u32>),
    /// Every token but these.
    Except(Vec<u32>),
    /// No token: the text is complete.
    End,
    /// The grammar became too complex to decide; the text says why.
    Unknown(String),
}

/// A constraint with the tokens that it allows now.
#[derive(Clone, Debug)]
pub(super) struct Guide {
    constraint: Box<dyn Constraint>,
    /// `None` while it is due: a token was accepted or removed since it was computed.
    next: Option<Next>,
}

impl Guide {
    pub fn new(mut constraint: Box<dyn Constraint>) -> Self {
        let next = Some(constraint.next());
        Self { constraint, next }
    }

    /// Returns the tokens that may come next; computes them if they are due.
    pub fn next(&mut self) -> &Next {
        self.next.get_or_insert_with(|| self.constraint.next())
    }

    /// Returns true if [`next`](Self::next) has to compute.
    pub fn is_due(&self) -> bool {
        self.next.is_none()
    }

    /// Computes the tokens that may come next, if they are due and something is left of `budget`, which
    /// the time is taken from. Returns false if they are still due.
    pub fn compute(&mut self, budget: &mut Duration) -> bool {
        if self.is_due() {
            if budget.is_zero() {
                return false;
            }
            self.next = self.constraint.poll(budget);
        }
        !self.is_due()
    }

    pub fn accept(&mut self, token: u32) {
        self.constraint.accept(token);
        self.next = None;
    }

    pub fn rewind(&mut self, tokens: usize) {
        if tokens > 0 {
            self.constraint.rewind(tokens);
            self.next = None;
        }
    }

    /// Sets the logits of all other tokens to −∞. If biases have banned every allowed token, all allowed
    /// tokens become equal: the grammar has priority.
    pub fn restrict(&mut self, logits: &mut [f32]) {
        let set = match self.next() {
            Next::Tokens(set) => set,
            Next::Except(tokens) => {
                for &token in tokens {
                    if let Some(logit) = logits.get_mut(token as usize) {
                        *logit = f32::NEG_INFINITY;
                    }
                }
                return;
            }
            Next::End | Next::Unknown(_) => return,
        };
        let may =
            |token: usize| set.get(token / 32).is_some_and(|word| word >> (token % 32) & 1 == 1);
        let mut left = false;
        for (token, logit) in logits.iter_mut().enumerate() {
            if may(token) {
                left |= *logit > f32::NEG_INFINITY;
            } else {
                *logit = f32::NEG_INFINITY;
            }
        }
        if !left {
            let all = logits.iter_mut().enumerate();
            all.filter(|(token, _)| may(*token)).for_each(|(_, logit)| *logit = 0.0);
        }
    }
}
