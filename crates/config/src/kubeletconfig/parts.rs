//! The nested parts of `KubeletConfiguration`, each with its built-in defaults. Plain data.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, de};

use super::configuration;
use crate::duration::{GoDuration, text_or_nanos};

configuration! {
    /// How clients of the kubelet's HTTPS server are authenticated.
    Authentication {
        x509, "x509": X509 = X509::default();
        webhook, "webhook": WebhookAuthentication = WebhookAuthentication::default();
        anonymous, "anonymous": Anonymous = Anonymous::default();
    }
}

configuration! {
    /// Client certificates.
    X509 {
        client_ca_file, "clientCAFile": String = String::new();
    }
}

configuration! {
    /// Bearer tokens, reviewed by the API server.
    WebhookAuthentication {
        enabled, "enabled": bool = true;
        cache_ttl, "cacheTTL": GoDuration = GoDuration::from_secs(120);
    }
}

configuration! {
    /// Requests without credentials.
    Anonymous {
        enabled, "enabled": bool = false;
    }
}

configuration! {
    /// How requests are authorized: `AlwaysAllow` or `Webhook`.
    Authorization {
        mode, "mode": String = "Webhook".to_owned();
        webhook, "webhook": WebhookAuthorization = WebhookAuthorization::default();
    }
}

configuration! {
    /// How long responses of the API server are cached.
    WebhookAuthorization {
        cache_authorized_ttl, "cacheAuthorizedTTL": GoDuration = GoDuration::from_secs(300);
        cache_unauthorized_ttl, "cacheUnauthorizedTTL": GoDuration = GoDuration::from_secs(30);
    }
}

configuration! {
    /// Swap for containers: empty (`NoSwap`), `NoSwap` or `LimitedSwap`.
    MemorySwap {
        swap_behavior, "swapBehavior": String = String::new();
    }
}

configuration! {
    /// The maximum of the crash-loop back-off.
    CrashLoopBackOff {
        max_container_restart_period, "maxContainerRestartPeriod": GoDuration = GoDuration::from_secs(300);
    }
}

configuration! {
    /// The number of user ids of a pod with a user namespace.
    UserNamespaces {
        ids_per_pod, "idsPerPod": i64 = 65536;
    }
}

configuration! {
    /// OpenTelemetry export.
    Tracing {
        #[serde(skip_serializing_if = "Option::is_none")]
        endpoint, "endpoint": Option<String> = None;
        #[serde(skip_serializing_if = "Option::is_none")]
        sampling_rate_per_million, "samplingRatePerMillion": Option<i32> = None;
    }
}

configuration! {
    /// The kubelet's own log.
    Logging {
        format, "format": String = "text".to_owned();
        #[serde(deserialize_with = "text_or_nanos")]
        flush_frequency, "flushFrequency": GoDuration = GoDuration::from_secs(5);
        verbosity, "verbosity": u32 = 0;
        vmodule, "vmodule": Vec<VModuleRule> = Vec::new();
        options, "options": LoggingOptions = LoggingOptions::default();
    }
}

configuration! {
    /// Options per log format; alpha.
    LoggingOptions {
        text, "text": OutputOptions = OutputOptions::default();
        json, "json": OutputOptions = OutputOptions::default();
    }
}

configuration! {
    /// Where messages are written, and how many bytes are buffered.
    OutputOptions {
        split_stream, "splitStream": bool = false;
        info_buffer_size, "infoBufferSize": QuantityText = QuantityText("0".to_owned());
    }
}

/// The verbosity of the source files that match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VModuleRule {
    pub file_pattern: String,
    pub verbosity: u32,
}

/// Memory of one NUMA node that is reserved for the system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MemoryReservation {
    pub numa_node: i32,
    pub limits: BTreeMap<String, QuantityText>,
}

/// Shutdown time in seconds for pods of this priority and above, up to the next entry.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ShutdownGracePeriodByPodPriority {
    pub priority: i32,
    pub shutdown_grace_period_seconds: i64,
}

/// A taint the node registers with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    pub key: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    pub effect: String,
    /// Not allowed, because the API server sets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<String>,
}

/// A resource quantity as written (`1Gi`); a number is accepted, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct QuantityText(pub String);

impl<'de> Deserialize<'de> for QuantityText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a quantity such as 1Gi")]
        enum Either {
            Number(serde_json::Number),
            Text(String),
        }
        let text = match Either::deserialize(deserializer)? {
            Either::Number(number) => number.to_string(),
            Either::Text(text) => text,
        };
        match model::Amount::parse(&text) {
            Ok(_) => Ok(Self(text)),
            Err(error) => Err(de::Error::custom(error)),
        }
    }
}

/// The field names of the structs that occur only as list items, to find unknown fields.
pub(crate) const ITEM_FIELDS: [(&str, &[&str]); 4] = [
    ("logging.vmodule", &["filePattern", "verbosity"]),
    ("reservedMemory", &["numaNode", "limits"]),
    ("shutdownGracePeriodByPodPriority", &["priority", "shutdownGracePeriodSeconds"]),
    ("registerWithTaints", &["key", "value", "effect", "timeAdded"]),
];
