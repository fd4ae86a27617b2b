use model::k8s::Pod;
use serde_json::json;

use super::*;

fn plan() -> FlexPlan {
    FlexPlan {
        driver: "kubernetes.io/fakeAttacher".to_owned(),
        fs_type: String::new(),
        secret: None,
        options: BTreeMap::new(),
    }
}

/// The text of a driver in the Go kubelet's documentation, with its own names.
#[test]
fn driver_names_become_directories_and_programs() {
    for (driver, directory, program) in
        [("k8s/nfs", "k8s~nfs", "nfs"), ("nfs", "nfs", "nfs"), ("a.example/b/c", "a.example~b~c", "c")]
    {
        assert_eq!(check_driver(driver), Ok(()));
        assert_eq!((&*directory_name(driver), program_name(driver)), (directory, program));
        assert_eq!(driver_of(directory), driver);
    }
    assert_eq!(
        device_mount(Path::new("/var/lib/kubelet"), "k8s/nfs", "pv"),
        Path::new("/var/lib/kubelet/plugins/kubernetes.io/flexvolume/k8s/nfs/mounts/pv")
    );
    assert_eq!(unique_name("k8s/nfs", "pv"), "k8s/nfs/pv");
}

#[test]
fn driver_names_that_lead_elsewhere_are_refused() {
    for driver in ["", "..", "../x", "a/..", "a/", "/a", "a//b", ".hidden/x", "a/\n", &"x/".repeat(200)] {
        assert!(check_driver(driver).is_err(), "{driver}");
    }
}

/// `flexvolume/mounter_test.go` (TestSetUpAt) and `NewOptionsForDriver`: sorted as Go's encoder does.
#[test]
fn mount_options_name_the_volume_the_pod_and_its_group() {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "my-pod", "namespace": "my-ns", "uid": "my-uid"},
        "spec": {"serviceAccountName": "my-sa", "containers": []},
    }))
    .unwrap();
    assert_eq!(
        options(&plan(), "vol1", false, BTreeMap::new()),
        r#"{"kubernetes.io/fsType":"","kubernetes.io/pvOrVolumeName":"vol1","kubernetes.io/readwrite":"rw"}"#
    );
    assert_eq!(
        options(&plan(), "vol1", true, pod_options(&pod, Some(42))),
        concat!(
            r#"{"kubernetes.io/fsType":"","kubernetes.io/mounterArgs.FsGroup":"42","kubernetes.io/pod.name":"my-pod","#,
            r#""kubernetes.io/pod.namespace":"my-ns","kubernetes.io/pod.uid":"my-uid","kubernetes.io/pvOrVolumeName":"vol1","#,
            r#""kubernetes.io/readwrite":"ro","kubernetes.io/serviceAccount.name":"my-sa"}"#
        )
    );
    assert!(!pod_options(&pod, None).contains_key("kubernetes.io/mounterArgs.FsGroup"));
}

/// `flexvolume/expander.go` (NodeExpand).
#[test]
fn expansion_names_the_device_the_mount_and_both_sizes_in_bytes() {
    let sizes = ["2Gi", "1Gi"].map(|size| Amount::parse(size).unwrap());
    let args = expand_args("{}", "/dev/sdx", Path::new("/m"), sizes[0], sizes[1]);
    assert_eq!(args, ["{}", "/dev/sdx", "/m", "2147483648", "1073741824"]);
}

#[test]
fn options_of_the_volume_replace_none_of_the_kubelet_and_are_escaped_as_go_does() {
    let own = BTreeMap::from([
        ("share".to_owned(), "//host/<a>&b".to_owned()),
        ("kubernetes.io/readwrite".to_owned(), "own".to_owned()),
        ("kubernetes.io/pod.namespace".to_owned(), "kube-system".to_owned()),
        ("kubernetes.io/secret/user".to_owned(), "own".to_owned()),
    ]);
    let plan = FlexPlan { fs_type: "cifs".to_owned(), options: own, ..plan() };
    assert_eq!(
        options(&plan, "v", false, BTreeMap::new()),
        r#"{"kubernetes.io/fsType":"cifs","kubernetes.io/pvOrVolumeName":"v","kubernetes.io/readwrite":"rw","share":"//host/\u003ca\u003e\u0026b"}"#
    );
}

#[test]
fn secret_must_be_of_the_drivers_type_and_its_values_are_base64() {
    let secret = |type_: &str| -> Secret {
        serde_json::from_value(json!({"type": type_, "data": {"user": "YWxpY2U="}})).unwrap()
    };
    assert_eq!(
        secret_options("vendor/driver", &secret("vendor/driver")),
        Ok(BTreeMap::from([("kubernetes.io/secret/user".to_owned(), "YWxpY2U=".to_owned())]))
    );
    assert_eq!(
        secret_options("vendor/driver", &secret("Opaque")),
        Err("cannot get secret of type vendor/driver".to_owned())
    );
}

/// `flexvolume/driver-call_test.go` (TestHandleResponseDefaults) and `handleCmdResponse`.
#[test]
fn answers_are_success_failure_or_not_supported() {
    let parse = |exit, text: &str| parse_answer(Command::Mount, Some(exit), text.as_bytes());
    let failed = |text: &str| Err(CallError::Failed(text.to_owned()));
    assert_eq!(parse(0, r#"{"status": "Success"}"#), Ok(Answer::default()));
    assert_eq!(
        parse(0, r#"{"status": "Success", "device": "/dev/sdx"}"#).map(|answer| answer.device),
        Ok("/dev/sdx".to_owned())
    );
    assert_eq!(parse(1, r#"{"status": "Not supported"}"#), Err(CallError::NotSupported));
    assert_eq!(
        parse(1, r#"{"status": "Failure", "message": "no such share"}"#),
        failed("mount command failed, status: Failure, reason: no such share")
    );
    assert_eq!(parse(0, r#"{"status": ""}"#), failed("mount command failed, status: , reason: "));
    assert_eq!(parse(0, ""), failed("unexpected end of JSON input"));
    assert_eq!(parse(3, r#"{"status": "Success"}"#), failed("exit status 3"), "a bug of the driver");
    assert!(matches!(parse(0, "no json"), Err(CallError::Failed(_))));
    assert!(matches!(parse(0, "[]"), Err(CallError::Failed(_))));
}

#[test]
fn capabilities_that_a_driver_does_not_name_have_the_defaults() {
    let of = |text: &str| parse_answer(Command::Init, Some(0), text.as_bytes()).unwrap().capabilities;
    let default = Capabilities {
        attach: true,
        selinux_relabel: true,
        supports_metrics: false,
        fs_group: true,
        requires_fs_resize: true,
    };
    assert_eq!(of(r#"{"status": "Success"}"#), default);
    let text = r#"{"status": "Success", "capabilities": {"attach": false, "supportsMetrics": true, "fsGroup": false}}"#;
    assert_eq!(of(text), Capabilities { attach: false, supports_metrics: true, fs_group: false, ..default });
    let text =
        r#"{"Status": "Success", "Capabilities": {"selinuxrelabel": false, "requiresFSResize": false}}"#;
    assert_eq!(of(text), Capabilities { selinux_relabel: false, requires_fs_resize: false, ..default });
}
