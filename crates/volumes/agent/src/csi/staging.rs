//! The table of staged volumes, and the task that unstages those that no pod uses any more.
//!
//! Owns: who uses which volume, found on disk when the kubelet starts; and that one act at a time works on a volume. When a volume
//! is unstaged is decided in `volumes_core::csi::staging`.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use base_agent::context::Context;
use base_agent::damaged::remove_unfinished;
use base_agent::error_chain::chain;
use base_agent::tasks::guarded;
use model::PodUid;
use parking_lot::Mutex;
use ports::HostError;
use tokio::sync::{Notify, OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;
use volumes_core::csi::Lifecycle;
use volumes_core::csi::paths::{DEVICES, DevicePaths, GLOBAL_MOUNT, IN_POD, STAGED, staged_dir, unique_name};
use volumes_core::csi::staging::{Labelled, StagedVolume, Staging, VolumeUser};
use volumes_core::csi::volume_data::{PublishedData, StagedData};
use volumes_core::engine::wait_after;
use volumes_core::selinux::VolumeLabel;

use super::super::permits::Permits;
use super::super::remove_empty;
use super::{CsiObjects, Drivers, read_data, staging_path, text};

/// A volume that a pod uses, with its SELinux label.
type FoundUser = (StagedVolume, VolumeUser, Option<String>);

#[derive(Debug)]
pub struct StagedVolumes {
    ctx: Arc<Context>,
    drivers: Drivers,
    objects: Option<Arc<CsiObjects>>,
    table: Mutex<Staging>,
    /// One permit for each volume.
    permits: Permits,
    /// What an earlier kubelet left is in the table.
    is_complete: watch::Sender<bool>,
    changed: Notify,
}

impl StagedVolumes {
    pub(crate) fn new(ctx: Arc<Context>, drivers: Drivers, objects: Option<Arc<CsiObjects>>) -> Self {
        Self {
            ctx,
            drivers,
            objects,
            table: Mutex::default(),
            permits: Permits::default(),
            is_complete: watch::Sender::new(false),
            changed: Notify::new(),
        }
    }

    /// The pod uses the volume from now on, until it is removed from the table.
    pub(crate) fn add_user(&self, volume: &StagedVolume, user: VolumeUser) {
        self.table.lock().add_user(volume, user);
    }

    /// As [`Self::add_user`] on a node with SELinux.
    pub(crate) fn add_labelled_user(
        &self,
        volume: &StagedVolume,
        user: VolumeUser,
        wanted: &VolumeLabel,
        is_enforced: bool,
    ) -> Labelled {
        self.table.lock().add_labelled_user(volume, user, wanted, is_enforced)
    }

    /// The SELinux label with which the volume is mounted.
    pub(crate) fn label(&self, volume: &StagedVolume) -> Option<String> {
        self.table.lock().label(volume).map(str::to_owned)
    }

    /// The driver is about to publish the volume to the user, or certainly did not.
    pub(crate) fn set_published(&self, volume: &StagedVolume, user: &VolumeUser, is_published: bool) {
        self.table.lock().set_published(volume, user, is_published);
    }

    pub(crate) fn is_published_elsewhere(&self, volume: &StagedVolume, pod: &PodUid) -> bool {
        self.table.lock().is_published_elsewhere(volume, pod)
    }

    pub(crate) fn remove_user(&self, volume: &StagedVolume, user: &VolumeUser) {
        self.table.lock().remove_user(volume, user);
        self.changed.notify_one();
    }

    /// Everything of the pod is gone from disk.
    pub(crate) fn remove_pod(&self, pod: &PodUid) {
        self.table.lock().remove_pod(pod);
        self.changed.notify_one();
    }

    /// The pod has persistent volumes of drivers.
    pub(crate) fn is_used_by(&self, pod: &PodUid) -> bool {
        self.table.lock().is_used_by(pod)
    }

    pub(crate) fn is_used(&self, volume: &StagedVolume) -> bool {
        self.table.lock().is_used(volume)
    }

    pub(crate) fn is_staged(&self, volume: &StagedVolume) -> bool {
        self.table.lock().is_staged(volume)
    }

    pub(crate) fn set_staged(&self, volume: &StagedVolume, is_staged: bool) {
        self.table.lock().set_staged(volume, is_staged);
    }

    /// Waits until no other act works on the volume; the permit is held until it is dropped.
    pub(crate) async fn acquire(&self, volume: &StagedVolume) -> Result<OwnedSemaphorePermit, HostError> {
        let device = volume.device.as_deref().unwrap_or_default();
        self.permits.acquire(&format!("{}^{}^{device}", volume.driver, volume.handle)).await
    }

    /// Finds what an earlier kubelet left, and then unstages what no pod uses, until the tasks stop.
    pub(crate) async fn run(self: Arc<Self>) {
        self.find_all().await;
        self.is_complete.send_replace(true);
        let (mut registrations, mut acts) = (self.drivers.registrations(), JoinSet::new());
        loop {
            let now = self.ctx.clock.mono();
            for volume in self.table.lock().take_due(now) {
                let staged = self.clone();
                acts.spawn(async move { staged.unstage_or_log(volume).await });
            }
            let wake_at = self.table.lock().wake_at();
            let wake = self.ctx.clock.sleep_until_some(wake_at);
            tokio::select! {
                () = self.changed.notified() => {}
                Some(_) = acts.join_next(), if !acts.is_empty() => {}
                Ok(()) = registrations.changed() => self.table.lock().retry(),
                () = wake => {}
            }
        }
    }

    async fn unstage_or_log(&self, volume: StagedVolume) {
        // A volume that stayed under way would never be unstaged.
        let unstaged = guarded(self.unstage(&volume)).await;
        let unstaged = unstaged.unwrap_or_else(|| Err("the unstaging panicked".to_owned()));
        if let Err(err) = &unstaged {
            let StagedVolume { driver, handle, .. } = &volume;
            tracing::error!(
                driver,
                volumeHandle = handle,
                err,
                "Failed to unstage CSI volume, it is tried again"
            );
        }
        let now = self.ctx.clock.mono();
        // A pod that uses it from now on is in the table first, and reports it in use after that.
        let mut table = self.table.lock();
        let is_gone = table.unstage_ended(&volume, unstaged.is_ok(), now);
        if let Some(objects) = self.objects.as_ref().filter(|_| is_gone) {
            objects.api.in_use.remove(&unique_name(&volume.driver, &volume.handle));
        }
    }

    /// Success also if a pod uses the volume again.
    async fn unstage(&self, volume: &StagedVolume) -> Result<(), String> {
        let _permit = self.acquire(volume).await.map_err(|error| chain(&error))?;
        if self.table.lock().is_used(volume) {
            return Ok(());
        }
        let path = staging_path(&self.ctx, volume);
        let root = &self.ctx.settings.paths.root;
        let dir = match &volume.device {
            Some(name) => DevicePaths::of(root, name).data_dir(),
            None => staged_dir(root, &volume.driver, &volume.handle),
        };
        if read_data(&self.ctx, &dir).await.map_err(|error| chain(&error))?.is_some() {
            self.call(volume, &path).await?;
        }
        self.remove_files(volume).await.map_err(|error| chain(&error))
    }

    async fn call(&self, volume: &StagedVolume, path: &Path) -> Result<(), String> {
        let driver = self.drivers.get(&volume.driver).map_err(|error| {
            text(&format!("attacher.UnmountDevice failed to create newCsiDriverClient: {error}"))
        })?;
        let capabilities = driver.capabilities().await.map_err(|error| {
            text(&format!("attacher.UnmountDevice failed to check whether STAGE_UNSTAGE_VOLUME set: {error}"))
        })?;
        if !capabilities.stage_unstage_volume {
            return Ok(());
        }
        self.set_staged(volume, false);
        let unstaged = driver.calls.unstage(&volume.handle, path).await;
        unstaged.map_err(|error| text(&format!("attacher.UnmountDevice failed: {error}")))
    }

    /// Refuses to delete through what is still mounted.
    async fn remove_files(&self, volume: &StagedVolume) -> Result<(), HostError> {
        let (files, root) = (&self.ctx.files, &self.ctx.settings.paths.root);
        match &volume.device {
            None => {
                let dir = staged_dir(root, &volume.driver, &volume.handle);
                remove_empty(&self.ctx, &dir, Some(GLOBAL_MOUNT)).await
            }
            Some(name) => {
                let device_paths = DevicePaths::of(root, name);
                files.remove_tree(&device_paths.publish_dir).await?;
                files.remove_tree(&device_paths.staging).await?;
                files.remove_tree(&device_paths.dir).await
            }
        }
    }

    /// Waits until what an earlier kubelet left is known.
    pub(crate) async fn complete(&self) {
        // The sender lives as long as this.
        let _ = self.is_complete.subscribe().wait_for(|is_complete| *is_complete).await;
    }

    /// What cannot be read may be the user of a volume, so nothing is taken away until all of it was read.
    async fn find_all(&self) {
        let mut failures = 0;
        loop {
            match self.find().await {
                Ok(()) => break,
                Err(err) => tracing::error!(
                    err = chain(&err),
                    "Failed to find the CSI volumes on disk, it is tried again"
                ),
            }
            failures += 1;
            let again_at = self.ctx.clock.mono() + wait_after(failures);
            self.ctx.clock.sleep_until(again_at).await;
        }
        let found = self.table.lock().volumes();
        for volume in found {
            self.record_in_use(&volume).await;
        }
    }

    async fn find(&self) -> Result<(), HostError> {
        let (users, staged) = (self.find_published().await?, self.find_staged().await?);
        let mut table = self.table.lock();
        for (volume, user, label) in users {
            table.add_found_user(&volume, user);
            label.into_iter().for_each(|label| table.set_found_label(&volume, label));
        }
        for (volume, label) in staged {
            table.add_found(volume.clone());
            label.into_iter().for_each(|label| table.set_found_label(&volume, label));
        }
        Ok(())
    }

    /// A volume that was found on disk stays attached.
    async fn record_in_use(&self, volume: &StagedVolume) {
        let Some(objects) = &self.objects else { return };
        let is_exempt = objects.rules(&volume.driver).await.is_ok_and(|rules| !rules.attach_required);
        if !is_exempt && let Err(err) = objects.api.in_use.add(&unique_name(&volume.driver, &volume.handle)) {
            tracing::error!(driver = volume.driver, err, "Failed to report a CSI volume in use");
        }
    }

    /// The volumes of all pods that have a directory.
    async fn find_published(&self) -> Result<Vec<FoundUser>, HostError> {
        let (files, paths, mut found) = (&*self.ctx.files, &self.ctx.settings.paths, Vec::new());
        for uid in files.list_names(&paths.pods()).await? {
            let pod_dir = paths.pods().join(&uid);
            remove_unfinished(files, &pod_dir).await;
            let volumes = pod_dir.join("volumes").join(IN_POD);
            for name in files.list_names(&volumes).await? {
                remove_unfinished(files, &volumes.join(&name)).await;
                found.extend(self.published(&volumes.join(&name), None, &uid, name).await?);
            }
            let devices = pod_dir.join("volumeDevices").join(IN_POD);
            remove_unfinished(files, &devices).await;
            for name in files.list_names(&devices).await? {
                let data = DevicePaths::of(&paths.root, &name).data_dir();
                found.extend(self.published(&data, Some(name.clone()), &uid, name).await?);
            }
        }
        Ok(found)
    }

    /// Ephemeral volumes are not staged. What is damaged is reported when the volume is torn down.
    async fn published(
        &self,
        dir: &Path,
        device: Option<String>,
        uid: &str,
        name: String,
    ) -> Result<Option<FoundUser>, HostError> {
        let content = read_data(&self.ctx, dir).await?;
        let data = content.and_then(|content| PublishedData::parse(&content).ok());
        let pod = PodUid::from(uid.to_owned());
        Ok(data.filter(|data| data.lifecycle != Some(Lifecycle::Ephemeral)).map(|data| {
            let volume = StagedVolume { driver: data.driver, handle: data.handle, device };
            (volume, VolumeUser { pod, name }, data.selinux_context)
        }))
    }

    async fn find_staged(&self) -> Result<Vec<(StagedVolume, Option<String>)>, HostError> {
        let root = self.ctx.settings.paths.root.join(STAGED);
        let (files, mut found) = (&*self.ctx.files, Vec::new());
        for driver in files.list_names(&root).await? {
            if driver == DEVICES {
                continue;
            }
            for name in files.list_names(&root.join(&driver)).await? {
                let dir = root.join(&driver).join(name);
                remove_unfinished(files, &dir).await;
                match read_data(&self.ctx, &dir).await? {
                    Some(data) => found.extend(parse_staged(&dir, &data, None)),
                    None => self.remove_rest(&dir).await,
                }
            }
        }
        for name in self.names_of_devices(&root.join(DEVICES)).await? {
            let device_paths = DevicePaths::of(&self.ctx.settings.paths.root, &name);
            remove_unfinished(files, &device_paths.data_dir()).await;
            match read_data(&self.ctx, &device_paths.data_dir()).await? {
                Some(data) => found.extend(parse_staged(&device_paths.data_dir(), &data, Some(name))),
                None => self.remove_rest_of_device(&device_paths).await,
            }
        }
        Ok(found)
    }

    /// The names of the volumes of which any directory exists.
    async fn names_of_devices(&self, devices: &Path) -> Result<BTreeSet<String>, HostError> {
        const SHARED: [&str; 2] = ["publish", "staging"];
        let mut names: BTreeSet<String> = self.ctx.files.list_names(devices).await?.into_iter().collect();
        for shared in SHARED {
            names.remove(shared);
            names.extend(self.ctx.files.list_names(&devices.join(shared)).await?);
        }
        Ok(names)
    }

    /// Removes what a killed kubelet left of a volume before it wrote the data, or after it removed them: nothing is staged there. A
    /// directory with other files stays.
    async fn remove_rest(&self, dir: &Path) {
        let root = &self.ctx.settings.paths.root;
        let is_of = |volume: &StagedVolume| dir == staged_dir(root, &volume.driver, &volume.handle);
        if self.table.lock().volumes().iter().any(is_of) {
            // A pod has begun to use it.
            return;
        }
        let names = self.ctx.files.list_names(dir).await.unwrap_or_default();
        if names.iter().all(|name| name == GLOBAL_MOUNT)
            && let Err(err) = remove_empty(&self.ctx, dir, Some(GLOBAL_MOUNT)).await
        {
            tracing::warn!(path = %dir.display(), err = chain(&err), "Failed to remove the directory of a CSI volume");
        }
    }

    async fn remove_rest_of_device(&self, device_paths: &DevicePaths) {
        let name = device_paths.dir.file_name().map(|name| name.to_string_lossy().into_owned());
        if self.table.lock().volumes().into_iter().any(|volume| volume.device == name) {
            return;
        }
        for dir in [
            &device_paths.publish_dir,
            &device_paths.staging,
            &device_paths.data_dir(),
            &device_paths.dir.join("dev"),
            &device_paths.dir,
        ] {
            let is_empty = self.ctx.files.list_names(dir).await.is_ok_and(|names| names.is_empty());
            if is_empty && let Err(err) = self.ctx.files.remove_tree(dir).await {
                tracing::warn!(path = %dir.display(), err = chain(&err), "Failed to remove the directory of a CSI volume");
            }
        }
    }
}

fn parse_staged(dir: &Path, data: &[u8], device: Option<String>) -> Option<(StagedVolume, Option<String>)> {
    match StagedData::parse(data) {
        Ok(StagedData { driver, handle, selinux_context }) => {
            Some((StagedVolume { driver, handle, device }, selinux_context))
        }
        Err(err) => {
            tracing::error!(path = %dir.display(), err, "Failed to read the data of a staged CSI volume");
            None
        }
    }
}
