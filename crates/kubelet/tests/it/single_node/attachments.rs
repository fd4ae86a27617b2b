//! Volumes of a CSI driver that must be attached. The test plays the driver's external-attacher: everything else is done by the node.

use fakes::TestCsiDriver;
use model::digest::sha256_hex;
use serde_json::{Value, json};

use super::SingleNode;
use crate::node::{FOREVER, shell_pod, uid};

const DRIVER: &str = "test.csi.example";
/// Keeps the VolumeAttachment until the attacher has detached the volume.
const FINALIZER: &str = "external-attacher/test-csi-example";

/// Events of a pod, as `reason: message`.
fn has_event(single: &SingleNode, pod: &str, expected: &str) -> Result<(), String> {
    let events = single.kubectl.events("Pod", pod)?;
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let mut lines =
        events.iter().map(|event| format!("{}: {}", text(event, "reason"), text(event, "message")));
    if lines.any(|line| line == expected) { Ok(()) } else { Err(json!(events).to_string()) }
}

fn volumes(single: &SingleNode, list: &str) -> Result<Value, String> {
    Ok(single.kubectl.get("node", "node")?["status"][list].clone())
}

/// A driver, a volume of it with a claim, and a pod that writes to it.
fn objects() -> [Value; 4] {
    let mut pod = shell_pod("user", &format!("echo kept >/data/word; {FOREVER}"));
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "disk"}}]);
    [
        json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": DRIVER}, "spec": {"attachRequired": true}}),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-disk"},
            "spec": {
                "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "csi": {"driver": DRIVER, "volumeHandle": "disk"},
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }),
        pod,
    ]
}

#[test]
fn csi_volume_is_attached_for_a_pod_and_detached_after_the_kubelet_has_unmounted_it() {
    let single = SingleNode::start();
    let node = &single.node;
    let mut driver = TestCsiDriver::serve(&node.path("root"), DRIVER, &node.path("storage"));
    single.kubectl.apply(&objects()[..3]);
    driver.register();
    node.eventually("the CSINode has the driver", |_| {
        let csi_node = single.kubectl.get("csinode", "node")?;
        if csi_node["spec"]["drivers"][0]["name"] == DRIVER { Ok(()) } else { Err(csi_node.to_string()) }
    });
    single.kubectl.apply(&objects()[3..]);
    let name = format!("csi-{}", sha256_hex(format!("disk{DRIVER}node").as_bytes()));
    let attachment =
        node.eventually("the volume is to be attached", |_| single.kubectl.get("volumeattachment", &name));
    let expected =
        json!({"attacher": DRIVER, "nodeName": "node", "source": {"persistentVolumeName": "pv-disk"}});
    assert_eq!(attachment["spec"], expected);

    // The attacher fails first.
    let path = format!("/apis/storage.k8s.io/v1/volumeattachments/{name}");
    let error = "rpc error: code = Internal desc = no such disk";
    single.kubectl.change_status(&path, |attachment| {
        attachment["status"] = json!({"attached": false, "attachError": {"message": error}});
    });
    let expected = format!("FailedAttachVolume: AttachVolume.Attach failed for volume \"pv-disk\" : {error}");
    node.eventually("an event has the error", |_| has_event(&single, "user", &expected));
    assert_eq!(driver.call_lines(), Vec::<String>::new(), "nothing happens before it is attached");
    let mut finalized = single.kubectl.get("volumeattachment", &name).expect("the attachment");
    finalized["metadata"]["finalizers"] = json!([FINALIZER]);
    single.kubectl.put(&path, &finalized.to_string());
    single.kubectl.change_status(&path, |attachment| {
        attachment["status"] =
            json!({"attached": true, "attachmentMetadata": {"devicePath": "/dev/attached"}});
    });
    let user = single.running("user");
    let unique_name = format!("kubernetes.io/csi/{DRIVER}^disk");
    assert_eq!(volumes(&single, "volumesAttached"), Ok(json!([{"name": unique_name, "devicePath": ""}])));
    let context = driver.publish_requests()[0].publish_context.clone();
    assert_eq!(context, [("devicePath".to_owned(), "/dev/attached".to_owned())].into());
    let expected = "SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume \"pv-disk\" ";
    node.eventually("an event says that it is attached", |_| has_event(&single, "user", expected));

    single.kubectl.ok(&["delete", "pod", "user", "--grace-period=1"]);
    node.eventually("the attacher is asked to detach it", |_| {
        let attachment = single.kubectl.get("volumeattachment", &name)?;
        let is_asked = attachment["metadata"]["deletionTimestamp"].is_string();
        if is_asked { Ok(()) } else { Err(attachment.to_string()) }
    });
    assert_eq!(driver.published(), [], "it was unmounted before");
    let attached = volumes(&single, "volumesAttached").expect("the node");
    assert!(attached.as_array().is_none_or(Vec::is_empty), "{attached}");
    let mut detached = single.kubectl.get("volumeattachment", &name).expect("the attachment");
    detached["metadata"]["finalizers"] = json!([]);
    single.kubectl.put(&path, &detached.to_string());
    node.eventually("the attachment is gone", |_| match single.kubectl.get("volumeattachment", &name) {
        Ok(attachment) => Err(attachment.to_string()),
        Err(_) => Ok(()),
    });
    node.eventually("nothing is left of the pod", |node| node.has_no_trace_of(&uid(&user)));
    assert_eq!(driver.violations(), Vec::<String>::new(), "{:?}", driver.call_lines());
}
