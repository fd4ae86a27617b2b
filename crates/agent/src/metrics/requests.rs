//! Metrics of the kubelet's server, of the authentication and authorization of its clients, and of the API client.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ports::request_metrics::{PodResourcesCall, RequestKind, Review, ServingObserver};
use stats_core::exposition::{DEFAULT_BUCKETS, Kind, family};

use base_agent::metrics::{Counts, Family, Histogram, Histograms, one};

/// Buckets for token and access reviews, in seconds.
const REVIEW: &[f64] = &[0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
/// Buckets for the remaining lifetime of client certificates, in seconds: from half an hour to a year.
const GOOD_FOR: &[f64] = &[
    0.0,
    1800.0,
    3600.0,
    7200.0,
    21_600.0,
    43_200.0,
    86_400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];
/// Long-running requests. A port-forward is not among them, because the label holds its path, `portForward`.
const LONG_RUNNING: [&str; 3] = ["exec", "attach", "debug"];
const REQUEST_LABELS: &[&str] = &["long_running", "method", "path", "server_type"];

#[derive(Debug)]
pub(crate) struct RequestMetrics {
    requests: Counts,
    requests_now: Counts,
    requests_took: Histograms,
    websockets: Counts,
    certificates: Histogram,
    tokens: Counts,
    tokens_took: Histograms,
    token_reviews: Counts,
    token_reviews_took: Histograms,
    access_reviews: Counts,
    access_reviews_took: Histograms,
    pod_resources: Counts,
    /// In the order of [`POD_RESOURCES_CALLS`].
    pod_resources_calls: [Counts; 3],
    pod_resources_errors: [Counts; 3],
    pod_watch_events_dropped: AtomicU64,
    /// The last result of each health check.
    checks: Counts,
    checks_ever: Counts,
}

/// For each method, the families of its calls and of its errors.
const POD_RESOURCES_CALLS: [(Family, Family); 3] = {
    const BY: &[&str] = &["server_api_version"];
    [
        (
            Family::new(
                "kubelet_pod_resources_endpoint_requests_list",
                BY,
                "Number of List calls to the PodResources endpoint, by server API version.",
            ),
            Family::new(
                "kubelet_pod_resources_endpoint_errors_list",
                BY,
                "Number of failed List calls to the PodResources endpoint, by server API version.",
            ),
        ),
        (
            Family::new(
                "kubelet_pod_resources_endpoint_requests_get_allocatable",
                BY,
                "Number of GetAllocatableResources calls to the PodResources endpoint, by server API version.",
            ),
            Family::new(
                "kubelet_pod_resources_endpoint_errors_get_allocatable",
                BY,
                "Number of failed GetAllocatableResources calls to the PodResources endpoint, by server API version.",
            ),
        ),
        (
            Family::new(
                "kubelet_pod_resources_endpoint_requests_get",
                BY,
                "Number of Get calls to the PodResources endpoint, by server API version.",
            ),
            Family::new(
                "kubelet_pod_resources_endpoint_errors_get",
                BY,
                "Number of failed Get calls to the PodResources endpoint, by server API version.",
            ),
        ),
    ]
};

impl Default for RequestMetrics {
    fn default() -> Self {
        Self {
            requests: Counts::default(),
            requests_now: Counts::default(),
            requests_took: Histograms::new(DEFAULT_BUCKETS),
            websockets: Counts::default(),
            certificates: Histogram::of_numbers(GOOD_FOR),
            tokens: Counts::default(),
            tokens_took: Histograms::new(DEFAULT_BUCKETS),
            token_reviews: Counts::default(),
            token_reviews_took: Histograms::new(REVIEW),
            access_reviews: Counts::default(),
            access_reviews_took: Histograms::new(REVIEW),
            pod_resources: Counts::default(),
            pod_resources_calls: Default::default(),
            pod_resources_errors: Default::default(),
            pod_watch_events_dropped: AtomicU64::new(0),
            checks: Counts::default(),
            checks_ever: Counts::default(),
        }
    }
}

/// In the order of [`REQUEST_LABELS`].
fn labels_of(request: RequestKind) -> [&'static str; 4] {
    let long_running = if LONG_RUNNING.contains(&request.path) { "true" } else { "false" };
    let server_type = if request.is_main_port { "readwrite" } else { "readonly" };
    [long_running, request.method, request.path, server_type]
}

impl ServingObserver for RequestMetrics {
    fn request_began(&self, request: RequestKind) {
        let labels = labels_of(request);
        self.requests.add(&labels);
        self.requests_now.add(&labels);
    }

    fn request_ended(&self, request: RequestKind, took: Duration) {
        let labels = labels_of(request);
        self.requests_now.take(&labels);
        self.requests_took.observe(&labels, took);
    }

    fn websocket_asked(&self, subresource: &'static str) {
        self.websockets.add(&[subresource]);
    }

    fn certificate_believed(&self, good_for: Duration) {
        self.certificates.observe(good_for);
    }

    fn token_looked_up(&self, was_known: bool, took: Duration) {
        let status = if was_known { "hit" } else { "miss" };
        self.tokens.add(&[status]);
        self.tokens_took.observe(&[status], took);
    }

    fn reviewed(&self, review: Review, code: &'static str, took: Duration) {
        let (counts, durations) = match review {
            Review::Token => (&self.token_reviews, &self.token_reviews_took),
            Review::Access => (&self.access_reviews, &self.access_reviews_took),
        };
        counts.add(&[code]);
        durations.observe(&[code], took);
    }

    fn pod_resources_called(&self, version: &'static str, call: PodResourcesCall, is_ok: bool) {
        let index = match call {
            PodResourcesCall::List => 0,
            PodResourcesCall::GetAllocatable => 1,
            PodResourcesCall::Get => 2,
        };
        self.pod_resources.add(&[version]);
        self.pod_resources_calls[index].add(&[version]);
        if !is_ok {
            self.pod_resources_errors[index].add(&[version]);
        }
    }

    fn pod_watch_event_dropped(&self) {
        self.pod_watch_events_dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn checked(&self, name: &'static str, is_ok: bool) {
        self.checks.set(&[name, "healthz"], u64::from(is_ok));
        self.checks_ever.add(&[name, if is_ok { "success" } else { "error" }, "healthz"]);
    }
}

impl RequestMetrics {
    pub(super) fn write(&self, text: &mut String) {
        self.write_requests(text);
        self.write_callers(text);
        self.write_pod_resources(text);
        self.write_checks(text);
    }

    fn write_requests(&self, text: &mut String) {
        let of = |name, help| Family::new(name, REQUEST_LABELS, help);
        let begun = of("kubelet_http_requests_total", "Number of HTTP requests to the kubelet.");
        self.requests.write(text, Kind::Counter, begun);
        let now = of("kubelet_http_inflight_requests", "Number of HTTP requests to the kubelet in flight.");
        self.requests_now.write(text, Kind::Gauge, now);
        let took =
            of("kubelet_http_requests_duration_seconds", "Duration in seconds to serve HTTP requests.");
        self.requests_took.write(text, took);
        let name = "kubelet_websocket_streaming_requests_total";
        let of = Family::new(
            name,
            &["subresource"],
            "Number of streaming requests over a WebSocket, by subresource.",
        );
        self.websockets.write(text, Kind::Counter, of);
    }

    fn write_callers(&self, text: &mut String) {
        let name = "apiserver_client_certificate_expiration_seconds";
        family(
            text,
            name,
            Kind::Histogram,
            "Distribution of the remaining lifetime in seconds of the client certificates that authenticated a request.",
        );
        self.certificates.write(text, name, &[]);
        let of = |name, help| Family::new(name, &["status"], help);
        let name = "authentication_token_cache_request_total";
        self.tokens.write(
            text,
            Kind::Counter,
            of(name, "Number of lookups in the token authentication cache, by hit or miss."),
        );
        let name = "authentication_token_cache_request_duration_seconds";
        self.tokens_took
            .write(text, of(name, "Duration in seconds of token authentication, with the cache."));
        let of = |name, help| Family::new(name, &["code"], help);
        let name = "apiserver_delegated_authn_request_total";
        self.token_reviews.write(
            text,
            Kind::Counter,
            of(name, "Number of TokenReview requests to the API server, by result."),
        );
        let name = "apiserver_delegated_authn_request_duration_seconds";
        self.token_reviews_took
            .write(text, of(name, "Duration in seconds of review requests to the API server."));
        let name = "apiserver_delegated_authz_request_total";
        let help = "Number of SubjectAccessReview requests to the API server, by result.";
        self.access_reviews.write(text, Kind::Counter, of(name, help));
        let name = "apiserver_delegated_authz_request_duration_seconds";
        self.access_reviews_took
            .write(text, of(name, "Duration in seconds of review requests to the API server."));
    }

    fn write_pod_resources(&self, text: &mut String) {
        let name = "kubelet_pod_resources_endpoint_requests_total";
        let of = Family::new(
            name,
            &["server_api_version"],
            "Number of requests to the PodResources endpoint, by server API version.",
        );
        self.pod_resources.write(text, Kind::Counter, of);
        for (index, (calls, errors)) in POD_RESOURCES_CALLS.into_iter().enumerate() {
            self.pod_resources_calls[index].write(text, Kind::Counter, calls);
            self.pod_resources_errors[index].write(text, Kind::Counter, errors);
        }
        let help = "Number of pod events that clients of the Pods API did not get.";
        let dropped = self.pod_watch_events_dropped.load(Ordering::Relaxed);
        one(text, "kubelet_pod_watch_events_dropped_total", Kind::Counter, help, &[], dropped);
    }

    /// The text of `/metrics/slis`.
    pub(crate) fn write_checks(&self, text: &mut String) {
        let of = Family::new(
            "kubernetes_healthcheck",
            &["name", "type"],
            "Last result of a health check: 1 is healthy, 0 is not.",
        );
        self.checks.write(text, Kind::Gauge, of);
        let of = Family::new(
            "kubernetes_healthchecks_total",
            &["name", "status", "type"],
            "Number of health checks by result.",
        );
        self.checks_ever.write(text, Kind::Counter, of);
    }
}
