//! Pods with many of one part, or of two parts that refer to each other.

use serde_json::{Value, json};

use super::MANY;

pub(super) struct Part {
    pub(super) name: &'static str,
    /// How many the larger pod has.
    pub(super) many: usize,
    pub(super) pod: fn(usize) -> Value,
}

const fn part(name: &'static str, pod: fn(usize) -> Value) -> Part {
    Part { name, many: MANY, pod }
}

/// Containers take more time than other parts.
const fn containers(name: &'static str, pod: fn(usize) -> Value) -> Part {
    Part { name, many: MANY / 3, pod }
}

fn list(n: usize, element: impl Fn(usize) -> Value) -> Value {
    (0..n).map(element).collect()
}

fn map(n: usize, value: &str) -> Value {
    (0..n)
        .map(|i| (format!("example.com/k{i}"), Value::from(value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

fn extend(object: &mut Value, fields: Value) {
    if let (Value::Object(object), Value::Object(fields)) = (object, fields) {
        object.extend(fields);
    }
}

/// A pod whose spec and container have these fields.
fn pod(container: Value, spec: Value) -> Value {
    let mut full = json!({"containers": [main(container)]});
    extend(&mut full, spec);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "big", "namespace": "ns", "uid": "u-1"}, "spec": full})
}

fn main(fields: Value) -> Value {
    let mut main = json!({"name": "main", "image": "busybox:1", "command": ["sleep", "1"]});
    extend(&mut main, fields);
    main
}

fn of_container(field: &str, value: Value) -> Value {
    pod(json!({field: value}), json!({}))
}

fn of_spec(field: &str, value: Value) -> Value {
    pod(json!({}), json!({field: value}))
}

fn with_metadata(field: &str, value: Value) -> Value {
    let mut pod = pod(json!({}), json!({}));
    pod["metadata"][field] = value;
    pod
}

fn busy(i: usize, prefix: &str) -> Value {
    json!({"name": format!("{prefix}{i}"), "image": "busybox:1",
        "resources": {"limits": {"cpu": "1", "memory": "1Gi", format!("example.com/r{i}"): "1"}},
        "readinessProbe": {"exec": {"command": ["true"]}}})
}

/// Volumes of one kind, each mounted.
fn volumes(n: usize, source: impl Fn(usize) -> Value) -> Value {
    let mounts = list(n, |i| json!({"name": format!("v{i}"), "mountPath": format!("/m/{i}")}));
    let volumes = list(n, |i| {
        let mut volume = source(i);
        volume["name"] = json!(format!("v{i}"));
        volume
    });
    pod(json!({"volumeMounts": mounts}), json!({"volumes": volumes}))
}

/// Mounts of one volume.
fn mounts(n: usize, volume: Value, mount: impl Fn(usize) -> Value) -> Value {
    let mut volume = volume;
    volume["name"] = json!("v");
    let mounts = list(n, |i| {
        let mut mount = mount(i);
        mount["name"] = json!("v");
        mount
    });
    pod(json!({"volumeMounts": mounts}), json!({"volumes": [volume]}))
}

fn one_volume(source: Value) -> Value {
    mounts(1, source, |_| json!({"mountPath": "/m"}))
}

pub(super) const PARTS: &[Part] = &[
    containers("containers", |n| of_spec("containers", list(n, |i| busy(i, "c")))),
    containers("init containers", |n| {
        of_spec("initContainers", list(n, |i| json!({"name": format!("i{i}"), "image": "busybox:1"})))
    }),
    containers("sidecars", |n| {
        of_spec(
            "initContainers",
            list(n, |i| {
                let mut sidecar = busy(i, "s");
                sidecar["restartPolicy"] = json!("Always");
                sidecar
            }),
        )
    }),
    containers("ephemeral containers", |n| {
        of_spec(
            "ephemeralContainers",
            list(
                n,
                |i| json!({"name": format!("e{i}"), "image": "busybox:1", "targetContainerName": "main"}),
            ),
        )
    }),
    part("ports", |n| {
        of_container(
            "ports",
            list(n, |i| json!({"name": format!("p{i}"), "containerPort": i + 1, "hostPort": i + 1})),
        )
    }),
    part("mounts of a config map", |n| {
        mounts(n, json!({"configMap": {"name": "few"}}), |i| json!({"mountPath": format!("/m/{i}")}))
    }),
    part("mounts inside mounts", |n| {
        mounts(
            n,
            json!({"configMap": {"name": "few"}}),
            |i| json!({"mountPath": format!("/m/{}/{}/{i}", i % 7, i % 77)}),
        )
    }),
    part("mounts inside one mount", |n| {
        mounts(
            n,
            json!({"configMap": {"name": "few"}}),
            |i| json!({"mountPath": if i == 0 { "/m".to_owned() } else { format!("/m/{i}") }}),
        )
    }),
    part("recursively read-only mounts", |n| {
        mounts(
            n,
            json!({"emptyDir": {}}),
            |i| json!({"mountPath": format!("/m/{i}"), "readOnly": true, "recursiveReadOnly": "IfPossible"}),
        )
    }),
    part("subPaths", |n| {
        mounts(
            n,
            json!({"emptyDir": {}}),
            |i| json!({"mountPath": format!("/m/{i}"), "subPath": format!("s/{i}")}),
        )
    }),
    part("subPathExprs and variables", |n| {
        let mut pod = mounts(
            n,
            json!({"emptyDir": {}}),
            |i| json!({"mountPath": format!("/m/{i}"), "subPathExpr": format!("$(V{i})")}),
        );
        pod["spec"]["containers"][0]["env"] =
            list(n, |i| json!({"name": format!("V{i}"), "value": format!("x{i}")}));
        pod
    }),
    part("emptyDir volumes", |n| volumes(n, |_| json!({"emptyDir": {"sizeLimit": "1Gi"}}))),
    part("emptyDir volumes in memory", |n| volumes(n, |_| json!({"emptyDir": {"medium": "Memory"}}))),
    part("configMap volumes", |n| volumes(n, |_| json!({"configMap": {"name": "few"}}))),
    part("secret volumes", |n| {
        volumes(n, |i| json!({"secret": {"secretName": format!("s{i}"), "optional": true}}))
    }),
    part("projected volumes", |n| {
        volumes(
            n,
            |i| json!({"projected": {"sources": [{"secret": {"name": format!("s{i}"), "optional": true}}]}}),
        )
    }),
    part("downwardAPI volumes", |n| {
        volumes(
            n,
            |_| json!({"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
        )
    }),
    part("claims", |n| volumes(n, |i| json!({"persistentVolumeClaim": {"claimName": format!("c{i}")}}))),
    part("image volumes", |n| volumes(n, |i| json!({"image": {"reference": format!("i{i}:1")}}))),
    part("portals", |n| {
        one_volume(json!({"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2014-12.com.example:a", "lun": 0,
            "portals": list(n, |i| json!(format!("10.0.{}.{}", i / 250, i % 250)))}}))
    }),
    part("block devices", |n| {
        let mut pod = volumes(n, |i| json!({"persistentVolumeClaim": {"claimName": format!("c{i}")}}));
        let devices = list(n, |i| json!({"name": format!("v{i}"), "devicePath": format!("/dev/x{i}")}));
        pod["spec"]["containers"][0]["volumeDevices"] = devices;
        pod
    }),
    part("items of a config map", |n| {
        one_volume(
            json!({"configMap": {"name": "few", "items": list(n, |i| json!({"key": "k", "path": format!("f{i}")}))}}),
        )
    }),
    part("projected sources", |n| {
        one_volume(json!({"projected": {"sources": list(n, |i| {
            json!({"configMap": {"name": "few", "items": [{"key": "k", "path": format!("f{i}")}]}})
        })}}))
    }),
    part("pod certificates", |n| {
        one_volume(json!({"projected": {"sources": list(n, |i| {
            json!({"podCertificate": {"signerName": "a.example/b", "keyType": "ED25519", "keyPath": format!("f{i}")}})
        })}}))
    }),
    part("downwardAPI items", |n| {
        one_volume(json!({"downwardAPI": {"items": list(n, |i| {
            json!({"path": format!("f{i}"), "resourceFieldRef": {"containerName": "main", "resource": "limits.cpu"}})
        })}}))
    }),
    part("variables", |n| {
        of_container("env", list(n, |i| json!({"name": format!("V{i}"), "value": format!("$(V{})x", i / 2)})))
    }),
    part("variables from the pod", |n| {
        of_container(
            "env",
            list(
                n,
                |i| json!({"name": format!("V{i}"), "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}),
            ),
        )
    }),
    part("variables from objects", |n| {
        of_container(
            "env",
            list(
                n,
                |i| json!({"name": format!("V{i}"), "valueFrom": {"secretKeyRef": {"name": format!("s{i}"), "key": "k", "optional": true}}}),
            ),
        )
    }),
    part("variables from files", |n| {
        let mut pod = volumes(n, |_| json!({"emptyDir": {}}));
        pod["spec"]["containers"][0]["env"] = list(
            n,
            |i| json!({"name": format!("V{i}"), "valueFrom": {"fileKeyRef": {"volumeName": format!("v{i}"), "path": "f", "key": "K", "optional": true}}}),
        );
        pod
    }),
    part("envFrom", |n| {
        of_container(
            "envFrom",
            list(n, |i| json!({"secretRef": {"name": format!("s{i}"), "optional": true}})),
        )
    }),
    part("words of the command", |n| of_container("args", list(n, |i| json!(format!("$(V{i})"))))),
    part("headers of a probe", |n| {
        of_container(
            "livenessProbe",
            json!({"httpGet": {"port": 80, "httpHeaders": list(n, |i| json!({"name": format!("X-{i}"), "value": "x"}))}}),
        )
    }),
    part("words of a probe, and variables", |n| {
        let mut pod = of_container(
            "livenessProbe",
            json!({"exec": {"command": list(n, |i| json!(format!("$(V{i})")))}}),
        );
        pod["spec"]["containers"][0]["env"] = list(n, |i| json!({"name": format!("V{i}"), "value": "x"}));
        pod
    }),
    part("named ports, and a probe of the last", |n| {
        let mut pod =
            of_container("ports", list(n, |i| json!({"name": format!("p{i}"), "containerPort": i + 1})));
        pod["spec"]["containers"][0]["readinessProbe"] =
            json!({"tcpSocket": {"port": format!("p{}", n - 1)}});
        pod
    }),
    part("resources", |n| of_container("resources", json!({"limits": map(n, "1"), "requests": map(n, "1")}))),
    part("sizes of huge pages", |n| {
        let sizes: serde_json::Map<_, _> =
            (0..n).map(|i| (format!("hugepages-{}Ki", i + 1), json!("1Gi"))).collect();
        let mut pod = volumes(n, |_| json!({"emptyDir": {"medium": "HugePages-2Mi"}}));
        pod["spec"]["containers"][0]["resources"] = json!({"limits": sizes});
        pod
    }),
    part("resize policies", |n| {
        of_container(
            "resizePolicy",
            list(n, |i| json!({"resourceName": format!("r{i}"), "restartPolicy": "NotRequired"})),
        )
    }),
    part("capabilities", |n| {
        of_container(
            "securityContext",
            json!({"capabilities": {"add": list(n, |i| json!(format!("C{i}"))), "drop": list(n, |i| json!(format!("C{i}")))}}),
        )
    }),
    part("restart rules", |n| {
        of_container(
            "restartPolicyRules",
            list(
                n,
                |i| json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [i % 200 + 2]}}),
            ),
        )
    }),
    part("host aliases", |n| {
        of_spec("hostAliases", list(n, |i| json!({"ip": "10.0.0.1", "hostnames": [format!("h{i}")]})))
    }),
    part("names of a host alias", |n| {
        of_spec("hostAliases", json!([{"ip": "10.0.0.1", "hostnames": list(n, |i| json!(format!("h{i}")))}]))
    }),
    part("labels", |n| with_metadata("labels", map(n, "x"))),
    part("annotations", |n| with_metadata("annotations", map(n, "x"))),
    part("finalizers", |n| with_metadata("finalizers", list(n, |i| json!(format!("example.com/f{i}"))))),
    part("owners", |n| {
        with_metadata(
            "ownerReferences",
            list(
                n,
                |i| json!({"apiVersion": "v1", "kind": "X", "name": format!("o{i}"), "uid": format!("{i}")}),
            ),
        )
    }),
    part("tolerations", |n| {
        of_spec("tolerations", list(n, |i| json!({"key": format!("k{i}"), "operator": "Exists"})))
    }),
    part("node selectors", |n| of_spec("nodeSelector", map(n, "x"))),
    part("terms of node affinity", |n| {
        let term =
            |i| json!({"matchExpressions": [{"key": "k", "operator": "In", "values": [format!("v{i}")]}]});
        let required = json!({"nodeSelectorTerms": list(n, term)});
        of_spec(
            "affinity",
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}),
        )
    }),
    part("readiness gates, and their conditions", |n| {
        let mut pod =
            of_spec("readinessGates", list(n, |i| json!({"conditionType": format!("example.com/g{i}")})));
        pod["status"] = json!({"conditions": list(n, |i| json!({"type": format!("example.com/g{i}"), "status": "True"}))});
        pod
    }),
    part("pull secrets", |n| of_spec("imagePullSecrets", list(n, |i| json!({"name": format!("s{i}")})))),
    part("sysctls", |n| {
        of_spec(
            "securityContext",
            json!({"sysctls": list(n, |i| json!({"name": format!("net.x{i}"), "value": "1"}))}),
        )
    }),
    part("supplemental groups", |n| {
        of_spec("securityContext", json!({"supplementalGroups": list(n, |i| json!(i + 1))}))
    }),
    part("DNS settings", |n| {
        of_spec(
            "dnsConfig",
            json!({"nameservers": list(n, |i| json!(format!("10.0.{}.{}", i / 250, i % 250))),
            "searches": list(n, |i| json!(format!("d{i}.example"))),
            "options": list(n, |i| json!({"name": format!("o{i}"), "value": "1"}))}),
        )
    }),
    part("overhead", |n| of_spec("overhead", map(n, "1"))),
    part("resource claims", |n| {
        of_spec(
            "resourceClaims",
            list(n, |i| json!({"name": format!("c{i}"), "resourceClaimName": format!("c{i}")})),
        )
    }),
    part("scheduling gates", |n| of_spec("schedulingGates", list(n, |i| json!({"name": format!("g{i}")})))),
    part("topology constraints", |n| {
        of_spec(
            "topologySpreadConstraints",
            list(
                n,
                |i| json!({"maxSkew": 1, "topologyKey": format!("k{i}"), "whenUnsatisfiable": "ScheduleAnyway"}),
            ),
        )
    }),
    containers("containers, each with a volume", |n| {
        let container = |i| {
            json!({"name": format!("c{i}"), "image": "busybox:1",
            "volumeMounts": [{"name": format!("v{i}"), "mountPath": "/m"}, {"name": "all", "mountPath": "/m/a"}]})
        };
        let volumes = list(n + 1, |i| match i == n {
            true => json!({"name": "all", "configMap": {"name": "few"}}),
            false => {
                json!({"name": format!("v{i}"), "secret": {"secretName": format!("s{i}"), "optional": true}})
            }
        });
        let mut pod = of_spec("containers", list(n, container));
        pod["spec"]["volumes"] = volumes;
        pod
    }),
];
