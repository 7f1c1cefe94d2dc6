//! The table of `wf-run eval agreement`.

use super::agreement::{Agreement, Run, Score};
use crate::bench::report::Record;
use serde_json::{Value, json};
use std::collections::BTreeMap;

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
        let add = |a: Score, b: &Score| Score { right: a.right + b.right, of: a.of + b.of };
        self.scores.values().fold(Score::default(), add)
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

impl Record for Row {
    const COLUMNS: &[&str] =
        &["mode", "t/s:", "tokens/pass:", "passes/block:", "same tokens:", "same texts:", "right:"];

    fn cells(&self) -> Vec<String> {
        let Score { right, of } = self.score();
        vec![
            self.mode.clone(),
            format!("{:.0}", self.run.tokens_per_second()),
            format!("{:.2}", self.run.tokens_per_pass()),
            self.run.passes_per_block().map_or("–".into(), |n| format!("{n:.1}")),
            percent(self.agreement.tokens),
            percent(self.agreement.exact),
            if of == 0 { "–".into() } else { format!("{right}/{of}") },
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

    /// Right answers by category, where there are several.
    fn summary(rows: &[Self]) -> String {
        let Some(first) = rows.first() else { return String::new() };
        let names: Vec<&String> = first.scores.keys().collect();
        let against =
            format!("\n\"same\" compares with {}; \"right\" is exact match.\n", first.against);
        if names.len() < 2 {
            return against;
        }
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let heading = ["mode".into()].into_iter().chain(names.iter().map(|n| n.to_string()));
        let rule = ["---".into()].into_iter().chain(names.iter().map(|_| "---:".into()));
        let row = |row: &Self| {
            let cell = |score: &Score| format!("{}/{}", score.right, score.of);
            let cells = [row.mode.clone()].into_iter().chain(row.scores.values().map(cell));
            line(cells.collect())
        };
        let body: String = rows.iter().map(row).collect();
        against + "\n" + &line(heading.collect()) + &line(rule.collect()) + &body
    }
}
