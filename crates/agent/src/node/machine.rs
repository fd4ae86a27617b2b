//! Converts the port's facts about the machine for decisions about the Node.

use kubelet_core::node::NodeMachine;
use ports::host::MachineInfo;

pub(crate) fn machine_facts(info: MachineInfo, ephemeral_storage_bytes: Option<u64>) -> NodeMachine {
    NodeMachine {
        cpus: info.cpus,
        memory_bytes: info.memory_bytes,
        swap_bytes: info.swap_bytes,
        ephemeral_storage_bytes,
        hugepages: info.hugepages,
        architecture: info.architecture,
        kernel_version: info.kernel_version,
        os_image: info.os_image,
        machine_id: info.machine_id,
        system_uuid: info.system_uuid,
        boot_id: info.boot_id,
    }
}
