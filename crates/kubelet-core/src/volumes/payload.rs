//! The files of ConfigMap, Secret, downward API and projected volumes (docs/behaviour/volumes.md).

use std::collections::{BTreeMap, BTreeSet};

use model::Amount;
use model::containers::{all_containers, spec_of};
use model::k8s::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, Pod, ProjectedVolumeSource, Secret,
    ServiceAccountTokenProjection, Volume, VolumeProjection,
};
use model::payload::{Payload, PayloadFile};

use super::bundle::{BundleError, bundle_text};
use super::objects::{TokenRequirement, VolumeObjects};
use crate::downward::{DownwardError, DownwardFacts, field_value, resource_value};

const DEFAULT_MODE: u32 = 0o644;
/// A token is readable by one user only (or by the group of the pod, through the ownership set later).
const PRIVATE_MODE: u32 = 0o600;
const PERMISSIONS: u32 = 0o777;

/// Limit for all files of one volume together. An object has 1 MiB at most, but a pod may name the same key of it thousands of times.
const MAX_BYTES: usize = 32 << 20;
/// Limit for the number of files of one volume.
const MAX_FILES: usize = 1 << 16;

/// Why the files of a volume cannot be computed yet; the text goes into the event FailedMount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    #[error("configmap {name:?} not found")]
    NoConfigMap { name: String },
    #[error("secret {name:?} not found")]
    NoSecret { name: String },
    #[error("configmap references non-existent config key: {key}")]
    NoConfigMapKey { key: String },
    #[error("references non-existent secret key: {key}")]
    NoSecretKey { key: String },
    #[error("no token for audience {audience:?} could be had yet")]
    NoToken { audience: String },
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error("{0} volumes are not offered by this kubelet yet")]
    NotOffered(&'static str),
    #[error("the API gave data that is not base64")]
    NotBase64,
    #[error("invalid path {path:?}: {why}")]
    Path { path: String, why: &'static str },
    #[error("downward API item {path:?} names neither a field nor a resource")]
    EmptyItem { path: String },
    #[error("the files of the volume are larger than {MAX_BYTES} bytes together")]
    TooLarge,
    #[error("the volume has more than {MAX_FILES} files")]
    TooManyFiles,
    #[error(transparent)]
    Downward(#[from] DownwardError),
}

/// Collects the files of a volume within its limits.
#[derive(Debug, Default)]
struct Files {
    files: Payload,
    /// Of all files, including those replaced by a later one with the same path.
    bytes: usize,
}

impl Files {
    /// Checked before the content is copied.
    fn insert(&mut self, path: &str, content: &[u8], mode: u32) -> Result<(), PayloadError> {
        self.count(content.len())?;
        self.files.insert(path.to_owned(), PayloadFile { content: content.to_vec(), mode, owner: None });
        Ok(())
    }

    /// If two sources write the same file, the later one wins.
    fn extend(&mut self, more: Payload) -> Result<(), PayloadError> {
        for (path, file) in more {
            self.count(file.content.len())?;
            self.files.insert(path, file);
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), PayloadError> {
        self.bytes = self.bytes.saturating_add(bytes);
        match (self.bytes, self.files.len()) {
            (MAX_BYTES.., _) => Err(PayloadError::TooLarge),
            (_, MAX_FILES..) => Err(PayloadError::TooManyFiles),
            _ => Ok(()),
        }
    }
}

/// What the files are computed from.
#[derive(Clone, Copy, Debug)]
pub struct PayloadInputs<'a> {
    pub pod: &'a Pod,
    pub objects: &'a VolumeObjects,
    pub facts: &'a DownwardFacts<'a>,
}

/// The volume consists of files that change with API objects.
#[must_use]
pub const fn has_payload(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// All files of the volume; none for a volume of another type.
///
/// # Errors
/// An object or key that is not optional does not exist, a field has no value, or a path would leave the volume.
pub fn compute_payload(volume: &Volume, inputs: PayloadInputs<'_>) -> Result<Payload, PayloadError> {
    let payload = if let Some(source) = &volume.config_map {
        let pick = Pick::new(source.items.as_deref(), source.optional, source.default_mode);
        config_map_files(inputs.objects.config_maps.get(&source.name).map(|map| &**map), &source.name, &pick)?
    } else if let Some(source) = &volume.secret {
        let name = source.secret_name.as_deref().unwrap_or_default();
        let pick = Pick::new(source.items.as_deref(), source.optional, source.default_mode);
        secret_files(inputs.objects.secrets.get(name).map(|secret| &**secret), name, &pick)?
    } else if let Some(source) = &volume.downward_api {
        downward_files(
            source.items.as_deref().unwrap_or_default(),
            mode_or(source.default_mode, DEFAULT_MODE),
            inputs,
        )?
    } else if let Some(source) = &volume.projected {
        projected_files(source, inputs)?
    } else {
        Payload::new()
    };
    payload.keys().try_for_each(|path| check_path(path))?;
    Ok(payload)
}

/// Which keys of an object become which files.
struct Pick<'a> {
    items: &'a [KeyToPath],
    is_optional: bool,
    default_mode: u32,
}

impl<'a> Pick<'a> {
    fn new(items: Option<&'a [KeyToPath]>, optional: Option<bool>, default_mode: Option<i32>) -> Self {
        Self {
            items: items.unwrap_or_default(),
            is_optional: optional == Some(true),
            default_mode: mode_or(default_mode, DEFAULT_MODE),
        }
    }

    /// All keys under their own names, or the requested items under their paths.
    fn files(
        &self,
        data: &BTreeMap<&str, &[u8]>,
        missing: impl Fn(String) -> PayloadError,
    ) -> Result<Payload, PayloadError> {
        let mut files = Files::default();
        if self.items.is_empty() {
            data.iter().try_for_each(|(key, content)| files.insert(key, content, self.default_mode))?;
            return Ok(files.files);
        }
        for item in self.items {
            match data.get(&*item.key) {
                Some(content) => {
                    files.insert(&item.path, content, mode_or(item.mode, self.default_mode))?;
                }
                None if self.is_optional => {}
                None => return Err(missing(item.key.clone())),
            }
        }
        Ok(files.files)
    }
}

fn config_map_files(map: Option<&ConfigMap>, name: &str, pick: &Pick<'_>) -> Result<Payload, PayloadError> {
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

fn secret_files(secret: Option<&Secret>, name: &str, pick: &Pick<'_>) -> Result<Payload, PayloadError> {
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

fn downward_files(
    items: &[DownwardAPIVolumeFile],
    default_mode: u32,
    inputs: PayloadInputs<'_>,
) -> Result<Payload, PayloadError> {
    let mut files = Files::default();
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

fn projected_files(
    source: &ProjectedVolumeSource,
    inputs: PayloadInputs<'_>,
) -> Result<Payload, PayloadError> {
    let default_mode = source.default_mode;
    let mut files = Files::default();
    for source in source.sources.as_deref().unwrap_or_default() {
        files.extend(projection_files(source, default_mode, inputs)?)?;
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
        return config_map_files(
            inputs.objects.config_maps.get(&source.name).map(|map| &**map),
            &source.name,
            &pick,
        );
    }
    if let Some(source) = &source.secret {
        let pick = Pick::new(source.items.as_deref(), source.optional, default_mode);
        return secret_files(
            inputs.objects.secrets.get(&source.name).map(|secret| &**secret),
            &source.name,
            &pick,
        );
    }
    if let Some(source) = &source.downward_api {
        let items = source.items.as_deref().unwrap_or_default();
        return downward_files(items, mode_or(default_mode, DEFAULT_MODE), inputs);
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

/// A token is readable only by the pod's user, if all containers run as the same one, or by the pod's group.
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

/// Mode and owner of a file for a single user, or for the pod's group if it has one.
fn private_mode(pod: &Pod, default_mode: Option<i32>) -> (u32, Option<u32>) {
    let owner = common_user(pod);
    let has_group = spec_of(pod).security_context.as_ref().is_some_and(|c| c.fs_group.is_some());
    let mode = if owner.is_some() || has_group { PRIVATE_MODE } else { mode_or(default_mode, DEFAULT_MODE) };
    (mode, owner)
}

/// The user that every container of the pod runs as; `None` if they differ or the image decides.
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

fn mode_or(mode: Option<i32>, otherwise: u32) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok()).map_or(otherwise, |mode| mode & PERMISSIONS)
}

/// The API server has validated the paths of its pods; a static pod may have any path.
fn check_path(path: &str) -> Result<(), PayloadError> {
    const LONGEST: usize = 4096;
    const LONGEST_NAME: usize = 255;
    let parts = || path.split('/');
    let why = if path.is_empty() {
        "it is empty"
    } else if path.len() > LONGEST {
        "it is longer than 4096 bytes"
    } else if path.starts_with('/') {
        "it must be relative"
    } else if parts().any(|part| part == "..") {
        "it must not contain '..'"
    } else if path.starts_with("..") {
        "it must not begin with '..'"
    } else if parts().any(|part| part.len() > LONGEST_NAME) {
        "a name in it is longer than 255 bytes"
    } else if parts().any(|part| part.is_empty() || part == ".") {
        "a name in it is empty"
    } else if path.contains('\0') {
        "it contains a NUL"
    } else {
        return Ok(());
    };
    Err(PayloadError::Path { path: path.to_owned(), why })
}
