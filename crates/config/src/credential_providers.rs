//! `CredentialProviderConfig`: which programs know credentials for which images (`--image-credential-provider-config`).
//!
//! Owns the fields, their validation, and reading one file or a directory of them. Never runs a program, and does not check
//! whether it exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use model::digest::sha256_hex;
use model::path_component_problem;
use serde::Deserialize;
use serde_json::Value;

use crate::duration::GoDuration;
use crate::error::{ConfigError, ConfigErrors, Place};
use crate::load::Files;
use crate::node::is_label_key;
use crate::{document, gates::FeatureGates};

/// Versions of the file; they have the same fields, but for `tokenAttributes`.
const FILE_VERSIONS: [&str; 3] =
    ["kubelet.config.k8s.io/v1", "kubelet.config.k8s.io/v1beta1", "kubelet.config.k8s.io/v1alpha1"];
const FILE_KIND: &str = "CredentialProviderConfig";
/// Versions of the API between the kubelet and a program.
const CALL_VERSIONS: [&str; 3] = [
    "credentialprovider.kubelet.k8s.io/v1",
    "credentialprovider.kubelet.k8s.io/v1beta1",
    "credentialprovider.kubelet.k8s.io/v1alpha1",
];
const TOKEN_GATE: &str = "KubeletServiceAccountTokenForCredentialProviders";

/// All providers, in the order in which their credentials are tried.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CredentialProviders {
    pub providers: Vec<CredentialProvider>,
    /// Of all files: `sha256:<hex>`. Empty without a configuration.
    pub hash: String,
}

/// A credential provider plugin.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CredentialProvider {
    /// The file name of the program in `--image-credential-provider-bin-dir`.
    pub name: String,
    /// `host[:port][/path]`, with `*` in the host's labels.
    pub match_images: Vec<String>,
    /// How long a response is cached that does not specify it.
    pub default_cache_duration: GoDuration,
    /// The version of its requests and responses.
    pub api_version: String,
    #[serde(default)]
    pub args: Vec<String>,
    #[serde(default)]
    pub env: Vec<ProviderVariable>,
    #[serde(default)]
    pub token_attributes: Option<TokenAttributes>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderVariable {
    pub name: String,
    #[serde(default)]
    pub value: String,
}

/// The program gets a token of the pod's service account.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TokenAttributes {
    pub service_account_token_audience: String,
    pub cache_type: TokenCacheType,
    /// Pods without a service account get no credentials of this provider.
    pub require_service_account: bool,
    #[serde(default)]
    pub required_service_account_annotation_keys: Vec<String>,
    #[serde(default)]
    pub optional_service_account_annotation_keys: Vec<String>,
}

/// What a response to a request with a token is cached for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum TokenCacheType {
    /// The token.
    Token,
    /// All tokens of the same service account.
    ServiceAccount,
}

/// Reads what `path` names: a file, or every file of a directory that ends in `.json`, `.yaml` or `.yml`.
pub(crate) fn read(
    path: &str,
    files: &dyn Files,
    gates: &FeatureGates,
) -> Result<CredentialProviders, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let (mut found, mut hashed) = (CredentialProviders::default(), Vec::new());
    for path in paths(Path::new(path), files)? {
        let text = files.read(&path).map_err(|source| read_error(&path, source))?;
        hashed.extend((text.len() as u64).to_be_bytes());
        hashed.extend(text.as_bytes());
        match providers(&text, &path) {
            Ok(providers) => {
                for provider in providers {
                    let mut wrong = |problem: String| {
                        errors.push(ConfigError::Document { place: Place::file(&path), problem })
                    };
                    check(&provider, gates, &mut wrong);
                    if found.providers.iter().any(|known| known.name == provider.name) {
                        wrong(format!("provider {:?} is duplicated: names must be unique", provider.name));
                    }
                    found.providers.push(provider);
                }
            }
            Err(wrong) => errors.extend(wrong),
        }
    }
    errors.into_result()?;
    found.hash = format!("sha256:{}", sha256_hex(&hashed));
    Ok(found)
}

fn read_error(path: &Path, source: std::io::Error) -> ConfigError {
    ConfigError::Read { what: "--image-credential-provider-config", path: path.to_owned(), source }
}

fn paths(path: &Path, files: &dyn Files) -> Result<Vec<PathBuf>, ConfigErrors> {
    let Some(inside) = files.list_dir(path).map_err(|source| read_error(path, source))? else {
        return Ok(vec![path.to_owned()]);
    };
    let is_one = |path: &PathBuf| {
        path.extension().and_then(|e| e.to_str()).is_some_and(|e| ["json", "yaml", "yml"].contains(&e))
    };
    let found: Vec<PathBuf> = inside.into_iter().filter(is_one).collect();
    if found.is_empty() {
        let problem = "--image-credential-provider-config is a directory without files that end in .json, .yaml or .yml";
        return Err(ConfigError::Document { place: Place::file(path), problem: problem.to_owned() }.into());
    }
    Ok(found)
}

/// Decodes each provider on its own, so that each wrong one is named.
fn providers(text: &str, path: &Path) -> Result<Vec<CredentialProvider>, ConfigErrors> {
    let wrong = |problem: String| ConfigError::Document { place: Place::file(path), problem };
    let (tree, duplicates) = document::plain_tree(text).map_err(wrong)?;
    let mut errors = ConfigErrors::default();
    for field in duplicates {
        errors.push(wrong(format!("field {field:?} is duplicated")));
    }
    let Value::Object(mut fields) = tree else {
        return Err(wrong(format!("the file must hold a {FILE_KIND} of {}", FILE_VERSIONS[0])).into());
    };
    let allowed = [("apiVersion", FILE_VERSIONS.as_slice()), ("kind", &[FILE_KIND])];
    for (field, allowed) in allowed {
        let given = fields.remove(field).unwrap_or_default();
        if !given.as_str().is_some_and(|given| allowed.contains(&given)) {
            errors.push(wrong(format!("{field} is {given}, but must be {}", allowed.join(" or "))));
        }
    }
    let items = match fields.remove("providers") {
        Some(Value::Array(items)) if !items.is_empty() => items,
        _ => {
            errors.push(wrong("providers must be a list of at least one provider".to_owned()));
            Vec::new()
        }
    };
    for field in fields.keys() {
        errors.push(wrong(format!("unknown field {field:?}; known are apiVersion, kind and providers")));
    }
    let mut found = Vec::new();
    for (index, item) in items.into_iter().enumerate() {
        let name = item["name"].as_str().map(|name| format!(" ({name})")).unwrap_or_default();
        match serde_json::from_value(item) {
            Ok(provider) => found.push(provider),
            Err(error) => errors.push(wrong(format!("providers[{index}]{name}: {error}"))),
        }
    }
    errors.into_result()?;
    Ok(found)
}

fn check(provider: &CredentialProvider, gates: &FeatureGates, wrong: &mut dyn FnMut(String)) {
    let name = &provider.name;
    let mut wrong = |problem: String| wrong(format!("provider {name:?}: {problem}"));
    let is_file_name = path_component_problem(name).is_none() && !name.contains(char::is_whitespace);
    if !is_file_name {
        wrong("name must be that of a program: one or more characters, no spaces or slashes".to_owned());
    }
    if !CALL_VERSIONS.contains(&provider.api_version.as_str()) {
        let allowed = CALL_VERSIONS.join(" or ");
        wrong(format!("apiVersion is {:?}, but must be {allowed}", provider.api_version));
    }
    if provider.match_images.is_empty() {
        wrong("matchImages must name at least one pattern".to_owned());
    }
    for pattern in provider.match_images.iter().filter(|pattern| !is_pattern(pattern)) {
        let allowed = "host[:port][/path], with * only in the host";
        wrong(format!("matchImages has {pattern:?}, but a pattern must be {allowed}"));
    }
    if provider.default_cache_duration < GoDuration::ZERO {
        wrong(format!("defaultCacheDuration is {}, but must be 0s or more", provider.default_cache_duration));
    }
    for variable in provider.env.iter().filter(|v| v.name.is_empty() || v.name.contains(['=', '\0'])) {
        wrong(format!("env has {:?}, which is not the name of a variable", variable.name));
    }
    if let Some(attributes) = &provider.token_attributes {
        check_attributes(provider, attributes, gates, &mut wrong);
    }
}

fn check_attributes(
    provider: &CredentialProvider,
    attributes: &TokenAttributes,
    gates: &FeatureGates,
    wrong: &mut dyn FnMut(String),
) {
    if !gates.enabled(TOKEN_GATE) {
        wrong(format!("tokenAttributes need the feature gate {TOKEN_GATE}"));
    }
    if provider.api_version != CALL_VERSIONS[0] {
        wrong(format!("tokenAttributes need apiVersion {}", CALL_VERSIONS[0]));
    }
    if attributes.service_account_token_audience.is_empty() {
        wrong("tokenAttributes.serviceAccountTokenAudience must not be empty".to_owned());
    }
    let required = &attributes.required_service_account_annotation_keys;
    let optional = &attributes.optional_service_account_annotation_keys;
    if !required.is_empty() && !attributes.require_service_account {
        wrong(
            "tokenAttributes.requiredServiceAccountAnnotationKeys need requireServiceAccount: true"
                .to_owned(),
        );
    }
    let mut seen = BTreeSet::new();
    for key in required.iter().chain(optional) {
        if !is_label_key(key) || key.chars().any(char::is_uppercase) {
            wrong(format!(
                "tokenAttributes: annotation key {key:?} must be like example.com/name, in lower case"
            ));
        }
        if !seen.insert(key) {
            wrong(format!("tokenAttributes: annotation key {key:?} is duplicated"));
        }
    }
}

fn is_pattern(pattern: &str) -> bool {
    let (authority, path) = pattern.split_once('/').unwrap_or((pattern, ""));
    let (host, port) = authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)));
    let is_host = |c: char| c.is_ascii_alphanumeric() || "*?.-_".contains(c);
    !host.is_empty()
        && host.chars().all(is_host)
        && port.is_none_or(|port| port.parse::<u16>().is_ok())
        && !path.contains(|c: char| c == '*' || c == ':' || c.is_whitespace())
}

impl CredentialProvider {
    /// The environment variables of the program, in addition to those of the kubelet.
    #[must_use]
    pub fn variables(&self) -> BTreeMap<&str, &str> {
        self.env.iter().map(|variable| (variable.name.as_str(), variable.value.as_str())).collect()
    }
}
