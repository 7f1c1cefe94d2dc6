//! The table of `wf-run eval agreement`.

use super::agreement::{Agreement, Run, Scores, total};
use crate::bench::report::Record;
use serde_json::{Value, json};

/// Comparison of a mode with a reference.
#[derive(Clone, Debug)]
pub struct Row {
    /// Decode mode.
    pub mode: String,
    /// Kernels.
    pub backend: &'static str,
    /// Threads.
    pub threads: usize,
    /// Its run.
    pub run: Run,
    /// The reference's name.
    pub against: String,
    /// Agreement with the reference.
    pub agreement: Agreement,
    /// Right answers, by category.
    pub scores: Scores,
}

/// Categories that a cell has room for; `eval quality` has a table for more.
const ROOM: usize = 4;

impl Row {
    fn right(&self) -> String {
        let score = |(category, score)| format!("{category} {score}").trim_start().to_string();
        match self.scores.len() {
            1..=ROOM => self.scores.iter().map(score).collect::<Vec<_>>().join(", "),
            _ => total(&self.scores).to_string(),
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

impl Record for Row {
    const COLUMNS: &[&str] =
        &["mode", "t/s:", "tokens/pass:", "passes/block:", "same tokens:", "same texts:", "right:"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.mode.clone(),
            format!("{:.0}", self.run.tokens_per_second()),
            format!("{:.2}", self.run.tokens_per_pass()),
            self.run.passes_per_block().map_or("–".into(), |n| format!("{n:.1}")),
            percent(self.agreement.tokens),
            percent(self.agreement.exact),
            self.right(),
        ]
    }

    fn fields(&self) -> Value {
        let all = total(&self.scores);
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
            "right": all.right,
            "of": all.of,
            "scores": self.scores,
        })
    }

    fn summary(rows: &[Self]) -> String {
        let against = rows.first().map_or("", |row| &row.against);
        format!("\n\"same\" compares with {against}; \"right\" is exact match.\n")
    }
}
