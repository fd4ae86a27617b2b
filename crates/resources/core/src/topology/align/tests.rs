use serde_json::json;

use super::super::tests::{nodes, providers, shown};
use super::*;
use model::topology::MachineTopology;

/// Answers with the same hints whatever is asked, and records what it allocates.
struct Recorder {
    hints: ProviderHints,
    fails_for: &'static str,
    calls: std::cell::RefCell<Vec<String>>,
}

impl Recorder {
    fn new(hints: &str) -> Self {
        let hints = providers(hints).pop().unwrap_or_default();
        Self { hints, fails_for: "", calls: std::cell::RefCell::default() }
    }

    fn record(&self, call: String) {
        self.calls.borrow_mut().push(call);
    }
}

impl HintProvider for Recorder {
    fn container_hints(&self, _: &Pod, container: &ContainerRef<'_>) -> ProviderHints {
        self.record(format!("hints {}", container.name()));
        self.hints.clone()
    }

    fn pod_hints(&self, _: &Pod) -> ProviderHints {
        self.record("hints of pod".to_owned());
        self.hints.clone()
    }

    fn allocate(
        &mut self,
        _: &Pod,
        container: &ContainerRef<'_>,
        hint: TopologyHint,
    ) -> Result<(), Rejection> {
        self.record(format!("allocate {} {}", container.name(), shown(hint)));
        if container.name() == self.fails_for {
            return Err(not_aligned("too few"));
        }
        Ok(())
    }

    fn allocate_pod(&mut self, _: &Pod, hint: TopologyHint) -> Result<(), Rejection> {
        self.record(format!("allocate pod {}", shown(hint)));
        Ok(())
    }
}

fn pod(resources: bool) -> Pod {
    let mut spec = json!({
        "initContainers": [{"name": "init"}],
        "containers": [{"name": "app"}],
    });
    if resources {
        spec["resources"] = json!({"limits": {"cpu": "1"}});
    }
    serde_json::from_value(json!({"spec": spec})).unwrap()
}

fn policy(name: &str, scope: &str) -> TopologyPolicy {
    let machine = MachineTopology { numa_nodes: nodes(2), ..MachineTopology::default() };
    TopologyPolicy::new(name, scope, &BTreeMap::new(), &machine).unwrap()
}

#[track_caller]
fn check(policy: &TopologyPolicy, is_on: bool, pod: &Pod, mut provider: Recorder, expected: &str) {
    let result =
        compute_aligned_resources(policy, is_on, pod, &crate::devices::NO_HINTS, &mut [&mut provider]);
    let mut shown = provider.calls.into_inner();
    shown.extend(result.err().map(|rejection| format!("{}: {}", rejection.reason, rejection.message)));
    assert_eq!(shown.join(", "), expected);
}

#[test]
fn container_scope_aligns_and_allocates_one_container_after_the_other() {
    check(
        &policy("restricted", "container"),
        false,
        &pod(false),
        Recorder::new("1+ 01-"),
        "hints init, allocate init 1+, hints app, allocate app 1+",
    );
}

#[test]
fn pod_scope_aligns_all_containers_alike() {
    check(
        &policy("restricted", "pod"),
        false,
        &pod(false),
        Recorder::new("1+ 01-"),
        "hints of pod, allocate init 1+, allocate app 1+",
    );
}

#[test]
fn pod_scope_allocates_a_pod_with_resources_of_its_own_as_a_whole() {
    let pod_scope = policy("best-effort", "pod");
    let whole = "hints of pod, allocate pod 1+";
    check(&pod_scope, true, &pod(true), Recorder::new("1+"), whole);
    let by_container = "hints of pod, allocate init 1+, allocate app 1+";
    check(&pod_scope, false, &pod(true), Recorder::new("1+"), by_container);
    check(&pod_scope, true, &pod(false), Recorder::new("1+"), by_container);
}

#[test]
fn pod_without_aligned_resources_is_rejected_with_topology_affinity_error() {
    let plain = "TopologyAffinityError: Resources cannot be allocated with Topology locality";
    for (scope, has_resources, calls, why) in [
        ("container", false, "hints init", plain),
        (
            "container",
            true,
            "hints init",
            "TopologyAffinityError: Pod Scope pod with pod-level resources failed admission with a container-level topology manager",
        ),
        ("pod", false, "hints of pod", plain),
        (
            "pod",
            true,
            "hints of pod",
            "TopologyAffinityError: Pod Scope pod with pod-level resources failed admission under pod-scope topology manager",
        ),
    ] {
        let policy = policy("single-numa-node", scope);
        check(&policy, true, &pod(has_resources), Recorder::new("01+"), &format!("{calls}, {why}"));
    }
    check(
        &policy("single-numa-node", "container"),
        false,
        &pod(true),
        Recorder::new("01+"),
        &format!("hints init, {plain}"),
    );
}

#[test]
fn policy_none_allocates_without_hints() {
    let calls = "allocate init *-, allocate app *-";
    check(&TopologyPolicy::none(), true, &pod(true), Recorder::new("0+"), calls);
}

#[test]
fn first_failed_allocation_ends_the_admission() {
    let provider = Recorder { fails_for: "init", ..Recorder::new("0+") };
    let calls = "hints of pod, allocate init 0+, TopologyAffinityError: too few";
    check(&policy("restricted", "pod"), false, &pod(false), provider, calls);
}

/// `TestAdmit`: the policy, the hints of its only provider, whether the pod is admitted in both scopes.
#[test]
fn admit_table() {
    for (name, hints, is_admitted) in [
        ("none", "", true),
        ("single-numa-node", "", true),
        ("restricted", "", true),
        ("best-effort", "0+ 01-", true),
        ("best-effort", "0+ 1+ 01-", true),
        ("best-effort", "01-", true),
        ("restricted", "0+ 01-", true),
        ("restricted", "0+ 1+ 01-", true),
        ("restricted", "01-", false),
    ] {
        for scope in ["container", "pod"] {
            let mut provider = Recorder::new(hints);
            let result = compute_aligned_resources(
                &policy(name, scope),
                false,
                &pod(false),
                &crate::devices::NO_HINTS,
                &mut [&mut provider],
            );
            assert_eq!(result.is_ok(), is_admitted, "{name} {scope} {hints}");
        }
    }
}
