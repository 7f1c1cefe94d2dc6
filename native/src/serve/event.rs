//! Events of a request: what the engine's thread sends to the task that answers it.

use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use wrinklefree::engine::EventKind;

/// An event of a request, and the request's times until then. There is at most one for each token of
/// prompt and output, so the request itself bounds its channel.
#[derive(Clone, Debug)]
pub struct RequestEvent {
    /// The event, as the engine reported it.
    pub kind: EventKind,
    /// Times until then.
    pub times: RequestTimes,
}

/// Times of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestTimes {
    /// From arrival to the first token.
    pub first_token: Duration,
    /// From the first token to the last.
    pub decode: Duration,
}

/// Sends the events of one request.
pub type EventSender = UnboundedSender<RequestEvent>;

/// Receives the events of one request. Dropping it cancels the request.
pub type EventReceiver = UnboundedReceiver<RequestEvent>;
