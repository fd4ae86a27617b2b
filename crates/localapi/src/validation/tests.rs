//! Which objects are refused, and with which messages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{FieldError, Reason, check, decode};
use crate::defaults;

/// Each error on a line.
fn refusals(resource: &str, object: &Value, old: Option<&Value>) -> String {
    let errors = check(resource, object, old);
    errors.iter().map(FieldError::to_string).collect::<Vec<_>>().join("\n")
}

/// An object with the fields at these paths set (null removes one).
fn with(mut object: Value, changes: &Value) -> Value {
    for (path, value) in changes.as_object().expect("a map") {
        let pointer = format!("/{}", path.replace('.', "/"));
        let (parent, last) = pointer.rsplit_once('/').expect("a slash");
        let field = object.pointer_mut(parent).unwrap_or_else(|| panic!("{parent} exists"));
        match field.as_array_mut() {
            Some(list) => list[last.parse::<usize>().expect("an index")] = value.clone(),
            None => field[last] = value.clone(),
        }
    }
    object
}

/// A valid object of each kind.
fn valid(resource: &str) -> Value {
    let mut object = match resource {
        "pods" => json!({"spec": {
            "containers": [{"name": "c", "image": "i:1", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}],
            "volumes": [{"name": "v", "emptyDir": {}}],
        }}),
        "services" => json!({"spec": {"ports": [{"port": 80}]}}),
        "leases" => json!({"spec": {"holderIdentity": "n", "leaseDurationSeconds": 40}}),
        "nodes" => json!({"spec": {"taints": []}, "status": {"addresses": []}}),
        "certificatesigningrequests" => {
            let pem = "-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n-----END CERTIFICATE REQUEST-----\n";
            json!({"spec": {
                "request": STANDARD.encode(pem),
                "signerName": "kubernetes.io/kubelet-serving",
                "usages": ["digital signature", "server auth"],
            }})
        }
        _ => json!({"data": {}}),
    };
    let cluster = ["nodes", "certificatesigningrequests", "namespaces"].contains(&resource);
    object["metadata"] = if cluster { json!({"name": "x"}) } else { json!({"name": "x", "namespace": "n"}) };
    defaults::apply(resource, &mut object);
    object
}

/// The errors of creating a valid object with these changes.
fn created(resource: &str, changes: Value) -> String {
    refusals(resource, &with(valid(resource), &changes), None)
}

/// The errors of this update of a valid object (with some fields set before).
fn updated(resource: &str, before: Value, changes: Value) -> String {
    let old = with(valid(resource), &before);
    refusals(resource, &with(old.clone(), &changes), Some(&old))
}

fn assert_created(resource: &str, rows: &[(Value, &str)]) {
    for (changes, expected) in rows {
        assert_eq!(created(resource, changes.clone()), *expected, "{resource} with {changes}");
    }
}

#[test]
fn valid_objects_pass() {
    let resources = [
        "pods",
        "services",
        "leases",
        "nodes",
        "certificatesigningrequests",
        "secrets",
        "configmaps",
        "namespaces",
        "widgets",
    ];
    for resource in resources {
        let object = valid(resource);
        assert_eq!(refusals(resource, &object, None), "", "{resource} created");
        assert_eq!(refusals(resource, &object, Some(&object)), "", "{resource} updated");
        assert_eq!(decode(resource, &object), Ok(()), "{resource} decoded");
    }
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
     and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
     start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

#[test]
fn names_are_validated_by_kind() {
    for (resource, name, expected) in [
        ("pods", "a.b-c", String::new()),
        ("pods", "A_b", format!("metadata.name: Invalid value: \"A_b\": {SUBDOMAIN}")),
        ("pods", "a..b", format!("metadata.name: Invalid value: \"a..b\": {SUBDOMAIN}")),
        ("pods", "", "metadata.name: Required value: name or generateName is required".to_owned()),
        ("namespaces", "a.b", format!("metadata.name: Invalid value: \"a.b\": {LABEL}")),
        ("services", "1a", format!("metadata.name: Invalid value: \"1a\": {LABEL_1035}")),
        ("certificatesigningrequests", "node_CSR:1", String::new()),
        (
            "certificatesigningrequests",
            "a/b",
            "metadata.name: Invalid value: \"a/b\": may not contain '/'".to_owned(),
        ),
    ] {
        assert_eq!(created(resource, json!({"metadata.name": name})), expected, "{resource} {name}");
    }
    let long = "a".repeat(254);
    let refused = created("pods", json!({"metadata.name": long}));
    assert!(refused.ends_with(": must be no more than 253 bytes"), "{refused}");
}

#[test]
fn metadata_is_validated_for_every_kind() {
    assert_created(
        "configmaps",
        &[
            (json!({"metadata.namespace": null}), "metadata.namespace: Required value"),
            (
                json!({"metadata.labels": {"/a": ""}}),
                "metadata.labels: Invalid value: \"/a\": prefix part must be non-empty",
            ),
            (json!({"metadata.labels": {"a.b/c": "D_e.f"}}), ""),
            (json!({"metadata.annotations": {"Example.com/x": "any thing"}}), ""),
            (
                json!({"metadata.annotations": {"a": "x".repeat(262_144)}}),
                "metadata.annotations: Too long: may not be more than 262144 bytes",
            ),
            (
                json!({"metadata.ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n"}]}),
                "metadata.ownerReferences.uid: Invalid value: \"\": must not be empty",
            ),
            (
                json!({"metadata.finalizers": ["mine"]}),
                "metadata.finalizers[0]: Invalid value: \"mine\": name is neither a standard finalizer name nor is it fully qualified",
            ),
            (json!({"metadata.finalizers": ["example.com/mine", "orphan"]}), ""),
        ],
    );
    assert_created(
        "nodes",
        &[(json!({"metadata.namespace": "n"}), "metadata.namespace: Forbidden: not allowed on this type")],
    );
    let refused = updated("configmaps", json!({"metadata.uid": "1"}), json!({"metadata.uid": "2"}));
    assert_eq!(refused, "metadata.uid: Invalid value: \"2\": field is immutable");
}

#[test]
fn pod_spec_is_validated() {
    assert_created(
        "pods",
        &[
            (json!({"spec.containers": []}), "spec.containers: Required value"),
            (json!({"spec.containers.0.name": ""}), "spec.containers[0].name: Required value"),
            (json!({"spec.containers.0.image": null}), "spec.containers[0].image: Required value"),
            (
                json!({"spec.containers.0.image": " i"}),
                "spec.containers[0].image: Invalid value: \" i\": must not have leading or trailing whitespace",
            ),
            (
                json!({"spec.initContainers": [{"name": "c", "image": "i"}]}),
                "spec.containers[0].name: Duplicate value: \"c\"",
            ),
            (
                json!({"spec.restartPolicy": "Sometimes"}),
                "spec.restartPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"OnFailure\", \"Never\"",
            ),
            (
                json!({"spec.dnsPolicy": "None"}),
                "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
            ),
            (
                json!({"spec.terminationGracePeriodSeconds": -1}),
                "spec.terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({"spec.activeDeadlineSeconds": 0}),
                "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
            ),
            (
                json!({"spec.ephemeralContainers": [{"name": "e", "image": "i"}]}),
                "spec.ephemeralContainers: Forbidden: cannot be set on create",
            ),
            (
                json!({"spec.hostUsers": false, "spec.hostNetwork": true}),
                "spec.hostNetwork: Forbidden: when `hostUsers` is false",
            ),
            (
                json!({"spec.tolerations": [{"key": "a", "tolerationSeconds": 1}]}),
                "spec.tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set",
            ),
            (
                json!({"spec.tolerations": [{"operator": "Equal"}]}),
                "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
            ),
        ],
    );
}

#[test]
fn containers_are_validated() {
    assert_created(
        "pods",
        &[
            (
                json!({"spec.containers.0.ports": [{"name": "http", "containerPort": 80}, {"name": "http", "containerPort": 0}]}),
                "spec.containers[0].ports[1].name: Duplicate value: \"http\"\n\
                 spec.containers[0].ports[1].containerPort: Required value",
            ),
            (
                json!({"spec.containers.0.ports": [{"containerPort": 70000, "protocol": "ICMP"}]}),
                "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive\n\
                 spec.containers[0].ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ),
            (
                json!({"spec.containers.0.ports": [{"name": "Web", "containerPort": 1}]}),
                "spec.containers[0].ports[0].name: Invalid value: \"Web\": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)",
            ),
            (
                json!({"spec.containers.0.env": [{"value": "x"}]}),
                "spec.containers[0].env[0].name: Required value",
            ),
            (
                json!({"spec.containers.0.env": [{"name": "A=B"}]}),
                "spec.containers[0].env[0].name: Invalid value: \"A=B\": a valid environment variable name must consist only of printable ASCII characters other than '='",
            ),
            (
                json!({"spec.containers.0.env": [{"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}]}),
                "spec.containers[0].env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
            ),
            (
                json!({"spec.containers.0.resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}),
                "spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
            ),
            (
                json!({"spec.containers.0.livenessProbe": {"successThreshold": 2, "exec": {"command": ["x"]}}}),
                "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            ),
            (
                json!({"spec.containers.0.readinessProbe": {}}),
                "spec.containers[0].readinessProbe: Required value: must specify a handler type",
            ),
            (
                json!({"spec.containers.0.readinessProbe": {"exec": {"command": ["x"]}, "tcpSocket": {"port": 1}}}),
                "spec.containers[0].readinessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
            ),
            (
                json!({"spec.initContainers": [{"name": "i", "image": "i", "livenessProbe": {"tcpSocket": {"port": 1}}}]}),
                "spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
            ),
        ],
    );
}

#[test]
fn volumes_and_volume_mounts_are_validated() {
    assert_created(
        "pods",
        &[
            (json!({"spec.volumes": []}), "spec.containers[0].volumeMounts[0].name: Not found: \"v\""),
            (
                json!({"spec.volumes.0": {"name": "v"}}),
                "spec.volumes[0]: Required value: must specify a volume type",
            ),
            (
                json!({"spec.volumes.0": {"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}}),
                "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
            ),
            (
                json!({"spec.volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]}),
                "spec.volumes[1].name: Duplicate value: \"v\"",
            ),
            (
                json!({"spec.volumes.0": {"name": "v", "hostPath": {"path": "/a/../b", "type": "Pipe"}}}),
                "spec.volumes[0].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'\n\
                 spec.volumes[0].hostPath.type: Unsupported value: \"Pipe\": supported values: \"BlockDevice\", \"CharDevice\", \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\"",
            ),
            (
                json!({"spec.volumes.0": {"name": "v", "secret": {"defaultMode": 512}}}),
                "spec.volumes[0].secret.secretName: Required value\n\
                 spec.volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
            ),
            (
                json!({"spec.containers.0.volumeMounts": [{"name": "v", "mountPath": "/a"}, {"name": "v", "mountPath": "/a", "subPath": "/b"}]}),
                "spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/a\": must be unique\n\
                 spec.containers[0].volumeMounts[1].subPath: Invalid value: \"/b\": must be a relative path",
            ),
        ],
    );
}

const POD_RULE: &str = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,\
     `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing \
     tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

#[test]
fn resources_without_a_domain_are_those_of_kubernetes() {
    let path = "spec.containers.0.resources";
    let requests = |name: &str| {
        let mut requests = serde_json::Map::new();
        requests.insert(name.to_owned(), json!("1"));
        let resources = json!({"requests": requests, "limits": requests});
        let mut changes = serde_json::Map::new();
        changes.insert(path.to_owned(), resources);
        created("pods", Value::Object(changes)).lines().next().unwrap_or_default().to_owned()
    };
    let at = |name: &str| format!("spec.containers[0].resources.limits[{name}]: Invalid value: \"{name}\": ");
    for valid in ["cpu", "memory", "hugepages-2Mi", "example.com/gpu", "kubernetes.io/batch-cpu"] {
        assert_eq!(requests(valid), "", "{valid}");
    }
    for (name, expected) in [
        ("foo", "must be a standard resource type or fully qualified"),
        ("pods", "must be a standard resource for containers"),
        ("requests.example.com/gpu", "doesn't follow extended resource name standard"),
    ] {
        assert_eq!(requests(name), format!("{}{expected}", at(name)));
    }
}

#[test]
fn required_node_affinity_has_a_term() {
    let affinity = |terms: Value| {
        let required =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        created("pods", json!({"spec.affinity": {"nodeAffinity": required}}))
    };
    let term = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
    assert_eq!(affinity(json!([term])), "");
    let field = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let expected = format!("{field}: Required value: must have at least one node selector term");
    assert_eq!(affinity(json!([])), expected);
}

#[test]
fn pod_update_may_only_change_mutable_fields() {
    let deadline = json!({"spec.activeDeadlineSeconds": 10});
    let gates = json!({"spec.schedulingGates": [{"name": "a"}]});
    for (before, changes, expected) in [
        (json!({}), json!({"spec.containers.0.image": "i:2"}), ""),
        (json!({}), json!({"metadata.labels": {"a": "b"}}), ""),
        (json!({}), json!({"spec.containers.0.command": [], "spec.hostAliases": null}), ""),
        (json!({}), json!({"spec.containers.0.command": ["x"]}), POD_RULE),
        (json!({}), json!({"spec.nodeName": "n"}), POD_RULE),
        (json!({}), json!({"spec.terminationGracePeriodSeconds": 1}), POD_RULE),
        (json!({}), deadline.clone(), ""),
        (deadline.clone(), json!({"spec.activeDeadlineSeconds": 9}), ""),
        (
            deadline.clone(),
            json!({"spec.activeDeadlineSeconds": 11}),
            "spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous value",
        ),
        (
            deadline,
            json!({"spec.activeDeadlineSeconds": null}),
            "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value",
        ),
        (
            json!({"spec.tolerations": [{"key": "a", "operator": "Exists"}]}),
            json!({"spec.tolerations": [{"key": "b", "operator": "Exists"}, {"key": "a", "operator": "Exists"}]}),
            "",
        ),
        (
            json!({"spec.tolerations": [{"key": "a", "operator": "Exists"}]}),
            json!({"spec.tolerations": []}),
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ),
        (
            json!({}),
            json!({"spec.initContainers": [{"name": "i", "image": "i"}]}),
            "spec.initContainers: Forbidden: pod updates may not add or remove containers",
        ),
        (gates.clone(), json!({"spec.schedulingGates": []}), ""),
        (json!({}), gates, POD_RULE),
    ] {
        assert_eq!(updated("pods", before.clone(), changes.clone()), expected, "{before} then {changes}");
    }
}

#[test]
fn pod_subresources_may_change_their_fields() {
    let old = valid("pods");
    let debug = json!({"spec.ephemeralContainers": [{"name": "e", "image": "i"}]});
    let new = with(old.clone(), &debug);
    assert_eq!(refusals("pods", &new, Some(&old)), POD_RULE);
    assert_eq!(refusals("pods/ephemeralcontainers", &new, Some(&old)), "");
    let port =
        with(old.clone(), &json!({"spec.ephemeralContainers": [{"name": "e", "image": "i", "ports": [{}]}]}));
    let refused = refusals("pods/ephemeralcontainers", &port, Some(&old));
    assert!(refused.contains("ports: Forbidden: not allowed for ephemeral containers"), "{refused}");
    let bound = with(old.clone(), &json!({"spec.nodeName": "n"}));
    assert_eq!(refusals("pods/binding", &bound, Some(&old)), "");
    assert_eq!(
        refusals("pods/status", &with(old.clone(), &json!({"status.phase": "Running"})), Some(&old)),
        ""
    );
}

#[test]
fn node_update_may_not_change_identity() {
    assert_created(
        "nodes",
        &[
            (
                json!({"spec.taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}]}),
                "",
            ),
            (json!({"spec.taints": [{"key": "a"}]}), "metadata.taints[0].effect: Required value"),
            (
                json!({"spec.taints": [{"key": "a", "effect": "Never"}]}),
                "metadata.taints[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
            ),
            (
                json!({"spec.taints": [{"effect": "NoExecute", "key": "a"}, {"effect": "NoExecute", "key": "a"}]}),
                "metadata.taints[1]: Duplicate value: {\"effect\":\"NoExecute\",\"key\":\"a\"}",
            ),
            (
                json!({"status.addresses": [{"address": "1", "type": "InternalIP"}, {"address": "1", "type": "InternalIP"}]}),
                "status.addresses[1]: Duplicate value: {\"address\":\"1\",\"type\":\"InternalIP\"}",
            ),
        ],
    );
    for (before, changes, expected) in [
        (json!({}), json!({"spec.providerID": "a"}), ""),
        (json!({"spec.podCIDRs": []}), json!({"spec.podCIDRs": ["10.0.0.0/24"]}), ""),
        (
            json!({"spec.providerID": "a"}),
            json!({"spec.providerID": "b"}),
            "spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid",
        ),
        (
            json!({"spec.podCIDRs": ["10.0.0.0/24"]}),
            json!({"spec.podCIDRs": []}),
            "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid",
        ),
    ] {
        assert_eq!(updated("nodes", before, changes.clone()), expected, "{changes}");
    }
}

#[test]
fn lease_durations_must_be_positive() {
    assert_created(
        "leases",
        &[
            (
                json!({"spec.leaseDurationSeconds": 0}),
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            ),
            (
                json!({"spec.leaseTransitions": -1}),
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({"spec.preferredHolder": "a"}),
                "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined",
            ),
        ],
    );
}

#[test]
fn secrets_have_the_keys_of_their_type() {
    assert_created(
        "secrets",
        &[
            (
                json!({"type": "kubernetes.io/tls"}),
                "data[tls.crt]: Required value\ndata[tls.key]: Required value",
            ),
            (
                json!({"type": "kubernetes.io/basic-auth"}),
                "data[username]: Required value\ndata[password]: Required value",
            ),
            (
                json!({"type": "kubernetes.io/service-account-token"}),
                "metadata.annotations[kubernetes.io/service-account.name]: Required value",
            ),
            (json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e30="}}), ""),
            (
                json!({"data": {"a": "AAAA".repeat(350_000)}}),
                "data: Too long: may not be more than 1048576 bytes",
            ),
        ],
    );
    let refused = created(
        "secrets",
        json!({"type": "kubernetes.io/dockerconfigjson", "data": {".dockerconfigjson": "e3"}}),
    );
    assert!(refused.contains("data[.dockerconfigjson]: Invalid value: must be base64"), "{refused}");
    let refused = created("secrets", json!({"data": {"a b": ""}}));
    let begin =
        "data[a b]: Invalid value: \"a b\": a valid config key must consist of alphanumeric characters";
    assert!(refused.starts_with(begin), "{refused}");
}

#[test]
fn immutable_secret_and_config_map_data_cannot_change() {
    let immutable = json!({"immutable": true, "data": {"a": "MQ=="}});
    for (resource, before, changes, expected) in [
        ("secrets", json!({}), json!({"type": "x"}), "type: Invalid value: \"x\": field is immutable"),
        (
            "secrets",
            immutable.clone(),
            json!({"data": {"a": "Mg=="}}),
            "data: Forbidden: field is immutable when `immutable` is set",
        ),
        (
            "configmaps",
            immutable.clone(),
            json!({"immutable": false}),
            "immutable: Forbidden: field is immutable when `immutable` is set",
        ),
        ("configmaps", immutable, json!({"metadata.labels": {"a": "b"}}), ""),
        ("configmaps", json!({}), json!({"data": {"a": "2"}}), ""),
    ] {
        assert_eq!(updated(resource, before, changes.clone()), expected, "{resource} {changes}");
    }
}

#[test]
fn config_map_keys_are_unique_across_data_and_binary_data() {
    assert_created(
        "configmaps",
        &[
            (
                json!({"data": {"a": "1"}, "binaryData": {"a": "MQ=="}}),
                "data[a]: Invalid value: \"a\": duplicate of key present in binaryData",
            ),
            (json!({"data": {"..": ""}}), "data[..]: Invalid value: \"..\": must not be '..'"),
            (json!({"data": {"a": "x".repeat(1_048_577)}}), ": Too long: may not be more than 1048576 bytes"),
        ],
    );
}

#[test]
fn certificate_signing_requests_are_validated() {
    assert_created(
        "certificatesigningrequests",
        &[
            (
                json!({"spec.request": STANDARD.encode("no pem")}),
                "spec.request: Invalid value: PEM block type must be CERTIFICATE REQUEST",
            ),
            (json!({"spec.usages": []}), "spec.usages: Required value: usages is required"),
            (
                json!({"spec.usages": ["client auth", "client auth"]}),
                "spec.usages[1]: Duplicate value: \"client auth\"",
            ),
            (json!({"spec.signerName": ""}), "spec.signerName: Required value"),
            (
                json!({"spec.signerName": "kubelet"}),
                "spec.signerName: Invalid value: \"kubelet\": must be a fully qualified domain and path of the form \"example.com/signer-name\"",
            ),
            (
                json!({"spec.signerName": "kubernetes.io/legacy-unknown"}),
                "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API version",
            ),
            (
                json!({"spec.expirationSeconds": 599}),
                "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
            ),
            (
                json!({"status.conditions": [{"type": "Approved"}, {"type": "Denied"}]}),
                "status.conditions[1].type: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive",
            ),
        ],
    );
    let refused = created("certificatesigningrequests", json!({"spec.usages": ["fly"]}));
    assert!(
        refused.starts_with("spec.usages[0]: Unsupported value: \"fly\": supported values: \"any\""),
        "{refused}"
    );
}

#[test]
fn services_are_validated() {
    assert_created(
        "services",
        &[
            (json!({"spec.ports": []}), "spec.ports: Required value"),
            (json!({"spec.ports": [], "spec.clusterIP": "None"}), ""),
            (json!({"spec.type": "ExternalName"}), "spec.externalName: Required value"),
            (
                json!({"spec.ports": [{"port": 1}, {"port": 2, "name": "b"}]}),
                "spec.ports[0].name: Required value",
            ),
            (
                json!({"spec.ports": [{"port": 0}]}),
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            ),
            (
                json!({"spec.clusterIP": "x"}),
                "spec.clusterIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
        ],
    );
    let refused =
        updated("services", json!({"spec.clusterIP": "10.0.0.1"}), json!({"spec.clusterIP": "10.0.0.2"}));
    assert_eq!(refused, "spec.clusterIPs[0]: Invalid value: \"10.0.0.2\": may not change once set");
}

#[test]
fn error_reasons_have_the_names_of_the_api() {
    let errors = check("pods", &with(valid("pods"), &json!({"spec.containers.0.image": ""})), None);
    let cause: Vec<_> =
        errors.iter().map(|e| (e.reason.as_str(), e.field.as_str(), e.message.as_str())).collect();
    assert_eq!(cause, [("FieldValueRequired", "spec.containers[0].image", "Required value")]);
    assert_eq!(Reason::NotSupported.as_str(), "FieldValueNotSupported");
}

#[test]
fn fields_of_the_wrong_type_are_reported_by_decode() {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": "x"}});
    let error = decode("pods", &pod).expect_err("containers are a list");
    assert!(error.starts_with("Pod in version \"v1\" cannot be handled as a Pod: invalid type"), "{error}");
    assert_eq!(decode("widgets", &json!(1)), Ok(()));
}

#[test]
fn arbitrary_trees_never_panic() {
    let odd = [
        json!(null),
        json!(1),
        json!({"metadata": 1, "spec": [], "data": 2, "status": "x"}),
        json!({"spec": {"containers": [1, {"env": [null], "ports": {}}], "volumes": {}, "taints": [[]], "ports": [1]}}),
    ];
    for resource in
        ["pods", "nodes", "leases", "secrets", "configmaps", "certificatesigningrequests", "services"]
    {
        for object in &odd {
            assert!(
                !check(resource, object, Some(object)).is_empty(),
                "{resource} {object} has no name at least"
            );
        }
    }
}

/// `validation_test.go` of the storage group: TestCSINodeValidation and TestCSINodeUpdateValidation.
#[test]
fn csi_node_has_valid_drivers_and_only_their_count_changes() {
    let node = |drivers: Value| json!({"metadata": {"name": "n"}, "spec": {"drivers": drivers}});
    let driver = |changes: Value| {
        let driver = json!({"name": "d.example", "nodeID": "id", "topologyKeys": ["zone.example/a"]});
        with(driver, &changes)
    };
    let one = |changes: Value| refusals("csinodes", &node(json!([driver(changes)])), None);
    assert_eq!(one(json!({})), "");
    assert_eq!(one(json!({"nodeID": ""})), "spec.drivers[0].nodeID: Required value");
    assert_eq!(one(json!({"nodeID": "x".repeat(192)})), "");
    assert!(one(json!({"nodeID": "x".repeat(193)})).ends_with("must be 192 characters or less"));
    assert!(one(json!({"name": "No_Domain"})).contains("a lowercase RFC 1123 subdomain"));
    assert!(one(json!({"topologyKeys": ["a", "a"]})).ends_with("Duplicate value: \"a\""));
    assert!(one(json!({"topologyKeys": ["a b"]})).contains("name part must consist of"));
    assert!(one(json!({"allocatable": {"count": -1}})).contains("must be greater than or equal to 0"));
    let twice = node(json!([driver(json!({})), driver(json!({}))]));
    assert_eq!(refusals("csinodes", &twice, None), "spec.drivers[1].name: Duplicate value: \"d.example\"");

    let old = node(json!([driver(json!({}))]));
    let update = |drivers: Value| refusals("csinodes", &node(drivers), Some(&old));
    assert_eq!(update(json!([driver(json!({"allocatable": {"count": 7}}))])), "");
    assert_eq!(update(json!([])), "");
    assert!(update(json!([driver(json!({"nodeID": "other"}))])).ends_with("field is immutable"));
}

#[test]
fn volume_attachment_names_its_volume_and_never_changes_it() {
    let attachment = json!({"metadata": {"name": "csi-1"}, "spec": {
        "attacher": "d.example", "nodeName": "n", "source": {"persistentVolumeName": "pv"}}});
    let refused = |changes: Value, old: Option<&Value>| {
        refusals("volumeattachments", &with(attachment.clone(), &changes), old)
    };
    assert_eq!(refused(json!({}), Some(&attachment)), "");
    assert_eq!(refused(json!({"spec.nodeName": ""}), None), "spec.nodeName: Required value");
    assert!(refused(json!({"spec.source": {}}), None).starts_with("spec.source: Required value"));
    assert!(refused(json!({"spec.nodeName": "m"}), Some(&attachment)).ends_with("field is immutable"));
}
