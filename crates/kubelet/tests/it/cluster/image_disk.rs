//! Images on a disk of their own: what image garbage collection removes, which pod is evicted after it, and what is reported
//! where nothing can be removed. The disk and the images are real.

use serde_json::{Value, json};

use super::pressure::evicted;
use super::{Cluster, bound};
use crate::node::{FOREVER, IMAGE, Node, condition, shell_pod};
use harness::SmallDisk;

const MI: u64 = 1 << 20;
/// The size of an image. It takes twice as much on disk: packed and unpacked.
const LARGE: usize = 12;

fn name(image: &str) -> String {
    format!("localhost/{image}:test")
}

/// The given images that still exist.
fn remaining(cluster: &Cluster, images: &[&str]) -> Vec<String> {
    let there = cluster.node.images();
    images.iter().filter(|image| there.contains_key(&name(image))).map(|image| (*image).to_owned()).collect()
}

fn pod(name: &str, script: &str) -> Value {
    bound(shell_pod(name, &format!("{script}; {FOREVER}")))
}

/// Images with this label are never collected, if the runtime reports them as pinned: containerd does from 1.7 on.
fn pin(cluster: &Cluster, image: &str) -> bool {
    let node = &cluster.node;
    node.ctr(&["images", "label", &name(image), "io.cri-containerd.pinned=pinned"]);
    if !node.supports_container_events() {
        return false;
    }
    node.eventually("the runtime reports the image as pinned", |node| {
        if node.pinned_images().contains(&name(image)) { Ok(()) } else { Err("it does not".to_owned()) }
    });
    true
}

/// `recent` was used while the kubelet ran, `never` was not.
fn use_once(cluster: &mut Cluster, recent: &str) {
    let mut past = pod("past", "true");
    past["spec"]["containers"][0]["image"] = name(recent).into();
    cluster.kubectl.apply(&[past]);
    let past = cluster.running("past");
    let earlier = cluster.node.kubelet_log().len();
    // It reads which images are in use when it starts.
    cluster.node.restart_kubelet();
    cluster.node.eventually("the kubelet knows which images are in use", |node| {
        let log = node.kubelet_log().split_off(earlier);
        if log.contains("Determined which images are in use") { Ok(()) } else { Err(log) }
    });
    cluster.kubectl.ok(&["delete", "pod", "past"]);
    cluster.wait_until_gone(&past);
}

/// `keeper` runs the image `used`; `writer` writes to the image disk, and `other` to the disk of the node.
fn start_pods(cluster: &Cluster) {
    let mut keeper = pod("keeper", "true");
    keeper["spec"]["containers"][0]["image"] = name("used").into();
    let mut other = pod("other", "dd if=/dev/zero of=/data/file bs=1M count=60");
    other["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    other["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let writer = pod("writer", "dd if=/dev/zero of=/file bs=1M count=30");
    cluster.kubectl.apply(&[keeper, other, writer]);
    for name in ["keeper", "other", "writer"] {
        cluster.running(name);
    }
    cluster.node.eventually("the bytes of the writer are measured", |node| {
        let summary: Value = serde_json::from_str(&node.get("/stats/summary")?).map_err(|e| e.to_string())?;
        let pods = summary["pods"].as_array().cloned().unwrap_or_default();
        let writer = pods.iter().find(|pod| pod["podRef"]["name"] == "writer").ok_or("not measured")?;
        let used = writer["containers"][0]["rootfs"]["usedBytes"].as_u64().unwrap_or_default();
        if used >= 30 * MI { Ok(()) } else { Err(writer.to_string()) }
    });
}

#[test]
fn image_filesystem_pressure_removes_unused_images_then_evicts_the_largest_writer() {
    let (node, disk) = Node::with_image_disk(json!({}), 220);
    for (image, mebibytes) in [("used", LARGE), ("old", LARGE), ("older", LARGE), ("pinned", 1)] {
        node.import_image(&name(image), mebibytes);
    }
    // What the writer is going to write counts already.
    let threshold = disk.space().1 - 45 * MI;
    let mut cluster = Cluster::with_node(node);
    cluster.node.configure(json!({
        "evictionHard": {"imagefs.available": threshold.to_string(), "containerfs.available": "1Ki"},
        "evictionPressureTransitionPeriod": "1s",
    }));
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    cluster.node.wait_for_log("Ignoring containerfs thresholds");
    let stays = if pin(&cluster, "pinned") { vec!["used", "pinned"] } else { vec!["used"] };
    start_pods(&cluster);
    // Without its use it would be the first: images without known use are removed in the order of their names.
    let [never, recent] = in_turn(&cluster).map(|image| cluster.node.images()[&name(image)].clone());
    let [_, by_name] = in_turn(&cluster);
    use_once(&mut cluster, by_name);

    // This leaves so little that the unused images must be removed, and that removing them is enough.
    disk.fill_up_to("filler", threshold - 10 * MI);
    cluster.node.eventually("unused images are removed", |_| {
        let remaining = remaining(&cluster, &["used", "old", "older", "pinned"]);
        if remaining == stays { Ok(()) } else { Err(format!("{remaining:?}")) }
    });
    let turns = cluster.node.eventually("the removed images are reported", |node| {
        let log = node.kubelet_log();
        let removed =
            |id: &str| log.lines().position(|l| l.contains("Removing unused image") && l.contains(id));
        removed(&never).zip(removed(&recent)).ok_or_else(|| "not yet".to_owned())
    });
    assert!(turns.0 < turns.1, "{never} was unused for longer than {recent}");
    for name in ["keeper", "other", "writer"] {
        cluster.running(name);
    }
    // The runtime frees the space of a removed image after it has answered.
    let freed = 2 * 2 * u64::try_from(LARGE).expect("a size") * MI;
    cluster.node.eventually("the space of the removed images is free", |_| {
        let (_, available) = disk.space();
        if available >= threshold - 10 * MI + freed { Ok(()) } else { Err(format!("{available}")) }
    });
    // Now only a pod can be evicted; the usage of the other one on the node's disk does not matter.
    let (_, with_writer) = disk.space();
    disk.fill_up_to("more", threshold - 10 * MI);
    let message = format!(
        "The node was low on resource: ephemeral-storage. Threshold quantity: {threshold}, available: "
    );
    let writer = evicted(&cluster, "writer", &message);
    // A slow disk frees the space of the writer so late that a second pod would be evicted.
    disk.remove("more");
    cluster.node.eventually("the space of the writer is free", |_| {
        let (_, available) = disk.space();
        if available >= with_writer + 29 * MI { Ok(()) } else { Err(format!("{available}")) }
    });
    assert_eq!(condition(&writer, "DisruptionTarget"), "True");
    super::pressure::node_shows(&cluster, "DiskPressure", "False", "KubeletHasNoDiskPressure");
    assert_eq!(remaining(&cluster, &["used", "old", "older", "pinned"]), stays);
    for name in ["keeper", "other"] {
        cluster.running(name);
    }
    let metrics = cluster.node.get("/metrics").expect("metrics");
    let evictions = "kubelet_evictions{eviction_signal=\"imagefs.available\"} 1";
    assert!(metrics.contains(evictions), "{metrics}");

    image_gc_runs_from_high_to_low_threshold(&mut cluster, &disk);
}

/// Two images of which only the names are known: the one that is removed later, and the one that is removed first.
fn in_turn(cluster: &Cluster) -> [&'static str; 2] {
    let ids = cluster.node.images();
    if ids[&name("old")] < ids[&name("older")] { ["older", "old"] } else { ["old", "older"] }
}

/// Image garbage collection by thresholds: one image is enough, so one is removed; where all are not enough, an event reports it.
fn image_gc_runs_from_high_to_low_threshold(cluster: &mut Cluster, disk: &SmallDisk) {
    for image in ["old", "older"] {
        cluster.node.import_image(&name(image), LARGE);
    }
    let [last, first] = in_turn(cluster);
    let (all, available) = disk.space();
    let used_percent = 100 - available * 100 / all;
    let thresholds = |high: u64, low: u64| {
        json!({"imageGCHighThresholdPercent": high, "imageGCLowThresholdPercent": low,
            "evictionHard": {"memory.available": "100Mi"}})
    };
    cluster.node.configure(thresholds(used_percent, used_percent - 3));
    cluster.node.restart_kubelet();
    cluster.node.eventually("one image is removed", |_| {
        let remaining = remaining(cluster, &["used", first, last]);
        if remaining == ["used", last] { Ok(()) } else { Err(format!("{remaining:?}")) }
    });
    cluster.node.configure(thresholds(1, 0));
    cluster.node.restart_kubelet();
    cluster.node.eventually("an event reports that it was not enough", |_| {
        let events = cluster.events("Node", "node");
        let message = "FreeDiskSpaceFailed: Insufficient free disk space on the node's image filesystem (";
        let is_expected = |event: &&String| {
            event.starts_with(message) && event.contains("by deleting unused images (freed ")
        };
        if events.iter().any(|event| is_expected(&event)) { Ok(()) } else { Err(format!("{events:#?}")) }
    });
    assert_eq!(remaining(cluster, &["used", first, last]), ["used"]);
    assert!(cluster.node.images().contains_key(IMAGE), "the other pod uses it");
    for name in ["keeper", "other"] {
        cluster.running(name);
    }
}
