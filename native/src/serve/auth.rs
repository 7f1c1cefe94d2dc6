//! Authentication with API keys.

use super::client::Client;
use super::error::ApiError;
use super::state::ServerState;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// Accepted API keys. Without any, the server is open to everybody.
#[derive(Clone, Default)]
pub struct ApiKeys(Arc<[NumberedKey]>);

/// A key and its number, which stands for its owner as long as the program runs.
#[derive(Clone, Debug, PartialEq)]
struct NumberedKey(u64, String);

impl ApiKeys {
    /// Trims the keys and drops empty ones.
    pub fn new(keys: impl IntoIterator<Item = String>) -> Self {
        let keys = keys.into_iter().map(|key| key.trim().to_string()).filter(|key| !key.is_empty());
        Self((1..).zip(keys).map(|(number, key)| NumberedKey(number, key)).collect())
    }

    /// Returns the keys in the text of a key file: one a line. What follows `#` at the start of a line
    /// or after a space is a comment.
    pub fn in_file(text: &str) -> Vec<String> {
        let key = |line: &str| match line.trim_start().starts_with('#') {
            true => String::new(),
            false => {
                let end = [" #", "\t#"].iter().filter_map(|mark| line.find(mark)).min();
                line[..end.unwrap_or(line.len())].trim().to_string()
            }
        };
        text.lines().map(key).filter(|key| !key.is_empty()).collect()
    }

    /// Replaces the keys. A key that stays keeps its number, and no number is used again for another
    /// key: its owner would share the cached prefixes of the former one.
    pub fn replace(&mut self, new: &Self, last_number: &mut u64) {
        let keys = new.0.iter().map(|NumberedKey(_, key)| {
            let known = self.0.iter().find(|NumberedKey(_, old)| old == key).cloned();
            known.unwrap_or_else(|| {
                *last_number += 1;
                NumberedKey(*last_number, key.clone())
            })
        });
        self.0 = keys.collect();
    }

    /// Returns the number of keys.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no key is needed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of a key, if it is accepted. The time this takes reveals only the lengths of
    /// the keys.
    fn number(&self, given: &[u8]) -> Option<u64> {
        let mut found = 0u64;
        for NumberedKey(number, key) in self.0.iter() {
            found.conditional_assign(number, key.as_bytes().ct_eq(given));
        }
        (found > 0).then_some(found)
    }
}

/// Returns the key of a request, from `Authorization: Bearer …` or `x-api-key`.
fn request_key(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(key)
    });
    bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes()))
}

/// The owner of a request: the number of its API key, empty without keys. The prefix cache is
/// separate for each tenant.
#[derive(Clone, Debug, Default)]
pub struct Tenant(pub String);

/// Middleware: refuses requests without an accepted key, and adds the [`Tenant`] and the [`Client`] to
/// the others.
pub async fn require_key(
    State(server): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let keys = server.keys();
    let number = request_key(request.headers()).and_then(|key| keys.number(key));
    let accepted = match number {
        _ if keys.is_empty() => Some((Tenant::default(), Client::of(&request, &server.proxies))),
        Some(number) => Some((Tenant(number.to_string()), Client::Key(number))),
        None => None,
    };
    if let Some((tenant, client)) = accepted {
        request.extensions_mut().insert(tenant);
        request.extensions_mut().insert(client);
        return next.run(request).await;
    }
    ApiError::new(
        StatusCode::UNAUTHORIZED,
        "invalid_api_key",
        "a valid API key is required: send `Authorization: Bearer KEY`",
    )
    .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn keys_match_exactly() {
        let keys = ApiKeys::new(["a-key".into(), " other\n".into(), "  ".into()]);
        assert_eq!((keys.number(b"a-key"), keys.number(b"other")), (Some(1), Some(2)));
        for wrong in [&b""[..], b"a-ke", b"a-key ", b"A-KEY", b"a-keyother"] {
            assert_eq!(keys.number(wrong), None);
        }
        assert!(ApiKeys::new([String::new()]).is_empty());
    }

    #[test]
    fn key_files_have_comments() {
        let text = "# team A\nfirst # Ann\n\n  second\t#x\nthird#3\n\t# end\n";
        assert_eq!(ApiKeys::in_file(text), ["first", "second", "third#3"]);
    }

    #[test]
    fn replaced_keys_get_new_numbers() {
        let (mut keys, mut last) = (ApiKeys::new(["a".into(), "b".into()]), 2);
        keys.replace(&ApiKeys::new(["c".into(), "b".into()]), &mut last);
        assert_eq!([&b"a"[..], b"b", b"c"].map(|key| keys.number(key)), [None, Some(2), Some(3)]);
        keys.replace(&ApiKeys::new(["a".into()]), &mut last);
        assert_eq!((keys.number(b"a"), keys.number(b"b"), last), (Some(4), None, 4));
    }

    #[test]
    fn keys_are_read_from_two_headers() {
        let with = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            request_key(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(with("authorization", "Bearer abc"), Some(b"abc".to_vec()));
        assert_eq!(with("authorization", "bearer abc"), Some(b"abc".to_vec()));
        assert_eq!(with("x-api-key", "abc"), Some(b"abc".to_vec()));
        assert_eq!(with("authorization", "Basic abc"), None);
        assert_eq!(with("authorization", "B"), None);
    }
}
