//! The values of the Go kubelet's tables of `getPhase` (`kubelet_pods_test.go`, 1.36).
//!
//! A pod is `policy container…`: `x:i` is an init container, `x:s` a sidecar, else a regular one; then `N`, `F` or `L` for a
//! restart policy of its own (Never, OnFailure, Always) and `A` for the rule that restarts all containers on exit code 42.

use std::collections::BTreeMap;

use config::Features;
use jiff::Timestamp;
use model::k8s::{ContainerStatus, Pod};
use serde_json::{Value, json};

use super::super::{ContainerStatuses, StatusInputs};
use super::Tally;
use crate::pods::memory::PodMemory;
use base_core::backoff::BackoffTable;
use base_core::pod_stage::PodStage;

fn pod(text: &str) -> Pod {
    let mut words = text.split_whitespace();
    let mut spec = json!({"restartPolicy": words.next().unwrap(), "containers": []});
    for word in words {
        let (name, flags) = word.split_once(':').unwrap_or((word, ""));
        let mut container = json!({"name": name});
        let mut list = "containers";
        for flag in flags.chars() {
            match flag {
                'i' => list = "initContainers",
                's' => {
                    list = "initContainers";
                    container["restartPolicy"] = "Always".into();
                }
                'N' => container["restartPolicy"] = "Never".into(),
                'F' => container["restartPolicy"] = "OnFailure".into(),
                'L' => container["restartPolicy"] = "Always".into(),
                'A' => {
                    let codes = json!({"operator": "In", "values": [42]});
                    container["restartPolicyRules"] =
                        json!([{"action": "RestartAllContainers", "exitCodes": codes}]);
                }
                other => panic!("no flag {other}"),
            }
        }
        if spec[list].is_null() {
            spec[list] = json!([]);
        }
        spec[list].as_array_mut().unwrap().push(container);
    }
    serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).unwrap()
}

fn status(name: &str, state: &str) -> ContainerStatus {
    let ended = |code: i32| json!({"terminated": {"exitCode": code}});
    let waiting = json!({"waiting": {"reason": "ContainerCreating"}});
    let (state, last, started): (Value, Value, Value) = match state {
        "running" => (json!({"running": {}}), Value::Null, Value::Null),
        "started" => (json!({"running": {}}), Value::Null, true.into()),
        "succeeded" => (ended(0), Value::Null, Value::Null),
        "failed" => (ended(-1), Value::Null, Value::Null),
        "failed42" => (ended(42), Value::Null, Value::Null),
        "waiting" => (waiting, Value::Null, Value::Null),
        "waiting-after-0" => (waiting, ended(0), Value::Null),
        "waiting-after-failure" => (waiting, ended(-1), Value::Null),
        "restarting-all" => {
            let reason = "RestartingAllContainers";
            let waiting = json!({"waiting": {"reason": reason}});
            (waiting, json!({"terminated": {"exitCode": 137, "reason": reason}}), Value::Null)
        }
        other => panic!("no state {other}"),
    };
    serde_json::from_value(
        json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": state, "lastState": last, "started": started}),
    )
    .unwrap()
}

use Given::{Initialized, InitializedAndTerminal, Nothing, Terminal};

/// What the Go kubelet's function is also given.
#[derive(Clone, Copy, PartialEq)]
enum Given {
    Nothing,
    /// A regular container has started in the sandbox of now.
    Initialized,
    /// Nothing restarts any more.
    Terminal,
    InitializedAndTerminal,
}

fn phase(pod: &Pod, states: &str, given: Given) -> &'static str {
    let mut statuses = ContainerStatuses::default();
    for (name, state) in states.split_whitespace().map(|word| word.split_once('=').unwrap()) {
        let inits = pod.spec.as_ref().unwrap().init_containers.iter().flatten();
        let is_init = inits.clone().any(|c| c.name == name);
        let list = if is_init { &mut statuses.init } else { &mut statuses.regular };
        list.push(status(name, state));
    }
    let inputs = StatusInputs {
        pod,
        in_source: pod.status.as_ref(),
        observed: None,
        previous: None,
        memory: &PodMemory::new(BackoffTable::image_pull()),
        stage: PodStage::Syncing,
        is_rejected: false,
        terminal: None,
        cgroup: None,
        device_health: &BTreeMap::new(),
        host_ips: &[],
        runtime_name: "test",
        features: Features::default(),
        now: Timestamp::UNIX_EPOCH,
    };
    let is_initialized = matches!(given, Initialized | InitializedAndTerminal);
    let is_terminal = matches!(given, Terminal | InitializedAndTerminal);
    Tally { is_initialized, ..Tally::of(&inputs, &statuses) }.phase(is_terminal).as_str()
}

/// Name, states, what else is given, the phase.
type Row = (&'static str, &'static str, Given, &'static str);

#[track_caller]
fn check_phases(spec: &str, table: &[Row]) {
    let pod = pod(spec);
    for (name, states, given, expected) in table {
        assert_eq!(phase(&pod, states, *given), *expected, "{spec}: {name}");
    }
}

#[test]
fn pod_phase_with_restart_always_table() {
    check_phases(
        "Always a b",
        &[
            ("waiting", "", Nothing, "Pending"),
            ("all running", "a=running b=running", Nothing, "Running"),
            ("all stopped", "a=succeeded b=succeeded", Nothing, "Running"),
            ("all succeeded, pod terminal", "a=succeeded b=succeeded", Terminal, "Succeeded"),
            ("one failed, pod terminal", "a=succeeded b=failed", Terminal, "Failed"),
            ("one stopped", "a=running b=succeeded", Nothing, "Running"),
            ("one without status", "a=running", Nothing, "Pending"),
            ("one waiting", "a=running b=waiting", Nothing, "Pending"),
            ("crash loop", "a=running b=waiting-after-0", Nothing, "Running"),
        ],
    );
    check_phases(
        "Always x:i a b",
        &[
            ("waiting", "", Nothing, "Pending"),
            ("init running", "x=running", Nothing, "Pending"),
            ("init failed", "x=failed", Nothing, "Pending"),
            ("init waiting after success", "x=waiting-after-0", Nothing, "Pending"),
            ("init waiting after failure", "x=waiting-after-failure", Nothing, "Pending"),
            ("init waiting", "x=waiting", Nothing, "Pending"),
            ("init succeeded", "x=succeeded a=running b=running", Nothing, "Running"),
        ],
    );
}

#[test]
fn pod_phase_with_restart_always_and_restartable_init_containers_table() {
    check_phases(
        "Always x:s a b",
        &[
            ("waiting", "", Nothing, "Pending"),
            ("sidecar running", "x=running", Nothing, "Pending"),
            ("sidecar stopped", "x=succeeded", Nothing, "Pending"),
            ("sidecar waiting after success", "x=waiting-after-0", Nothing, "Pending"),
            ("sidecar waiting after failure", "x=waiting-after-failure", Nothing, "Pending"),
            ("sidecar waiting", "x=waiting", Nothing, "Pending"),
            ("sidecar started, one of two running", "x=started a=running", Initialized, "Pending"),
            ("sidecar started, all running", "x=started a=running b=running", Initialized, "Running"),
            ("sidecar running, all running", "x=running a=running b=running", Initialized, "Running"),
            ("sidecar stopped, all running", "x=succeeded a=running b=running", Initialized, "Running"),
            ("sidecar in crash loop", "x=waiting-after-0 a=running b=running", Initialized, "Running"),
            (
                "sidecar failed, terminal",
                "x=failed a=succeeded b=succeeded",
                InitializedAndTerminal,
                "Succeeded",
            ),
            (
                "sidecar succeeded, terminal",
                "x=succeeded a=succeeded b=succeeded",
                InitializedAndTerminal,
                "Succeeded",
            ),
            ("initializing again in a new sandbox", "x=running a=running b=running", Nothing, "Pending"),
        ],
    );
    check_phases(
        "Always x:i y:s a",
        &[
            ("all running", "x=running y=running a=running", Nothing, "Pending"),
            ("regular stopped, inits running", "x=running y=running a=succeeded", Nothing, "Pending"),
            ("new sandbox: sidecar running", "x=succeeded y=running a=succeeded", Nothing, "Pending"),
            ("sidecar running, regular stopped", "x=succeeded y=running a=succeeded", Initialized, "Running"),
            ("sidecar and regular running", "x=succeeded y=running a=running", Initialized, "Running"),
        ],
    );
}

#[test]
fn pod_phase_with_restart_never_table() {
    check_phases(
        "Never a b",
        &[
            ("waiting", "", Nothing, "Pending"),
            ("all running", "a=running b=running", Nothing, "Running"),
            ("all succeeded", "a=succeeded b=succeeded", Nothing, "Succeeded"),
            ("all failed", "a=failed b=failed", Nothing, "Failed"),
            ("one succeeded", "a=running b=succeeded", Nothing, "Running"),
            ("one without status", "a=running", Nothing, "Pending"),
            ("one waiting", "a=running b=waiting", Nothing, "Pending"),
        ],
    );
    check_phases(
        "Never x:i a b",
        &[
            ("waiting", "", Nothing, "Pending"),
            ("init running", "x=running", Nothing, "Pending"),
            ("init failed", "x=failed", Nothing, "Failed"),
            ("init waiting after success", "x=waiting-after-0", Nothing, "Pending"),
            ("init waiting after failure", "x=waiting-after-failure", Nothing, "Failed"),
            ("init waiting", "x=waiting", Nothing, "Pending"),
            ("init succeeded", "x=succeeded a=running b=running", Nothing, "Running"),
        ],
    );
    check_phases(
        "Never x:s a b",
        &[
            ("waiting", "", Nothing, "Pending"),
            ("sidecar running", "x=running", Nothing, "Pending"),
            ("sidecar stopped", "x=succeeded", Nothing, "Pending"),
            ("sidecar waiting after success", "x=waiting-after-0", Nothing, "Pending"),
            ("sidecar waiting after failure", "x=waiting-after-failure", Nothing, "Pending"),
            ("sidecar waiting", "x=waiting", Nothing, "Pending"),
            ("sidecar started, one running", "x=started a=running", Initialized, "Pending"),
            ("sidecar started, all succeeded", "x=started a=succeeded b=succeeded", Initialized, "Running"),
            ("sidecar running again", "x=running a=succeeded b=succeeded", Initialized, "Running"),
            ("all succeeded", "x=succeeded a=succeeded b=succeeded", Initialized, "Succeeded"),
            ("sidecar failed", "x=failed a=succeeded b=succeeded", Initialized, "Succeeded"),
            ("sidecar in crash loop", "x=waiting-after-0 a=succeeded b=succeeded", Initialized, "Succeeded"),
            (
                "sidecar in crash loop after failure",
                "x=waiting-after-failure a=succeeded b=succeeded",
                Initialized,
                "Succeeded",
            ),
        ],
    );
}

#[test]
fn pod_phase_with_restart_on_failure_table() {
    check_phases(
        "OnFailure a b",
        &[
            ("waiting", "", Nothing, "Pending"),
            ("all running", "a=running b=running", Nothing, "Running"),
            ("all succeeded", "a=succeeded b=succeeded", Nothing, "Succeeded"),
            ("all failed", "a=failed b=failed", Nothing, "Running"),
            ("one succeeded", "a=running b=succeeded", Nothing, "Running"),
            ("one without status", "a=running", Nothing, "Pending"),
            ("one waiting", "a=running b=waiting", Nothing, "Pending"),
            ("crash loop", "a=running b=waiting-after-0", Nothing, "Running"),
        ],
    );
}

#[test]
fn pod_phase_with_container_restart_policy_table() {
    for (spec, states, expected) in [
        ("Always a:N", "a=failed", "Failed"),
        ("Always a:F", "a=failed", "Running"),
        ("Always a:L", "a=failed", "Running"),
        ("Never a:L b", "a=succeeded b=failed", "Running"),
        ("Always a:N b:F", "a=failed b=succeeded", "Failed"),
        ("Always a:N b:F", "a=succeeded b=succeeded", "Succeeded"),
        ("Always x:iN c", "x=failed", "Failed"),
        ("Never x:iF c", "x=failed", "Pending"),
        ("Never x:iL c", "x=failed", "Pending"),
    ] {
        assert_eq!(phase(&pod(spec), states, Initialized), expected, "{spec}: {states}");
    }
}

#[test]
fn pod_phase_with_restart_all_containers_table() {
    for (spec, states, expected) in [
        ("Never c:NA", "c=failed42", "Running"),
        ("Never c:iNA", "c=failed42", "Pending"),
        ("Never c:sA regular", "c=failed42 regular=waiting", "Pending"),
        ("Never c:sA init:i regular", "c=failed42 init=waiting regular=waiting", "Pending"),
        ("Never c:NA", "c=restarting-all", "Running"),
        ("Never c:iNA", "c=restarting-all", "Pending"),
        ("Never c:sA regular", "c=restarting-all regular=waiting", "Pending"),
        ("Never c:sA init:i regular", "c=restarting-all regular=waiting", "Pending"),
        ("Never init:i c:NA", "init=succeeded c=restarting-all", "Running"),
        ("Never init:i c:NA", "init=failed c=restarting-all", "Failed"),
        ("Never c:iNA regular", "c=failed42 regular=waiting", "Pending"),
        ("Never c:iNA regular", "c=succeeded regular=waiting", "Pending"),
        ("Never c:sA regular", "c=restarting-all regular=restarting-all", "Running"),
        ("Never c:sA regular", "c=running regular=restarting-all", "Running"),
        ("Never c:sA init:i regular", "c=running regular=waiting", "Pending"),
    ] {
        assert_eq!(phase(&pod(spec), states, Initialized), expected, "{spec}: {states}");
    }
}
