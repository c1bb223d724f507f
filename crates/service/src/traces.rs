//! Traces for operators: what became of a submission, from the request to the last file. Spans go
//! to a collector by OpenTelemetry's protocol over HTTP, from a queue and a thread of their own.
//!
//! Spans have ids, numbers, stable codes and endpoints without users; no paths, no messages of
//! servers, no names of users. Where traces are off nothing is made, kept or sent.

use std::{
    env,
    fmt::Debug,
    sync::Arc,
    time::{Duration, SystemTime},
};

use axum::http::HeaderMap;
use opentelemetry::{
    Context, KeyValue, Value,
    trace::{
        Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags,
        TraceId, TraceState, Tracer as _, TracerProvider as _,
    },
};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::{
    Resource,
    trace::{SdkTracer, SdkTracerProvider},
};

/// Where a request comes from that is a part of a trace, W3C Trace Context §3.2.
const TRACEPARENT: &str = "traceparent";

/// Of that header in version 00, the only one there is.
const TRACEPARENT_BYTES: usize = 55;

/// Time for a collector to answer.
const EXPORT_LIMIT: Duration = Duration::from_secs(5);

/// Time for the last spans when a process ends.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Variables of OpenTelemetry that name a collector.
const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];

/// Where spans go; off by default. Clones share a queue.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<Exporter>>);

struct Exporter {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Debug for Traces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "on" } else { "off" })
    }
}

/// The collector that a setting names, or the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Collector {
    /// None: no traces.
    #[default]
    None,
    /// What `OTEL_EXPORTER_OTLP_ENDPOINT` says, or the same of traces.
    Environment,
    /// This URL, to which spans are posted.
    Url(String),
}

impl Collector {
    /// Of a setting, which goes before the environment.
    ///
    /// # Errors
    /// The URL is none of HTTP, or has a user: other users of the host see flags, and the exporter
    /// names its URL in the log where a collector does not answer.
    pub fn of(setting: Option<&str>) -> Result<Self, String> {
        Self::chosen(setting, |name| env::var(name).ok())
    }

    fn chosen(
        setting: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let Some(url) = setting else {
            if variable("OTEL_SDK_DISABLED").is_some_and(|value| value == "true") {
                return Ok(Self::None);
            }
            let mut chosen = Self::None;
            for name in ENDPOINTS {
                let Some(url) = variable(name).filter(|url| !url.is_empty()) else {
                    continue;
                };
                check(&url).map_err(|why| format!("{name}: {why}"))?;
                chosen = Self::Environment;
            }
            return Ok(chosen);
        };
        check(url).map_err(|why| format!("traces: {why}"))?;
        let base = url.trim_end_matches('/');
        let base = base.strip_suffix("/v1/traces").unwrap_or(base);
        Ok(Self::Url(format!("{base}/v1/traces")))
    }
}

/// Says why it is no URL of a collector, and nothing of what it holds.
fn check(url: &str) -> Result<(), String> {
    let parsed = reqwest::Url::parse(url).map_err(|error| error.to_string())?;
    if !matches!(parsed.scheme(), "http" | "https") || !parsed.has_host() {
        return Err("a URL of a collector is http://HOST:PORT or https://HOST:PORT".to_owned());
    }
    if !parsed.username().is_empty() || parsed.password().is_some() {
        return Err(
            "no user in the URL: headers for the collector go into the environment \
                    variable OTEL_EXPORTER_OTLP_HEADERS"
                .to_owned(),
        );
    }
    Ok(())
}

impl Traces {
    /// Of a process of this name: `process` is the kind of it, `instance` tells it from others.
    ///
    /// # Errors
    /// A variable of OpenTelemetry makes no sense.
    pub fn new(
        collector: &Collector,
        process: &'static str,
        instance: String,
    ) -> Result<Self, String> {
        let exporter = SpanExporter::builder().with_http();
        let exporter = match collector {
            Collector::None => return Ok(Self(None)),
            Collector::Environment => exporter,
            Collector::Url(url) => exporter.with_endpoint(url),
        };
        let exporter = exporter.with_timeout(EXPORT_LIMIT).build();
        let exporter = exporter.map_err(|error| format!("traces: {error}"))?;
        let resource = Resource::builder()
            .with_service_name(process)
            .with_attribute(KeyValue::new("service.instance.id", instance))
            .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        let tracer = provider.tracer("godwit");
        Ok(Self(Some(Arc::new(Exporter { provider, tracer }))))
    }

    /// The first span here of a trace: a new one, or the one that `parent` is of.
    pub(crate) fn begin(
        &self,
        name: &'static str,
        kind: SpanKind,
        (parent, since): (Option<&Parent>, SystemTime),
    ) -> Span {
        let Some(exporter) = &self.0 else {
            return Span(None);
        };
        let context = parent.map_or_else(Context::new, |parent| {
            Context::new().with_remote_span_context(parent.0.clone())
        });
        let builder = exporter.tracer.span_builder(name).with_kind(kind);
        let builder = builder.with_start_time(since);
        Span(Some(builder.start_with_context(&exporter.tracer, &context)))
    }

    /// A span within another one; nothing where there is no other.
    pub(crate) fn within(
        &self,
        name: &'static str,
        kind: SpanKind,
        parent: Option<&Parent>,
    ) -> Span {
        match parent {
            Some(_) => self.begin(name, kind, (parent, SystemTime::now())),
            None => Span(None),
        }
    }

    /// What a request says that it is a part of.
    pub(crate) fn parent_of(&self, headers: &HeaderMap) -> Option<Parent> {
        self.0.as_ref()?;
        let mut all = headers.get_all(TRACEPARENT).iter();
        match (all.next(), all.next()) {
            (Some(one), None) => one.to_str().ok().and_then(Parent::parse),
            _ => None,
        }
    }

    /// Sends what waits, for a moment. No span is taken any more.
    pub async fn end(self) {
        let Some(exporter) = self.0 else {
            return;
        };
        let end = move || exporter.provider.shutdown_with_timeout(END_LIMIT);
        match tokio::task::spawn_blocking(end).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last spans are lost"),
            Err(error) => tracing::warn!(%error, "the last spans are lost"),
        }
    }
}

/// The span that others are within.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Parent(SpanContext);

impl Parent {
    /// Of the text of a header `traceparent`: the version, a trace, a span in it and flags, in
    /// lower-case hexadecimal. State that others keep beside it is not taken over.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_whole = text.len() == TRACEPARENT_BYTES && text.starts_with("00-");
        let is_hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let mut fields = text.get(3..).filter(|_| is_whole)?.split('-');
        let (trace, span, flags) = (fields.next()?, fields.next()?, fields.next()?);
        let lengths = (trace.len(), span.len(), flags.len());
        if lengths != (32, 16, 2) || ![trace, span, flags].into_iter().all(is_hex) {
            return None;
        }
        let flags = u8::from_str_radix(flags, 16).ok()?;
        let context = SpanContext::new(
            TraceId::from_hex(trace).ok()?,
            SpanId::from_hex(span).ok()?,
            TraceFlags::new(flags) & TraceFlags::SAMPLED,
            true,
            TraceState::default(),
        );
        context.is_valid().then_some(Self(context))
    }
}

/// A step of a trace, until it is dropped; or none where traces are off.
#[derive(Default)]
pub(crate) struct Span(Option<opentelemetry_sdk::trace::Span>);

impl Span {
    /// What it is about. Values are ids, numbers, stable codes and endpoints.
    pub(crate) fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        if let Some(span) = &mut self.0 {
            span.set_attribute(KeyValue::new(name, value));
        }
    }

    /// A number; those that OpenTelemetry cannot hold are no numbers of bytes or files.
    pub(crate) fn count(&mut self, name: &'static str, number: u64) {
        self.set(name, i64::try_from(number).unwrap_or(i64::MAX));
    }

    /// How it ended: a word, and the code of the error where there was one.
    pub(crate) fn outcome(&mut self, word: &'static str, error: Option<&str>) {
        self.set("godwit.outcome", word);
        if let Some(code) = error {
            self.set("error.type", code.to_owned());
        }
        if let (Some(span), Some(code)) = (&mut self.0, error) {
            span.set_status(Status::error(code.to_owned()));
        }
    }

    /// What spans within it need, where this one is recorded.
    pub(crate) fn as_parent(&self) -> Option<Parent> {
        let context = self.0.as_ref()?.span_context();
        context.is_sampled().then(|| Parent(context.clone()))
    }

    /// The same for another process.
    pub(crate) fn traceparent(&self) -> Option<String> {
        let Parent(context) = self.as_parent()?;
        let (trace, span) = (context.trace_id(), context.span_id());
        Some(format!("00-{trace}-{span}-{:02x}", context.trace_flags()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_parent_is_of_one_form_only() {
        let parent = Parent::parse(GOOD).unwrap();
        assert!(parent.0.is_remote() && parent.0.is_sampled());
        let foreign = [
            "",
            "00",
            &GOOD.to_uppercase(),
            &GOOD.replacen("00-", "01-", 1),
            &GOOD.replace('-', "_"),
            &format!("{GOOD}-"),
            &format!("{GOOD}{}", "0".repeat(1 << 20)),
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333ä-1",
        ];
        for text in foreign {
            assert_eq!(Parent::parse(text), None, "{text:.80}");
        }
    }

    #[test]
    fn nothing_is_made_where_traces_are_off() {
        let traces = Traces::default();
        let mut headers = HeaderMap::new();
        headers.insert(TRACEPARENT, GOOD.parse().unwrap());
        assert_eq!(traces.parent_of(&headers), None);
        let parent = Parent::parse(GOOD);
        let span = traces.within("lease", SpanKind::Producer, parent.as_ref());
        assert!(span.0.is_none() && span.traceparent().is_none());
    }

    #[test]
    fn a_collector_is_a_url_without_a_user() {
        let of = |url| Collector::of(Some(url));
        let whole = Collector::Url("http://c:4318/v1/traces".to_owned());
        for url in ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces"] {
            assert_eq!(of(url).unwrap(), whole);
        }
        for wrong in [
            "c:4318",
            "ftp://c",
            "http://u:p@c",
            "https://u@c",
            "",
            "http://",
        ] {
            let error = of(wrong).unwrap_err().to_string();
            assert!(
                error.starts_with("traces: ") && !error.contains("u:p"),
                "{error}"
            );
        }
        // The same of the environment, where the exporter reads it.
        let of = |url: &str| {
            let variable = |name: &str| (name == ENDPOINTS[1]).then(|| url.to_owned());
            Collector::chosen(None, variable)
        };
        assert_eq!(of("http://c:4318").unwrap(), Collector::Environment);
        assert_eq!(of("").unwrap(), Collector::None);
        for wrong in ["http://u:p@c", "https://u@c", "c:4318"] {
            let error = of(wrong).unwrap_err();
            assert!(
                error.starts_with(ENDPOINTS[1]) && !error.contains("u:p"),
                "{error}"
            );
        }
    }
}
