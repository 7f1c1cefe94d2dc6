//! Options about decoding, merged with the configuration.

use super::Layers;
use crate::{open, out};
use clap::Args;
use std::path::PathBuf;
use wrinklefree::decode::DecodeMode;
use wrinklefree::settings::{Hole, ModelCapabilities, Settings, describe};

/// Options about decoding.
#[derive(Args, Clone, Debug)]
pub struct DecodeArgs {
    #[command(flatten)]
    settings: Settings,
    /// YAML file with settings [default: $WF_CONFIG]
    ///
    /// The file holds settings of all commands, as `wf-run serve --generate-config` prints it. The
    /// command line takes precedence over the file, and the file over the environment.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl DecodeArgs {
    /// Merges the command line, the configuration file and the environment.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let layers = Layers::read(self.config.as_deref())?;
        Ok(self.settings.clone().or(layers.settings()?))
    }

    /// Returns the settings of the command line alone.
    pub fn typed(&self) -> &Settings {
        &self.settings
    }

    /// Merges them for a command that compares decode modes: what chooses one of them counts on the command
    /// line alone.
    pub fn shared_by_modes(&self) -> anyhow::Result<Settings> {
        let Settings { decode_mode, selector, threshold, .. } = self.settings;
        Ok(Settings { decode_mode, selector, threshold, ..self.settings()? })
    }

    /// Returns these options with a decode mode that fills a hole.
    pub fn filling(self, hole: &Hole) -> anyhow::Result<Self> {
        let layers = Layers::read(self.config.as_deref())?;
        Ok(Self { settings: hole.settings(self.settings, &layers.settings()?)?, ..self })
    }

    /// Returns the mode for a model, and warns of options on the command line that it does not use.
    pub fn mode(&self, model: &ModelCapabilities<'_>) -> anyhow::Result<DecodeMode> {
        let settings = self.settings()?;
        let mode = settings.mode(model)?;
        open::warn(&settings.warnings(model, &mode));
        let unread = self.settings.diffusion_keys();
        if !unread.is_empty() && !matches!(mode, DecodeMode::Diffusion(_)) {
            out::note(format_args!(
                "warning: {} changes nothing here: it is for block diffusion, and the decode mode \
                 is {}",
                unread.join(", "),
                describe(&mode)
            ));
        }
        Ok(mode)
    }
}
