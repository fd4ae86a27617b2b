//! Scenarios of processes outside of pods: their cgroups, when they are moved, and which processes stay.

use model::cgroup::CgroupPath;

use crate::world::{World, seconds};

const SOCKET: &str = "/run/runtime.sock";
const KUBELET: u32 = 40;
const RUNTIME: u32 = 50;

fn at(cgroup: &str, score: i32) -> Option<(String, i32)> {
    Some((cgroup.to_owned(), score))
}

/// A node whose kubelet and runtime were started in the root cgroup.
fn world(kubelet: &str, runtime: &str, system: &str) -> World {
    let mut world = World::new();
    let named = |path: &str| (!path.is_empty()).then(|| CgroupPath::directory(path));
    let settings = &mut world.settings.processes;
    settings.own_pid = KUBELET;
    (settings.kubelet, settings.runtime, settings.system) = (named(kubelet), named(runtime), named(system));
    settings.runtime_socket = SOCKET.into();
    world.cgroups.add_process("/", KUBELET, 0).add_process("/", RUNTIME, 0).listen(SOCKET, RUNTIME);
    world
}

#[tokio::test(start_paused = true)]
async fn kubelet_and_runtime_cgroups_and_oom_scores_are_set() {
    let mut world = world("/kubelet", "/runtime", "");
    world.cgroups.add_process("/", 60, 0);
    world.start().await;
    world.until("the kubelet is moved", |w| w.cgroups.process_cgroup(KUBELET) == at("/kubelet", -999)).await;
    let runtime = |w: &World| w.cgroups.process_cgroup(RUNTIME) == at("/runtime", -999);
    let took = world.until("the runtime is moved", runtime).await;
    assert!(took < seconds(30), "cgroup and score in one pass: {took:?}");
    assert_eq!(world.cgroups.process_cgroup(60), at("/", 0), "no cgroup is configured for the rest");
    // A restarted runtime is another process; it is found within the minute.
    world.cgroups.add_process("/runtime/below", 51, 0).listen(SOCKET, 51);
    world.advance(seconds(30)).await;
    assert_eq!(world.cgroups.process_cgroup(51), at("/runtime/below", 0));
    world.advance(seconds(31)).await;
    assert_eq!(world.cgroups.process_cgroup(51), at("/runtime/below", -999), "it is in the cgroup already");
}

#[tokio::test(start_paused = true)]
async fn kubelet_without_kubelet_cgroups_keeps_its_cgroup_and_sets_oom_score_adj() {
    let mut world = world("", "", "");
    world.start().await;
    world.until("the kubelet has its score", |w| w.cgroups.process_cgroup(KUBELET) == at("/", -999)).await;
    assert_eq!(world.cgroups.process_cgroup(RUNTIME), at("/", 0));
    assert!(!world.cgroups.paths().iter().any(|path| path == "/kubelet"));
}

#[tokio::test(start_paused = true)]
async fn refused_oom_score_adj_still_moves_the_process() {
    let mut world = world("/kubelet", "/runtime", "");
    world.cgroups.reject_scores();
    world.start().await;
    world.until("the runtime is moved", |w| w.cgroups.process_cgroup(RUNTIME) == at("/runtime", 0)).await;
    assert_eq!(world.cgroups.process_cgroup(KUBELET), at("/kubelet", 0));
    world.advance(seconds(121)).await;
    assert!(!world.agent.as_ref().unwrap().must_exit().is_cancelled());
}

#[tokio::test(start_paused = true)]
async fn system_cgroups_moves_processes_out_of_the_root_cgroup_until_none_is_new() {
    let mut world = world("/kubelet", "", "/system");
    world.cgroups.add_process("/", 1, 0).add_kernel_thread(2).add_parent("/", 60, 61).create("/pods");
    world.cgroups.add_process("/pods", 70, 0);
    world.start().await;
    let moved = world.until("a child is moved", |w| w.cgroups.process_cgroup(61) == at("/system", 0)).await;
    assert!(moved < seconds(30), "in the first round, not the next: {moved:?}");
    assert_eq!(world.cgroups.process_cgroup(60), at("/system", 0));
    assert_eq!(world.cgroups.process_cgroup(RUNTIME), at("/system", 0));
    assert_eq!(world.cgroups.process_cgroup(1), at("/", 0), "the first of all");
    assert_eq!(world.cgroups.process_cgroup(2), at("/", 0), "a kernel thread");
    assert_eq!(world.cgroups.process_cgroup(70), at("/pods", 0), "it was not in the root");
    assert_eq!(world.cgroups.process_cgroup(KUBELET), at("/kubelet", -999), "it has a cgroup of its own");
}

#[tokio::test(start_paused = true)]
async fn failed_move_into_a_cgroup_is_tried_again() {
    let mut world = world("/kubelet", "", "/system");
    world.cgroups.fail_below("/kubelet").fail_below("/system");
    world.start().await;
    world.until("the score is set", |w| w.cgroups.process_cgroup(KUBELET) == at("/", -999)).await;
    world.advance(seconds(5)).await;
    assert!(!world.agent.as_ref().unwrap().must_exit().is_cancelled());
    world.cgroups.repair();
    world.advance(seconds(61)).await;
    assert_eq!(world.cgroups.process_cgroup(KUBELET), at("/kubelet", -999));
    assert_eq!(world.cgroups.process_cgroup(RUNTIME), at("/system", 0));
}
