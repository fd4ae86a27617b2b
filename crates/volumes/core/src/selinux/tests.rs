use serde_json::{Value, json};

use super::*;
use crate::csi::staging::{Labelled, StagedVolume, Staging, VolumeUser};

const FILE_LABEL: &str = "system_u:object_r:container_file_t:s0";
const LABEL: &str = "system_u:object_r:container_file_t:s0:c1,c2";

fn node(all_access_modes: bool) -> SelinuxNode<'static> {
    SelinuxNode { file_label: Some(FILE_LABEL), all_access_modes }
}

/// A pod whose containers use the volume `data`, each with these options.
fn pod(policy: Option<&str>, options: &[Value]) -> Pod {
    let containers: Vec<Value> = options
        .iter()
        .enumerate()
        .map(|(index, options)| {
            json!({
                "name": format!("c{index}"), "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                "securityContext": {"seLinuxOptions": options},
            })
        })
        .collect();
    let context = json!({"seLinuxChangePolicy": policy});
    let spec = json!({"containers": containers, "securityContext": context});
    serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap()
}

fn modes(mode: &str) -> Vec<String> {
    vec![mode.to_owned()]
}

/// The label with which the volume is mounted, and the one that is wanted.
fn labels(
    node: SelinuxNode<'_>,
    pod: &Pod,
    is_supported: bool,
    mode: &str,
) -> (Option<String>, Option<String>) {
    let modes = modes(mode);
    let volume = LabelledVolume { name: "data", is_supported, access_modes: Some(&modes) };
    match compute_label(node, pod, &VolumeIndex::of(pod), volume) {
        Labelling::Label(VolumeLabel { mount, wanted }) => (mount, wanted),
        Labelling::None => (None, None),
        Labelling::Several(labels) => panic!("{labels:?}"),
    }
}

/// The cases of `TestGetMountSELinuxLabel` of Kubernetes, with the gate `SELinuxChangePolicy`, which is always on.
#[test]
fn label_of_a_volume_is_that_of_the_containers_unless_the_pod_or_the_driver_cannot() {
    let one = || vec![json!({"level": "s0:c123,c456"})];
    let label = "system_u:object_r:container_file_t:s0:c123,c456";
    for (policy, options, is_supported, mode, expected) in [
        (None, vec![], true, READ_WRITE_ONCE_POD, None),
        (Some("Recursive"), vec![], true, READ_WRITE_ONCE_POD, None),
        (Some("Recursive"), one(), true, READ_WRITE_ONCE_POD, None),
        (None, one(), true, READ_WRITE_ONCE_POD, Some(label)),
        (Some("MountOption"), one(), true, READ_WRITE_ONCE_POD, Some(label)),
        (None, one(), true, "ReadWriteMany", Some(label)),
        (Some("MountOption"), one(), true, "ReadWriteMany", Some(label)),
        (Some("Recursive"), one(), false, READ_WRITE_ONCE_POD, None),
        (None, one(), false, READ_WRITE_ONCE_POD, None),
        (Some("MountOption"), one(), false, READ_WRITE_ONCE_POD, None),
        (None, [one(), one(), one(), one()].concat(), true, READ_WRITE_ONCE_POD, Some(label)),
    ] {
        let (_, wanted) = labels(node(false), &pod(policy, &options), is_supported, mode);
        assert_eq!(wanted.as_deref(), expected, "{policy:?} {options:?} {is_supported} {mode}");
    }
    let several = ["s0:c123,c456", "s0:c234,c567", "s0:c345,c678"].map(|level| json!({"level": level}));
    for policy in [None, Some("Recursive")] {
        let volume = LabelledVolume { name: "data", is_supported: true, access_modes: None };
        let pod = pod(policy, &several);
        let labelling = compute_label(node(false), &pod, &VolumeIndex::of(&pod), volume);
        let Labelling::Several(labels) = labelling else { panic!("the containers do not agree") };
        assert_eq!((labels.len(), &*labels[0]), (3, label));
    }
}

/// The cases of `Test_AddPodToVolume_SELinuxSinglePod` of Kubernetes.
#[test]
fn volume_is_mounted_with_its_label_if_one_pod_uses_it_or_the_gate_is_on() {
    let complete =
        json!({"user": "system_u", "role": "object_r", "type": "container_t", "level": "s0:c1,c2"});
    let (rwop, rwx) = (READ_WRITE_ONCE_POD, "ReadWriteMany");
    for (gate, is_supported, mode, options, policy, expected) in [
        (false, true, rwop, Some(complete.clone()), None, Some(LABEL)),
        (false, true, rwop, Some(json!({"level": "s0:c1,c2"})), None, Some(LABEL)),
        (false, true, rwop, None, None, None),
        (false, false, rwop, Some(complete.clone()), None, None),
        (false, true, rwx, Some(complete.clone()), None, None),
        (false, true, rwx, Some(complete.clone()), Some("Recursive"), None),
        (false, true, rwx, Some(complete.clone()), Some("MountOption"), None),
        (false, true, rwop, Some(complete.clone()), Some("Recursive"), None),
        (false, true, rwop, Some(complete.clone()), Some("MountOption"), Some(LABEL)),
        (true, true, rwx, Some(complete.clone()), None, Some(LABEL)),
        (true, true, rwx, Some(complete.clone()), Some("Recursive"), None),
        (true, true, rwx, Some(complete.clone()), Some("MountOption"), Some(LABEL)),
        (true, true, rwop, Some(complete.clone()), Some("Recursive"), None),
        (true, true, rwop, Some(complete), Some("MountOption"), Some(LABEL)),
    ] {
        let pod = pod(policy, &[options.clone().unwrap_or_default()]);
        let (mount, _) = labels(node(gate), &pod, is_supported, mode);
        assert_eq!(mount.as_deref(), expected, "{gate} {is_supported} {mode} {options:?} {policy:?}");
    }
    let pod = pod(None, &[json!({"level": "s0:c1,c2"})]);
    let off = SelinuxNode { file_label: None, all_access_modes: true };
    assert_eq!(labels(off, &pod, true, rwop), (None, None), "a node without SELinux");
}

/// The cases of `Test_AddPodToVolume_SELinux_MultiplePods` of Kubernetes.
#[test]
fn pods_that_want_other_labels_are_refused_where_the_volume_is_mounted_with_one() {
    let (same, other) = ("s0:c1,c2", "s0:c98,c99");
    let (recursive, option) = (Some("Recursive"), Some("MountOption"));
    let (rwop, rwx) = (READ_WRITE_ONCE_POD, "ReadWriteMany");
    for (gate, mode, second, policies, is_refused, expected) in [
        (false, rwop, same, (None, None), false, Some(LABEL)),
        (false, rwop, other, (None, None), true, Some(LABEL)),
        (false, rwx, same, (None, None), false, None),
        (false, rwop, same, (recursive, recursive), false, None),
        (false, rwop, same, (recursive, None), true, None),
        (false, rwx, same, (recursive, recursive), false, None),
        (false, rwx, same, (option, option), false, None),
        (false, rwx, same, (option, recursive), false, None),
        (false, rwx, other, (recursive, recursive), false, None),
        (false, rwx, other, (option, option), false, None),
        (true, rwop, same, (None, None), false, Some(LABEL)),
        (true, rwop, same, (recursive, recursive), false, None),
        (true, rwop, same, (recursive, None), true, None),
        (true, rwx, same, (recursive, recursive), false, None),
        (true, rwx, same, (option, option), false, Some(LABEL)),
        (true, rwx, same, (None, option), false, Some(LABEL)),
        (true, rwx, same, (option, recursive), true, Some(LABEL)),
        (true, rwx, other, (recursive, recursive), false, None),
        (true, rwx, other, (option, option), true, Some(LABEL)),
    ] {
        let mut staging = Staging::default();
        let volume = StagedVolume { driver: "d".to_owned(), handle: "v".to_owned(), device: None };
        let mut add = |name: &str, level: &str, policy| {
            let pod = pod(policy, &[json!({"level": level})]);
            let (mount, wanted) = labels(node(gate), &pod, true, mode);
            let user = VolumeUser { pod: name.to_owned().into(), name: "pv".to_owned() };
            let is_enforced = mounts_with_label(node(gate), Some(&modes(mode)));
            staging.add_labelled_user(&volume, user, &VolumeLabel { mount, wanted }, is_enforced)
        };
        let case = format!("{gate} {mode} {second} {policies:?}");
        assert_eq!(add("first", same, policies.0), Labelled::First, "{case}");
        let outcome = add("second", second, policies.1);
        assert_eq!(matches!(outcome, Labelled::Conflict { is_refused: true, .. }), is_refused, "{case}");
        assert_eq!(staging.label(&volume), expected, "{case}: the first pod decides");
    }
}

/// As the case `pod with SELinuxOptions` of `TestGetPodVolumeNames` of Kubernetes.
#[test]
fn options_of_a_container_replace_those_of_the_pod_and_each_user_of_the_volume_counts() {
    let mounts = json!([{"name": "data", "mountPath": "/data"}]);
    let own = |level: &str| json!({"seLinuxOptions": {"type": "global_context_t", "level": level}});
    let pod: Pod = serde_json::from_value(json!({"spec": {
        "securityContext": own("s0:c1,c2"),
        "initContainers": [{"name": "init", "securityContext": own("s0:c3,c4"), "volumeMounts": mounts}],
        "containers": [
            {"name": "own", "securityContext": own("s0:c5,c6"), "volumeMounts": mounts},
            {"name": "inherits", "volumeMounts": mounts},
            {"name": "other", "securityContext": own("s0:c7,c8"), "volumeMounts": []},
        ],
    }}))
    .unwrap();
    let volume = LabelledVolume { name: "data", is_supported: true, access_modes: None };
    let labels = ["s0:c1,c2", "s0:c3,c4", "s0:c5,c6"];
    let labels = labels.map(|level| format!("system_u:object_r:container_file_t:{level}"));
    let labelling = compute_label(node(false), &pod, &VolumeIndex::of(&pod), volume);
    assert_eq!(labelling, Labelling::Several(labels.into()));
}

/// Of the options only user and level are also those of files, as in `label.InitLabels` of the library of the Go kubelet.
#[test]
fn label_of_files_has_the_user_and_the_level_of_the_process() {
    for (options, expected) in [
        (json!({"level": "s0:c1,c2"}), Some(LABEL)),
        (json!({"type": "spc_t", "role": "r", "level": "s0:c1,c2"}), Some(LABEL)),
        (json!({"user": "u", "level": "s0-s0:c0.c1023"}), Some("u:object_r:container_file_t:s0-s0:c0.c1023")),
        // The runtime chooses the level.
        (json!({"type": "spc_t"}), None),
        (json!({"level": ""}), None),
        (json!({}), None),
    ] {
        let (mount, _) =
            labels(node(false), &pod(None, std::slice::from_ref(&options)), true, READ_WRITE_ONCE_POD);
        assert_eq!(mount.as_deref(), expected, "{options}");
    }
}

#[test]
fn metrics_name_the_access_mode_that_allows_most() {
    let modes = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for (names, expected) in [
        (&["ReadWriteOnce", "ReadWriteMany"][..], "RWX"),
        (&["ReadWriteOnce", "ReadOnlyMany"], "ROX"),
        (&["ReadWriteOnce"], "RWO"),
        (&["ReadWriteOncePod"], "RWOP"),
        (&[], ""),
    ] {
        assert_eq!(access_mode_name(Some(&modes(names))), expected);
    }
    assert_eq!(access_mode_name(None), "inline");
    let several = modes(&["ReadWriteOncePod", "ReadWriteOnce"]);
    assert!(!mounts_with_label(node(false), Some(&several)) && mounts_with_label(node(true), Some(&several)));
}
