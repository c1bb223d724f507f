//! A collector of OpenTelemetry: takes spans over HTTP and keeps them.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{Router, body::Bytes, extract::State, http::StatusCode, routing::post};
use opentelemetry_proto::tonic::{
    collector::trace::v1::ExportTraceServiceRequest,
    common::v1::{AnyValue, KeyValue, any_value::Value},
};
use prost::Message as _;

/// Longest wait for a span.
const LIMIT: Duration = Duration::from_secs(60);

/// What came in.
#[derive(Clone, Default)]
struct Kept {
    spans: Arc<Mutex<Vec<Span>>>,
    bytes: Arc<Mutex<Vec<u8>>>,
}

/// Takes spans until it is dropped.
pub(crate) struct Collector {
    pub(crate) url: String,
    kept: Kept,
}

/// A span as the collector got it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    /// `service.name` of the process.
    pub(crate) process: String,
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) times: (u64, u64),
}

impl Span {
    pub(crate) fn attribute(&self, name: &str) -> &str {
        let found = self.attributes.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value)
    }
}

impl Collector {
    pub(crate) async fn start() -> Self {
        let kept = Kept::default();
        let router = Router::new().route("/v1/traces", post(take));
        let router = router.with_state(kept.clone());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(crate::harness::serve(listener, router));
        Self { url, kept }
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.kept.spans.lock().unwrap().clone()
    }

    /// All that was sent to it.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.kept.bytes.lock().unwrap().clone()
    }

    /// The first span of this name of a job.
    pub(crate) async fn span(&self, job: &str, name: &str) -> Span {
        let began = Instant::now();
        loop {
            let spans = self.spans();
            let mut of_job = spans.iter().filter(|span| span.name == name);
            if let Some(found) = of_job.find(|span| span.attribute("godwit.job.id") == job) {
                return found.clone();
            }
            assert!(began.elapsed() < LIMIT, "no {name} of {job}: {spans:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn take(State(kept): State<Kept>, body: Bytes) -> StatusCode {
    let Ok(request) = ExportTraceServiceRequest::decode(body.clone()) else {
        return StatusCode::BAD_REQUEST;
    };
    kept.bytes.lock().unwrap().extend_from_slice(&body);
    let mut spans = kept.spans.lock().unwrap();
    for of_process in request.resource_spans {
        let resource = of_process.resource.unwrap_or_default();
        let process = texts(resource.attributes);
        let process = process.iter().find(|(key, _)| key == "service.name");
        let process = process.map_or("", |(_, value)| value);
        let scopes = of_process.scope_spans.into_iter();
        spans.extend(scopes.flat_map(|scope| scope.spans).map(|span| Span {
            process: process.to_owned(),
            name: span.name,
            trace: hex(&span.trace_id),
            id: hex(&span.span_id),
            parent: hex(&span.parent_span_id),
            attributes: texts(span.attributes),
            times: (span.start_time_unix_nano, span.end_time_unix_nano),
        }));
    }
    StatusCode::OK
}

fn texts(attributes: Vec<KeyValue>) -> Vec<(String, String)> {
    let text = |value: Option<AnyValue>| match value.and_then(|value| value.value) {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    let attributes = attributes.into_iter();
    attributes.map(|one| (one.key, text(one.value))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
