//! Opens a drafter next to a model.

use super::fit::MemoryNeed;
use super::source::{self, Source};
use super::{OpenError, Placement, Progress};
use std::ffi::OsString;
use wrinklefree::format::{DraftLayout, DrafterCheckpoint, load_drafter};
use wrinklefree::loader::WeightLoader;
use wrinklefree::model::{Model, Runtime};
use wrinklefree::par::Bound;

/// A drafter (DFlash, DSpark) to open with a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrafterOptions {
    /// A path or a hub id.
    pub model: OsString,
    /// Tokens that its rows predict, instead of what its files state or let conclude.
    pub layout: Option<DraftLayout>,
}

/// A drafter that was read.
pub struct OpenedDrafter {
    /// Name in output.
    pub name: String,
    /// Everything that its files hold, in the memory of this process.
    pub checkpoint: DrafterCheckpoint,
}

impl DrafterOptions {
    /// Reads the drafter. The threads of `runtime` copy its weights.
    ///
    /// # Errors
    /// If its files cannot be found, downloaded, read or understood, or a weight is not finite.
    pub fn open(
        &self,
        runtime: &Runtime,
        progress: &mut dyn Progress,
    ) -> Result<OpenedDrafter, OpenError> {
        let (model, placement) = (Some(self.model.as_os_str()), Placement::Mapped);
        let Source { name, files, mapped } = source::open(model, "main", placement, progress)?;
        let shown = || self.model.to_string_lossy().into_owned();
        let size = files.iter().map(|file| file.bytes.len() as u64).sum();
        let need = MemoryNeed { weights: size, ..MemoryNeed::default() };
        need.check().map_err(|source| OpenError::Memory { model: shown(), source })?;
        progress.loading(&name);
        let checkpoint = runtime.thread_pool.run(Bound::Memory, |scope| {
            let loader = &mut WeightLoader::new(scope, &mapped);
            let mut checkpoint = load_drafter(files, loader)?;
            checkpoint.weights.relocate(loader);
            match self.layout {
                Some(layout) => checkpoint.with_layout(layout),
                None => Ok(checkpoint),
            }
        });
        let checkpoint =
            checkpoint.map_err(|source| OpenError::Format { model: shown(), source })?;
        progress.loaded();
        Ok(OpenedDrafter { name, checkpoint })
    }

    /// Adds the drafter to its model. Returns also a warning if its layout is not stated.
    ///
    /// # Errors
    /// As [`open`](Self::open), or if it does not fit the model.
    pub fn add_to(
        &self,
        model: Model,
        runtime: &Runtime,
        progress: &mut dyn Progress,
    ) -> Result<(Model, Option<String>), OpenError> {
        let OpenedDrafter { name, checkpoint } = self.open(runtime, progress)?;
        let config = &checkpoint.config;
        let concluded =
            (!config.layout_stated).then(|| format!("the drafter {name}: {}", config.describe()));
        let model = model.with_drafter(checkpoint);
        let model = model.map_err(|source| OpenError::Weights { model: name, source })?;
        Ok((model, concluded))
    }
}
