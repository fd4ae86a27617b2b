//! Credentials from the pull secrets of a pod (docs/behaviour/images.md). Never fetches a secret or a file.

use model::containers::spec_of;
use model::k8s::{Pod, Secret};

use super::access::PullSecret;
use super::keyring::{Keyring, KeyringError};

/// Why a pull secret cannot be used. The message never contains a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("secret {name:?} of type {kind}: {problem}")]
pub struct PullSecretError {
    name: String,
    kind: String,
    #[source]
    problem: KeyringError,
}

/// The names of the secrets that a pod gives for pulling, in its order.
pub fn pull_secret_names(pod: &Pod) -> impl Iterator<Item = &str> {
    spec_of(pod)
        .image_pull_secrets
        .iter()
        .flatten()
        .map(|secret| &*secret.name)
        .filter(|name| !name.is_empty())
}

/// The event `FailedToRetrieveImagePullSecret` (Warning), if some of them do not exist: the pull is tried without them.
#[must_use]
pub fn missing_secrets_message(names: &[&str]) -> String {
    format!(
        "Unable to retrieve some image pull secrets ({}); attempting to pull the image may not succeed.",
        names.join(", ")
    )
}

/// All credentials of the secrets. Secrets of other types contain none.
///
/// # Errors
/// The content of a secret does not match its type.
pub fn keyring_of(secrets: &[&Secret]) -> Result<Keyring, PullSecretError> {
    let mut keyring = Keyring::default();
    for secret in secrets {
        let kind = secret.type_.as_deref().unwrap_or_default();
        let parse: fn(&str) -> Result<Keyring, KeyringError> = match kind {
            "kubernetes.io/dockerconfigjson" => Keyring::parse_config_json,
            "kubernetes.io/dockercfg" => Keyring::parse_dockercfg,
            _ => continue,
        };
        let key = if kind.ends_with("json") { ".dockerconfigjson" } else { ".dockercfg" };
        let Some(content) = secret.data.as_ref().and_then(|data| data.get(key)).filter(|c| !c.0.is_empty())
        else {
            continue;
        };
        let found = parse(&String::from_utf8_lossy(&content.0)).map_err(|problem| PullSecretError {
            name: secret.metadata.name.clone().unwrap_or_default(),
            kind: kind.to_owned(),
            problem,
        })?;
        keyring.merge(found.from_secret(&coordinates(secret)));
    }
    Ok(keyring)
}

/// Identity of the secret; the hash is that of a credential in it.
fn coordinates(secret: &Secret) -> PullSecret {
    let meta = &secret.metadata;
    PullSecret {
        uid: meta.uid.clone().unwrap_or_default(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
        credential_hash: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use model::k8s::ByteString;
    use serde_json::json;

    use super::*;

    fn secret(kind: &str, key: &str, content: &str) -> Secret {
        let mut secret: Secret =
            serde_json::from_value(json!({"metadata": {"name": "s"}, "type": kind})).unwrap();
        secret.data = Some([(key.to_owned(), ByteString(content.as_bytes().to_vec()))].into());
        secret
    }

    fn users(secrets: &[&Secret]) -> Vec<String> {
        keyring_of(secrets).unwrap().credentials_for("r.io/a").into_iter().map(|c| c.auth.username).collect()
    }

    #[test]
    fn both_types_are_read_in_the_order_of_the_pod() {
        let new = secret(
            "kubernetes.io/dockerconfigjson",
            ".dockerconfigjson",
            r#"{"auths": {"r.io": {"username": "new", "password": "p"}}}"#,
        );
        let old = secret(
            "kubernetes.io/dockercfg",
            ".dockercfg",
            r#"{"r.io": {"username": "old", "password": "p"}}"#,
        );
        assert_eq!(users(&[&new, &old]), ["new", "old"]);
        assert_eq!(users(&[&old, &new]), ["old", "new"]);
        assert_eq!(users(&[&secret("Opaque", ".dockercfg", "{")]), <[&str; 0]>::default());
        assert_eq!(users(&[&secret("kubernetes.io/dockercfg", "other", "{")]), <[&str; 0]>::default());
    }

    #[test]
    fn a_broken_secret_is_named_without_its_content() {
        let broken = secret("kubernetes.io/dockercfg", ".dockercfg", "hidden");
        assert_eq!(
            keyring_of(&[&broken]).unwrap_err().to_string(),
            r#"secret "s" of type kubernetes.io/dockercfg: not a docker config file: line 1, column 1: not JSON"#
        );
    }

    #[test]
    fn missing_pull_secrets_are_reported() {
        let pod: Pod = serde_json::from_value(
            json!({"spec": {"containers": [], "imagePullSecrets": [{"name": "a"}, {}, {"name": "b"}]}}),
        )
        .unwrap();
        let names: Vec<_> = pull_secret_names(&pod).collect();
        assert_eq!(
            missing_secrets_message(&names),
            "Unable to retrieve some image pull secrets (a, b); attempting to pull the image may not succeed."
        );
    }
}
