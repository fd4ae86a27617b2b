//! What the local socket lists of things that need plugins and drivers.

use fakes::fake_plugins::RegistrationFault;
use model::inventory::{PluginItem, PodSelection};
use ports::plugins::PluginInfo;
use serde_json::json;

use crate::pods::{container_with, pod};
use crate::world::World;

const GPU: &str = "example.com/gpu";
const SOCKET: &str = "/var/lib/kubelet/plugins_registry/disk-reg.sock";

fn plugins(world: &World) -> Vec<PluginItem> {
    world.agent.iter().flat_map(|agent| agent.inventory().plugins().items).collect()
}

#[tokio::test(start_paused = true)]
async fn plugins_are_listed_with_their_devices_and_the_error_of_a_failed_registration() {
    let world = World::joined().await;
    world.plugins.register(GPU, &["a", "b"]).await.unwrap();
    let kind = "CSIPlugin".to_owned();
    let info = PluginInfo {
        kind,
        name: "disk.example.com".to_owned(),
        endpoint: String::new(),
        supported_versions: vec!["9.9.9".to_owned()],
    };
    world.plugins.offer(SOCKET, info);
    world.host.put_socket(SOCKET);
    world.until("both are listed", |world| plugins(world).iter().any(|item| !item.error.is_empty())).await;
    let listed = plugins(&world);
    let (disk, gpu) = (&listed[0], &listed[1]);
    assert!(!disk.is_registered && disk.name == "disk.example.com" && disk.socket == SOCKET, "{disk:?}");
    assert!(disk.error.contains("plugin validation failed"), "{}", disk.error);
    assert_eq!(
        (&*gpu.name, gpu.is_registered, gpu.healthy_devices, gpu.devices),
        (GPU, true, Some(2), Some(2))
    );
    world.plugins.set_registration_fault(SOCKET, Some(RegistrationFault::Hangs));
    world.host.delete(SOCKET);
    world.until("it is no longer listed", |world| plugins(world).len() == 1).await;
}

#[tokio::test(start_paused = true)]
async fn devices_of_a_container_are_part_of_its_allocation() {
    let world = World::joined().await;
    world.plugins.register(GPU, &["a"]).await.unwrap();
    let resources = json!({"limits": {GPU: "1", "memory": "1Gi"}, "requests": {GPU: "1", "memory": "1Gi"}});
    world.create(&pod("gpu", [container_with("gpu", json!({"resources": resources}))]));
    world.until("it is ready", |world| world.is_ready_in_api("gpu")).await;
    let agent = world.agent.as_ref().unwrap();
    let listed = agent.inventory().allocations(&PodSelection::of("gpu")).items;
    assert_eq!(listed.len(), 1);
    assert_eq!((&*listed[0].container, &*listed[0].memory_limit), ("gpu", "1Gi"));
    assert_eq!(listed[0].devices, ["example.com/gpu=a"]);
    assert!(agent.inventory().allocations(&PodSelection::of("other")).items.is_empty());
}
