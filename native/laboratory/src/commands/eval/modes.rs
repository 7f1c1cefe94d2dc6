//! Parts of commands that run the same prompts in several decode modes.

use crate::eval::agreement::Run;
use crate::eval::prompts::Prompt;
use clap::ValueEnum;
use wf_run_cli::exit::usage;
use wf_run_cli::{out, progress};
use wrinklefree::cache::KvConfig;
use wrinklefree::decode::{DecodeMode, SamplingParams};
use wrinklefree::engine::Engine;
use wrinklefree::model::Runtime;
use wrinklefree::settings::{Mode, Settings};
use wrinklefree_easy::models::Loaded;
use wrinklefree_easy::models::engine::SingleSequence;

/// Options that list decode modes.
#[derive(clap::Args)]
pub struct ModesArgs {
    /// Modes to compare
    ///
    /// [default: those that the model can decode in, and variants of them]
    #[arg(long, value_name = "MODE,…", value_enum, value_delimiter = ',')]
    modes: Vec<Mode>,
    /// Thresholds of `iterative` and `adaptive`
    #[arg(long, value_name = "P,…", value_delimiter = ',', default_value = "0.5,0.7,0.9")]
    thresholds: Vec<f32>,
}

/// Settings that name a mode and nothing else.
pub fn said(mode: Mode) -> Settings {
    Settings { decode_mode: Some(mode), ..Settings::default() }
}

impl ModesArgs {
    /// Refuses what chooses one mode where several are compared.
    pub fn check(&self, typed: &Settings) -> anyhow::Result<()> {
        if typed.decode_mode.is_some() || typed.threshold.is_some() {
            return Err(usage(
                "decode_mode and threshold choose one: --modes and --thresholds list those to \
                 compare",
            ));
        }
        match self.thresholds.iter().find(|&&t| !(t > 0.0 && t <= 1.0)) {
            Some(wrong) => {
                Err(usage(format!("threshold must be above 0 and at most 1, but is {wrong}")))
            }
            None => Ok(()),
        }
    }

    /// The modes of the table. Where the user has not listed any they are those of `default`, and
    /// those of them that contradict the settings are left out.
    pub fn list(
        &self,
        said: &Settings,
        loaded: &Loaded,
        default: fn(&Self, &Loaded) -> Vec<Settings>,
    ) -> anyhow::Result<Vec<DecodeMode>> {
        let rows = if self.modes.is_empty() {
            default(self, loaded)
        } else {
            self.modes.iter().flat_map(|&mode| self.each(mode)).collect()
        };
        let mut modes = Vec::new();
        for row in rows {
            match row.clone().or(said.clone()).mode(&loaded.capabilities()) {
                Ok(mode) if modes.contains(&mode) => {}
                Ok(mode) => modes.push(mode),
                Err(error) if !self.modes.is_empty() => return Err(error.into()),
                Err(error) => {
                    let mode = row.decode_mode.unwrap_or_default();
                    let name =
                        mode.to_possible_value().map_or_else(String::new, |v| v.get_name().into());
                    out::note(format_args!("warning: left out {name}: {error:#}"));
                }
            }
        }
        if modes.is_empty() { Err(usage("no mode is left to compare")) } else { Ok(modes) }
    }

    /// A mode, with every threshold where it has one.
    pub fn each(&self, mode: Mode) -> Vec<Settings> {
        match mode {
            Mode::Iterative | Mode::Adaptive => {
                let with = |&t: &f32| Settings { threshold: Some(t), ..said(mode) };
                self.thresholds.iter().map(with).collect()
            }
            _ => vec![said(mode)],
        }
    }
}

/// An engine that answers prompts in several modes.
pub struct Bench {
    engine: Engine,
    max_tokens: usize,
    eos: Vec<u32>,
}

impl Bench {
    /// One with room for these prompts and so many tokens after them.
    pub fn new(
        loaded: Loaded,
        runtime: Runtime,
        kv: KvConfig,
        prompts: &[Prompt],
        (max_tokens, modes): (usize, &[DecodeMode]),
    ) -> anyhow::Result<Self> {
        let longest = prompts.iter().map(|p| p.tokens.len()).max().unwrap_or(0);
        let positions = longest.saturating_add(max_tokens);
        let context = positions.min(loaded.model.spec().context_length);
        let Loaded { model, tokenizer, defaults, .. } = loaded;
        let engine = SingleSequence { context, kv, modes }.engine(model, tokenizer, runtime)?;
        Ok(Self { engine, max_tokens, eos: defaults.eos })
    }

    /// Runs the prompts in each mode: prompt by prompt through all modes, so that a noisy
    /// minute meets them all.
    pub fn answers<'a>(
        &mut self,
        prompts: impl ExactSizeIterator<Item = (&'a Prompt, SamplingParams)>,
        modes: &[DecodeMode],
    ) -> anyhow::Result<Vec<Run>> {
        let bar = progress::bar(prompts.len() * modes.len());
        let limits = (self.max_tokens, &self.eos[..]);
        let mut runs = vec![Run::default(); modes.len()];
        for (prompt, sampling) in prompts {
            for (run, mode) in runs.iter_mut().zip(modes) {
                run.answer(&mut self.engine, mode, (prompt, sampling.clone()), limits)?;
                bar.inc(1);
            }
        }
        bar.finish_and_clear();
        Ok(runs)
    }
}
