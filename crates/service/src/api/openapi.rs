//! Routes and their OpenAPI document, from one definition: none can be in one and not in the other.

use std::sync::Arc;

use axum::{
    Router,
    handler::Handler,
    http::header,
    routing::{MethodFilter, MethodRouter, get},
};
use godwit_service_api::{
    API,
    problem::{MEDIA_TYPE, Problem},
};
use utoipa::{
    __dev::SchemaReferences,
    ToSchema,
    openapi::{
        ComponentsBuilder, ContentBuilder, Info, License, OpenApi, OpenApiBuilder, Paths, Ref,
        RefOr, ResponseBuilder, Schema, SecurityRequirement,
        path::HttpMethod,
        security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
    },
};

use super::Api;

/// Routes while they are collected.
#[derive(Default)]
pub(super) struct Routes {
    router: Router<Arc<Api>>,
    paths: Paths,
    schemas: Vec<(String, RefOr<Schema>)>,
}

impl Routes {
    /// Adds a handler at the path and method that its `utoipa::path` says.
    pub(super) fn add<P, H, T>(&mut self, handler: H) -> &mut Self
    where
        P: utoipa::Path + SchemaReferences,
        H: Handler<T, Arc<Api>>,
        T: 'static,
    {
        let (path, methods) = (P::path(), P::methods());
        let mut at = MethodRouter::new();
        for method in &methods {
            at = at.on(filter(method), handler.clone());
        }
        self.router = std::mem::take(&mut self.router).route(&path, at);
        let mut operation = P::operation();
        let problem = ContentBuilder::new()
            .schema(Some(Ref::from_schema_name("Problem")))
            .build();
        let problem = ResponseBuilder::new()
            .description("A problem (RFC 9457)")
            .content(MEDIA_TYPE, problem)
            .build();
        let responses = &mut operation.responses.responses;
        responses.insert("default".to_owned(), RefOr::T(problem));
        self.paths.add_path_operation(&path, methods, operation);
        P::schemas(&mut self.schemas);
        self
    }

    pub(super) fn finish(mut self) -> (Router<Arc<Api>>, OpenApi) {
        self.schemas.push((
            Problem::name().into_owned(),
            <Problem as utoipa::PartialSchema>::schema(),
        ));
        Problem::schemas(&mut self.schemas);
        let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = ComponentsBuilder::new()
            .schemas_from_iter(self.schemas)
            .security_scheme("token", SecurityScheme::Http(token))
            .build();
        let mut info = Info::new("godwit-service", env!("CARGO_PKG_VERSION"));
        info.license = Some(License::new("Apache-2.0"));
        let document = OpenApiBuilder::new()
            .info(info)
            .paths(self.paths)
            .components(Some(components))
            .security(Some([SecurityRequirement::new("token", [] as [&str; 0])]))
            .build();
        (self.router, document)
    }
}

/// The document itself.
pub(super) fn route(document: &OpenApi) -> Router<Arc<Api>> {
    let text = document.to_json().unwrap_or_default();
    let answer = async move || ([(header::CONTENT_TYPE, "application/json")], text);
    Router::new().route(&format!("{API}/openapi.json"), get(answer))
}

fn filter(method: &HttpMethod) -> MethodFilter {
    match method {
        HttpMethod::Get => MethodFilter::GET,
        HttpMethod::Post => MethodFilter::POST,
        HttpMethod::Put => MethodFilter::PUT,
        HttpMethod::Delete => MethodFilter::DELETE,
        HttpMethod::Patch => MethodFilter::PATCH,
        HttpMethod::Head => MethodFilter::HEAD,
        _ => MethodFilter::OPTIONS,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::Value;

    fn references(value: &Value, found: &mut HashSet<String>) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(name)) = map.get("$ref") {
                    found.insert(name.clone());
                }
                map.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }

    #[test]
    fn the_document_has_every_schema_that_it_names() {
        let (_, document) = super::super::routes().finish();
        let text = document.to_json().unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(value["openapi"].as_str().unwrap().starts_with("3.1"));
        let mut found = HashSet::new();
        references(&value, &mut found);
        assert!(found.len() > 20, "{found:?}");
        for name in found {
            let pointer = name.strip_prefix('#').unwrap();
            assert!(value.pointer(pointer).is_some(), "{name} is missing");
        }
    }

    #[test]
    fn every_operation_says_what_it_does_and_how_it_fails() {
        let (_, document) = super::super::routes().finish();
        let value: Value = serde_json::from_str(&document.to_json().unwrap()).unwrap();
        let paths = value["paths"].as_object().unwrap();
        assert!(paths.len() > 20);
        let mut ids = HashSet::new();
        for (path, item) in paths {
            for (method, operation) in item.as_object().unwrap() {
                assert!(operation["summary"].is_string(), "{method} {path}");
                assert!(
                    operation["responses"]["default"].is_object(),
                    "{method} {path}"
                );
                let id = operation["operationId"].as_str().unwrap().to_owned();
                assert!(ids.insert(id.clone()), "{id} is there twice");
            }
        }
    }
}
