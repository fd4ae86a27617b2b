//! Which pods may use an image that is already on the node (docs/behaviour/images.md): one that was pulled with credentials
//! is not available to pods without them.
//!
//! Owns: the records of pulls, their files' names and content, and what follows from them. Never: pulling, reading or
//! writing a file.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use model::digest::sha256_hex;
use model::k8s::Time;
use model::request::ImageObservation;
use serde::{Deserialize, Serialize};

use super::name::{parse, without_tag};

/// Maximum number of secrets, and of service accounts, in the record of one image; the oldest are dropped.
const MAX_CREDENTIALS: usize = 100;

/// Older kubelets wrote records of this version; they have the same fields.
const OLD_API_VERSION: &str = "kubelet.config.k8s.io/v1alpha1";

/// An intent to pull: the image may exist although the end of the pull was not recorded. The format of its file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", rename = "ImagePullIntent")]
pub struct ImagePullIntent {
    pub api_version: String,
    /// As in the container's spec, with the default tag.
    pub image: String,
}

impl ImagePullIntent {
    #[must_use]
    pub fn of(image: &str) -> Self {
        Self { api_version: config::API_VERSION.to_owned(), image: image.to_owned() }
    }
}

/// The name of the file of an intent (by its image) or a record (by its reference): safe whatever the text contains.
#[must_use]
pub fn record_file(subject: &str) -> String {
    format!("sha256-{}", sha256_hex(subject.as_bytes()))
}

/// Parses a record or an intent of this or the older version; `None` for anything else.
#[must_use]
pub fn parse_record_file<K: serde::de::DeserializeOwned>(content: &[u8]) -> Option<K> {
    let mut tree: serde_json::Value = serde_json::from_slice(content).ok()?;
    let version = tree.get_mut("apiVersion")?;
    if *version == OLD_API_VERSION {
        *version = config::API_VERSION.into();
    }
    if *version != config::API_VERSION {
        return None;
    }
    serde_json::from_value(tree).ok()
}

/// The record of the pulls of one image, by its reference in the runtime. The format of its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", rename = "ImagePulledRecord")]
pub struct ImagePulledRecord {
    pub api_version: String,
    pub last_updated_time: Time,
    pub image_ref: String,
    /// By the name under which it was pulled, without tag and digest.
    #[serde(default)]
    pub credential_mapping: BTreeMap<String, ImagePullCredentials>,
}

/// The credentials with which an image was pulled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImagePullCredentials {
    #[serde(skip_serializing_if = "Vec::is_empty", alias = "kubernetesSecretCoordinates")]
    pub kubernetes_secrets: Vec<PullSecret>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kubernetes_service_accounts: Vec<PullServiceAccount>,
    /// Without credentials, or with the node's own: every pod may use it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub node_pods_accessible: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PullSecret {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub credential_hash: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PullServiceAccount {
    pub uid: String,
    pub namespace: String,
    pub name: String,
}

/// `imagePullCredentialsVerificationPolicy`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerificationPolicy {
    NeverVerify,
    NeverVerifyPreloadedImages,
    /// Names without tag, as in pod specs: `nginx` is not `docker.io/library/nginx`, because the runtime may resolve short
    /// names elsewhere. `host/path/*` matches all names below.
    NeverVerifyAllowlistedImages(Vec<String>),
    AlwaysVerify,
}

impl VerificationPolicy {
    /// Parses the policy with its allow-list. Validation has rejected unknown names; one would mean the default.
    #[must_use]
    pub fn parse(policy: &str, allowlist: &[String]) -> Self {
        match policy {
            "NeverVerify" => Self::NeverVerify,
            "NeverVerifyAllowlistedImages" => Self::NeverVerifyAllowlistedImages(allowlist.to_vec()),
            "AlwaysVerify" => Self::AlwaysVerify,
            _ => Self::NeverVerifyPreloadedImages,
        }
    }

    fn must_verify(&self, image: &str, was_pulled_here: bool) -> bool {
        match self {
            Self::NeverVerify => false,
            Self::NeverVerifyPreloadedImages => was_pulled_here,
            Self::NeverVerifyAllowlistedImages(list) => {
                let image = without_tag(image);
                !list.iter().any(|pattern| match pattern.strip_suffix('*') {
                    Some(parent) => image.starts_with(parent),
                    None => pattern == image,
                })
            }
            Self::AlwaysVerify => true,
        }
    }
}

/// The credentials with which a pod could pull.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodCredentials {
    pub secrets: Vec<PullSecret>,
    pub service_account: Option<PullServiceAccount>,
}

/// Whether a pod may use an existing image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageAccess {
    /// The policy requires no verification.
    NotVerified,
    /// Its credentials match the record.
    Granted,
    /// It may, and its credentials are added to the record.
    GrantedAndRecorded(ImagePullCredentials),
    /// It must pull the image to verify its credentials.
    MustPull,
}

/// Decides from the record of the image. `was_intended` is true if a pull of it was begun whose end was not recorded.
#[must_use]
pub fn compute_image_access(
    policy: &VerificationPolicy,
    image: &str,
    record: Option<&ImagePulledRecord>,
    was_intended: bool,
    pod: &PodCredentials,
) -> ImageAccess {
    if !policy.must_verify(image, record.is_some() || was_intended) {
        return ImageAccess::NotVerified;
    }
    let known = record.and_then(|record| record.credential_mapping.get(without_tag(image)));
    let Some(known) = known else { return ImageAccess::MustPull };
    if known.node_pods_accessible {
        return ImageAccess::Granted;
    }
    for secret in &pod.secrets {
        let is_same = |other: &PullSecret| is_same_secret(other, secret);
        let has_hash = |other: &PullSecret| other.credential_hash == secret.credential_hash;
        // An empty hash means that the credentials could not be hashed, and proves nothing about another secret.
        let is_twin = |other: &PullSecret| !secret.credential_hash.is_empty() && has_hash(other);
        if known.kubernetes_secrets.iter().any(|other| is_same(other) && has_hash(other)) {
            return ImageAccess::Granted;
        }
        // The same secret with different content, or the same content in another secret.
        if known.kubernetes_secrets.iter().any(|other| is_same(other) || is_twin(other)) {
            let mut recorded = known.clone();
            record_secret(&mut recorded, secret);
            return ImageAccess::GrantedAndRecorded(recorded);
        }
    }
    let is_known = |account: &PullServiceAccount| known.kubernetes_service_accounts.contains(account);
    if pod.service_account.as_ref().is_some_and(is_known) {
        ImageAccess::Granted
    } else {
        ImageAccess::MustPull
    }
}

/// The record after a successful pull. `with` are its credentials; without any, every pod may use the image.
#[must_use]
pub fn record_pull(
    record: Option<&ImagePulledRecord>,
    image: &str,
    image_ref: &str,
    with: &PodCredentials,
    now: Time,
) -> ImagePulledRecord {
    let mut record = record.cloned().unwrap_or_else(|| record_unknown(image_ref, now.clone()));
    record.last_updated_time = now;
    let known = record.credential_mapping.entry(without_tag(image).to_owned()).or_default();
    if known.node_pods_accessible {
        return record;
    }
    if with.secrets.is_empty() && with.service_account.is_none() {
        *known = ImagePullCredentials { node_pods_accessible: true, ..ImagePullCredentials::default() };
        return record;
    }
    for secret in &with.secrets {
        record_secret(known, secret);
    }
    if let Some(account) = &with.service_account {
        known.kubernetes_service_accounts.retain(|other| other != account);
        known.kubernetes_service_accounts.push(account.clone());
        keep_newest(&mut known.kubernetes_service_accounts);
    }
    record
}

/// The record of an image of unknown origin: a pod must pull it to verify its credentials.
#[must_use]
pub fn record_unknown(image_ref: &str, now: Time) -> ImagePulledRecord {
    ImagePulledRecord {
        api_version: config::API_VERSION.to_owned(),
        last_updated_time: now,
        image_ref: image_ref.to_owned(),
        credential_mapping: BTreeMap::new(),
    }
}

/// The record with a pod's credentials added to the known ones; see [`ImageAccess::GrantedAndRecorded`].
#[must_use]
pub fn record_credentials(
    record: &ImagePulledRecord,
    image: &str,
    recorded: ImagePullCredentials,
    now: Time,
) -> ImagePulledRecord {
    let mut record = record.clone();
    record.last_updated_time = now;
    record.credential_mapping.insert(without_tag(image).to_owned(), recorded);
    record
}

/// Whether the record is of an image that was removed. `present`: the references of all images, as listed at `listed_at`;
/// records that are newer than the list are kept.
#[must_use]
pub fn is_outlived(record: &ImagePulledRecord, present: &BTreeSet<&str>, listed_at: Timestamp) -> bool {
    !present.contains(&*record.image_ref) && record.last_updated_time.0 < listed_at
}

/// The image with this name, with or without the defaults of short names.
#[must_use]
pub fn find_image<'a>(images: &'a [ImageObservation], name: &str) -> Option<&'a ImageObservation> {
    let wanted = parse(name).ok()?;
    let is_it = |known: &String| parse(known).is_ok_and(|known| known == wanted);
    images.iter().find(|image| image.repo_tags.iter().chain(&image.repo_digests).any(is_it))
}

fn is_same_secret(a: &PullSecret, b: &PullSecret) -> bool {
    (&a.uid, &a.namespace, &a.name) == (&b.uid, &b.namespace, &b.name)
}

fn record_secret(known: &mut ImagePullCredentials, secret: &PullSecret) {
    known.kubernetes_secrets.retain(|other| !is_same_secret(other, secret));
    known.kubernetes_secrets.push(secret.clone());
    keep_newest(&mut known.kubernetes_secrets);
}

fn keep_newest<T>(list: &mut Vec<T>) {
    list.drain(..list.len().saturating_sub(MAX_CREDENTIALS));
}

#[cfg(test)]
mod tests;
