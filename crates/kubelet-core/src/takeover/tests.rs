//! What is decided about pods, by golden text, and about state files.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use config::KubeletConfiguration;
use expect_test::{Expect, expect};
use model::PodUid;
use model::annotations::CONFIG_SOURCE;
use model::cpu_set::CpuSet;
use model::topology::NumaMask;
use resources_core::cpus::{CPU_STATE_FILE, CpuState, write_cpu_state};
use resources_core::memory::checkpoint::{FILE as MEMORY_STATE_FILE, write_memory_checkpoint};
use resources_core::memory::{Block, MemoryState};

use super::*;
use crate::pods::fixture::{Case, case};

/// One found pod in the notation of [`crate::pods::fixture`], with what is special about it.
struct Setting {
    case: Case,
    uid: &'static str,
    source: Option<PodSource>,
    is_desired: bool,
    has_api: bool,
    has_dir: bool,
    is_elsewhere: bool,
    has_unreadable_path: bool,
    devices_elsewhere: Option<String>,
    assigned: Assigned,
}

fn setting(line: &str) -> Setting {
    let case = case(line);
    Setting {
        case,
        uid: "uid",
        source: Some(PodSource::File),
        is_desired: true,
        has_api: false,
        has_dir: true,
        is_elsewhere: false,
        has_unreadable_path: false,
        devices_elsewhere: None,
        assigned: Assigned::default(),
    }
}

impl Setting {
    fn report(&self) -> TakeoverReport {
        let mut observed = self.case.observed.clone();
        observed.pod.uid = self.uid.into();
        let volumes = vec![
            FoundVolume {
                plugin_dir: "kubernetes.io~empty-dir".to_owned(),
                name: "v".to_owned(),
                is_mounted: true,
            },
            FoundVolume {
                plugin_dir: "kubernetes.io~rbd".to_owned(),
                name: "w".to_owned(),
                is_mounted: false,
            },
        ];
        let found = FoundPod {
            observed,
            source: self.source,
            dir: self.has_dir.then_some(FoundDirectory { is_own: false, volumes }),
            cgroup: FoundCgroup {
                actual: "/kubepods/poduid".to_owned(),
                location: if self.is_elsewhere {
                    CgroupLocation::Elsewhere
                } else if self.case.cgroup == CgroupState::Missing {
                    CgroupLocation::Removed
                } else {
                    CgroupLocation::Here
                },
            },
        };
        let desired = self.is_desired.then(|| self.case.pod.clone());
        compute_takeover(&TakeoverInputs {
            pods: &[found],
            static_pods: desired.as_slice(),
            manifest_errors: &[],
            has_unreadable_path: self.has_unreadable_path,
            has_api: self.has_api,
            has_url: false,
            files: Vec::new(),
            assigned: self.assigned.clone(),
            devices_elsewhere: self.devices_elsewhere.as_deref(),
            cgroups: CgroupFacts { configured: CgroupDriver::Cgroupfs, of_runtime: None },
            features: self.case.features,
            now: self.case.now,
        })
    }

    /// Each pod with what happens to it, and why.
    fn fates(&self) -> String {
        let report = self.report();
        let mut text = String::new();
        for pod in &report.pods {
            let _ = writeln!(text, "{} {}: {}", pod.uid, pod.fate, pod.why.join("; "));
        }
        text + if report.is_harmless { "harmless\n" } else { "" }
    }
}

fn check(setting: &Setting, expected: &Expect) {
    expected.assert_eq(&setting.fates());
}

#[test]
fn running_static_pod_of_an_unchanged_manifest_is_kept() {
    let running = "sidecar:s main:a | sandbox s=running a=running(#3)";
    check(
        &setting(running),
        &expect![[r#"
        uid is kept: 
        harmless
    "#]],
    );
    check(
        &setting("main:a | sandbox a=exited(1,5s,#3)"),
        &expect![[r#"
        uid is kept: no container runs now; it is continued as before
        harmless
    "#]],
    );
}

#[test]
fn static_pod_is_restarted_for_a_changed_container_or_a_removed_cgroup_and_kept_with_one_elsewhere() {
    check(
        &setting("main:a main:b | sandbox a=running(old) b=running c=running"),
        &expect![[r#"
        uid IS RESTARTED: container c is not in the manifest; container a has another image in its manifest
    "#]],
    );
    check(
        &setting("main:a | sandbox a=running cgroup=missing"),
        &expect![[r#"
        uid IS RESTARTED: its cgroup was removed
    "#]],
    );
    let mut elsewhere = setting("main:a | sandbox a=running");
    elsewhere.is_elsewhere = true;
    check(
        &elsewhere,
        &expect![[r#"
        uid is kept: its cgroup is /kubepods/poduid, which is not where this kubelet looks for it
    "#]],
    );
    assert!(
        elsewhere.report().notes.iter().any(|note| note.contains("the node is not ready until cgroupRoot"))
    );
    check(
        &setting("hostNetwork main:a | sandbox a=running"),
        &expect![[r#"
        uid IS RESTARTED: its manifest has another hostNetwork
    "#]],
    );
}

#[test]
fn static_pod_of_another_uid_is_replaced_and_one_without_a_manifest_stopped() {
    let mut pod = setting("main:a | sandbox a=running");
    pod.uid = "0123456789abcdef0123456789abcdef";
    check(
        &pod,
        &expect![[r#"
        0123456789abcdef0123456789abcdef IS STOPPED AND MADE AGAIN: the UID of its manifest is uid: manifest, file name or node name differ from those that it was started with
        uid is started: it does not run
    "#]],
    );
    pod.is_desired = false;
    check(
        &pod,
        &expect![[r#"
        0123456789abcdef0123456789abcdef IS STOPPED: no manifest describes it
    "#]],
    );
    let mut dead = setting("main:a | sandbox=dead a=exited(0)");
    dead.is_desired = false;
    check(
        &dead,
        &expect![[r#"
        uid IS REMOVED: no manifest describes it
    "#]],
    );
}

#[test]
fn static_pod_that_does_not_run_is_started() {
    check(
        &setting("main:a | sandbox=dead a=exited(0)"),
        &expect![[r#"
        uid is started: nothing of it runs now
        harmless
    "#]],
    );
    check(
        &setting("main:a | "),
        &expect![[r#"
        uid is started: it has not run yet
        harmless
    "#]],
    );
}

#[test]
fn static_pod_is_kept_while_the_path_of_manifests_cannot_be_read() {
    let mut pod = setting("main:a | sandbox a=running");
    (pod.is_desired, pod.has_unreadable_path) = (false, true);
    check(
        &pod,
        &expect![[r#"
        uid is kept: as long as staticPodPath cannot be read
        harmless
    "#]],
    );
}

#[test]
fn pod_of_the_api_is_kept_with_an_api_server_and_stopped_without() {
    let mut pod = setting("main:a | sandbox a=running");
    (pod.source, pod.is_desired, pod.has_api) = (None, false, true);
    pod.uid = "11111111-2222-4333-8444-555555555555";
    check(
        &pod,
        &expect![[r#"
        11111111-2222-4333-8444-555555555555 is kept: as long as the API server has it
        harmless
    "#]],
    );
    pod.case.cgroup = CgroupState::Missing;
    check(
        &pod,
        &expect![[r#"
        11111111-2222-4333-8444-555555555555 IS RESTARTED: its cgroup was removed
    "#]],
    );
    pod.has_api = false;
    check(
        &pod,
        &expect![[r#"
        11111111-2222-4333-8444-555555555555 IS STOPPED: it is of an API server, and this kubelet has no kubeconfig
    "#]],
    );
    (pod.source, pod.uid) = (Some(PodSource::Http), "u");
    check(
        &pod,
        &expect![[r#"
        u IS STOPPED: it is of a URL, and staticPodURL is not set
    "#]],
    );
    pod.source = None;
    check(
        &pod,
        &expect![[r#"
        u IS STOPPED: no source has it
    "#]],
    );
}

#[test]
fn source_and_cgroup_come_from_the_verbose_status_of_the_sandbox() {
    let of_containerd = serde_json::json!({"config": {
        "annotations": {CONFIG_SOURCE: "http"}, "linux": {"cgroup_parent": "/kubepods/podx"},
    }});
    let found = (Some(PodSource::Http), "/kubepods/podx".to_owned());
    assert_eq!(source_in(&of_containerd.to_string()), found);
    let of_cri_o = serde_json::json!({"runtimeSpec": {"annotations": {CONFIG_SOURCE: "api"}}});
    assert_eq!(source_in(&of_cri_o.to_string()), (Some(PodSource::Api), String::new()));
    assert_eq!(source_in(""), (None, String::new()));
}

const OF_UID: &str = r#"{"Data":{"PodDeviceEntries":[{"PodUID":"uid","ContainerName":"a","ResourceName":"example.com/x","DeviceIDs":{"-1":["d"]},"AllocResp":""}],"RegisteredDevices":{"example.com/x":["d"]}},"Checksum":4261053155}"#;

/// The Go kubelet keeps devices in `/var/lib/kubelet` whatever its root directory is.
#[test]
fn devices_outside_the_root_directory_are_noted_if_pods_of_the_node_have_them() {
    let mut setting = setting("main:a | sandbox a=running");
    assert_eq!(setting.report().notes, Vec::<String>::new());
    setting.devices_elsewhere = Some(OF_UID.to_owned());
    assert_eq!(
        setting.report().notes,
        [
            "pods of this node have devices in /var/lib/kubelet/device-plugins/kubelet_internal_checkpoint, which this kubelet does \
             not read, because its root directory is another one: mount that directory to device-plugins in the root directory first"
        ]
    );
    setting.uid = "another";
    assert_eq!(
        setting.report().notes,
        Vec::<String>::new(),
        "the devices are those of another node on this machine"
    );
}

#[test]
fn report_names_pods_containers_volumes_and_files_in_plain_words() {
    let mut report = setting("main:a | sandbox a=running(#3)").report();
    let file =
        |path: &str, usage, why: &str| FileReport { path: path.to_owned(), usage, why: why.to_owned() };
    report.files = vec![
        file("cpu_manager_state", FileUse::Refused, "another policy"),
        file("lost+found", FileUse::Unknown, ""),
        file("memory_manager_state", FileUse::Used, ""),
    ];
    report.notes = vec!["cgroupDriver is cgroupfs, the runtime uses systemd".to_owned()];
    expect![[r#"
        The pods were run by another kubelet: 1.
        Note: cgroupDriver is cgroupfs, the runtime uses systemd

        Pods:
          ns/p (file, UID uid): is kept
            container a: running, 3 restarts
            volume v (kubernetes.io/empty-dir), mounted
            volume w (kubernetes.io/rbd), of a type that this kubelet does not have

        State files:
          cpu_manager_state IS REFUSED, the kubelet would not start: another policy
          lost+found is not known, stays as it is
          memory_manager_state is used

        Nothing would be restarted, stopped or removed.
    "#]]
    .assert_eq(&report.to_string());
}

/// The state of a pod with a container that has CPUs, memory and a device, and with CPUs of its own.
fn assigned(config: &KubeletConfiguration) -> Assigned {
    let (uid, cpus): (PodUid, CpuSet) = ("uid".into(), "2-3".parse().expect("CPUs"));
    let containers = BTreeMap::from([("a".to_owned(), cpus.clone())]);
    let cpus = CpuState {
        assigned: [(uid.clone(), containers)].into(),
        pods: [(uid.clone(), cpus)].into(),
        ..CpuState::default()
    };
    let block = Block { numa: NumaMask::of([0, 1]), resource: "memory".to_owned(), bytes: 1024 };
    let containers = BTreeMap::from([("a".to_owned(), vec![block])]);
    let memory = MemoryState { containers: [(uid, containers)].into(), ..MemoryState::default() };
    let mut assigned = Assigned::default();
    for (path, text) in [
        (CPU_STATE_FILE, write_cpu_state("static", &cpus, true)),
        (MEMORY_STATE_FILE, write_memory_checkpoint("Static", &memory, true)),
        (DEVICES, OF_UID.to_owned()),
    ] {
        let entry = RootEntry { path: path.to_owned(), text: Some(text), is_dir: false };
        assigned.add(&entry, StateSettings { config, has_pod_level_managers: true });
    }
    assigned
}

#[test]
fn cpus_memory_and_devices_of_the_state_files_are_shown_at_their_containers() {
    let pinning = KubeletConfiguration {
        cpu_manager_policy: "static".to_owned(),
        memory_manager_policy: "Static".to_owned(),
        ..KubeletConfiguration::default()
    };
    let mut setting = setting("main:a main:b | sandbox a=running b=running");
    setting.assigned = assigned(&pinning);
    let text = setting.report().to_string();
    let shown: Vec<&str> =
        text.lines().filter(|line| line.contains("uid") || line.contains("container")).collect();
    assert_eq!(
        shown,
        [
            "  ns/p (file, UID uid, CPUs 2-3): is kept",
            "    container a: running, 0 restarts, CPUs 2-3, 1024 bytes of memory of NUMA nodes 0,1, example.com/x d",
            "    container b: running, 0 restarts",
        ]
    );
    let of_other_policy = assigned(&KubeletConfiguration::default());
    assert_eq!(of_other_policy.to_container(&"uid".into(), "a").cpus, "", "the file is refused");
}

fn file(path: &str, text: &str, config: &KubeletConfiguration) -> Option<(FileUse, String)> {
    let is_dir = text.is_empty();
    let entry = RootEntry { path: path.to_owned(), text: (!is_dir).then(|| text.to_owned()), is_dir };
    let report = compute_file(&entry, StateSettings { config, has_pod_level_managers: false })?;
    Some((report.usage, report.why))
}

#[test]
fn state_files_of_another_policy_are_refused_and_damaged_ones_set_aside() {
    let none = KubeletConfiguration::default();
    let pinning = KubeletConfiguration {
        cpu_manager_policy: "static".to_owned(),
        memory_manager_policy: "Static".to_owned(),
        ..none.clone()
    };
    let cpus = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;
    let memory = r#"{"policyName":"None","machineState":{},"checksum":4236770233}"#;
    let used = |path, text, config| file(path, text, config).map(|(usage, _)| usage);
    for (path, text) in [("cpu_manager_state", cpus), ("memory_manager_state", memory)] {
        assert_eq!(used(path, text, &none), Some(FileUse::Used), "{path}");
        assert_eq!(used(path, text, &pinning), Some(FileUse::Refused), "{path}");
        assert_eq!(used(path, "{", &none), Some(FileUse::SetAside), "{path}");
        assert_eq!(used(path, "{", &pinning), Some(FileUse::Refused), "{path}");
    }
    assert_eq!(used("allocated_pods_state", "{", &none), Some(FileUse::SetAside));
    let claims = r#"{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",\"ClaimInfoStateList\":[]}","Checksum":2361995144}"#;
    assert_eq!(used("dra_manager_state", claims, &none), Some(FileUse::Used));
    assert_eq!(used("dra_manager_state", "{}", &none), Some(FileUse::Refused));
    assert_eq!(used("dra_health_state", "{}", &none), Some(FileUse::Used));
    assert_eq!(used("dra_health_state", "{", &none), Some(FileUse::SetAside));
    assert_eq!(used("pods", "", &none), None);
    assert_eq!(used("kubeadm-flags.env", "", &none), None);
    assert_eq!(used("lost+found", "", &none), Some(FileUse::Unknown));
}
