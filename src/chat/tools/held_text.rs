//! Text that a parser of calls holds back while it may be the beginning of a marker.

use crate::chat::output::{OutputDelta, text_delta};

/// Text that has arrived and is not parsed yet.
#[derive(Clone, Debug, Default)]
pub struct HeldText {
    /// The text.
    pub text: String,
    /// True after the first call.
    called: bool,
    /// True after a call until other text comes: line breaks there are dropped.
    gap: bool,
}

impl HeldText {
    /// Takes the text before a marker and returns it with whether the marker was found. Text that may be
    /// the marker's beginning stays.
    pub fn until(&mut self, marker: &str) -> (String, bool) {
        let (text, found) = self.until_any(&[marker]);
        (text, found.is_some())
    }

    /// Does what [`until`](Self::until) does, for the first of several markers. Returns its index.
    pub fn until_any(&mut self, markers: &[&str]) -> (String, Option<usize>) {
        let place = |(index, marker): (usize, &&str)| Some((self.text.find(*marker)?, index));
        if let Some((at, index)) = markers.iter().enumerate().filter_map(place).min() {
            let rest = self.text.split_off(at + markers[index].len());
            let mut text = std::mem::replace(&mut self.text, rest);
            text.truncate(at);
            return (text, Some(index));
        }
        let begins =
            |&at: &usize| markers.iter().any(|marker| marker.starts_with(&self.text[at..]));
        let mut borders = self.text.char_indices().map(|(at, _)| at);
        let keep = borders.find(begins).unwrap_or(self.text.len());
        let rest = self.text.split_off(keep);
        (std::mem::replace(&mut self.text, rest), None)
    }

    /// Marks the end of a call.
    pub fn end_call(&mut self) {
        (self.called, self.gap) = (true, true);
    }

    /// Takes the text up to the end of a call, as [`until`](Self::until) does.
    pub fn until_end_of_call(&mut self, marker: &str) -> (String, bool) {
        let (text, found) = self.until(marker);
        if found {
            self.end_call();
        }
        (text, found)
    }

    /// Returns the increment of text between calls, without line breaks directly after a call.
    pub fn between_calls(&mut self, text: &str) -> Option<OutputDelta> {
        let shown = if self.gap { text.trim_start_matches('\n') } else { text };
        self.gap &= shown.is_empty();
        text_delta(shown)
    }

    /// Returns the rest of a text that ends the output, unless it is the beginning of a call that was cut
    /// off: of one that is `required`, or more of its head than the marker.
    pub fn rest_of_text(&mut self, marker: &str, required: bool) -> Option<OutputDelta> {
        let rest = std::mem::take(&mut self.text);
        let cut = rest.strip_prefix(marker).is_some_and(|more| !more.is_empty());
        let cut = cut || (required && !self.called);
        self.between_calls(&rest).filter(|_| !cut)
    }
}
