//! The files of a volume that shows API objects (docs/behaviour/volumes.md).

use std::collections::BTreeMap;

use base_core::downward::{DownwardError, DownwardFacts};
use model::k8s::{KeyToPath, Pod};
use model::payload::{Payload, PayloadFile};

use super::bundle::BundleError;
use super::objects::VolumeObjects;
use super::pod_certificate::CredentialError;

pub(super) const DEFAULT_MODE: u32 = 0o644;
const PERMISSIONS: u32 = 0o777;

/// All files of one volume together. An object has 1 MiB at most, but a pod may name the same key of it thousands of times.
const MAX_BYTES: usize = 32 << 20;
/// Files of one volume.
const MAX_FILES: usize = 1 << 16;

/// Why a volume has no files yet; the text goes into the event FailedMount.
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
    #[error(transparent)]
    Certificate(#[from] CredentialError),
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

/// The files of a volume while they are collected, within the bounds of a volume.
#[derive(Debug, Default)]
pub(super) struct FileSet {
    pub(super) files: Payload,
    /// Of all files, including those that a later file of the same path replaced.
    bytes: usize,
}

impl FileSet {
    /// Checked before the content is copied.
    pub(super) fn insert(&mut self, path: &str, content: &[u8], mode: u32) -> Result<(), PayloadError> {
        self.count(content.len())?;
        self.files.insert(path.to_owned(), PayloadFile { content: content.to_vec(), mode, owner: None });
        Ok(())
    }

    /// If two sources write one file, the later one wins.
    pub(super) fn extend(&mut self, more: Payload) -> Result<(), PayloadError> {
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

/// Which keys of an object become which files.
pub(super) struct Pick<'a> {
    items: &'a [KeyToPath],
    pub(super) is_optional: bool,
    default_mode: u32,
}

impl<'a> Pick<'a> {
    pub(super) fn new(
        items: Option<&'a [KeyToPath]>,
        optional: Option<bool>,
        default_mode: Option<i32>,
    ) -> Self {
        Self {
            items: items.unwrap_or_default(),
            is_optional: optional == Some(true),
            default_mode: mode_or(default_mode, DEFAULT_MODE),
        }
    }

    /// All keys under their own names, or the listed items under their paths.
    pub(super) fn files(
        &self,
        data: &BTreeMap<&str, &[u8]>,
        missing: impl Fn(String) -> PayloadError,
    ) -> Result<Payload, PayloadError> {
        let mut files = FileSet::default();
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

pub(super) fn mode_or(mode: Option<i32>, otherwise: u32) -> u32 {
    mode.and_then(|mode| u32::try_from(mode).ok()).map_or(otherwise, |mode| mode & PERMISSIONS)
}

/// The API server has checked the paths of its pods; a static pod may hold any path.
pub(super) fn check_path(path: &str) -> Result<(), PayloadError> {
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
