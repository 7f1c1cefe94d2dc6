//! Compiled grammars of earlier requests.

use std::collections::VecDeque;
use std::sync::Arc;
use wrinklefree_easy::models::grammar::Compiled;

/// Most entries, and most bytes of all entries as estimated.
const ENTRIES: usize = 64;
const BYTES: usize = 64 << 20;
/// Most of them that one tenant may have, so that it does not push out all grammars of others.
const TENANT_ENTRIES: usize = ENTRIES / 2;
const TENANT_BYTES: usize = BYTES / 8;

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

    /// Adds a grammar, and drops the oldest ones beyond the limits: those of its tenant, then those of all.
    pub fn insert(&mut self, key: Key, ready: Arc<Ready>) {
        let bytes = key.1.len() + ready.compiled.bytes;
        if bytes > TENANT_BYTES || self.entries.iter().any(|(other, ..)| *other == key) {
            return;
        }
        while self.is_full(&key.0, bytes) {
            self.drop_oldest(Some(&key.0));
        }
        self.bytes += bytes;
        self.entries.push_back((key, bytes, ready));
        while self.entries.len() > ENTRIES || self.bytes > BYTES {
            self.drop_oldest(None);
        }
    }

    /// Returns true if a tenant may not have another grammar of so many bytes.
    fn is_full(&self, tenant: &str, more: usize) -> bool {
        let own = self.entries.iter().filter(|(key, ..)| key.0 == tenant);
        let (count, bytes) =
            own.fold((0, 0), |(count, sum), (_, bytes, _)| (count + 1, sum + bytes));
        count == TENANT_ENTRIES || count > 0 && bytes + more > TENANT_BYTES
    }

    /// Drops the grammar of one tenant, or of all, that was not used for the longest time.
    fn drop_oldest(&mut self, tenant: Option<&str>) {
        let owned = |key: &Key| tenant.is_none_or(|tenant| key.0 == tenant);
        let oldest = self.entries.iter().position(|(key, ..)| owned(key));
        if let Some((_, bytes, _)) = oldest.and_then(|index| self.entries.remove(index)) {
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

    fn insert(cache: &mut Cache, key: Key, bytes: usize) {
        let compiled = Compiled { constraint: Box::new(Free), warnings: Vec::new(), bytes };
        cache.insert(key, Arc::new(Ready { compiled, not_enforced: Vec::new() }));
    }

    #[test]
    fn the_oldest_entries_go_first() {
        let mut cache = Cache::default();
        let key = |i: usize| ((i % 4).to_string(), i.to_string());
        (0..ENTRIES).for_each(|i| insert(&mut cache, key(i), 10));
        assert!(cache.get(&key(0)).is_some(), "and is the newest now");
        insert(&mut cache, key(ENTRIES), 10);
        assert!(cache.get(&key(0)).is_some() && cache.get(&key(1)).is_none());
        (1000..1005).for_each(|i| insert(&mut cache, key(i), TENANT_BYTES - 4));
        assert!(cache.entries.len() <= 4 && cache.bytes <= BYTES);
        insert(&mut cache, key(2000), BYTES);
        assert!(cache.get(&key(2000)).is_none(), "too large to keep");
        assert!(cache.get(&("other".into(), "1004".into())).is_none(), "another tenant's");
    }

    #[test]
    fn one_tenant_does_not_push_out_the_grammars_of_others() {
        let mut cache = Cache::default();
        let key = |tenant: &str, i: usize| (tenant.to_string(), i.to_string());
        insert(&mut cache, key("honest", 0), 10);
        (0..10 * ENTRIES).for_each(|i| insert(&mut cache, key("hostile", i), 10));
        assert_eq!(cache.entries.len(), 1 + TENANT_ENTRIES);
        (0..10).for_each(|i| insert(&mut cache, key("large", i), TENANT_BYTES / 2 - 1));
        assert!(cache.get(&key("honest", 0)).is_some());
        assert!(cache.get(&key("large", 9)).is_some() && cache.get(&key("large", 7)).is_none());
        let bytes: usize = cache.entries.iter().map(|(_, bytes, _)| bytes).sum();
        assert_eq!(cache.bytes, bytes);
    }
}
