//! Configuration files of credential providers, read through the flag.
#![expect(clippy::unwrap_used, reason = "test support: what is not as expected stops the test")]

use config::{CredentialProvider, TokenCacheType};
use expect_test::{Expect, expect};

use crate::support::{Memory, resolve};

const LINE: &str =
    "--image-credential-provider-config=/etc/providers --image-credential-provider-bin-dir=/opt/bin";

const GOOD: &str = r#"
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: ecr
  matchImages: ["*.dkr.ecr.*.amazonaws.com", "registry.io:8080/path"]
  defaultCacheDuration: 12h
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  args: [get]
  env:
  - name: AWS_PROFILE
    value: test
  tokenAttributes:
    serviceAccountTokenAudience: ecr
    cacheType: Token
    requireServiceAccount: true
    requiredServiceAccountAnnotationKeys: [example.com/role]
"#;

fn other(name: &str, version: &str) -> String {
    format!(
        r#"{{"kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/{version}", "providers": [
            {{"name": {name:?}, "matchImages": ["r.io"], "defaultCacheDuration": "0s",
              "apiVersion": "credentialprovider.kubelet.k8s.io/{version}"}}]}}"#
    )
}

fn read(files: &Memory) -> Vec<CredentialProvider> {
    resolve(LINE, files).unwrap().credential_providers.providers
}

#[track_caller]
fn check_errors(files: &Memory, line: &str, expected: &Expect) {
    expected.assert_eq(&format!("{}\n", resolve(line, files).unwrap_err()));
}

#[test]
fn file_configures_credential_providers() {
    let found = read(&Memory::default().raw("/etc/providers", GOOD));
    let [provider] = &found[..] else { panic!("{found:?}") };
    assert_eq!(provider.match_images.len(), 2);
    assert_eq!(provider.default_cache_duration.to_string(), "12h0m0s");
    assert_eq!(provider.variables()["AWS_PROFILE"], "test");
    let attributes = provider.token_attributes.as_ref().unwrap();
    assert_eq!(attributes.cache_type, TokenCacheType::Token);
    assert!(attributes.require_service_account);
}

#[test]
fn directory_is_read_in_lexical_order_and_older_versions_are_accepted() {
    let files = Memory::default()
        .raw("/etc/providers/20.json", &other("b", "v1alpha1"))
        .raw("/etc/providers/10.yaml", GOOD)
        .raw("/etc/providers/30.yml", &other("a", "v1beta1"))
        .raw("/etc/providers/README", "hello");
    let names: Vec<String> = read(&files).into_iter().map(|provider| provider.name).collect();
    assert_eq!(names, ["ecr", "b", "a"]);
}

#[test]
fn hash_differs_between_configurations() {
    let hash = |text: &str| {
        let files = Memory::default().raw("/etc/providers", text);
        resolve(LINE, &files).unwrap().credential_providers.hash
    };
    assert_eq!(hash(GOOD), hash(GOOD));
    assert_ne!(hash(GOOD), hash(&format!("{GOOD}\n")));
    assert_eq!(hash(GOOD).len(), "sha256:".len() + 64);
    assert_eq!(resolve("", &Memory::default()).unwrap().credential_providers.hash, "");
}

#[test]
fn every_error_is_reported() {
    let bad = GOOD
        .replace("name: ecr", "name: bin/ecr")
        .replace("12h", "-1s")
        .replace("registry.io:8080/path", "registry.io:x/*")
        .replace("audience", "Audience")
        .replace("TokenAudience: ecr", "TokenAudience: ''")
        .replace("requireServiceAccount: true", "requireServiceAccount: false")
        .replace("credentialprovider.kubelet.k8s.io/v1", "credentialprovider.kubelet.k8s.io/v2");
    let files = Memory::default().raw("/etc/providers", &bad);
    check_errors(
        &files,
        LINE,
        &expect![[r#"
        /etc/providers: provider "bin/ecr": name must be that of a program: one or more characters, no spaces or slashes
        /etc/providers: provider "bin/ecr": apiVersion is "credentialprovider.kubelet.k8s.io/v2", but must be credentialprovider.kubelet.k8s.io/v1 or credentialprovider.kubelet.k8s.io/v1beta1 or credentialprovider.kubelet.k8s.io/v1alpha1
        /etc/providers: provider "bin/ecr": matchImages has "registry.io:x/*", but a pattern must be host[:port][/path], with * only in the host
        /etc/providers: provider "bin/ecr": defaultCacheDuration is -1s, but must be 0s or more
        /etc/providers: provider "bin/ecr": tokenAttributes need apiVersion credentialprovider.kubelet.k8s.io/v1
        /etc/providers: provider "bin/ecr": tokenAttributes.serviceAccountTokenAudience must not be empty
        /etc/providers: provider "bin/ecr": tokenAttributes.requiredServiceAccountAnnotationKeys need requireServiceAccount: true
    "#]],
    );
}

#[test]
fn other_documents_are_rejected() {
    let check = |text: &str, expected: Expect| {
        check_errors(&Memory::default().raw("/etc/providers", text), LINE, &expected);
    };
    check(
        "",
        expect![[r#"
        /etc/providers: the file must hold a CredentialProviderConfig of kubelet.config.k8s.io/v1
    "#]],
    );
    check(
        "kind: Pod\nproviders: {}\nother: 1",
        expect![[r#"
        /etc/providers: apiVersion is null, but must be kubelet.config.k8s.io/v1 or kubelet.config.k8s.io/v1beta1 or kubelet.config.k8s.io/v1alpha1
        /etc/providers: kind is "Pod", but must be CredentialProviderConfig
        /etc/providers: providers must be a list of at least one provider
        /etc/providers: unknown field "other"; known are apiVersion, kind and providers
    "#]],
    );
    check(
        &GOOD.replace("matchImages", "matchImage"),
        expect![[r#"
        /etc/providers: providers[0] (ecr): unknown field `matchImage`, expected one of `name`, `matchImages`, `defaultCacheDuration`, `apiVersion`, `args`, `env`, `tokenAttributes`
    "#]],
    );
    check(
        &GOOD.replace("cacheType: Token", "cacheType: Pod"),
        expect![[r#"
        /etc/providers: providers[0] (ecr): unknown variant `Pod`, expected `Token` or `ServiceAccount`
    "#]],
    );
    check(
        &GOOD.replace("  args: [get]", "  args: [get]\n  args: [put]"),
        expect![[r#"
        /etc/providers: field "providers[0].args" is duplicated
    "#]],
    );
    let twice = Memory::default()
        .raw("/etc/providers/a.json", &other("a", "v1"))
        .raw("/etc/providers/b.json", &other("a", "v1"));
    check_errors(
        &twice,
        LINE,
        &expect![[r#"
        /etc/providers/b.json: provider "a" is duplicated: names must be unique
    "#]],
    );
    check_errors(
        &Memory::default().raw("/etc/providers/a.txt", ""),
        LINE,
        &expect![[r#"
        /etc/providers: --image-credential-provider-config is a directory without files that end in .json, .yaml or .yml
    "#]],
    );
    check_errors(
        &Memory::default(),
        LINE,
        &expect![[r#"
        cannot read --image-credential-provider-config /etc/providers: no such file
    "#]],
    );
}

#[test]
fn token_attributes_need_their_gate() {
    let files = Memory::default().raw("/etc/providers", GOOD);
    let line = format!("{LINE} --feature-gates=KubeletServiceAccountTokenForCredentialProviders=false");
    check_errors(
        &files,
        &line,
        &expect![[r#"
        /etc/providers: provider "ecr": tokenAttributes need the feature gate KubeletServiceAccountTokenForCredentialProviders
    "#]],
    );
}
