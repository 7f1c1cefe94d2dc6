//! `GET /openapi.json`: what this server can be asked, written down from the structs that requests
//! are parsed into; and `GET /docs`, which shows it.

use super::{chat, completions, embeddings, messages, responses, tokens};
use crate::serve::error;
use axum::Json;
use axum::response::Html;
use std::sync::LazyLock;
use utoipa::ToSchema;
use utoipa::openapi::path::{
    HttpMethod, Operation, OperationBuilder, ParameterBuilder, ParameterIn, PathItem,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{
    AllOfBuilder, Components, ObjectBuilder, Ref, Schema, SchemaType, Type,
};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    Content, InfoBuilder, OpenApi, OpenApiBuilder, Paths, RefOr, Required, Response,
};

/// A part of a body: adds the schemas that it needs, and refers to them.
pub type Part = fn(&mut Components) -> RefOr<Schema>;

/// The fields of `T`.
pub fn part<T: ToSchema>(components: &mut Components) -> RefOr<Schema> {
    let mut needed = vec![(T::name().into_owned(), T::schema())];
    T::schemas(&mut needed);
    for (name, schema) in needed {
        let other = components.schemas.insert(name.clone(), schema.clone());
        debug_assert!(other.is_none_or(|other| other == schema), "two schemas are called {name}");
    }
    Ref::from_schema_name(T::name()).into()
}

/// What the document says of an endpoint.
struct Endpoint {
    method: HttpMethod,
    path: &'static str,
    summary: &'static str,
    body: &'static [Part],
    /// Types of what it answers.
    kinds: &'static [&'static str],
    /// Statuses that are errors.
    errors: &'static [u16],
    error: Part,
    /// No key is asked for.
    open: bool,
}

const JSON: &str = "application/json";

fn get(path: &'static str, summary: &'static str) -> Endpoint {
    Endpoint {
        method: HttpMethod::Get,
        path,
        summary,
        body: &[],
        kinds: &[JSON],
        errors: &[401, 404, 405, 500, 503],
        error: part::<error::Body>,
        open: false,
    }
}

fn post(path: &'static str, summary: &'static str, body: &'static [Part]) -> Endpoint {
    let errors = &[400, 401, 404, 405, 408, 413, 429, 500, 503, 504];
    Endpoint { method: HttpMethod::Post, body, errors, ..get(path, summary) }
}

impl Endpoint {
    /// With `stream` it answers in events.
    fn streams(self) -> Self {
        Self { kinds: &[JSON, "text/event-stream"], ..self }
    }

    /// Its errors have Anthropic's shape.
    fn anthropic(self) -> Self {
        Self { error: part::<messages::ErrorBody>, ..self }
    }

    fn open(self) -> Self {
        Self { open: true, ..self }
    }
}

/// All endpoints. One that is missing here fails a test.
#[rustfmt::skip]
fn endpoints() -> Vec<Endpoint> {
    vec![
        post("/v1/chat/completions", "Answers a conversation", chat::BODY).streams(),
        post("/v1/completions", "Continues texts", completions::BODY).streams(),
        post("/v1/responses", "Answers a conversation, in OpenAI's newer API", responses::BODY).streams(),
        post("/v1/messages", "Answers a conversation, in Anthropic's API", messages::BODY).streams().anthropic(),
        post("/v1/messages/count_tokens", "How many tokens a conversation has", messages::COUNT).anthropic(),
        post("/v1/embeddings", "Vectors of texts", embeddings::BODY),
        get("/v1/models", "The models, which is one"),
        get("/v1/models/{id}", "One model"),
        get("/v1/loads", "How busy the engine is"),
        post("/tokenize", "The tokens of a text", tokens::TOKENIZE),
        post("/detokenize", "The text of some tokens", tokens::DETOKENIZE),
        get("/tokenizer_info", "What a client must know to use the tokenizer"),
        post("/apply-template", "The text that the model would continue", tokens::APPLY_TEMPLATE),
        get("/server_info", "What runs, and how"),
        Endpoint { kinds: &["application/openmetrics-text"], ..get("/metrics", "Metrics for Prometheus") },
        get("/health", "OK as soon as requests can be answered").open(),
        get("/version", "This program's version").open(),
        get("/openapi.json", "This document").open(),
        Endpoint { kinds: &["text/html"], ..get("/docs", "This document for people").open() },
    ]
}

impl Endpoint {
    fn operation(&self, components: &mut Components) -> Operation {
        let mut operation = OperationBuilder::new().summary(Some(self.summary));
        if !self.body.is_empty() {
            let parts = self.body.iter().map(|part| part(components));
            let schema = parts.fold(AllOfBuilder::new(), AllOfBuilder::item);
            let body = RequestBodyBuilder::new().content(JSON, Content::new(Some(schema)));
            operation = operation.request_body(Some(body.required(Some(Required::True)).build()));
        }
        for name in self.path.split(['{', '}']).skip(1).step_by(2) {
            let text = ObjectBuilder::new().schema_type(SchemaType::new(Type::String)).build();
            let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path);
            let parameter = parameter.required(Required::True).schema(Some(text));
            operation = operation.parameter(parameter);
        }
        let mut answer = Response::new("The answer");
        for kind in self.kinds {
            let schema = if *kind == JSON { Type::Object } else { Type::String };
            let schema = ObjectBuilder::new().schema_type(SchemaType::new(schema)).build();
            answer.content.insert((*kind).into(), Content::new(Some(schema)));
        }
        operation = operation.response("200", answer);
        for status in self.errors {
            let mut wrong = Response::new(meaning(*status));
            wrong.content.insert(JSON.into(), Content::new(Some((self.error)(components))));
            operation = operation.response(status.to_string(), wrong);
        }
        if self.open {
            operation = operation.securities(Some([SecurityRequirement::default()]));
        }
        operation.build()
    }
}

/// What an error's status means.
fn meaning(status: u16) -> &'static str {
    match status {
        400 => "Something in the request is wrong: the message names it",
        401 => "A key is missing or wrong",
        404 => "There is no such thing",
        405 => "There is something else at this path",
        408 => "The body came too slowly",
        413 => "The body is too large",
        429 => "Too many requests wait: try again later",
        503 => "The model is loading, or the server is shutting down",
        504 => "The answer took longer than this server allows",
        _ => "A bug in the server",
    }
}

/// The document.
static DOCUMENT: LazyLock<OpenApi> = LazyLock::new(|| {
    let (mut components, mut paths) = (Components::new(), Paths::new());
    for endpoint in endpoints() {
        let operation = endpoint.operation(&mut components);
        let item = PathItem::new(endpoint.method, operation);
        paths.paths.insert(endpoint.path.into(), item);
    }
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
    components.add_security_scheme("bearer", SecurityScheme::Http(bearer));
    let header = ApiKey::Header(ApiKeyValue::new("x-api-key"));
    components.add_security_scheme("x-api-key", SecurityScheme::ApiKey(header));
    let keys = ["bearer", "x-api-key"].map(|name| SecurityRequirement::new(name, [""; 0]));
    let info = InfoBuilder::new()
        .title("wf-run serve")
        .description(Some("A ternary language model behind OpenAI's and Anthropic's APIs."))
        .version(env!("CARGO_PKG_VERSION"));
    let document = OpenApiBuilder::new().info(info).paths(paths).components(Some(components));
    document.security(Some(keys)).build()
});

/// The document.
pub async fn document() -> Json<&'static OpenApi> {
    Json(&DOCUMENT)
}

/// A page that shows it.
pub async fn docs() -> Html<&'static str> {
    Html(include_str!("docs.html"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_in_the_document() {
        let code = include_str!("mod.rs");
        let routes: Vec<(String, &str)> = code
            .split(".route(")
            .skip(1)
            .map(|rest| {
                let (_, rest) = rest.split_once('"').expect("a path");
                let (path, rest) = rest.split_once("\", ").expect("a method");
                (path.replace("{*", "{"), rest.split('(').next().expect("a handler"))
            })
            .collect();
        assert!(routes.len() > 10, "{routes:?}");
        let documented: Vec<(String, &str)> = endpoints()
            .iter()
            .map(|endpoint| {
                let method = if endpoint.method == HttpMethod::Get { "get" } else { "post" };
                (endpoint.path.to_string(), method)
            })
            .collect();
        for route in &routes {
            assert!(documented.contains(route), "{route:?} is in no line of `endpoints`");
        }
        assert_eq!(routes.len(), documented.len(), "{documented:?} are not all routes");
    }

    #[test]
    fn references_lead_somewhere() {
        let text = serde_json::to_string(&*DOCUMENT).expect("JSON");
        let schemas = &DOCUMENT.components.as_ref().expect("there").schemas;
        for rest in text.split("#/components/schemas/").skip(1) {
            let name = rest.split('"').next().expect("a name");
            assert!(schemas.contains_key(name), "{name}");
        }
        assert!(schemas.len() > 20);
    }
}
