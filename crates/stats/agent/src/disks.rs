//! Samples disks on request: the node's filesystem, the runtime's, writable layers of containers, their logs and the volumes
//! of pods. Owns the latest sample and the latest measurement of each pod's volumes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base_agent::cache::PodCache;
use base_agent::context::Context;
use base_agent::error_chain::chain;
use base_agent::pod_files::files_of_containers;
use base_agent::pods_view::PodsView;
use logs_core::log_paths::pod_log_dir;
use model::containers::spec_of;
use model::k8s::{Pod, Volume};
use model::stats::{FilesystemUsage, TreeUsage, VolumeSample};
use model::{ContainerId, MonoTime, PodObservation, PodRef, PodUid};
use ports::runtime::{ImageFilesystems, Scope};
use stats_core::cgroup::Detail;
use stats_core::sample::{DiskSample, PodDisks, RuntimeFilesystem};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use volumes_agent::metrics::VolumeMetrics;
use volumes_agent::{Csi, counted, csi_volume_at, is_measured, path_of};
use volumes_core::plan::{SpecPlan, spec_plan};
use volumes_core::types::plugin_name;

use crate::Request;
use crate::csi_volumes::{CsiVolume, CsiVolumes};
use crate::metrics::StatsMetrics;

/// Concurrent walks through volumes, to limit the load on the disk.
const WALKS: usize = 2;
/// How long a sample waits for walks. A longer walk continues, and its result is in a later sample.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The same for the runtime's statistics.
const RUNTIME_TIMEOUT: Duration = Duration::from_secs(5);
/// Older samples are never shared.
pub const SHARED_AT_MOST_FOR: Duration = Duration::from_secs(60);

/// What was measured of a pod, and the volumes that their drivers are to be asked for.
type Walk = (Arc<Pod>, Vec<VolumeSample>, Vec<CsiVolume>);

pub(super) struct DiskSampler {
    ctx: Arc<Context>,
    cache: PodCache,
    pods: PodsView,
    last: Option<Arc<DiskSample>>,
    /// Time and result of the last walk through each pod's volumes.
    walked: BTreeMap<PodUid, (MonoTime, Vec<VolumeSample>)>,
    walks: JoinSet<Walk>,
    csi: CsiVolumes,
    /// The filesystems that the runtime last reported, and when.
    filesystems: Option<(MonoTime, ImageFilesystems)>,
}

impl DiskSampler {
    pub(super) fn new(ctx: Arc<Context>, cache: PodCache, pods: PodsView, csi: Csi) -> Self {
        let csi = CsiVolumes::new(ctx.clone(), csi);
        Self {
            ctx,
            cache,
            pods,
            last: None,
            walked: BTreeMap::new(),
            walks: JoinSet::new(),
            csi,
            filesystems: None,
        }
    }

    /// Runs until all senders are dropped. A sample is dropped once it is too old to be shared.
    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request<DiskSample>>) {
        loop {
            let clock = self.ctx.clock;
            let old_at =
                self.last.as_ref().map_or(MonoTime::ZERO, |last| last.taken.mono + SHARED_AT_MOST_FOR);
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => self.answer(request).await,
                    None => return,
                },
                () = clock.sleep_until(old_at), if self.last.is_some() => {
                    self.last = None;
                    self.forget_removed_pods(&self.cache.in_runtime());
                }
            }
        }
    }

    async fn answer(&mut self, request: Request<DiskSample>) {
        let now = self.ctx.clock.mono();
        let young = self.last.as_ref().filter(|l| now.saturating_since(l.taken.mono) < request.most);
        let sample = if let Some(young) = young {
            young.clone()
        } else if request.detail == Detail::Node {
            // Not kept, because requests for more detail cannot use it.
            Arc::new(self.sample_filesystems().await)
        } else {
            self.last = None;
            let sample = Arc::new(self.sample().await);
            self.ctx.metrics.get::<StatsMetrics>().disks_sampled(self.ctx.clock.mono().saturating_since(now));
            self.last.insert(sample).clone()
        };
        // The sender may have stopped waiting.
        let _ = request.answer.send(sample);
    }

    async fn sample(&mut self) -> DiskSample {
        let (ctx, now) = (self.ctx.clone(), self.ctx.clock.now());
        let observed = self.cache.in_runtime();
        self.walk_volumes(&observed).await;
        let node = ctx.files.filesystem_space(&ctx.settings.paths.root).await.ok();
        let calls = async {
            tokio::join!(ctx.runtime.list_container_stats(&Scope::Node), ctx.runtime.image_filesystems())
        };
        // If the runtime hangs, only its own statistics are missing.
        let (listed, filesystems) = tokio::select! {
            (listed, filesystems) = calls => (listed.ok(), filesystems.ok()),
            () = ctx.clock.sleep_until(ctx.clock.mono() + RUNTIME_TIMEOUT) => (None, None),
        };
        let is_incomplete = listed.is_none() || filesystems.is_none();
        self.record_filesystems(filesystems.as_ref());
        let mut layers: BTreeMap<ContainerId, FilesystemUsage> = BTreeMap::new();
        for stats in listed.unwrap_or_default() {
            layers.extend(stats.writable_layer.map(|layer| (stats.id, layer)));
        }
        let (images, containers) = self.runtime_filesystems(&filesystems.unwrap_or_default()).await;
        let mut pods = BTreeMap::new();
        for pod in observed.iter().filter(|pod| !pod.is_stopped()) {
            pods.insert(pod.pod.uid.clone(), self.pod(pod, &mut layers).await);
        }
        DiskSample { taken: now, node, images, containers, pods, is_incomplete }
    }

    /// Samples only capacity and usage of filesystems. The runtime's directories rarely change, so they are requested
    /// periodically; a runtime that hangs does not hide a disk that fills up.
    async fn sample_filesystems(&mut self) -> DiskSample {
        let (ctx, now) = (self.ctx.clone(), self.ctx.clock.now());
        let is_old = |at: MonoTime| now.mono.saturating_since(at) >= SHARED_AT_MOST_FOR;
        if self.filesystems.as_ref().is_none_or(|(at, _)| is_old(*at)) {
            let reported = tokio::select! {
                reported = ctx.runtime.image_filesystems() => reported.ok(),
                () = ctx.clock.sleep_until(now.mono + RUNTIME_TIMEOUT) => None,
            };
            self.record_filesystems(reported.as_ref());
        }
        let known = self.filesystems.as_ref().map(|(_, known)| known.clone());
        let node = ctx.files.filesystem_space(&ctx.settings.paths.root).await.ok();
        let is_incomplete = known.is_none();
        let (images, containers) = self.runtime_filesystems(&known.unwrap_or_default()).await;
        DiskSample { taken: now, node, images, containers, pods: BTreeMap::new(), is_incomplete }
    }

    fn record_filesystems(&mut self, reported: Option<&ImageFilesystems>) {
        if let Some(reported) = reported {
            self.filesystems = Some((self.ctx.clock.mono(), reported.clone()));
        }
    }

    /// The image filesystem, and the filesystem of writable layers.
    async fn runtime_filesystems(
        &self,
        reported: &ImageFilesystems,
    ) -> (Option<RuntimeFilesystem>, Option<RuntimeFilesystem>) {
        let images = self.filesystem(reported.images.first()).await;
        let containers = match self.filesystem(reported.containers.first()).await {
            Some(containers) => Some(containers),
            // Most runtimes have both on one filesystem.
            None => images.clone(),
        };
        (images, containers)
    }

    async fn filesystem(&self, used: Option<&FilesystemUsage>) -> Option<RuntimeFilesystem> {
        let used = used?;
        let space = self.ctx.files.filesystem_space(used.mountpoint.as_ref()).await.ok()?;
        let taken = TreeUsage {
            bytes: used.used_bytes.unwrap_or_default(),
            inodes: used.inodes_used.unwrap_or_default(),
        };
        Some(RuntimeFilesystem { space, used: taken })
    }

    async fn pod(
        &self,
        observed: &PodObservation,
        layers: &mut BTreeMap<ContainerId, FilesystemUsage>,
    ) -> PodDisks {
        let directory = pod_log_dir(&self.ctx.config().pod_logs_dir, &observed.pod);
        let mut disks = PodDisks::default();
        for container in observed.running() {
            disks.layers.extend(layers.remove_entry(&container.id));
            let logs = self.ctx.mounts.tree_usage(format!("{directory}/{}", container.name).as_ref()).await;
            // Logs that cannot be read are left out.
            disks.logs.extend(logs.ok().map(|used| (Box::from(&*container.name), used)));
        }
        let own = files_of_containers(&self.ctx.settings.paths.pod(&observed.pod.uid));
        disks.files = self.ctx.files.files_usage(&own).await.unwrap_or_default();
        disks.volumes =
            self.walked.get(&observed.pod.uid).map(|(_, volumes)| volumes.clone()).unwrap_or_default();
        disks.volumes.extend(self.csi.of(&observed.pod.uid));
        disks
    }

    fn forget_removed_pods(&mut self, observed: &[Arc<PodObservation>]) {
        let known = |uid: &PodUid| observed.iter().any(|pod| pod.pod.uid == *uid);
        self.walked.retain(|uid, _| known(uid));
        self.csi.retain(known);
    }

    /// Starts walks that are due, with the calls of drivers, and waits for them up to [`TIMEOUT`].
    async fn walk_volumes(&mut self, observed: &[Arc<PodObservation>]) {
        let (clock, period) = (self.ctx.clock, self.ctx.config().volume_stats_agg_period.as_std());
        if period.is_zero() {
            return;
        }
        let deadline = clock.mono() + TIMEOUT;
        self.forget_removed_pods(observed);
        let is_due = |uid: &PodUid| {
            self.walked.get(uid).is_none_or(|(at, _)| clock.mono().saturating_since(*at) >= period)
        };
        let running = observed.iter().filter(|pod| !pod.is_stopped() && is_due(&pod.pod.uid));
        let mut due: Vec<PodUid> = running.map(|pod| pod.pod.uid.clone()).collect();
        loop {
            while self.walks.len() < WALKS
                && let Some(uid) = due.pop()
            {
                if let Some(entry) = self.pods.get(&uid) {
                    self.walks.spawn(walk(self.ctx.clone(), entry.pod));
                }
            }
            tokio::select! {
                done = self.walks.join_next(), if !self.walks.is_empty() => match done {
                    Some(Ok((pod, volumes, of_drivers))) => {
                        self.walked.insert(PodRef::of(&pod).uid, (clock.mono(), volumes));
                        self.csi.ask(&pod, of_drivers);
                    }
                    Some(Err(_)) => tracing::error!("Measurement of volumes panicked, retrying with the next sample"),
                    None => {}
                },
                () = self.csi.next(), if self.csi.is_asking() => {}
                () = clock.sleep_until(deadline), if !self.walks.is_empty() || self.csi.is_asking() => return,
                else => return,
            }
        }
    }
}

async fn walk(ctx: Arc<Context>, pod: Arc<Pod>) -> Walk {
    let (mut samples, mut of_drivers) = (Vec::new(), Vec::new());
    let volumes = spec_of(&pod).volumes.as_deref().unwrap_or_default();
    for volume in volumes {
        let path = path_of(&*ctx.files, &ctx.settings.paths, &pod, volume).await;
        let Some(path) = path else { continue };
        let claim = claim_of(&pod, volume);
        if let Some(name) = csi_volume_at(&path) {
            of_drivers.push(CsiVolume { volume: volume.name.as_str().into(), name: name.to_owned(), claim });
            continue;
        }
        if !is_measured(&ctx, &path).await {
            continue;
        }
        let began = ctx.clock.mono();
        let used = async {
            match counted(&ctx, &pod, volume, &path).await {
                Some(used) => Ok(used),
                None => ctx.mounts.tree_usage(&path).await,
            }
        };
        let measured = tokio::try_join!(ctx.files.filesystem_space(&path), used);
        let took = ctx.clock.mono().saturating_since(began);
        ctx.metrics.get::<VolumeMetrics>().volume_measured(kind_of(&path), took);
        match measured {
            Ok((space, used)) => samples.push(VolumeSample {
                name: volume.name.as_str().into(),
                claim,
                plugin: plugin_name(kind_of(&path)),
                is_off_disk: is_memory(volume),
                space,
                used,
                is_abnormal: None,
            }),
            Err(error) => {
                tracing::debug!(podUID = %PodRef::of(&pod).uid, volume = volume.name, err = chain(&error), "Failed to measure volume");
            }
        }
    }
    (pod, samples, of_drivers)
}

/// The claim of the volume; that of an ephemeral volume is named after the pod.
fn claim_of(pod: &Pod, volume: &Volume) -> Option<Box<str>> {
    match spec_plan(pod, volume) {
        Ok(SpecPlan::Claim(claim)) => Some(claim.name.into()),
        Ok(SpecPlan::Volume(_)) | Err(_) => None,
    }
}

/// Whether the volume is in memory.
fn is_memory(volume: &Volume) -> bool {
    let empty_dir = volume.empty_dir.as_ref().and_then(|source| source.medium.as_deref());
    empty_dir.is_some_and(|medium| !medium.is_empty())
        || volume.secret.is_some()
        || volume.projected.is_some()
        || volume.downward_api.is_some()
}

/// The directory of the volume plugin: `kubernetes.io~empty-dir`. A path elsewhere is a directory or a device of the node.
fn kind_of(path: &Path) -> &str {
    let parent = path.parent().and_then(|parent| parent.file_name()?.to_str());
    parent.filter(|name| name.contains('~')).unwrap_or("kubernetes.io~local-volume")
}
