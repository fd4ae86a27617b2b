//! References that a static pod may not have, because there is no API server to resolve them
//! (docs/behaviour/static-pods.md).

use config::Features;
use model::containers::{all_containers, spec_of};
use model::k8s::{Pod, Volume};

use super::validation::FieldError;

/// Every reference to an API object that the node rejects: all of them; or, without the feature gate, only those that could
/// never work: resource claims and cluster trust bundles.
#[must_use]
pub fn refused_references(pod: &Pod, features: Features) -> Vec<FieldError> {
    let mut errors = api_references(pod);
    if !features.no_api_references {
        errors.retain(|e| e.path == "spec.resourceClaims" || e.path.ends_with(".clusterTrustBundle"));
    }
    errors
}

/// Every reference to an object of the API.
fn api_references(pod: &Pod) -> Vec<FieldError> {
    let spec = spec_of(pod);
    let mut errors = Vec::new();
    let mut refuse = |path: String, what: &str| {
        errors.push(FieldError::forbidden(path, format!("static pods may not reference {what}")));
    };
    let given = |field: &Option<String>| field.as_deref().is_some_and(|text| !text.is_empty());
    if given(&spec.service_account_name) {
        refuse("spec.serviceAccountName".to_owned(), "serviceaccounts");
    }
    if given(&spec.service_account) {
        refuse("spec.serviceAccount".to_owned(), "serviceaccounts");
    }
    if spec.image_pull_secrets.as_ref().is_some_and(|all| !all.is_empty()) {
        refuse("spec.imagePullSecrets".to_owned(), "secrets");
    }
    if spec.resource_claims.as_ref().is_some_and(|all| !all.is_empty()) {
        refuse("spec.resourceClaims".to_owned(), "resourceclaims");
    }
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        for (field, what) in volume_references(volume) {
            refuse(format!("spec.volumes[{index}].{field}"), what);
        }
    }
    for container in all_containers(pod) {
        let path = super::validation::container_path(&container);
        for (index, source) in container.env_from().iter().enumerate() {
            if source.config_map_ref.is_some() {
                refuse(format!("{path}.envFrom[{index}].configMapRef"), "configmaps");
            }
            if source.secret_ref.is_some() {
                refuse(format!("{path}.envFrom[{index}].secretRef"), "secrets");
            }
        }
        for (index, variable) in container.env().iter().enumerate() {
            let Some(source) = &variable.value_from else {
                continue;
            };
            if source.config_map_key_ref.is_some() {
                refuse(format!("{path}.env[{index}].valueFrom.configMapKeyRef"), "configmaps");
            }
            if source.secret_key_ref.is_some() {
                refuse(format!("{path}.env[{index}].valueFrom.secretKeyRef"), "secrets");
            }
        }
    }
    errors
}

/// The fields of a volume that refer to the API, with the kind of the object.
fn volume_references(volume: &Volume) -> Vec<(String, &'static str)> {
    let mut found = Vec::new();
    let mut note = |is_there: bool, field: &str, what| {
        if is_there {
            found.push((field.to_owned(), what));
        }
    };
    note(volume.secret.is_some(), "secret", "secrets");
    note(volume.config_map.is_some(), "configMap", "configmaps");
    note(volume.persistent_volume_claim.is_some(), "persistentVolumeClaim", "persistentvolumeclaims");
    note(volume.ephemeral.is_some(), "ephemeral", "persistentvolumeclaims");
    note(volume.csi.is_some(), "csi", "CSI drivers");
    note(volume.azure_file.is_some(), "azureFile", "secrets");
    let with_secret = [
        (volume.flex_volume.as_ref().is_some_and(|v| v.secret_ref.is_some()), "flexVolume"),
        (volume.cephfs.as_ref().is_some_and(|v| v.secret_ref.is_some()), "cephfs"),
        (volume.cinder.as_ref().is_some_and(|v| v.secret_ref.is_some()), "cinder"),
        (volume.rbd.as_ref().is_some_and(|v| v.secret_ref.is_some()), "rbd"),
        (volume.scale_io.is_some(), "scaleIO"),
        (volume.storageos.as_ref().is_some_and(|v| v.secret_ref.is_some()), "storageos"),
        (volume.iscsi.as_ref().is_some_and(|v| v.secret_ref.is_some()), "iscsi"),
    ];
    for (is_there, field) in with_secret {
        note(is_there, &format!("{field}.secretRef"), "secrets");
    }
    note(volume.glusterfs.is_some(), "glusterfs", "endpoints");
    let sources = volume.projected.as_ref().and_then(|p| p.sources.as_ref());
    for (index, source) in sources.into_iter().flatten().enumerate() {
        let of_source = [
            (source.secret.is_some(), "secret", "secrets"),
            (source.config_map.is_some(), "configMap", "configmaps"),
            (source.service_account_token.is_some(), "serviceAccountToken", "serviceaccounts"),
            (source.cluster_trust_bundle.is_some(), "clusterTrustBundle", "clustertrustbundles"),
            (source.pod_certificate.is_some(), "podCertificate", "podcertificates"),
        ];
        for (is_there, field, what) in of_source {
            note(is_there, &format!("projected.sources[{index}].{field}"), what);
        }
    }
    found
}
