//! RuntimeConfig and UpdateRuntimeConfig: cgroup driver and pod CIDR.

use cri_api::v1 as wire;
use model::CgroupDriver;
use ports::runtime::RuntimeResult;

use crate::CriRuntime;

pub(crate) async fn cgroup_driver(cri: &CriRuntime) -> RuntimeResult<CgroupDriver> {
    let call = cri.call("RuntimeConfig");
    let answer =
        call.answer(cri.runtime().runtime_config(call.request(wire::RuntimeConfigRequest {}))).await?;
    let Some(linux) = answer.linux else {
        return Err(call.unimplemented("the runtime does not report its cgroup driver".to_owned()));
    };
    match wire::CgroupDriver::try_from(linux.cgroup_driver) {
        Ok(wire::CgroupDriver::Systemd) => Ok(CgroupDriver::Systemd),
        Ok(wire::CgroupDriver::Cgroupfs) => Ok(CgroupDriver::Cgroupfs),
        Err(_) => Err(call.malformed(format!("unknown cgroup driver {}", linux.cgroup_driver))),
    }
}

pub(crate) async fn set_pod_cidr(cri: &CriRuntime, cidr: &str) -> RuntimeResult<()> {
    let call = cri.call("UpdateRuntimeConfig");
    let network_config = Some(wire::NetworkConfig { pod_cidr: cidr.to_owned() });
    let request =
        wire::UpdateRuntimeConfigRequest { runtime_config: Some(wire::RuntimeConfig { network_config }) };
    call.answer(cri.runtime().update_runtime_config(call.request(request))).await?;
    Ok(())
}
