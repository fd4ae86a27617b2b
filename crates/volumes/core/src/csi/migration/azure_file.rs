//! `azureFile`, now of the driver `file.csi.azure.com`. The handle has the account, the share and the namespace of the secret, because
//! the driver has no other place for them.

use model::k8s::{CSIPersistentVolumeSource, ObjectMeta, PersistentVolumeSpec, SecretReference, Volume};

use super::{InTreeType, READ_WRITE_MANY, TranslatedVolume, attributes};

const DRIVER: &str = "file.csi.azure.com";
const DEFAULT_SECRET_NAMESPACE: &str = "default";
const RESOURCE_GROUP: &str = "kubernetes.io/azure-file-resource-group";

pub(super) struct AzureFile;

impl InTreeType for AzureFile {
    fn persistent(
        &self,
        metadata: &ObjectMeta,
        spec: &mut PersistentVolumeSpec,
    ) -> Option<Result<CSIPersistentVolumeSource, String>> {
        let source = spec.azure_file.take()?;
        let of_claim = || spec.claim_ref.as_ref().and_then(|claim| claim.namespace.clone());
        let namespace = source.secret_namespace.or_else(of_claim).unwrap_or_default();
        if namespace.is_empty() {
            let why = "could not find a secret namespace in PersistentVolumeSource or ClaimRef";
            return Some(Err(why.to_owned()));
        }
        let group = metadata.annotations.as_ref().and_then(|annotations| annotations.get(RESOURCE_GROUP));
        let group = group.map_or("", String::as_str);
        let name = metadata.name.as_deref().unwrap_or_default();
        let share = Share { secret: &source.secret_name, share: &source.share_name, namespace: &namespace };
        Some(Ok(share.translate(group, name, source.read_only)))
    }

    fn inline(&self, volume: &Volume, namespace: &str) -> Option<Result<TranslatedVolume, String>> {
        let source = volume.azure_file.as_ref()?;
        let namespace = if namespace.is_empty() { DEFAULT_SECRET_NAMESPACE } else { namespace };
        let share = Share { secret: &source.secret_name, share: &source.share_name, namespace };
        let translated = share.translate("", &volume.name, source.read_only);
        Some(Ok(TranslatedVolume::new(translated.volume_handle.clone(), READ_WRITE_MANY, translated)))
    }
}

/// A share, and the Secret with its account.
struct Share<'a> {
    secret: &'a str,
    share: &'a str,
    /// Of the Secret.
    namespace: &'a str,
}

impl Share<'_> {
    fn translate(&self, group: &str, name: &str, read_only: Option<bool>) -> CSIPersistentVolumeSource {
        let account = account_of(self.secret).unwrap_or(self.secret);
        CSIPersistentVolumeSource {
            driver: DRIVER.to_owned(),
            volume_handle: format!("{group}#{account}#{}#{name}#{}", self.share, self.namespace),
            read_only,
            volume_attributes: attributes([("sharename", self.share)]),
            node_stage_secret_ref: Some(SecretReference {
                name: Some(self.secret.to_owned()),
                namespace: Some(self.namespace.to_owned()),
            }),
            ..CSIPersistentVolumeSource::default()
        }
    }
}

/// The account in `azure-storage-account-<account>-secret`, which controllers name their secrets.
fn account_of(secret: &str) -> Option<&str> {
    let (_, named) = secret.split_once("azure-storage-account-")?;
    let (account, _) = named.rsplit_once("-secret")?;
    Some(account).filter(|account| !account.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::{error, inline, inline_spec, persistent};
    use super::*;

    fn csi(handle: &str, namespace: &str) -> Value {
        json!({
            "driver": DRIVER, "volumeHandle": handle, "readOnly": true,
            "nodeStageSecretRef": {"name": "secretname", "namespace": namespace},
            "volumeAttributes": {"sharename": "sharename"},
        })
    }

    /// The cases of `TestTranslateAzureFileInTreePVToCSI` of Kubernetes.
    #[test]
    fn azure_file_of_a_persistent_volume_needs_the_namespace_of_its_secret() {
        let translated = |annotations: Value, namespace: Value, claim: Value| {
            let source = json!({
                "shareName": "sharename", "secretName": "secretname", "secretNamespace": namespace, "readOnly": true,
            });
            let metadata = json!({"name": "uuid", "annotations": annotations});
            persistent(json!({"metadata": metadata, "spec": {"azureFile": source, "claimRef": claim}}))
        };
        let group = json!({"kubernetes.io/azure-file-resource-group": "rg"});
        let (namespace, handle) = ("secretnamespace", "#secretname#sharename#uuid#secretnamespace");
        let expected = json!({"csi": csi(handle, namespace)});
        assert_eq!(translated(json!({}), namespace.into(), Value::Null), Ok(expected));
        let of_group = csi("rg#secretname#sharename#uuid#secretnamespace", namespace);
        let expected = json!({"csi": of_group});
        assert_eq!(translated(group.clone(), namespace.into(), Value::Null), Ok(expected));
        let claim = json!({"namespace": namespace});
        let expected = json!({"csi": of_group, "claimRef": claim});
        assert_eq!(translated(group.clone(), Value::Null, claim.clone()), Ok(expected));
        let why = error("could not find a secret namespace in PersistentVolumeSource or ClaimRef");
        assert_eq!(translated(group.clone(), Value::Null, Value::Null), Err(why.clone()));
        assert_eq!(translated(group, "".into(), claim), Err(why));
    }

    /// The cases of `TestTranslateAzureFileInTreeStorageClassToCSI` of Kubernetes, which are of volumes of pods.
    #[test]
    fn azure_file_of_a_pod_has_its_secret_in_the_namespace_of_the_pod() {
        let source = json!({"readOnly": true, "secretName": "secretname", "shareName": "sharename"});
        let handle = "#secretname#sharename#name#test";
        let expected = (handle.to_owned(), inline_spec("ReadWriteMany", csi(handle, "test")));
        assert_eq!(inline(json!({"azureFile": source})), Ok(expected));
        let volume = json!({"name": "name", "azureFile": source});
        let translated = AzureFile.inline(&serde_json::from_value(volume).unwrap(), "").unwrap();
        assert_eq!(
            translated.map(|translated| translated.name),
            Ok("#secretname#sharename#name#default".to_owned())
        );
    }

    /// The cases of `TestGetStorageAccount` of Kubernetes, and names without an account.
    #[test]
    fn account_of_an_azure_file_is_in_the_name_of_its_secret() {
        for (secret, account) in [
            ("azure-storage-account-accountname-secret", Some("accountname")),
            ("azure-storage-account-accountname-dup-secret", Some("accountname-dup")),
            ("azure-storage-account-a-secret-secret", Some("a-secret")),
            ("invalid", None),
            ("azure-storage-account--secret", None),
            ("azure-storage-account-secret", None),
        ] {
            assert_eq!(account_of(secret), account, "{secret}");
        }
        let secret = "azure-storage-account-accountname-secret";
        let (name, _) = inline(json!({"azureFile": {"secretName": secret, "shareName": "s"}})).unwrap();
        assert_eq!(name, "#accountname#s#name#test");
    }
}
