use serde_json::{Value, json};

use super::*;

fn config(fields: Value) -> KubeletConfiguration {
    serde_json::from_value(fields).unwrap()
}

/// `priority=seconds`, by priority.
fn periods_of(fields: Value, features: Features) -> String {
    let periods = compute_periods(&config(fields), features);
    let shown: Vec<String> = periods.iter().map(|p| format!("{}={}", p.priority, p.seconds)).collect();
    shown.join(" ")
}

#[test]
fn shutdown_periods_come_from_either_setting_and_are_empty_without_the_feature_gate() {
    let on = Features::default();
    assert_eq!(periods_of(json!({}), on), "");
    assert_eq!(periods_of(json!({"shutdownGracePeriod": "30s"}), on), "0=30 2000000000=0");
    let both = json!({"shutdownGracePeriod": "30s", "shutdownGracePeriodCriticalPods": "10s"});
    assert_eq!(periods_of(both.clone(), on), "0=20 2000000000=10");
    let broken = json!({"shutdownGracePeriod": "2500ms", "shutdownGracePeriodCriticalPods": "1s"});
    assert_eq!(periods_of(broken, on), "0=1 2000000000=1");
    let by_priority = json!({"shutdownGracePeriodByPodPriority": [
        {"priority": 100, "shutdownGracePeriodSeconds": 5},
        {"priority": -7, "shutdownGracePeriodSeconds": 0},
        {"priority": 10, "shutdownGracePeriodSeconds": 60},
    ]});
    assert_eq!(periods_of(by_priority.clone(), on), "-7=0 10=60 100=5");
    assert_eq!(periods_of(both, Features { graceful_shutdown: false, ..on }), "");
    assert_eq!(periods_of(by_priority, Features { graceful_shutdown_by_priority: false, ..on }), "");
}

/// `nodeshutdown_manager_test.go` (Test_migrateConfig).
#[test]
fn migrated_shutdown_periods_of_the_go_kubelet() {
    for (whole, critical, expected) in [
        ("300s", "120s", "0=180 2000000000=120"),
        ("100s", "0s", "0=100 2000000000=0"),
        ("0s", "0s", ""),
        ("1s", "100s", ""),
    ] {
        let fields = json!({"shutdownGracePeriod": whole, "shutdownGracePeriodCriticalPods": critical});
        assert_eq!(periods_of(fields, Features::default()), expected, "{whole} {critical}");
    }
}

/// `nodeshutdown_manager_test.go` (Test_groupByPriority).
#[test]
fn pods_are_grouped_by_priority_as_in_the_go_kubelet() {
    check(
        "0=180 2000000000=120",
        "normal:0:- highest:1000000000:- critical:2000000000:-",
        &["0 180s: normal 180, highest 180", "2000000000 120s: critical 120"],
    );
    check(
        "1=10 2=20 3=30 4=40",
        "p0:0:- p1:1:- p2:2:- p3:3:- p4:4:- p5:5:-",
        &["1 10s: p0 10, p1 10", "2 20s: p2 20", "3 30s: p3 30", "4 40s: p4 40, p5 40"],
    );
}

#[test]
fn inhibitor_delay_is_the_sum_of_all_group_periods() {
    let periods = compute_periods(
        &config(json!({"shutdownGracePeriod": "90s", "shutdownGracePeriodCriticalPods": "20s"})),
        Features::default(),
    );
    assert_eq!(compute_delay(&periods), Duration::from_secs(90));
    assert!(logind_drop_in(compute_delay(&periods)).ends_with("\n[Login]\nInhibitDelayMaxSec=90\n"));
}

/// `name:priority:own-grace`, either of them `-` for none.
fn pod(words: &str) -> Arc<Pod> {
    let mut parts = words.split(':');
    let name = parts.next().unwrap();
    let mut number = || parts.next().unwrap().parse::<i64>().ok();
    let (priority, grace) = (number(), number());
    let spec = json!({"priority": priority, "terminationGracePeriodSeconds": grace, "containers": []});
    Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "uid": name}, "spec": spec})).unwrap())
}

/// `periods`: `priority=seconds`. One line a group: `priority within: name grace, ...`.
#[track_caller]
fn check(periods: &str, pods: &str, expected: &[&str]) {
    let periods: Vec<GroupPeriod> = periods
        .split_whitespace()
        .map(|period| {
            let (priority, seconds) = period.split_once('=').unwrap();
            GroupPeriod { priority: priority.parse().unwrap(), seconds: seconds.parse().unwrap() }
        })
        .collect();
    let pods: Vec<Arc<Pod>> = pods.split_whitespace().map(pod).collect();
    let shown: Vec<String> = compute_groups(&periods, &pods)
        .iter()
        .map(|group| {
            let pods: Vec<String> =
                group.pods.iter().map(|end| format!("{} {}", end.pod.name, end.grace_seconds)).collect();
            format!("{} {}s: {}", group.priority, group.within.as_secs(), pods.join(", "))
        })
        .collect();
    assert_eq!(shown, expected);
}

#[test]
fn pods_end_by_priority_within_the_period_of_their_group() {
    check("0=20 2000000000=10", "", &[]);
    check(
        "0=20 2000000000=10",
        "node:2000001000:30 web:-:30 quick:0:3 cluster:2000000000:5 old:5:-",
        &["0 20s: web 20, quick 3, old 20", "2000000000 10s: node 10, cluster 5"],
    );
    // A group without pods is not waited for.
    check("0=20 2000000000=10", "node:2000001000:30", &["2000000000 10s: node 10"]);
    // Without time for themselves, critical pods get what every pod gets.
    check("0=20 2000000000=0", "node:2000001000:30", &["2000000000 0s: node 0"]);
}

#[test]
fn a_priority_belongs_to_the_last_group_that_begins_below_it() {
    check(
        "10=1 100=2 1000=3",
        "under:-5:- none:-:- ten:10:- between:99:- hundred:100:- top:1000:- above:5000:-",
        &["10 1s: under 1, none 1, ten 1, between 1", "100 2s: hundred 2", "1000 3s: top 3, above 3"],
    );
    check("-10=1 0=2", "low:-3:- none:-:-", &["-10 1s: low 1", "0 2s: none 2"]);
}

#[test]
fn shutdown_begins_and_is_cancelled_once() {
    let changes = [(false, false), (false, true), (true, true), (true, false)];
    assert_eq!(
        changes.map(|(was, is)| compute_shutdown_change(was, is)),
        [ShutdownChange::Unchanged, ShutdownChange::Begin, ShutdownChange::Unchanged, ShutdownChange::Cancel]
    );
}

#[test]
fn only_static_pods_that_ended_with_the_node_start_again() {
    let of = |source: &str, phase: &str, reason: &str| {
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"annotations": {"kubernetes.io/config.source": source}}}),
        )
        .unwrap();
        begins_again(&pod, &serde_json::from_value(json!({"phase": phase, "reason": reason})).unwrap())
    };
    assert!(of("file", "Failed", "Terminated") && of("http", "Failed", "NodeShutdown"));
    assert!(!of("api", "Failed", "Terminated"), "another one takes its place");
    assert!(!of("file", "Failed", "DeadlineExceeded") && !of("file", "Succeeded", "Terminated"));
}

#[test]
fn shutdown_times_are_stored_in_the_format_of_the_go_kubelet() {
    let at = |text: &str| Some(text.parse().unwrap());
    let began = ShutdownTimes { began: at("2026-01-01T10:00:00.5Z"), ended: None };
    assert_eq!(began.text(), r#"{"endTime":"0001-01-01T00:00:00Z","startTime":"2026-01-01T10:00:00.5Z"}"#);
    assert_eq!(ShutdownTimes::parse(began.text().as_bytes()), Some(began));
    let theirs =
        br#"{"startTime":"2026-01-01T12:00:00+02:00","endTime":"2026-01-01T12:00:30.000000001+02:00"}"#;
    let both =
        ShutdownTimes { began: at("2026-01-01T10:00:00Z"), ended: at("2026-01-01T10:00:30.000000001Z") };
    assert_eq!(ShutdownTimes::parse(theirs), Some(both));
    assert_eq!(ShutdownTimes::parse(b"{}"), Some(ShutdownTimes::default()));
    for damaged in [&b""[..], b"{", b"[]x", br#"{"startTime": 5}"#, br#"{"startTime": "soon"}"#] {
        assert_eq!(ShutdownTimes::parse(damaged), None, "{}", damaged.escape_ascii());
    }
}
