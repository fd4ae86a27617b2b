use std::fmt::Write as _;
use std::time::Duration;

use config::KubeletConfiguration;
use expect_test::{Expect, expect};
use model::k8s::Pod;
use model::stats::{TreeUsage, VolumeSample};
use model::{MonoTime, Now};
use serde_json::{Value, json};
use stats_core::cgroup::{CgroupSample, Detail, MemorySample};
use stats_core::sample::{MachineSample, NodeSample, Placed, PodDisks, SystemSample};

use super::alarm::compute_memory_marks;
use super::limits::{compute_exceeded_limit, has_limits};
use super::message::{notice, threshold_met};
use super::observe::{Observation, Observations, observe};
use super::pressure::{PressureState, are_relieved, compute_pressure};
use super::rank::rank;
use super::reclaim::compute_reclaim;
use super::threshold::{Threshold, compute_thresholds, fit_to_layout, ignored_signals};
use super::usage::{Candidate, ContainerUsage, PodUsage};
use super::{DiskLayout, Signal, Starved};

mod upstream;

const MI: i64 = 1 << 20;

fn config(fields: &Value) -> KubeletConfiguration {
    let mut whole = json!({"enforceNodeAllocatable": []});
    for (name, value) in fields.as_object().unwrap() {
        whole[name] = value.clone();
    }
    serde_json::from_value(whole).unwrap()
}

fn hard(signal: &str, level: &str) -> Vec<Threshold> {
    compute_thresholds(&config(&json!({"evictionHard": {signal: level}})))
}

fn show(thresholds: &[Threshold]) -> String {
    let mut text = String::new();
    for t in thresholds {
        let reclaim = t.reclaim.as_ref().map_or_else(|| "-".to_owned(), |r| r.shown(1000));
        writeln!(
            text,
            "{}<{} for {:?}, reclaims {reclaim}",
            t.signal.as_str(),
            t.level.shown(1000 * MI),
            t.grace
        )
        .unwrap();
    }
    text
}

#[track_caller]
fn check_thresholds(fields: &Value, expected: &Expect) {
    expected.assert_eq(&show(&compute_thresholds(&config(fields))));
}

#[test]
fn thresholds_are_read_in_the_order_in_which_shortages_are_relieved() {
    check_thresholds(
        &json!({"evictionHard": {"nodefs.available": "10%", "memory.available": "100Mi", "pid.available": "1k"},
            "evictionSoft": {"memory.available": "1.5Gi"},
            "evictionSoftGracePeriod": {"memory.available": "1m30s"},
            "evictionMinimumReclaim": {"memory.available": "64Mi", "nodefs.available": "5%"}}),
        &expect![[r#"
            memory.available<100Mi for 0ns, reclaims 64Mi
            memory.available<1.5Gi for 90s, reclaims 64Mi
            nodefs.available<104857601 for 0ns, reclaims 50
            pid.available<1k for 0ns, reclaims -
        "#]],
    );
}

#[test]
fn allocatable_memory_gets_the_hard_threshold_of_the_machine() {
    check_thresholds(
        &json!({"enforceNodeAllocatable": ["pods"], "evictionHard": {"memory.available": "5%"},
            "evictionSoft": {"memory.available": "10%"}, "evictionSoftGracePeriod": {"memory.available": "1s"}}),
        &expect![[r#"
            memory.available<50Mi for 0ns, reclaims -
            memory.available<104857601 for 1s, reclaims -
            allocatableMemory.available<50Mi for 0ns, reclaims -
        "#]],
    );
}

#[test]
fn zero_and_hundred_percent_disable_a_threshold() {
    check_thresholds(
        &json!({"evictionHard": {"nodefs.available": "0%", "imagefs.available": "100%"}}),
        &expect![""],
    );
}

#[test]
fn missing_thresholds_get_defaults_with_merge_default_eviction_settings() {
    check_thresholds(
        &json!({"mergeDefaultEvictionSettings": true, "evictionHard": {"memory.available": "1Gi"}}),
        &expect![[r#"
            memory.available<1Gi for 0ns, reclaims -
            nodefs.available<104857601 for 0ns, reclaims -
            nodefs.inodesFree<50Mi for 0ns, reclaims -
            imagefs.available<157286406 for 0ns, reclaims -
            imagefs.inodesFree<50Mi for 0ns, reclaims -
        "#]],
    );
}

#[test]
fn containerfs_has_the_thresholds_of_the_filesystem_it_shares() {
    let given = compute_thresholds(&config(&json!({"evictionHard": {
        "nodefs.available": "10Mi", "imagefs.available": "20Mi", "containerfs.available": "30Mi"}})));
    for layout in [DiskLayout::One, DiskLayout::ImagesApart] {
        assert_eq!(
            show(&fit_to_layout(&given, layout)),
            "nodefs.available<10Mi for 0ns, reclaims -\nimagefs.available<20Mi for 0ns, reclaims -\n"
        );
    }
    assert_eq!(
        show(&fit_to_layout(&given, DiskLayout::Split)),
        "nodefs.available<10Mi for 0ns, reclaims -\nimagefs.available<20Mi for 0ns, reclaims -\n\
         containerfs.available<10Mi for 0ns, reclaims -\n"
    );
    assert_eq!(ignored_signals(&given), ["containerfs.available"]);
    assert!(ignored_signals(&fit_to_layout(&given, DiskLayout::Split)[..2]).is_empty());
}

/// With the default thresholds: which are crossed if this percentage of each disk is available.
#[test]
fn imagefs_thresholds_apply_to_the_disk_of_the_images_even_if_it_is_nodefs() {
    let usual = json!({"evictionHard": {"nodefs.available": "10%", "imagefs.available": "15%"}});
    let usual = compute_thresholds(&config(&usual));
    let due = |layout, of_node: i64, of_images: i64| {
        let thresholds = fit_to_layout(&usual, layout);
        let mut observed = Observations::default();
        for (signal, percent) in [(Signal::NodeFsAvailable, of_node), (Signal::ImageFsAvailable, of_images)] {
            observed.set(signal, Some(Observation { available: percent * 10, capacity: 1000 }));
        }
        let state = PressureState::default();
        let (_, view) = compute_pressure(&state, &thresholds, &observed, Duration::ZERO, MonoTime::ZERO);
        view.due.iter().map(|index| thresholds[*index].signal.as_str()).collect::<Vec<_>>()
    };
    assert!(due(DiskLayout::One, 16, 16).is_empty());
    assert_eq!(due(DiskLayout::One, 12, 12), ["imagefs.available"]);
    assert_eq!(due(DiskLayout::One, 9, 9), ["nodefs.available", "imagefs.available"]);
    assert!(due(DiskLayout::ImagesApart, 12, 50).is_empty());
    assert_eq!(due(DiskLayout::ImagesApart, 50, 12), ["imagefs.available"]);
}

/// A machine of 1000 MiB of which pods may use 500; both use `used` MiB, of which `inactive` are inactive file pages.
fn node_using(used: u64, inactive: u64) -> NodeSample {
    let mebibytes = |number: u64| Some(number << 20);
    let placed = |path: &str, limit| Placed {
        path: path.into(),
        cgroup: CgroupSample {
            memory: MemorySample {
                usage: mebibytes(used),
                working_set: mebibytes(used - inactive),
                limit,
                ..MemorySample::default()
            },
            ..CgroupSample::default()
        },
        rate: None,
        measured_at: None,
    };
    let pods = SystemSample { name: "pods", started: None, placed: placed("/kubepods", mebibytes(500)) };
    NodeSample {
        taken: Now { wall: jiff::Timestamp::UNIX_EPOCH, mono: MonoTime::ZERO },
        detail: Detail::Node,
        machine: MachineSample { memory_bytes: 1000 << 20, ..MachineSample::default() },
        root: placed("/", None),
        system: vec![pods],
        qos: Vec::new(),
        pods: Vec::new(),
        is_incomplete: false,
    }
}

#[track_caller]
fn check_marks(used: u64, inactive: u64, expected: &[(&str, u64)]) {
    let thresholds = compute_thresholds(&config(&json!({
        "enforceNodeAllocatable": ["pods"],
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%"},
        "evictionSoft": {"memory.available": "30%"}, "evictionSoftGracePeriod": {"memory.available": "1m"},
    })));
    let node = node_using(used, inactive);
    let marks = compute_memory_marks(&thresholds, &node);
    let shown: Vec<_> = marks.iter().map(|mark| (&*mark.cgroup, mark.bytes >> 20)).collect();
    assert_eq!(shown, expected);
    // A mark is the first usage with which the next observation would find a threshold crossed.
    let observed = observe(Some(&node), None);
    let passed = thresholds
        .iter()
        .filter(|threshold| !threshold.signal.as_str().starts_with("nodefs"))
        .filter(|threshold| {
            observed.get(threshold.signal).is_some_and(|o| o.available < threshold.level.of(o.capacity))
        });
    assert_eq!(passed.count() + marks.len(), 3);
}

#[test]
fn memory_notifier_is_set_for_each_memory_threshold_that_is_not_crossed() {
    check_marks(100, 0, &[("/", 900), ("/", 699), ("/kubepods", 400)]);
    check_marks(100, 50, &[("/", 950), ("/", 749), ("/kubepods", 450)]);
    check_marks(400, 0, &[("/", 900), ("/", 699), ("/kubepods", 400)]);
    check_marks(401, 0, &[("/", 900), ("/", 699)]);
    check_marks(950, 60, &[("/", 960)]);
    check_marks(950, 0, &[]);
}

#[test]
fn memory_notifier_is_not_set_without_memory_statistics() {
    let thresholds = hard("memory.available", "100Mi");
    let mut node = node_using(100, 0);
    node.root = Placed::default();
    assert_eq!(compute_memory_marks(&thresholds, &node), []);
    let more_than_all = hard("memory.available", "2000Mi");
    assert_eq!(compute_memory_marks(&more_than_all, &node_using(100, 0)), []);
}

fn seen(signal: Signal, available: i64) -> Observations {
    let mut all = Observations::default();
    all.set(signal, Some(Observation { available, capacity: 1000 * MI }));
    all
}

/// Observes at these times (in seconds) with so many MiB of memory available, and shows for each what is shown and what is
/// due. `-` is an observation without a value.
#[track_caller]
fn check_observations(fields: &Value, transition: u64, observations: &str, expected: &Expect) {
    let thresholds = compute_thresholds(&config(fields));
    let (mut state, mut text) = (PressureState::default(), String::new());
    for observation in observations.split_whitespace() {
        let (at, left) = observation.split_once(':').unwrap();
        let at = MonoTime::from_start(Duration::from_secs(at.parse().unwrap()));
        let observed = left
            .parse::<i64>()
            .map_or_else(|_| Observations::default(), |l| seen(Signal::MemoryAvailable, l * MI));
        let (next, view) =
            compute_pressure(&state, &thresholds, &observed, Duration::from_secs(transition), at);
        state = next;
        let due: Vec<_> = view.due.iter().map(|index| format!("{:?}", thresholds[*index].grace)).collect();
        writeln!(text, "{observation} pressure={} due={}", view.shown.memory, due.join(",")).unwrap();
    }
    expected.assert_eq(&text);
}

#[test]
fn a_hard_threshold_is_due_at_once_and_pressure_is_shown_a_while_longer() {
    check_observations(
        &json!({"evictionHard": {"memory.available": "100Mi"}}),
        30,
        "0:200 10:100 20:99 30:300 49:300 50:300",
        &expect![[r#"
            0:200 pressure=false due=
            10:100 pressure=false due=
            20:99 pressure=true due=0ns
            30:300 pressure=true due=
            49:300 pressure=true due=
            50:300 pressure=false due=
        "#]],
    );
}

#[test]
fn soft_threshold_must_be_crossed_for_its_whole_grace_period() {
    check_observations(
        &json!({"evictionSoft": {"memory.available": "100Mi"}, "evictionSoftGracePeriod": {"memory.available": "20s"}}),
        0,
        "0:50 10:50 15:150 20:50 39:50 40:50",
        &expect![[r#"
            0:50 pressure=true due=
            10:50 pressure=true due=
            15:150 pressure=false due=
            20:50 pressure=true due=
            39:50 pressure=true due=
            40:50 pressure=true due=20s
        "#]],
    );
}

#[test]
fn threshold_stays_met_until_the_minimum_reclaim_is_available() {
    check_observations(
        &json!({"evictionHard": {"memory.available": "100Mi"}, "evictionMinimumReclaim": {"memory.available": "50Mi"}}),
        0,
        "0:120 10:90 20:120 30:149 40:150 50:120",
        &expect![[r#"
            0:120 pressure=false due=
            10:90 pressure=true due=0ns
            20:120 pressure=true due=0ns
            30:149 pressure=true due=0ns
            40:150 pressure=false due=
            50:120 pressure=false due=
        "#]],
    );
}

#[test]
fn missing_signal_is_no_pressure_and_ends_pressure_only_after_the_transition_period() {
    check_observations(
        &json!({"evictionHard": {"memory.available": "100Mi"}}),
        30,
        "0:- 10:50 20:-",
        &expect![[r#"
            0:- pressure=false due=
            10:50 pressure=true due=0ns
            20:- pressure=true due=
        "#]],
    );
}

#[test]
fn memory_signals_come_before_disk_signals_and_those_before_pid_signals() {
    let thresholds = compute_thresholds(&config(&json!({"evictionHard": {
        "pid.available": "10%", "imagefs.available": "10%", "nodefs.inodesFree": "10%", "memory.available": "10%"}})));
    let mut observed = Observations::default();
    for signal in Signal::ALL {
        observed.set(signal, Some(Observation { available: 1, capacity: 1000 }));
    }
    let (_, view) =
        compute_pressure(&PressureState::default(), &thresholds, &observed, Duration::ZERO, MonoTime::ZERO);
    let due: Vec<_> = view.due.iter().map(|index| thresholds[*index].signal.as_str()).collect();
    assert_eq!(due, ["memory.available", "nodefs.inodesFree", "imagefs.available", "pid.available"]);
    assert!(view.shown.memory && view.shown.disk && view.shown.pids);
    assert!(!are_relieved(&thresholds, &view.due, &observed));
    assert!(are_relieved(&thresholds, &[0], &seen(Signal::MemoryAvailable, 900 * MI)));
}

fn pod(name: &str, spec: &Value) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": spec})).unwrap()
}

fn tree(bytes: u64, inodes: u64) -> Option<TreeUsage> {
    Some(TreeUsage { bytes, inodes })
}

/// `name priority request: memory processes layer logs volumes [files]`, all numbers in the unit of the resource; a pod
/// without numbers has no statistics.
fn candidates(lines: &str) -> Vec<(Pod, Option<PodUsage>)> {
    let one = |line: &str| {
        let (who, used) = line.split_once(':').unwrap();
        let who: Vec<_> = who.split_whitespace().collect();
        let requests = json!({"memory": who[2], "ephemeral-storage": who[2]});
        let spec = json!({"priority": who[1].parse::<i32>().unwrap(),
            "containers": [{"name": "c", "resources": {"requests": requests}}]});
        let used: Vec<u64> = used.split_whitespace().map(|number| number.parse().unwrap()).collect();
        let usage = (!used.is_empty()).then(|| PodUsage {
            memory: Some(used[0]),
            processes: Some(used[1]),
            containers: vec![ContainerUsage {
                name: "c".into(),
                memory: Some(used[0]),
                layer: tree(used[2], used[2]),
                logs: tree(used[3], used[3]),
            }],
            volumes: TreeUsage { bytes: used[4], inodes: used[4] },
            files: TreeUsage { bytes: used.get(5).copied().unwrap_or(0), inodes: 0 },
        });
        (pod(who[0], &spec), usage)
    };
    lines.lines().map(str::trim).filter(|line| !line.is_empty()).map(one).collect()
}

#[track_caller]
fn check_rank(lines: &str, signal: Signal, layout: DiskLayout, expected: &str) {
    let pods = candidates(lines);
    let mut ranked: Vec<_> =
        pods.iter().map(|(pod, usage)| Candidate { pod, usage: usage.clone() }).collect();
    rank(&mut ranked, signal, layout);
    let names: Vec<_> = ranked.iter().filter_map(|c| c.pod.metadata.name.as_deref()).collect();
    assert_eq!(names.join(" "), expected, "{signal:?} {layout:?}");
}

const MEMORY: &str = "
    modest      0 500: 400 1 0 0 0
    greedy      0 100: 300 1 0 0 0
    greedier    0 100: 900 1 0 0 0
    important 100 100: 950 1 0 0 0
    quiet       0 500: 499 1 0 0 0
    least      -5 500: 100 1 0 0 0
    unknown   100 500:
";

#[test]
fn eviction_ranks_by_memory_over_request_then_by_priority() {
    let expected = "unknown greedier greedy important least quiet modest";
    check_rank(MEMORY, Signal::MemoryAvailable, DiskLayout::One, expected);
    check_rank(MEMORY, Signal::AllocatableMemoryAvailable, DiskLayout::Split, expected);
}

#[test]
fn eviction_for_pids_ranks_by_priority_then_by_number_of_processes() {
    let pods = "
        few     0 0: 999 3 0 0 0
        many    0 0: 1 50 0 0 0
        forker 10 0: 1 900 0 0 0
    ";
    check_rank(pods, Signal::PidAvailable, DiskLayout::One, "many few forker");
}

const DISKS: &str = "
    writer  0 10: 0 1 900 1 1
    logger  0 10: 0 1 2 500 1
    storer  0 10: 0 1 3 1 700
    frugal  0 10: 0 1 1 1 1
";

#[test]
fn eviction_ranks_by_usage_of_the_starved_filesystem_only() {
    let on_one = "writer storer logger frugal";
    check_rank(DISKS, Signal::NodeFsAvailable, DiskLayout::One, on_one);
    check_rank(DISKS, Signal::ImageFsAvailable, DiskLayout::One, on_one);
    check_rank(DISKS, Signal::NodeFsInodesFree, DiskLayout::One, on_one);
    check_rank(DISKS, Signal::NodeFsAvailable, DiskLayout::ImagesApart, "storer logger writer frugal");
    check_rank(DISKS, Signal::ImageFsAvailable, DiskLayout::ImagesApart, "writer storer logger frugal");
    check_rank(DISKS, Signal::ContainerFsAvailable, DiskLayout::Split, on_one);
}

/// `/etc/hosts` and termination logs are on the node's filesystem.
#[test]
fn etc_hosts_and_termination_log_count_in_the_ranking_for_nodefs() {
    let pods = "
        writer  0 10: 0 1 300 1 1 0
        hosts   0 10: 0 1 1 1 1 400
        frugal  0 10: 0 1 1 1 1 1
    ";
    check_rank(pods, Signal::NodeFsAvailable, DiskLayout::One, "hosts writer frugal");
    check_rank(pods, Signal::NodeFsAvailable, DiskLayout::ImagesApart, "hosts frugal writer");
    check_rank(pods, Signal::ImageFsAvailable, DiskLayout::ImagesApart, "writer hosts frugal");
}

#[track_caller]
fn check_notice(
    spec: &Value,
    usage: Vec<ContainerUsage>,
    threshold: &Threshold,
    left: i64,
    expected: &Expect,
) {
    let pod = pod("a", spec);
    let candidate =
        Candidate { pod: &pod, usage: Some(PodUsage { containers: usage, ..PodUsage::default() }) };
    let notice = notice(&candidate, threshold, &seen(threshold.signal, left));
    assert!(notice.is_disruption);
    expected.assert_debug_eq(&(notice.message, notice.annotations));
}

#[test]
fn eviction_message_has_threshold_available_and_containers_over_their_request() {
    let spec = json!({"containers": [
        {"name": "big", "resources": {"requests": {"memory": "128M"}}},
        {"name": "none"},
        {"name": "small", "resources": {"requests": {"memory": "1Gi"}}},
    ]});
    let used = |name: &str, mebibytes: u64| ContainerUsage {
        name: name.into(),
        memory: Some(mebibytes << 20),
        ..ContainerUsage::default()
    };
    let usage = vec![used("big", 700), used("none", 1), used("small", 2), used("gone", 9)];
    let threshold = &hard("memory.available", "10%")[0];
    check_notice(
        &spec,
        usage,
        threshold,
        90 * MI,
        &expect![[r#"
        (
            "The node was low on resource: memory. Threshold quantity: 104857601, available: 90Mi. Container big was using 700Mi, request is 128M, has larger consumption of memory. Container none was using 1Mi, request is 0, has larger consumption of memory. ",
            [
                (
                    "offending_containers",
                    "big,none",
                ),
                (
                    "offending_containers_usage",
                    "700Mi,1Mi",
                ),
                (
                    "starved_resource",
                    "memory",
                ),
            ],
        )
    "#]],
    );
}

/// The table of `eviction/helpers_test.go` (TestEvictionMessage).
#[test]
fn eviction_message_names_init_containers_sidecars_and_pod_level_usage() {
    // Requests of init containers and of regular ones in MiB, `!` for a sidecar; what is used; which are named.
    let table = [
        ("i1=100 r1!=200 | c1=200", "r1=150 c1=100", ""),
        ("i1=100 r1!=200 i2=150 | c1=200", "i1=150", "i1=150"),
        ("i1=100 r1!=200 r2!=200 | c1=200", "r1=250 r2=150 c1=200", "r1=250"),
        ("i1=100 r1!=200 | c1=200 c2=300", "r1=200 c1=250 c2=250", "c1=250"),
        ("i1=100 r1!=200 | c1=200", "r1=200 c1=150 e1=250", ""),
        ("i1=100 r1!=0 r2!=300 | c1=0", "r1=250 r2=250 c1=200", "r1=250 c1=200"),
        (
            "i1=100 i2=100 i3=100 r1!=100 r2!=200 r3!=300 | c1=300 c2=200 c3=100",
            "r1=150 r2=250 r3=250 c1=50 c2=250 c3=400",
            "r1=150 r2=250 c2=250 c3=400",
        ),
    ];
    let pairs = |text: &str| -> Vec<(String, u64)> {
        let parts = text.split_whitespace().map(|part| part.split_once('=').unwrap());
        parts.map(|(name, size)| (name.to_owned(), size.parse().unwrap())).collect()
    };
    for (containers, used, expected) in table {
        let (init, regular) = containers.split_once('|').unwrap();
        let requests: std::collections::BTreeMap<String, u64> =
            pairs(&containers.replace(['!', '|'], "")).into_iter().collect();
        let spec = |(name, size): (String, u64)| {
            let requests = if size == 0 { json!({}) } else { json!({"memory": format!("{size}Mi")}) };
            let mut container =
                json!({"name": name.trim_end_matches('!'), "resources": {"requests": requests}});
            if name.ends_with('!') {
                container["restartPolicy"] = "Always".into();
            }
            container
        };
        let all = |text: &str| pairs(text).into_iter().map(spec).collect::<Vec<_>>();
        let pod = pod(
            "a",
            &json!({"initContainers": all(init), "containers": all(regular),
            "ephemeralContainers": [{"name": "e1", "targetContainerName": "c1"}]}),
        );
        let usage = |(name, size): (String, u64)| ContainerUsage {
            name: name.into(),
            memory: Some(size << 20),
            ..ContainerUsage::default()
        };
        let containers = pairs(used).into_iter().map(usage).collect();
        let candidate = Candidate { pod: &pod, usage: Some(PodUsage { containers, ..PodUsage::default() }) };
        let found = notice(&candidate, &hard("memory.available", "10%")[0], &Observations::default());
        let mut text = "The node was low on resource: memory. ".to_owned();
        let (mut names, mut usages) = (Vec::new(), Vec::new());
        for (name, size) in pairs(expected) {
            let request = match requests[&name] {
                0 => "0".to_owned(),
                size => format!("{size}Mi"),
            };
            text += &format!(
                "Container {name} was using {size}Mi, request is {request}, has larger consumption of memory. "
            );
            names.push(name);
            usages.push(format!("{size}Mi"));
        }
        assert_eq!(found.message, text);
        let annotations = [
            ("offending_containers", names.join(",")),
            ("offending_containers_usage", usages.join(",")),
            ("starved_resource", "memory".to_owned()),
        ];
        assert_eq!(found.annotations, annotations);
    }
}

#[test]
fn eviction_message_names_the_usage_of_a_pod_with_pod_level_requests() {
    let spec = json!({"resources": {"requests": {"memory": "250Mi"}, "limits": {"memory": "1000Mi"}},
        "containers": [{"name": "regular1"}, {"name": "regular2"}]});
    let pod = pod("a", &spec);
    let used = |name: &str, mebibytes: u64| ContainerUsage {
        name: name.into(),
        memory: Some(mebibytes << 20),
        ..ContainerUsage::default()
    };
    let containers = vec![used("regular1", 250), used("regular2", 350)];
    let usage = PodUsage { memory: Some(600 << 20), containers, ..PodUsage::default() };
    let candidate = Candidate { pod: &pod, usage: Some(usage) };
    let found = notice(&candidate, &hard("memory.available", "10%")[0], &Observations::default());
    assert_eq!(
        found.message,
        "The node was low on resource: memory. Pod a was using 600Mi, request is 250Mi, has larger consumption of \
         memory. Container regular1 was using 250Mi, request is 0, has larger consumption of memory. Container regular2 \
         was using 350Mi, request is 0, has larger consumption of memory. "
    );
    let annotations = [
        ("offending_pod", "a".to_owned()),
        ("offending_pod_usage", "600Mi".to_owned()),
        ("offending_containers", "regular1,regular2".to_owned()),
        ("offending_containers_usage", "250Mi,350Mi".to_owned()),
        ("starved_resource", "memory".to_owned()),
    ];
    assert_eq!(found.annotations, annotations);
    // Without statistics of the pod the message does not mention it.
    let unknown = Candidate { pod: &pod, usage: None };
    let found = notice(&unknown, &hard("memory.available", "10%")[0], &Observations::default());
    assert_eq!(
        (found.message.as_str(), found.annotations),
        ("The node was low on resource: memory. ", Vec::new())
    );
}

#[test]
fn eviction_message_counts_layers_and_logs_as_storage_and_shows_inodes_in_decimal() {
    let spec = json!({"containers": [{"name": "c"}]});
    let usage =
        |logs| vec![ContainerUsage { name: "c".into(), memory: None, layer: tree(60 << 10, 1), logs }];
    let threshold = &hard("nodefs.available", "1Gi")[0];
    check_notice(
        &spec,
        usage(tree(48 << 10, 1)),
        threshold,
        3 * MI / 2,
        &expect![[r#"
        (
            "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 1536Ki. Container c was using 108Ki, request is 0, has larger consumption of ephemeral-storage. ",
            [
                (
                    "offending_containers",
                    "c",
                ),
                (
                    "offending_containers_usage",
                    "108Ki",
                ),
                (
                    "starved_resource",
                    "ephemeral-storage",
                ),
            ],
        )
    "#]],
    );
    let threshold = &hard("nodefs.inodesFree", "5k")[0];
    check_notice(
        &spec,
        usage(None),
        threshold,
        4000,
        &expect![[r#"
        (
            "The node was low on resource: inodes. Threshold quantity: 5k, available: 4k. ",
            [
                (
                    "offending_containers",
                    "",
                ),
                (
                    "offending_containers_usage",
                    "",
                ),
                (
                    "starved_resource",
                    "inodes",
                ),
            ],
        )
    "#]],
    );
    assert_eq!(threshold_met(Starved::Pids), "Attempting to reclaim pids");
}

/// A pod whose containers `a` and `b` have these limits of storage, with a volume limited to 10Mi. Usage in MiB: layer
/// and logs of `a`, layer and logs of `b`, the volume.
#[track_caller]
fn check_limits(limits: [Option<&str>; 2], used: [u64; 5], layout: DiskLayout, expected: &str) {
    let resources = |limit: Option<&str>| {
        limit.map_or_else(|| json!({}), |l| json!({"limits": {"ephemeral-storage": l}}))
    };
    let pod = pod(
        "a",
        &json!({"containers": [{"name": "a", "resources": resources(limits[0])}, {"name": "b", "resources": resources(limits[1])}],
            "volumes": [{"name": "data", "emptyDir": {"sizeLimit": "10Mi"}}]}),
    );
    assert!(has_limits(&pod));
    let mebibytes = |number: u64| TreeUsage { bytes: number << 20, inodes: 1 };
    let container = |name: &str, layer, logs| ContainerUsage {
        name: name.into(),
        memory: None,
        layer: Some(mebibytes(layer)),
        logs: Some(mebibytes(logs)),
    };
    let usage = PodUsage {
        containers: vec![container("a", used[0], used[1]), container("b", used[2], used[3])],
        volumes: mebibytes(used[4]),
        ..PodUsage::default()
    };
    let volume = VolumeSample {
        name: "data".into(),
        claim: None,
        plugin: "kubernetes.io/empty-dir".into(),
        is_off_disk: false,
        is_abnormal: None,
        space: model::stats::FilesystemSpace::default(),
        used: mebibytes(used[4]),
    };
    let disks = PodDisks { volumes: vec![volume], ..PodDisks::default() };
    let found = compute_exceeded_limit(&pod, &usage, &disks, layout);
    let found = found.map(|(limit, notice)| {
        assert!(!notice.is_disruption && notice.annotations.is_empty());
        format!("{}: {}", limit.as_str(), notice.message)
    });
    assert_eq!(found.as_deref().unwrap_or("within limits"), expected);
}

#[test]
fn eviction_message_names_the_exceeded_local_storage_limit() {
    let both = [Some("20Mi"), Some("1.5Gi")];
    let one = DiskLayout::One;
    check_limits(both, [10, 10, 0, 0, 10], one, "within limits");
    check_limits(
        both,
        [0, 0, 0, 0, 11],
        one,
        "emptydirfs.limit: Usage of EmptyDir volume \"data\" exceeds the limit \"10Mi\". ",
    );
    check_limits(
        both,
        [0, 0, 1600, 0, 0],
        one,
        "ephemeralpodfs.limit: Pod ephemeral local storage usage exceeds the total limit of containers 1556Mi. ",
    );
    check_limits(
        both,
        [11, 10, 0, 0, 0],
        one,
        "ephemeralcontainerfs.limit: Container a exceeded its local ephemeral storage limit \"20Mi\". ",
    );
    check_limits(both, [1000, 10, 0, 0, 0], DiskLayout::ImagesApart, "within limits");
    check_limits(
        [Some("20Mi"), None],
        [0, 0, 21, 0, 0],
        one,
        "ephemeralpodfs.limit: Pod ephemeral local storage usage exceeds the total limit of containers 20Mi. ",
    );
    check_limits([None, None], [0, 0, 2100, 0, 0], one, "within limits");
}

/// CVE-2020-8557: `/etc/hosts` and termination logs are in no volume and in no writable layer.
#[test]
fn etc_hosts_and_termination_log_count_toward_the_ephemeral_storage_limit_of_the_pod() {
    let limited =
        json!({"containers": [{"name": "a", "resources": {"limits": {"ephemeral-storage": "100M"}}}]});
    let pod = pod("a", &limited);
    let found = |bytes: u64| {
        let disks = PodDisks { files: TreeUsage { bytes, inodes: 1 }, ..PodDisks::default() };
        let usage = PodUsage { files: disks.files, ..PodUsage::default() };
        let found = compute_exceeded_limit(&pod, &usage, &disks, DiskLayout::One);
        found.map(|(limit, notice)| (limit.as_str(), notice.message))
    };
    assert_eq!(found(100_000_000), None);
    let message = "Pod ephemeral local storage usage exceeds the total limit of containers 100M. ";
    assert_eq!(found(100_000_001), Some(("ephemeralpodfs.limit", message.to_owned())));
}

#[test]
fn pod_without_local_storage_limits_is_not_monitored() {
    let volumes = json!([{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {"sizeLimit": "0"}}]);
    assert!(!has_limits(&pod("a", &json!({"containers": [{"name": "a"}], "volumes": volumes}))));
}

#[test]
fn reclaim_removes_only_what_is_on_the_starved_filesystem() {
    let shown = |layout| {
        let one = |signal: Signal| {
            let reclaim = compute_reclaim(signal, layout);
            let parts = [(reclaim.dead_containers, "containers"), (reclaim.images, "images")];
            let parts: Vec<_> = parts.iter().filter(|(is, _)| *is).map(|(_, part)| *part).collect();
            assert_eq!(reclaim.is_anything(), !parts.is_empty());
            parts.join("+")
        };
        let signals = [
            Signal::MemoryAvailable,
            Signal::NodeFsAvailable,
            Signal::ImageFsInodesFree,
            Signal::ContainerFsAvailable,
            Signal::PidAvailable,
        ];
        signals.map(one).join(" ")
    };
    assert_eq!(shown(DiskLayout::One), " containers+images containers+images containers+images ");
    assert_eq!(shown(DiskLayout::ImagesApart), "  containers+images  ");
    assert_eq!(shown(DiskLayout::Split), " containers images containers ");
}
