//! The disk with the kubelet's own program hangs or fails: the program is in memory, so that the node and its pods go on as before.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use fixtures::stretched;
use harness::HungFuse;
use rustix::fs::{Advice, fadvise};
use serde_json::json;

use crate::node::Node;

use super::Cluster;
use super::busy_thread::{longest_probe_gap, probed_pod};
use super::large_pods::{HealthWatch, longest_lease_gap};

/// The kubelet reads its whole program after the start; from then on only a bug makes it read.
const QUIET: Duration = Duration::from_secs(10);
/// How long the disk does not answer.
const OUTAGE: Duration = Duration::from_secs(20);
/// A kubelet that waits for the disk does nothing until the end of the outage; other tests on the machine hold it up for some seconds.
const MAX_GAP: Duration = Duration::from_secs(10);

/// Waits until the program has not been read for some time.
fn wait_until_in_memory(node: &Node, disk: &HungFuse) {
    let (mut reads, mut since) = (disk.reads(), Instant::now());
    node.eventually("the kubelet runs from memory", |_| {
        let now = disk.reads();
        if now != reads {
            (reads, since) = (now, Instant::now());
        }
        if since.elapsed() > QUIET { Ok(()) } else { Err(format!("{reads} reads")) }
    });
}

/// Takes everything of the program out of memory that the process has not mapped, as a machine short of memory does.
fn forget_what_is_not_mapped(program: &Path) {
    let file = File::open(program).expect("the program");
    fadvise(&file, 0, None, Advice::DontNeed).expect("the kernel takes the advice");
}

fn idle_node_outlives(outage: fn(&HungFuse)) {
    let mut cluster = Cluster::audited(
        Node::on_containerd(json!({"nodeLeaseDurationSeconds": 8})),
        &["--no-service-accounts"],
    );
    std::fs::create_dir_all(cluster.node.path("shared")).expect("a directory");
    let disk = HungFuse::with_program(&cluster.node.path("disk"), Path::new(env!("CARGO_BIN_EXE_kubelet")));
    let disk = disk.expect("a FUSE filesystem");
    let program = cluster.node.path("disk/kubelet");
    cluster.node.run_program(&program);
    cluster.node.apply("web", &probed_pod(&cluster.node));
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    cluster.node.running("web");
    let health = HealthWatch::start(&cluster.node);
    wait_until_in_memory(&cluster.node, &disk);

    forget_what_is_not_mapped(&program);
    outage(&disk);
    let began = Instant::now();
    cluster.node.eventually("the outage has lasted", |node| {
        node.healthz()?;
        if began.elapsed() > OUTAGE { Ok(()) } else { Err("not yet".to_owned()) }
    });
    let (answer, lease, probe) =
        (health.longest(), longest_lease_gap(&cluster), longest_probe_gap(&cluster.node));
    assert!(answer < stretched(MAX_GAP), "/healthz answered after {answer:?}");
    assert!(lease < stretched(MAX_GAP), "the lease was not renewed for {lease:?}");
    assert!(probe < stretched(MAX_GAP), "the probe did not run for {probe:?}");
}

#[test]
fn hanging_disk_with_the_program_of_an_idle_kubelet_delays_nothing() {
    idle_node_outlives(HungFuse::hang);
}

#[test]
fn failing_disk_with_the_program_of_an_idle_kubelet_kills_nothing() {
    idle_node_outlives(HungFuse::fail);
}
