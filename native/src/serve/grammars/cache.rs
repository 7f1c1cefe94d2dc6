//! Compiled grammars of earlier requests.

use crate::models::grammar::Compiled;
use std::collections::VecDeque;
use std::sync::Arc;

/// Most entries, and most bytes of all entries as estimated.
const ENTRIES: usize = 64;
const BYTES: usize = 64 << 20;

/// Identifies a grammar: the tenant, and its text.
pub type Key = (String, String);

/// A compiled grammar, and what it does not hold.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The grammar.
    pub compiled: Compiled,
    /// Parts of a schema that were left out for best effort.
    pub not_enforced: Vec<String>,
}

/// The grammars that were used last, newest at the end.
#[derive(Debug, Default)]
pub struct Cache {
    entries: VecDeque<(Key, usize, Arc<Ready>)>,
    bytes: usize,
}

impl Cache {
    /// Returns a grammar, which becomes the newest.
    pub fn get(&mut self, key: &Key) -> Option<Arc<Ready>> {
        let index = self.entries.iter().position(|(other, ..)| other == key)?;
        let entry = self.entries.remove(index)?;
        let ready = entry.2.clone();
        self.entries.push_back(entry);
        Some(ready)
    }

    /// Adds a grammar, and drops the oldest ones beyond the limits.
    pub fn insert(&mut self, key: Key, ready: Arc<Ready>) {
        let bytes = key.1.len() + ready.compiled.bytes;
        if bytes > BYTES / 4 || self.entries.iter().any(|(other, ..)| *other == key) {
            return;
        }
        self.bytes += bytes;
        self.entries.push_back((key, bytes, ready));
        while self.entries.len() > ENTRIES || self.bytes > BYTES {
            let Some((_, bytes, _)) = self.entries.pop_front() else { return };
            self.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wrinklefree::decode::{Constraint, Next};

    #[derive(Clone, Debug)]
    struct Free;

    impl Constraint for Free {
        fn next(&mut self) -> Next {
            Next::Tokens(vec![1])
        }
        fn accept(&mut self, _: u32) {}
        fn rewind(&mut self, _: usize) {}
        fn boxed_clone(&self) -> Box<dyn Constraint> {
            Box::new(self.clone())
        }
    }

    #[test]
    fn the_oldest_entries_go_first() {
        let mut cache = Cache::default();
        let key = |i: usize| (String::new(), i.to_string());
        let insert = |cache: &mut Cache, i, bytes| {
            let compiled = Compiled { constraint: Box::new(Free), warnings: Vec::new(), bytes };
            cache.insert(key(i), Arc::new(Ready { compiled, not_enforced: Vec::new() }));
        };
        (0..ENTRIES).for_each(|i| insert(&mut cache, i, 10));
        assert!(cache.get(&key(0)).is_some(), "and is the newest now");
        insert(&mut cache, ENTRIES, 10);
        assert!(cache.get(&key(0)).is_some() && cache.get(&key(1)).is_none());
        (1000..1005).for_each(|i| insert(&mut cache, i, BYTES / 4 - 4));
        assert!(cache.entries.len() <= 4 && cache.bytes <= BYTES);
        insert(&mut cache, 2000, BYTES);
        assert!(cache.get(&key(2000)).is_none(), "too large to keep");
        assert!(cache.get(&("other".into(), "1004".into())).is_none(), "another tenant's");
    }
}
