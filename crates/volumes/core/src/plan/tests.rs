use model::k8s::{EmptyDirVolumeSource, Quantity};
use model::stats::{FilesystemSpace, TreeUsage};
use serde_json::{Value, json};

use super::*;
use crate::types::{VolumeSource, memory_size, size_on_node};

fn pod(volume: Value, container: Value) -> Pod {
    let mut volume = volume;
    volume["name"] = "data".into();
    let mut container = container;
    container["name"] = "app".into();
    let pod = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "pod-1"},
        "spec": {"containers": [container], "volumes": [volume]},
    });
    serde_json::from_value(pod).expect("a pod")
}

fn the_volume(pod: &Pod) -> &Volume {
    &spec_of(pod).volumes.as_deref().expect("volumes")[0]
}

/// The source of a plan, and where it has one of its own, the name.
fn shown(plan: &VolumePlan) -> String {
    let access = if plan.read_only { " read-only" } else { "" };
    format!("{} {:?}{access}", plan.name, plan.source)
}

fn planned(volume: Value, container: Value) -> String {
    let pod = pod(volume, container);
    match spec_plan(&pod, the_volume(&pod)) {
        Ok(SpecPlan::Volume(plan)) => shown(&plan),
        Ok(SpecPlan::Claim(claim)) => format!("{claim:?}"),
        Err(error) => format!("refused: {error}"),
    }
}

#[test]
fn each_volume_type_has_a_plan_or_its_own_error() {
    let cases = [
        (json!({"emptyDir": {}}), "data EmptyDir(EmptyDirPlan { medium: Disk })"),
        (
            json!({"emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}),
            "data EmptyDir(EmptyDirPlan { medium: Memory { size_bytes: 1048576 } })",
        ),
        (json!({"emptyDir": {"medium": "Tape"}}), "refused: unknown storage medium \"Tape\""),
        (
            json!({"hostPath": {"path": "/x", "type": "File"}}),
            "data HostPath(HostPathPlan { path: \"/x\", kind: \"File\" })",
        ),
        (json!({"configMap": {"name": "c"}}), "data Payload(PayloadPlan { medium: Disk }) read-only"),
        (
            json!({"projected": {}}),
            "data Payload(PayloadPlan { medium: Memory { size_bytes: 0 } }) read-only",
        ),
        (
            json!({"nfs": {"server": "fd00::1", "path": "/e", "readOnly": true}}),
            "data Nfs(NfsPlan { export: \"[fd00::1]:/e\", options: [\"ro\"] }) read-only",
        ),
        (
            json!({"nfs": {"server": "-T/tmp/fstab", "path": "/e"}}),
            "refused: NFS server \"-T/tmp/fstab\" must be a host name or an IP address",
        ),
        (
            json!({"nfs": {"server": "nas", "path": "-obind"}}),
            "refused: NFS path \"-obind\" must be an absolute path",
        ),
        (
            json!({"persistentVolumeClaim": {"claimName": "c", "readOnly": true}}),
            "ClaimUse { name: \"c\", read_only: true, is_ephemeral: false }",
        ),
        (json!({"ephemeral": {}}), "ClaimUse { name: \"web-data\", read_only: false, is_ephemeral: true }"),
        (
            json!({"csi": {"driver": "d.example", "fsType": "xfs", "nodePublishSecretRef": {"name": "s"}}}),
            concat!(
                "data Csi(CsiPlan { spec_name: \"data\", driver: \"d.example\", ",
                "handle: \"csi-6944c8dfe48761f20bab978d8831875f41b6aec713e02bf5703169c164beefc4\", ",
                "lifecycle: Ephemeral, is_device: false, fs_type: \"xfs\", attributes: {}, access_modes: [], ",
                "mount_options: [], stage_secret: None, ",
                "publish_secret: Some(SecretName { namespace: \"shop\", name: \"s\" }), expand_secret: None, ",
                "is_migrated: false })",
            ),
        ),
        (
            json!({"csi": {"driver": "../d"}}),
            "refused: kubernetes.io/csi: driver name \"../d\" cannot be used: may not contain '/'",
        ),
        (json!({"fc": {}}), "refused: fc: no fc disk information found. failed to make a new mounter"),
        (
            json!({"fc": {"targetWWNs": ["a", "b"], "lun": 3, "fsType": "xfs", "readOnly": true}}),
            concat!(
                "data Fc(FcPlan { disk: Lun { wwns: [\"a\", \"b\"], lun: 3 }, ",
                "unique_name: \"kubernetes.io/fc/[a b]:3\", fs_type: \"xfs\", options: [], is_device: false }) read-only",
            ),
        ),
        (
            json!({"fc": {"wwids": ["VENDOR disk 1"]}}),
            concat!(
                "data Fc(FcPlan { disk: Wwids([\"VENDOR_disk_1\"]), ",
                "unique_name: \"kubernetes.io/fc/[VENDOR disk 1]\", fs_type: \"ext4\", options: [], is_device: false })",
            ),
        ),
        (
            json!({"fc": {"wwids": [".."]}}),
            "refused: kubernetes.io/fc: \"..\" cannot be used: may not be '..'",
        ),
        (json!({"cephfs": {"monitors": []}}), "refused: no volume plugin matched"),
    ];
    for (volume, expected) in cases {
        assert_eq!(planned(volume.clone(), json!({})), expected, "{volume}");
    }
}

#[test]
fn flex_volumes_with_unusable_types_are_refused() {
    let of = |fs_type: &str| {
        planned(json!({"flexVolume": {"driver": "vendor/disk", "fsType": fs_type}}), json!({}))
    };
    for fs_type in ["", "ext4", "ntfs-3g", "fuse.sshfs"] {
        assert!(of(fs_type).starts_with("data Flex("), "{}", of(fs_type));
    }
    for fs_type in ["-T/tmp/fstab", "../../tmp/x", "ext4 -x", "ext4,bind", &"x".repeat(33)] {
        assert!(
            of(fs_type).starts_with("refused: ")
                && of(fs_type).ends_with("is not the name of a filesystem type")
        );
    }
}

#[test]
fn volumes_are_counted_by_plugin_as_desired_and_actual() {
    let disk = pod(json!({"emptyDir": {}}), json!({}));
    let claim = pod(json!({"persistentVolumeClaim": {"claimName": "c"}}), json!({}));
    let inline = pod(json!({"csi": {"driver": "d.example"}}), json!({}));
    let sample = |claim: Option<&str>, plugin: &'static str| VolumeSample {
        name: "v".into(),
        claim: claim.map(Into::into),
        plugin: plugin.into(),
        is_off_disk: false,
        is_abnormal: None,
        space: FilesystemSpace::default(),
        used: TreeUsage::default(),
    };
    let measured = [sample(Some("c"), "kubernetes.io/nfs"), sample(None, "kubernetes.io/empty-dir")];
    let pods = [(&disk, true), (&disk, false), (&claim, true), (&inline, true)];
    let counts = count_volumes(pods.into_iter(), measured.iter());
    let expected = [
        ("kubernetes.io/csi:d.example", VolumeCount { desired: 1, actual: 1 }),
        ("kubernetes.io/empty-dir", VolumeCount { desired: 2, actual: 1 }),
        ("kubernetes.io/nfs", VolumeCount { desired: 1, actual: 1 }),
    ];
    assert_eq!(counts, expected.map(|(plugin, count)| (plugin.to_owned(), count)).into());
}

/// `TestCalculateEmptyDirMemorySize` of the Go kubelet, with 16 GiB of allocatable memory.
#[test]
fn empty_dir_in_memory_is_never_larger_than_the_allocatable_memory_of_the_node() {
    let allocatable = Quantity("16Gi".to_owned());
    for (size, expected) in [(1, 1), (10, 10), (0, 16), (32, 16)] {
        assert_eq!(size_on_node(size << 30, Some(&allocatable)), expected << 30, "{size}");
    }
    assert_eq!((size_on_node(1 << 30, None), size_on_node(0, None)), (1 << 30, 0));
}

/// The first three are the cases of the Go kubelet's `TestCalculateEmptyDirMemorySize`; 0 leaves it to the node's
/// allocatable memory. The others follow from its pod cgroup limit.
#[test]
fn empty_dir_in_memory_is_bounded_by_size_limit_and_pod_cgroup_limit() {
    let limits = |memory: &str| json!({"name": "c", "resources": {"limits": {"memory": memory}}});
    let requests = json!({"name": "c", "resources": {"requests": {"memory": "10Gi"}}});
    let mut sidecar = limits("1Gi");
    sidecar["restartPolicy"] = "Always".into();
    let gi = |number: u64| number << 30;
    let cases = [
        ("EmptyDirLocalLimit", json!({"containers": [limits("10Gi")]}), "1Gi", gi(1)),
        ("PodLocalLimit", json!({"containers": [limits("10Gi")]}), "0", gi(10)),
        ("NodeAllocatableLimit", json!({"containers": [requests]}), "0", 0),
        (
            "pod-level limit",
            json!({"containers": [limits("1Gi")], "resources": {"limits": {"memory": "3Gi"}}}),
            "0",
            gi(3),
        ),
        (
            "pod-level limit alone",
            json!({"containers": [{"name": "c"}], "resources": {"limits": {"memory": "3Gi"}}}),
            "0",
            gi(3),
        ),
        (
            "largest init container",
            json!({"containers": [limits("1Gi")], "initContainers": [limits("5Gi")]}),
            "0",
            gi(5),
        ),
        (
            "an init container without a limit",
            json!({"containers": [limits("1Gi")], "initContainers": [{"name": "i"}]}),
            "0",
            0,
        ),
        ("sidecar", json!({"containers": [limits("1Gi")], "initContainers": [sidecar]}), "0", gi(2)),
        ("overhead", json!({"containers": [limits("1Gi")], "overhead": {"memory": "1Gi"}}), "0", gi(2)),
        ("one without a limit", json!({"containers": [limits("1Gi"), {"name": "d"}]}), "2Gi", gi(2)),
    ];
    for (name, spec, size_limit, expected) in cases {
        let pod = json!({"metadata": {"name": "p"}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let source = json!({"medium": "Memory", "sizeLimit": size_limit});
        let source: EmptyDirVolumeSource = serde_json::from_value(source).expect("a source");
        assert_eq!(memory_size(&pod, &source), expected, "{name}");
    }
}

#[test]
fn huge_pages_have_the_size_that_the_containers_request() {
    let asks = |resources: Value| json!({"resources": {"limits": resources}});
    let (any, two) =
        (json!({"emptyDir": {"medium": "HugePages"}}), json!({"emptyDir": {"medium": "HugePages-2Mi"}}));
    let both = json!({"hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"});
    assert_eq!(
        planned(any.clone(), asks(json!({"hugepages-2Mi": "4Mi"}))),
        "data EmptyDir(EmptyDirPlan { medium: HugePages { page_bytes: 2097152 } })"
    );
    assert_eq!(
        planned(two.clone(), asks(both.clone())),
        "data EmptyDir(EmptyDirPlan { medium: HugePages { page_bytes: 2097152 } })"
    );
    let several = "medium: HugePages can't be used if container requests multiple huge page sizes";
    assert!(planned(any.clone(), asks(both)).contains(several));
    let none = |medium: &str| {
        format!(
            "medium {medium}: hugePages storage requested, but there is no resource request for huge pages"
        )
    };
    assert!(planned(any, asks(json!({}))).contains(&none("HugePages")));
    assert!(planned(two, asks(json!({"hugepages-1Gi": "1Gi"}))).contains(&none("HugePages-2Mi")));
}

#[test]
fn huge_pages_may_be_requested_by_the_pod() {
    let of_pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "p"},
        "spec": {"resources": {"requests": {"hugepages-2Mi": "4Mi"}}, "containers": [{"name": "c"}]},
    }))
    .unwrap();
    for medium in ["HugePages", "HugePages-2Mi"] {
        let volume: Volume =
            serde_json::from_value(json!({"name": "data", "emptyDir": {"medium": medium}})).unwrap();
        let Ok(SpecPlan::Volume(plan)) = spec_plan(&of_pod, &volume) else { panic!("{medium}") };
        let expected = "data EmptyDir(EmptyDirPlan { medium: HugePages { page_bytes: 2097152 } })";
        assert_eq!(shown(&plan), expected, "{medium}");
    }
}

fn claim(change: impl Fn(&mut Value)) -> PersistentVolumeClaim {
    let mut claim = json!({
        "metadata": {"name": "c", "uid": "claim-1"},
        "spec": {"volumeName": "pv-1"},
        "status": {"phase": "Bound"},
    });
    change(&mut claim);
    serde_json::from_value(claim).expect("a claim")
}

fn bound(wanted: &ClaimUse, claim: &PersistentVolumeClaim) -> String {
    let pod = pod(json!({}), json!({}));
    bound_volume(&pod, wanted, claim).map_or_else(|error| error, str::to_owned)
}

#[test]
fn claim_must_be_bound_and_an_ephemeral_one_owned_by_the_pod() {
    let plain = ClaimUse { name: "c".to_owned(), read_only: false, is_ephemeral: false };
    let own = ClaimUse { is_ephemeral: true, ..plain.clone() };
    assert_eq!(bound(&plain, &claim(|_| {})), "pv-1");
    assert_eq!(bound(&plain, &claim(|c| c["status"]["phase"] = "Pending".into())), "PVC is not bound");
    assert_eq!(bound(&plain, &claim(|c| c["spec"] = json!({}))), "PVC is not bound");
    let up = claim(|c| c["spec"]["volumeName"] = "../nodes".into());
    assert_eq!(bound(&plain, &up), "PVC has an invalid volume name \"../nodes\": may not contain '/'");
    let deleted = claim(|c| c["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into());
    assert_eq!(bound(&plain, &deleted), "PVC is being deleted");
    assert_eq!(bound(&own, &claim(|_| {})), "PVC shop/c was not created for pod shop/web (pod is not owner)");
    let owner =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": "pod-1", "controller": true}]);
    assert_eq!(bound(&own, &claim(|c| c["metadata"]["ownerReferences"] = owner.clone())), "pv-1");
}

fn claimed(spec: Value, container: Value) -> String {
    let pod = pod(json!({"persistentVolumeClaim": {"claimName": "c"}}), container);
    let mut spec = spec;
    if spec.get("claimRef").is_none() {
        spec["claimRef"] = json!({"uid": "claim-1"});
    }
    let volume =
        serde_json::from_value(json!({"metadata": {"name": "pv-1"}, "spec": spec})).expect("a volume");
    let wanted = ClaimUse { name: "c".to_owned(), read_only: false, is_ephemeral: false };
    match claimed_plan(&VolumeIndex::of(&pod), the_volume(&pod), &wanted, &claim(|_| {}), &volume) {
        Ok(claimed) => shown(&claimed.plan),
        Err(error) => error,
    }
}

#[test]
fn persistent_volume_must_reference_its_claim_and_match_its_volume_mode() {
    let mounted = json!({"volumeMounts": [{"name": "data", "mountPath": "/d"}]});
    let mapped = json!({"volumeDevices": [{"name": "data", "devicePath": "/dev/x"}]});
    let cases = [
        (
            json!({"local": {"path": "/mnt/a"}}),
            &mounted,
            "pv-1 LocalFiles(LocalFilesPlan { path: \"/mnt/a\", fs_type: \"ext4\", options: [] })",
        ),
        (
            json!({"local": {"path": "/dev/sdb", "fsType": "xfs"}, "mountOptions": ["noatime"]}),
            &mounted,
            "pv-1 LocalFiles(LocalFilesPlan { path: \"/dev/sdb\", fs_type: \"xfs\", options: [\"noatime\"] })",
        ),
        (
            json!({"hostPath": {"path": "/srv", "type": "Directory"}}),
            &mounted,
            "pv-1 HostPath(HostPathPlan { path: \"/srv\", kind: \"Directory\" })",
        ),
        (
            json!({"hostPath": {"path": "/srv"}, "mountOptions": ["noatime"]}),
            &mounted,
            "Mount options are not supported for this volume type",
        ),
        (
            json!({"local": {"path": "/dev/sdb"}, "volumeMode": "Block"}),
            &mapped,
            "pv-1 LocalDevice(LocalDevicePlan { path: \"/dev/sdb\" })",
        ),
        (
            json!({"local": {"path": "/dev/sdb"}, "volumeMode": "Block"}),
            &mounted,
            "volume data has volumeMode Block, but is specified in volumeMounts",
        ),
        (
            json!({"local": {"path": "/mnt/a"}}),
            &mapped,
            "volume data has volumeMode Filesystem, but is specified in volumeDevices",
        ),
        (
            json!({"nfs": {"server": "nas", "path": "/e"}, "mountOptions": ["hard", "nfsvers=4.2"]}),
            &mounted,
            "pv-1 Nfs(NfsPlan { export: \"nas:/e\", options: [\"hard\", \"nfsvers=4.2\"] })",
        ),
        (
            json!({"nfs": {"server": "--x", "path": "/e"}}),
            &mounted,
            "NFS server \"--x\" must be a host name or an IP address",
        ),
        (
            json!({"nfs": {"server": "nas", "path": "/e"}, "mountOptions": ["hard", "-T/x"]}),
            &mounted,
            "mount option \"-T/x\" must not begin with '-'",
        ),
        (
            json!({"local": {"path": "/mnt/a"}, "mountOptions": [""]}),
            &mounted,
            "mount option \"\" must not be empty",
        ),
        (
            json!({"local": {"path": "-T/x", "fsType": "xfs"}}),
            &mounted,
            "pv-1 LocalFiles(LocalFilesPlan { path: \"/-T/x\", fs_type: \"xfs\", options: [] })",
        ),
        (
            json!({"local": {"path": "/dev/sdb", "fsType": "../../bin/sh"}}),
            &mounted,
            "\"../../bin/sh\" is not the name of a filesystem type",
        ),
        (
            json!({"local": {"path": "/a"}, "claimRef": {"uid": "claim-2"}}),
            &mounted,
            "found PV object pv-1 but its pv.Spec.ClaimRef.UID claim-2 does not point to claim.UID claim-1",
        ),
        (
            json!({"local": {"path": "/a"}, "claimRef": null}),
            &mounted,
            "found PV object pv-1 but it has a nil pv.Spec.ClaimRef indicating it is not yet bound to the claim",
        ),
    ];
    for (spec, container, expected) in cases {
        assert_eq!(claimed(spec.clone(), container.clone()), expected, "{spec}");
    }
}

#[test]
fn claimed_volume_of_a_driver_is_known_by_its_handle() {
    let mounted = json!({"volumeMounts": [{"name": "data", "mountPath": "/d"}]});
    let cases = [
        (
            json!({
                "csi": {"driver": "d", "volumeHandle": "h", "nodeStageSecretRef": {"name": "s", "namespace": "n"}},
                "accessModes": ["ReadWriteMany"],
                "mountOptions": ["soft"],
            }),
            &mounted,
            concat!(
                "pv-1 Csi(CsiPlan { spec_name: \"pv-1\", driver: \"d\", handle: \"h\", lifecycle: Persistent, is_device: false, ",
                "fs_type: \"\", attributes: {}, access_modes: [\"ReadWriteMany\"], mount_options: [\"soft\"], ",
                "stage_secret: Some(SecretName { namespace: \"n\", name: \"s\" }), publish_secret: None, ",
                "expand_secret: None, is_migrated: false })",
            ),
        ),
        (
            json!({"csi": {"driver": "d", "volumeHandle": ""}}),
            &mounted,
            "kubernetes.io/csi: the volume handle is empty",
        ),
    ];
    for (spec, container, expected) in cases {
        assert_eq!(claimed(spec.clone(), container.clone()), expected, "{spec}");
    }
}

#[test]
fn persistent_volume_annotations_set_group_and_mount_options() {
    let mut pod = pod(json!({"persistentVolumeClaim": {"claimName": "c"}}), json!({}));
    let volume = |annotations: Value| {
        let spec = json!({"nfs": {"server": "nas", "path": "/e"}, "mountOptions": ["soft"], "claimRef": {"uid": "claim-1"}});
        let volume = json!({"metadata": {"name": "pv-1", "annotations": annotations}, "spec": spec});
        serde_json::from_value::<PersistentVolume>(volume).expect("a volume")
    };
    let wanted = ClaimUse { name: "c".to_owned(), read_only: false, is_ephemeral: false };
    let gid_and_options = |pod: &Pod, annotations: Value| {
        let claimed = claimed_plan(
            &VolumeIndex::of(pod),
            the_volume(pod),
            &wanted,
            &claim(|_| {}),
            &volume(annotations),
        );
        let claimed = claimed.expect("a plan");
        let VolumeSource::Nfs(nfs) = claimed.plan.source else { panic!("{:?}", claimed.plan) };
        (claimed.gid, nfs.options.join(","))
    };
    assert_eq!(gid_and_options(&pod, json!({})), (None, "soft".to_owned()));
    let both =
        json!({"pv.beta.kubernetes.io/gid": "77", "volume.beta.kubernetes.io/mount-options": "hard,noatime"});
    assert_eq!(gid_and_options(&pod, both), (Some(77), "hard,noatime".to_owned()));
    assert_eq!(gid_and_options(&pod, json!({"pv.beta.kubernetes.io/gid": "staff"})).0, None);

    let ready = |gid| ReadyVolume { gid, ..ReadyVolume::at("/v".into()) };
    let volumes = [ready(Some(77)), ready(None), ready(Some(5)), ready(Some(77))];
    assert_eq!(extra_groups(&pod, volumes.iter()), [5, 77]);
    let context = json!({"supplementalGroups": [77]});
    pod.spec.as_mut().expect("a spec").security_context = serde_json::from_value(context).expect("a context");
    assert_eq!(extra_groups(&pod, volumes.iter()), [5], "a group of the pod is not repeated");
}

#[test]
fn selinux_relabelling_applies_only_to_volumes_of_the_pod() {
    let is_relabelled = |volume: Value| {
        let pod = pod(volume, json!({}));
        match spec_plan(&pod, the_volume(&pod)).expect("a type that is offered") {
            SpecPlan::Volume(plan) => plan.is_relabelled,
            SpecPlan::Claim(claim) => panic!("{claim:?}"),
        }
    };
    for own in [json!({"emptyDir": {}}), json!({"emptyDir": {"medium": "Memory"}}), json!({"secret": {}})] {
        assert!(is_relabelled(own.clone()), "{own}");
    }
    for shared in [json!({"hostPath": {"path": "/"}}), json!({"nfs": {"server": "a", "path": "/"}})] {
        assert!(!is_relabelled(shared.clone()), "{shared}");
    }
    let local = |is_device: bool, read_only: bool| {
        let mode = if is_device { "Block" } else { "Filesystem" };
        let spec = json!({"local": {"path": "/x"}, "volumeMode": mode, "claimRef": {"uid": "claim-1"}});
        let volume = json!({"metadata": {"name": "pv-1"}, "spec": spec});
        let volume: PersistentVolume = serde_json::from_value(volume).expect("a volume");
        let pod = pod(json!({"persistentVolumeClaim": {"claimName": "c"}}), json!({}));
        let wanted = ClaimUse { name: "c".to_owned(), read_only, is_ephemeral: false };
        let claimed =
            claimed_plan(&VolumeIndex::of(&pod), the_volume(&pod), &wanted, &claim(|_| {}), &volume);
        claimed.expect("a plan").plan.is_relabelled
    };
    assert!(local(false, false));
    assert!(!local(false, true), "what cannot be written cannot be labelled");
    assert!(!local(true, false));
}

const NO_SECRETS: &str = "stage_secret: None, publish_secret: None, expand_secret: None";

#[test]
fn volume_of_a_pod_that_moved_to_a_driver_is_a_persistent_volume_of_it() {
    let uri = "/subscriptions/12/disks/name";
    let unsupported = "failed to translate in-tree pv to CSI: kind(Shared) is not supported in csi migration";
    let long = "x".repeat(240);
    let cases = [
        (
            json!({"gcePersistentDisk": {"pdName": "foo", "fsType": "ext4", "readOnly": true}}),
            format!(
                "pd.csi.storage.gke.io-foo Csi(CsiPlan {{ spec_name: \"pd.csi.storage.gke.io-foo\", \
                 driver: \"pd.csi.storage.gke.io\", handle: \"projects/UNSPECIFIED/zones/UNSPECIFIED/disks/foo\", \
                 lifecycle: Persistent, is_device: false, fs_type: \"ext4\", attributes: {{\"partition\": \"\"}}, \
                 access_modes: [\"ReadOnlyMany\"], mount_options: [], {NO_SECRETS}, is_migrated: true }})"
            ),
        ),
        (
            json!({"azureDisk": {"diskName": "name", "diskURI": uri}}),
            format!(
                "~subscriptions~12~disks~name Csi(CsiPlan {{ spec_name: {uri:?}, \
                 driver: \"disk.csi.azure.com\", handle: {uri:?}, lifecycle: Persistent, is_device: false, \
                 fs_type: \"\", attributes: {{\"kind\": \"Managed\"}}, access_modes: [\"ReadWriteOnce\"], \
                 mount_options: [], {NO_SECRETS}, is_migrated: true }})"
            ),
        ),
        (
            json!({"azureFile": {"secretName": "s", "shareName": "share"}}),
            "#s#share#data#shop Csi(CsiPlan { spec_name: \"#s#share#data#shop\", \
             driver: \"file.csi.azure.com\", handle: \"#s#share#data#shop\", lifecycle: Persistent, \
             is_device: false, fs_type: \"\", attributes: {\"sharename\": \"share\"}, \
             access_modes: [\"ReadWriteMany\"], mount_options: [], \
             stage_secret: Some(SecretName { namespace: \"shop\", name: \"s\" }), publish_secret: None, \
             expand_secret: None, is_migrated: true })"
                .to_owned(),
        ),
        (
            json!({"azureDisk": {"diskName": "name", "diskURI": uri, "kind": "Shared"}}),
            format!("refused: {unsupported}"),
        ),
        (
            json!({"azureDisk": {"diskName": "name", "diskURI": ".."}}),
            "refused: kubernetes.io/csi: volume name \"..\" cannot be used: may not be '..'".to_owned(),
        ),
        (
            json!({"cinder": {"volumeID": long}}),
            format!(
                "refused: kubernetes.io/csi: volume name \"cinder.csi.openstack.org-{long}\" cannot be used: \
                 must be no more than 255 bytes"
            ),
        ),
        (
            json!({"portworxVolume": {"volumeID": ""}}),
            "refused: kubernetes.io/csi: the volume handle is empty".to_owned(),
        ),
    ];
    for (volume, expected) in cases {
        assert_eq!(planned(volume.clone(), json!({})), expected, "{volume}");
    }
}

#[test]
fn persistent_volume_that_moved_to_a_driver_keeps_its_name_mode_and_options() {
    let mapped = json!({"volumeDevices": [{"name": "data", "devicePath": "/dev/x"}]});
    let spec = json!({
        "awsElasticBlockStore": {"volumeID": "aws://us-west-2a/vol-02399794d890f9375"},
        "accessModes": ["ReadWriteOnce"], "mountOptions": ["noatime"], "volumeMode": "Block",
    });
    let expected = format!(
        "pv-1 Csi(CsiPlan {{ spec_name: \"pv-1\", driver: \"ebs.csi.aws.com\", handle: \"vol-02399794d890f9375\", \
         lifecycle: Persistent, is_device: true, fs_type: \"\", attributes: {{\"partition\": \"0\"}}, \
         access_modes: [\"ReadWriteOnce\"], mount_options: [\"noatime\"], {NO_SECRETS}, is_migrated: true }})"
    );
    assert_eq!(claimed(spec, mapped), expected);
    let spec = json!({"awsElasticBlockStore": {"volumeID": "aws://us-west-2a/02399794d890f9375"}});
    let expected = "failed to translate in-tree pv to CSI: failed to translate Kubernetes ID to EBS Volume ID \
                    Invalid format for AWS volume (aws://us-west-2a/02399794d890f9375)";
    assert_eq!(claimed(spec, json!({})), expected);
}

#[test]
fn iscsi_volume_gets_ports_and_an_interface_of_its_own_for_an_initiator() {
    let of = |more: Value| {
        let mut source = json!({"targetPortal": "10.0.0.1", "iqn": "iqn.2014-12.com.example:a", "lun": 3});
        source.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let pod = pod(json!({"iscsi": source}), json!({}));
        let volume = &spec_of(&pod).volumes.as_ref().unwrap()[0];
        match spec_plan(&pod, volume)? {
            SpecPlan::Volume(VolumePlan { source: VolumeSource::Iscsi(plan), .. }) => Ok(plan),
            other @ (SpecPlan::Volume(_) | SpecPlan::Claim(_)) => Err(format!("{other:?}")),
        }
    };
    let plain = of(json!({})).unwrap();
    assert_eq!((&*plain.fs_type, &*plain.target_portal), ("ext4", "10.0.0.1"));
    assert_eq!(
        (&*plain.disk.portals, &*plain.disk.iface, &*plain.disk.lun),
        (&["10.0.0.1:3260".to_owned()][..], "default", "3")
    );
    let more = of(json!({"portals": ["10.0.0.2:3261"], "initiatorName": "iqn.2014-12.com.example:node", "iscsiInterface": "eth"})).unwrap();
    assert_eq!(more.disk.portals, ["10.0.0.1:3260", "10.0.0.2:3261"]);
    assert_eq!((&*more.disk.init_iface, &*more.disk.iface), ("eth", "10.0.0.1:3260:data"));
    for bad in [
        json!({"iqn": "../x"}),
        json!({"iqn": ""}),
        json!({"targetPortal": "-x"}),
        json!({"iscsiInterface": "../x"}),
        json!({"fsType": "../x"}),
    ] {
        assert!(of(bad.clone()).is_err(), "{bad}");
    }
}
