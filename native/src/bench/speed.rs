//! The speed of prompts and of decoding, and what bounds it.

use super::measure::{Kind, Test};
use super::report::Record;
use super::roofline;
use crate::cli::human;
use serde_json::{Value, json};
use wrinklefree::model::{Phase, PhaseWork};

/// The result of one test.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the model.
    pub model: String,
    /// Bytes of weights.
    pub size_bytes: u64,
    /// Parameters.
    pub parameters: u64,
    /// Kernels.
    pub backend: &'static str,
    /// Threads.
    pub threads: usize,
    /// What was timed.
    pub test: Test,
    /// Tokens per second of each repetition.
    pub samples: Vec<f64>,
    /// Bytes per second that as many threads read from memory.
    pub bandwidth: f64,
    /// What each phase has to do for a token.
    pub work: [PhaseWork; Phase::COUNT],
    /// Bytes of keys and values of a position.
    pub position_bytes: usize,
    /// Products of int8 per second that as many threads compute, if that was measured.
    pub products: Option<f64>,
    /// Seconds of each phase of the whole test, if they were measured.
    pub phases: Option<[f64; Phase::COUNT]>,
}

impl Row {
    /// Mean tokens per second.
    pub fn mean(&self) -> f64 {
        self.samples.iter().sum::<f64>() / self.samples.len() as f64
    }

    /// `1 thread`, `2 threads`.
    pub fn team(&self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("{} thread{plural}", self.threads)
    }

    /// Standard deviation of the samples; zero for a single one.
    fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares = self.samples.iter().map(|s| (s - mean).powi(2)).sum::<f64>();
        (squares / (self.samples.len().max(2) - 1) as f64).sqrt()
    }

    /// Bytes of weights that a decoded token reads.
    fn bytes_per_token(&self) -> usize {
        self.work.iter().map(|work| work.bytes).sum()
    }

    /// Tokens per second that the memory allows.
    fn limit(&self) -> f64 {
        self.bandwidth / self.bytes_per_token() as f64
    }

    /// Share of the limit that decoding reached.
    fn of_limit(&self) -> Option<f64> {
        let weights_only = self.test.kind == Kind::Generate && self.test.depth == 0;
        weights_only.then(|| self.mean() / self.limit())
    }
}

impl Record for Row {
    const COLUMNS: &[&str] = &["model", "size:", "params:", "backend", "threads:", "test", "t/s:"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.model.clone(),
            human::bytes(self.size_bytes),
            human::count(self.parameters),
            self.backend.into(),
            self.threads.to_string(),
            self.test.name(),
            format!("{:.2} ± {:.2}", self.mean(), self.deviation()),
        ]
    }

    fn fields(&self) -> Value {
        let mut fields = json!({
            "model": self.model,
            "size_bytes": self.size_bytes,
            "parameters": self.parameters,
            "backend": self.backend,
            "threads": self.threads,
            "test": self.test.name(),
            "tokens_per_second": self.mean(),
            "standard_deviation": self.deviation(),
            "bytes_per_token": self.bytes_per_token(),
            "read_bandwidth_bytes_per_second": self.bandwidth,
            "fraction_of_bandwidth_limit": self.of_limit(),
            "samples": self.samples,
        });
        fields.as_object_mut().expect("an object").append(&mut roofline::fields(self));
        fields
    }

    /// How close decoding came to the memory's limit, and what else was measured.
    fn summary(rows: &[Self]) -> String {
        let mut text = String::new();
        for group in rows.chunk_by(|a, b| a.threads == b.threads) {
            let Some(row) = group.first() else { continue };
            let reached = group.iter().filter_map(|r| {
                Some(format!("; {} reaches {:.2} of it", r.test.name(), r.of_limit()?))
            });
            text += &format!(
                "\n{} can read {:.1} GB/s; a token reads {:.3} GB of weights: at most {:.1} \
                 t/s{}\n",
                row.team(),
                row.bandwidth / 1e9,
                row.bytes_per_token() as f64 / 1e9,
                row.limit(),
                reached.collect::<String>(),
            );
        }
        text + &roofline::summary(rows)
    }
}

#[cfg(test)]
pub mod tests {
    use super::super::report::{Format, Report};
    use super::*;

    pub fn row(kind: Kind, tokens: usize) -> Row {
        let mut work = [PhaseWork::default(); Phase::COUNT];
        work[Phase::Head as usize].bytes = 500_000_000;
        Row {
            model: "m \"x\", y".into(),
            size_bytes: 1 << 30,
            parameters: 2_000_000_000,
            backend: "scalar",
            threads: 2,
            test: Test { kind, tokens, depth: 0 },
            samples: vec![9.0, 10.0, 11.0],
            bandwidth: 1e10,
            work,
            position_bytes: 0,
            products: None,
            phases: None,
        }
    }

    fn all(format: Format) -> String {
        let mut report = Report::new(format);
        let head = report.head();
        let rows = report.row(row(Kind::Prompt, 512)) + &report.row(row(Kind::Generate, 128));
        head + &rows + &report.tail()
    }

    #[test]
    fn markdown() {
        let text = all(Format::Md);
        assert!(
            text.contains("| 1.0 GiB | 2.00 B | scalar | 2 | tg128 | 10.00 ± 1.00 |"),
            "{text}"
        );
        assert!(text.ends_with(
            "\n2 threads can read 10.0 GB/s; a token reads 0.500 GB of weights: at most 20.0 t/s; \
             tg128 reaches 0.50 of it\n"
        ));
    }

    #[test]
    fn json_and_lines_parse() {
        let array: Vec<Value> = serde_json::from_str(&all(Format::Json)).expect("an array");
        let lines = all(Format::Jsonl);
        let lines: Result<Vec<Value>, _> = lines.lines().map(serde_json::from_str).collect();
        assert_eq!(array, lines.expect("objects"));
        assert_eq!(array[1]["fraction_of_bandwidth_limit"], 0.5);
        assert!(array[0]["fraction_of_bandwidth_limit"].is_null());
    }

    #[test]
    fn csv_has_a_heading_and_quotes() {
        let text = all(Format::Csv);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("model,size_bytes,"));
        assert!(lines[1].starts_with("\"m \"\"x\"\", y\",1073741824,"));
    }
}
