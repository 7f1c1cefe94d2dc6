//! Opening models from the command line: with progress on the terminal, and warnings printed.

use super::args::ModelArgs;
use super::out;
use super::progress::Progress;
use super::suggest::opening;
use crate::models::chat_prompt::hears_system;
use crate::models::{self, Loaded, Opened, Placement};
use std::ffi::OsStr;
use wrinklefree::format::LoadOptions;
use wrinklefree::model::{Model, Runtime};
use wrinklefree::text::ChatTemplate;

/// Prints warnings on standard error.
pub fn warn(warnings: &[String]) {
    for warning in warnings {
        out::note(format_args!("warning: {warning}"));
    }
}

/// Warns if the chat template ignores system messages.
pub fn warn_unheard(template: &ChatTemplate) {
    if !hears_system(template) {
        out::note("warning: the chat template of this model leaves system messages out");
    }
}

/// Reads a checkpoint from a path or a hub id, or the embedded one, without copying its weights, and with
/// the block for multi-token prediction.
///
/// # Errors
/// As [`models::checkpoint`].
pub fn checkpoint(
    model: Option<&OsStr>,
    revision: &str,
    runtime: &Runtime,
) -> anyhow::Result<Opened> {
    let (progress, load) = (&mut Progress::default(), LoadOptions { mtp: true });
    models::checkpoint(model, revision, Placement::Mapped, load, runtime, progress).map_err(opening)
}

impl ModelArgs {
    /// Opens the model that these options name, with its text parts, and with its block for multi-token
    /// prediction if `mtp` is true.
    ///
    /// # Errors
    /// As [`Loaded::open`].
    pub fn open(&self, mtp: bool, runtime: &Runtime) -> anyhow::Result<Loaded> {
        let loaded = Loaded::open(&self.options(mtp), runtime, &mut Progress::default());
        let loaded = loaded.map_err(opening)?;
        warn(&loaded.warnings);
        Ok(loaded)
    }

    /// Opens the model that these options name: its name, and the model without its text parts.
    ///
    /// # Errors
    /// If it cannot be found, read or run.
    pub fn open_weights(&self, runtime: &Runtime) -> anyhow::Result<(String, Model)> {
        let opened = self.options(false).open_weights(runtime, &mut Progress::default());
        let (name, model, warnings) = opened.map_err(opening)?;
        warn(&warnings);
        Ok((name, model))
    }

    /// Prepares a model that is in memory already for `runtime`.
    pub fn prepare(&self, loaded: Loaded, runtime: &Runtime) -> Loaded {
        let loaded = loaded.prepared(&self.options(false), runtime);
        warn(&loaded.warnings);
        loaded
    }
}
