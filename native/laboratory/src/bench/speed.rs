//! The measured speed of prompts and of decoding.

use super::measure::{Kind, Test};
use wrinklefree::kernel::Isa;
use wrinklefree::model::{Phase, PhaseWork};

/// The result of one test.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the model.
    pub model: String,
    /// Bytes of the weights as the files hold them, which `inspect` counts, too.
    pub size_bytes: u64,
    /// Parameters.
    pub parameters: u64,
    /// Instruction set of the kernels.
    pub isa: Isa,
    /// Threads.
    pub threads: usize,
    /// The test that was timed.
    pub test: Test,
    /// Tokens per second of each repetition.
    pub samples: Vec<f64>,
    /// Bytes per second that as many threads read from memory.
    pub bandwidth: f64,
    /// Work of each phase for a token.
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
    pub fn threads_label(&self) -> String {
        let plural = if self.threads == 1 { "" } else { "s" };
        format!("{} thread{plural}", self.threads)
    }

    /// Standard deviation of the samples; zero for a single one.
    pub fn deviation(&self) -> f64 {
        let mean = self.mean();
        let squares = self.samples.iter().map(|s| (s - mean).powi(2)).sum::<f64>();
        (squares / (self.samples.len().max(2) - 1) as f64).sqrt()
    }

    /// Standard deviation of the samples as a share of their mean.
    pub fn spread(&self) -> f64 {
        self.deviation() / self.mean()
    }

    /// Bytes of weights that a decoded token reads.
    pub fn bytes_per_token(&self) -> usize {
        self.work.iter().map(|work| work.bytes).sum()
    }

    /// Tokens per second that the memory allows.
    pub fn limit(&self) -> f64 {
        self.bandwidth / self.bytes_per_token() as f64
    }

    /// Share of the limit that decoding reached.
    pub fn of_limit(&self) -> Option<f64> {
        let reads_weights_only = self.test.kind == Kind::Generate && self.test.depth == 0;
        // Rounding gives no more than all.
        reads_weights_only.then(|| (self.mean() / self.limit()).min(1.0))
    }
}

/// Raises the limits of tests with one number of threads to the rates that these reached: other programs
/// that disturb the measurement of limits, or caches that hold the weights, make them too low.
pub fn raise_limits(rows: &mut [Row]) {
    let reached = |of: fn(&PhaseWork) -> usize| {
        let rate = |row: &Row| {
            let fastest = row.samples.iter().copied().fold(0.0, f64::max);
            of(&row.all_work()) as f64 / row.test.tokens as f64 * fastest
        };
        rows.iter().map(rate).fold(0.0, f64::max)
    };
    let (bandwidth, products) = (reached(|work| work.bytes), reached(|work| work.products));
    for row in rows {
        row.bandwidth = row.bandwidth.max(bandwidth);
        row.products = row.products.map(|measured| measured.max(products));
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn row(kind: Kind, tokens: usize) -> Row {
        let mut work = [PhaseWork::default(); Phase::COUNT];
        work[Phase::Head as usize].bytes = 500_000_000;
        Row {
            model: "m \"x\", y".into(),
            size_bytes: 1 << 30,
            parameters: 2_000_000_000,
            isa: Isa::Scalar,
            threads: 2,
            test: Test { kind, tokens, depth: 0, computed: None },
            samples: vec![9.0, 10.0, 11.0],
            bandwidth: 1e10,
            work,
            position_bytes: 0,
            products: None,
            phases: None,
        }
    }

    #[test]
    fn no_test_is_faster_than_the_limits() {
        // 11 tokens of 0.5 GB a second, while the bandwidth was measured as 4 GB/s.
        let rows = |bandwidth| {
            let mut rows = [row(Kind::Prompt, 512), row(Kind::Generate, 128)];
            rows.iter_mut().for_each(|row| row.bandwidth = bandwidth);
            raise_limits(&mut rows);
            rows
        };
        let [prompt, decoding] = rows(4e9);
        assert_eq!((prompt.bandwidth, decoding.bandwidth), (5.5e9, 5.5e9), "one machine");
        assert_eq!(decoding.of_limit(), Some(10.0 / 11.0));
        let [_, quiet] = rows(1e10);
        assert_eq!((quiet.bandwidth, quiet.of_limit()), (1e10, Some(0.5)));
    }

    #[test]
    fn a_context_and_products_count_for_the_limits() {
        let mut deep = Row { bandwidth: 1.0, products: Some(1.0), ..row(Kind::Generate, 2) };
        deep.work[Phase::Qkv as usize].products = 1000;
        (deep.test.depth, deep.position_bytes) = (99, 1_000_000);
        let mut rows = [deep];
        raise_limits(&mut rows);
        // Two tokens read 1 GB of weights and 201 MB of keys and values.
        assert_eq!(rows[0].bandwidth, 11.0 * 0.6005e9);
        assert_eq!(rows[0].products, Some(11_000.0));
    }
}
