//! Pods in, requests out: each table shows the part of a request that it is about.

use std::collections::BTreeMap;

use expect_test::expect_file;
use model::containers::find_container;
use model::k8s::Pod;
use model::request::{ContainerRequest, DnsRequest, ImageObservation, SandboxRequest};
use serde_json::{Value, json};

use super::*;
use crate::static_pod::{Origin, parse_manifest};

const GI: u64 = 1 << 30;

fn node() -> NodeFacts {
    NodeFacts {
        memory_capacity_bytes: 8 * GI,
        cpu_cores: 1,
        cluster_domain: "cluster.local".to_owned(),
        pod_logs_dir: "/var/log/pods".to_owned(),
        seccomp_dir: "/var/lib/kubelet/seccomp".to_owned(),
        seccomp_default: false,
        cpu_quota_period: Some(100_000),
        cgroup_v2: true,
        single_process_oom_kill: false,
        swap: Swap::NoSwap,
        hugepage_sizes: vec!["1GB".to_owned(), "2MB".to_owned()],
    }
}

/// A pod named `web` with UID `u-1` and this spec.
fn pod(spec: &Value) -> Pod {
    let manifest = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "uid": "u-1", "labels": {"app": "web"}},
        "spec": spec,
    });
    let origin = Origin::File("/m.yaml".to_owned());
    parse_manifest(manifest.to_string().as_bytes(), &origin, "n").expect("a good manifest").pods.remove(0)
}

/// A pod with one container `app` that has these fields, and a spec with those.
fn pod_with(container: &Value, spec: &Value) -> Pod {
    let (mut container, mut spec) = (container.clone(), spec.clone());
    container["name"] = json!("app");
    container["image"] = json!("nginx:1");
    spec["containers"] = json!([container]);
    pod(&spec)
}

fn sandbox_of(pod: &Pod, facts: &PodFacts) -> Result<SandboxRequest, ConfigError> {
    let dns = DnsRequest { servers: vec!["10.0.0.10".to_owned()], ..DnsRequest::default() };
    let inputs =
        SandboxInputs { pod, node: &node(), facts, attempt: 2, dns: &dns, cgroup_parent: "/kubepods/podu-1" };
    compute_sandbox_request(&inputs)
}

/// What surrounds one container.
#[derive(Default)]
struct Around {
    node: Option<NodeFacts>,
    facts: PodFacts,
    image: ImageObservation,
    volumes: BTreeMap<String, VolumeMountPoint>,
    sub_paths: BTreeMap<usize, String>,
    termination_log: Option<&'static str>,
}

fn container_of(pod: &Pod, name: &str, around: &Around) -> Result<ContainerRequest, ConfigError> {
    compute_container_request(&ContainerInputs {
        pod,
        container: find_container(pod, name).expect(name),
        node: around.node.as_ref().unwrap_or(&node()),
        facts: &around.facts,
        restart_count: 3,
        hash: 0x00c0_ffee,
        image_ref: "sha256:1",
        image: &around.image,
        env: &[("WHO".to_owned(), "me".to_owned())],
        volumes: &around.volumes,
        sub_paths: &around.sub_paths,
        termination_log: around.termination_log,
        target: Some(&model::ContainerId::new("c-target")),
    })
}

fn app(pod: &Pod, around: &Around) -> ContainerRequest {
    container_of(pod, "app", around).expect("a request")
}

#[test]
fn a_sandbox_request_as_a_whole() {
    let pod = pod(&json!({
        "containers": [{"name": "app", "image": "i", "ports": [{"containerPort": 80, "hostPort": 8080, "hostIP": "127.0.0.1"}],
                        "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}}}],
        "securityContext": {"sysctls": [{"name": "net/ipv4/tcp_syncookies", "value": "1"}]},
    }));
    expect_file!["golden/sandbox.txt"]
        .assert_eq(&format!("{:#?}\n", sandbox_of(&pod, &PodFacts::default()).unwrap()));
}

#[test]
fn a_container_request_as_a_whole() {
    let pod = pod_with(
        &json!({
            "command": ["sh", "-c", "echo $(WHO) $$(WHO) $(WHOM)"],
            "ports": [{"containerPort": 80, "name": "http"}],
            "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
            "volumeMounts": [{"name": "v", "mountPath": "/data", "readOnly": true}],
        }),
        &json!({"volumes": [{"name": "v", "emptyDir": {}}]}),
    );
    let point = VolumeMountPoint { host_path: "/pods/v".to_owned(), ..VolumeMountPoint::default() };
    let around = Around {
        volumes: BTreeMap::from([("v".to_owned(), point)]),
        termination_log: Some("/pods/log"),
        facts: PodFacts { hosts_file: Some("/pods/etc-hosts".to_owned()), ..PodFacts::default() },
        ..Around::default()
    };
    expect_file!["golden/container.txt"].assert_eq(&format!("{:#?}\n", app(&pod, &around)));
}
