//! Options of DRY, the penalty on repetitions, for `generate`, `chat`, `serve` and requests.

use clap::Args;
use wrinklefree::decode::Dry;
use wrinklefree::text::Tokenizer;

/// Maximum number of breakers.
const MAX_BREAKERS: usize = 32;
/// llama-server's breakers.
const BREAKERS: [&str; 4] = ["\n", ":", "\"", "*"];

/// Options of DRY.
#[derive(Args, Clone, Debug, Default)]
#[group(id = "dry")]
#[command(next_help_heading = "Sampling")]
pub struct DryArgs {
    /// Strength against repetitions; 0: off
    ///
    /// DRY ("don't repeat yourself") lowers the logits of tokens that would prolong a repetition of the
    /// text.
    #[arg(long, hide_short_help = true, value_name = "X", allow_negative_numbers = true)]
    pub dry_multiplier: Option<f32>,
    /// Growth with a repetition's length [default: 1.75]
    #[arg(long, hide_short_help = true, value_name = "X", allow_negative_numbers = true)]
    pub dry_base: Option<f32>,
    /// Length from which DRY counts [default: 2]
    #[arg(long, hide_short_help = true, value_name = "N")]
    pub dry_allowed_length: Option<usize>,
    /// Tokens in which DRY looks [default: -1, all]
    #[arg(long, hide_short_help = true, value_name = "N", allow_negative_numbers = true)]
    pub dry_penalty_last_n: Option<i64>,
    /// Text that ends a repetition; repeatable
    ///
    /// `none`: no text does [default: line break, colon, quotation mark and asterisk].
    #[arg(
        id = "dry_sequence_breakers",
        long = "dry-sequence-breaker",
        hide_short_help = true,
        value_name = "TEXT"
    )]
    pub dry_sequence_breakers: Vec<String>,
}

/// An option of DRY that cannot be.
#[derive(Debug, PartialEq)]
pub struct InvalidDry {
    /// Name of the field.
    pub field: &'static str,
    /// Explanation.
    pub message: String,
}

impl DryArgs {
    /// Breaker that alone means none.
    pub const NONE: &str = "none";

    /// Returns these options, and `other`'s where they are not set.
    pub fn or(self, other: &Self) -> Self {
        let breakers = if self.dry_sequence_breakers.is_empty() {
            other.dry_sequence_breakers.clone()
        } else {
            self.dry_sequence_breakers
        };
        Self {
            dry_multiplier: self.dry_multiplier.or(other.dry_multiplier),
            dry_base: self.dry_base.or(other.dry_base),
            dry_allowed_length: self.dry_allowed_length.or(other.dry_allowed_length),
            dry_penalty_last_n: self.dry_penalty_last_n.or(other.dry_penalty_last_n),
            dry_sequence_breakers: breakers,
        }
    }

    /// Returns the settings for the tokens of a tokenizer; `None` if DRY is off.
    ///
    /// # Errors
    /// Names the first option that is out of range.
    pub fn resolve(&self, tokenizer: &Tokenizer) -> Result<Option<Dry>, InvalidDry> {
        let invalid = |field, message| Err(InvalidDry { field, message });
        let window = match self.dry_penalty_last_n.unwrap_or(-1) {
            -1 => usize::MAX,
            n => match usize::try_from(n) {
                Ok(n) => n,
                Err(_) => {
                    let message = format!("dry_penalty_last_n is {n}: at least 0, or -1 for all");
                    return invalid("dry_penalty_last_n", message);
                }
            },
        };
        let Some(multiplier) = self.dry_multiplier.filter(|&x| x != 0.0 && window > 0) else {
            return Ok(None);
        };
        let texts = &self.dry_sequence_breakers;
        if texts.len() > MAX_BREAKERS || texts.iter().any(String::is_empty) {
            let message = format!("send at most {MAX_BREAKERS} texts that are not empty");
            return invalid("dry_sequence_breakers", message);
        }
        let breakers = match &texts[..] {
            [] => breakers(tokenizer, BREAKERS.into_iter()),
            [only] if only == Self::NONE => Vec::new(),
            texts => breakers(tokenizer, texts.iter().map(String::as_str)),
        };
        let default = Dry::default();
        Ok(Some(Dry {
            multiplier,
            base: self.dry_base.unwrap_or(default.base),
            allowed_length: self.dry_allowed_length.unwrap_or(default.allowed_length),
            window,
            breakers,
        }))
    }
}

/// Returns the tokens of breakers: each token that contains one, and the tokens of those that no token
/// contains.
fn breakers<'a>(tokenizer: &Tokenizer, texts: impl Iterator<Item = &'a str>) -> Vec<Vec<u32>> {
    let mut breakers = Vec::new();
    for text in texts {
        let contains = |&id: &u32| {
            let bytes = tokenizer.bytes(id);
            bytes.windows(text.len()).any(|part| part == text.as_bytes())
        };
        breakers.extend((0..tokenizer.vocab_size() as u32).filter(contains).map(|id| vec![id]));
        breakers.extend(tokenizer.encode(text, false).ok().filter(|ids| ids.len() > 1));
    }
    breakers
}
