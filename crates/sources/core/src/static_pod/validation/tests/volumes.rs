//! Volumes, the files in them and where containers mount them.

use super::*;

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
