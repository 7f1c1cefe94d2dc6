//! Request fields without effect: named in the response, and once in the log.

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::Next;
use axum::response::Response;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Response header with the names.
const HEADER: &str = "x-ignored-fields";
/// Largest number of names in a response, and of names that are remembered for the log.
const NAMED: usize = 16;
const LOGGED: usize = 256;
/// Largest length of a name.
const LENGTH: usize = 64;

/// Fields that have been logged.
static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// The fields of one request that have no effect.
#[derive(Clone, Debug, Default)]
pub struct IgnoredFields(Arc<Mutex<Vec<String>>>);

impl IgnoredFields {
    /// Adds a field, and logs it when the server meets it for the first time.
    pub fn add(&self, name: &str) {
        let visible = |c: &char| c.is_ascii_graphic() && *c != ',';
        let name: String = name.chars().filter(visible).take(LENGTH).collect();
        let mut seen = lock(&SEEN);
        if seen.len() < LOGGED && seen.insert(name.clone()) {
            tracing::warn!(field = name, "requests have a field without effect (logged once)");
        }
        drop(seen);
        let mut names = lock(&self.0);
        if names.len() < NAMED {
            names.push(name);
        }
    }
}

/// Middleware: names the fields without effect in the header `x-ignored-fields`.
pub async fn report(mut request: Request, next: Next) -> Response {
    let ignored = IgnoredFields::default();
    request.extensions_mut().insert(ignored.clone());
    let mut response = next.run(request).await;
    let names = lock(&ignored.0).join(", ");
    if let (false, Ok(value)) = (names.is_empty(), HeaderValue::from_str(&names)) {
        response.headers_mut().insert(HEADER, value);
    }
    response
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
