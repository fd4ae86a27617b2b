use serde_json::{Value, json};

use super::*;

fn plan() -> CsiPlan {
    CsiPlan {
        spec_name: "pv".to_owned(),
        driver: "test-driver".to_owned(),
        handle: "vol-1".to_owned(),
        lifecycle: Lifecycle::Persistent,
        is_device: false,
        fs_type: "ext4".to_owned(),
        attributes: BTreeMap::from([("foo".to_owned(), "bar".to_owned())]),
        access_modes: vec!["ReadWriteOnce".to_owned()],
        mount_options: vec!["noatime".to_owned()],
        stage_secret: None,
        publish_secret: None,
        expand_secret: None,
        is_migrated: false,
    }
}

fn facts<'a>(plan: &'a CsiPlan, publish_context: &'a BTreeMap<String, String>) -> CallFacts<'a> {
    let capabilities = NodeCapabilities::default();
    CallFacts { plan, capabilities, publish_context, group: Some(2000), selinux_context: None }
}

fn pod() -> Pod {
    let pod = json!({
        "metadata": {"name": "test-pod", "namespace": "test-ns", "uid": "test-uid"},
        "spec": {"serviceAccountName": "test-service-account", "containers": []},
    });
    serde_json::from_value(pod).unwrap()
}

fn rules(spec: Value) -> DriverRules {
    let driver = json!({"metadata": {"name": "test-driver"}, "spec": spec});
    DriverRules::of(Some(&serde_json::from_value(driver).unwrap()))
}

fn published(plan: &CsiPlan, rules: &DriverRules, tokens: &[AudienceToken]) -> PublishRequest {
    let (pod, nothing) = (pod(), BTreeMap::new());
    let publish = PublishFacts { pod: &pod, rules, read_only: false, tokens };
    let target = PathBuf::from("/pods/u/mount");
    publish_request(&facts(plan, &nothing), &publish, None, target, DriverSecrets::default())
}

/// The cases of the Go kubelet's `TestAccessModeMapping`.
#[test]
fn access_modes_are_those_that_the_driver_distinguishes() {
    for (mode, is_capable, expected) in [
        ("ReadWriteOnce", false, AccessMode::SingleNodeWriter),
        ("ReadOnlyMany", false, AccessMode::MultiNodeReaderOnly),
        ("ReadWriteMany", false, AccessMode::MultiNodeMultiWriter),
        ("ReadWriteOncePod", false, AccessMode::SingleNodeWriter),
        ("ReadWriteOnce", true, AccessMode::SingleNodeMultiWriter),
        ("ReadOnlyMany", true, AccessMode::MultiNodeReaderOnly),
        ("ReadWriteMany", true, AccessMode::MultiNodeMultiWriter),
        ("ReadWriteOncePod", true, AccessMode::SingleNodeSingleWriter),
        ("Another", true, AccessMode::Unknown),
    ] {
        assert_eq!(access_mode(&[mode.to_owned()], is_capable), expected, "{mode} {is_capable}");
    }
    assert_eq!(access_mode(&[], false), AccessMode::SingleNodeWriter);
}

#[test]
fn the_pods_group_is_given_to_a_driver_that_applies_it() {
    let (plan, nothing) = (plan(), BTreeMap::new());
    let mut facts = facts(&plan, &nothing);
    let group = |facts: &CallFacts<'_>| match capability(facts).access_type {
        AccessType::Mount { volume_mount_group, .. } => volume_mount_group,
        AccessType::Block => "a device".to_owned(),
    };
    assert_eq!(group(&facts), "");
    facts.capabilities.volume_mount_group = true;
    assert_eq!(group(&facts), "2000");
}

#[test]
fn an_selinux_context_is_a_quoted_mount_option_after_the_others() {
    let (plan, nothing) = (plan(), BTreeMap::new());
    let context = Some("system_u:object_r:container_file_t:s0:c15,c25");
    let facts = CallFacts { selinux_context: context, ..facts(&plan, &nothing) };
    let AccessType::Mount { mount_flags, fs_type, .. } = capability(&facts).access_type else {
        panic!("a device")
    };
    assert_eq!(mount_flags, ["noatime", "context=\"system_u:object_r:container_file_t:s0:c15,c25\""]);
    assert_eq!(fs_type, "ext4");
}

#[test]
fn a_device_is_staged_without_filesystem_and_options() {
    let plan = CsiPlan { is_device: true, ..plan() };
    let attached = BTreeMap::from([("device".to_owned(), "/dev/sdx".to_owned())]);
    let request = stage_request(&facts(&plan, &attached), "/staging".into(), DriverSecrets::default());
    assert_eq!(request.capability.access_type, AccessType::Block);
    assert_eq!(request.publish_context, attached);
    assert_eq!(request.volume_context, plan.attributes);
}

#[test]
fn a_driver_learns_of_the_pod_if_it_asks() {
    let silent = published(&plan(), &rules(json!({})), &[]);
    assert_eq!(silent.volume_context.0, plan().attributes);
    let context = published(&plan(), &rules(json!({"podInfoOnMount": true})), &[]).volume_context.0;
    let info = |key: &str| context[&format!("csi.storage.k8s.io/{key}")].as_str();
    assert_eq!(info("pod.name"), "test-pod");
    assert_eq!(info("pod.namespace"), "test-ns");
    assert_eq!(info("pod.uid"), "test-uid");
    assert_eq!(info("serviceAccount.name"), "test-service-account");
    assert_eq!(info("ephemeral"), "false");
    assert_eq!(context["foo"], "bar");
    assert_eq!(context.len(), 6);
}

/// The cases of the Go kubelet's `TestPodServiceAccountTokenAttrs`.
#[test]
fn tokens_of_the_pod_are_in_the_context_or_in_the_secrets() {
    let token = |audience: &str| AudienceToken {
        audience: audience.to_owned(),
        token: format!("test-ns:test-service-account:3600:[{audience}]"),
        expires_at: Timestamp::from_second(1).unwrap(),
    };
    let key = "csi.storage.k8s.io/serviceAccount.tokens";
    for (audience, shown) in [("", "api"), ("gcp", "gcp")] {
        let token = AudienceToken { audience: audience.to_owned(), ..token(shown) };
        let request =
            published(&plan(), &rules(json!({"tokenRequests": [{"audience": audience}]})), &[token]);
        let expected = format!(
            "{{\"{audience}\":{{\"token\":\"test-ns:test-service-account:3600:[{shown}]\",\
             \"expirationTimestamp\":\"1970-01-01T00:00:01Z\"}}}}"
        );
        assert_eq!(request.volume_context.0[key], expected);
        assert!(request.secrets.0.is_empty());
    }
    let in_secrets = json!({"tokenRequests": [{"audience": "gcp"}], "serviceAccountTokenInSecrets": true});
    let request = published(&plan(), &rules(in_secrets), &[token("gcp")]);
    assert!(request.secrets.0.contains_key(key) && !request.volume_context.0.contains_key(key));
}
