//! The cases of `nodeinfomanager_test.go` (TestInstallCSIDriver, TestUninstallCSIDriver, TestSetMigrationAnnotation,
//! TestCSINodeOwner…) and the bounds.

use super::*;

const NODE: NodeRef<'static> = NodeRef { name: "node1", uid: "uid-1" };
const DRIVER: &str = "com.example.csi.driver1";
const MIGRATED: &str = "kubernetes.io/aws-ebs,kubernetes.io/azure-disk,kubernetes.io/azure-file,kubernetes.io/cinder,\
                        kubernetes.io/gce-pd,kubernetes.io/portworx-volume,kubernetes.io/vsphere-volume";

fn info(node_id: &str, max_volumes: i64, topology: &[(&str, &str)]) -> NodeInfo {
    let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
    NodeInfo {
        node_id: node_id.to_owned(),
        max_volumes_per_node: max_volumes,
        topology: topology.iter().map(pair).collect(),
    }
}

fn csi_node(drivers: Value) -> CSINode {
    serde_json::from_value(json!({
        "metadata": {
            "name": "node1", "resourceVersion": "7",
            "annotations": {MIGRATED_PLUGINS_ANNOTATION: MIGRATED},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": "uid-1"}],
        },
        "spec": {"drivers": drivers},
    }))
    .unwrap()
}

fn driver(name: &str, node_id: &str, keys: &[&str], count: Option<i32>) -> Value {
    let mut driver = json!({"name": name, "nodeID": node_id, "topologyKeys": keys});
    if let Some(count) = count {
        driver["allocatable"] = json!({"count": count});
    }
    driver
}

fn node(metadata: Value) -> Node {
    let mut node = json!({"metadata": metadata});
    node["metadata"]["name"] = json!("node1");
    serde_json::from_value(node).unwrap()
}

/// The drivers that are written; `None` if nothing is.
fn written(write: CsiNodeWrite) -> Option<Value> {
    match write {
        CsiNodeWrite::Nothing => None,
        CsiNodeWrite::Create(node) | CsiNodeWrite::Update(node) => Some(json!(node.spec.drivers)),
        CsiNodeWrite::Delete { why } => Some(json!(why)),
    }
}

/// The request that the Go kubelet sent (`go-kubelet/_calls.jsonl`). It has `drivers: []` in JSON; the recording shows `null`,
/// because its protobuf form has no empty list.
#[test]
fn missing_csi_node_is_created_as_the_go_kubelet_creates_it() {
    let CsiNodeWrite::Create(created) = compute_initialization(None, NODE) else { panic!("not created") };
    let expected = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "CSINode",
        "metadata": {
            "name": "node1",
            "annotations": {"storage.alpha.kubernetes.io/migrated-plugins": MIGRATED},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": "uid-1"}],
        },
        "spec": {"drivers": []},
    });
    assert_eq!(json!(created), expected);
}

#[test]
fn existing_csi_node_is_initialized_only_if_its_annotation_differs() {
    let found = csi_node(json!([driver(DRIVER, "id", &[], None)]));
    assert_eq!(compute_initialization(Some(&found), NODE), CsiNodeWrite::Nothing);
    for (annotation, is_quiet) in [
        (
            "kubernetes.io/vsphere-volume,kubernetes.io/portworx-volume,kubernetes.io/gce-pd,kubernetes.io/cinder,\
          kubernetes.io/azure-file,kubernetes.io/azure-disk,kubernetes.io/aws-ebs",
            true,
        ),
        ("kubernetes.io/gce-pd", false),
        ("", false),
    ] {
        let mut old = found.clone();
        let annotations = old.metadata.annotations.as_mut().unwrap();
        annotations.insert(MIGRATED_PLUGINS_ANNOTATION.to_owned(), annotation.to_owned());
        annotations.insert("theirs".to_owned(), "kept".to_owned());
        match compute_initialization(Some(&old), NODE) {
            CsiNodeWrite::Nothing => assert!(is_quiet, "{annotation}"),
            CsiNodeWrite::Update(new) => {
                assert!(!is_quiet, "{annotation}");
                let annotations = new.metadata.annotations.as_ref().unwrap();
                assert_eq!(annotations[MIGRATED_PLUGINS_ANNOTATION], MIGRATED);
                assert_eq!(annotations["theirs"], "kept");
                assert_eq!((&new.spec, new.metadata.resource_version.as_deref()), (&old.spec, Some("7")));
            }
            other @ (CsiNodeWrite::Create(_) | CsiNodeWrite::Delete { .. }) => panic!("{other:?}"),
        }
    }
}

#[test]
fn csi_node_of_an_earlier_node_of_this_name_is_deleted_before_it_is_created_again() {
    let found = csi_node(json!([]));
    let again = NodeRef { name: "node1", uid: "uid-2" };
    let why = "CSINode \"node1\" was owned by different node (oldNodeID=\"uid-1\", newNodeID=\"uid-2\"), deleted it";
    assert_eq!(compute_initialization(Some(&found), again), CsiNodeWrite::Delete { why: why.to_owned() });
    let mut orphan = found;
    orphan.metadata.owner_references = None;
    let CsiNodeWrite::Delete { why } = compute_initialization(Some(&orphan), NODE) else { panic!("kept") };
    assert!(why.contains("oldNodeID=\"\""), "{why}");
}

#[test]
fn driver_is_installed_once_with_its_id_topology_and_count() {
    let zone = "com.example.csi/zone";
    let other = driver("net.example.other", "o", &[], None);
    let install = |drivers: Value, info: &NodeInfo| {
        written(compute_install(Some(&csi_node(drivers)), NODE, DRIVER, info))
    };
    let plain = info("csiNode1", 0, &[]);
    for (what, before, info, after) in [
        ("new", json!([]), plain.clone(), Some(json!([driver(DRIVER, "csiNode1", &[], None)]))),
        ("same", json!([driver(DRIVER, "csiNode1", &[], None)]), plain.clone(), None),
        ("same without a list of keys", json!([{"name": DRIVER, "nodeID": "csiNode1"}]), plain.clone(), None),
        (
            "other drivers stay",
            json!([other]),
            plain.clone(),
            Some(json!([other, driver(DRIVER, "csiNode1", &[], None)])),
        ),
        (
            "another id",
            json!([driver(DRIVER, "old", &[], None)]),
            plain.clone(),
            Some(json!([driver(DRIVER, "csiNode1", &[], None)])),
        ),
        (
            "topology",
            json!([]),
            info("csiNode1", 10, &[("com.example.csi/zone", "z1"), ("com.example.csi/rack", "r")]),
            Some(json!([driver(DRIVER, "csiNode1", &["com.example.csi/rack", zone], Some(10))])),
        ),
        (
            "topology of another zone",
            json!([driver(DRIVER, "csiNode1", &[zone], Some(10))]),
            info("csiNode1", 10, &[(zone, "z2")]),
            None,
        ),
        (
            "a limit that is gone",
            json!([driver(DRIVER, "csiNode1", &[], Some(10))]),
            plain.clone(),
            Some(json!([driver(DRIVER, "csiNode1", &[], None)])),
        ),
        (
            "a limit beyond the API's",
            json!([]),
            info("csiNode1", i64::from(i32::MAX) + 1, &[]),
            Some(json!([driver(DRIVER, "csiNode1", &[], Some(i32::MAX))])),
        ),
        (
            "the same limit beyond the API's",
            json!([driver(DRIVER, "csiNode1", &[], Some(i32::MAX))]),
            info("csiNode1", i64::MAX, &[]),
            None,
        ),
        (
            "a negative limit",
            json!([]),
            info("csiNode1", -1, &[]),
            Some(json!([driver(DRIVER, "csiNode1", &[], None)])),
        ),
    ] {
        assert_eq!(install(before, &info), after, "{what}");
    }
    let created = compute_install(None, NODE, DRIVER, &plain);
    assert_eq!(
        written(created),
        Some(json!([driver(DRIVER, "csiNode1", &[], None)])),
        "created with the driver"
    );
}

#[test]
fn mutable_allocatable_count_changes_nothing_else() {
    let found = csi_node(json!([driver(DRIVER, "id", &["k"], Some(10)), driver("other", "o", &[], None)]));
    let update =
        |driver: &str, count: i64| written(compute_allocatable_update(Some(&found), NODE, driver, count));
    assert_eq!(update(DRIVER, 10), None);
    assert_eq!(
        update(DRIVER, 7),
        Some(json!([driver(DRIVER, "id", &["k"], Some(7)), driver("other", "o", &[], None)]))
    );
    assert_eq!(update("unknown", 7), None);
    assert_eq!(compute_allocatable_update(None, NODE, DRIVER, 7), CsiNodeWrite::Nothing);
}

#[test]
fn uninstalled_driver_leaves_the_csi_node_and_the_other_drivers() {
    let other = driver("net.example.other", "o", &[], None);
    let both = csi_node(json!([driver(DRIVER, "id", &[], None), other]));
    assert_eq!(written(compute_uninstall(Some(&both), DRIVER)), Some(json!([other])));
    let one = csi_node(json!([driver(DRIVER, "id", &[], None)]));
    assert_eq!(written(compute_uninstall(Some(&one), DRIVER)), Some(json!([])));
    assert_eq!(compute_uninstall(Some(&one), "unknown"), CsiNodeWrite::Nothing);
    assert_eq!(compute_uninstall(None, DRIVER), CsiNodeWrite::Nothing);
}

#[test]
fn node_gets_the_annotation_and_the_topology_labels_of_a_driver() {
    let install = |metadata: Value, info: &NodeInfo| compute_node_install(&node(metadata), DRIVER, info);
    let annotation = |ids: Value| json!({"annotations": {NODE_ID_ANNOTATION: ids.to_string()}});
    let zone = info("id", 0, &[("com.example.csi/zone", "z1")]);
    for (what, metadata, info, expected) in [
        ("plain", json!({}), info("id", 0, &[]), Some(annotation(json!({DRIVER: "id"})))),
        (
            "with others",
            annotation(json!({"a.example": "1"})),
            info("id", 0, &[]),
            Some(annotation(json!({"a.example": "1", DRIVER: "id"}))),
        ),
        ("same", annotation(json!({DRIVER: "id"})), info("id", 0, &[]), None),
        (
            "null",
            json!({"annotations": {NODE_ID_ANNOTATION: "null"}}),
            info("id", 0, &[]),
            Some(annotation(json!({DRIVER: "id"}))),
        ),
        (
            "topology",
            annotation(json!({DRIVER: "id"})),
            zone.clone(),
            Some(json!({"labels": {"com.example.csi/zone": "z1"}})),
        ),
        (
            "topology that is there",
            json!({"annotations": {NODE_ID_ANNOTATION: json!({DRIVER: "id"}).to_string()},
                "labels": {"com.example.csi/zone": "z1", "theirs": "x"}}),
            zone.clone(),
            None,
        ),
    ] {
        let expected = expected.map(|metadata| json!({"metadata": metadata}));
        assert_eq!(install(metadata, &info), Ok(expected), "{what}");
    }
    let collision = install(json!({"labels": {"com.example.csi/zone": "other"}}), &zone);
    let text = "detected topology value collision: driver reported \"com.example.csi/zone\":\"z1\" but existing label is \
                \"com.example.csi/zone\":\"other\"";
    assert_eq!(collision, Err(text.to_owned()));
    let damaged = install(json!({"annotations": {NODE_ID_ANNOTATION: "{"}}), &zone).unwrap_err();
    assert!(damaged.starts_with(
        "failed to parse node's \"csi.volume.kubernetes.io/nodeid\" annotation value (\"{\") err="
    ));
}

#[test]
fn node_loses_the_id_of_an_uninstalled_driver_and_keeps_its_topology() {
    let uninstall = |ids: &str| {
        compute_node_uninstall(
            &node(json!({"annotations": {NODE_ID_ANNOTATION: ids}, "labels": {"z": "1"}})),
            DRIVER,
        )
    };
    let patch = |value: Value| Ok(Some(json!({"metadata": {"annotations": {NODE_ID_ANNOTATION: value}}})));
    assert_eq!(uninstall(&json!({DRIVER: "id"}).to_string()), patch(Value::Null));
    assert_eq!(uninstall(&json!({DRIVER: "id", "b": "2"}).to_string()), patch(json!(r#"{"b":"2"}"#)));
    assert_eq!(uninstall(r#"{"b":"2"}"#), Ok(None));
    assert_eq!(compute_node_uninstall(&node(json!({})), DRIVER), Ok(None));
    assert!(uninstall("x").is_err());
}

#[test]
fn what_a_driver_says_about_the_node_is_bounded() {
    let long = |n: usize| "x".repeat(n);
    assert_eq!(
        check_node_info(DRIVER, &info("", 0, &[])),
        Err("error adding CSI driver node info: driverNodeID must not be empty".to_owned())
    );
    assert_eq!(check_node_info(&long(63), &info(&long(192), 0, &[(&long(2048), &long(2048))])), Ok(()));
    for (driver, info, what) in [
        (long(64), info("id", 0, &[]), "name of the driver has 64 bytes, but may have at most 63"),
        (long(1), info(&long(193), 0, &[]), "node ID of the driver has 193 bytes, but may have at most 192"),
        (long(1), info("id", 0, &[("k", &long(4096))]), "topology of the driver has 4097 bytes"),
    ] {
        let error = check_node_info(&driver, &info).unwrap_err();
        assert!(error.contains(what), "{error}");
    }
    let full = csi_node((0..256).map(|n| driver(&format!("d{n}"), "id", &[], None)).collect());
    assert!(check_driver_count(Some(&full), "d7").is_ok() && check_driver_count(None, "d").is_ok());
    assert!(check_driver_count(Some(&full), "another").is_err());
}

/// `csi_plugin.go` (initializeCSINode): 30 ms, times 8, six attempts; `nodeinfomanager.go` (updateBackoff): 10 ms, times 5, four.
#[test]
fn retries_have_the_delays_of_the_go_kubelet() {
    let delays = |retries: Retries, random: f64| -> Vec<u128> {
        (1..).map_while(|failed| retries.delay(failed, random)).map(|delay| delay.as_millis()).collect()
    };
    assert_eq!(delays(INIT_RETRIES, 0.0), [30, 240, 1920, 15_360, 122_880]);
    assert_eq!(delays(INIT_RETRIES, 1.0), [33, 264, 2112, 16_896, 135_168]);
    assert_eq!(delays(WRITE_RETRIES, 0.0), [10, 50, 250]);
}

#[test]
fn error_of_the_last_attempt_has_each_failure_once() {
    let failures = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let error = |texts: &[&str]| timed_out("error updating node", &failures(texts));
    let begin = "error updating node: timed out waiting for the condition; caused by: ";
    assert_eq!(error(&["a", "a"]), format!("{begin}a"));
    assert_eq!(error(&["b", "a", "b"]), format!("{begin}[b, a]"));
}

/// `csi_node_updater.go`; the API refuses less than ten seconds.
#[test]
fn allocatable_is_updated_in_the_period_of_the_driver() {
    let period = |seconds: Option<i64>| {
        let spec = json!({"nodeAllocatableUpdatePeriodSeconds": seconds});
        let driver: CSIDriver =
            serde_json::from_value(json!({"metadata": {"name": DRIVER}, "spec": spec})).unwrap();
        update_period(&driver).map(|period| period.as_secs())
    };
    assert_eq!([period(None), period(Some(0)), period(Some(-1))], [None, None, None]);
    assert_eq!([period(Some(60)), period(Some(1))], [Some(60), Some(10)]);
}
