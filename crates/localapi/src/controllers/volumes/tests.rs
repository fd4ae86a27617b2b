use super::claims::Waiting;
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
    assert!(matches!(
        step(&claim("", "9Gi"), volumes),
        ClaimStep::Wait(Waiting { reason: "FailedBinding", .. })
    ));
    let mut selective = claim("", "1Gi");
    selective["spec"]["selector"] = json!({"matchLabels": {"disk": "big"}});
    assert_eq!(step(&selective, volumes), ClaimStep::Bind(volume_key("big")));
    let mut exclusive = claim("", "1Gi");
    exclusive["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    assert!(matches!(step(&exclusive, volumes), ClaimStep::Wait(_)));
    assert!(matches!(
        step(&claim("other", "1Gi"), volumes),
        ClaimStep::Wait(Waiting { kind: "Warning", reason: "ProvisioningFailed", .. })
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
    assert!(matches!(step(&claim("", "1Gi"), &[(VOLUMES, &taken)]), ClaimStep::Wait(_)));
}

/// Why the claim has no volume.
fn why(claim: &Value, others: &[(&'static str, &Value)]) -> (&'static str, &'static str, String) {
    let ClaimStep::Wait(Waiting { kind, reason, message }) = step(claim, others) else {
        panic!("it waits for nothing")
    };
    (kind, reason, message)
}

#[test]
fn named_volume_that_does_not_fit_or_is_not_there_is_named_with_its_reason() {
    let naming = |class: &str, size: &str| {
        let mut claim = claim(class, size);
        claim["spec"]["volumeName"] = json!("v");
        claim
    };
    let free = volume("v", "", "1Gi");
    assert_eq!(step(&naming("", "1Gi"), &[(VOLUMES, &free)]), ClaimStep::Bind(volume_key("v")));
    let mismatch = |claim: &Value, why_not: &str| {
        let message = format!("Cannot bind to requested volume \"v\": {why_not}");
        assert_eq!(why(claim, &[(VOLUMES, &free)]), ("Warning", "VolumeMismatch", message));
    };
    mismatch(&naming("", "2Gi"), "requested PV is too small");
    mismatch(&naming("fast", "1Gi"), "storageClassName does not match");
    let mut block = naming("", "1Gi");
    block["spec"]["volumeMode"] = json!("Block");
    mismatch(&block, "incompatible volumeMode");
    let mut shared = naming("", "1Gi");
    shared["spec"]["accessModes"] = json!(["ReadWriteMany"]);
    mismatch(&shared, "incompatible accessMode");

    // An administrator who reserves it for the claim has decided.
    let mut reserved = free.clone();
    reserved["spec"]["claimRef"] = json!({"namespace": "a", "name": "c"});
    assert_eq!(step(&naming("", "2Gi"), &[(VOLUMES, &reserved)]), ClaimStep::Bind(volume_key("v")));

    let taken = bound(volume("v", "", "1Gi"), "another");
    let message = "volume \"v\" already bound to a different claim.".to_owned();
    assert_eq!(why(&naming("", "1Gi"), &[(VOLUMES, &taken)]), ("Warning", "FailedBinding", message));
    let mut terminating = volume("v", "", "1Gi");
    terminating["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let message = "volume \"v\" is being deleted".to_owned();
    assert_eq!(why(&naming("", "1Gi"), &[(VOLUMES, &terminating)]), ("Warning", "FailedBinding", message));
    let message = "volume \"v\" does not exist".to_owned();
    assert_eq!(why(&naming("", "1Gi"), &[]), ("Warning", "FailedBinding", message));
}

#[test]
fn class_that_binds_late_leaves_free_volumes_until_a_pod_uses_the_claim() {
    let late = class_with("kubernetes.io/no-provisioner", "WaitForFirstConsumer");
    let free = volume("v", "fast", "1Gi");
    let (_, reason, _) = why(&claim("fast", "1Gi"), &[(CLASSES, &late), (VOLUMES, &free)]);
    assert_eq!(reason, "WaitForFirstConsumer");
    let pod = json!({
        "metadata": {"name": "p", "namespace": "a"},
        "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
    });
    let bind = ClaimStep::Bind(volume_key("v"));
    assert_eq!(step(&claim("fast", "1Gi"), &[(CLASSES, &late), (VOLUMES, &free), (PODS, &pod)]), bind);
    // One that is reserved for the claim needs no choice.
    let mut reserved = free;
    reserved["spec"]["claimRef"] = json!({"namespace": "a", "name": "c"});
    assert_eq!(step(&claim("fast", "1Gi"), &[(CLASSES, &late), (VOLUMES, &reserved)]), bind);
}

#[test]
fn volume_that_should_be_deleted_and_that_nothing_deletes_has_failed_once() {
    let next = |volume: &Value| store(&[]).read(|objects| persistent::step(volume, objects));
    let mut made_manually = bound(volume("v", "", "1Gi"), "uid-c");
    made_manually["spec"]["persistentVolumeReclaimPolicy"] = json!("Delete");
    let VolumeStep::Failed(failed) = next(&made_manually) else { panic!("it has failed") };
    assert_eq!(
        (text(&failed, "/status/phase"), text(&failed, "/status/message")),
        ("Failed", persistent::MANUAL_DELETION)
    );
    assert_eq!(next(&failed), VolumeStep::Nothing);
    // As the message says.
    let mut retained = failed;
    retained["spec"]["persistentVolumeReclaimPolicy"] = json!("Retain");
    let VolumeStep::Put(released) = next(&retained) else { panic!("it is kept") };
    assert_eq!(released["status"], json!({"phase": "Released"}));
    // The provisioner of its driver deletes it.
    made_manually["spec"]["csi"] = json!({"driver": "csi.example.com"});
    let VolumeStep::Put(waits) = next(&made_manually) else { panic!("it waits for its driver") };
    assert_eq!(waits["status"]["phase"], "Released");
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
        ClaimStep::Wait(Waiting { kind: "Normal", reason: "WaitForFirstConsumer", .. })
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
        ClaimStep::Wait(Waiting { kind: "Normal", reason: "ExternalProvisioning", .. })
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
        VolumeStep::Failed(_) => "failed".to_owned(),
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
