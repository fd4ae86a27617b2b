//! Converts between protobuf messages and `model` types.

use grpc_api::device_plugin as wire;
use model::devices::{AllocateResponse, PluginDevice, PluginOptions};
use model::request::{Device, Mount};

const HEALTHY: &str = "Healthy";

pub(crate) const fn options(from: wire::DevicePluginOptions) -> PluginOptions {
    PluginOptions {
        pre_start: from.pre_start_required,
        has_preferences: from.get_preferred_allocation_available,
    }
}

pub(crate) fn device(from: wire::Device) -> PluginDevice {
    let nodes = from.topology.into_iter().flat_map(|topology| topology.nodes);
    PluginDevice {
        id: from.id,
        is_healthy: from.health == HEALTHY,
        numa_nodes: nodes.map(|node| node.id).collect(),
    }
}

pub(crate) fn allocate_response(from: wire::ContainerAllocateResponse) -> AllocateResponse {
    let mount = |mount: wire::Mount| Mount {
        container_path: mount.container_path,
        host_path: mount.host_path,
        read_only: mount.read_only,
        ..Mount::default()
    };
    let device = |device: wire::DeviceSpec| Device {
        container_path: device.container_path,
        host_path: device.host_path,
        permissions: device.permissions,
    };
    AllocateResponse {
        env: from.envs,
        mounts: from.mounts.into_iter().map(mount).collect(),
        devices: from.devices.into_iter().map(device).collect(),
        annotations: from.annotations,
        cdi_devices: from.cdi_devices.into_iter().map(|device| device.name).collect(),
    }
}

/// The inverse of [`allocate_response`].
pub(crate) fn packed(from: &AllocateResponse) -> wire::ContainerAllocateResponse {
    let mount = |mount: &Mount| wire::Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        read_only: mount.read_only,
    };
    let device = |device: &Device| wire::DeviceSpec {
        container_path: device.container_path.clone(),
        host_path: device.host_path.clone(),
        permissions: device.permissions.clone(),
    };
    wire::ContainerAllocateResponse {
        envs: from.env.clone(),
        mounts: from.mounts.iter().map(mount).collect(),
        devices: from.devices.iter().map(device).collect(),
        annotations: from.annotations.clone(),
        cdi_devices: from.cdi_devices.iter().map(|name| wire::CdiDevice { name: name.clone() }).collect(),
    }
}

#[cfg(test)]
mod tests {
    use ports::Plugins;

    use super::*;
    use crate::UnixPlugins;

    #[test]
    fn allocate_response_is_unchanged_by_packing() {
        let text = |text: &str| text.to_owned();
        let response = AllocateResponse {
            env: [(text("A"), text("1")), (text("B"), text("2"))].into(),
            mounts: vec![Mount {
                container_path: text("/in"),
                host_path: text("/out"),
                read_only: true,
                ..Mount::default()
            }],
            devices: vec![Device {
                container_path: text("/dev/a"),
                host_path: text("/dev/b"),
                permissions: text("rw"),
            }],
            annotations: [(text("k"), text("v"))].into(),
            cdi_devices: vec![text("vendor.com/class=a")],
        };
        assert_eq!(UnixPlugins.unpack(&UnixPlugins.pack(&response)), Some(response));
        assert_eq!(UnixPlugins.unpack(b"\xff\xff"), None);
    }

    #[test]
    fn device_is_healthy_only_with_the_exact_health_text() {
        let device =
            |health: &str| device(wire::Device { health: health.to_owned(), ..wire::Device::default() });
        assert!(device("Healthy").is_healthy);
        assert!(!device("Unhealthy").is_healthy && !device("").is_healthy && !device("healthy").is_healthy);
    }
}
