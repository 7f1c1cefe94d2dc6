//! Middleware that requires an API key.

use crate::access::client::Client;
use crate::access::keys::{Tenant, request_key};
use crate::error::ApiError;
use crate::operation::request_log::RequestRecord;
use crate::state::ServerState;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Refuses requests without an accepted key, and adds the [`Tenant`] and the [`Client`] to
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
        Some(number) => {
            RequestRecord::set_key(&keys.name(number));
            Some((Tenant(number.to_string()), Client::Key(number)))
        }
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
