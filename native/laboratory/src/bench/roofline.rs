//! Comparison of a test with the machine's limits, as a whole and phase by phase.

use super::report::table;
use super::speed::Row;
use serde_json::{Map, Value, json};
use wrinklefree::model::{Phase, PhaseWork};

/// Columns of the table of limits.
const LIMITS: [&str; 8] =
    ["threads:", "test", "t/s:", "at most:", "bound by", "reached:", "GB/s:", "GMAC/s:"];
/// Columns of the table of phases.
const PHASES: [&str; 5] = ["phase", "ms:", "share:", "GB/s:", "GMAC/s:"];

impl Row {
    /// Returns the work of a phase in the whole test. A pass reads its weights, and the keys and
    /// values that it sees, once, whatever the number of its rows, and gives logits for one row.
    fn work(&self, phase: Phase) -> PhaseWork {
        let PhaseWork { products, bytes } = self.work[phase as usize];
        let (rows, bytes) = match phase {
            Phase::Head => (self.test.passes(), bytes * self.test.passes()),
            Phase::Attention => (0, self.position_bytes * self.test.seen()),
            _ => (self.test.tokens, bytes * self.test.passes()),
        };
        PhaseWork { products: products * rows, bytes }
    }

    pub(super) fn all_work(&self) -> PhaseWork {
        Phase::ALL.map(|phase| self.work(phase)).into_iter().fold(PhaseWork::default(), |a, b| {
            PhaseWork { products: a.products + b.products, bytes: a.bytes + b.bytes }
        })
    }

    /// The fewest seconds that reading, and multiplying weights, take.
    fn least_seconds(&self, products: f64) -> [f64; 2] {
        let work = self.all_work();
        [work.bytes as f64 / self.bandwidth, work.products as f64 / products]
    }

    /// Tokens per second that the machine allows, if it multiplies so fast.
    fn at_most(&self, products: f64) -> f64 {
        let [reading, multiplying] = self.least_seconds(products);
        self.test.tokens as f64 / reading.max(multiplying)
    }

    /// The share of what the machine allows; rounding gives no more than all.
    fn of_limits(&self, products: f64) -> f64 {
        (self.mean() / self.at_most(products)).min(1.0)
    }

    fn limit_cells(&self, products: f64) -> Vec<String> {
        let ([reading, multiplying], work) = (self.least_seconds(products), self.all_work());
        let per_second = self.mean() / self.test.tokens as f64;
        vec![
            self.threads.to_string(),
            self.test.name(),
            format!("{:.1}", self.mean()),
            format!("{:.1}", self.at_most(products)),
            if reading > multiplying { "memory" } else { "products" }.into(),
            format!("{:.0} %", 100.0 * self.of_limits(products)),
            format!("{:.1}", work.bytes as f64 * per_second / 1e9),
            format!("{:.0}", work.products as f64 * per_second / 1e9),
        ]
    }

    /// One row for each phase that took any time.
    fn phase_rows(&self, seconds: &[f64; Phase::COUNT]) -> Vec<Vec<String>> {
        let total: f64 = seconds.iter().sum();
        let cells = |(phase, &seconds): (Phase, &f64)| {
            let work = self.work(phase);
            let rate = |work: usize| match work {
                0 => String::new(),
                work => format!("{:.1}", work as f64 / seconds / 1e9),
            };
            vec![
                phase.name().into(),
                format!("{:.2}", 1e3 * seconds),
                format!("{:.1} %", 100.0 * seconds / total),
                rate(work.bytes),
                rate(work.products),
            ]
        };
        Phase::ALL.into_iter().zip(seconds).filter(|(_, s)| **s > 0.0).map(cells).collect()
    }
}

/// Returns the text below the table of speeds: limits and phases, if they were measured.
pub fn summary(rows: &[Row]) -> String {
    let mut text = String::new();
    let limits = rows.iter().filter_map(|row| Some(row.limit_cells(row.products?)));
    let limits: Vec<_> = limits.collect();
    if !limits.is_empty() {
        for group in rows.chunk_by(|a, b| a.threads == b.threads) {
            let [row @ Row { products: Some(products), .. }, ..] = group else { continue };
            text += &format!(
                "\n{} can multiply {:.0} G int8 a second in registers; a token takes {:.2} G\n",
                row.threads_label(),
                products / 1e9,
                row.work.iter().map(|work| work.products).sum::<usize>() as f64 / 1e9,
            );
        }
        text += &format!("\n{}", table(&LIMITS, &limits));
    }
    for row in rows {
        if let Some(phases) = &row.phases {
            let title = format!("\n{} on {}:\n\n", row.test.name(), row.threads_label());
            text += &(title + &table(&PHASES, &row.phase_rows(phases)));
        }
    }
    text
}

/// Returns the measurements as fields of an object.
pub fn fields(row: &Row) -> Map<String, Value> {
    let mut fields = Map::new();
    if let Some(products) = row.products {
        fields.insert("products_per_second".into(), json!(products));
        fields.insert("products_of_test".into(), json!(row.all_work().products));
        fields.insert("tokens_per_second_at_most".into(), json!(row.at_most(products)));
        fields.insert("fraction_of_limit".into(), json!(row.of_limits(products)));
    }
    if let Some(phases) = &row.phases {
        let named = Phase::ALL.into_iter().zip(phases).map(|(p, s)| (p.name().into(), json!(s)));
        fields.insert("phase_seconds".into(), Value::Object(named.collect()));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::super::measure::Kind;
    use super::super::report::squeezed;
    use super::super::speed::tests::row;
    use super::*;

    fn measured(kind: Kind, tokens: usize) -> Row {
        let mut work = [PhaseWork::default(); Phase::COUNT];
        work[Phase::Qkv as usize] = PhaseWork { products: 1_600_000_000, bytes: 400_000_000 };
        work[Phase::Head as usize] = PhaseWork { products: 100_000_000, bytes: 100_000_000 };
        let mut phases = [0.0; Phase::COUNT];
        (phases[Phase::Qkv as usize], phases[Phase::Head as usize]) = (0.3, 0.1);
        Row { work, products: Some(1e11), phases: Some(phases), ..row(kind, tokens) }
    }

    #[test]
    fn decoding_is_bound_by_memory_and_prompts_by_products() {
        let text = squeezed(&summary(&[measured(Kind::Generate, 2), measured(Kind::Prompt, 512)]));
        // 0.5 GB at 10 GB/s; 1.6 G products at 100 G/s, and a head for each of two passes.
        assert!(text.contains("| 2 | tg2 | 10.0 | 20.0 | memory | 50 % | 5.0 | 17 |"), "{text}");
        assert!(
            text.contains("| 2 | pp512 | 10.0 | 62.5 | products | 16 % | 0.0 | 16 |"),
            "{text}"
        );
        // Two tokens in 0.3 s.
        assert!(text.contains("| qkv | 300.00 | 75.0 % | 2.7 | 10.7 |"), "{text}");
        assert!(!text.contains("attention"), "{text}");
    }

    #[test]
    fn a_context_is_read_too() {
        let mut row = measured(Kind::Generate, 2);
        row.test.depth = 99;
        row.position_bytes = 1_000_000;
        assert_eq!(row.work(Phase::Attention).bytes, 201_000_000);
        assert!(squeezed(&summary(&[row])).contains("| 2 | tg2 @ d99 | 10.0 | 16.7 | memory |"));
    }

    #[test]
    fn what_was_not_measured_is_not_told() {
        let plain = Row { products: None, phases: None, ..measured(Kind::Generate, 2) };
        assert_eq!(
            (summary(std::slice::from_ref(&plain)), fields(&plain).len()),
            (String::new(), 0)
        );
        let fields = fields(&measured(Kind::Generate, 2));
        assert_eq!(fields["fraction_of_limit"], 0.5);
        assert_eq!(fields["phase_seconds"]["head"], 0.1);
    }
}
