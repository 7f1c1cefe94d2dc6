//! Formats outputs as llama-server's API does.

use super::body::LlamaOutput;
use super::error;
use crate::api::answer::generation::{Generation, LlamaDrafts, RequestOutput};
use crate::api::answer::logprobs;
use crate::api::answer::stream::{Framing, StreamFormatter};
use crate::engine::served_model::ModelLabel;
use crate::error::ApiError;
use serde_json::{Map, Value, json};
use std::cell::OnceCell;
use std::time::{Duration, Instant};
use wrinklefree::decode::{DraftCounts, Sampled};
use wrinklefree::engine::{FinishReason, Request};

/// Formats the outputs of one request.
pub struct LlamaFormatter {
    model: ModelLabel,
    output: LlamaOutput,
    /// One for each prompt.
    requests: Vec<Request>,
    /// Text of each prompt, once an output that shows it has ended.
    prompts: Vec<OnceCell<String>>,
    /// Slot of each output.
    slots: Vec<usize>,
    started: Instant,
    /// State of each output.
    choices: Vec<Choice>,
}

/// State of an output.
#[derive(Clone, Debug, Default)]
struct Choice {
    /// Number of generated tokens.
    tokens: usize,
    /// Times of the first and of the last token.
    times: Option<(Instant, Instant)>,
    has_new_line: bool,
    /// Number of prompt tokens that were cached.
    cached: usize,
    drafts: DraftCounts,
    /// Reason why it ended, and text that was held back until then.
    end: Option<(FinishReason, String)>,
}

impl Choice {
    fn count(&mut self, text: &str) {
        let now = Instant::now();
        self.tokens += 1;
        self.times = Some((self.times.map_or(now, |(first, _)| first), now));
        self.has_new_line |= text.contains('\n');
    }
}

impl LlamaFormatter {
    /// Creates the formatter of the outputs of `requests`.
    pub fn new(
        model: ModelLabel,
        output: LlamaOutput,
        requests: Vec<Request>,
        slots: Vec<usize>,
    ) -> Self {
        let choices = vec![Choice::default(); requests.len() * output.count];
        let prompts = vec![OnceCell::new(); requests.len()];
        Self { model, output, requests, prompts, slots, started: Instant::now(), choices }
    }

    /// Returns the response about each output.
    pub fn whole(mut self, outputs: &[RequestOutput], generation: &Generation) -> Vec<Value> {
        let (first, decode) = (generation.times.first_token, generation.times.decode);
        let body = |(index, output): (usize, &RequestOutput)| {
            self.choices[index] = Choice {
                tokens: output.tokens.len(),
                times: Some((self.started + first, self.started + first + decode)),
                has_new_line: output.text.contains('\n'),
                cached: generation.cached,
                drafts: generation.drafts[index],
                end: None,
            };
            let reason = output.reason.unwrap_or(FinishReason::Stop);
            let tokens: Vec<u32> = if self.output.tokens {
                output.tokens.iter().map(|token| token.token).collect()
            } else {
                Vec::new()
            };
            let mut value = self.last(index, reason);
            value["content"] = output.text.as_str().into();
            value["tokens"] = tokens.into();
            if self.output.logprobs.is_some() {
                value["completion_probabilities"] = self.probabilities(&output.tokens);
            }
            value["tokens_cached"] = (self.prompt(index).len() + output.tokens.len()).into();
            self.selected(value)
        };
        outputs.iter().enumerate().map(body).collect()
    }

    /// Returns the request of an output.
    fn request(&self, index: usize) -> &Request {
        &self.requests[index / self.output.count]
    }

    /// Returns the prompt of an output.
    fn prompt(&self, index: usize) -> &[u32] {
        &self.request(index).tokens
    }

    fn chunk(&self, index: usize, text: &str, tokens: &[Sampled]) -> Value {
        let choice = &self.choices[index];
        let ids: Vec<u32> = tokens.iter().map(|token| token.token).collect();
        let mut chunk = json!({
            "index": index,
            "content": text,
            "tokens": ids,
            "stop": false,
            "id_slot": self.slots[index],
            "tokens_predicted": choice.tokens,
            "tokens_evaluated": self.prompt(index).len(),
        });
        if self.output.timings {
            chunk["timings"] = self.timings(index);
        }
        if self.output.logprobs.is_some() && !tokens.is_empty() {
            chunk["completion_probabilities"] = self.probabilities(tokens);
        }
        chunk
    }

    fn probabilities(&self, tokens: &[Sampled]) -> Value {
        let tokenizer = &self.model.tokenizer;
        let top = self.output.logprobs.unwrap_or(0);
        let with_ids = |sampled: &Sampled| {
            let mut entry = logprobs::sampled(tokenizer, sampled, top);
            entry["id"] = sampled.token.into();
            let top = entry["top_logprobs"].as_array_mut().into_iter().flatten();
            for (entry, &(id, _)) in top.zip(&sampled.top) {
                entry["id"] = id.into();
            }
            entry
        };
        tokens.iter().map(with_ids).collect()
    }

    /// Returns the fields at the end of an output.
    fn last(&self, index: usize, reason: FinishReason) -> Value {
        let (kind, word) = match reason {
            FinishReason::Length => ("limit", ""),
            FinishReason::StopString(stop) => {
                ("word", self.request(index).stop.get(stop).map_or("", String::as_str))
            }
            _ => ("eos", ""),
        };
        let (choice, prompt) = (&self.choices[index], self.prompt(index));
        json!({
            "index": index,
            "content": "",
            "tokens": [],
            "id_slot": self.slots[index],
            "stop": true,
            "model": self.model.name,
            "tokens_predicted": choice.tokens,
            "tokens_evaluated": prompt.len(),
            "generation_settings": self.settings(index),
            "prompt": self.prompts[index / self.output.count]
                .get_or_init(|| self.model.tokenizer.decode(prompt)),
            "has_new_line": choice.has_new_line,
            "truncated": false,
            "stop_type": kind,
            "stopping_word": word,
            "tokens_cached": prompt.len() + choice.tokens,
            "timings": self.timings(index),
        })
    }

    /// Returns the settings of an output as they are in effect.
    fn settings(&self, index: usize) -> Value {
        let request = self.request(index);
        let sampling = &request.sampling;
        let limit = i64::try_from(request.max_tokens).unwrap_or(-1);
        json!({
            "n_predict": if request.max_tokens == usize::MAX { -1 } else { limit },
            "seed": sampling.seed,
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "typical_p": sampling.typical_p,
            "top_n_sigma": sampling.top_n_sigma,
            "xtc_probability": sampling.xtc_probability,
            "xtc_threshold": sampling.xtc_threshold,
            "repeat_penalty": sampling.repetition_penalty,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            "stop": request.stop,
            "ignore_eos": request.eos.is_empty(),
            "n_probs": sampling.logprobs.unwrap_or(0),
            "stream": self.output.streams,
            "n_ctx": self.model.context,
        })
    }

    /// Returns the times of an output so far.
    fn timings(&self, index: usize) -> Value {
        let choice = &self.choices[index];
        let prompt = self.prompt(index).len().saturating_sub(choice.cached);
        let (first, last) = choice.times.unwrap_or((self.started, self.started));
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let (reading, writing) = (milliseconds(first - self.started), milliseconds(last - first));
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let (read, written) = (prompt as f64, choice.tokens as f64);
        let mut timings = json!({
            "cache_n": choice.cached,
            "prompt_n": prompt,
            "prompt_ms": reading,
            "prompt_per_token_ms": ratio(reading, read),
            "prompt_per_second": ratio(read * 1e3, reading),
            "predicted_n": choice.tokens,
            "predicted_ms": writing,
            "predicted_per_token_ms": ratio(writing, written),
            "predicted_per_second": ratio(written * 1e3, writing),
        });
        if let Some(drafts) = LlamaDrafts::of(choice.drafts) {
            timings["draft_n"] = drafts.draft_n.into();
            timings["draft_n_accepted"] = drafts.draft_n_accepted.into();
        }
        timings
    }

    /// Returns the fields of a response that the request asks for. A field within a field gets its path
    /// as its name.
    fn selected(&self, value: Value) -> Value {
        let Some(fields) = &self.output.fields else { return value };
        let select = |path: &String| {
            let found = path.split('/').try_fold(&value, |value, key| value.get(key))?;
            Some((path.clone(), found.clone()))
        };
        fields.iter().filter_map(select).collect::<Map<_, _>>().into()
    }
}

impl StreamFormatter for LlamaFormatter {
    const FRAMING: Framing = Framing::Events;

    fn begin(&mut self) -> Vec<Value> {
        Vec::new()
    }

    fn token(&mut self, index: usize, sampled: &Sampled, text: &str) -> Vec<Value> {
        self.choices[index].count(text);
        let silent = text.is_empty() && self.output.logprobs.is_none() && !self.output.tokens;
        let tokens = std::slice::from_ref(sampled);
        if silent { Vec::new() } else { vec![self.chunk(index, text, tokens)] }
    }

    fn finish(&mut self, index: usize, reason: FinishReason, text: &str) -> Vec<Value> {
        let choice = &mut self.choices[index];
        choice.has_new_line |= text.contains('\n');
        choice.end = Some((reason, text.to_string()));
        Vec::new()
    }

    fn end(&mut self, generation: &Generation) -> Vec<Value> {
        let outputs = self.choices.len();
        let last = |index: usize| {
            self.choices[index].cached = generation.cached;
            self.choices[index].drafts = generation.drafts[index];
            let (reason, text) = self.choices[index].end.take()?;
            let mut last = self.last(index, reason);
            last["content"] = text.into();
            Some(self.selected(last))
        };
        (0..outputs).filter_map(last).collect()
    }

    fn failed(&mut self, error: &ApiError) -> Vec<Value> {
        vec![error::body(error)]
    }
}
