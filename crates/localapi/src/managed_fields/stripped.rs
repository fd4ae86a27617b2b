//! Paths that no entry has: those that identify an object, and those that only the server writes. And the object before its creation.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::set::FieldSet;

static STRIPPED: LazyLock<FieldSet> = LazyLock::new(|| {
    let mut stripped = FieldSet::default();
    for field in ["apiVersion", "kind", "metadata"] {
        stripped.extend(FieldSet::of_fields(&[field]));
    }
    for field in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        stripped.extend(FieldSet::of_fields(&["metadata", field]));
    }
    stripped
});

/// The set without the paths that no entry has.
pub(super) fn strip(mut fields: FieldSet) -> FieldSet {
    fields.subtract(&STRIPPED);
    fields
}

/// The fields that an object of Go has before anything is set: a creator owns a field that differs from it.
pub(super) fn empty_object(plural: &str) -> Value {
    let mut object = match plural {
        "pods" => json!({"spec": {"containers": null}, "status": {}}),
        "podtemplates" => json!({"template": {"metadata": {}, "spec": {"containers": null}}}),
        "nodes" => json!({"spec": {}, "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
            "nodeInfo": {
                "machineID": "", "systemUUID": "", "bootID": "", "kernelVersion": "", "osImage": "",
                "containerRuntimeVersion": "", "kubeletVersion": "", "kubeProxyVersion": "",
                "operatingSystem": "", "architecture": "",
            },
        }}),
        "services" => json!({"spec": {}, "status": {"loadBalancer": {}}}),
        "persistentvolumeclaims" => json!({"spec": {"resources": {}}, "status": {}}),
        "namespaces" | "persistentvolumes" | "resourcequotas" => json!({"spec": {}, "status": {}}),
        "limitranges" => json!({"spec": {"limits": null}}),
        "events" => json!({
            "involvedObject": {}, "source": {}, "firstTimestamp": null, "lastTimestamp": null, "eventTime": null,
            "reportingComponent": "", "reportingInstance": "",
        }),
        "certificatesigningrequests" => json!({"spec": {"request": null, "signerName": ""}, "status": {}}),
        "clustertrustbundles" => json!({"spec": {"trustBundle": ""}}),
        "podcertificaterequests" | "resourceclaims" => json!({"spec": {}, "status": {}}),
        "leases" | "csidrivers" | "deviceclasses" => json!({"spec": {}}),
        "endpointslices" => json!({"addressType": "", "endpoints": null, "ports": null}),
        "runtimeclasses" => json!({"handler": ""}),
        "resourceclaimtemplates" => json!({"spec": {"metadata": {}, "spec": {"devices": {}}}}),
        "resourceslices" => {
            json!({"spec": {"driver": "", "pool": {"name": "", "generation": 0, "resourceSliceCount": 0}}})
        }
        "csinodes" => json!({"spec": {"drivers": null}}),
        "volumeattachments" => json!({
            "spec": {"attacher": "", "source": {}, "nodeName": ""}, "status": {"attached": false},
        }),
        "storageclasses" => json!({"provisioner": ""}),
        "priorityclasses" => json!({"value": 0}),
        "roles" | "clusterroles" => json!({"rules": null}),
        _ => json!({}),
    };
    object["metadata"] = json!({});
    object
}
