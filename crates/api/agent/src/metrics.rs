//! Metrics of the client of the Kubernetes API.

mod certificates;
mod pod_certificates;

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use ports::request_metrics::{ApiExchange, ApiObserver};
use stats_core::exposition::{Kind, Value, family, line};

use base_agent::metrics::{Counts, Family, Histogram, Histograms, write_plain};

pub use certificates::CertificateMetrics;
pub use pod_certificates::PodCertificateMetrics;

/// Buckets for the update of a status in the API, in seconds.
const STATUS_SYNC: &[f64] = &[0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0];
/// Buckets for calls to the API server, in seconds.
const API_CALL: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Buckets for the age of certificates, in seconds: from ten minutes to four years.
const ROTATION_AGE: &[f64] = &[
    600.0,
    1800.0,
    3600.0,
    14_400.0,
    86_400.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
    124_416_000.0,
];
/// Buckets for the size of API requests and responses, in bytes.
const API_SIZE: &[f64] = &[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];
const API_LABELS: &[&str] = &["host", "verb"];
const MALFORMED_OBJECTS: Family = Family::new(
    "kubelet_rs_api_objects_malformed_total",
    &["resource"],
    "Number of versions of API objects that could not be decoded and were left out, by resource.",
);

#[derive(Debug)]
pub struct ApiMetrics {
    status_sync: Histogram,
    malformed_objects: Counts,
    calls: Counts,
    calls_took: Histograms,
    sent: Histograms,
    read: Histograms,
    waited: Histograms,
    /// Pods whose status the API does not have yet.
    behind: AtomicUsize,
    /// When the API last accepted one, in seconds since the epoch; 0: never.
    accepted_at: AtomicI64,
}

impl Default for ApiMetrics {
    fn default() -> Self {
        Self {
            status_sync: Histogram::new(STATUS_SYNC),
            malformed_objects: Counts::default(),
            calls: Counts::default(),
            calls_took: Histograms::new(API_CALL),
            sent: Histograms::of_numbers(API_SIZE),
            read: Histograms::of_numbers(API_SIZE),
            waited: Histograms::new(API_CALL),
            behind: AtomicUsize::new(0),
            accepted_at: AtomicI64::new(0),
        }
    }
}

impl ApiObserver for ApiMetrics {
    fn exchanged(&self, exchange: &ApiExchange<'_>) {
        let ApiExchange { host, method, code, took, request_bytes } = *exchange;
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        self.calls.add(&[&code, host, method]);
        self.calls_took.observe(&[host, method], took);
        self.sent.observe_number(&[host, method], request_bytes);
    }

    fn read(&self, host: &str, method: &str, response_bytes: u64) {
        self.read.observe_number(&[host, method], response_bytes);
    }

    fn waited(&self, host: &str, method: &str, took: Duration) {
        self.waited.observe(&[host, method], took);
    }
}

impl ApiMetrics {
    /// The API has a pod's new status; `took` is the time since the status changed.
    pub(crate) fn status_synced(&self, took: Duration) {
        self.status_sync.observe(took);
    }

    /// The API has accepted the status of a pod, or its deletion.
    pub(crate) fn status_accepted(&self, at: Timestamp) {
        self.accepted_at.store(at.as_second(), Ordering::Relaxed);
    }

    pub(crate) fn set_statuses_behind(&self, count: usize) {
        self.behind.store(count, Ordering::Relaxed);
    }

    /// Pods whose status the API does not have yet.
    #[must_use]
    pub fn statuses_behind(&self) -> usize {
        self.behind.load(Ordering::Relaxed)
    }

    /// When the API last accepted the status of a pod.
    #[must_use]
    pub fn status_accepted_at(&self) -> Option<Timestamp> {
        let at = self.accepted_at.load(Ordering::Relaxed);
        Timestamp::from_second(at).ok().filter(|_| at > 0)
    }

    /// An object of the API cannot be decoded.
    pub(crate) fn object_malformed(&self, resource: &str) {
        self.malformed_objects.add(&[resource]);
    }

    pub fn write_status_sync(&self, text: &mut String) {
        let name = "kubelet_pod_status_sync_duration_seconds";
        let help = "Duration in seconds from a change of a pod's status until the API has it.";
        write_plain(text, &[(name, help, &self.status_sync)]);
    }

    pub fn write_malformed_objects(&self, text: &mut String) {
        self.malformed_objects.write(text, Kind::Counter, MALFORMED_OBJECTS);
    }

    pub fn write_calls(&self, text: &mut String) {
        let labels = &["code", "host", "method"];
        let of = Family::new(
            "rest_client_requests_total",
            labels,
            "Number of HTTP requests to the API server, by status code, method and host.",
        );
        self.calls.write(text, Kind::Counter, of);
        let of = |name, help| Family::new(name, API_LABELS, help);
        let name = "rest_client_request_duration_seconds";
        self.calls_took.write(
            text,
            of(name, "Duration in seconds from a request to the API server to the headers of its response."),
        );
        self.sent.write(
            text,
            of("rest_client_request_size_bytes", "Size in bytes of requests to the API server."),
        );
        self.read.write(
            text,
            of("rest_client_response_size_bytes", "Size in bytes of responses from the API server."),
        );
        let name = "rest_client_rate_limiter_duration_seconds";
        self.waited.write(text, of(name, "Duration in seconds that requests to the API server waited for the client-side rate limiter."));
        let name = "rest_client_exec_plugin_ttl_seconds";
        let help = "Remaining lifetime of the client certificate from an exec credential plugin; certificates from plugins are not supported.";
        family(text, name, Kind::Gauge, help);
        line(text, name, &[], Value::Float(f64::INFINITY), None);
        let name = "rest_client_exec_plugin_certificate_rotation_age";
        let help = "Age of client certificates from an exec credential plugin when they were rotated; certificates from plugins are not supported.";
        write_plain(text, &[(name, help, &Histogram::new(ROTATION_AGE))]);
    }
}
