//! Settings that `/set` changes during a conversation.

use clap::Parser;
use std::num::NonZeroUsize;
use wf_run_cli::config::DryArgs;
use wf_run_cli::exit::usage;
use wf_run_cli::parse::wrong_number;
use wrinklefree::decode::SamplingParams;
use wrinklefree::format::GenerationDefaults;
use wrinklefree::settings::Sampling;
use wrinklefree::text::Tokenizer;

/// Settings of sampling and the length of answers.
#[derive(Debug)]
pub struct ChatSettings {
    sampling: Sampling,
    dry: DryArgs,
    /// Recommendations of the model's authors.
    defaults: GenerationDefaults,
    /// Tokens of an answer.
    pub max_tokens: NonZeroUsize,
}

/// One setting, with the parser and the limits of its flag.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
struct One {
    #[command(flatten)]
    sampling: Sampling,
    #[command(flatten)]
    dry: DryArgs,
    #[arg(long)]
    max_tokens: Option<NonZeroUsize>,
}

impl ChatSettings {
    /// Takes the settings of the command line.
    pub fn new(
        (sampling, dry): (Sampling, DryArgs),
        defaults: GenerationDefaults,
        max_tokens: NonZeroUsize,
    ) -> Self {
        Self { sampling, dry, defaults, max_tokens }
    }

    /// Changes a setting.
    ///
    /// # Errors
    /// A message that says what is wrong with the name or the value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let flag = format!("--{}={value}", name.replace('_', "-"));
        let One { sampling: new, dry, max_tokens } =
            One::try_parse_from([flag]).map_err(|error| {
                let text = error.to_string();
                let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
                let reason = wrong_number(&error).unwrap_or_else(|| first.into());
                format!("{reason}; /set alone shows the settings")
            })?;
        let old = &mut self.sampling;
        old.temperature = new.temperature.or(old.temperature);
        old.top_k = new.top_k.or(old.top_k);
        old.top_p = new.top_p.or(old.top_p);
        old.min_p = new.min_p.or(old.min_p);
        old.typical_p = new.typical_p.or(old.typical_p);
        old.top_n_sigma = new.top_n_sigma.or(old.top_n_sigma);
        old.xtc_probability = new.xtc_probability.or(old.xtc_probability);
        old.xtc_threshold = new.xtc_threshold.or(old.xtc_threshold);
        old.mirostat = new.mirostat.or(old.mirostat);
        old.mirostat_tau = new.mirostat_tau.or(old.mirostat_tau);
        old.mirostat_eta = new.mirostat_eta.or(old.mirostat_eta);
        old.repetition_penalty = new.repetition_penalty.or(old.repetition_penalty);
        old.frequency_penalty = new.frequency_penalty.or(old.frequency_penalty);
        old.presence_penalty = new.presence_penalty.or(old.presence_penalty);
        old.logit_bias.extend(new.logit_bias);
        // The option has a default, so its value says nothing where another setting is changed.
        if name == "seed" {
            old.seed = new.seed;
        }
        self.dry = dry.or(&self.dry);
        self.max_tokens = max_tokens.unwrap_or(self.max_tokens);
        Ok(())
    }

    /// Takes other random numbers from now on.
    pub fn next_seed(&mut self) {
        self.sampling.seed = Some(self.sampling.seed.unwrap_or(0).wrapping_add(1));
    }

    /// Returns the parameters of sampling, with the recommendations of the model's authors.
    ///
    /// # Errors
    /// If an option of DRY is out of range.
    pub fn params(&self, tokenizer: &Tokenizer) -> anyhow::Result<SamplingParams> {
        let dry = self.dry.resolve(tokenizer).map_err(|invalid| usage(invalid.message))?;
        Ok(SamplingParams { dry, ..self.without_dry() })
    }

    fn without_dry(&self) -> SamplingParams {
        self.sampling.params(&self.defaults)
    }

    /// Returns a line for each setting.
    pub fn describe(&self) -> String {
        let p = self.without_dry();
        let mirostat = self.sampling.mirostat.unwrap_or(0);
        let dry = self.dry.dry_multiplier.unwrap_or(0.0);
        [
            ("temperature", p.temperature.to_string()),
            ("top_k", p.top_k.to_string()),
            ("top_p", p.top_p.to_string()),
            ("min_p", p.min_p.to_string()),
            ("typical_p", p.typical_p.to_string()),
            ("top_n_sigma", p.top_n_sigma.to_string()),
            ("xtc_probability", p.xtc_probability.to_string()),
            ("mirostat", mirostat.to_string()),
            ("dry_multiplier", dry.to_string()),
            ("repetition_penalty", p.repetition_penalty.to_string()),
            ("frequency_penalty", p.frequency_penalty.to_string()),
            ("presence_penalty", p.presence_penalty.to_string()),
            ("seed", p.seed.to_string()),
            ("max_tokens", self.max_tokens.to_string()),
        ]
        .map(|(name, value)| format!("{name:<19} {value}"))
        .join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_changes_and_others_stay() {
        let sampling = Sampling { temperature: Some(0.5), seed: Some(7), ..Sampling::default() };
        let most = NonZeroUsize::new(9).expect("not 0");
        let mut settings =
            ChatSettings::new((sampling, DryArgs::default()), GenerationDefaults::default(), most);
        settings.set("top-p", "0.25").expect("valid");
        settings.set("max_tokens", "4").expect("valid");
        settings.set("logit_bias", "3=-1").expect("valid");
        settings.set("mirostat", "2").expect("valid");
        settings.set("dry_multiplier", "0.5").expect("valid");
        let p = settings.without_dry();
        assert!(p.mirostat.is_some() && settings.dry.dry_multiplier == Some(0.5));
        assert_eq!((p.temperature, p.top_p, p.seed, settings.max_tokens.get()), (0.5, 0.25, 7, 4));
        assert_eq!(p.logit_bias, [(3, -1.0)]);
        settings.next_seed();
        assert!(settings.describe().contains("seed                8"), "{}", settings.describe());
    }

    #[test]
    fn wrong_settings_are_explained() {
        let most = NonZeroUsize::new(9).expect("not 0");
        let mut settings =
            ChatSettings::new(Default::default(), GenerationDefaults::default(), most);
        for (name, value, part) in [
            ("temperature", "-1", "not negative"),
            ("top_p", "2", "between 0 and 1"),
            ("color", "red", "--color"),
            ("max_tokens", "0", "'--max-tokens <MAX_TOKENS>': expected a whole number from 1"),
        ] {
            let error = settings.set(name, value).expect_err(name);
            assert!(error.contains(part), "{error}");
        }
        assert_eq!(settings.without_dry().temperature, 0.0);
    }
}
