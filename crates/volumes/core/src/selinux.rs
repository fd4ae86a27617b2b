//! With which SELinux label a volume is mounted (`-o context=`), so that the runtime need not give each of its files the label
//! (KEP-[1710](https://kep.k8s.io/1710), docs/decisions/0033-selinux.md).
//!
//! Never: which label a volume has that is mounted already; that is in `csi::staging`, for all pods that use it.

use std::collections::BTreeSet;

use model::containers::spec_of;
use model::k8s::{Pod, SELinuxOptions};

use super::index::VolumeIndex;

/// The access mode of a volume that one pod uses.
pub const READ_WRITE_ONCE_POD: &str = "ReadWriteOncePod";

/// What the node allows.
#[derive(Clone, Copy, Debug)]
pub struct SelinuxNode<'a> {
    /// The label of files of containers, `system_u:object_r:container_file_t:s0`; `None` without SELinux.
    pub file_label: Option<&'a str>,
    /// The gate `SELinuxMount`: volumes of all access modes are mounted with a label.
    pub all_access_modes: bool,
}

/// A volume of a pod.
#[derive(Clone, Copy, Debug)]
pub struct LabelledVolume<'a> {
    /// Its name in the pod's spec.
    pub name: &'a str,
    /// Its driver can mount it with a label.
    pub is_supported: bool,
    /// Those of its PersistentVolume; `None` if it has none.
    pub access_modes: Option<&'a [String]>,
}

/// The label of a volume for one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeLabel {
    /// With this it is mounted; `None`: the runtime gives the files their label.
    pub mount: Option<String>,
    /// With this it would be mounted if its access modes were enough. Pods that want different labels are counted.
    pub wanted: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Labelling {
    /// Labels do not matter.
    None,
    Label(VolumeLabel),
    /// The containers of the pod want different labels for the volume.
    Several(Vec<String>),
}

/// The label of the volume for the pod.
#[must_use]
pub fn compute_label(
    node: SelinuxNode<'_>,
    pod: &Pod,
    index: &VolumeIndex,
    volume: LabelledVolume<'_>,
) -> Labelling {
    let Some(file_label) = node.file_label else { return Labelling::None };
    let mut labels = labels_of(pod, index, volume.name, file_label);
    if labels.len() > 1 {
        return Labelling::Several(labels.into_iter().map(|(text, _)| text).collect());
    }
    if !volume.is_supported {
        return Labelling::None;
    }
    let context = spec_of(pod).security_context.as_ref();
    let is_recursive =
        context.and_then(|context| context.se_linux_change_policy.as_deref()) == Some("Recursive");
    let label = labels.pop_first().filter(|(_, is_complete)| *is_complete && !is_recursive);
    let wanted = label.map(|(text, _)| text);
    let mount = wanted.clone().filter(|_| mounts_with_label(node, volume.access_modes));
    Labelling::Label(VolumeLabel { mount, wanted })
}

/// Whether a volume with these access modes is mounted with a label. If so, pods that want different labels are refused.
#[must_use]
pub fn mounts_with_label(node: SelinuxNode<'_>, access_modes: Option<&[String]>) -> bool {
    match access_modes {
        None => false,
        Some(_) if node.all_access_modes => true,
        Some(modes) => matches!(modes, [mode] if mode == READ_WRITE_ONCE_POD),
    }
}

/// The labels that the pod's containers want for the volume, and whether the runtime cannot choose anything of them.
fn labels_of(pod: &Pod, index: &VolumeIndex, volume: &str, file_label: &str) -> BTreeSet<(String, bool)> {
    let of_pod = spec_of(pod).security_context.as_ref().and_then(|context| context.se_linux_options.as_ref());
    let options = index.users(pod, volume).filter_map(|container| {
        let own = container.security_context().and_then(|context| context.se_linux_options.as_ref());
        own.or(of_pod)
    });
    options.map(|options| label(options, file_label)).collect()
}

/// The label of files for processes with these options: of the options only the user and the level are also those of files.
fn label(options: &SELinuxOptions, file_label: &str) -> (String, bool) {
    let given = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
    let SELinuxOptions { user, role, type_, level } = options;
    if [user, role, type_, level].into_iter().all(|value| given(value).is_none()) {
        return (String::new(), false);
    }
    let mut parts = file_label.splitn(4, ':').map(str::to_owned);
    let mut part = |own: Option<String>| {
        let of_files = parts.next().unwrap_or_default();
        own.unwrap_or(of_files)
    };
    let level = given(level);
    // Without a level the runtime chooses one, which is not known here.
    let is_complete = level.is_some();
    let text = [part(given(user)), part(None), part(None), part(level)].join(":");
    (text, is_complete)
}

/// The access mode of a volume in metrics: of several, the one that allows most.
#[must_use]
pub fn access_mode_name(access_modes: Option<&[String]>) -> &'static str {
    let Some(modes) = access_modes else { return "inline" };
    let names = [
        ("ReadWriteMany", "RWX"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteOnce", "RWO"),
        (READ_WRITE_ONCE_POD, "RWOP"),
    ];
    let found = names.into_iter().find(|(mode, _)| modes.iter().any(|known| known == mode));
    found.map_or("", |(_, name)| name)
}

#[cfg(test)]
mod tests;
