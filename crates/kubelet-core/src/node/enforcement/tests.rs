use expect_test::expect;
use model::cgroup::CgroupVersion;
use model::k8s::Quantity;
use resources_core::cgroup::compute_settings;

use super::*;

/// The files on version 1.
fn files(numbers: &CgroupNumbers) -> String {
    let settings = compute_settings(numbers, CgroupVersion::V1);
    let files = settings.files.iter().map(|file| format!("{}/{}={}", file.controller, file.name, file.text));
    files.collect::<Vec<_>>().join(" ")
}

/// Of a node with 4 CPUs, 8 GiB and 32768 processes.
fn enforced(change: impl FnOnce(&mut KubeletConfiguration)) -> String {
    let texts = |all: &[(&str, &str)]| all.iter().map(|(n, t)| ((*n).to_owned(), (*t).to_owned())).collect();
    let mut config = KubeletConfiguration {
        kube_reserved: texts(&[("cpu", "500m"), ("memory", "1Gi"), ("pid", "1000")]),
        system_reserved: texts(&[("cpu", "1"), ("memory", "512Mi")]),
        kube_reserved_cgroup: "/kube".to_owned(),
        system_reserved_cgroup: "/system".to_owned(),
        ..KubeletConfiguration::default()
    };
    change(&mut config);
    let capacity = [("cpu", "4"), ("memory", "8Gi"), ("ephemeral-storage", "1Ti"), ("hugepages-2Mi", "16Mi")];
    let capacity = capacity.map(|(name, text)| (name.to_owned(), Quantity(text.to_owned()))).into();
    let plan = compute_enforcement(&config, &capacity, Some(32_768), &["2MB".to_owned()]);
    let mut lines = vec![format!("pods {}", files(&plan.all_pods))];
    lines.extend(plan.reserved.iter().map(|r| format!("{} {} {}", r.of, r.cgroup, files(&r.numbers))));
    lines.join("\n")
}

fn enforce(names: &[&str]) -> impl FnOnce(&mut KubeletConfiguration) {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    move |config| config.enforce_node_allocatable = names
}

#[test]
fn node_allocatable_enforcement_ignores_eviction_thresholds() {
    expect![[r#"pods cpu/cpu.shares=2560 memory/memory.limit_in_bytes=6979321856 pids/pids.max=31768 hugetlb/hugetlb.2MB.limit_in_bytes=16777216"#]]
        .assert_eq(&enforced(enforce(&["pods"])));
    // Without enforcement they may use all that is there.
    expect![[r#"pods cpu/cpu.shares=4096 memory/memory.limit_in_bytes=8589934592 pids/pids.max=32768 hugetlb/hugetlb.2MB.limit_in_bytes=16777216"#]]
        .assert_eq(&enforced(enforce(&["none"])));
    // Whole CPUs reserved for the system replace both amounts.
    let cpus = enforced(|config| config.reserved_system_cpus = "0-2".to_owned());
    assert!(cpus.starts_with("pods cpu/cpu.shares=1024 "), "{cpus}");
}

#[test]
fn reservations_are_enforced_in_full_or_only_for_compressible_resources() {
    expect![[r#"
        pods cpu/cpu.shares=2560 memory/memory.limit_in_bytes=6979321856 pids/pids.max=31768 hugetlb/hugetlb.2MB.limit_in_bytes=16777216
        System /system cpu/cpu.shares=1024 memory/memory.limit_in_bytes=536870912
        Kube /kube cpu/cpu.shares=512 memory/memory.limit_in_bytes=1073741824 pids/pids.max=1000"#]]
    .assert_eq(&enforced(enforce(&["pods", "system-reserved", "kube-reserved"])));
    expect![[r#"
        pods cpu/cpu.shares=2560 memory/memory.limit_in_bytes=6979321856 pids/pids.max=31768 hugetlb/hugetlb.2MB.limit_in_bytes=16777216
        System /system cpu/cpu.shares=1024
        Kube /kube cpu/cpu.shares=512"#]]
    .assert_eq(&enforced(enforce(&["pods", "system-reserved-compressible", "kube-reserved-compressible"])));
    assert_eq!(enforced(|config| config.cgroups_per_qos = false), "pods ");
}
