//! The table of open connections: limits, for all and for each address, and the choice of an idle
//! connection to close when a limit is reached.

use crate::access::client::Client;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// Maximum numbers of connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Of all clients.
    pub total: usize,
    /// Of one address.
    pub address: usize,
    /// Beyond these limits, for requests about the server's state alone.
    pub reserve: usize,
}

/// Connections of one address in the reserve are this part of it.
const RESERVE_SHARE: usize = 4;

impl ConnectionLimits {
    /// Returns limits for this many connections in total.
    pub fn new(total: usize) -> Self {
        let total = total.max(1);
        Self { total, address: (total * 3 / 4).max(1), reserve: 16.min(total.div_ceil(4)) }
    }
}

/// All open connections.
#[derive(Debug)]
pub struct Connections {
    limits: ConnectionLimits,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: HashMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    client: Client,
    /// Requests in progress: HTTP/2 has several.
    running: usize,
    /// Time since which it has had none.
    idle: Instant,
    /// Tells its task to close it.
    close: Arc<Notify>,
    reserved: bool,
}

/// A place in the table; given back when it is dropped.
#[derive(Debug)]
pub struct Slot {
    connections: Arc<Connections>,
    number: u64,
    /// Notified when the connection must close, for another one.
    pub close: Arc<Notify>,
    /// True for a connection beyond the limits.
    pub reserved: bool,
}

/// A request in progress; its connection is not idle until it is dropped.
#[derive(Debug)]
pub struct Busy(Arc<Slot>);

impl Connections {
    /// Creates an empty table.
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, table: Mutex::default() })
    }

    /// Adds a connection. At a limit, the connection that has been idle longest is closed: of the same
    /// address at the limit of an address. If none is idle, the new one may use the reserve. An address
    /// is not `limited` if it is a proxy's.
    pub fn enter(self: &Arc<Self>, address: IpAddr, limited: bool) -> Option<Slot> {
        let client = Client::address(address);
        let mut table = self.lock();
        let limits = self.limits;
        let (total, own) = table.count(client, false);
        let (spare, own_spare) = table.count(client, true);
        let place = if limited && own >= limits.address {
            table.close_idle(|entry| entry.client == client)
        } else if total >= limits.total {
            table.close_idle(|_| true)
        } else {
            true
        };
        let own_reserve = limits.reserve.div_ceil(RESERVE_SHARE);
        if !place && (spare >= limits.reserve || (limited && own_spare >= own_reserve)) {
            return None;
        }
        let (number, close, reserved) = (table.next, Arc::new(Notify::new()), !place);
        table.next += 1;
        let (running, idle) = (0, Instant::now());
        let entry = Entry { client, running, idle, close: close.clone(), reserved };
        table.open.insert(number, entry);
        Some(Slot { connections: self.clone(), number, close, reserved })
    }

    /// Closes the connection that has been idle longest, if there is one.
    pub fn close_idle(&self) {
        self.lock().close_idle(|_| true);
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Returns the number of connections in the reserve or outside of it, and of those this client's.
    fn count(&self, client: Client, reserved: bool) -> (usize, usize) {
        let those = || self.open.values().filter(|entry| entry.reserved == reserved);
        (those().count(), those().filter(|entry| entry.client == client).count())
    }

    /// Closes the connection that has been idle longest. Returns false if none is idle.
    fn close_idle(&mut self, of: impl Fn(&Entry) -> bool) -> bool {
        let idle = self.open.iter().filter(|(_, entry)| !entry.reserved && of(entry));
        let idle = idle.filter(|(_, entry)| entry.running == 0);
        let longest = idle.map(|(number, entry)| (entry.idle, *number)).min();
        // Its task ends a little later, but its place is free now.
        let closed = longest.and_then(|(_, number)| self.open.remove(&number));
        closed.inspect(|entry| entry.close.notify_one()).is_some()
    }
}

impl Slot {
    fn change(&self, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = self.connections.lock().open.get_mut(&self.number) {
            change(entry);
        }
    }
}

impl Busy {
    /// Marks the beginning of a request.
    pub fn new(slot: &Arc<Slot>) -> Self {
        slot.change(|entry| entry.running += 1);
        Self(slot.clone())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.change(|entry| (entry.running, entry.idle) = (entry.running - 1, Instant::now()));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.connections.lock().open.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: [u8; 4] = [127, 0, 0, 2];
    const HONEST: [u8; 4] = [127, 0, 0, 1];

    fn full(limits: ConnectionLimits) -> (Arc<Connections>, Vec<Arc<Slot>>) {
        let connections = Connections::new(limits);
        let slots = (0..limits.address).map(|_| connections.enter(HOSTILE.into(), true));
        let slots = slots.map(|slot| Arc::new(slot.expect("a place"))).collect();
        (connections, slots)
    }

    async fn closed(slot: &Slot) -> bool {
        let close = slot.close.notified();
        tokio::time::timeout(std::time::Duration::from_millis(20), close).await.is_ok()
    }

    #[tokio::test]
    async fn the_longest_idle_connection_makes_room() {
        let limits = ConnectionLimits { total: 4, address: 3, reserve: 2 };
        let (connections, slots) = full(limits);
        let busy = Busy::new(&slots[0]);
        let fourth = connections.enter(HOSTILE.into(), true).expect("the second one's place");
        assert!(!fourth.reserved);
        assert!(!closed(&slots[0]).await && closed(&slots[1]).await && !closed(&slots[2]).await);
        // Of two requests one goes on.
        drop((Busy::new(&slots[0]), busy));
        // It is idle for a shorter time than the others.
        let honest = [0; 2].map(|_| connections.enter(HONEST.into(), true).expect("a place"));
        assert!(honest.iter().all(|slot| !slot.reserved));
        assert!(!closed(&slots[0]).await && closed(&slots[2]).await);
        drop((slots, fourth, honest));
        assert!(connections.lock().open.is_empty());
    }

    #[test]
    fn busy_connections_leave_a_reserve() {
        let limits = ConnectionLimits { total: 4, address: 3, reserve: 2 };
        let (connections, slots) = full(limits);
        let _busy: Vec<_> = slots.iter().map(Busy::new).collect();
        let spare = connections.enter(HOSTILE.into(), true).expect("one place of the reserve");
        assert!(spare.reserved && connections.enter(HOSTILE.into(), true).is_none());
        assert!(!connections.enter(HOSTILE.into(), false).expect("a proxy").reserved);
        let honest = Arc::new(connections.enter(HONEST.into(), true).expect("a place"));
        assert!(!honest.reserved);
        let _busy = Busy::new(&honest);
        let spare = connections.enter(HONEST.into(), true).expect("the reserve");
        assert!(spare.reserved);
        assert!(connections.enter(HONEST.into(), true).is_none());
    }
}
