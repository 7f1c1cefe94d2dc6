//! Two checkpoints hold the same model.

use crate::eval::finite;
use crate::models::weight_sizes::{linears, norms};
use anyhow::{Context, bail, ensure};
use std::collections::BTreeMap;
use std::fmt;
use wrinklefree::cache::{KvConfig, KvPool, PAGE};
use wrinklefree::format::{Checkpoint, LayerWeights, Linear, MtpWeights, TextParts};
use wrinklefree::matrix::Matrix;
use wrinklefree::model::{AttentionMask, LogitRows, Model, Runtime, Span, Workspace};
use wrinklefree::text::Tokenizer;

/// Tokens of the probe.
const PROBE: usize = 16;

/// Compares shapes, every weight after unpacking, norms and biases.
pub fn weights(want: &Checkpoint, found: &Checkpoint) -> anyhow::Result<()> {
    ensure!(want.spec == found.spec, "shape: {:?} became {:?}", want.spec, found.spec);
    ensure!(want.generation == found.generation, "generation defaults changed");
    ensure!(want.dlm == found.dlm, "diffusion parameters changed");
    let (a, b) = (&want.weights, &found.weights);
    matrix(&a.embed, &b.embed).context("embedding")?;
    ensure!(a.embed_rotation == b.embed_rotation, "rotation of the embeddings changed");
    ensure!(a.final_norm == b.final_norm, "final norm changed");
    match (&a.head, &b.head) {
        (None, None) => {}
        (Some(a), Some(b)) => linear(a, b).context("head")?,
        _ => bail!("a tied head became its own or the reverse"),
    }
    ensure!(a.layers.len() == b.layers.len(), "layers got lost");
    for (i, (a, b)) in a.layers.iter().zip(&b.layers).enumerate() {
        layer(a, b).with_context(|| format!("layer {i}"))?;
    }
    match (&a.mtp, &b.mtp) {
        (None, None) => Ok(()),
        (Some(a), Some(b)) => mtp(a, b).context("block for multi-token prediction"),
        _ => bail!("the block for multi-token prediction appeared or got lost"),
    }
}

fn layer(a: &LayerWeights, b: &LayerWeights) -> anyhow::Result<()> {
    for ((role, a), (_, b)) in linears(a).into_iter().zip(linears(b)) {
        linear(a, b).context(role)?;
    }
    ensure!(norms(a).eq(norms(b)), "norms changed");
    Ok(())
}

fn mtp(a: &MtpWeights, b: &MtpWeights) -> anyhow::Result<()> {
    linear(&a.input, &b.input).context("input")?;
    layer(&a.layer, &b.layer)?;
    let norms = |w: &MtpWeights| {
        [Some(&w.embed_norm), Some(&w.hidden_norm), w.head_norm.as_ref()].map(|norm| norm.cloned())
    };
    ensure!(norms(a) == norms(b), "norms changed");
    ensure!(
        (a.embed.is_some(), a.head.is_some()) == (b.embed.is_some(), b.head.is_some()),
        "its own embedding or head got lost"
    );
    a.embed.iter().zip(&b.embed).try_for_each(|(a, b)| matrix(a, b)).context("embedding")?;
    a.head.iter().zip(&b.head).try_for_each(|(a, b)| linear(a, b)).context("head")
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
    ensure!(
        want.special == found.special,
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
fn tokenizers(
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

fn linear(a: &Linear, b: &Linear) -> anyhow::Result<()> {
    ensure!(a.bias == b.bias, "bias changed");
    ensure!(a.activations == b.activations, "activation type changed");
    ensure!(a.rotation == b.rotation, "rotation changed");
    matrix(&a.weight, &b.weight)
}

/// Equal bytes are equal weights, in another layout too; other bytes may still be, so look at each
/// row.
fn matrix(a: &Matrix, b: &Matrix) -> anyhow::Result<()> {
    ensure!((a.rows(), a.cols()) == (b.rows(), b.cols()), "shape changed");
    if a == b {
        return Ok(());
    }
    if let (Matrix::Ternary(a), Matrix::Ternary(b)) = (a, b)
        && b.in_layout(a.layout()).as_ref() == Some(a)
    {
        return Ok(());
    }
    let mut rows = (vec![0.0; a.cols()], vec![0.0; b.cols()]);
    for row in 0..a.rows() {
        a.row_f32(row, &mut rows.0);
        b.row_f32(row, &mut rows.1);
        if let Some(col) = (0..a.cols()).find(|&c| rows.0[c] != rows.1[c]) {
            bail!("row {row}, column {col}: {} became {}", rows.0[col], rows.1[col]);
        }
    }
    Ok(())
}

/// Comparison of the logits of two models.
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
    let model =
        Model::new(checkpoint.spec.clone(), checkpoint.weights.clone())?.with_supported_layout(rt);
    let vocab = checkpoint.spec.vocab_size;
    let count = PROBE.min(checkpoint.spec.context_length);
    let tokens: Vec<u32> = (0..count).map(|i| ((i * 7919 + 1) % vocab) as u32).collect();
    let mut kv = KvPool::new(model.spec(), count.div_ceil(PAGE), KvConfig::EXACT)?;
    let seq = kv.open(count)?;
    let (attention_mask, logits) = (AttentionMask::Causal, LogitRows::All);
    let span = Span { seq, start: 0, tokens: &tokens, attention_mask, logits };
    let mut workspace = Workspace::default();
    let logits = finite(model.forward(rt, &mut kv, &[span], &mut workspace))?;
    Ok((0..logits.len()).flat_map(|r| logits.row(r)).copied().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::default_model::DEFAULT_MODEL;
    use serde_json::Value;
    use wrinklefree::format::{File, Vocabulary, load};

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
