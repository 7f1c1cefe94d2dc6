//! Two checkpoints hold the same model.

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use wf_run_laboratory::logits;
use wf_run_laboratory::tensors::{Compared, compare};
use wrinklefree::format::{Checkpoint, GenerationDefaults, Spec, TextParts};
use wrinklefree::matrix::Matrix;
use wrinklefree::model::{Model, Runtime};
use wrinklefree::text::Tokenizer;
use wrinklefree_easy::models::weight_sizes::linears;

/// Tokens of the probe.
const PROBE: usize = 16;

/// Compares shapes and every number after unpacking.
pub fn weights(want: &Checkpoint, found: &Checkpoint) -> anyhow::Result<Exported> {
    ensure!(want.spec == found.spec, "shape: {:?} became {:?}", want.spec, found.spec);
    ensure!(want.generation == found.generation, "generation defaults changed");
    ensure!(want.dlm == found.dlm, "diffusion parameters changed");
    let all = compare(&want.weights, &found.weights);
    if let Some((name, difference)) = all.iter().find_map(Compared::changed) {
        bail!("{name}: {}", difference.what);
    }
    activations(want, found)?;
    Ok(Exported { same: all.len(), rounded: Vec::new() })
}

/// Checks that every matrix gets the activations that it had. Float matrices ignore them.
fn activations(want: &Checkpoint, found: &Checkpoint) -> anyhow::Result<()> {
    for (i, (a, b)) in want.weights.layers.iter().zip(&found.weights.layers).enumerate() {
        for ((role, a), (_, b)) in linears(a).into_iter().zip(linears(b)) {
            let ignored = matches!(b.weight, Matrix::Float(_));
            ensure!(
                ignored || a.activations == b.activations,
                "layer {i}, {role}: activations of {:?} became {:?}",
                a.activations,
                b.activations
            );
        }
    }
    Ok(())
}

/// Largest difference that rounding to f16, or to Q8_0, explains; relative to the largest weight.
const ROUNDED: f32 = 0.005;

/// Comparison of a model with what came back from another format.
#[derive(Serialize)]
pub struct Exported {
    /// Tensors that hold the same numbers.
    same: usize,
    /// Tensors that were rounded.
    rounded: Vec<Compared>,
}

impl Exported {
    /// Returns true if all numbers are the same.
    pub fn is_equal(&self) -> bool {
        self.rounded.is_empty()
    }
}

impl fmt::Display for Exported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { same, rounded } = self;
        write!(f, "{same} of {} tensors bit-equal", same + rounded.len())?;
        for Compared { name, kinds: [was, is], difference } in rounded {
            let largest = difference.as_ref().map_or(0.0, |difference| difference.largest);
            write!(f, ", {name} {was} → {is} within {largest:.1e} of its largest number")?;
        }
        Ok(())
    }
}

/// Compares a model with what came back from another format, which may round matrices that are not
/// ternary.
pub fn exported(want: &Checkpoint, found: &Checkpoint) -> anyhow::Result<Exported> {
    let with_rope_of = |spec: &Spec| Spec { rope: want.spec.rope.clone(), ..spec.clone() };
    ensure!(
        want.spec == with_rope_of(&found.spec),
        "shape: {:?} became {:?}",
        want.spec,
        found.spec
    );
    let lost = want.generation.eos.iter().find(|id| !found.generation.eos.contains(id));
    if let Some(id) = lost {
        bail!("token {id} does not end a text any more: the format has room for fewer of them");
    }
    // What is absent is off.
    let without_ids = |g: &GenerationDefaults| {
        let [temperature, top_p] = [g.temperature.unwrap_or(0.0), g.top_p.unwrap_or(1.0)];
        (temperature, top_p, g.top_k.unwrap_or(0), g.repetition_penalty.unwrap_or(1.0))
    };
    ensure!(
        without_ids(&want.generation) == without_ids(&found.generation),
        "sampling defaults: {:?} became {:?}",
        want.generation,
        found.generation
    );
    ensure!(want.dlm == found.dlm, "diffusion parameters changed");
    activations(want, found)?;
    let (same, rounded): (Vec<_>, Vec<_>) = compare(&want.weights, &found.weights)
        .into_iter()
        .partition(|compared| compared.difference.is_none());
    for compared in &rounded {
        if let Some((name, difference)) = compared.changed()
            && (difference.largest > ROUNDED || compared.kinds[0].starts_with("ternary"))
        {
            bail!("{name}: {}", difference.what);
        }
    }
    Ok(Exported { same: same.len(), rounded })
}

/// Text that tokenizers treat in different ways: cases, accents, digits, white space, other
/// scripts and directions, characters of several code points, control characters.
const NASTY: &str = "Don't STOP  at\t1234567890 3.14,\n\n \r\n naïve cafe\u{301} straße “quoted” \
    漢字かな ไทย العربية \u{a0}\u{3000}\u{200b}👩‍👩‍👧🏽 𝔘 \u{0}\u{7f}\u{fffd} <s></s> ▁Ġ <0x0A> fn(x){}; ";

/// Compares template, special tokens and tokenizer; `tokenizer` is that of `want`.
pub fn text(
    want: &TextParts,
    tokenizer: Option<&Tokenizer>,
    found: &TextParts,
) -> anyhow::Result<()> {
    ensure!(want.chat_template == found.chat_template, "the chat template changed");
    ensure!(want.tool_template == found.tool_template, "the chat template for tools changed");
    // Formats that know ids only also name the tokens of ids that had no name.
    let kept = |(name, token)| found.special.get(name) == Some(token);
    ensure!(
        want.special.iter().all(kept),
        "special tokens: {:?} became {:?}",
        want.special,
        found.special
    );
    let reloaded = found.vocabulary.as_ref().map(Tokenizer::new).transpose();
    match (tokenizer, reloaded.context("tokenizer")?) {
        (None, None) => Ok(()),
        (Some(a), Some(b)) => tokenizers(a, &b, &want.special).context("tokenizer"),
        _ => bail!("the tokenizer appeared or got lost"),
    }
}

/// Compares every token, and the ids of a text that has the special tokens in it.
pub fn tokenizers(
    a: &Tokenizer,
    b: &Tokenizer,
    special: &BTreeMap<String, String>,
) -> anyhow::Result<()> {
    ensure!(a.vocab_size() == b.vocab_size(), "the number of tokens changed");
    let ids = 0..u32::try_from(a.vocab_size())?;
    let differs = |&id: &u32| a.bytes(id) != b.bytes(id) || a.is_special(id) != b.is_special(id);
    if let Some(id) = ids.into_iter().find(differs) {
        bail!("token {id}: {:?} became {:?}", a.token(id), b.token(id));
    }
    let text = special.values().fold(NASTY.to_string(), |text, token| text + token + NASTY);
    for frame in [false, true] {
        let (a, b) = (a.encode(&text, frame)?, b.encode(&text, frame)?);
        ensure!(a == b, "{text:?} was {a:?} and became {b:?}");
    }
    Ok(())
}

/// Comparison of the logits of two models.
#[derive(Serialize)]
pub struct Probe {
    equal: bool,
    /// Largest difference of a logit, relative to the largest logit.
    difference: f32,
    /// Positions with the same most likely token.
    agreeing: usize,
    positions: usize,
}

impl Probe {
    /// Fails unless every logit is the same, bit for bit.
    pub fn must_be_equal(&self) -> anyhow::Result<()> {
        ensure!(self.equal, "the new file's logits differ by {:e}: this is a bug", self.difference);
        Ok(())
    }

    /// Fails unless rounding explains how the logits differ.
    pub fn must_be_close(&self) -> anyhow::Result<()> {
        let difference = self.difference;
        ensure!(
            difference < ROUNDING,
            "the new file's logits differ by {difference:e}: this is a bug"
        );
        Ok(())
    }
}

/// Difference of logits, relative to the largest, that rounding explains: a norm that sums in
/// another order moves its result by a last bit, and now and then an activation by a step of 8
/// bits, from where on a deep model may go a little astray. With a column at a wrong place all
/// logits are others.
const ROUNDING: f32 = 0.25;

/// A probe in words.
pub struct HeadCheck<'a>(pub &'a Probe);

impl fmt::Display for HeadCheck<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Probe { equal, difference, agreeing, positions } = self.0;
        if *equal {
            return write!(f, "logits equal at {positions} positions");
        }
        write!(
            f,
            "logits within {difference:.1e} of the largest, same most likely token at {agreeing} \
             of {positions} positions"
        )
    }
}

/// Runs both models on the same tokens.
pub fn probe(rt: &Runtime, want: &Checkpoint, found: &Checkpoint) -> anyhow::Result<Probe> {
    let (a, b) = (logits(rt, want)?, logits(rt, found)?);
    let vocab = want.spec.vocab_size;
    let largest = a.iter().fold(f32::MIN_POSITIVE, |m, x| m.max(x.abs()));
    let difference = a.iter().zip(&b).fold(0f32, |m, (x, y)| m.max((x - y).abs())) / largest;
    let best = |row: &[f32]| row.iter().enumerate().max_by(|x, y| x.1.total_cmp(y.1)).map(|x| x.0);
    let same = a.chunks(vocab).zip(b.chunks(vocab)).filter(|(x, y)| best(x) == best(y));
    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    Ok(Probe {
        equal: bits(&a) == bits(&b),
        difference,
        agreeing: same.count(),
        positions: a.len() / vocab,
    })
}

/// Logits at every position of tokens that spread over the vocabulary, `[PROBE][vocab_size]`.
fn logits(rt: &Runtime, checkpoint: &Checkpoint) -> anyhow::Result<Vec<f32>> {
    let spec = &checkpoint.spec;
    let model = Model::new(spec.clone(), checkpoint.weights.clone())?.with_supported_layout(rt);
    let tokens = logits::spread(PROBE.min(spec.context_length), spec.vocab_size);
    logits::all(rt, &model, &tokens)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use wrinklefree::format::{File, Vocabulary, load};
    use wrinklefree_easy::models::default_model::DEFAULT_MODEL;

    fn default() -> TextParts {
        let file = File { name: "default".into(), bytes: DEFAULT_MODEL.into() };
        load(vec![file]).expect("loads").text
    }

    fn compare(found: &TextParts) -> Result<(), String> {
        let want = default();
        let tokenizer = want.vocabulary.as_ref().map(Tokenizer::new).transpose();
        text(&want, tokenizer.expect("usable").as_ref(), found).map_err(|e| format!("{e:#}"))
    }

    /// The default model's tokenizer after a change.
    fn with_tokenizer(change: impl FnOnce(&mut Value)) -> TextParts {
        let mut text = default();
        let Some(Vocabulary::Json(json)) = &text.vocabulary else { panic!("packed files have it") };
        let mut json: Value = serde_json::from_slice(json).expect("JSON");
        change(&mut json);
        text.vocabulary = Some(Vocabulary::Json(json.to_string().into()));
        text
    }

    #[test]
    fn text_parts_that_changed_are_noticed() {
        assert_eq!(compare(&default()), Ok(()));
        assert_eq!(compare(&with_tokenizer(|_| {})), Ok(()));

        let error = compare(&TextParts { vocabulary: None, ..default() });
        assert!(error.is_err_and(|e| e.contains("the tokenizer appeared or got lost")));
        let error = compare(&TextParts { chat_template: None, ..default() });
        assert!(error.is_err_and(|e| e.contains("the chat template changed")));
        let mut text = default();
        text.special.insert("bos_token".into(), "<other>".into());
        assert!(compare(&text).is_err_and(|e| e.contains("special tokens")));
        let fewer = with_tokenizer(|json| {
            json["model"]["merges"].as_array_mut().expect("merges").truncate(10);
        });
        assert!(compare(&fewer).is_err_and(|e| e.contains("was [")), "other ids");
    }
}
