//! What the API of a single node has next to pods: refusals with advice, owners, quotas, limits, priorities, volumes and backups.

use crate::server::{Kubectl, Server, eventually};

fn pod(name: &str, resources: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers:\n  - {{name: main, image: busybox, resources: {resources}}}\n"
    )
}

/// With the flags that the kubelet gives it.
fn start(directory: &std::path::Path) -> Server {
    let path = |name: &str| directory.join(name).display().to_string();
    Server::start(&[
        "--bind-to=node",
        "--refuse-services",
        &format!("--local-volumes={}", path("volumes")),
        &format!("--database={}", path("objects.redb")),
        &format!("--encryption-key={}", path("key")),
    ])
}

fn text(kubectl: &Kubectl, what: &[&str], path: &str) -> String {
    let output = format!("jsonpath={{{path}}}");
    kubectl.ok(&[&["get"], what, &["-o", &output]].concat())
}

#[test]
fn kind_that_is_not_served_is_refused_with_what_to_use() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path());
    let kubectl = server.admin();
    let refused = kubectl.refused(&["create", "deployment", "web", "--image=busybox"], "");
    assert!(
        refused.contains("deployments.apps are not served here") && refused.contains("create the pod itself"),
        "{refused}"
    );
    let manifest = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: main, image: busybox}]}}}\n";
    for arguments in
        [&["apply", "-f", "-"][..], &["create", "-f", "-"], &["replace", "-f", "-"], &["delete", "-f", "-"]]
    {
        let refused = kubectl.refused(arguments, manifest);
        assert!(refused.contains("create the pod itself"), "{arguments:?}: {refused}");
    }
    for (arguments, advice) in [
        (&["get", "deployment", "web"][..], "create the pod itself"),
        (&["rollout", "status", "deployment/web"], "create the pod itself"),
        (&["scale", "deployment/web", "--replicas=2"], "create the pod itself"),
        (&["create", "job", "once", "--image=busybox"], "restartPolicy OnFailure"),
        (&["create", "ingress", "web", "--rule=a/b=c:80"], "hostPort"),
        (&["create", "service", "clusterip", "web", "--tcp=80"], "hostPort"),
        (&["get", "crd", "things.example.com"], "ConfigMap"),
    ] {
        let refused = kubectl.refused(arguments, "");
        assert!(refused.contains(advice), "{arguments:?}: {refused}");
    }
    // A list has no objects, and says what to use.
    let listed = kubectl.run(&["get", "deployments"], "");
    let warning = String::from_utf8_lossy(&listed.stderr);
    assert!(listed.status.success() && listed.stdout.is_empty(), "{listed:?}");
    assert!(
        warning.contains("Warning: deployments.apps are not served here") && warning.contains("No resources"),
        "{warning}"
    );
    // So that what reads everything does not fail.
    let (dump, map) =
        (server.file("dump"), "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, labels: {a: b}}\n");
    kubectl.ok(&["cluster-info", "dump", &format!("--output-directory={}", dump.display())]);
    assert!(dump.join("default/deployments.json").exists());
    kubectl.feed(&["apply", "-f", "-"], &map.replace("name: m", "name: old"));
    let pruned = kubectl.feed(&["apply", "--prune", "-l", "a=b", "-f", "-"], map);
    assert!(pruned.contains("configmap/m created") && pruned.contains("configmap/old pruned"), "{pruned}");
    // What only lists what is served does not stumble over it.
    assert!(kubectl.ok(&["get", "all", "-A"]).contains("service/kubernetes"));
    assert!(!kubectl.ok(&["api-resources"]).contains("deployments"));
}

#[test]
fn service_of_the_api_has_the_address_at_which_it_listens() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = start(directory.path());
    let shown = |server: &Server| {
        let kubectl = server.admin();
        text(&kubectl, &["service", "kubernetes"], ".spec.clusterIP} {.spec.ports[0].port")
    };
    assert_eq!(shown(&server), format!("127.0.0.1 {}", server.port()));
    server.stop();
    server.restart(&[]);
    assert_eq!(shown(&server), format!("127.0.0.1 {}", server.port()));
}

#[test]
fn dependents_go_with_their_owner_unless_they_are_orphaned() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    let family = |owner: &str| {
        kubectl.ok(&["create", "configmap", owner]);
        let uid = text(&kubectl, &["configmap", owner], ".metadata.uid");
        let reference = format!(
            "{{apiVersion: v1, kind: ConfigMap, name: {owner}, uid: {uid}, blockOwnerDeletion: true}}"
        );
        let child = format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {owner}-child, ownerReferences: [{reference}]}}\n"
        );
        kubectl.feed(&["create", "-f", "-"], &child);
    };
    let exists = |name: &str| kubectl.run(&["get", "configmap", name], "").status.success();
    for cascade in ["background", "foreground"] {
        family(cascade);
        kubectl.ok(&["delete", "configmap", cascade, &format!("--cascade={cascade}")]);
        let child = format!("{cascade}-child");
        eventually("the dependent goes", || (!exists(&child) && !exists(cascade)).then_some(()));
    }
    family("orphan");
    kubectl.ok(&["delete", "configmap", "orphan", "--cascade=orphan"]);
    eventually("the owner goes", || (!exists("orphan")).then_some(()));
    assert_eq!(text(&kubectl, &["configmap", "orphan-child"], ".metadata.ownerReferences"), "");
}

#[test]
fn quota_refuses_what_exceeds_it_and_shows_what_is_used() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    kubectl.ok(&["create", "quota", "small", "--hard=pods=1,requests.memory=100Mi,configmaps=2"]);
    let refused = kubectl.refused(&["create", "-f", "-"], &pod("web", "{}"));
    assert!(refused.contains("failed quota: small: must specify requests.memory for: main"), "{refused}");
    kubectl.feed(&["create", "-f", "-"], &pod("web", "{requests: {memory: 60Mi}}"));
    let refused = kubectl.refused(&["create", "-f", "-"], &pod("other", "{requests: {memory: 60Mi}}"));
    let expected = "exceeded quota: small, requested: pods=1,requests.memory=60Mi, used: pods=1,requests.memory=60Mi, limited: pods=1,requests.memory=100Mi";
    assert!(refused.contains(expected), "{refused}");
    let used = || text(&kubectl, &["quota", "small"], ".status.used");
    eventually("the status counts", || {
        (used() == r#"{"configmaps":"1","pods":"1","requests.memory":"60Mi"}"#).then_some(())
    });
    kubectl.ok(&["delete", "pod", "web"]);
    eventually("the pod is free again", || used().contains(r#""pods":"0""#).then_some(()));
    assert!(kubectl.ok(&["describe", "quota", "small"]).contains("requests.memory"));
}

#[test]
fn limit_range_sets_defaults_and_refuses_what_is_outside() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    let range = "apiVersion: v1\nkind: LimitRange\nmetadata: {name: range}\nspec:\n  limits:\n  - {type: Container, default: {memory: 64Mi}, defaultRequest: {memory: 32Mi}, max: {memory: 128Mi}}\n";
    kubectl.feed(&["apply", "-f", "-"], range);
    kubectl.feed(&["create", "-f", "-"], &pod("web", "{}"));
    assert_eq!(
        text(&kubectl, &["pod", "web"], ".spec.containers[0].resources} {.status.qosClass"),
        r#"{"limits":{"memory":"64Mi"},"requests":{"memory":"32Mi"}} Burstable"#
    );
    let refused = kubectl.refused(&["create", "-f", "-"], &pod("big", "{limits: {memory: 1Gi}}"));
    assert!(refused.contains("maximum memory usage per Container is 128Mi, but limit is 1Gi"), "{refused}");
}

#[test]
fn priority_of_a_pod_comes_from_its_class() {
    let server = Server::start(&[]);
    let kubectl = server.admin();
    kubectl.ok(&["create", "priorityclass", "high", "--value=1000", "--description=important"]);
    let classed = |name: &str, class: &str| {
        pod(name, "{}").replace("spec:", &format!("spec:\n  priorityClassName: {class}"))
    };
    kubectl.feed(&["create", "-f", "-"], &classed("web", "high"));
    assert_eq!(text(&kubectl, &["pod", "web"], ".spec.priority"), "1000");
    let refused = kubectl.refused(&["create", "-f", "-"], &classed("other", "none"));
    assert!(refused.contains("no PriorityClass with name none was found"), "{refused}");
    let refused =
        kubectl.refused(&["create", "-f", "-"], &pod("own", "{}").replace("spec:", "spec:\n  priority: 5"));
    assert!(refused.contains("the integer value of priority (5) must not be provided"), "{refused}");
    let table = kubectl.ok(&["get", "priorityclasses"]);
    for name in ["high", "system-cluster-critical", "system-node-critical"] {
        assert!(table.contains(name), "{table}");
    }
}

#[test]
fn claim_gets_a_directory_of_this_machine_that_goes_with_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path());
    let kubectl = server.admin();
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n";
    kubectl.feed(&["apply", "-f", "-"], claim);
    kubectl.ok(&["wait", "--for=jsonpath={.status.phase}=Bound", "pvc/data", "--timeout=60s"]);
    let volume = text(&kubectl, &["pvc", "data"], ".spec.volumeName");
    let path = std::path::PathBuf::from(text(&kubectl, &["pv", &volume], ".spec.local.path"));
    assert!(path.starts_with(directory.path().join("volumes")) && path.is_dir(), "{}", path.display());
    assert!(kubectl.ok(&["get", "storageclass"]).contains("local (default)"));
    kubectl.ok(&["delete", "pvc", "data"]);
    let gone = || !kubectl.run(&["get", "pv", &volume], "").status.success();
    eventually("volume and directory go with the claim", || (gone() && !path.exists()).then_some(()));
}

#[test]
fn claim_is_bound_to_a_volume_of_the_administrator_and_waits_without_one() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path());
    let kubectl = server.admin();
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {storageClassName: '', accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n";
    kubectl.feed(&["apply", "-f", "-"], claim);
    let events = || kubectl.ok(&["get", "events"]);
    eventually("an event says why it waits", || {
        events().contains("no persistent volumes available for this claim").then_some(())
    });
    let volume = "apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: disk}\nspec: {accessModes: [ReadWriteOnce], capacity: {storage: 2Gi}, hostPath: {path: /srv/disk}}\n";
    kubectl.feed(&["apply", "-f", "-"], volume);
    kubectl.ok(&["wait", "--for=jsonpath={.status.phase}=Bound", "pvc/data", "pv/disk", "--timeout=60s"]);
    kubectl.ok(&["delete", "pvc", "data"]);
    kubectl.ok(&["wait", "--for=jsonpath={.status.phase}=Released", "pv/disk", "--timeout=60s"]);
}

#[test]
fn cordoned_node_takes_new_pods_after_it_is_uncordoned_and_those_that_tolerate_it_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = start(directory.path());
    let kubectl = server.admin();
    let bound_to = |name: &str| text(&kubectl, &["pod", name], ".spec.nodeName");
    kubectl.feed(&["create", "-f", "-"], "apiVersion: v1\nkind: Node\nmetadata: {name: node}\n");
    // Its kubelet would become ready.
    kubectl.ok(&["taint", "node", "node", "node.kubernetes.io/not-ready-"]);
    kubectl.ok(&["cordon", "node"]);
    kubectl.feed(&["create", "-f", "-"], &pod("late", "{}"));
    let condition = || text(&kubectl, &["pod", "late"], ".status.conditions[0].message");
    eventually("the pod says why it waits", || {
        (condition() == "0/1 nodes are available: 1 node(s) were unschedulable").then_some(())
    });
    assert_eq!(bound_to("late"), "");
    let tolerating = pod("daemon", "{}").replace("spec:", "spec:\n  tolerations: [{operator: Exists}]");
    kubectl.feed(&["create", "-f", "-"], &tolerating);
    assert_eq!(bound_to("daemon"), "node");
    kubectl.ok(&["uncordon", "node"]);
    eventually("it is bound", || (bound_to("late") == "node").then_some(()));
    kubectl.ok(&["taint", "node", "node", "a=b:NoSchedule"]);
    kubectl.feed(&["create", "-f", "-"], &pod("kept-out", "{}"));
    assert_eq!(bound_to("kept-out"), "");
    kubectl.ok(&["taint", "node", "node", "a-"]);
    eventually("it is bound", || (bound_to("kept-out") == "node").then_some(()));
}

/// The reasons and messages of the events of a pod, in the order of their messages.
fn events(kubectl: &Kubectl, pod: &str) -> Vec<String> {
    let of_pod = format!("involvedObject.name={pod}");
    let path = "jsonpath={range .items[*]}{.reason}: {.message}{\"\\n\"}{end}";
    let output =
        kubectl.ok(&["get", "events", "--field-selector", &of_pod, "--sort-by=.message", "-o", path]);
    output.lines().map(str::to_owned).collect()
}

#[test]
fn taint_with_the_effect_no_execute_ends_pods_when_they_do_not_tolerate_it_any_more() {
    const MARKED: &str = "TaintManagerEviction: Marking for deletion Pod default";
    const CANCELLED: &str = "TaintManagerEviction: Cancelling deletion of Pod default";
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = start(directory.path());
    let kubectl = server.admin();
    kubectl.feed(&["create", "-f", "-"], "apiVersion: v1\nkind: Node\nmetadata: {name: node}\n");
    kubectl.ok(&["taint", "node", "node", "node.kubernetes.io/not-ready-"]);
    let create = |name: &str, tolerations: &str| {
        let pod = pod(name, "{}").replace("spec:", &format!("spec:\n  tolerations: [{tolerations}]"));
        kubectl.feed(&["create", "-f", "-"], &pod);
        assert_eq!(text(&kubectl, &["pod", name], ".spec.nodeName"), "node");
    };
    create("plain", "");
    create("daemon", "{operator: Exists}");
    create("patient", "{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 3600}");
    create("brief", "{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 3}");
    // Without a kubelet a deleted pod stays, and says until when it may.
    let deleted = |name: &str| text(&kubectl, &["pod", name], ".metadata.deletionTimestamp");
    kubectl.ok(&["taint", "node", "node", "a=b:NoExecute"]);
    let added = || text(&kubectl, &["node", "node"], ".spec.taints[0].timeAdded");
    let before = added();
    eventually("the pod that does not tolerate it is deleted", || {
        (!deleted("plain").is_empty()).then_some(())
    });
    let condition = ".status.conditions[?(@.type==\"DisruptionTarget\")]";
    assert_eq!(
        text(
            &kubectl,
            &["pod", "plain"],
            &format!("{condition}.status}} {{{condition}.reason}} {{{condition}.message")
        ),
        "True DeletionByTaintManager Taint manager: deleting due to NoExecute taint"
    );
    assert_eq!(text(&kubectl, &["pod", "plain"], ".metadata.deletionGracePeriodSeconds"), "30");
    assert_eq!(events(&kubectl, "plain"), [format!("{MARKED}/plain")]);

    // The wait goes on from where it was.
    server.stop();
    server.restart(&[]);
    eventually("the toleration ends", || (!deleted("brief").is_empty()).then_some(()));
    assert_eq!((added(), before.is_empty()), (before, false));
    let written =
        text(&kubectl, &["events", "--field-selector=involvedObject.name=brief"], ".items[0].firstTimestamp");
    let waited = |from: &str, to: &str| {
        to.parse::<jiff::Timestamp>().expect("a time").duration_since(from.parse().expect("a time"))
    };
    assert!(waited(&added(), &written).as_secs() >= 3, "{written}");
    assert_eq!((deleted("daemon"), deleted("patient")), (String::new(), String::new()));

    kubectl.ok(&["taint", "node", "node", "a-"]);
    eventually("the wait is cancelled", || (!events(&kubectl, "patient").is_empty()).then_some(()));
    assert_eq!(events(&kubectl, "patient"), [format!("{CANCELLED}/patient")]);
    assert_eq!((deleted("daemon"), events(&kubectl, "daemon")), (String::new(), Vec::new()));
    let patient = kubectl.ok(&["get", "pod", "patient", "-o", "json"]);
    assert!(!patient.contains("DisruptionTarget"), "{patient}");
}
