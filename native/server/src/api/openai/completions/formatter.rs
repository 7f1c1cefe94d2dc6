//! Formats outputs as OpenAI's API for text completions does.

use crate::api::answer::generation::{Generation, RequestOutput, reason_name};
use crate::api::answer::logprobs::{id_name, prompt_logprobs};
use crate::api::answer::stream::{Envelope, Framing, StreamFormatter};
use crate::engine::served_model::ModelLabel;
use serde_json::{Map, Value, json};
use wrinklefree::chat::Snapshot;
use wrinklefree::decode::Sampled;
use wrinklefree::engine::FinishReason;

/// Formats the outputs of one request.
pub struct CompletionFormatter {
    /// Fields around the choices.
    pub envelope: Envelope,
    /// Number of alternatives per token, or `None` for no log-probabilities.
    pub logprobs: Option<usize>,
    /// Further parts of the response.
    pub extras: Extras,
    /// Tokens of the prompts, if the response has them.
    pub prompts: Vec<Vec<u32>>,
    /// The prompts, if outputs begin with them.
    pub echoes: Option<Vec<Vec<u32>>>,
    /// Number of outputs.
    pub count: usize,
    /// Outputs per prompt.
    pub n: usize,
    /// Number of characters of each output that were streamed with log-probabilities.
    pub offsets: Vec<usize>,
    /// The model.
    pub model: ModelLabel,
}

/// Parts of a response that vLLM adds.
#[derive(Clone, Copy)]
pub struct Extras {
    /// Number of alternatives per prompt token, or `None` for no log-probabilities.
    pub prompt_logprobs: Option<usize>,
    /// Return the ids of tokens.
    pub token_ids: bool,
    /// Log-probabilities name tokens by their ids.
    pub by_id: bool,
}

impl CompletionFormatter {
    /// Returns a response with all outputs.
    pub fn whole(&self, outputs: &[RequestOutput], generation: &Generation) -> Value {
        let choices = outputs.iter().enumerate().map(|(index, output)| self.choice(index, output));
        self.envelope.whole(&choices.collect::<Vec<_>>(), generation)
    }

    /// Returns the prompt that an output begins with.
    fn echo(&self, index: usize) -> &[u32] {
        self.echoes.as_ref().map_or(&[], |echoes| &echoes[index / self.n])
    }

    fn choice(&self, index: usize, output: &RequestOutput) -> Value {
        let echo = self.echo(index);
        let text = self.model.tokenizer.decode(echo) + &output.text;
        let scored = if echo.is_empty() { &[][..] } else { &output.scored };
        let tokens: Vec<Sampled> = [&first_token(echo)[..], scored, &output.tokens].concat();
        let mut choice = json!({
            "index": index,
            "text": text,
            "logprobs": self.logprobs.map(|_| self.all_logprobs(&tokens, &mut 0)),
            "finish_reason": output.reason.map(reason_name),
        });
        if let Some(n) = self.extras.prompt_logprobs {
            choice["prompt_logprobs"] = prompt_logprobs(&self.model.tokenizer, &output.scored, n);
        }
        if self.extras.token_ids {
            choice["prompt_token_ids"] = json!(self.prompts[index / self.n]);
            choice["token_ids"] = output.tokens.iter().map(|sampled| sampled.token).collect();
        }
        choice
    }

    /// Returns log-probabilities as parallel lists. The first token begins at character `offset` of the
    /// text, which is advanced to the end of the last one.
    fn all_logprobs(&self, tokens: &[Sampled], offset: &mut usize) -> Value {
        let text = |token: u32| {
            if self.extras.by_id { id_name(token) } else { self.model.tokenizer.decode(&[token]) }
        };
        let mut offsets = Vec::new();
        for sampled in tokens {
            offsets.push(*offset);
            *offset += self.characters(sampled.token);
        }
        let top = |sampled: &Sampled| -> Option<Map<String, Value>> {
            // The token itself is always there.
            let own = (sampled.token, sampled.logprob?);
            let top = sampled.top.iter().take(self.logprobs.unwrap_or(0));
            Some(top.chain([&own]).map(|&(token, p)| (text(token), json!(p))).collect())
        };
        json!({
            "tokens": tokens.iter().map(|t| text(t.token)).collect::<Vec<_>>(),
            "token_logprobs": tokens.iter().map(|t| t.logprob).collect::<Vec<_>>(),
            "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
            "text_offset": offsets,
        })
    }

    /// Returns the number of characters that begin in a token. One that spans several tokens counts for
    /// the first of them.
    fn characters(&self, token: u32) -> usize {
        let tokenizer = &self.model.tokenizer;
        if tokenizer.is_special(token) {
            return tokenizer.decode(&[token]).chars().count();
        }
        let continues = |byte: &u8| byte & 0xc0 == 0x80;
        tokenizer.bytes(token).iter().filter(|byte| !continues(byte)).count()
    }

    /// Returns the log-probabilities of the next streamed tokens.
    fn next_logprobs(&mut self, index: usize, tokens: &[Sampled]) -> Value {
        let mut offset = self.offsets[index];
        let logprobs = self.all_logprobs(tokens, &mut offset);
        self.offsets[index] = offset;
        logprobs
    }

    /// Returns a chunk with prompt tokens.
    fn prompt_chunk(&mut self, index: usize, tokens: &[Sampled]) -> Value {
        let ids: Vec<u32> = tokens.iter().map(|t| t.token).collect();
        let text = self.model.tokenizer.decode(&ids);
        let logprobs = self.next_logprobs(index, tokens);
        self.chunk(index, &text, logprobs, Value::Null)
    }

    fn chunk(&self, index: usize, text: &str, logprobs: Value, reason: Value) -> Value {
        self.envelope.chunk(json!({
            "index": index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": reason,
        }))
    }
}

/// Returns the first token of a prompt. It has no log-probability.
fn first_token(echo: &[u32]) -> Vec<Sampled> {
    let unknown = |&token: &u32| Sampled { token, logprob: None, top: Vec::new() };
    echo.first().map(unknown).into_iter().collect()
}

impl StreamFormatter for CompletionFormatter {
    const FRAMING: Framing = Framing::EventsUntilDone;

    fn begin(&mut self) -> Vec<Value> {
        let mut prompts = Vec::new();
        for index in (0..self.count).filter(|_| self.extras.token_ids) {
            let mut chunk = self.chunk(index, "", Value::Null, Value::Null);
            chunk["choices"][0]["prompt_token_ids"] = json!(self.prompts[index / self.n]);
            prompts.push(chunk);
        }
        let echoed: Vec<usize> =
            (0..self.count).filter(|&index| !self.echo(index).is_empty()).collect();
        let echo = |index: usize| {
            if self.logprobs.is_some() {
                // The other prompt tokens follow with their log-probabilities.
                self.prompt_chunk(index, &first_token(self.echo(index)))
            } else {
                let text = self.model.tokenizer.decode(self.echo(index));
                self.chunk(index, &text, Value::Null, Value::Null)
            }
        };
        prompts.into_iter().chain(echoed.into_iter().map(echo)).collect()
    }

    fn scored(&mut self, index: usize, tokens: &[Sampled]) -> Vec<Value> {
        vec![self.prompt_chunk(index, tokens)]
    }

    fn token(&mut self, index: usize, sampled: &Sampled, text: &str) -> Vec<Value> {
        let token_ids = self.extras.token_ids;
        if text.is_empty() && self.logprobs.is_none() && !token_ids {
            return Vec::new();
        }
        let logprobs = match self.logprobs {
            Some(_) => self.next_logprobs(index, std::slice::from_ref(sampled)),
            None => Value::Null,
        };
        let mut chunk = self.chunk(index, text, logprobs, Value::Null);
        if token_ids {
            chunk["choices"][0]["token_ids"] = json!([sampled.token]);
        }
        vec![chunk]
    }

    fn finish(&mut self, index: usize, reason: FinishReason, text: &str) -> Vec<Value> {
        vec![self.chunk(index, text, Value::Null, reason_name(reason).into())]
    }

    fn snapshot(
        &mut self,
        index: usize,
        snapshot: Snapshot,
        end: Option<FinishReason>,
    ) -> Vec<Value> {
        let reason = end.map_or(Value::Null, |reason| reason_name(reason).into());
        vec![self.chunk(index, &snapshot.text, Value::Null, reason)]
    }

    fn continuous_usage(&self) -> bool {
        self.envelope.usage.each
    }

    fn end(&mut self, generation: &Generation) -> Vec<Value> {
        self.envelope.last(generation).into_iter().collect()
    }
}
