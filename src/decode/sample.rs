//! From logits to a token.

/// How tokens are chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct SamplingParams {
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the k most likely; 0 keeps all.
    pub top_k: usize,
    /// Keep the smallest set with at least this mass; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this × the most likely; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens in prompt or output; 1 is off.
    pub repetition_penalty: f32,
    /// Subtracted per earlier occurrence in the output; 0 is off.
    pub frequency_penalty: f32,
    /// Subtracted once from tokens that occur in the output; 0 is off.
    pub presence_penalty: f32,
    /// Added to the logits of single tokens.
    pub logit_bias: Vec<(u32, f32)>,
    /// Same seed, same output.
    pub seed: u64,
    /// Also report log-probabilities of this many most likely tokens.
    pub logprobs: Option<usize>,
}

impl Default for SamplingParams {
    fn default() -> Self {
        Self {
            temperature: 0.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            logit_bias: Vec::new(),
            seed: 0,
            logprobs: None,
        }
    }
}

/// A chosen token.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampled {
    /// Its id.
    pub token: u32,
    /// Its log-probability under the model's own distribution (before temperature and filters),
    /// when log-probabilities were asked for.
    pub logprob: Option<f32>,
    /// The most likely tokens and their log-probabilities, best first.
    pub top: Vec<(u32, f32)>,
}

/// Chooses the tokens of one sequence.
pub struct Sampler {}

impl Sampler {
    /// A sampler for a sequence that starts with `prompt`.
    pub fn new(_params: SamplingParams, _prompt: &[u32]) -> Self {
        todo!()
    }
    /// Chooses the next token and remembers it. `logits`: `[vocab_size]`.
    pub fn sample(&mut self, _logits: &[f32]) -> Sampled {
        todo!()
    }
}
