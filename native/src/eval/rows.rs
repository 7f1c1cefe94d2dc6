//! The table of `wf-run eval agreement`.

use super::agreement::{Agreement, Run, Score};
use crate::bench::report::Record;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ops::Add;

/// What a mode did, against a reference.
#[derive(Clone, Debug)]
pub struct Row {
    /// How it was decoded.
    pub mode: String,
    /// Kernels.
    pub backend: &'static str,
    /// Threads.
    pub threads: usize,
    /// What it did.
    pub run: Run,
    /// The reference's name.
    pub against: String,
    /// How much of the reference it says.
    pub agreement: Agreement,
    /// Right answers, by category.
    pub scores: BTreeMap<String, Score>,
}

impl Row {
    fn score(&self) -> Score {
        self.scores.values().copied().fold(Score::default(), Score::add)
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

impl Record for Row {
    const COLUMNS: &[&str] =
        &["mode", "t/s:", "tokens/pass:", "passes/block:", "same tokens:", "same texts:", "right:"];

    fn cells(&self) -> Vec<String> {
        let score = |(category, s): (&String, &Score)| {
            format!("{category} {}/{}", s.right, s.of).trim_start().to_string()
        };
        let right: Vec<_> = self.scores.iter().map(score).collect();
        vec![
            self.mode.clone(),
            format!("{:.0}", self.run.tokens_per_second()),
            format!("{:.2}", self.run.tokens_per_pass()),
            self.run.passes_per_block().map_or("–".into(), |n| format!("{n:.1}")),
            percent(self.agreement.tokens),
            percent(self.agreement.exact),
            if right.is_empty() { "–".into() } else { right.join(", ") },
        ]
    }

    fn fields(&self) -> Value {
        let score = |s: &Score| json!({"right": s.right, "of": s.of});
        let scores: serde_json::Map<_, _> =
            self.scores.iter().map(|(name, s)| (name.clone(), score(s))).collect();
        json!({
            "mode": self.mode,
            "backend": self.backend,
            "threads": self.threads,
            "prompts": self.run.answers.len(),
            "tokens": self.run.tokens,
            "seconds": self.run.seconds,
            "forward_passes": self.run.passes,
            "tokens_per_second": self.run.tokens_per_second(),
            "tokens_per_pass": self.run.tokens_per_pass(),
            "passes_per_block": self.run.passes_per_block(),
            "against": self.against,
            "same_tokens": self.agreement.tokens,
            "same_texts": self.agreement.exact,
            "right": self.score().right,
            "of": self.score().of,
            "scores": scores,
        })
    }

    fn summary(rows: &[Self]) -> String {
        let against = rows.first().map_or("", |row| &row.against);
        format!("\n\"same\" compares with {against}; \"right\" is exact match.\n")
    }
}
