//! Text that a parser of calls holds back while it may be the beginning of a marker.

use super::output::{OutputDelta, text_delta};

/// Text that has arrived and is not parsed yet.
#[derive(Clone, Debug, Default)]
pub struct HeldText {
    /// The text.
    pub text: String,
    /// True after a call until other text comes: line breaks there are dropped.
    gap: bool,
}

impl HeldText {
    /// Takes the text before a marker and returns it with whether the marker was found. Text that may be
    /// the marker's beginning stays.
    pub fn until(&mut self, marker: &str) -> (String, bool) {
        if let Some((text, rest)) = self.text.split_once(marker) {
            let (text, rest) = (text.to_string(), rest.to_string());
            self.text = rest;
            return (text, true);
        }
        let begins = |&at: &usize| marker.starts_with(&self.text[at..]);
        let mut borders = self.text.char_indices().map(|(at, _)| at);
        let keep = borders.find(begins).unwrap_or(self.text.len());
        let rest = self.text.split_off(keep);
        (std::mem::replace(&mut self.text, rest), false)
    }

    /// Marks the end of a call.
    pub fn end_call(&mut self) {
        self.gap = true;
    }

    /// Takes the text up to the end of a call, as [`until`](Self::until) does.
    pub fn until_end_of_call(&mut self, marker: &str) -> (String, bool) {
        let (text, found) = self.until(marker);
        self.gap |= found;
        (text, found)
    }

    /// Returns the increment of text between calls, without line breaks directly after a call.
    pub fn between_calls(&mut self, text: &str) -> Option<OutputDelta> {
        let shown = if self.gap { text.trim_start_matches('\n') } else { text };
        self.gap &= shown.is_empty();
        text_delta(shown)
    }
}
