//! Speeds of instruction sets on one model, side by side.

use super::measure::{Bench, Test};
use super::report::Record;
use serde_json::{Value, json};
use std::time::Duration;
use wrinklefree::cache::KvConfig;
use wrinklefree::kernel::{Isa, Kernels};
use wrinklefree::model::{Model, Runtime};
use wrinklefree_easy::machine::{self, Threads};

/// A set with a smaller share of the speed of the narrower one is a fault: it should not be chosen.
pub const LEAST: f64 = 0.9;
/// A set that seems too slow is measured in up to so many times as many rounds: other programs make a
/// measurement slower, never faster.
const MORE: usize = 4;
/// A set that takes so long for a test is measured in one round only.
const SLOW: f64 = 1.0;

/// Best speed of a set in one test.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the model as this set has it in memory.
    pub model: String,
    /// The set.
    pub isa: Isa,
    /// Threads.
    pub threads: usize,
    /// The test that was timed.
    pub test: Test,
    /// Tokens per second of each round.
    pub rounds: Vec<f64>,
    /// The next narrower set that was measured, and its best tokens per second.
    pub narrower: Option<(Isa, f64)>,
}

impl Row {
    /// Tokens per second of the best round.
    pub fn best(&self) -> f64 {
        self.rounds.iter().copied().fold(0.0, f64::max)
    }

    /// Returns the speed as a multiple of the narrower set's.
    fn ratio(&self) -> Option<f64> {
        self.narrower.map(|(_, speed)| self.best() / speed)
    }

    /// True if the set is slower than the narrower one, by more than chance.
    fn is_too_slow(&self) -> bool {
        self.ratio().is_some_and(|ratio| ratio < LEAST)
    }

    /// True if the set takes so long that one round is enough.
    fn takes_long(&self) -> bool {
        self.test.tokens as f64 > SLOW * self.best()
    }
}

impl Record for Row {
    const COLUMNS: &[&str] =
        &["model", "threads:", "test", "kernels", "t/s:", "× narrower:", "rounds:"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.model.clone(),
            self.threads.to_string(),
            self.test.name(),
            self.isa.name().into(),
            format!("{:.2}", self.best()),
            self.ratio().map_or_else(String::new, |ratio| format!("{ratio:.2}")),
            self.rounds.len().to_string(),
        ]
    }

    fn label(&self) -> String {
        format!("{}, {}", self.test.name(), self.isa.name())
    }

    fn fields(&self) -> Value {
        json!({
            "model": self.model,
            "backend": self.isa.name(),
            "threads": self.threads,
            "test": self.test.name(),
            "tokens_per_second": self.best(),
            "narrower": self.narrower.map(|(isa, _)| isa.name()),
            "ratio": self.ratio(),
            "rounds": self.rounds,
        })
    }
}

/// Instruction sets and tests to compare.
pub struct Comparison<'a> {
    /// Kernels of each set, the narrowest first.
    pub sets: &'a [Kernels],
    /// Numbers of threads.
    pub threads: &'a [usize],
    /// Tests.
    pub tests: &'a [Test],
    /// Types of keys and values.
    pub kv: KvConfig,
    /// Number of rounds.
    pub rounds: usize,
    /// Time of a test in a round; a single repetition may take longer.
    pub time: Duration,
}

impl Comparison<'_> {
    /// Measures the sets by turns, each on a model that `load` has laid out for it. Returns a row for each
    /// number of threads, test and set. `done` is called after each turn of a set.
    ///
    /// # Errors
    /// If a model cannot be loaded, or threads or the cache lack memory.
    pub fn run(
        &self,
        load: impl Fn(&Runtime) -> anyhow::Result<(String, Model)>,
        done: impl Fn(),
    ) -> anyhow::Result<Vec<Row>> {
        let mut rows = self.rows();
        for round in 0..MORE * self.rounds {
            if round >= self.rounds && !rows.iter().any(Row::is_too_slow) {
                break;
            }
            for kernels in self.sets {
                let of_set = |row: &&mut Row| row.isa == kernels.isa();
                let due = |row: &&mut Row| round == 0 || !row.takes_long();
                let due: Vec<_> = rows.iter_mut().filter(of_set).filter(due).collect();
                if !due.is_empty() {
                    self.turn(kernels, due, &load)?;
                }
                done();
            }
            compare(&mut rows);
        }
        Ok(rows)
    }

    /// Returns rows without measurements: sets of the same threads and test stand together.
    fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for &threads in self.threads {
            for &test in self.tests {
                rows.extend(self.sets.iter().map(|kernels| Row {
                    model: String::new(),
                    isa: kernels.isa(),
                    threads,
                    test,
                    rounds: Vec::new(),
                    narrower: None,
                }));
            }
        }
        rows
    }

    /// Adds a round to the rows of one set.
    fn turn(
        &self,
        &kernels: &Kernels,
        rows: Vec<&mut Row>,
        load: &impl Fn(&Runtime) -> anyhow::Result<(String, Model)>,
    ) -> anyhow::Result<()> {
        let (name, model) = load(&Runtime { kernels, ..machine::all_cores()? })?;
        for row in rows {
            let runtime = Runtime { kernels, ..machine::runtime(Threads::all(row.threads))? };
            let mut bench = Bench::new(&model, &runtime, self.kv, row.test)?;
            row.rounds.push(bench.fastest(1, self.time));
            row.model.clone_from(&name);
        }
        Ok(())
    }
}

/// Compares each row with that of the narrower set in the same test.
fn compare(rows: &mut [Row]) {
    for i in 1..rows.len() {
        let (before, row) = (&rows[i - 1], &rows[i]);
        if (before.test, before.threads) == (row.test, row.threads) {
            rows[i].narrower = Some((before.isa, before.best()));
        }
    }
}

/// Returns a line for each set that is slower than the narrower one.
pub fn faults(rows: &[Row]) -> Vec<String> {
    let slow = rows.iter().filter(|row| row.is_too_slow());
    let line = |row: &Row| {
        let (narrower, speed) = row.narrower?;
        Some(format!(
            "{} kernels take {} at {:.2} tokens per second, {} kernels at {speed:.2}",
            row.isa.name(),
            row.test.name(),
            row.best(),
            narrower.name(),
        ))
    };
    slow.filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::super::measure::Kind;
    use super::super::report::{Format, Report, squeezed};
    use super::*;

    /// Rows of one test, with the speeds of their rounds.
    fn rows(sets: &[(Isa, &[f64])]) -> Vec<Row> {
        let test = Test { kind: Kind::Generate, tokens: 8, depth: 0, computed: None };
        let row = |&(isa, rounds): &(Isa, &[f64])| Row {
            model: "m".into(),
            isa,
            threads: 2,
            test,
            rounds: rounds.into(),
            narrower: None,
        };
        let mut rows: Vec<Row> = sets.iter().map(row).collect();
        compare(&mut rows);
        rows
    }

    #[test]
    fn a_set_must_reach_the_narrower_one_in_its_best_round() {
        let good = rows(&[
            (Isa::Scalar, &[0.5]),
            (Isa::Avx2, &[40.0, 54.0]),
            (Isa::AvxVnni, &[20.0, 49.0]),
        ]);
        assert_eq!(faults(&good), [""; 0]);
        let bad = rows(&[(Isa::Avx2, &[40.0, 54.0]), (Isa::AvxVnni, &[13.0, 13.4])]);
        let line = "avxvnni kernels take tg8 at 13.40 tokens per second, avx2 kernels at 54.00";
        assert_eq!(faults(&bad), [line]);
        let table = squeezed(&Report::text(Format::Md, bad));
        assert!(table.contains("| m | 2 | tg8 | avxvnni | 13.40 | 0.25 | 2 |"), "{table}");
    }

    #[test]
    fn other_tests_and_threads_are_not_compared() {
        let mut mixed = rows(&[(Isa::Avx2, &[9.0]), (Isa::Avx512, &[1.0])]);
        mixed[1].threads = 1;
        mixed[1].narrower = None;
        compare(&mut mixed);
        assert_eq!(faults(&mixed), [""; 0]);
    }
}
