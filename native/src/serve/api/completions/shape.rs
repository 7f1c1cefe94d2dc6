//! How answers look in OpenAI's older API.

use crate::serve::api::generation::{Answer, Generation, reason_name};
use crate::serve::api::stream::{Envelope, Events};
use crate::serve::state::Ready;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use wrinklefree::decode::Sampled;
use wrinklefree::engine::FinishReason;

/// The shape of the answers to one request.
pub struct Shape {
    pub envelope: Envelope,
    pub logprobs: bool,
    /// Each prompt, where answers begin with it.
    pub echoes: Option<Vec<Vec<u32>>>,
    /// Answers.
    pub count: usize,
    /// Answers to a prompt.
    pub n: usize,
    /// Characters of each answer that have been streamed with log-probabilities.
    pub places: Vec<usize>,
    pub ready: Arc<Ready>,
}

impl Shape {
    /// All answers together.
    pub fn whole(&self, answers: &[Answer], generation: &Generation) -> Value {
        let choices = answers.iter().enumerate().map(|(index, answer)| self.choice(index, answer));
        self.envelope.whole(&choices.collect::<Vec<_>>(), generation)
    }

    /// The prompt that an answer begins with.
    fn echo(&self, index: usize) -> &[u32] {
        self.echoes.as_ref().map_or(&[], |echoes| &echoes[index / self.n])
    }

    fn choice(&self, index: usize, answer: &Answer) -> Value {
        let echo = self.echo(index);
        let text = self.ready.tokenizer.decode(echo) + &answer.text;
        let tokens: Vec<Sampled> = [&first(echo)[..], &answer.scored, &answer.tokens].concat();
        json!({
            "index": index,
            "text": text,
            "logprobs": self.logprobs.then(|| self.all_logprobs(&tokens, &mut 0)),
            "finish_reason": answer.reason.map(reason_name),
        })
    }

    /// Log-probabilities as the older API has them: lists side by side. The first token begins behind
    /// `place` characters of the text; the last one's end is left there.
    fn all_logprobs(&self, tokens: &[Sampled], place: &mut usize) -> Value {
        let text = |token: u32| self.ready.tokenizer.decode(&[token]);
        let mut offsets = Vec::new();
        for sampled in tokens {
            offsets.push(*place);
            *place += self.characters(sampled.token);
        }
        let top = |sampled: &Sampled| -> Option<Map<String, Value>> {
            sampled.logprob?;
            Some(sampled.top.iter().map(|&(token, p)| (text(token), json!(p))).collect())
        };
        json!({
            "tokens": tokens.iter().map(|t| text(t.token)).collect::<Vec<_>>(),
            "token_logprobs": tokens.iter().map(|t| t.logprob).collect::<Vec<_>>(),
            "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
            "text_offset": offsets,
        })
    }

    /// Characters that begin in a token: one that is spread over several counts for the first of them.
    fn characters(&self, token: u32) -> usize {
        let tokenizer = &self.ready.tokenizer;
        if tokenizer.is_special(token) {
            return tokenizer.decode(&[token]).chars().count();
        }
        let continues = |byte: &u8| byte & 0xc0 == 0x80;
        tokenizer.bytes(token).iter().filter(|byte| !continues(byte)).count()
    }

    /// Log-probabilities of tokens that are streamed next.
    fn next_logprobs(&mut self, index: usize, tokens: &[Sampled]) -> Value {
        let mut place = self.places[index];
        let logprobs = self.all_logprobs(tokens, &mut place);
        self.places[index] = place;
        logprobs
    }

    /// A chunk of tokens of the prompt.
    fn tokens(&mut self, index: usize, tokens: &[Sampled]) -> Value {
        let ids: Vec<u32> = tokens.iter().map(|t| t.token).collect();
        let text = self.ready.tokenizer.decode(&ids);
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

/// The first token of a prompt: nothing says how likely it was.
fn first(echo: &[u32]) -> Vec<Sampled> {
    let unknown = |&token: &u32| Sampled { token, logprob: None, top: Vec::new() };
    echo.first().map(unknown).into_iter().collect()
}

impl Events for Shape {
    const NAMED: bool = false;

    fn begin(&mut self) -> Vec<Value> {
        let echoed: Vec<usize> =
            (0..self.count).filter(|&index| !self.echo(index).is_empty()).collect();
        let echo = |index: usize| match self.logprobs {
            // The others come with their log-probabilities.
            true => self.tokens(index, &first(self.echo(index))),
            false => {
                let text = self.ready.tokenizer.decode(self.echo(index));
                self.chunk(index, &text, Value::Null, Value::Null)
            }
        };
        echoed.into_iter().map(echo).collect()
    }

    fn scored(&mut self, index: usize, tokens: &[Sampled]) -> Vec<Value> {
        vec![self.tokens(index, tokens)]
    }

    fn token(&mut self, index: usize, sampled: &Sampled, text: &str) -> Vec<Value> {
        if text.is_empty() && !self.logprobs {
            return Vec::new();
        }
        let logprobs = match self.logprobs {
            true => self.next_logprobs(index, std::slice::from_ref(sampled)),
            false => Value::Null,
        };
        vec![self.chunk(index, text, logprobs, Value::Null)]
    }

    fn finish(&mut self, index: usize, reason: FinishReason, text: &str) -> Vec<Value> {
        vec![self.chunk(index, text, Value::Null, reason_name(reason).into())]
    }

    fn end(&mut self, generation: &Generation) -> Vec<Value> {
        self.envelope.last(generation).into_iter().collect()
    }
}
