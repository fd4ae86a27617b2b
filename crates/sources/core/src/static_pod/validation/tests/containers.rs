//! Ports, environments, resources, probes and hooks of containers.

use super::*;

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
