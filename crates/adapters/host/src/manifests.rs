//! Reads the files of static pods.
//!
//! Never: parsing them, which is done in `sources-core`.

use std::fs;
use std::io;
use std::path::Path;

use ports::host::{HostError, HostResult, ManifestFile};

use crate::failed;
use crate::files::{open_regular, read_at_most};

/// A manifest larger than this is not read.
const LARGEST: usize = 10 << 20;

/// A path that does not exist is an error for which `is_not_found` holds.
pub(crate) fn read_manifests(path: &Path) -> HostResult<Vec<ManifestFile>> {
    let metadata = fs::metadata(path).map_err(failed("read manifests in", path))?;
    if !metadata.is_dir() {
        let vanished = || failed("read manifests in", path)(io::Error::from(io::ErrorKind::NotFound));
        return Ok(vec![read_one(path).ok_or_else(vanished)?]);
    }
    let mut names = Vec::new();
    for entry in fs::read_dir(path).map_err(failed("list manifests in", path))? {
        let name = entry.map_err(failed("list manifests in", path))?.file_name();
        if !name.as_encoded_bytes().starts_with(b".") {
            names.push(name);
        }
    }
    names.sort();
    Ok(names.iter().filter_map(|name| read_one(&path.join(name))).collect())
}

/// `None` for a directory, and for a file that was removed meanwhile.
fn read_one(path: &Path) -> Option<ManifestFile> {
    if fs::metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
        return None;
    }
    let content = match read_whole(path) {
        Ok(content) => Ok(content),
        // A dangling link is still an entry, and a mistake its owner wants to see.
        Err(error) if error.is_not_found() && fs::symlink_metadata(path).is_err() => return None,
        Err(HostError::Io { source, .. }) => Err(reason(&source)),
        Err(HostError::Invalid(text) | HostError::NotFinished(text)) => Err(text),
    };
    Some(ManifestFile { path: path.to_path_buf(), content })
}

fn read_whole(path: &Path) -> HostResult<Vec<u8>> {
    let mut file = open_regular(path)?;
    let content = read_at_most(&mut file, LARGEST + 1).map_err(failed("read", path))?;
    if content.len() > LARGEST {
        return Err(HostError::Invalid(format!("larger than {} MiB", LARGEST >> 20)));
    }
    Ok(content)
}

fn reason(error: &io::Error) -> String {
    format!("cannot be read: {error}")
}
