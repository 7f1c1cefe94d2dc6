//! Speed of a decode mode, its agreement with another mode, and its right answers.

use super::prompts::Prompt;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::time::Instant;
use wf_run_cli::session;
use wrinklefree::chat::OutputParser;
use wrinklefree::decode::{DecodeMode, SamplingParams};
use wrinklefree::engine::{Engine, Request};

/// One answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its tokens, the end of the text left out.
    pub tokens: Vec<u32>,
    /// Its text.
    pub text: String,
}

/// Answers of a mode to all prompts, with counts and times.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The answers, one for each prompt.
    pub answers: Vec<Answer>,
    /// Tokens generated.
    pub tokens: usize,
    /// Time from the prompts to the last tokens, in seconds.
    pub seconds: f64,
    /// Forward passes.
    pub passes: usize,
    /// Those that read prompts.
    pub prefill_passes: usize,
    /// Blocks that the answers touch; 0 where there are no blocks.
    pub blocks: usize,
}

/// Right answers, of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Score {
    /// Answers that say exactly what is expected.
    pub right: usize,
    /// Prompts with an answer.
    pub of: usize,
}

/// Scores by category.
pub type Scores = BTreeMap<String, Score>;

/// Those of all categories together.
pub fn total(scores: &Scores) -> Score {
    let add = |a: Score, b: &Score| Score { right: a.right + b.right, of: a.of + b.of };
    scores.values().fold(Score::default(), add)
}

impl Display for Score {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.of {
            0 => f.write_str("–"),
            of => write!(f, "{}/{of}", self.right),
        }
    }
}

/// Agreement of two runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreement {
    /// Positions with the same token, of all positions that either run has.
    pub tokens: f64,
    /// Answers that are the same to the end.
    pub exact: f64,
}

impl Run {
    /// Adds the answer to one prompt.
    pub fn answer(
        &mut self,
        engine: &mut Engine,
        mode: &DecodeMode,
        (prompt, sampling): (&Prompt, SamplingParams),
        (max_tokens, eos): (usize, &[u32]),
    ) -> anyhow::Result<()> {
        let request = Request {
            tokens: prompt.tokens.clone(),
            max_tokens,
            sampling,
            eos: eos.to_vec(),
            mode: mode.clone(),
            ..Request::default()
        };
        let begin = Instant::now();
        let answer = session::run(engine, request, OutputParser::default(), |_: &str| Ok(()))?;
        self.seconds += begin.elapsed().as_secs_f64();
        self.tokens += answer.tokens.len();
        self.passes += answer.timings.forward_passes;
        self.prefill_passes += answer.timings.prefill_passes;
        if let DecodeMode::Diffusion(params) = mode {
            let start = prompt.tokens.len();
            let end = start + answer.tokens.len();
            self.blocks += end.div_ceil(params.block) - start / params.block;
        }
        let tokens = answer.tokens.iter().map(|t| t.token).filter(|t| !eos.contains(t)).collect();
        self.answers.push(Answer { tokens, text: answer.text });
        Ok(())
    }

    /// Tokens per second, the prompts' time included.
    pub fn tokens_per_second(&self) -> f64 {
        self.tokens as f64 / self.seconds
    }

    /// Tokens per forward pass, those over prompts and commits included.
    pub fn tokens_per_pass(&self) -> f64 {
        self.tokens as f64 / self.passes as f64
    }

    /// Forward passes over a block, its commit included; `None` where there are no blocks.
    pub fn passes_per_block(&self) -> Option<f64> {
        let passes = (self.passes - self.prefill_passes) as f64;
        (self.blocks > 0).then(|| passes / self.blocks as f64)
    }

    /// Returns the agreement with `other` on the same prompts.
    pub fn agreement(&self, other: &Self) -> Agreement {
        let (mut same, mut all, mut exact) = (0, 0, 0);
        for (a, b) in self.answers.iter().zip(&other.answers) {
            same += a.tokens.iter().zip(&b.tokens).filter(|(a, b)| a == b).count();
            all += a.tokens.len().max(b.tokens.len());
            exact += usize::from(a.tokens == b.tokens);
        }
        let share = |n: usize, of: usize| if of == 0 { 1.0 } else { n as f64 / of as f64 };
        Agreement { tokens: share(same, all), exact: share(exact, self.answers.len()) }
    }

    /// Right answers by category; prompts without a known answer do not count.
    pub fn scores<'a>(&self, prompts: impl IntoIterator<Item = &'a Prompt>) -> Scores {
        let mut scores = Scores::new();
        for (answer, prompt) in self.answers.iter().zip(prompts) {
            let Some(expected) = &prompt.answer else { continue };
            let score = scores.entry(prompt.category.clone().unwrap_or_default()).or_default();
            score.of += 1;
            score.right += usize::from(answer.text.trim() == expected.trim());
        }
        scores
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(answers: &[&[u32]]) -> Run {
        let answer = |tokens: &&[u32]| Answer {
            tokens: tokens.to_vec(),
            text: format!(" {} ", tokens.len()),
        };
        Run { answers: answers.iter().map(answer).collect(), ..Run::default() }
    }

    #[test]
    fn agreement_counts_positions_of_the_longer_answer() {
        let (a, b) = (run(&[&[1, 2, 3, 4], &[5]]), run(&[&[1, 9, 3], &[5]]));
        assert_eq!(a.agreement(&b), Agreement { tokens: 3.0 / 5.0, exact: 0.5 });
        assert_eq!(b.agreement(&a), a.agreement(&b));
        assert_eq!(a.agreement(&a), Agreement { tokens: 1.0, exact: 1.0 });
        assert_eq!(run(&[&[]]).agreement(&run(&[&[]])), Agreement { tokens: 1.0, exact: 1.0 });
    }

    #[test]
    fn scores_are_exact_and_by_category() {
        let prompt = |answer: Option<&str>, category: &str| Prompt {
            tokens: Vec::new(),
            answer: answer.map(Into::into),
            category: Some(category.into()),
            story: None,
        };
        let prompts = [
            prompt(Some("1"), "a"),
            prompt(Some("2"), "a"),
            prompt(None, "b"),
            prompt(Some("1"), "c"),
        ];
        let scores = run(&[&[7], &[7], &[7], &[7]]).scores(&prompts);
        let want = [("a", Score { right: 1, of: 2 }), ("c", Score { right: 1, of: 1 })];
        assert_eq!(scores, want.map(|(name, score)| (name.into(), score)).into());
    }
}
