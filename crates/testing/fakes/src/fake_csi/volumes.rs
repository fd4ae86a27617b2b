//! The volumes of the fake driver: where each is staged and published, and the rules of the specification for each call.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use model::csi::{
    AccessMode, AccessType, ExpandRequest, NodeCapabilities, PublishRequest, StageRequest, StatsRequest,
    Usage, VolumeCapability, VolumeCondition, VolumeStats,
};

use super::violations::{Checked, Refused, check_capability, check_path, check_supported, check_volume_id};
use crate::FakeHost;

const CAPACITY: i64 = 1 << 30;
/// In the context of an inline volume, which is never staged.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

#[derive(Debug)]
pub(super) struct Volumes {
    pub(super) capabilities: NodeCapabilities,
    pub(super) stages_without_mount: bool,
    host: Option<FakeHost>,
    staged: BTreeMap<String, Staged>,
    /// By volume and target path.
    published: BTreeMap<(String, PathBuf), Published>,
    deleted: BTreeSet<String>,
    capacities: BTreeMap<String, i64>,
    stats: BTreeMap<String, VolumeStats>,
    conditions: BTreeMap<String, VolumeCondition>,
}

#[derive(Debug)]
struct Staged {
    path: PathBuf,
    capability: VolumeCapability,
}

#[derive(Debug)]
struct Published {
    capability: VolumeCapability,
    is_read_only: bool,
}

impl Default for Volumes {
    fn default() -> Self {
        let capabilities = NodeCapabilities {
            stage_unstage_volume: true,
            get_volume_stats: true,
            expand_volume: true,
            ..NodeCapabilities::default()
        };
        Self {
            capabilities,
            stages_without_mount: false,
            host: None,
            staged: BTreeMap::new(),
            published: BTreeMap::new(),
            deleted: BTreeSet::new(),
            capacities: BTreeMap::new(),
            stats: BTreeMap::new(),
            conditions: BTreeMap::new(),
        }
    }
}

impl Volumes {
    pub(super) fn set_host(&mut self, host: FakeHost) {
        self.host = Some(host);
    }

    pub(super) fn delete(&mut self, volume_id: &str) {
        self.deleted.insert(volume_id.to_owned());
    }

    pub(super) fn set_stats(&mut self, volume_id: &str, stats: VolumeStats) {
        self.stats.insert(volume_id.to_owned(), stats);
    }

    pub(super) fn set_condition(&mut self, volume_id: &str, condition: VolumeCondition) {
        self.conditions.insert(volume_id.to_owned(), condition);
    }

    pub(super) fn forget_mounts(&mut self) {
        if let Some(host) = &self.host {
            for Staged { path, .. } in self.staged.values() {
                host.unmount_volume(path);
            }
            for (_, path) in self.published.keys() {
                host.unmount_volume(path);
            }
        }
        self.staged.clear();
        self.published.clear();
    }

    pub(super) fn staged(&self) -> BTreeMap<String, PathBuf> {
        self.staged.iter().map(|(volume, staged)| (volume.clone(), staged.path.clone())).collect()
    }

    pub(super) fn published(&self) -> Vec<(String, PathBuf)> {
        self.published.keys().cloned().collect()
    }

    // ---- the calls ----

    pub(super) fn stage(&mut self, request: &StageRequest) -> Checked<()> {
        check_supported(self.capabilities.stage_unstage_volume, "NodeStageVolume")?;
        check_volume_id(&request.volume_id)?;
        check_path("staging target path", &request.staging_target_path)?;
        check_capability(&request.capability)?;
        self.check_exists(&request.volume_id)?;
        if let Some(staged) = self.staged.get(&request.volume_id) {
            return check_staged_alike(staged, request);
        }
        if let (Some(host), AccessType::Mount { .. }, false) =
            (&self.host, &request.capability.access_type, self.stages_without_mount)
        {
            let mounted = host.mount_volume(&request.staging_target_path);
            mounted
                .map_err(|error| Refused::violation("Internal", format!("staging target path: {error}")))?;
        }
        let staged =
            Staged { path: request.staging_target_path.clone(), capability: request.capability.clone() };
        self.staged.insert(request.volume_id.clone(), staged);
        Ok(())
    }

    pub(super) fn unstage(&mut self, volume_id: &str, path: &Path) -> Checked<()> {
        check_supported(self.capabilities.stage_unstage_volume, "NodeUnstageVolume")?;
        check_volume_id(volume_id)?;
        check_path("staging target path", path)?;
        if self.staged.get(volume_id).is_none_or(|staged| staged.path != path) {
            return Ok(());
        }
        if let Some((_, target)) = self.published.keys().find(|(volume, _)| volume == volume_id) {
            let message = format!("the volume is published at {}", target.display());
            return Err(Refused::violation("FailedPrecondition", message));
        }
        if let Some(host) = &self.host {
            host.unmount_volume(path);
        }
        self.staged.remove(volume_id);
        Ok(())
    }

    pub(super) fn publish(&mut self, request: &PublishRequest) -> Checked<()> {
        check_volume_id(&request.volume_id)?;
        check_path("target path", &request.target_path)?;
        check_capability(&request.capability)?;
        self.check_exists(&request.volume_id)?;
        let is_ephemeral = request.volume_context.0.get(EPHEMERAL).is_some_and(|value| value == "true");
        if self.capabilities.stage_unstage_volume && !is_ephemeral {
            self.check_is_staged(request)?;
        }
        let key = (request.volume_id.clone(), request.target_path.clone());
        if let Some(published) = self.published.get(&key) {
            return check_published_alike(published, request);
        }
        self.check_second_target(request)?;
        if let Some(host) = &self.host {
            let mounted = match request.capability.access_type {
                AccessType::Block => host.mount_device(&request.target_path),
                AccessType::Mount { .. } => host.make_mount_point(&request.target_path),
            };
            mounted.map_err(|error| Refused::violation("Internal", format!("target path: {error}")))?;
        }
        let published = Published { capability: request.capability.clone(), is_read_only: request.read_only };
        self.published.insert(key, published);
        Ok(())
    }

    pub(super) fn unpublish(&mut self, volume_id: &str, path: &Path) -> Checked<()> {
        check_volume_id(volume_id)?;
        check_path("target path", path)?;
        let was_published = self.published.remove(&(volume_id.to_owned(), path.to_owned())).is_some();
        if let (true, Some(host)) = (was_published, &self.host) {
            host.unmount_volume(path).delete(path);
        }
        Ok(())
    }

    pub(super) fn expand(&mut self, request: &ExpandRequest) -> Checked<i64> {
        check_supported(self.capabilities.expand_volume, "NodeExpandVolume")?;
        check_volume_id(&request.volume_id)?;
        check_path("volume path", &request.volume_path)?;
        self.check_exists(&request.volume_id)?;
        self.check_is_at(&request.volume_id, &request.volume_path)?;
        let capacity = self.capacities.entry(request.volume_id.clone()).or_insert(CAPACITY);
        *capacity = request.required_bytes.max(*capacity);
        Ok(*capacity)
    }

    pub(super) fn stats_of(&self, request: &StatsRequest) -> Checked<VolumeStats> {
        let is_supported = self.capabilities.get_volume_stats || self.capabilities.volume_condition;
        check_supported(is_supported, "NodeGetVolumeStats")?;
        check_volume_id(&request.volume_id)?;
        check_path("volume path", &request.volume_path)?;
        self.check_exists(&request.volume_id)?;
        self.check_is_at(&request.volume_id, &request.volume_path)?;
        let mut stats =
            self.stats.get(&request.volume_id).cloned().unwrap_or_else(|| self.half_full(&request.volume_id));
        if self.capabilities.volume_condition {
            stats.condition = stats.condition.or_else(|| self.condition_of(&request.volume_id));
        }
        Ok(stats)
    }

    fn half_full(&self, volume_id: &str) -> VolumeStats {
        let half = |total: i64| Usage { available: total / 2, total, used: total / 2 };
        let capacity = self.capacities.get(volume_id).copied().unwrap_or(CAPACITY);
        VolumeStats { bytes: Some(half(capacity)), inodes: Some(half(1000)), condition: None }
    }

    fn condition_of(&self, volume_id: &str) -> Option<VolumeCondition> {
        Some(self.conditions.get(volume_id).cloned().unwrap_or_default())
    }

    // ---- rules ----

    fn check_exists(&self, volume_id: &str) -> Checked<()> {
        if self.deleted.contains(volume_id) {
            return Err(Refused::expected("NotFound", format!("volume {volume_id} does not exist")));
        }
        Ok(())
    }

    fn check_is_staged(&self, request: &PublishRequest) -> Checked<()> {
        let Some(path) = &request.staging_target_path else {
            return Err(Refused::violation("FailedPrecondition", "staging target path is missing"));
        };
        if self.staged.get(&request.volume_id).is_none_or(|staged| staged.path != *path) {
            let message = format!("the volume is not staged at {}", path.display());
            return Err(Refused::violation("FailedPrecondition", message));
        }
        Ok(())
    }

    /// A volume for one writer has one target path. Drivers allow more for `SINGLE_NODE_WRITER`, because Kubernetes uses it
    /// for all pods of a node.
    fn check_second_target(&self, request: &PublishRequest) -> Checked<()> {
        let is_for_one = request.capability.access_mode == AccessMode::SingleNodeSingleWriter;
        let other = self.published.keys().find(|(volume, _)| *volume == request.volume_id);
        match other {
            Some((_, target)) if is_for_one => {
                let message = format!("the volume is published at {}", target.display());
                Err(Refused::violation("FailedPrecondition", message))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_is_at(&self, volume_id: &str, path: &Path) -> Checked<()> {
        let is_staged = self.staged.get(volume_id).is_some_and(|staged| staged.path == path);
        if is_staged || self.published.contains_key(&(volume_id.to_owned(), path.to_owned())) {
            return Ok(());
        }
        Err(Refused::expected("NotFound", format!("volume {volume_id} is not at {}", path.display())))
    }
}

fn check_staged_alike(staged: &Staged, request: &StageRequest) -> Checked<()> {
    if staged.path != request.staging_target_path {
        let message = format!("the volume is staged at {}", staged.path.display());
        return Err(Refused::violation("AlreadyExists", message));
    }
    if staged.capability != request.capability {
        return Err(Refused::violation("AlreadyExists", "the volume is staged with another capability"));
    }
    Ok(())
}

fn check_published_alike(published: &Published, request: &PublishRequest) -> Checked<()> {
    if published.capability == request.capability && published.is_read_only == request.read_only {
        return Ok(());
    }
    let message = "the volume is published there with another capability or another readonly flag";
    Err(Refused::violation("AlreadyExists", message))
}
