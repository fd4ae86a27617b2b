//! `configMap`: the keys of a ConfigMap as files.

use model::k8s::{self, Volume};
use model::payload::Payload;

use super::empty_dir::Medium;
use super::{VolumePlan, VolumeType, payload_plan};
use crate::objects::RequiredObjects;
use crate::payload::{PayloadError, PayloadInputs, Pick};
use crate::planned_pod::PlannedPod;
use base_core::object_name::ObjectName;

pub(super) struct ConfigMap;

impl VolumeType for ConfigMap {
    fn plugin_dir(&self) -> &'static str {
        "kubernetes.io~configmap"
    }

    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/configmap"
    }

    fn plan(&self, _pod: PlannedPod<'_>, volume: &Volume) -> Option<Result<VolumePlan, String>> {
        volume.config_map.as_ref()?;
        Some(Ok(payload_plan(&ConfigMap, volume, Medium::Disk)))
    }

    fn has_payload(&self, volume: &Volume) -> bool {
        volume.config_map.is_some()
    }

    fn add_required_objects(&self, volume: &Volume, required: &mut RequiredObjects) {
        required
            .names
            .extend(volume.config_map.as_ref().map(|source| ObjectName::ConfigMap(source.name.clone())));
    }

    fn payload(&self, volume: &Volume, inputs: PayloadInputs<'_>) -> Option<Result<Payload, PayloadError>> {
        let source = volume.config_map.as_ref()?;
        let pick = Pick::new(source.items.as_deref(), source.optional, source.default_mode);
        Some(files(&source.name, &pick, inputs))
    }
}

pub(super) fn files(name: &str, pick: &Pick<'_>, inputs: PayloadInputs<'_>) -> Result<Payload, PayloadError> {
    let map: Option<&k8s::ConfigMap> = inputs.objects.config_maps.get(name).map(|map| &**map);
    let Some(map) = map else {
        return if pick.is_optional {
            Ok(Payload::new())
        } else {
            Err(PayloadError::NoConfigMap { name: name.to_owned() })
        };
    };
    let text = map.data.iter().flatten().map(|(key, value)| (&**key, value.as_bytes()));
    let binary = map.binary_data.iter().flatten().map(|(key, value)| (&**key, &*value.0));
    pick.files(&text.chain(binary).collect(), |key| PayloadError::NoConfigMapKey { key })
}
