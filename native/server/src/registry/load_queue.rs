//! The order of loads: each client's turn comes once, however many models it asks for.

use crate::access::client::Client;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Time after which a client's last load is forgotten.
const MEMORY: Duration = Duration::from_secs(600);

/// A model to load.
#[derive(Debug, PartialEq)]
pub struct PendingLoad {
    /// Name of its entry.
    pub name: String,
    /// Load it even if no request waits for it.
    pub always: bool,
    /// The client whose turn it is.
    pub client: Option<Client>,
    /// It waits until an engine has ended.
    waits: bool,
}

/// Models that are to be loaded, in the order in which they were asked for.
#[derive(Debug, Default)]
pub struct LoadQueue {
    pending: Vec<PendingLoad>,
    /// Times of the last loads for clients.
    served: HashMap<Client, Instant>,
}

impl LoadQueue {
    /// Adds a model.
    pub fn push(&mut self, name: String, always: bool) {
        match self.pending.iter_mut().find(|pending| pending.name == name) {
            Some(pending) => pending.always |= always,
            None => self.pending.push(PendingLoad { name, always, client: None, waits: false }),
        }
    }

    /// Adds a model again, which has to wait until an engine has ended. It keeps its place in the order.
    pub fn postpone(&mut self, pending: PendingLoad) {
        self.pending.insert(0, PendingLoad { waits: true, ..pending });
    }

    /// Notes that a client has had its turn. A load that is postponed is none: whoever is tried last while an
    /// engine ends would be last again.
    pub fn took_turn(&mut self, client: Option<Client>) {
        self.served.extend(client.map(|client| (client, Instant::now())));
    }

    /// Lets all models try again.
    pub fn retry(&mut self) {
        self.pending.iter_mut().for_each(|pending| pending.waits = false);
    }

    /// Takes the next model: of those that can be loaded the one that waits for the client whose last
    /// load was longest ago. `clients` returns the clients that wait for a model, or `None` if it cannot
    /// be loaded yet.
    pub fn next(
        &mut self,
        mut clients: impl FnMut(&str) -> Option<Vec<Client>>,
    ) -> Option<PendingLoad> {
        self.served.retain(|_, time| time.elapsed() < MEMORY);
        let mut best: Option<(Option<Instant>, usize, Vec<Client>)> = None;
        for (index, pending) in self.pending.iter().enumerate().filter(|(_, load)| !load.waits) {
            let Some(waiting) = clients(&pending.name) else { continue };
            let last = waiting.iter().map(|client| self.served.get(client).copied()).min();
            let last = last.flatten().filter(|_| !pending.always);
            if best.as_ref().is_none_or(|(time, ..)| last < *time) {
                best = Some((last, index, waiting));
            }
        }
        let (_, index, waiting) = best?;
        let client = waiting.into_iter().min_by_key(|client| self.served.get(client).copied());
        Some(PendingLoad { client, ..self.pending.remove(index) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn clients_take_turns() {
        let client = |last| Client::Address(Ipv4Addr::new(127, 0, 0, last).into());
        let mut queue = LoadQueue::default();
        for name in ["a1", "a2", "a3", "b1"] {
            queue.push(name.into(), false);
        }
        let clients = |name: &str| Some(vec![client(if name.starts_with('a') { 1 } else { 2 })]);
        let mut order = Vec::new();
        while let Some(load) = queue.next(clients) {
            queue.took_turn(load.client);
            order.push(load.name);
        }
        assert_eq!(order, ["a1", "b1", "a2", "a3"]);
    }

    #[test]
    fn loads_that_are_postponed_take_no_turn() {
        let client = |last| Client::Address(Ipv4Addr::new(127, 0, 0, last).into());
        let mut queue = LoadQueue::default();
        let clients = |name: &str| Some(vec![client(if name.starts_with('a') { 1 } else { 2 })]);
        let try_all = |queue: &mut LoadQueue| {
            while let Some(load) = queue.next(clients) {
                queue.postpone(load);
            }
        };
        queue.took_turn(Some(client(1)));
        queue.push("a1".into(), false);
        queue.push("a2".into(), false);
        try_all(&mut queue);
        queue.push("b1".into(), false);
        try_all(&mut queue);
        queue.retry();
        assert_eq!(queue.next(clients).expect("one").name, "b1");
    }

    #[test]
    fn loads_wait_for_engines_that_end() {
        let mut queue = LoadQueue::default();
        queue.push("a".into(), false);
        assert_eq!(queue.next(|_| None), None, "it is being unloaded");
        let load = queue.next(|_| Some(Vec::new())).expect("one");
        queue.postpone(load);
        assert_eq!(queue.next(|_| Some(Vec::new())), None, "no engine has ended");
        queue.retry();
        assert_eq!(queue.next(|_| Some(Vec::new())).expect("again").name, "a");
    }
}
