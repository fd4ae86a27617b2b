//! The validation of the API server, for pods that never passed an API server.
//!
//! Owns the errors, with the API server's messages, all at once; never changes the pod. Expects defaults to be applied.
//! Rules about scheduling are omitted: a static pod is not scheduled.

mod container;
mod fields;
mod handlers;
mod pod;
mod security;
mod volumes;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use config::Features;
use model::ContainerKind;
use model::containers::{ContainerRef, spec_of};
use model::k8s::{Pod, Volume};

/// One field of a pod and what is wrong with it. Its text is the API server's:
/// `spec.containers[0].image: Required value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// `spec.containers[0].image`.
    pub path: String,
    pub problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    Required { detail: String },
    Invalid { value: BadValue, detail: String },
    Unsupported { value: String, supported: Vec<&'static str> },
    Duplicate { value: String },
    Forbidden { detail: String },
    NotFound { value: String },
    TooMany { found: usize, at_most: usize },
}

/// A value as it is shown: text in quotes, numbers without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadValue {
    Text(String),
    Number(i64),
    Flag(bool),
}

impl From<&str> for BadValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<i64> for BadValue {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<i32> for BadValue {
    fn from(number: i32) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for BadValue {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

impl fmt::Display for BadValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Flag(flag) => write!(f, "{flag}"),
        }
    }
}

impl FieldError {
    /// A field that may not be set here.
    #[must_use]
    pub fn forbidden(path: String, detail: impl Into<String>) -> Self {
        Self { path, problem: Problem::Forbidden { detail: detail.into() } }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        match &self.problem {
            Problem::Required { detail } if detail.is_empty() => f.write_str("Required value"),
            Problem::Required { detail } => write!(f, "Required value: {detail}"),
            Problem::Invalid { value, detail } => write!(f, "Invalid value: {value}: {detail}"),
            Problem::Unsupported { value, supported } => {
                let supported: Vec<_> = supported.iter().map(|value| format!("{value:?}")).collect();
                write!(f, "Unsupported value: {value:?}: supported values: {}", supported.join(", "))
            }
            Problem::Duplicate { value } => write!(f, "Duplicate value: {value:?}"),
            Problem::Forbidden { detail } => write!(f, "Forbidden: {detail}"),
            Problem::NotFound { value } => write!(f, "Not found: {value:?}"),
            Problem::TooMany { found, at_most } => {
                write!(f, "Too many: {found}: must have at most {at_most} items")
            }
        }
    }
}

impl std::error::Error for FieldError {}

/// Everything that is wrong with a pod, in the order of its fields; nothing if it may run.
#[must_use]
pub fn validate_pod(pod: &Pod, features: Features) -> Vec<FieldError> {
    let volumes = spec_of(pod).volumes.iter().flatten().rev();
    let volumes = volumes.map(|volume| (volume.name.as_str(), volume)).collect();
    let mut findings = Findings { errors: Vec::new(), features, volumes };
    pod::check_metadata(pod, &mut findings);
    pod::check_spec(pod, &mut findings);
    findings.errors
}

/// Collects errors. Each method is one kind of problem.
#[derive(Debug)]
struct Findings<'p> {
    errors: Vec<FieldError>,
    features: Features,
    /// The volumes of the pod by name, which each mount is compared with.
    volumes: BTreeMap<&'p str, &'p Volume>,
}

impl Findings<'_> {
    fn add(&mut self, path: impl Into<String>, problem: Problem) {
        self.errors.push(FieldError { path: path.into(), problem });
    }

    fn required(&mut self, path: impl Into<String>, detail: &str) {
        self.add(path, Problem::Required { detail: detail.to_owned() });
    }

    fn invalid(&mut self, path: impl Into<String>, value: impl Into<BadValue>, detail: impl Into<String>) {
        self.add(path, Problem::Invalid { value: value.into(), detail: detail.into() });
    }

    fn duplicate(&mut self, path: impl Into<String>, value: &str) {
        self.add(path, Problem::Duplicate { value: value.to_owned() });
    }

    fn forbidden(&mut self, path: impl Into<String>, detail: &str) {
        self.add(path, Problem::Forbidden { detail: detail.to_owned() });
    }

    fn not_found(&mut self, path: impl Into<String>, value: &str) {
        self.add(path, Problem::NotFound { value: value.to_owned() });
    }

    fn too_many(&mut self, path: impl Into<String>, found: usize, at_most: usize) {
        if found > at_most {
            self.add(path, Problem::TooMany { found, at_most });
        }
    }

    /// One of the supported values, if it is set.
    fn one_of(&mut self, path: impl Into<String>, value: Option<&str>, supported: &[&'static str]) {
        if let Some(value) = value.filter(|value| !supported.contains(value)) {
            let supported = supported.to_vec();
            self.add(path, Problem::Unsupported { value: value.to_owned(), supported });
        }
    }

    fn in_range(&mut self, path: impl Into<String>, number: impl Into<i64>, range: RangeInclusive<i64>) {
        let number = number.into();
        if !range.contains(&number) {
            let (low, high) = range.into_inner();
            self.invalid(path, number, format!("must be between {low} and {high}, inclusive"));
        }
    }

    fn not_negative(&mut self, path: impl Into<String>, number: Option<i64>) {
        if let Some(number) = number.filter(|number| *number < 0) {
            self.invalid(path, number, "must be greater than or equal to 0");
        }
    }
}

/// `spec.initContainers[2]`: the field path of a container.
#[must_use]
pub fn container_path(container: &ContainerRef<'_>) -> String {
    let list = match container.kind {
        ContainerKind::Init | ContainerKind::Sidecar => "initContainers",
        ContainerKind::Regular => "containers",
        ContainerKind::Ephemeral => "ephemeralContainers",
    };
    format!("spec.{list}[{}]", container.index)
}

/// The source fields of a volume; a valid volume has exactly one.
#[must_use]
pub fn volume_sources(volume: &Volume) -> Vec<&'static str> {
    let all = [
        ("awsElasticBlockStore", volume.aws_elastic_block_store.is_some()),
        ("azureDisk", volume.azure_disk.is_some()),
        ("azureFile", volume.azure_file.is_some()),
        ("cephfs", volume.cephfs.is_some()),
        ("cinder", volume.cinder.is_some()),
        ("configMap", volume.config_map.is_some()),
        ("csi", volume.csi.is_some()),
        ("downwardAPI", volume.downward_api.is_some()),
        ("emptyDir", volume.empty_dir.is_some()),
        ("ephemeral", volume.ephemeral.is_some()),
        ("fc", volume.fc.is_some()),
        ("flexVolume", volume.flex_volume.is_some()),
        ("flocker", volume.flocker.is_some()),
        ("gcePersistentDisk", volume.gce_persistent_disk.is_some()),
        ("gitRepo", volume.git_repo.is_some()),
        ("glusterfs", volume.glusterfs.is_some()),
        ("hostPath", volume.host_path.is_some()),
        ("image", volume.image.is_some()),
        ("iscsi", volume.iscsi.is_some()),
        ("nfs", volume.nfs.is_some()),
        ("persistentVolumeClaim", volume.persistent_volume_claim.is_some()),
        ("photonPersistentDisk", volume.photon_persistent_disk.is_some()),
        ("portworxVolume", volume.portworx_volume.is_some()),
        ("projected", volume.projected.is_some()),
        ("quobyte", volume.quobyte.is_some()),
        ("rbd", volume.rbd.is_some()),
        ("scaleIO", volume.scale_io.is_some()),
        ("secret", volume.secret.is_some()),
        ("storageos", volume.storageos.is_some()),
        ("vsphereVolume", volume.vsphere_volume.is_some()),
    ];
    all.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect()
}
