//! What a restarted kubelet believes, what messages are cut to, who a container runs as.
use std::sync::Arc;

use model::k8s::{PodStatus, VolumeMountStatus};
use model::observation::{ImageMount, ObservedUser};

use super::scenario::{Scenario, play, pod, time};
use crate::pods::probe::results::{ProbeKind, ProbeVerdicts};
use crate::pods::status::{
    forget_ended_init_containers, host_ip_family_mismatch, latest_known, merge_for_restart,
};

/// The verdicts that the status of the first script seeds for what the second one observes.
fn seeds(before: &str, now: &str) -> Vec<(String, ProbeKind)> {
    let (_, played) = play(before);
    let observed = Scenario::parse(now).observed.expect("an observation");
    let seeds = merge_for_restart(played.last().expect("a scenario"), &observed);
    seeds.into_iter().map(|seed| (seed.container.to_string(), seed.kind)).collect()
}

#[test]
fn a_ready_container_stays_ready_over_a_restart_of_the_kubelet() {
    assert_eq!(
        seeds("pod a:RS | a=running ok(a.S) ok(a.R)", "a=running"),
        [("a-0".to_owned(), ProbeKind::Startup), ("a-0".to_owned(), ProbeKind::Readiness)]
    );
}

#[test]
fn status_on_disk_counts_unless_the_api_shows_a_later_restart_or_end() {
    let of = |scenario: &str| Arc::new(play(scenario).1.pop().expect("a scenario"));
    let (first, restarted) = (of("pod a | a=running"), of("pod a | a=exited(1),running"));
    let (failed, unready) = (of("pod a policy=Never | a=exited(1)"), of("pod a:R | a=running"));
    assert_eq!(restarted.container_statuses.as_ref().unwrap()[0].restart_count, 1);
    assert_eq!(failed.phase.as_deref(), Some("Failed"));
    let check = |on_disk: &Arc<PodStatus>, in_api: &Arc<PodStatus>, expected: &Arc<PodStatus>| {
        assert_eq!(latest_known(Some(on_disk.clone()), Some(in_api)).as_ref(), Some(expected));
    };
    check(&first, &restarted, &restarted);
    check(&first, &failed, &failed);
    check(&restarted, &first, &restarted);
    check(&first, &unready, &first);
    check(&failed, &restarted, &failed);
    assert_eq!(latest_known(Some(first.clone()), None), Some(first));
    assert_eq!(latest_known(None, Some(&restarted)), Some(restarted));
}

#[test]
fn unready_container_stays_unready_until_its_probe_succeeds() {
    assert_eq!(seeds("pod a:RS | a=running ok(a.S)", "a=running"), [("a-0".to_owned(), ProbeKind::Startup)]);
    assert_eq!(seeds("pod a:S | a=running", "a=running"), []);
}

#[test]
fn readiness_of_sidecars_survives_a_kubelet_restart() {
    assert_eq!(seeds("pod s:sR a | s=running ok(s.R)", "s=running").len(), 2);
}

#[test]
fn probe_verdicts_of_another_instance_or_start_time_are_dropped() {
    assert_eq!(seeds("pod a | a=running", "a=exited(0),running"), []);
    assert_eq!(seeds("pod a | a=running", "a=exited(0)"), []);
    assert_eq!(seeds("pod a | a=running", "box=ready"), []);
    let (_, played) = play("pod a | a=running");
    let mut observed = Scenario::parse("a=running").observed.expect("an observation");
    observed.containers[0].started_at = Some(time(5));
    assert_eq!(merge_for_restart(&played[0], &observed), []);
}

#[test]
fn completed_init_container_without_a_record_counts_as_exited_normally() {
    let (pod, played) = play("pod i:i a static | i=exited(0) a=running");
    let mut known = played[0].clone();
    forget_ended_init_containers(&mut known);
    let init = |scenario: &str| {
        let status = Scenario::parse(scenario).compute(&pod, Some(&known), time(600));
        status.init_container_statuses.unwrap().remove(0).state.unwrap()
    };
    let end = init("a=running").terminated.unwrap();
    assert_eq!((end.exit_code, end.reason.as_deref()), (0, Some("Completed")));
    let message = "Unable to get init container status from container runtime and pod has been initialized, treat it \
                   as exited normally";
    assert_eq!(end.message.as_deref(), Some(message));
    assert_eq!(
        init("i=exited(0) a=running").terminated.unwrap().message,
        None,
        "the record is more accurate"
    );
    assert!(init("box=ready").waiting.is_some(), "the pod is not initialized");
}

#[test]
fn seeded_verdicts_keep_the_pod_ready() {
    let (pod, played) = play("pod a:RS | a=running ok(a.S) ok(a.R)");
    let mut scenario = Scenario::parse("a=running");
    scenario.memory.verdicts = ProbeVerdicts::default();
    for seed in merge_for_restart(&played[0], scenario.observed.as_ref().expect("an observation")) {
        scenario.memory.verdicts.set(&seed.container, seed.kind, seed.verdict);
    }
    assert_eq!(scenario.compute(&pod, played.last(), time(600)), played[0]);
}

#[test]
fn termination_messages_share_twelve_kibibytes_and_keep_whole_characters() {
    let mut scenario = Scenario::parse("a=exited(1) b=exited(1) box=none");
    for container in &mut scenario.observed.as_mut().expect("an observation").containers {
        container.message = "é".repeat(5000);
    }
    let status = scenario.compute(&pod("pod a b c policy=Never"), None, time(0));
    let lengths: Vec<_> = status
        .container_statuses
        .iter()
        .flatten()
        .filter_map(|s| s.state.as_ref()?.terminated.as_ref()?.message.as_ref().map(String::len))
        .collect();
    assert_eq!(lengths, [4096, 4096]);
}

#[test]
fn container_status_has_its_user_and_recursive_read_only_mounts() {
    let mut scenario = Scenario::parse("a=running");
    let container = &mut scenario.observed.as_mut().expect("an observation").containers[0];
    container.user = Some(ObservedUser { uid: 1000, gid: 3000, supplemental_groups: vec![3000, 4000] });
    container.recursive_read_only_mounts = vec!["/rro".to_owned()];
    let status = scenario.compute(&pod("pod a:v"), None, time(0));
    let shown = &status.container_statuses.expect("containers")[0];
    let linux = shown.user.as_ref().and_then(|user| user.linux.as_ref()).expect("a user");
    assert_eq!((linux.uid, linux.gid), (1000, 3000));
    assert_eq!(linux.supplemental_groups, Some(vec![3000, 4000]));
    let modes: Vec<_> =
        shown.volume_mounts.iter().flatten().map(|m| m.recursive_read_only.as_deref()).collect();
    assert_eq!(modes, [None, Some("Disabled"), Some("Enabled")]);
}

#[test]
fn mount_of_an_image_volume_has_the_image_that_the_runtime_mounted_at_its_path() {
    let mut scenario = Scenario::parse("a=running");
    let container = &mut scenario.observed.as_mut().expect("an observation").containers[0];
    let mount = |path: &str, image_ref: Option<&str>| ImageMount {
        container_path: path.to_owned(),
        image: "sha256:1".to_owned(),
        image_ref: image_ref.map(str::to_owned),
    };
    container.image_mounts = vec![mount("/rro", Some("sha256:2")), mount("/elsewhere", Some("sha256:3"))];
    let shown = |scenario: &Scenario| -> Vec<Option<String>> {
        let status = scenario.compute(&pod("pod a:v"), None, time(0));
        let mounts = status.container_statuses.expect("containers").remove(0).volume_mounts;
        let image = |mount: VolumeMountStatus| Some(mount.volume_status?.image?.image_ref);
        mounts.expect("mounts").into_iter().map(image).collect()
    };
    assert_eq!(shown(&scenario), [None, None, Some("sha256:2".to_owned())]);
    let container = &mut scenario.observed.as_mut().expect("an observation").containers[0];
    container.image_mounts = vec![mount("/rro", None)];
    assert_eq!(shown(&scenario), [None, None, None], "not looked up");
}

/// `convertToAPIContainerStatuses`: what the runtime reports, with the gate only.
#[test]
fn container_status_has_the_stop_signal_that_the_runtime_reports() {
    let shown = |reported: Option<&str>, state: &str, is_on: bool| {
        let mut scenario = Scenario::parse(&format!("a={state}"));
        scenario.features.container_stop_signals = is_on;
        scenario.observed.as_mut().expect("an observation").containers[0].stop_signal =
            reported.map(str::to_owned);
        let status = scenario.compute(&pod("pod a"), None, time(0));
        status.container_statuses.expect("containers").remove(0).stop_signal
    };
    let signal = Some("SIGUSR1".to_owned());
    assert_eq!(shown(Some("SIGUSR1"), "running", true), signal);
    assert_eq!(shown(Some("SIGUSR1"), "exited(0)", true), signal);
    assert_eq!(shown(None, "running", true), None, "an older runtime");
    assert_eq!(shown(Some("SIGUSR1"), "running", false), None);
    assert!(!Scenario::parse("a=running").features.container_stop_signals, "it is alpha");
}

#[test]
fn image_of_the_spec_is_reported_if_the_runtime_has_lost_it() {
    let mut scenario = Scenario::parse("a=running");
    scenario.observed.as_mut().expect("an observation").containers[0].image = String::new();
    let status = scenario.compute(&pod("pod a"), None, time(0));
    assert_eq!(status.container_statuses.expect("containers")[0].image, "a:1");
}

#[test]
fn status_times_are_truncated_to_seconds() {
    let mut scenario = Scenario::parse("a=running");
    let precise = time(1) + jiff::SignedDuration::from_millis(900);
    scenario.observed.as_mut().expect("an observation").containers[0].started_at = Some(precise);
    let status = scenario.compute(&pod("pod a"), None, precise);
    let running = status.container_statuses.as_ref().expect("containers")[0].state.clone();
    let started = running.and_then(|s| s.running).and_then(|r| r.started_at).expect("a time");
    assert_eq!(started.0, time(1));
    assert_eq!(status.start_time.expect("a time").0, time(1));
}

#[test]
fn changed_ip_family_of_the_node_address_is_reported() {
    let message = |reported: &str, now: &[&str]| {
        let status = PodStatus { host_ip: Some(reported.to_owned()), ..Default::default() };
        let now: Vec<std::net::IpAddr> = now.iter().map(|ip| ip.parse().expect("an address")).collect();
        host_ip_family_mismatch(Some(&status), &now)
    };
    assert_eq!(message("192.0.2.1", &["192.0.2.2", "2001:db8::1"]), None);
    assert_eq!(message("192.0.2.1", &[]), None, "not known yet");
    assert_eq!(host_ip_family_mismatch(None, &["192.0.2.1".parse().expect("an address")]), None);
    assert_eq!(
        message("192.0.2.1", &["2001:db8::1"]).as_deref(),
        Some(
            "Kubelet detected an IPv4 node IP (192.0.2.1), but the cloud provider selected an IPv6 node IP \
             (2001:db8::1); pass an explicit `--node-ip` to kubelet to fix this."
        )
    );
}

/// `container/helpers_test.go`, TestHasAnyActiveRegularContainerStarted: only what started in the sandbox of now counts.
#[test]
fn pod_with_sidecars_is_pending_again_while_it_initializes_in_a_new_sandbox() {
    let (pod, played) = play("pod s:sS a | s=running ok(s.S) a=running");
    let phase = |scenario: &str, a_is_in: &str| {
        let mut scenario = Scenario::parse(scenario);
        let observed = scenario.observed.as_mut().expect("an observation");
        let mut old = observed.sandboxes[0].clone();
        (old.id, old.state) = ("old".into(), model::SandboxState::NotReady);
        observed.sandboxes.push(old);
        for container in observed.containers.iter_mut().filter(|c| &*c.name == "a") {
            container.sandbox_id = a_is_in.into();
        }
        scenario.compute(&pod, played.last(), time(600)).phase.expect("a phase")
    };
    assert_eq!(phase("s=exited(137),running a=exited(137)", "old"), "Pending");
    assert_eq!(phase("s=exited(137),running ok(s.S) a=exited(137)", "old"), "Running");
    assert_eq!(phase("s=exited(137),running a=exited(137)", "box"), "Running");
    assert_eq!(phase("s=exited(137),running a=exited(137),running", "box"), "Running");
}
