//! Responses of the Responses API that later requests can go on from or read.

pub mod files;
pub mod stored;

pub use stored::{StoredResponse, bytes};

use super::access::keys::Tenant;
use files::{FoundResponses, ResponseFiles};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most bytes of all stored responses, and of those of one tenant.
const BYTES: usize = 64 << 20;
const TENANT_BYTES: usize = 8 << 20;

/// The last responses. The oldest ones go when there are too many.
#[derive(Clone, Default)]
pub struct ResponseStore {
    entries: Arc<Mutex<Entries>>,
    files: Option<Arc<ResponseFiles>>,
}

#[derive(Default)]
struct Entries {
    by_id: HashMap<Key, StoredResponse>,
    /// Ids, the oldest first.
    order: VecDeque<Key>,
    bytes: usize,
    /// Bytes of each tenant that has any.
    of_tenant: HashMap<String, usize>,
    /// Those that were removed since the files were.
    removed: Vec<Key>,
}

/// A tenant's number and a response's id: nobody reads the responses of others.
type Key = (String, String);

impl ResponseStore {
    /// Makes a store that also keeps its responses in files, with those that the files held.
    pub fn with_files(files: Arc<ResponseFiles>, found: FoundResponses) -> Self {
        let store = Self { files: Some(files), ..Self::default() };
        found.into_iter().for_each(|(tenant, id, stored)| store.keep(&tenant, &id, stored));
        store
    }

    /// Waits until all files are written.
    pub async fn written(&self) {
        if let Some(files) = &self.files {
            files.written().await;
        }
    }

    /// Stores a response. Older ones of the tenant, then of all tenants, make room for it. One that is
    /// larger than the limit is not stored.
    pub fn insert(&self, tenant: &Tenant, id: &str, stored: StoredResponse) {
        if let Some(files) = self.files.as_ref().filter(|_| stored.bytes() <= TENANT_BYTES) {
            files.write(tenant, id, stored.clone());
        }
        self.keep(tenant, id, stored);
    }

    fn keep(&self, tenant: &Tenant, id: &str, stored: StoredResponse) {
        let bytes = stored.bytes();
        if bytes > TENANT_BYTES {
            return;
        }
        let key = (tenant.0.to_string(), id.to_string());
        let mut entries = self.lock();
        entries.remove(&key);
        while entries.of_tenant.get(&key.0).is_some_and(|used| used + bytes > TENANT_BYTES) {
            entries.remove_oldest(Some(&key.0));
        }
        while entries.bytes + bytes > BYTES {
            entries.remove_oldest(None);
        }
        entries.bytes += bytes;
        *entries.of_tenant.entry(key.0.clone()).or_default() += bytes;
        entries.order.push_back(key.clone());
        entries.by_id.insert(key, stored);
        self.remove_files(std::mem::take(&mut entries.removed), Some(id));
    }

    /// Removes the files of responses, but not of the one that was just written.
    fn remove_files(&self, removed: Vec<Key>, written: Option<&str>) {
        let Some(files) = &self.files else { return };
        for (tenant, id) in removed.into_iter().filter(|(_, id)| Some(&**id) != written) {
            files.remove(&Tenant(tenant), &id);
        }
    }

    /// Returns a response of a tenant.
    pub fn get(&self, tenant: &Tenant, id: &str) -> Option<StoredResponse> {
        self.lock().by_id.get(&(tenant.0.to_string(), id.to_string())).cloned()
    }

    /// Removes a response of a tenant. Returns false if there is none.
    pub fn remove(&self, tenant: &Tenant, id: &str) -> bool {
        let mut entries = self.lock();
        let known = entries.remove(&(tenant.0.to_string(), id.to_string()));
        self.remove_files(std::mem::take(&mut entries.removed), None);
        known
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Removes the oldest response, of all or of one tenant.
    fn remove_oldest(&mut self, tenant: Option<&str>) {
        let oldest = self.order.iter().find(|key| tenant.is_none_or(|tenant| key.0 == tenant));
        if let Some(key) = oldest.cloned() {
            self.remove(&key);
        }
    }

    fn remove(&mut self, key: &Key) -> bool {
        let Some(stored) = self.by_id.remove(key) else { return false };
        self.order.retain(|other| other != key);
        self.removed.push(key.clone());
        self.bytes -= stored.bytes();
        if let Some(used) = self.of_tenant.get_mut(&key.0) {
            *used -= stored.bytes();
            if *used == 0 {
                self.of_tenant.remove(&key.0);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(size: usize) -> StoredResponse {
        StoredResponse { response: "x".repeat(size).into(), messages: vec!["[]".into()] }
    }

    #[test]
    fn tenants_have_their_own_responses_and_the_oldest_go() {
        let store = ResponseStore::default();
        let (a, b) = (Tenant("1".into()), Tenant("2".into()));
        store.insert(&a, "first", stored(10));
        assert_eq!(store.get(&a, "first"), Some(stored(10)));
        assert_eq!(store.get(&b, "first"), None);
        assert!(!store.remove(&b, "first"));
        for id in 0..20 {
            store.insert(&b, &id.to_string(), stored(2 << 20));
        }
        assert!(store.get(&a, "first").is_some(), "one tenant does not push others out");
        assert_eq!(store.get(&b, "0"), None);
        assert!(store.get(&b, "19").is_some());
        assert!(store.lock().bytes <= TENANT_BYTES + 1024);
        store.insert(&b, "large", stored(TENANT_BYTES));
        assert_eq!(store.get(&b, "large"), None);
        for tenant in 3..30 {
            store.insert(&Tenant(tenant.to_string()), "x", stored(4 << 20));
        }
        assert!(store.lock().bytes <= BYTES);
        assert_eq!(store.get(&a, "first"), None);
        assert!(store.remove(&Tenant("29".into()), "x"));
        assert!(!store.remove(&Tenant("29".into()), "x"));
    }
}
