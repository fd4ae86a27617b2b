//! Parsing of cgroup files.

use super::*;

#[test]
fn a_cgroup_of_version_1_is_read() {
    expect![[r#"
        CgroupSample {
            cpu_nanoseconds: Some(
                1500000001,
            ),
            memory: MemorySample {
                usage: Some(
                    20000,
                ),
                working_set: Some(
                    19000,
                ),
                limit: Some(
                    67108864,
                ),
                rss: Some(
                    8192,
                ),
                cache: Some(
                    4096,
                ),
                mapped_file: Some(
                    512,
                ),
                active_file: Some(
                    2000,
                ),
                inactive_file: Some(
                    1000,
                ),
                swap: Some(
                    64,
                ),
                swap_limit: Some(
                    100,
                ),
                page_faults: Some(
                    30,
                ),
                major_page_faults: Some(
                    3,
                ),
                tree_page_faults: Some(
                    300,
                ),
                tree_major_page_faults: Some(
                    33,
                ),
            },
            processes: Some(
                2,
            ),
            first_pid: Some(
                4711,
            ),
            pressure: None,
            full: Some(
                FullSample {
                    user_nanoseconds: Some(
                        1000000000,
                    ),
                    system_nanoseconds: Some(
                        500000001,
                    ),
                    throttling: Some(
                        Throttling {
                            periods: 10,
                            throttled_periods: 4,
                            throttled_nanoseconds: 250000000,
                            burst_periods: 1,
                            burst_nanoseconds: 5,
                        },
                    ),
                    cpu_shares: Some(
                        512,
                    ),
                    cpu_quota: Some(
                        50000,
                    ),
                    cpu_period: Some(
                        100000,
                    ),
                    max_usage: Some(
                        30000,
                    ),
                    reservation: None,
                    limit_hits: Some(
                        7,
                    ),
                    kernel: Some(
                        4096,
                    ),
                    oom_kills: Some(
                        2,
                    ),
                    threads: Some(
                        5,
                    ),
                    threads_limit: None,
                    devices: [
                        DeviceIo {
                            major: 254,
                            minor: 0,
                            reads: 1,
                            writes: 2,
                            read_bytes: 4096,
                            written_bytes: 8192,
                        },
                    ],
                    open_files: None,
                    sockets: None,
                    open_files_limit: None,
                },
            ),
        }
    "#]]
    .assert_debug_eq(&v1());
}

#[test]
fn a_cgroup_of_version_2_is_read() {
    expect![[r#"
        CgroupSample {
            cpu_nanoseconds: Some(
                1500000000,
            ),
            memory: MemorySample {
                usage: Some(
                    20000,
                ),
                working_set: Some(
                    19000,
                ),
                limit: None,
                rss: Some(
                    8192,
                ),
                cache: Some(
                    4096,
                ),
                mapped_file: Some(
                    512,
                ),
                active_file: Some(
                    2000,
                ),
                inactive_file: Some(
                    1000,
                ),
                swap: Some(
                    64,
                ),
                swap_limit: Some(
                    1024,
                ),
                page_faults: Some(
                    30,
                ),
                major_page_faults: Some(
                    3,
                ),
                tree_page_faults: Some(
                    30,
                ),
                tree_major_page_faults: Some(
                    3,
                ),
            },
            processes: Some(
                2,
            ),
            first_pid: Some(
                4712,
            ),
            pressure: Some(
                Pressures {
                    cpu: Some(
                        Pressure {
                            some: Some(
                                Stall {
                                    total: 73505000,
                                    avg10: 87.62,
                                    avg60: 39.61,
                                    avg300: 14.82,
                                },
                            ),
                            full: Some(
                                Stall {
                                    total: 11,
                                    avg10: 0.0,
                                    avg60: 0.0,
                                    avg300: 0.0,
                                },
                            ),
                        },
                    ),
                    memory: Some(
                        Pressure {
                            some: Some(
                                Stall {
                                    total: 0,
                                    avg10: 0.0,
                                    avg60: 0.0,
                                    avg300: 0.0,
                                },
                            ),
                            full: None,
                        },
                    ),
                    io: None,
                },
            ),
            full: Some(
                FullSample {
                    user_nanoseconds: Some(
                        1000000000,
                    ),
                    system_nanoseconds: Some(
                        500000000,
                    ),
                    throttling: Some(
                        Throttling {
                            periods: 10,
                            throttled_periods: 4,
                            throttled_nanoseconds: 250000000,
                            burst_periods: 0,
                            burst_nanoseconds: 0,
                        },
                    ),
                    cpu_shares: Some(
                        500,
                    ),
                    cpu_quota: None,
                    cpu_period: Some(
                        100000,
                    ),
                    max_usage: Some(
                        30000,
                    ),
                    reservation: Some(
                        0,
                    ),
                    limit_hits: Some(
                        7,
                    ),
                    kernel: Some(
                        2048,
                    ),
                    oom_kills: Some(
                        2,
                    ),
                    threads: Some(
                        5,
                    ),
                    threads_limit: Some(
                        100,
                    ),
                    devices: [
                        DeviceIo {
                            major: 254,
                            minor: 0,
                            reads: 1,
                            writes: 2,
                            read_bytes: 4096,
                            written_bytes: 8192,
                        },
                        DeviceIo {
                            major: 7,
                            minor: 0,
                            reads: 0,
                            writes: 0,
                            read_bytes: 0,
                            written_bytes: 0,
                        },
                    ],
                    open_files: None,
                    sockets: None,
                    open_files_limit: None,
                },
            ),
        }
    "#]]
    .assert_debug_eq(&v2());
}

#[test]
fn missing_or_corrupt_cgroup_files_yield_unknown_values() {
    for hierarchy in [Hierarchy::V1, Hierarchy::V2] {
        let nothing = cgroup::parse(hierarchy, Detail::Usage, &[]);
        assert_eq!(nothing, CgroupSample::default());
        let damaged = vec![Some("x y\nz\n-1\n:".to_owned()); cgroup::files(hierarchy, Detail::Full).len()];
        let read = cgroup::parse(hierarchy, Detail::Full, &damaged);
        assert_eq!((read.cpu_nanoseconds, read.memory.usage, read.pressure), (None, None, None));
    }
    assert_eq!(cgroup::pressure(""), None);
    assert_eq!(cgroup::pressure("some avg10=x total=1\n"), None);
}

#[test]
fn cgroup_file_paths_follow_the_hierarchy() {
    let path = |hierarchy, path, file| cgroup::file_path(hierarchy, path, file);
    assert_eq!(path(Hierarchy::V1, "/k8s.io/c1", "cpu/cpu.stat"), "cpu/k8s.io/c1/cpu.stat");
    assert_eq!(path(Hierarchy::V1, "/", "cpu/cpu.stat"), "cpu/cpu.stat");
    assert_eq!(path(Hierarchy::V2, "/k8s.io/c1", "cpu.stat"), "k8s.io/c1/cpu.stat");
    assert_eq!(path(Hierarchy::V2, "/", "cpu.stat"), "cpu.stat");
}

#[test]
fn sandbox_image_is_parsed_from_the_status_of_containerd_and_crio() {
    let containerd = r#"{"pid":77,"processStatus":"running","netNamespaceClosed":false,"image":"registry.k8s.io/pause:3.8",
        "snapshotKey":"4f2a","runtimeSpec":{"ociVersion":"1.2.0"}}"#;
    assert_eq!(cgroup_path::sandbox_image(containerd).as_deref(), Some("registry.k8s.io/pause:3.8"));
    let crio = r#"{"image":"registry.k8s.io/pause:3.10","pid":77,"runtimeSpec":{}}"#;
    assert_eq!(cgroup_path::sandbox_image(crio).as_deref(), Some("registry.k8s.io/pause:3.10"));
    let without_process =
        r#"{"runtimeSpec":{"annotations":{"io.kubernetes.cri-o.ImageName":"registry.k8s.io/pause:3.10"}}}"#;
    assert_eq!(cgroup_path::sandbox_image(without_process).as_deref(), Some("registry.k8s.io/pause:3.10"));
    for other in ["", "{}", "{\"image\":\"\"}", "{\"image\":7}", "[", "null"] {
        assert_eq!(cgroup_path::sandbox_image(other), None, "{other}");
    }
}

#[test]
fn container_id_is_parsed_from_the_cgroup_path() {
    for (path, id) in [
        ("/k8s.io/4f2a", "4f2a"),
        ("/kubepods/burstable/pod1-2/4f2a", "4f2a"),
        ("/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-4f2a.scope", "4f2a"),
        ("/kubepods.slice/kubepods-pod1_2.slice/crio-4f2a.scope", "4f2a"),
        ("/kubepods/burstable/pod1-2/crio-4f2a", "4f2a"),
        ("/kubepods/burstable/pod1-2/crio-conmon-4f2a", ""),
        ("/kubepods.slice/kubepods-pod1_2.slice/crio-conmon-4f2a.scope", ""),
        ("/kubepods/burstable/pod0a-1b-4f2a", "pod0a-1b-4f2a"),
        ("/", ""),
    ] {
        assert_eq!(cgroup_path::container_id(path), id, "{path}");
    }
    let own = "4:memory:/a\n2:cpu,cpuacct:/b\n0::/c:d\n";
    assert_eq!(cgroup_path::own_cgroup(own, "cpuacct"), Some("/b"));
    assert_eq!(cgroup_path::own_cgroup(own, ""), Some("/c:d"));
    assert_eq!(cgroup_path::own_cgroup(own, "pids"), None);
}

#[test]
fn kubelet_cgroup_is_the_one_that_counts_cpu_and_memory() {
    for (text, is_v2, path) in [
        ("2:memory:/a\n1:cpu,cpuacct:/a\n", false, Some("/a")),
        // As on the machine of the recording: the Go kubelet lists no system container for itself.
        ("4:memory:/process_api/3e5f\n2:cpuacct:/\n1:cpu:/\n0::/\n", false, None),
        ("9:name=systemd:/s\n4:memory:/\n1:cpu:/\n", false, Some("/s")),
        ("9:name=systemd:/s\n4:memory:/m\n1:cpu:/\n", false, None),
        ("9:name=systemd:/s\n1:cpu:/\n", false, None),
        ("0::/system.slice/kubelet.service\n", true, Some("/system.slice/kubelet.service")),
        ("1:cpu:/\n", true, None),
    ] {
        assert_eq!(cgroup_path::kubelet_cgroup(text, is_v2), path, "{text}");
    }
}
