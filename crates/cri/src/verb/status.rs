//! Status: readiness of the runtime and its network, and the features of its handlers.

use cri_api::v1 as wire;
use ports::runtime::{RuntimeCondition, RuntimeHandler, RuntimeResult, RuntimeStatus};

use crate::CriRuntime;

pub(crate) async fn status(cri: &CriRuntime) -> RuntimeResult<RuntimeStatus> {
    let call = cri.call("Status");
    let request = call.request(wire::StatusRequest { verbose: false });
    let answer = call.answer(cri.runtime().status(request)).await?;
    let mut status = RuntimeStatus {
        handlers: answer.runtime_handlers.into_iter().map(handler).collect(),
        supplemental_groups_policy: answer.features.is_some_and(|f| f.supplemental_groups_policy),
        ..Default::default()
    };
    let conditions = answer.status.map(|s| s.conditions).unwrap_or_default();
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
