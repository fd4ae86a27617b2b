//! Defaults of probes and lifecycle hooks.

use super::Tree;
use super::tree::{child, set, set_absent};

pub(super) fn apply(container: &mut Tree) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = child(container, name) {
            probe_defaults(probe);
        }
    }
    let Some(hooks) = child(container, "lifecycle") else { return };
    for name in ["postStart", "preStop"] {
        if let Some(request) = child(hooks, name).and_then(|hook| child(hook, "httpGet")) {
            http_get(request);
        }
    }
}

fn probe_defaults(probe: &mut Tree) {
    set(probe, "timeoutSeconds", 1);
    set(probe, "periodSeconds", 10);
    set(probe, "successThreshold", 1);
    set(probe, "failureThreshold", 3);
    if let Some(request) = child(probe, "httpGet") {
        http_get(request);
    }
    if let Some(call) = child(probe, "grpc") {
        set_absent(call, "service", "");
    }
}

fn http_get(request: &mut Tree) {
    set(request, "path", "/");
    set(request, "scheme", "HTTP");
}
