//! Scenarios of plugins in the registration directory: registration, failures, sockets that are replaced or removed.

use fakes::fake_plugins::RegistrationFault;
use ports::plugins::PluginInfo;

use crate::world::{World, seconds};

const GPU: &str = "example.com/gpu";
const TPU: &str = "example.com/tpu";
const REGISTRY: &str = "/var/lib/kubelet/plugins_registry";
const SOCKET: &str = "/var/lib/kubelet/plugins_registry/gpu-reg.sock";

fn device_plugin(resource: &str, endpoint: &str) -> PluginInfo {
    PluginInfo {
        kind: "DevicePlugin".to_owned(),
        name: resource.to_owned(),
        endpoint: format!("/opt/vendor/{endpoint}"),
        supported_versions: vec!["v1beta1".to_owned()],
    }
}

/// A device plugin with one device, whose own socket is elsewhere, opens a registration socket.
fn start_plugin(world: &World, socket: &str, resource: &str) {
    let endpoint = world.plugins.serve(resource, &["a"]);
    world.plugins.offer(socket, device_plugin(resource, &endpoint));
    world.host.put_socket(socket);
}

/// `1/1`: allocatable and capacity of the resource; empty if there is none.
fn devices(world: &World, resource: &str) -> String {
    let status = world.node().and_then(|node| node.status).unwrap_or_default();
    let of = |amounts: Option<std::collections::BTreeMap<String, model::k8s::Quantity>>| {
        amounts.unwrap_or_default().get(resource).map(|amount| amount.0.clone())
    };
    of(status.allocatable)
        .zip(of(status.capacity))
        .map_or_else(String::new, |(allocatable, capacity)| format!("{allocatable}/{capacity}"))
}

async fn until_devices(world: &World, resource: &str, expected: &str) {
    world.until("the node reports the devices", |world| devices(world, resource) == expected).await;
}

#[tokio::test(start_paused = true)]
async fn device_plugin_in_the_registration_directory_is_registered_until_its_socket_is_removed() {
    let world = World::joined().await;
    start_plugin(&world, SOCKET, GPU);
    until_devices(&world, GPU, "1/1").await;
    assert_eq!(world.plugins.notified(SOCKET), [Ok(())]);
    world.host.delete(SOCKET);
    until_devices(&world, GPU, "0/1").await;
}

#[tokio::test(start_paused = true)]
async fn plugin_that_existed_before_the_kubelet_is_registered_also_in_nested_directories() {
    let mut world = World::joined().await;
    world.crash().await;
    let nested = format!("{REGISTRY}/vendor/v2/gpu-reg.sock");
    start_plugin(&world, &nested, GPU);
    world.start().await;
    until_devices(&world, GPU, "1/1").await;
    assert_eq!(world.plugins.notified(&nested), [Ok(())]);
    world.restart().await;
    world.until("it registers again", |world| world.plugins.notified(&nested).len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn replaced_socket_registers_its_plugin_again() {
    let world = World::joined().await;
    start_plugin(&world, SOCKET, GPU);
    until_devices(&world, GPU, "1/1").await;
    let endpoint = world.plugins.serve(TPU, &["t"]);
    world.plugins.offer(SOCKET, device_plugin(TPU, &endpoint));
    world.host.put_socket(SOCKET);
    until_devices(&world, TPU, "1/1").await;
    assert_eq!(devices(&world, GPU), "0/1", "the plugin before it was deregistered");
}

#[tokio::test(start_paused = true)]
async fn hanging_plugin_delays_no_other_and_is_registered_once_it_answers() {
    let world = World::joined().await;
    let hanging = format!("{REGISTRY}/a-hangs.sock");
    let endpoint = world.plugins.serve(TPU, &["t"]);
    world.plugins.offer(&hanging, device_plugin(TPU, &endpoint));
    world.plugins.set_registration_fault(&hanging, Some(RegistrationFault::Hangs));
    world.host.put_socket(&hanging);
    world.until("it is called", |world| world.plugins.info_calls(&hanging) > 0).await;
    let began = world.now();
    start_plugin(&world, SOCKET, GPU);
    world.until("the other is registered", |world| !world.plugins.notified(SOCKET).is_empty()).await;
    assert!(world.now() - began < seconds(1));
    world.plugins.set_registration_fault(&hanging, None);
    until_devices(&world, TPU, "1/1").await;
}

#[tokio::test(start_paused = true)]
async fn failing_plugin_is_called_with_growing_delays() {
    let world = World::joined().await;
    start_plugin(&world, SOCKET, GPU);
    world.plugins.set_registration_fault(SOCKET, Some(RegistrationFault::Nonsense));
    // At 0, 0.5, 1.5, 3.5, 7.5, 15.5, 31.5, 63.5, 127.5, 249.5 and 371.5 seconds.
    world.advance(seconds(300)).await;
    assert_eq!(world.plugins.info_calls(SOCKET), 10);
    assert!(world.plugins.notified(SOCKET).is_empty());
    world.plugins.set_registration_fault(SOCKET, None);
    world.advance(seconds(72)).await;
    assert_eq!(world.plugins.notified(SOCKET), [Ok(())]);
}

#[tokio::test(start_paused = true)]
async fn refused_plugin_is_notified_of_the_reason() {
    let world = World::joined().await;
    let refused = async |info: PluginInfo| {
        world.plugins.offer(SOCKET, info);
        world.host.put_socket(SOCKET);
        world.until("it is refused", |world| !world.plugins.notified(SOCKET).is_empty()).await;
        world.plugins.notified(SOCKET)[0].clone().unwrap_err()
    };
    let unknown = PluginInfo { kind: "NetworkPlugin".to_owned(), ..device_plugin(GPU, "x.sock") };
    assert_eq!(
        refused(unknown).await,
        format!(
            "RegisterPlugin error -- no handler registered for plugin type: NetworkPlugin at socket {SOCKET}"
        )
    );
    let old = PluginInfo { supported_versions: vec!["v1alpha1".to_owned()], ..device_plugin(GPU, "x.sock") };
    assert_eq!(
        refused(old).await,
        "RegisterPlugin error -- plugin validation failed with err: \
         manager version, v1beta1, is not among plugin supported versions [v1alpha1]"
    );
    let away = refused(device_plugin(GPU, "missing.sock")).await;
    assert!(
        away.starts_with(
            "RegisterPlugin error -- plugin registration failed with err: rpc error: code = Unavailable desc = "
        ),
        "{away}"
    );
}

#[tokio::test(start_paused = true)]
async fn plugin_that_cannot_be_notified_is_deregistered_and_tried_again() {
    let world = World::joined().await;
    let endpoint = world.plugins.serve(GPU, &["a"]);
    world.plugins.offer(SOCKET, device_plugin(GPU, &endpoint));
    world.plugins.set_registration_fault(SOCKET, Some(RegistrationFault::FailsNotification));
    world.host.put_socket(SOCKET);
    world.until("it was registered twice", |world| world.plugins.notified(SOCKET).len() == 2).await;
    world.until("no device is allocatable", |world| !devices(world, GPU).starts_with('1')).await;
    world.plugins.set_registration_fault(SOCKET, None);
    until_devices(&world, GPU, "1/1").await;
}

/// A rolling update: both instances are there, then the old one removes its socket.
#[tokio::test(start_paused = true)]
async fn plugin_stays_registered_when_its_old_instance_removes_its_socket() {
    let world = World::joined().await;
    start_plugin(&world, SOCKET, GPU);
    until_devices(&world, GPU, "1/1").await;
    let newer = format!("{REGISTRY}/gpu-reg-2.sock");
    let endpoint = world.plugins.serve(GPU, &["b", "c"]);
    world.plugins.offer(&newer, device_plugin(GPU, &endpoint));
    world.host.put_socket(&newer);
    until_devices(&world, GPU, "2/2").await;
    world.host.delete(SOCKET);
    world.advance(seconds(20)).await;
    assert_eq!(devices(&world, GPU), "2/2");
}

#[tokio::test(start_paused = true)]
async fn plugins_are_metrics_and_a_standalone_kubelet_registers_them_too() {
    let world = World::started().await;
    start_plugin(&world, SOCKET, GPU);
    let failing = format!("{REGISTRY}/failing.sock");
    world.host.put_socket(&failing);
    world.until("it is registered", |world| !world.plugins.notified(SOCKET).is_empty()).await;
    world.advance(seconds(1)).await;
    let metrics = world.metrics().await;
    let lines: Vec<&str> =
        metrics.lines().filter(|line| line.starts_with("plugin_manager_total_plugins")).collect();
    let line = |socket: &str, state: &str| {
        format!("plugin_manager_total_plugins{{socket_path=\"{socket}\",state=\"{state}_state_of_world\"}} 1")
    };
    assert_eq!(lines, [line(&failing, "desired"), line(SOCKET, "actual"), line(SOCKET, "desired")]);
}

#[tokio::test(start_paused = true)]
async fn registered_plugin_gets_no_calls_while_nothing_changes() {
    let world = World::joined().await;
    start_plugin(&world, SOCKET, GPU);
    until_devices(&world, GPU, "1/1").await;
    world.host.put(format!("{REGISTRY}/README"), "not a socket");
    world.advance(seconds(3600)).await;
    assert_eq!((world.plugins.info_calls(SOCKET), world.plugins.notified(SOCKET).len()), (1, 1));
}
