//! The ClusterRoles and ClusterRoleBindings of every cluster, with the rules of the real server for the groups that this one
//! serves, or whose objects it is asked about. Pure.

use serde_json::{Map, Value, json};

use super::GROUP;

const AUTO_UPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping";
const AGGREGATE_TO: &str = "rbac.authorization.k8s.io/aggregate-to-";

const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";

const READ: &str = "get list watch";
const WRITE: &str = "create delete deletecollection patch update";
const ALL_VERBS: &str = "create delete deletecollection get list patch update watch";
const CORE: &[&str] = &[""];
const EVENTS: &[&str] = &["", "events.k8s.io"];

/// Lists of strings are separated by spaces, except those of groups: the core group is an empty string.
#[derive(Debug)]
enum DefaultRule {
    Resources { groups: &'static [&'static str], resources: &'static str, verbs: &'static str },
    Paths { paths: &'static str, verbs: &'static str },
}

const fn rule(groups: &'static [&'static str], resources: &'static str, verbs: &'static str) -> DefaultRule {
    DefaultRule::Resources { groups, resources, verbs }
}

const fn paths(paths: &'static str, verbs: &'static str) -> DefaultRule {
    DefaultRule::Paths { paths, verbs }
}

/// A ClusterRole, and the subjects of the binding with the same name; without subjects there is no binding.
#[derive(Debug)]
struct DefaultRole {
    name: &'static str,
    rules: &'static [DefaultRule],
    /// The role that collects the rules of this one.
    part_of: Option<&'static str>,
    /// Whether the role collects the rules of its parts.
    collects: bool,
    groups: &'static [&'static str],
    users: &'static [&'static str],
}

const fn role(name: &'static str, rules: &'static [DefaultRule]) -> DefaultRole {
    DefaultRole { name, rules, part_of: None, collects: false, groups: &[], users: &[] }
}

/// The role of metrics-server, for a server that measures.
const METRICS_READER: &str = "system:aggregated-metrics-reader";

/// A role that collects rules comes after its parts, so that it is complete when it is created.
const DEFAULTS: &[DefaultRole] = &[
    DefaultRole {
        groups: &["system:masters"],
        ..role("cluster-admin", &[rule(&["*"], "*", "*"), paths("*", "*")])
    },
    DefaultRole { part_of: Some("view"), ..role("system:aggregate-to-view", VIEW) },
    DefaultRole {
        part_of: Some("view"),
        ..role(METRICS_READER, &[rule(&["metrics.k8s.io"], "pods nodes", READ)])
    },
    DefaultRole { part_of: Some("edit"), collects: true, ..role("view", &[]) },
    DefaultRole { part_of: Some("edit"), ..role("system:aggregate-to-edit", EDIT) },
    DefaultRole { part_of: Some("admin"), collects: true, ..role("edit", &[]) },
    DefaultRole { part_of: Some("admin"), ..role("system:aggregate-to-admin", ADMIN) },
    DefaultRole { collects: true, ..role("admin", &[]) },
    role(
        "system:auth-delegator",
        &[
            rule(&["authentication.k8s.io"], "tokenreviews", "create"),
            rule(&["authorization.k8s.io"], "subjectaccessreviews", "create"),
        ],
    ),
    DefaultRole {
        groups: &[AUTHENTICATED],
        ..role(
            "system:basic-user",
            &[
                rule(&["authorization.k8s.io"], "selfsubjectaccessreviews selfsubjectrulesreviews", "create"),
                rule(&["authentication.k8s.io"], "selfsubjectreviews", "create"),
            ],
        )
    },
    DefaultRole {
        groups: &[AUTHENTICATED],
        ..role(
            "system:discovery",
            &[paths(
                "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/",
                "get",
            )],
        )
    },
    role(
        "system:kubelet-api-admin",
        &[
            rule(CORE, "nodes", READ),
            rule(CORE, "nodes", "proxy"),
            rule(CORE, "nodes/log nodes/metrics nodes/proxy nodes/stats", "*"),
        ],
    ),
    role(
        "system:monitoring",
        &[paths("/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*", "get")],
    ),
    role(
        "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
        &[rule(&["certificates.k8s.io"], "certificatesigningrequests/nodeclient", "create")],
    ),
    role(
        "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
        &[rule(&["certificates.k8s.io"], "certificatesigningrequests/selfnodeclient", "create")],
    ),
    role(
        "system:node-bootstrapper",
        &[rule(&["certificates.k8s.io"], "certificatesigningrequests", "create get list watch")],
    ),
    DefaultRole {
        users: &["system:kube-proxy"],
        ..role(
            "system:node-proxier",
            &[
                rule(CORE, "endpoints services", "list watch"),
                rule(CORE, "nodes", READ),
                rule(EVENTS, "events", "create patch update"),
                rule(&["discovery.k8s.io"], "endpointslices", "list watch"),
            ],
        )
    },
    DefaultRole {
        groups: &[AUTHENTICATED, UNAUTHENTICATED],
        ..role("system:public-info-viewer", &[paths("/healthz /livez /readyz /version /version/", "get")])
    },
    DefaultRole {
        groups: &["system:serviceaccounts"],
        ..role(
            "system:service-account-issuer-discovery",
            &[paths("/.well-known/openid-configuration /openid/v1/jwks", "get")],
        )
    },
];

const VIEW: &[DefaultRule] = &[
    rule(
        CORE,
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods serviceaccounts services services/status",
        READ,
    ),
    rule(CORE, "bindings events namespaces/status pods/log pods/status", READ),
    rule(CORE, "namespaces", READ),
    rule(&["discovery.k8s.io"], "endpointslices", READ),
    rule(&["resource.k8s.io"], "resourceclaims resourceclaims/status resourceclaimtemplates", READ),
];

const EDIT: &[DefaultRule] = &[
    rule(CORE, "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", READ),
    rule(CORE, "serviceaccounts", "impersonate"),
    rule(CORE, "pods pods/attach pods/exec pods/portforward pods/proxy", WRITE),
    rule(CORE, "pods/eviction", "create"),
    rule(
        CORE,
        "configmaps events persistentvolumeclaims secrets serviceaccounts services services/proxy",
        WRITE,
    ),
    rule(CORE, "serviceaccounts/token", "create"),
    rule(&["coordination.k8s.io"], "leases", ALL_VERBS),
    rule(&["resource.k8s.io"], "resourceclaims resourceclaimtemplates", WRITE),
];

const ADMIN: &[DefaultRule] = &[
    rule(&["authorization.k8s.io"], "localsubjectaccessreviews", "create"),
    rule(&[GROUP], "rolebindings roles", ALL_VERBS),
];

fn words(text: &str) -> Vec<&str> {
    text.split(' ').collect()
}

impl DefaultRule {
    fn to_value(&self) -> Value {
        match self {
            Self::Resources { groups, resources, verbs } => {
                json!({"verbs": words(verbs), "apiGroups": groups, "resources": words(resources)})
            }
            Self::Paths { paths, verbs } => json!({"verbs": words(verbs), "nonResourceURLs": words(paths)}),
        }
    }
}

fn metadata(name: &str, labels: Map<String, Value>) -> Value {
    let mut metadata = json!({"name": name, "annotations": {AUTO_UPDATE: "true"}, "labels": {BOOTSTRAPPING: "rbac-defaults"}});
    for (label, value) in labels {
        metadata["labels"][label] = value;
    }
    metadata
}

impl DefaultRole {
    fn role(&self) -> Value {
        let label = |role: &str| (format!("{AGGREGATE_TO}{role}"), json!("true"));
        let labels = self.part_of.map(label).into_iter().collect();
        let rules: Vec<Value> = self.rules.iter().map(DefaultRule::to_value).collect();
        let mut object = json!({"metadata": metadata(self.name, labels), "rules": rules});
        if self.collects {
            let selector = Map::from_iter([label(self.name)]);
            object["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": selector}]});
        }
        object
    }

    fn binding(&self) -> Option<Value> {
        let subject = |kind, name: &&str| json!({"kind": kind, "apiGroup": GROUP, "name": name});
        let groups = self.groups.iter().map(|name| subject("Group", name));
        let users = self.users.iter().map(|name| subject("User", name));
        let subjects: Vec<Value> = groups.chain(users).collect();
        (!subjects.is_empty()).then(|| {
            json!({
                "metadata": metadata(self.name, Map::new()),
                "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": self.name},
                "subjects": subjects,
            })
        })
    }
}

/// The ClusterRoles, in the order in which they are created. `measured`: with that for what a kubelet measures.
pub(crate) fn roles(measured: bool) -> impl Iterator<Item = Value> {
    let is_served = move |role: &&DefaultRole| measured || role.name != METRICS_READER;
    DEFAULTS.iter().filter(is_served).map(DefaultRole::role)
}

/// The ClusterRoleBindings.
pub(crate) fn bindings() -> impl Iterator<Item = Value> {
    DEFAULTS.iter().filter_map(DefaultRole::binding)
}
