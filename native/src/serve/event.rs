//! Events of a request: what the engine's thread sends to the task that answers it.

use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use wrinklefree::decode::Sampled;
use wrinklefree::engine::FinishReason;

/// An event of a request. There is at most one for each token of prompt and output, so the request
/// itself bounds its channel.
#[derive(Clone, Debug)]
pub enum RequestEvent {
    /// The next prompt tokens with their log-probabilities.
    Scored(Vec<Sampled>),
    /// The embedding of the prompt.
    Embedded(Vec<f32>),
    /// A token is final.
    Token {
        /// The token.
        sampled: Sampled,
        /// Text that can be shown now.
        text: String,
    },
    /// The output is complete.
    Finished {
        /// Why it ended.
        reason: FinishReason,
        /// Text that was held back until now.
        text: String,
        /// Times and counts.
        stats: RequestStats,
    },
}

/// Times and counts of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestStats {
    /// From arrival to the first token.
    pub first_token: Duration,
    /// From the first token to the last.
    pub decode: Duration,
    /// Forward passes that the request took part in.
    pub passes: usize,
    /// Prompt tokens found in the prefix cache.
    pub cached: usize,
}

/// Sends the events of one request.
pub type EventSender = UnboundedSender<RequestEvent>;

/// Receives the events of one request. Dropping it cancels the request.
pub type EventReceiver = UnboundedReceiver<RequestEvent>;
