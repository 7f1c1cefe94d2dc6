//! `prism.hadamard.*`: the declaration of rotated matrices.

use super::container::MetaWriter;
use crate::format::gguf::hadamard::PREFIX;
use crate::format::{ExportError, Rotation, Spec};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rotated tensors of a model.
#[derive(Default)]
pub(super) struct Declaration<'a> {
    /// Names of rotated matrices.
    weights: Vec<String>,
    /// Name of the embeddings, if they are rotated.
    table: Option<String>,
    /// Rotation of each input width.
    by_width: BTreeMap<usize, &'a Arc<Rotation>>,
}

impl<'a> Declaration<'a> {
    /// Notes the rotation of a matrix of `width` inputs.
    pub(super) fn weight(
        &mut self,
        name: &str,
        width: usize,
        rotation: &'a Arc<Rotation>,
    ) -> Result<(), ExportError> {
        self.weights.push(name.into());
        self.width(name, width, rotation)
    }

    /// Notes the rotation of the embeddings.
    pub(super) fn table(
        &mut self,
        name: &str,
        width: usize,
        rotation: &'a Arc<Rotation>,
    ) -> Result<(), ExportError> {
        self.table = Some(name.into());
        self.width(name, width, rotation)
    }

    fn width(
        &mut self,
        name: &str,
        width: usize,
        rotation: &'a Arc<Rotation>,
    ) -> Result<(), ExportError> {
        let known = *self.by_width.entry(width).or_insert(rotation);
        if known == rotation && self.by_width.values().all(|other| other.block == rotation.block) {
            return Ok(());
        }
        Err(ExportError::unsupported(
            name,
            "one block size, and the same signs for all matrices of one input width",
            "others",
            "GGUF declares signs by width",
        ))
    }

    /// Adds the keys; none for a model without rotations. `tied` is true if the embeddings are the head.
    pub(super) fn put(
        &self,
        meta: &mut MetaWriter,
        spec: &Spec,
        tied: bool,
    ) -> Result<(), ExportError> {
        let Some(first) = self.by_width.values().next() else { return Ok(()) };
        if self.weights.is_empty() {
            return Err(ExportError::unsupported(
                "rotations",
                "a rotated matrix",
                "rotated embeddings alone",
                "GGUF has no declaration for it",
            ));
        }
        let key = |name: &str| format!("{PREFIX}{name}");
        let tied = tied && self.table.is_some();
        meta.size(&key("version"), if tied { 2 } else { 1 });
        meta.size(&key("block_size"), first.block);
        meta.text(&key("transform"), "normalized-sylvester-walsh-hadamard");
        meta.text(&key("axis"), "input-last-dimension");
        let explicit = self.by_width.values().any(|rotation| rotation.signs.is_some());
        meta.text(&key("sign_mode"), if explicit { "explicit" } else { "identity" });
        if explicit {
            let widths: Vec<i32> = self.by_width.keys().map(|&width| width as i32).collect();
            meta.integers(&key("sign_widths"), &widths);
            let signs = |(&width, rotation): (&usize, &&Arc<Rotation>)| match &rotation.signs {
                Some(signs) => signs.iter().map(|&sign| sign as i32).collect(),
                None => vec![1; width],
            };
            let values: Vec<i32> = self.by_width.iter().flat_map(signs).collect();
            meta.integers(&key("sign_values"), &values);
        }
        meta.texts(&key("weight_names"), &self.weights);
        if let Some(table) = &self.table {
            meta.texts(&key("inverse_weight_names"), &[table]);
        }
        if spec.linear_attention.as_ref().is_some_and(|shape| shape.output_grouped) {
            meta.bool(&key("gdn_v_grouped"), true);
        }
        if tied {
            meta.bool(&key("tied_output"), true);
        }
        Ok(())
    }
}
