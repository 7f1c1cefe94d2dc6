//! Honest clients: streams whose text is known.

use crate::common::server::{Server, ask};
use serde_json::{Value, json};
use std::fmt;
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A stream that one client asks for again and again.
pub struct Honest {
    body: String,
    /// The text that it gets from an idle server.
    text: String,
}

/// Answers and times that honest clients have seen.
#[derive(Default)]
pub struct Seen {
    /// Complete answers.
    pub answers: usize,
    /// Answers that differ from an idle server's.
    pub wrong: Vec<String>,
    /// Times between two pieces of an answer.
    gaps: Vec<Duration>,
}

impl Honest {
    /// Asks an idle server for the text of a stream.
    pub fn alone(server: &Server, number: usize, model: &str) -> Self {
        let more = json!({"stream": true, "temperature": 0.8, "seed": number, "max_tokens": 150,
            "ignore_eos": true, "model": model});
        let body = ask(&format!("Tell me a story about {number} foxes."), more).to_string();
        let mut honest = Self { body, text: String::new() };
        honest.text = honest.ask(server, &mut Vec::new()).expect("an idle server answers");
        honest
    }

    /// Asks until `ended`.
    pub fn repeat(&self, server: &Server, ended: &AtomicBool) -> Seen {
        let mut seen = Seen::default();
        while !ended.load(Ordering::Relaxed) {
            match self.ask(server, &mut seen.gaps) {
                Ok(text) if text == self.text => seen.answers += 1,
                Ok(text) => seen.wrong.push(format!("{text:?} instead of {:?}", self.text)),
                Err(error) => seen.wrong.push(error),
            }
        }
        seen
    }

    /// Returns the text of one stream and adds the times between its pieces.
    fn ask(&self, server: &Server, gaps: &mut Vec<Duration>) -> Result<String, String> {
        let json = "content-type: application/json\r\n";
        let stream = server.open("POST", "/v1/chat/completions", json, &self.body);
        let (mut text, mut last, mut done) = (String::new(), None, false);
        let mut lines = BufReader::new(stream).lines();
        let status = lines.next().ok_or("no answer")?.map_err(|e| e.to_string())?;
        for line in lines {
            let line = line.map_err(|e| format!("{e} after {text:?}"))?;
            let Some(data) = line.strip_prefix("data: ") else { continue };
            done |= data == "[DONE]";
            let Ok(chunk) = serde_json::from_str::<Value>(data) else { continue };
            let Some(piece) = chunk["choices"][0]["delta"]["content"].as_str() else { continue };
            text += piece;
            let now = Instant::now();
            gaps.extend(last.replace(now).map(|last| now - last));
        }
        if done {
            Ok(text)
        } else {
            Err(format!("{status}, and the stream broke off after {text:?}"))
        }
    }
}

impl Seen {
    pub fn and(mut self, other: Self) -> Self {
        self.answers += other.answers;
        self.wrong.extend(other.wrong);
        self.gaps.extend(other.gaps);
        self
    }

    pub fn largest_gap(&self) -> Duration {
        self.gaps.iter().copied().max().unwrap_or_default()
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gaps = self.gaps.clone();
        gaps.sort_unstable();
        let most = gaps.get(gaps.len() * 99 / 100).copied().unwrap_or_default();
        let (answers, tokens, largest) = (self.answers, gaps.len(), self.largest_gap());
        write!(f, "{answers} | {tokens} | {most:.0?} | {largest:.0?}")
    }
}
