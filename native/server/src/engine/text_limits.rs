//! Limits of llama-server's API that end an output by its text and time.

use std::time::Duration;

/// Limits of an output for editors, which want few lines soon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextLimits {
    /// Time since the first token after which the output ends with its line, unless that is its first
    /// line.
    pub time: Option<Duration>,
    /// Minimum indentation of each line but the first. A line with less ends the output before it.
    pub indent: usize,
}

/// An output's text so far, as far as its limits need it.
#[derive(Clone, Copy, Debug)]
pub struct LimitedText {
    limits: TextLimits,
    /// Indentation of the current line; `None` in the first line and after an indentation.
    indent: Option<usize>,
}

impl LimitedText {
    /// Makes the state of an empty output; `None` if nothing is limited.
    pub fn new(limits: TextLimits) -> Option<Self> {
        (limits != TextLimits::default()).then_some(Self { limits, indent: None })
    }

    /// Adds text that arrived so long after the first token. Returns true if the output ends, and cuts
    /// the text there.
    pub fn push(&mut self, text: &mut String, elapsed: Duration) -> bool {
        let late = self.limits.time.is_some_and(|limit| elapsed > limit);
        for (index, letter) in text.char_indices() {
            match (letter, self.indent) {
                ('\n', _) => self.indent = Some(0),
                (' ' | '\t', Some(indent)) => self.indent = Some(indent + 1),
                (_, Some(indent)) if indent < self.limits.indent => {
                    text.truncate(index);
                    return true;
                }
                _ => self.indent = None,
            }
        }
        late && text.contains('\n')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text until the limit, and whether it was reached. A part arrives each second.
    fn limited(limits: TextLimits, parts: &[&str]) -> (String, bool) {
        let mut state = LimitedText::new(limits).expect("a limit");
        let mut all = String::new();
        for (second, part) in parts.iter().enumerate() {
            let mut part = part.to_string();
            let ends = state.push(&mut part, Duration::from_secs(second as u64));
            all += &part;
            if ends {
                return (all, true);
            }
        }
        (all, false)
    }

    #[test]
    fn a_line_with_less_indentation_ends_the_output() {
        let limits = TextLimits { indent: 4, ..TextLimits::default() };
        let parts = ["a:\n", "    b\n\n", "  ", "\t ", "c\n  d", "\ne"];
        assert_eq!(limited(limits, &parts), ("a:\n    b\n\n  \t c\n  ".into(), true));
        assert_eq!(limited(limits, &["  a", "b\n", "     c"]), ("  ab\n     c".into(), false));
    }

    #[test]
    fn the_time_ends_the_output_with_a_line() {
        let limits = TextLimits { time: Some(Duration::from_secs(2)), indent: 0 };
        let parts = ["a\n", "b", "c", "d", "e\n", "f"];
        assert_eq!(limited(limits, &parts), ("a\nbcde\n".into(), true));
        assert_eq!(limited(limits, &parts[1..4]), ("bcd".into(), false));
        assert!(LimitedText::new(TextLimits::default()).is_none());
    }
}
