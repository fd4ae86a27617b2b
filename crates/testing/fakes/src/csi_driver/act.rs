//! The calls as the specification describes them, on real mounts. Each is idempotent.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

use grpc_api::csi as wire;
use model::csi::{
    AccessMode, AccessType, ExpandRequest, NodeCapabilities, PublishRequest, StageRequest, StatsRequest,
    VolumeCapability,
};
use tonic::Status;
use wire::volume_usage::Unit;

use super::mounts;
use super::state::{Published, Staged, Volumes, fingerprint, is_block};

/// Of a block volume whose context has no size.
const BLOCK_BYTES: u64 = 16 << 20;
/// In the context of an inline volume, which exists as long as it is published.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";
/// In the context of a volume that is a filesystem of this many bytes.
const SIZE: &str = "size";
/// In the context of a volume with a size: `memory` if its filesystem is in memory, as long as it is staged.
const MEDIUM: &str = "medium";

type Answer<T> = Result<T, Status>;

fn internal(what: &str) -> impl Fn(io::Error) -> Status {
    move |error| Status::internal(format!("{what}: {error}"))
}

fn size_in(context: &BTreeMap<String, String>) -> Answer<Option<u64>> {
    let invalid = |_| Status::invalid_argument("size is not a number of bytes");
    context.get(SIZE).map(|size| size.parse().map_err(invalid)).transpose()
}

impl Volumes {
    pub(super) fn stage(&mut self, request: &StageRequest) -> Answer<()> {
        let StageRequest { volume_id, staging_target_path: path, capability, .. } = request;
        self.check_exists(volume_id)?;
        if let Some(staged) = self.saved.staged.get(volume_id) {
            return check_staged_alike(staged, path, capability);
        }
        if !path.is_dir() {
            return Err(Status::internal(format!("{} is not a directory", path.display())));
        }
        let size = size_in(&request.volume_context)?;
        let in_memory =
            size.filter(|_| request.volume_context.get(MEDIUM).is_some_and(|medium| medium == "memory"));
        match in_memory {
            Some(bytes) => mounts::mount_memory(path, bytes).map_err(internal("mount"))?,
            None if is_block(capability) => {
                self.prepare_device(volume_id, size.unwrap_or(BLOCK_BYTES))?;
            }
            None => self.mount(volume_id, size, path, capability, false)?,
        }
        let staged = Staged {
            path: path.clone(),
            capability: fingerprint(capability),
            is_block: is_block(capability),
            is_in_memory: in_memory.is_some(),
        };
        self.saved.staged.insert(volume_id.clone(), staged);
        self.save().map_err(internal("save the state"))
    }

    pub(super) fn unstage(&mut self, volume_id: &str, path: &Path) -> Answer<()> {
        if self.saved.staged.get(volume_id).is_none_or(|staged| staged.path != path) {
            return Ok(());
        }
        if let Some(published) = self.targets(volume_id).first() {
            let message = format!("the volume is published at {}", published.path.display());
            return Err(Status::failed_precondition(message));
        }
        mounts::unmount(path).map_err(internal("unmount"))?;
        mounts::detach_loop(&self.image(volume_id)).map_err(internal("detach the loop device"))?;
        self.saved.staged.remove(volume_id);
        self.save().map_err(internal("save the state"))
    }

    pub(super) fn publish(&mut self, request: &PublishRequest, capabilities: NodeCapabilities) -> Answer<()> {
        let PublishRequest { volume_id, target_path, capability, .. } = request;
        self.check_exists(volume_id)?;
        let is_ephemeral = request.volume_context.0.get(EPHEMERAL).is_some_and(|value| value == "true");
        let must_be_staged = capabilities.stage_unstage_volume && !is_ephemeral;
        if must_be_staged {
            self.check_is_staged(request)?;
        }
        let arguments = format!("{} readonly={}", fingerprint(capability), request.read_only);
        if let Some(published) = self.targets(volume_id).iter().find(|known| known.path == *target_path) {
            return check_published_alike(published, &arguments);
        }
        self.check_second_target(volume_id, capability)?;
        self.place(request, must_be_staged)?;
        let published = Published { path: target_path.clone(), arguments, is_ephemeral };
        self.saved.published.entry(volume_id.clone()).or_default().push(published);
        self.save().map_err(internal("save the state"))
    }

    /// Creates the target in its parent, which must exist, and mounts the volume there.
    fn place(&self, request: &PublishRequest, is_staged: bool) -> Answer<()> {
        let PublishRequest { volume_id, target_path: target, capability, read_only, .. } = request;
        let size = size_in(&request.volume_context.0)?;
        if is_block(capability) {
            let device = self.prepare_device(volume_id, size.unwrap_or(BLOCK_BYTES))?;
            make_file(target).map_err(internal("create the target file"))?;
            return mounts::bind(&device, target, *read_only).map_err(internal("bind the device"));
        }
        make_directory(target).map_err(internal("create the target directory"))?;
        match &request.staging_target_path {
            Some(staging) if is_staged => {
                mounts::bind(staging, target, *read_only).map_err(internal("bind the volume"))
            }
            Some(_) | None => self.mount(volume_id, size, target, capability, *read_only),
        }
    }

    pub(super) fn unpublish(&mut self, volume_id: &str, path: &Path) -> Answer<()> {
        let Some(targets) = self.saved.published.get_mut(volume_id) else { return Ok(()) };
        let Some(at) = targets.iter().position(|published| published.path == path) else { return Ok(()) };
        mounts::unmount(path).map_err(internal("unmount"))?;
        remove_target(path).map_err(internal("remove the target"))?;
        let published = targets.remove(at);
        let is_last = targets.is_empty();
        if is_last {
            self.saved.published.remove(volume_id);
        }
        if is_last && !self.saved.staged.contains_key(volume_id) {
            mounts::detach_loop(&self.image(volume_id)).map_err(internal("detach the loop device"))?;
        }
        if published.is_ephemeral {
            remove_all(&self.directory(volume_id), &self.image(volume_id))
                .map_err(internal("delete the volume"))?;
        }
        self.save().map_err(internal("save the state"))
    }

    pub(super) fn expand(&mut self, request: &ExpandRequest) -> Answer<i64> {
        let volume_id = &request.volume_id;
        self.check_exists(volume_id)?;
        self.check_is_at(volume_id, &request.volume_path)?;
        let wanted = u64::try_from(request.required_bytes).unwrap_or_default();
        if wanted > self.max_bytes {
            return Err(Status::out_of_range(format!("a volume has at most {} bytes", self.max_bytes)));
        }
        let image = self.image(volume_id);
        if self.saved.staged.get(volume_id).is_some_and(|staged| staged.is_in_memory) {
            mounts::grow_memory(&request.volume_path, wanted).map_err(internal("grow the filesystem"))?;
        }
        if !image.exists() {
            return Ok(request.required_bytes);
        }
        let bytes = fs::metadata(&image).map_err(internal("inspect the volume"))?.len();
        if wanted > bytes {
            let file = fs::OpenOptions::new().write(true).open(&image);
            file.and_then(|file| file.set_len(wanted)).map_err(internal("grow the file"))?;
        }
        let has_filesystem = !is_block(&request.capability);
        mounts::grow(&image, has_filesystem).map_err(internal("grow the device"))?;
        Ok(i64::try_from(wanted.max(bytes)).unwrap_or(i64::MAX))
    }

    pub(super) fn stats(
        &self,
        request: &StatsRequest,
        capabilities: NodeCapabilities,
    ) -> Answer<wire::NodeGetVolumeStatsResponse> {
        self.check_exists(&request.volume_id)?;
        self.check_is_at(&request.volume_id, &request.volume_path)?;
        let condition = self.conditions.get(&request.volume_id).cloned().unwrap_or_default();
        let condition = wire::VolumeCondition { abnormal: condition.is_abnormal, message: condition.message };
        let usage = if request.volume_path.is_dir() {
            usage_of_files(&request.volume_path).map_err(internal("measure the volume"))?
        } else {
            let bytes =
                fs::metadata(self.image(&request.volume_id)).map_err(internal("measure the device"))?;
            vec![usage(Unit::Bytes, bytes.len(), 0, 0)]
        };
        let volume_condition = capabilities.volume_condition.then_some(condition);
        Ok(wire::NodeGetVolumeStatsResponse { usage, volume_condition })
    }

    // ---- devices and directories ----

    fn prepare_device(&self, volume_id: &str, bytes: u64) -> Answer<PathBuf> {
        let image = self.image(volume_id);
        if !image.exists() {
            let made = fs::File::create(&image).and_then(|file| file.set_len(bytes));
            made.map_err(internal("create the file of the device"))?;
        }
        mounts::attach_loop(&image).map_err(internal("attach the loop device"))
    }

    fn prepare_filesystem(&self, volume_id: &str, bytes: u64) -> Answer<PathBuf> {
        let image = self.image(volume_id);
        let was_attached =
            image.exists() && mounts::loop_of(&image).map_err(internal("find the loop device"))?.is_some();
        let device = self.prepare_device(volume_id, bytes)?;
        if !mounts::has_filesystem(&image) {
            mounts::make_filesystem(&device).map_err(internal("make a filesystem"))?;
        } else if !was_attached {
            mounts::grow_unmounted(&device).map_err(internal("grow the filesystem"))?;
        }
        Ok(device)
    }

    fn mount(
        &self,
        volume_id: &str,
        size: Option<u64>,
        target: &Path,
        capability: &VolumeCapability,
        is_read_only: bool,
    ) -> Answer<()> {
        let AccessType::Mount { fs_type, mount_flags, volume_mount_group } = &capability.access_type else {
            return Err(Status::internal("a block volume has no files"));
        };
        match size {
            Some(bytes) => {
                if !matches!(&**fs_type, "" | "ext4") {
                    return Err(Status::invalid_argument(format!("filesystem {fs_type} is not supported")));
                }
                let device = self.prepare_filesystem(volume_id, bytes)?;
                let mut flags = mount_flags.clone();
                flags.extend(is_read_only.then(|| "ro".to_owned()));
                mounts::mount_filesystem(&device, target, &flags).map_err(internal("mount"))?;
            }
            None => {
                let directory = self.directory(volume_id);
                fs::create_dir_all(&directory).map_err(internal("create the volume"))?;
                mounts::bind(&directory, target, is_read_only).map_err(internal("bind the volume"))?;
            }
        }
        give_to_group(target, volume_mount_group).map_err(internal("give the volume to its group"))
    }

    // ---- rules ----

    fn check_exists(&self, volume_id: &str) -> Answer<()> {
        if self.is_deleted(volume_id) {
            return Err(Status::not_found(format!("volume {volume_id} does not exist")));
        }
        Ok(())
    }

    fn check_is_staged(&self, request: &PublishRequest) -> Answer<()> {
        let Some(path) = &request.staging_target_path else {
            return Err(Status::failed_precondition("staging target path is missing"));
        };
        if self.saved.staged.get(&request.volume_id).is_none_or(|staged| staged.path != *path) {
            let message = format!("the volume is not staged at {}", path.display());
            return Err(Status::failed_precondition(message));
        }
        Ok(())
    }

    /// As most drivers do, this one publishes `SINGLE_NODE_WRITER` volumes to all pods of the node.
    fn check_second_target(&self, volume_id: &str, capability: &VolumeCapability) -> Answer<()> {
        match self.targets(volume_id).first() {
            Some(published) if capability.access_mode == AccessMode::SingleNodeSingleWriter => {
                let message = format!("the volume is published at {}", published.path.display());
                Err(Status::failed_precondition(message))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn check_is_at(&self, volume_id: &str, path: &Path) -> Answer<()> {
        let is_staged = self.saved.staged.get(volume_id).is_some_and(|staged| staged.path == path);
        if is_staged || self.targets(volume_id).iter().any(|published| published.path == path) {
            return Ok(());
        }
        Err(Status::not_found(format!("volume {volume_id} is not at {}", path.display())))
    }
}

fn check_staged_alike(staged: &Staged, path: &Path, capability: &VolumeCapability) -> Answer<()> {
    if staged.path != path {
        let message = format!("the volume is staged at {}", staged.path.display());
        return Err(Status::already_exists(message));
    }
    if staged.capability != fingerprint(capability) {
        return Err(Status::already_exists("the volume is staged with another capability"));
    }
    Ok(())
}

fn check_published_alike(published: &Published, arguments: &str) -> Answer<()> {
    if published.arguments == arguments {
        return Ok(());
    }
    let message = "the volume is published there with another capability or another readonly flag";
    Err(Status::already_exists(message))
}

fn make_directory(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

fn make_file(path: &Path) -> io::Result<()> {
    fs::OpenOptions::new().write(true).create(true).truncate(false).open(path).map(|_| ())
}

fn remove_target(path: &Path) -> io::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
    ignore_missing(removed)
}

fn remove_all(directory: &Path, image: &Path) -> io::Result<()> {
    ignore_missing(fs::remove_dir_all(directory))?;
    ignore_missing(fs::remove_file(image))
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn give_to_group(path: &Path, group: &str) -> io::Result<()> {
    let Ok(group) = group.parse::<u32>() else { return Ok(()) };
    chown(path, None, Some(group))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o2775))
}

fn usage_of_files(path: &Path) -> io::Result<Vec<wire::VolumeUsage>> {
    let space = mounts::space(path)?;
    let used_blocks = space.f_blocks.saturating_sub(space.f_bfree);
    let unit = space.f_frsize;
    Ok(vec![
        usage(Unit::Bytes, space.f_blocks * unit, space.f_bavail * unit, used_blocks * unit),
        usage(Unit::Inodes, space.f_files, space.f_ffree, space.f_files.saturating_sub(space.f_ffree)),
    ])
}

fn usage(unit: Unit, total: u64, available: u64, used: u64) -> wire::VolumeUsage {
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    wire::VolumeUsage {
        available: number(available),
        total: number(total),
        used: number(used),
        unit: unit.into(),
    }
}
