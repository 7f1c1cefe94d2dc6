//! Speeds as a table or as records, with the limits of the machine below.

use super::report::Record;
use super::roofline;
use super::speed::Row;
use serde_json::{Value, json};
use wf_run_cli::{human, kernels};

/// Largest share of the mean that the standard deviation may be for a speed to say something.
const LARGEST_SPREAD: f64 = 0.1;

impl Record for Row {
    const COLUMNS: &[&str] = &["model", "size:", "params:", "backend", "threads:", "test", "t/s:"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.model.clone(),
            human::bytes(self.size_bytes),
            human::count(self.parameters),
            self.isa.name().into(),
            self.threads.to_string(),
            self.test.name(),
            format!("{:.2} ± {:.2}", self.mean(), self.deviation()),
        ]
    }

    fn label(&self) -> String {
        format!("{}, {}", self.test.name(), self.threads_label())
    }

    fn fields(&self) -> Value {
        let mut fields = json!({
            "model": self.model,
            "size_bytes": self.size_bytes,
            "parameters": self.parameters,
            "backend": self.isa.name(),
            "backend_chosen": kernels::why(self.isa),
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

    /// The share of the memory's limit that decoding reached, and other measurements.
    fn summary(rows: &[Self]) -> String {
        let Some(first) = rows.first() else { return String::new() };
        let mut text = format!("\nkernels: {}, {}\n", first.isa.name(), kernels::why(first.isa));
        for group in rows.chunk_by(|a, b| a.threads == b.threads) {
            let Some(row) = group.first() else { continue };
            let reached = group.iter().filter_map(|r| {
                Some(format!("; {} reaches {:.2} of it", r.test.name(), r.of_limit()?))
            });
            text += &format!(
                "\n{} can read {:.1} GB/s; a token reads {:.3} GB of weights: at most {:.1} \
                 t/s{}\n",
                row.threads_label(),
                row.bandwidth / 1e9,
                row.bytes_per_token() as f64 / 1e9,
                row.limit(),
                reached.collect::<String>(),
            );
        }
        for row in rows.iter().filter(|row| row.spread() > LARGEST_SPREAD) {
            text += &format!(
                "\n{}, {}: the repetitions differ by ± {:.0} %, so this speed says little: other \
                 programs disturb it; try again on a quiet machine, or with a larger -r\n",
                row.test.name(),
                row.threads_label(),
                row.spread() * 100.0
            );
        }
        text + &roofline::summary(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::super::measure::Kind;
    use super::super::report::{Format, Report};
    use super::super::speed::tests::row;
    use super::*;

    fn all(format: Format) -> String {
        let rows = [row(Kind::Prompt, 512), row(Kind::Generate, 128)];
        Report::text(format, rows)
    }

    #[test]
    fn markdown() {
        let text = all(Format::Md);
        assert!(
            text.contains("| 1.0 GiB | 2.00 B | scalar  |       2 | tg128 | 10.00 ± 1.00 |"),
            "{text}"
        );
        assert!(text.ends_with(
            "\n2 threads can read 10.0 GB/s; a token reads 0.500 GB of weights: at most 20.0 t/s; \
             tg128 reaches 0.50 of it\n"
        ));
    }

    #[test]
    fn speeds_that_say_little_are_named() {
        let noisy = Row { samples: vec![5.0, 10.0, 15.0], ..row(Kind::Generate, 128) };
        let text = Report::text(Format::Md, [row(Kind::Prompt, 512), noisy]);
        let warning =
            "\ntg128, 2 threads: the repetitions differ by ± 50 %, so this speed says little";
        assert!(text.contains(warning) && !text.contains("pp512, 2 threads:"), "{text}");
    }

    #[test]
    fn json_and_lines_parse() {
        let array: Vec<Value> = serde_json::from_str(&all(Format::Json)).expect("an array");
        let lines = all(Format::Jsonl);
        let lines: Result<Vec<Value>, _> = lines.lines().map(serde_json::from_str).collect();
        assert_eq!(array, lines.expect("objects"));
        assert_eq!(array[1]["fraction_of_bandwidth_limit"], 0.5);
        for name in ["cpu", "version", "commit"] {
            assert!(array[0][name].as_str().is_some_and(|text| !text.is_empty()), "{name}");
        }
        let date = array[0]["date"].as_str().expect("a date");
        assert!(date.starts_with("20") && date.len() == 20 && date.ends_with('Z'), "{date}");
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
