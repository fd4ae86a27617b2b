//! Manifests in, pods or errors out.

use std::collections::BTreeMap;

use config::Features;
use expect_test::{Expect, expect, expect_file};
use proptest::prelude::*;

use super::*;

fn file() -> Origin {
    Origin::File("/m/a.yaml".to_owned())
}

fn read(text: &str) -> Result<Manifest, Vec<ManifestError>> {
    parse_manifest(text.as_bytes(), &file(), "Node1", Features::default())
}

/// What came of a manifest: a line for each pod and each complaint.
#[expect(clippy::needless_pass_by_value, reason = "expect! makes values")]
#[track_caller]
fn check(text: &str, expected: Expect) {
    let lines: Vec<_> = match read(text) {
        Ok(Manifest { pods, warnings }) => {
            let who = |pod: &Pod| model::PodRef::of(pod).to_string();
            let warnings = warnings.iter().map(|w| format!("warning: {w}"));
            pods.iter().map(who).chain(warnings).collect()
        }
        Err(errors) => errors.iter().map(|e| format!("error: {e}")).collect(),
    };
    expected.assert_eq(&lines.join("\n"));
}

fn one(text: &str) -> Pod {
    read(text).expect("a good manifest").pods.remove(0)
}

const SMALL: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: app
    image: nginx
";

#[test]
fn a_pod_is_read_from_yaml() {
    check(SMALL, expect!["default/web-node1"]);
}

#[test]
fn a_pod_is_read_from_json() {
    check(
        r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "kube-system"},
            "spec": {"containers": [{"name": "app", "image": "nginx", "resources": {"limits": {"cpu": 1}}}]}}"#,
        expect!["kube-system/web-node1"],
    );
}

#[test]
fn tabs_in_json_manifests_are_accepted() {
    check(
        "{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Pod\",\n\t\"metadata\": {\"name\": \"web\"},\n\t\"spec\": {\n\t\t\"containers\": [{\"name\": \"app\", \"image\": \"nginx\"}]\n\t}\n}",
        expect!["default/web-node1"],
    );
}

#[test]
fn several_documents_hold_several_pods() {
    let second = SMALL.replace("web", "db");
    check(
        &format!("---\n{SMALL}\n---\n# nothing here\n---\n{second}"),
        expect![[r"
            default/web-node1
            default/db-node1"]],
    );
}

#[test]
fn lists_hold_pods() {
    check(
        r"
apiVersion: v1
kind: PodList
items:
- metadata: {name: a}
  spec: {containers: [{name: c, image: i}]}
- {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, image: i}]}}
---
{apiVersion: v1, kind: List, items: []}
",
        expect![[r"
            default/a-node1
            default/b-node1"]],
    );
}

#[test]
fn an_empty_manifest_holds_no_pods() {
    check("", expect![""]);
    check("# later\n---\n", expect![""]);
}

#[test]
fn other_kinds_are_refused() {
    check(
        "{apiVersion: v1, kind: Service}",
        expect![[r#"error: /m/a.yaml:1:1: kind "Service" is not a Pod or a list of pods"#]],
    );
    check("{a: b}", expect!["error: /m/a.yaml:1:1: Object 'Kind' is missing"]);
    check("hello", expect!["error: /m/a.yaml:1:1: Object 'Kind' is missing"]);
    check(
        "{apiVersion: v2, kind: Pod}",
        expect![[r#"error: /m/a.yaml:1:1: no kind "Pod" is registered for version "v2""#]],
    );
    check(
        "{kind: List, items: [{kind: Node}]}",
        expect![[r#"error: /m/a.yaml:1:22: kind "Node" in a list of pods"#]],
    );
}

#[test]
fn wrong_type_in_a_manifest_is_reported_with_its_position() {
    check(
        &SMALL.replace("image: nginx", "image: [nginx]"),
        expect!["error: /m/a.yaml:8:12: spec.containers[0].image: invalid type: sequence, expected a string"],
    );
    check(
        &SMALL.replace("image: nginx", "image: i\n    ports: [{containerPort: http}]"),
        expect![[
            r#"error: /m/a.yaml:9:29: spec.containers[0].ports[0].containerPort: invalid type: string "http", expected i32"#
        ]],
    );
}

#[test]
fn a_number_is_no_text_but_a_quantity_may_be_one() {
    check(
        &SMALL.replace("image: nginx", "image: i\n    env: [{name: A, value: 1}]"),
        expect![
            "error: /m/a.yaml:9:28: spec.containers[0].env[0].value: invalid type: integer `1`, expected a string"
        ],
    );
    check(
        &SMALL.replace("image: nginx", "image: i\n    env: [{name: A, value: yes}]"),
        expect![
            "error: /m/a.yaml:9:28: spec.containers[0].env[0].value: invalid type: boolean `true`, expected a string"
        ],
    );
    let pod =
        one(&SMALL.replace("image: nginx", "image: i\n    resources: {limits: {cpu: 0.5, memory: 64Mi}}"));
    let limits = pod.spec.unwrap().containers[0].resources.clone().unwrap().limits.unwrap();
    assert_eq!((limits["cpu"].0.as_str(), limits["memory"].0.as_str()), ("0.5", "64Mi"));
}

#[test]
fn a_label_without_a_value_is_empty() {
    let pod = one(&SMALL.replace("{name: web}", "{name: web, labels: {a: , b: null}}"));
    let labels: Vec<_> = pod.metadata.labels.unwrap().into_values().collect();
    assert_eq!(labels, ["", ""]);
}

#[test]
fn a_status_in_a_manifest_does_not_count() {
    let pod = one(&format!("{SMALL}status: {{phase: Failed, podIP: 1.2.3.4}}"));
    assert_eq!(pod.metadata.uid, one(SMALL).metadata.uid);
    assert_eq!(pod.status, one(SMALL).status);
}

#[test]
fn anchors_and_merges_are_understood() {
    check(
        r"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - &base {name: app, image: nginx}
  - {<<: *base, name: other}
",
        expect!["default/web-node1"],
    );
}

/// In the manner of what `kubeadm` writes for etcd.
const ETCD: &str = r#"
apiVersion: v1
kind: Pod
metadata:
  annotations:
    kubeadm.kubernetes.io/etcd.advertise-client-urls: https://10.0.0.1:2379
  creationTimestamp: null
  labels: {component: etcd, tier: control-plane}
  name: etcd
  namespace: kube-system
spec:
  containers:
  - command: [etcd, --data-dir=/var/lib/etcd, "--listen-metrics-urls=http://127.0.0.1:2381"]
    image: registry.k8s.io/etcd:3.6.6-0
    imagePullPolicy: IfNotPresent
    livenessProbe:
      failureThreshold: 8
      httpGet: {host: 127.0.0.1, path: /livez, port: probe-port, scheme: HTTP}
      initialDelaySeconds: 10
      periodSeconds: 10
      timeoutSeconds: 15
    name: etcd
    ports:
    - {containerPort: 2381, name: probe-port, protocol: TCP}
    resources:
      requests: {cpu: 100m, memory: 100Mi}
    volumeMounts:
    - {mountPath: /var/lib/etcd, name: etcd-data}
  hostNetwork: true
  priority: 2000001000
  priorityClassName: system-node-critical
  securityContext:
    seccompProfile: {type: RuntimeDefault}
  volumes:
  - hostPath: {path: /var/lib/etcd, type: DirectoryOrCreate}
    name: etcd-data
status: {}
"#;

#[test]
fn control_plane_manifest_is_accepted_without_warnings() {
    check(ETCD, expect!["kube-system/etcd-node1"]);
}

#[test]
fn octal_modes_are_read_as_such() {
    let volume = "volumes: [{name: v, downwardAPI: {defaultMode: 0644}}]";
    let pod = one(&SMALL.replace("spec:", &format!("spec:\n  {volume}")));
    let volume = pod.spec.unwrap().volumes.unwrap().remove(0);
    assert_eq!(volume.downward_api.unwrap().default_mode, Some(0o644));
}

#[test]
fn invalid_yaml_is_reported_with_its_position() {
    let errors = read("kind: Pod\nmetadata: {name: web\nspec: x: y").unwrap_err();
    assert_eq!(errors.len(), 1);
    assert!(errors[0].position.is_some(), "{}", errors[0]);
    assert!(errors[0].to_string().starts_with("/m/a.yaml:"), "{}", errors[0]);
    check("\u{0}", expect![[r#"error: /m/a.yaml:1:1: unexpected character: `\u{0}'"#]]);
}

#[test]
fn unknown_and_repeated_fields_cause_a_warning() {
    check(
        &SMALL.replace("image: nginx", "image: nginx\n    imagePulPolicy: Never"),
        expect![[r"
            default/web-node1
            warning: /m/a.yaml:9:21: spec.containers[0].imagePulPolicy: unknown field, ignored"]],
    );
    let twice = read(&SMALL.replace("image: nginx", "image: a\n    image: b")).unwrap();
    assert_eq!(twice.pods[0].spec.as_ref().unwrap().containers[0].image.as_deref(), Some("b"));
    assert_eq!(twice.warnings.len(), 1);
    assert_eq!(twice.warnings[0].position.map(|p| p.line), Some(9), "{}", twice.warnings[0]);
}

#[test]
fn not_utf8_is_refused() {
    let errors = parse_manifest(b"kind: \xff", &file(), "n", Features::default()).unwrap_err();
    assert_eq!(errors[0].to_string(), "/m/a.yaml: not UTF-8 after byte 6");
}

#[test]
fn all_errors_of_a_manifest_are_reported_at_once() {
    check(
        &format!(
            "{}---\n{}",
            SMALL.replace("image: nginx", "imagePullPolicy: Sometimes"),
            SMALL.replace("app", "A_b")
        ),
        expect![[r#"
            error: /m/a.yaml:7:5: invalid pod "web": spec.containers[0].image: Required value
            error: /m/a.yaml:8:22: invalid pod "web": spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never"
            error: /m/a.yaml:16:11: invalid pod "web": spec.containers[0].name: Invalid value: "A_b": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#]],
    );
}

#[test]
fn value_of_a_wrong_type_does_not_hide_other_errors() {
    let text = r"
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  hostNetwork: sure
  restartPolicy: Sometimes
  volumes:
  - name: [data]
    emptyDir: {}
  containers:
  - name: app
    image: {name: nginx}
    ports:
    - containerPort: http
    volumeMounts:
    - {name: data, mountPath: /data}
  - name: B_d
    image: busybox
    strange: 1
";
    check(
        text,
        expect![[r#"
            error: /m/a.yaml:6:16: spec.hostNetwork: invalid type: string "sure", expected a boolean
            error: /m/a.yaml:7:18: invalid pod "web": spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure"
            error: /m/a.yaml:9:11: spec.volumes[0].name: invalid type: sequence, expected a string
            error: /m/a.yaml:13:12: spec.containers[0].image: invalid type: map, expected a string
            error: /m/a.yaml:15:22: spec.containers[0].ports[0].containerPort: invalid type: string "http", expected i32
            error: /m/a.yaml:18:11: invalid pod "web": spec.containers[1].name: Invalid value: "B_d": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#]],
    );
}

#[test]
fn a_manifest_cannot_describe_a_pod_that_ends_or_a_mirror() {
    check(
        &SMALL.replace("{name: web}", r#"{name: web, deletionTimestamp: "2026-01-01T00:00:00Z"}"#),
        expect![[
            r#"error: /m/a.yaml:4:42: pod "web": metadata.deletionTimestamp may not be set by a manifest"#
        ]],
    );
    check(
        &SMALL.replace("{name: web}", "{name: web, annotations: {kubernetes.io/config.mirror: x}}"),
        expect![[r#"error: /m/a.yaml:4:36: pod "web": a manifest may not describe a mirror pod"#]],
    );
}

#[test]
fn a_pod_without_a_name_is_refused() {
    check(
        &SMALL.replace("{name: web}", "{}"),
        expect![[
            r#"error: /m/a.yaml:4:11: invalid pod "": metadata.name: Required value: name or generateName is required"#
        ]],
    );
}

fn annotation(pod: &Pod, key: &str) -> String {
    pod.metadata.annotations.as_ref().and_then(|all| all.get(key)).cloned().unwrap_or_default()
}

#[test]
fn static_pod_uid_depends_on_content_node_and_origin() {
    let uid = |text: &str, origin: &Origin, node: &str| {
        let pod = parse_manifest(text.as_bytes(), origin, node, Features::default()).unwrap().pods.remove(0);
        assert_eq!(annotation(&pod, keys::CONFIG_HASH), pod.metadata.uid.clone().unwrap());
        pod.metadata.uid.unwrap()
    };
    let first = uid(SMALL, &file(), "n");
    assert_eq!(first.len(), 32);
    assert_eq!(uid(&format!("# a word\n{SMALL}"), &file(), "n"), first, "comments do not matter");
    assert_ne!(uid(&SMALL.replace("nginx", "httpd"), &file(), "n"), first);
    assert_ne!(uid(SMALL, &file(), "m"), first);
    assert_ne!(uid(SMALL, &Origin::File("/m/b.yaml".to_owned()), "n"), first);
    assert_ne!(uid(SMALL, &Origin::Url("http://x/".to_owned()), "n"), first);
    assert_eq!(uid(&SMALL.replace("{name: web}", "{name: web, uid: mine}"), &file(), "n"), "mine");
}

#[test]
fn static_pod_has_its_source_annotation_and_from_a_file_tolerates_no_execute_taints() {
    let pod = one(SMALL);
    assert_eq!(annotation(&pod, keys::CONFIG_SOURCE), "file");
    let tolerations = pod.spec.unwrap().tolerations.unwrap();
    assert_eq!(tolerations.len(), 1);
    assert_eq!(tolerations[0].effect.as_deref(), Some("NoExecute"));

    let url = Origin::Url("http://x/".to_owned());
    let pod = parse_manifest(SMALL.as_bytes(), &url, "n", Features::default()).unwrap().pods.remove(0);
    assert_eq!(annotation(&pod, keys::CONFIG_SOURCE), "http");
    assert_eq!(pod.spec.unwrap().tolerations, None);
}

#[test]
fn first_seen_annotation_is_added_later() {
    let mut pod = one(SMALL);
    assert_eq!(pod, one(SMALL), "reading twice gives equal pods");
    mark_first_seen(&mut pod, "2026-01-02T03:04:05.678Z".parse().unwrap());
    assert_eq!(annotation(&pod, keys::CONFIG_SEEN), "2026-01-02T03:04:05.678Z");
}

/// Much of what can be defaulted.
const RICH: &str = r"
apiVersion: v1
kind: Pod
metadata: {name: web, uid: u, labels: {app: web}}
spec:
  hostNetwork: true
  initContainers:
  - name: side
    image: side:1
    restartPolicy: Always
    startupProbe: {tcpSocket: {port: 80}}
  containers:
  - name: app
    image: nginx
    ports: [{containerPort: 80}]
    env:
    - {name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: B, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
    resources:
      limits: {cpu: 1, memory: 1Gi}
      requests: {cpu: 500m}
    livenessProbe: {httpGet: {port: 80}, periodSeconds: 3}
    readinessProbe: {grpc: {port: 9}}
    lifecycle:
      preStop: {httpGet: {port: web, path: /bye}}
    volumeMounts: [{name: scratch, mountPath: /s}]
  volumes:
  - name: scratch
  - {name: host, hostPath: {path: /var}}
  - name: info
    projected: {sources: [{downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]}
";

#[test]
fn defaults_are_those_of_an_api_server() {
    let pod = one(RICH);
    expect_file!["golden/defaults.json"]
        .assert_eq(&format!("{}\n", serde_json::to_string_pretty(&pod).unwrap()));
}

#[test]
fn pod_level_requests_default_to_what_the_containers_ask_for_or_to_the_limit() {
    let text = SMALL.replace("spec:", "spec:\n  resources: {limits: {cpu: 2, memory: 1Gi}}");
    let text = text.replace("image: nginx", "image: i\n    resources: {requests: {cpu: 250m}}");
    let requests = one(&text).spec.unwrap().resources.unwrap().requests.unwrap();
    assert_eq!((requests["cpu"].0.as_str(), requests["memory"].0.as_str()), ("250m", "1Gi"));
}

#[test]
fn defaulting_twice_changes_nothing_more() {
    let pod = one(RICH);
    let mut again = pod.clone();
    apply_defaults(&mut again);
    assert_eq!(again, pod);
}

#[test]
fn without_the_feature_gate_only_impossible_references_are_rejected() {
    let features = Features { no_api_references: false, ..Features::default() };
    let errors = |field: &str| {
        let text = SMALL.replace("spec:", &format!("spec:\n  {field}"));
        let outcome = parse_manifest(text.as_bytes(), &file(), "n", features);
        outcome.err().into_iter().flatten().map(|e| e.message).collect::<Vec<_>>()
    };
    assert!(errors("serviceAccountName: sa").is_empty());
    assert!(errors("volumes: [{name: v, secret: {secretName: s}}]").is_empty());
    let bundle = "clusterTrustBundle: {name: b, path: p}";
    for (field, what) in [
        (format!("volumes: [{{name: v, projected: {{sources: [{{{bundle}}}]}}}}]"), "clustertrustbundles"),
        ("resourceClaims: [{name: c, resourceClaimName: r}]".to_owned(), "resourceclaims"),
    ] {
        let found = errors(&field);
        assert!(found.len() == 1 && found[0].ends_with(&format!("may not reference {what}")), "{found:?}");
    }
}

/// One field of a pod that refers to the API, and what is reported about it.
#[track_caller]
fn check_reference(field: &str, expected: &str) {
    let text = SMALL.replace("spec:", &format!("spec:\n  {field}"));
    let errors = read(&text).expect_err(field);
    assert_eq!(errors[0].message, format!(r#"invalid pod "web": {expected}"#));
    assert!(errors[0].position.is_some());
}

#[test]
fn static_pod_may_not_reference_api_objects() {
    check_reference(
        "serviceAccountName: sa",
        "spec.serviceAccountName: Forbidden: static pods may not reference serviceaccounts",
    );
    check_reference(
        "imagePullSecrets: [{name: s}]",
        "spec.imagePullSecrets: Forbidden: static pods may not reference secrets",
    );
    check_reference(
        "resourceClaims: [{name: c}]",
        "spec.resourceClaims: Forbidden: static pods may not reference resourceclaims",
    );
    let volumes = [
        ("secret: {secretName: s}", "secret", "secrets"),
        ("configMap: {name: c}", "configMap", "configmaps"),
        ("persistentVolumeClaim: {claimName: c}", "persistentVolumeClaim", "persistentvolumeclaims"),
        ("ephemeral: {}", "ephemeral", "persistentvolumeclaims"),
        ("csi: {driver: d}", "csi", "CSI drivers"),
        ("projected: {sources: [{secret: {name: s}}]}", "projected.sources[0].secret", "secrets"),
        ("projected: {sources: [{configMap: {name: s}}]}", "projected.sources[0].configMap", "configmaps"),
        (
            "projected: {sources: [{serviceAccountToken: {path: t}}]}",
            "projected.sources[0].serviceAccountToken",
            "serviceaccounts",
        ),
    ];
    for (volume, field, what) in volumes {
        check_reference(
            &format!("volumes: [{{name: v, {volume}}}]"),
            &format!("spec.volumes[0].{field}: Forbidden: static pods may not reference {what}"),
        );
    }
}

#[test]
fn no_variable_may_come_from_the_api() {
    let with = |env: &str| read(&SMALL.replace("image: nginx", &format!("image: i\n    {env}"))).unwrap_err();
    let cases = [
        ("envFrom: [{configMapRef: {name: c}}]", "envFrom[0].configMapRef", "configmaps"),
        ("envFrom: [{secretRef: {name: c}}]", "envFrom[0].secretRef", "secrets"),
        (
            "env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k}}}]",
            "env[0].valueFrom.configMapKeyRef",
            "configmaps",
        ),
        (
            "env: [{name: A, valueFrom: {secretKeyRef: {name: c, key: k}}}]",
            "env[0].valueFrom.secretKeyRef",
            "secrets",
        ),
    ];
    for (env, field, what) in cases {
        let expected = format!("spec.containers[0].{field}: Forbidden: static pods may not reference {what}");
        assert!(with(env)[0].to_string().ends_with(&expected), "{env}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_answered_without_a_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse_manifest(&text, &file(), "n", Features::default());
    }

    #[test]
    fn any_yaml_like_text_is_answered_without_a_panic(text in "[a-z0-9:{}\\[\\]\\-&*!|>'\"#,? \n\t<]{0,120}") {
        let _ = read(&text);
    }

    /// A good manifest with one word replaced.
    #[test]
    fn a_damaged_manifest_is_answered_without_a_panic(at in 0_usize..RICH.len(), with in "\\PC{0,8}") {
        if RICH.is_char_boundary(at) {
            let (head, tail) = RICH.split_at(at);
            let tail: String = tail.chars().skip(with.chars().count()).collect();
            let _ = read(&format!("{head}{with}{tail}"));
        }
    }
}

/// UIDs that the Go kubelet 1.36.2 gave to these manifests, each in a file of its name, on the node `node`.
#[test]
fn static_pod_uids_of_whole_manifests_are_those_recorded_from_the_go_kubelet() {
    let recorded: BTreeMap<&str, &str> =
        include_str!("golden/uids.txt").lines().filter_map(|line| line.split_once(' ')).collect();
    let manifests: Vec<&str> = include_str!("golden/uids.yaml").split("\n---\n").collect();
    assert_eq!(recorded.len(), manifests.len());
    let mut different = Vec::new();
    for text in manifests {
        let read = |origin: &Origin| parse_manifest(text.as_bytes(), origin, "node", Features::default());
        let pods = read(&file()).unwrap_or_else(|errors| panic!("{errors:?} in\n{text}")).pods;
        let name = pods[0].metadata.name.as_deref().and_then(|name| name.strip_suffix("-node")).unwrap();
        let origin = Origin::File(format!("/etc/kubernetes/manifests/{name}.yaml"));
        let pods = read(&origin).expect("a good manifest").pods;
        let uid = pods[0].metadata.uid.clone().unwrap();
        if recorded.get(name) != Some(&uid.as_str()) {
            different.push(format!("{name}: {uid}, recorded {:?}", recorded.get(name)));
        }
    }
    assert_eq!(different, Vec::<String>::new());
}
