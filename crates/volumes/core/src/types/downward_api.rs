//! `downwardAPI`: fields and resources of the pod as files in memory.

use base_core::downward::{field_value, resource_value};
use model::Amount;
use model::k8s::{DownwardAPIVolumeFile, Volume};
use model::payload::Payload;

use super::empty_dir::in_memory;
use super::{VolumePlan, VolumeType, payload_plan};
use crate::payload::{DEFAULT_MODE, FileSet, PayloadError, PayloadInputs, mode_or};
use crate::planned_pod::PlannedPod;

pub(super) struct DownwardApi;

impl VolumeType for DownwardApi {
    fn plugin_dir(&self) -> &'static str {
        "kubernetes.io~downward-api"
    }

    fn plugin_name(&self) -> &'static str {
        "kubernetes.io/downward-api"
    }

    fn plan(&self, pod: PlannedPod<'_>, volume: &Volume) -> Option<Result<VolumePlan, String>> {
        volume.downward_api.as_ref()?;
        Some(Ok(payload_plan(&DownwardApi, volume, in_memory(pod))))
    }

    fn has_payload(&self, volume: &Volume) -> bool {
        volume.downward_api.is_some()
    }

    fn payload(&self, volume: &Volume, inputs: PayloadInputs<'_>) -> Option<Result<Payload, PayloadError>> {
        let source = volume.downward_api.as_ref()?;
        let items = source.items.as_deref().unwrap_or_default();
        Some(files(items, mode_or(source.default_mode, DEFAULT_MODE), inputs))
    }
}

pub(super) fn files(
    items: &[DownwardAPIVolumeFile],
    default_mode: u32,
    inputs: PayloadInputs<'_>,
) -> Result<Payload, PayloadError> {
    let mut files = FileSet::default();
    for item in items {
        let text = if let Some(field) = &item.field_ref {
            field_value(inputs.pod, &field.field_path, inputs.facts)?
        } else if let Some(resource) = &item.resource_field_ref {
            let container = resource.container_name.as_deref().unwrap_or_default();
            let divisor = resource.divisor.as_ref().and_then(|q| Amount::of(q).ok());
            let divisor = divisor.filter(|amount| *amount > Amount::ZERO).unwrap_or(Amount::from_units(1));
            resource_value(inputs.pod, container, &resource.resource, divisor, inputs.facts)?
        } else {
            return Err(PayloadError::EmptyItem { path: item.path.clone() });
        };
        files.insert(&item.path, text.as_bytes(), mode_or(item.mode, default_mode))?;
    }
    Ok(files.files)
}
