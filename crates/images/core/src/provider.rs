//! Credentials from credential provider plugins (docs/behaviour/plugins.md): which plugin is executed for an image, its
//! request, the meaning of its response, and for which pods and how long a response is cached. Never runs one, nor reads a
//! clock.

use std::collections::BTreeMap;
use std::time::Duration;

use base_core::service_account_token::TokenRequirement;
use config::{CredentialProvider, GoDuration, TokenAttributes, TokenCacheType};
use model::MonoTime;
use model::digest::sha256_hex;
use model::k8s::ServiceAccount;
use model::request::RegistryAuth;
use serde::Deserialize;
use serde_json::json;

use super::access::PullServiceAccount;
use super::keyring::{CredentialSource, Keyring, matches};
use super::name::parse;

/// Maximum number of cached responses of one plugin; those that expire first are evicted.
const MAX_ANSWERS: usize = 1000;
/// Default lifetime of a service account token.
const TOKEN_SECONDS: i64 = 3600;

/// The image as plugins expect it: with its registry, without tag and digest. `None` if it is not an image reference.
#[must_use]
pub fn provider_image(image: &str) -> Option<String> {
    let name = parse(image).ok()?;
    Some(format!("{}/{}", name.registry, name.repository))
}

/// Whether the provider matches that image (in the form of [`provider_image`]).
#[must_use]
pub fn is_asked_for(provider: &CredentialProvider, image: &str) -> bool {
    provider.match_images.iter().any(|pattern| matches(pattern, image))
}

/// The token that a provider with these attributes receives.
#[must_use]
pub fn provider_token(attributes: &TokenAttributes) -> TokenRequirement {
    TokenRequirement {
        audience: attributes.service_account_token_audience.clone(),
        expiration_seconds: TOKEN_SECONDS,
    }
}

/// The service account of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderAccount {
    pub account: PullServiceAccount,
    /// The annotations that the plugin requires or accepts.
    pub annotations: BTreeMap<String, String>,
}

/// Why a plugin is not executed although the image matches.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAsked {
    #[error("the pod has no service account, and the provider needs one")]
    NoAccount,
    #[error("service account {name:?} has no annotation {key:?}, which the provider needs")]
    NoAnnotation { name: String, key: String },
}

/// The service account of the request, if the provider has token attributes. `account` is the pod's, if it has one.
///
/// # Errors
/// The provider does not serve this pod.
pub fn compute_account(
    attributes: &TokenAttributes,
    account: Option<&ServiceAccount>,
) -> Result<Option<ProviderAccount>, NotAsked> {
    let Some(account) = account else {
        return if attributes.require_service_account { Err(NotAsked::NoAccount) } else { Ok(None) };
    };
    let meta = &account.metadata;
    let name = meta.name.clone().unwrap_or_default();
    let value = |key: &String| meta.annotations.as_ref().and_then(|all| all.get(key)).cloned();
    let mut annotations = BTreeMap::new();
    for key in &attributes.required_service_account_annotation_keys {
        let Some(value) = value(key) else { return Err(NotAsked::NoAnnotation { name, key: key.clone() }) };
        annotations.insert(key.clone(), value);
    }
    for key in &attributes.optional_service_account_annotation_keys {
        annotations.extend(value(key).map(|value| (key.clone(), value)));
    }
    let account = PullServiceAccount {
        uid: meta.uid.clone().unwrap_or_default(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name,
    };
    Ok(Some(ProviderAccount { account, annotations }))
}

/// The input of the plugin: a `CredentialProviderRequest`.
#[must_use]
pub fn compute_request(
    provider: &CredentialProvider,
    image: &str,
    account: Option<(&ProviderAccount, &str)>,
) -> Vec<u8> {
    let mut request = json!({
        "kind": "CredentialProviderRequest", "apiVersion": provider.api_version, "image": image,
    });
    if let Some((account, token)) = account {
        request["serviceAccountToken"] = token.into();
        if !account.annotations.is_empty() {
            request["serviceAccountAnnotations"] = json!(account.annotations);
        }
    }
    request.to_string().into_bytes()
}

/// Credentials by image pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderAnswer {
    auths: BTreeMap<String, RegistryAuth>,
    scope: AnswerScope,
    /// Zero: not cached.
    keep_for: Duration,
}

/// For which images a response is cached: `cacheKeyType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum AnswerScope {
    Image,
    Registry,
    Global,
}

/// Why a response cannot be used. The message contains nothing of the response but its version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("its answer is no CredentialProviderResponse: line {line}, column {column}")]
    Shape { line: usize, column: usize },
    #[error(
        "its answer is a {kind:?} of {version:?}, but must be a CredentialProviderResponse of {expected}"
    )]
    Version { kind: String, version: String, expected: String },
    #[error("the cacheKeyType of its answer is {0:?}, but must be Image, Registry or Global")]
    Scope(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    cache_key_type: String,
    #[serde(default)]
    cache_duration: Option<GoDuration>,
    #[serde(default)]
    auth: Option<BTreeMap<String, Login>>,
}

#[derive(Deserialize)]
struct Login {
    #[serde(default)]
    username: String,
    #[serde(default)]
    password: String,
}

/// Parses the output of the plugin.
///
/// # Errors
/// It is not a response to the request.
pub fn parse_answer(provider: &CredentialProvider, output: &[u8]) -> Result<ProviderAnswer, AnswerError> {
    let response: Response = serde_json::from_slice(output)
        .map_err(|error| AnswerError::Shape { line: error.line(), column: error.column() })?;
    if response.kind != "CredentialProviderResponse" || response.api_version != provider.api_version {
        return Err(AnswerError::Version {
            kind: response.kind,
            version: response.api_version,
            expected: provider.api_version.clone(),
        });
    }
    let scope = match response.cache_key_type.as_str() {
        "Image" => AnswerScope::Image,
        "Registry" => AnswerScope::Registry,
        "Global" => AnswerScope::Global,
        _ => return Err(AnswerError::Scope(response.cache_key_type)),
    };
    let login = |(location, login): (String, Login)| {
        let auth =
            RegistryAuth { username: login.username, password: login.password, ..RegistryAuth::default() };
        (location, auth)
    };
    Ok(ProviderAnswer {
        auths: response.auth.into_iter().flatten().map(login).collect(),
        scope,
        keep_for: response.cache_duration.unwrap_or(provider.default_cache_duration).as_std(),
    })
}

impl ProviderAnswer {
    /// The credentials, restricted to the pods of the account, or for every pod without one.
    #[must_use]
    pub fn keyring(&self, account: Option<&PullServiceAccount>) -> Keyring {
        let mut keyring = Keyring::default();
        for (location, auth) in &self.auths {
            let source =
                account.map_or(CredentialSource::Node, |a| CredentialSource::ServiceAccount(a.clone()));
            keyring.add(location, auth.clone(), source);
        }
        keyring
    }
}

/// Cache key of the account, in addition to the image. Empty without an account.
#[must_use]
pub fn compute_owner(
    attributes: Option<&TokenAttributes>,
    account: Option<(&ProviderAccount, &str)>,
) -> String {
    let (Some(attributes), Some((account, token))) = (attributes, account) else { return String::new() };
    let token = match attributes.cache_type {
        TokenCacheType::Token => sha256_hex(token.as_bytes()),
        TokenCacheType::ServiceAccount => String::new(),
    };
    let PullServiceAccount { uid, namespace, name } = &account.account;
    json!([namespace, name, uid, account.annotations, token]).to_string()
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct AnswerKey {
    owner: String,
    /// An image, a registry, or nothing for all images.
    images: String,
}

impl AnswerKey {
    fn of(scope: AnswerScope, image: &str, owner: &str) -> Self {
        let images = match scope {
            AnswerScope::Image => image,
            AnswerScope::Registry => image.split('/').next().unwrap_or_default(),
            AnswerScope::Global => "",
        };
        Self { owner: owner.to_owned(), images: images.to_owned() }
    }
}

/// The cached responses of one plugin.
#[derive(Debug, Default)]
pub struct AnswerCache {
    answers: BTreeMap<AnswerKey, (MonoTime, ProviderAnswer)>,
}

impl AnswerCache {
    /// The cached response for the image: one for this image before one for its registry, before one for all.
    #[must_use]
    pub fn get(&self, image: &str, owner: &str, now: MonoTime) -> Option<&ProviderAnswer> {
        let scopes = [AnswerScope::Image, AnswerScope::Registry, AnswerScope::Global];
        scopes.into_iter().find_map(|scope| {
            let (until, answer) = self.answers.get(&AnswerKey::of(scope, image, owner))?;
            (now < *until).then_some(answer)
        })
    }

    /// Caches a response for its lifetime, and removes expired ones.
    pub fn put(&mut self, image: &str, owner: &str, answer: &ProviderAnswer, now: MonoTime) {
        self.answers.retain(|_, (until, _)| now < *until);
        if answer.keep_for.is_zero() {
            return;
        }
        if self.answers.len() >= MAX_ANSWERS {
            let first = self.answers.iter().min_by_key(|(_, (until, _))| *until);
            if let Some(key) = first.map(|(key, _)| key.clone()) {
                self.answers.remove(&key);
            }
        }
        let key = AnswerKey::of(answer.scope, image, owner);
        self.answers.insert(key, (now + answer.keep_for, answer.clone()));
    }
}

#[cfg(test)]
mod tests;
