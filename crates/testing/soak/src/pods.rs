//! The manifest of each kind of pod of a soak.
//!
//! A version changes an annotation and, every second time, the image. What runs is recorded by the runtime, so scripts only have
//! to end quickly at SIGTERM.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::schedule::{PodKind, PodPlan, Size, Source};
use harness::containerd::BUSYBOX_IMAGE;

/// The same programs under another name: an edit changes to this image and back.
pub const OTHER_IMAGE: &str = "localhost/busybox:other";
pub const VERSION_ANNOTATION: &str = "soak.example/version";
pub const CONFIG_MAP: &str = "soak";
pub const SECRET: &str = "soak";
pub const CSI_DRIVER: &str = "soak.csi.example";
/// How many claims of the CSI driver exist; pods share them.
pub const CLAIMS: u64 = 4;
/// The host name that a probe looks up.
pub const PROBED_NAME: &str = "probed.soak.example";

const FOREVER: &str = "trap 'exit 0' TERM; while :; do sleep 3600 & wait $!; done";

/// What manifests refer to.
#[derive(Clone, Debug)]
pub struct Surroundings {
    pub node_name: String,
    /// A directory of the machine that pods mount.
    pub host_dir: PathBuf,
    /// The port of the HTTP server that the host name leads to.
    pub probed_port: u16,
}

#[must_use]
pub fn image_of(version: u32) -> &'static str {
    if version.is_multiple_of(2) { OTHER_IMAGE } else { BUSYBOX_IMAGE }
}

/// The claim of a pod with this number.
#[must_use]
pub fn claim_name(number: u64) -> String {
    format!("claim-{}", number % CLAIMS)
}

/// The resources of a container that is resized.
#[must_use]
pub fn resources(size: Size) -> Value {
    let limits = json!({"cpu": format!("{}m", size.milli_cpu), "memory": format!("{}Mi", size.mebibytes)});
    json!({"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": limits})
}

/// The manifest of a pod: a file, or an object for the API that is bound to the node.
#[must_use]
pub fn manifest(plan: &PodPlan, around: &Surroundings) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": plan.name, "namespace": "default",
            "annotations": {VERSION_ANNOTATION: plan.version.to_string()},
        },
        "spec": spec(plan, around),
    });
    pod["spec"]["terminationGracePeriodSeconds"] = 2.into();
    match plan.source {
        Source::Api => pod["spec"]["nodeName"] = around.node_name.clone().into(),
        // Without a version in the specification, two versions of a static pod would differ in their metadata only.
        Source::Static => {
            pod["spec"]["containers"][0]["env"] =
                json!([{"name": "VERSION", "value": plan.version.to_string()}])
        }
    }
    pod
}

fn spec(plan: &PodPlan, around: &Surroundings) -> Value {
    let main = |script: &str| container("main", plan.version, script);
    match plan.kind {
        PodKind::Plain => json!({"containers": [main(FOREVER)]}),
        PodKind::Ordered => ordered(plan),
        PodKind::Probed => probed(plan),
        PodKind::Hooks => {
            let mut hooked = main(FOREVER);
            hooked["lifecycle"] = json!({
                "postStart": {"exec": {"command": ["/bin/sh", "-c", "echo started > /tmp/hook"]}},
                "preStop": {"exec": {"command": ["/bin/sh", "-c", "echo stopping > /tmp/hook"]}},
            });
            json!({"containers": [hooked]})
        }
        PodKind::Volumes => volumes(plan, around),
        PodKind::Objects => objects(plan),
        PodKind::Csi => {
            let number = plan.name.rsplit('-').next().and_then(|number| number.parse().ok()).unwrap_or(0);
            let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim_name(number)}});
            json!({"containers": [mounting(main(FOREVER), &["data"])], "volumes": [claim]})
        }
        PodKind::MemoryLimit => {
            let mut limited = main(FOREVER);
            limited["resources"] =
                json!({"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "24Mi"}});
            json!({"containers": [limited]})
        }
        PodKind::OutOfMemory => {
            // A shell that keeps 60 MB in a variable, after a moment in which it runs.
            let mut eater = main("sleep 3; x=$(head -c 60000000 /dev/zero | tr '\\0' x); sleep 3600");
            eater["resources"] =
                json!({"requests": {"cpu": "5m", "memory": "8Mi"}, "limits": {"memory": "16Mi"}});
            json!({"containers": [eater]})
        }
        PodKind::CrashLoop => json!({"containers": [main("sleep 1; exit 3")]}),
        PodKind::Job => json!({"containers": [main("sleep 4")], "restartPolicy": "OnFailure"}),
        PodKind::Resizable => {
            let mut resizable = main(FOREVER);
            resizable["resources"] = resources(plan.size);
            json!({"containers": [resizable]})
        }
        PodKind::NamedProbe => {
            let mut named = main(FOREVER);
            let get = json!({"host": PROBED_NAME, "port": around.probed_port, "path": "/"});
            named["readinessProbe"] = json!({"httpGet": get, "periodSeconds": 5, "timeoutSeconds": 2});
            json!({"containers": [named]})
        }
    }
}

fn container(name: &str, version: u32, script: &str) -> Value {
    json!({
        "name": name, "image": image_of(version), "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
    })
}

/// The container with these volumes, each at a directory of its name.
fn mounting(mut container: Value, volumes: &[&str]) -> Value {
    let mounts = volumes.iter().map(|name| json!({"name": name, "mountPath": format!("/{name}")}));
    container["volumeMounts"] = mounts.collect();
    container
}

fn ordered(plan: &PodPlan) -> Value {
    let mut sidecar = container("sidecar", 1, FOREVER);
    sidecar["restartPolicy"] = "Always".into();
    json!({
        "initContainers": [container("first", 1, "sleep 0.2"), sidecar, container("second", 1, "true")],
        "containers": [container("main", plan.version, FOREVER)],
    })
}

fn probed(plan: &PodPlan) -> Value {
    let mut served = container(
        "main",
        plan.version,
        "mkdir -p /tmp/www && echo ok > /tmp/www/index.html && exec httpd -f -p 8080 -h /tmp/www",
    );
    served["startupProbe"] = json!({"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 120, "timeoutSeconds": 5});
    served["readinessProbe"] =
        json!({"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 5, "timeoutSeconds": 5});
    served["livenessProbe"] = json!({
        "exec": {"command": ["/bin/true"]}, "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6,
    });
    json!({"containers": [served]})
}

fn volumes(plan: &PodPlan, around: &Surroundings) -> Value {
    let script = format!("echo kept > /disk/file; echo kept > /memory/file; test -d /host; {FOREVER}");
    let labels = json!({"path": "name", "fieldRef": {"fieldPath": "metadata.name"}});
    json!({
        "containers": [mounting(container("main", plan.version, &script), &["disk", "memory", "host", "downward"])],
        "volumes": [
            {"name": "disk", "emptyDir": {}},
            {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "4Mi"}},
            {"name": "host", "hostPath": {"path": around.host_dir}},
            {"name": "downward", "downwardAPI": {"items": [labels]}},
        ],
    })
}

fn objects(plan: &PodPlan) -> Value {
    let sources = json!([
        {"configMap": {"name": CONFIG_MAP}},
        {"secret": {"name": SECRET}},
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]);
    json!({
        "containers": [mounting(container("main", plan.version, FOREVER), &["config", "secret", "all"])],
        "volumes": [
            {"name": "config", "configMap": {"name": CONFIG_MAP}},
            {"name": "secret", "secret": {"secretName": SECRET}},
            {"name": "all", "projected": {"sources": sources}},
        ],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soak_manifest_of_every_kind_is_a_pod_and_changes_with_its_version() {
        let around =
            Surroundings { node_name: "node".to_owned(), host_dir: PathBuf::from("/host"), probed_port: 1 };
        for kind in PodKind::ALL {
            for source in [Source::Static, Source::Api] {
                let mut plan =
                    PodPlan { name: "soak-1".to_owned(), kind, source, version: 1, size: Size::FIRST };
                let first = manifest(&plan, &around);
                plan.version = 2;
                let second = manifest(&plan, &around);
                let pod: model::k8s::Pod = serde_json::from_value(first.clone()).expect("a pod");
                let spec = pod.spec.expect("a specification");
                assert_eq!(spec.containers[0].name, "main");
                assert_eq!(spec.node_name.is_some(), source == Source::Api);
                assert_ne!(first["spec"], second["spec"], "{kind:?}");
            }
        }
    }
}
