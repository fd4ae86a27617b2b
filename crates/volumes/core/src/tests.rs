use std::collections::BTreeMap;
use std::sync::Arc;

use crate::pod_certificate::{CertificateId, CredentialError, Refusal};
use base_core::downward::DownwardFacts;
use base_core::service_account_token::TokenRequirement;
use expect_test::{Expect, expect};
use model::k8s::{ConfigMap, Pod, Secret};
use model::{Credential, PrivateKey};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": { "name": "web", "namespace": "shop", "uid": "u1", "labels": { "app": "web", "tier": "front" } },
        "spec": spec,
    }))
    .expect("a pod")
}

fn objects() -> VolumeObjects {
    let map: ConfigMap = serde_json::from_value(json!({
        "metadata": { "name": "settings" }, "data": { "a.conf": "A", "b.conf": "B" }, "binaryData": { "bin": "AAE=" },
    }))
    .expect("a config map");
    let secret: Secret = serde_json::from_value(json!({
        "metadata": { "name": "keys" }, "data": { "password": "c2VzYW1l" },
    }))
    .expect("a secret");
    VolumeObjects {
        config_maps: BTreeMap::from([("settings".to_owned(), Arc::new(map))]),
        secrets: BTreeMap::from([("keys".to_owned(), Arc::new(secret))]),
        tokens: BTreeMap::from([(TokenRequirement::new(None, Some(3607)), "eyJ".to_owned())]),
        bundles: None,
        certificates: None,
    }
}

/// The files of the pod's only volume, one a line, or why there are none.
fn files_of(pod: &Pod, objects: &VolumeObjects) -> String {
    let allocatable = BTreeMap::new();
    let facts = DownwardFacts { container: "", pod_ips: &[], host_ips: &[], allocatable: &allocatable };
    let volume = &pod.spec.as_ref().and_then(|spec| spec.volumes.as_ref()).expect("volumes")[0];
    match compute_payload(volume, PayloadInputs { pod, objects, facts: &facts }) {
        Ok(payload) => payload
            .iter()
            .map(|(path, file)| {
                let owner = file.owner.map(|user| format!(" user {user}")).unwrap_or_default();
                format!("{path} {:04o}{owner} {:?}\n", file.mode, String::from_utf8_lossy(&file.content))
            })
            .collect(),
        Err(error) => format!("error: {error}\n"),
    }
}

#[track_caller]
fn check(volume: Value, expected: Expect) {
    let mut volume = volume;
    volume["name"] = json!("v");
    let pod = pod(json!({
        "volumes": [volume],
        "containers": [{ "name": "c", "resources": { "limits": { "cpu": "250m", "memory": "64Mi" } } }],
    }));
    expected.assert_eq(&files_of(&pod, &objects()));
}

#[test]
fn config_map_volume_has_a_file_for_each_key_or_item() {
    check(
        json!({ "configMap": { "name": "settings" } }),
        expect![[r#"
            a.conf 0644 "A"
            b.conf 0644 "B"
            bin 0644 "\0\u{1}"
        "#]],
    );
    check(
        json!({ "configMap": { "name": "settings", "defaultMode": 288, "items": [
            { "key": "a.conf", "path": "etc/a" }, { "key": "b.conf", "path": "etc/b", "mode": 511 }] } }),
        expect![[r#"
            etc/a 0440 "A"
            etc/b 0777 "B"
        "#]],
    );
}

#[test]
fn missing_object_is_an_error_unless_optional() {
    check(
        json!({ "configMap": { "name": "nope" } }),
        expect![[r#"
        error: configmap "nope" not found
    "#]],
    );
    check(json!({ "configMap": { "name": "nope", "optional": true } }), expect![""]);
    check(
        json!({ "secret": { "secretName": "nope" } }),
        expect![[r#"
        error: secret "nope" not found
    "#]],
    );
    check(json!({ "secret": { "secretName": "nope", "optional": true } }), expect![""]);
    let item = json!([{ "key": "c.conf", "path": "c" }]);
    check(
        json!({ "configMap": { "name": "settings", "items": item } }),
        expect![[r#"
        error: configmap references non-existent config key: c.conf
    "#]],
    );
    check(json!({ "configMap": { "name": "settings", "items": item, "optional": true } }), expect![""]);
    check(
        json!({ "secret": { "secretName": "keys", "items": item } }),
        expect![[r#"
        error: references non-existent secret key: c.conf
    "#]],
    );
}

#[test]
fn secret_volume_is_base64_decoded() {
    check(
        json!({ "secret": { "secretName": "keys", "defaultMode": 256 } }),
        expect![[r#"
        password 0400 "sesame"
    "#]],
    );
}

#[test]
fn downward_api_volume_has_fields_and_resources() {
    check(
        json!({ "downwardAPI": { "items": [
            { "path": "labels", "fieldRef": { "fieldPath": "metadata.labels" } },
            { "path": "name", "fieldRef": { "fieldPath": "metadata.name" }, "mode": 256 },
            { "path": "cpu", "resourceFieldRef": { "containerName": "c", "resource": "limits.cpu", "divisor": "1m" } },
            { "path": "memory", "resourceFieldRef": { "containerName": "c", "resource": "limits.memory" } },
        ] } }),
        expect![[r#"
            cpu 0644 "250"
            labels 0644 "app=\"web\"\ntier=\"front\""
            memory 0644 "67108864"
            name 0400 "web"
        "#]],
    );
    check(
        json!({ "downwardAPI": { "items": [{ "path": "x" }] } }),
        expect![[r#"
        error: downward API item "x" names neither a field nor a resource
    "#]],
    );
}

#[test]
fn projected_volume_merges_its_sources_and_the_later_one_wins() {
    check(
        json!({ "projected": { "defaultMode": 420, "sources": [
            { "configMap": { "name": "settings", "items": [{ "key": "a.conf", "path": "x" }] } },
            { "secret": { "name": "keys", "items": [{ "key": "password", "path": "x" }] } },
            { "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } },
            { "downwardAPI": { "items": [{ "path": "ns", "fieldRef": { "fieldPath": "metadata.namespace" } }] } },
        ] } }),
        expect![[r#"
            ns 0644 "shop"
            token 0644 "eyJ"
            x 0644 "sesame"
        "#]],
    );
    check(
        json!({ "projected": { "sources": [{ "serviceAccountToken": { "path": "token", "audience": "vault" } }] } }),
        expect![[r#"
            error: no token for audience "vault" could be had yet
        "#]],
    );
    check(
        json!({ "projected": { "sources": [{ "clusterTrustBundle": { "name": "ca", "path": "ca" } }] } }),
        expect![[r#"
            error: ClusterTrustBundle projection is not available on this node: the feature gate ClusterTrustBundleProjection is off, or the node is standalone
        "#]],
    );
}

#[test]
fn pod_certificate_files_have_the_key_and_the_chain_or_the_reason_why_not() {
    let id = |index| CertificateId { volume: "v".to_owned(), index };
    let credential = Credential { key: PrivateKey::new("KEY\n"), chain: "CHAIN\n".into() };
    let refusal = Refusal { reason: "Why".to_owned(), message: "not you".to_owned() };
    let known = BTreeMap::from([
        (id(0), Ok(credential)),
        (id(1), Err(CredentialError::Denied(refusal))),
        (id(2), Err(CredentialError::NotRequested { why: "no API".to_owned() })),
    ]);
    let files = |index: usize, security_context: Value, certificates: &Option<_>| {
        let certificate = |name: &str| {
            json!({ "podCertificate": { "signerName": "s.example/x", "keyType": "ED25519",
                "credentialBundlePath": format!("{name}.pem"), "keyPath": "key.pem", "certificateChainPath": "chain.pem" } })
        };
        let mut sources: Vec<Value> = (0..index).map(|_| json!({ "downwardAPI": {} })).collect();
        sources.push(certificate("bundle"));
        let pod = pod(json!({
            "securityContext": security_context, "containers": [{ "name": "c" }],
            "volumes": [{ "name": "v", "projected": { "sources": sources, "defaultMode": 0o440 } }],
        }));
        files_of(&pod, &VolumeObjects { certificates: Clone::clone(certificates), ..objects() })
    };
    let known = Some(known);
    let all = [
        files(0, json!({}), &known),
        files(0, json!({ "runAsUser": 1000 }), &known),
        files(0, json!({ "fsGroup": 7 }), &known),
        files(1, json!({}), &known),
        files(2, json!({}), &known),
        files(3, json!({}), &known),
        files(0, json!({}), &None),
    ];
    expect![[r#"
        bundle.pem 0440 "KEY\nCHAIN\n"
        chain.pem 0440 "CHAIN\n"
        key.pem 0440 "KEY\n"
        bundle.pem 0600 user 1000 "KEY\nCHAIN\n"
        chain.pem 0600 user 1000 "CHAIN\n"
        key.pem 0600 user 1000 "KEY\n"
        bundle.pem 0600 "KEY\nCHAIN\n"
        chain.pem 0600 "CHAIN\n"
        key.pem 0600 "KEY\n"
        error: PodCertificateRequest was permanently denied: reason="Why" message="not you"
        error: credential bundle is not issued yet: no API
        error: credential bundle is not issued yet
        error: podCertificate projection is not available on this node: the feature gate PodCertificateRequest is off, or the node is standalone
    "#]].assert_eq(&all.concat());
}

/// The token file of a pod whose containers and pod have these security contexts.
fn token_file(of_pod: Value, of_containers: &[Value]) -> String {
    let containers: Vec<Value> = of_containers
        .iter()
        .enumerate()
        .map(|(index, context)| json!({ "name": format!("c{index}"), "securityContext": context }))
        .collect();
    let source = json!({ "serviceAccountToken": { "path": "token", "expirationSeconds": 3607 } });
    let pod = pod(json!({
        "securityContext": of_pod, "containers": containers,
        "volumes": [{ "name": "v", "projected": { "sources": [source] } }],
    }));
    files_of(&pod, &objects())
}

#[test]
fn token_file_is_private_for_a_single_user_or_fs_group() {
    let plain = json!({});
    let user = json!({ "runAsUser": 1000 });
    let other = json!({ "runAsUser": 2000 });
    expect![[r#"
        token 0644 "eyJ"
    "#]]
    .assert_eq(&token_file(json!({}), std::slice::from_ref(&plain)));
    expect![[r#"
        token 0600 user 1000 "eyJ"
    "#]]
    .assert_eq(&token_file(json!({}), &[user.clone(), user.clone()]));
    expect![[r#"
        token 0600 user 1000 "eyJ"
    "#]]
    .assert_eq(&token_file(user.clone(), std::slice::from_ref(&plain)));
    expect![[r#"
        token 0644 "eyJ"
    "#]]
    .assert_eq(&token_file(json!({}), &[user, other]));
    expect![[r#"
        token 0600 "eyJ"
    "#]]
    .assert_eq(&token_file(json!({ "fsGroup": 5 }), &[plain]));
}

#[test]
fn volume_paths_outside_the_volume_are_rejected() {
    for (path, why) in [
        ("", "it is empty"),
        ("/etc/passwd", "it must be relative"),
        ("a/../../b", "it must not contain '..'"),
        ("..data", "it must not begin with '..'"),
        ("a//b", "a name in it is empty"),
        ("./a", "a name in it is empty"),
        ("a\0b", "it contains a NUL"),
    ] {
        let volume = json!({ "name": "v", "configMap": { "name": "settings", "items": [{ "key": "a.conf", "path": path }] } });
        let pod = pod(json!({ "containers": [], "volumes": [volume] }));
        assert_eq!(files_of(&pod, &objects()), format!("error: invalid path {path:?}: {why}\n"));
    }
}

#[test]
fn required_objects_lists_every_object_of_the_volumes() {
    let pod = pod(json!({ "containers": [], "volumes": [
        { "name": "a", "configMap": { "name": "m1", "optional": true } },
        { "name": "b", "secret": { "secretName": "s1" } },
        { "name": "c", "emptyDir": {} },
        { "name": "d", "projected": { "sources": [
            { "configMap": { "name": "m2" } }, { "secret": { "name": "s1" } },
            { "serviceAccountToken": { "path": "t" } },
            { "serviceAccountToken": { "path": "u", "audience": "vault", "expirationSeconds": 600 } } ] } },
    ] }));
    expect![[r#"
        {ConfigMap("m1"), ConfigMap("m2"), Secret("s1")}
        {TokenRequirement { audience: "", expiration_seconds: 3600 }, TokenRequirement { audience: "vault", expiration_seconds: 600 }}"#]]
    .assert_eq(&{
        let required = required_objects(&pod);
        format!("{:?}\n{:?}", required.names, required.tokens)
    });
}

proptest! {
    /// Any path is either refused or consists of plain names.
    #[test]
    fn an_accepted_path_has_plain_names_only(path in "[a./\0]{0,12}") {
        let volume = json!({ "name": "v", "configMap": { "name": "settings", "items": [{ "key": "a.conf", "path": path }] } });
        let pod = pod(json!({ "containers": [], "volumes": [volume] }));
        let listing = files_of(&pod, &objects());
        if !listing.starts_with("error") {
            prop_assert!(path.split('/').all(|part| !matches!(part, "" | "." | "..")), "{path}");
        }
    }
}

#[test]
fn cached_objects_expire_after_the_ttl_of_the_node() {
    let ttl = |annotations: Value| {
        let node: model::k8s::Node =
            serde_json::from_value(json!({ "metadata": { "name": "n", "annotations": annotations } }))
                .unwrap();
        object_ttl(Some(&node)).as_secs()
    };
    let annotation = |text: &str| ttl(json!({ "node.alpha.kubernetes.io/ttl": text }));
    assert_eq!((object_ttl(None).as_secs(), ttl(json!({}))), (60, 60));
    assert_eq!((annotation("300"), annotation("0"), annotation("-5")), (300, 0, 0));
    assert_eq!((annotation("soon"), annotation("5s")), (60, 60), "a value that is no number is ignored");
}

/// A reference costs a pod 20 bytes, and what it names may be 1 MiB.
#[test]
fn volume_files_are_limited_even_if_a_pod_repeats_a_key() {
    let large = json!({"metadata": {"name": "large"}, "data": {"k": "x".repeat(1 << 20)}});
    let many: serde_json::Map<String, Value> = (0..40_000).map(|n| (n.to_string(), json!(""))).collect();
    let mut objects = objects();
    for map in [large, json!({"metadata": {"name": "many"}, "data": many})] {
        let map: ConfigMap = serde_json::from_value(map).expect("a config map");
        objects.config_maps.insert(map.metadata.name.clone().expect("a name"), Arc::new(map));
    }
    let summary = |volume: Value| {
        let mut volume = volume;
        volume["name"] = json!("v");
        let text = files_of(&pod(json!({"volumes": [volume], "containers": [{"name": "c"}]})), &objects);
        if text.starts_with("error") { text } else { format!("{} files", text.lines().count()) }
    };
    let items =
        |count: usize| -> Value { (0..count).map(|n| json!({"key": "k", "path": n.to_string()})).collect() };
    assert_eq!(summary(json!({"configMap": {"name": "large", "items": items(20)}})), "20 files");
    let too_large = "error: the files of the volume are larger than 33554432 bytes together\n";
    assert_eq!(summary(json!({"configMap": {"name": "large", "items": items(1000)}})), too_large);
    let source =
        |n: usize| json!({"configMap": {"name": "large", "items": [{"key": "k", "path": n.to_string()}]}});
    let sources = |count: usize| -> Value { (0..count).map(source).collect() };
    assert_eq!(summary(json!({"projected": {"sources": sources(20)}})), "20 files");
    assert_eq!(summary(json!({"projected": {"sources": sources(1000)}})), too_large);
    let below = |directory: &str| -> Value {
        let items = (0..40_000).map(|n| json!({"key": n.to_string(), "path": format!("{directory}/{n}")}));
        json!({"configMap": {"name": "many", "items": items.collect::<Value>()}})
    };
    assert_eq!(summary(json!({"projected": {"sources": [below("a")]}})), "40000 files");
    let too_many = "error: the volume has more than 65536 files\n";
    assert_eq!(summary(json!({"projected": {"sources": [below("a"), below("b")]}})), too_many);
}
