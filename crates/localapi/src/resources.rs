//! The table of kinds: which resources are served, under which names, with which subresources, and which are refused with what to use in
//! their place. Rules of single kinds are in `admission` and `endpoints::subresource`.

use std::fmt;

/// A version of a group; the core group has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupVersion {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
}

impl GroupVersion {
    const fn new(group: &'static str, version: &'static str) -> Self {
        Self { group, version }
    }
}

/// `v1`, `storage.k8s.io/v1`.
impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group {
            "" => f.write_str(self.version),
            group => write!(f, "{group}/{}", self.version),
        }
    }
}

/// A subresource of a kind, as discovery lists it.
#[derive(Debug)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    /// The kind of its body, with group and version if they differ from the parent's.
    pub(crate) kind: &'static str,
    pub(crate) group_version: Option<GroupVersion>,
    pub(crate) verbs: &'static [&'static str],
}

/// One kind in one group and version.
#[derive(Debug)]
pub(crate) struct Resource {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    /// The plural: the name in paths.
    pub(crate) name: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) all: bool,
    /// Whether `metadata.generation` counts changes of the spec.
    pub(crate) generation: bool,
    /// Reviews are evaluated and never stored: their only verb is `create`.
    pub(crate) review: bool,
    /// Whether a PUT without `metadata.resourceVersion` may overwrite the stored object.
    pub(crate) unconditional_update: bool,
    /// Whether a PUT creates an object that does not exist.
    pub(crate) create_on_update: bool,
    /// What to use in place of a kind that is not served. Discovery lists it without verbs, so that clients send their requests, which are
    /// refused with this advice. A list is empty, with the advice as a warning: `kubectl cluster-info dump` and `kubectl apply --prune` read
    /// lists of every kind.
    pub(crate) advice: Option<&'static str>,
    /// The name in messages of what is measured when it is requested: it is never stored, and can only be read. Its plural is that of the
    /// stored kind that it measures.
    pub(crate) measured_as: Option<&'static str>,
    pub(crate) subresources: &'static [Subresource],
}

const STATUS: &[&str] = &["get", "patch", "update"];
const GET_UPDATE: &[&str] = &["get", "patch", "update"];
const CREATE: &[&str] = &["create"];

const fn sub(name: &'static str, kind: &'static str, verbs: &'static [&'static str]) -> Subresource {
    Subresource { name, kind, group_version: None, verbs }
}

const fn foreign(name: &'static str, kind: &'static str, group_version: GroupVersion) -> Subresource {
    Subresource { name, kind, group_version: Some(group_version), verbs: CREATE }
}

const STREAM: &[&str] = &["create", "get"];
const PROXY: &[&str] = &["create", "delete", "get", "patch", "update"];

const POD_SUBRESOURCES: &[Subresource] = &[
    sub("attach", "PodAttachOptions", STREAM),
    sub("binding", "Binding", CREATE),
    sub("ephemeralcontainers", "Pod", GET_UPDATE),
    foreign("eviction", "Eviction", GroupVersion::new("policy", "v1")),
    sub("exec", "PodExecOptions", STREAM),
    sub("log", "Pod", &["get"]),
    sub("portforward", "PodPortForwardOptions", STREAM),
    sub("proxy", "PodProxyOptions", PROXY),
    sub("resize", "Pod", GET_UPDATE),
    sub("status", "Pod", STATUS),
];

/// A kind of the given group and version with the defaults; the table below sets what differs.
const fn kind(
    group_version: GroupVersion,
    name: &'static str,
    singular: &'static str,
    kind: &'static str,
    namespaced: bool,
) -> Resource {
    Resource {
        group: group_version.group,
        version: group_version.version,
        name,
        singular,
        kind,
        namespaced,
        short_names: &[],
        all: false,
        generation: false,
        review: false,
        unconditional_update: true,
        create_on_update: false,
        advice: None,
        measured_as: None,
        subresources: &[],
    }
}

pub(crate) const CORE: GroupVersion = GroupVersion::new("", "v1");
const STORAGE: GroupVersion = GroupVersion::new("storage.k8s.io", "v1");
const AUTHENTICATION: GroupVersion = GroupVersion::new("authentication.k8s.io", "v1");
const AUTHORIZATION: GroupVersion = GroupVersion::new("authorization.k8s.io", "v1");
const RBAC: GroupVersion = GroupVersion::new("rbac.authorization.k8s.io", "v1");

const WORKLOADS: &str = "this API has one node and no controllers; create the pod itself, whose containers are restarted as its restartPolicy says, or join a cluster when one machine is not enough";
const JOBS: &str =
    "create a pod with restartPolicy OnFailure; for a schedule, a systemd timer or cron can run kubectl";
const ROUTES: &str = "this API has no addresses of Services; reach a pod by hostPort or hostNetwork, and run a proxy as a pod if several share a port";
const AUTOSCALING: &str = "there is one node and one instance of each pod; kubectl patch --subresource=resize changes what a pod may use";
const BUDGETS: &str = "there is one instance of each pod, so an eviction is a deletion";
const EXTENSIONS: &str = "only built-in kinds are served; keep other data in a ConfigMap";

/// The deprecation of Endpoints, in the words of the real server.
const ENDPOINTS: &str = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";

const APPS: GroupVersion = GroupVersion::new("apps", "v1");
const BATCH: GroupVersion = GroupVersion::new("batch", "v1");
const NETWORKING: GroupVersion = GroupVersion::new("networking.k8s.io", "v1");
const ADMISSION: GroupVersion = GroupVersion::new("admissionregistration.k8s.io", "v1");

/// A kind that is refused.
const fn refused(
    group_version: GroupVersion,
    names: (&'static str, &'static str, &'static str),
    namespaced: bool,
    short_names: &'static [&'static str],
    advice: &'static str,
) -> Resource {
    Resource {
        short_names,
        advice: Some(advice),
        ..kind(group_version, names.0, names.1, names.2, namespaced)
    }
}

/// Everything that is served or refused, the core group first.
pub(crate) const RESOURCES: &[Resource] = &[
    Resource { short_names: &["cm"], ..kind(CORE, "configmaps", "configmap", "ConfigMap", true) },
    Resource {
        short_names: &["ep"],
        create_on_update: true,
        ..kind(CORE, "endpoints", "endpoints", "Endpoints", true)
    },
    Resource { short_names: &["ev"], create_on_update: true, ..kind(CORE, "events", "event", "Event", true) },
    Resource {
        short_names: &["ns"],
        subresources: &[sub("finalize", "Namespace", &["update"]), sub("status", "Namespace", STATUS)],
        ..kind(CORE, "namespaces", "namespace", "Namespace", false)
    },
    Resource { short_names: &["limits"], ..kind(CORE, "limitranges", "limitrange", "LimitRange", true) },
    Resource {
        short_names: &["no"],
        subresources: &[sub("proxy", "NodeProxyOptions", PROXY), sub("status", "Node", STATUS)],
        ..kind(CORE, "nodes", "node", "Node", false)
    },
    Resource {
        short_names: &["pvc"],
        subresources: &[sub("status", "PersistentVolumeClaim", STATUS)],
        ..kind(CORE, "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim", true)
    },
    Resource {
        short_names: &["pv"],
        subresources: &[sub("status", "PersistentVolume", STATUS)],
        ..kind(CORE, "persistentvolumes", "persistentvolume", "PersistentVolume", false)
    },
    Resource {
        short_names: &["po"],
        all: true,
        generation: true,
        subresources: POD_SUBRESOURCES,
        ..kind(CORE, "pods", "pod", "Pod", true)
    },
    Resource {
        short_names: &["quota"],
        subresources: &[sub("status", "ResourceQuota", STATUS)],
        ..kind(CORE, "resourcequotas", "resourcequota", "ResourceQuota", true)
    },
    kind(CORE, "secrets", "secret", "Secret", true),
    Resource {
        short_names: &["sa"],
        subresources: &[foreign("token", "TokenRequest", AUTHENTICATION)],
        ..kind(CORE, "serviceaccounts", "serviceaccount", "ServiceAccount", true)
    },
    Resource {
        short_names: &["svc"],
        create_on_update: true,
        all: true,
        subresources: &[sub("status", "Service", STATUS)],
        ..kind(CORE, "services", "service", "Service", true)
    },
    Resource {
        review: true,
        ..kind(AUTHENTICATION, "selfsubjectreviews", "selfsubjectreview", "SelfSubjectReview", false)
    },
    Resource { review: true, ..kind(AUTHENTICATION, "tokenreviews", "tokenreview", "TokenReview", false) },
    Resource {
        review: true,
        ..kind(
            AUTHORIZATION,
            "localsubjectaccessreviews",
            "localsubjectaccessreview",
            "LocalSubjectAccessReview",
            true,
        )
    },
    Resource {
        review: true,
        ..kind(
            AUTHORIZATION,
            "selfsubjectaccessreviews",
            "selfsubjectaccessreview",
            "SelfSubjectAccessReview",
            false,
        )
    },
    Resource {
        review: true,
        ..kind(
            AUTHORIZATION,
            "selfsubjectrulesreviews",
            "selfsubjectrulesreview",
            "SelfSubjectRulesReview",
            false,
        )
    },
    Resource {
        review: true,
        ..kind(AUTHORIZATION, "subjectaccessreviews", "subjectaccessreview", "SubjectAccessReview", false)
    },
    Resource {
        short_names: &["csr"],
        subresources: &[
            sub("approval", "CertificateSigningRequest", STATUS),
            sub("status", "CertificateSigningRequest", STATUS),
        ],
        ..kind(
            GroupVersion::new("certificates.k8s.io", "v1"),
            "certificatesigningrequests",
            "certificatesigningrequest",
            "CertificateSigningRequest",
            false,
        )
    },
    kind(
        GroupVersion::new("certificates.k8s.io", "v1beta1"),
        "clustertrustbundles",
        "clustertrustbundle",
        "ClusterTrustBundle",
        false,
    ),
    Resource {
        unconditional_update: false,
        subresources: &[sub("status", "PodCertificateRequest", STATUS)],
        ..kind(
            GroupVersion::new("certificates.k8s.io", "v1beta1"),
            "podcertificaterequests",
            "podcertificaterequest",
            "PodCertificateRequest",
            true,
        )
    },
    Resource {
        unconditional_update: false,
        create_on_update: true,
        ..kind(GroupVersion::new("coordination.k8s.io", "v1"), "leases", "lease", "Lease", true)
    },
    Resource {
        create_on_update: true,
        ..kind(
            GroupVersion::new("discovery.k8s.io", "v1"),
            "endpointslices",
            "endpointslice",
            "EndpointSlice",
            true,
        )
    },
    Resource {
        short_names: &["ev"],
        create_on_update: true,
        ..kind(GroupVersion::new("events.k8s.io", "v1"), "events", "event", "Event", true)
    },
    Resource {
        unconditional_update: false,
        create_on_update: true,
        ..kind(
            GroupVersion::new("node.k8s.io", "v1"),
            "runtimeclasses",
            "runtimeclass",
            "RuntimeClass",
            false,
        )
    },
    Resource {
        create_on_update: true,
        ..kind(RBAC, "clusterrolebindings", "clusterrolebinding", "ClusterRoleBinding", false)
    },
    Resource { create_on_update: true, ..kind(RBAC, "clusterroles", "clusterrole", "ClusterRole", false) },
    Resource { create_on_update: true, ..kind(RBAC, "rolebindings", "rolebinding", "RoleBinding", true) },
    Resource { create_on_update: true, ..kind(RBAC, "roles", "role", "Role", true) },
    Resource {
        generation: true,
        ..kind(
            GroupVersion::new("resource.k8s.io", "v1"),
            "deviceclasses",
            "deviceclass",
            "DeviceClass",
            false,
        )
    },
    Resource {
        subresources: &[sub("status", "ResourceClaim", STATUS)],
        ..kind(
            GroupVersion::new("resource.k8s.io", "v1"),
            "resourceclaims",
            "resourceclaim",
            "ResourceClaim",
            true,
        )
    },
    kind(
        GroupVersion::new("resource.k8s.io", "v1"),
        "resourceclaimtemplates",
        "resourceclaimtemplate",
        "ResourceClaimTemplate",
        true,
    ),
    Resource {
        generation: true,
        ..kind(
            GroupVersion::new("resource.k8s.io", "v1"),
            "resourceslices",
            "resourceslice",
            "ResourceSlice",
            false,
        )
    },
    Resource {
        short_names: &["pc"],
        create_on_update: true,
        ..kind(
            GroupVersion::new("scheduling.k8s.io", "v1"),
            "priorityclasses",
            "priorityclass",
            "PriorityClass",
            false,
        )
    },
    Resource {
        generation: true,
        unconditional_update: false,
        ..kind(STORAGE, "csidrivers", "csidriver", "CSIDriver", false)
    },
    Resource { unconditional_update: false, ..kind(STORAGE, "csinodes", "csinode", "CSINode", false) },
    Resource {
        short_names: &["sc"],
        ..kind(STORAGE, "storageclasses", "storageclass", "StorageClass", false)
    },
    Resource {
        unconditional_update: false,
        subresources: &[sub("status", "VolumeAttachment", STATUS)],
        ..kind(STORAGE, "volumeattachments", "volumeattachment", "VolumeAttachment", false)
    },
    refused(
        CORE,
        ("replicationcontrollers", "replicationcontroller", "ReplicationController"),
        true,
        &["rc"],
        WORKLOADS,
    ),
    refused(CORE, ("podtemplates", "podtemplate", "PodTemplate"), true, &[], WORKLOADS),
    refused(APPS, ("deployments", "deployment", "Deployment"), true, &["deploy"], WORKLOADS),
    refused(APPS, ("replicasets", "replicaset", "ReplicaSet"), true, &["rs"], WORKLOADS),
    refused(APPS, ("statefulsets", "statefulset", "StatefulSet"), true, &["sts"], WORKLOADS),
    refused(APPS, ("daemonsets", "daemonset", "DaemonSet"), true, &["ds"], WORKLOADS),
    refused(BATCH, ("jobs", "job", "Job"), true, &[], JOBS),
    refused(BATCH, ("cronjobs", "cronjob", "CronJob"), true, &["cj"], JOBS),
    refused(NETWORKING, ("ingresses", "ingress", "Ingress"), true, &["ing"], ROUTES),
    refused(NETWORKING, ("ingressclasses", "ingressclass", "IngressClass"), false, &[], ROUTES),
    refused(NETWORKING, ("networkpolicies", "networkpolicy", "NetworkPolicy"), true, &["netpol"], ROUTES),
    refused(
        GroupVersion::new("autoscaling", "v2"),
        ("horizontalpodautoscalers", "horizontalpodautoscaler", "HorizontalPodAutoscaler"),
        true,
        &["hpa"],
        AUTOSCALING,
    ),
    refused(
        GroupVersion::new("policy", "v1"),
        ("poddisruptionbudgets", "poddisruptionbudget", "PodDisruptionBudget"),
        true,
        &["pdb"],
        BUDGETS,
    ),
    refused(
        GroupVersion::new("apiextensions.k8s.io", "v1"),
        ("customresourcedefinitions", "customresourcedefinition", "CustomResourceDefinition"),
        false,
        &["crd", "crds"],
        EXTENSIONS,
    ),
    refused(
        ADMISSION,
        ("mutatingwebhookconfigurations", "mutatingwebhookconfiguration", "MutatingWebhookConfiguration"),
        false,
        &[],
        EXTENSIONS,
    ),
    refused(
        ADMISSION,
        (
            "validatingwebhookconfigurations",
            "validatingwebhookconfiguration",
            "ValidatingWebhookConfiguration",
        ),
        false,
        &[],
        EXTENSIONS,
    ),
    refused(
        GroupVersion::new("apiregistration.k8s.io", "v1"),
        ("apiservices", "apiservice", "APIService"),
        false,
        &[],
        EXTENSIONS,
    ),
];

/// The resource metrics API, which has no kind of its own for what it measures.
const METRICS: GroupVersion = GroupVersion::new("metrics.k8s.io", "v1beta1");

/// What a server measures that has a kubelet to ask.
const MEASURED: &[Resource] = &[
    Resource { measured_as: Some("nodemetrics"), ..kind(METRICS, "nodes", "", "NodeMetrics", false) },
    Resource { measured_as: Some("podmetrics"), ..kind(METRICS, "pods", "", "PodMetrics", true) },
];

/// What to use in place of Services, where this machine has no proxy for their addresses.
pub(crate) const SERVICES_ADVICE: &str = ROUTES;

impl Resource {
    pub(crate) const fn group_version(&self) -> GroupVersion {
        GroupVersion::new(self.group, self.version)
    }

    /// The `apiVersion` of its objects.
    pub(crate) fn api_version(&self) -> String {
        self.group_version().to_string()
    }

    /// The name in messages: `pods`, `leases.coordination.k8s.io`.
    pub(crate) fn qualified_name(&self) -> String {
        if self.group.is_empty() { self.name.to_owned() } else { format!("{}.{}", self.name, self.group) }
    }

    /// Why a kind is refused.
    pub(crate) fn with_advice(&self, advice: &str) -> String {
        format!("{} are not served here: {advice}", self.qualified_name())
    }

    /// What each client of the kind is warned of.
    pub(crate) fn warning(&self) -> Option<String> {
        let deprecated = (self.group.is_empty() && self.name == "endpoints").then(|| ENDPOINTS.to_owned());
        self.advice.map(|advice| self.with_advice(advice)).or(deprecated)
    }

    pub(crate) fn verbs(&self) -> &'static [&'static str] {
        if self.advice.is_some() {
            &[]
        } else if self.measured_as.is_some() {
            &["get", "list"]
        } else if self.review {
            CREATE
        } else if self.name == "namespaces" {
            &["create", "delete", "get", "list", "patch", "update", "watch"]
        } else {
            &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        }
    }

    pub(crate) fn has_status(&self) -> bool {
        self.subresources.iter().any(|sub| sub.name == "status")
    }

    pub(crate) fn subresource(&self, name: &str) -> Option<&'static Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }
}

/// The kind that the store holds under this plural. Events of both groups are stored as one.
pub(crate) fn stored(name: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|resource| resource.name == name && !resource.review && resource.advice.is_none())
}

/// The kinds of one server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kinds {
    /// Whether it has a kubelet to ask, and so the kinds that are measured.
    pub(crate) measured: bool,
}

impl Kinds {
    /// All of them, the core group first.
    pub(crate) fn all(self) -> impl Iterator<Item = &'static Resource> {
        RESOURCES.iter().chain(MEASURED.iter().filter(move |_| self.measured))
    }

    pub(crate) fn find(self, group: &str, version: &str, name: &str) -> Option<&'static Resource> {
        self.all().find(|r| r.group == group && r.version == version && r.name == name)
    }

    /// The versions of groups that are served, the core group left out, each once and in the table's order.
    pub(crate) fn group_versions(self) -> Vec<GroupVersion> {
        let mut found: Vec<GroupVersion> = Vec::new();
        for resource in self.all().filter(|resource| !resource.group.is_empty()) {
            if !found.contains(&resource.group_version()) {
                found.push(resource.group_version());
            }
        }
        found
    }

    /// The served versions of each group, the preferred one first; without the core group.
    pub(crate) fn groups(self) -> Vec<(&'static str, Vec<GroupVersion>)> {
        let mut groups: Vec<(&str, Vec<GroupVersion>)> = Vec::new();
        for version in self.group_versions() {
            match groups.iter_mut().find(|(group, _)| *group == version.group) {
                Some((_, versions)) => versions.push(version),
                None => groups.push((version.group, vec![version])),
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORED: Kinds = Kinds { measured: false };
    const ALL: Kinds = Kinds { measured: true };

    fn find(group: &str, version: &str, name: &str) -> Option<&'static Resource> {
        STORED.find(group, version, name)
    }

    #[test]
    fn resource_is_found_by_group_version_and_plural_only() {
        assert_eq!(find("", "v1", "pods").map(|r| r.kind), Some("Pod"));
        assert_eq!(
            find("events.k8s.io", "v1", "events").map(Resource::api_version),
            Some("events.k8s.io/v1".to_owned())
        );
        assert!(find("", "v2", "pods").is_none());
        assert!(find("apps", "v2", "deployments").is_none());
    }

    #[test]
    fn refused_kind_has_advice_and_neither_verbs_nor_objects() {
        let refused = find("apps", "v1", "deployments").expect("it is known");
        assert!(refused.advice.is_some_and(|advice| advice.contains("create the pod itself")));
        assert!(refused.verbs().is_empty() && stored("deployments").is_none());
    }

    #[test]
    fn group_with_two_versions_is_one_with_the_preferred_version_first() {
        let groups = STORED.groups();
        let of = |name: &str| -> Vec<&str> {
            let found = groups.iter().filter(|(group, _)| *group == name).flat_map(|(_, versions)| versions);
            found.map(|found| found.version).collect()
        };
        assert_eq!(of("certificates.k8s.io"), ["v1", "v1beta1"]);
        assert_eq!(groups.iter().filter(|(group, _)| *group == "certificates.k8s.io").count(), 1);
    }

    #[test]
    fn each_version_of_a_group_is_listed_once() {
        let found = STORED.group_versions();
        assert_eq!(found.iter().filter(|found| found.group == "storage.k8s.io").count(), 1);
        assert!(!found.iter().any(|found| found.group.is_empty()));
    }

    #[test]
    fn measured_kinds_exist_with_a_kubelet_only_and_can_only_be_read() {
        assert!(find("metrics.k8s.io", "v1beta1", "pods").is_none());
        let pods = ALL.find("metrics.k8s.io", "v1beta1", "pods").expect("it is served");
        assert_eq!((pods.kind, pods.namespaced, pods.verbs()), ("PodMetrics", true, &["get", "list"][..]));
        let groups: Vec<&str> = ALL.groups().into_iter().map(|(group, _)| group).collect();
        assert_eq!((groups.len(), groups.last()), (STORED.groups().len() + 1, Some(&"metrics.k8s.io")));
        assert_eq!(stored("pods").map(|stored| stored.kind), Some("Pod"));
    }
}
