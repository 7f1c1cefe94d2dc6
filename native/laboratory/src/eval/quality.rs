//! The table of `wf-run eval quality`.

use super::agreement::{Run, Scores, total};
use super::coherence::{Coherence, Vocabulary, distinct};
use super::prompts::Prompt;
use crate::bench::report::{Record, table};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use wrinklefree::decode::{DecodeMode, Drafter};

/// Quality and speed of a mode.
#[derive(Clone, Debug)]
pub struct Row {
    /// Decode mode.
    pub mode: String,
    /// Kernels.
    pub backend: &'static str,
    /// Threads.
    pub threads: usize,
    /// Right answers, by category.
    pub scores: Scores,
    /// Stories of the most likely tokens.
    pub told: Run,
    /// Tokens of a draft that are accepted, where the mode drafts always.
    pub accepted: Option<f64>,
    /// Coherence of the sampled stories.
    pub coherence: Coherence,
    /// Different words, pairs and triples of words among all of the sampled stories.
    pub distinct: [f64; 3],
}

/// Counts the coherent answers to `prompts`, which are repeated in order, and measures how varied
/// they are.
pub fn judge(run: &Run, prompts: &[&Prompt], vocabulary: &Vocabulary) -> (Coherence, [f64; 3]) {
    let mut coherence = Coherence::default();
    for (answer, prompt) in run.answers.iter().zip(prompts.iter().cycle()) {
        let story = prompt.story.clone().unwrap_or_default();
        coherence.add(vocabulary.check(&answer.text, &story));
    }
    let texts = || run.answers.iter().map(|answer| answer.text.as_str());
    (coherence, [1, 2, 3].map(|n| distinct(texts(), n)))
}

/// Tokens of a draft that are accepted, on average: of each two passes one drafts, and the other
/// adds a token to what it accepts.
pub fn accepted(run: &Run, mode: &DecodeMode) -> Option<f64> {
    let always = matches!(
        mode,
        DecodeMode::Verify { drafter: Drafter::Denoise { .. }, row_cost: Some(cost) } if *cost == 0.0
    );
    let drafts = (run.passes - run.prefill_passes) as f64 / 2.0;
    // The passes over the prompts give the first tokens.
    let tokens = (run.tokens - run.answers.len()) as f64;
    (always && drafts > 0.0).then(|| tokens / drafts - 1.0)
}

fn share(n: usize, of: usize) -> String {
    match of {
        0 => "–".into(),
        _ => format!("{:.1} %", 100.0 * n as f64 / of as f64),
    }
}

impl Record for Row {
    const COLUMNS: &[&str] = &[
        "mode",
        "right:",
        "t/s:",
        "tokens/pass:",
        "accepted:",
        "spelled:",
        "asked:",
        "named:",
        "found:",
        "coherent:",
        "distinct 1/2/3:",
    ];

    fn cells(&self) -> Vec<String> {
        let c = &self.coherence;
        let told =
            |number: String| if self.told.answers.is_empty() { "–".into() } else { number };
        vec![
            self.mode.clone(),
            total(&self.scores).to_string(),
            told(format!("{:.0}", self.told.tokens_per_second())),
            told(format!("{:.2}", self.told.tokens_per_pass())),
            self.accepted.map_or("–".into(), |n| format!("{n:.2}")),
            share(c.spelled, c.stories),
            share(c.asked, c.stories),
            share(c.named, c.stories),
            share(c.found, c.lost),
            share(c.coherent, c.stories),
            told(self.distinct.map(|d| format!("{d:.2}")).join("/")),
        ]
    }

    fn fields(&self) -> Value {
        let (c, all) = (&self.coherence, total(&self.scores));
        json!({
            "mode": self.mode,
            "backend": self.backend,
            "threads": self.threads,
            "right": all.right,
            "of": all.of,
            "scores": self.scores,
            "stories": self.told.answers.len(),
            "tokens": self.told.tokens,
            "forward_passes": self.told.passes,
            "tokens_per_second": self.told.tokens_per_second(),
            "tokens_per_pass": self.told.tokens_per_pass(),
            "accepted_per_draft": self.accepted,
            "samples": c.stories,
            "spelled": c.spelled,
            "asked": c.asked,
            "named": c.named,
            "found": c.found,
            "lost": c.lost,
            "coherent": c.coherent,
            "distinct_1": self.distinct[0],
            "distinct_2": self.distinct[1],
            "distinct_3": self.distinct[2],
        })
    }

    /// Right answers by category.
    fn summary(rows: &[Self]) -> String {
        let categories: BTreeSet<&String> = rows.iter().flat_map(|row| row.scores.keys()).collect();
        if categories.is_empty() {
            return String::new();
        }
        let modes: Vec<String> = rows.iter().map(|row| format!("{}:", row.mode)).collect();
        let columns: Vec<&str> =
            ["right"].into_iter().chain(modes.iter().map(String::as_str)).collect();
        let cells = |category: &String| {
            let score =
                |row: &Self| row.scores.get(category).copied().unwrap_or_default().to_string();
            [category.clone()].into_iter().chain(rows.iter().map(score)).collect()
        };
        let cells: Vec<Vec<String>> = categories.into_iter().map(cells).collect();
        format!("\n{}", table(&columns, &cells))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::agreement::Answer;

    #[test]
    fn accepted_tokens_are_those_beyond_the_own_one() {
        let answer = Answer { tokens: Vec::new(), text: String::new() };
        // Three tokens accepted and one added, five times, after the first one.
        let run = Run {
            answers: vec![answer],
            tokens: 21,
            passes: 11,
            prefill_passes: 1,
            ..Run::default()
        };
        let drafter = Drafter::Denoise { length: 8, mask: 0, shift: true };
        let verify = |row_cost| DecodeMode::Verify { drafter: drafter.clone(), row_cost };
        assert_eq!(accepted(&run, &verify(Some(0.0))), Some(3.0));
        assert_eq!(accepted(&run, &verify(None)), None);
        assert_eq!(accepted(&run, &DecodeMode::Autoregressive), None);
    }
}
