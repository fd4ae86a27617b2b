//! `secret`: the keys of a Secret as files in memory.

use model::k8s::{self, Volume};
use model::payload::Payload;

use super::empty_dir::in_memory;
use super::{VolumePlan, VolumeType, payload_plan};
use crate::objects::RequiredObjects;
use crate::payload::{PayloadError, PayloadInputs, Pick};
use crate::planned_pod::PlannedPod;
use base_core::object_name::ObjectName;

pub(super) struct Secret;

impl VolumeType for Secret {
    fn plugin_dir(&self) -> &'static str {
        "kubernetes.io~secret"
    }

    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/secret"
    }

    fn plan(&self, pod: PlannedPod<'_>, volume: &Volume) -> Option<Result<VolumePlan, String>> {
        volume.secret.as_ref()?;
        Some(Ok(payload_plan(&Secret, volume, in_memory(pod))))
    }

    fn has_payload(&self, volume: &Volume) -> bool {
        volume.secret.is_some()
    }

    fn add_required_objects(&self, volume: &Volume, required: &mut RequiredObjects) {
        let name = volume.secret.as_ref().and_then(|source| source.secret_name.clone());
        required.names.extend(name.map(ObjectName::Secret));
    }

    fn payload(&self, volume: &Volume, inputs: PayloadInputs<'_>) -> Option<Result<Payload, PayloadError>> {
        let source = volume.secret.as_ref()?;
        let pick = Pick::new(source.items.as_deref(), source.optional, source.default_mode);
        Some(files(source.secret_name.as_deref().unwrap_or_default(), &pick, inputs))
    }
}

pub(super) fn files(name: &str, pick: &Pick<'_>, inputs: PayloadInputs<'_>) -> Result<Payload, PayloadError> {
    let secret: Option<&k8s::Secret> = inputs.objects.secrets.get(name).map(|secret| &**secret);
    let Some(secret) = secret else {
        return if pick.is_optional {
            Ok(Payload::new())
        } else {
            Err(PayloadError::NoSecret { name: name.to_owned() })
        };
    };
    let data = secret.data.iter().flatten().map(|(key, value)| (&**key, &*value.0));
    pick.files(&data.collect(), |key| PayloadError::NoSecretKey { key })
}
