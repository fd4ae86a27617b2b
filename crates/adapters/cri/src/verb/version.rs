//! Version: name and version of the runtime, and whether it supports CRI v1. A separate image service must respond, too.

use cri_api::v1 as wire;
use ports::runtime::{RuntimeResult, RuntimeVersion};

use crate::CriRuntime;

/// The kubelet's API version in the request, which a runtime returns.
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
    if let Some(problem) = problem(&version) {
        return Err(call.malformed(problem));
    }
    if cri.has_images_apart {
        // The image service has no Version call; one that answers this call supports CRI v1.
        let call = cri.call("ImageFsInfo");
        let request = wire::ImageFsInfoRequest {};
        call.answer(cri.images().image_fs_info(call.request(request))).await?;
    }
    Ok(version)
}

/// Why a runtime with this response is not supported.
fn problem(version: &RuntimeVersion) -> Option<String> {
    let fields = [&version.api, &version.name, &version.version, &version.runtime_api];
    if fields.into_iter().any(String::is_empty) {
        return Some(format!("not all fields are set in VersionResponse ({version:?})"));
    }
    let api = &version.api;
    (api != KUBELET_API_VERSION).then(|| {
        format!("the runtime reports kubelet API version {api:?}, only {KUBELET_API_VERSION} is supported")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runtime_of_another_api_version_or_without_a_name_is_rejected() {
        let [api, name, version, runtime_api] = ["0.1.0", "containerd", "1.6.20", "v1"].map(str::to_owned);
        let good = RuntimeVersion { api, name, version, runtime_api };
        assert_eq!(problem(&good), None);
        let nameless = RuntimeVersion { name: String::new(), ..good.clone() };
        assert!(problem(&nameless).is_some_and(|why| why.contains("not all fields")));
        let other = RuntimeVersion { api: "0.2.0".to_owned(), ..good };
        assert!(problem(&other).is_some_and(|why| why.contains("\"0.2.0\"") && why.contains("0.1.0")));
    }
}
