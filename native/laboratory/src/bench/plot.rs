//! Results as bars in an SVG file.

use anyhow::Context;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use wf_run_cli::atomic_file::Draft;
use wf_run_cli::provenance;

/// A measured value.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The thing that was measured.
    pub label: String,
    /// The value; not negative.
    pub value: f64,
    /// Unit of the value.
    pub unit: &'static str,
}

/// Sizes in pixels.
const LINE: usize = 26;
const LABELS: usize = 320;
const LONGEST: usize = 380;
const WIDTH: usize = LABELS + LONGEST + 160;

/// Draws bars in a file, which may exist.
pub fn write(path: &Path, title: &str, bars: &[Bar]) -> anyhow::Result<()> {
    let mut file = Draft::new(path, true)?;
    file.write_all(svg(title, bars).as_bytes())
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.keep()
}

/// Draws bars below each other, those of a unit to one scale.
fn svg(title: &str, bars: &[Bar]) -> String {
    let height = (bars.len() + 3) * LINE;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"{LINE}\" font-weight=\"bold\">{}</text>\n",
        escaped(title)
    );
    for (i, Bar { label, value, unit }) in bars.iter().enumerate() {
        let of_unit = bars.iter().filter(|bar| bar.unit == *unit).map(|bar| bar.value);
        let most = of_unit.fold(f64::MIN_POSITIVE, f64::max);
        let (top, long) = ((i + 1) * LINE + 10, (value / most * LONGEST as f64).round());
        let (base, right) = (top + 15, LABELS as f64 + long + 6.0);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LABELS}\" y=\"{top}\" width=\"{long}\" height=\"20\" fill=\"#3b7dd8\"/>\
             <text x=\"{right}\" y=\"{base}\">{} {unit}</text>",
            LABELS - 8,
            escaped(label),
            short(*value),
        );
    }
    let about: Vec<String> =
        provenance::fields().values().filter_map(|v| v.as_str().map(escaped)).collect();
    let _ = writeln!(
        text,
        "<text x=\"10\" y=\"{}\" fill=\"#666\" font-size=\"11\">{}</text>\n</svg>",
        height - LINE / 2,
        about.join(" · ")
    );
    text
}

fn short(value: f64) -> String {
    if value >= 100.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_of_a_unit_have_one_scale() {
        let bar = |label: &str, value, unit| Bar { label: label.into(), value, unit };
        let text =
            svg("a < b", &[bar("x&y", 50.0, "t/s"), bar("z", 200.0, "t/s"), bar("p", 3.0, "nats")]);
        for part in [
            "a &lt; b",
            "x&amp;y",
            "width=\"95\"",
            "width=\"380\"",
            "50.00 t/s",
            "200 t/s",
            "3.00 nats",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(text.matches("width=\"380\"").count(), 2, "the longest of each unit");
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
    }
}
