use super::*;
use crate::store::Store;

fn claim(class: &str, size: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "c", "namespace": "a", "uid": "uid-c", "finalizers": [CLAIM_PROTECTION]},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            "storageClassName": class,
            "volumeMode": "Filesystem",
        },
        "status": {"phase": "Pending"},
    })
}

fn volume(name: &str, class: &str, size: &str) -> Value {
    json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {"disk": name}},
        "spec": {
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "capacity": {"storage": size},
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": class,
            "volumeMode": "Filesystem",
        },
        "status": {"phase": "Available"},
    })
}

fn class_with(provisioner: &str, mode: &str) -> Value {
    json!({"metadata": {"name": "fast"}, "provisioner": provisioner, "reclaimPolicy": "Delete", "volumeBindingMode": mode})
}

fn store(objects: &[(&'static str, &Value)]) -> Store {
    let store = Store::new(10);
    for (resource, object) in objects {
        let key = Key::new(resource, object::namespace(object), object::name(object));
        store.write(&key, |_, _| Ok::<_, NotStored>(Write::Put((*object).clone()))).unwrap();
    }
    store
}

/// The step of the claim with these other objects.
fn step(claim: &Value, others: &[(&'static str, &Value)]) -> ClaimStep {
    store(others).read(|objects| claims::step(claim, &claim_key("a", "c"), objects))
}

fn bound(mut volume: Value, uid: &str) -> Value {
    volume["spec"]["claimRef"] = json!({"namespace": "a", "name": "c", "uid": uid});
    volume
}

#[test]
fn claim_is_bound_to_the_smallest_volume_that_fits() {
    let (small, big) = (volume("small", "", "1Gi"), volume("big", "", "5Gi"));
    let volumes: &[(&str, &Value)] = &[(VOLUMES, &small), (VOLUMES, &big)];
    assert_eq!(step(&claim("", "1Gi"), volumes), ClaimStep::Bind(volume_key("small")));
    assert_eq!(step(&claim("", "2Gi"), volumes), ClaimStep::Bind(volume_key("big")));
    assert!(matches!(step(&claim("", "9Gi"), volumes), ClaimStep::Wait { reason: "FailedBinding", .. }));
    let mut selective = claim("", "1Gi");
    selective["spec"]["selector"] = json!({"matchLabels": {"disk": "big"}});
    assert_eq!(step(&selective, volumes), ClaimStep::Bind(volume_key("big")));
    let mut exclusive = claim("", "1Gi");
    exclusive["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    assert!(matches!(step(&exclusive, volumes), ClaimStep::Wait { .. }));
    assert!(matches!(
        step(&claim("other", "1Gi"), volumes),
        ClaimStep::Wait { reason: "ProvisioningFailed", .. }
    ));
}

#[test]
fn reserved_volume_is_taken_first_and_one_of_another_claim_never() {
    let mut reserved = volume("reserved", "", "9Gi");
    reserved["spec"]["claimRef"] = json!({"namespace": "a", "name": "c"});
    let small = volume("small", "", "1Gi");
    assert_eq!(
        step(&claim("", "1Gi"), &[(VOLUMES, &reserved), (VOLUMES, &small)]),
        ClaimStep::Bind(volume_key("reserved"))
    );
    let taken = bound(volume("small", "", "1Gi"), "another");
    assert!(matches!(step(&claim("", "1Gi"), &[(VOLUMES, &taken)]), ClaimStep::Wait { .. }));
}

#[test]
fn binding_is_written_down_once() {
    let volume = bound(volume("v", "", "2Gi"), "uid-c");
    let ClaimStep::Put(next) = step(&claim("", "1Gi"), &[(VOLUMES, &volume)]) else { panic!("it is bound") };
    assert_eq!(next["spec"]["volumeName"], "v");
    assert_eq!(
        next["status"],
        json!({
            "phase": "Bound",
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            "capacity": {"storage": "2Gi"},
        })
    );
    assert_eq!(step(&next, &[(VOLUMES, &volume)]), ClaimStep::Nothing);
    // The volume is gone.
    let ClaimStep::Lost(lost) = step(&next, &[]) else { panic!("it is lost") };
    assert_eq!(lost["status"]["phase"], "Lost");
    assert_eq!(step(&lost, &[]), ClaimStep::Nothing);
}

#[test]
fn class_decides_who_makes_a_volume_and_when() {
    let own = class_with(PROVISIONER, "Immediate");
    let provision = ClaimStep::Provision { class: "fast".to_owned(), policy: "Delete".to_owned() };
    assert_eq!(step(&claim("fast", "1Gi"), &[(CLASSES, &own)]), provision);
    let late = class_with(PROVISIONER, "WaitForFirstConsumer");
    assert!(matches!(
        step(&claim("fast", "1Gi"), &[(CLASSES, &late)]),
        ClaimStep::Wait { reason: "WaitForFirstConsumer", .. }
    ));
    let pod = json!({
        "metadata": {"name": "p", "namespace": "a"},
        "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    });
    assert_eq!(step(&claim("fast", "1Gi"), &[(CLASSES, &late), (PODS, &pod)]), provision);
    let driver = class_with("csi.example.com", "Immediate");
    assert_eq!(step(&claim("fast", "1Gi"), &[(CLASSES, &driver)]), ClaimStep::SelectNode);
    let mut selected = claim("fast", "1Gi");
    selected["metadata"]["annotations"] =
        json!({claims::SELECTED_NODE: "n", claims::STORAGE_PROVISIONER: "csi.example.com"});
    assert!(matches!(
        step(&selected, &[(CLASSES, &driver)]),
        ClaimStep::Wait { reason: "ExternalProvisioning", .. }
    ));
}

#[test]
fn deleted_claim_stays_until_no_pod_uses_it() {
    let mut deleted = claim("", "1Gi");
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    deleted["metadata"]["deletionGracePeriodSeconds"] = json!(0);
    let mut pod = json!({
        "metadata": {"name": "p", "namespace": "a"},
        "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
        "status": {"phase": "Running"},
    });
    assert_eq!(step(&deleted, &[(PODS, &pod)]), ClaimStep::Nothing);
    pod["status"]["phase"] = json!("Succeeded");
    let ClaimStep::Put(next) = step(&deleted, &[(PODS, &pod)]) else { panic!("it is released") };
    assert!(object::finalizers(&next).is_empty());
}

#[test]
fn volume_is_bound_released_and_deleted_after_its_claim() {
    let phase_of = |volume: &Value, others: &[(&'static str, &Value)]| match store(others)
        .read(|objects| persistent::step(volume, objects))
    {
        VolumeStep::Put(next) => text(&next, "/status/phase").to_owned(),
        VolumeStep::Nothing => format!("still {}", text(volume, "/status/phase")),
        VolumeStep::Delete => "delete".to_owned(),
    };
    let mut own = claim("", "1Gi");
    let free = volume("v", "", "1Gi");
    assert_eq!(phase_of(&free, &[]), "still Available");
    let reserved = bound(free, "uid-c");
    assert_eq!(phase_of(&reserved, &[(CLAIMS, &own)]), "still Available");
    own["spec"]["volumeName"] = json!("v");
    assert_eq!(phase_of(&reserved, &[(CLAIMS, &own)]), "Bound");
    assert_eq!(phase_of(&reserved, &[]), "Released");
    let new =
        LocalVolume { name: "v", path: "/volumes/v".to_owned(), node: "n", class: "local", policy: "Delete" };
    let mut local = persistent::local(&new, &own);
    assert_eq!(phase_of(&local, &[]), "delete");
    local["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    assert_eq!(phase_of(&local, &[]), "Released");
}

#[test]
fn volume_that_lost_a_race_for_its_claim_is_free_again() {
    let mut own = claim("", "1Gi");
    own["spec"]["volumeName"] = json!("other");
    let mut loser = bound(volume("v", "", "1Gi"), "uid-c");
    set_annotation(&mut loser, BOUND_BY_CONTROLLER, "yes");
    let VolumeStep::Put(next) = store(&[(CLAIMS, &own)]).read(|objects| persistent::step(&loser, objects))
    else {
        panic!("it is released")
    };
    assert_eq!(claim_of(&next), None);
}

#[test]
fn ephemeral_volume_has_a_claim_that_the_pod_owns() {
    let pod = json!({
        "metadata": {"name": "p", "namespace": "a", "uid": "uid-p"},
        "spec": {"volumes": [{
            "name": "scratch",
            "ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": {"a": "b"}}, "spec": {"storageClassName": "local"}}},
        }]},
    });
    let claims = ephemeral::claims(&pod);
    assert_eq!(claims[0]["metadata"]["name"], "p-scratch");
    assert_eq!(claims[0]["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(claims[0]["metadata"]["ownerReferences"][0]["uid"], "uid-p");
    assert_eq!(claims[0]["spec"], json!({"storageClassName": "local"}));
    assert_eq!(claims_of_pod(&pod).collect::<Vec<_>>(), [claim_key("a", "p-scratch")]);
}
