//! The values of the Go kubelet's own tables (`eviction/helpers_test.go` and `memory_threshold_notifier_test.go`, 1.36).

use std::time::Duration;

use model::MonoTime;
use serde_json::{Value, json};

use super::super::pressure::{PressureState, PressureView, are_relieved, compute_pressure};
use super::super::threshold::{Level, Threshold, compute_thresholds, fit_to_layout};
use super::super::{DiskLayout, Signal};
use super::{Observation, Observations, check_rank, config, node_using};
use crate::node::eviction::alarm::compute_memory_marks;

const GI: i64 = 1 << 30;

fn at(seconds: u64) -> MonoTime {
    MonoTime::from_start(Duration::from_secs(seconds))
}

fn level(level: &Level) -> String {
    match level {
        Level::Absolute { text, .. } => text.to_string(),
        Level::Share(share) => format!("{}%", (share * 1000.0).round() / 10.0),
    }
}

fn shown(thresholds: &[Threshold]) -> Vec<String> {
    let one = |t: &Threshold| {
        let reclaim = t.reclaim.as_ref().map_or_else(String::new, |r| format!("+{}", level(r)));
        format!("{}<{}{reclaim} {}s", t.signal.as_str(), level(&t.level), t.grace.as_secs())
    };
    thresholds.iter().map(one).collect()
}

#[test]
fn parse_threshold_config_table() {
    let table = [
        ("no values", json!({}), vec![]),
        (
            "all memory eviction values",
            json!({"enforceNodeAllocatable": ["pods"], "evictionHard": {"memory.available": "150Mi"},
                "evictionSoft": {"memory.available": "300Mi"},
                "evictionSoftGracePeriod": {"memory.available": "30s"},
                "evictionMinimumReclaim": {"memory.available": "0"}}),
            vec![
                "memory.available<150Mi+0 0s",
                "memory.available<300Mi+0 30s",
                "allocatableMemory.available<150Mi+0 0s",
            ],
        ),
        (
            "all memory eviction values in percentages",
            json!({"evictionHard": {"memory.available": "10%"}, "evictionSoft": {"memory.available": "30%"},
                "evictionSoftGracePeriod": {"memory.available": "30s"},
                "evictionMinimumReclaim": {"memory.available": "5%"}}),
            vec!["memory.available<10%+5% 0s", "memory.available<30%+5% 30s"],
        ),
        (
            "disk eviction values",
            disks("available", ["150Mi", "100Mi", "300Mi", "200Mi", "2Gi", "1Gi"]),
            vec![
                "nodefs.available<100Mi+1Gi 0s",
                "nodefs.available<200Mi+1Gi 30s",
                "imagefs.available<150Mi+2Gi 0s",
                "imagefs.available<300Mi+2Gi 30s",
            ],
        ),
        (
            "disk eviction values in percentages",
            disks("available", ["15%", "10.5%", "30%", "20.5%", "10%", "5%"]),
            vec![
                "nodefs.available<10.5%+5% 0s",
                "nodefs.available<20.5%+5% 30s",
                "imagefs.available<15%+10% 0s",
                "imagefs.available<30%+10% 30s",
            ],
        ),
        (
            "inode eviction values",
            disks("inodesFree", ["150Mi", "100Mi", "300Mi", "200Mi", "2Gi", "1Gi"]),
            vec![
                "nodefs.inodesFree<100Mi+1Gi 0s",
                "nodefs.inodesFree<200Mi+1Gi 30s",
                "imagefs.inodesFree<150Mi+2Gi 0s",
                "imagefs.inodesFree<300Mi+2Gi 30s",
            ],
        ),
        (
            "disable via 0%",
            json!({"evictionHard": {"memory.available": "0%"}, "evictionSoft": {"memory.available": "0%"}}),
            vec![],
        ),
        (
            "disable via 100%",
            json!({"evictionHard": {"memory.available": "100%"}, "evictionSoft": {"memory.available": "100%"}}),
            vec![],
        ),
        (
            "an allocatable threshold only for a hard one of memory",
            json!({"enforceNodeAllocatable": ["pods"], "evictionHard": {"imagefs.available": "150Mi"},
                "evictionSoft": {"memory.available": "150Mi"},
                "evictionSoftGracePeriod": {"memory.available": "10s"}}),
            vec!["memory.available<150Mi 10s", "imagefs.available<150Mi 0s"],
        ),
    ];
    for (name, fields, expected) in table {
        // A map left empty stands for the default thresholds, so that the cases without any set a threshold that is
        // disabled.
        let fields = match fields.get("evictionHard") {
            Some(_) => fields,
            None => json!({"evictionHard": {"nodefs.available": "0%"}}),
        };
        assert_eq!(shown(&compute_thresholds(&config(&fields))), expected, "{name}");
    }
}

/// Hard, soft and minimum reclaim of imagefs and nodefs.
fn disks(what: &str, levels: [&str; 6]) -> Value {
    let pair = |a: &str, b: &str| json!({(format!("imagefs.{what}")): a, (format!("nodefs.{what}")): b});
    json!({"evictionHard": pair(levels[0], levels[1]), "evictionSoft": pair(levels[2], levels[3]),
        "evictionSoftGracePeriod": pair("30s", "30s"), "evictionMinimumReclaim": pair(levels[4], levels[5])})
}

#[test]
fn parse_percentage_table() {
    for (text, expected) in [("blah", None), ("25.5%", Some(0.255)), ("foo%", None), ("12%345", None)] {
        assert_eq!(Level::parse(text), expected.map(Level::Share), "{text}");
    }
}

#[test]
fn add_container_fs_thresholds_table() {
    let fields = |hard: Value, soft: Value, reclaim: Value| {
        json!({"evictionHard": hard, "evictionSoft": soft, "evictionMinimumReclaim": reclaim,
            "evictionSoftGracePeriod": {"nodefs.available": "1s", "nodefs.inodesFree": "1s",
                "imagefs.available": "1s", "imagefs.inodesFree": "1s", "containerfs.available": "1s"}})
    };
    let own = json!({"nodefs.available": "100Mi", "nodefs.inodesFree": "100Mi", "imagefs.available": "150Mi",
        "imagefs.inodesFree": "300Mi", "containerfs.available": "500Mi"});
    let soft = json!({"nodefs.available": "200Mi", "nodefs.inodesFree": "200Mi", "imagefs.available": "300Mi",
        "imagefs.inodesFree": "150Mi", "containerfs.available": "500Mi"});
    let reclaim =
        json!({"nodefs.available": "1Gi", "nodefs.inodesFree": "2Gi", "containerfs.available": "5Gi"});
    let given = compute_thresholds(&config(&fields(own, soft, reclaim)));
    let of_containers: Vec<_> = shown(&fit_to_layout(&given, DiskLayout::Split))
        .into_iter()
        .filter(|line| line.starts_with("containerfs"))
        .collect();
    assert_eq!(
        of_containers,
        [
            "containerfs.available<100Mi+1Gi 0s",
            "containerfs.available<200Mi+1Gi 1s",
            "containerfs.inodesFree<100Mi+2Gi 0s",
            "containerfs.inodesFree<200Mi+2Gi 1s",
        ]
    );
}

#[test]
fn ordered_by_memory_table() {
    let pods = "
        best-effort-high 0 0: 500 1 0 0 0
        best-effort-low  0 0: 300 1 0 0 0
        burstable-high   0 100: 800 1 0 0 0
        burstable-low    0 100: 300 1 0 0 0
        guaranteed-high  0 1024: 800 1 0 0 0
        guaranteed-low   0 1024: 200 1 0 0 0
    ";
    let expected =
        "burstable-high best-effort-high best-effort-low burstable-low guaranteed-high guaranteed-low";
    check_rank(pods, Signal::MemoryAvailable, DiskLayout::One, expected);
    let exceeding = "
        below   -1 200: 199 1 0 0 0
        exceeds  1 100: 101 1 0 0 0
    ";
    check_rank(exceeding, Signal::MemoryAvailable, DiskLayout::One, "exceeds below");
    let by_priority = "
        8 1 1024: 200 1 0 0 0
        7 1 1024: 800 1 0 0 0
        6 -1 1024: 200 1 0 0 0
        5 -1 1024: 800 1 0 0 0
        4 1 100: 150 1 0 0 0
        3 1 100: 600 1 0 0 0
        2 -1 0: 50 1 0 0 0
        1 -1 0: 500 1 0 0 0
    ";
    check_rank(by_priority, Signal::MemoryAvailable, DiskLayout::One, "1 2 3 4 5 6 7 8");
    let priorities = "
        high 12534 200: 1 1 0 0 0
        medium 1 200: 1 1 0 0 0
        low -134 200: 1 1 0 0 0
    ";
    check_rank(priorities, Signal::MemoryAvailable, DiskLayout::One, "low medium high");
}

#[test]
fn ordered_by_disk_table() {
    let pods = "
        best-effort-high 0 0: 0 1 50 100 150
        best-effort-low  0 0: 0 1 25 25 50
        burstable-high   0 100: 0 1 150 150 50
        burstable-low    0 100: 0 1 25 35 50
        guaranteed-high  0 400: 0 1 225 100 50
        guaranteed-low   0 400: 0 1 25 45 50
    ";
    let expected =
        "best-effort-high burstable-high best-effort-low burstable-low guaranteed-high guaranteed-low";
    check_rank(pods, Signal::NodeFsAvailable, DiskLayout::One, expected);
    let exceeding = "
        below   -1 200: 0 1 100 99 0
        exceeds  1 100: 0 1 90 11 0
    ";
    check_rank(exceeding, Signal::NodeFsAvailable, DiskLayout::One, "exceeds below");
    let by_priority = "
        8 1 1024: 0 1 100 60 40
        7 1 1024: 0 1 250 500 50
        6 -1 1024: 0 1 50 100 50
        5 -1 1024: 0 1 500 200 100
        4 1 100: 0 1 90 50 10
        3 1 100: 0 1 200 150 250
        2 -1 0: 0 1 10 10 30
        1 -1 0: 0 1 200 100 200
    ";
    check_rank(by_priority, Signal::NodeFsAvailable, DiskLayout::One, "1 2 3 4 5 6 7 8");
    let inodes = "
        low    0 0: 0 1 50000 100000 50000
        medium 0 0: 0 1 100000 150000 50000
        high   0 0: 0 1 200000 150000 50000
    ";
    check_rank(inodes, Signal::NodeFsInodesFree, DiskLayout::One, "high medium low");
    let inodes_by_priority = "
        4  1 0: 0 1 10000 40000 100000
        3  1 0: 0 1 150000 150000 50000
        2 -1 0: 0 1 60000 30000 10000
        1 -1 0: 0 1 50000 100000 250000
    ";
    check_rank(inodes_by_priority, Signal::NodeFsInodesFree, DiskLayout::One, "1 2 3 4");
}

#[test]
fn ordered_by_priority_process_table() {
    let pods = "
        4  1 0: 0 5 0 0 0
        3  1 0: 0 20 0 0 0
        2 -1 0: 0 6 0 0 0
        1 -1 0: 0 20 0 0 0
    ";
    check_rank(pods, Signal::PidAvailable, DiskLayout::One, "1 2 3 4");
    let unknown = "
        1 0 0:
        2 0 0:
    ";
    for signal in Signal::ALL {
        check_rank(unknown, signal, DiskLayout::One, "1 2");
    }
}

#[test]
fn sort_by_eviction_priority_table() {
    let sorted = |hard: Value| {
        let thresholds = compute_thresholds(&config(&json!({"evictionHard": hard})));
        thresholds.iter().map(|t| t.signal).collect::<Vec<_>>()
    };
    assert_eq!(
        sorted(json!({"nodefs.available": "1", "pid.available": "1", "memory.available": "1"})),
        [Signal::MemoryAvailable, Signal::NodeFsAvailable, Signal::PidAvailable]
    );
    assert_eq!(
        sorted(json!({"nodefs.available": "1", "pid.available": "1", "allocatableMemory.available": "1"})),
        [Signal::AllocatableMemoryAvailable, Signal::NodeFsAvailable, Signal::PidAvailable]
    );
}

fn observed(signal: Signal, available: i64, capacity: i64) -> Observations {
    let mut all = Observations::default();
    all.set(signal, Some(Observation { available, capacity }));
    all
}

fn first_observation(thresholds: &[Threshold], observed: &Observations) -> PressureView {
    compute_pressure(&PressureState::default(), thresholds, observed, Duration::ZERO, at(600)).1
}

#[test]
fn thresholds_met_table() {
    let hard = compute_thresholds(&config(&json!({"evictionHard": {"memory.available": "1Gi"},
        "evictionMinimumReclaim": {"memory.available": "500Mi"}})));
    let memory = |available| observed(Signal::MemoryAvailable, available, 16 * GI);
    assert!(first_observation(&[], &Observations::default()).due.is_empty(), "empty");
    assert_eq!(first_observation(&hard, &memory(500 << 20)).due, [0], "threshold-met-memory");
    assert!(first_observation(&hard, &memory(2 * GI)).due.is_empty(), "threshold-not-met");
    assert!(!are_relieved(&hard, &[0], &memory(GI + GI / 20)), "threshold-met-with-min-reclaim");
    assert!(are_relieved(&hard, &[0], &memory(2 * GI)), "threshold-not-met-with-min-reclaim");
}

#[test]
fn percentage_thresholds_met_table() {
    let thresholds = compute_thresholds(&config(&json!({
        "evictionHard": {"memory.available": "20%", "nodefs.available": "30%"},
        "evictionMinimumReclaim": {"memory.available": "5%"}})));
    for (name, memory, disk, expected) in [
        ("BothMet", 100, 100, vec![0, 1]),
        ("NoneMet", 300, 400, vec![]),
        ("DiskMet", 300, 100, vec![1]),
        ("MemoryMet", 100, 400, vec![0]),
    ] {
        let mut all = observed(Signal::MemoryAvailable, memory << 20, 1000 << 20);
        all.set(Signal::NodeFsAvailable, Some(Observation { available: disk * GI, capacity: 1000 * GI }));
        assert_eq!(first_observation(&thresholds, &all).due, expected, "{name}");
    }
    let memory = |available: i64| observed(Signal::MemoryAvailable, available << 20, 1000 << 20);
    assert!(!are_relieved(&thresholds, &[0], &memory(225)), "MemoryMetWithMinReclaim");
    assert!(are_relieved(&thresholds, &[0], &memory(300)), "MemoryNotMetWithMinReclaim");
}

#[test]
fn thresholds_met_grace_period_and_first_observed_at_table() {
    let thresholds = compute_thresholds(&config(&json!({
        "evictionHard": {"memory.available": "1Gi"}, "evictionSoft": {"memory.available": "2Gi"},
        "evictionSoftGracePeriod": {"memory.available": "1m"}})));
    let memory = |available| observed(Signal::MemoryAvailable, available, 16 * GI);
    let observe = |state: &PressureState, available, seconds| {
        compute_pressure(state, &thresholds, &memory(available), Duration::ZERO, at(seconds))
    };
    let (state, view) = observe(&PressureState::default(), 3 * GI, 0);
    assert!(view.due.is_empty(), "empty");
    let (soft_since_600, view) = observe(&state, 3 * GI / 2, 600);
    assert!(view.due.is_empty(), "soft-threshold-not-met");
    assert_eq!(
        observe(&soft_since_600, 3 * GI / 2, 720).1.due,
        [1],
        "soft-threshold-met since the first observation"
    );
    assert_eq!(observe(&soft_since_600, GI / 2, 600).1.due, [0], "hard-threshold-met");
}

#[test]
fn node_conditions_observed_since_table() {
    let thresholds = compute_thresholds(&config(&json!({"evictionHard": {"memory.available": "1Gi"}})));
    let observe = |state: &PressureState, available, transition, seconds| {
        let memory = observed(Signal::MemoryAvailable, available, 16 * GI);
        compute_pressure(state, &thresholds, &memory, Duration::from_secs(transition), at(seconds))
    };
    let (state, view) = observe(&PressureState::default(), GI / 2, 120, 0);
    assert!(view.shown.memory && !view.shown.disk && !view.shown.pids);
    assert!(observe(&state, 2 * GI, 120, 60).1.shown.memory, "in-period");
    assert!(!observe(&state, 2 * GI, 30, 60).1.shown.memory, "out-of-period");
    let (again, _) = observe(&state, GI / 2, 120, 60);
    assert!(observe(&again, 2 * GI, 90, 149).1.shown.memory, "the period begins with the last observation");
}

/// Capacity is what is available and the working set: 3 and 1 GiB of the machine, 4 and 1 GiB of the pods.
#[test]
fn memory_threshold_notifier_update_threshold_table() {
    for (signal, expected) in [("memory.available", 4 * GI), ("allocatableMemory.available", 6 * GI)] {
        let mut node = node_using(2048, 1024);
        node.machine.memory_bytes = 4 << 30;
        let pods = &mut node.system[0].placed.cgroup.memory;
        (pods.limit, pods.usage, pods.working_set) = (Some(5 << 30), Some(3 << 30), Some(1 << 30));
        let hard = compute_thresholds(&config(&json!({"evictionHard": {signal: "1Gi"}})));
        let marks = compute_memory_marks(&hard, &node);
        // The kernel notifies from this usage on; the Go kubelet names the last usage that is within the threshold.
        let found: Vec<_> = marks.iter().map(|mark| i64::try_from(mark.bytes).unwrap() - 1).collect();
        assert_eq!(found, [expected], "{signal}");
        node.root = super::Placed::default();
        node.system.clear();
        assert!(compute_memory_marks(&hard, &node).is_empty(), "{signal}: incomplete summary");
    }
}
