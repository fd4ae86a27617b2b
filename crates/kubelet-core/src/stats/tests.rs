//! Golden cases: texts as kernels write them, in both versions of cgroups, and what is told of them.
#![expect(clippy::too_many_lines, reason = "golden texts are long")]

use std::collections::BTreeMap;
use std::time::Duration;

use expect_test::expect;
use jiff::Timestamp;
use model::stats::{FilesystemSpace, FilesystemUsage, TreeUsage};
use model::{ContainerId, MonoTime, Now, PodRef, PodUid};

use super::age::{AtHand, Reading, compute_rate, is_good_enough, next_baseline};
use super::cadvisor::{MachineNames, Telling};
use super::cgroup::{self, CgroupSample, Detail, Hierarchy};
use super::exposition::{self, Kind, Value};
use super::sample::{
    ContainerSample, DiskSample, MachineSample, NodeSample, Placed, PodDisks, PodSample, RuntimeFilesystem,
    SystemSample, VolumeSample,
};
use super::{place, procfs, resource, summary};

fn read(hierarchy: Hierarchy, files: &[(&str, &str)]) -> CgroupSample {
    let texts: Vec<Option<String>> = cgroup::files(hierarchy, Detail::Full)
        .iter()
        .map(|name| files.iter().find(|(known, _)| known == name).map(|(_, text)| (*text).to_owned()))
        .collect();
    for (name, _) in files {
        assert!(cgroup::files(hierarchy, Detail::Full).contains(name), "{name} is not read");
    }
    cgroup::parse(hierarchy, Detail::Full, &texts)
}

const MEMORY_STAT_V1: &str = "cache 1\nrss 2\npgfault 30\npgmajfault 3\ntotal_cache 4096\ntotal_rss 8192\n\
    total_mapped_file 512\ntotal_swap 64\ntotal_pgfault 300\ntotal_pgmajfault 33\n\
    total_inactive_file 1000\ntotal_active_file 2000\n";

fn v1() -> CgroupSample {
    read(
        Hierarchy::V1,
        &[
            ("cpuacct/cpuacct.usage", "1500000001\n"),
            ("cpuacct/cpuacct.usage_user", "1000000000\n"),
            ("cpuacct/cpuacct.usage_sys", "500000001\n"),
            (
                "cpu/cpu.stat",
                "nr_periods 10\nnr_throttled 4\nthrottled_time 250000000\nnr_bursts 1\nburst_time 5\n",
            ),
            ("cpu/cpu.shares", "512\n"),
            ("cpu/cpu.cfs_quota_us", "50000\n"),
            ("cpu/cpu.cfs_period_us", "100000\n"),
            ("memory/memory.usage_in_bytes", "20000\n"),
            ("memory/memory.stat", MEMORY_STAT_V1),
            ("memory/memory.limit_in_bytes", "67108864\n"),
            ("memory/memory.memsw.limit_in_bytes", "67108964\n"),
            ("memory/memory.soft_limit_in_bytes", "9223372036854771712\n"),
            ("memory/memory.max_usage_in_bytes", "30000\n"),
            ("memory/memory.failcnt", "7\n"),
            ("memory/memory.kmem.usage_in_bytes", "4096\n"),
            ("memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            ("pids/pids.current", "5\n"),
            ("pids/pids.max", "max\n"),
            ("pids/cgroup.procs", "4711\n4712\n"),
            (
                "blkio/blkio.throttle.io_service_bytes_recursive",
                "254:0 Read 4096\n254:0 Write 8192\n254:0 Sync 1\n254:0 Total 12288\nTotal 12288\n",
            ),
            ("blkio/blkio.throttle.io_serviced_recursive", "254:0 Read 1\n254:0 Write 2\nTotal 3\n"),
        ],
    )
}

fn v2() -> CgroupSample {
    read(
        Hierarchy::V2,
        &[
            (
                "cpu.stat",
                "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\nnr_periods 10\nnr_throttled 4\n\
                 throttled_usec 250000\nnr_bursts 0\nburst_usec 0\n",
            ),
            ("cpu.weight", "20\n"),
            ("cpu.max", "max 100000\n"),
            ("memory.current", "20000\n"),
            (
                "memory.stat",
                "anon 8192\nfile 4096\nkernel 2048\nfile_mapped 512\ninactive_file 1000\nactive_file 2000\n\
                 pgfault 30\npgmajfault 3\n",
            ),
            ("memory.max", "max\n"),
            ("memory.low", "0\n"),
            ("memory.peak", "30000\n"),
            ("memory.events", "low 0\nhigh 0\nmax 7\noom 2\noom_kill 2\noom_group_kill 0\n"),
            ("memory.swap.current", "64\n"),
            ("memory.swap.max", "1024\n"),
            ("pids.current", "5\n"),
            ("pids.max", "100\n"),
            ("cgroup.procs", "0\n4712\n"),
            ("io.stat", "254:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n7:0 \n"),
            ("cpu.pressure", PRESSURE),
            ("memory.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"),
        ],
    )
}

const PRESSURE: &str = "some avg10=87.62 avg60=39.61 avg300=14.82 total=73505000\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=11\n";

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
fn what_the_kernel_does_not_say_is_unknown_and_damaged_files_are_no_reason_to_fail() {
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
fn files_of_a_cgroup_are_where_its_hierarchy_has_them() {
    let path = |hierarchy, path, file| cgroup::file_path(hierarchy, path, file);
    assert_eq!(path(Hierarchy::V1, "/k8s.io/c1", "cpu/cpu.stat"), "cpu/k8s.io/c1/cpu.stat");
    assert_eq!(path(Hierarchy::V1, "/", "cpu/cpu.stat"), "cpu/cpu.stat");
    assert_eq!(path(Hierarchy::V2, "/k8s.io/c1", "cpu.stat"), "k8s.io/c1/cpu.stat");
    assert_eq!(path(Hierarchy::V2, "/", "cpu.stat"), "cpu.stat");
}

#[test]
fn a_path_tells_whose_cgroup_it_is() {
    for (path, id) in [
        ("/k8s.io/4f2a", "4f2a"),
        ("/kubepods/burstable/pod1-2/4f2a", "4f2a"),
        ("/kubepods.slice/kubepods-pod1_2.slice/cri-containerd-4f2a.scope", "4f2a"),
        ("/kubepods.slice/kubepods-pod1_2.slice/crio-4f2a.scope", "4f2a"),
        ("/", ""),
    ] {
        assert_eq!(place::container_id(path), id, "{path}");
    }
    for (path, uid) in [
        ("/kubepods/burstable/pod1-2", Some("1-2")),
        ("/kubepods/pod1-2", Some("1-2")),
        ("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1_2.slice", Some("1-2")),
        ("/kubepods.slice/kubepods-pod1_2.slice", Some("1-2")),
        ("/kubepods.slice/kubepods-besteffort.slice", None),
        ("/system.slice/podman", None),
        ("/kubepods/pod", None),
        ("/kubepods/burstable/pod1-2/4f2a", None),
    ] {
        assert_eq!(place::pod_uid(path).as_deref(), uid, "{path}");
    }
    assert!(place::is_all_pods("/kubepods") && place::is_all_pods("/kubepods.slice"));
    assert!(!place::is_all_pods("/kubepods/burstable"));
    let own = "4:memory:/a\n2:cpu,cpuacct:/b\n0::/c:d\n";
    assert_eq!(place::own_cgroup(own, "cpuacct"), Some("/b"));
    assert_eq!(place::own_cgroup(own, ""), Some("/c:d"));
    assert_eq!(place::own_cgroup(own, "pids"), None);
}

#[test]
fn procfs_is_read() {
    let dev = "Inter-|   Receive  |  Transmit\n face |bytes packets errs\n    lo: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n\
               \x20 eth0:3193 29 1 2 0 0 0 0 4000 30 3 4 0 0 0 0\nveth12: 1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\nshort: 1\n";
    let all = procfs::interfaces(dev);
    let [eth0] = &*all else { panic!("{all:?}") };
    assert_eq!((&*eth0.name, eth0.rx_bytes, eth0.rx_packets, eth0.rx_errors), ("eth0", 3193, 29, 1));
    assert_eq!((eth0.rx_dropped, eth0.tx_bytes, eth0.tx_packets), (2, 4000, 30));
    assert_eq!((eth0.tx_errors, eth0.tx_dropped), (3, 4));
    let route = "Iface Destination Gateway\neth1 0000FEA9 0\neth0 00000000 0101A8C0\n";
    assert_eq!(procfs::default_interface(route), Some("eth0"));
    assert_eq!(procfs::meminfo("MemTotal:  24 kB\nMemFree: 3 kB\n", "MemFree"), Some(3072));
    let stat = "cpu  100 1 50 900 20 0 9 2 0 0\ncpu0 1 1 1\nbtime 1700000000\n";
    assert_eq!(procfs::cpu_times(stat), Some((1_600_000_000, 1_010_000_000, 590_000_000)));
    assert_eq!(procfs::boot_seconds(stat), Some(1_700_000_000));
    assert_eq!(procfs::running_tasks("0.1 0.2 0.3 2/310 4711\n"), Some(310));
    let process = "77 (a) b) S 1 77 77 0 -1 4194560 500 0 3 0 150 50 0 0 20 0 9 0 1234 100000 42 18446744073709551615 1";
    let process = procfs::process(process).expect("a process");
    assert_eq!((process.cpu_nanoseconds, process.threads), (2_000_000_000, 9));
    assert_eq!((process.minor_faults, process.major_faults, process.virtual_bytes), (500, 3, 100_000));
    assert_eq!(process.started_nanoseconds, 12_340_000_000);
    let limits = "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024                 4096    files\n";
    assert_eq!(procfs::open_files_limit(limits), Some(1024));
    assert_eq!(procfs::open_files_limit("Max open files  unlimited unlimited files"), None);
    let disks =
        procfs::disks("254 0 vda 10 1 80 5 20 2 160 7 0 9 12 0 0\n 7 0 loop0 0 0 0 0 0 0 0 0 0 0 0\n");
    assert_eq!(disks.len(), 1);
    assert_eq!((&*disks[0].name, disks[0].reads, disks[0].sectors_written), ("vda", 10, 160));
    for damaged in ["", "x", "cpu ", "1 (a"] {
        assert_eq!(procfs::cpu_times(damaged), None);
        assert_eq!(procfs::process(damaged), None);
        assert_eq!(procfs::running_tasks(damaged), None);
    }
}

fn at(seconds: f64) -> MonoTime {
    MonoTime::from_start(Duration::from_secs_f64(seconds))
}

#[test]
fn a_rate_needs_two_readings_that_are_neither_too_close_nor_too_far_apart() {
    let reading = |seconds, used| Reading { at: at(seconds), used };
    let before = reading(10.0, 1_000_000_000);
    assert_eq!(compute_rate(before, reading(12.0, 2_000_000_000)), Some(500_000_000));
    assert_eq!(compute_rate(before, reading(10.1, 2_000_000_000)), None);
    assert_eq!(compute_rate(before, reading(900.0, 2_000_000_000)), None);
    // The container was started anew.
    assert_eq!(compute_rate(before, reading(12.0, 5)), None);
    let soon = reading(10.1, 1_000_000_001);
    assert_eq!(next_baseline(Some(before), soon), before);
    assert_eq!(next_baseline(Some(before), reading(10.1, 5)), reading(10.1, 5));
    assert_eq!(next_baseline(Some(before), reading(11.0, 2)), reading(11.0, 2));
    assert_eq!(next_baseline(None, soon), soon);
}

#[test]
fn a_sample_is_shared_while_it_is_young_and_says_enough() {
    let most = Duration::from_secs(5);
    let enough = |detail, wanted, now| {
        is_good_enough(Some(AtHand { taken_at: at(10.0), detail }), wanted, most, at(now))
    };
    assert!(enough(Detail::Usage, Detail::Usage, 14.9));
    assert!(enough(Detail::Full, Detail::Usage, 14.9));
    assert!(!enough(Detail::Usage, Detail::Full, 14.9));
    assert!(!enough(Detail::Full, Detail::Full, 15.0));
    assert!(!is_good_enough(None, Detail::Usage, most, at(0.0)));
}

fn container(id: &str, name: &str, cgroup: CgroupSample, rate: u64) -> ContainerSample {
    ContainerSample {
        id: ContainerId::from(id),
        name: name.into(),
        image: "docker.io/library/busybox:1".into(),
        started: Timestamp::from_second(1_700_000_100).expect("a time"),
        placed: Placed { path: format!("/k8s.io/{id}").into(), cgroup, rate: Some(rate) },
    }
}

fn node() -> NodeSample {
    let eth0 = procfs::interfaces("eth0: 10 1 0 0 0 0 0 0 20 2 0 0 0 0 0 0\n");
    let mut root = v2();
    root.memory.limit = None;
    let pod = PodSample {
        pod: PodRef::new("default", "web", "uid-1"),
        started: Timestamp::from_second(1_700_000_090).ok(),
        own: None,
        sandbox: Some(container("s1", "", v1(), 1)),
        containers: vec![container("c1", "main", v1(), 250)],
        interfaces: eth0.clone(),
    };
    NodeSample {
        taken: Now { wall: Timestamp::from_millisecond(1_700_000_200_123).expect("a time"), mono: at(5.0) },
        detail: Detail::Full,
        machine: MachineSample {
            memory_bytes: 1 << 30,
            swap_bytes: 0,
            booted: Timestamp::from_second(1_700_000_000).expect("a time"),
            interfaces: eth0,
            default_interface: Some("eth0".into()),
            tasks: Some(310),
            most_tasks: Some(32768),
            disks: procfs::disks("254 0 vda 10 1 80 5 20 2 160 7 0 9 12 0 0\n"),
        },
        root: Placed { path: "/".into(), cgroup: root, rate: Some(1_000) },
        system: vec![SystemSample {
            name: "kubelet",
            started: None,
            placed: Placed { path: "/system.slice/kubelet.service".into(), cgroup: v1(), rate: None },
        }],
        pods: vec![pod],
        is_incomplete: false,
    }
}

fn disks() -> DiskSample {
    let space = FilesystemSpace {
        device: 1,
        capacity_bytes: 1000,
        available_bytes: 400,
        used_bytes: 500,
        inodes: 100,
        inodes_free: 60,
    };
    let used = |bytes| TreeUsage { bytes, inodes: 2 };
    let volume = |name: &str, is_memory, claim: Option<&str>| VolumeSample {
        name: name.into(),
        claim: claim.map(Into::into),
        is_memory,
        space,
        used: used(10),
    };
    let layer = FilesystemUsage { used_bytes: Some(7), inodes_used: Some(3), ..FilesystemUsage::default() };
    let pod = PodDisks {
        volumes: vec![
            volume("data", false, None),
            volume("fast", true, None),
            volume("kept", false, Some("claim")),
        ],
        layers: BTreeMap::from([(ContainerId::from("c1"), layer)]),
        logs: BTreeMap::from([("main".into(), used(100))]),
    };
    DiskSample {
        taken: node().taken,
        node: Some(space),
        images: Some(RuntimeFilesystem { space, used: used(300) }),
        containers: Some(RuntimeFilesystem { space, used: used(50) }),
        pods: BTreeMap::from([(PodUid::from("uid-1"), pod)]),
        is_incomplete: false,
    }
}

fn summary_of(sample: &NodeSample, disks: Option<&DiskSample>) -> String {
    let scope = summary::Scope { node_name: "node", sample, disks };
    let mut text = summary::head(scope);
    for place in 0..sample.pods.len() {
        text.push_str(&summary::pod(scope, place));
    }
    text.push_str(summary::tail());
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    serde_json::to_string_pretty(&value).expect("JSON")
}

#[test]
fn the_summary_has_everything() {
    expect![[r#"
        {
          "node": {
            "cpu": {
              "psi": {
                "full": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 11
                },
                "some": {
                  "avg10": 87.62,
                  "avg300": 14.82,
                  "avg60": 39.61,
                  "total": 73505000
                }
              },
              "time": "2023-11-14T22:16:40Z",
              "usageCoreNanoSeconds": 1500000000,
              "usageNanoCores": 1000
            },
            "fs": {
              "availableBytes": 400,
              "capacityBytes": 1000,
              "inodes": 100,
              "inodesFree": 60,
              "inodesUsed": 40,
              "time": "2023-11-14T22:16:40Z",
              "usedBytes": 500
            },
            "memory": {
              "availableBytes": 1073722824,
              "majorPageFaults": 3,
              "pageFaults": 30,
              "psi": {
                "some": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 0
                }
              },
              "rssBytes": 8192,
              "time": "2023-11-14T22:16:40Z",
              "usageBytes": 20000,
              "workingSetBytes": 19000
            },
            "network": {
              "interfaces": [
                {
                  "name": "eth0",
                  "rxBytes": 10,
                  "rxErrors": 0,
                  "txBytes": 20,
                  "txErrors": 0
                }
              ],
              "name": "eth0",
              "rxBytes": 10,
              "rxErrors": 0,
              "time": "2023-11-14T22:16:40Z",
              "txBytes": 20,
              "txErrors": 0
            },
            "nodeName": "node",
            "rlimit": {
              "curproc": 310,
              "maxpid": 32768,
              "time": "2023-11-14T22:16:40Z"
            },
            "runtime": {
              "containerFs": {
                "availableBytes": 400,
                "capacityBytes": 1000,
                "inodes": 100,
                "inodesFree": 60,
                "inodesUsed": 2,
                "time": "2023-11-14T22:16:40Z",
                "usedBytes": 50
              },
              "imageFs": {
                "availableBytes": 400,
                "capacityBytes": 1000,
                "inodes": 100,
                "inodesFree": 60,
                "inodesUsed": 2,
                "time": "2023-11-14T22:16:40Z",
                "usedBytes": 300
              }
            },
            "startTime": "2023-11-14T22:13:20Z",
            "swap": {
              "swapAvailableBytes": 960,
              "swapUsageBytes": 64,
              "time": "2023-11-14T22:16:40Z"
            },
            "systemContainers": [
              {
                "cpu": {
                  "time": "2023-11-14T22:16:40Z",
                  "usageCoreNanoSeconds": 1500000001
                },
                "memory": {
                  "availableBytes": 67089864,
                  "majorPageFaults": 3,
                  "pageFaults": 30,
                  "rssBytes": 8192,
                  "time": "2023-11-14T22:16:40Z",
                  "usageBytes": 20000,
                  "workingSetBytes": 19000
                },
                "name": "kubelet",
                "startTime": "2023-11-14T22:13:20Z",
                "swap": {
                  "swapAvailableBytes": 36,
                  "swapUsageBytes": 64,
                  "time": "2023-11-14T22:16:40Z"
                }
              }
            ]
          },
          "pods": [
            {
              "containers": [
                {
                  "cpu": {
                    "time": "2023-11-14T22:16:40Z",
                    "usageCoreNanoSeconds": 1500000001,
                    "usageNanoCores": 250
                  },
                  "logs": {
                    "availableBytes": 400,
                    "capacityBytes": 1000,
                    "inodes": 100,
                    "inodesFree": 60,
                    "inodesUsed": 2,
                    "time": "2023-11-14T22:16:40Z",
                    "usedBytes": 100
                  },
                  "memory": {
                    "availableBytes": 67089864,
                    "majorPageFaults": 3,
                    "pageFaults": 30,
                    "rssBytes": 8192,
                    "time": "2023-11-14T22:16:40Z",
                    "usageBytes": 20000,
                    "workingSetBytes": 19000
                  },
                  "name": "main",
                  "rootfs": {
                    "availableBytes": 400,
                    "capacityBytes": 1000,
                    "inodes": 100,
                    "inodesFree": 60,
                    "inodesUsed": 3,
                    "time": "2023-11-14T22:16:40Z",
                    "usedBytes": 7
                  },
                  "startTime": "2023-11-14T22:15:00Z",
                  "swap": {
                    "swapAvailableBytes": 36,
                    "swapUsageBytes": 64,
                    "time": "2023-11-14T22:16:40Z"
                  }
                }
              ],
              "cpu": {
                "time": "2023-11-14T22:16:40Z",
                "usageCoreNanoSeconds": 3000000002,
                "usageNanoCores": 251
              },
              "ephemeral-storage": {
                "availableBytes": 400,
                "capacityBytes": 1000,
                "inodes": 100,
                "inodesFree": 60,
                "inodesUsed": 7,
                "time": "2023-11-14T22:16:40Z",
                "usedBytes": 117
              },
              "memory": {
                "majorPageFaults": 6,
                "pageFaults": 60,
                "rssBytes": 16384,
                "time": "2023-11-14T22:16:40Z",
                "usageBytes": 40000,
                "workingSetBytes": 38000
              },
              "network": {
                "interfaces": [
                  {
                    "name": "eth0",
                    "rxBytes": 10,
                    "rxErrors": 0,
                    "txBytes": 20,
                    "txErrors": 0
                  }
                ],
                "name": "eth0",
                "rxBytes": 10,
                "rxErrors": 0,
                "time": "2023-11-14T22:16:40Z",
                "txBytes": 20,
                "txErrors": 0
              },
              "podRef": {
                "name": "web",
                "namespace": "default",
                "uid": "uid-1"
              },
              "process_stats": {
                "process_count": 4
              },
              "startTime": "2023-11-14T22:14:50Z",
              "swap": {
                "swapUsageBytes": 128,
                "time": "2023-11-14T22:16:40Z"
              },
              "volume": [
                {
                  "availableBytes": 400,
                  "capacityBytes": 1000,
                  "inodes": 100,
                  "inodesFree": 60,
                  "inodesUsed": 2,
                  "name": "data",
                  "time": "2023-11-14T22:16:40Z",
                  "usedBytes": 10
                },
                {
                  "availableBytes": 400,
                  "capacityBytes": 1000,
                  "inodes": 100,
                  "inodesFree": 60,
                  "inodesUsed": 2,
                  "name": "fast",
                  "time": "2023-11-14T22:16:40Z",
                  "usedBytes": 10
                },
                {
                  "availableBytes": 400,
                  "capacityBytes": 1000,
                  "inodes": 100,
                  "inodesFree": 60,
                  "inodesUsed": 2,
                  "name": "kept",
                  "pvcRef": {
                    "name": "claim",
                    "namespace": "default"
                  },
                  "time": "2023-11-14T22:16:40Z",
                  "usedBytes": 10
                }
              ]
            }
          ]
        }"#]]
    .assert_eq(&summary_of(&node(), Some(&disks())));
}

#[test]
fn the_summary_of_cpu_and_memory_has_nothing_else() {
    expect![[r#"
        {
          "node": {
            "cpu": {
              "psi": {
                "full": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 11
                },
                "some": {
                  "avg10": 87.62,
                  "avg300": 14.82,
                  "avg60": 39.61,
                  "total": 73505000
                }
              },
              "time": "2023-11-14T22:16:40Z",
              "usageCoreNanoSeconds": 1500000000,
              "usageNanoCores": 1000
            },
            "memory": {
              "availableBytes": 1073722824,
              "majorPageFaults": 3,
              "pageFaults": 30,
              "psi": {
                "some": {
                  "avg10": 0,
                  "avg300": 0,
                  "avg60": 0,
                  "total": 0
                }
              },
              "rssBytes": 8192,
              "time": "2023-11-14T22:16:40Z",
              "usageBytes": 20000,
              "workingSetBytes": 19000
            },
            "nodeName": "node",
            "startTime": "2023-11-14T22:13:20Z",
            "swap": {
              "swapAvailableBytes": 960,
              "swapUsageBytes": 64,
              "time": "2023-11-14T22:16:40Z"
            },
            "systemContainers": [
              {
                "cpu": {
                  "time": "2023-11-14T22:16:40Z",
                  "usageCoreNanoSeconds": 1500000001
                },
                "memory": {
                  "availableBytes": 67089864,
                  "majorPageFaults": 3,
                  "pageFaults": 30,
                  "rssBytes": 8192,
                  "time": "2023-11-14T22:16:40Z",
                  "usageBytes": 20000,
                  "workingSetBytes": 19000
                },
                "name": "kubelet",
                "startTime": "2023-11-14T22:13:20Z",
                "swap": {
                  "swapAvailableBytes": 36,
                  "swapUsageBytes": 64,
                  "time": "2023-11-14T22:16:40Z"
                }
              }
            ]
          },
          "pods": [
            {
              "containers": [
                {
                  "cpu": {
                    "time": "2023-11-14T22:16:40Z",
                    "usageCoreNanoSeconds": 1500000001,
                    "usageNanoCores": 250
                  },
                  "memory": {
                    "availableBytes": 67089864,
                    "majorPageFaults": 3,
                    "pageFaults": 30,
                    "rssBytes": 8192,
                    "time": "2023-11-14T22:16:40Z",
                    "usageBytes": 20000,
                    "workingSetBytes": 19000
                  },
                  "name": "main",
                  "startTime": "2023-11-14T22:15:00Z",
                  "swap": {
                    "swapAvailableBytes": 36,
                    "swapUsageBytes": 64,
                    "time": "2023-11-14T22:16:40Z"
                  }
                }
              ],
              "cpu": {
                "time": "2023-11-14T22:16:40Z",
                "usageCoreNanoSeconds": 3000000002,
                "usageNanoCores": 251
              },
              "memory": {
                "majorPageFaults": 6,
                "pageFaults": 60,
                "rssBytes": 16384,
                "time": "2023-11-14T22:16:40Z",
                "usageBytes": 40000,
                "workingSetBytes": 38000
              },
              "podRef": {
                "name": "web",
                "namespace": "default",
                "uid": "uid-1"
              },
              "startTime": "2023-11-14T22:14:50Z",
              "swap": {
                "swapUsageBytes": 128,
                "time": "2023-11-14T22:16:40Z"
              }
            }
          ]
        }"#]]
    .assert_eq(&summary_of(&node(), None));
}

#[test]
fn the_summary_of_a_node_without_pods_is_json() {
    let mut node = node();
    node.pods.clear();
    assert!(summary_of(&node, None).contains("\"pods\": []"));
}

fn resource_of(sample: &NodeSample) -> String {
    (0..resource::FAMILIES).map(|place| resource::family_text(sample, place)).collect()
}

#[test]
fn resource_metrics_are_told_with_the_time_of_the_sample() {
    expect![[r##"
        # HELP container_cpu_usage_seconds_total CPU time used by the container, in seconds.
        # TYPE container_cpu_usage_seconds_total counter
        container_cpu_usage_seconds_total{container="main",namespace="default",pod="web"} 1.500000001 1700000200123
        # HELP container_memory_working_set_bytes Memory of the container that cannot be taken back, in bytes.
        # TYPE container_memory_working_set_bytes gauge
        container_memory_working_set_bytes{container="main",namespace="default",pod="web"} 19000 1700000200123
        # HELP container_swap_limit_bytes Swap that the container may use, in bytes.
        # TYPE container_swap_limit_bytes gauge
        container_swap_limit_bytes{container="main",namespace="default",pod="web"} 100 1700000200123
        # HELP container_swap_usage_bytes Swap used by the container, in bytes.
        # TYPE container_swap_usage_bytes gauge
        container_swap_usage_bytes{container="main",namespace="default",pod="web"} 64 1700000200123
        # HELP node_cpu_usage_seconds_total CPU time used on the node, in seconds.
        # TYPE node_cpu_usage_seconds_total counter
        node_cpu_usage_seconds_total 1.5 1700000200123
        # HELP node_memory_working_set_bytes Memory of the node that cannot be taken back, in bytes.
        # TYPE node_memory_working_set_bytes gauge
        node_memory_working_set_bytes 19000 1700000200123
        # HELP node_swap_usage_bytes Swap used on the node, in bytes.
        # TYPE node_swap_usage_bytes gauge
        node_swap_usage_bytes 64 1700000200123
        # HELP pod_cpu_usage_seconds_total CPU time used by the pod, in seconds.
        # TYPE pod_cpu_usage_seconds_total counter
        pod_cpu_usage_seconds_total{namespace="default",pod="web"} 3.000000002 1700000200123
        # HELP pod_memory_working_set_bytes Memory of the pod that cannot be taken back, in bytes.
        # TYPE pod_memory_working_set_bytes gauge
        pod_memory_working_set_bytes{namespace="default",pod="web"} 38000 1700000200123
        # HELP pod_swap_usage_bytes Swap used by the pod, in bytes.
        # TYPE pod_swap_usage_bytes gauge
        pod_swap_usage_bytes{namespace="default",pod="web"} 128 1700000200123
        # HELP container_start_time_seconds When the container was started, in seconds since 1970.
        # TYPE container_start_time_seconds gauge
        container_start_time_seconds{container="main",namespace="default",pod="web"} 1700000100
        # HELP resource_scrape_error 1 if something could not be measured, 0 otherwise.
        # TYPE resource_scrape_error gauge
        resource_scrape_error 0
    "##]].assert_eq(&resource_of(&node()));
}

#[test]
fn of_two_pods_of_one_name_the_newer_is_told() {
    let mut node = node();
    let mut newer = node.pods[0].clone();
    newer.started = Timestamp::from_second(1_700_000_150).ok();
    newer.containers[0].placed.cgroup.memory.working_set = Some(77);
    node.pods.insert(0, newer);
    let text = resource_of(&node);
    let lines: Vec<&str> = text.lines().filter(|l| l.starts_with("container_memory_working_set")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].contains("} 77 "), "{text}");
}

#[test]
fn a_pod_with_a_cgroup_of_its_own_is_measured_there() {
    let mut node = node();
    let own = Placed { path: "/kubepods/poduid-1".into(), cgroup: v2(), rate: Some(9) };
    node.pods[0].own = Some(own.clone());
    assert_eq!(node.pods[0].whole(), own);
    assert_eq!(node.pods[0].processes(), Some(4));
    node.pods[0].own = None;
    let whole = node.pods[0].whole();
    assert_eq!((whole.cgroup.cpu_nanoseconds, whole.rate), (Some(3_000_000_002), Some(251)));
    assert_eq!(whole.cgroup.memory.working_set, Some(38_000));
}

#[test]
fn claimed_volumes_are_told_once_and_logs_by_container() {
    let mut disks = disks();
    let other = PodDisks { logs: BTreeMap::new(), ..disks.pods[&PodUid::from("uid-1")].clone() };
    disks.pods.insert(PodUid::from("uid-2"), other);
    let pods = ["uid-1", "uid-2"].map(|uid| (PodUid::from(uid), PodRef::new("default", "web", uid)));
    let mut text = String::new();
    super::volumes::write_disks(&mut text, &disks, &BTreeMap::from(pods));
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let claim = "{namespace=\"default\",persistentvolumeclaim=\"claim\"}";
    assert_eq!(
        lines,
        [
            format!("kubelet_volume_stats_available_bytes{claim} 400"),
            format!("kubelet_volume_stats_capacity_bytes{claim} 1000"),
            format!("kubelet_volume_stats_inodes{claim} 100"),
            format!("kubelet_volume_stats_inodes_free{claim} 60"),
            format!("kubelet_volume_stats_inodes_used{claim} 2"),
            format!("kubelet_volume_stats_used_bytes{claim} 10"),
            "kubelet_container_log_filesystem_used_bytes{container=\"main\",namespace=\"default\",pod=\"web\",uid=\"uid-1\"} 100"
                .to_owned(),
        ]
    );
}

fn cadvisor_of(sample: &NodeSample) -> String {
    let machine = MachineNames {
        boot_id: "b",
        machine_id: "m",
        system_uuid: "u",
        kernel_version: "6.1",
        os_image: "Linux \"12\"",
        cores: 4,
        physical_cores: 2,
        sockets: 1,
    };
    let telling = Telling::new(sample, machine);
    (0..).map_while(|place| telling.piece(place)).collect()
}

#[test]
fn every_cgroup_is_told_under_the_names_of_cadvisor() {
    expect![[r##"
        # HELP container_cpu_user_seconds_total CPU time used outside the kernel, in seconds.
        # TYPE container_cpu_user_seconds_total counter
        container_cpu_user_seconds_total{container="",id="/",image="",name="",namespace="",pod=""} 1 1700000200123
        container_cpu_user_seconds_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 1 1700000200123
        container_cpu_user_seconds_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 1 1700000200123
        container_cpu_user_seconds_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 1 1700000200123
        # HELP container_cpu_system_seconds_total CPU time used in the kernel, in seconds.
        # TYPE container_cpu_system_seconds_total counter
        container_cpu_system_seconds_total{container="",id="/",image="",name="",namespace="",pod=""} 0.5 1700000200123
        container_cpu_system_seconds_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 0.500000001 1700000200123
        container_cpu_system_seconds_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 0.500000001 1700000200123
        container_cpu_system_seconds_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 0.500000001 1700000200123
        # HELP container_cpu_usage_seconds_total CPU time used, in seconds.
        # TYPE container_cpu_usage_seconds_total counter
        container_cpu_usage_seconds_total{container="",cpu="total",id="/",image="",name="",namespace="",pod=""} 1.5 1700000200123
        container_cpu_usage_seconds_total{container="",cpu="total",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 1.500000001 1700000200123
        container_cpu_usage_seconds_total{container="",cpu="total",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 1.500000001 1700000200123
        container_cpu_usage_seconds_total{container="main",cpu="total",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 1.500000001 1700000200123
        # HELP container_cpu_cfs_periods_total Periods of the CPU quota that have passed.
        # TYPE container_cpu_cfs_periods_total counter
        container_cpu_cfs_periods_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 10 1700000200123
        container_cpu_cfs_periods_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 10 1700000200123
        container_cpu_cfs_periods_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 10 1700000200123
        # HELP container_cpu_cfs_throttled_periods_total Periods of the CPU quota in which the container had to wait.
        # TYPE container_cpu_cfs_throttled_periods_total counter
        container_cpu_cfs_throttled_periods_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 4 1700000200123
        container_cpu_cfs_throttled_periods_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 4 1700000200123
        container_cpu_cfs_throttled_periods_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 4 1700000200123
        # HELP container_cpu_cfs_throttled_seconds_total How long the CPU quota made the container wait, in seconds.
        # TYPE container_cpu_cfs_throttled_seconds_total counter
        container_cpu_cfs_throttled_seconds_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 0.25 1700000200123
        container_cpu_cfs_throttled_seconds_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 0.25 1700000200123
        container_cpu_cfs_throttled_seconds_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 0.25 1700000200123
        # HELP container_cpu_cfs_burst_periods_total Periods in which the container used what it had saved of its CPU quota.
        # TYPE container_cpu_cfs_burst_periods_total counter
        container_cpu_cfs_burst_periods_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 1 1700000200123
        container_cpu_cfs_burst_periods_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 1 1700000200123
        container_cpu_cfs_burst_periods_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 1 1700000200123
        # HELP container_cpu_cfs_burst_seconds_total CPU time used beyond the quota out of savings, in seconds.
        # TYPE container_cpu_cfs_burst_seconds_total counter
        container_cpu_cfs_burst_seconds_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 0.000000005 1700000200123
        container_cpu_cfs_burst_seconds_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 0.000000005 1700000200123
        container_cpu_cfs_burst_seconds_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 0.000000005 1700000200123
        # HELP container_memory_cache Bytes of the page cache.
        # TYPE container_memory_cache gauge
        container_memory_cache{container="",id="/",image="",name="",namespace="",pod=""} 4096 1700000200123
        container_memory_cache{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 4096 1700000200123
        container_memory_cache{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 4096 1700000200123
        container_memory_cache{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 4096 1700000200123
        # HELP container_memory_rss Bytes of memory that belong to no file.
        # TYPE container_memory_rss gauge
        container_memory_rss{container="",id="/",image="",name="",namespace="",pod=""} 8192 1700000200123
        container_memory_rss{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 8192 1700000200123
        container_memory_rss{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 8192 1700000200123
        container_memory_rss{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 8192 1700000200123
        # HELP container_memory_kernel_usage Bytes that the kernel took for the container.
        # TYPE container_memory_kernel_usage gauge
        container_memory_kernel_usage{container="",id="/",image="",name="",namespace="",pod=""} 2048 1700000200123
        container_memory_kernel_usage{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 4096 1700000200123
        container_memory_kernel_usage{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 4096 1700000200123
        container_memory_kernel_usage{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 4096 1700000200123
        # HELP container_memory_mapped_file Bytes of files that are mapped.
        # TYPE container_memory_mapped_file gauge
        container_memory_mapped_file{container="",id="/",image="",name="",namespace="",pod=""} 512 1700000200123
        container_memory_mapped_file{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 512 1700000200123
        container_memory_mapped_file{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 512 1700000200123
        container_memory_mapped_file{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 512 1700000200123
        # HELP container_memory_swap Bytes of swap in use.
        # TYPE container_memory_swap gauge
        container_memory_swap{container="",id="/",image="",name="",namespace="",pod=""} 64 1700000200123
        container_memory_swap{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 64 1700000200123
        container_memory_swap{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 64 1700000200123
        container_memory_swap{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 64 1700000200123
        # HELP container_memory_failcnt How often memory ran into its limit.
        # TYPE container_memory_failcnt counter
        container_memory_failcnt{container="",id="/",image="",name="",namespace="",pod=""} 7 1700000200123
        container_memory_failcnt{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 7 1700000200123
        container_memory_failcnt{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 7 1700000200123
        container_memory_failcnt{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 7 1700000200123
        # HELP container_memory_usage_bytes Bytes of memory in use, of whatever kind.
        # TYPE container_memory_usage_bytes gauge
        container_memory_usage_bytes{container="",id="/",image="",name="",namespace="",pod=""} 20000 1700000200123
        container_memory_usage_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 20000 1700000200123
        container_memory_usage_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 20000 1700000200123
        container_memory_usage_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 20000 1700000200123
        # HELP container_memory_max_usage_bytes The most bytes of memory that were ever in use.
        # TYPE container_memory_max_usage_bytes gauge
        container_memory_max_usage_bytes{container="",id="/",image="",name="",namespace="",pod=""} 30000 1700000200123
        container_memory_max_usage_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 30000 1700000200123
        container_memory_max_usage_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 30000 1700000200123
        container_memory_max_usage_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 30000 1700000200123
        # HELP container_memory_working_set_bytes Bytes of memory that cannot be taken back.
        # TYPE container_memory_working_set_bytes gauge
        container_memory_working_set_bytes{container="",id="/",image="",name="",namespace="",pod=""} 19000 1700000200123
        container_memory_working_set_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 19000 1700000200123
        container_memory_working_set_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 19000 1700000200123
        container_memory_working_set_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 19000 1700000200123
        # HELP container_memory_total_active_file_bytes Bytes of file pages used lately.
        # TYPE container_memory_total_active_file_bytes gauge
        container_memory_total_active_file_bytes{container="",id="/",image="",name="",namespace="",pod=""} 2000 1700000200123
        container_memory_total_active_file_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 2000 1700000200123
        container_memory_total_active_file_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 2000 1700000200123
        container_memory_total_active_file_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 2000 1700000200123
        # HELP container_memory_total_inactive_file_bytes Bytes of file pages not used lately.
        # TYPE container_memory_total_inactive_file_bytes gauge
        container_memory_total_inactive_file_bytes{container="",id="/",image="",name="",namespace="",pod=""} 1000 1700000200123
        container_memory_total_inactive_file_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 1000 1700000200123
        container_memory_total_inactive_file_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 1000 1700000200123
        container_memory_total_inactive_file_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 1000 1700000200123
        # HELP container_memory_failures_total Page faults, by kind and scope.
        # TYPE container_memory_failures_total counter
        container_memory_failures_total{container="",failure_type="pgfault",id="/",image="",name="",namespace="",pod="",scope="container"} 30 1700000200123
        container_memory_failures_total{container="",failure_type="pgmajfault",id="/",image="",name="",namespace="",pod="",scope="container"} 3 1700000200123
        container_memory_failures_total{container="",failure_type="pgfault",id="/",image="",name="",namespace="",pod="",scope="hierarchy"} 30 1700000200123
        container_memory_failures_total{container="",failure_type="pgmajfault",id="/",image="",name="",namespace="",pod="",scope="hierarchy"} 3 1700000200123
        container_memory_failures_total{container="",failure_type="pgfault",id="/system.slice/kubelet.service",image="",name="",namespace="",pod="",scope="container"} 30 1700000200123
        container_memory_failures_total{container="",failure_type="pgmajfault",id="/system.slice/kubelet.service",image="",name="",namespace="",pod="",scope="container"} 3 1700000200123
        container_memory_failures_total{container="",failure_type="pgfault",id="/system.slice/kubelet.service",image="",name="",namespace="",pod="",scope="hierarchy"} 300 1700000200123
        container_memory_failures_total{container="",failure_type="pgmajfault",id="/system.slice/kubelet.service",image="",name="",namespace="",pod="",scope="hierarchy"} 33 1700000200123
        container_memory_failures_total{container="",failure_type="pgfault",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web",scope="container"} 30 1700000200123
        container_memory_failures_total{container="",failure_type="pgmajfault",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web",scope="container"} 3 1700000200123
        container_memory_failures_total{container="",failure_type="pgfault",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web",scope="hierarchy"} 300 1700000200123
        container_memory_failures_total{container="",failure_type="pgmajfault",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web",scope="hierarchy"} 33 1700000200123
        container_memory_failures_total{container="main",failure_type="pgfault",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web",scope="container"} 30 1700000200123
        container_memory_failures_total{container="main",failure_type="pgmajfault",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web",scope="container"} 3 1700000200123
        container_memory_failures_total{container="main",failure_type="pgfault",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web",scope="hierarchy"} 300 1700000200123
        container_memory_failures_total{container="main",failure_type="pgmajfault",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web",scope="hierarchy"} 33 1700000200123
        # HELP container_oom_events_total Processes killed because memory ran out.
        # TYPE container_oom_events_total counter
        container_oom_events_total{container="",id="/",image="",name="",namespace="",pod=""} 2 1700000200123
        container_oom_events_total{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 2 1700000200123
        container_oom_events_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 2 1700000200123
        container_oom_events_total{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 2 1700000200123
        # HELP container_pressure_cpu_stalled_seconds_total How long all tasks waited for the CPU, in seconds.
        # TYPE container_pressure_cpu_stalled_seconds_total counter
        container_pressure_cpu_stalled_seconds_total{container="",id="/",image="",name="",namespace="",pod=""} 0.000011 1700000200123
        # HELP container_pressure_cpu_waiting_seconds_total How long some task waited for the CPU, in seconds.
        # TYPE container_pressure_cpu_waiting_seconds_total counter
        container_pressure_cpu_waiting_seconds_total{container="",id="/",image="",name="",namespace="",pod=""} 73.505 1700000200123
        # HELP container_pressure_memory_waiting_seconds_total How long some task waited for memory, in seconds.
        # TYPE container_pressure_memory_waiting_seconds_total counter
        container_pressure_memory_waiting_seconds_total{container="",id="/",image="",name="",namespace="",pod=""} 0 1700000200123
        # HELP container_network_receive_bytes_total Bytes received.
        # TYPE container_network_receive_bytes_total counter
        container_network_receive_bytes_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 10 1700000200123
        container_network_receive_bytes_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 10 1700000200123
        # HELP container_network_receive_packets_total Packets received.
        # TYPE container_network_receive_packets_total counter
        container_network_receive_packets_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 1 1700000200123
        container_network_receive_packets_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 1 1700000200123
        # HELP container_network_receive_packets_dropped_total Packets received and dropped.
        # TYPE container_network_receive_packets_dropped_total counter
        container_network_receive_packets_dropped_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 0 1700000200123
        container_network_receive_packets_dropped_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 0 1700000200123
        # HELP container_network_receive_errors_total Errors while receiving.
        # TYPE container_network_receive_errors_total counter
        container_network_receive_errors_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 0 1700000200123
        container_network_receive_errors_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 0 1700000200123
        # HELP container_network_transmit_bytes_total Bytes sent.
        # TYPE container_network_transmit_bytes_total counter
        container_network_transmit_bytes_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 20 1700000200123
        container_network_transmit_bytes_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 20 1700000200123
        # HELP container_network_transmit_packets_total Packets sent.
        # TYPE container_network_transmit_packets_total counter
        container_network_transmit_packets_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 2 1700000200123
        container_network_transmit_packets_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 2 1700000200123
        # HELP container_network_transmit_packets_dropped_total Packets dropped instead of sent.
        # TYPE container_network_transmit_packets_dropped_total counter
        container_network_transmit_packets_dropped_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 0 1700000200123
        container_network_transmit_packets_dropped_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 0 1700000200123
        # HELP container_network_transmit_errors_total Errors while sending.
        # TYPE container_network_transmit_errors_total counter
        container_network_transmit_errors_total{container="",id="/",image="",interface="eth0",name="",namespace="",pod=""} 0 1700000200123
        container_network_transmit_errors_total{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",interface="eth0",name="s1",namespace="default",pod="web"} 0 1700000200123
        # HELP container_fs_reads_bytes_total Bytes read from the device.
        # TYPE container_fs_reads_bytes_total counter
        container_fs_reads_bytes_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 40960 1700000200123
        container_fs_reads_bytes_total{container="",device="/dev/vda",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 4096 1700000200123
        container_fs_reads_bytes_total{container="",device="/dev/vda",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 4096 1700000200123
        container_fs_reads_bytes_total{container="main",device="/dev/vda",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 4096 1700000200123
        # HELP container_fs_reads_total Reads from the device.
        # TYPE container_fs_reads_total counter
        container_fs_reads_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 10 1700000200123
        container_fs_reads_total{container="",device="/dev/vda",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 1 1700000200123
        container_fs_reads_total{container="",device="/dev/vda",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 1 1700000200123
        container_fs_reads_total{container="main",device="/dev/vda",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 1 1700000200123
        # HELP container_fs_writes_bytes_total Bytes written to the device.
        # TYPE container_fs_writes_bytes_total counter
        container_fs_writes_bytes_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 81920 1700000200123
        container_fs_writes_bytes_total{container="",device="/dev/vda",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 8192 1700000200123
        container_fs_writes_bytes_total{container="",device="/dev/vda",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 8192 1700000200123
        container_fs_writes_bytes_total{container="main",device="/dev/vda",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 8192 1700000200123
        # HELP container_fs_writes_total Writes to the device.
        # TYPE container_fs_writes_total counter
        container_fs_writes_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 20 1700000200123
        container_fs_writes_total{container="",device="/dev/vda",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 2 1700000200123
        container_fs_writes_total{container="",device="/dev/vda",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 2 1700000200123
        container_fs_writes_total{container="main",device="/dev/vda",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 2 1700000200123
        # HELP container_fs_reads_merged_total Reads that became part of another.
        # TYPE container_fs_reads_merged_total counter
        container_fs_reads_merged_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 1 1700000200123
        # HELP container_fs_sector_reads_total Sectors read.
        # TYPE container_fs_sector_reads_total counter
        container_fs_sector_reads_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 80 1700000200123
        # HELP container_fs_read_seconds_total Time spent on reads, in seconds.
        # TYPE container_fs_read_seconds_total counter
        container_fs_read_seconds_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 0.005 1700000200123
        # HELP container_fs_writes_merged_total Writes that became part of another.
        # TYPE container_fs_writes_merged_total counter
        container_fs_writes_merged_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 2 1700000200123
        # HELP container_fs_sector_writes_total Sectors written.
        # TYPE container_fs_sector_writes_total counter
        container_fs_sector_writes_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 160 1700000200123
        # HELP container_fs_write_seconds_total Time spent on writes, in seconds.
        # TYPE container_fs_write_seconds_total counter
        container_fs_write_seconds_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 0.007 1700000200123
        # HELP container_fs_io_current Reads and writes under way.
        # TYPE container_fs_io_current gauge
        container_fs_io_current{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 0 1700000200123
        # HELP container_fs_io_time_seconds_total Time in which the device was busy, in seconds.
        # TYPE container_fs_io_time_seconds_total counter
        container_fs_io_time_seconds_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 0.009 1700000200123
        # HELP container_fs_io_time_weighted_seconds_total The same, times what was under way, in seconds.
        # TYPE container_fs_io_time_weighted_seconds_total counter
        container_fs_io_time_weighted_seconds_total{container="",device="/dev/vda",id="/",image="",name="",namespace="",pod=""} 0.012 1700000200123
        # HELP container_blkio_device_usage_total Bytes moved to or from the device.
        # TYPE container_blkio_device_usage_total counter
        container_blkio_device_usage_total{container="",device="/dev/vda",id="/",image="",major="254",minor="0",name="",namespace="",operation="Read",pod=""} 4096 1700000200123
        container_blkio_device_usage_total{container="",device="/dev/vda",id="/",image="",major="254",minor="0",name="",namespace="",operation="Write",pod=""} 8192 1700000200123
        container_blkio_device_usage_total{container="",device="",id="/",image="",major="7",minor="0",name="",namespace="",operation="Read",pod=""} 0 1700000200123
        container_blkio_device_usage_total{container="",device="",id="/",image="",major="7",minor="0",name="",namespace="",operation="Write",pod=""} 0 1700000200123
        container_blkio_device_usage_total{container="",device="/dev/vda",id="/system.slice/kubelet.service",image="",major="254",minor="0",name="",namespace="",operation="Read",pod=""} 4096 1700000200123
        container_blkio_device_usage_total{container="",device="/dev/vda",id="/system.slice/kubelet.service",image="",major="254",minor="0",name="",namespace="",operation="Write",pod=""} 8192 1700000200123
        container_blkio_device_usage_total{container="",device="/dev/vda",id="/k8s.io/s1",image="docker.io/library/busybox:1",major="254",minor="0",name="s1",namespace="default",operation="Read",pod="web"} 4096 1700000200123
        container_blkio_device_usage_total{container="",device="/dev/vda",id="/k8s.io/s1",image="docker.io/library/busybox:1",major="254",minor="0",name="s1",namespace="default",operation="Write",pod="web"} 8192 1700000200123
        container_blkio_device_usage_total{container="main",device="/dev/vda",id="/k8s.io/c1",image="docker.io/library/busybox:1",major="254",minor="0",name="c1",namespace="default",operation="Read",pod="web"} 4096 1700000200123
        container_blkio_device_usage_total{container="main",device="/dev/vda",id="/k8s.io/c1",image="docker.io/library/busybox:1",major="254",minor="0",name="c1",namespace="default",operation="Write",pod="web"} 8192 1700000200123
        # HELP container_processes Processes in the cgroup.
        # TYPE container_processes gauge
        container_processes{container="",id="/",image="",name="",namespace="",pod=""} 2 1700000200123
        container_processes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 2 1700000200123
        container_processes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 2 1700000200123
        container_processes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 2 1700000200123
        # HELP container_threads Threads in the cgroup and below.
        # TYPE container_threads gauge
        container_threads{container="",id="/",image="",name="",namespace="",pod=""} 5 1700000200123
        container_threads{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 5 1700000200123
        container_threads{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 5 1700000200123
        container_threads{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 5 1700000200123
        # HELP container_threads_max Threads that may be there; 0 means any number.
        # TYPE container_threads_max gauge
        container_threads_max{container="",id="/",image="",name="",namespace="",pod=""} 100 1700000200123
        container_threads_max{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 0 1700000200123
        container_threads_max{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 0 1700000200123
        container_threads_max{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 0 1700000200123
        # HELP container_spec_cpu_period Length of a period of the CPU quota, in microseconds.
        # TYPE container_spec_cpu_period gauge
        container_spec_cpu_period{container="",id="/",image="",name="",namespace="",pod=""} 100000
        container_spec_cpu_period{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 100000
        container_spec_cpu_period{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 100000
        container_spec_cpu_period{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 100000
        # HELP container_spec_cpu_quota CPU time for each period, in microseconds.
        # TYPE container_spec_cpu_quota gauge
        container_spec_cpu_quota{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 50000
        container_spec_cpu_quota{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 50000
        container_spec_cpu_quota{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 50000
        # HELP container_spec_cpu_shares Share of the CPU where it is scarce.
        # TYPE container_spec_cpu_shares gauge
        container_spec_cpu_shares{container="",id="/",image="",name="",namespace="",pod=""} 500
        container_spec_cpu_shares{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 512
        container_spec_cpu_shares{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 512
        container_spec_cpu_shares{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 512
        # HELP container_spec_memory_limit_bytes Limit of memory; 0 means none.
        # TYPE container_spec_memory_limit_bytes gauge
        container_spec_memory_limit_bytes{container="",id="/",image="",name="",namespace="",pod=""} 0
        container_spec_memory_limit_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 67108864
        container_spec_memory_limit_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 67108864
        container_spec_memory_limit_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 67108864
        # HELP container_spec_memory_swap_limit_bytes Limit of swap; 0 means none.
        # TYPE container_spec_memory_swap_limit_bytes gauge
        container_spec_memory_swap_limit_bytes{container="",id="/",image="",name="",namespace="",pod=""} 1024
        container_spec_memory_swap_limit_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 100
        container_spec_memory_swap_limit_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 100
        container_spec_memory_swap_limit_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 100
        # HELP container_spec_memory_reservation_limit_bytes Memory set aside; 0 means none.
        # TYPE container_spec_memory_reservation_limit_bytes gauge
        container_spec_memory_reservation_limit_bytes{container="",id="/",image="",name="",namespace="",pod=""} 0
        container_spec_memory_reservation_limit_bytes{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 0
        container_spec_memory_reservation_limit_bytes{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 0
        container_spec_memory_reservation_limit_bytes{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 0
        # HELP container_start_time_seconds When it was started, in seconds since 1970.
        # TYPE container_start_time_seconds gauge
        container_start_time_seconds{container="",id="/",image="",name="",namespace="",pod=""} 1700000000
        container_start_time_seconds{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 1700000100
        container_start_time_seconds{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 1700000100
        # HELP container_last_seen When it was last measured, in seconds since 1970.
        # TYPE container_last_seen gauge
        container_last_seen{container="",id="/",image="",name="",namespace="",pod=""} 1700000200 1700000200123
        container_last_seen{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} 1700000200 1700000200123
        container_last_seen{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} 1700000200 1700000200123
        container_last_seen{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} 1700000200 1700000200123
        # HELP container_health_state Outcome of the runtime's own health check; -1 means it has none.
        # TYPE container_health_state gauge
        container_health_state{container="",id="/",image="",name="",namespace="",pod=""} -1 1700000200123
        container_health_state{container="",id="/system.slice/kubelet.service",image="",name="",namespace="",pod=""} -1 1700000200123
        container_health_state{container="",id="/k8s.io/s1",image="docker.io/library/busybox:1",name="s1",namespace="default",pod="web"} -1 1700000200123
        container_health_state{container="main",id="/k8s.io/c1",image="docker.io/library/busybox:1",name="c1",namespace="default",pod="web"} -1 1700000200123
        # HELP cadvisor_version_info Versions of what was measured and of what measures; always 1.
        # TYPE cadvisor_version_info gauge
        cadvisor_version_info{cadvisorRevision="",cadvisorVersion="",dockerVersion="",kernelVersion="6.1",osVersion="Linux \"12\""} 1
        # HELP machine_cpu_cores Logical processors.
        # TYPE machine_cpu_cores gauge
        machine_cpu_cores{boot_id="b",machine_id="m",system_uuid="u"} 4
        # HELP machine_cpu_physical_cores Processor cores.
        # TYPE machine_cpu_physical_cores gauge
        machine_cpu_physical_cores{boot_id="b",machine_id="m",system_uuid="u"} 2
        # HELP machine_cpu_sockets Processor packages.
        # TYPE machine_cpu_sockets gauge
        machine_cpu_sockets{boot_id="b",machine_id="m",system_uuid="u"} 1
        # HELP machine_memory_bytes Memory of the machine, in bytes.
        # TYPE machine_memory_bytes gauge
        machine_memory_bytes{boot_id="b",machine_id="m",system_uuid="u"} 1073741824
        # HELP machine_swap_bytes Swap of the machine, in bytes.
        # TYPE machine_swap_bytes gauge
        machine_swap_bytes{boot_id="b",machine_id="m",system_uuid="u"} 0
        # HELP container_scrape_error 1 if something could not be measured, 0 otherwise.
        # TYPE container_scrape_error gauge
        container_scrape_error 0
        # HELP machine_scrape_error 1 if something could not be measured, 0 otherwise.
        # TYPE machine_scrape_error gauge
        machine_scrape_error 0
    "##]].assert_eq(&cadvisor_of(&node()));
}

#[test]
fn a_family_that_cannot_be_measured_is_not_told() {
    let mut node = node();
    node.root.cgroup.pressure = None;
    assert!(!cadvisor_of(&node).contains("container_pressure"));
}

#[test]
fn numbers_and_labels_are_written_so_that_they_can_be_read_back() {
    let mut text = String::new();
    exposition::family(&mut text, "a_seconds", Kind::Counter, "Help.");
    let labels = [("l", "a\"b\\c\nd")];
    for value in
        [Value::Nanoseconds(0), Value::Nanoseconds(1_500_000_000), Value::Nanoseconds(1), Value::Float(0.5)]
    {
        exposition::line(&mut text, "a_seconds", &labels, value, None);
    }
    exposition::line(
        &mut text,
        "a_seconds",
        &[],
        Value::Integer(u64::MAX),
        Timestamp::from_millisecond(12).ok(),
    );
    exposition::histogram(&mut text, "h", &[("x", "y")], &[0.5, 1.0], (&[1, 0, 2], 3_000_000_000));
    expect![[r##"
        # HELP a_seconds Help.
        # TYPE a_seconds counter
        a_seconds{l="a\"b\\c\nd"} 0
        a_seconds{l="a\"b\\c\nd"} 1.5
        a_seconds{l="a\"b\\c\nd"} 0.000000001
        a_seconds{l="a\"b\\c\nd"} 0.5
        a_seconds 18446744073709551615 12
        h_bucket{x="y",le="0.5"} 1
        h_bucket{x="y",le="1"} 1
        h_bucket{x="y",le="+Inf"} 3
        h_sum{x="y"} 3
        h_count{x="y"} 3
    "##]]
    .assert_eq(&text);
}
