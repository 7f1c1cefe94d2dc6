//! RoPE scaling: more positions than the model was trained for.

use anyhow::ensure;
use std::str::FromStr;
use wrinklefree::format::{RopeScaling, Spec, YarnScaling};
use wrinklefree::model::Model;

/// A rule for scaling positions that replaces the one of the model's files.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RopeRule {
    /// No scaling.
    None,
    /// Divides positions by this factor.
    Linear(f64),
    /// The base θ grows so that the slowest dimension is interpolated and the fastest is not:
    /// θ · F^(d / (d − 2)), "NTK-aware" interpolation (arXiv 2309.00071, section 3.1).
    Ntk(f64),
    /// YaRN with the paper's constants.
    Yarn(f64),
}

impl FromStr for RopeRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rule, factor) = text.split_once(':').unwrap_or((text, ""));
        let factor = f64::from_str(factor).ok().filter(|f| (1.0..=1024.0).contains(f));
        match (rule, factor) {
            ("none", _) if text == rule => Ok(Self::None),
            ("linear", Some(f)) => Ok(Self::Linear(f)),
            ("ntk", Some(f)) => Ok(Self::Ntk(f)),
            ("yarn", Some(f)) => Ok(Self::Yarn(f)),
            ("linear" | "ntk" | "yarn", None) => {
                Err(format!("expected a factor from 1 to 1024, as in {rule}:2"))
            }
            _ => Err("expected none, linear:F, ntk:F or yarn:F".into()),
        }
    }
}

impl RopeRule {
    /// Replaces the scaling of a model; its context length grows with it. Queries that grow with their
    /// position keep doing so.
    ///
    /// # Errors
    /// If the model has such queries and the rule is linear.
    pub fn apply(self, spec: &mut Spec) -> anyhow::Result<()> {
        let original = spec.original_context();
        let query_beta = match &spec.rope.scaling {
            Some(RopeScaling::Yarn(s)) => s.query_beta,
            _ => 0.0,
        };
        ensure!(
            query_beta == 0.0 || !matches!(self, Self::Linear(_)),
            "rope_scaling linear: the queries of this model grow with their position, which linear \
             scaling does not keep: use yarn:F, ntk:F or none"
        );
        let (scaling, factor) = match self {
            Self::None => (None, 1.0),
            Self::Linear(factor) => (Some(RopeScaling::Linear(factor)), factor),
            Self::Ntk(factor) => {
                let width = spec.head_dim as f64;
                spec.rope.theta *= factor.powf(width / (width - 2.0));
                (None, factor)
            }
            Self::Yarn(factor) => {
                (Some(RopeScaling::Yarn(YarnScaling::new(factor, original))), factor)
            }
        };
        spec.rope.scaling = scaling;
        if query_beta != 0.0 {
            spec.rope.scaling = Some(self.with_growing_queries(original, query_beta));
        }
        spec.context_length = (original as f64 * factor) as usize;
        Ok(())
    }
}

impl RopeRule {
    /// The rule as a case of YaRN, which alone has queries that grow with their position: a factor of 1
    /// leaves frequencies as they are. Cosines and sines are not scaled, as in the model.
    fn with_growing_queries(self, original: usize, query_beta: f64) -> RopeScaling {
        let plain = |factor| YarnScaling {
            attention_factor: 1.0,
            query_beta,
            ..YarnScaling::new(factor, original)
        };
        RopeScaling::Yarn(match self {
            Self::Yarn(factor) => plain(factor),
            _ => plain(1.0),
        })
    }
}

/// Allows texts of so many positions. Returns a note that names the list of factors which a model with
/// LongRoPE takes for them.
pub fn allow(model: Model, positions: usize) -> (Model, Option<String>) {
    let model = model.with_context(positions);
    let note = model.has_long_rope().map(|long| {
        let (list, relation) = if long { ("long", "more than") } else { ("short", "at most") };
        let original = model.spec().original_context();
        format!(
            "LongRoPE takes its {list} factors for every text: {positions} positions are allowed, \
             {relation} the {original} of the original model"
        )
    });
    (model, note)
}

/// Returns a warning if there are more positions than the model was trained for.
pub fn beyond(positions: usize, spec: &Spec) -> Option<String> {
    let known = spec.context_length;
    (positions > known).then(|| {
        format!(
            "a context of {positions} positions, but the model was trained for {known} (with its \
             RoPE scaling): what comes after them may make no sense"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::Synthetic;

    #[test]
    fn rules_are_read_and_others_named() {
        for (text, want) in [
            ("none", RopeRule::None),
            ("linear:2", RopeRule::Linear(2.0)),
            ("ntk:1.5", RopeRule::Ntk(1.5)),
            ("yarn:4", RopeRule::Yarn(4.0)),
        ] {
            assert_eq!(text.parse(), Ok(want), "{text}");
        }
        for text in ["", "none:2", "none:", "dynamic:2", "YARN:2"] {
            let error = RopeRule::from_str(text).expect_err(text);
            assert!(error.contains("none, linear:F, ntk:F or yarn:F"), "{error}");
        }
        for text in ["yarn", "yarn:", "linear:0.5", "ntk:-2", "yarn:x", "yarn:NaN", "yarn:1e9"] {
            let error = RopeRule::from_str(text).expect_err(text);
            assert!(error.contains("a factor from 1 to 1024"), "{error}");
        }
    }

    #[test]
    fn a_rule_replaces_that_of_the_files_and_extends_the_original_context() {
        let plain = Synthetic::Tiny.loaded().model.spec().clone();
        let (theta, trained) = (plain.rope.theta, plain.context_length);
        let with = |rule: RopeRule, mut spec: Spec| {
            rule.apply(&mut spec).expect("it applies");
            spec
        };
        let yarn = with(RopeRule::Yarn(4.0), plain.clone());
        let want = RopeScaling::Yarn(YarnScaling::new(4.0, trained));
        assert_eq!((yarn.rope.scaling.as_ref(), yarn.context_length), (Some(&want), 4 * trained));
        let linear = with(RopeRule::Linear(2.0), yarn.clone());
        assert_eq!(linear.rope.scaling, Some(RopeScaling::Linear(2.0)));
        assert_eq!(linear.context_length, 2 * trained, "not of what YaRN had stretched");
        assert_eq!(with(RopeRule::None, yarn), plain);
        let ntk = with(RopeRule::Ntk(2.0), plain.clone());
        let slowest = |theta: f64| theta.powf(2.0 / plain.head_dim as f64 - 1.0);
        let ratio = slowest(theta) / slowest(ntk.rope.theta);
        assert!((ratio - 2.0).abs() < 1e-9, "the slowest pair turns half as fast: {ratio}");
        assert_eq!((ntk.rope.scaling, ntk.context_length), (None, 2 * trained));
    }

    #[test]
    fn queries_that_grow_with_their_position_keep_doing_so() {
        let spec = growing();
        let Some(RopeScaling::Yarn(own)) = &spec.rope.scaling else { panic!("YaRN") };
        for (rule, factor) in
            [(RopeRule::None, 1.0), (RopeRule::Ntk(2.0), 1.0), (RopeRule::Yarn(4.0), 4.0)]
        {
            let mut other = spec.clone();
            rule.apply(&mut other).expect("it applies");
            let want = YarnScaling { factor, ..own.clone() };
            assert_eq!(other.rope.scaling, Some(RopeScaling::Yarn(want)), "{rule:?}");
        }
        let error = RopeRule::Linear(2.0).apply(&mut spec.clone()).expect_err("refused");
        assert!(error.to_string().contains("use yarn:F, ntk:F or none"), "{error}");
    }

    /// The spec of a model whose queries grow with their position.
    fn growing() -> Spec {
        let mut spec = Synthetic::Tiny.loaded().model.spec().clone();
        let yarn = YarnScaling::new(16.0, 256);
        let yarn = YarnScaling { attention_factor: 1.0, query_beta: 0.1, ..yarn };
        spec.rope.scaling = Some(RopeScaling::Yarn(yarn));
        spec
    }

    #[test]
    fn the_warning_names_both_lengths() {
        let spec = Synthetic::Tiny.loaded().model.spec().clone();
        assert_eq!(beyond(4096, &spec), None);
        let said = beyond(5000, &spec).expect("a warning");
        for part in ["5000", "4096"] {
            assert!(said.contains(part), "{said}");
        }
    }
}
