//! Decoding with drafts that are right with a given probability, compared with `ar`.

use super::report::Record;
use anyhow::ensure;
use serde_json::{Value, json};
use std::sync::Arc;
use wf_run_cli::session::{self, Answer, Timings};
use wrinklefree::chat::OutputParser;
use wrinklefree::decode::{AssumedDrafts, DecodeMode, DraftNet, PassCosts};
use wrinklefree::engine::{Engine, Request};

/// Times of the same text, without and with drafts.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// `ar`.
    pub ar: Timings,
    /// With drafts.
    pub drafted: Timings,
}

/// Answers a request by `ar` and with drafts by turns, so many times. The drafts are right with the
/// probability `accept`.
///
/// # Errors
/// As [`session::run`], or if the drafted text is not that of `ar`.
pub fn run(
    engine: &mut Engine,
    request: &Request,
    accept: f64,
    rounds: usize,
) -> anyhow::Result<Vec<Pair>> {
    let answer = |engine: &mut Engine, request: Request| -> anyhow::Result<Answer> {
        session::run(engine, request, OutputParser::default(), |_: &str| Ok(()))
    };
    let plain = Request { mode: DecodeMode::Autoregressive, ..request.clone() };
    // Not counted: it warms up, and its text is what drafts are compared with.
    let tokens: Vec<u32> =
        answer(engine, plain.clone())?.tokens.iter().map(|sampled| sampled.token).collect();
    let text: Arc<[u32]> = [&request.tokens[..], &tokens[..]].concat().into();
    let mut pair = |seed: usize| {
        let drafts = AssumedDrafts { text: text.clone(), accept, seed: seed as u64 };
        let drafted = Request { assumed_drafts: Some(drafts), ..request.clone() };
        let ar = answer(engine, plain.clone())?;
        let drafted = answer(engine, drafted)?;
        let same = drafted.tokens.iter().map(|sampled| sampled.token).eq(tokens.iter().copied());
        ensure!(same, "the drafted text is not that of `ar`: this is an error in the program");
        Ok(Pair { ar: ar.timings, drafted: drafted.timings })
    };
    (0..rounds).map(&mut pair).collect()
}

/// Costs by which the length of drafts is chosen, relative to a pass of one row.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Passes of the model.
    pub passes: PassCosts,
    /// The net that drafts.
    pub net: Option<DraftNet>,
}

impl Costs {
    fn describe(&self) -> String {
        let known = self.passes.known().map(|cost| format!("{cost:.2}")).join(", ");
        let rows = PassCosts::ROWS.map(|rows| rows.to_string()).join(", ");
        let net = self.net.map_or(String::new(), |net| {
            format!("; a draft {:.2} and {:.3} a token", net.pass_cost, net.token_cost)
        });
        format!("passes of {rows} rows take {known} times one of one row{net}")
    }
}

/// The result for one probability.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the model.
    pub model: String,
    /// Kernels.
    pub backend: &'static str,
    /// Threads.
    pub threads: usize,
    /// Decode mode, with the source of the drafts.
    pub mode: String,
    /// Probability that a drafted token is right.
    pub accept: f64,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens asked for.
    pub max_tokens: usize,
    /// Costs of passes and drafts on this machine.
    pub costs: Costs,
    /// All rounds.
    pub pairs: Vec<Pair>,
}

/// The median of values; the mean of the middle two of an even number.
fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() % 2 {
        0 => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

impl Row {
    /// Tokens per second of `ar`, after the prompt.
    fn ar(&self) -> f64 {
        median(self.pairs.iter().map(|pair| pair.ar.decode_tokens_per_second))
    }

    fn drafted(&self) -> f64 {
        median(self.pairs.iter().map(|pair| pair.drafted.decode_tokens_per_second))
    }

    /// Speed with drafts, relative to `ar` in the same round.
    fn ratios(&self) -> impl Iterator<Item = f64> {
        let speed = |timings: &Timings| timings.decode_tokens_per_second;
        self.pairs.iter().map(move |pair| speed(&pair.drafted) / speed(&pair.ar))
    }

    /// Tokens of a pass of the model, over all rounds. The passes over the prompt give one.
    fn tokens_per_round(&self) -> f64 {
        let drafted = || self.pairs.iter().map(|pair| &pair.drafted);
        let tokens: usize = drafted().map(|t| t.generated_tokens.saturating_sub(1)).sum();
        let passes: usize = drafted().map(|t| t.forward_passes - t.prefill_passes).sum();
        tokens as f64 / passes.max(1) as f64
    }

    fn counts(&self) -> (u64, u64) {
        let drafted = || self.pairs.iter().map(|pair| &pair.drafted);
        (drafted().map(|t| t.drafted_tokens).sum(), drafted().map(|t| t.accepted_tokens).sum())
    }

    fn share_accepted(&self) -> Option<f64> {
        let (drafted, accepted) = self.counts();
        (drafted > 0).then(|| accepted as f64 / drafted as f64)
    }
}

impl Record for Row {
    const COLUMNS: &[&str] = &[
        "mode",
        "accept:",
        "threads:",
        "prompt:",
        "max:",
        "rounds:",
        "ar t/s:",
        "t/s:",
        "ratio:",
        "tokens/round:",
        "drafted:",
        "accepted:",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.mode.clone(),
            self.accept.to_string(),
            self.threads.to_string(),
            self.prompt_tokens.to_string(),
            self.max_tokens.to_string(),
            self.pairs.len().to_string(),
            format!("{:.2}", self.ar()),
            format!("{:.2}", self.drafted()),
            format!("{:.2}", median(self.ratios())),
            format!("{:.2}", self.tokens_per_round()),
            self.counts().0.to_string(),
            self.share_accepted().map_or("–".into(), |share| format!("{:.1} %", 100.0 * share)),
        ]
    }

    fn label(&self) -> String {
        format!("{}, {} right, {} threads", self.mode, self.accept, self.threads)
    }

    fn summary(rows: &[Self]) -> String {
        let by_threads = rows.chunk_by(|a, b| a.threads == b.threads);
        let line = |rows: &[Self]| {
            format!("\n{} threads: {}\n", rows[0].threads, rows[0].costs.describe())
        };
        by_threads.map(line).collect()
    }

    fn fields(&self) -> Value {
        json!({
            "model": self.model,
            "backend": self.backend,
            "threads": self.threads,
            "mode": self.mode,
            "accept": self.accept,
            "prompt_tokens": self.prompt_tokens,
            "max_tokens": self.max_tokens,
            "rounds": self.pairs.len(),
            "pass_rows": PassCosts::ROWS,
            "pass_costs": self.costs.passes.known(),
            "draft_cost": self.costs.net.map(|net| net.pass_cost),
            "draft_token_cost": self.costs.net.map(|net| net.token_cost),
            "ar_tokens_per_second": self.ar(),
            "tokens_per_second": self.drafted(),
            "ratio": median(self.ratios()),
            "ratios": self.ratios().collect::<Vec<_>>(),
            "tokens_per_round": self.tokens_per_round(),
            "drafted_tokens": self.counts().0,
            "accepted_tokens": self.counts().1,
            "share_accepted": self.share_accepted(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_those_of_rounds_and_counts_those_of_all() {
        let timings = |speed: f64, passes: usize, drafted_tokens, accepted_tokens| Timings {
            generated_tokens: 11,
            forward_passes: passes + 1,
            prefill_passes: 1,
            drafted_tokens,
            accepted_tokens,
            decode_tokens_per_second: speed,
            ..Timings::default()
        };
        let pair = |ar: f64, ratio: f64| Pair {
            ar: timings(ar, 10, 0, 0),
            drafted: timings(ratio * ar, 5, 12, 5),
        };
        let row = Row {
            model: "m".into(),
            backend: "scalar",
            threads: 2,
            mode: "verify, model".into(),
            accept: 0.5,
            prompt_tokens: 3,
            max_tokens: 11,
            costs: Costs { passes: PassCosts::uniform(0.5), net: None },
            pairs: vec![pair(10.0, 1.5), pair(2.0, 1.75), pair(10.0, 1.25)],
        };
        let fields = row.fields();
        assert_eq!(fields["ratio"], 1.5, "the median of the rounds");
        assert_eq!(fields["ar_tokens_per_second"], 10.0);
        assert_eq!(fields["tokens_per_round"], 2.0);
        assert_eq!(
            (&fields["drafted_tokens"], &fields["accepted_tokens"]),
            (&36.into(), &15.into())
        );
        assert_eq!(row.cells().len(), Row::COLUMNS.len());
        assert!(
            Row::summary(std::slice::from_ref(&row)).contains("1.00, 1.50, 2.50, 4.50, 8.50 times")
        );
        let even = Row { pairs: row.pairs[..2].to_vec(), ..row };
        assert_eq!(even.fields()["ratio"], 1.625);
    }
}
