use std::sync::Arc;

use serde_json::{Value, json};

use super::plan::{Plan, plan};
use super::*;
use crate::object::text;
use crate::store::Store;

const DRIVER: &str = "d.example.com";
const UNIQUE: &str = "kubernetes.io/csi/d.example.com^vol";

fn name() -> String {
    volumes_core::attachment::attachment_name("vol", DRIVER, "n")
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "a", "uid": format!("uid-{name}")},
        "spec": {
            "nodeName": "n",
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        },
        "status": {"phase": "Pending"},
    })
}

fn claim() -> Value {
    json!({
        "metadata": {"name": "c", "namespace": "a", "uid": "uid-c"},
        "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound"},
    })
}

fn volume(source: &Value) -> Value {
    let mut volume = json!({
        "metadata": {"name": "pv"},
        "spec": {"claimRef": {"namespace": "a", "name": "c", "uid": "uid-c"}},
    });
    for (field, value) in source.as_object().unwrap() {
        volume["spec"][field] = value.clone();
    }
    volume
}

fn csi() -> Value {
    volume(&json!({"csi": {"driver": DRIVER, "volumeHandle": "vol"}}))
}

fn node(in_use: &[&str], attached: &[&str]) -> Value {
    let attached: Vec<Value> = attached.iter().map(|name| json!({"name": name, "devicePath": ""})).collect();
    json!({
        "metadata": {
            "name": "n",
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "status": {"volumesInUse": in_use, "volumesAttached": attached},
    })
}

fn attachment_with(status: Value) -> Value {
    let source = json!({"persistentVolumeName": "pv"});
    let mut attachment = attachment(&name(), DRIVER, "n", &source);
    attachment["status"] = status;
    attachment
}

fn terminating(mut object: Value) -> Value {
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    object
}

fn planned(node: &Value, objects: &[(&'static str, &Value)]) -> Plan {
    let store = Store::new(10);
    for (resource, object) in objects {
        let key = Key::new(resource, object::namespace(object), object::name(object));
        store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put((*object).clone()))).unwrap();
    }
    store.read(|objects| plan(node, objects))
}

/// The plan in a few words.
fn shown(plan: &Plan) -> String {
    let mut words = Vec::new();
    if let Some(attached) = &plan.attached {
        let names: Vec<&str> = attached.iter().map(|volume| text(volume, "/name")).collect();
        words.push(format!("attached=[{}]", names.join(" ")));
    }
    words.extend(plan.create.iter().map(|new| format!("create {}", text(&new.object, "/spec/attacher"))));
    words.extend(plan.delete.iter().map(|name| format!("delete {}", &name[..4])));
    words.extend(
        plan.events.iter().map(|event| format!("{} {}: {}", event.pod.name, event.reason, event.message)),
    );
    words.join("; ")
}

#[test]
fn attachment_follows_the_pods_that_need_it_and_the_volumes_in_use() {
    let (pod, claim, volume) = (pod("p"), claim(), csi());
    let objects = [(PODS, &pod), ("persistentvolumeclaims", &claim), ("persistentvolumes", &volume)];
    let without_pod = &objects[1..];
    let with = |objects: &[(&'static str, &Value)], node: &Value, status: Option<Value>| {
        let attachment = status.map(attachment_with);
        let mut all = objects.to_vec();
        all.extend(attachment.iter().map(|attachment| (ATTACHMENTS, attachment)));
        shown(&planned(node, &all))
    };
    let (idle, mounted, reported) = (node(&[], &[]), node(&[UNIQUE], &[UNIQUE]), node(&[], &[UNIQUE]));
    let (waiting, done) = (json!({"attached": false}), json!({"attached": true}));
    let failed = json!({"attached": false, "attachError": {"message": "no such disk"}});
    for (case, expected) in [
        (with(&objects, &idle, None), "create d.example.com".to_owned()),
        (with(&objects, &idle, Some(waiting)), String::new()),
        (
            with(&objects, &idle, Some(failed)),
            "p FailedAttachVolume: AttachVolume.Attach failed for volume \"pv\" : no such disk".to_owned(),
        ),
        (
            with(&objects, &idle, Some(done.clone())),
            format!(
                "attached=[{UNIQUE}]; p SuccessfulAttachVolume: AttachVolume.Attach succeeded for volume \"pv\" "
            ),
        ),
        (with(&objects, &mounted, Some(done.clone())), String::new()),
        // The attacher has lost the volume.
        (with(&objects, &mounted, Some(json!({"attached": false}))), "attached=[]".to_owned()),
        // No pod needs it, and the kubelet has it mounted, still.
        (with(without_pod, &mounted, Some(done.clone())), String::new()),
        (with(without_pod, &reported, Some(done.clone())), "attached=[]; delete csi-".to_owned()),
        (with(without_pod, &idle, None), String::new()),
    ] {
        assert_eq!(case, expected);
    }
    let going = terminating(attachment_with(done));
    let all: Vec<_> = objects.into_iter().chain([(ATTACHMENTS, &going)]).collect();
    assert_eq!(shown(&planned(&idle, &all)), "", "the next one is created when this is gone");
}

#[test]
fn new_attachment_is_that_of_the_attach_detach_controller() {
    let (one, two, claim, volume) = (pod("one"), pod("two"), claim(), csi());
    let objects =
        [(PODS, &one), (PODS, &two), ("persistentvolumeclaims", &claim), ("persistentvolumes", &volume)];
    let plan = planned(&node(&[], &[]), &objects);
    let [new] = plan.create.as_slice() else { panic!("one for both pods: {plan:?}") };
    let digest = model::digest::sha256_hex(format!("vol{DRIVER}n").as_bytes());
    assert_eq!(
        new.object,
        json!({
            "metadata": {"name": format!("csi-{digest}")},
            "spec": {"attacher": DRIVER, "nodeName": "n", "source": {"persistentVolumeName": "pv"}},
        })
    );
    assert_eq!(new.pods.len(), 2);
}

#[test]
fn volume_is_attached_only_for_bound_claims_of_pods_that_have_not_ended() {
    let idle = node(&[], &[]);
    let with = |pod: &Value, claim: &Value, volume: &Value, driver: Option<&Value>, node: &Value| {
        let mut all = vec![(PODS, pod), ("persistentvolumeclaims", claim), ("persistentvolumes", volume)];
        all.extend(driver.map(|driver| (DRIVERS, driver)));
        !planned(node, &all).create.is_empty()
    };
    let driver =
        |required: Value| json!({"metadata": {"name": DRIVER}, "spec": {"attachRequired": required}});
    let changed = |mut object: Value, pointer: &str, value: Value| {
        *object.pointer_mut(pointer).unwrap() = value;
        object
    };
    let (pod, claim, volume) = (pod("p"), claim(), csi());
    assert!(with(&pod, &claim, &volume, None, &idle), "a driver without an object");
    assert!(with(&pod, &claim, &volume, Some(&driver(json!(true))), &idle));
    assert!(with(&pod, &claim, &volume, Some(&driver(json!(null))), &idle));
    assert!(!with(&pod, &claim, &volume, Some(&driver(json!(false))), &idle));
    for phase in ["Succeeded", "Failed"] {
        let ended = changed(pod.clone(), "/status/phase", json!(phase));
        assert!(!with(&ended, &claim, &volume, None, &idle), "{phase}");
    }
    let mut deleted = terminating(pod.clone());
    assert!(!with(&deleted, &claim, &volume, None, &idle), "no container runs");
    deleted["status"]["containerStatuses"] = json!([{"state": {"running": {}}}]);
    assert!(with(&deleted, &claim, &volume, None, &idle));
    let elsewhere = changed(pod.clone(), "/spec/nodeName", json!("other"));
    assert!(!with(&elsewhere, &claim, &volume, None, &idle));
    let pending = changed(claim.clone(), "/status/phase", json!("Pending"));
    assert!(!with(&pod, &pending, &volume, None, &idle));
    let of_another = changed(volume.clone(), "/spec/claimRef/uid", json!("other"));
    assert!(!with(&pod, &claim, &of_another, None, &idle));
    let by_kubelet = changed(idle.clone(), "/metadata/annotations", json!({}));
    assert!(!with(&pod, &claim, &volume, None, &by_kubelet), "the kubelet does not wait for a controller");
}

#[test]
fn volume_of_an_in_tree_type_is_attached_by_its_csi_driver() {
    let (pod, claim) = (pod("p"), claim());
    let volume = volume(
        &json!({"gcePersistentDisk": {"pdName": "disk", "fsType": "ext4"}, "accessModes": ["ReadWriteOnce"]}),
    );
    let objects = [(PODS, &pod), ("persistentvolumeclaims", &claim), ("persistentvolumes", &volume)];
    let plan = planned(&node(&[], &[]), &objects);
    assert_eq!(shown(&plan), "create pd.csi.storage.gke.io");
    assert_eq!(plan.create[0].object["spec"]["source"], json!({"persistentVolumeName": "pv"}));

    let mut inline = pod.clone();
    inline["spec"]["volumes"] = json!([
        {"name": "v", "gcePersistentDisk": {"pdName": "disk"}},
        {"name": "w", "csi": {"driver": DRIVER}},
    ]);
    let plan = planned(&node(&[], &[]), &[(PODS, &inline)]);
    assert_eq!(shown(&plan), "create pd.csi.storage.gke.io", "one in the spec of a pod is never attached");
    let source = &plan.create[0].object["spec"]["source"]["inlineVolumeSpec"]["csi"];
    assert_eq!(source["driver"], "pd.csi.storage.gke.io");
}

#[test]
fn network_disks_in_use_are_reported_as_attached_at_once() {
    let disks = ["kubernetes.io/iscsi/10.0.0.1:3260:iqn:0", "kubernetes.io/fc/[a b]:3"];
    let with = |in_use: &[&str], attached: &[&str]| shown(&planned(&node(in_use, attached), &[]));
    assert_eq!(
        with(&disks, &[]),
        "attached=[kubernetes.io/fc/[a b]:3 kubernetes.io/iscsi/10.0.0.1:3260:iqn:0]"
    );
    assert_eq!(with(&disks, &disks), "");
    assert_eq!(with(&[], &disks), "attached=[]");
    assert_eq!(with(&["kubernetes.io/rbd/x"], &[]), "");
}

#[test]
fn attachments_of_other_nodes_and_other_names_stay() {
    let mut elsewhere = attachment_with(json!({"attached": true}));
    elsewhere["spec"]["nodeName"] = json!("other");
    let mut other_name = attachment_with(json!({"attached": true}));
    other_name["metadata"]["name"] = json!("other");
    let objects = [(ATTACHMENTS, &elsewhere), (ATTACHMENTS, &other_name)];
    assert_eq!(shown(&planned(&node(&[], &[]), &objects)), "");
}

#[test]
fn only_changes_that_decide_lead_to_a_step() {
    let store = Store::new(10);
    let key = Key::new(NODES, "", "n");
    store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put(node(&[], &[])))).unwrap();
    let affected = |resource, before: &Value, after: &Value| {
        let key = Key::new(resource, object::namespace(after), object::name(after));
        let event = Event {
            key,
            change: Change::Modified,
            object: Arc::new(after.clone()),
            previous: Some(Arc::new(before.clone())),
        };
        store.read(|objects| Attachments::affected(&event, objects)).len()
    };
    let (before, mut ready) = (pod("p"), pod("p"));
    ready["status"]["conditions"] = json!([{"type": "Ready"}]);
    assert_eq!(affected(PODS, &before, &ready), 0);
    ready["status"]["phase"] = json!("Failed");
    assert_eq!(affected(PODS, &before, &ready), 1);
    let mut heartbeat = node(&[], &[]);
    heartbeat["status"]["conditions"] = json!([{"type": "Ready"}]);
    assert_eq!(affected(NODES, &node(&[], &[]), &heartbeat), 0);
    assert_eq!(affected(NODES, &node(&[], &[]), &node(&[UNIQUE], &[])), 1);
    let (mut plain, mut failed) = (before.clone(), before);
    plain["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    failed["spec"]["volumes"] = plain["spec"]["volumes"].clone();
    failed["status"]["phase"] = json!("Failed");
    assert_eq!(affected(PODS, &plain, &failed), 0, "it has no volume that is attached");
}
