//! Samples are taken on request, shared by requests that follow soon after, and dropped with their pods.

use fakes::{Fault, Method};
use ports::node_api::Measurements;
use serde_json::{Value, json};

use crate::pods::{container, container_with, pod};
use crate::world::{World, seconds};

const SUMMARY: Measurements = Measurements::Summary { only_cpu_and_memory: false };

/// Gives every container and sandbox of the node a cgroup that has used that many nanoseconds of CPU.
fn use_cpu(world: &World, nanoseconds: u64) {
    let sandboxes = world.fake.sandboxes().into_iter().map(|sandbox| sandbox.id.to_string());
    let containers = world.fake.containers().into_iter().map(|(_, container)| container.id.to_string());
    for id in sandboxes.chain(containers) {
        let dir = format!("/sys/fs/cgroup/k8s.io/{id}");
        world.host.put(format!("{dir}/cpu.stat"), format!("usage_usec {}\n", nanoseconds / 1000));
        world.host.put(format!("{dir}/memory.current"), "4096\n");
        world.host.put(format!("{dir}/memory.stat"), "inactive_file 96\nanon 7\n");
        world.host.put(format!("{dir}/memory.max"), "8192\n");
        world.host.put(format!("{dir}/cgroup.procs"), "77\n78\n");
    }
    world.host.put("/proc/77/net/dev", "eth0: 10 1 0 0 0 0 0 0 20 2 0 0 0 0 0 0\n");
    world.host.put("/proc/stat", "cpu 100 0 100 0 0 0 0 0 0 0\nbtime 1767225000\n");
    world.host.put("/proc/meminfo", "MemTotal: 1000 kB\nMemFree: 400 kB\nInactive(file): 100 kB\n");
}

async fn summary(world: &World) -> Value {
    serde_json::from_str(&world.measured(SUMMARY).await).unwrap()
}

#[tokio::test(start_paused = true)]
async fn stats_summary_has_cgroup_usage_and_cpu_rates_from_the_first_request() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.advance(seconds(20)).await;
    use_cpu(&world, 1_000_000_000);
    let first = summary(&world).await;
    let pod = &first["pods"][0];
    assert_eq!(pod["podRef"]["name"], "web-node", "{first:#}");
    let app = &pod["containers"][0];
    assert_eq!(
        (&app["name"], &app["cpu"]["usageCoreNanoSeconds"]),
        (&json!("app"), &json!(1_000_000_000_u64))
    );
    let since_start = app["cpu"]["usageNanoCores"].as_u64().unwrap();
    assert!((40_000_000..=50_000_000).contains(&since_start), "{since_start}");
    assert_eq!(
        (&app["memory"]["workingSetBytes"], &app["memory"]["availableBytes"]),
        (&json!(4000), &json!(4192))
    );
    assert_eq!(pod["cpu"]["usageCoreNanoSeconds"], json!(2_000_000_000_u64), "the sandbox counts too");
    assert_eq!((&pod["network"]["name"], &pod["network"]["rxBytes"]), (&json!("eth0"), &json!(10)));
    assert_eq!(pod["process_stats"]["process_count"], 4);
    assert_eq!(first["node"]["memory"]["workingSetBytes"], json!(500 << 10));
    world.advance(seconds(10)).await;
    use_cpu(&world, 6_000_000_000);
    let second = summary(&world).await;
    let rate = second["pods"][0]["containers"][0]["cpu"]["usageNanoCores"].as_u64().unwrap();
    assert!(rate.abs_diff(500_000_000) < 5_000_000, "{rate}");
    let whole = second["pods"][0]["cpu"]["usageNanoCores"].as_u64().unwrap();
    assert!(whole.abs_diff(1_000_000_000) < 10_000_000, "{whole}");
}

#[tokio::test(start_paused = true)]
async fn stats_requests_share_a_recent_sample_and_only_cpu_and_memory_requests_get_a_new_one() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    use_cpu(&world, 1_000_000_000);
    let used = |text: &str| {
        let line = text.lines().find(|line| line.starts_with("container_cpu_usage_seconds_total{"));
        line.unwrap_or_else(|| panic!("{text}")).split(' ').nth(1).unwrap().to_owned()
    };
    assert_eq!(used(&world.measured(Measurements::Resource).await), "1");
    use_cpu(&world, 2_000_000_000);
    world.advance(seconds(2)).await;
    assert_eq!(used(&world.measured(Measurements::Resource).await), "1", "no older than five seconds");
    let hasty = world.measured(Measurements::Summary { only_cpu_and_memory: true }).await;
    let hasty: Value = serde_json::from_str(&hasty).unwrap();
    let app = &hasty["pods"][0]["containers"][0];
    assert_eq!(app["cpu"]["usageCoreNanoSeconds"], json!(2_000_000_000_u64));
    assert_eq!((app.get("rootfs"), hasty["node"].get("fs")), (None, None));
    assert_eq!(used(&world.measured(Measurements::Resource).await), "2", "the newest sample is shared");
    let listed = world.fake.count(Method::ListContainerStats);
    world.measured(SUMMARY).await;
    world.measured(SUMMARY).await;
    assert_eq!(world.fake.count(Method::ListContainerStats), listed + 1, "disks are shared too");
}

#[tokio::test(start_paused = true)]
async fn network_series_have_the_pause_image_and_exist_for_pods_in_the_host_network() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.apply(&pod("agent", [container("app")]).spec(json!({"hostNetwork": true})));
    world.until("the pods are ready", |w| w.is_ready("web") && w.is_ready("agent")).await;
    use_cpu(&world, 1_000_000_000);
    world.host.put("/proc/self/net/dev", "eth1: 11 1 0 0 0 0 0 0 21 2 0 0 0 0 0 0\n");
    let text = world.measured(Measurements::Cadvisor).await;
    let received: Vec<&str> =
        text.lines().filter(|line| line.starts_with("container_network_receive_bytes_total{")).collect();
    for (pod, interface, bytes) in [("web-node", "eth0", 10), ("agent-node", "eth1", 11)] {
        let labels = [
            format!("pod=\"{pod}\""),
            format!("interface=\"{interface}\""),
            "image=\"registry.k8s.io/pause:3.10\"".to_owned(),
            format!("}} {bytes} "),
        ];
        let is_its = |line: &&&str| labels.iter().all(|label| line.contains(label));
        assert!(received.iter().any(|line| is_its(&line)), "{labels:?} in {received:#?}");
    }
    let summary = summary(&world).await;
    let agent = summary["pods"].as_array().unwrap().iter().find(|pod| pod["podRef"]["name"] == "agent-node");
    assert_eq!(agent.unwrap()["network"]["interfaces"][0]["rxBytes"], json!(11), "{summary:#}");
}

/// CRI-O creates the cgroup of a sandbox without a process in it, unless the pod shares its process namespace.
#[tokio::test(start_paused = true)]
async fn pod_whose_sandbox_has_no_process_has_network_statistics() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    use_cpu(&world, 1_000_000_000);
    let sandbox = world.fake.sandboxes().remove(0).id;
    world.host.put(format!("/sys/fs/cgroup/k8s.io/{sandbox}/cgroup.procs"), "");
    let network = summary(&world).await["pods"][0]["network"].clone();
    assert_eq!((&network["name"], &network["rxBytes"]), (&json!("eth0"), &json!(10)));
}

#[tokio::test(start_paused = true)]
async fn image_of_a_crio_sandbox_comes_from_its_annotation_and_is_requested_once() {
    let mut world = World::new();
    world.fake.like_crio();
    world.start().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    use_cpu(&world, 1_000_000_000);
    let text = world.measured(Measurements::Cadvisor).await;
    let is_network = |line: &&str| line.starts_with("container_network_receive_bytes_total{");
    let network = text.lines().find(is_network).unwrap_or_default();
    assert!(network.contains("image=\"registry.k8s.io/pause:3.10\""), "{text}");
    let calls = world.fake.count(Method::PodSandboxStatus);
    for _ in 0..3 {
        world.advance(seconds(20)).await;
        world.measured(Measurements::Cadvisor).await;
    }
    assert_eq!(world.fake.count(Method::PodSandboxStatus), calls);
}

#[tokio::test(start_paused = true)]
async fn stats_omit_removed_pods() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    use_cpu(&world, 1_000_000_000);
    assert!(world.measured(Measurements::Resource).await.contains("pod=\"web-node\""));
    world.remove("web");
    world.until("nothing is left", |w| w.traces().is_empty()).await;
    world.advance(seconds(6)).await;
    let text = world.measured(Measurements::Resource).await;
    assert!(!text.contains("web-node"), "{text}");
    assert!(text.contains("\nresource_scrape_error 0\n"), "{text}");
    assert_eq!(summary(&world).await["pods"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn missing_container_cgroup_is_a_scrape_error_after_the_start_period() {
    let world = World::started().await;
    use_cpu(&world, 1);
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    assert!(world.measured(Measurements::Resource).await.contains("\nresource_scrape_error 0\n"));
    world.advance(seconds(20)).await;
    assert!(world.measured(Measurements::Resource).await.contains("\nresource_scrape_error 1\n"));
}

#[tokio::test(start_paused = true)]
async fn stats_summary_omits_root_filesystem_without_runtime_stats() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    use_cpu(&world, 1_000_000_000);
    world.fake.set_down(true);
    let summary = summary(&world).await;
    let app = &summary["pods"][0]["containers"][0];
    assert_eq!(app["cpu"]["usageCoreNanoSeconds"], json!(1_000_000_000_u64), "{summary:#}");
    assert_eq!((app.get("rootfs"), summary["node"].get("runtime")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn hanging_runtime_delays_no_metrics() {
    let world = World::started().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    use_cpu(&world, 1_000_000_000);
    world.fake.fault_always(Method::ListContainerStats, Some(Fault::Hang));
    let began = world.now();
    let text = world.metrics().await;
    assert!(text.contains("\nkubelet_started_pods_total 1\n"), "{text}");
    assert!(world.now() - began <= seconds(2), "{:?}", world.now() - began);
    let summary = summary(&world).await;
    let app = &summary["pods"][0]["containers"][0];
    assert_eq!(app["cpu"]["usageCoreNanoSeconds"], json!(1_000_000_000_u64), "{summary:#}");
    assert!(world.now() - began < seconds(15), "{:?}", world.now() - began);
}

#[tokio::test(start_paused = true)]
async fn probe_metrics_count_results_over_restarts_and_are_removed_with_the_pod() {
    let world = World::started().await;
    let probe = json!({"livenessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 1}});
    world.apply(&pod("web", [container_with("app", probe)]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    world.advance(seconds(10)).await;
    let text = world.measured(Measurements::Probes).await;
    let line = text.lines().find(|line| line.starts_with("prober_probe_total{")).unwrap();
    assert!(line.contains("container=\"app\",namespace=\"default\",pod=\"web-node\",pod_uid=\""), "{line}");
    assert!(line.contains("probe_type=\"Liveness\",result=\"successful\"} "), "{line}");
    let count: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
    assert!((8..=12).contains(&count), "{line}");
    assert!(text.contains("prober_probe_duration_seconds_count{container=\"app\",namespace=\"default\""));
    world.remove("web");
    world.until("nothing is left", |w| w.traces().is_empty()).await;
    let text = world.measured(Measurements::Probes).await;
    assert!(!text.contains("web-node"), "{text}");
}

/// A world whose runtime measures pods, with a ready pod.
async fn measured_by_runtime() -> World {
    let mut world = World::new();
    world.features.stats_from_runtime = true;
    world.start().await;
    world.apply(&pod("web", [container("app")]));
    world.until("the pod is ready", |w| w.is_ready("web")).await;
    use_cpu(&world, 1_000_000_000);
    world.advance(seconds(100)).await;
    world
}

#[tokio::test(start_paused = true)]
async fn runtime_measures_pods_with_the_gate() {
    let world = measured_by_runtime().await;
    let pod = summary(&world).await["pods"][0].clone();
    assert_eq!(pod["podRef"]["name"], "web-node", "{pod:#}");
    assert_eq!(pod["memory"]["workingSetBytes"], json!(8 << 20), "the sandbox counts too");
    assert_eq!((&pod["network"]["name"], &pod["network"]["rxBytes"]), (&json!("eth0"), &json!(2000)));
    assert_eq!(pod["process_stats"]["process_count"], 2);
    let app = &pod["containers"][0];
    assert_eq!((&app["name"], &app["memory"]["rssBytes"]), (&json!("app"), &json!(4 << 20)));
    assert_eq!(app["cpu"]["usageNanoCores"], json!(10_000_000));
    assert!(app["rootfs"]["usedBytes"].is_number(), "{pod:#}");
    let text = world.measured(Measurements::Resource).await;
    assert!(
        text.contains("\npod_memory_working_set_bytes{namespace=\"default\",pod=\"web-node\"} 8388608 "),
        "{text}"
    );
    let text = world.measured(Measurements::Cadvisor).await;
    assert!(text.contains("\ncontainer_last_seen{id="), "{text}");
    assert!(text.contains("\nmachine_cpu_cores{"), "{text}");
    assert!(!text.contains("container_memory_rss"), "{text}");
    let text = world.metrics().await;
    assert!(text.contains("\nkubelet_metrics_provider{provider=\"cri\"} 1\n"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn cgroups_are_measured_while_the_runtime_has_no_statistics_of_pods() {
    let world = measured_by_runtime().await;
    for fault in [Fault::Unimplemented, Fault::Hang] {
        for method in [Method::ListPodSandboxStats, Method::ListMetricDescriptors] {
            world.fake.fault_always(method, Some(fault.clone()));
        }
        world.advance(seconds(20)).await;
        let app = summary(&world).await["pods"][0]["containers"][0].clone();
        assert_eq!(app["cpu"]["usageCoreNanoSeconds"], json!(1_000_000_000_u64), "{fault:?}");
        let text = world.measured(Measurements::Cadvisor).await;
        assert!(text.contains("\ncontainer_memory_rss{"), "{fault:?}: {text}");
    }
}
