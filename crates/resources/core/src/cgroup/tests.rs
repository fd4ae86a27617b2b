use base_core::node_facts::MemoryQos;
use expect_test::{Expect, expect};
use model::cgroup::{CgroupSettings, CgroupVersion, UnitValue};
use model::k8s::Pod;
use model::{CgroupDriver, PodUid, QosClass};
use serde_json::{Value, json};

use super::name::pod_of;
use super::pod::compute_pod_numbers;
use super::qos::MemoryReserve;
use super::*;
use crate::allocations::Allocation;

mod upstream;

const UID: &str = "0a1b-2c3d";

fn names(driver: CgroupDriver, root: &str) -> String {
    let names = CgroupNames::new(driver, root);
    let uid = PodUid::from(UID);
    let mut lines: Vec<String> = vec![format!("all pods    {}", names.all_pods())];
    for class in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
        lines.push(format!("{:11} {}", class.as_str(), names.pod(class, &uid)));
    }
    lines.join("\n")
}

#[test]
fn pod_cgroup_is_below_its_qos_cgroup_unless_guaranteed() {
    expect![[r#"
        all pods    /kubepods
        Guaranteed  /kubepods/pod0a1b-2c3d
        Burstable   /kubepods/burstable/pod0a1b-2c3d
        BestEffort  /kubepods/besteffort/pod0a1b-2c3d"#]]
    .assert_eq(&names(CgroupDriver::Cgroupfs, ""));
    assert_eq!(names(CgroupDriver::Cgroupfs, "/"), names(CgroupDriver::Cgroupfs, ""));
    expect![[r#"
        all pods    /kubepods.slice
        Guaranteed  /kubepods.slice/kubepods-pod0a1b_2c3d.slice
        Burstable   /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0a1b_2c3d.slice
        BestEffort  /kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0a1b_2c3d.slice"#]]
    .assert_eq(&names(CgroupDriver::Systemd, "/"));
}

#[test]
fn cgroups_are_below_the_configured_root() {
    expect![[r#"
        all pods    /a/b-c/kubepods
        Guaranteed  /a/b-c/kubepods/pod0a1b-2c3d
        Burstable   /a/b-c/kubepods/burstable/pod0a1b-2c3d
        BestEffort  /a/b-c/kubepods/besteffort/pod0a1b-2c3d"#]]
    .assert_eq(&names(CgroupDriver::Cgroupfs, "/a/b-c"));
    expect![[r#"
        all pods    /a.slice/a-b_c.slice/a-b_c-kubepods.slice
        Guaranteed  /a.slice/a-b_c.slice/a-b_c-kubepods.slice/a-b_c-kubepods-pod0a1b_2c3d.slice
        Burstable   /a.slice/a-b_c.slice/a-b_c-kubepods.slice/a-b_c-kubepods-burstable.slice/a-b_c-kubepods-burstable-pod0a1b_2c3d.slice
        BestEffort  /a.slice/a-b_c.slice/a-b_c-kubepods.slice/a-b_c-kubepods-besteffort.slice/a-b_c-kubepods-besteffort-pod0a1b_2c3d.slice"#]]
    .assert_eq(&names(CgroupDriver::Systemd, "/a/b-c"));
    assert_eq!(CgroupNames::new(CgroupDriver::Cgroupfs, "/").root(), None);
    let root = CgroupNames::new(CgroupDriver::Systemd, "a").root();
    assert_eq!(root.map(|root| root.path), Some("/a.slice".into()));
}

#[test]
fn pod_uid_is_parsed_from_the_cgroup_name() {
    for (driver, root) in [(CgroupDriver::Cgroupfs, "/"), (CgroupDriver::Systemd, "/a-b/c")] {
        let uid = PodUid::from("12345678-1234-4321-8888-0123456789ab");
        for path in CgroupNames::new(driver, root).candidates_of(&uid) {
            assert_eq!(pod_of(path.name()), Some(uid.clone()), "{path}");
        }
    }
    for other in
        ["burstable", "kubepods", "pod", "kubepods.slice", "kubepods-burstable.slice", "user-pod1.slice"]
    {
        assert_eq!(pod_of(other), None, "{other}");
    }
}

#[test]
fn configured_foreign_cgroups_keep_their_names() {
    let name = |driver, text: &str| {
        let path = CgroupNames::new(driver, "/ignored").existing(text);
        format!("{path}{}", if path.is_slice { " of systemd" } else { "" })
    };
    assert_eq!(name(CgroupDriver::Cgroupfs, "kube"), "/kube");
    assert_eq!(name(CgroupDriver::Cgroupfs, "/kube.slice"), "/kube.slice");
    assert_eq!(name(CgroupDriver::Systemd, "/kube.slice"), "/kube.slice of systemd");
    assert_eq!(
        name(CgroupDriver::Systemd, "system-kube.slice"),
        "/system.slice/system-kube.slice of systemd"
    );
    assert_eq!(name(CgroupDriver::Systemd, "/system.slice/kubelet.service"), "/system.slice/kubelet.service");
}

fn rules() -> PodRules<'static> {
    PodRules {
        cpu_quota_period: Some(100_000),
        pids_limit: None,
        hugepage_sizes: &[],
        memory_qos: MemoryQos::Off,
    }
}

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({"spec": spec})).expect("a pod")
}

/// A container that requests and limits so much.
fn container(requests: Value, limits: Value) -> Value {
    json!({"name": "c", "resources": {"requests": requests, "limits": limits}})
}

fn shown(settings: &CgroupSettings) -> String {
    let files = settings.files.iter().map(|file| {
        let tree = if file.controller.is_empty() { String::new() } else { format!("{}/", file.controller) };
        format!("{tree}{}={}", file.name, file.text)
    });
    let properties = settings.properties.iter().map(|p| match &p.value {
        UnitValue::Number(u64::MAX) => format!("{}=infinity", p.name),
        UnitValue::Number(value) => format!("{}={value}", p.name),
        UnitValue::Bits(bits) => format!("{}={bits:?}", p.name),
    });
    let lines = [files.collect::<Vec<_>>().join(" "), properties.collect::<Vec<_>>().join(" ")];
    lines.join("\n")
}

/// Files and properties on version 1, then on version 2.
#[track_caller]
fn check(numbers: &CgroupNumbers, expected: Expect) {
    let both = [CgroupVersion::V1, CgroupVersion::V2].map(|v| shown(&compute_settings(numbers, v)));
    expected.assert_eq(&both.join("\n"));
}

#[track_caller]
fn check_pod(spec: Value, expected: Expect) {
    check(&compute_pod_numbers(&pod(spec), &rules()), expected);
}

#[test]
fn guaranteed_pod_cgroup_has_the_limits_of_the_pod() {
    let both = json!({"cpu": "500m", "memory": "64Mi"});
    check_pod(
        json!({"containers": [container(both.clone(), both)]}),
        expect![[r#"
            cpu/cpu.shares=512 cpu/cpu.cfs_period_us=100000 cpu/cpu.cfs_quota_us=50000 memory/memory.limit_in_bytes=67108864
            CPUShares=512 MemoryLimit=67108864 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=500000
            cpu.weight=20 cpu.max=50000 100000 memory.max=67108864
            CPUWeight=20 MemoryMax=67108864 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=500000"#]],
    );
}

#[test]
fn burstable_pod_cgroup_is_limited_only_if_all_containers_are() {
    let requested = json!({"cpu": "250m", "memory": "100Mi"});
    check_pod(
        json!({"containers": [container(requested.clone(), json!({}))]}),
        expect![[r#"
            cpu/cpu.shares=256
            CPUShares=256
            cpu.weight=10
            CPUWeight=10"#]],
    );
    let limited = container(requested.clone(), json!({"cpu": "1", "memory": "200Mi"}));
    let memory_only = container(json!({}), json!({"memory": "50Mi"}));
    check_pod(
        json!({"containers": [limited.clone(), memory_only.clone()]}),
        expect![[r#"
            cpu/cpu.shares=256 memory/memory.limit_in_bytes=262144000
            CPUShares=256 MemoryLimit=262144000
            cpu.weight=10 memory.max=262144000
            CPUWeight=10 MemoryMax=262144000"#]],
    );
    // An init container counts as well: it may use as much as it likes.
    check_pod(
        json!({"initContainers": [{"name": "i"}], "containers": [limited]}),
        expect![[r#"
            cpu/cpu.shares=256
            CPUShares=256
            cpu.weight=10
            CPUWeight=10"#]],
    );
}

#[test]
fn best_effort_pod_cgroup_has_the_minimum_cpu_shares() {
    check_pod(
        json!({"containers": [{"name": "c"}, {"name": "d"}]}),
        expect![[r#"
            cpu/cpu.shares=2
            CPUShares=2
            cpu.weight=1
            CPUWeight=1"#]],
    );
}

#[test]
fn pod_cgroup_sums_sidecars_and_uses_the_largest_init_container() {
    let limits = |cpu: &str, memory: &str| container(json!({}), json!({"cpu": cpu, "memory": memory}));
    let mut sidecar = limits("100m", "10Mi");
    sidecar["restartPolicy"] = "Always".into();
    check_pod(
        json!({"initContainers": [sidecar, limits("2", "20Mi")], "containers": [limits("1", "50Mi")]}),
        expect![[r#"
            cpu/cpu.shares=2150 cpu/cpu.cfs_period_us=100000 cpu/cpu.cfs_quota_us=210000 memory/memory.limit_in_bytes=62914560
            CPUShares=2150 MemoryLimit=62914560 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=2100000
            cpu.weight=82 cpu.max=210000 100000 memory.max=62914560
            CPUWeight=82 MemoryMax=62914560 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=2100000"#]],
    );
}

#[test]
fn pod_level_resources_override_containers_and_overhead_is_added() {
    check_pod(
        json!({
            "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}},
            "containers": [{"name": "c"}],
            "overhead": {"cpu": "250m", "memory": "120Mi"},
        }),
        expect![[r#"
            cpu/cpu.shares=1280 cpu/cpu.cfs_period_us=100000 cpu/cpu.cfs_quota_us=225000 memory/memory.limit_in_bytes=1199570944
            CPUShares=1280 MemoryLimit=1199570944 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=2250000
            cpu.weight=49 cpu.max=225000 100000 memory.max=1199570944
            CPUWeight=49 MemoryMax=1199570944 CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=2250000"#]],
    );
}

#[test]
fn cpu_quota_period_and_pids_limit_follow_the_configuration() {
    let both = json!({"cpu": "15m", "memory": "4Ki"});
    let small = pod(json!({"containers": [container(both.clone(), both)]}));
    let unlimited = PodRules { cpu_quota_period: None, pids_limit: Some(100), ..rules() };
    check(
        &compute_pod_numbers(&small, &unlimited),
        expect![[r#"
            cpu/cpu.shares=15 cpu/cpu.cfs_quota_us=-1 memory/memory.limit_in_bytes=4096 pids/pids.max=100
            CPUShares=15 MemoryLimit=4096 CPUQuotaPerSecUSec=infinity TasksMax=100
            cpu.weight=1 cpu.max=max memory.max=4096 pids.max=100
            CPUWeight=1 MemoryMax=4096 CPUQuotaPerSecUSec=infinity TasksMax=100"#]],
    );
    // A quota is never below a millisecond, and systemd counts whole percents of a core.
    let short = PodRules { cpu_quota_period: Some(10_000), ..rules() };
    check(
        &compute_pod_numbers(&small, &short),
        expect![[r#"
            cpu/cpu.shares=15 cpu/cpu.cfs_period_us=10000 cpu/cpu.cfs_quota_us=1000 memory/memory.limit_in_bytes=4096
            CPUShares=15 MemoryLimit=4096 CPUQuotaPeriodUSec=10000 CPUQuotaPerSecUSec=100000
            cpu.weight=1 cpu.max=1000 10000 memory.max=4096
            CPUWeight=1 MemoryMax=4096 CPUQuotaPeriodUSec=10000 CPUQuotaPerSecUSec=100000"#]],
    );
}

#[test]
fn huge_page_limits_are_the_requests_of_the_pod() {
    let limits = json!({"memory": "64Mi", "hugepages-2Mi": "4Mi"});
    let pod =
        pod(json!({"containers": [container(json!({}), limits.clone()), container(json!({}), limits)]}));
    let sizes = ["2MB".to_owned(), "1GB".to_owned()];
    let rules = PodRules { hugepage_sizes: &sizes, ..rules() };
    let numbers = compute_pod_numbers(&pod, &rules);
    check(
        &CgroupNumbers { hugepage_limits: numbers.hugepage_limits, ..CgroupNumbers::default() },
        expect![[r#"
            hugetlb/hugetlb.2MB.limit_in_bytes=8388608 hugetlb/hugetlb.1GB.limit_in_bytes=0

            hugetlb.2MB.max=8388608 hugetlb.2MB.rsvd.max=8388608 hugetlb.1GB.max=0 hugetlb.1GB.rsvd.max=0
        "#]],
    );
}

#[test]
fn allowed_cpus_are_a_property_of_slices_on_version_2() {
    let numbers = CgroupNumbers { allowed_cpus: Some([0, 1, 9].into()), ..CgroupNumbers::default() };
    check(
        &numbers,
        expect![[r#"



            AllowedCPUs=[3, 2]"#]],
    );
}

#[test]
fn memory_qos_reserves_memory_by_qos_class() {
    let requested = json!({"cpu": "1", "memory": "512Mi"});
    let reserved = PodRules { memory_qos: MemoryQos::Reservation, ..rules() };
    let of = |limits: Value| {
        let pod = pod(json!({"containers": [container(requested.clone(), limits)]}));
        let numbers = compute_pod_numbers(&pod, &reserved);
        let none = compute_pod_numbers(&pod, &PodRules { memory_qos: MemoryQos::Throttling, ..rules() });
        assert_eq!((none.memory_min, none.memory_low), (None, None));
        (numbers.memory_min, numbers.memory_low)
    };
    assert_eq!(of(requested.clone()), (Some(512 << 20), None));
    assert_eq!(of(json!({})), (None, Some(512 << 20)));
}

#[test]
fn cpu_shares_convert_to_weights() {
    let weights = [0, 2, 3, 1024, 262_144, 999_999].map(numbers::cpu_weight);
    assert_eq!(weights, [1, 1, 1, 39, 10_000, 10_000]);
}

fn pods_of_each_class() -> Vec<Pod> {
    let requested = json!({"cpu": "500m", "memory": "100Mi"});
    let guaranteed = container(requested.clone(), requested.clone());
    let burstable = container(requested, json!({}));
    [guaranteed, burstable.clone(), burstable, json!({"name": "c"})]
        .map(|container| pod(json!({"containers": [container]})))
        .into()
}

#[test]
fn qos_cgroup_weight_is_that_of_its_pods_requests() {
    let pods = pods_of_each_class();
    let rules = QosCgroupRules {
        hugepage_sizes: &["2MB".to_owned()],
        memory_qos: MemoryQos::Off,
        memory_reserve: None,
    };
    let qos = compute_qos_cgroups(pods.iter().map(Allocation::whole), &rules);
    assert_eq!(qos.all_pods, CgroupNumbers::default());
    check(
        &qos.burstable,
        expect![[r#"
            cpu/cpu.shares=1024 hugetlb/hugetlb.2MB.limit_in_bytes=4611686018427387904
            CPUShares=1024
            cpu.weight=39 hugetlb.2MB.max=4611686018427387904 hugetlb.2MB.rsvd.max=4611686018427387904
            CPUWeight=39"#]],
    );
    assert_eq!(qos.best_effort.cpu_shares, Some(2));
    assert_eq!(compute_qos_cgroups([], &rules).burstable.cpu_shares, Some(2));
}

#[test]
fn qos_reserved_keeps_memory_of_higher_classes() {
    let mebi = |n: i64| n << 20;
    let reserve = |percent| {
        let rules = QosCgroupRules {
            hugepage_sizes: &[],
            memory_qos: MemoryQos::Off,
            memory_reserve: Some(MemoryReserve { percent, allocatable_bytes: mebi(1000) }),
        };
        let qos = compute_qos_cgroups(pods_of_each_class().iter().map(Allocation::whole), &rules);
        (qos.burstable.memory_limit.unwrap(), qos.best_effort.memory_limit.unwrap())
    };
    assert_eq!(reserve(100), (mebi(900), mebi(700)));
    assert_eq!(reserve(50), (mebi(950), mebi(850)));
    assert_eq!(reserve(0), (mebi(1000), mebi(1000)));
    let rules =
        QosCgroupRules { hugepage_sizes: &[], memory_qos: MemoryQos::Reservation, memory_reserve: None };
    let qos = compute_qos_cgroups(pods_of_each_class().iter().map(Allocation::whole), &rules);
    assert_eq!((qos.all_pods.memory_min, qos.all_pods.memory_low), (Some(mebi(300)), Some(mebi(200))));
    assert_eq!((qos.burstable.memory_min, qos.burstable.memory_low), (None, Some(mebi(200))));
    assert_eq!((qos.best_effort.memory_min, qos.best_effort.memory_low), (None, None));
}

#[test]
fn memory_qos_without_a_reservation_resets_what_was_reserved() {
    let protected = |memory_qos| {
        let rules = QosCgroupRules { hugepage_sizes: &[], memory_qos, memory_reserve: None };
        let qos = compute_qos_cgroups(pods_of_each_class().iter().map(Allocation::whole), &rules);
        [qos.all_pods.memory_min, qos.all_pods.memory_low, qos.burstable.memory_min, qos.burstable.memory_low]
    };
    assert_eq!(protected(MemoryQos::Throttling), [Some(0), Some(0), None, Some(0)]);
    assert_eq!(protected(MemoryQos::Off), [None; 4]);
}
