//! API keys.

use super::error::ApiError;
use super::state::Server;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;
use subtle::{ConditionallySelectable, ConstantTimeEq};

/// The keys that open the server; none: it is open.
#[derive(Clone, Default)]
pub struct Keys(Vec<String>);

impl Keys {
    /// These keys, empty ones left out.
    pub fn new(keys: impl IntoIterator<Item = String>) -> Self {
        Self(keys.into_iter().map(|k| k.trim().to_string()).filter(|k| !k.is_empty()).collect())
    }

    /// Nobody is asked for a key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whose key this is, if it fits. How long that takes tells nothing but the keys' lengths.
    fn tenant(&self, given: &[u8]) -> Option<Tenant> {
        let mut found = 0u64;
        for (number, key) in (1u64..).zip(&self.0) {
            found.conditional_assign(&number, key.as_bytes().ct_eq(given));
        }
        (found > 0).then(|| Tenant(found.to_string()))
    }
}

/// The key of a request: `Authorization: Bearer …` or `x-api-key`.
fn given(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(key)
    });
    bearer.or_else(|| headers.get("x-api-key").map(|value| value.as_bytes()))
}

/// Whose request it is: what is kept of texts is kept for each tenant alone. Without keys all are one.
#[derive(Clone, Debug, Default)]
pub struct Tenant(pub String);

/// Lets requests with a key pass, and notes whose they are.
pub async fn check(
    State(server): State<Arc<Server>>,
    mut request: Request,
    next: Next,
) -> Response {
    let tenant = match given(request.headers()) {
        _ if server.keys.is_empty() => Some(Tenant::default()),
        Some(key) => server.keys.tenant(key),
        None => None,
    };
    if let Some(tenant) = tenant {
        request.extensions_mut().insert(tenant);
        return next.run(request).await;
    }
    ApiError::new(
        StatusCode::UNAUTHORIZED,
        "invalid_api_key",
        "this server wants an API key: send `Authorization: Bearer KEY`",
    )
    .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn keys_fit_exactly() {
        let keys = Keys::new(["a-key".into(), " other\n".into(), "  ".into()]);
        let tenant = |key: &[u8]| keys.tenant(key).map(|tenant| tenant.0);
        assert_eq!((tenant(b"a-key"), tenant(b"other")), (Some("1".into()), Some("2".into())));
        for wrong in [&b""[..], b"a-ke", b"a-key ", b"A-KEY", b"a-keyother"] {
            assert_eq!(tenant(wrong), None);
        }
        assert!(Keys::new([String::new()]).is_empty());
    }

    #[test]
    fn keys_come_in_two_headers() {
        let with = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_static(value));
            given(&headers).map(<[u8]>::to_vec)
        };
        assert_eq!(with("authorization", "Bearer abc"), Some(b"abc".to_vec()));
        assert_eq!(with("authorization", "bearer abc"), Some(b"abc".to_vec()));
        assert_eq!(with("x-api-key", "abc"), Some(b"abc".to_vec()));
        assert_eq!(with("authorization", "Basic abc"), None);
        assert_eq!(with("authorization", "B"), None);
    }
}
