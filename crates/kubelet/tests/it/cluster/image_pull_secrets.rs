//! Images of a private registry: a pod that has pulled one may use it, and others may not although it is present.

use serde_json::{Value, json};

use crate::images::{Registry, records, waiting};
use crate::node::{FOREVER, shell_pod};

use super::{Cluster, bound};

fn pod(name: &str, image: &str, policy: &str, secrets: &[&str]) -> Value {
    let mut pod = bound(shell_pod(name, FOREVER));
    pod["spec"]["containers"][0]["image"] = image.into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = policy.into();
    let names: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
    pod["spec"]["imagePullSecrets"] = names.into();
    pod
}

#[test]
fn image_pulled_with_a_secret_is_refused_to_pods_without_it() {
    let mut cluster = Cluster::start();
    let registry = Registry::start(&cluster.node.path("registry"), Some(("user", "secret")));
    registry.fill(&cluster.node, Some("user:secret"));
    let image = registry.image();
    let server = format!("--docker-server=127.0.0.1:{}", registry.port);
    let login = ["--docker-username=user", "--docker-password=secret"];
    cluster
        .kubectl
        .ok(&[["create", "secret", "docker-registry", "login", &server].as_slice(), &login].concat());

    cluster.kubectl.apply(&[pod("first", &image, "IfNotPresent", &["login"])]);
    cluster.running("first");
    let pulled = records(&cluster.node, "pulled");
    let mapping = &pulled[0]["credentialMapping"][image.trim_end_matches(":1")];
    assert_eq!(mapping["kubernetesSecrets"][0]["name"], "login", "{pulled:?}");

    // Without the registry, the pull records alone decide.
    drop(registry);
    cluster.kubectl.apply(&[
        pod("same", &image, "IfNotPresent", &["login"]),
        pod("none", &image, "IfNotPresent", &[]),
        pod("never", &image, "Never", &[]),
    ]);
    cluster.running("same");
    cluster.pod_when("none", "must pull and cannot", |pod| waiting(pod).contains("ImagePull"));
    let refused =
        cluster.pod_when("never", "is rejected", |pod| waiting(pod).starts_with("ErrImageNeverPull"));
    assert!(waiting(&refused).contains("is not present with pull policy of Never"), "{refused}");

    // Records survive the kubelet; a policy without verification opens the image to all pods.
    cluster.node.restart_kubelet();
    cluster.kubectl.apply(&[pod("again", &image, "Never", &["login"])]);
    cluster.running("again");
    cluster.node.configure(json!({"imagePullCredentialsVerificationPolicy": "NeverVerify"}));
    cluster.node.restart_kubelet();
    cluster.running("never");
    cluster.running("none");
}
