//! Rules for volumes and their mounts.

use std::collections::BTreeSet;

use base_core::names;
use model::Amount;
use model::containers::ContainerRef;
use model::k8s::{HostPathVolumeSource, PodSpec, Volume, VolumeMount};

use super::fields::check_resource_field;
use super::{Findings, volume_sources};

pub(super) fn check_volumes(spec: &PodSpec, found: &mut Findings<'_>) {
    let mut seen = BTreeSet::new();
    for (index, volume) in spec.volumes.iter().flatten().enumerate() {
        let path = format!("spec.volumes[{index}]");
        match volume.name.as_str() {
            "" => found.required(format!("{path}.name"), ""),
            name => {
                if let Some(problem) = names::label_problem(name) {
                    found.invalid(format!("{path}.name"), name, problem);
                }
                if !seen.insert(name) {
                    found.duplicate(format!("{path}.name"), name);
                }
            }
        }
        let mut sources = volume_sources(volume).into_iter();
        if sources.next().is_none() {
            found.required(path.as_str(), "must specify a volume type");
        }
        for another in sources {
            found.forbidden(format!("{path}.{another}"), "may not specify more than 1 volume type");
        }
        check_source(&path, volume, found);
    }
}

const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];

fn check_source(path: &str, volume: &Volume, found: &mut Findings<'_>) {
    if let Some(HostPathVolumeSource { path: host_path, type_ }) = &volume.host_path {
        let path = format!("{path}.hostPath");
        if host_path.is_empty() {
            found.required(format!("{path}.path"), "");
        } else if let Some(problem) = names::back_step_problem(host_path) {
            found.invalid(format!("{path}.path"), host_path.as_str(), problem);
        }
        found.one_of(format!("{path}.type"), type_.as_deref(), &HOST_PATH_TYPES);
    }
    if let Some(limit) = volume.empty_dir.as_ref().and_then(|e| e.size_limit.as_ref())
        && !Amount::of(limit).is_ok_and(|amount| amount >= Amount::ZERO)
    {
        let detail = "SizeLimit field must be a valid resource quantity";
        found.invalid(format!("{path}.emptyDir.sizeLimit"), limit.0.as_str(), detail);
    }
    if let Some(nfs) = &volume.nfs {
        if nfs.server.is_empty() {
            found.required(format!("{path}.nfs.server"), "");
        }
        if nfs.path.is_empty() {
            found.required(format!("{path}.nfs.path"), "");
        } else if !nfs.path.starts_with('/') {
            found.invalid(format!("{path}.nfs.path"), nfs.path.as_str(), "must be an absolute path");
        }
    }
    if let Some(image) = &volume.image {
        if image.reference.as_deref().unwrap_or_default().is_empty() {
            found.required(format!("{path}.image.reference"), "");
        }
        let policies = ["Always", "IfNotPresent", "Never"];
        found.one_of(format!("{path}.image.pullPolicy"), image.pull_policy.as_deref(), &policies);
    }
    check_written_files(path, volume, found);
}

/// Volumes that the kubelet writes files into.
fn check_written_files(path: &str, volume: &Volume, found: &mut Findings<'_>) {
    if let Some(downward) = &volume.downward_api {
        check_mode(&format!("{path}.downwardAPI.defaultMode"), downward.default_mode, found);
        for (index, item) in downward.items.iter().flatten().enumerate() {
            check_downward_item(&format!("{path}.downwardAPI.items[{index}]"), item, found);
        }
    }
    if let Some(projected) = &volume.projected {
        check_mode(&format!("{path}.projected.defaultMode"), projected.default_mode, found);
        for (index, source) in projected.sources.iter().flatten().enumerate() {
            let path = format!("{path}.projected.sources[{index}]");
            let given = [
                source.secret.is_some(),
                source.config_map.is_some(),
                source.downward_api.is_some(),
                source.service_account_token.is_some(),
                source.cluster_trust_bundle.is_some(),
                source.pod_certificate.is_some(),
            ];
            match given.iter().filter(|is_given| **is_given).count() {
                0 => found.required(path.as_str(), "must specify a source"),
                1 => {}
                _ => found.forbidden(path.as_str(), "may not specify more than 1 volume type"),
            }
            let items = source.downward_api.iter().filter_map(|d| d.items.as_ref()).flatten();
            for (at, item) in items.enumerate() {
                check_downward_item(&format!("{path}.downwardAPI.items[{at}]"), item, found);
            }
        }
    }
}

fn check_mode(path: &str, mode: Option<i32>, found: &mut Findings<'_>) {
    if let Some(mode) = mode.filter(|mode| !(0..=0o777).contains(mode)) {
        found.invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

fn check_downward_item(path: &str, item: &model::k8s::DownwardAPIVolumeFile, found: &mut Findings<'_>) {
    if item.path.is_empty() {
        found.required(format!("{path}.path"), "");
    } else if let Some(problem) = names::inner_path_problem(&item.path) {
        found.invalid(format!("{path}.path"), item.path.as_str(), problem);
    } else if item.path.starts_with("..") {
        found.invalid(format!("{path}.path"), item.path.as_str(), "must not start with '..'");
    }
    match (&item.field_ref, &item.resource_field_ref) {
        (None, None) => found.required(path, "one of fieldRef and resourceFieldRef is required"),
        (Some(_), Some(_)) => {
            found.invalid(
                path,
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            );
        }
        (Some(field), None) => {
            let is_one_of_many = field.field_path.ends_with("']")
                && ["metadata.labels['", "metadata.annotations['"]
                    .iter()
                    .any(|p| field.field_path.starts_with(p));
            if !is_one_of_many {
                let field_path = Some(field.field_path.as_str());
                found.one_of(format!("{path}.fieldRef.fieldPath"), field_path, &FILE_FIELDS);
            }
        }
        (None, Some(resource)) => {
            let path = format!("{path}.resourceFieldRef");
            if resource.container_name.as_deref().unwrap_or_default().is_empty() {
                found.required(format!("{path}.containerName"), "");
            }
            check_resource_field(&path, &resource.resource, resource.divisor.as_ref(), found);
        }
    }
    check_mode(&format!("{path}.mode"), item.mode, found);
}

pub(super) fn check_mounts(path: &str, container: &ContainerRef<'_>, found: &mut Findings<'_>) {
    let mut mount_paths = BTreeSet::new();
    for (index, mount) in container.volume_mounts().iter().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        if mount.name.is_empty() {
            found.required(format!("{path}.name"), "");
        } else if !found.volumes.contains_key(mount.name.as_str()) {
            found.not_found(format!("{path}.name"), &mount.name);
        }
        if mount.mount_path.is_empty() {
            found.required(format!("{path}.mountPath"), "");
        } else if !mount_paths.insert(mount.mount_path.as_str()) {
            found.invalid(format!("{path}.mountPath"), mount.mount_path.as_str(), "must be unique");
        }
        check_sub_path(&path, mount, found);
        check_propagation(&path, mount, container, found);
        check_recursion(&path, mount, found);
    }
    let devices = container.full().and_then(|c| c.volume_devices.as_deref()).unwrap_or_default();
    for index in 0..devices.len() {
        let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
        found.forbidden(format!("{path}.volumeDevices[{index}]"), detail);
    }
}

fn check_sub_path(path: &str, mount: &VolumeMount, found: &mut Findings<'_>) {
    let (plain, expr) = (&mount.sub_path, &mount.sub_path_expr);
    for (field, sub_path) in [("subPath", plain), ("subPathExpr", expr)] {
        let sub_path = sub_path.as_deref().unwrap_or_default();
        if let Some(problem) = names::inner_path_problem(sub_path) {
            found.invalid(format!("{path}.{field}"), sub_path, problem);
        }
    }
    let both = [plain, expr].iter().all(|field| field.as_deref().is_some_and(|text| !text.is_empty()));
    if both {
        let value = expr.as_deref().unwrap_or_default();
        found.invalid(format!("{path}.subPathExpr"), value, "subPathExpr and subPath are mutually exclusive");
    }
}

fn check_propagation(
    path: &str,
    mount: &VolumeMount,
    container: &ContainerRef<'_>,
    found: &mut Findings<'_>,
) {
    let path = format!("{path}.mountPropagation");
    let mode = mount.mount_propagation.as_deref();
    found.one_of(path.as_str(), mode, &["Bidirectional", "HostToContainer", "None"]);
    let is_privileged = container.security_context().and_then(|c| c.privileged).unwrap_or(false);
    if mode == Some("Bidirectional") && !is_privileged {
        found.forbidden(path, "Bidirectional mount propagation is available only to privileged containers");
    }
}

fn check_recursion(path: &str, mount: &VolumeMount, found: &mut Findings<'_>) {
    let mode = mount.recursive_read_only.as_deref();
    let path = format!("{path}.recursiveReadOnly");
    found.one_of(path.as_str(), mode, &["Disabled", "Enabled", "IfPossible"]);
    if !matches!(mode, Some("Enabled" | "IfPossible")) {
        return;
    }
    if mount.read_only != Some(true) {
        found.forbidden(path.as_str(), "may only be specified when readOnly is true");
    }
    if !matches!(mount.mount_propagation.as_deref(), None | Some("None")) {
        let detail = "may only be specified when mountPropagation is None or not specified";
        found.forbidden(path, detail);
    }
}
