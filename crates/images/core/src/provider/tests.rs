//! Images and answers in, credentials out.

use proptest::prelude::*;
use serde_json::Value;

use super::*;

const V1: &str = "credentialprovider.kubelet.k8s.io/v1";

fn provider(patterns: &[&str]) -> CredentialProvider {
    serde_json::from_value(json!({
        "name": "p", "matchImages": patterns, "defaultCacheDuration": "1m", "apiVersion": V1,
    }))
    .unwrap()
}

fn attributes(cache: &str) -> TokenAttributes {
    serde_json::from_value(json!({
        "serviceAccountTokenAudience": "aud", "cacheType": cache, "requireServiceAccount": true,
        "requiredServiceAccountAnnotationKeys": ["x.io/role"],
        "optionalServiceAccountAnnotationKeys": ["x.io/zone"],
    }))
    .unwrap()
}

fn account(annotations: &Value) -> ServiceAccount {
    let meta = json!({"name": "sa", "namespace": "ns", "uid": "u", "annotations": annotations});
    serde_json::from_value(json!({ "metadata": meta })).unwrap()
}

/// An answer with one user for one location.
fn answer(kind: &str, duration: Option<&str>, user: &str) -> ProviderAnswer {
    let mut text = json!({
        "kind": "CredentialProviderResponse", "apiVersion": V1, "cacheKeyType": kind,
        "auth": {"*.r.io": {"username": user, "password": "p"}},
    });
    if let Some(duration) = duration {
        text["cacheDuration"] = duration.into();
    }
    parse_answer(&provider(&[]), text.to_string().as_bytes()).unwrap()
}

fn at(seconds: u64) -> MonoTime {
    MonoTime::from_start(Duration::from_secs(seconds))
}

#[test]
fn programs_know_images_with_their_registry_and_without_tag() {
    let check = |image: &str, expected: &str| assert_eq!(provider_image(image).as_deref(), Some(expected));
    check("nginx", "docker.io/library/nginx");
    check(
        "r.io:5000/a/b:1@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
        "r.io:5000/a/b",
    );
    assert_eq!(provider_image("no image"), None);
}

#[test]
fn a_provider_is_asked_for_the_images_its_patterns_match() {
    let check = |pattern: &str, image: &str, expected: bool| {
        assert_eq!(is_asked_for(&provider(&["none.io", pattern]), image), expected, "{pattern} {image}");
    };
    check("*.dkr.ecr.*.amazonaws.com", "1.dkr.ecr.eu-1.amazonaws.com/a", true);
    check("*.io", "a.b.io/x", false);
    check("app*.k8s.io", "app7.k8s.io/x", true);
    check("k8s.*", "k8s.gcr/x", true);
    check("r.io:8080/path", "r.io:8080/path/a", true);
    check("r.io:8080/path", "r.io:8080/other", false);
    check("r.io", "r.io:8080/a", false);
    check("docker.io", "docker.io/library/nginx", true);
}

#[test]
fn a_request_names_the_image_and_who_the_pod_is() {
    let request = |account| {
        let text = compute_request(&provider(&[]), "r.io/a", account);
        serde_json::from_slice::<Value>(&text).unwrap()
    };
    let plain = json!({"kind": "CredentialProviderRequest", "apiVersion": V1, "image": "r.io/a"});
    assert_eq!(request(None), plain);
    let who = compute_account(&attributes("Token"), Some(&account(&json!({"x.io/role": "r", "other": "o"}))))
        .unwrap();
    let requested = request(who.as_ref().map(|who| (who, "tok")));
    assert_eq!(requested["serviceAccountToken"], "tok");
    assert_eq!(requested["serviceAccountAnnotations"], json!({"x.io/role": "r"}));
}

#[test]
fn a_pod_without_what_the_provider_needs_is_not_asked_for() {
    let needs = attributes("Token");
    assert_eq!(compute_account(&needs, None), Err(NotAsked::NoAccount));
    let missing = NotAsked::NoAnnotation { name: "sa".into(), key: "x.io/role".into() };
    assert_eq!(compute_account(&needs, Some(&account(&json!({"x.io/zone": "z"})))), Err(missing));
    let relaxed = TokenAttributes {
        require_service_account: false,
        required_service_account_annotation_keys: Vec::new(),
        ..needs
    };
    assert_eq!(compute_account(&relaxed, None), Ok(None));
    assert_eq!(provider_token(&relaxed).audience, "aud");
}

#[test]
fn an_answer_is_credentials_for_the_images_it_names() {
    let keyring = answer("Image", None, "u").keyring(None);
    let found = keyring.credentials_for("a.r.io/x");
    assert_eq!((found[0].auth.username.as_str(), &found[0].source), ("u", &CredentialSource::Node));
    assert_eq!(keyring.credentials_for("r.io/x"), []);
    let account = PullServiceAccount { name: "sa".into(), ..PullServiceAccount::default() };
    let found = answer("Image", None, "u").keyring(Some(&account)).credentials_for("a.r.io/x");
    assert_eq!(found[0].source, CredentialSource::ServiceAccount(account));
    let nothing = json!({"kind": "CredentialProviderResponse", "apiVersion": V1, "cacheKeyType": "Image", "auth": null});
    let nothing = parse_answer(&provider(&[]), nothing.to_string().as_bytes()).unwrap();
    assert!(nothing.keyring(None).is_empty());
}

#[test]
fn what_is_no_answer_says_so_without_its_content() {
    let error = |text: &str| parse_answer(&provider(&[]), text.as_bytes()).unwrap_err().to_string();
    assert_eq!(error("secret"), "its answer is no CredentialProviderResponse: line 1, column 1");
    assert_eq!(
        error("{}"),
        r#"its answer is a "" of "", but must be a CredentialProviderResponse of credentialprovider.kubelet.k8s.io/v1"#
    );
    let good = json!({"kind": "CredentialProviderResponse", "apiVersion": V1, "cacheKeyType": "Pod"});
    assert_eq!(
        error(&good.to_string()),
        r#"the cacheKeyType of its answer is "Pod", but must be Image, Registry or Global"#
    );
    let old = good.to_string().replace("/v1", "/v1beta1");
    assert!(error(&old).contains("k8s.io/v1beta1"), "the version must be that of the request");
}

/// Whether an answer for `a.r.io/x` is found for `image` of the owner `""`.
#[track_caller]
fn check_found(kind: &str, image: &str, expected: bool) {
    let mut cache = AnswerCache::default();
    cache.put("a.r.io/x", "", &answer(kind, None, "u"), at(0));
    assert_eq!(cache.get(image, "", at(59)).is_some(), expected, "{kind} {image}");
    assert_eq!(cache.get(image, "", at(60)), None, "the default duration is over");
    assert_eq!(cache.get(image, "other", at(0)), None);
}

#[test]
fn an_answer_is_kept_for_what_it_says() {
    check_found("Image", "a.r.io/x", true);
    check_found("Image", "a.r.io/y", false);
    check_found("Registry", "a.r.io/y", true);
    check_found("Registry", "b.r.io/x", false);
    check_found("Global", "b.r.io/x", true);
}

#[test]
fn an_answer_says_how_long_it_is_good() {
    let mut cache = AnswerCache::default();
    cache.put("a.r.io/x", "", &answer("Global", Some("0s"), "u"), at(0));
    assert_eq!(cache.get("a.r.io/x", "", at(0)), None);
    cache.put("a.r.io/x", "", &answer("Global", Some("1h"), "u"), at(0));
    assert!(cache.get("a.r.io/x", "", at(3599)).is_some());
    // A narrower answer comes first.
    cache.put("a.r.io/x", "", &answer("Image", None, "v"), at(0));
    assert_eq!(cache.get("a.r.io/x", "", at(1)), Some(&answer("Image", None, "v")));
}

#[test]
fn answers_belong_to_an_account_or_to_one_of_its_tokens() {
    let who =
        compute_account(&attributes("Token"), Some(&account(&json!({"x.io/role": "r"})))).unwrap().unwrap();
    let owner = |cache: &str, token: &str| compute_owner(Some(&attributes(cache)), Some((&who, token)));
    assert_ne!(owner("Token", "a"), owner("Token", "b"));
    assert_eq!(owner("ServiceAccount", "a"), owner("ServiceAccount", "b"));
    assert!(!owner("Token", "secret").contains("secret"));
    let changed = ProviderAccount { annotations: BTreeMap::new(), ..who.clone() };
    let other = compute_owner(Some(&attributes("ServiceAccount")), Some((&changed, "a")));
    assert_ne!(other, owner("ServiceAccount", "a"));
    assert_eq!(compute_owner(None, None), "");
}

proptest! {
    #[test]
    fn the_cache_stays_small_and_any_output_is_answered(
        images in prop::collection::vec("[a-z]{1,4}", 1..1500), output in "\\PC{0,80}"
    ) {
        let mut cache = AnswerCache::default();
        let kept = answer("Image", Some("1h"), "u");
        for (second, image) in images.iter().enumerate() {
            cache.put(image, "", &kept, at(second as u64));
        }
        prop_assert!(cache.answers.len() <= MAX_ANSWERS);
        prop_assert!(cache.get(images.last().unwrap(), "", at(images.len() as u64)).is_some());
        let _ = parse_answer(&provider(&[]), output.as_bytes());
    }
}
