//! `prism.hadamard.*`: the declaration that matrices are stored in a rotated basis (PrismML's Bonsai-2,
//! versions 1 and 2). A model computed without its rotation gives plausible garbage, so a declaration
//! that is not understood whole is refused.

use super::meta::Metadata;
use crate::format::index::TensorIndex;
use crate::format::recipe::{TensorNames, TensorRole};
use crate::format::{Architecture, LoadError, LoadErrorKind as Kind, Rotation, Spec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(super) const PREFIX: &str = "prism.hadamard.";
const KEYS: [&str; 11] = [
    "version",
    "block_size",
    "transform",
    "axis",
    "sign_mode",
    "weight_names",
    "sign_widths",
    "sign_values",
    "inverse_weight_names",
    "gdn_v_grouped",
    "tied_output",
];
/// Matrices of a block that may be folded. All others read their inputs as they are.
const FOLDABLE: [&str; 10] = [
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_qkv",
    "attn_gate",
    "attn_output",
    "ssm_out",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
];

/// Rotations of a file's tensors.
#[derive(Default)]
pub(super) struct Rotations {
    /// Names of the rotated tensors, the embeddings among them.
    names: BTreeSet<String>,
    /// Rotation of each input width: signs belong to a width, not to a tensor.
    by_width: BTreeMap<usize, Arc<Rotation>>,
    /// Names of rotated tensors in blocks that draft tokens, which is not supported.
    pub(super) drafting: BTreeSet<String>,
}

impl Rotations {
    /// Reads the declaration, if there is one. It also says how the model orders value heads.
    pub(super) fn read(
        meta: &Metadata<'_>,
        spec: &mut Spec,
        index: &TensorIndex,
    ) -> Result<Self, LoadError> {
        let Some(first) = meta.values.keys().find(|k| k.starts_with(PREFIX)) else {
            return refuse_folded_name(meta).map(|()| Self::default());
        };
        let applied = matches!(
            spec.architecture,
            Architecture::Llama | Architecture::Qwen3 | Architecture::Qwen35
        );
        if !applied {
            let want = format!("no `{first}` in a {:?} model", spec.architecture);
            return Err(LoadError::new(Kind::UnsupportedFeature, meta.file, want, "it")
                .advice("rotated weights are supported in llama, qwen3 and qwen35 files"));
        }
        let declaration = Declaration { meta, index };
        declaration.check_keys()?;
        let (table, folded) = (declaration.table()?, declaration.folded(spec.layers)?);
        if let Some(name) = folded.iter().find(|name| table.contains(*name)) {
            return Err(declaration.bad("inverse_weight_names", "without folded matrices", name));
        }
        declaration.check_version(!table.is_empty())?;
        if declaration.bool("gdn_v_grouped")? {
            let Some(shape) = &mut spec.linear_attention else {
                let want = "only in models with linear attention";
                return Err(declaration.bad("gdn_v_grouped", want, true));
            };
            shape.output_grouped = true;
        }
        let listed = declaration.names("weight_names")?.unwrap_or_default();
        let drafting = listed.difference(&folded).cloned().collect();
        let names = &folded | &table;
        let by_width = declaration.rotations(&names)?;
        Ok(Self { names, by_width, drafting })
    }

    /// The rotation of a tensor with `width` inputs.
    pub(super) fn of(&self, name: &str, width: usize) -> Option<Arc<Rotation>> {
        self.names.contains(name).then(|| self.by_width[&width].clone())
    }

    /// Notes that a part of a tensor got a name of its own.
    pub(super) fn split(&mut self, whole: &str, part: &str) {
        if self.names.contains(whole) {
            self.names.insert(part.into());
        }
    }
}

/// Refuses a file whose name says that its weights are folded, while the declaration is lost: some
/// programs drop it when they quantize a file again.
fn refuse_folded_name(meta: &Metadata<'_>) -> Result<(), LoadError> {
    for key in ["general.name", "general.basename"] {
        let name = meta.text(key)?.unwrap_or_default();
        let lower = name.to_lowercase();
        if lower.contains("folded") && !lower.contains("unfolded") {
            let want = format!("`{PREFIX}version` and its other keys, because `{key}` is {name:?}");
            return Err(LoadError::new(Kind::Missing, meta.file, want, "none of them")
                .advice("the file lost its rotation; use the file that it was made from"));
        }
    }
    Ok(())
}

/// The keys of a file and the tensors that they name.
struct Declaration<'a> {
    meta: &'a Metadata<'a>,
    index: &'a TensorIndex,
}

impl Declaration<'_> {
    fn bad(&self, key: &str, want: impl AsRef<str>, found: impl ToString) -> LoadError {
        let want = format!("`{PREFIX}{key}` {}", want.as_ref());
        LoadError::new(Kind::Value, self.meta.file, want, found.to_string())
    }

    fn need<T>(&self, key: &str, value: Option<T>) -> Result<T, LoadError> {
        self.meta.need(&format!("{PREFIX}{key}"), value)
    }

    fn bool(&self, key: &str) -> Result<bool, LoadError> {
        Ok(self.meta.bool(&format!("{PREFIX}{key}"))?.unwrap_or(false))
    }

    fn size(&self, key: &str) -> Result<usize, LoadError> {
        self.need(key, self.meta.size(&format!("{PREFIX}{key}"))?)
    }

    fn text(&self, key: &str, known: &[&str]) -> Result<String, LoadError> {
        let value = self.need(key, self.meta.text(&format!("{PREFIX}{key}"))?)?;
        if known.contains(&value) {
            Ok(value.into())
        } else {
            Err(self.bad(key, known.join(" or "), format!("{value:?}")))
        }
    }

    fn names(&self, key: &str) -> Result<Option<BTreeSet<String>>, LoadError> {
        let Some(list) = self.meta.texts(&format!("{PREFIX}{key}"))? else { return Ok(None) };
        let mut names = BTreeSet::new();
        for name in list {
            if let Some(twice) = names.replace(name) {
                return Err(self.bad(key, "with every name once", format!("{twice:?} twice")));
            }
        }
        Ok(Some(names))
    }

    /// Refuses unknown keys and unknown values.
    fn check_keys(&self) -> Result<(), LoadError> {
        self.size("version")?;
        for key in self.meta.values.keys().filter_map(|k| k.strip_prefix(PREFIX)) {
            if !KEYS.contains(&key) {
                let want = format!("only the keys {}", KEYS.join(", "));
                let found = format!("`{PREFIX}{key}`");
                return Err(LoadError::new(Kind::UnsupportedFeature, self.meta.file, want, found));
            }
        }
        self.text("transform", &["normalized-sylvester-walsh-hadamard"])?;
        self.text("axis", &["input-last-dimension"])?;
        match self.size("block_size")? {
            n if n.is_power_of_two() => Ok(()),
            n => Err(self.bad("block_size", "a power of two", n)),
        }
    }

    /// Checks what a version says about the head. `table` is true if the embeddings are rotated.
    fn check_version(&self, table: bool) -> Result<(), LoadError> {
        let head = TensorNames::GGUF.weight(TensorRole::Head);
        let (tied, separate) = (self.bool("tied_output")?, self.index.get(&head).is_some());
        let rotated = "with the embeddings in `inverse_weight_names`";
        match (self.size("version")?, tied) {
            (1, false) if table && !separate => {
                let want =
                    format!("without the embeddings, which are also the head: {head} is absent");
                Err(self.bad("inverse_weight_names", want, "them"))
            }
            (1, false) => Ok(()),
            (1, true) => Err(self.bad("tied_output", "false in version 1", true)),
            (2, false) => Err(self.bad("tied_output", "true in version 2", "false or none")),
            (2, true) if separate => {
                Err(self.bad("tied_output", format!("without {head}"), "that tensor"))
            }
            (2, true) if !table => Err(self.bad("tied_output", rotated, "none there")),
            (2, true) => Ok(()),
            (other, _) => Err(self.bad("version", "1 or 2", other)),
        }
    }

    /// Names of the embeddings, if they are rotated.
    fn table(&self) -> Result<BTreeSet<String>, LoadError> {
        let key = "inverse_weight_names";
        let (table, names) = (TensorNames::GGUF.weight(TensorRole::Embed), self.names(key)?);
        match names.iter().flatten().find(|name| **name != table) {
            Some(other) => Err(self.bad(key, format!("of {table} alone"), format!("{other:?}"))),
            None => Ok(names.unwrap_or_default()),
        }
    }

    /// Names of the folded matrices of a model of `layers` blocks. Names of blocks after them, which
    /// draft tokens, are left out.
    fn folded(&self, layers: usize) -> Result<BTreeSet<String>, LoadError> {
        let key = "weight_names";
        let mut names = self.need(key, self.names(key)?)?;
        if names.is_empty() {
            return Err(self.bad(key, "of at least one matrix", "none"));
        }
        let head = TensorNames::GGUF.weight(TensorRole::Head);
        for name in names.iter().filter(|name| **name != head) {
            if block_and_role(name).is_none_or(|(_, role)| !FOLDABLE.contains(&role)) {
                let want = format!("of {head} and blk.N.{}", FOLDABLE.join(", "));
                return Err(self.bad(key, want, format!("{name:?}")));
            }
        }
        names.retain(|name| block_and_role(name).is_none_or(|(block, _)| block < layers));
        match names.iter().find(|name| self.index.get(name).is_none()) {
            Some(name) => Err(self.bad(key, "of tensors in the file", format!("{name:?}"))),
            None => Ok(names),
        }
    }

    /// The rotations of the widths that the named tensors have.
    fn rotations(
        &self,
        names: &BTreeSet<String>,
    ) -> Result<BTreeMap<usize, Arc<Rotation>>, LoadError> {
        let block = self.size("block_size")?;
        let mut signs = self.signs()?;
        let mut by_width = BTreeMap::new();
        for name in names {
            let width = self.index.get(name).and_then(|t| t.shape.last().copied());
            let width =
                width.ok_or_else(|| self.bad("weight_names", "of tensors in the file", name))?;
            if by_width.contains_key(&width) {
                continue;
            }
            if !width.is_multiple_of(block) {
                let want = format!("a divisor of the {width} inputs of {name}");
                return Err(self.bad("block_size", want, block));
            }
            let signs = match &mut signs {
                None => None,
                Some(signs) => Some(signs.remove(&width).ok_or_else(|| {
                    self.bad("sign_widths", format!("with {width}, for {name}"), "none")
                })?),
            };
            by_width.insert(width, Arc::new(Rotation { block, signs }));
        }
        Ok(by_width)
    }

    /// Signs by input width; `None` if all are 1.
    fn signs(&self) -> Result<Option<BTreeMap<usize, Vec<f32>>>, LoadError> {
        let integers =
            |key: &str, unsigned| self.meta.integers(&format!("{PREFIX}{key}"), unsigned);
        let (widths, values) = (integers("sign_widths", true)?, integers("sign_values", false)?);
        if self.text("sign_mode", &["identity", "explicit"])? == "identity" {
            if let Some(other) = values.iter().flatten().find(|&&v| v != 1) {
                return Err(self.bad("sign_values", "absent or 1: `sign_mode` is identity", other));
            }
            return Ok(None);
        }
        let (widths, values) =
            (self.need("sign_widths", widths)?, self.need("sign_values", values)?);
        if widths.is_empty() {
            return Err(self.bad("sign_widths", "of at least one width", "none"));
        }
        if let Some(other) = values.iter().find(|v| v.abs() != 1) {
            return Err(self.bad("sign_values", "of 1 and -1", other));
        }
        let (mut signs, mut rest) = (BTreeMap::new(), &values[..]);
        for &width in &widths {
            let size = usize::try_from(width).ok().filter(|&n| n > 0);
            let size = size.ok_or_else(|| self.bad("sign_widths", "of positive widths", width))?;
            let Some((own, others)) = rest.split_at_checked(size) else {
                let total: i64 = widths.iter().sum();
                return Err(self.bad("sign_values", format!("of {total} signs"), values.len()));
            };
            rest = others;
            if signs.insert(size, own.iter().map(|&s| s as f32).collect()).is_some() {
                return Err(self.bad(
                    "sign_widths",
                    "with every width once",
                    format!("{size} twice"),
                ));
            }
        }
        match rest.len() {
            0 => Ok(Some(signs)),
            more => Err(self.bad(
                "sign_values",
                format!("of {} signs", values.len() - more),
                values.len(),
            )),
        }
    }
}

/// Number and role of a block's tensor: `blk.3.attn_q.weight` is 3 and `attn_q`.
fn block_and_role(name: &str) -> Option<(usize, &str)> {
    let (block, role) = name.strip_prefix("blk.")?.split_once('.')?;
    Some((block.parse().ok()?, role.strip_suffix(".weight")?))
}
