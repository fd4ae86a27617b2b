//! Defaults that depend on what the user wrote: zero values that mean "not set", and defaults that follow another field.
//! Works on the tree, which shows what was set. Never changes a typed configuration.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::duration::GoDuration;
use crate::tree;

/// Fields of a file whose zero value (`""`, `0`, `0s`) means the default. kubeadm writes many of them.
pub(crate) const ZERO_IS_UNSET: &[&str] = &[
    "podLogsDir",
    "syncFrequency",
    "fileCheckFrequency",
    "httpCheckFrequency",
    "address",
    "port",
    "volumePluginDir",
    "authentication.webhook.cacheTTL",
    "authorization.mode",
    "authorization.webhook.cacheAuthorizedTTL",
    "authorization.webhook.cacheUnauthorizedTTL",
    "registryBurst",
    "imagePullCredentialsVerificationPolicy",
    "eventBurst",
    "healthzBindAddress",
    "streamingConnectionIdleTimeout",
    "nodeStatusUpdateFrequency",
    "nodeStatusReportFrequency",
    "nodeLeaseDurationSeconds",
    "imageMinimumGCAge",
    "volumeStatsAggPeriod",
    "cgroupDriver",
    "cpuManagerPolicy",
    "cpuManagerReconcilePeriod",
    "memoryManagerPolicy",
    "topologyManagerPolicy",
    "topologyManagerScope",
    "runtimeRequestTimeout",
    "hairpinMode",
    "maxPods",
    "maxOpenFiles",
    "contentType",
    "kubeAPIBurst",
    "evictionPressureTransitionPeriod",
    "configMapAndSecretChangeDetectionStrategy",
    "containerLogMaxSize",
    "logging.format",
    "logging.flushFrequency",
    "memoryReservationPolicy",
    "containerRuntimeEndpoint",
];

/// Removes the zero values that mean "not set".
pub(crate) fn drop_unset(tree: &mut Value) {
    for path in ZERO_IS_UNSET {
        if tree::get(tree, path).is_some_and(is_zero) {
            tree::remove(tree, path);
        }
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty() || text.parse() == Ok(GoDuration::ZERO),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => false,
    }
}

/// Sets the fields whose default depends on other fields of the file. `from_file`: a configuration file was given.
pub(crate) fn complete(tree: &mut Value, from_file: bool) {
    if tree::get(tree, "nodeStatusReportFrequency").is_none()
        && let Some(update) = tree::get(tree, "nodeStatusUpdateFrequency").cloned()
    {
        tree::set(tree, "nodeStatusReportFrequency", update);
    }
    if tree::get(tree, "serializeImagePulls").is_none()
        && tree::get(tree, "maxParallelImagePulls").and_then(Value::as_i64).is_some_and(|pulls| pulls >= 2)
    {
        tree::set(tree, "serializeImagePulls", json!(false));
    }
    if from_file && tree::get(tree, "evictionHard").is_none() {
        tree::set(tree, "evictionHard", json!(eviction_hard()));
    }
}

/// The thresholds used when a file sets none.
pub(crate) fn eviction_hard() -> BTreeMap<String, String> {
    [
        ("memory.available", "100Mi"),
        ("nodefs.available", "10%"),
        ("nodefs.inodesFree", "5%"),
        ("imagefs.available", "15%"),
        ("imagefs.inodesFree", "5%"),
    ]
    .map(|(signal, threshold)| (signal.to_owned(), threshold.to_owned()))
    .into()
}

/// Defaults without a configuration file, as they were before configuration files existed.
pub(crate) fn legacy() -> Value {
    json!({
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
        "readOnlyPort": 10255,
    })
}
