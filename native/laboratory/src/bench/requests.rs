//! Whole requests in a decode mode, one after the other.

use super::report::Record;
use serde_json::{Value, json};
use std::time::Instant;
use wf_run_cli::session;
use wrinklefree::chat::OutputParser;
use wrinklefree::engine::{Engine, Request};

/// One request.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// From the prompt to the last token.
    pub seconds: f64,
    /// Tokens generated.
    pub tokens: usize,
    /// Forward passes, those over the prompt included.
    pub passes: usize,
}

/// Answers a request so many times, after one that is not counted.
pub fn run(
    engine: &mut Engine,
    request: &Request,
    iterations: usize,
) -> anyhow::Result<Vec<Sample>> {
    let mut once = || {
        let begin = Instant::now();
        let answer =
            session::run(engine, request.clone(), OutputParser::default(), |_: &str| Ok(()))?;
        let seconds = begin.elapsed().as_secs_f64();
        let passes = answer.timings.forward_passes;
        Ok(Sample { seconds, tokens: answer.tokens.len(), passes })
    };
    once()?;
    (0..iterations).map(|_| once()).collect()
}

/// The result of one mode.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the model.
    pub model: String,
    /// Kernels.
    pub backend: &'static str,
    /// Threads.
    pub threads: usize,
    /// Decode mode.
    pub mode: String,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// Tokens asked for.
    pub max_tokens: usize,
    /// All requests.
    pub samples: Vec<Sample>,
}

impl Row {
    /// The latency in milliseconds that a share of the requests does not exceed (nearest rank).
    fn percentile(&self, share: f64) -> f64 {
        let mut latencies: Vec<f64> = self.samples.iter().map(|s| 1e3 * s.seconds).collect();
        latencies.sort_by(f64::total_cmp);
        let rank = (share * latencies.len() as f64).ceil() as usize;
        latencies[rank.clamp(1, latencies.len()) - 1]
    }

    fn total(&self) -> f64 {
        self.samples.iter().map(|s| s.seconds).sum()
    }

    fn mean(&self) -> f64 {
        1e3 * self.total() / self.samples.len() as f64
    }

    fn tokens(&self) -> f64 {
        self.samples.iter().map(|s| s.tokens).sum::<usize>() as f64
    }

    fn tokens_per_pass(&self) -> f64 {
        self.tokens() / self.samples.iter().map(|s| s.passes).sum::<usize>() as f64
    }
}

impl Record for Row {
    const COLUMNS: &[&str] = &[
        "mode",
        "threads:",
        "prompt:",
        "max:",
        "requests:",
        "mean ms:",
        "p50:",
        "p95:",
        "p99:",
        "t/s:",
        "tokens/request:",
        "tokens/pass:",
        "total s:",
    ];

    fn cells(&self) -> Vec<String> {
        let requests = self.samples.len();
        vec![
            self.mode.clone(),
            self.threads.to_string(),
            self.prompt_tokens.to_string(),
            self.max_tokens.to_string(),
            requests.to_string(),
            format!("{:.1}", self.mean()),
            format!("{:.1}", self.percentile(0.5)),
            format!("{:.1}", self.percentile(0.95)),
            format!("{:.1}", self.percentile(0.99)),
            format!("{:.1}", self.tokens() / self.total()),
            format!("{:.1}", self.tokens() / requests as f64),
            format!("{:.2}", self.tokens_per_pass()),
            format!("{:.2}", self.total()),
        ]
    }

    fn label(&self) -> String {
        let threads = if self.threads == 1 { "thread" } else { "threads" };
        let (prompt, max) = (self.prompt_tokens, self.max_tokens);
        format!("{}, {prompt} + {max} tokens, {} {threads}", self.mode, self.threads)
    }

    fn fields(&self) -> Value {
        json!({
            "model": self.model,
            "backend": self.backend,
            "threads": self.threads,
            "mode": self.mode,
            "iterations": self.samples.len(),
            "prompt_tokens": self.prompt_tokens,
            "max_tokens": self.max_tokens,
            "latency_mean_ms": self.mean(),
            "latency_p50_ms": self.percentile(0.5),
            "latency_p95_ms": self.percentile(0.95),
            "latency_p99_ms": self.percentile(0.99),
            "tokens_per_second": self.tokens() / self.total(),
            "tokens_per_request": self.tokens() / self.samples.len() as f64,
            "tokens_per_pass": self.tokens_per_pass(),
            "total_seconds": self.total(),
            "latencies_ms": self.samples.iter().map(|s| 1e3 * s.seconds).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_and_rates() {
        let sample = |ms: u32| Sample { seconds: f64::from(ms) / 1e3, tokens: 10, passes: 4 };
        let row = Row {
            model: "m".into(),
            backend: "scalar",
            threads: 1,
            mode: "ar".into(),
            prompt_tokens: 3,
            max_tokens: 10,
            samples: (1..=100).rev().map(sample).collect(),
        };
        let percentiles = [0.5, 0.95, 0.99, 1.0].map(|share| row.percentile(share));
        assert_eq!(percentiles, [50.0, 95.0, 99.0, 100.0]);
        let fields = row.fields();
        assert_eq!(fields["tokens_per_pass"], 2.5);
        assert_eq!(fields["tokens_per_request"], 10.0);
        let rate = fields["tokens_per_second"].as_f64().expect("a number");
        assert!((rate - 1000.0 / 5.05).abs() < 1e-9);
        assert_eq!(row.cells().len(), Row::COLUMNS.len());
        let one = Row { samples: vec![sample(7)], ..row };
        assert_eq!(one.percentile(0.5), 7.0);
    }
}
