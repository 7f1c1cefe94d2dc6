//! Time that a model stays in memory without requests.

use serde::{Deserialize, Deserializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Longest time that is not forever: what is longer cannot be told from it.
const LONGEST: f64 = 3e9;

/// Time that a model stays in memory without requests, as Ollama writes it: `5m`, seconds, or a negative
/// number for forever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive(pub Option<Duration>);

impl FromStr for KeepAlive {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let seconds = text.parse().ok().or_else(|| with_units(text));
        let seconds = seconds.filter(|seconds: &f64| seconds.is_finite());
        match seconds {
            Some(seconds) if !(0.0..=LONGEST).contains(&seconds) => Ok(Self(None)),
            Some(seconds) => Ok(Self(Some(Duration::from_secs_f64(seconds)))),
            None => Err("expected a time such as 30s, 5m or 1h, seconds, or -1 for forever".into()),
        }
    }
}

/// Returns the seconds of a time with units, as Go writes it: `90s`, `1h30m`, `-1m`.
fn with_units(text: &str) -> Option<f64> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];
    let (sign, mut rest) = text.strip_prefix('-').map_or((1.0, text), |rest| (-1.0, rest));
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let end = rest.find(char::is_alphabetic)?;
        let (name, factor) = units.iter().find(|(name, _)| rest[end..].starts_with(name))?;
        seconds += rest[..end].parse::<f64>().ok()? * factor;
        rest = &rest[end + name.len()..];
    }
    (!text.is_empty()).then_some(sign * seconds)
}

impl fmt::Display for KeepAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(time) => write!(f, "{}s", time.as_secs_f64()),
            None => f.write_str("-1"),
        }
    }
}

impl<'de> Deserialize<'de> for KeepAlive {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a time such as \"5m\", or seconds")]
        enum Given {
            Seconds(f64),
            Text(String),
        }
        let text = match Given::deserialize(json)? {
            Given::Seconds(seconds) => seconds.to_string(),
            Given::Text(text) => text,
        };
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let time = |text: &str| text.parse::<KeepAlive>().map(|keep| keep.0);
        let seconds = |n| Ok(Some(Duration::from_secs_f64(n)));
        assert_eq!(time("5m"), seconds(300.0));
        assert_eq!(time("1.5h"), seconds(5400.0));
        assert_eq!((time("250ms"), time("1h30m")), (seconds(0.25), seconds(5400.0)));
        assert_eq!(time("30"), seconds(30.0));
        assert_eq!(time("0"), seconds(0.0));
        assert_eq!(
            (time("-1"), time("-1s"), time("99999999999999999999h")),
            (Ok(None), Ok(None), Ok(None))
        );
        for wrong in ["", "m", "five", "5 minutes", "nan", "inf"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
        let json = |text| serde_json::from_str::<KeepAlive>(text).map(|keep| keep.0);
        assert_eq!(json("\"5m\"").ok(), Some(Some(Duration::from_secs(300))));
        assert_eq!(json("-1").ok(), Some(None));
        assert!(json("true").is_err());
    }
}
