//! Pods in, requests out: each table shows the part of a request that it is about.

use base_core::node_facts::{MemoryQos, MemoryRules, NodeFacts, Swap};
use config::{Features, KubeletConfiguration};
use std::collections::BTreeMap;
use std::sync::Arc;

use expect_test::expect_file;
use model::containers::find_container;
use model::k8s::Pod;
use model::observation::NamespaceMode;
use model::request::{
    ContainerRequest, DnsRequest, IdMapping, ImageObservation, LinuxResources, MountedImage, Protocol,
    SandboxRequest, SecurityProfile, SupplementalGroupsPolicy,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use sources_core::static_pod::{Origin, parse_manifest};

use super::*;

mod recorded;
mod upstream;

const GI: u64 = 1 << 30;

fn single_process_oom_kill() -> NodeFacts {
    node_with(|config| config.single_process_oom_kill = Some(true))
}

pub(crate) fn node() -> NodeFacts {
    node_with(|_| {})
}

/// A node whose configuration `change` has changed.
fn node_with(change: impl FnOnce(&mut KubeletConfiguration)) -> NodeFacts {
    let mut config = KubeletConfiguration {
        cluster_domain: "cluster.local".to_owned(),
        ..KubeletConfiguration::default()
    };
    change(&mut config);
    NodeFacts {
        config: Arc::new(config),
        memory_capacity_bytes: 8 * GI,
        thermal_throttle_paths: vec!["/sys/devices/system/cpu/cpu0/thermal_throttle".to_owned()],
        selinux_enabled: true,
        selinux_file_label: None,
        seccomp_dir: "/var/lib/kubelet/seccomp".to_owned(),
        cgroup_v2: true,
        swap: Swap::NoSwap,
        memory: MemoryRules::default(),
        hugepage_sizes: vec!["1GB".to_owned(), "2MB".to_owned()],
        features: Features::default(),
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
    parse_manifest(manifest.to_string().as_bytes(), &origin, "n", Features::default())
        .expect("a good manifest")
        .pods
        .remove(0)
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

#[test]
fn sandbox_annotations_of_a_static_pod_are_those_of_the_go_kubelet() {
    let mut pod = pod(&json!({"containers": [{"name": "app", "image": "nginx:1"}]}));
    sources_core::static_pod::mark_first_seen(&mut pod, jiff::Timestamp::UNIX_EPOCH);
    let sandbox = sandbox_of(&pod, &PodFacts::default()).expect("a request");
    let recorded = ["kubernetes.io/config.hash", "kubernetes.io/config.seen", "kubernetes.io/config.source"];
    assert_eq!(sandbox.annotations.keys().collect::<Vec<_>>(), recorded);
}

/// The inputs of one container.
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
        env: &[("WHO".to_owned(), "me".into())],
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

/// The cgroup settings in one line; absent ones are omitted.
fn show(resources: &LinuxResources) -> String {
    let numbers = [
        ("shares", resources.cpu_shares),
        ("quota", resources.cpu_quota),
        ("period", resources.cpu_period),
        ("memory", resources.memory_limit_bytes),
        ("memsw", resources.memory_swap_limit_bytes),
        ("oom", resources.oom_score_adj),
    ];
    let set = numbers.iter().filter_map(|(name, number)| Some(format!("{name}={}", (*number)?)));
    set.collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check_resources(resources: &Value, expected: &str) {
    let pod = pod_with(&json!({ "resources": resources }), &json!({}));
    assert_eq!(show(&app(&pod, &Around::default()).resources), expected, "{resources}");
}

#[test]
fn requests_and_limits_become_numbers_of_a_cgroup() {
    check_resources(&json!({}), "shares=2 period=100000 oom=1000");
    check_resources(&json!({"requests": {"cpu": "250m"}}), "shares=256 period=100000 oom=999");
    check_resources(&json!({"limits": {"cpu": "250m"}}), "shares=256 quota=25000 period=100000 oom=999");
    check_resources(
        &json!({"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}),
        "shares=1024 quota=200000 period=100000 oom=999",
    );
    check_resources(&json!({"limits": {"cpu": "1m"}}), "shares=2 quota=1000 period=100000 oom=999");
    check_resources(&json!({"requests": {"cpu": "5000"}}), "shares=262144 period=100000 oom=999");
    check_resources(
        &json!({"limits": {"memory": "1Gi"}}),
        "shares=2 period=100000 memory=1073741824 oom=875",
    );
    check_resources(
        &json!({"limits": {"cpu": "1", "memory": "1Gi"}}),
        "shares=1024 quota=100000 period=100000 memory=1073741824 oom=-997",
    );
}

#[test]
fn oom_score_decreases_with_the_memory_request() {
    let oom = |memory: &str| {
        let pod = pod_with(&json!({"resources": {"requests": {"memory": memory}}}), &json!({}));
        app(&pod, &Around::default()).resources.oom_score_adj
    };
    assert_eq!(oom("1"), Some(999), "never as soon as a pod without requests");
    assert_eq!(oom("4Gi"), Some(500));
    assert_eq!(oom("8Gi"), Some(3), "never as late as a guaranteed one");
    assert_eq!(oom("80Gi"), Some(3));
}

#[test]
fn oom_score_of_a_sidecar_is_not_above_that_of_regular_containers() {
    let pod = pod(&json!({
        "initContainers": [
            {"name": "first", "image": "i"},
            {"name": "side", "image": "i", "restartPolicy": "Always"},
        ],
        "containers": [
            {"name": "big", "image": "i", "resources": {"requests": {"memory": "4Gi"}}},
            {"name": "small", "image": "i", "resources": {"requests": {"memory": "2Gi"}}},
        ],
    }));
    let oom = |name| container_of(&pod, name, &Around::default()).unwrap().resources.oom_score_adj;
    assert_eq!((oom("first"), oom("side")), (Some(999), Some(750)));
    assert_eq!((oom("big"), oom("small")), (Some(500), Some(750)));
}

#[test]
fn node_critical_pods_have_the_lowest_oom_score() {
    let pod = pod_with(&json!({}), &json!({"priorityClassName": "system-node-critical"}));
    assert_eq!(app(&pod, &Around::default()).resources.oom_score_adj, Some(-997));
}

#[test]
fn oom_score_shares_the_rest_of_a_pod_level_request_among_containers() {
    let containers = json!([
        {"name": "a", "image": "i", "resources": {"requests": {"memory": "1Gi"}}},
        {"name": "b", "image": "i"},
    ]);
    let pod = pod(&json!({"containers": containers, "resources": {"requests": {"memory": "3Gi"}}}));
    let oom = |name| container_of(&pod, name, &Around::default()).unwrap().resources.oom_score_adj;
    assert_eq!((oom("a"), oom("b")), (Some(750), Some(875)));
}

#[test]
fn a_container_without_a_limit_shows_the_pods() {
    let spec = json!({"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}});
    let resources = app(&pod_with(&json!({}), &spec), &Around::default()).resources;
    assert_eq!((resources.cpu_quota, resources.memory_limit_bytes), (Some(200_000), Some(1 << 30)));
}

#[test]
fn cpu_quota_can_be_disabled() {
    let around = Around { node: Some(node_with(|config| config.cpu_cfs_quota = false)), ..Around::default() };
    let pod = pod_with(&json!({"resources": {"limits": {"cpu": "1"}}}), &json!({}));
    assert_eq!(show(&app(&pod, &around).resources), "shares=1024 oom=999");
}

#[test]
fn container_huge_pages_are_limited_to_the_request() {
    let limits = json!({"cpu": "1", "hugepages-2Mi": "10Mi"});
    let pod = pod_with(&json!({"resources": {"limits": limits}}), &json!({}));
    let found = app(&pod, &Around::default()).resources.hugepage_limits;
    assert_eq!(found, [("1GB".to_owned(), 0), ("2MB".to_owned(), 10 << 20)]);
}

#[test]
fn container_huge_pages_are_limited_to_those_of_the_pod_unless_it_has_its_own() {
    let of_pod = json!({"resources": {"limits": {"hugepages-2Mi": "20Mi", "hugepages-1Gi": "1Gi"}}});
    let limits = |own: Value, features: Features| {
        let pod = pod_with(&json!({"resources": {"limits": own}}), &of_pod);
        let node = NodeFacts { features, ..node() };
        app(&pod, &Around { node: Some(node), ..Around::default() }).resources.hugepage_limits
    };
    let expected = |gb: u64, mb: u64| [("1GB".to_owned(), gb), ("2MB".to_owned(), mb << 20)];
    assert_eq!(limits(json!({}), Features::default()), expected(GI, 20));
    assert_eq!(limits(json!({"hugepages-2Mi": "10Mi"}), Features::default()), expected(GI, 10));
    let off = Features { pod_level_resources: false, ..Features::default() };
    assert_eq!(limits(json!({"hugepages-2Mi": "10Mi"}), off), expected(0, 10));
}

#[test]
fn swap_is_shared_among_burstable_containers_only() {
    let swap = |node: NodeFacts, resources: &Value| {
        let mut pod = pod_with(&json!({ "resources": resources }), &json!({}));
        // From the API, because a static pod is critical and never swapped out.
        pod.metadata.annotations = None;
        let around = Around { node: Some(node), ..Around::default() };
        let resources = app(&pod, &around).resources;
        (resources.unified.get("memory.swap.max").cloned(), resources.memory_swap_limit_bytes)
    };
    let limited = || NodeFacts { swap: Swap::Limited { node_swap_bytes: GI }, ..node() };
    let text = |bytes: u64| Some(bytes.to_string());
    assert_eq!(swap(node(), &json!({})), (text(0), None));
    assert_eq!(swap(limited(), &json!({})), (text(0), None));
    assert_eq!(swap(limited(), &json!({"requests": {"memory": "2Gi"}})), (text(GI / 4), None));
    assert_eq!(swap(limited(), &json!({"limits": {"memory": "2Gi"}})), (text(0), None));
    let uncontrolled = NodeFacts { swap: Swap::Uncontrolled, ..node() };
    assert_eq!(swap(uncontrolled, &json!({})), (None, None));
    let v1 = NodeFacts { cgroup_v2: false, ..node() };
    assert_eq!(swap(v1, &json!({"limits": {"memory": "1Gi"}})), (None, Some(1 << 30)));
}

#[test]
fn memory_qos_sets_memory_min_and_memory_high() {
    let files = |qos: MemoryQos, containers: Value| {
        let memory = MemoryRules { qos, allocatable_bytes: 4 * GI, page_bytes: 4096 };
        let node = NodeFacts { memory, swap: Swap::Uncontrolled, ..single_process_oom_kill() };
        let pod = pod_with(&json!({ "resources": containers }), &json!({}));
        let unified = app(&pod, &Around { node: Some(node), ..Around::default() }).resources.unified;
        let text = unified.iter().map(|(file, text)| format!("{file}={text}")).collect::<Vec<_>>().join(" ");
        // Without a reservation both are reset.
        match qos {
            MemoryQos::Throttling => {
                text.strip_suffix("memory.low=0 memory.min=0").unwrap().trim_end().into()
            }
            MemoryQos::Off | MemoryQos::Reservation => text,
        }
    };
    let (throttled, reserved) = (MemoryQos::Throttling, MemoryQos::Reservation);
    let memory = |requested: &str, allowed: &str| json!({"requests": {"memory": requested}, "limits": {"memory": allowed}});
    assert_eq!(files(MemoryQos::Off, memory("1Gi", "2Gi")), "");
    assert_eq!(files(throttled, memory("1000", "101000")), "memory.high=90112", "in whole pages");
    assert_eq!(
        files(throttled, memory("1Gi", "2Gi")),
        format!("memory.high={}", (GI + GI / 10 * 9) / 4096 * 4096)
    );
    let unlimited = json!({"requests": {"memory": "1Gi"}});
    let most = format!("memory.high={}", (GI + 3 * GI * 9 / 10) / 4096 * 4096);
    assert_eq!(files(throttled, unlimited.clone()), most);
    assert_eq!(files(reserved, unlimited), format!("{most} memory.low={GI}"));
    assert_eq!(
        files(reserved, memory("2Gi", "2Gi")),
        format!("memory.low={}", 2 * GI),
        "it has no limit of CPU"
    );
    let guaranteed = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    assert_eq!(files(throttled, guaranteed.clone()), "");
    assert_eq!(files(reserved, guaranteed), format!("memory.min={GI}"));
    assert_eq!(files(reserved, json!({})), "");
    assert_eq!(files(throttled, json!({"requests": {"cpu": "1"}})), "");
    assert_eq!(files(throttled, json!({"requests": {"memory": "5Gi"}})), "", "more than there is");
    assert_eq!(files(throttled, memory("4095", "4096")), "", "never below the request");
}

#[test]
fn critical_pod_never_uses_swap() {
    let node = || NodeFacts { swap: Swap::Limited { node_swap_bytes: GI }, ..node() };
    let swap = |spec: Value| {
        let mut pod = pod_with(&json!({"resources": {"requests": {"memory": "2Gi"}}}), &spec);
        pod.metadata.annotations = None;
        app(&pod, &Around { node: Some(node()), ..Around::default() }).resources.unified["memory.swap.max"]
            .clone()
    };
    assert_eq!(swap(json!({})), (GI / 4).to_string());
    assert_eq!(swap(json!({"priority": 2_000_000_000})), "0");
    let of_file = pod_with(&json!({"resources": {"requests": {"memory": "2Gi"}}}), &json!({}));
    let around = Around { node: Some(node()), ..Around::default() };
    assert_eq!(app(&of_file, &around).resources.unified["memory.swap.max"], "0");
}

#[test]
fn single_process_oom_kill_is_passed_to_the_cgroup() {
    let single = NodeFacts { swap: Swap::Uncontrolled, ..single_process_oom_kill() };
    let around = Around { node: Some(single), ..Around::default() };
    assert!(app(&pod_with(&json!({}), &json!({})), &around).resources.unified.is_empty());
}

#[test]
fn a_sandbox_sums_what_runs_at_the_same_time() {
    let cpu = |amount: &str| json!({"requests": {"cpu": amount}});
    let pod = pod(&json!({
        "initContainers": [
            {"name": "side", "image": "i", "restartPolicy": "Always", "resources": cpu("100m")},
            {"name": "big", "image": "i", "resources": cpu("2")},
        ],
        "containers": [
            {"name": "a", "image": "i", "resources": cpu("500m")},
            {"name": "b", "image": "i", "resources": cpu("500m")},
        ],
    }));
    let request = sandbox_of(&pod, &PodFacts::default()).unwrap();
    assert_eq!(request.resources.unwrap().cpu_shares, Some(2100 * 1024 / 1000));
}

#[test]
fn sandbox_request_holds_overhead_apart_from_the_resources() {
    let pod = pod_with(&json!({}), &json!({"overhead": {"cpu": "250m", "memory": "120Mi"}}));
    let request = sandbox_of(&pod, &PodFacts::default()).unwrap();
    let overhead = request.overhead.unwrap();
    assert_eq!(show(&overhead), "shares=256 quota=25000 period=100000 memory=125829120");
    assert_eq!(show(&request.resources.unwrap()), "shares=2 period=100000");
}

/// The result for a container security context, a pod one and an image user: selected parts of the request, or the error.
#[track_caller]
fn check_security(own: &Value, of_pod: &Value, image: &ImageObservation, expected: &str) {
    let pod = pod_with(&json!({ "securityContext": own }), &json!({ "securityContext": of_pod }));
    let around = Around { image: image.clone(), ..Around::default() };
    let found = match container_of(&pod, "app", &around) {
        Ok(request) => {
            let run_as = request.security.run_as;
            let number = |id: Option<i64>| id.map_or_else(|| "-".to_owned(), |id| id.to_string());
            format!("{}/{}/{}", number(run_as.uid), run_as.username, number(run_as.gid))
        }
        Err(error) => format!("! {error}"),
    };
    assert_eq!(found, expected);
}

fn image(uid: Option<i64>, username: &str) -> ImageObservation {
    ImageObservation { uid, username: username.to_owned(), ..ImageObservation::default() }
}

#[test]
fn the_user_is_the_containers_else_the_pods_else_the_images_else_root() {
    let none = json!({});
    check_security(&none, &none, &image(None, ""), "0//-");
    check_security(&none, &none, &image(Some(7), ""), "7//-");
    check_security(&none, &none, &image(None, "www"), "-/www/-");
    check_security(&none, &json!({"runAsUser": 5, "runAsGroup": 6}), &image(Some(7), ""), "5//6");
    check_security(&json!({"runAsUser": 1}), &json!({"runAsUser": 5}), &image(None, "www"), "1//-");
    check_security(&json!({"runAsGroup": 1}), &json!({"runAsGroup": 5}), &image(None, "www"), "-/www/1");
}

#[test]
fn run_as_non_root_is_checked_before_anything_runs() {
    let want = json!({"runAsNonRoot": true});
    let none = json!({});
    let who = r#"(pod: "web-n_default(u-1)", container: app)"#;
    let by_spec = format!("! container's runAsUser breaks non-root policy {who}");
    let by_image = format!("! container has runAsNonRoot and image will run as root {who}");
    let by_name = format!(
        "! container has runAsNonRoot and image has non-numeric user (www), cannot verify user is non-root {who}"
    );
    check_security(&want, &none, &image(None, ""), &by_image);
    check_security(&none, &want, &image(Some(0), ""), &by_image);
    check_security(&want, &none, &image(None, "www"), &by_name);
    check_security(&want, &none, &image(Some(7), ""), "7//-");
    check_security(&json!({"runAsNonRoot": true, "runAsUser": 0}), &none, &image(Some(7), ""), &by_spec);
    check_security(&want, &json!({"runAsUser": 0}), &image(Some(7), ""), &by_spec);
    check_security(&json!({"runAsNonRoot": true, "runAsUser": 1}), &none, &image(None, "www"), "1//-");
    check_security(&json!({"runAsNonRoot": false}), &want, &image(None, ""), "0//-");
}

fn security_of(own: &Value, spec: &Value) -> Result<model::request::ContainerSecurity, ConfigError> {
    let pod = pod_with(&json!({ "securityContext": own }), spec);
    container_of(&pod, "app", &Around::default()).map(|request| request.security)
}

#[test]
fn seccomp_is_the_containers_else_the_pods_else_the_nodes() {
    let of = |own: &Value, of_pod: &Value, seccomp_default| {
        let pod = pod_with(&json!({ "securityContext": own }), &json!({ "securityContext": of_pod }));
        let around = Around {
            node: Some(node_with(|config| config.seccomp_default = seccomp_default)),
            ..Around::default()
        };
        app(&pod, &around).security.seccomp
    };
    let kind = |name: &str| json!({"seccompProfile": {"type": name}});
    let local = json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"}});
    assert_eq!(of(&json!({}), &json!({}), false), Some(SecurityProfile::Unconfined));
    assert_eq!(of(&json!({}), &json!({}), true), Some(SecurityProfile::RuntimeDefault));
    assert_eq!(of(&json!({}), &kind("RuntimeDefault"), false), Some(SecurityProfile::RuntimeDefault));
    assert_eq!(of(&kind("Unconfined"), &kind("RuntimeDefault"), true), Some(SecurityProfile::Unconfined));
    let path = "/var/lib/kubelet/seccomp/a/b.json".to_owned();
    assert_eq!(of(&local, &json!({}), false), Some(SecurityProfile::Localhost(path)));
}

#[test]
fn apparmor_is_by_field_then_by_annotation() {
    let of = |own: &Value, annotation: Option<&str>| {
        let mut pod = pod_with(&json!({ "securityContext": own }), &json!({}));
        if let Some(value) = annotation {
            let key = format!("{}app", model::annotations::APPARMOR_ANNOTATION_PREFIX);
            pod.metadata.annotations.get_or_insert_default().insert(key, value.to_owned());
        }
        container_of(&pod, "app", &Around::default()).map(|request| request.security.apparmor)
    };
    let local = json!({"appArmorProfile": {"type": "Localhost", "localhostProfile": "mine"}});
    let mine = Some(SecurityProfile::Localhost("mine".to_owned()));
    assert_eq!(of(&json!({}), None), Ok(None));
    assert_eq!(of(&local, Some("unconfined")), Ok(mine.clone()));
    assert_eq!(of(&json!({}), Some("localhost/mine")), Ok(mine));
    assert_eq!(of(&json!({}), Some("unconfined")), Ok(Some(SecurityProfile::Unconfined)));
    assert_eq!(of(&json!({}), Some("runtime/default")), Ok(Some(SecurityProfile::RuntimeDefault)));
    assert_eq!(of(&json!({}), Some("odd")).unwrap_err().to_string(), "unknown appArmorProfile type \"odd\"");
}

#[test]
fn capabilities_pass_through_also_with_privileged() {
    let capabilities = json!({"add": ["NET_ADMIN"], "drop": ["ALL"]});
    let some = security_of(&json!({ "capabilities": capabilities }), &json!({})).unwrap();
    assert_eq!(
        (&some.add_capabilities, &some.drop_capabilities),
        (&vec!["NET_ADMIN".to_owned()], &vec!["ALL".to_owned()])
    );
    let all = security_of(&json!({"privileged": true, "capabilities": capabilities}), &json!({})).unwrap();
    assert!(all.privileged);
    assert_eq!(
        (all.add_capabilities, all.drop_capabilities),
        (some.add_capabilities, some.drop_capabilities)
    );
}

#[test]
fn flags_of_a_container_are_passed_on() {
    let of = |own: &Value| {
        let found = security_of(own, &json!({"hostUsers": null})).unwrap();
        (found.no_new_privs, found.read_only_rootfs)
    };
    assert_eq!(of(&json!({})), (false, false));
    assert_eq!(of(&json!({"allowPrivilegeEscalation": true})), (false, false));
    assert_eq!(of(&json!({"allowPrivilegeEscalation": false})), (true, false));
    assert_eq!(of(&json!({"readOnlyRootFilesystem": true})), (false, true));
}

#[test]
fn an_unmasked_proc_hides_nothing() {
    let mut pod = pod_with(&json!({}), &json!({"hostUsers": false}));
    let context = json!({"procMount": "Unmasked"});
    pod.spec.as_mut().unwrap().containers[0].security_context = serde_json::from_value(context).unwrap();
    let facts = PodFacts { user_namespace: Some(IdMappings::default()), ..PodFacts::default() };
    let security = app(&pod, &Around { facts, ..Around::default() }).security;
    assert!(security.masked_paths.is_empty() && security.readonly_paths.is_empty());
}

#[test]
fn groups_come_from_fs_group_spec_and_volumes() {
    let spec = json!({"securityContext": {"fsGroup": 1, "supplementalGroups": [2, 3], "supplementalGroupsPolicy": "Strict"}});
    let pod = pod_with(&json!({}), &spec);
    let facts = PodFacts { extra_supplemental_groups: vec![4], ..PodFacts::default() };
    let sandbox = sandbox_of(&pod, &facts).unwrap().security;
    let container = app(&pod, &Around { facts, ..Around::default() }).security;
    assert_eq!(sandbox.supplemental_groups, [1, 2, 3, 4]);
    assert_eq!(container.supplemental_groups, [1, 2, 3, 4]);
    assert_eq!(container.supplemental_groups_policy, SupplementalGroupsPolicy::Strict);
}

#[test]
fn selinux_labels_are_the_containers_else_the_pods() {
    let label = |level: &str| json!({"seLinuxOptions": {"level": level, "type": "t"}});
    let spec = json!({ "securityContext": label("s0") });
    let level = |own: &Value| security_of(own, &spec).unwrap().selinux.map(|label| label.level);
    assert_eq!(level(&json!({})).as_deref(), Some("s0"));
    assert_eq!(level(&label("s1")).as_deref(), Some("s1"));
    assert_eq!(security_of(&json!({}), &json!({})).unwrap().selinux, None);
}

/// Network, PID and IPC namespaces of the pod.
#[track_caller]
fn check_namespaces(spec: &Value, expected: &str) {
    let found = sandbox_of(&pod_with(&json!({}), spec), &PodFacts::default()).unwrap().security.namespaces;
    assert_eq!(
        format!("{:?} {:?} {:?} {:?}", found.network, found.pid, found.ipc, found.user),
        expected,
        "{spec}"
    );
}

#[test]
fn namespaces_follow_the_host_and_share_fields_of_the_pod() {
    check_namespaces(&json!({}), "Pod Container Pod Node");
    check_namespaces(&json!({"hostNetwork": true}), "Node Container Pod Node");
    check_namespaces(&json!({"hostPID": true}), "Pod Node Pod Node");
    check_namespaces(&json!({"hostIPC": true}), "Pod Container Node Node");
    check_namespaces(&json!({"shareProcessNamespace": true}), "Pod Pod Pod Node");
    check_namespaces(&json!({"hostUsers": true}), "Pod Container Pod Node");
}

#[test]
fn missing_user_namespace_mapping_is_an_error() {
    let pod = pod_with(&json!({}), &json!({"hostUsers": false}));
    assert_eq!(
        sandbox_of(&pod, &PodFacts::default()).unwrap_err().to_string(),
        r#"pod "web-n_default(u-1)" has hostUsers: false, but was given no user namespace"#
    );
    let mapping = IdMapping { host_id: 65_536, container_id: 0, length: 65_536 };
    let ids = IdMappings { uids: vec![mapping], gids: vec![mapping] };
    let facts = PodFacts { user_namespace: Some(ids.clone()), ..PodFacts::default() };
    let found = sandbox_of(&pod, &facts).unwrap().security.namespaces.user;
    assert_eq!(found, model::request::UserNamespace::Pod { uids: ids.uids, gids: ids.gids });
}

#[test]
fn an_ephemeral_container_sees_the_processes_of_its_target() {
    let pid = |spec: &Value, target: Option<&str>| {
        let mut pod = pod_with(&json!({}), spec);
        let debug = json!([{"name": "debug", "image": "i", "targetContainerName": target}]);
        pod.spec.as_mut().unwrap().ephemeral_containers = serde_json::from_value(debug).unwrap();
        container_of(&pod, "debug", &Around::default()).unwrap().security.namespaces.pid
    };
    let target = model::request::target(model::ContainerId::new("c-target"));
    assert_eq!(pid(&json!({}), Some("app")), target);
    assert_eq!(pid(&json!({}), None), NamespaceMode::Container);
    assert_eq!(pid(&json!({"shareProcessNamespace": true}), Some("app")), NamespaceMode::Pod);
}

#[test]
fn a_sandbox_is_privileged_if_a_container_is() {
    let privileged = |own: &Value| {
        let pod = pod_with(&json!({ "securityContext": own }), &json!({}));
        sandbox_of(&pod, &PodFacts::default()).unwrap().security.privileged
    };
    assert!(!privileged(&json!({})));
    assert!(privileged(&json!({"privileged": true})));
}

#[test]
fn a_pod_on_the_nodes_network_brings_no_hostname() {
    let hostname =
        |spec: &Value| sandbox_of(&pod_with(&json!({}), spec), &PodFacts::default()).unwrap().hostname;
    assert_eq!(hostname(&json!({"hostNetwork": true})), "");
    assert_eq!(
        hostname(&json!({"hostname": "h", "subdomain": "s", "setHostnameAsFQDN": true})),
        "h.s.default.svc.cluster.local"
    );
}

#[test]
fn ports_of_sidecars_are_mapped_too() {
    let port = |number: i32, protocol: &str| json!([{"containerPort": number, "hostPort": number, "protocol": protocol}]);
    let pod = pod(&json!({
        "initContainers": [
            {"name": "once", "image": "i", "ports": port(1, "TCP")},
            {"name": "side", "image": "i", "restartPolicy": "Always", "ports": port(2, "UDP")},
        ],
        "containers": [{"name": "a", "image": "i", "ports": port(3, "SCTP")}],
    }));
    let mapped = sandbox_of(&pod, &PodFacts::default()).unwrap().port_mappings;
    let mapped: Vec<_> = mapped.iter().map(|p| (p.protocol, p.host_port)).collect();
    assert_eq!(mapped, [(Protocol::Sctp, 3), (Protocol::Udp, 2)]);
}

/// The result of one volume mount: host path, flags, propagation, or the error. The volume is at `/v`.
#[track_caller]
fn check_mount(mount: &Value, around: Around, expected: &str) {
    let mut pod = pod_with(&json!({"securityContext": {"privileged": true}}), &json!({}));
    let mut mount = mount.clone();
    mount["name"] = json!("v");
    mount["mountPath"] = mount.get("mountPath").cloned().unwrap_or_else(|| json!("/data"));
    let container = &mut pod.spec.as_mut().unwrap().containers[0];
    container.volume_mounts = serde_json::from_value(json!([mount])).unwrap();
    let found = match container_of(&pod, "app", &around) {
        Ok(request) => {
            let mounts = request.mounts.iter().map(|m| {
                let flags =
                    [(m.read_only, " ro"), (m.recursive_read_only, " rro"), (m.selinux_relabel, " z")];
                let flags: String =
                    flags.iter().filter(|(is_set, _)| *is_set).map(|(_, text)| *text).collect();
                let image = m.image.as_ref().map(|image| {
                    format!("image {} {}/{}", image.user_specified_image, image.reference, m.image_sub_path)
                });
                let from = image.unwrap_or_else(|| m.host_path.clone());
                format!("{from}:{}{flags} {:?}", m.container_path, m.propagation)
            });
            mounts.collect::<Vec<_>>().join(", ")
        }
        Err(error) => format!("! {error}"),
    };
    assert_eq!(found, expected);
}

fn image_volume() -> VolumeMountPoint {
    let [reference, user_specified_image] = ["sha256:1", "busybox:1"].map(str::to_owned);
    let image = Some(MountedImage { reference, user_specified_image, ..MountedImage::default() });
    VolumeMountPoint { image, ..VolumeMountPoint::default() }
}

/// The volume `v` is at `/v` on the host.
fn with_volume() -> Around {
    let point = VolumeMountPoint { host_path: "/v".to_owned(), ..VolumeMountPoint::default() };
    Around { volumes: BTreeMap::from([("v".to_owned(), point)]), ..Around::default() }
}

#[test]
fn volumes_are_mounted_as_asked() {
    check_mount(&json!({}), with_volume(), "/v:/data Private");
    check_mount(&json!({"readOnly": true}), with_volume(), "/v:/data ro Private");
    check_mount(&json!({"mountPath": "data"}), with_volume(), "/v:/data Private");
    check_mount(&json!({"mountPropagation": "None"}), with_volume(), "/v:/data Private");
    check_mount(&json!({"mountPropagation": "HostToContainer"}), with_volume(), "/v:/data HostToContainer");
    check_mount(&json!({"mountPropagation": "Bidirectional"}), with_volume(), "/v:/data Bidirectional");
    check_mount(
        &json!({"mountPropagation": "Sideways"}),
        with_volume(),
        "! invalid mount propagation \"Sideways\" of volume \"v\"",
    );
}

#[test]
fn a_volume_may_be_read_only_or_private_by_itself() {
    let point = VolumeMountPoint {
        host_path: "/v".to_owned(),
        read_only: true,
        selinux_relabel: true,
        ..VolumeMountPoint::default()
    };
    let around = Around { volumes: BTreeMap::from([("v".to_owned(), point)]), ..Around::default() };
    check_mount(&json!({}), around, "/v:/data ro z Private");
}

#[test]
fn image_volume_is_read_only_and_its_sub_path_is_passed_to_the_runtime() {
    let shown = || {
        let point = image_volume();
        let sub_paths = BTreeMap::from([(0, "usr/bin".to_owned())]);
        Around { volumes: BTreeMap::from([("v".to_owned(), point)]), sub_paths, ..Around::default() }
    };
    check_mount(&json!({}), shown(), "image busybox:1 sha256:1/:/data ro Private");
    check_mount(&json!({"subPath": "usr/bin"}), shown(), "image busybox:1 sha256:1/usr/bin:/data ro Private");
}

/// As for any other volume: `makeMounts` of the Go kubelet makes no difference.
#[test]
fn image_volume_has_the_propagation_and_recursive_read_only_mode_of_its_mount() {
    let point = image_volume();
    let shown = || Around { volumes: BTreeMap::from([("v".to_owned(), point.clone())]), ..Around::default() };
    let propagated = json!({"mountPropagation": "HostToContainer"});
    check_mount(&propagated, shown(), "image busybox:1 sha256:1/:/data ro HostToContainer");
    let recursive = json!({"readOnly": true, "recursiveReadOnly": "Enabled"});
    let facts = PodFacts { recursive_read_only: true, ..PodFacts::default() };
    check_mount(&recursive, Around { facts, ..shown() }, "image busybox:1 sha256:1/:/data ro rro Private");
}

#[test]
fn missing_volume_is_an_error() {
    check_mount(&json!({}), Around::default(), "! cannot find volume \"v\" to mount into container \"app\"");
}

#[test]
fn a_sub_path_must_have_been_bound() {
    let bound = Around { sub_paths: BTreeMap::from([(0, "/sub".to_owned())]), ..with_volume() };
    check_mount(&json!({"subPath": "a"}), bound, "/sub:/data Private");
    let bound = Around { sub_paths: BTreeMap::from([(0, "/sub".to_owned())]), ..with_volume() };
    check_mount(&json!({"subPath": ""}), bound, "/v:/data Private");
    let missing = "! failed to prepare subPath for volumeMount \"v\" of container \"app\"";
    check_mount(&json!({"subPathExpr": "$(A)"}), with_volume(), missing);
}

/// The sub-paths of a container with these mounts, as `index:path`, or the error.
#[track_caller]
fn check_sub_paths(mounts: &Value, expected: &str) {
    let mut pod = pod_with(&json!({}), &json!({}));
    let mut mounts = mounts.clone();
    for mount in mounts.as_array_mut().unwrap() {
        mount["name"] = json!("v");
        mount["mountPath"] = json!("/m");
    }
    pod.spec.as_mut().unwrap().containers[0].volume_mounts = serde_json::from_value(mounts).unwrap();
    let env = [("POD", "web"), ("UP", ".."), ("EMPTY", "")].map(|(k, v)| (k.to_owned(), v.into()));
    let found = compute_sub_paths(&find_container(&pod, "app").unwrap(), &env);
    let show = |paths: Vec<SubPath>| {
        paths.iter().map(|p| format!("{}:{}", p.index, p.path)).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(found.map_or_else(|e| format!("! {e}"), show), expected);
}

#[test]
fn sub_paths_are_expanded_and_stay_within_their_volume() {
    check_sub_paths(&json!([{}, {"subPath": "a/b"}, {"subPathExpr": "logs/$(POD)"}]), "1:a/b 2:logs/web");
    check_sub_paths(&json!([{"subPath": "$(POD)"}]), "0:$(POD)");
    check_sub_paths(&json!([{"subPathExpr": "$(NO)"}]), "! subPath of volume \"v\": missing value for NO");
    check_sub_paths(
        &json!([{"subPathExpr": "$(EMPTY)"}]),
        "! subPath of volume \"v\": missing value for EMPTY",
    );
    check_sub_paths(
        &json!([{"subPathExpr": "$(NO)/$(POD)/$(EMPTY)"}]),
        "! subPath of volume \"v\": missing value for EMPTY, NO",
    );
    check_sub_paths(
        &json!([{"subPathExpr": "$(UP)/x"}]),
        "! subPath of volume \"v\": \"../x\" must not contain '..'",
    );
    check_sub_paths(
        &json!([{"subPath": "/x"}]),
        "! subPath of volume \"v\": \"/x\" must not be an absolute path",
    );
}

#[test]
fn recursive_read_only_mount_needs_runtime_support() {
    let able =
        || Around { facts: PodFacts { recursive_read_only: true, ..PodFacts::default() }, ..with_volume() };
    let mount = |mode: &str| json!({"readOnly": true, "recursiveReadOnly": mode});
    check_mount(&mount("Enabled"), able(), "/v:/data ro rro Private");
    check_mount(&mount("IfPossible"), able(), "/v:/data ro rro Private");
    check_mount(&mount("IfPossible"), with_volume(), "/v:/data ro Private");
    check_mount(&mount("Disabled"), able(), "/v:/data ro Private");
    let refused = |problem| {
        format!(
            "! failed to resolve recursive read-only mode: volume \"v\" requested recursive read-only mode, but {problem}"
        )
    };
    check_mount(&mount("Enabled"), with_volume(), &refused("it is not supported by the runtime"));
    check_mount(&json!({"recursiveReadOnly": "Enabled"}), able(), &refused("it is not read-only"));
    check_mount(
        &json!({"readOnly": true, "recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"}),
        able(),
        &refused("its mount propagation is not None"),
    );
}

#[test]
fn a_container_may_bring_its_own_hosts_file() {
    let with_hosts = || Around {
        facts: PodFacts { hosts_file: Some("/h".to_owned()), ..PodFacts::default() },
        ..with_volume()
    };
    check_mount(&json!({"mountPath": "/etc/hosts"}), with_hosts(), "/v:/etc/hosts Private");
    check_mount(&json!({}), with_hosts(), "/v:/data Private, /h:/etc/hosts z Private");
}

#[test]
fn the_grace_period_of_a_deletion_is_noted() {
    let mut pod = pod_with(&json!({}), &json!({}));
    pod.metadata.deletion_grace_period_seconds = Some(7);
    let annotations = app(&pod, &Around::default()).annotations;
    assert_eq!(annotations["io.kubernetes.pod.deletionGracePeriod"], "7");
}

proptest! {
    #[test]
    fn burstable_oom_scores_are_between_those_of_the_other_qos_classes(memory in 1_u64..1 << 45, capacity in 1_u64..1 << 45) {
        let pod = pod_with(&json!({"resources": {"requests": {"memory": memory.to_string()}}}), &json!({}));
        let container = find_container(&pod, "app").unwrap();
        let score = resources::oom_score_adj(&pod, &container, capacity);
        prop_assert!((3..=999).contains(&score));
    }

    #[test]
    fn shares_and_quota_stay_within_what_the_kernel_takes(milli in any::<i64>()) {
        prop_assert!((2..=262_144).contains(&resources_core::cgroup::convert::cpu_shares(milli)));
        prop_assert!(resources_core::cgroup::convert::cpu_quota(milli, 100_000) >= 1000);
    }
}

#[test]
fn a_stop_signal_is_passed_on_with_its_gate_only() {
    let pod = pod_with(&json!({"lifecycle": {"stopSignal": "SIGUSR1"}}), &json!({"os": {"name": "linux"}}));
    let signal = |container_stop_signals| {
        let features = Features { container_stop_signals, ..Features::default() };
        let around = Around { node: Some(NodeFacts { features, ..node() }), ..Around::default() };
        app(&pod, &around).stop_signal
    };
    assert_eq!((signal(true).as_deref(), signal(false)), (Some("SIGUSR1"), None));
}

#[test]
fn hostname_override_is_the_kernel_hostname_only_with_its_feature_gate() {
    let pod =
        pod(&json!({"containers": [{"name": "app", "image": "i"}], "hostnameOverride": "db.example.org"}));
    let inputs = |node: &NodeFacts| {
        let (facts, dns) = (PodFacts::default(), DnsRequest::default());
        let inputs =
            SandboxInputs { pod: &pod, node, facts: &facts, attempt: 0, dns: &dns, cgroup_parent: "" };
        compute_sandbox_request(&inputs).unwrap().hostname
    };
    let off = Features { hostname_override: false, ..Features::default() };
    assert_eq!(inputs(&node()), "db.example.org");
    assert_eq!(inputs(&NodeFacts { features: off, ..node() }), "web-n");
}
