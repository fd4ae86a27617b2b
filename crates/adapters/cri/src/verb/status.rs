//! Status: readiness of the runtime and its network, and the features of its handlers.

use cri_api::v1 as wire;
use hyper::body::Bytes;
use ports::runtime::{RuntimeCondition, RuntimeHandler, RuntimeResult, RuntimeStatus};
use prost::Message as _;

use crate::CriRuntime;
use crate::entries::Method;

const METHOD: Method =
    Method { name: "Status", path: "/runtime.v1.RuntimeService/Status", stream: None, is_of_images: false };

/// The response with entries that are not decoded.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    status: Option<Conditions>,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    runtime_handlers: Vec<Bytes>,
    #[prost(message, optional, tag = "4")]
    features: Option<wire::RuntimeFeatures>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Conditions {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    conditions: Vec<Bytes>,
}

pub(crate) async fn status(cri: &CriRuntime) -> RuntimeResult<RuntimeStatus> {
    let answer = cri.raw(METHOD, wire::StatusRequest { verbose: false }.encode_to_vec()).await?;
    let answer =
        Answer::decode(answer).map_err(|error| cri.call(METHOD.name).malformed(error.to_string()))?;
    let handlers = cri.decode_entries(METHOD.name, answer.runtime_handlers);
    let features = answer.features.unwrap_or_default();
    let mut status = RuntimeStatus {
        handlers: handlers.into_iter().map(handler).collect(),
        supplemental_groups_policy: features.supplemental_groups_policy,
        user_namespaces_host_network: features.user_namespaces_host_network,
        ..Default::default()
    };
    let conditions = answer.status.map(|s| s.conditions).unwrap_or_default();
    let conditions: Vec<wire::RuntimeCondition> = cri.decode_entries(METHOD.name, conditions);
    for condition in conditions {
        match condition.r#type.as_str() {
            "RuntimeReady" => status.runtime_ready = known(condition),
            "NetworkReady" => status.network_ready = known(condition),
            // Runtimes may report more conditions; the kubelet uses these two.
            _ => {}
        }
    }
    Ok(status)
}

fn known(from: wire::RuntimeCondition) -> RuntimeCondition {
    RuntimeCondition { status: from.status, reason: from.reason, message: from.message }
}

fn handler(from: wire::RuntimeHandler) -> RuntimeHandler {
    let features = from.features.unwrap_or_default();
    RuntimeHandler {
        name: from.name,
        recursive_read_only_mounts: features.recursive_read_only_mounts,
        user_namespaces: features.user_namespaces,
    }
}
