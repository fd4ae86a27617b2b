//! Counts requests by the first part of their path, from their head to the last byte of the response, or to the end of the
//! stream after an upgrade.

use std::sync::Arc;

use http::Method;
use ports::request_metrics::{RequestKind, ServingObserver};
use tokio::time::Instant;

use crate::endpoint::Endpoint;

type Observer = Arc<dyn ServingObserver>;

/// Label for unknown paths and methods, so that clients cannot create any number of series.
const OTHER: &str = "other";
const METHODS: [&str; 9] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT"];
/// Paths below `metrics` that are counted separately.
const METRICS: [&str; 4] = ["metrics/cadvisor", "metrics/probes", "metrics/resource", "metrics/slis"];

/// One request; it has ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    observer: Observer,
    request: RequestKind,
    began: Instant,
}

impl Counted {
    pub(crate) fn begin(observer: &Observer, method: &Method, path: &str, is_main_port: bool) -> Self {
        let request = RequestKind { method: method_of(method), path: path_of(path), is_main_port };
        observer.request_began(request);
        Self { observer: observer.clone(), request, began: Instant::now() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.observer.request_ended(self.request, self.began.elapsed());
    }
}

fn method_of(method: &Method) -> &'static str {
    METHODS.into_iter().find(|known| *known == method.as_str()).unwrap_or(OTHER)
}

pub(crate) fn path_of(path: &str) -> &'static str {
    let path = path.trim_start_matches('/');
    let mut parts = path.splitn(3, '/');
    let first = parts.next().unwrap_or_default();
    if let ("metrics", Some(second)) = (first, parts.next()) {
        let below = |known: &&str| known.strip_prefix("metrics/") == Some(second);
        return METRICS.into_iter().find(below).unwrap_or(OTHER);
    }
    let roots = Endpoint::ALL.iter().map(|endpoint| endpoint.root());
    let mut known = roots.filter_map(|root| root.split('/').nth(1));
    known.find(|known| *known == first).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_by_the_first_part_of_their_path() {
        for (path, expected) in [
            ("/pods", "pods"),
            ("/healthz/syncloop", "healthz"),
            ("/stats/summary", "stats"),
            ("/exec/ns/pod/uid/container", "exec"),
            ("/portForward/ns/pod", "portForward"),
            ("/containerLogs/ns/pod/c", "containerLogs"),
            ("/debug/pprof/heap", "debug"),
            ("/runningpods/", "runningpods"),
            ("/logs/", "logs"),
            ("/metrics", "metrics"),
            ("/metrics/slis", "metrics/slis"),
            ("/metrics/cadvisor", "metrics/cadvisor"),
            ("/metrics/cadvisor/more", "metrics/cadvisor"),
            ("/metrics/none", "other"),
            ("/", "other"),
            ("", "other"),
            ("/podsandmore", "other"),
            ("/wp-login.php", "other"),
        ] {
            assert_eq!(path_of(path), expected, "{path}");
        }
        assert_eq!(method_of(&Method::GET), "GET");
        assert_eq!(method_of(&Method::from_bytes(b"BREW").unwrap()), "other");
    }
}
