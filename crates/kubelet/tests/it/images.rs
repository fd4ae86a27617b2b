//! Pulling from a real registry: Debian's docker-registry on loopback, open and behind a password.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::node::{FOREVER, IMAGE, Node, container, free_port, shell_pod};

/// A registry on loopback that keeps its images in the node's directory.
struct Registry {
    child: Child,
    port: u16,
}

impl Registry {
    fn start(dir: &Path, password: Option<(&str, &str)>) -> Self {
        std::fs::create_dir_all(dir).expect("a directory");
        let port = free_port();
        let mut config = json!({
            "version": "0.1",
            "log": {"level": "error"},
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
        command.arg("serve").arg(path).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("docker-registry starts: run scripts/test, which installs it");
        Self { child, port }
    }

    fn image(&self) -> String {
        format!("127.0.0.1:{}/test/busybox:1", self.port)
    }

    /// Puts the test image into the registry, and takes its name away from the node.
    fn fill(&self, node: &Node, user: Option<&str>) {
        let image = self.image();
        node.ctr(&["images", "tag", IMAGE, &image]);
        node.eventually("the registry listens", |_| {
            std::net::TcpStream::connect(("127.0.0.1", self.port)).map(drop).map_err(|e| e.to_string())
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
fn an_image_is_pulled_from_a_registry() {
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
fn a_registry_with_a_password_is_used_with_the_nodes_credentials_and_refuses_without() {
    let mut node = Node::start();
    let registry = Registry::start(&node.path("registry"), Some(("user", "secret")));
    registry.fill(&node, Some("user:secret"));
    node.apply("locked", &pod_with("locked", &registry.image()));
    node.pod_when("locked", "cannot be pulled", |pod| {
        container(pod, "main")["state"]["waiting"]["reason"] == "ImagePullBackOff"
    });
    // base64 of user:secret
    let credentials =
        json!({"auths": {format!("127.0.0.1:{}", registry.port): {"auth": "dXNlcjpzZWNyZXQ="}}});
    std::fs::write(node.path("root/config.json"), credentials.to_string()).expect("written");
    node.restart_kubelet();
    node.running("locked");
}
