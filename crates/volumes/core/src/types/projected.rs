//! `projected`: several sources in one directory, in memory.

use std::collections::BTreeSet;

use base_core::service_account_token::TokenRequirement;
use model::containers::{all_containers, spec_of};
use model::k8s::{
    Pod, PodCertificateProjection, ProjectedVolumeSource, ServiceAccountTokenProjection, Volume,
    VolumeProjection,
};
use model::payload::{Payload, PayloadFile};

use super::empty_dir::in_memory;
use super::{VolumePlan, VolumeType, config_map, downward_api, payload_plan, secret};
use crate::bundle::{BundleRequirement, bundle_text};
use crate::objects::RequiredObjects;
use crate::payload::{DEFAULT_MODE, FileSet, PayloadError, PayloadInputs, Pick, mode_or};
use crate::planned_pod::PlannedPod;
use crate::pod_certificate::{CertificateId, CredentialError};
use base_core::object_name::ObjectName;

/// A token that only one user (or the group of the pod, by the ownership set later) may read.
const PRIVATE_MODE: u32 = 0o600;

pub(super) struct Projected;

impl VolumeType for Projected {
    fn plugin_dir(&self) -> &'static str {
        "kubernetes.io~projected"
    }

    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/projected"
    }

    fn plan(&self, pod: PlannedPod<'_>, volume: &Volume) -> Option<Result<VolumePlan, String>> {
        volume.projected.as_ref()?;
        Some(Ok(payload_plan(&Projected, volume, in_memory(pod))))
    }

    fn has_payload(&self, volume: &Volume) -> bool {
        volume.projected.is_some()
    }

    fn add_required_objects(&self, volume: &Volume, required: &mut RequiredObjects) {
        let sources = volume.projected.as_ref().and_then(|projected| projected.sources.as_deref());
        for (index, source) in sources.unwrap_or_default().iter().enumerate() {
            add_objects_of(source, required);
            if source.pod_certificate.is_some() {
                required.certificates.insert(CertificateId { volume: volume.name.clone(), index });
            }
        }
    }

    fn payload(&self, volume: &Volume, inputs: PayloadInputs<'_>) -> Option<Result<Payload, PayloadError>> {
        Some(projected_files(&volume.name, volume.projected.as_ref()?, inputs))
    }
}

fn add_objects_of(source: &VolumeProjection, required: &mut RequiredObjects) {
    let config_map = source.config_map.as_ref().map(|source| ObjectName::ConfigMap(source.name.clone()));
    let secret = source.secret.as_ref().map(|source| ObjectName::Secret(source.name.clone()));
    required.names.extend(config_map.into_iter().chain(secret));
    let token = source.service_account_token.as_ref();
    required.tokens.extend(
        token.map(|token| TokenRequirement::new(token.audience.as_deref(), token.expiration_seconds)),
    );
    required.bundles.extend(source.cluster_trust_bundle.as_ref().and_then(BundleRequirement::of));
}

fn projected_files(
    volume: &str,
    source: &ProjectedVolumeSource,
    inputs: PayloadInputs<'_>,
) -> Result<Payload, PayloadError> {
    let default_mode = source.default_mode;
    let mut files = FileSet::default();
    for (index, source) in source.sources.as_deref().unwrap_or_default().iter().enumerate() {
        let more = match &source.pod_certificate {
            Some(certificate) => {
                let id = CertificateId { volume: volume.to_owned(), index };
                certificate_files(&id, certificate, default_mode, inputs)?
            }
            None => projection_files(source, default_mode, inputs)?,
        };
        files.extend(more)?;
    }
    Ok(files.files)
}

fn projection_files(
    source: &VolumeProjection,
    default_mode: Option<i32>,
    inputs: PayloadInputs<'_>,
) -> Result<Payload, PayloadError> {
    if let Some(source) = &source.config_map {
        let pick = Pick::new(source.items.as_deref(), source.optional, default_mode);
        return config_map::files(&source.name, &pick, inputs);
    }
    if let Some(source) = &source.secret {
        let pick = Pick::new(source.items.as_deref(), source.optional, default_mode);
        return secret::files(&source.name, &pick, inputs);
    }
    if let Some(source) = &source.downward_api {
        let items = source.items.as_deref().unwrap_or_default();
        return downward_api::files(items, mode_or(default_mode, DEFAULT_MODE), inputs);
    }
    if let Some(token) = &source.service_account_token {
        return token_file(token, default_mode, inputs);
    }
    if let Some(projection) = &source.cluster_trust_bundle {
        let content = bundle_text(projection, inputs.objects.bundles.as_ref())?.into_bytes();
        let (mode, owner) = private_mode(inputs.pod, default_mode);
        return Ok(Payload::from([(projection.path.clone(), PayloadFile { content, mode, owner })]));
    }
    Err(PayloadError::NotOffered("projected (this kind of)"))
}

/// A token is readable by the pod's user alone if there is one user, or by the pod's group.
fn token_file(
    token: &ServiceAccountTokenProjection,
    default_mode: Option<i32>,
    inputs: PayloadInputs<'_>,
) -> Result<Payload, PayloadError> {
    let wanted = TokenRequirement::new(token.audience.as_deref(), token.expiration_seconds);
    let Some(text) = inputs.objects.tokens.get(&wanted) else {
        return Err(PayloadError::NoToken { audience: wanted.audience });
    };
    let (mode, owner) = private_mode(inputs.pod, default_mode);
    let file = PayloadFile { content: text.clone().into_bytes(), mode, owner };
    Ok(Payload::from([(token.path.clone(), file)]))
}

/// The key and the certificates, in one file or in one each.
fn certificate_files(
    id: &CertificateId,
    projection: &PodCertificateProjection,
    default_mode: Option<i32>,
    inputs: PayloadInputs<'_>,
) -> Result<Payload, PayloadError> {
    let known = inputs.objects.certificates.as_ref().ok_or(CredentialError::NotAvailable)?;
    let credential = known.get(id).unwrap_or(&Err(CredentialError::NotIssued)).clone()?;
    let (mode, owner) = private_mode(inputs.pod, default_mode);
    let (key, chain) = (credential.key.pem(), &*credential.chain);
    let files = [
        (&projection.credential_bundle_path, format!("{key}{chain}")),
        (&projection.key_path, key.to_owned()),
        (&projection.certificate_chain_path, chain.to_owned()),
    ];
    let named = files.into_iter().filter_map(|(path, content)| {
        let path = path.clone().filter(|path| !path.is_empty())?;
        Some((path, PayloadFile { content: content.into_bytes(), mode, owner }))
    });
    Ok(named.collect())
}

/// The mode and owner of a file for one user, or for the group of the pod.
fn private_mode(pod: &Pod, default_mode: Option<i32>) -> (u32, Option<u32>) {
    let owner = common_user(pod);
    let has_group = spec_of(pod).security_context.as_ref().is_some_and(|c| c.fs_group.is_some());
    let mode = if owner.is_some() || has_group { PRIVATE_MODE } else { mode_or(default_mode, DEFAULT_MODE) };
    (mode, owner)
}

/// The user of every container of the pod; `None` if they differ or the image decides.
fn common_user(pod: &Pod) -> Option<u32> {
    let of_pod = spec_of(pod).security_context.as_ref().and_then(|context| context.run_as_user);
    let users: BTreeSet<Option<i64>> = all_containers(pod)
        .map(|c| c.security_context().and_then(|context| context.run_as_user).or(of_pod))
        .collect();
    match users.into_iter().collect::<Vec<_>>().as_slice() {
        [Some(user)] => u32::try_from(*user).ok(),
        _ => None,
    }
}
