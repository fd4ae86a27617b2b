//! One change to a good pod a line, and what is said about it.

use model::k8s::Pod;
use serde_json::{Value, json};

use super::*;
use crate::static_pod::apply_defaults;

/// A pod with nothing wrong: two containers, an init container, a sidecar, two volumes.
fn good() -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "initContainers": [
                {"name": "init", "image": "i"},
                {"name": "side", "image": "i", "restartPolicy": "Always", "ports": [{"containerPort": 9, "hostPort": 9}]},
            ],
            "containers": [
                {
                    "name": "app",
                    "image": "nginx",
                    "ports": [{"name": "http", "containerPort": 80, "hostPort": 8080}],
                    "env": [{"name": "A", "value": "1"}],
                    "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    "livenessProbe": {"httpGet": {"port": 80}},
                    "readinessProbe": {"tcpSocket": {"port": "http"}},
                    "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                    "securityContext": {},
                },
                {"name": "other", "image": "busybox"},
            ],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/var"}}],
            "securityContext": {},
        },
    })
}

/// Puts the value where the path leads, making objects on the way. `null` takes the field away.
fn put(tree: &mut Value, path: &str, value: &Value) {
    let mut at = tree;
    for step in path.split('/') {
        at = match step.parse::<usize>() {
            Ok(index) => {
                let list = at.as_array_mut().expect(path);
                while list.len() <= index {
                    list.push(json!({}));
                }
                &mut list[index]
            }
            Err(_) => &mut at[step],
        };
    }
    *at = value.clone();
}

fn complaints(changes: &[(&str, Value)]) -> String {
    complaints_with(Features::default(), changes)
}

fn complaints_with(features: Features, changes: &[(&str, Value)]) -> String {
    let mut tree = good();
    for (path, value) in changes {
        put(&mut tree, path, value);
    }
    let mut pod: Pod = serde_json::from_value(tree).expect("still a pod");
    apply_defaults(&mut pod);
    validate_pod(&pod, features).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

#[track_caller]
fn check(path: &str, value: Value, expected: &str) {
    assert_eq!(complaints(&[(path, value)]), expected);
}

/// A change within the first container; complaints are shown from there on.
#[track_caller]
fn check_app(path: &str, value: Value, expected: &str) {
    let found = complaints(&[(&format!("spec/containers/0/{path}"), value)]);
    assert_eq!(found.replace("spec.containers[0].", ""), expected);
}

/// A change within the spec; complaints are shown from there on.
#[track_caller]
fn check_spec(path: &str, value: Value, expected: &str) {
    let found = complaints(&[(&format!("spec/{path}"), value)]);
    assert_eq!(found.replace("spec.", ""), expected);
}

const LABEL_RULE: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
     and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";

const SUBDOMAIN_RULE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
     must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

#[test]
fn a_good_pod_has_nothing_wrong() {
    assert_eq!(complaints(&[]), "");
}

#[test]
fn metadata() {
    check("metadata/name", json!(""), "metadata.name: Required value: name or generateName is required");
    check("metadata/name", json!("A"), &format!("metadata.name: Invalid value: \"A\": {SUBDOMAIN_RULE}"));
    check("metadata/name", json!("a.b-c.1"), "");
    check(
        "metadata/name",
        json!("a".repeat(254)),
        &format!(
            "metadata.name: Invalid value: \"{}\": must be no more than 253 characters",
            "a".repeat(254)
        ),
    );
    check(
        "metadata/namespace",
        json!("a.b"),
        &format!("metadata.namespace: Invalid value: \"a.b\": {LABEL_RULE}"),
    );
    check("metadata/uid", json!("9a15d2b5-c152-46b9-96e0-d57032629e1f"), "");
    for (uid, problem) in [
        ("../../../etc", "may not contain '/'"),
        ("..", "may not be '..'"),
        (".", "may not be '.'"),
        ("a\0", "may not contain control characters"),
    ] {
        let complaint = format!("metadata.uid: Invalid value: {uid:?}: {problem}");
        check("metadata/uid", json!(uid), &complaint);
    }
    check("metadata/labels", json!({"example.org/a_B.c": "x.Y_1"}), "");
    check(
        "metadata/labels",
        json!({"": "x"}),
        "metadata.labels: Invalid value: \"\": name part must be non-empty",
    );
    check(
        "metadata/labels",
        json!({"/a": "x"}),
        "metadata.labels: Invalid value: \"/a\": prefix part must be non-empty",
    );
    check(
        "metadata/labels",
        json!({"a": "v".repeat(64)}),
        &format!(
            "metadata.labels: Invalid value: \"{}\": must be no more than 63 characters",
            "v".repeat(64)
        ),
    );
    check("metadata/annotations", json!({"Example.org/A": "any thing"}), "");
    check(
        "metadata/annotations",
        json!({"a_b/c": ""}),
        "metadata.annotations: Invalid value: \"a_b/c\": prefix part must be a DNS subdomain",
    );
}

#[test]
fn names_and_images_of_containers() {
    check_spec("containers", json!([]), "containers: Required value");
    check_app("name", json!(""), "name: Required value");
    check_app("name", json!("A_"), &format!("name: Invalid value: \"A_\": {LABEL_RULE}"));
    check_app("image", json!(""), "image: Required value");
    check_app(
        "image",
        json!(" i"),
        "image: Invalid value: \" i\": must not have leading or trailing whitespace",
    );
    check_spec("containers/1/name", json!("app"), "containers[1].name: Duplicate value: \"app\"");
    check_spec("initContainers/0/name", json!("app"), "initContainers[0].name: Duplicate value: \"app\"");
    check_app(
        "imagePullPolicy",
        json!("Sometimes"),
        "imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \"IfNotPresent\", \"Never\"",
    );
    check_app(
        "terminationMessagePolicy",
        json!("Log"),
        "terminationMessagePolicy: Unsupported value: \"Log\": supported values: \"FallbackToLogsOnError\", \"File\"",
    );
    check_spec(
        "ephemeralContainers",
        json!([{"name": "e", "image": "i"}]),
        "ephemeralContainers: Forbidden: cannot be set on create",
    );
}

#[test]
fn ports() {
    let range = "must be between 1 and 65535, inclusive";
    check_app("ports/0/containerPort", json!(0), "ports[0].containerPort: Required value");
    check_app(
        "ports/0/containerPort",
        json!(70000),
        &format!("ports[0].containerPort: Invalid value: 70000: {range}"),
    );
    check_app("ports/0/hostPort", json!(-1), &format!("ports[0].hostPort: Invalid value: -1: {range}"));
    check_app(
        "ports/0/protocol",
        json!("ICMP"),
        "ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
    );
    check_app(
        "ports/0/hostIP",
        json!("here"),
        "ports[0].hostIP: Invalid value: \"here\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
    );
    check_app(
        "ports/0/name",
        json!("much-too-long-name"),
        "ports[0].name: Invalid value: \"much-too-long-name\": must be no more than 15 characters",
    );
    check_app(
        "ports/0/name",
        json!("80"),
        "ports[0].name: Invalid value: \"80\": must contain at least one letter (a-z)",
    );
    check_app(
        "ports/0/name",
        json!("a--b"),
        "ports[0].name: Invalid value: \"a--b\": must not contain consecutive hyphens",
    );
    check_app(
        "ports/0/name",
        json!("a-"),
        "ports[0].name: Invalid value: \"a-\": must not begin or end with a hyphen",
    );
    check_app(
        "ports/1",
        json!({"name": "http", "containerPort": 81}),
        "ports[1].name: Duplicate value: \"http\"",
    );
    check_spec(
        "containers/1/ports",
        json!([{"containerPort": 1, "hostPort": 8080}]),
        "containers[1].ports[0].hostPort: Duplicate value: \"TCP//8080\"",
    );
    check_spec("containers/1/ports", json!([{"containerPort": 1, "hostPort": 8080, "protocol": "UDP"}]), "");
    check_spec("initContainers/0/ports", json!([{"containerPort": 1, "hostPort": 8080}]), "");
    check_spec(
        "containers/1/ports",
        json!([{"containerPort": 1, "hostPort": 9}]),
        "initContainers[1].ports[0].hostPort: Duplicate value: \"TCP//9\"",
    );
    check_spec(
        "hostNetwork",
        json!(true),
        "containers[0].ports[0].containerPort: Invalid value: 80: must match `hostPort` when `hostNetwork` is true",
    );
}

#[test]
fn environments() {
    check_app("env/0/name", json!(""), "env[0].name: Required value");
    check_app("env/0/name", json!("my.var-1 x"), "");
    check_app(
        "env/0/name",
        json!("A=B"),
        "env[0].name: Invalid value: \"A=B\": a valid environment variable name must consist only of printable ASCII \
         characters other than '='",
    );
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    check_app("env/0", json!({"name": "A", "valueFrom": field("metadata.labels['a']")}), "");
    check_app(
        "env/0/valueFrom",
        field("metadata.name"),
        "env[0].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
    );
    check_app(
        "env/0",
        json!({"name": "A", "valueFrom": {}}),
        "env[0].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, \
         `secretKeyRef` or `fileKeyRef`",
    );
    check_app(
        "env/0",
        json!({"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}, "resourceFieldRef": {"resource": "limits.cpu"}}}),
        "env[0].valueFrom: Invalid value: \"\": may not have more than one field specified at a time",
    );
    check_app(
        "env/0",
        json!({"name": "A", "valueFrom": field("metadata.labels")}),
        "env[0].valueFrom.fieldRef.fieldPath: Unsupported value: \"metadata.labels\": supported values: \"metadata.name\", \
         \"metadata.namespace\", \"metadata.uid\", \"spec.nodeName\", \"spec.serviceAccountName\", \"status.hostIP\", \
         \"status.hostIPs\", \"status.podIP\", \"status.podIPs\"",
    );
    check_app(
        "env/0",
        json!({"name": "A", "valueFrom": {"resourceFieldRef": {"resource": ""}}}),
        "env[0].valueFrom.resourceFieldRef.resource: Required value",
    );
    check_app(
        "env/0",
        json!({"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "x"}}}),
        "env[0].valueFrom.resourceFieldRef.divisor: Invalid value: \"x\": must be a valid resource quantity",
    );
    let file = |volume: &str, path: &str, key: &str| json!({"name": "A", "valueFrom": {"fileKeyRef": {"volumeName": volume, "path": path, "key": key}}});
    check_app("env/0", file("v", "conf/env", "KEY"), "");
    check_app(
        "env/0",
        file("", "", ""),
        "env[0].valueFrom.fileKeyRef.key: Required value\nenv[0].valueFrom.fileKeyRef.path: Required value\n\
         env[0].valueFrom.fileKeyRef.volumeName: Required value",
    );
    check_app(
        "env/0",
        file("none", "../env", "A=B"),
        "env[0].valueFrom.fileKeyRef.key: Invalid value: \"A=B\": a valid environment variable name must consist only of \
         printable ASCII characters other than '='\n\
         env[0].valueFrom.fileKeyRef.path: Invalid value: \"../env\": must not contain '..'\n\
         env[0].valueFrom.fileKeyRef.volumeName: Not found: \"none\"",
    );
    check_app(
        "env/0",
        file("h", "/env", &"K".repeat(129)),
        &format!(
            "env[0].valueFrom.fileKeyRef.key: Invalid value: \"{}\": must be no more than 128 bytes\n\
             env[0].valueFrom.fileKeyRef.path: Invalid value: \"/env\": must be a relative path\n\
             env[0].valueFrom.fileKeyRef.volumeName: Invalid value: \"h\": must name an emptyDir volume",
            "K".repeat(129)
        ),
    );
    check_app(
        "envFrom",
        json!([{}]),
        "envFrom[0]: Invalid value: \"\": must specify one of: `configMapRef` or `secretRef`",
    );
}

#[test]
fn resources() {
    check_app(
        "resources/limits/cpu",
        json!("one"),
        "resources.limits[cpu]: Invalid value: \"one\": quantity \"one\" is not a number with an optional suffix (n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, e<exp>)\nresources.requests[cpu]: Invalid value: \"one\": quantity \"one\" is not a number with an optional suffix (n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei, e<exp>)",
    );
    check_app(
        "resources/requests",
        json!({"cpu": "2"}),
        "resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1",
    );
    check_app(
        "resources/requests",
        json!({"memory": "-1"}),
        "resources.requests[memory]: Invalid value: \"-1\": must be greater than or equal to 0",
    );
    check_app(
        "resources/requests",
        json!({"disk": "1"}),
        "resources.requests: Invalid value: \"disk\": must be a standard resource for containers\n\
         resources.requests: Required value: Limit must be set for non overcommitable resources",
    );
    check_app(
        "resources",
        json!({"requests": {"example.org/gpu": "1"}, "limits": {"example.org/gpu": "2"}}),
        "resources.requests: Invalid value: \"1\": must be equal to example.org/gpu limit of 2",
    );
    check_app(
        "resources",
        json!({"limits": {"hugepages-2Mi": "4Mi"}}),
        "resources: Forbidden: HugePages require cpu or memory",
    );
    check_app("resources/limits/hugepages-2Mi", json!("4Mi"), "");
    check_app(
        "resources/claims",
        json!([{"name": "c"}]),
        "resources.claims: Forbidden: static pods may not reference resourceclaims",
    );
    check_spec("resources", json!({"limits": {"cpu": "4", "memory": "4Gi"}}), "");
    check_spec(
        "resources",
        json!({"requests": {"ephemeral-storage": "4"}, "limits": {"ephemeral-storage": "4"}}),
        "resources.limits[ephemeral-storage]: Unsupported value: \"ephemeral-storage\": supported values: \"cpu\", \
         \"memory\"\nresources.requests[ephemeral-storage]: Unsupported value: \"ephemeral-storage\": supported values: \
         \"cpu\", \"memory\"",
    );
}

#[test]
fn probes() {
    check_app("livenessProbe", json!({}), "livenessProbe: Required value: must specify a handler type");
    check_app(
        "livenessProbe/exec",
        json!({"command": ["true"]}),
        "livenessProbe.httpGet: Forbidden: may not specify more than 1 handler type",
    );
    check_app("livenessProbe", json!({"exec": {}}), "livenessProbe.exec.command: Required value");
    for field in ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "failureThreshold"] {
        check_app(
            &format!("livenessProbe/{field}"),
            json!(-1),
            &format!("livenessProbe.{field}: Invalid value: -1: must be greater than or equal to 0"),
        );
    }
    check_app(
        "livenessProbe/successThreshold",
        json!(2),
        "livenessProbe.successThreshold: Invalid value: 2: must be 1",
    );
    check_app("readinessProbe/successThreshold", json!(2), "");
    check_app(
        "livenessProbe/terminationGracePeriodSeconds",
        json!(0),
        "livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
    );
    check_app(
        "readinessProbe/terminationGracePeriodSeconds",
        json!(5),
        "readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes",
    );
    check_app(
        "livenessProbe/httpGet/port",
        json!(0),
        "livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
    );
    check_app(
        "livenessProbe/httpGet/scheme",
        json!("FTP"),
        "livenessProbe.httpGet.scheme: Unsupported value: \"FTP\": supported values: \"HTTP\", \"HTTPS\"",
    );
    check_app(
        "livenessProbe/httpGet/httpHeaders",
        json!([{"name": "a b", "value": ""}]),
        "livenessProbe.httpGet.httpHeaders[0].name: Invalid value: \"a b\": a valid HTTP header must consist of \
         alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
    );
    check_app(
        "readinessProbe/tcpSocket/port",
        json!("-"),
        "readinessProbe.tcpSocket.port: Invalid value: \"-\": must contain at least one letter (a-z)\n\
         readinessProbe.tcpSocket.port: Invalid value: \"-\": must not begin or end with a hyphen",
    );
    check_app(
        "readinessProbe",
        json!({"grpc": {"port": 0}}),
        "readinessProbe.grpc.port: Invalid value: 0: must be between 1 and 65535, inclusive",
    );
    let once = "Forbidden: may not be set for init containers without restartPolicy=Always";
    let tcp = json!({"tcpSocket": {"port": 1}});
    check_spec(
        "initContainers/0/startupProbe",
        tcp.clone(),
        &format!("initContainers[0].startupProbe: {once}"),
    );
    check_spec("initContainers/0/lifecycle", json!({}), &format!("initContainers[0].lifecycle: {once}"));
    check_spec("initContainers/1/startupProbe", tcp, "");
}

#[test]
fn hooks() {
    check_app(
        "lifecycle/preStop",
        json!({}),
        "lifecycle.preStop: Required value: must specify a handler type",
    );
    check_app("lifecycle/postStart", json!({"sleep": {"seconds": 0}}), "");
    check_app(
        "lifecycle/postStart",
        json!({"sleep": {"seconds": 31}}),
        "lifecycle.postStart.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
    );
    check_app(
        "lifecycle/preStop/sleep",
        json!({"seconds": 1}),
        "lifecycle.preStop.sleep: Forbidden: may not specify more than 1 handler type",
    );
}

#[test]
fn policies_of_the_pod() {
    check_spec(
        "restartPolicy",
        json!("Perhaps"),
        "restartPolicy: Unsupported value: \"Perhaps\": supported values: \"Always\", \"Never\", \"OnFailure\"",
    );
    check_spec(
        "terminationGracePeriodSeconds",
        json!(-1),
        "terminationGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
    );
    let range = "must be between 1 and 2147483647, inclusive";
    check_spec(
        "activeDeadlineSeconds",
        json!(0),
        &format!("activeDeadlineSeconds: Invalid value: 0: {range}"),
    );
    check_spec(
        "activeDeadlineSeconds",
        json!(2_147_483_648_i64),
        &format!("activeDeadlineSeconds: Invalid value: 2147483648: {range}"),
    );
    check_spec(
        "os",
        json!({"name": "plan9"}),
        "os.name: Unsupported value: \"plan9\": supported values: \"linux\", \"windows\"",
    );
    check_spec(
        "priorityClassName",
        json!("A"),
        &format!("priorityClassName: Invalid value: \"A\": {SUBDOMAIN_RULE}"),
    );
    check_spec(
        "runtimeClassName",
        json!("A"),
        &format!("runtimeClassName: Invalid value: \"A\": {SUBDOMAIN_RULE}"),
    );
    check_spec(
        "preemptionPolicy",
        json!("Rude"),
        "preemptionPolicy: Unsupported value: \"Rude\": supported values: \"Never\", \"PreemptLowerPriority\"",
    );
}

#[test]
fn restart_rules_of_containers() {
    check_app(
        "restartPolicy",
        json!("Perhaps"),
        "restartPolicy: Unsupported value: \"Perhaps\": supported values: \"Always\", \"Never\", \"OnFailure\"",
    );
    let rule = json!({"action": "Restart", "exitCodes": {"operator": "In", "values": [1, 2]}});
    check_app(
        "restartPolicyRules",
        json!([rule]),
        "restartPolicy: Required value: must specify restartPolicy when restart rules are used",
    );
    let with = |rules: Value| {
        let found = complaints(&[
            ("spec/containers/0/restartPolicy", json!("Never")),
            ("spec/containers/0/restartPolicyRules", rules),
        ]);
        found.replace("spec.containers[0].restartPolicyRules", "rules")
    };
    assert_eq!(with(json!([rule])), "");
    assert_eq!(with(json!(vec![rule; 21])), "rules: Too many: 21: must have at most 20 items");
    assert_eq!(
        with(json!([{"action": "Dance"}])),
        "rules[0].action: Unsupported value: \"Dance\": supported values: \"Restart\", \"RestartAllContainers\"\n\
         rules[0].exitCodes: Required value: must be specified"
    );
    assert_eq!(
        with(json!([{"action": "Restart", "exitCodes": {"operator": "Near", "values": []}}])),
        "rules[0].exitCodes.operator: Unsupported value: \"Near\": supported values: \"In\", \"NotIn\"\n\
         rules[0].exitCodes.values: Required value: at least one value must be specified"
    );
    assert_eq!(
        with(json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [256, 1, 1]}}])),
        "rules[0].exitCodes.values[0]: Invalid value: 256: must be between 0 and 255, inclusive\n\
         rules[0].exitCodes.values[2]: Duplicate value: \"1\""
    );
}

#[test]
fn host_names() {
    check_spec("hostname", json!("a.b"), &format!("hostname: Invalid value: \"a.b\": {LABEL_RULE}"));
    check_spec("subdomain", json!("a.b"), &format!("subdomain: Invalid value: \"a.b\": {LABEL_RULE}"));
    check_spec("hostnameOverride", json!("a.b"), "");
    check_spec(
        "hostnameOverride",
        json!("A"),
        &format!("hostnameOverride: Invalid value: \"A\": {SUBDOMAIN_RULE}"),
    );
    assert_eq!(
        complaints(&[("spec/hostnameOverride", json!("a")), ("spec/setHostnameAsFQDN", json!(true))]),
        "spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true"
    );
    check_spec(
        "hostAliases",
        json!([{"ip": "x", "hostnames": ["_"]}]),
        &format!(
            "hostAliases[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)\n\
             hostAliases[0].hostnames[0]: Invalid value: \"_\": {SUBDOMAIN_RULE}"
        ),
    );
}

#[test]
fn dns() {
    check_spec(
        "dnsPolicy",
        json!("Guess"),
        "dnsPolicy: Unsupported value: \"Guess\": supported values: \"ClusterFirst\", \"ClusterFirstWithHostNet\", \
         \"Default\", \"None\"",
    );
    check_spec(
        "dnsPolicy",
        json!("None"),
        "dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
    );
    assert_eq!(
        complaints(&[("spec/dnsPolicy", json!("None")), ("spec/dnsConfig", json!({}))]),
        "spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None"
    );
    check_spec(
        "dnsConfig",
        json!({"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"]}),
        "dnsConfig.nameservers: Invalid value: \"1.1.1.1,1.1.1.2,1.1.1.3,1.1.1.4\": must not have more than 3 nameservers",
    );
    check_spec(
        "dnsConfig",
        json!({"nameservers": ["one"]}),
        "dnsConfig.nameservers[0]: Invalid value: \"one\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
    );
    check_spec("dnsConfig", json!({"searches": [".", "a.b.", "_x.y"]}), "");
    check_spec(
        "dnsConfig",
        json!({"searches": ["A"]}),
        &format!("dnsConfig.searches[0]: Invalid value: \"A\": {SUBDOMAIN_RULE}"),
    );
    check_spec(
        "dnsConfig",
        json!({"options": [{"value": "1"}]}),
        "dnsConfig.options[0]: Required value: must not be empty",
    );
}

#[test]
fn namespaces_of_the_pod() {
    assert_eq!(
        complaints(&[("spec/shareProcessNamespace", json!(true)), ("spec/hostPID", json!(true))]),
        "spec.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled"
    );
    for field in ["hostPID", "hostIPC"] {
        assert_eq!(
            complaints(&[("spec/hostUsers", json!(false)), (&format!("spec/{field}"), json!(true))]),
            format!("spec.{field}: Forbidden: when `hostUsers` is false")
        );
    }
}

#[test]
fn security_of_the_pod() {
    let range = "must be between 0 and 2147483647, inclusive";
    for field in ["runAsUser", "runAsGroup", "fsGroup"] {
        check_spec(
            &format!("securityContext/{field}"),
            json!(-1),
            &format!("securityContext.{field}: Invalid value: -1: {range}"),
        );
    }
    check_spec(
        "securityContext/supplementalGroups",
        json!([1, -1]),
        &format!("securityContext.supplementalGroups[1]: Invalid value: -1: {range}"),
    );
    check_spec(
        "securityContext/supplementalGroupsPolicy",
        json!("Some"),
        "securityContext.supplementalGroupsPolicy: Unsupported value: \"Some\": supported values: \"Merge\", \"Strict\"",
    );
    check_spec(
        "securityContext/fsGroupChangePolicy",
        json!("Some"),
        "securityContext.fsGroupChangePolicy: Unsupported value: \"Some\": supported values: \"Always\", \"OnRootMismatch\"",
    );
    check_spec("securityContext/sysctls", json!([{"name": "net.ipv4/conf.eth0", "value": "1"}]), "");
    check_spec(
        "securityContext/sysctls",
        json!([{"name": "a..b", "value": "1"}, {"name": "", "value": "1"}]),
        "securityContext.sysctls[0].name: Invalid value: \"a..b\": must have at most 253 characters and match regex \
         ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$\n\
         securityContext.sysctls[1].name: Required value",
    );
    check_spec(
        "securityContext/sysctls",
        json!([{"name": "a.b", "value": "1"}, {"name": "a/b", "value": "1"}]),
        "securityContext.sysctls[1].name: Duplicate value: \"a/b\"",
    );
}

#[test]
fn security_of_containers() {
    check_app(
        "securityContext",
        json!({"privileged": true, "allowPrivilegeEscalation": false}),
        "securityContext.allowPrivilegeEscalation: Invalid value: false: cannot set `allowPrivilegeEscalation` to false and \
         `privileged` to true",
    );
    check_app(
        "securityContext",
        json!({"capabilities": {"add": ["CAP_SYS_ADMIN"]}, "allowPrivilegeEscalation": false}),
        "securityContext.allowPrivilegeEscalation: Invalid value: false: cannot set `allowPrivilegeEscalation` to false and \
         `capabilities.Add` CAP_SYS_ADMIN",
    );
    check_app(
        "securityContext",
        json!({"procMount": "Unmasked"}),
        "securityContext.procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`",
    );
    check_app(
        "securityContext",
        json!({"procMount": "Half"}),
        "securityContext.procMount: Unsupported value: \"Half\": supported values: \"Default\", \"Unmasked\"",
    );
    let seccomp = |profile: Value| json!({ "seccompProfile": profile });
    check_app(
        "securityContext",
        seccomp(json!({"type": "Some"})),
        "securityContext.seccompProfile.type: Unsupported value: \"Some\": supported values: \"Localhost\", \
         \"RuntimeDefault\", \"Unconfined\"",
    );
    check_app(
        "securityContext",
        seccomp(json!({"type": "Localhost"})),
        "securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
    );
    check_app(
        "securityContext",
        seccomp(json!({"type": "Localhost", "localhostProfile": "../x"})),
        "securityContext.seccompProfile.localhostProfile: Invalid value: \"../x\": must not contain '..'",
    );
    check_app(
        "securityContext",
        seccomp(json!({"type": "Unconfined", "localhostProfile": "x"})),
        "securityContext.seccompProfile.localhostProfile: Invalid value: \"x\": can only be set when seccomp type is Localhost",
    );
    check_app(
        "securityContext",
        json!({"appArmorProfile": {"type": "Localhost"}}),
        "securityContext.appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost",
    );
}

#[test]
fn volumes() {
    check_spec("volumes/1/name", json!("v"), "volumes[1].name: Duplicate value: \"v\"");
    check_spec("volumes/1/name", json!(""), "volumes[1].name: Required value");
    check_spec(
        "volumes/1/name",
        json!("a.b"),
        &format!("volumes[1].name: Invalid value: \"a.b\": {LABEL_RULE}"),
    );
    check_spec(
        "volumes/1/emptyDir",
        json!({}),
        "volumes[1].hostPath: Forbidden: may not specify more than 1 volume type",
    );
    check_spec("volumes/1", json!({"name": "nothing-means-empty-dir"}), "");
    check_spec("volumes/1/hostPath/path", json!(""), "volumes[1].hostPath.path: Required value");
    check_spec(
        "volumes/1/hostPath/path",
        json!("/a/../b"),
        "volumes[1].hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
    );
    check_spec(
        "volumes/1/hostPath/type",
        json!("Pipe"),
        "volumes[1].hostPath.type: Unsupported value: \"Pipe\": supported values: \"\", \"BlockDevice\", \"CharDevice\", \
         \"Directory\", \"DirectoryOrCreate\", \"File\", \"FileOrCreate\", \"Socket\"",
    );
    check_spec(
        "volumes/0/emptyDir",
        json!({"sizeLimit": "-1"}),
        "volumes[0].emptyDir.sizeLimit: Invalid value: \"-1\": SizeLimit field must be a valid resource quantity",
    );
    check_spec(
        "volumes/2",
        json!({"name": "n", "nfs": {"server": "", "path": "x"}}),
        "volumes[2].nfs.server: Required value\nvolumes[2].nfs.path: Invalid value: \"x\": must be an absolute path",
    );
    check_spec("volumes/2", json!({"name": "n", "image": {}}), "volumes[2].image.reference: Required value");
}

#[test]
fn without_defaults_a_volume_needs_its_source() {
    let mut tree = good();
    put(&mut tree, "spec/volumes/1", &json!({"name": "h"}));
    let pod: Pod = serde_json::from_value(tree).unwrap();
    let found: Vec<_> = validate_pod(&pod, Features::default()).iter().map(ToString::to_string).collect();
    assert!(
        found.contains(&"spec.volumes[1]: Required value: must specify a volume type".to_owned()),
        "{found:?}"
    );
}

#[test]
fn files_written_into_volumes() {
    let downward = |item: Value| json!({"name": "d", "downwardAPI": {"items": [item]}});
    let item = "volumes[2].downwardAPI.items[0]";
    check_spec("volumes/2", downward(json!({"path": "a", "fieldRef": {"fieldPath": "metadata.labels"}})), "");
    check_spec(
        "volumes/2",
        downward(json!({"path": "/a", "fieldRef": {"fieldPath": "metadata.name"}})),
        &format!("{item}.path: Invalid value: \"/a\": must be a relative path"),
    );
    check_spec(
        "volumes/2",
        downward(json!({"path": "..a", "fieldRef": {"fieldPath": "metadata.name"}})),
        &format!("{item}.path: Invalid value: \"..a\": must not start with '..'"),
    );
    check_spec(
        "volumes/2",
        downward(json!({"path": "a"})),
        &format!("{item}: Required value: one of fieldRef and resourceFieldRef is required"),
    );
    check_spec(
        "volumes/2",
        downward(json!({"path": "a", "resourceFieldRef": {"resource": "limits.cpu"}})),
        &format!("{item}.resourceFieldRef.containerName: Required value"),
    );
    check_spec(
        "volumes/2",
        downward(json!({"path": "a", "fieldRef": {"fieldPath": "status.podIP"}})),
        &format!(
            "{item}.fieldRef.fieldPath: Unsupported value: \"status.podIP\": supported values: \"metadata.annotations\", \
             \"metadata.labels\", \"metadata.name\", \"metadata.namespace\", \"metadata.uid\""
        ),
    );
    check_spec(
        "volumes/2",
        json!({"name": "d", "downwardAPI": {"defaultMode": 512}}),
        "volumes[2].downwardAPI.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
    );
    check_spec(
        "volumes/2",
        json!({"name": "d", "projected": {"sources": [{}]}}),
        "volumes[2].projected.sources[0]: Required value: must specify a source",
    );
}

#[test]
fn volume_mounts() {
    let mount = |field: &str, value: Value, expected: &str| {
        check_app(&format!("volumeMounts/0/{field}"), value, expected);
    };
    mount("name", json!(""), "volumeMounts[0].name: Required value");
    mount("name", json!("x"), "volumeMounts[0].name: Not found: \"x\"");
    mount("mountPath", json!(""), "volumeMounts[0].mountPath: Required value");
    mount("subPath", json!("a/b"), "");
    mount("subPath", json!("/a"), "volumeMounts[0].subPath: Invalid value: \"/a\": must be a relative path");
    mount(
        "subPath",
        json!("a/../b"),
        "volumeMounts[0].subPath: Invalid value: \"a/../b\": must not contain '..'",
    );
    mount(
        "subPathExpr",
        json!("$(A)/.."),
        "volumeMounts[0].subPathExpr: Invalid value: \"$(A)/..\": must not contain '..'",
    );
    mount(
        "mountPropagation",
        json!("Sideways"),
        "volumeMounts[0].mountPropagation: Unsupported value: \"Sideways\": supported values: \"Bidirectional\", \
         \"HostToContainer\", \"None\"",
    );
    mount(
        "mountPropagation",
        json!("Bidirectional"),
        "volumeMounts[0].mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged \
         containers",
    );
    mount(
        "recursiveReadOnly",
        json!("Enabled"),
        "volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
    );
    check_app(
        "volumeMounts/1",
        json!({"name": "h", "mountPath": "/v"}),
        "volumeMounts[1].mountPath: Invalid value: \"/v\": must be unique",
    );
    check_app(
        "volumeMounts/0",
        json!({"name": "v", "mountPath": "/v", "subPath": "a", "subPathExpr": "b"}),
        "volumeMounts[0].subPathExpr: Invalid value: \"b\": subPathExpr and subPath are mutually exclusive",
    );
    check_app(
        "volumeMounts/0",
        json!({"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": "IfPossible", "mountPropagation": "HostToContainer"}),
        "volumeMounts[0].recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified",
    );
    check_app(
        "volumeDevices",
        json!([{"name": "v", "devicePath": "/dev/x"}]),
        "volumeDevices[0]: Forbidden: can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
    );
}

#[test]
fn addresses_have_one_spelling_unless_the_gate_is_off() {
    let sloppy = Features { strict_addresses: false, ..Features::default() };
    let path = "spec/dnsConfig";
    for (server, strict, is_one) in [
        ("192.0.2.1", "", true),
        ("2001:db8::1", "", true),
        ("192.0.02.1", "must not have leading 0s", true),
        ("::ffff:192.0.2.1", "must not be an IPv4-mapped IPv6 address", true),
        ("192.0.2.0256", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)", false),
        ("192.0.2", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)", false),
    ] {
        let changes = [(path, json!({"nameservers": [server]}))];
        let expected = match strict {
            "" => String::new(),
            why => format!("spec.dnsConfig.nameservers[0]: Invalid value: \"{server}\": {why}"),
        };
        assert_eq!(complaints(&changes), expected);
        assert_eq!(complaints_with(sloppy, &changes).is_empty(), is_one, "{server}");
    }
}

#[test]
fn tolerations_that_compare_need_their_gate() {
    let changes = [("spec/tolerations", json!([{"key": "k", "operator": "Lt", "value": "07"}]))];
    let unsupported = "spec.tolerations[0].operator: Unsupported value: \"Lt\": supported values: \"\", \"Equal\", \"Exists\"";
    assert_eq!(complaints(&changes), unsupported);
    let with = Features { comparing_tolerations: true, ..Features::default() };
    let spelling =
        "spec.tolerations[0].value: Invalid value: \"07\": must be a valid decimal integer in canonical form";
    assert_eq!(complaints_with(with, &changes), spelling);
    let changes = [("spec/tolerations", json!([{"key": "k", "operator": "Gt", "value": "-7"}]))];
    assert_eq!(complaints_with(with, &changes), "");
}

#[test]
fn tolerations() {
    check_spec("tolerations", json!([{"operator": "Exists"}]), "");
    check_spec(
        "tolerations",
        json!([{"operator": "Exists", "key": "k", "value": "v"}]),
        "tolerations[0].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'",
    );
    check_spec(
        "tolerations",
        json!([{"value": "v"}]),
        "tolerations[0].operator: Invalid value: \"\": operator must be Exists when `key` is empty, which means \"match all \
         values and all keys\"",
    );
    check_spec(
        "tolerations",
        json!([{"operator": "Exists", "effect": "Some"}]),
        "tolerations[0].effect: Unsupported value: \"Some\": supported values: \"NoExecute\", \"NoSchedule\", \
         \"PreferNoSchedule\"",
    );
    check_spec(
        "tolerations",
        json!([{"operator": "Exists", "tolerationSeconds": 1}]),
        "tolerations[0].effect: Invalid value: \"\": effect must be 'NoExecute' when `tolerationSeconds` is set",
    );
}

#[test]
fn everything_is_said_at_once_in_the_order_of_the_fields() {
    let found = complaints(&[
        ("metadata/name", json!("")),
        ("spec/volumes/1/hostPath/path", json!("")),
        ("spec/containers/0/image", json!("")),
        ("spec/containers/1/image", json!("")),
        ("spec/activeDeadlineSeconds", json!(0)),
    ]);
    let paths: Vec<_> = found.lines().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(
        paths,
        [
            "metadata.name",
            "spec.volumes[1].hostPath.path",
            "spec.containers[0].image",
            "spec.containers[1].image",
            "spec.activeDeadlineSeconds",
        ]
    );
}
