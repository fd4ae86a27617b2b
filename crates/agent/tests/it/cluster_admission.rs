//! Scenarios of admission to the node, and of preemption.

use fakes::{ClusterFault, Fault, Method, Program, Verb};
use model::k8s::{Node, Pod, Taint};
use model::observation::NamespaceMode;
use model::request::UserNamespace;
use ports::cluster::ClusterError;
use serde_json::{Value, json};

use crate::pods::{Manifest, container, container_with, pod};
use crate::world::{World, seconds};

/// A pod of one container that requests so many of the node's four CPUs.
fn requesting(name: &str, cpus: &str) -> Manifest {
    pod(name, [container_with("app", json!({"resources": {"requests": {"cpu": cpus}}}))])
}

fn reason(world: &World, name: &str) -> String {
    world.api_status(name).reason.unwrap_or_default()
}

/// The result of such a pod on a node that runs one already.
#[track_caller]
fn refused_as(world: &World, name: &str, expected: &str, message: &str) {
    let status = world.api_status(name);
    assert_eq!(status.phase.as_deref(), Some("Failed"), "{name}");
    assert_eq!(status.reason.as_deref(), Some(expected), "{name}");
    let text = status.message.unwrap_or_default();
    assert!(text.starts_with("Pod was rejected: ") && text.contains(message), "{name}: {text}");
    assert!(!world.runs(&format!("{name}/app")) && !world.runs(&format!("{name}/rest")), "{name}");
}

#[tokio::test(start_paused = true)]
async fn pod_that_does_not_fit_fails_with_a_reason() {
    let world = World::joined().await;
    let mut node: Node = world.node().unwrap();
    let taint = |effect: &str| Taint { key: "k".into(), effect: effect.into(), ..Taint::default() };
    node.spec.get_or_insert_default().taints = Some(vec![taint("NoExecute"), taint("NoSchedule")]);
    world.api().put(&node);
    world.advance(seconds(1)).await;
    let port = json!({"ports": [{"containerPort": 80, "hostPort": 80}]});
    let tolerant = |extra: Value| {
        let tolerations = json!({"tolerations": [{"key": "k", "operator": "Exists"}]});
        move |manifest: Manifest| manifest.spec(tolerations).spec(extra)
    };
    world.create(&tolerant(json!({}))(pod("first", [container_with("app", port.clone())])));
    world.until("the first runs", |w| w.is_ready_in_api("first")).await;
    world.create(&tolerant(json!({}))(pod("port", [container_with("app", port)])));
    world.create(&pod("taint", [container("app")]));
    world.create(&tolerant(json!({"nodeSelector": {"disk": "ssd"}}))(pod("labels", [container("app")])));
    world.create(&tolerant(json!({"os": {"name": "windows"}}))(pod("os", [container("app")])));
    world.create(&tolerant(json!({}))(requesting("cpu", "5")));
    for name in ["port", "taint", "labels", "os", "cpu"] {
        world.until("it has failed", |w| w.api_phase(name) == "Failed").await;
    }
    refused_as(&world, "port", "NodePorts", "free ports");
    refused_as(&world, "taint", "TaintToleration", "taints that the pod didn't tolerate");
    refused_as(&world, "labels", "NodeAffinity", "node affinity/selector");
    refused_as(&world, "os", "PodOSNotSupported", "OS field");
    refused_as(&world, "cpu", "OutOfcpu", "requested: 5000, used: 0, capacity: 4000");
    assert_eq!(world.recorded("OutOfcpu"), 1);
    world.delete("cpu", None);
    world.until("it can be deleted", |w| w.in_api("cpu").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn pods_run_while_the_registration_of_the_node_is_refused() {
    let mut world = World::of_cluster();
    let forbidden = ClusterError::Forbidden { call: String::new(), message: "not yours".to_owned() };
    world.api().fault_always(Verb::Create, "nodes", Some(ClusterFault::Refused(forbidden)));
    world.create(&pod("web", [container("app")]));
    world.create(&pod("labels", [container("app")]).spec(json!({"nodeSelector": {"disk": "ssd"}})));
    world.start().await;
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    world.until("it has failed", |w| w.api_phase("labels") == "Failed").await;
    refused_as(&world, "labels", "NodeAffinity", "node affinity/selector");
    assert!(world.node().is_none());
    world.restart().await;
    world.create(&requesting("cpu", "5"));
    world.until("it has failed", |w| w.api_phase("cpu") == "Failed").await;
    refused_as(&world, "cpu", "OutOfcpu", "requested: 5000, used: 0, capacity: 4000");
    assert!(world.runs("web/app"));
}

/// The Node was deleted, and its labels still hold.
#[tokio::test(start_paused = true)]
async fn deleted_node_object_leaves_its_labels_to_admission() {
    let mut world = World::of_cluster();
    world.config.register_node = false;
    let node = json!({"metadata": {"name": "node", "labels": {"disk": "ssd"}}});
    world.api().put::<Node>(&serde_json::from_value(node).unwrap());
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    let selecting = |name: &str| pod(name, [container("app")]).spec(json!({"nodeSelector": {"disk": "ssd"}}));
    world.create(&selecting("first"));
    world.until("it runs", |w| w.is_ready_in_api("first")).await;
    assert!(world.api().remove::<Node>("", "node", None));
    world.until("the Node is gone", |w| w.node().is_none()).await;
    world.create(&selecting("second"));
    world.until("it runs", |w| w.is_ready_in_api("second")).await;
}

/// Power was lost before the files of the kubelet were on disk, and after the pod was resized to more than the node has.
#[tokio::test(start_paused = true)]
async fn pod_that_never_started_is_admitted_again_if_nothing_is_known_of_its_allocation() {
    let mut world = World::joined().await;
    world.fake.fault_always(Method::RunPodSandbox, Some(Fault::Hang));
    let created = world.create(&requesting("web", "1"));
    world.until("its status is in the API", |w| w.api_status("web").container_statuses.is_some()).await;
    world.crash().await;
    let below = format!("/pods/{}/", created.metadata.uid.unwrap());
    for path in world.host.files_below("/var/lib/kubelet") {
        if path.contains(&below) || path.contains("pods_state") {
            world.host.delete(path);
        }
    }
    world.fake.clear_faults();
    let mut resized: Pod = world.in_api("web").unwrap();
    resized.spec.as_mut().unwrap().containers[0].resources =
        serde_json::from_value(json!({"requests": {"cpu": "5"}})).unwrap();
    world.api().put(&resized);
    world.start().await;
    world.until("it has failed", |w| w.api_phase("web") == "Failed").await;
    refused_as(&world, "web", "OutOfcpu", "requested: 5000, used: 0, capacity: 4000");
}

/// `lifecycle/handlers.go`, declaredFeaturesAdmitHandler.
#[tokio::test(start_paused = true)]
async fn pod_that_requires_a_feature_that_the_node_does_not_declare_is_rejected() {
    let mut world = World::of_cluster();
    world.features.restart_all_containers = false;
    world.start().await;
    world.until("the node is ready", World::is_node_ready).await;
    let declared = world.node().unwrap().status.unwrap().declared_features.unwrap();
    let name = "RestartAllContainersOnContainerExits";
    assert!(!declared.is_empty() && declared.iter().all(|one| one != name), "{declared:?}");
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [1]}}]);
    let own = json!({"restartPolicy": "Never", "restartPolicyRules": rules});
    world.create(&pod("web", [container_with("app", own)]));
    world.until("it is rejected", |w| w.api_phase("web") == "Failed").await;
    let message = format!("Pod was rejected: Pod requires node features that are not available: {name}");
    refused_as(&world, "web", "PodFeatureUnsupported", &message);
}

#[tokio::test(start_paused = true)]
async fn pod_with_host_network_and_user_namespace_runs_where_gate_and_runtime_support_it() {
    const NAME: &str = "UserNamespacesHostNetworkSupport";
    for (gate, has_support) in [(true, true), (true, false), (false, true)] {
        let mut world = World::of_cluster();
        world.features.user_namespaces_host_network = gate;
        if has_support {
            world.fake.offer_user_namespaces_host_network();
        }
        world.start().await;
        world.until("the node is ready", World::is_node_ready).await;
        let declared = world.node().unwrap().status.unwrap().declared_features.unwrap();
        assert_eq!(declared.iter().any(|one| one == NAME), gate && has_support, "{declared:?}");
        world.create(&pod("web", [container("app")]).spec(json!({"hostNetwork": true, "hostUsers": false})));
        if !(gate && has_support) {
            world.until("it is rejected", |w| w.api_phase("web") == "Failed").await;
            let message =
                format!("Pod was rejected: Pod requires node features that are not available: {NAME}");
            refused_as(&world, "web", "PodFeatureUnsupported", &message);
            continue;
        }
        world.until("the pod is ready", |w| w.is_ready_in_api("web")).await;
        let namespaces = world.fake.sandbox_request("web").unwrap().security.namespaces;
        assert_eq!(namespaces.network, NamespaceMode::Node);
        assert!(matches!(namespaces.user, UserNamespace::Pod { .. }), "{namespaces:?}");
    }
}

/// `preemption.go`: a pod that is not killed within one and a half times its grace period is left behind.
#[tokio::test(start_paused = true)]
async fn critical_pod_starts_although_the_pod_that_it_preempts_cannot_be_stopped() {
    let world = World::joined().await;
    world.create(&requesting("victim", "3").spec(json!({"terminationGracePeriodSeconds": 20})));
    world.until("it runs", |w| w.is_ready_in_api("victim")).await;
    world.fake.fault_always(Method::StopContainer, Some(Fault::Hang));
    world.apply(&requesting("critical", "2"));
    let began = world.until("it is preempted", |w| w.recorded("Preempting") == 1).await;
    let started = world.until("it runs", |w| w.runs("critical-node/app")).await;
    let waited = (started - began).as_secs();
    assert!((30..32).contains(&waited), "{waited}s");
    assert!(world.runs("victim/app"));
    assert_eq!(world.recorded("ExceededGracePeriod"), 1);
    world.advance(seconds(300)).await;
    assert_eq!(world.recorded("PreemptionTimedOut"), 1);
    let message = world.agent.as_ref().unwrap().recorder().latest();
    let message = message.into_iter().find(|event| event.reason == "PreemptionTimedOut").unwrap().message;
    assert_eq!(
        message,
        "preempted pod default/victim did not end within 30s, starting without waiting for it"
    );
}

#[tokio::test(start_paused = true)]
async fn last_cpu_is_allocated_to_one_of_two_concurrent_pods() {
    let world = World::joined().await;
    for n in 0..6 {
        world.create(&requesting(&format!("web-{n}"), "1500m"));
    }
    let phases = |w: &World| (0..6).map(|n| w.api_phase(&format!("web-{n}"))).collect::<Vec<_>>();
    world.until("all are approved or denied", |w| phases(w).iter().all(|phase| phase != "Pending")).await;
    let running = phases(&world).iter().filter(|phase| *phase == "Running").count();
    assert_eq!(running, 2, "{:?}", phases(&world));
    assert_eq!((0..6).filter(|n| reason(&world, &format!("web-{n}")) == "OutOfcpu").count(), 4);
}

/// As in the Go kubelet, which sorts the pods that arrive together (`HandlePodAdditions`).
#[tokio::test(start_paused = true)]
async fn pods_that_arrive_together_are_admitted_in_order_of_creation() {
    let mut world = World::of_cluster();
    for name in ["b", "c", "a"] {
        world.create(&requesting(name, "1500m"));
        world.advance(seconds(1)).await;
    }
    world.start().await;
    world
        .until("all are approved or denied", |w| ["a", "b", "c"].iter().all(|n| w.api_phase(n) != "Pending"))
        .await;
    assert_eq!(["a", "b", "c"].map(|name| reason(&world, name)), ["OutOfcpu", "", ""]);
}

#[tokio::test(start_paused = true)]
async fn job_pods_in_quick_succession_reuse_the_allocation_of_the_previous_pod() {
    let world = World::joined().await;
    world.fake.program("app", Program::exits(0, seconds(2)));
    for n in 0..20 {
        let name = format!("job-{n}");
        world.create(&requesting(&name, "3").restart_policy("Never"));
        world.until("it is decided", |w| !["", "Pending", "Running"].contains(&&*w.api_phase(&name))).await;
        assert_eq!((world.api_phase(&name).as_str(), &*reason(&world, &name)), ("Succeeded", ""), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn completed_container_releases_its_requests_while_its_pod_runs() {
    let world = World::joined().await;
    world.fake.program("app", Program::exits(0, seconds(5)));
    let job = requesting("job", "3").restart_policy("Never");
    world.create(&job.spec(json!({"containers": [
        container_with("app", json!({"resources": {"requests": {"cpu": "3"}}})),
        container_with("rest", json!({"resources": {"requests": {"cpu": "500m"}}})),
    ]})));
    world.until("both run", |w| w.runs("job/app") && w.runs("job/rest")).await;
    let stays = |name: &str, cpus| {
        pod(name, [container_with("rest", json!({"resources": {"requests": {"cpu": cpus}}}))])
    };
    world.create(&stays("early", "3"));
    world.until("it is rejected", |w| reason(w, "early") == "OutOfcpu").await;
    world.until("the first has ended", |w| !w.runs("job/app")).await;
    world.advance(seconds(2)).await;
    world.create(&stays("next", "3"));
    world
        .until("the next one runs next to the leftovers", |w| w.is_ready_in_api("next") && w.runs("job/rest"))
        .await;
    world.create(&stays("more", "501m"));
    world.until("available memory counts", |w| w.api_phase("more") == "Failed").await;
    refused_as(&world, "more", "OutOfcpu", "requested: 501, used: 3500, capacity: 4000");
}

#[tokio::test(start_paused = true)]
async fn force_deleted_pod_holds_no_allocation() {
    let world = World::joined().await;
    world.fake.program("app", Program::runs().ignoring_term());
    world.create(&requesting("web", "3"));
    world.until("it runs", |w| w.is_ready_in_api("web")).await;
    world.delete("web", Some(0));
    world.advance(seconds(1)).await;
    world.create(&requesting("next", "3"));
    world.until("the next runs", |w| w.is_ready_in_api("next")).await;
}

#[tokio::test(start_paused = true)]
async fn restarted_agent_admits_all_running_pods() {
    let mut world = World::joined().await;
    world.create(&requesting("old", "3"));
    world.until("it runs", |w| w.is_ready_in_api("old")).await;
    world.create(&requesting("refused", "2"));
    world.until("it is rejected", |w| w.api_phase("refused") == "Failed").await;
    let before = world.api_status("refused");
    world.crash().await;
    world.advance(seconds(5)).await;
    world.create(&requesting("a-new", "2"));
    world.start().await;
    world.until("the new one is approved", |w| w.api_phase("a-new") == "Failed").await;
    world.advance(seconds(60)).await;
    assert!(world.is_ready_in_api("old"));
    assert_eq!(world.api_status("refused"), before);
    assert_eq!(world.recorded("OutOfcpu"), 1, "only about the new one");
    assert_eq!(world.times_of("StartContainer old/app").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn critical_pod_waits_until_preempted_pods_have_terminated() {
    let world = World::joined().await;
    world.fake.program("app", Program::runs().stopping(seconds(7), 0));
    world.create(&requesting("small", "500m"));
    world.create(&requesting("large", "3"));
    world.until("both run", |w| w.is_ready_in_api("small") && w.is_ready_in_api("large")).await;
    world.create(&requesting("critical", "2").spec(json!({"priority": 2_000_001_000})));
    let came = world.now();
    world.until("the critical one runs", |w| w.is_ready_in_api("critical")).await;
    let sandbox = world.times_of("RunPodSandbox critical")[0];
    assert!(sandbox >= came + seconds(7), "it began after {:?}", sandbox - came);
    world.until("the other has failed", |w| w.api_phase("large") == "Failed").await;
    let status = world.api_status("large");
    assert_eq!(status.reason.as_deref(), Some("Preempting"));
    let conditions = status.conditions.unwrap();
    let target = conditions.iter().find(|c| c.type_ == "DisruptionTarget").unwrap();
    assert_eq!((target.status.as_str(), target.reason.as_deref()), ("True", Some("TerminationByKubelet")));
    let text = "Pod was preempted by Kubelet to accommodate a critical pod.";
    assert_eq!(target.message.as_deref(), Some(text));
    assert_eq!(world.recorded("Preempting"), 1);
    assert!(world.is_ready_in_api("small"), "there was enough without it");
}

#[tokio::test(start_paused = true)]
async fn standalone_node_admits_at_most_max_pods() {
    let mut world = World::new();
    world.config.max_pods = 2;
    world.start().await;
    for n in 0..3 {
        world.apply(&pod(&format!("web-{n}"), [container("app")]));
        world.advance(seconds(2)).await;
    }
    world.until("two run", |w| w.is_ready("web-0") && w.is_ready("web-1")).await;
    let refused = world.status("web-2").unwrap();
    assert_eq!((refused.phase.as_deref(), refused.reason.as_deref()), (Some("Failed"), Some("OutOfpods")));
}
