//! Version: who answers, and whether it speaks our protocol.

use cri_api::v1 as wire;
use ports::runtime::{RuntimeResult, RuntimeVersion};

use crate::CriRuntime;

/// The version of the kubelet's own side of the protocol, which a runtime echoes.
const KUBELET_API_VERSION: &str = "0.1.0";

pub(crate) async fn version(cri: &CriRuntime) -> RuntimeResult<RuntimeVersion> {
    let call = cri.call("Version");
    let request = wire::VersionRequest { version: KUBELET_API_VERSION.to_owned() };
    let answer = call.answer(cri.runtime().version(call.request(request))).await?;
    let version = RuntimeVersion {
        api: answer.version,
        name: answer.runtime_name,
        version: answer.runtime_version,
        runtime_api: answer.runtime_api_version,
    };
    let fields = [&version.api, &version.name, &version.version, &version.runtime_api];
    if fields.into_iter().any(String::is_empty) {
        return Err(call.malformed(format!("not all fields are set in VersionResponse ({version:?})")));
    }
    Ok(version)
}
