//! Scenarios of pods of the API: they run, their status is reported, and they leave the API when all their resources are gone.

use std::sync::Arc;
use std::time::Duration;

use fakes::{ClusterFault, Fault, HostFault, HostMethod, Method, Outage, Program, Verb};
use model::k8s::{Pod, PodStatus};
use ports::cluster::ClusterError;
use serde_json::json;

use crate::pods::{Manifest, container, pod};
use crate::world::{PODS, World, seconds};

fn web() -> Manifest {
    pod("web", [container("app")])
}

/// A node on which `web` runs, with its status in the API.
async fn with_web() -> World {
    let world = World::joined().await;
    world.create(&web());
    world.until("it is ready in the API", |w| w.is_ready_in_api("web")).await;
    world
}

fn is_gone(world: &World) -> bool {
    world.in_api("web").is_none() && world.traces().is_empty()
}

fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap()
}

/// The start times of every instance of its container.
fn stops(world: &World) -> usize {
    world.fake.call_lines().iter().filter(|line| line.starts_with("StopContainer web/app")).count()
}

fn starts(world: &World) -> usize {
    world.fake.call_lines().iter().filter(|line| line.starts_with("StartContainer web/app")).count()
}

#[tokio::test(start_paused = true)]
async fn api_pod_runs_and_its_status_is_reported() {
    let world = World::joined().await;
    let began = world.now();
    world.create(&web());
    let ready = world.until("it is ready in the API", |w| w.is_ready_in_api("web")).await;
    assert!(ready < began + seconds(3), "it took {:?}", ready - began);
    let status = world.api_status("web");
    assert_eq!(status.phase.as_deref(), Some("Running"));
    assert_eq!(status.host_ip.as_deref(), Some("192.0.2.1"));
    assert!(status.pod_ip.is_some() && status.start_time.is_some());
    assert_eq!(status.observed_generation, Some(1));
    world.advance(seconds(5)).await;
    world.api().forget_calls();
    world.advance(seconds(600)).await;
    assert_eq!(world.api_calls("patch pods/status default/web"), 0, "nothing has changed");
}

#[tokio::test(start_paused = true)]
async fn change_of_the_status_in_the_api_makes_no_other_copy_of_the_pod() {
    let world = with_web().await;
    let shown = || world.agent.as_ref().unwrap().pods().all().remove(0).pod;
    let before = shown();
    let mut foreign = world.in_api("web").unwrap();
    let gate = json!({"type": "example.com/gate", "status": "True"});
    let status = foreign.status.get_or_insert_default();
    status.conditions.get_or_insert_default().push(serde_json::from_value(gate).unwrap());
    world.api().put(&foreign);
    world.advance(seconds(5)).await;
    assert!(Arc::ptr_eq(&before, &shown()));
}

#[tokio::test(start_paused = true)]
async fn foreign_conditions_in_a_pod_status_are_kept() {
    let world = with_web().await;
    let mut foreign = world.in_api("web").unwrap();
    let gate = json!({"type": "example.com/gate", "status": "True"});
    let status = foreign.status.get_or_insert_default();
    status.conditions.get_or_insert_default().push(serde_json::from_value(gate).unwrap());
    status.container_statuses = None;
    world.api().put(&foreign);
    world.until("our status is back", |w| w.api_status("web").container_statuses.is_some()).await;
    assert!(world.api_status("web").conditions.iter().flatten().any(|c| c.type_ == "example.com/gate"));
}

#[tokio::test(start_paused = true)]
async fn deleted_pod_leaves_the_api_only_after_its_resources_are_removed() {
    let world = with_web().await;
    world.fake.program("app", Program::runs().ignoring_term());
    let old = uid(&world.in_api("web").unwrap());
    world.host.fault(HostMethod::UnmountTree, HostFault::Fails);
    world.api().forget_calls();
    world.delete("web", Some(20));
    let deleted = world.now();
    world.until("it was stopped", |w| !w.runs("web/app")).await;
    let gone = world.until("the object is gone", |w| w.in_api("web").is_none()).await;
    assert!(gone - deleted < seconds(40), "it took {:?}", gone - deleted);
    assert_eq!(world.api_calls("delete pods default/web"), 1);
    world.until("no trace is left", |w| w.traces().is_empty()).await;
    assert!(world.status("web").is_none(), "{old}");
}

#[tokio::test(start_paused = true)]
async fn pod_object_is_not_deleted_while_a_container_runs() {
    let world = with_web().await;
    world.runtime.fault("web", Method::StopContainer, Some(Fault::Failed("stuck".to_owned())));
    world.runtime.fault("web", Method::StopPodSandbox, Some(Fault::Failed("stuck".to_owned())));
    world.delete("web", Some(5));
    world.advance(seconds(300)).await;
    assert!(world.in_api("web").is_some() && world.runs("web/app"));
    assert_eq!(world.api_phase("web"), "Running");
    world.runtime.fault("web", Method::StopContainer, None);
    world.runtime.fault("web", Method::StopPodSandbox, None);
    world.until("it is gone", is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn foreign_finalizer_keeps_the_pod_object_without_blocking_the_kubelet() {
    let world = World::joined().await;
    let mut object = web().object();
    object.metadata.finalizers = Some(vec!["example.com/hold".to_owned()]);
    world.api().put(&object);
    world.until("it is ready in the API", |w| w.is_ready_in_api("web")).await;
    world.delete("web", Some(5));
    world.until("nothing runs", |w| !w.runs("web/app")).await;
    world.advance(seconds(5)).await;
    world.api().forget_calls();
    world.advance(seconds(300)).await;
    assert_eq!(world.api_calls("delete pods default/web"), 0, "it is not requested again and again");
    let mut held = world.in_api("web").unwrap();
    held.metadata.labels.get_or_insert_default().insert("seen".to_owned(), "again".to_owned());
    held = world.api().put(&held);
    world.advance(seconds(60)).await;
    assert_eq!(world.api_calls("delete pods default/web"), 0, "nor after another change of the object");
    held.metadata.finalizers = None;
    world.api().put(&held);
    world.api().remove::<Pod>("default", "web", Some(0));
    world.until("it is gone", is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn force_deleted_pod_is_stopped_with_its_own_grace_period() {
    let world = with_web().await;
    world.delete("web", Some(0));
    world.until("no trace is left", |w| w.traces().is_empty()).await;
    assert_eq!(stops(&world), 1);
    world.advance(seconds(60)).await;
    assert_eq!(world.api_calls("delete pods default/web"), 0, "there is nothing to delete");
}

#[tokio::test(start_paused = true)]
async fn pod_with_a_reused_name_waits_for_its_predecessor_and_keeps_its_own_status() {
    for ends in [Some(0), None] {
        let world = with_web().await;
        let old = uid(&world.in_api("web").unwrap());
        world.delete("web", ends);
        world.until("the name is free", |w| w.in_api("web").is_none()).await;
        let new = world.create(&web());
        assert_ne!(uid(&new), old);
        world.until("it is ready in the API", |w| w.is_ready_in_api("web")).await;
        world.advance(seconds(60)).await;
        assert!(world.is_ready_in_api("web"));
        assert_eq!((starts(&world), stops(&world)), (2, 1));
        assert_eq!(uid(&world.in_api("web").unwrap()), uid(&new));
        assert_eq!(world.api_status("web").container_statuses.unwrap()[0].restart_count, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn pod_with_a_reused_name_starts_while_the_volumes_of_its_predecessor_are_not_released() {
    let world = with_web().await;
    let old = format!("{PODS}/{}", uid(&world.in_api("web").unwrap()));
    for _ in 0..1000 {
        world.host.fault_below(HostMethod::UnmountTree, &old, HostFault::Fails);
    }
    world.delete("web", Some(0));
    world.until("the name is free", |w| w.in_api("web").is_none()).await;
    let new = world.create(&web());
    world.until("it is ready in the API", |w| w.is_ready_in_api("web")).await;
    assert!(!world.host.files_below(&old).is_empty());
    assert_eq!(uid(&world.in_api("web").unwrap()), uid(&new));
    assert_eq!((starts(&world), stops(&world)), (2, 1));
    assert_eq!(world.recorded("WaitingForPreviousPod"), 0);
}

#[tokio::test(start_paused = true)]
async fn wait_for_a_predecessor_that_cannot_be_stopped_is_reported_once() {
    let world = with_web().await;
    let old = uid(&world.in_api("web").unwrap());
    world.fake.fault_always(Method::StopContainer, Some(Fault::Hang));
    world.delete("web", Some(0));
    world.create(&web());
    world.advance(seconds(300)).await;
    assert_eq!(world.recorded("WaitingForPreviousPod"), 1);
    let events = world.api_events("WaitingForPreviousPod");
    let message = events[0].message.clone().unwrap();
    assert!(message.contains(&old), "{message}");
    assert_eq!((starts(&world), world.api_phase("web").as_str()), (1, "Pending"));
}

#[tokio::test(start_paused = true)]
async fn pod_deleted_while_the_agent_was_down_is_removed_after_restart() {
    for grace in [None, Some(0)] {
        let mut world = with_web().await;
        world.crash().await;
        world.delete("web", grace);
        world.advance(seconds(60)).await;
        assert!(world.runs("web/app"));
        world.start().await;
        world.until("it is gone", is_gone).await;
        assert_eq!((starts(&world), stops(&world)), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn restarted_agent_affects_no_container_and_repeats_no_status_patch() {
    let mut world = with_web().await;
    world.advance(seconds(5)).await;
    let before = world.api_status("web");
    world.api().forget_calls();
    for _ in 0..3 {
        world.restart().await;
        world.advance(seconds(60)).await;
    }
    assert_eq!((starts(&world), stops(&world)), (1, 0));
    assert_eq!(world.api_status("web"), before);
    assert_eq!(world.api_calls("patch pods/status default/web"), 0);
}

#[tokio::test(start_paused = true)]
async fn agent_crash_at_any_moment_of_the_pod_lifecycle_loses_nothing() {
    for moment in (0..40).map(|n| Duration::from_millis(n * 60)) {
        let mut world = World::joined().await;
        world.create(&web());
        world.advance(moment).await;
        world.restart().await;
        world.until("it is ready in the API", |w| w.is_ready_in_api("web")).await;
        assert!(starts(&world) <= 2 && world.fake.running().len() == 1, "killed after {moment:?}");
        world.delete("web", Some(1));
        world.advance(moment).await;
        world.restart().await;
        world.until("it is gone", is_gone).await;
        assert_eq!(world.fake.running().len(), 0, "killed after {moment:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn completed_pod_is_not_run_again_even_if_the_runtime_has_no_record() {
    let world = World::joined().await;
    for (name, phase) in [("done", "Succeeded"), ("lost", "Failed")] {
        let mut object = pod(name, [container("app")]).restart_policy("Never").object();
        let status = json!({"phase": phase, "reason": "Evicted", "startTime": "2026-01-01T00:00:00Z"});
        object.status = serde_json::from_value::<Option<PodStatus>>(status).unwrap();
        world.api().put(&object);
    }
    world.advance(seconds(120)).await;
    assert!(world.fake.containers().is_empty() && world.fake.sandboxes().is_empty());
    assert_eq!((world.api_phase("done"), world.api_phase("lost")), ("Succeeded".into(), "Failed".into()));
    assert_eq!(world.api_status("lost").reason.as_deref(), Some("Evicted"));
    world.delete("done", None);
    world.delete("lost", None);
    world.until("they are gone", |w| w.api().all::<Pod>().is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn pod_marked_failed_in_the_api_is_stopped() {
    let world = with_web().await;
    let mut foreign = world.in_api("web").unwrap();
    let status = foreign.status.get_or_insert_default();
    status.phase = Some("Failed".to_owned());
    status.reason = Some("DeadlineExceeded".to_owned());
    world.api().put(&foreign);
    world.until("nothing runs", |w| !w.runs("web/app")).await;
    world.advance(seconds(60)).await;
    let status = world.api_status("web");
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref()),
        (Some("Failed"), Some("DeadlineExceeded"))
    );
    assert!(status.container_statuses.unwrap()[0].state.clone().unwrap().terminated.is_some());
    assert_eq!(starts(&world), 1);
}

#[tokio::test(start_paused = true)]
async fn completed_api_pod_is_reported_and_stays_succeeded() {
    let mut world = World::joined().await;
    world.fake.program("job", Program::exits(0, seconds(5)));
    world.create(&pod("work", [container("job")]).restart_policy("Never"));
    world.until("it is done", |w| w.api_phase("work") == "Succeeded").await;
    for _ in 0..2 {
        world.restart().await;
        world.advance(seconds(30)).await;
        assert_eq!(world.api_phase("work"), "Succeeded");
    }
    assert_eq!(world.times_of("StartContainer work/job").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn pods_keep_running_while_the_api_is_unreachable_and_status_catches_up() {
    for outage in [Outage::Refused, Outage::Silent] {
        let world = with_web().await;
        world.create(&pod("other", [container("app")]));
        world.until("it is ready", |w| w.is_ready_in_api("other")).await;
        world.api().set_outage(Some(outage));
        world.advance(seconds(60)).await;
        assert!(world.fake.end_container("web", "app", 1));
        world.advance(seconds(540)).await;
        assert_eq!(starts(&world), 2, "it was restarted");
        assert_eq!(world.times_of("StopContainer other/app").len(), 0);
        assert_eq!(world.api_status("web").container_statuses.unwrap()[0].restart_count, 0);
        world.api().set_outage(None);
        let back = world.now();
        let caught_up = world
            .until("the status has caught up", |w| {
                w.api_status("web").container_statuses.is_some_and(|all| all[0].restart_count == 1)
            })
            .await;
        assert!(caught_up - back < seconds(45), "it took {:?}", caught_up - back);
        world.delete("web", None);
        world.until("it is gone", |w| w.in_api("web").is_none()).await;
        assert_eq!(world.times_of("StartContainer other/app").len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn watch_failures_neither_lose_nor_restart_a_pod() {
    let world = with_web().await;
    for round in 0..6 {
        match round {
            0 => drop(world.api().end_watches()),
            1 => drop(world.api().compact().end_watches()),
            2 => drop(world.api().send_bookmarks()),
            3 => drop(world.api().send_bookmarks().compact().end_watches()),
            4 => drop(world.api().set_outage(Some(Outage::Refused))),
            _ => drop(world.api().compact()),
        }
        let name = format!("late-{round}");
        world.create(&pod(&name, [container("app")]));
        world.advance(seconds(20)).await;
        world.api().set_outage(None);
        world.until("it runs", |w| w.is_ready_in_api(&name)).await;
        let gone = format!("late-{}", round - 1);
        if round > 0 {
            world.delete(&gone, None);
            world.api().end_watches().compact();
            world.until("the previous one is gone", |w| w.in_api(&gone).is_none()).await;
        }
    }
    assert_eq!((starts(&world), stops(&world)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn pod_status_patch_is_retried_and_delays_no_other_pod() {
    let world = World::joined().await;
    let busy = ClusterError::Busy { call: String::new(), retry_after: None, message: "later".to_owned() };
    world.api().fault_times(Verb::Patch, "pods/status", &ClusterFault::Refused(busy), 5);
    world.create(&web());
    let ready = world.until("it is ready in the API", |w| w.is_ready_in_api("web")).await;
    assert!(ready < seconds(30), "{ready:?}");
    // One call hangs; twenty other pods are not delayed.
    world.api().fault(Verb::Patch, "pods/status", ClusterFault::TimedOutAfterDoing);
    let began = world.now();
    for n in 0..20 {
        world.create(&pod(&format!("other-{n}"), [container("app")]));
    }
    let ready = |w: &World| (0..20).filter(|n| w.is_ready_in_api(&format!("other-{n}"))).count();
    let all_but_one = world.until("all but one are ready", |w| ready(w) >= 19).await;
    assert!(all_but_one - began < seconds(10), "it took {:?}", all_but_one - began);
    world.until("all are ready", |w| ready(w) == 20).await;
}

#[tokio::test(start_paused = true)]
async fn pod_events_reach_the_api_and_name_the_container() {
    let world = World::joined().await;
    world.fake.program("app", Program::exits(1, seconds(1)));
    world.create(&web());
    world.until("it backs off", |w| w.api_events("BackOff").iter().any(|e| e.count > Some(1))).await;
    let started = &world.api_events("Started")[0];
    assert_eq!(started.involved_object.field_path.as_deref(), Some("spec.containers{app}"));
    assert_eq!(started.involved_object.uid, world.in_api("web").unwrap().metadata.uid);
    assert_eq!(started.source.as_ref().unwrap().component.as_deref(), Some("kubelet"));
    assert_eq!(world.api_events("BackOff").len(), 1, "a repeated event is counted, not sent again");
}

/// No API server uses a UID twice; here it shows what is remembered.
#[tokio::test(start_paused = true)]
async fn events_of_a_pod_that_is_gone_from_the_api_are_forgotten() {
    let world = World::joined().await;
    let uid = world.create(&web()).metadata.uid;
    world.until("it is ready", |w| w.is_ready_in_api("web")).await;
    world.delete("web", Some(0));
    world.until("it is gone", |w| w.in_api("web").is_none()).await;
    world.advance(seconds(5)).await;
    let mut again = web().object();
    again.metadata.uid = uid;
    world.api().put(&again);
    world.until("it is started again", |w| w.api_events("Started").len() == 2).await;
    assert!(world.api_events("Started").iter().all(|event| event.count == Some(1)));
}

#[tokio::test(start_paused = true)]
async fn failed_event_calls_delay_nothing() {
    let world = World::joined().await;
    world.api().fault_always(Verb::Create, "events", Some(ClusterFault::TimedOut));
    world.create(&web());
    let ready = world.until("it is ready in the API", |w| w.is_ready_in_api("web")).await;
    assert!(ready < seconds(5), "{ready:?}");
    world.advance(seconds(60)).await;
    assert!(world.api_events("Started").is_empty(), "{:?}", world.api_events("Started"));
    world.api().fault_always(Verb::Create, "events", None);
    world.until("they are reported late", |w| !w.api_events("Started").is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn hanging_event_call_delays_no_other_and_events_keep_their_original_time() {
    let world = World::joined().await;
    world.api().set_deadline(seconds(600));
    world.api().fault(Verb::Create, "events", ClusterFault::Slow(seconds(300)));
    world.create(&pod("first", [container("app")]));
    world.until("the first pod is ready", |w| w.is_ready_in_api("first")).await;
    let began = world.now();
    world.create(&pod("second", [container("app")]));
    let is_reported = |w: &World, name: &str| {
        w.api_events("Started").iter().any(|event| event.involved_object.name.as_deref() == Some(name))
    };
    world.until("the second pod's events are reported", |w| is_reported(w, "second")).await;
    assert!(world.now() - began < seconds(30));
    assert!(!is_reported(&world, "first"), "its first event hangs");

    // An event that could not be sent for a while still has its original time.
    let happened = world.clock.now().wall;
    let late = || {
        let events = world.api_events("Started");
        events.into_iter().find(|event| event.involved_object.name.as_deref() == Some("first"))
    };
    let deadline = world.now() + seconds(600);
    while late().is_none() {
        assert!(world.now() < deadline, "{}", world.describe());
        world.advance(seconds(5)).await;
    }
    let first = late().unwrap().first_timestamp.unwrap().0;
    assert!(first <= happened, "{first} is after {happened}");
}

#[tokio::test(start_paused = true)]
async fn pod_status_slots_are_shared_fairly_when_more_pods_than_slots_have_updates() {
    let world = World::joined().await;
    let busy: Vec<String> = (0..40).map(|n| format!("busy-{n}")).collect();
    for name in &busy {
        world.create(&pod(name, [container("app")]));
    }
    world.until("the busy pods run", |w| busy.iter().all(|name| w.is_ready_in_api(name))).await;
    world.api().latency(Duration::from_millis(200));
    for n in 0..20 {
        world.create(&pod(&format!("other-{n}"), [container("app")]));
    }
    let ready = |w: &World| (0..20).filter(|n| w.is_ready_in_api(&format!("other-{n}"))).count();
    let began = world.now();
    while ready(&world) < 20 {
        assert!(world.now() - began < seconds(20), "{} of 20 pods are ready in the API", ready(&world));
        for name in &busy {
            let mut foreign = world.in_api(name).unwrap();
            foreign.status = Some(PodStatus { phase: Some("Running".to_owned()), ..PodStatus::default() });
            world.api().put(&foreign);
        }
        world.advance(Duration::from_millis(50)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn rejected_pod_status_backs_off_until_the_status_or_the_object_changes() {
    let world = with_web().await;
    let message =
        "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state";
    let invalid = ClusterError::Invalid { call: String::new(), message: message.to_owned() };
    world.api().fault_always(Verb::Patch, "pods/status", Some(ClusterFault::Refused(invalid)));
    world.api().forget_calls();
    assert!(world.fake.end_container("web", "app", 1));
    let sent = |w: &World| w.api_calls("patch pods/status default/web");
    world.until("a status is rejected", |w| sent(w) > 0).await;
    world.advance(seconds(60)).await;
    world.api().forget_calls();
    world.advance(seconds(3600)).await;
    assert!(sent(&world) <= 20, "the same status was sent {} times in an hour", sent(&world));
    // A user changes the object: the same status may be valid now.
    world.api().fault_always(Verb::Patch, "pods/status", None);
    let mut foreign = world.in_api("web").unwrap();
    foreign.metadata.labels.get_or_insert_default().insert("changed".to_owned(), "yes".to_owned());
    world.api().put(&foreign);
    let changed = world.now();
    let is_shown =
        |w: &World| w.api_status("web").container_statuses.is_some_and(|all| all[0].restart_count == 1);
    let shown = world.until("the status is sent again", is_shown).await;
    assert!(shown - changed < seconds(3), "it took {:?}", shown - changed);
}

#[tokio::test(start_paused = true)]
async fn pod_status_field_dropped_by_the_api_server_is_not_patched_forever() {
    let world = with_web().await;
    world.api().drop_status_field("hostIP");
    world.api().forget_calls();
    assert!(world.fake.end_container("web", "app", 1));
    let is_shown =
        |w: &World| w.api_status("web").container_statuses.is_some_and(|all| all[0].restart_count == 1);
    world.until("the restart is shown", is_shown).await;
    world.advance(seconds(60)).await;
    assert_eq!(world.api_status("web").host_ip, None, "the API server keeps no such field");
    world.api().forget_calls();
    world.advance(seconds(3600)).await;
    assert_eq!(world.api_calls("patch pods/status default/web"), 0);
}
