//! Markdown for the terminal while it is generated: styles instead of marks, and lines that break between
//! words. A word appears as soon as its end is known.

use super::human;
use super::out::visible;
use anstyle::{AnsiColor, Style};

/// Columns of a horizontal rule at most.
const RULE: usize = 40;
/// Columns of the longest indent of continued lines.
const MAX_INDENT: usize = 16;

/// Formats one answer.
#[derive(Default)]
pub struct Markdown {
    line: Line,
    /// Spaces in front of the word.
    spaces: usize,
    /// The word whose end is not known yet.
    word: String,
    /// The last character before it.
    before: Option<char>,
    column: usize,
    indent: Indent,
    marks: Marks,
    out: Styled,
}

/// The kind of the current line.
#[derive(Default, PartialEq)]
enum Line {
    /// Its first word decides.
    #[default]
    Start,
    /// Words; those after a mark of the whole line begin without a space.
    Words { first: bool },
    /// A row of a table, as it is.
    Row,
    /// The line that opens a block of code.
    Fence(Fence),
    /// A block of code; the line so far where it may close the block.
    Code(Fence, Option<String>),
}

/// The marks that open and close a block of code.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fence {
    mark: char,
    count: usize,
}

/// The beginning of continued lines.
#[derive(Default)]
struct Indent {
    /// Levels of quotation.
    quotes: usize,
    /// Spaces after these.
    spaces: usize,
}

impl Indent {
    fn width(&self) -> usize {
        2 * self.quotes + self.spaces
    }
}

/// Marks that are open inside a line.
#[derive(Default)]
struct Marks {
    heading: bool,
    strong: bool,
    emphasis: bool,
    /// Number of backticks that close the code; 0 outside of code.
    code: usize,
}

impl Marks {
    fn style(&self) -> Style {
        if self.code > 0 {
            return CODE;
        }
        let style = if self.heading { Style::new().bold().underline() } else { Style::new() };
        let style = if self.strong { style.bold() } else { style };
        if self.emphasis { style.italic() } else { style }
    }

    /// Opens or closes emphasis with a run of `count` marks. Returns false if the run is text.
    fn emphasize(&mut self, mark: char, count: usize, before: char, after: char) -> bool {
        // A mark inside a word or a product is text: snake_case, 2*3.
        let inside = |c: char| match mark {
            '_' => c.is_alphanumeric(),
            _ => c.is_ascii_alphanumeric(),
        };
        let (strong, emphasis) = (count >= 2, count % 2 == 1);
        let closes = !before.is_whitespace() && (mark == '*' || !inside(after));
        let opens = !after.is_whitespace() && !inside(before);
        let is =
            |open: bool| (!strong || self.strong == open) && (!emphasis || self.emphasis == open);
        let open = match (count <= 3, closes && is(true), opens && is(false)) {
            (true, true, _) => false,
            (true, false, true) => true,
            _ => return false,
        };
        self.strong = if strong { open } else { self.strong };
        self.emphasis = if emphasis { open } else { self.emphasis };
        true
    }
}

const CODE: Style = Style::new().fg_color(Some(anstyle::Color::Ansi(AnsiColor::Cyan)));

/// Text with styles.
#[derive(Default)]
struct Styled {
    text: String,
    style: Style,
}

impl Styled {
    fn push(&mut self, style: Style, text: &str) {
        if !text.is_empty() {
            self.switch(style);
            self.text += text;
        }
    }

    fn switch(&mut self, style: Style) {
        if style != self.style {
            self.text += &format!("{:#}{style}", self.style);
            self.style = style;
        }
    }

    fn plain(&mut self, text: &str) {
        self.push(Style::new(), text);
    }

    fn take(&mut self) -> String {
        self.switch(Style::new());
        std::mem::take(&mut self.text)
    }
}

impl Markdown {
    /// Takes text, and returns what a terminal of so many columns shows next.
    pub fn push(&mut self, text: &str, columns: usize) -> String {
        for c in text.chars().filter(|&c| c != '\r') {
            self.take(visible(c), columns);
        }
        self.out.take()
    }

    /// Returns the rest.
    pub fn finish(&mut self, columns: usize) -> String {
        match &mut self.line {
            Line::Code(fence, Some(held)) if !fence.closes(held) => {
                let held = std::mem::take(held);
                self.out.push(CODE, &held);
            }
            Line::Code(..) => {}
            _ => self.end_word('\n', columns),
        }
        self.out.take()
    }

    fn take(&mut self, c: char, columns: usize) {
        match &mut self.line {
            Line::Start | Line::Words { .. } => match c {
                '\n' => self.end_line(columns),
                ' ' | '\t' => {
                    self.end_word(c, columns);
                    if self.line != Line::Row {
                        self.spaces += 1;
                    } else {
                        self.out.plain(" ");
                    }
                }
                c => {
                    // Lines may break before wide characters, which have no spaces between them.
                    let wide = human::width(c.encode_utf8(&mut [0; 4])) > 1;
                    if wide && !self.word.is_empty() {
                        self.end_word(c, columns);
                        return self.take(c, columns);
                    }
                    self.word.push(c);
                }
            },
            Line::Row | Line::Fence(_) if c == '\n' => self.end_line(columns),
            Line::Row => self.out.plain(c.encode_utf8(&mut [0; 4])),
            Line::Fence(_) => {}
            Line::Code(fence, held) => {
                let closed = match c {
                    '\n' => held.as_ref().is_some_and(|held| fence.closes(held)),
                    _ => false,
                };
                code(&mut self.out, *fence, held, c);
                if closed {
                    self.line = Line::Start;
                }
            }
        }
    }

    fn end_line(&mut self, columns: usize) {
        self.end_word('\n', columns);
        (self.spaces, self.before, self.column) = (0, None, 0);
        (self.indent, self.marks) = (Indent::default(), Marks::default());
        match self.line {
            Line::Fence(fence) => self.line = Line::Code(fence, Some(String::new())),
            _ => {
                self.line = Line::Start;
                self.out.plain("\n");
            }
        }
    }

    /// Shows the word, with `after` as the next character.
    fn end_word(&mut self, after: char, columns: usize) {
        let word = std::mem::take(&mut self.word);
        if word.is_empty() {
            return;
        }
        match self.line {
            Line::Start => self.first_word(&word, after, columns),
            _ => self.show(&word, after, columns),
        }
    }

    /// Decides by the first word of a line what the line is.
    fn first_word(&mut self, word: &str, after: char, columns: usize) {
        self.line = Line::Words { first: false };
        self.indent.spaces = self.spaces.min(MAX_INDENT);
        let only = |mark: char| word.chars().all(|c| c == mark);
        if let Some(fence) = Fence::open(word) {
            // The rest of its line names a language.
            self.line = Line::Fence(fence);
        } else if word.starts_with('|') {
            self.line = Line::Row;
            self.out.plain(&format!("{}{word}", " ".repeat(self.spaces)));
        } else if after == '\n' && word.len() >= 3 && ['-', '*', '_'].into_iter().any(only) {
            self.out.push(Style::new().dimmed(), &"─".repeat(RULE.min(columns)));
        } else if after == ' ' && word.len() <= 6 && only('#') {
            self.marks.heading = true;
            self.line = Line::Words { first: true };
        } else if let Some(rest) = word.strip_prefix('>') {
            self.quote(rest, after, columns);
        } else if after == ' ' && ["-", "*", "+"].contains(&word) {
            self.item("•");
        } else if after == ' ' && is_number(word) {
            self.item(word);
        } else {
            self.show(word, after, columns);
        }
        self.spaces = 0;
    }

    /// Shows the mark of a list's item; continued lines begin after it.
    fn item(&mut self, mark: &str) {
        self.out.plain(&format!("{}{mark}", " ".repeat(self.indent.spaces)));
        self.column = self.indent.spaces + human::width(mark);
        self.indent.spaces = self.column + 1;
    }

    fn quote(&mut self, rest: &str, after: char, columns: usize) {
        let inner = rest.trim_start_matches('>');
        self.indent = Indent { quotes: 1 + rest.len() - inner.len(), spaces: 0 };
        self.begin_line();
        (self.line, self.spaces) = (Line::Words { first: true }, 0);
        if !inner.is_empty() {
            self.show(inner, after, columns);
        }
    }

    /// Shows the beginning of a continued line.
    fn begin_line(&mut self) {
        self.out.push(Style::new().dimmed(), &"│ ".repeat(self.indent.quotes));
        self.out.plain(&" ".repeat(self.indent.spaces));
        self.column = self.indent.width();
    }

    fn show(&mut self, word: &str, after: char, columns: usize) {
        let before = if self.spaces > 0 { None } else { self.before };
        let parts = self.parts(word, before.unwrap_or(' '), after);
        let width: usize = parts.iter().map(|(_, text)| human::width(text)).sum();
        let first = std::mem::replace(&mut self.line, Line::Words { first: false })
            == (Line::Words { first: true });
        let spaces = if first { 0 } else { self.spaces };
        if self.column + spaces + width > columns && self.column > self.indent.width() {
            self.out.plain("\n");
            self.begin_line();
        } else {
            let style = if self.marks.heading { self.marks.style() } else { Style::new() };
            let style = if first || self.column == 0 { Style::new() } else { style };
            self.out.push(style, &" ".repeat(spaces));
            self.column += spaces;
        }
        for (style, text) in parts {
            self.out.push(style, &text);
        }
        self.column += width;
        // The terminal breaks a word that is wider than itself.
        self.column =
            if self.column > columns { self.column % columns.max(1) } else { self.column };
        (self.spaces, self.before) = (0, word.chars().last());
    }

    /// Splits a word at the marks in it, which open and close styles.
    fn parts(&mut self, word: &str, before: char, after: char) -> Vec<(Style, String)> {
        let mut parts: Vec<(Style, String)> = Vec::new();
        let mut text = |style: Style, shown: &str| match parts.last_mut() {
            Some((last, part)) if *last == style => *part += shown,
            _ => parts.push((style, shown.to_owned())),
        };
        let (mut rest, mut before) = (word, before);
        while let Some(c) = rest.chars().next() {
            let count = rest.chars().take_while(|&other| other == c).count();
            let (run, next) = rest.split_at(count * c.len_utf8());
            let follows = next.chars().next().unwrap_or(after);
            let is_mark = match c {
                '`' if self.marks.code == 0 || self.marks.code == count => {
                    self.marks.code = if self.marks.code == 0 { count } else { 0 };
                    true
                }
                '*' | '_' if self.marks.code == 0 => {
                    self.marks.emphasize(c, count, before, follows)
                }
                _ => false,
            };
            let escaped = next.chars().next().filter(char::is_ascii_punctuation);
            (rest, before) = (next, c);
            if let Some(escaped) =
                escaped.filter(|_| c == '\\' && count == 1 && self.marks.code == 0)
            {
                text(self.marks.style(), escaped.encode_utf8(&mut [0; 4]));
                rest = &rest[escaped.len_utf8()..];
            } else if !is_mark {
                text(self.marks.style(), run);
            }
        }
        parts
    }
}

impl Fence {
    /// The fence that a line's first word opens.
    fn open(word: &str) -> Option<Self> {
        let mark = word.chars().next().filter(|c| ['`', '~'].contains(c))?;
        let count = word.chars().take_while(|&c| c == mark).count();
        (count >= 3 && !word[count..].contains('`')).then_some(Self { mark, count })
    }

    /// Returns true if the line closes the block.
    fn closes(self, line: &str) -> bool {
        let line = line.trim();
        line.chars().all(|c| c == self.mark) && line.len() >= self.count
    }

    /// Returns true if more text may make it such a line.
    fn may_close(self, line: &str) -> bool {
        line.trim().chars().all(|c| c == self.mark)
    }
}

/// Shows code as it is; lines that may close the block wait.
fn code(out: &mut Styled, fence: Fence, held: &mut Option<String>, c: char) {
    let Some(line) = held else {
        out.push(CODE, c.encode_utf8(&mut [0; 4]));
        if c == '\n' {
            *held = Some(String::new());
        }
        return;
    };
    if c == '\n' {
        if !fence.closes(line) {
            out.push(CODE, &(std::mem::take(line) + "\n"));
        }
        return;
    }
    line.push(c);
    if !fence.may_close(line) {
        out.push(CODE, line);
        *held = None;
    }
}

/// Returns true for the number of a list's item: `1.`, `12)`.
fn is_number(word: &str) -> bool {
    let digits = word.strip_suffix(['.', ')']).unwrap_or_default();
    (1..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text without styles that a terminal of 20 columns shows, which is the same however the text
    /// is cut.
    fn shown(text: &str) -> String {
        let whole = styled(text);
        let mut markdown = Markdown::default();
        let pieces: String =
            text.chars().map(|c| markdown.push(c.encode_utf8(&mut [0; 4]), 20)).collect();
        let pieces = pieces + &markdown.finish(20);
        let plain = |text: &str| anstream::adapter::strip_str(text).to_string();
        assert_eq!(plain(&pieces), plain(&whole), "{text:?}");
        plain(&whole)
    }

    fn styled(text: &str) -> String {
        let mut markdown = Markdown::default();
        markdown.push(text, 20) + &markdown.finish(20)
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(shown("one two three four five six"), "one two three four\nfive six");
        assert_eq!(shown("a line\nanother\n\nlast\n"), "a line\nanother\n\nlast\n");
        assert_eq!(shown("漢字漢字漢字漢字漢字漢字"), "漢字漢字漢字漢字漢字\n漢字");
        let long = "a".repeat(30);
        assert_eq!(shown(&format!("x {long} y")), format!("x\n{long} y"));
        assert_eq!(shown("  two spaces in front of it"), "  two spaces in\n  front of it");
    }

    #[test]
    fn items_and_quotes_continue_behind_their_marks() {
        assert_eq!(shown("- one two three four five"), "• one two three four\n  five");
        assert_eq!(shown("12. one two three four"), "12. one two three\n    four");
        assert_eq!(shown("  * deep one two three four"), "  • deep one two\n    three four");
        assert_eq!(shown("> one two three four five"), "│ one two three four\n│ five");
        assert_eq!(shown(">>deep\n- \n-\n1.5 l"), "│ │ deep\n•\n-\n1.5 l");
    }

    #[test]
    fn marks_become_styles() {
        let (bold, off) = (Style::new().bold(), "\x1b[0m");
        assert_eq!(styled("a **b c** d"), format!("a {bold}b{off} {bold}c{off} d"));
        assert_eq!(styled("`x_y*`."), format!("{CODE}x_y*{off}."));
        let italic = Style::new().italic();
        assert_eq!(styled("_a_ *b*"), format!("{italic}a{off} {italic}b{off}"));
        let head = Style::new().bold().underline();
        assert_eq!(styled("## A b\nc"), format!("{head}A b{off}\nc"));
        assert_eq!(shown("这是**重点**内容"), "这是重点内容");
        assert_eq!(shown("***both*** \\*text\\*"), "both *text*");
    }

    #[test]
    fn text_that_looks_like_marks_stays() {
        for text in ["2 * 3 * 4", "2*3*4", "snake_case_name", "#5 and # 6", "5 > 3", "a - b", "**"]
        {
            assert_eq!(shown(text), text);
        }
        assert_eq!(shown("an *open mark\nnext"), "an open mark\nnext", "no style goes on");
        assert!(styled("an *open mark\nnext").ends_with("\nnext"));
    }

    #[test]
    fn code_and_tables_stay_as_they_are() {
        let code = "fn main() { let long_line = 1 * 2 * 3; }\n  ``\n\n**x**";
        assert_eq!(shown(&format!("so:\n```rust\n{code}\n```\nend")), format!("so:\n{code}\nend"));
        assert_eq!(shown("~~~\nnever closed"), "never closed");
        assert_eq!(shown("```\na\n```"), "a\n");
        assert_eq!(shown("```a``` b"), "a b");
        assert_eq!(shown("```漢字\n漢\n```\n|漢字 |\n"), "漢\n|漢字 |\n");
        let table = "| a long heading | another one |\n| --- | --- |\n| 1 | `2` |\n";
        assert_eq!(shown(table), table);
    }

    #[test]
    fn rules_and_control_characters() {
        assert_eq!(shown("a\n---\nb"), format!("a\n{}\nb", "─".repeat(20)));
        assert_eq!(shown("a\x1b[2Jb"), "a\u{fffd}[2Jb");
    }

    #[test]
    fn a_word_appears_with_its_end() {
        let mut markdown = Markdown::default();
        let pushed = ["Once ", "up", "on a", " time"].map(|text| markdown.push(text, 20));
        assert_eq!(pushed, ["Once", "", " upon", " a"]);
        assert_eq!(markdown.finish(20), " time");
    }
}
