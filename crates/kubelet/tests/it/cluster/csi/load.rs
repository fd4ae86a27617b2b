//! A hundred pods with two volumes each at once, on a fake runtime: none waits for a driver of another pod, and a driver has no more
//! than one call for each volume. How long volumes take is measured by `scripts/bench`.

use std::time::Instant;

use fakes::{CsiDriverFault, CsiMethod, FakeRuntime};
use fixtures::reduced;
use serde_json::{Value, json};

use super::{DRIVER, Setup, end_other_driver, other_driver, wait_for_driver};
use crate::cluster::{Cluster, bound};
use crate::node::{FOREVER, IMAGE, shell_pod};

/// Half of them use the driver that hangs.
const PODS: usize = 100;
const SLOW: &str = "slow.csi.example";

/// The pod's volumes are named after it; handles, too.
fn claims_of(name: &str) -> [String; 2] {
    ["a", "b"].map(|volume| format!("{name}-{volume}"))
}

fn two_volumes_pod(name: &str) -> Value {
    let mut pod = bound(shell_pod(name, FOREVER));
    let claims = claims_of(name);
    pod["spec"]["volumes"] = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    pod["spec"]["containers"][0]["volumeMounts"] =
        claims.iter().map(|claim| json!({"name": claim, "mountPath": format!("/{claim}")})).collect();
    pod
}

/// The names of the pods that run, sorted.
fn running(cluster: &Cluster) -> Result<Vec<String>, String> {
    let pods = cluster.kubectl.pods()?;
    let running = pods.iter().filter(|pod| pod["status"]["phase"] == "Running");
    let mut names: Vec<String> =
        running.filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned)).collect();
    names.sort();
    Ok(names)
}

/// Returns after these and no other pods run.
#[track_caller]
fn wait_for_running(cluster: &Cluster, expected: &[&[String]]) {
    let mut expected = expected.concat();
    expected.sort();
    cluster.node.eventually(&format!("{} pods run", expected.len()), |_| match running(cluster)? {
        names if names == expected => Ok(()),
        names => Err(format!("{} pods run: {names:?}", names.len())),
    });
}

fn prepare(setup: &Setup, driver: &str, pods: &[String]) {
    for handle in pods.iter().flat_map(|name| claims_of(name)) {
        setup.claim_directory(driver, &handle);
    }
}

#[test]
fn csi_driver_that_hangs_holds_up_none_of_a_hundred_pods_of_another() {
    let runtime = FakeRuntime::new();
    runtime.image(IMAGE);
    let mut setup = Setup::with(Cluster::on_fake(&runtime), &json!({"attachRequired": false}));
    setup.register();
    let cluster = &setup.cluster;
    let mut slow = other_driver(cluster, SLOW, &json!({"attachRequired": false}));
    slow.register();
    wait_for_driver(cluster, SLOW);
    let names = |kind: &str| -> Vec<String> {
        (0..reduced(PODS) / 2).map(|index| format!("{kind}-{index}")).collect()
    };
    let (fast_pods, slow_pods) = (names("fast"), names("slow"));
    prepare(&setup, DRIVER, &fast_pods);
    prepare(&setup, SLOW, &slow_pods);

    let count = slow_pods.len() + fast_pods.len();
    slow.fault_always(CsiMethod::NodeStageVolume, Some(CsiDriverFault::Hangs));
    let pods: Vec<Value> = slow_pods.iter().chain(&fast_pods).map(|name| two_volumes_pod(name)).collect();
    let began = Instant::now();
    cluster.kubectl.create(&pods);
    wait_for_running(cluster, &[&fast_pods]);
    eprintln!("{} pods run after {:?} while another driver hangs", fast_pods.len(), began.elapsed());
    cluster.node.eventually("each volume of the slow driver is being staged", |_| {
        let hanging = slow.hanging();
        if hanging == count { Ok(()) } else { Err(format!("{hanging} calls hang")) }
    });
    assert_eq!(slow.call_lines().len(), count, "one call for each volume");

    let released = Instant::now();
    slow.fault_always(CsiMethod::NodeStageVolume, None).release();
    wait_for_running(cluster, &[&fast_pods, &slow_pods]);
    eprintln!("the other {} pods run {:?} after their driver answers", slow_pods.len(), released.elapsed());
    assert_eq!(slow.call_lines().len(), 2 * count, "each volume is staged and published once");
    assert_eq!(setup.driver.call_lines().len(), 2 * count, "each volume is staged and published once");
    let created = cluster.kubectl.pods().expect("a list of pods");
    for name in fast_pods.iter().chain(&slow_pods) {
        cluster.kubectl.delete(name);
    }
    // One request for all of them, so that the machine ends pods instead of answering.
    cluster.node.eventually("the API has no pod", |_| match cluster.kubectl.pods()?.len() {
        0 => Ok(()),
        left => Err(format!("{left} pods are left")),
    });
    for pod in &created {
        cluster.wait_until_gone(pod);
    }
    end_other_driver(cluster, SLOW, slow);
    setup.check_clean();
}
