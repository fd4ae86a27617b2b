//! The node loses power while pods have volumes, and starts again with the files that are on its disk.

use std::process::Command;

use serde_json::{Value, json};

use super::{Setup, claim_pod, loop_devices, wait_for_output};
use crate::cluster::volumes::with_claim;
use crate::node::{FOREVER, container, restarts, shell_pod, uid};

/// Prints whether the volume has the file of an earlier container.
const FILE: &str = "test -e /data/file && echo again || echo first; touch /data/file; sync";

fn device_pod(name: &str, claim: &str) -> Value {
    let script =
        "head -c 5 /dev/mine | tr -d '\\0'; echo; printf again | dd of=/dev/mine conv=fsync 2>/dev/null";
    let mapped = json!({"volumeDevices": [{"name": "data", "devicePath": "/dev/mine"}]});
    with_claim(shell_pod(name, &format!("{script}; {FOREVER}")), claim, mapped)
}

impl Setup {
    /// Ends the driver and everything on the node at once. The API server is another machine.
    fn lose_power(&mut self) {
        self.driver.unregister();
        self.driver.stop();
        self.cluster.node.lose_power();
        let dir = self.cluster.node.path("");
        for file in loop_devices(&dir) {
            let output = Command::new("losetup")
                .args(["--noheadings", "--output", "NAME", "--associated", &file])
                .output();
            let output = output.expect("losetup runs").stdout;
            let device = String::from_utf8_lossy(&output).trim().to_owned();
            assert!(
                Command::new("losetup").args(["--detach", &device]).status().expect("losetup runs").success()
            );
        }
        self.cluster.node.eventually("no loop device is left", |_| match loop_devices(&dir) {
            left if left.is_empty() => Ok(()),
            left => Err(format!("{left:?}")),
        });
    }

    /// The calls for the volume after so many calls for all volumes.
    fn calls_for(&self, volume: &str, after: usize) -> Vec<String> {
        let calls = self.driver.call_lines().split_off(after).into_iter();
        calls.filter_map(|line| line.strip_suffix(&format!(" {volume}")).map(str::to_owned)).collect()
    }
}

#[test]
fn csi_volumes_are_mounted_once_before_their_containers_start_after_a_power_loss() {
    let mut setup = Setup::start(&json!({"attachRequired": false}));
    let volumes = ["disk", "deleted", "forced"];
    let devices = ["raw", "deleted-raw", "forced-raw"];
    volumes.iter().for_each(|name| setup.claim_filesystem(name));
    devices.iter().for_each(|name| setup.claim_device(name));
    volumes.iter().for_each(|name| setup.create(claim_pod(name, FILE, name)));
    devices.iter().for_each(|name| setup.create(device_pod(name, name)));
    let before = volumes.map(|name| setup.cluster.running(name));
    let before_devices = devices.map(|name| setup.cluster.running(name));
    before.iter().for_each(|pod| wait_for_output(&setup.cluster, pod, "first\n"));
    before_devices.iter().for_each(|pod| wait_for_output(&setup.cluster, pod, "\n"));
    let calls = setup.driver.call_lines().len();
    assert_eq!(calls, 12, "{:?}", setup.driver.call_lines());

    setup.lose_power();
    assert_eq!(
        setup.left().iter().filter(|left| left.starts_with("mounted")).count(),
        0,
        "{:?}",
        setup.left()
    );
    for name in ["deleted", "deleted-raw"] {
        setup.cluster.kubectl.delete(name);
    }
    for name in ["forced", "forced-raw"] {
        setup.cluster.kubectl.ok(&["delete", "pod", name, "--force", "--grace-period=0"]);
    }
    setup.cluster.node.resume_runtime();
    setup.cluster.node.start_kubelet();
    setup.driver.start().register();

    for (pod, output) in [(&before[0], "again\n"), (&before_devices[0], "again\n")] {
        wait_for_output(&setup.cluster, pod, output);
        let name = pod["metadata"]["name"].as_str().expect("a name");
        let after = setup.cluster.pod_when(name, "runs a new container", |now| {
            restarts(now, "main") == 1 && container(now, "main")["state"]["running"].is_object()
        });
        assert_eq!(uid(&after), uid(pod));
        assert_eq!(setup.calls_for(name, calls), ["NodeStageVolume", "NodePublishVolume"]);
    }
    for pod in before[1..].iter().chain(&before_devices[1..]) {
        setup.cluster.wait_until_gone(pod);
        let name = pod["metadata"]["name"].as_str().expect("a name");
        setup.cluster.node.eventually("the volume of the deleted pod is unstaged", |_| {
            match setup.calls_for(name, calls) {
                calls if calls == ["NodeUnpublishVolume", "NodeUnstageVolume"] => Ok(()),
                calls => Err(format!("{calls:?}")),
            }
        });
    }
    setup.delete_and_wait(&before[0]);
    setup.delete_and_wait(&before_devices[0]);
    setup.check_clean();
}
