//! Models in several files.
//!
//! The parts of a split model are numbered (`split.no` of `split.count`). The first one has the model's
//! metadata, and each has tensors of its own.

use super::keys::ARCHITECTURE;
use super::meta::Metadata;
use super::parse::{Tensors, block, trunk_blocks};
use crate::format::{LoadError, LoadErrorKind as Kind};

/// Architecture of the vision encoders that lie next to a model.
const VISION: &str = "clip";

/// A parsed file.
pub(super) struct Part<'a> {
    pub(super) meta: Metadata<'a>,
    pub(super) tensors: Tensors,
}

impl Part<'_> {
    fn architecture(&self) -> Result<Option<&str>, LoadError> {
        self.meta.text(ARCHITECTURE)
    }

    /// Its number and the number of parts.
    fn place(&self) -> Result<(usize, usize), LoadError> {
        let count = self.meta.size("split.count")?.unwrap_or(1).max(1);
        let number = self.meta.size("split.no")?.unwrap_or(0);
        if number < count {
            return Ok((number, count));
        }
        let want = format!("`split.no` below `split.count`, which is {count}");
        Err(LoadError::new(Kind::Value, self.meta.file, want, number.to_string()))
    }
}

/// Joins the parts of a model: returns the metadata of the first one, and all tensors.
pub(super) fn join(parts: Vec<Part<'_>>) -> Result<(Metadata<'_>, Tensors), LoadError> {
    let mut vision = None;
    let mut placed = Vec::new();
    for part in parts {
        if part.architecture()? == Some(VISION) {
            vision = Some(part.meta.file);
        } else {
            placed.push((part.place()?, part));
        }
    }
    placed.sort_by_key(|(place, _)| *place);
    let mut parts = placed.into_iter();
    let Some(((number, count), Part { meta, mut tensors })) = parts.next() else {
        let want = "a language model";
        return Err(LoadError::new(
            Kind::NotAModel,
            vision.unwrap_or("model"),
            want,
            "a vision encoder (mmproj)",
        )
        .advice("name the model's own GGUF file; images are not supported"));
    };
    let file = meta.file;
    let trunk = trunk_blocks(&meta)?;
    let drafts = |name: &str| block(name).zip(trunk).is_some_and(|(block, trunk)| block >= trunk);
    let missing = |number: usize, found: &str| {
        let want = format!("part {} of {count}", number + 1);
        LoadError::new(Kind::Missing, file, want, found)
            .advice("put all parts into one folder, or name all of them")
    };
    if number != 0 {
        return Err(missing(0, &format!("part {} first", number + 1)));
    }
    let mut seen = 1;
    for (place, mut part) in parts {
        if count == 1 || place.1 != count {
            let found = format!("also {}", part.meta.file);
            return Err(LoadError::new(Kind::NotAModel, file, "one GGUF model", found)
                .advice("name one of them"));
        }
        if place.0 != seen {
            return Err(missing(seen, &format!("part {} ({})", place.0 + 1, part.meta.file)));
        }
        seen += 1;
        // Only the first part says which blocks draft tokens.
        for tensor in part.tensors.index.drain() {
            match &mut tensors.mtp {
                Ok(mtp) if drafts(&tensor.name) => mtp.insert(tensor)?,
                Err(_) if drafts(&tensor.name) => {}
                _ => tensors.index.insert(tensor)?,
            }
        }
    }
    if seen < count {
        return Err(missing(seen, "no such file"));
    }
    Ok((meta, tensors))
}
