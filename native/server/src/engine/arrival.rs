//! The arrival of a request: what the engine needs to know of it next to its tokens.

use super::text_limits::TextLimits;
use crate::access::client::Client;
use tokio::time::Instant;

/// The client of a request, and the limits of its response. Its time counts from its arrival.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The client.
    pub client: Client,
    /// End of the request's time.
    pub deadline: Instant,
    /// Limits of the texts.
    pub limits: TextLimits,
}
