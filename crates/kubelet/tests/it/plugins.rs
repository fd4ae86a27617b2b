//! Plugins that register through the registration directory of the built binary, as vendors' plugins and their registrars do.

use std::path::{Path, PathBuf};

use fakes::{DevicePlugin, FakeRuntime, PluginRegistrar};
use grpc_api::pod_resources as v1;
use grpc_api::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use ports::plugins::PluginInfo;
use serde_json::json;

use crate::node::Node;
use crate::pod_resources::{channel, within};

const THING: &str = "example.com/thing";

/// A device plugin with these devices, at a socket that is not in a directory of the kubelet.
fn device_plugin(node: &Node, devices: &str) -> (DevicePlugin, PluginInfo) {
    let dir = node.path("vendor");
    std::fs::create_dir_all(&dir).expect("a directory");
    let plugin = DevicePlugin::serve(&dir, THING, devices);
    let info = PluginInfo {
        kind: "DevicePlugin".to_owned(),
        name: THING.to_owned(),
        endpoint: dir.join("example.com_thing.sock").display().to_string(),
        supported_versions: vec!["v1beta1".to_owned()],
    };
    (plugin, info)
}

fn registry(node: &Node, name: &str) -> PathBuf {
    node.path("root/plugins_registry").join(name)
}

/// Waits until the kubelet has reported so many registrations, and nothing else.
#[track_caller]
fn wait_for_registrations(node: &Node, registrar: &PluginRegistrar, count: usize) {
    node.eventually("the plugin is registered", |_| match registrar.notified() {
        notified if notified == vec![Ok(()); count] => Ok(()),
        notified => Err(format!("{notified:?}")),
    });
}

/// Waits until these devices are allocatable.
#[track_caller]
fn wait_for_devices(node: &Node, expected: &[&str]) {
    node.eventually("the devices are allocatable", |node| {
        let found: Vec<String> = within(async {
            let mut client = PodResourcesListerClient::new(channel(node).await);
            let answer = client.get_allocatable_resources(v1::AllocatableResourcesRequest {}).await;
            let devices = answer.expect("an answer").into_inner().devices;
            devices.into_iter().flat_map(|device| device.device_ids).collect()
        });
        if found == expected { Ok(()) } else { Err(format!("{found:?}")) }
    });
}

/// The states of a socket in `/metrics`.
fn states(node: &Node, socket: &Path) -> Vec<String> {
    let metrics = node.get("/metrics").expect("metrics");
    let prefix = format!("plugin_manager_total_plugins{{socket_path=\"{}\",state=\"", socket.display());
    let lines = metrics.lines().filter_map(|line| line.strip_prefix(&*prefix));
    lines.map(|rest| rest.trim_end_matches("_state_of_world\"} 1").to_owned()).collect()
}

#[test]
fn plugin_registers_again_after_a_kubelet_kill_and_with_a_new_socket_until_that_is_removed() {
    let mut node = Node::on_fake(&FakeRuntime::with_clock(ports::Clock::system()), json!({}));
    let (_plugin, info) = device_plugin(&node, "null zero");
    let socket = registry(&node, "thing-reg.sock");
    let first = PluginRegistrar::serve(&socket, info.clone());
    wait_for_registrations(&node, &first, 1);
    wait_for_devices(&node, &["null", "zero"]);
    assert_eq!(states(&node, &socket), ["actual", "desired"]);

    node.restart_kubelet();
    wait_for_registrations(&node, &first, 2);
    wait_for_devices(&node, &["null", "zero"]);

    let second = PluginRegistrar::serve(&socket, info);
    wait_for_registrations(&node, &second, 1);
    drop(first);
    wait_for_devices(&node, &["null", "zero"]);
    assert_eq!(
        (second.info_calls(), second.notified().len()),
        (1, 1),
        "the old instance's end changes nothing"
    );

    drop(second);
    wait_for_devices(&node, &[]);
    node.eventually("the socket is forgotten", |node| match states(node, &socket) {
        states if states.is_empty() => Ok(()),
        states => Err(format!("{states:?}")),
    });
}

#[test]
fn plugins_in_nested_directories_and_renamed_sockets_are_found_and_others_are_notified_of_the_reason() {
    let mut node = Node::on_fake(&FakeRuntime::with_clock(ports::Clock::system()), json!({}));
    let (_plugin, info) = device_plugin(&node, "null");
    let directory = registry(&node, "vendor/v2");
    std::fs::create_dir_all(&directory).expect("a directory");
    let unknown = PluginInfo { kind: "NetworkPlugin".to_owned(), ..info.clone() };
    let nested = directory.join("other-reg.sock");
    let refused = PluginRegistrar::serve(&nested, unknown);
    let reason = node.eventually("the plugin is refused", |_| {
        refused.notified().first().cloned().ok_or_else(|| "not notified".to_owned())
    });
    let expected = format!(
        "RegisterPlugin error -- no handler registered for plugin type: NetworkPlugin at socket {}",
        nested.display()
    );
    assert_eq!(reason, Err(expected));

    // The socket of a plugin that was killed stays behind, until its next instance renames its own over it.
    let socket = directory.join("thing-reg.sock");
    let dead = PluginRegistrar::serve(&socket, info.clone());
    wait_for_registrations(&node, &dead, 1);
    dead.crash();
    node.restart_kubelet();
    node.wait_for_log("dial failed");
    let hidden = directory.join(".thing-reg.sock.new");
    let renamed = PluginRegistrar::serve(&hidden, info);
    std::fs::rename(&hidden, &socket).expect("a rename");
    wait_for_registrations(&node, &renamed, 1);
    wait_for_devices(&node, &["null"]);
    std::fs::remove_dir_all(registry(&node, "vendor")).expect("removal");
    wait_for_devices(&node, &[]);
}
