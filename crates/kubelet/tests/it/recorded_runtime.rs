//! What the kubelet makes of the recorded answers of CRI-O (`crates/testing/harness/recorded`): the adapter and the decisions behind
//! it, without a runtime. The contract suite of the `testing` crate plays the same recordings to the adapter alone.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use base_core::backoff::BackoffTable;
use base_core::pod_stage::PodStage;
use cri::CriRuntime;
use harness::RecordedCri;
use harness::recorded_cri::{CRIO, recording};
use images_core::pull::{ImageProblem, classify_pull_error};
use kubelet_core::pods::memory::PodMemory;
use kubelet_core::pods::status::{StatusInputs, compute_pod_status};
use model::request::{DnsRequest, ImageRequest, SandboxRequest, SandboxSecurity};
use model::{ContainerId, ContainerState, MonoTime, PodObservation, PodRef, PodUid, SandboxId};
use ports::Runtime;
use ports::runtime::Scope;
use serde_json::{Value, json};
use stats_core::cgroup_path::sandbox_image;

/// The adapter over the recording of that case.
fn recorded(dir: &Path, case: &str) -> (RecordedCri, CriRuntime) {
    let text = recording(CRIO, case).expect("a recording");
    let server = RecordedCri::serve(dir, &text).expect("a server");
    let cri = CriRuntime::new(&server.endpoint(), "", Duration::from_secs(30)).expect("an endpoint");
    (server, cri)
}

/// The pod as the PLEG observes it, once its containers have ended.
async fn observe(cri: &CriRuntime) -> PodObservation {
    let pod = PodRef::new("contract", "web", "uid-of-web");
    let scope = Scope::Pod(PodUid::new("uid-of-web"));
    let mut observed = PodObservation::empty(pod, MonoTime::ZERO);
    for sandbox in cri.list_sandboxes(&scope).await.expect("sandboxes") {
        observed.sandboxes.push(cri.sandbox_status(&sandbox.id).await.expect("a status"));
    }
    for container in cri.list_containers(&scope).await.expect("containers") {
        // The recording begins with the answers of when the container still ran.
        let mut status = cri.container_status(&container.id).await.expect("a status");
        while status.state != ContainerState::Exited {
            status = cri.container_status(&container.id).await.expect("a status");
        }
        observed.containers.push(status);
    }
    observed
}

fn status_of(observed: &PodObservation) -> Value {
    let pod = fixtures::pod("web").namespace("contract").uid("uid-of-web").restart_policy("Never");
    let pod = pod.container("good").image("localhost/busybox:test").container("bad");
    let pod = pod.image("localhost/busybox:test").build();
    let host_ips: [IpAddr; 1] = ["192.0.2.1".parse().expect("an address")];
    let status = compute_pod_status(&StatusInputs {
        pod: &pod,
        in_source: None,
        observed: Some(observed),
        previous: None,
        memory: &PodMemory::new(BackoffTable::image_pull()),
        stage: PodStage::Syncing,
        is_rejected: false,
        terminal: None,
        cgroup: None,
        device_health: &BTreeMap::new(),
        host_ips: &host_ips,
        runtime_name: "cri-o",
        features: config::Features::default(),
        now: observed.containers[0].finished_at.expect("an end"),
    });
    serde_json::to_value(status).expect("JSON")
}

/// Not part of the recording.
fn sandbox_request() -> SandboxRequest {
    SandboxRequest {
        pod: PodRef::new("contract", "web", "uid-of-web"),
        attempt: 0,
        hostname: String::new(),
        log_directory: String::new(),
        dns: DnsRequest::default(),
        port_mappings: Vec::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        cgroup_parent: String::new(),
        sysctls: BTreeMap::new(),
        security: SandboxSecurity::default(),
        overhead: None,
        resources: None,
        runtime_handler: String::new(),
    }
}

#[tokio::test]
async fn pod_that_ended_on_crio_has_the_status_of_the_api() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_server, cri) = recorded(dir.path(), "an_ended_pod_is_listed_with_its_containers");
    let observed = observe(&cri).await;
    let status = status_of(&observed);
    let ip = observed.sandboxes[0].ips[0].to_string();
    assert_eq!((&status["phase"], &status["podIP"]), (&json!("Failed"), &json!(ip)), "{status:#}");
    let containers = status["containerStatuses"].as_array().expect("containers");
    for (name, code, reason) in [("good", 0, "Completed"), ("bad", 7, "Error")] {
        let container = containers.iter().find(|c| c["name"] == name).expect("a container");
        let observed = observed.containers.iter().find(|c| &*c.name == name).expect("a container");
        assert_eq!(container["containerID"], format!("cri-o://{}", observed.id), "{container:#}");
        assert_eq!(container["image"], "localhost/busybox:test", "{container:#}");
        let id = container["imageID"].as_str().expect("an id");
        assert!(id.starts_with("localhost/busybox@sha256:"), "{container:#}");
        let ended = &container["state"]["terminated"];
        assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(code), &json!(reason)), "{container:#}");
        assert!(ended["startedAt"].is_string() && ended["finishedAt"].is_string(), "{container:#}");
    }
}

#[tokio::test]
async fn crio_error_of_an_unreachable_registry_is_registry_unavailable() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_server, cri) = recorded(dir.path(), "image_of_an_unreachable_registry_is_not_pulled");
    let name = "127.0.0.1:1/no/such-image:1".to_owned();
    let image = ImageRequest { image: name.clone(), ..ImageRequest::default() };
    let sandbox = sandbox_request();
    let error = cri.pull_image(&image, None, &sandbox).await.expect_err("no registry");
    let (problem, message) = classify_pull_error(&name, &error.message());
    assert_eq!(problem, ImageProblem::RegistryUnavailable);
    assert!(
        message.starts_with(&format!("image pull failed for {name} because the registry is unavailable: "))
    );
}

#[tokio::test]
async fn crio_sandbox_without_a_process_names_its_image() {
    let dir = tempfile::tempdir().expect("a directory");
    let case = "container_is_created_then_runs";
    let (_server, cri) = recorded(dir.path(), case);
    let text = recording(CRIO, case).expect("a recording");
    let id = text.split("pod_sandbox_id:\"").nth(1).and_then(|rest| rest.split('"').next());
    let info = cri.sandbox_info(&SandboxId::new(id.expect("an id"))).await.expect("an answer");
    assert_eq!(sandbox_image(&info).as_deref(), Some("localhost/pause:test"), "{info}");
}

#[tokio::test]
async fn crio_stats_have_the_writable_layer_of_a_container() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_server, cri) = recorded(dir.path(), "stats_of_a_running_container");
    let listed = cri.list_container_stats(&Scope::Node).await.expect("stats");
    let layer = listed[0].writable_layer.as_ref().expect("a layer");
    assert!(layer.used_bytes.is_some() && layer.inodes_used.is_some() && layer.time.is_some(), "{layer:?}");
    assert!(Path::new(&layer.mountpoint).starts_with(dir.path()), "{layer:?}");
    let missing = cri.container_stats(&ContainerId::new("no-such-container")).await;
    assert!(missing.expect_err("no container").is_not_found());
}

#[tokio::test]
async fn crio_reports_the_filesystem_of_images_and_containers() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_server, cri) = recorded(dir.path(), "image_filesystem_info_is_reported");
    let filesystems = cri.image_filesystems().await.expect("filesystems");
    assert_eq!(filesystems.images.len(), 1);
    // One filesystem for both, so that the node has no containerfs of its own.
    assert_eq!(filesystems.images, filesystems.containers);
}
