//! Shares the running sequences between clients, whatever the order in which their requests came.

use crate::access::client::Client;
use std::cmp::Reverse;
use std::collections::HashMap;
use wrinklefree::engine::SeqId;

/// A request that has not ended.
#[derive(Clone, Copy, Debug)]
pub struct ScheduledRequest {
    /// Its sequence; older ones have smaller ids.
    pub id: SeqId,
    /// Client that sent it.
    pub client: Client,
    /// True if it waits for its turn.
    pub parked: bool,
}

/// The next step towards equal shares.
#[derive(Debug, PartialEq)]
pub struct Turn {
    /// A running request that gives its place up.
    pub park: Option<SeqId>,
    /// A waiting request that gets a place.
    pub resume: SeqId,
}

/// Returns the next step, or `None` if all shares are fair. At most `sequences` requests run. The next
/// to run is the oldest request of the client that has fewest running. If all places are taken, the
/// client with most of them gives its youngest up, if it still has as many as the other one then.
pub fn next(requests: &[ScheduledRequest], sequences: usize) -> Option<Turn> {
    let mut running: HashMap<Client, usize> = HashMap::new();
    for request in requests {
        *running.entry(request.client).or_default() += usize::from(!request.parked);
    }
    let waiting = requests.iter().filter(|request| request.parked);
    let first = waiting.min_by_key(|request| (running[&request.client], request.id))?;
    let resume = first.id;
    if running.values().sum::<usize>() < sequences {
        return Some(Turn { park: None, resume });
    }
    let active = requests.iter().filter(|request| !request.parked);
    let last = active.min_by_key(|request| Reverse((running[&request.client], request.id)))?;
    let park = Some(last.id);
    (running[&last.client] > running[&first.client] + 1).then_some(Turn { park, resume })
}
