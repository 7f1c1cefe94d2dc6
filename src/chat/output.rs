//! Reasoning, text and tool calls of an output.

/// An increment of an output.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputDelta {
    /// More of the reasoning.
    Reasoning(String),
    /// More text.
    Text(String),
    /// A call of this function begins.
    CallStart(String),
    /// More of the arguments of the last call, as JSON.
    Arguments(String),
}

impl OutputDelta {
    /// Returns the new text of the answer.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Reasoning(_) | Self::CallStart(_) | Self::Arguments(_) => None,
        }
    }
}

/// A part of a complete output.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputBlock {
    /// A part of the reasoning.
    Reasoning(String),
    /// A text.
    Text(String),
    /// A call.
    Call(ToolCall),
}

/// The parts of an output, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutputBlocks(pub Vec<OutputBlock>);

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolCall {
    /// Name of the function.
    pub name: String,
    /// Arguments, as JSON.
    pub arguments: String,
}

/// Returns the increment of a text that is not empty.
pub(super) fn text_delta(text: &str) -> Option<OutputDelta> {
    (!text.is_empty()).then(|| OutputDelta::Text(text.into()))
}

impl OutputBlocks {
    /// Adds an increment to the last block or begins a new one. Returns true if it began one.
    pub fn push(&mut self, delta: &OutputDelta) -> bool {
        match (delta, self.0.last_mut()) {
            (OutputDelta::Text(more), Some(OutputBlock::Text(text)))
            | (OutputDelta::Reasoning(more), Some(OutputBlock::Reasoning(text))) => *text += more,
            (OutputDelta::Arguments(more), Some(OutputBlock::Call(call))) => call.arguments += more,
            (OutputDelta::Arguments(_), _) => unreachable!("arguments follow the start of a call"),
            (OutputDelta::Reasoning(text), _) => {
                self.0.push(OutputBlock::Reasoning(text.clone()));
                return true;
            }
            (OutputDelta::Text(text), _) => {
                self.0.push(OutputBlock::Text(text.clone()));
                return true;
            }
            (OutputDelta::CallStart(name), _) => {
                let (name, arguments) = (name.clone(), String::new());
                self.0.push(OutputBlock::Call(ToolCall { name, arguments }));
                return true;
            }
        }
        false
    }

    /// Returns the text of all blocks, without the reasoning.
    #[must_use]
    pub fn text(&self) -> String {
        let text = |block: &OutputBlock| match block {
            OutputBlock::Text(text) => Some(text.clone()),
            OutputBlock::Reasoning(_) | OutputBlock::Call(_) => None,
        };
        self.0.iter().filter_map(text).collect()
    }

    /// Returns the reasoning; empty if there is none.
    #[must_use]
    pub fn reasoning(&self) -> String {
        let text = |block: &OutputBlock| match block {
            OutputBlock::Reasoning(text) => Some(text.clone()),
            OutputBlock::Text(_) | OutputBlock::Call(_) => None,
        };
        self.0.iter().filter_map(text).collect()
    }

    /// Returns all calls.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.0.iter().filter_map(|block| match block {
            OutputBlock::Reasoning(_) | OutputBlock::Text(_) => None,
            OutputBlock::Call(call) => Some(call),
        })
    }
}
