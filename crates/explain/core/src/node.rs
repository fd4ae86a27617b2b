//! Why the node is as it is: one check for each thing that a node needs.

use jiff::Timestamp;
use model::explain::{Check, Explanation, Verdict};

use crate::times::{clock_time, span};

/// A certificate that ends sooner than this is worth a word.
const SOON_SECONDS: i64 = 24 * 3600;

/// What the node knows of itself.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    pub name: String,
    /// What keeps the node from being ready, as in its condition.
    pub problems: Vec<String>,
    /// `containerd 2.1.0`; empty until the runtime has answered.
    pub runtime: String,
    pub runtime_error: Option<String>,
    /// Signals of pressure that are met: `memory`, `disk`, `process ids`.
    pub pressure: Vec<&'static str>,
    pub is_shutting_down: bool,
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

/// The connection to the API server.
#[derive(Clone, Debug, Default)]
pub struct ApiFacts {
    /// When the lease was last renewed.
    pub renewed_at: Option<Timestamp>,
    /// The error of the last try, if it failed.
    pub error: Option<String>,
    pub are_pods_listed: bool,
    /// Ends of the certificates that the kubelet renews, by use.
    pub certificates: Vec<(&'static str, Option<Timestamp>)>,
}

/// Says why the node is as it is.
#[must_use]
pub fn compute_node_explanation(facts: &NodeFacts) -> Explanation {
    let mut checks = vec![ready(facts), runtime(facts), pressure(facts)];
    if let Some(api) = &facts.api {
        checks.push(lease(api, facts.now));
        checks.extend(api.certificates.iter().map(|(name, end)| certificate(name, *end, facts.now)));
    }
    checks.extend([sources(facts), pods(facts)]);
    let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or_default();
    let first = checks.iter().find(|check| check.verdict != Verdict::Fine);
    let summary = match (first, facts.problems.is_empty()) {
        (None, _) => "The node is ready, and nothing is wrong.".to_owned(),
        (Some(first), true) => format!("The node is ready. {}", first.what),
        (Some(first), false) => format!("The node is not ready. {}", first.what),
    };
    Explanation { name: facts.name.clone(), verdict, summary, checks }
}

fn check(name: &str, verdict: Verdict, what: impl Into<String>) -> Check {
    Check { name: name.to_owned(), verdict, what: what.into(), ..Check::default() }
}

fn ready(facts: &NodeFacts) -> Check {
    match facts.problems.as_slice() {
        [] => check("ready", Verdict::Fine, "The node is ready."),
        problems => {
            let error = problems.join("; ");
            let mut found = check("ready", Verdict::Waiting, "Something keeps the node from being ready.");
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
        ("cgroup", "Compare the cgroup driver of the container runtime with cgroupDriver of the kubelet."),
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

fn pressure(facts: &NodeFacts) -> Check {
    if facts.is_shutting_down {
        return check("shutdown", Verdict::Waiting, "The machine is shutting down; pods are being stopped.");
    }
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
        let api = ApiFacts { renewed_at: Some(at(-4)), error: None, are_pods_listed: true, certificates };
        NodeFacts {
            name: "node".to_owned(),
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
              client certificate  The client certificate is valid for 4 d 15 h.
              serving certificate The serving certificate ends in 1 h; it is renewed before.
              sources             Every source of pods has reported.
              pods                Pods on this node: 3, all as desired.
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
        api.error = Some("connection refused".to_owned());
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
            "not as desired: 2.",
        ] {
            assert!(text.contains(words), "{words:?} is missing: {text}");
        }
        assert_eq!(compute_node_explanation(&facts).verdict, Verdict::Failed);
    }
}
