//! Images on this node: ensures that an image is present before a container is created, by its pull policy.
//!
//! Owns the pulls under way (at most one for each image and its credentials, shared by all passes that wait for it), the
//! limits on parallel pulls and on the pull rate, and the image-pull back-off. Whether to pull, and every message that users
//! see, is decided in `images_core`.
#![forbid(unsafe_code)]

pub mod garbage_collection;
pub mod metrics;
mod node_keyring;
mod providers;
mod records;
mod turn;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api_agent::objects::PodObjects;
use base_agent::context::Context;
use base_agent::events::Recorder;
use base_agent::metrics::Metrics;
use base_core::backoff::BackoffTable;
use config::KubeletConfiguration;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, WeakShared};
use images_core::access::{ImageAccess, PodCredentials, VerificationPolicy, compute_image_access};
use images_core::garbage_collection::ImageHistory;
use images_core::keyring::{Credential, Keyring, pod_credentials};
use images_core::pull;
use images_core::pull::{ImageProblem, PullDecision, PullPolicy};
use images_core::pull_secrets::PullSecretError;
use jiff::Timestamp;
use model::request::{ImageObservation, ImageRequest, RegistryAuth, SandboxRequest};
use model::{MonoTime, PodRef, RateLimiter};
use parking_lot::Mutex;
use ports::{Clock, HostError, Runtime, RuntimeError};
use tokio::sync::Semaphore;
use volumes_core::image::ImageVolume;

use self::node_keyring::NodeKeyring;
use self::providers::Providers;
pub use self::records::KnownPull;
use self::records::PullRecords;
use self::turn::AwaitedTurn;
use crate::metrics::ImageMetrics;

/// An image that a container waits for, to run it or to mount it.
#[derive(Clone, Copy, Debug)]
pub struct WantedImage<'a> {
    /// The container that events are about; `None` for the whole pod.
    pub container: Option<&'a str>,
    /// As written in the manifest.
    pub image: &'a str,
    /// `imagePullPolicy` of the container, if it is set.
    pub policy: Option<&'a str>,
}

impl<'a> WantedImage<'a> {
    /// The image of an image volume.
    #[must_use]
    pub const fn of_volume(volume: ImageVolume<'a>) -> Self {
        Self { container: None, image: volume.image, policy: volume.pull_policy }
    }
}

/// An image that a container can be created from.
#[derive(Clone, Debug)]
pub struct ReadyImage {
    /// The runtime's reference to the image.
    pub reference: String,
    /// The image's own user, for the runAsNonRoot check.
    pub observed: ImageObservation,
    /// Begin and end of the pull, if the image was not present.
    pub pulled: Option<(MonoTime, MonoTime)>,
}

/// A failure to provide an image: the reason and message of the container's waiting state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {message}")]
pub struct ImageFailure {
    pub reason: &'static str,
    pub message: String,
    /// When the next attempt is due.
    pub retry_at: Option<MonoTime>,
}

/// Why a pull failed: the errors of all credentials that were tried.
#[derive(Clone, Debug)]
struct PullError {
    message: String,
    /// One of the attempts may have pulled the image although its call failed.
    is_uncertain: bool,
}

impl PullError {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_uncertain: false }
    }

    fn of(errors: &[RuntimeError]) -> Self {
        let texts: Vec<String> =
            errors.iter().map(|error| pull::without_unknown_code(&error.rpc_message()).to_owned()).collect();
        Self {
            message: pull::join_errors(&texts),
            is_uncertain: errors.iter().any(RuntimeError::is_uncertain),
        }
    }
}

type PullResult = Result<Pulled, PullError>;
/// The metric labels of a container's request for an image; `None` for what is not known.
#[derive(Clone, Copy, Debug)]
struct ImageCount {
    policy: PullPolicy,
    is_present: Option<bool>,
    must_pull: Option<bool>,
}

/// Pods share a pull only if they have the same credentials: a pod without credentials must not get an image that only
/// others may use. The image of another runtime handler is another one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct PullKey {
    image: String,
    runtime_handler: String,
    credentials: Vec<RegistryAuth>,
}

/// The credentials of a pod's image pull secrets, or why one of them is invalid.
pub type PodKeyring = Result<Keyring, PullSecretError>;

/// The credentials that a pod can pull with.
#[derive(Debug)]
pub struct PodLogin {
    pub keyring: PodKeyring,
    /// Has its service account, for credential providers that need it.
    pub objects: PodObjects,
}

#[derive(Clone, Debug)]
struct Pulled {
    reference: String,
    /// From the start of the pull request.
    took: Duration,
    /// Index of the credentials that worked; `None` if there were none.
    with: Option<usize>,
}

pub struct Images {
    runtime: Arc<dyn Runtime>,
    clock: Clock,
    recorder: Recorder,
    metrics: Metrics,
    keyring: NodeKeyring,
    providers: Providers,
    /// `None` if pulls are not recorded and every pod may use every image that is present.
    checked: Option<(VerificationPolicy, PullRecords)>,
    /// Image calls have the handler of the pod's RuntimeClass.
    sends_handlers: bool,
    slots: Option<Arc<Semaphore>>,
    /// `None`: pulls are not limited.
    limiter: Option<Arc<Mutex<RateLimiter>>>,
    under_way: Mutex<BTreeMap<PullKey, WeakShared<BoxFuture<'static, PullResult>>>>,
    back_off: Mutex<BackOffs>,
    /// Written by garbage collection.
    history: Mutex<ImageHistory>,
}

impl std::fmt::Debug for Images {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Images").field("under_way", &self.under_way.lock().len()).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct BackOffs {
    table: BackoffTable,
    /// The last error of each image, repeated in the message during the back-off.
    last_error: BTreeMap<String, (ImageProblem, String)>,
}

impl Images {
    /// Starts the task that owns the pull records, if pulls are recorded.
    ///
    /// # Errors
    /// The directories of the records cannot be created.
    pub async fn start(ctx: &Context) -> Result<Self, HostError> {
        let (root, settings, config) = (&ctx.settings.paths.root, &ctx.settings, ctx.config());
        let (runtime, files, clock, metrics) = (&ctx.runtime, &ctx.files, ctx.clock, ctx.metrics.clone());
        let checked = match ctx.node_facts.features.pull_records {
            true => {
                let policy = VerificationPolicy::parse(
                    &config.image_pull_credentials_verification_policy,
                    &config.preloaded_images_verification_allowlist,
                );
                let records =
                    PullRecords::start(files.clone(), clock, root, metrics.clone(), &ctx.tasks).await?;
                Some((policy, records))
            }
            false => None,
        };
        metrics.get::<ImageMetrics>().set_config_hash(&settings.credential_providers.hash);
        let configs = &settings.credential_providers.providers;
        let provider_dir = Path::new(&settings.flags.image_credential_provider_bin_dir);
        let max_parallel = config.max_parallel_image_pulls.and_then(|max| usize::try_from(max).ok());
        let max_parallel = if config.serialize_image_pulls { Some(1) } else { max_parallel };
        Ok(Self {
            runtime: runtime.clone(),
            clock,
            recorder: ctx.recorder.clone(),
            keyring: NodeKeyring::new(files.clone(), clock, settings.credential_dirs.clone()),
            providers: Providers::new(configs, provider_dir, &ctx.processes, clock, &metrics),
            metrics,
            checked,
            sends_handlers: ctx.node_facts.features.runtime_class_in_image_calls,
            slots: max_parallel.map(|n| Arc::new(Semaphore::new(n.max(1)))),
            limiter: pull_limiter(config).map(|limiter| Arc::new(Mutex::new(limiter))),
            under_way: Mutex::new(BTreeMap::new()),
            back_off: Mutex::new(BackOffs { table: BackoffTable::image_pull(), last_error: BTreeMap::new() }),
            history: Mutex::default(),
        })
    }

    /// The record of the pulls of an image; `None` if pulls are not recorded.
    pub async fn known_pull(&self, image: &str, image_ref: &str) -> Option<KnownPull> {
        let (_, records) = self.checked.as_ref()?;
        Some(records.lookup(image, image_ref).await)
    }

    /// When garbage collection first observed the image, if after the start of the kubelet, and when it last observed it in use.
    #[must_use]
    pub fn times(&self, id: &str) -> (Option<MonoTime>, Option<MonoTime>) {
        self.history.lock().times(id)
    }

    /// Ensures that an image is present, by its pull policy.
    ///
    /// # Errors
    /// The container's waiting state.
    pub async fn ensure(
        &self,
        pod: &PodRef,
        wanted_by: WantedImage<'_>,
        sandbox: &SandboxRequest,
        login: &PodLogin,
    ) -> Result<ReadyImage, ImageFailure> {
        let policy = PullPolicy::parse(wanted_by.policy);
        let mut counted = ImageCount { policy, is_present: None, must_pull: None };
        let ready = self.ensure_by_policy(pod, wanted_by, sandbox, login, &mut counted).await;
        self.metrics.get::<ImageMetrics>().image_requested(
            policy.label(),
            counted.is_present,
            counted.must_pull,
        );
        ready
    }

    async fn ensure_by_policy(
        &self,
        pod: &PodRef,
        wanted_by: WantedImage<'_>,
        sandbox: &SandboxRequest,
        login: &PodLogin,
        counted: &mut ImageCount,
    ) -> Result<ReadyImage, ImageFailure> {
        let wanted = wanted_by.image;
        let normal = images_core::name::with_default_tag(wanted).map_err(|e| {
            self.refuse(pod, wanted_by, Some("InspectFailed"), ImageProblem::InvalidName, e.waiting_message())
        })?;
        let request = ImageRequest {
            image: normal,
            annotations: sandbox.annotations.clone(),
            runtime_handler: self.runtime_handler(sandbox),
        };
        let present = self.inspect(pod, wanted_by, &request, counted).await?;
        let cannot_login =
            |error: PullSecretError| self.refuse(pod, wanted_by, None, ImageProblem::Pull, error.to_string());
        let mut decision = pull::compute_pull(counted.policy, present.is_some());
        if let (PullDecision::UsePresent, Some(observed)) = (decision, &present) {
            let may_use = self.may_use(&request.image, &observed.id, login).await.map_err(cannot_login)?;
            counted.must_pull = Some(!may_use);
            // An image that the pod may not use counts as absent.
            decision = pull::compute_pull(counted.policy, may_use);
        }
        match (decision, present) {
            (PullDecision::UsePresent, Some(observed)) => {
                let message = pull::already_present_message(wanted);
                self.recorder.normal(pod, wanted_by.container, "Pulled", message);
                let reference = if observed.id.is_empty() { request.image } else { observed.id.clone() };
                Ok(ReadyImage { reference, observed, pulled: None })
            }
            (PullDecision::Refuse, _) => {
                let message = pull::never_pull_message(wanted);
                let event = Some(ImageProblem::NeverPull.as_str());
                Err(self.refuse(pod, wanted_by, event, ImageProblem::NeverPull, message))
            }
            (PullDecision::Pull | PullDecision::UsePresent, _) => {
                counted.must_pull = Some(true);
                let credentials = self.credentials(login, &request.image).await.map_err(cannot_login)?;
                self.pull(pod, wanted_by, request, credentials, sandbox).await
            }
        }
    }

    /// The handler for which images of the pod are pulled and mounted; empty unless it is part of image calls.
    #[must_use]
    pub fn runtime_handler(&self, sandbox: &SandboxRequest) -> String {
        if self.sends_handlers { sandbox.runtime_handler.clone() } else { String::new() }
    }

    /// The image in the runtime. An image that is pulled in any case is not inspected first.
    async fn inspect(
        &self,
        pod: &PodRef,
        wanted_by: WantedImage<'_>,
        request: &ImageRequest,
        counted: &mut ImageCount,
    ) -> Result<Option<ImageObservation>, ImageFailure> {
        if counted.policy == PullPolicy::Always {
            return Ok(None);
        }
        let present = self.runtime.image_status(request).await.map_err(|e| {
            let message = pull::inspect_failed_message(&e.rpc_message());
            self.refuse(pod, wanted_by, Some("InspectFailed"), ImageProblem::Inspect, message)
        })?;
        counted.is_present = Some(present.is_some());
        Ok(present)
    }

    /// Reports the images of the runtime: pull records of other images are removed.
    async fn record_listing(&self, listed_at: Timestamp, images: Vec<ImageObservation>) {
        if let Some((_, records)) = &self.checked {
            records.record_listing(listed_at, images).await;
        }
    }

    /// Credentials in the order in which they are tried: those of the pod, of the node, and of credential providers.
    async fn credentials(&self, login: &PodLogin, image: &str) -> Result<Vec<Credential>, PullSecretError> {
        let mut credentials = login.keyring.as_ref().map_err(Clone::clone)?.credentials_for(image);
        credentials.extend(self.keyring.current().await.credentials_for(image));
        for keyring in self.providers.keyrings(image, &login.objects).await {
            credentials.extend(keyring.credentials_for(image));
        }
        Ok(credentials)
    }

    /// Whether the pod may use an image that is present. Its credentials are read only if they matter.
    async fn may_use(&self, image: &str, image_ref: &str, login: &PodLogin) -> Result<bool, PullSecretError> {
        let Some((policy, records)) = &self.checked else { return Ok(true) };
        let known = records.lookup(image, image_ref).await;
        let record = known.record.as_ref();
        let decide =
            |pod: &PodCredentials| compute_image_access(policy, image, record, known.was_intended, pod);
        let mut access = decide(&PodCredentials::default());
        if access == ImageAccess::MustPull {
            access = decide(&pod_credentials(&self.credentials(login, image).await?));
        }
        self.metrics.get::<ImageMetrics>().checked(&access);
        match access {
            ImageAccess::NotVerified | ImageAccess::Granted => Ok(true),
            ImageAccess::GrantedAndRecorded(recorded) => {
                records.record(image, image_ref, recorded).await;
                Ok(true)
            }
            ImageAccess::MustPull => Ok(false),
        }
    }

    async fn pull(
        &self,
        pod: &PodRef,
        wanted_by: WantedImage<'_>,
        request: ImageRequest,
        credentials: Vec<Credential>,
        sandbox: &SandboxRequest,
    ) -> Result<ReadyImage, ImageFailure> {
        let wanted = wanted_by.image;
        let key = format!("{}_{}", pod.uid, request.image);
        self.check_back_off(pod, wanted_by, &key)?;
        self.recorder.normal(pod, wanted_by.container, "Pulling", pull::pulling_message(wanted));
        let waited_from = self.clock.mono();
        let intent = match &self.checked {
            Some((_, records)) => Some(records.intend(wanted).await.map_err(|problem| {
                let message = pull::not_noted_message(wanted, &problem);
                self.refuse(pod, wanted_by, None, ImageProblem::Pull, message)
            })?),
            None => None,
        };
        let auths = credentials.iter().map(|credential| credential.auth.clone()).collect();
        match self.join_pull(pod, wanted_by, &request, auths, sandbox).await {
            Ok((pulled, is_first)) => {
                let observed = self.runtime.image_status(&request).await.ok().flatten().unwrap_or_default();
                if let Some(intent) = intent {
                    let image_ref = if observed.id.is_empty() { &pulled.reference } else { &observed.id };
                    let with = pulled.with.and_then(|index| credentials.get(index));
                    intent
                        .succeeded(image_ref, pod_credentials(with.map_or(&[], std::slice::from_ref)))
                        .await;
                }
                if is_first {
                    self.metrics.get::<ImageMetrics>().pulled(observed.size_bytes, pulled.took);
                }
                let now = self.clock.mono();
                let waited = now.saturating_since(waited_from);
                let message = pull::pulled_message(wanted, pulled.took, waited, observed.size_bytes);
                self.recorder.normal(pod, wanted_by.container, "Pulled", message);
                self.back_off.lock().last_error.remove(&key);
                Ok(ReadyImage { reference: pulled.reference, observed, pulled: Some((waited_from, now)) })
            }
            Err(error) => {
                // After an uncertain failure the image may be present. The intent then shows that it was not preloaded.
                if let Some(intent) = intent.filter(|_| !error.is_uncertain) {
                    intent.failed().await;
                }
                let (problem, message) = pull::classify_pull_error(wanted, &error.message);
                let retry_at = self.record_failure(&key, problem, &message);
                let event = pull::failed_message(wanted, &error.message);
                self.recorder.warning(pod, wanted_by.container, "Failed", event);
                let failure = self.refuse(pod, wanted_by, None, problem, message);
                Err(ImageFailure { retry_at: Some(retry_at), ..failure })
            }
        }
    }

    /// Joins the pull of this image that is under way, or begins one. When no pass waits for it any more, it is abandoned.
    /// Returns whether this caller began it.
    async fn join_pull(
        &self,
        pod: &PodRef,
        wanted_by: WantedImage<'_>,
        request: &ImageRequest,
        credentials: Vec<RegistryAuth>,
        sandbox: &SandboxRequest,
    ) -> Result<(Pulled, bool), PullError> {
        let (image, runtime_handler) = (request.image.clone(), request.runtime_handler.clone());
        let key = PullKey { image, runtime_handler, credentials };
        let shared = {
            let mut under_way = self.under_way.lock();
            under_way.retain(|_, pull| pull.upgrade().is_some());
            match under_way.get(&key).and_then(WeakShared::upgrade) {
                Some(shared) => shared,
                None => {
                    // A pull that waits is shown at the pod that wanted the image first.
                    let must_wait = self.slots.as_ref().is_some_and(|slots| slots.available_permits() == 0);
                    let turn = must_wait
                        .then(|| AwaitedTurn::new(&self.recorder.trails, &pod.uid, wanted_by.container));
                    let pull =
                        self.pull_in_turn(turn, request.clone(), key.credentials.clone(), sandbox.clone());
                    let shared = pull.boxed().shared();
                    if let Some(weak) = shared.downgrade() {
                        under_way.insert(key.clone(), weak);
                    }
                    shared
                }
            }
        };
        let result = shared.await;
        let is_first = self.under_way.lock().remove(&key).is_some();
        result.map(|pulled| (pulled, is_first))
    }

    fn pull_in_turn(
        &self,
        turn: Option<AwaitedTurn>,
        request: ImageRequest,
        credentials: Vec<RegistryAuth>,
        sandbox: SandboxRequest,
    ) -> impl Future<Output = PullResult> + Send + use<> {
        let (runtime, clock) = (self.runtime.clone(), self.clock);
        let (slots, limiter) = (self.slots.clone(), self.limiter.clone());
        async move {
            // First come, first served. The Go kubelet queues ten serial pulls and blocks the sender of the next one, with
            // the same order and outcome.
            let _slot = match &slots {
                Some(slots) => slots.acquire().await.ok(),
                None => None,
            };
            drop(turn);
            // Pulls that wait for a slot do not count yet.
            if limiter.is_some_and(|limiter| !limiter.lock().try_take(clock.mono())) {
                return Err(PullError::new("pull QPS exceeded"));
            }
            let began = clock.mono();
            let (reference, with) = pull_with_any(&*runtime, &request, &credentials, &sandbox).await?;
            Ok(Pulled { reference, took: clock.mono().saturating_since(began), with })
        }
    }

    fn check_back_off(
        &self,
        pod: &PodRef,
        wanted_by: WantedImage<'_>,
        key: &str,
    ) -> Result<(), ImageFailure> {
        let back_off = self.back_off.lock();
        let now = self.clock.mono();
        let Some(delay) = back_off.table.pending(key, now) else { return Ok(()) };
        let last = back_off.last_error.get(key).map(|(problem, error)| (*problem, error.as_str()));
        let message = pull::back_off_message(wanted_by.image, last);
        drop(back_off);
        self.recorder.normal(pod, wanted_by.container, "BackOff", pull::back_off_event(wanted_by.image));
        Err(ImageFailure { reason: ImageProblem::BackOff.as_str(), message, retry_at: Some(delay.until) })
    }

    /// Starts a back-off, and returns its end.
    fn record_failure(&self, key: &str, problem: ImageProblem, message: &str) -> MonoTime {
        let mut back_off = self.back_off.lock();
        let now = self.clock.mono();
        back_off.table.gc(now);
        let delay = back_off.table.record(key, now, now);
        back_off.last_error.insert(key.to_owned(), (problem, message.to_owned()));
        let BackOffs { table, last_error } = &mut *back_off;
        last_error.retain(|key, _| table.pending(key, now).is_some());
        now + delay
    }

    /// Returns the failure, and records the event about its cause if there is one. The caller records the event that the
    /// container failed.
    fn refuse(
        &self,
        pod: &PodRef,
        wanted_by: WantedImage<'_>,
        event: Option<&'static str>,
        problem: ImageProblem,
        message: String,
    ) -> ImageFailure {
        if let Some(event) = event {
            self.recorder.warning(pod, wanted_by.container, event, message.clone());
        }
        ImageFailure { reason: problem.as_str(), message, retry_at: None }
    }
}

/// Tries the matching credentials until one works, and returns its index.
async fn pull_with_any(
    runtime: &dyn Runtime,
    request: &ImageRequest,
    credentials: &[RegistryAuth],
    sandbox: &SandboxRequest,
) -> Result<(String, Option<usize>), PullError> {
    if credentials.is_empty() {
        let pulled = runtime.pull_image(request, None, sandbox).await;
        return pulled.map(|reference| (reference, None)).map_err(|error| PullError::of(&[error]));
    }
    let mut errors = Vec::new();
    for (index, auth) in credentials.iter().enumerate() {
        match runtime.pull_image(request, Some(auth), sandbox).await {
            Ok(reference) => return Ok((reference, Some(index))),
            Err(error) => errors.push(error),
        }
    }
    Err(PullError::of(&errors))
}

/// `registryPullQPS` and `registryBurst`; a QPS of 0 is no limit.
fn pull_limiter(config: &KubeletConfiguration) -> Option<RateLimiter> {
    let burst = u32::try_from(config.registry_burst).unwrap_or(1);
    let is_limited = config.registry_pull_qps > 0;
    is_limited.then(|| RateLimiter::new(config.registry_pull_qps.into(), burst, MonoTime::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pull_qps_of_zero_is_no_limit() {
        let limiter = |qps| {
            pull_limiter(&KubeletConfiguration { registry_pull_qps: qps, ..KubeletConfiguration::default() })
        };
        assert!(limiter(0).is_none());
        assert!(limiter(1).is_some());
    }
}
