//! Numbers and tables for people.

use std::time::SystemTime;
use unicode_width::UnicodeWidthStr;

/// Formats bytes in binary units: `417.3 MiB`.
pub fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{n} B") } else { format!("{value:.1} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Formats a count in decimal units: `2.41 B`.
pub fn count(n: u64) -> String {
    match n as f64 {
        v if v >= 1e9 => format!("{:.2} B", v / 1e9),
        v if v >= 1e6 => format!("{:.2} M", v / 1e6),
        v if v >= 1e3 => format!("{:.1} K", v / 1e3),
        _ => n.to_string(),
    }
}

/// Formats the time since `time` in its largest unit: `3 days`.
pub fn age(time: SystemTime) -> String {
    let seconds = time.elapsed().map_or(0, |age| age.as_secs());
    let units = [(86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second")];
    let (length, unit) =
        units.into_iter().find(|(length, _)| seconds >= *length).unwrap_or((1, "second"));
    let count = seconds / length;
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// Returns the number of columns that a text takes in a terminal.
pub fn width(text: &str) -> usize {
    text.width()
}

/// Formats rows of cells as aligned columns, two spaces apart; the first row is the heading.
pub fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| rows.iter().filter_map(|r| r.get(c)).map(|s| width(s)).max();
    let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, &w)| {
            let space = w - self::width(cell);
            format!("{cell}{:space$}", "")
        });
        text += cells.collect::<Vec<_>>().join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn units() {
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(5 << 40), "5.0 TiB");
        assert_eq!(count(999), "999");
        assert_eq!(count(2_412_820_480), "2.41 B");
    }

    #[test]
    fn ages() {
        let ago = |seconds| age(SystemTime::now() - Duration::from_secs(seconds));
        assert_eq!((ago(0), ago(61)), ("0 seconds".into(), "1 minute".into()));
        assert_eq!((ago(7200), ago(86_400 * 3)), ("2 hours".into(), "3 days".into()));
    }

    #[test]
    fn columns_line_up() {
        let rows = [vec!["a".into(), "b".into()], vec!["long".into(), "c".into()]];
        assert_eq!(table(&rows), "a     b\nlong  c\n");
        let wide = [vec!["模型".into(), "b".into()], vec!["abcde".into(), "c".into()]];
        assert_eq!(table(&wide), "模型   b\nabcde  c\n");
    }
}
