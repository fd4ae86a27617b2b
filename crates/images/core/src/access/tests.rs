//! Records and credentials in, access out. A secret reads `name:content`, an account `sa`.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn time() -> Time {
    Time(Timestamp::UNIX_EPOCH)
}

fn credentials(items: &str) -> PodCredentials {
    let mut all = PodCredentials::default();
    for item in items.split_whitespace() {
        match item.split_once(':') {
            Some((name, hash)) => all.secrets.push(PullSecret {
                uid: format!("uid-{name}"),
                namespace: "ns".into(),
                name: name.into(),
                credential_hash: hash.into(),
            }),
            None => {
                all.service_account =
                    Some(PullServiceAccount { name: item.into(), ..PullServiceAccount::default() });
            }
        }
    }
    all
}

fn pulled(image: &str, items: &str) -> ImagePulledRecord {
    record_pull(None, image, "sha256:1", &credentials(items), time())
}

fn access(record: Option<&ImagePulledRecord>, image: &str, items: &str) -> ImageAccess {
    compute_image_access(&VerificationPolicy::AlwaysVerify, image, record, false, &credentials(items))
}

/// Whether a pod with these credentials may use an image that was pulled with those.
#[track_caller]
fn check(with: &str, pod: &str, expected: &str) {
    let shown = match access(Some(&pulled("r.io/a:1", with)), "r.io/a:2", pod) {
        ImageAccess::NotVerified => "free".to_owned(),
        ImageAccess::Granted => "granted".to_owned(),
        ImageAccess::GrantedAndRecorded(recorded) => {
            let secrets =
                recorded.kubernetes_secrets.iter().map(|s| format!("{}:{}", s.name, s.credential_hash));
            format!("recorded {}", secrets.collect::<Vec<_>>().join(" "))
        }
        ImageAccess::MustPull => "pull".to_owned(),
    };
    assert_eq!(shown, expected, "{with:?} {pod:?}");
}

#[test]
fn pod_with_the_credentials_of_the_pull_may_use_the_image() {
    check("", "", "granted");
    check("", "b:2", "granted");
    check("a:1", "a:1", "granted");
    check("a:1", "", "pull");
    check("a:1", "b:2", "pull");
    check("a:1", "x:9 a:1", "granted");
    check("sa", "sa", "granted");
    check("sa", "other", "pull");
    check("a:1", "sa", "pull");
}

#[test]
fn a_secret_that_changed_or_has_a_twin_is_noted() {
    check("a:1", "a:2", "recorded a:2");
    check("a:1", "b:1", "recorded a:1 b:1");
}

#[test]
fn another_name_of_the_image_needs_a_pull_of_its_own() {
    let record = pulled("r.io/a:1", "");
    assert_eq!(access(Some(&record), "mirror.io/a:1", ""), ImageAccess::MustPull);
    assert_eq!(access(Some(&record), "r.io/a@sha256:77", ""), ImageAccess::Granted);
    assert_eq!(access(None, "r.io/a", ""), ImageAccess::MustPull);
}

#[test]
fn verification_policy_selects_the_images_to_verify() {
    let list = ["r.io/free/*", "r.io/one", "docker.io/library/nginx", "alpine"].map(str::to_owned);
    let check = |policy: &str, image: &str, was_intended: bool, expected: bool| {
        let policy = VerificationPolicy::parse(policy, &list);
        let found = compute_image_access(&policy, image, None, was_intended, &PodCredentials::default());
        assert_eq!(found == ImageAccess::NotVerified, expected, "{policy:?} {image} {was_intended}");
    };
    check("NeverVerify", "r.io/a", true, true);
    check("NeverVerifyPreloadedImages", "r.io/a", false, true);
    check("NeverVerifyPreloadedImages", "r.io/a", true, false);
    check("AlwaysVerify", "r.io/a", false, false);
    check("NeverVerifyAllowlistedImages", "r.io/free/a:1", true, true);
    check("NeverVerifyAllowlistedImages", "r.io/freed/a", false, false);
    check("NeverVerifyAllowlistedImages", "r.io/one:7", false, true);
    check("NeverVerifyAllowlistedImages", "r.io/one/more", false, false);
    check("NeverVerifyAllowlistedImages", "nginx:1", false, false);
    check("NeverVerifyAllowlistedImages", "me/nginx", false, false);
    check("NeverVerifyAllowlistedImages", "docker.io/library/alpine:3", false, false);
    check("NeverVerifyAllowlistedImages", "alpine:3", false, true);
}

#[test]
fn a_record_reads_back_as_it_was_written() {
    let record = pulled("r.io/a:1", "a:1 sa");
    let text = serde_json::to_value(&record).unwrap();
    assert_eq!(
        text,
        json!({
            "kind": "ImagePulledRecord", "apiVersion": "kubelet.config.k8s.io/v1beta1", "imageRef": "sha256:1",
            "lastUpdatedTime": "1970-01-01T00:00:00Z",
            "credentialMapping": {"r.io/a": {
                "kubernetesSecrets": [{"uid": "uid-a", "namespace": "ns", "name": "a", "credentialHash": "1"}],
                "kubernetesServiceAccounts": [{"uid": "", "namespace": "", "name": "sa"}],
            }},
        })
    );
    assert_eq!(serde_json::from_value::<ImagePulledRecord>(text).unwrap(), record);
}

#[test]
fn image_pulled_without_credentials_stays_usable_by_every_pod() {
    let with = pulled("r.io/a", "a:1");
    let without = record_pull(Some(&with), "r.io/a", "sha256:1", &PodCredentials::default(), time());
    let again = record_pull(Some(&without), "r.io/a", "sha256:1", &credentials("b:2"), time());
    let expected = ImagePullCredentials { node_pods_accessible: true, ..ImagePullCredentials::default() };
    assert_eq!(again.credential_mapping["r.io/a"], expected);
}

#[test]
fn files_are_named_as_the_go_kubelet_names_them() {
    let known = "sha256-aef2af226629a35d5f3ef0fdbb29fdbebf038d0acd8850590e8c48e1e283aa56";
    assert_eq!(record_file("docker.io/testing/test:latest"), known);
}

#[test]
fn files_of_older_kubelets_are_read_and_others_show_nothing() {
    let old = json!({
        "kind": "ImagePulledRecord", "apiVersion": "kubelet.config.k8s.io/v1alpha1", "imageRef": "r",
        "lastUpdatedTime": "2024-10-21T12:26:40Z",
        "credentialMapping": {"r.io/a": {"kubernetesSecretCoordinates": [
            {"uid": "uid-a", "namespace": "ns", "name": "a", "credentialHash": "1"},
        ]}},
    });
    let record: ImagePulledRecord = parse_record_file(old.to_string().as_bytes()).unwrap();
    assert_eq!(record.api_version, config::API_VERSION);
    assert_eq!(access(Some(&record), "r.io/a:1", "a:1"), ImageAccess::Granted);

    let intent = serde_json::to_string(&ImagePullIntent::of("r.io/a:1")).unwrap();
    assert_eq!(
        intent,
        r#"{"kind":"ImagePullIntent","apiVersion":"kubelet.config.k8s.io/v1beta1","image":"r.io/a:1"}"#
    );
    assert_eq!(parse_record_file::<ImagePulledRecord>(intent.as_bytes()), None, "another kind");
    for text in ["", "{", "{}", &intent.replace("v1beta1", "v7")] {
        assert_eq!(parse_record_file::<ImagePullIntent>(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn a_record_goes_with_its_image_unless_it_is_newer_than_the_list() {
    let record = pulled("r.io/a", "a:1");
    let at = |second| Timestamp::from_second(second).unwrap();
    assert!(is_outlived(&record, &["sha256:2"].into(), at(1)));
    assert!(!is_outlived(&record, &["sha256:1"].into(), at(1)));
    assert!(!is_outlived(&record, &["sha256:2"].into(), at(0)));
}

#[test]
fn an_image_is_found_by_any_spelling_of_its_name() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let image = ImageObservation {
        id: "sha256:1".into(),
        repo_tags: vec!["docker.io/library/nginx:1".into()],
        repo_digests: vec![format!("docker.io/library/nginx@{digest}")],
        ..ImageObservation::default()
    };
    let found = |name: &str| find_image(std::slice::from_ref(&image), name).is_some();
    assert!(found("nginx:1") && found("docker.io/nginx:1") && found(&format!("nginx@{digest}")));
    assert!(!found("nginx:2") && !found("r.io/nginx:1") && !found("no image"));
}

#[test]
fn image_of_unknown_origin_must_be_pulled_and_is_then_recorded() {
    let unknown = record_unknown("sha256:1", time());
    assert_eq!(access(Some(&unknown), "r.io/a", "a:1"), ImageAccess::MustPull);
    let known = record_pull(Some(&unknown), "r.io/a", "sha256:1", &credentials("a:1"), time());
    assert_eq!(access(Some(&known), "r.io/a", "a:1"), ImageAccess::Granted);
    let ImageAccess::GrantedAndRecorded(recorded) = access(Some(&known), "r.io/a", "a:2") else { panic!() };
    let known = record_credentials(&known, "r.io/a", recorded, time());
    assert_eq!(access(Some(&known), "r.io/a", "a:2"), ImageAccess::Granted);
}

proptest! {
    #[test]
    fn puller_may_use_the_image_and_the_record_stays_bounded(items in prop::collection::vec("[a-z]:[0-9]", 1..200)) {
        let mut record = None;
        for item in &items {
            record = Some(record_pull(record.as_ref(), "r.io/a", "sha256:1", &credentials(item), time()));
            prop_assert_eq!(access(record.as_ref(), "r.io/a", item), ImageAccess::Granted);
        }
        let known = record.unwrap().credential_mapping.remove("r.io/a").unwrap();
        prop_assert!(known.kubernetes_secrets.len() <= MAX_CREDENTIALS);
    }

    #[test]
    fn without_a_credential_nothing_private_is_granted(item in "[a-z]:[0-9]", other in "[A-Z]:[a-z]") {
        let record = pulled("r.io/a", &item);
        prop_assert_eq!(access(Some(&record), "r.io/a", &other), ImageAccess::MustPull);
        prop_assert_eq!(access(Some(&record), "r.io/a", ""), ImageAccess::MustPull);
    }
}

/// The records of `images/pullmanager/testdata`, by the reference of their image.
fn upstream_record(image_ref: &str) -> Option<ImagePulledRecord> {
    let secret = |hash: &str| {
        json!({"kubernetesSecrets": [{"uid": "testsecretuid", "namespace": "default", "name": "pull-secret",
            "credentialHash": hash}]})
    };
    let account = json!({"uid": "test-sa-uid", "namespace": "default", "name": "test-sa"});
    let credentials = match image_ref {
        "testimageref" => secret("testsecrethash"),
        "test-brokenhash" => secret(""),
        "testimage-anonpull" => json!({"nodePodsAccessible": true}),
        "testimageref-sa" => json!({"kubernetesServiceAccounts": [account]}),
        "testemptycredmapping" => serde_json::Value::Null,
        _ => return None,
    };
    let mut record = json!({"kind": "ImagePulledRecord", "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "lastUpdatedTime": "2024-10-21T12:26:40Z", "imageRef": image_ref});
    if !credentials.is_null() {
        record["credentialMapping"] = json!({"docker.io/testing/test": credentials});
    }
    parse_record_file(record.to_string().as_bytes())
}

/// `name | policy | image | reference | credentials | outcome`: credentials are `secret uid namespace hash` or `sa uid namespace`,
/// the outcome is `pull`, or `use` what is there, and begins with `intent` where a pull was begun.
const MUST_ATTEMPT_IMAGE_PULL: &str = "
    exact secret | Preloaded | test | testimageref | secret testsecretuid default testsecrethash | use
    no pod secrets | Preloaded | test | testimageref | | pull
    another hash | Preloaded | test | testimageref | secret testsecretuid default differenthash | use
    another UID | Preloaded | test | testimageref | secret different default differenthash | pull
    another secret | Preloaded | test | testimageref | secret testsecretuid other differenthash | pull
    another secret, same hash | Preloaded | test | testimageref | secret testsecretuid other testsecrethash | use
    another image | Preloaded | different | testimageref | secret testsecretuid default testsecrethash | pull
    empty credential mapping | Preloaded | test | testemptycredmapping | | pull
    no records | Preloaded | test | testexistingref | | use
    no records, AlwaysVerify | AlwaysVerify | test | testexistingref | | pull
    only an intent | Preloaded | test | testexistingref | secret testsecretuid default testsecrethash | intent pull
    only an intent, NeverVerify | NeverVerify | test | testexistingref | | intent use
    node-accessible | Preloaded | test | testimage-anonpull | | use
    node-accessible, secrets | Preloaded | test | testimage-anonpull | secret testsecretuid default x | use
    empty hash, another secret | Preloaded | test | test-brokenhash | secret testsecretuid other - | pull
    empty hash, same secret | Preloaded | test | test-brokenhash | secret testsecretuid default - | use
    exact account | Preloaded | test | testimageref-sa | sa test-sa-uid default | use
    no account | Preloaded | test | testimageref-sa | | pull
    another account | Preloaded | test | testimageref-sa | sa different default | pull
    account of another namespace | Preloaded | test | testimageref-sa | sa test-sa-uid other | pull
    another image, same account | Preloaded | different | testimageref-sa | sa test-sa-uid default | pull
    account, only an intent | Preloaded | test | testexistingref | sa test-sa-uid default | intent pull
    node-accessible, account | Preloaded | test | testimage-anonpull | sa test-sa-uid default | use
";

/// `images/pullmanager/image_pull_manager_test.go`, TestFileBasedImagePullManager_MustAttemptImagePull.
#[test]
fn must_attempt_image_pull_table() {
    for line in MUST_ATTEMPT_IMAGE_PULL.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, policy, image, image_ref, pod, outcome] = columns[..] else { panic!("{line}") };
        let mut credentials = PodCredentials::default();
        let items: Vec<String> = pod.split(' ').map(|item| item.trim_matches('-').to_owned()).collect();
        match items.as_slice() {
            [kind, uid, namespace, hash] if kind == "secret" => credentials.secrets.push(PullSecret {
                uid: uid.clone(),
                namespace: namespace.clone(),
                name: "pull-secret".to_owned(),
                credential_hash: hash.clone(),
            }),
            [kind, uid, namespace] if kind == "sa" => {
                let (uid, namespace) = (uid.clone(), namespace.clone());
                credentials.service_account =
                    Some(PullServiceAccount { uid, namespace, name: "test-sa".to_owned() });
            }
            _ => assert_eq!(pod, "", "{line}"),
        }
        // An unknown name stands for the default, NeverVerifyPreloadedImages.
        let policy = VerificationPolicy::parse(policy, &[]);
        let image = format!("docker.io/testing/{image}:latest");
        let was_intended = outcome.starts_with("intent");
        let record = upstream_record(image_ref);
        let found = compute_image_access(&policy, &image, record.as_ref(), was_intended, &credentials);
        assert_eq!(found == ImageAccess::MustPull, outcome.ends_with("pull"), "{line}: {found:?}");
    }
}

/// `images/pullmanager/image_pull_policies_test.go`, TestNewNeverVerifyAllowListedPullPolicy and TestTrimImageTagDigest.
#[test]
fn never_verify_allow_listed_pull_policy_table() {
    const DIGEST: &str = "sha256:38a8906435c4dd5f4258899d46621bfd8eea3ad6ff494ee3c2f17ef0321625bd";
    let by_digest = format!("ubuntu@{DIGEST}");
    let both = format!("ubuntu:v1@{DIGEST}");
    for (image, list, must_verify) in [
        ("test.io/test/test-image:tag", &["test.io/test/image1", "test.io/test/image2"][..], true),
        ("test.io/test/test-image:tag", &["test.io/test/image1", "test.io/test/test-image"], false),
        ("test.io/test/test-image:tag", &["test.io/test/image1", "different.repo/test/*"], true),
        ("test.io/test/test-image:tag", &["test.io/test/image1", "test.io/test/*"], false),
        ("test.io/test/test-image:tag", &["test.io/*"], false),
        ("ubuntu", &["docker.io/library/ubuntu"], true),
        ("ubuntu", &["docker.io/library/*"], true),
        ("ubuntu", &["ubuntu"], false),
        ("ubuntu:tagged", &["ubuntu"], false),
        (&by_digest, &["ubuntu"], false),
        (&both, &["ubuntu"], false),
        ("myregistry:5000/myorg/myimage:v1", &["myregistry:5000/myorg/myimage"], false),
    ] {
        let list: Vec<String> = list.iter().map(|pattern| (*pattern).to_owned()).collect();
        let policy = VerificationPolicy::NeverVerifyAllowlistedImages(list);
        for was_pulled_here in [false, true] {
            assert_eq!(policy.must_verify(image, was_pulled_here), must_verify, "{image} {policy:?}");
        }
    }
}

/// `images/pullmanager/image_pull_manager_test.go`, Test_pulledRecordMergeNewCreds: what is known after a pull. The newest
/// stands last here, the Go kubelet sorts by namespace, name and UID.
#[test]
fn pulled_record_merge_new_credentials_table() {
    for (name, known, with, expected) in [
        ("new image record", None, "new:newhash", "new:newhash"),
        ("another secret", Some("one:hash1"), "new:newhash", "one:hash1 new:newhash"),
        ("node-accessible overrides", Some("one:hash1 two:hash2 sa"), "", "node"),
        ("same secret, another hash", Some("one:hash1 two:hash2"), "two:newhash", "one:hash1 two:newhash"),
        (
            "same hash, another secret",
            Some("one:hash1 two:hash2"),
            "three:hash2",
            "one:hash1 two:hash2 three:hash2",
        ),
        ("new service account record", None, "new", "sa new"),
        ("another service account", Some("sa1"), "new", "sa sa1 new"),
        ("same service account", Some("sa1"), "sa1", "sa sa1"),
        ("account and secrets", Some("one:hash1"), "new", "one:hash1 sa new"),
        ("secret and accounts", Some("sa1"), "new:hash", "new:hash sa sa1"),
        ("node-accessible stays, secret", Some(""), "any:hash", "node"),
        ("node-accessible stays, account", Some(""), "any", "node"),
        ("several secrets", None, "z:1 a:2 m:3", "z:1 a:2 m:3"),
    ] {
        let before = known.map(|known| pulled("r.io/a", known));
        let after = record_pull(before.as_ref(), "r.io/a", "sha256:1", &credentials(with), time());
        let found = &after.credential_mapping["r.io/a"];
        let mut items: Vec<String> =
            found.kubernetes_secrets.iter().map(|s| format!("{}:{}", s.name, s.credential_hash)).collect();
        if !found.kubernetes_service_accounts.is_empty() {
            items.push("sa".to_owned());
            items.extend(found.kubernetes_service_accounts.iter().map(|account| account.name.clone()));
        }
        items.extend(found.node_pods_accessible.then(|| "node".to_owned()));
        assert_eq!(items.join(" "), expected, "{name}");
    }
}
