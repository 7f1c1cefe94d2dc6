//! `GET /openapi.json`, generated from the structs of request bodies, which the page at `/docs` shows.

use super::examples;
use super::schema::{SchemaFn, schema_of};
use crate::api::anthropic::{AnthropicErrorBody, body as messages};
use crate::api::body::model;
use crate::api::llama_server::{LlamaErrorBody, body as llama};
use crate::api::ollama::{OllamaErrorBody, body as ollama};
use crate::api::openai::chat::body as chat;
use crate::api::openai::completions::body as completions;
use crate::api::openai::embeddings::body as embeddings;
use crate::api::openai::responses::body as responses;
use crate::api::vllm::tokens::body as tokens;
use crate::error::ErrorBody;
use axum::Json;
use std::sync::LazyLock;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{AllOfBuilder, Components, Object, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    Content, ContentBuilder, InfoBuilder, OpenApi, OpenApiBuilder, Paths, Required, Response,
};

/// Description of an endpoint.
struct Endpoint {
    method: HttpMethod,
    path: &'static str,
    summary: &'static str,
    /// Schemas of the request body; empty for none.
    body: &'static [SchemaFn],
    /// Content types of responses.
    content_types: &'static [&'static str],
    /// Types that a JSON response may have.
    response: &'static [Type],
    /// Statuses of error responses.
    errors: &'static [u16],
    /// Schema of error responses.
    error: SchemaFn,
    /// True if no API key is needed.
    open: bool,
}

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

fn get(path: &'static str, summary: &'static str) -> Endpoint {
    Endpoint {
        method: HttpMethod::Get,
        path,
        summary,
        body: &[],
        content_types: &[JSON],
        response: &[Type::Object],
        errors: &[401, 404, 405, 500, 503],
        error: schema_of::<ErrorBody>,
        open: false,
    }
}

fn post(path: &'static str, summary: &'static str, body: &'static [SchemaFn]) -> Endpoint {
    let errors = &[400, 401, 404, 405, 408, 413, 429, 500, 503, 504];
    Endpoint { method: HttpMethod::Post, body, errors, ..get(path, summary) }
}

impl Endpoint {
    /// Adds the response to requests with `stream`.
    fn streams(self) -> Self {
        Self { content_types: &[JSON, EVENTS], ..self }
    }

    /// Uses Anthropic's format of errors.
    fn anthropic(self) -> Self {
        Self { error: schema_of::<AnthropicErrorBody>, ..self }
    }

    /// Uses Ollama's format of errors, and lines of JSON for streams.
    fn ollama(self) -> Self {
        let streams = self.content_types.len() > 1;
        let content_types = if streams { &[JSON, "application/x-ndjson"][..] } else { &[JSON] };
        Self { error: schema_of::<OllamaErrorBody>, content_types, ..self }
    }

    /// Uses llama-server's format of errors.
    fn llama(self) -> Self {
        Self { error: schema_of::<LlamaErrorBody>, ..self }
    }

    /// Needs the operator's consent and the hub.
    fn of_store(self) -> Self {
        Self { errors: &[400, 401, 403, 404, 405, 408, 413, 429, 500, 502, 503, 504], ..self }
    }

    /// Responds with an array.
    fn array(self) -> Self {
        Self { response: &[Type::Array], ..self }
    }

    /// Responds with an array where several answers are asked for.
    fn maybe_array(self) -> Self {
        Self { response: &[Type::Object, Type::Array], ..self }
    }

    /// Needs no API key.
    fn open(self) -> Self {
        Self { open: true, ..self }
    }
}

/// Returns all endpoints. A test fails if one is missing.
#[rustfmt::skip]
fn endpoints() -> Vec<Endpoint> {
    vec![
        post("/v1/chat/completions", "Continue a conversation (OpenAI chat completions)", chat::BODY).streams(),
        post("/v1/completions", "Continue prompts (OpenAI text completions)", completions::BODY).streams(),
        post("/v1/responses", "Continue a conversation (OpenAI Responses API)", responses::BODY).streams(),
        post("/v1/responses/input_tokens", "Count the tokens of a conversation (Responses API)", responses::INPUT_TOKENS),
        get("/v1/responses/{id}", "Get a stored response"),
        Endpoint { method: HttpMethod::Delete, ..get("/v1/responses/{id}", "Delete a stored response") },
        post("/v1/messages", "Continue a conversation (Anthropic Messages API)", messages::BODY).streams().anthropic(),
        post("/v1/messages/count_tokens", "Count the tokens of a conversation", messages::COUNT_TOKENS).anthropic(),
        post("/v1/embeddings", "Compute embeddings of texts", embeddings::BODY),
        get("/v1/models", "List the models"),
        get("/v1/models/{id}", "Describe a model"),
        post("/v1/models/load", "Load a model and wait for it", model::LOAD),
        post("/v1/models/unload", "Unload a model", model::UNLOAD),
        post("/models/load", "Load a model and wait for it (llama-server's path)", model::LOAD),
        post("/models/unload", "Unload a model (llama-server's path)", model::UNLOAD),
        get("/v1/loads", "Show the load of the engine"),
        get("/load", "Count the requests that run or wait (vLLM)"),
        post("/pooling", "Compute embeddings of texts (vLLM)", embeddings::POOLING),
        post("/api/chat", "Continue a conversation (Ollama)", ollama::CHAT).streams().ollama(),
        post("/api/generate", "Answer or continue a text (Ollama)", ollama::GENERATE).streams().ollama(),
        post("/api/embed", "Compute embeddings of texts (Ollama)", ollama::EMBED).ollama(),
        post("/api/embeddings", "Compute the embedding of a text (Ollama)", ollama::EMBEDDINGS).ollama(),
        get("/api/tags", "List the models (Ollama)").ollama(),
        get("/api/ps", "List the loaded models (Ollama)").ollama(),
        post("/api/show", "Describe a model (Ollama)", ollama::MODEL).ollama(),
        get("/api/version", "Show the version of Ollama's API").ollama(),
        post("/api/pull", "Download a model to the local store (Ollama)", ollama::PULL).streams().ollama().of_store(),
        Endpoint { method: HttpMethod::Delete, ..post("/api/delete", "Delete a model from the local store (Ollama)", ollama::MODEL).ollama().of_store() },
        post("/completion", "Continue prompts (llama-server)", llama::COMPLETION).streams().llama().maybe_array(),
        post("/infill", "Fill a hole between two texts (llama-server)", llama::INFILL).streams().llama().maybe_array(),
        post("/embedding", "Compute embeddings of texts (llama-server)", llama::EMBEDDING)
            .llama()
            .array(),
        get("/props", "Describe the model and the defaults of requests (llama-server)").llama(),
        get("/slots", "List the places for requests (llama-server)").llama().array(),
        post("/slots/{id}", "Save, restore or erase the prompt cache of a slot (llama-server)", llama::SLOT).llama(),
        post("/tokenize", "Convert text to tokens", tokens::TOKENIZE),
        post("/detokenize", "Convert tokens to text", tokens::DETOKENIZE),
        get("/tokenizer_info", "Describe the tokenizer"),
        post("/apply-template", "Render messages with the chat template", tokens::APPLY_TEMPLATE),
        get("/server_info", "Describe the model and its configuration"),
        Endpoint { content_types: &["application/openmetrics-text"], ..get("/metrics", "Get metrics for Prometheus") },
        get("/health", "Check that the model is loaded").open(),
        get("/version", "Show the version of the server").open(),
        get("/openapi.json", "Get this document").open(),
        Endpoint { content_types: &["text/html"], ..get("/docs", "Show this document as a page").open() },
    ]
}

impl Endpoint {
    fn operation(&self, components: &mut Components) -> Operation {
        let mut operation = OperationBuilder::new().summary(Some(self.summary));
        if !self.body.is_empty() {
            let parts = self.body.iter().map(|schema| schema(components));
            let schema = parts.fold(AllOfBuilder::new(), AllOfBuilder::item);
            let content = ContentBuilder::new().schema(Some(schema));
            let content = content.example(examples::of(self.path)).build();
            let body = RequestBodyBuilder::new().content(JSON, content);
            operation = operation.request_body(Some(body.required(Some(Required::True)).build()));
        }
        for name in self.path.split(['{', '}']).skip(1).step_by(2) {
            let text = ObjectBuilder::new().schema_type(SchemaType::new(Type::String)).build();
            let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path);
            let parameter = parameter.required(Required::True).schema(Some(text));
            operation = operation.parameter(parameter);
        }
        let mut success = Response::new("Success");
        for content_type in self.content_types {
            let schema = self.response_schema(content_type);
            success.content.insert((*content_type).into(), Content::new(Some(schema)));
        }
        operation = operation.response("200", success);
        for status in self.errors {
            let mut error = Response::new(status_description(*status));
            error.content.insert(JSON.into(), Content::new(Some((self.error)(components))));
            operation = operation.response(status.to_string(), error);
        }
        if self.open {
            operation = operation.securities(Some([SecurityRequirement::default()]));
        }
        operation.build()
    }

    /// Returns the schema of a response, or of each event of a stream.
    fn response_schema(&self, content_type: &str) -> Object {
        let of_type = |kinds: &[Type]| {
            ObjectBuilder::new().schema_type(match kinds {
                [one] => SchemaType::new(one.clone()),
                several => SchemaType::from_iter(several.iter().cloned()),
            })
        };
        let text = || of_type(&[Type::String]).build();
        match content_type {
            JSON => of_type(self.response).build(),
            EVENTS => of_type(&[Type::Object])
                .property("event", text())
                .property("data", text())
                .required("data")
                .build(),
            _ => text(),
        }
    }
}

/// Describes an error's status.
fn status_description(status: u16) -> &'static str {
    match status {
        400 => "The request is invalid; the message names the field",
        401 => "The API key is missing or invalid",
        403 => "Clients may not change the models of this server",
        404 => "There is no such endpoint or model",
        405 => "The endpoint does not support this method",
        408 => "The body arrived too slowly",
        413 => "The body is too large",
        429 => "The queue is full: try again later",
        502 => "The hub or the local store cannot be used",
        503 => "The model is loading, or the server is shutting down",
        504 => "The response took longer than this server allows",
        _ => "Internal error",
    }
}

/// The OpenAPI document.
static DOCUMENT: LazyLock<OpenApi> = LazyLock::new(|| {
    let (mut components, mut paths) = (Components::new(), Paths::new());
    for endpoint in endpoints() {
        let operation = endpoint.operation(&mut components);
        paths.add_path_operation(endpoint.path, vec![endpoint.method], operation);
    }
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    let header = ApiKey::Header(ApiKeyValue::new("x-api-key"));
    components.add_security_scheme("x-api-key", SecurityScheme::ApiKey(header));
    let keys = ["bearer", "x-api-key"].map(|name| SecurityRequirement::new(name, [""; 0]));
    let info = InfoBuilder::new()
        .title("wf-run serve")
        .description(Some("Serves a ternary language model through the APIs of OpenAI, Anthropic, Ollama and llama-server."))
        .version(env!("CARGO_PKG_VERSION"));
    let document = OpenApiBuilder::new().info(info).paths(paths).components(Some(components));
    document.security(Some(keys)).build()
});

/// Returns the OpenAPI document.
pub async fn document() -> Json<&'static OpenApi> {
    Json(&DOCUMENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_in_the_document() {
        let routers = [
            include_str!("../mod.rs"),
            ".route(\"/docs\", get(page))",
            include_str!("../ollama/mod.rs"),
            // Aliases are not in the document.
            include_str!("../llama_server/mod.rs").split("fn aliases").next().expect("code"),
        ];
        let routes: Vec<(String, &str)> = routers
            .iter()
            .flat_map(|code| code.split(".route(").skip(1))
            .map(|rest| {
                let (_, rest) = rest.split_once('"').expect("a path");
                let (path, rest) = rest.split_once("\",").expect("a method");
                let (method, handler) = rest.trim_start().split_once('(').expect("a handler");
                (path.replace("{*", "{"), method, handler)
            })
            .filter(|(_, _, handler)| !handler.starts_with("models::unsupported"))
            .map(|(path, method, _)| (path, method))
            .collect();
        assert!(routes.len() > 10, "{routes:?}");
        let documented: Vec<(String, &str)> = endpoints()
            .iter()
            .map(|endpoint| {
                let method = match endpoint.method {
                    HttpMethod::Get => "get",
                    HttpMethod::Delete => "delete",
                    _ => "post",
                };
                (endpoint.path.to_string(), method)
            })
            .collect();
        for route in &routes {
            assert!(documented.contains(route), "{route:?} is in no line of `endpoints`");
        }
        assert_eq!(routes.len(), documented.len(), "{documented:?} are not all routes");
    }

    #[test]
    fn every_body_has_an_example() {
        for Endpoint { path, body, .. } in endpoints() {
            assert_eq!(examples::of(path).is_some(), !body.is_empty(), "{path}");
        }
    }

    #[test]
    fn references_are_resolved() {
        let text = serde_json::to_string(&*DOCUMENT).expect("JSON");
        let schemas = &DOCUMENT.components.as_ref().expect("there").schemas;
        for rest in text.split("#/components/schemas/").skip(1) {
            let name = rest.split('"').next().expect("a name");
            assert!(schemas.contains_key(name), "{name}");
        }
        assert!(schemas.len() > 20);
    }
}
