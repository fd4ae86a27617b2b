use model::cgroup::{CgroupVersion, ProcessFacts};

use super::*;

#[test]
fn processes_are_listed_until_none_is_new() {
    let done = [3, 5].into();
    assert_eq!(new_ones(&[3, 4, 5, 6], &done), [4, 6]);
    assert!(new_ones(&[5, 3], &done).is_empty());
}

#[test]
fn init_process_and_kernel_threads_are_not_moved() {
    assert!(is_movable(2, Some("/usr/sbin/cron")));
    assert!(!is_movable(1, Some("/usr/lib/systemd/systemd")));
    assert!(!is_movable(2, None));
    assert!(!is_movable(2, Some("")));
}

/// A daemon on the node with a score of 0, in cgroups as `/proc` shows them.
fn daemon(cgroups: &str) -> ProcessFacts {
    let executable = Some("/usr/bin/daemon".to_owned());
    ProcessFacts { pid: 7, executable, cgroups: cgroups.to_owned(), is_on_node: true, oom_score_adj: 0 }
}

#[test]
fn process_is_moved_unless_it_is_in_its_cgroup_or_below() {
    let moves = |version, cgroups: &str, cgroup| {
        compute_adjustment(&daemon(cgroups), Some(cgroup), 0, version).unwrap().moves
    };
    let v2 = |path: &str, cgroup| moves(CgroupVersion::V2, &format!("0::{path}\n"), cgroup);
    assert!(v2("/", "/runtime") && v2("/runtime2", "/runtime") && v2("/run", "/runtime"));
    assert!(!v2("/runtime", "/runtime") && !v2("/runtime.slice/containerd.service", "/runtime.slice"));
    assert!(v2("/system.slice/x", "/") && !v2("/", "/"), "the root is a cgroup like any other");
    let v1 = |cgroups, cgroup| moves(CgroupVersion::V1, cgroups, cgroup);
    assert!(!v1("3:memory:/runtime\n2:cpu,cpuacct:/runtime\n", "/runtime"));
    assert!(v1("3:memory:/runtime\n2:cpu,cpuacct:/\n", "/runtime"), "only one tree has it there");
    assert!(v1("3:memory:/runtime\n", "/runtime") && v1("", "/runtime"), "not known to be there");
    let of_systemd = "3:memory:/\n2:cpu:/\n1:name=systemd:/system.slice/a.service\n0::/\n";
    assert!(!v1(of_systemd, "/system.slice/a.service"), "systemd counts nothing for it, and knows it there");
}

#[test]
fn oom_score_is_set_once_and_the_process_moved_only_to_a_configured_cgroup() {
    let adjustment = |score| compute_adjustment(&daemon("0::/\n"), None, score, CgroupVersion::V2).unwrap();
    assert_eq!(adjustment(0), Adjustment::default());
    assert_eq!(adjustment(-999), Adjustment { moves: false, scores: true });
}

#[test]
fn system_and_container_processes_are_not_moved() {
    let refused = |facts| compute_adjustment(&facts, Some("/x"), -999, CgroupVersion::V2);
    let daemon = || daemon("0::/\n");
    assert_eq!(refused(ProcessFacts { pid: 1, ..daemon() }), Err(Untouchable::System));
    assert_eq!(refused(ProcessFacts { executable: None, ..daemon() }), Err(Untouchable::System));
    assert_eq!(refused(ProcessFacts { is_on_node: false, ..daemon() }), Err(Untouchable::Contained));
    assert!(refused(daemon()).is_ok());
}
