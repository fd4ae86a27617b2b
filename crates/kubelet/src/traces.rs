//! Exports spans of pod syncs, calls to the runtime and HTTP requests to a collector by OTLP over gRPC. Nothing waits for the
//! export: spans that do not fit into the queue are dropped and counted.

use std::collections::hash_map::RandomState;
use std::fmt::{Debug, Write as _};
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use config::Tracing;
use grpc_api::otlp as wire;
use grpc_api::otlp::trace_service_client::TraceServiceClient;
use jiff::Timestamp;
use ports::TraceContext;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Filter, Layer};
use tracing_subscriber::registry::LookupSpan;

/// The target of all exported spans.
const TARGET: &str = "trace";
const DEFAULT_ENDPOINT: &str = "localhost:4317";
/// Spans that wait for their export; about a kilobyte each at most.
const QUEUE: usize = 2048;
const MAX_BATCH: usize = 512;
/// A span waits no longer for its batch.
const BATCH_DELAY: Duration = Duration::from_secs(5);
const EXPORT_DEADLINE: Duration = Duration::from_secs(10);
/// For the last batch, when the kubelet ends.
const LAST_DEADLINE: Duration = Duration::from_secs(1);

/// Finished spans that wait for their export.
pub(crate) struct Finished {
    queue: mpsc::Receiver<wire::Span>,
    lost: Arc<AtomicU64>,
    endpoint: String,
}

/// `None` if tracing is not configured.
pub(crate) fn prepare(config: Option<&Tracing>) -> Option<(Spans, Finished)> {
    let config = config?;
    let (sender, queue) = mpsc::channel(QUEUE);
    let lost = Arc::new(AtomicU64::new(0));
    let per_million = u64::try_from(config.sampling_rate_per_million.unwrap_or(0)).unwrap_or(0);
    let spans = Spans {
        per_million,
        sender,
        lost: lost.clone(),
        next: AtomicU64::new(RandomState::new().build_hasher().finish()),
    };
    let endpoint = config.endpoint.clone().filter(|endpoint| !endpoint.is_empty());
    Some((spans, Finished { queue, lost, endpoint: endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned()) }))
}

/// For the crates that call other programs; `None` if tracing is not configured.
pub(crate) fn context(config: Option<&Tracing>) -> Option<Arc<dyn TraceContext>> {
    config.map(|_| Arc::new(CurrentSpan) as Arc<dyn TraceContext>)
}

/// Collects spans as they end.
pub(crate) struct Spans {
    per_million: u64,
    sender: mpsc::Sender<wire::Span>,
    lost: Arc<AtomicU64>,
    /// The state of the generator of ids.
    next: AtomicU64,
}

/// Lets spans through, and nothing else.
pub(crate) struct OnlySpans;

impl<S> Filter<S> for OnlySpans {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        metadata.is_span() && metadata.target() == TARGET
    }
}

/// The position of a span of ours or of a caller in its trace.
#[derive(Clone, Debug)]
struct SpanContext {
    trace: Vec<u8>,
    span: Vec<u8>,
    /// Either all spans of a trace are exported, or none.
    is_recorded: bool,
}

impl SpanContext {
    /// Parses the header `traceparent` of a caller.
    fn parse(header: &str) -> Option<Self> {
        let mut parts = header.trim().split('-');
        let (_version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let (trace, span, flags) = (hex(trace, 16)?, hex(span, 8)?, hex(flags.get(..2)?, 1)?);
        Some(Self { trace, span, is_recorded: flags.first().is_some_and(|flags| flags & 1 == 1) })
    }

    fn to_traceparent(&self) -> String {
        let mut text = "00-".to_owned();
        for byte in &self.trace {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('-');
        for byte in &self.span {
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str(if self.is_recorded { "-01" } else { "-00" });
        text
    }
}

/// The current span of this thread, for outgoing calls.
#[derive(Debug)]
pub(crate) struct CurrentSpan;

impl TraceContext for CurrentSpan {
    fn traceparent(&self) -> Option<String> {
        tracing::Span::current()
            .with_subscriber(|(id, dispatch)| {
                let span = dispatch.downcast_ref::<Registry>()?.span(id)?;
                span.extensions().get::<SpanContext>().map(SpanContext::to_traceparent)
            })
            .flatten()
    }
}

fn hex(text: &str, length: usize) -> Option<Vec<u8>> {
    if text.len() != length * 2 || !text.is_ascii() {
        return None;
    }
    let byte = |at: usize| u8::from_str_radix(text.get(at * 2..at * 2 + 2)?, 16).ok();
    (0..length).map(byte).collect()
}

fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or_default()
}

impl Spans {
    /// Different every time (SplitMix64), and never zero, which would mean none.
    fn id(&self) -> u64 {
        let mut z = self.next.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).max(1)
    }

    /// For a new span: in its parent's trace, or in a new one.
    fn span_context(&self, parent: Option<&SpanContext>) -> SpanContext {
        let span = self.id().to_be_bytes().to_vec();
        if let Some(parent) = parent {
            return SpanContext { span, ..parent.clone() };
        }
        let (high, low) = (self.id(), self.id());
        let trace = [high.to_be_bytes(), low.to_be_bytes()].concat();
        SpanContext { trace, span, is_recorded: self.is_sampled(low) }
    }

    /// Samples by the trace id, so that all components decide in the same way.
    const fn is_sampled(&self, low: u64) -> bool {
        (low >> 1) as u128 * 1_000_000 < (self.per_million as u128) << 63
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut began = Fields { parent: None, span: wire::Span::default() };
        began.span.name = attributes.metadata().name().to_owned();
        began.span.kind = 1;
        attributes.record(&mut began);
        let Fields { parent: caller, span: mut exported } = began;
        let around = span.parent().and_then(|around| around.extensions().get::<SpanContext>().cloned());
        let parent = around.or(caller);
        let own = self.span_context(parent.as_ref());
        if own.is_recorded {
            exported.trace_id.clone_from(&own.trace);
            exported.span_id.clone_from(&own.span);
            exported.parent_span_id = parent.map(|parent| parent.span).unwrap_or_default();
            exported.start_time_unix_nano = nanos(Timestamp::now());
            span.extensions_mut().insert(exported);
        }
        span.extensions_mut().insert(own);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        if let Some(exported) = extensions.get_mut::<wire::Span>() {
            let mut fields = Fields { parent: None, span: std::mem::take(exported) };
            values.record(&mut fields);
            *exported = fields.span;
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let exported = context.span(&id).and_then(|span| span.extensions_mut().remove::<wire::Span>());
        if let Some(mut exported) = exported {
            exported.end_time_unix_nano = nanos(Timestamp::now());
            if self.sender.try_send(exported).is_err() {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Fields of a span become attributes, but for those that are the span's own: `otel.name`, `otel.kind`, `otel.error` and
/// `traceparent`.
struct Fields {
    parent: Option<SpanContext>,
    span: wire::Span,
}

impl Fields {
    fn attribute(&mut self, field: &Field, value: wire::any_value::Value) {
        self.span.attributes.push(attribute(field.name(), value));
    }
}

fn attribute(key: &str, value: wire::any_value::Value) -> wire::KeyValue {
    wire::KeyValue { key: key.to_owned(), value: Some(wire::AnyValue { value: Some(value) }) }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "otel.name" => value.clone_into(&mut self.span.name),
            "otel.kind" => self.span.kind = if value == "server" { 2 } else { 3 },
            "otel.error" => self.span.status = Some(wire::Status { message: value.to_owned(), code: 2 }),
            "traceparent" => self.parent = SpanContext::parse(value),
            _ => self.attribute(field, wire::any_value::Value::StringValue(value.to_owned())),
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.attribute(field, wire::any_value::Value::IntValue(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record_i64(field, i64::try_from(value).unwrap_or(i64::MAX));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.attribute(field, wire::any_value::Value::BoolValue(value));
    }
}

/// The collector's address for `tonic`: a target of gRPC with the scheme `dns` (its server of names is ignored) or `unix`, or
/// `host:port`.
fn collector(endpoint: &str) -> String {
    match endpoint.split_once("://") {
        Some(("unix", _)) => endpoint.to_owned(),
        Some(("dns", target)) => {
            let host = target.split_once('/').map_or(target, |(_, host)| host);
            format!("http://{host}")
        }
        Some(_) | None => format!("http://{endpoint}"),
    }
}

/// Exports spans until `stop`, and then the remaining ones.
pub(crate) async fn export(mut finished: Finished, host_name: String, stop: CancellationToken) {
    let endpoint = match Endpoint::from_shared(collector(&finished.endpoint)) {
        Ok(endpoint) => endpoint,
        Err(error) => {
            tracing::error!(endpoint = finished.endpoint, err = %error, "Failed to parse tracing.endpoint, not exporting spans");
            return;
        }
    };
    let mut client = TraceServiceClient::new(endpoint.connect_timeout(EXPORT_DEADLINE).connect_lazy());
    let mut is_failing = false;
    while !stop.is_cancelled() {
        let mut batch = Vec::new();
        tokio::select! {
            _ = finished.queue.recv_many(&mut batch, MAX_BATCH) => {}
            () = stop.cancelled() => {}
        }
        let gathering = async {
            while batch.len() < MAX_BATCH {
                let free = MAX_BATCH.saturating_sub(batch.len());
                finished.queue.recv_many(&mut batch, free).await;
            }
        };
        tokio::select! {
            () = gathering => {}
            () = tokio::time::sleep(BATCH_DELAY) => {}
            () = stop.cancelled() => {}
        }
        let deadline = if stop.is_cancelled() { LAST_DEADLINE } else { EXPORT_DEADLINE };
        let outcome = send(&mut client, batch, &host_name, deadline).await;
        let lost = finished.lost.swap(0, Ordering::Relaxed);
        match outcome {
            Err(error) if !is_failing => {
                tracing::warn!(endpoint = finished.endpoint, err = error, "Failed to export spans");
            }
            Err(_) | Ok(()) => {}
        }
        is_failing = outcome.is_err();
        if lost > 0 {
            tracing::warn!(lost, "Dropped spans because the collector is too slow");
        }
    }
}

async fn send(
    client: &mut TraceServiceClient<Channel>,
    spans: Vec<wire::Span>,
    host_name: &str,
    deadline: Duration,
) -> Result<(), &'static str> {
    if spans.is_empty() {
        return Ok(());
    }
    let text = |key: &str, value: &str| attribute(key, wire::any_value::Value::StringValue(value.to_owned()));
    let attributes = vec![text("service.name", "kubelet"), text("host.name", host_name)];
    let scope = wire::Scope { name: "kubelet-rs".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let request = wire::ExportTraceServiceRequest {
        resource_spans: vec![wire::ResourceSpans {
            resource: Some(wire::Resource { attributes }),
            scope_spans: vec![wire::ScopeSpans { scope: Some(scope), spans }],
        }],
    };
    match tokio::time::timeout(deadline, client.export(request)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(_)) => Err("the collector rejected them or did not accept the connection"),
        Err(_) => Err("the collector did not answer in time"),
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn endpoint_of_the_collector_is_a_grpc_target() {
        for (endpoint, expected) in [
            ("localhost:4317", "http://localhost:4317"),
            ("dns:///collector:4317", "http://collector:4317"),
            ("dns://10.0.0.1/collector:4317", "http://collector:4317"),
            ("dns://collector:4317", "http://collector:4317"),
            ("unix:///run/otel.sock", "unix:///run/otel.sock"),
        ] {
            assert_eq!(collector(endpoint), expected);
        }
    }

    /// The spans that `work` exports with this sampling rate.
    fn exported(per_million: i32, work: impl FnOnce()) -> Vec<wire::Span> {
        let config = Tracing { endpoint: None, sampling_rate_per_million: Some(per_million) };
        let (spans, mut finished) = prepare(Some(&config)).unwrap();
        let subscriber = tracing_subscriber::registry().with(spans.with_filter(OnlySpans));
        tracing::subscriber::with_default(subscriber, work);
        std::iter::from_fn(|| finished.queue.try_recv().ok()).collect()
    }

    fn request(traceparent: &str) {
        let span = tracing::info_span!(target: "trace", "HTTP", otel.name = "GET /pods", otel.kind = "server", traceparent, code = tracing::field::Empty);
        let _inside = span.enter();
        span.record("code", 200);
        drop(tracing::info_span!(target: "trace", "inner"));
        drop(tracing::info_span!(target: "elsewhere", "not ours"));
    }

    const RECORDED: &str = "00-0123456789abcdef0123456789abcdef-0011223344556677-01";
    const UNRECORDED: &str = "00-0123456789abcdef0123456789abcdef-0011223344556677-00";

    #[test]
    fn spans_have_the_callers_trace_and_their_parents() {
        let spans = exported(0, || request(RECORDED));
        let [inner, outer] = &*spans else { panic!("{spans:?}") };
        assert_eq!(outer.parent_span_id, [0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77]);
        assert_eq!((&*outer.name, outer.kind, outer.attributes.len()), ("GET /pods", 2, 1));
        assert_eq!((&inner.parent_span_id, &inner.trace_id), (&outer.span_id, &outer.trace_id));
        assert!(outer.start_time_unix_nano > 0 && outer.start_time_unix_nano <= outer.end_time_unix_nano);
    }

    #[test]
    fn trace_that_is_not_sampled_exports_no_span() {
        assert_eq!(exported(0, || request("")), []);
        assert_eq!(exported(1_000_000, || request(UNRECORDED)), []);
        assert_eq!(exported(1_000_000, || request("")).len(), 2);
        let some = exported(250_000, || (0..1000).for_each(|_| request("nonsense"))).len();
        assert!((300..700).contains(&some), "{some}");
    }

    #[test]
    fn traceparent_has_the_current_span_and_whether_it_is_sampled() {
        let headers = std::cell::RefCell::new(Vec::new());
        let call = |parent: &str| {
            let span = tracing::info_span!(target: "trace", "HTTP", traceparent = parent);
            headers.borrow_mut().extend(span.in_scope(|| CurrentSpan.traceparent()));
        };
        let spans = exported(0, || {
            call(RECORDED);
            call(UNRECORDED);
            headers.borrow_mut().extend(CurrentSpan.traceparent());
        });
        let headers = headers.into_inner();
        let [recorded, unrecorded] = &*headers else { panic!("{headers:?}") };
        let [span] = &*spans else { panic!("{spans:?}") };
        let recorded = SpanContext::parse(recorded).unwrap();
        assert_eq!((&recorded.trace, &recorded.span), (&span.trace_id, &span.span_id));
        assert!(recorded.is_recorded, "{recorded:?}");
        assert_eq!(unrecorded.split('-').nth(1), UNRECORDED.split('-').nth(1));
        assert!(unrecorded.ends_with("-00"), "{unrecorded}");
    }

    #[test]
    fn spans_that_do_not_fit_into_the_queue_are_dropped() {
        assert_eq!(exported(1_000_000, || (0..2000).for_each(|_| request(""))).len(), QUEUE);
    }
}
