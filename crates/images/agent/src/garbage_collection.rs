//! Image garbage collection (docs/behaviour/images.md): periodically, and at once under disk pressure.
//!
//! Writes the history of each image's use. Which images to remove, in which order, is decided in `images_core::garbage_collection`.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::Images;
use crate::metrics::ImageMetrics;
use base_agent::cache::PodCache;
use base_agent::context::Context;
use base_agent::pods_view::{PodEntry, PodsView};
use base_agent::removers::Remover;
use images_core::garbage_collection::{
    FREE_DISK_SPACE_FAILED, IMAGE_GC_FAILED, INVALID_DISK_CAPACITY, INVALID_IMAGE_ID, ImageGcPolicy,
    ImageGcReason, ImageUse, SpareImage, compute_need, invalid_id_message, not_enough_message,
    not_removed_message, old_not_removed_message,
};
use model::MonoTime;
use model::containers::{all_containers, spec_of};
use model::k8s::Pod;
use model::request::{ImageObservation, ImageRequest};
use stats_agent::{FRESH, Samplers};
use tokio::sync::{mpsc, oneshot};

const PERIOD: Duration = Duration::from_secs(300);
/// Retry interval until the runtime has listed its images once.
const FIRST_RETRY: Duration = Duration::from_secs(10);
/// Retry interval until every pod was inspected once, which takes a moment after the start.
const FIRST_POLL: Duration = Duration::from_secs(1);

/// Bytes to free when all unused images are removed: the largest number, as in messages of the Go kubelet.
const EVERYTHING: u64 = i64::MAX.unsigned_abs();

const UNKNOWN: &str = "images in use are not known yet";

pub struct ImageGarbageCollector {
    ctx: Arc<Context>,
    cache: PodCache,
    pods: PodsView,
    images: Arc<Images>,
    samplers: Samplers,
    requests: mpsc::Receiver<oneshot::Sender<bool>>,
    began: MonoTime,
    /// The last pass failed, too.
    has_failed: bool,
    has_listed: bool,
}

/// Result of removals.
struct Removal {
    freed: u64,
    errors: Vec<String>,
}

impl std::fmt::Debug for ImageGarbageCollector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageGarbageCollector").field("has_listed", &self.has_listed).finish_non_exhaustive()
    }
}

impl ImageGarbageCollector {
    #[must_use]
    pub fn new(
        ctx: Arc<Context>,
        cache: PodCache,
        pods: PodsView,
        images: Arc<Images>,
        samplers: Samplers,
    ) -> (Self, Remover) {
        // The only sender waits for each answer.
        let (sender, requests) = mpsc::channel(1);
        let began = ctx.clock.mono();
        let collector = Self {
            ctx,
            cache,
            pods,
            images,
            samplers,
            requests,
            began,
            has_failed: false,
            has_listed: false,
        };
        (collector, sender)
    }

    /// Runs until all senders are dropped. Every image counts as in use until the runtime's pods are known.
    pub async fn run(mut self) {
        let mut listings = self.cache.listings();
        if listings.wait_for(Option::is_some).await.is_err() {
            return;
        }
        loop {
            if self.has_listed || self.used().is_ok() {
                self.pass().await;
            }
            let next = self.ctx.clock.mono() + self.period();
            loop {
                tokio::select! {
                    request = self.requests.recv() => match request {
                        Some(done) => self.remove_unused(done).await,
                        None => return,
                    },
                    () = self.ctx.clock.sleep_until(next) => break,
                }
            }
        }
    }

    fn period(&self) -> Duration {
        match (self.has_listed, self.used()) {
            (true, _) => PERIOD,
            (false, Ok(_)) => FIRST_RETRY,
            (false, Err(_)) => FIRST_POLL,
        }
    }

    /// One pass. A failure is an event only the second time in a row, because the runtime may have just started.
    async fn pass(&mut self) {
        let Err(problem) = self.collect().await else {
            self.has_failed = false;
            return;
        };
        if self.has_failed {
            tracing::error!(problem, "Image garbage collection failed multiple times in a row");
            self.ctx.recorder.node_warning(IMAGE_GC_FAILED, problem);
        } else {
            tracing::warn!(problem, "Image garbage collection failed");
        }
        self.has_failed = true;
    }

    async fn collect(&mut self) -> Result<(), String> {
        let policy = self.policy();
        let mut spare = self.list_unused().await?;
        let now = self.ctx.clock.mono();
        let outworn = self.images.history.lock().outworn(&spare, &policy, self.began, now);
        let aged = self.remove(&outworn, u64::MAX, ImageGcReason::Age).await;
        if !aged.errors.is_empty() {
            return Err(old_not_removed_message(policy.age_max.unwrap_or_default(), &aged.errors));
        }
        spare.retain(|image| !outworn.contains(image));
        let sample = self.samplers.filesystems(FRESH).await;
        let space = sample.and_then(|sample| sample.images.as_ref().map(|images| images.space));
        let space = space.ok_or("failed to get image stats: the runtime reports no image filesystem")?;
        let need = compute_need(space.capacity_bytes, space.available_bytes, &policy).map_err(|error| {
            self.ctx.recorder.node_warning(INVALID_DISK_CAPACITY, error.to_string());
            error.to_string()
        })?;
        let Some(need) = need else { return Ok(()) };
        tracing::info!(
            need.used_percent,
            need.bytes,
            "Disk usage on image filesystem is over the high threshold, removing unused images"
        );
        let settled = self.images.history.lock().settled(&spare, &policy, now);
        let removal = self.remove(&settled, need.bytes, ImageGcReason::Space).await;
        refuse_errors(need.bytes, &removal)?;
        if removal.freed < need.bytes {
            let message = not_enough_message(&need, removal.freed);
            self.ctx.recorder.node_warning(FREE_DISK_SPACE_FAILED, message.clone());
            return Err(message);
        }
        Ok(())
    }

    fn policy(&self) -> ImageGcPolicy {
        ImageGcPolicy::of(self.ctx.config())
    }

    /// Under disk pressure: removes all unused images except new ones.
    async fn remove_unused(&mut self, done: oneshot::Sender<bool>) {
        let mut is_less = false;
        match self.list_unused().await {
            Ok(spare) => {
                let settled =
                    self.images.history.lock().settled(&spare, &self.policy(), self.ctx.clock.mono());
                let removal = self.remove(&settled, EVERYTHING, ImageGcReason::Space).await;
                is_less = removal.freed > 0;
                if let Err(problem) = refuse_errors(EVERYTHING, &removal) {
                    tracing::warn!(problem, "Failed to remove some unused images");
                }
            }
            Err(problem) => tracing::warn!(problem, "Failed to detect unused images, keeping them"),
        }
        // The sender may have stopped waiting.
        let _ = done.send(is_less);
    }

    /// Lists the unused images, and passes the full list on to the pull records.
    async fn list_unused(&mut self) -> Result<Vec<SpareImage>, String> {
        let (ctx, listed_at) = (self.ctx.clone(), self.ctx.clock.now());
        let images = ctx.runtime.list_images().await.map_err(|error| error.to_string())?;
        if ctx.node_facts.features.runtime_class_in_image_calls {
            self.check_handlers(&images);
        }
        let spare = self.images.history.lock().record(&images, &self.used()?, listed_at.mono);
        if !std::mem::replace(&mut self.has_listed, true) {
            tracing::info!(images = images.len(), unused = spare.len(), "Determined which images are in use");
        }
        self.images.record_listing(listed_at.wall, images).await;
        Ok(spare)
    }

    /// Reports images without an id, which cannot be removed. Images without a handler are usual: few runtimes report handlers.
    fn check_handlers(&self, images: &[ImageObservation]) {
        for image in images.iter().filter(|image| image.id.is_empty()) {
            self.ctx.recorder.node_warning(INVALID_IMAGE_ID, invalid_id_message(&image.runtime_handler));
        }
        for image in images.iter().filter(|image| image.runtime_handler.is_empty()) {
            tracing::debug!(
                image = image.id,
                "The container runtime reports no runtime handler for an image"
            );
        }
    }

    /// The images of all containers, running or not, and of pods that may still run. Containers of a pod that was not inspected yet, or
    /// cannot be, have those of the listing: one such pod must not keep the disk from being freed.
    fn used(&self) -> Result<ImageUse, String> {
        let cache = &self.cache;
        // Unknown is not unused.
        let listed = cache.presence().ok_or(UNKNOWN)?;
        let unseen = cache.listed_images();
        let mut ids: BTreeSet<String> = unseen.values().flatten().map(|id| id.to_string()).collect();
        for observed in listed.keys().filter_map(|uid| cache.get(uid)) {
            ids.extend(observed.containers.iter().map(|container| container.image_id.clone()));
        }
        let entries = self.pods.all();
        let is_here = |entry: &PodEntry| listed.contains_key(&entry.identity.uid);
        let pods = entries.iter().filter(|entry| entry.progress.may_run() || is_here(entry));
        let wanted = |entry: &PodEntry| -> Vec<String> { wanted_by(&entry.pod).map(str::to_owned).collect() };
        Ok(ImageUse { ids, references: pods.flat_map(wanted).collect() })
    }

    /// Removes images one after another, until enough is free.
    async fn remove(&self, images: &[SpareImage], wanted: u64, why: ImageGcReason) -> Removal {
        let mut removal = Removal { freed: 0, errors: Vec::new() };
        for image in images {
            if removal.freed >= wanted {
                break;
            }
            let request = ImageRequest { image: image.id.clone(), ..ImageRequest::default() };
            match self.ctx.runtime.remove_image(&request).await {
                Ok(()) => {
                    tracing::info!(image = image.id, image.size_bytes, reason = ?why, "Removing unused image");
                    removal.freed = removal.freed.saturating_add(image.size_bytes);
                    self.ctx.metrics.get::<ImageMetrics>().collected(why);
                }
                Err(error) => removal.errors.push(error.message()),
            }
        }
        removal
    }
}

/// The images that a pod names, for its containers and volumes.
fn wanted_by(pod: &Pod) -> impl Iterator<Item = &str> {
    let of_containers = all_containers(pod).map(|container| container.image());
    let volumes = spec_of(pod).volumes.iter().flatten();
    of_containers.chain(volumes.filter_map(|volume| volume.image.as_ref()?.reference.as_deref()))
}

fn refuse_errors(wanted: u64, removal: &Removal) -> Result<(), String> {
    match removal.errors.as_slice() {
        [] => Ok(()),
        errors => Err(not_removed_message(wanted, removal.freed, errors)),
    }
}
