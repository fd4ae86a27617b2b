//! What the driver knows of its volumes: a file with what is staged and published, which counts only while the mount table agrees.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use model::csi::{AccessType, VolumeCapability, VolumeCondition};
use serde::{Deserialize, Serialize};

use super::mounts;

#[derive(Debug)]
pub(super) struct Volumes {
    pub(super) dir: PathBuf,
    pub(super) saved: Saved,
    /// With a call in progress.
    pub(super) busy: BTreeSet<String>,
    pub(super) conditions: BTreeMap<String, VolumeCondition>,
    pub(super) max_bytes: u64,
}

/// The state on disk.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Saved {
    pub(super) staged: BTreeMap<String, Staged>,
    pub(super) published: BTreeMap<String, Vec<Published>>,
    deleted: BTreeSet<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Staged {
    pub(super) path: PathBuf,
    pub(super) capability: String,
    pub(super) is_block: bool,
    /// Its filesystem is in memory, and can grow while it is mounted.
    #[serde(default)]
    pub(super) is_in_memory: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Published {
    pub(super) path: PathBuf,
    /// The capability and the readonly flag.
    pub(super) arguments: String,
    pub(super) is_ephemeral: bool,
}

/// A capability as text that is the same for identical ones.
pub(super) fn fingerprint(capability: &VolumeCapability) -> String {
    format!("{capability:?}")
}

pub(super) const fn is_block(capability: &VolumeCapability) -> bool {
    match capability.access_type {
        AccessType::Block => true,
        AccessType::Mount { .. } => false,
    }
}

impl Volumes {
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir.join("volumes"))?;
        let mut volumes = Self {
            dir: dir.to_owned(),
            saved: Saved::default(),
            busy: BTreeSet::new(),
            conditions: BTreeMap::new(),
            max_bytes: u64::MAX,
        };
        volumes.load()?;
        Ok(volumes)
    }

    pub(super) fn directory(&self, volume_id: &str) -> PathBuf {
        self.dir.join("volumes").join(volume_id)
    }

    /// The file of a loop device.
    pub(super) fn image(&self, volume_id: &str) -> PathBuf {
        self.dir.join("volumes").join(format!("{volume_id}.img"))
    }

    fn file(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    /// Reads what an earlier process of the driver knew. After a restart of the node nothing is mounted.
    pub(super) fn load(&mut self) -> io::Result<()> {
        self.busy.clear();
        self.saved = match fs::read(self.file()) {
            Ok(content) => serde_json::from_slice(&content)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Saved::default(),
            Err(error) => return Err(error),
        };
        let is_mounted = |path: &Path| mounts::is_mounted(path).unwrap_or(true);
        self.saved.staged.retain(|_, staged| staged.is_block || is_mounted(&staged.path));
        for targets in self.saved.published.values_mut() {
            targets.retain(|published| is_mounted(&published.path));
        }
        Ok(())
    }

    pub(super) fn save(&self) -> io::Result<()> {
        let new = self.dir.join("state.json.new");
        fs::write(&new, serde_json::to_vec(&self.saved)?)?;
        fs::rename(new, self.file())
    }

    pub(super) fn is_deleted(&self, volume_id: &str) -> bool {
        self.saved.deleted.contains(volume_id)
    }

    pub(super) fn delete(&mut self, volume_id: &str) {
        self.saved.deleted.insert(volume_id.to_owned());
        // Without the file a driver that starts again knows less, which its test reports.
        let _ = self.save();
    }

    pub(super) fn targets(&self, volume_id: &str) -> &[Published] {
        self.saved.published.get(volume_id).map_or(&[], Vec::as_slice)
    }

    pub(super) fn staged(&self) -> Vec<(String, PathBuf)> {
        self.saved.staged.iter().map(|(volume, staged)| (volume.clone(), staged.path.clone())).collect()
    }

    pub(super) fn published(&self) -> Vec<(String, PathBuf)> {
        let all = self.saved.published.iter();
        all.flat_map(|(volume, targets)| targets.iter().map(|target| (volume.clone(), target.path.clone())))
            .collect()
    }

    /// The end of a test: nothing is left of the volumes but their files.
    pub(super) fn unmount_all(&mut self) {
        for (_, path) in self.published().into_iter().chain(self.staged()) {
            mounts::detach(&path);
        }
        let Ok(entries) = fs::read_dir(self.dir.join("volumes")) else { return };
        for entry in entries.flatten().filter(|entry| entry.path().is_file()) {
            // Fails only without losetup, and then there is no device.
            let _ = mounts::detach_loop(&entry.path());
        }
    }
}
