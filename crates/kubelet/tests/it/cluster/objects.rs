//! ConfigMaps, Secrets, tokens and Services as containers see them: in volumes and in environment variables, when they exist,
//! when they change, and when they are created late.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::node::{FOREVER, Node, condition, container, restarts, shell_pod, uid};

use super::{Cluster, bound};

/// A cluster with service accounts, as real ones are. Its kubelet is not started yet.
fn with_accounts() -> Cluster {
    Cluster::with_api(Node::on_containerd(json!({})), &["--verbose"])
}

fn started() -> Cluster {
    let mut cluster = with_accounts();
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    cluster
}

fn config_map(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

fn secret(name: &str, data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data})
}

/// A pod that keeps running, with these volumes, each mounted at `/vol/<its name>`, and these fields of its container.
pub(super) fn pod(name: &str, volumes: Value, fields: Value) -> Value {
    let mut pod = bound(shell_pod(name, FOREVER));
    let names = volumes.as_array().expect("volumes").iter().map(|volume| volume["name"].clone());
    let path = |name: &Value| format!("/vol/{}", name.as_str().expect("a name"));
    let mounts: Vec<Value> = names.map(|name| json!({"name": name, "mountPath": path(&name)})).collect();
    pod["spec"]["volumes"] = volumes;
    pod["spec"]["containers"][0]["volumeMounts"] = mounts.into();
    for (field, value) in fields.as_object().expect("fields") {
        pod["spec"]["containers"][0][field] = value.clone();
    }
    pod
}

/// The root filesystem of the container of a running pod, seen from the node.
pub(super) struct Inside(pub(super) PathBuf);

impl Inside {
    /// The runtime reports a container as running a moment before its program has replaced the runtime's own process, whose
    /// environment has only the host name.
    #[track_caller]
    pub(super) fn of(cluster: &Cluster, pod: &Value) -> Self {
        let inside = Self(PathBuf::from(format!("/proc/{}", cluster.node.container_pid(pod, "main"))));
        cluster.node.eventually("the program has its variables", |_| {
            inside.variable("HOSTNAME").ok_or("none".into())
        });
        inside
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.join("root").join(path)
    }

    /// The text of a file, or the error.
    pub(super) fn file(&self, path: &str) -> Result<String, String> {
        std::fs::read_to_string(self.path(path)).map_err(|error| format!("{path}: {error}"))
    }

    fn mode(&self, path: &str) -> u32 {
        std::fs::metadata(self.path(path)).expect("a file").permissions().mode() & 0o7777
    }

    /// The names in a directory, without those of the atomic update.
    fn names(&self, path: &str) -> Vec<String> {
        let mut names = crate::node::names_in(&self.path(path));
        names.retain(|name| !name.starts_with(".."));
        names.sort();
        names
    }

    fn variable(&self, name: &str) -> Option<String> {
        let all = std::fs::read(self.0.join("environ")).expect("its environment");
        let all = String::from_utf8(all).expect("text");
        all.split('\0').find_map(|one| one.strip_prefix(&format!("{name}="))).map(str::to_owned)
    }
}

/// Waits until a file in the container has this text.
#[track_caller]
fn reads(cluster: &Cluster, inside: &Inside, path: &str, text: &str) {
    cluster.node.eventually(&format!("{path} has {text:?}"), |_| {
        let now = inside.file(path)?;
        if now == text { Ok(()) } else { Err(now) }
    });
}

/// The user that the API reports for the bearer of this token.
fn review(cluster: &Cluster, token: &str, audiences: &Value) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token, "audiences": audiences}});
    let output = cluster.kubectl.run_with_input(&["create", "-f", "-", "-o", "json"], &review.to_string());
    serde_json::from_str::<Value>(&output).expect("a review")["status"].clone()
}

#[test]
fn config_map_secret_downward_api_and_projected_volumes_follow_changes() {
    let cluster = started();
    cluster.kubectl.apply(&[
        config_map("cfg", json!({"color": "red", "size": "big"})),
        secret("keys", json!({"password": "sesame", "user": "ali"})),
    ]);
    let volumes = json!([
        {"name": "cfg", "configMap": {"name": "cfg"}},
        {"name": "some", "configMap": {"name": "cfg", "defaultMode": 0o440,
            "items": [{"key": "color", "path": "deep/paint"}, {"key": "size", "path": "size", "mode": 0o600}]}},
        {"name": "keys", "secret": {"secretName": "keys", "defaultMode": 0o400}},
        {"name": "meta", "downwardAPI": {"items": [
            {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}},
            {"path": "memory", "resourceFieldRef": {"containerName": "main", "resource": "limits.memory", "divisor": "1Mi"}},
        ]}},
        {"name": "all", "projected": {"sources": [
            {"configMap": {"name": "cfg", "items": [{"key": "color", "path": "color"}]}},
            {"secret": {"name": "keys", "items": [{"key": "user", "path": "who"}]}},
            {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"serviceAccountToken": {"path": "token", "audience": "vault", "expirationSeconds": 600}},
            {"configMap": {"name": "absent", "optional": true}},
        ]}},
        {"name": "none", "configMap": {"name": "absent", "optional": true}},
        {"name": "nothing", "secret": {"secretName": "absent", "optional": true}},
    ]);
    let mut reader = pod("reader", volumes, json!({"resources": {"limits": {"memory": "64Mi"}}}));
    reader["metadata"]["labels"] = json!({"app": "reader", "tier": "front"});
    cluster.kubectl.apply(&[reader]);
    let reader = cluster.running("reader");
    let inside = Inside::of(&cluster, &reader);
    let file = |path: &str| inside.file(path).unwrap_or_else(|error| error);
    assert_eq!(inside.names("vol/cfg"), ["color", "size"]);
    assert_eq!((file("vol/cfg/color"), inside.mode("vol/cfg/color")), ("red".to_owned(), 0o644));
    assert_eq!((file("vol/some/deep/paint"), inside.mode("vol/some/deep/paint")), ("red".to_owned(), 0o440));
    assert_eq!((file("vol/some/size"), inside.mode("vol/some/size")), ("big".to_owned(), 0o600));
    assert_eq!(inside.names("vol/keys"), ["password", "user"]);
    assert_eq!((file("vol/keys/password"), inside.mode("vol/keys/password")), ("sesame".to_owned(), 0o400));
    assert_eq!(file("vol/meta/labels"), "app=\"reader\"\ntier=\"front\"");
    assert_eq!(file("vol/meta/memory"), "64");
    assert_eq!(inside.names("vol/all"), ["color", "name", "token", "who"]);
    assert_eq!([file("vol/all/color"), file("vol/all/who"), file("vol/all/name")], ["red", "ali", "reader"]);
    assert_eq!((inside.names("vol/none"), inside.names("vol/nothing")), (vec![], vec![]));

    cluster.kubectl.ok(&[
        "patch",
        "configmap",
        "cfg",
        "-p",
        r#"{"data":{"color":"blue","size":null,"shape":"round"}}"#,
    ]);
    reads(&cluster, &inside, "vol/cfg/color", "blue");
    assert_eq!(inside.names("vol/cfg"), ["color", "shape"], "a change becomes visible as a whole");
    reads(&cluster, &inside, "vol/all/color", "blue");
    // The part that still refers to the removed key is unchanged.
    assert_eq!(file("vol/some/deep/paint"), "red");
    cluster.kubectl.ok(&[
        "patch",
        "secret",
        "keys",
        "-p",
        r#"{"stringData":{"password":"barley","user":"baba"}}"#,
    ]);
    reads(&cluster, &inside, "vol/keys/password", "barley");
    reads(&cluster, &inside, "vol/all/who", "baba");
    assert_eq!(inside.mode("vol/keys/password"), 0o400);
    cluster.kubectl.ok(&["label", "pod", "reader", "tier=back", "--overwrite"]);
    reads(&cluster, &inside, "vol/meta/labels", "app=\"reader\"\ntier=\"back\"");
    // An optional object may be created later.
    cluster.kubectl.apply(&[config_map("absent", json!({"late": "guest"}))]);
    reads(&cluster, &inside, "vol/none/late", "guest");
    reads(&cluster, &inside, "vol/all/late", "guest");
    let after = cluster.running("reader");
    assert_eq!(
        (restarts(&after, "main"), container(&after, "main")["containerID"].clone()),
        (0, container(&reader, "main")["containerID"].clone())
    );
    cluster.kubectl.ok(&["delete", "pod", "reader"]);
    cluster.wait_until_gone(&reader);
}

#[test]
fn service_account_token_of_a_container_is_accepted_by_the_api() {
    let cluster = started();
    let vault = json!([{"name": "vault", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token", "audience": "vault", "expirationSeconds": 600}},
    ]}}]);
    cluster.kubectl.apply(&[pod("web", vault, json!({}))]);
    let web = cluster.running("web");
    let inside = Inside::of(&cluster, &web);
    let home = "var/run/secrets/kubernetes.io/serviceaccount";
    assert_eq!(inside.names(home), ["ca.crt", "namespace", "token"]);
    assert_eq!(inside.file(&format!("{home}/namespace")).as_deref(), Ok("default"));
    let authority = std::fs::read_to_string(cluster.api.file("ca.crt")).expect("the authority");
    assert_eq!(inside.file(&format!("{home}/ca.crt")), Ok(authority));
    let token = inside.file(&format!("{home}/token")).expect("a token");
    let reviewed = review(&cluster, &token, &json!([]));
    assert_eq!(
        (&reviewed["authenticated"], &reviewed["user"]["username"]),
        (&json!(true), &json!("system:serviceaccount:default:default")),
        "{reviewed}"
    );
    let extra =
        |key: &str| reviewed["user"]["extra"][format!("authentication.kubernetes.io/{key}")][0].clone();
    assert_eq!(
        (extra("pod-name"), extra("pod-uid")),
        (json!("web"), web["metadata"]["uid"].clone()),
        "{reviewed}"
    );
    let other = inside.file("vol/vault/token").expect("a token");
    assert_eq!(review(&cluster, &other, &json!(["vault"]))["authenticated"], true);
    assert_eq!(
        review(&cluster, &other, &json!([]))["authenticated"],
        false,
        "the token is for the vault audience only"
    );
    // The token is invalid without its pod.
    cluster.kubectl.ok(&["delete", "pod", "web"]);
    cluster.wait_until_gone(&web);
    assert_eq!(review(&cluster, &token, &json!([]))["authenticated"], false);
}

#[test]
fn env_variables_come_from_config_maps_secrets_fields_and_services() {
    let mut cluster = with_accounts();
    let service = |name: &str, port: Value| {
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [port]}})
    };
    // Created before the kubelet starts, so that it knows them before any pod.
    cluster.kubectl.apply(&[
        service("db-main", json!({"name": "sql", "port": 5432})),
        config_map("cfg", json!({"color": "red", "size": "big"})),
        secret("keys", json!({"PASSWORD": "sesame"})),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "raw"}, "data": {"RAW": "Yf8="}}),
    ]);
    cluster.node.start_kubelet();
    cluster.wait_until_ready();
    let env = json!({
        "env": [
            {"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "color"}}},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "PASSWORD"}}},
            {"name": "RAW", "valueFrom": {"secretKeyRef": {"name": "raw", "key": "RAW"}}},
            {"name": "NO_KEY", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "shape", "optional": true}}},
            {"name": "NO_MAP", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "x", "optional": true}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
            {"name": "GREETING", "value": "$(COLOR) at $(DB_MAIN_SERVICE_HOST), $(UNKNOWN)"},
        ],
        "envFrom": [
            {"prefix": "CFG_", "configMapRef": {"name": "cfg"}}, {"secretRef": {"name": "keys"}},
            {"configMapRef": {"name": "absent", "optional": true}},
        ],
    });
    let linked = pod("linked", json!([]), env);
    let mut alone = pod("alone", json!([]), json!({}));
    alone["spec"]["enableServiceLinks"] = false.into();
    cluster.kubectl.apply(&[linked, alone]);
    let (linked, alone) = (cluster.running("linked"), cluster.running("alone"));
    let service = cluster.kubectl.get("service", "db-main").expect("the service");
    let address = service["spec"]["clusterIP"].as_str().expect("an address");
    let api = cluster.kubectl.get("service", "kubernetes").expect("the service");
    let api = api["spec"]["clusterIP"].as_str().expect("an address");
    let url = format!("tcp://{address}:5432");
    let inside = Inside::of(&cluster, &linked);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (pod_ip, host_ip) = (text(&linked["status"]["podIP"]), text(&linked["status"]["hostIP"]));
    for (name, value) in [
        ("COLOR", "red"),
        ("SECRET", "sesame"),
        // Containerd writes variables as JSON, which has no other bytes.
        ("RAW", "a\u{fffd}"),
        ("CFG_color", "red"),
        ("CFG_size", "big"),
        ("PASSWORD", "sesame"),
        ("POD_IP", &pod_ip),
        ("HOST_IP", &host_ip),
        ("GREETING", &format!("red at {address}, $(UNKNOWN)")),
        ("DB_MAIN_SERVICE_HOST", address),
        ("DB_MAIN_SERVICE_PORT", "5432"),
        ("DB_MAIN_SERVICE_PORT_SQL", "5432"),
        ("DB_MAIN_PORT", &url),
        ("DB_MAIN_PORT_5432_TCP", &url),
        ("DB_MAIN_PORT_5432_TCP_ADDR", address),
        ("DB_MAIN_PORT_5432_TCP_PORT", "5432"),
        ("DB_MAIN_PORT_5432_TCP_PROTO", "tcp"),
        ("KUBERNETES_SERVICE_HOST", api),
        ("KUBERNETES_SERVICE_PORT_HTTPS", "443"),
    ] {
        assert_eq!(inside.variable(name).as_deref(), Some(value), "{name}");
    }
    assert_eq!((inside.variable("NO_KEY"), inside.variable("NO_MAP")), (None, None));
    let alone = Inside::of(&cluster, &alone);
    assert_eq!(alone.variable("DB_MAIN_SERVICE_HOST"), None);
    assert_eq!(alone.variable("KUBERNETES_SERVICE_HOST").as_deref(), Some(api));
}

#[test]
fn pods_wait_for_missing_config_maps_and_secrets_with_a_reason_and_start_when_they_appear() {
    let cluster = started();
    cluster.kubectl.apply(&[config_map("partial", json!({"size": "big"}))]);
    let one = |source: Value| {
        let mut volume = source;
        volume["name"] = "vol".into();
        json!([volume])
    };
    let variable = |from: Value| json!({"env": [{"name": "WANTED", "valueFrom": from}]});
    let map = json!({"configMapKeyRef": {"name": "late", "key": "color"}});
    let key = json!({"configMapKeyRef": {"name": "partial", "key": "color"}});
    let of_secret = json!({"secretKeyRef": {"name": "late", "key": "color"}});
    let waiting = [
        (
            "map-volume",
            one(json!({"configMap": {"name": "late"}})),
            json!({}),
            "configmap \"late\" not found",
        ),
        (
            "secret-volume",
            one(json!({"secret": {"secretName": "late"}})),
            json!({}),
            "secret \"late\" not found",
        ),
        (
            "key-volume",
            one(json!({"configMap": {"name": "partial", "items": [{"key": "color", "path": "color"}]}})),
            json!({}),
            "configmap references non-existent config key: color",
        ),
        ("map-variable", json!([]), variable(map), "configmap \"late\" not found"),
        ("key-variable", json!([]), variable(key), "couldn't find key color in ConfigMap default/partial"),
        ("secret-variable", json!([]), variable(of_secret), "secret \"late\" not found"),
        (
            "all-variables",
            json!([]),
            json!({"envFrom": [{"secretRef": {"name": "late"}}]}),
            "secret \"late\" not found",
        ),
    ];
    for (name, volumes, fields, _) in &waiting {
        cluster.kubectl.apply(&[pod(name, volumes.clone(), fields.clone())]);
    }
    for (name, volumes, _, why) in &waiting {
        let is_volume = volumes.as_array().is_some_and(|volumes| !volumes.is_empty());
        let (reason, message, event) = if is_volume {
            let event = format!("FailedMount: MountVolume.SetUp failed for volume \"vol\" : {why}");
            ("ContainerCreating", Value::Null, event)
        } else {
            ("CreateContainerConfigError", json!(why), format!("Failed: Error: {why}"))
        };
        let pod = cluster.pod_when(name, "waits with a reason", |pod| {
            container(pod, "main")["state"]["waiting"]["reason"] == reason
        });
        assert_eq!(container(&pod, "main")["state"]["waiting"]["message"], message, "{name}");
        assert_eq!(pod["status"]["phase"], "Pending", "{name}");
        cluster.node.eventually("the error is returned", |_| {
            let events = cluster.events("Pod", name);
            if events.contains(&event) { Ok(()) } else { Err(format!("{events:?}")) }
        });
    }
    // A waiting pod can be deleted all the same.
    cluster.kubectl.apply(&[pod("cancelled", one(json!({"configMap": {"name": "never"}})), json!({}))]);
    let cancelled = cluster.pod_when("cancelled", "waits", |pod| container(pod, "main")["state"].is_object());
    cluster.kubectl.ok(&["delete", "pod", "cancelled", "--wait=false"]);
    cluster.wait_until_gone(&cancelled);
    cluster
        .kubectl
        .apply(&[config_map("late", json!({"color": "red"})), secret("late", json!({"color": "green"}))]);
    cluster.kubectl.ok(&["patch", "configmap", "partial", "-p", r#"{"data":{"color":"blue"}}"#]);
    for (name, ..) in &waiting {
        assert_eq!(restarts(&cluster.running(name), "main"), 0, "{name}");
    }
    let inside = |name: &str| Inside::of(&cluster, &cluster.running(name));
    assert_eq!(inside("map-volume").file("vol/vol/color").as_deref(), Ok("red"));
    assert_eq!(inside("key-volume").file("vol/vol/color").as_deref(), Ok("blue"));
    assert_eq!(inside("key-variable").variable("WANTED").as_deref(), Some("blue"));
    assert_eq!(inside("all-variables").variable("color").as_deref(), Some("green"));
}

#[test]
fn immutable_config_map_is_read_and_not_watched() {
    let cluster = started();
    let immutable = |mut object: Value| {
        object["immutable"] = true.into();
        object
    };
    let objects = [config_map("fixed", json!({"color": "red"})), secret("fixed", json!({"word": "sesame"}))]
        .map(immutable);
    cluster.kubectl.apply(&objects);
    cluster.kubectl.apply(&[config_map("free", json!({"color": "red"}))]);
    let volumes = json!([
        {"name": "cfg", "configMap": {"name": "fixed"}}, {"name": "keys", "secret": {"secretName": "fixed"}},
        {"name": "free", "configMap": {"name": "free"}},
    ]);
    cluster.kubectl.apply(&[pod("web", volumes, json!({}))]);
    let inside = Inside::of(&cluster, &cluster.running("web"));
    assert_eq!(inside.file("vol/cfg/color").as_deref(), Ok("red"));
    assert_eq!(inside.file("vol/keys/word").as_deref(), Ok("sesame"));
    // A change of the other object arrived, so every watched object was watched by then.
    cluster.kubectl.ok(&["patch", "configmap", "free", "-p", r#"{"data":{"color":"blue"}}"#]);
    reads(&cluster, &inside, "vol/free/color", "blue");
    let log = cluster.api.log();
    let watches = |name: &str| {
        let is_watch =
            |line: &&str| line.contains("watch=true") && line.contains(&format!("metadata.name%3D{name}"));
        log.lines().filter(is_watch).count()
    };
    assert_eq!((watches("fixed"), watches("free")), (0, 1), "{log}");
}

#[test]
fn volume_objects_survive_an_api_server_outage_and_a_kubelet_restart() {
    let mut cluster = started();
    cluster.kubectl.apply(&[config_map("cfg", json!({"color": "red"}))]);
    let volume = json!([{"name": "cfg", "configMap": {"name": "cfg"}}]);
    let variable = json!({"env": [{"name": "COLOR", "valueFrom": {"configMapKeyRef": {"name": "cfg", "key": "color"}}}]});
    let mut fragile = pod("fragile", volume, variable);
    let shared = cluster.node.path("shared");
    std::fs::create_dir_all(&shared).expect("a directory");
    let spec = &mut fragile["spec"];
    spec["volumes"]
        .as_array_mut()
        .expect("volumes")
        .push(json!({"name": "shared", "hostPath": {"path": shared}}));
    let main = &mut spec["containers"][0];
    main["volumeMounts"]
        .as_array_mut()
        .expect("mounts")
        .push(json!({"name": "shared", "mountPath": "/shared"}));
    main["command"][2] = "until rm /shared/end 2>/dev/null; do sleep 0.1; done; exit 1".into();
    cluster.kubectl.apply(&[fragile]);
    cluster.running("fragile");
    cluster.api.stop();
    std::fs::write(shared.join("end"), "").expect("the trigger to exit");
    let local = cluster.node.eventually("the container is restarted without the API", |node| {
        let pod = node.pods().into_iter().find(|pod| pod["metadata"]["name"] == "fragile").ok_or("no pod")?;
        let is_back = restarts(&pod, "main") == 1 && condition(&pod, "Ready") == "True";
        if is_back { Ok(pod) } else { Err(pod["status"].to_string()) }
    });
    let inside = Inside::of(&cluster, &local);
    assert_eq!(inside.variable("COLOR").as_deref(), Some("red"));
    cluster.node.restart_kubelet();
    cluster.api.start_again(&["--compacted"]);
    cluster.kubectl.ok(&["patch", "configmap", "cfg", "-p", r#"{"data":{"color":"blue"}}"#]);
    reads(&cluster, &inside, "vol/cfg/color", "blue");
    let after = cluster.running("fragile");
    assert_eq!(container(&after, "main")["containerID"], container(&local, "main")["containerID"]);
    assert_eq!(restarts(&after, "main"), 1);
}

#[test]
fn runtime_class_sets_the_runtime_handler_of_the_pod() {
    let cluster = started();
    let class = |name: &str, handler: &str| json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": handler});
    let of_class = |name: &str| {
        let mut pod = pod(name, json!([]), json!({}));
        pod["spec"]["runtimeClassName"] = name.into();
        pod
    };
    cluster.kubectl.apply(&[class("unknown", "no-such-handler"), class("late", "runc")]);
    // The API refuses a pod of a class that it does not have: this one loses its class before the node sees it.
    let mut late = of_class("late");
    late["spec"]["nodeName"] = Value::Null;
    cluster.kubectl.apply(&[of_class("unknown"), late]);
    cluster.kubectl.ok(&["delete", "runtimeclass", "late"]);
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "late"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node"},
    });
    cluster.kubectl.post("/api/v1/namespaces/default/pods/late/binding", &binding.to_string());
    let wait_for_event = |name: &str, text: &str| {
        cluster.node.eventually("an event reports why there is no sandbox", |_| {
            let events = cluster.events("Pod", name);
            let is_expected = |event: &String| {
                event.starts_with("FailedCreatePodSandBox: Failed to create pod sandbox: ")
                    && event.contains(text)
            };
            if events.iter().any(is_expected) { Ok(()) } else { Err(format!("{events:?}")) }
        });
    };
    wait_for_event("late", "runtimeclass.node.k8s.io \"late\" not found");
    wait_for_event("unknown", "no-such-handler");
    cluster.kubectl.apply(&[class("late", "runc")]);
    let late = cluster.running("late");
    assert_eq!(cluster.node.handlers(&uid(&late)), ["runc"]);
    let unknown = cluster.kubectl.get("pod", "unknown").expect("it waits");
    assert_eq!(unknown["status"]["phase"], "Pending");
    cluster.kubectl.ok(&["delete", "pod", "unknown"]);
    cluster.wait_until_gone(&unknown);
}

/// A certificate in outline only: base64 in a PEM frame.
fn certificate(base64: &str) -> String {
    format!("-----BEGIN CERTIFICATE-----\n{base64}\n-----END CERTIFICATE-----\n")
}

fn bundle(name: &str, signer: Option<&str>, tier: &str, certificates: &[&str]) -> Value {
    let text: String = certificates.iter().map(|base64| certificate(base64)).collect();
    json!({"apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": {"name": name, "labels": {"tier": tier}}, "spec": {"signerName": signer, "trustBundle": text}})
}

#[test]
fn cluster_trust_bundle_volumes_follow_changes() {
    let cluster = Cluster::start_with(
        json!({"featureGates": {"ClusterTrustBundle": true, "ClusterTrustBundleProjection": true}}),
    );
    cluster.wait_until_ready();
    let signer = Some("s.example/x");
    cluster.kubectl.apply(&[
        bundle("plain", None, "b", &["QUJD"]),
        bundle("s.example:x:1", signer, "a", &["AAAA", "BBBB"]),
        bundle("s.example:x:2", signer, "b", &["CCCC", "AAAA"]),
    ]);
    let trusted = |sources: Value| {
        let of = |source: &Value| json!({"clusterTrustBundle": source});
        let sources: Vec<Value> = sources.as_array().expect("sources").iter().map(of).collect();
        json!([{"name": "ca", "projected": {"sources": sources}}])
    };
    let sources = json!([
        {"name": "plain", "path": "plain.pem"},
        {"name": "missing", "path": "none.pem", "optional": true},
        {"signerName": "s.example/x", "labelSelector": {"matchLabels": {"tier": "a"}}, "path": "a.pem"},
        {"signerName": "s.example/x", "labelSelector": {}, "path": "all.pem"},
    ]);
    let late = trusted(json!([{"name": "late", "path": "late.pem"}]));
    cluster.kubectl.apply(&[pod("web", trusted(sources), json!({})), pod("waits", late, json!({}))]);
    let web = Inside::of(&cluster, &cluster.running("web"));
    let all =
        |certificates: &[&str]| certificates.iter().map(|base64| certificate(base64)).collect::<String>();
    reads(&cluster, &web, "vol/ca/plain.pem", &all(&["QUJD"]));
    reads(&cluster, &web, "vol/ca/none.pem", "");
    reads(&cluster, &web, "vol/ca/a.pem", &all(&["AAAA", "BBBB"]));
    reads(&cluster, &web, "vol/ca/all.pem", &all(&["AAAA", "BBBB", "CCCC"]));
    cluster.kubectl.apply(&[bundle("s.example:x:2", signer, "a", &["DDDD"])]);
    reads(&cluster, &web, "vol/ca/all.pem", &all(&["AAAA", "BBBB", "DDDD"]));
    reads(&cluster, &web, "vol/ca/a.pem", &all(&["AAAA", "BBBB", "DDDD"]));

    cluster.node.eventually("the other one gets the missing resource as the reason", |_| {
        let events = cluster.events("Pod", "waits");
        let message = "clustertrustbundles.certificates.k8s.io \"late\" not found";
        if events.iter().any(|event| event.contains(message)) { Ok(()) } else { Err(format!("{events:?}")) }
    });
    cluster.kubectl.apply(&[bundle("late", None, "b", &["EEEE"])]);
    let waits = Inside::of(&cluster, &cluster.running("waits"));
    reads(&cluster, &waits, "vol/ca/late.pem", &all(&["EEEE"]));
}
