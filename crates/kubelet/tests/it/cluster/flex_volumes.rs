//! A FlexVolume whose device a controller attaches, here the test itself: the kubelet formats and mounts it where its driver does not.

use serde_json::json;

use super::Cluster;
use super::block_devices::{LoopDevice, mounted_at};
use super::volumes::{bind, mounted, set_bound, with_claim};
use crate::flex_volumes::{DRIVERS, calls, install};
use crate::node::{FOREVER, Node, shell_pod, uid};

/// What the Go kubelet's own tests have for a driver, which supports nothing.
const DISK: &str = r#"init) echo '{"status": "Success"}';;"#;

#[test]
fn attached_flex_volume_is_formatted_and_mounted_once_for_all_pods_by_the_kubelet() {
    let node = Node::on_containerd(json!({}));
    let mut cluster = Cluster::with_node(node);
    cluster.node.configure(json!({"volumePluginDir": cluster.node.path(DRIVERS)}));
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    let log = install(&cluster.node, "disk", DISK);
    let device = LoopDevice::make(cluster.node.path("empty.img"));
    bind(&cluster, "disk", json!({"flexVolume": {"driver": "example.com/disk", "fsType": "ext4"}}));
    set_bound(&cluster, "disk");
    let pod = |name: &str, script: &str| {
        with_claim(shell_pod(name, &format!("{script}; {FOREVER}")), "disk", mounted())
    };
    cluster.kubectl.apply(&[pod("one", "echo kept > /data/file"), pod("two", "true")]);
    let in_use = || cluster.kubectl.get("node", "node").map(|node| node["status"]["volumesInUse"].clone());
    cluster.node.eventually("the volume is reported in use", |_| match in_use()? {
        list if list == json!(["example.com/disk/pv-disk"]) => Ok(()),
        list => Err(list.to_string()),
    });
    assert_eq!(calls(&log, "waitforattach"), Vec::<String>::new(), "nothing happens before it is attached");
    let attached = json!([{"name": "example.com/disk/pv-disk", "devicePath": device.device}]);
    cluster
        .kubectl
        .change_status("/api/v1/nodes/node", |node| node["status"]["volumesAttached"] = attached.clone());
    let (one, two) = (cluster.running("one"), cluster.running("two"));

    let mount_point =
        cluster.node.path("root/plugins/kubernetes.io/flexvolume/example.com/disk/mounts/pv-disk");
    assert!(mounted_at(&mount_point).is_some_and(|shown| shown.starts_with("ext4 rw")), "mounted for all");
    let options = r#"{"kubernetes.io/fsType":"ext4","kubernetes.io/pvOrVolumeName":"pv-disk","kubernetes.io/readwrite":"rw"}"#;
    let device_path = device.device.display();
    assert_eq!(calls(&log, "getvolumename"), [format!("getvolumename {options}")]);
    assert_eq!(calls(&log, "waitforattach"), [format!("waitforattach {device_path} {options}")]);
    let expected = format!("mountdevice {} {device_path} {options}", mount_point.display());
    assert_eq!(calls(&log, "mountdevice"), [expected], "a command that is not supported is not called again");
    let of_one = cluster.node.path("root/pods").join(uid(&one)).join("volumes/example.com~disk/pv-disk");
    assert!(mounted_at(&of_one).is_some(), "bound into the pod's directory");

    cluster.node.kill_kubelet();
    cluster.node.start_kubelet();
    cluster.kubectl.ok(&["delete", "pod", "one", "--wait=false"]);
    cluster.wait_until_gone(&one);
    assert!(mounted_at(&mount_point).is_some(), "the other pod still uses it");
    assert_eq!(in_use(), Ok(json!(["example.com/disk/pv-disk"])));
    cluster.kubectl.ok(&["delete", "pod", "two", "--wait=false"]);
    cluster.wait_until_gone(&two);
    assert!(mounted_at(&mount_point).is_none() && !mount_point.exists(), "nothing is left of it");
    cluster.node.eventually("the volume is not in use any more", |_| match in_use()? {
        list if list.as_array().is_none_or(Vec::is_empty) => Ok(()),
        list => Err(list.to_string()),
    });
}

/// Programs of the node get the device as an argument.
#[test]
fn device_that_is_no_block_device_of_the_node_reaches_no_program() {
    let mut cluster = Cluster::with_node(Node::on_containerd(json!({})));
    cluster.node.configure(json!({"volumePluginDir": cluster.node.path(DRIVERS)}));
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    install(&cluster.node, "disk", DISK);
    let device = LoopDevice::make(cluster.node.path("empty.img"));
    bind(&cluster, "disk", json!({"flexVolume": {"driver": "example.com/disk", "fsType": "ext4"}}));
    set_bound(&cluster, "disk");
    cluster.kubectl.apply(&[with_claim(shell_pod("user", FOREVER), "disk", mounted())]);
    let attach = |device: &str| {
        let attached = json!([{"name": "example.com/disk/pv-disk", "devicePath": device}]);
        cluster.kubectl.change_status("/api/v1/nodes/node", |node| {
            node["status"]["volumesAttached"] = attached.clone();
        });
    };
    let image = cluster.node.path("empty.img").display().to_string();
    for (device, problem) in
        [("-T/tmp/fstab", "must be an absolute path"), (image.as_str(), "is not a block device of this node")]
    {
        attach(device);
        let message = format!("device {device:?} {problem}");
        cluster.node.eventually("an event names the device", |_| {
            let events = cluster.events("Pod", "user");
            let is_reported =
                events.iter().any(|text| text.starts_with("FailedMount") && text.contains(&message));
            if is_reported { Ok(()) } else { Err(format!("{events:?}")) }
        });
    }
    attach(&device.device.display().to_string());
    cluster.running("user");
}
