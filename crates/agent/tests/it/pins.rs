//! Scenarios of the CPU, memory and topology managers: pods with CPUs and memory of NUMA nodes for themselves.

use fakes::{Fault, HostFault, HostMethod, Method, Program};
use fixtures::two_numa_nodes;
use serde_json::{Value, json};

use crate::pods::{Manifest, container_with, pod};
use crate::world::{World, seconds};

const CPU_STATE: &str = "/var/lib/kubelet/cpu_manager_state";
const MEMORY_STATE: &str = "/var/lib/kubelet/memory_manager_state";

/// A node with all three managers, which keeps CPUs 0 and 4 for the system.
fn node() -> World {
    let mut world = World::new();
    world.host.set_topology(two_numa_nodes(4 << 30));
    let config = &mut world.config;
    config.cpu_manager_policy = "static".to_owned();
    config.cpu_manager_policy_options.insert("full-pcpus-only".to_owned(), "true".to_owned());
    config.memory_manager_policy = "Static".to_owned();
    config.topology_manager_policy = "single-numa-node".to_owned();
    config.reserved_system_cpus = "0,4".to_owned();
    config.system_reserved.insert("memory".to_owned(), "256Mi".to_owned());
    config.reserved_memory =
        serde_json::from_value(json!([{"numaNode": 0, "limits": {"memory": "256Mi"}}])).unwrap();
    world
}

async fn started() -> World {
    let mut world = node();
    world.start().await;
    world
}

/// A pod of one container; Guaranteed.
fn sized(name: &str, cpu: &str) -> Manifest {
    let amounts = json!({"cpu": cpu, "memory": "64Mi"});
    pod(name, [container_with("app", json!({"resources": {"limits": amounts, "requests": amounts}}))])
}

/// The cpuset and the quota that the container has.
fn cpus_of(world: &World, name: &str) -> (String, Option<i64>) {
    let set = world.fake.resources(&format!("{name}-node"), "app").unwrap_or_default();
    (set.cpuset_cpus, set.cpu_quota)
}

fn state(world: &World, path: &str) -> Value {
    serde_json::from_str(&world.host.text(path).unwrap()).unwrap()
}

fn is_on(world: &World, name: &str, cpus: &str) -> bool {
    cpus_of(world, name).0 == cpus
}

#[tokio::test(start_paused = true)]
async fn container_gets_cpus_of_its_own_and_running_ones_leave_them() {
    let world = started().await;
    world.apply(&sized("shared", "500m"));
    world.until("it is ready", |w| w.is_ready("shared")).await;
    assert_eq!(cpus_of(&world, "shared"), ("0-7".to_owned(), Some(50_000)));
    world.apply(&sized("own", "4"));
    world.until("it is ready", |w| w.is_ready("own")).await;
    assert_eq!(cpus_of(&world, "own"), ("2-3,6-7".to_owned(), Some(-1)));
    let mems = |name: &str| world.fake.resources(&format!("{name}-node"), "app").unwrap().cpuset_mems;
    assert_eq!((mems("own"), mems("shared")), ("1".to_owned(), "0".to_owned()));
    world.until("the other one leaves its CPUs", |w| is_on(w, "shared", "0-1,4-5")).await;
    assert_eq!(cpus_of(&world, "shared").1, Some(50_000), "its quota stays");
    world.remove("own");
    world.until("the CPUs are shared again", |w| is_on(w, "shared", "0-7")).await;
    world.until("the file has none", |w| state(w, CPU_STATE).get("entries").is_none()).await;
    let has_one =
        |w: &World| state(w, MEMORY_STATE)["entries"].as_object().is_some_and(|pods| pods.len() == 1);
    world.until("that of memory has only the other one", has_one).await;
}

/// Which CPUs the container has then is not known: they may be those that it had before, or the others.
#[tokio::test(start_paused = true)]
async fn cpus_are_set_again_after_a_call_that_took_effect_and_failed() {
    let world = started().await;
    world.apply(&sized("shared", "500m"));
    world.apply(&sized("own", "4"));
    world.until("one has CPUs of its own", |w| is_on(w, "own", "2-3,6-7")).await;
    world.until("the other one leaves them", |w| is_on(w, "shared", "0-1,4-5")).await;
    world.fake.fault(Method::UpdateContainerResources, Fault::TimedOutAfterDoing);
    world.remove("own");
    world.until("the call took effect", |w| is_on(w, "shared", "0-7")).await;
    world.apply(&sized("own", "4"));
    world.until("one has CPUs of its own", |w| is_on(w, "own", "2-3,6-7")).await;
    world.until("the other one leaves them again", |w| is_on(w, "shared", "0-1,4-5")).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_set_while_nothing_changes() {
    let world = started().await;
    world.apply(&sized("shared", "500m"));
    world.apply(&sized("own", "2"));
    world.until("both are ready", |w| w.is_ready("shared") && w.is_ready("own")).await;
    world.advance(seconds(30)).await;
    world.fake.forget_calls();
    world.advance(seconds(600)).await;
    assert_eq!(world.fake.count(Method::UpdateContainerResources), 0);
}

#[tokio::test(start_paused = true)]
async fn restarted_agent_keeps_the_cpus_of_each_container() {
    let mut world = started().await;
    for name in ["a", "b"] {
        world.apply(&sized(name, "2"));
        world.until("it is ready", |w| w.is_ready(name)).await;
    }
    let before = ["a", "b"].map(|name| cpus_of(&world, name).0);
    let files = [CPU_STATE, MEMORY_STATE].map(|path| world.host.text(path));
    world.restart().await;
    world.until("they are ready", |w| w.is_ready("a") && w.is_ready("b")).await;
    world.apply(&sized("c", "2"));
    world.until("the third one is ready", |w| w.is_ready("c")).await;
    assert_eq!(["a", "b"].map(|name| cpus_of(&world, name).0), before);
    let third = cpus_of(&world, "c").0;
    assert!(!before.contains(&third), "{third} of {before:?}");
    world.remove("c");
    world
        .until("the files are as before", |w| {
            [CPU_STATE, MEMORY_STATE].map(|path| w.host.text(path)) == files
        })
        .await;
}

/// No plugin registers before running pods are admitted again.
#[tokio::test(start_paused = true)]
async fn running_pod_with_a_device_gets_cpus_before_its_plugin_registers_again() {
    const GPU: &str = "example.com/gpu";
    let mut world = started().await;
    world.plugins.register(GPU, &["a"]).await.unwrap();
    let amounts = json!({"cpu": "2", "memory": "64Mi", GPU: "1"});
    let resources = json!({"resources": {"limits": amounts, "requests": amounts}});
    world.apply(&pod("own", [container_with("app", resources)]));
    world.until("it is ready", |w| w.is_ready("own")).await;
    let before = state(&world, CPU_STATE)["entries"].clone();
    assert!(before.is_object(), "{before}");
    world.crash().await;
    world.host.delete(CPU_STATE);
    world.start().await;
    world.until("it has CPUs", |w| state(w, CPU_STATE)["entries"] == before).await;
    assert!(world.runs("own-node/app"));
}

#[tokio::test(start_paused = true)]
async fn cpus_of_a_pod_that_ended_while_the_agent_was_down_are_free() {
    let mut world = started().await;
    world.apply(&sized("gone", "4"));
    world.until("it is ready", |w| w.is_ready("gone")).await;
    world.crash().await;
    world.remove("gone");
    world.start().await;
    world.until("nothing is left", |w| w.traces().is_empty()).await;
    world.apply(&sized("new", "4"));
    world.until("it is ready", |w| w.is_ready("new")).await;
    assert_eq!(cpus_of(&world, "new").0, "2-3,6-7");
}

#[tokio::test(start_paused = true)]
async fn pod_that_fits_no_numa_node_is_rejected() {
    let world = started().await;
    world.apply(&sized("large", "6"));
    world.until("it has failed", |w| w.phase("large").as_deref() == Some("Failed")).await;
    let status = world.status("large").unwrap();
    assert_eq!(status.reason.as_deref(), Some("TopologyAffinityError"));
    assert_eq!(
        status.message.as_deref(),
        Some("Pod was rejected: Resources cannot be allocated with Topology locality")
    );
    world.apply(&sized("odd", "3"));
    world.until("it has failed", |w| w.phase("odd").as_deref() == Some("Failed")).await;
    assert_eq!(world.status("odd").unwrap().reason.as_deref(), Some("SMTAlignmentError"));
    assert_eq!(world.fake.count(Method::RunPodSandbox), 0);
}

#[tokio::test(start_paused = true)]
async fn ended_pod_gives_its_cpus_back_before_it_is_deleted() {
    let world = started().await;
    world.fake.program("app", Program::exits(0, seconds(5)));
    world.apply(&sized("first", "4").restart_policy("Never"));
    world.until("it has succeeded", |w| w.phase("first").as_deref() == Some("Succeeded")).await;
    world.apply(&sized("second", "4").restart_policy("Never"));
    world.until("it runs", |w| w.runs("second-node/app")).await;
    assert_eq!(cpus_of(&world, "second").0, "2-3,6-7");
}

#[tokio::test(start_paused = true)]
async fn no_container_starts_before_its_cpus_are_on_disk() {
    let world = started().await;
    world.host.fault_below(HostMethod::WriteFile, CPU_STATE, HostFault::Fails);
    world.apply(&sized("own", "2"));
    world.until("it has failed", |w| w.phase("own").as_deref() == Some("Failed")).await;
    assert_eq!(world.status("own").unwrap().reason.as_deref(), Some("UnexpectedAdmissionError"));
    assert_eq!(world.fake.count(Method::CreateContainer), 0);
}

#[tokio::test(start_paused = true)]
async fn state_of_another_kubelet_that_does_not_fit_ends_the_start() {
    let world = node();
    let refused = async |path: &str, text: &str| {
        world.host.put(path, text);
        let error = world.try_start().await.unwrap_err().to_string();
        world.host.delete(path);
        error
    };
    let none = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;
    assert_eq!(
        refused(CPU_STATE, none).await,
        "could not restore state from checkpoint: configured policy \"static\" differs from state checkpoint policy \"none\", \
         please drain this node and delete the CPU manager checkpoint file \"/var/lib/kubelet/cpu_manager_state\" before \
         restarting Kubelet"
    );
    let damaged = r#"{"policyName":"static","defaultCpuSet":"0-7","checksum":1}"#;
    assert!(refused(CPU_STATE, damaged).await.contains("checkpoint is corrupted"));
    assert!(refused(MEMORY_STATE, "{").await.contains("delete the memory manager checkpoint file"));
}

#[tokio::test(start_paused = true)]
async fn damaged_state_without_any_policy_is_set_aside() {
    let mut world = World::new();
    world.host.put(CPU_STATE, "").put(MEMORY_STATE, "{");
    world.start().await;
    assert_eq!(state(&world, CPU_STATE)["policyName"], "none");
    assert_eq!(state(&world, MEMORY_STATE)["policyName"], "None");
    world.crash().await;
    world.host.put(CPU_STATE, r#"{"policyName":"static","defaultCpuSet":"0-7","checksum":0}"#);
    let error = world.try_start().await.unwrap_err().to_string();
    assert!(error.contains("configured policy \"none\" differs"), "{error}");
}

/// The texts that the Go kubelet writes without any policy.
#[tokio::test(start_paused = true)]
async fn node_without_managers_has_the_state_files_and_sets_no_cpus() {
    let world = World::started().await;
    world.apply(&sized("web", "2"));
    world.until("it is ready", |w| w.is_ready("web")).await;
    let text = |path| world.host.text(path).unwrap();
    assert_eq!(text(CPU_STATE), r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#);
    assert_eq!(text(MEMORY_STATE), r#"{"policyName":"None","machineState":{},"checksum":4236770233}"#);
    assert_eq!(cpus_of(&world, "web"), (String::new(), Some(200_000)));
}

#[tokio::test(start_paused = true)]
async fn monitoring_sees_who_has_which_cpus_and_memory() {
    let world = started().await;
    world.apply(&sized("own", "4"));
    world.apply(&sized("large", "6"));
    world.until("one is ready", |w| w.is_ready("own")).await;
    world.until("the other one has failed", |w| w.phase("large").as_deref() == Some("Failed")).await;
    let api = world.agent.as_ref().unwrap().api();
    let pods = api.pods();
    let own = pods.iter().find(|pod| pod.metadata.name.as_deref() == Some("own-node")).unwrap();
    assert_eq!(api.cpus_of(own, "app"), [2, 3, 6, 7]);
    assert_eq!(api.allocatable_cpus(), [1, 2, 3, 5, 6, 7]);
    let memory = api.memory_of(own, "app");
    assert_eq!(
        (memory[0].resource.as_str(), memory[0].bytes, &*memory[0].numa_nodes),
        ("memory", 64 << 20, &[1][..])
    );
    let sizes: Vec<u64> = api.allocatable_memory().iter().map(|memory| memory.bytes >> 20).collect();
    assert_eq!(sizes, [4096 - 256, 4096]);
    let metrics = world.metrics().await;
    for line in [
        "kubelet_cpu_manager_exclusive_cpu_allocation_count 4",
        "kubelet_cpu_manager_shared_pool_size_millicores 2000",
        "kubelet_cpu_manager_allocation_per_numa{numa_node=\"1\"} 4",
        "kubelet_cpu_manager_pinning_requests_total 1",
        "kubelet_cpu_manager_pinning_errors_total 0",
        "kubelet_memory_manager_pinning_requests_total 1",
        "kubelet_topology_manager_admission_requests_total 2",
        "kubelet_topology_manager_admission_errors_total 1",
        "kubelet_topology_manager_admission_duration_ms_count 2",
        "kubelet_container_aligned_compute_resources_count{scope=\"container\",boundary=\"numa_node\"} 1",
        "kubelet_container_aligned_compute_resources_count{scope=\"container\",boundary=\"physical_cpu\"} 1",
        "kubelet_container_aligned_compute_resources_failure_count{scope=\"container\",boundary=\"numa_node\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is missing in\n{metrics}");
    }
    assert!(!metrics.contains("resource_manager_"), "their feature gate is off");
}

#[tokio::test(start_paused = true)]
async fn resource_manager_metrics_exist_with_their_feature_gate() {
    let mut world = node();
    world.features.pod_level_resource_managers = true;
    world.start().await;
    world.apply(&sized("own", "4"));
    world.until("it is ready", |w| w.is_ready("own")).await;
    world.apply(&sized("odd", "1"));
    world.until("it has failed", |w| w.phase("odd").as_deref() == Some("Failed")).await;
    let metrics = world.metrics().await;
    for line in [
        "resource_manager_allocations_total{resource_name=\"cpu\",source=\"node\"} 1",
        "resource_manager_allocations_total{resource_name=\"memory\",source=\"node\"} 1",
        "resource_manager_container_assignments{resource_name=\"cpu\",assignment_type=\"node_exclusive\"} 1",
        "resource_manager_allocation_errors_total{resource_name=\"cpu\",source=\"node\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is missing in\n{metrics}");
    }
}

/// The second container has a core next to the device that the plugin leaves for it.
#[tokio::test(start_paused = true)]
async fn container_is_aligned_with_the_devices_that_a_plugin_leaves_after_its_preference() {
    const GPU: &str = "example.com/gpu";
    let mut world = node();
    world.config.topology_manager_policy = "best-effort".to_owned();
    world.config.memory_manager_policy = "None".to_owned();
    world.config.reserved_memory = Vec::new();
    world.start().await;
    world.plugins.prefer(GPU, &["1", "2", "3"]);
    world.plugins.register(GPU, &["0@0", "1@0", "2@1", "3@1"]).await.unwrap();
    world.advance(seconds(1)).await;
    let container = |name: &str, cpu: &str, gpus: &str| {
        let amounts = json!({"cpu": cpu, "memory": "64Mi", GPU: gpus});
        container_with(name, json!({"resources": {"limits": amounts, "requests": amounts}}))
    };
    world.apply(&pod("gpus", [container("three", "500m", "3"), container("app", "2", "1")]));
    world.until("it is ready", |w| w.is_ready("gpus")).await;
    assert_eq!(world.plugins.allocations(GPU), [vec!["1", "2", "3"], vec!["0"]]);
    assert_eq!(cpus_of(&world, "gpus").0, "1,5", "a core of node 0, like the device");
    let entries = &state(&world, CPU_STATE)["entries"];
    assert!(entries.to_string().contains("\"1,5\""), "{entries}");
}
