//! Assembles a drafter from its tensors.

use super::{DraftRole, Layer, LayerRole, TensorRole, TensorSource};
use crate::format::drafter::{DrafterWeights, MarkovWeights};
use crate::format::{Linear, LoadError, MixerKind, Spec};

/// Reads all tensors of a drafter; those of the conditioning if it is `conditioned`. A vocabulary of 0 is
/// that of its head or of its Markov head, and is set so. A head has a row for each of the `target_ids`, if
/// there are any.
pub(in crate::format) fn assemble_drafter(
    spec: &mut Spec,
    conditioned: bool,
    (target_ids, mask_row): (Option<Vec<u32>>, Option<Vec<f32>>),
    source: &mut impl TensorSource,
) -> Result<DrafterWeights, LoadError> {
    let hidden = spec.hidden_size;
    let at = TensorRole::Draft;
    let own = [TensorRole::Embed, TensorRole::Head, at(DraftRole::MarkovPrevious)];
    let of_model = |role: &TensorRole| target_ids.is_none() || *role != TensorRole::Head;
    if let Some(&rows) =
        own.into_iter().filter(of_model).find_map(|role| source.shape(role)?.first())
        && spec.vocab_size == 0
    {
        spec.vocab_size = rows;
    }
    let vocab = spec.vocab_size;
    let predicted = target_ids.as_ref().map_or(vocab, Vec::len);
    let input = whole(source, at(DraftRole::Input), Some(hidden))?;
    let hidden_norm = source.floats(at(DraftRole::HiddenNorm), &[hidden])?;
    let mut layers = Vec::new();
    for layer in 0..spec.layers {
        let role = &|role: LayerRole| TensorRole::Layer(layer, role);
        let source = &mut *source;
        let (mixer, head_norms, sub_norms) = (MixerKind::Attention, true, false);
        let spec = &*spec;
        layers.push(Layer { spec, source, mixer, head_norms, sub_norms, role }.assemble()?);
    }
    let final_norm = source.floats(TensorRole::FinalNorm, &[hidden])?;
    let embed =
        if source.has(TensorRole::Embed) { Some(source.embed(vocab, hidden)?.0) } else { None };
    let head = if source.has(TensorRole::Head) || target_ids.is_some() {
        Some(source.linear(TensorRole::Head, predicted, hidden)?)
    } else {
        None
    };
    let markov = if source.has(at(DraftRole::MarkovPrevious)) {
        let previous = whole(source, at(DraftRole::MarkovPrevious), Some(vocab))?.weight;
        let next = source.linear(at(DraftRole::MarkovNext), predicted, previous.cols())?;
        Some(MarkovWeights { previous, next })
    } else {
        None
    };
    let rank = markov.as_ref().map_or(0, |markov| markov.previous.cols());
    let confidence = if source.has(at(DraftRole::Confidence)) {
        Some(source.linear(at(DraftRole::Confidence), 1, hidden + rank)?)
    } else {
        None
    };
    let log_snr = if conditioned {
        let first = whole(source, at(DraftRole::LogSnr1), None)?;
        let second = source.linear(at(DraftRole::LogSnr2), hidden, first.weight.rows())?;
        Some([first, second])
    } else {
        None
    };
    Ok(DrafterWeights {
        input,
        hidden_norm,
        layers,
        final_norm,
        embed,
        mask_row,
        head,
        target_ids,
        markov,
        confidence,
        log_snr,
    })
}

/// Reads a matrix whose width the file decides, and its number of rows too unless it is given.
fn whole(
    source: &mut impl TensorSource,
    role: TensorRole,
    rows: Option<usize>,
) -> Result<Linear, LoadError> {
    let (found, cols) = match source.shape(role) {
        Some(&[rows, cols]) => (rows, cols),
        // The error names the tensor.
        _ => (1, 1),
    };
    source.linear(role, rows.unwrap_or(found), cols)
}
