//! The configuration file: YAML, every key optional, unknown keys refused.

use crate::decoding::Settings;
use crate::exit::usage;
use serde::Deserialize;
use std::fs;
use std::path::Path;

/// A configuration file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How answers are decoded.
    pub dlm: Option<Settings>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// Names the file, and the line and key that are wrong.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let text = fs::read_to_string(path)
            .map_err(|e| usage(format!("cannot read the configuration {name}: {e}")))?;
        Self::parse(&text).map_err(|e| usage(format!("the configuration {name}: {e}")))
    }

    fn parse(text: &str) -> Result<Self, String> {
        serde_saphyr::from_str(text).map_err(|error| {
            let hint = meant(&error).map(|key| format!("; did you mean `{key}`?"));
            // The first line says it all; the others show the place.
            let message = error.without_snippet().to_string();
            message + &hint.unwrap_or_default()
        })
    }
}

/// The known key or value that a wrong one was probably meant to be.
fn meant(error: &serde_saphyr::Error) -> Option<&'static str> {
    use serde_saphyr::Error::{SerdeUnknownField, SerdeUnknownVariant};
    let (wrong, known) = match error.without_snippet() {
        SerdeUnknownField { field, expected, .. } => (field, expected),
        SerdeUnknownVariant { variant, expected, .. } => (variant, expected),
        _ => return None,
    };
    let typos = |key: &&str| strsim::damerau_levenshtein(wrong, key);
    let best = known.iter().copied().min_by_key(typos)?;
    (typos(&best) <= 1 + wrong.len() / 5).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decoding::{Commit, Mode, Selector};

    #[test]
    fn every_key_of_the_dlm_section() {
        let config = Config::parse(
            "dlm:\n  decode_mode: adaptive\n  block_size: 16\n  small_block_size: 4\n  \
             threshold: 0.7\n  mask_token_id: null\n  selector: topk\n  slots_per_pass: 3\n  \
             factor: 2\n  entropy_bound: 0.5\n  block_attention: causal\n  logit_shift: 0\n  \
             sub_block_cache: true\n  commit: fused\n  row_cost: 0.25\n  draft: ngram\n  draft_length: 5\n",
        );
        let dlm = config.expect("valid").dlm.expect("there");
        assert_eq!((dlm.decode_mode, dlm.block_size), (Some(Mode::Adaptive), Some(16)));
        assert_eq!((dlm.threshold, dlm.mask_token_id), (Some(0.7), None));
        assert_eq!((dlm.commit, dlm.selector), (Some(Commit::Fused), Some(Selector::Topk)));
        let said = Settings { threshold: Some(0.5), ..Settings::default() }.over(dlm);
        assert_eq!((said.threshold, said.small_block_size), (Some(0.5), Some(4)));
        for empty in ["", "dlm:\n", "# nothing\n", "dlm: {}\n"] {
            assert!(Config::parse(empty).is_ok(), "{empty:?}");
        }
    }

    #[test]
    fn errors_name_line_key_and_what_was_meant() {
        for (text, parts) in [
            ("dlm:\n  treshold: 1\n", &["line 2", "`treshold`", "did you mean `threshold`?"][..]),
            ("dml:\n  threshold: 1\n", &["line 1", "`dml`", "did you mean `dlm`?"]),
            ("dlm:\n  decode_mode: gredy\n", &["line 2", "did you mean `greedy`?"]),
            ("dlm:\n  threshold: high\n", &["line 2", "floating point"]),
            ("dlm:\n  block_size: -1\n", &["line 2"]),
            ("dlm:\n  draft_length: 0\n", &["zero"]),
            ("dlm: [\n", &["line 1"]),
        ] {
            let error = Config::parse(text).expect_err(text);
            for part in parts {
                assert!(error.contains(part), "{part}: {error}");
            }
            assert_eq!(error.lines().count(), 1, "{error}");
        }
        let error = Config::parse("dlm:\n  xyz: 1\n").expect_err("unknown");
        assert!(!error.contains("did you mean") && error.contains("threshold"), "{error}");
    }
}
