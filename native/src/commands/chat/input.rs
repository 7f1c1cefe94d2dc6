//! Parses lines that the user typed into messages and commands.

use std::path::PathBuf;

/// A complete input.
#[derive(Debug, PartialEq, Eq)]
pub enum Input {
    /// Something to say to the model.
    Message(String),
    /// `/reset`
    Reset,
    /// `/system [TEXT]`
    System(Option<String>),
    /// `/save FILE`
    Save(PathBuf),
    /// `/load FILE`
    Load(PathBuf),
    /// `/regen`
    Regenerate,
    /// `/set [NAME VALUE]`
    Set(Option<(String, String)>),
    /// `/stats`
    Stats,
    /// `/thinking`
    Thinking,
    /// `/raw`
    Raw,
    /// `/help`
    Help,
    /// `/quit`
    Quit,
    /// A command that is none of these, and what is wrong with it.
    Wrong(String),
}

/// Shown by `/help`.
pub const HELP: &str = "\
/reset          forget the conversation
/system TEXT    forget the conversation and start it with a system message; without TEXT none
/save FILE      write the conversation to a JSON file
/load FILE      continue the conversation of such a file
/regen          answer the last message again
/set NAME VALUE change a setting for what follows; without NAME show them
/stats          tokens, speed and memory of the last answer
/thinking       the thinking before the last answer
/raw            the last answer as the model wrote it, without formatting
/help           this text
/quit           leave, like Ctrl-D
A line that ends with \\ continues on the next; lines between \"\"\" and \"\"\" are one message.
Ctrl-C stops the answer.";

/// Gathers lines until they are complete.
#[derive(Default)]
pub struct Lines {
    text: String,
    block: bool,
}

impl Lines {
    /// Returns true if a message was begun and is not complete.
    pub fn is_open(&self) -> bool {
        self.block || !self.text.is_empty()
    }

    /// Takes a line; gives the input when it is complete and not blank.
    pub fn feed(&mut self, line: &str) -> Option<Input> {
        const FENCE: &str = "\"\"\"";
        if self.block {
            match line.trim_end().strip_suffix(FENCE) {
                Some(last) => {
                    self.text += last;
                    return self.take();
                }
                None => self.push(line),
            }
            return None;
        }
        if self.text.is_empty() {
            if let Some(first) = line.trim_start().strip_prefix(FENCE) {
                if let Some(all) = first.trim_end().strip_suffix(FENCE) {
                    self.text += all;
                    return self.take();
                }
                self.block = true;
                if !first.is_empty() {
                    self.push(first);
                }
                return None;
            }
            if line.trim_start().starts_with('/') {
                return Some(command(line.trim()));
            }
        }
        if let Some(begun) = line.strip_suffix('\\') {
            self.push(begun);
            return None;
        }
        self.text += line;
        self.take()
    }

    /// Drops what was begun.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn push(&mut self, line: &str) {
        self.text += line;
        self.text.push('\n');
    }

    fn take(&mut self) -> Option<Input> {
        let text = std::mem::take(self).text;
        let text = text.trim_end();
        (!text.trim().is_empty()).then(|| Input::Message(text.into()))
    }
}

fn command(line: &str) -> Input {
    let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    match (name, rest) {
        ("/reset", "") => Input::Reset,
        ("/system", "") => Input::System(None),
        ("/system", text) => Input::System(Some(text.into())),
        ("/save", "") => Input::Wrong("/save needs a file name: /save FILE".into()),
        ("/save", file) => Input::Save(file.into()),
        ("/load", "") => Input::Wrong("/load needs a file name: /load FILE".into()),
        ("/load", file) => Input::Load(file.into()),
        ("/regen", "") => Input::Regenerate,
        ("/set", "") => Input::Set(None),
        ("/set", text) => match text.split_once(char::is_whitespace) {
            Some((name, value)) => Input::Set(Some((name.into(), value.trim().into()))),
            None => Input::Wrong(format!("/set {text} needs a value: /set {text} VALUE")),
        },
        ("/stats", "") => Input::Stats,
        ("/thinking", "") => Input::Thinking,
        ("/raw", "") => Input::Raw,
        ("/help" | "/?", "") => Input::Help,
        ("/quit" | "/exit", "") => Input::Quit,
        ("/reset" | "/regen" | "/stats" | "/thinking" | "/raw" | "/help" | "/quit", _) => {
            Input::Wrong(format!("{name} takes nothing after it"))
        }
        _ => Input::Wrong(format!("{name} is no command; /help lists them")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(lines: &[&str]) -> Vec<Input> {
        let mut open = Lines::default();
        lines.iter().filter_map(|l| open.feed(l)).collect()
    }

    fn said(text: &str) -> Input {
        Input::Message(text.into())
    }

    #[test]
    fn messages() {
        assert_eq!(all(&["hello", "", "  ", "world "]), [said("hello"), said("world")]);
        assert_eq!(all(&["a\\", "b\\", "c", "d"]), [said("a\nb\nc"), said("d")]);
        assert_eq!(
            all(&["\"\"\"", "/reset", "x\\", "", "y", "\"\"\""]),
            [said("/reset\nx\\\n\ny")]
        );
        assert_eq!(
            all(&["\"\"\"one\"\"\"", "\"\"\"two", "three\"\"\""]),
            [said("one"), said("two\nthree")]
        );
    }

    #[test]
    fn commands() {
        assert_eq!(
            all(&["/load a b.json", "/regen", "/set", "/set temperature  0.5"]),
            [
                Input::Load("a b.json".into()),
                Input::Regenerate,
                Input::Set(None),
                Input::Set(Some(("temperature".into(), "0.5".into())))
            ]
        );
        assert_eq!(
            all(&["/reset", " /system Be brief. ", "/system", "/save a b.json", "/quit"]),
            [
                Input::Reset,
                Input::System(Some("Be brief.".into())),
                Input::System(None),
                Input::Save("a b.json".into()),
                Input::Quit
            ]
        );
        for wrong in ["/save", "/load", "/regen now", "/set top_p", "/reset now", "/nonsense", "/"]
        {
            assert!(matches!(all(&[wrong])[..], [Input::Wrong(_)]), "{wrong}");
        }
    }
}
