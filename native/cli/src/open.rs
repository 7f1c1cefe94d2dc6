//! Opening models from the command line: with progress on the terminal, and warnings printed.

use super::args::{DrafterArgs, ModelArgs};
use super::out;
use super::progress::Progress;
use super::suggest::opening;
use std::ffi::OsStr;
use wrinklefree::format::LoadOptions;
use wrinklefree::model::Runtime;
use wrinklefree::settings::Settings;
use wrinklefree::text::ChatTemplate;
use wrinklefree_easy::models::chat_prompt::hears_system;
use wrinklefree_easy::models::{
    self, Loaded, OpenOptions, Opened, OpenedWeights, Placement, Synthetic, weight_sizes,
};

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
    /// Opens the model that these options name, with its text parts, and with what may draft for it with
    /// these settings: the drafter that is named, or its block for multi-token prediction.
    ///
    /// # Errors
    /// As [`Loaded::open`].
    pub fn open(
        &self,
        drafting: Option<(&Settings, &DrafterArgs)>,
        runtime: &Runtime,
    ) -> anyhow::Result<Loaded> {
        let drafter = drafting.map(|(_, drafter)| drafter.options()).transpose()?.flatten();
        let settings = drafting.map(|(settings, _)| settings);
        let options = OpenOptions {
            drafter: drafter
                .clone()
                .filter(|_| settings.is_some_and(Settings::may_use_draft_model)),
            ..self.options(settings.is_some_and(Settings::may_use_mtp) && drafter.is_none())
        };
        let loaded = Loaded::open(&options, runtime, &mut Progress::default());
        let loaded = loaded.map_err(opening)?;
        warn(&loaded.warnings);
        Ok(loaded)
    }

    /// Opens the model that these options name, or a synthetic one, without its text parts.
    ///
    /// # Errors
    /// If it cannot be found, read or run.
    pub fn open_weights(
        &self,
        synthetic: Option<Synthetic>,
        runtime: &Runtime,
    ) -> anyhow::Result<OpenedWeights> {
        if let Some(shape) = synthetic {
            let loaded = shape.loaded();
            let stored_bytes = weight_sizes::bytes(loaded.model.weights());
            let Loaded { name, model, .. } = self.prepare(loaded, runtime);
            return Ok(OpenedWeights { name, model, stored_bytes, warnings: Vec::new() });
        }
        let opened = self.options(false).open_weights(runtime, &mut Progress::default());
        let opened = opened.map_err(opening)?;
        warn(&opened.warnings);
        Ok(opened)
    }

    /// Prepares a model that is in memory already for `runtime`.
    pub fn prepare(&self, loaded: Loaded, runtime: &Runtime) -> Loaded {
        let loaded = loaded.prepared(&self.options(false), runtime);
        warn(&loaded.warnings);
        loaded
    }
}
