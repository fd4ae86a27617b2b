//! A volume that a controller attaches to the node, here the test itself, before the driver is called.

use model::digest::sha256_hex;
use serde_json::{Value, json};

use super::{DRIVER, Setup, claim_pod};
use crate::cluster::Cluster;

/// The volumes in a list of the Node's status.
fn volumes(cluster: &Cluster, list: &str) -> Result<Value, String> {
    Ok(cluster.kubectl.get("node", "node")?["status"][list].clone())
}

#[test]
fn csi_volume_is_used_only_after_it_was_attached_and_reported_until_it_is_unmounted() {
    let setup = Setup::start(&json!({"attachRequired": true}));
    let cluster = &setup.cluster;
    let unique_name = format!("kubernetes.io/csi/{DRIVER}^disk");
    setup.claim_filesystem("disk");
    setup.create(claim_pod("user", "true", "disk"));
    cluster.node.eventually("the volume is reported in use", |_| match volumes(cluster, "volumesInUse")? {
        list if list == json!([unique_name]) => Ok(()),
        list => Err(list.to_string()),
    });
    assert_eq!(setup.driver.call_lines(), Vec::<String>::new(), "nothing happens before it is attached");

    // As the attach/detach controller and the external attacher do.
    let name = format!("csi-{}", sha256_hex(format!("disk{DRIVER}node").as_bytes()));
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": name},
        "spec": {"attacher": DRIVER, "nodeName": "node", "source": {"persistentVolumeName": "pv-disk"}},
    });
    cluster.kubectl.run_with_input(&["create", "-f", "-"], &attachment.to_string());
    let status = json!({"attached": true, "attachmentMetadata": {"devicePath": "/dev/attached"}});
    cluster.kubectl.change_status(&format!("/apis/storage.k8s.io/v1/volumeattachments/{name}"), |object| {
        object["status"] = status.clone();
    });
    let attached = json!([{"name": unique_name, "devicePath": ""}]);
    cluster
        .kubectl
        .change_status("/api/v1/nodes/node", |node| node["status"]["volumesAttached"] = attached.clone());
    let user = cluster.running("user");
    let requests = setup.driver.stage_requests();
    assert_eq!(requests[0].publish_context, [("devicePath".to_owned(), "/dev/attached".to_owned())].into());

    setup.delete_and_wait(&user);
    setup.check_clean();
    cluster.node.eventually("the volume is not in use any more", |_| {
        let list = volumes(cluster, "volumesInUse")?;
        if list.as_array().is_none_or(Vec::is_empty) { Ok(()) } else { Err(list.to_string()) }
    });
    assert_eq!(volumes(cluster, "volumesAttached"), Ok(attached), "it is the controller's");
}
