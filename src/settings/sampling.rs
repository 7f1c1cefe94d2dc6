//! Settings of sampling.

use crate::decode::{Mirostat, MirostatVersion, SamplingParams};
use crate::format::GenerationDefaults;
use serde::Deserialize;

/// Settings of sampling. Unset values are those that the model's authors recommend, else off.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
#[cfg_attr(feature = "clap", command(next_help_heading = "Sampling"))]
#[serde(default)]
pub struct Sampling {
    /// Temperature; 0 takes the most likely token
    #[cfg_attr(feature = "clap", arg(long, value_name = "T", value_parser = at_least_zero, allow_negative_numbers = true))]
    pub temperature: Option<f32>,
    /// Keep the K most likely tokens; 0: all
    #[cfg_attr(feature = "clap", arg(long, value_name = "K"))]
    pub top_k: Option<usize>,
    /// Keep the most likely tokens up to P together
    ///
    /// Nucleus sampling: keeps the smallest set of tokens whose cumulative probability is at least
    /// P.
    #[cfg_attr(feature = "clap", arg(long, value_name = "P", value_parser = fraction))]
    pub top_p: Option<f32>,
    /// Drop tokens below P × the most likely one
    #[cfg_attr(feature = "clap", arg(long, value_name = "P", value_parser = fraction))]
    pub min_p: Option<f32>,
    /// Keep tokens near the entropy, up to P together
    ///
    /// Locally typical sampling: keeps the tokens whose surprise is nearest to the entropy.
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, value_name = "P", value_parser = fraction))]
    pub typical_p: Option<f32>,
    /// Keep logits within N standard deviations
    ///
    /// Top-nσ sampling: of all logits, counted from the highest one; 0: all.
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, value_name = "N", value_parser = at_least_zero, allow_negative_numbers = true))]
    pub top_n_sigma: Option<f32>,
    /// Probability to remove the most likely tokens
    ///
    /// XTC ("exclude top choices"): removes all tokens of at least the threshold but the last of them.
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, value_name = "P", value_parser = fraction))]
    pub xtc_probability: Option<f32>,
    /// Probability of the tokens that XTC removes [default: 0.1]
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, value_name = "P", value_parser = fraction))]
    pub xtc_threshold: Option<f32>,
    /// Keep the surprise near a target: 1, 2; 0: off
    ///
    /// Mirostat, of this version. The model's recommended filters are off then.
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, value_name = "VERSION", value_parser = clap::value_parser!(u8).range(0..=2)))]
    pub mirostat: Option<u8>,
    /// Target of Mirostat in bits [default: 5]
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, value_name = "BITS", value_parser = at_least_zero, allow_negative_numbers = true))]
    pub mirostat_tau: Option<f32>,
    /// Rate of Mirostat [default: 0.1]
    #[cfg_attr(feature = "clap", arg(long, hide_short_help = true, value_name = "RATE", value_parser = at_least_zero, allow_negative_numbers = true))]
    pub mirostat_eta: Option<f32>,
    /// Make repeated tokens less likely; 1: off
    ///
    /// Holds for tokens that occurred in the prompt or the answer.
    #[cfg_attr(feature = "clap", arg(long, value_name = "X", value_parser = positive, allow_negative_numbers = true))]
    pub repetition_penalty: Option<f32>,
    /// Subtract X per earlier occurrence
    #[cfg_attr(feature = "clap", arg(long, value_name = "X", value_parser = finite, allow_negative_numbers = true))]
    pub frequency_penalty: Option<f32>,
    /// Subtract X from tokens that occurred
    #[cfg_attr(feature = "clap", arg(long, value_name = "X", value_parser = finite, allow_negative_numbers = true))]
    pub presence_penalty: Option<f32>,
    /// Add BIAS to the logit of ID; repeatable
    ///
    /// -inf bans the token.
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID=BIAS", value_parser = bias))]
    pub logit_bias: Vec<(u32, f32)>,
    /// Same seed, same output
    #[cfg_attr(feature = "clap", arg(long, value_name = "N", default_value = "0"))]
    pub seed: Option<u64>,
}

impl Sampling {
    /// Resolves the settings, with a model's recommendations for unset values. Without a seed it is 0: a shell
    /// that wants another output each time draws one.
    pub fn params(&self, model: &GenerationDefaults) -> SamplingParams {
        let off = SamplingParams::default();
        let repetition = self.repetition_penalty.or(model.repetition_penalty);
        let mirostat = self.mirostat();
        // Mirostat replaces the filters that a model's authors recommend.
        let (top_k, top_p) = match mirostat {
            Some(_) => (None, None),
            None => (model.top_k, model.top_p),
        };
        SamplingParams {
            temperature: self.temperature.or(model.temperature).unwrap_or(off.temperature),
            top_k: self.top_k.or(top_k).unwrap_or(off.top_k),
            top_p: self.top_p.or(top_p).unwrap_or(off.top_p),
            min_p: self.min_p.unwrap_or(off.min_p),
            typical_p: self.typical_p.unwrap_or(off.typical_p),
            top_n_sigma: self.top_n_sigma.unwrap_or(off.top_n_sigma),
            xtc_probability: self.xtc_probability.unwrap_or(off.xtc_probability),
            xtc_threshold: self.xtc_threshold.unwrap_or(off.xtc_threshold),
            mirostat,
            repetition_penalty: repetition.unwrap_or(off.repetition_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(off.frequency_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(off.presence_penalty),
            logit_bias: self.logit_bias.clone(),
            seed: self.seed.unwrap_or(off.seed),
            ..off
        }
    }

    fn mirostat(&self) -> Option<Mirostat> {
        let version = match self.mirostat? {
            0 => return None,
            1 => MirostatVersion::One,
            _ => MirostatVersion::Two,
        };
        let default = Mirostat::default();
        Some(Mirostat {
            version,
            target: self.mirostat_tau.unwrap_or(default.target),
            rate: self.mirostat_eta.unwrap_or(default.rate),
        })
    }
}

#[cfg(feature = "clap")]
fn number(text: &str, fits: impl Fn(f32) -> bool, want: &str) -> Result<f32, String> {
    match text.parse() {
        Ok(x) if fits(x) => Ok(x),
        _ => Err(format!("expected {want}")),
    }
}

#[cfg(feature = "clap")]
fn finite(text: &str) -> Result<f32, String> {
    number(text, f32::is_finite, "a number")
}

#[cfg(feature = "clap")]
fn at_least_zero(text: &str) -> Result<f32, String> {
    number(text, |x| x.is_finite() && x >= 0.0, "a number that is not negative")
}

#[cfg(feature = "clap")]
fn positive(text: &str) -> Result<f32, String> {
    number(text, |x| x.is_finite() && x > 0.0, "a positive number")
}

#[cfg(feature = "clap")]
fn fraction(text: &str) -> Result<f32, String> {
    number(text, |x| (0.0..=1.0).contains(&x), "a number between 0 and 1")
}

#[cfg(feature = "clap")]
fn bias(text: &str) -> Result<(u32, f32), String> {
    let (id, bias) = text.split_once('=').ok_or("expected ID=BIAS, for example 42=-1.5")?;
    let id = id.parse().map_err(|_| format!("{id:?} is not a token id"))?;
    let bans = |x: f32| x == f32::NEG_INFINITY;
    Ok((id, number(bias, |x| x.is_finite() || bans(x), "a number, or -inf to ban the token")?))
}

#[cfg(all(test, feature = "clap"))]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        args: Sampling,
    }

    fn parse(args: &[&str]) -> Result<Sampling, clap::Error> {
        Only::try_parse_from([&["x"], args].concat()).map(|o| o.args)
    }

    #[test]
    fn flags_beat_the_model_and_the_model_beats_off() {
        let model = GenerationDefaults {
            temperature: Some(0.6),
            top_p: Some(0.9),
            ..GenerationDefaults::default()
        };
        let args = parse(&["--temperature", "0", "--logit-bias", "7=-2.5"]).expect("valid");
        let params = args.params(&model);
        assert_eq!((params.temperature, params.top_p, params.top_k), (0.0, 0.9, 0));
        assert_eq!(params.logit_bias, [(7, -2.5)]);
        let args = parse(&["--mirostat", "1", "--mirostat-tau", "3"]).expect("valid");
        let params = args.params(&model);
        let mirostat = Mirostat { version: MirostatVersion::One, target: 3.0, rate: 0.1 };
        assert_eq!((params.mirostat, params.top_p), (Some(mirostat), 1.0));
    }

    #[test]
    fn nonsense_is_refused() {
        for args in [
            ["--temperature", "-1"],
            ["--temperature", "NaN"],
            ["--top-p", "1.5"],
            ["--min-p", "x"],
            ["--typical-p", "-1"],
            ["--mirostat", "3"],
            ["--repetition-penalty", "0"],
            ["--frequency-penalty", "inf"],
            ["--logit-bias", "7"],
            ["--logit-bias", "7=inf"],
            ["--logit-bias", "7=NaN"],
            ["--logit-bias", "-1=2"],
            ["--seed", "-3"],
        ] {
            assert!(parse(&args).is_err(), "{args:?}");
        }
    }
}
