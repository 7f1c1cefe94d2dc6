//! Numbers of bytes.

use std::fmt;
use std::str::FromStr;

/// A number of bytes: `800000000`, `800M`, `8G` or `8GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let units =
            [("KIB", 10), ("MIB", 20), ("GIB", 30), ("TIB", 40)].map(|(n, b)| (n, 1u64 << b));
        let decimal = [("KB", 1_000), ("MB", 1_000_000), ("GB", 1_000_000_000)];
        let short = [("K", 1 << 10), ("M", 1 << 20), ("G", 1 << 30), ("T", 1 << 40), ("", 1)];
        let upper = text.trim().to_ascii_uppercase();
        let mut all = units.into_iter().chain(decimal).chain(short);
        let bytes = all.find_map(|(unit, factor)| {
            let number: f64 = upper.strip_suffix(unit)?.trim().parse().ok()?;
            let bytes = number * factor as f64;
            (1.0..1e18).contains(&bytes).then_some(bytes as u64)
        });
        bytes.map(Self).ok_or("expected a number of bytes, such as 800M or 8G".into())
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let bytes = |text: &str| text.parse().map(|Bytes(n)| n);
        assert_eq!(bytes("1000"), Ok(1000));
        assert_eq!((bytes("2k"), bytes("2 KiB"), bytes("2KB")), (Ok(2048), Ok(2048), Ok(2000)));
        assert_eq!(bytes("1.5G"), Ok(3 << 29));
        for wrong in ["", "G", "-1G", "0", "1e30", "much", "8X"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
