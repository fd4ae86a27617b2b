//! One change to a valid pod per line, and the resulting error.

use model::k8s::Pod;
use serde_json::{Value, json};

use super::*;
use crate::static_pod::apply_defaults;

mod containers;
mod volumes;

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
fn valid_pod_has_no_errors() {
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
fn host_network_with_a_user_namespace_needs_its_gate() {
    let ports = json!([{"containerPort": 80, "hostPort": 80}]);
    let changes = [
        ("spec/hostUsers", json!(false)),
        ("spec/hostNetwork", json!(true)),
        ("spec/containers/0/ports", ports),
    ];
    assert_eq!(complaints(&changes), "spec.hostNetwork: Forbidden: when `hostUsers` is false");
    let with = Features { user_namespaces_host_network: true, ..Features::default() };
    assert_eq!(complaints_with(with, &changes), "");
    let changes = [("spec/hostUsers", json!(false)), ("spec/hostPID", json!(true))];
    assert_eq!(complaints_with(with, &changes), "spec.hostPID: Forbidden: when `hostUsers` is false");
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
fn all_validation_errors_are_reported_in_the_order_of_the_fields() {
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
