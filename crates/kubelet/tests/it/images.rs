//! Pulling from a real registry: Debian's docker-registry on loopback, open and behind a password.

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::node::{FOREVER, IMAGE, Node, container, free_port, shell_pod};

/// A registry on loopback that keeps its images in the node's directory.
pub(crate) struct Registry {
    child: Child,
    pub(crate) port: u16,
    log: PathBuf,
}

impl Registry {
    pub(crate) fn start(dir: &Path, password: Option<(&str, &str)>) -> Self {
        std::fs::create_dir_all(dir).expect("a directory");
        let port = free_port();
        let mut config = json!({
            "version": "0.1",
            "log": {"level": "info", "accesslog": {"disabled": false}},
            "storage": {"filesystem": {"rootdirectory": dir.join("data")}},
            "http": {"addr": format!("127.0.0.1:{port}")},
        });
        if let Some((user, password)) = password {
            let hashed =
                Command::new("htpasswd").args(["-Bbn", user, password]).output().expect("htpasswd runs");
            std::fs::write(dir.join("htpasswd"), hashed.stdout).expect("written");
            config["auth"] = json!({"htpasswd": {"realm": "test", "path": dir.join("htpasswd")}});
        }
        let path = dir.join("config.yml");
        std::fs::write(&path, config.to_string()).expect("written");
        let mut command = Command::new("docker-registry");
        let log = std::fs::File::create(dir.join("access.log")).expect("a log file");
        command.arg("serve").arg(path).stdout(log).stderr(Stdio::null());
        let child = command.spawn().expect("docker-registry starts: run scripts/test, which installs it");
        Self { child, port, log: dir.join("access.log") }
    }

    /// The number of manifest requests that the registry got for an image.
    fn manifest_requests(&self) -> usize {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        log.lines().filter(|line| line.contains(" /v2/") && line.contains("/manifests/")).count()
    }

    pub(crate) fn image(&self) -> String {
        format!("127.0.0.1:{}/test/busybox:1", self.port)
    }

    /// Pushes the test image to the registry, and removes its name from the node.
    pub(crate) fn fill(&self, node: &Node, user: Option<&str>) {
        let image = self.image();
        node.ctr(&["images", "tag", IMAGE, &image]);
        node.eventually("the registry listens", |_| {
            TcpStream::connect(("127.0.0.1", self.port)).map(drop).map_err(|e| e.to_string())
        });
        let mut args = vec!["images", "push", "--plain-http"];
        if let Some(user) = user {
            args.extend(["--user", user]);
        }
        args.push(&image);
        node.ctr(&args);
        node.ctr(&["images", "remove", &image]);
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pod_with(name: &str, image: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["image"] = image.into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = "Always".into();
    pod
}

#[test]
fn image_is_pulled_from_a_registry() {
    let node = Node::start();
    let registry = Registry::start(&node.path("registry"), None);
    registry.fill(&node, None);
    node.apply("pulled", &pod_with("pulled", &registry.image()));
    let pod = node.running("pulled");
    assert_eq!(container(&pod, "main")["image"], registry.image().as_str());
    let log = node.kubelet_log();
    assert!(log.contains("Successfully pulled image") && log.contains("Image size:"), "{log}");
}

#[test]
fn private_registry_needs_the_credentials_of_the_node() {
    let mut node = Node::start();
    let registry = Registry::start(&node.path("registry"), Some(("user", "secret")));
    registry.fill(&node, Some("user:secret"));
    node.apply("locked", &pod_with("locked", &registry.image()));
    node.pod_when("locked", "cannot be pulled", |pod| {
        container(pod, "main")["state"]["waiting"]["reason"] == "ImagePullBackOff"
    });
    // base64 of user:secret
    let credentials = json!({format!("127.0.0.1:{}", registry.port): {"auth": "dXNlcjpzZWNyZXQ="}});
    let file = node.path("root/config.json");
    std::fs::write(&file, json!({"auths": credentials}).to_string()).expect("written");
    node.restart_kubelet();
    node.running("locked");
    // The older form without surrounding fields. The presence of the image does not help a pod that has to pull it.
    std::fs::remove_file(file).expect("removed");
    std::fs::write(node.path("root/.dockercfg"), credentials.to_string()).expect("written");
    node.restart_kubelet();
    let older = pod_with("older", &registry.image());
    node.apply("older", &older);
    node.running("older");
}

/// A proxy to the registry that delays every new connection, so that pulls take a while. Returns its port.
fn start_slow_proxy(port: u16, delay: Duration) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let own = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || {
                std::thread::park_timeout(delay);
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { return };
                let (Ok(client_too), Ok(server_too)) = (client.try_clone(), server.try_clone()) else {
                    return;
                };
                std::thread::spawn(move || copy_stream(client_too, server_too));
                copy_stream(server, client);
            });
        }
    });
    own
}

/// Copies until one side has ended; the other side sees the broken connection.
fn copy_stream(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(std::net::Shutdown::Both);
}

/// The reference of `image` in the registry behind that port.
fn image_behind(image: &str, registry: u16, proxy: u16) -> String {
    image.replace(&format!(":{registry}/"), &format!(":{proxy}/"))
}

#[test]
fn concurrent_pods_with_the_same_image_share_one_pull() {
    let node = Node::start_with(json!({"serializeImagePulls": false}));
    let registry = Registry::start(&node.path("registry"), None);
    registry.fill(&node, None);
    let proxy = start_slow_proxy(registry.port, Duration::from_secs(3));
    let image = image_behind(&registry.image(), registry.port, proxy);
    let names = ["one", "two", "three", "four"];
    let before = registry.manifest_requests();
    for name in names {
        node.apply(name, &pod_with(name, &image));
    }
    for name in names {
        node.running(name);
    }
    let log = node.kubelet_log();
    let count = |text: &str| log.lines().filter(|line| line.contains(text) && line.contains(&image)).count();
    assert_eq!(count("Successfully pulled image"), 4, "each pod has an event: {log}");
    let requests = registry.manifest_requests() - before;
    assert!((1..=2).contains(&requests), "by name, and at most once more by digest: {requests} times");
}

#[test]
fn serialize_image_pulls_runs_one_pull_at_a_time_and_parallel_pulls_overlap() {
    for (serial, limit) in [(true, Value::Null), (false, json!(2))] {
        let node = Node::start_with(json!({"serializeImagePulls": serial, "maxParallelImagePulls": limit}));
        let registry = Registry::start(&node.path("registry"), None);
        registry.fill(&node, None);
        // Two registry addresses, so that the pulls share no connection.
        let images = [(), ()].map(|()| {
            let proxy = start_slow_proxy(registry.port, Duration::from_secs(3));
            image_behind(&registry.image(), registry.port, proxy)
        });
        for (name, image) in ["one", "two"].into_iter().zip(&images) {
            node.apply(name, &pod_with(name, image));
        }
        for name in ["one", "two"] {
            node.running(name);
        }
        let log = node.kubelet_log();
        let waited = |image: &String| {
            let line =
                log.lines().find(|l| l.contains("Successfully pulled image") && l.contains(image.as_str()));
            let line = line.expect("a message about the pull");
            let (took, rest) = line.split_once(" in ").and_then(|(_, r)| r.split_once(" (")).expect("times");
            let whole = rest.split_once(" including").expect("times").0;
            seconds(whole) - seconds(took)
        };
        let longest = images.iter().map(waited).fold(0.0, f64::max);
        assert_eq!(longest > 2.0, serial, "the second one waited {longest} s: {log}");
    }
}

/// Parses durations such as `1.5s` and `340ms`.
fn seconds(text: &str) -> f64 {
    let number = |unit: &str| text.strip_suffix(unit).and_then(|number| number.parse::<f64>().ok());
    number("ms").map(|n| n / 1000.0).or_else(|| number("s")).unwrap_or_else(|| panic!("no time: {text}"))
}

#[test]
fn registry_qps_rejects_excess_image_pulls_for_a_while() {
    let node = Node::start_with(json!({
        "registryPullQPS": 1, "registryBurst": 1, "serializeImagePulls": false,
    }));
    let registry = Registry::start(&node.path("registry"), None);
    registry.fill(&node, None);
    let names: Vec<String> = (0..2).map(|n| format!("pod-{n}")).collect();
    for name in &names {
        // A different name of the same registry makes a different image.
        let mut pod = pod_with(name, &registry.image());
        let proxy = start_slow_proxy(registry.port, Duration::from_millis(100));
        pod["spec"]["containers"][0]["image"] = image_behind(&registry.image(), registry.port, proxy).into();
        node.apply(name, &pod);
    }
    node.wait_for_log("pull QPS exceeded");
    let refused = node.eventually("one of them shows it", |node| {
        let message = |name: &String| {
            let waiting = container(&node.pod(name)?, "main")["state"]["waiting"].clone();
            waiting["message"].as_str().filter(|m| m.contains("pull QPS exceeded")).map(str::to_owned)
        };
        names.iter().find_map(message).ok_or_else(|| "none".to_owned())
    });
    assert!(refused.contains("pull QPS exceeded"), "{refused}");
    for name in &names {
        node.running(name);
    }
}

#[test]
fn present_image_is_pulled_again_only_under_pull_policy_always() {
    let node = Node::start();
    let registry = Registry::start(&node.path("registry"), None);
    registry.fill(&node, None);
    let mut pod = pod_with("first", &registry.image());
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    node.apply("first", &pod);
    node.running("first");
    drop(registry);
    pod["metadata"]["name"] = "second".into();
    node.apply("second", &pod);
    node.running("second");
    node.wait_for_log("already present on machine");
    pod["metadata"]["name"] = "third".into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = "Always".into();
    node.apply("third", &pod);
    node.pod_when("third", "cannot be pulled", |pod| {
        let reason = container(pod, "main")["state"]["waiting"]["reason"].clone();
        reason == "ErrImagePull" || reason == "ImagePullBackOff" || reason == "RegistryUnavailable"
    });
}

/// The image pull records of the kubelet.
pub(crate) fn records(node: &Node, kind: &str) -> Vec<Value> {
    let dir = node.path("root/image_manager").join(kind);
    let files = std::fs::read_dir(dir).expect("the directory exists").map(|entry| entry.expect("an entry"));
    let read = |file: std::fs::DirEntry| std::fs::read_to_string(file.path()).expect("readable");
    files.map(|file| serde_json::from_str(&read(file)).expect("JSON")).collect()
}

pub(crate) fn waiting(pod: &Value) -> String {
    let waiting = &container(pod, "main")["state"]["waiting"];
    format!("{}: {}", waiting["reason"].as_str().unwrap_or_default(), waiting["message"])
}

#[test]
fn image_pull_records_are_written_and_those_of_the_go_kubelet_are_read() {
    let mut node = Node::start();
    let registry = Registry::start(&node.path("registry"), None);
    registry.fill(&node, None);
    let image = registry.image();
    let mut pod = pod_with("first", &image);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    node.apply("first", &pod);
    node.running("first");
    let records_found = node.eventually("the pull is recorded", |node| {
        let records_found = records(node, "pulled");
        if records_found.is_empty() { Err("no record".to_owned()) } else { Ok(records_found) }
    });
    let name = image.trim_end_matches(":1");
    assert_eq!(records_found[0]["kind"], "ImagePulledRecord");
    assert_eq!(records_found[0]["apiVersion"], "kubelet.config.k8s.io/v1beta1");
    assert_eq!(records_found[0]["credentialMapping"][name], json!({"nodePodsAccessible": true}));
    assert_eq!(records(&node, "pulling"), [] as [Value; 0]);

    // As if another kubelet on this node had pulled it with a secret.
    node.kill_kubelet();
    let dir = node.path("root/image_manager/pulled");
    let file = std::fs::read_dir(&dir).expect("readable").next().expect("a file").expect("an entry").path();
    let mut private = records_found[0].clone();
    let secret = json!({"uid": "u", "namespace": "default", "name": "s", "credentialHash": "h"});
    private["credentialMapping"][name] = json!({"kubernetesSecrets": [secret]});
    std::fs::write(&file, private.to_string()).expect("written");
    node.start_kubelet();
    pod["metadata"]["name"] = "second".into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = "Never".into();
    node.apply("second", &pod);
    let refused = node.pod_when("second", "is rejected", |pod| waiting(pod).starts_with("ErrImageNeverPull"));
    assert!(waiting(&refused).contains("is not present with pull policy of Never"), "{refused}");

    node.configure(json!({"imagePullCredentialsVerificationPolicy": "NeverVerify"}));
    node.restart_kubelet();
    node.running("second");
}

/// A credential provider that knows the password of a registry and records its requests.
fn install_provider(node: &Node, registry: &Registry) {
    use std::os::unix::fs::PermissionsExt;
    let dir = node.path("providers");
    std::fs::create_dir_all(&dir).expect("a directory");
    let location = format!("127.0.0.1:{}", registry.port);
    let answer = json!({
        "kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "cacheKeyType": "Registry", "cacheDuration": "10m",
        "auth": {location.clone(): {"username": "user", "password": "secret"}},
    });
    let program = dir.join("helper");
    let script = format!(
        "#!/bin/sh\ncat >> \"$REQUESTS\"; echo >> \"$REQUESTS\"\n[ \"$1\" = get ] && echo '{answer}'\n"
    );
    std::fs::write(&program, script).expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("executable");
    let config = json!({
        "kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1",
        "providers": [{
            "name": "helper", "matchImages": [location], "defaultCacheDuration": "0s", "args": ["get"],
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "env": [{"name": "REQUESTS", "value": node.path("requests.log")}],
        }],
    });
    std::fs::write(node.path("providers.json"), config.to_string()).expect("written");
}

#[test]
fn credential_provider_plugin_supplies_the_registry_password() {
    let mut node = Node::on_containerd(json!({}));
    let registry = Registry::start(&node.path("registry"), Some(("user", "secret")));
    registry.fill(&node, Some("user:secret"));
    install_provider(&node, &registry);
    let (config, dir) = (node.path("providers.json"), node.path("providers"));
    let flags = [("config", config), ("bin-dir", dir)];
    let flags = flags.map(|(name, path)| format!("--image-credential-provider-{name}={}", path.display()));
    node.add_flags(&flags.each_ref().map(String::as_str));
    node.start_kubelet();
    node.apply("first", &pod_with("first", &registry.image()));
    node.running("first");
    node.apply("second", &pod_with("second", &registry.image()));
    node.running("second");
    let requests = std::fs::read_to_string(node.path("requests.log")).expect("it was requested");
    let requests: Vec<Value> =
        requests.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let request = json!({
        "kind": "CredentialProviderRequest", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        "image": registry.image().trim_end_matches(":1"),
    });
    assert_eq!(requests, [request], "once, because its answer is good for ten minutes");
    let metrics = node.get("/metrics").expect("metrics");
    let count = r#"kubelet_credential_provider_plugin_duration_count{plugin_name="helper"} 1"#;
    assert!(metrics.lines().any(|line| line == count), "{metrics}");
}

#[test]
fn missing_credential_provider_plugin_fails_the_start() {
    let node = Node::on_containerd(json!({}));
    std::fs::create_dir_all(node.path("providers")).expect("a directory");
    let config = json!({
        "kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1",
        "providers": [{
            "name": "missing", "matchImages": ["r.io"], "defaultCacheDuration": "0s",
            "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
        }],
    });
    std::fs::write(node.path("providers.json"), config.to_string()).expect("written");
    let mut command = node.kubelet_command();
    command.arg("--image-credential-provider-config").arg(node.path("providers.json"));
    command.arg("--image-credential-provider-bin-dir").arg(node.path("providers"));
    let output = command.output().expect("the kubelet runs");
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        complaint.contains("providers/missing") && complaint.contains("not an executable file"),
        "{complaint}"
    );
}
