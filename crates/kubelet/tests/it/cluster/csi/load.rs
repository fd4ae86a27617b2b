//! Many pods with volumes at once, on a fake runtime: none waits for the volume of another, and what the kubelet adds to the
//! driver's time.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testing::{CsiDriverFault, CsiMethod, FakeRuntime, stretched};

use super::Setup;
use crate::cluster::{Cluster, bound};
use crate::node::{FOREVER, IMAGE, shell_pod};

const PODS: usize = 20;
/// Of a pod with two volumes over one without, on a machine that does other things, too.
const MAX_ADDED: Duration = Duration::from_secs(10);

fn two_volumes_pod(name: &str) -> Value {
    let mut pod = bound(shell_pod(name, FOREVER));
    let claims = ["a", "b"].map(|volume| format!("{name}-{volume}"));
    pod["spec"]["volumes"] = claims
        .iter()
        .map(|claim| json!({"name": claim, "persistentVolumeClaim": {"claimName": claim}}))
        .collect();
    pod["spec"]["containers"][0]["volumeMounts"] =
        claims.iter().map(|claim| json!({"name": claim, "mountPath": format!("/{claim}")})).collect();
    pod
}

fn count_running(cluster: &Cluster) -> Result<usize, String> {
    Ok(cluster.kubectl.pods()?.iter().filter(|pod| pod["status"]["phase"] == "Running").count())
}

#[track_caller]
fn wait_for_running(cluster: &Cluster, count: usize) {
    cluster.node.eventually(&format!("{count} pods run"), |_| match count_running(cluster)? {
        running if running == count => Ok(()),
        running => Err(format!("{running} pods run")),
    });
}

fn time_to_run(setup: &Setup, name: &str, pod: Value) -> Duration {
    let began = Instant::now();
    setup.create(pod);
    let pod = setup.cluster.running(name);
    let took = began.elapsed();
    setup.delete_and_wait(&pod);
    took
}

#[test]
fn csi_volume_of_a_slow_call_holds_up_no_other_pod() {
    let runtime = FakeRuntime::new();
    runtime.image(IMAGE);
    let mut setup = Setup::with(Cluster::on_fake(&runtime), &json!({"attachRequired": false}));
    setup.register();
    let names: Vec<String> = (0..PODS).map(|index| format!("pod-{index}")).collect();
    for name in &names {
        setup.claim_directory(&format!("{name}-a"));
        setup.claim_directory(&format!("{name}-b"));
    }
    let without = time_to_run(&setup, "plain", bound(shell_pod("plain", FOREVER)));
    let with = time_to_run(&setup, "pod-0", two_volumes_pod("pod-0"));
    setup.check_clean();
    eprintln!("a pod without volumes runs after {without:?}, one with two CSI volumes after {with:?}");
    assert!(with < without + stretched(MAX_ADDED));

    setup.driver.fault(CsiMethod::NodeStageVolume, CsiDriverFault::Hangs);
    let pods: Vec<Value> = names.iter().map(|name| two_volumes_pod(name)).collect();
    let began = Instant::now();
    setup.cluster.kubectl.create(&pods);
    wait_for_running(&setup.cluster, PODS - 1);
    eprintln!("{} pods with two CSI volumes each run after {:?}", PODS - 1, began.elapsed());
    assert_eq!(setup.driver.hanging(), 1, "one volume is still being staged");
    setup.driver.release();
    wait_for_running(&setup.cluster, PODS);
    setup.check_violations();
    let created: Vec<Value> = setup.cluster.kubectl.pods().expect("a list of pods");
    for name in &names {
        setup.cluster.kubectl.delete(name);
    }
    for pod in &created {
        setup.cluster.wait_until_gone(pod);
    }
    setup.check_clean();
}
