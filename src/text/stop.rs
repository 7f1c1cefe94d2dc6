//! Stop strings in a stream of text. They are found across chunks, and never shown.

use std::fmt::Debug;

/// Decides in which parts of an output stop strings act: in the answer, and not in the reasoning or in
/// calls.
///
/// The parts that [`push`](Self::push) and [`finish`](Self::finish) return are the whole output, in order.
pub trait StopScope: Debug + Send + Sync {
    /// Reads more of the output. Returns the text for which it is decided whether stop strings act there.
    fn push(&mut self, text: &str) -> Vec<ScopedText>;

    /// Returns the rest, at the end of the output.
    fn finish(&mut self) -> Vec<ScopedText>;

    /// Returns a copy with a state of its own.
    fn boxed_clone(&self) -> Box<dyn StopScope>;
}

impl Clone for Box<dyn StopScope> {
    fn clone(&self) -> Self {
        self.as_ref().boxed_clone()
    }
}

/// A part of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopedText {
    /// The text.
    pub text: String,
    /// True if stop strings act on it.
    pub stops: bool,
}

/// Searches a stream of text for stop strings, which end the text.
///
/// Text is held back only while it may be the start of a stop string. The stop string that is complete
/// first wins; of two that end together, the longer one. The stop string and everything after it are
/// dropped. The result does not depend on how the text is split into chunks.
///
/// ```
/// use wrinklefree::text::{StopStrings, Stopped};
///
/// let mut stops = StopStrings::new(["<end>"]);
/// let mut shown = String::new();
/// assert_eq!(stops.push("Hello <e", &mut shown), None);
/// assert_eq!(shown, "Hello ");
/// assert_eq!(stops.push("nd> dropped", &mut shown), Some(Stopped { index: 0 }));
/// assert_eq!(shown, "Hello ");
/// ```
#[derive(Clone, Debug, Default)]
pub struct StopStrings {
    stops: Vec<String>,
    /// Text that may be the start of a stop string.
    held: String,
    stopped: bool,
    /// Parts of the text that are searched; `None` for all.
    scope: Option<Box<dyn StopScope>>,
}

/// The result of finding a stop string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stopped {
    /// Index of the stop string in the list given to [`StopStrings::new`].
    pub index: usize,
}

impl StopStrings {
    /// Creates a search for any of `stops`; empty ones are ignored.
    pub fn new<S: Into<String>>(stops: impl IntoIterator<Item = S>) -> Self {
        Self { stops: stops.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Searches only the parts of the text that `scope` names. No stop string lies across their borders.
    /// Without stop strings, no part needs to be found.
    #[must_use]
    pub fn within(self, scope: Option<Box<dyn StopScope>>) -> Self {
        let searches = self.stops.iter().any(|stop| !stop.is_empty());
        Self { scope: scope.filter(|_| searches), ..self }
    }

    /// Adds a chunk of text, and appends to `shown` the text that cannot be part of a stop string.
    /// Returns the stop string that ends the text, if one does; later chunks are then ignored.
    pub fn push(&mut self, text: &str, shown: &mut String) -> Option<Stopped> {
        match &mut self.scope {
            _ if self.stopped => None,
            None => self.search(text, shown),
            Some(scope) => {
                let parts = scope.push(text);
                self.search_parts(parts, shown)
            }
        }
    }

    /// Adds a chunk of text in which no stop string acts.
    pub fn pass(&mut self, text: &str, shown: &mut String) {
        match &mut self.scope {
            None => shown.push_str(text),
            Some(scope) => scope.push(text).iter().for_each(|part| shown.push_str(&part.text)),
        }
    }

    fn search_parts(&mut self, parts: Vec<ScopedText>, shown: &mut String) -> Option<Stopped> {
        for part in parts {
            if !part.stops {
                shown.push_str(&std::mem::take(&mut self.held));
                shown.push_str(&part.text);
            } else if let Some(stopped) = self.search(&part.text, shown) {
                return Some(stopped);
            }
        }
        None
    }

    fn search(&mut self, text: &str, shown: &mut String) -> Option<Stopped> {
        self.held.push_str(text);
        let first = self
            .stops
            .iter()
            .enumerate()
            .filter(|(_, stop)| !stop.is_empty())
            .filter_map(|(index, stop)| {
                let start = self.held.find(stop.as_str())?;
                Some((start + stop.len(), start, index))
            })
            .min();
        if let Some((_, start, index)) = first {
            shown.push_str(&self.held[..start]);
            self.held.clear();
            self.stopped = true;
            return Some(Stopped { index });
        }
        let sure = self.held.len() - self.partial_match();
        shown.push_str(&self.held[..sure]);
        self.held.drain(..sure);
        None
    }

    /// Ends the text, and returns the text that was held back, up to a stop string.
    #[must_use]
    pub fn finish(&mut self) -> String {
        let mut shown = String::new();
        if let Some(scope) = self.scope.as_mut().filter(|_| !self.stopped) {
            let parts = scope.finish();
            self.search_parts(parts, &mut shown);
        }
        shown + &std::mem::take(&mut self.held)
    }

    /// Length of the longest suffix of `held` that is a prefix of a stop string.
    fn partial_match(&self) -> usize {
        let longest = self.stops.iter().map(String::len).max().unwrap_or(0);
        let from = (self.held.len() + 1).saturating_sub(longest);
        (from..self.held.len())
            .filter(|&i| self.held.is_char_boundary(i))
            .find(|&i| self.stops.iter().any(|s| s.starts_with(&self.held[i..])))
            .map_or(0, |i| self.held.len() - i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<usize>) {
        let mut watch = StopStrings::new(stops.iter().copied());
        let (mut shown, mut stopped) = (String::new(), None);
        for piece in pieces {
            if let Some(stop) = watch.push(piece, &mut shown) {
                stopped = stopped.or(Some(stop.index));
            }
        }
        shown += &watch.finish();
        (shown, stopped)
    }

    /// Stop strings act in parentheses.
    #[derive(Clone, Debug, Default)]
    struct Parentheses(bool);

    impl StopScope for Parentheses {
        fn push(&mut self, text: &str) -> Vec<ScopedText> {
            let part = |c: char| {
                self.0 = c == '(' || (self.0 && c != ')');
                ScopedText { text: c.into(), stops: self.0 }
            };
            text.chars().map(part).collect()
        }

        fn finish(&mut self) -> Vec<ScopedText> {
            vec![ScopedText { text: "!x".into(), stops: true }]
        }

        fn boxed_clone(&self) -> Box<dyn StopScope> {
            Box::new(self.clone())
        }
    }

    #[test]
    fn a_scope_limits_the_search() {
        for (text, want) in
            [("a xy (b x) xy (cxy", "a xy (b x) xy (c"), ("x(x)y", "x(x)y"), ("(x", "(")]
        {
            for size in 1..=text.len() {
                let stops = StopStrings::new(["xy", "x!", "!x"])
                    .within(Some(Box::<Parentheses>::default()));
                let (mut stops, mut shown) = (stops.clone(), String::new());
                for chunk in text.as_bytes().chunks(size) {
                    stops.push(std::str::from_utf8(chunk).expect("ASCII"), &mut shown);
                }
                shown += &stops.finish();
                assert_eq!(shown, want, "{text}, {size}");
            }
        }
        let mut early = StopStrings::new(["x"]).within(Some(Box::<Parentheses>::default()));
        let mut shown = String::new();
        early.pass("(x", &mut shown);
        assert_eq!(early.push("x)", &mut shown), Some(Stopped { index: 0 }));
        assert_eq!(shown, "(x");
    }

    #[test]
    fn straddles_pieces() {
        assert_eq!(run(&["<end>"], &["a<e", "n", "d", ">b"]), ("a".into(), Some(0)));
        assert_eq!(run(&["<end>"], &["a<e", "n", "x>"]), ("a<enx>".into(), None));
        assert_eq!(run(&["aab"], &["a", "a", "a", "b", "c"]), ("a".into(), Some(0)));
        assert_eq!(run(&["。\n"], &["日本。", "\n", "x"]), ("日本".into(), Some(0)));
        assert_eq!(run(&["é"], &["e\u{301}é!"]), ("e\u{301}".into(), Some(0)));
    }

    #[test]
    fn holds_back_only_what_could_be_a_stop() {
        let mut watch = StopStrings::new(["\n\nUser:"]);
        let mut shown = String::new();
        assert_eq!(watch.push("one\n", &mut shown), None);
        assert_eq!(shown, "one");
        assert_eq!(watch.push("two", &mut shown), None);
        assert_eq!(shown, "one\ntwo");
        assert_eq!(watch.push("\n\nUser:x", &mut shown), Some(Stopped { index: 0 }));
        assert_eq!(watch.push("more", &mut shown), None);
        assert_eq!(watch.finish(), "");
        assert_eq!(shown, "one\ntwo");
    }

    #[test]
    fn the_first_complete_stop_wins_and_empty_ones_are_ignored() {
        assert_eq!(run(&["abcd", "bc"], &["abcd"]), ("a".into(), Some(1)));
        assert_eq!(run(&["bc", "abc"], &["abc"]), (String::new(), Some(1)));
        assert_eq!(run(&["", "b"], &["ab"]), ("a".into(), Some(1)));
        assert_eq!(run(&[], &["a", "b"]), ("ab".into(), None));
    }

    proptest! {
        #[test]
        fn cutting_the_text_into_pieces_changes_nothing(
            text in "[abé日]{0,24}", stops in prop::collection::vec("[abé日]{1,4}", 0..4),
        ) {
            let stops: Vec<&str> = stops.iter().map(String::as_str).collect();
            let chars: Vec<String> = text.chars().map(String::from).collect();
            let pieces: Vec<&str> = chars.iter().map(String::as_str).collect();
            let whole = run(&stops, &[&text]);
            prop_assert_eq!(&run(&stops, &pieces), &whole);
            if whole.1.is_none() {
                prop_assert_eq!(&whole.0, &text);
            }
            prop_assert!(stops.iter().all(|s| !whole.0.contains(s)));
        }
    }
}
