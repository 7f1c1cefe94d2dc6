//! A stored response.

use serde_json::Value;
use std::sync::Arc;

/// Memory of a response besides its texts.
const ENTRY: usize = 512;

/// A response with the conversation that it ends, as JSON texts.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredResponse {
    /// The response.
    pub response: Arc<str>,
    /// Messages of the conversation, for chat templates, without the instructions: JSON arrays, one after
    /// the other. Responses that go on from each other share them.
    pub messages: Vec<Arc<str>>,
}

impl StoredResponse {
    /// Returns the bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.response.len() + bytes(&self.messages) + ENTRY
    }

    /// Returns the messages of the conversation.
    pub fn conversation(&self) -> Vec<Value> {
        let parse = |text: &Arc<str>| serde_json::from_str::<Vec<Value>>(text).unwrap_or_default();
        self.messages.iter().flat_map(parse).collect()
    }
}

/// Returns the bytes of the messages of a conversation.
pub fn bytes(messages: &[Arc<str>]) -> usize {
    messages.iter().map(|text| text.len()).sum()
}
