//! SIGKILL for the kubelet in the middle of each call of a driver, and for containerd while pods have volumes.

use fakes::{CsiDriverFault, CsiMethod};
use serde_json::{Value, json};

use super::{Setup, claim_pod, wait_for_output};
use crate::node::{container, uid};

/// When the driver carries out the call during which the kubelet was killed.
#[derive(Clone, Copy, Debug)]
enum CallEnds {
    WhileNoKubeletRuns,
    AfterTheRestart,
}

impl Setup {
    #[track_caller]
    fn wait_until_hanging(&self) {
        self.cluster.node.eventually("a call of the driver hangs", |_| match self.driver.hanging() {
            0 => Err(format!("{:?}", self.driver.call_lines())),
            _ => Ok(()),
        });
    }

    /// Kills the kubelet during a call that hangs and starts it again.
    fn kill_during_call(&mut self, ends: CallEnds) {
        self.wait_until_hanging();
        self.cluster.node.kill_kubelet();
        if let CallEnds::WhileNoKubeletRuns = ends {
            self.driver.release();
        }
        self.cluster.node.start_kubelet();
        self.driver.release();
    }

    /// Each pod has one target, whoever asked for it.
    #[track_caller]
    fn check_target(&self, pod: &Value, claim: &str) {
        let expected = self.volume_dir(&uid(pod), &format!("pv-{claim}")).join("mount");
        let requests = self.driver.publish_requests();
        let of_pod =
            requests.iter().filter(|request| request.target_path.to_string_lossy().contains(&uid(pod)));
        let targets: Vec<_> = of_pod.map(|request| request.target_path.clone()).collect();
        assert!(!targets.is_empty() && targets.iter().all(|target| *target == expected), "{targets:?}");
        let published = self.driver.published();
        assert_eq!(published.iter().filter(|(_, path)| *path == expected).count(), 1, "{published:?}");
    }
}

#[test]
fn csi_volume_is_mounted_and_unmounted_once_whenever_the_kubelet_is_killed() {
    let mut setup = Setup::start(&json!({"attachRequired": false}));
    setup.claim_filesystem("disk");
    for ends in [CallEnds::WhileNoKubeletRuns, CallEnds::AfterTheRestart] {
        for method in [CsiMethod::NodeStageVolume, CsiMethod::NodePublishVolume] {
            setup.driver.fault(method, CsiDriverFault::Hangs);
            setup.create(claim_pod("user", "echo ran", "disk"));
            setup.kill_during_call(ends);
            let pod = setup.cluster.running("user");
            setup.check_target(&pod, "disk");
            setup.delete_and_wait(&pod);
            setup.check_clean();
        }
        for method in [CsiMethod::NodeUnpublishVolume, CsiMethod::NodeUnstageVolume] {
            setup.create(claim_pod("user", "echo ran", "disk"));
            let pod = setup.cluster.running("user");
            setup.driver.fault(method, CsiDriverFault::Hangs);
            setup.cluster.kubectl.delete("user");
            setup.kill_during_call(ends);
            setup.cluster.wait_until_gone(&pod);
            setup.check_clean();
        }
    }
}

#[test]
fn csi_pod_deleted_after_a_kill_during_its_mount_is_unmounted() {
    let mut setup = Setup::start(&json!({"attachRequired": false}));
    setup.claim_filesystem("disk");
    for method in [CsiMethod::NodeStageVolume, CsiMethod::NodePublishVolume] {
        setup.driver.fault(method, CsiDriverFault::Hangs);
        setup.create(claim_pod("user", "echo ran", "disk"));
        setup.wait_until_hanging();
        setup.cluster.node.kill_kubelet();
        let pod = setup.cluster.kubectl.get("pod", "user").expect("a pod");
        setup.cluster.kubectl.ok(&["delete", "pod", "user", "--force", "--grace-period=0"]);
        setup.driver.release();
        setup.cluster.node.start_kubelet();
        setup.cluster.wait_until_gone(&pod);
        setup.check_clean();
    }
}

#[test]
fn csi_mounts_need_no_call_after_a_restart_and_outlive_a_killed_containerd() {
    let mut setup = Setup::start(&json!({"attachRequired": false}));
    setup.claim_filesystem("disk");
    setup.create(claim_pod("first", "echo kept > /data/file", "disk"));
    let first = setup.cluster.running("first");
    let before = setup.driver.call_lines();
    assert_eq!(before, ["NodeStageVolume disk", "NodePublishVolume disk"]);
    setup.cluster.node.restart_kubelet();
    setup.create(claim_pod("second", "cat /data/file", "disk"));
    let second = setup.cluster.running("second");
    wait_for_output(&setup.cluster, &second, "kept\n");
    // The new pod may come before the volume of the first was found: then it is staged once more, which changes nothing. The Go
    // kubelet does that after each start.
    let mut after = setup.driver.call_lines().split_off(2);
    let is_staged_again = after.first().is_some_and(|call| call == "NodeStageVolume disk");
    after.drain(..usize::from(is_staged_again));
    assert_eq!(after, ["NodePublishVolume disk"], "only the new pod needs a call");
    let before = setup.driver.call_lines().len();

    setup.cluster.node.kill_runtime();
    setup.cluster.kubectl.delete("second");
    setup.cluster.node.resume_runtime();
    setup.cluster.wait_until_gone(&second);
    let still = setup.cluster.running("first");
    assert_eq!(container(&still, "main")["containerID"], container(&first, "main")["containerID"]);
    assert_eq!(setup.driver.call_lines()[before..], ["NodeUnpublishVolume disk"]);
    setup.delete_and_wait(&first);
    setup.check_clean();
}
