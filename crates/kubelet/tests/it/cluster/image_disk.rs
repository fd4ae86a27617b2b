//! Images on a disk of their own: what goes for room there, who goes after it, and what is said where nothing can go. The
//! disk is a real one, and so are the images.

use serde_json::{Value, json};

use super::pressure::evicted;
use super::{Cluster, bound};
use crate::node::{FOREVER, IMAGE, Node, condition, shell_pod};
use crate::small_disk::SmallDisk;

const MI: u64 = 1 << 20;
/// Of an image. On disk it takes twice as much: packed and unpacked.
const LARGE: usize = 12;

fn name(image: &str) -> String {
    format!("localhost/{image}:test")
}

/// Those of the images that are still there.
fn left(cluster: &Cluster, images: &[&str]) -> Vec<String> {
    let there = cluster.node.images();
    images.iter().filter(|image| there.contains_key(&name(image))).map(|image| (*image).to_owned()).collect()
}

fn pod(name: &str, script: &str) -> Value {
    bound(shell_pod(name, &format!("{script}; {FOREVER}")))
}

/// `keeper` runs the image `used`; `writer` writes to the disk of images, and `other` to that of the node.
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
    cluster.node.eventually("what the writer wrote is measured", |node| {
        let summary: Value = serde_json::from_str(&node.get("/stats/summary")?).map_err(|e| e.to_string())?;
        let pods = summary["pods"].as_array().cloned().unwrap_or_default();
        let writer = pods.iter().find(|pod| pod["podRef"]["name"] == "writer").ok_or("not measured")?;
        let used = writer["containers"][0]["rootfs"]["usedBytes"].as_u64().unwrap_or_default();
        if used >= 30 * MI { Ok(()) } else { Err(writer.to_string()) }
    });
}

#[test]
fn a_disk_of_images_loses_those_that_nobody_uses_and_then_who_wrote_most_to_it() {
    let (node, disk) = Node::with_image_disk(json!({}), 200);
    for image in ["used", "old", "older"] {
        node.import_image(&name(image), LARGE);
    }
    // What the writer is going to write counts already.
    let threshold = disk.space().1 - 45 * MI;
    let mut cluster = Cluster::around(node);
    cluster.node.configure(json!({
        "evictionHard": {"imagefs.available": threshold.to_string()},
        "evictionPressureTransitionPeriod": "1s",
    }));
    cluster.node.start_kubelet();
    cluster.ready();
    start_pods(&cluster);

    // So little is left that the unused images must go, and that this is enough.
    disk.fill_up_to("filler", threshold - 10 * MI);
    cluster.node.eventually("what nobody uses goes", |_| {
        let left = left(&cluster, &["used", "old", "older"]);
        if left == ["used"] { Ok(()) } else { Err(format!("{left:?}")) }
    });
    for name in ["keeper", "other", "writer"] {
        cluster.running(name);
    }
    // Now nothing is left to go but a pod; what the other one has on the disk of the node does not matter.
    disk.fill_up_to("more", threshold - 10 * MI);
    let words = format!(
        "The node was low on resource: ephemeral-storage. Threshold quantity: {threshold}, available: "
    );
    let writer = evicted(&cluster, "writer", &words);
    assert_eq!(condition(&writer, "DisruptionTarget"), "True");
    super::pressure::node_shows(&cluster, "DiskPressure", "False", "KubeletHasNoDiskPressure");
    assert_eq!(left(&cluster, &["used", "old", "older"]), ["used"]);
    for name in ["keeper", "other"] {
        cluster.running(name);
    }
    let metrics = cluster.node.get("/metrics").expect("metrics");
    let evictions = "kubelet_evictions{eviction_signal=\"imagefs.available\"} 1";
    assert!(metrics.contains(evictions), "{metrics}");

    from_the_high_mark_down_to_the_low_one(&mut cluster, &disk);
}

/// With marks instead of thresholds: one image is enough, so one goes; and where all are not enough, somebody hears of it.
fn from_the_high_mark_down_to_the_low_one(cluster: &mut Cluster, disk: &SmallDisk) {
    for image in ["old", "older"] {
        cluster.node.import_image(&name(image), LARGE);
    }
    let ids = cluster.node.images();
    let (last, first) =
        if ids[&name("old")] < ids[&name("older")] { ("older", "old") } else { ("old", "older") };
    let (all, available) = disk.space();
    let used_percent = 100 - available * 100 / all;
    let marks = |high: u64, low: u64| {
        json!({"imageGCHighThresholdPercent": high, "imageGCLowThresholdPercent": low,
            "evictionHard": {"memory.available": "100Mi"}})
    };
    cluster.node.configure(marks(used_percent, used_percent - 3));
    cluster.node.restart_kubelet();
    cluster.node.eventually("one image goes", |_| {
        let left = left(cluster, &["used", first, last]);
        if left == ["used", last] { Ok(()) } else { Err(format!("{left:?}")) }
    });
    cluster.node.configure(marks(1, 0));
    cluster.node.restart_kubelet();
    cluster.node.eventually("an event says that it was not enough", |_| {
        let told = cluster.events("Node", "node");
        let words = "FreeDiskSpaceFailed: Insufficient free disk space on the node's image filesystem (";
        if told.iter().any(|told| told.starts_with(words)) { Ok(()) } else { Err(format!("{told:#?}")) }
    });
    assert_eq!(left(cluster, &["used", first, last]), ["used"]);
    assert!(cluster.node.images().contains_key(IMAGE), "the other pod uses it");
    for name in ["keeper", "other"] {
        cluster.running(name);
    }
}
