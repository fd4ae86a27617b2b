//! Golden cases: kernel files of both cgroup versions, and their exports; one file for each form of export. The node below
//! is the input of all of them.
#![expect(clippy::too_many_lines, reason = "golden texts are long")]

mod cadvisor_text;
mod cgroup_files;
mod procfs_files;
mod prometheus_text;
mod resource_text;
mod sample_age;
mod summary_json;

use std::collections::BTreeMap;
use std::time::Duration;

use expect_test::expect;
use jiff::Timestamp;
use model::stats::{FilesystemSpace, FilesystemUsage, TreeUsage, VolumeSample};
use model::{ContainerId, MonoTime, Now, PodRef, PodUid};

use super::age::{
    LastSample, Reading, compute_rate, compute_rate_since_start, is_fresh_enough, next_baseline,
};
use super::cadvisor::{CadvisorExport, MachineNames};
use super::cgroup::{self, CgroupSample, Detail, Hierarchy};
use super::exposition::{self, Kind, Value};
use super::sample::{
    ContainerSample, DiskSample, LocalFilesystem, MachineSample, NodeSample, Placed, PodDisks, PodSample,
    RuntimeFilesystem, SystemSample,
};
use super::{cgroup_path, procfs, resource, summary, volumes};

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

fn at(seconds: f64) -> MonoTime {
    MonoTime::from_start(Duration::from_secs_f64(seconds))
}

fn container(id: &str, name: &str, cgroup: CgroupSample, rate: u64) -> ContainerSample {
    ContainerSample {
        id: ContainerId::from(id),
        name: name.into(),
        image: "docker.io/library/busybox:1".into(),
        started: Timestamp::from_second(1_700_000_100).expect("a time"),
        placed: Placed { path: format!("/k8s.io/{id}").into(), cgroup, rate: Some(rate), measured_at: None },
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
            max_tasks: Some(32768),
            disks: procfs::disks("254 0 vda 10 1 80 5 20 2 160 7 0 9 12 0 0\n"),
            filesystems: Vec::new(),
        },
        root: Placed { path: "/".into(), cgroup: root, rate: Some(1_000), measured_at: None },
        system: vec![SystemSample {
            name: "kubelet",
            started: None,
            placed: Placed {
                path: "/system.slice/kubelet.service".into(),
                cgroup: v1(),
                rate: None,
                measured_at: None,
            },
        }],
        qos: Vec::new(),
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
    let volume = |name: &str, is_off_disk, claim: Option<&str>| VolumeSample {
        name: name.into(),
        claim: claim.map(Into::into),
        plugin: "kubernetes.io/empty-dir".into(),
        is_off_disk,
        space,
        used: used(10),
        is_abnormal: None,
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
        files: used(1000),
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
    for index in 0..sample.pods.len() {
        text.push_str(&summary::pod(scope, index));
    }
    text.push_str(summary::tail());
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    serde_json::to_string_pretty(&value).expect("JSON")
}
