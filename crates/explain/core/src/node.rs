//! Why the node is as it is: one check for each thing that a node needs.

mod limits;
mod plugins;

use jiff::Timestamp;
use model::explain::{Check, EvictionSignal, Explanation, Verdict};

pub use self::plugins::PluginFacts;
use crate::times::{clock_time, span};

/// A certificate that ends sooner than this is worth a word.
const SOON_SECONDS: i64 = 24 * 3600;

/// What the node knows of itself.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    pub name: String,
    /// What keeps the node from being ready, as in its condition.
    pub problems: Vec<String>,
    /// Which build of the kubelet runs; empty if that is not known.
    pub build: String,
    /// `containerd 2.1.0`; empty until the runtime has answered.
    pub runtime: String,
    pub runtime_error: Option<String>,
    /// Signals of pressure that are met: `memory`, `disk`, `process ids`.
    pub pressure: Vec<&'static str>,
    /// The thresholds of eviction, with what is available.
    pub signals: Vec<EvictionSignal>,
    pub shutdown: ShutdownFacts,
    /// `key=value:Effect`, as kubectl writes them.
    pub taints: Vec<String>,
    pub plugins: PluginFacts,
    /// `None` for a node without an API server.
    pub api: Option<ApiFacts>,
    /// Sources of pods that have all reported once.
    pub are_sources_known: bool,
    pub manifest_problems: usize,
    pub pods: usize,
    /// Pods that wait or failed.
    pub pods_not_as_desired: usize,
    pub now: Timestamp,
}

/// The end of the machine, which logind reports.
#[derive(Clone, Debug, Default)]
pub struct ShutdownFacts {
    pub is_under_way: bool,
    /// When the periods of all pods have passed.
    pub ends_by: Option<Timestamp>,
    /// Why logind cannot report it, if it should and does not.
    pub error: Option<String>,
}

/// The connection to the API server.
#[derive(Clone, Debug, Default)]
pub struct ApiFacts {
    /// The API server has no Node object of this node.
    pub is_node_missing: bool,
    /// When the lease was last renewed.
    pub renewed_at: Option<Timestamp>,
    /// The error of the last try, if it failed.
    pub error: Option<String>,
    /// It failed because the API server is overloaded, and said so.
    pub is_overloaded: bool,
    pub are_pods_listed: bool,
    /// When the API server last accepted something: a lease, or the status of a pod.
    pub last_success: Option<Timestamp>,
    /// Pods whose status the API does not have yet.
    pub statuses_behind: usize,
    /// Events that wait to be sent.
    pub events_queued: usize,
    /// Ends of the certificates that the kubelet renews, by use.
    pub certificates: Vec<(&'static str, Option<Timestamp>)>,
}

/// Says why the node is as it is.
#[must_use]
pub fn compute_node_explanation(facts: &NodeFacts) -> Explanation {
    let mut checks = vec![ready(facts)];
    checks.extend(shutdown(&facts.shutdown));
    checks.extend([runtime(facts), pressure(facts)]);
    checks.extend(facts.signals.iter().map(limits::signal));
    checks.extend(limits::taints(&facts.taints));
    checks.extend(facts.plugins.check());
    if let Some(api) = &facts.api {
        checks.push(lease(api, facts.now));
        checks.extend(node_object(api));
        checks.push(queue(api, facts.now));
        checks.extend(api.certificates.iter().map(|(name, end)| certificate(name, *end, facts.now)));
    }
    checks.extend([sources(facts), pods(facts)]);
    if !facts.build.is_empty() {
        checks.push(check("build", Verdict::Fine, format!("This is {}.", facts.build)));
    }
    let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or_default();
    let first = checks.iter().find(|check| check.verdict != Verdict::Fine);
    let summary = match (first, facts.problems.is_empty()) {
        (None, _) => "The node is ready, and nothing is wrong.".to_owned(),
        (Some(first), true) => format!("The node is ready. {}", first.what),
        (Some(first), false) => format!("The node is not ready. {}", first.what),
    };
    Explanation { name: facts.name.clone(), verdict, summary, checks, signals: facts.signals.clone() }
}

fn check(name: &str, verdict: Verdict, what: impl Into<String>) -> Check {
    Check { name: name.to_owned(), verdict, what: what.into(), ..Check::default() }
}

fn ready(facts: &NodeFacts) -> Check {
    match facts.problems.as_slice() {
        [] => check("ready", Verdict::Fine, "The node is ready."),
        problems => {
            let error = problems.join("; ");
            let what = match facts.shutdown.is_under_way {
                true => "It takes no more pods: the machine is shutting down.",
                false => "Something keeps the node from being ready.",
            };
            let mut found = check("ready", Verdict::Waiting, what);
            found.advice = advice(&error);
            Check { error, ..found }
        }
    }
}

fn advice(error: &str) -> Vec<String> {
    let rows = [
        ("cni", "Install a network plugin, or put its configuration into /etc/cni/net.d."),
        (
            "runtime is down",
            "Look at the container runtime: systemctl status containerd, journalctl -u containerd.",
        ),
        (
            "PLEG is not healthy",
            "The container runtime answers too slowly: look at its log and at the load of this machine.",
        ),
        (
            "CSINode",
            "The API server has to accept the CSINode of this node: look at its connection and permissions.",
        ),
        (
            "node is shutting down",
            "It takes pods again after the machine has started, or if the shutdown is cancelled.",
        ),
        (
            "cgroup driver of the container runtime is not known",
            "Pods start once the runtime reports it, for which it is asked again and again: journalctl -u containerd.",
        ),
        (
            "cgroups of pods are missing",
            "Compare cgroupRoot and cgroupDriver with those before the last start: with the same ones the pods run on.",
        ),
    ];
    let fits = |(word, _): &&(&str, &str)| error.to_lowercase().contains(&word.to_lowercase());
    rows.iter().filter(fits).map(|(_, advice)| (*advice).to_owned()).collect()
}

fn runtime(facts: &NodeFacts) -> Check {
    match (&facts.runtime_error, facts.runtime.is_empty()) {
        (Some(error), _) => Check {
            error: error.clone(),
            advice: vec![
                "Look at the container runtime: systemctl status containerd, journalctl -u containerd."
                    .to_owned(),
            ],
            ..check("runtime", Verdict::Waiting, "The container runtime does not answer.")
        },
        (None, true) => check("runtime", Verdict::Waiting, "The container runtime has not answered yet."),
        (None, false) => check("runtime", Verdict::Fine, format!("{} answers.", facts.runtime)),
    }
}

/// Nothing while the machine stays on, and would say so if it did not.
fn shutdown(facts: &ShutdownFacts) -> Option<Check> {
    if facts.is_under_way {
        let end = facts.ends_by.map(|at| format!("; their time ends at {}", clock_time(at)));
        let what = format!("Pods are being stopped, those of low priority first{}.", end.unwrap_or_default());
        return Some(Check {
            advice: vec!["kubelet why lists those that have not ended.".to_owned()],
            ..check("shutdown", Verdict::Waiting, what)
        });
    }
    let error = facts.error.clone()?;
    let what = "The node would not notice that the machine shuts down: it has no connection to logind.";
    Some(Check {
        error,
        advice: vec![
            "Look at systemctl status dbus systemd-logind; the node connects again by itself, within a minute."
                .to_owned(),
        ],
        ..check("shutdown", Verdict::Waiting, what)
    })
}

fn pressure(facts: &NodeFacts) -> Check {
    match facts.pressure.as_slice() {
        [] => check("pressure", Verdict::Fine, "Memory, disk and process ids suffice."),
        short => Check {
            advice: vec![
                "Pods are evicted until it suffices again; kubelet get pods shows which.".to_owned(),
            ],
            ..check("pressure", Verdict::Waiting, format!("The node is short of {}.", short.join(", ")))
        },
    }
}

fn lease(api: &ApiFacts, now: Timestamp) -> Check {
    let last = match api.renewed_at {
        Some(at) => format!("the lease was last renewed {} ago, at {}", span(at, now), clock_time(at)),
        None => "the lease was never renewed".to_owned(),
    };
    match &api.error {
        Some(error) if api.is_overloaded => Check {
            error: error.clone(),
            advice: vec![
                "Pods go on running, and each call is repeated later, as the server asks. Look at its load: kubectl get --raw /metrics, apiserver_flowcontrol."
                    .to_owned(),
            ],
            ..check("API", Verdict::Waiting, format!("The API server is overloaded and refuses calls; {last}."))
        },
        Some(error) => Check {
            error: error.clone(),
            advice: vec![
                "Pods go on running. Check the address in the kubeconfig, the network, and the certificates."
                    .to_owned(),
            ],
            ..check("API", Verdict::Waiting, format!("The API server does not answer; {last}."))
        },
        None if !api.are_pods_listed => {
            check("API", Verdict::Waiting, "The pods of this node have not been listed yet.")
        }
        None => check("API", Verdict::Fine, format!("The API server answers; {last}.")),
    }
}

fn node_object(api: &ApiFacts) -> Option<Check> {
    api.is_node_missing.then(|| Check {
        advice: vec![
            "Set registerNode to true, so that the kubelet creates it, or create it; pods of this node run meanwhile."
                .to_owned(),
        ],
        ..check("Node object", Verdict::Waiting, "The API has no Node object of this node.")
    })
}

/// What waits to be sent to the API server.
fn queue(api: &ApiFacts, now: Timestamp) -> Check {
    let last = match api.last_success {
        Some(at) => format!("it last accepted something {} ago", span(at, now)),
        None => "it has accepted nothing yet".to_owned(),
    };
    let what = match (api.statuses_behind, api.events_queued) {
        (0, 0) => format!("Nothing waits for the API server; {last}."),
        (statuses, events) => {
            format!("Waiting for the API server: statuses of {statuses} pods, {events} events; {last}.")
        }
    };
    check("API queue", Verdict::Fine, what)
}

fn certificate(name: &str, end: Option<Timestamp>, now: Timestamp) -> Check {
    let title = format!("{name} certificate");
    let Some(end) = end else {
        return Check {
            advice: vec!["Look whether its request waits for approval: kubectl get csr.".to_owned()],
            ..check(&title, Verdict::Waiting, format!("There is no {name} certificate."))
        };
    };
    let left = end.duration_since(now).as_secs();
    match left {
        ..=0 => Check {
            advice: vec![
                "Give the kubelet a bootstrap kubeconfig with a valid token, and look at kubectl get csr."
                    .to_owned(),
            ],
            ..check(&title, Verdict::Failed, format!("The {name} certificate ended {} ago.", span(end, now)))
        },
        1..SOON_SECONDS => check(
            &title,
            Verdict::Fine,
            format!("The {name} certificate ends in {}; it is renewed before.", span(now, end)),
        ),
        _ => check(&title, Verdict::Fine, format!("The {name} certificate is valid for {}.", span(now, end))),
    }
}

fn sources(facts: &NodeFacts) -> Check {
    if !facts.are_sources_known {
        let what = "Not every source of pods has reported yet: no pod is removed before.";
        return check("sources", Verdict::Waiting, what);
    }
    match facts.manifest_problems {
        0 => check("sources", Verdict::Fine, "Every source of pods has reported."),
        count => Check {
            advice: vec!["kubelet why lists them.".to_owned()],
            ..check("sources", Verdict::Failed, format!("Manifests have problems: {count}."))
        },
    }
}

fn pods(facts: &NodeFacts) -> Check {
    let all = facts.pods;
    match facts.pods_not_as_desired {
        0 => check("pods", Verdict::Fine, format!("Pods on this node: {all}, all as desired.")),
        bad => Check {
            advice: vec!["kubelet why lists them.".to_owned()],
            ..check("pods", Verdict::Waiting, format!("Pods on this node: {all}, not as desired: {bad}."))
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::{Style, node_text};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_000_000 + second).unwrap()
    }

    fn text(facts: &NodeFacts) -> String {
        let style = Style { width: 100, has_color: false, now: at(0) };
        node_text(&compute_node_explanation(facts), style)
    }

    fn facts() -> NodeFacts {
        let certificates = vec![("client", Some(at(400_000))), ("serving", Some(at(3600)))];
        let api = ApiFacts {
            renewed_at: Some(at(-4)),
            are_pods_listed: true,
            last_success: Some(at(-3)),
            certificates,
            ..ApiFacts::default()
        };
        NodeFacts {
            name: "node".to_owned(),
            build: "kubelet-rs 0.1.0 (commit 0123456789ab, 2026-11-27T22:33:05Z)".to_owned(),
            runtime: "containerd 2.1.0".to_owned(),
            api: Some(api),
            are_sources_known: true,
            pods: 3,
            now: at(0),
            ..NodeFacts::default()
        }
    }

    #[test]
    fn node_without_problems_says_what_was_checked() {
        expect_test::expect![[r#"
            node: The node is ready, and nothing is wrong.
              ready               The node is ready.
              runtime             containerd 2.1.0 answers.
              pressure            Memory, disk and process ids suffice.
              API                 The API server answers; the lease was last renewed 4 s ago, at 13:46:36 UTC.
              API queue           Nothing waits for the API server; it last accepted something 3 s ago.
              client certificate  The client certificate is valid for 4 d 15 h.
              serving certificate The serving certificate ends in 1 h; it is renewed before.
              sources             Every source of pods has reported.
              pods                Pods on this node: 3, all as desired.
              build               This is kubelet-rs 0.1.0 (commit 0123456789ab, 2026-11-27T22:33:05Z).
        "#]]
        .assert_eq(&text(&facts()));
    }

    #[test]
    fn each_problem_has_its_error_and_what_to_do() {
        let mut facts = facts();
        facts.problems = vec!["container runtime network not ready: cni plugin not initialized".to_owned()];
        facts.pressure = vec!["memory"];
        facts.pods_not_as_desired = 2;
        let api = facts.api.get_or_insert_default();
        (api.error, api.is_node_missing) = (Some("connection refused".to_owned()), true);
        api.certificates = vec![("client", Some(at(-60)))];
        let text = text(&facts);
        assert!(
            text.starts_with("node: The node is not ready. Something keeps the node from being ready."),
            "{text}"
        );
        for words in [
            "error  container runtime network not ready: cni plugin not initialized",
            "do     Install a network plugin",
            "The node is short of memory.",
            "error  connection refused",
            "The client certificate ended 1 min ago.",
            "The API has no Node object of this node.",
            "not as desired: 2.",
        ] {
            assert!(text.contains(words), "{words:?} is missing: {text}");
        }
        assert_eq!(compute_node_explanation(&facts).verdict, Verdict::Failed);
    }

    #[test]
    fn problems_with_cgroups_have_an_advice_that_fits() {
        let advice_of = |problem: &str| advice(problem).concat();
        let unknown = advice_of("cgroup driver of the container runtime is not known: refused");
        assert!(unknown.starts_with("Pods start once the runtime reports it"), "{unknown}");
        let missing = advice_of(
            "cgroups of pods are missing: 2 running pods are not restarted for that, because cgroupDriver, cgroupRoot or the \
             cgroup driver of the runtime may have changed",
        );
        assert!(missing.starts_with("Compare cgroupRoot and cgroupDriver"), "{missing}");
    }

    #[test]
    fn overloaded_api_server_is_not_taken_for_one_that_does_not_answer() {
        let mut facts = facts();
        let api = facts.api.get_or_insert_default();
        (api.error, api.is_overloaded) = (Some("update leases: the server is busy: later".to_owned()), true);
        let text = text(&facts);
        assert!(
            text.starts_with("node: The node is ready. The API server is overloaded and refuses calls;"),
            "{text}"
        );
        assert!(text.contains("do     Pods go on running, and each call is repeated later"), "{text}");
        assert!(!text.contains("does not answer"), "{text}");
    }

    #[test]
    fn shutdown_says_until_when_pods_are_stopped_and_a_lost_logind_that_none_would_be_noticed() {
        let mut facts = facts();
        (facts.api, facts.build) = (None, String::new());
        facts.problems = vec!["node is shutting down".to_owned()];
        facts.shutdown = ShutdownFacts { is_under_way: true, ends_by: Some(at(120)), error: None };
        expect_test::expect![[r#"
            node: The node is not ready. It takes no more pods: the machine is shutting down.
              ready    It takes no more pods: the machine is shutting down.
                         error  node is shutting down
                         do     It takes pods again after the machine has started, or if the shutdown is
                                cancelled.
              shutdown Pods are being stopped, those of low priority first; their time ends at 13:48:40 UTC.
                         do     kubelet why lists those that have not ended.
              runtime  containerd 2.1.0 answers.
              pressure Memory, disk and process ids suffice.
              sources  Every source of pods has reported.
              pods     Pods on this node: 3, all as desired.
        "#]]
        .assert_eq(&text(&facts));
        facts.problems.clear();
        let error = Some("connect to the message bus: connection refused".to_owned());
        facts.shutdown = ShutdownFacts { error, ..ShutdownFacts::default() };
        let text = text(&facts);
        assert!(
            text.starts_with(
                "node: The node is ready. The node would not notice that the machine shuts down"
            ),
            "{text}"
        );
        assert!(text.contains("error  connect to the message bus: connection refused"), "{text}");
        assert_eq!(compute_node_explanation(&facts).verdict, Verdict::Waiting);
    }

    #[test]
    fn thresholds_taints_plugins_and_the_queue_are_shown_with_what_is_near() {
        let mut facts = facts();
        let signal = |name: &str, available, threshold| EvictionSignal {
            name: name.to_owned(),
            available,
            threshold,
            capacity: 10 * available,
            grace_seconds: None,
        };
        facts.signals = vec![
            signal("memory.available", 900 << 20, 100 << 20),
            EvictionSignal { grace_seconds: Some(90), ..signal("nodefs.available", 11 << 30, 10 << 30) },
            signal("nodefs.inodesFree", 40, 50),
        ];
        facts.taints =
            vec!["dedicated=db:NoSchedule".to_owned(), "node.kubernetes.io/not-ready:NoExecute".to_owned()];
        facts.plugins = PluginFacts {
            devices: vec![("example.com/gpu".to_owned(), 3, 4), ("example.com/nic".to_owned(), 2, 2)],
            csi_drivers: vec!["csi.example.com".to_owned()],
            dra_drivers: vec![("gpu.example.com".to_owned(), false)],
        };
        let api = facts.api.get_or_insert_default();
        (api.certificates, api.statuses_behind, api.events_queued) = (Vec::new(), 2, 7);
        expect_test::expect![[r#"
            node: The node is ready. Less than the threshold of nodefs.inodesFree is available: 40 of 400, and
            pods are evicted below 50.
              ready             The node is ready.
              runtime           containerd 2.1.0 answers.
              pressure          Memory, disk and process ids suffice.
              memory.available  900.0 MiB of 8.7 GiB are available; pods are evicted below 100.0 MiB.
              nodefs.available  11.0 GiB of 110.0 GiB are available, which is near; pods are evicted below 10.0
                                GiB for longer than 90 s.
                                  do     Free some, or give the node more: pods are evicted soon.
              nodefs.inodesFree Less than the threshold of nodefs.inodesFree is available: 40 of 400, and pods
                                are evicted below 50.
                                  do     Pods are evicted until it suffices again; kubelet get pods shows which.
              taints            Taints: dedicated=db:NoSchedule, node.kubernetes.io/not-ready:NoExecute.
                                  do     Pods without a toleration of these are not scheduled here; those of
                                         node.kubernetes.io follow from the conditions of the node.
              plugins           Device plugins: example.com/gpu (3 of 4 healthy), example.com/nic (2). CSI
                                drivers: csi.example.com. DRA drivers: gpu.example.com (not connected).
              API               The API server answers; the lease was last renewed 4 s ago, at 13:46:36 UTC.
              API queue         Waiting for the API server: statuses of 2 pods, 7 events; it last accepted
                                something 3 s ago.
              sources           Every source of pods has reported.
              pods              Pods on this node: 3, all as desired.
              build             This is kubelet-rs 0.1.0 (commit 0123456789ab, 2026-11-27T22:33:05Z).
        "#]]
        .assert_eq(&text(&facts));
    }
}
