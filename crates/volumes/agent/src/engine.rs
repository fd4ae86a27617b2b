//! The task that mounts and tears down the volumes of all pods.
//!
//! ```text
//! requests, ends of acts, time --> PodVolumes::on_event (volumes_core::engine) --> acts, answers
//! ```
//! Owns: every act on a volume. An act continues when its pod's worker turns to something else, so each act is known and no two
//! work on one volume. A pod whose volumes are settled is forgotten: the mount table shows what is mounted.

use std::collections::BTreeMap;
use std::sync::Arc;

use api_agent::node_allocatable::NodeAllocatable;
use api_agent::objects::PodObjects;
use api_agent::reflector::StoreReader;
use base_agent::context::Context;
use base_agent::tasks::guarded;
use model::containers::spec_of;
use model::k8s::{Node, Volume};
use model::{MonoTime, PodUid};
use ports::Cluster;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use volumes_core::engine::{
    PodVolumes, Reaction, ReadyVolume, Verdict, VolumeAct, VolumeEvent, node_is_full, timed_out,
};
use volumes_core::image::is_image;
use volumes_core::types::is_known_plugin;
use volumes_core::{has_payload, may_have_driver};

use super::csi::Csi;
use super::flex::ensure_driver_dir;
use super::indexed_pod::IndexedPod;
use super::mount::{MountOutcome, Wanted, mount};
use super::shared::Shared;
use super::tear_down::tear_down;
use super::{
    MountRequest, PodVolumesReport, ReadyVolumes, Request, Requests, VolumeError, VolumeReports, found,
};
use crate::metrics::VolumeMetrics;

type Answer<T> = oneshot::Sender<Result<T, VolumeError>>;

/// The request of the pod's worker that waits for an answer.
#[derive(Debug, Default)]
enum Waiter {
    #[default]
    None,
    Mounted(Answer<ReadyVolumes>),
    Released(Answer<()>),
}

/// A pod with an act under way, or one that failed and is in back-off.
#[derive(Debug)]
struct Tracked {
    request: Option<(Arc<IndexedPod>, PodObjects)>,
    volumes: PodVolumes,
    waiter: Waiter,
    wake_at: Option<MonoTime>,
    /// When a worker first requested volumes that are not all mounted yet.
    requested_at: MonoTime,
    /// Why the volumes could not be torn down.
    stuck_on: String,
    /// Cancelled when the pod's volumes are to be torn down: long work in them ends.
    terminating: CancellationToken,
}

/// How an act ended.
enum Ended {
    Mount { volume: Box<str>, outcome: MountOutcome },
    TearDown(Result<(), String>),
}

#[derive(Debug)]
pub(crate) struct VolumeEngine {
    ctx: Arc<Context>,
    requests: Requests,
    shared: Arc<Shared>,
    pods: BTreeMap<PodUid, Tracked>,
    acts: JoinSet<(PodUid, Ended)>,
}

impl std::fmt::Debug for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ended").finish_non_exhaustive()
    }
}

impl VolumeEngine {
    pub(crate) fn new(
        ctx: Arc<Context>,
        cluster: Option<Arc<dyn Cluster>>,
        own_node: StoreReader<Node>,
        allocatable: NodeAllocatable,
        csi: Csi,
        requests: Requests,
    ) -> Self {
        let (devices, projects, payloads, flex) = Default::default();
        let shared =
            Arc::new(Shared { cluster, allocatable, own_node, devices, csi, flex, projects, payloads });
        Self { ctx, requests, shared, pods: BTreeMap::new(), acts: JoinSet::new() }
    }

    /// Runs until no handle is left that could send a request. Every select arm is cancel safe.
    pub(crate) async fn run(mut self) {
        self.ctx.tasks.spawn_isolated("volumes found", count_found(self.ctx.clone()));
        self.ctx.tasks.spawn("staged volumes", self.shared.csi.staged.clone().run());
        self.ctx.tasks.spawn_isolated("FlexVolume drivers", ensure_driver_dir(self.ctx.clone()));
        let found = found::report(self.ctx.clone(), self.shared.clone(), self.requests.found.clone());
        self.ctx.tasks.spawn("attached volumes", found);
        let mut registrations = self.shared.csi.drivers.registrations();
        loop {
            let clock = self.ctx.clock;
            let wake_at = self.pods.values().filter_map(|tracked| tracked.wake_at).min();
            tokio::select! {
                request = self.requests.received.recv() => match request {
                    Some(request) => self.handle_request(request),
                    None => return,
                },
                Some(ended) = self.acts.join_next(), if !self.acts.is_empty() => match ended {
                    Ok((uid, ended)) => self.handle_end(&uid, ended),
                    // Acts catch their own panics: `guarded`.
                    Err(error) => tracing::error!(err = %error, "Volume operation was lost"),
                },
                Ok(()) = registrations.changed() => self.retry_all(),
                () = clock.sleep_until_some(wake_at) => self.wake(),
            }
        }
    }

    fn handle_request(&mut self, request: Request) {
        match request {
            Request::Mount { request, is_refresh, answer } => self.handle_mount(request, is_refresh, answer),
            Request::Changed(uid) => {
                if self.pods.contains_key(&uid) {
                    self.handle_event(&uid, VolumeEvent::Changed);
                }
            }
            Request::Release { uid, answer } => {
                let tracked = self.track(&uid);
                tracked.waiter = Waiter::Released(answer);
                tracked.terminating.cancel();
                self.handle_event(&uid, VolumeEvent::Unwanted);
            }
            Request::Report(answer) => drop(answer.send(self.report())),
        }
    }

    fn report(&self) -> VolumeReports {
        let of_pod = |(uid, tracked): (&PodUid, &Tracked)| {
            let awaited = self.shared.csi.awaited.of(uid).into_iter();
            let report = PodVolumesReport {
                volumes: tracked.volumes.report(),
                awaited: awaited.map(|(volume, on)| (volume, (on.attachment, on.driver))).collect(),
                stuck_on: tracked.stuck_on.clone(),
            };
            (uid.clone(), report)
        };
        self.pods.iter().map(of_pod).collect()
    }

    fn handle_mount(&mut self, request: MountRequest, is_refresh: bool, answer: Answer<ReadyVolumes>) {
        let MountRequest { pod, objects } = request;
        let pod = Arc::new(IndexedPod::new(pod));
        let uid = pod.identity().uid.clone();
        let all = spec_of(pod.get()).volumes.iter().flatten();
        let csi = &self.shared.csi;
        let has_growing = self.shared.flex.has_growing(&uid);
        let is_refreshed = |volume: &Volume| {
            has_payload(volume) || csi.is_refreshed(&uid, volume) || (has_growing && may_have_driver(volume))
        };
        let wanted = all.filter(|volume| !is_image(volume) && (!is_refresh || is_refreshed(volume)));
        let volumes = wanted.map(|volume| Box::from(&*volume.name)).collect();
        let tracked = self.track(&uid);
        tracked.request = Some((pod, objects));
        tracked.waiter = Waiter::Mounted(answer);
        tracked.terminating = CancellationToken::new();
        self.handle_event(&uid, VolumeEvent::Wanted { volumes, is_retried: !is_refresh });
    }

    fn track(&mut self, uid: &PodUid) -> &mut Tracked {
        let now = self.ctx.clock.mono();
        self.pods.entry(uid.clone()).or_insert_with(|| Tracked {
            requested_at: now,
            request: None,
            volumes: PodVolumes::default(),
            waiter: Waiter::None,
            wake_at: None,
            stuck_on: String::new(),
            terminating: CancellationToken::new(),
        })
    }

    fn handle_end(&mut self, uid: &PodUid, ended: Ended) {
        match ended {
            Ended::Mount { volume, outcome } => {
                self.report_failure(uid, &outcome);
                self.handle_event(uid, VolumeEvent::MountEnded { volume, attempt: outcome.attempt });
            }
            Ended::TearDown(result) => {
                let is_gone = result.is_ok();
                if let (Some(tracked), Err(why)) = (self.pods.get_mut(uid), result) {
                    tracked.stuck_on = why;
                }
                self.handle_event(uid, VolumeEvent::TearDownEnded { is_gone });
            }
        }
    }

    /// Each failure becomes an event, also if the worker does not wait any more.
    fn report_failure(&self, uid: &PodUid, outcome: &MountOutcome) {
        let request = self.pods.get(uid).and_then(|tracked| tracked.request.as_ref());
        if let (Some((pod, _)), Some(failure)) = (request, &outcome.failure) {
            self.ctx.recorder.warning(pod.identity(), None, failure.reason, failure.message.clone());
        }
    }

    fn wake(&mut self) {
        let now = self.ctx.clock.mono();
        let due = |(_, tracked): &(&PodUid, &Tracked)| tracked.wake_at.is_some_and(|at| at <= now);
        let due: Vec<PodUid> = self.pods.iter().filter(due).map(|(uid, _)| uid.clone()).collect();
        for uid in due {
            let has_waiter = self.pods.get(&uid).is_some_and(|tracked| tracked.waiter.is_waiting());
            self.handle_event(&uid, if has_waiter { VolumeEvent::Wake } else { VolumeEvent::NoWaiter });
        }
    }

    /// A driver registered, which any pod may be waiting for.
    fn retry_all(&mut self) {
        let pods: Vec<PodUid> = self.pods.keys().cloned().collect();
        for uid in pods {
            self.handle_event(&uid, VolumeEvent::Changed);
        }
    }

    /// Passes one event through the state machine of the pod, and carries out what follows.
    fn handle_event(&mut self, uid: &PodUid, event: VolumeEvent) {
        let now = self.ctx.clock.mono();
        let Some(tracked) = self.pods.get_mut(uid) else { return };
        let Reaction { acts, verdict, wake_at } = tracked.volumes.on_event(event, now);
        tracked.wake_at = wake_at;
        if let Some(verdict) = verdict {
            tracked.answer(uid, verdict, &self.ctx, &self.shared.csi);
        }
        for act in acts {
            self.begin(uid, act);
        }
        let is_settled = |tracked: &Tracked| tracked.volumes.is_settled() && !tracked.waiter.is_waiting();
        if self.pods.get(uid).is_some_and(is_settled) {
            self.pods.remove(uid);
        }
    }

    fn begin(&mut self, uid: &PodUid, act: VolumeAct) {
        let Some(tracked) = self.pods.get(uid) else { return };
        let (ctx, shared, uid) = (self.ctx.clone(), self.shared.clone(), uid.clone());
        match act {
            VolumeAct::Mount { volume, is_uncertain } => {
                let Some((pod, objects)) = tracked.request.clone() else { return };
                let (terminating, requested_at) = (tracked.terminating.clone(), tracked.requested_at);
                self.acts.spawn(async move {
                    let (pod, objects) = (&*pod, &objects);
                    let wanted = Wanted { pod, objects, volume: &volume, is_uncertain, requested_at };
                    let work = Box::pin(mount(&ctx, wanted, &shared, &terminating));
                    let outcome = guarded(work).await.unwrap_or_else(MountOutcome::panicked);
                    (uid, Ended::Mount { volume, outcome })
                });
            }
            VolumeAct::TearDown => {
                self.acts.spawn(async move {
                    let work = Box::pin(tear_down(&ctx, &shared, &uid));
                    let result =
                        guarded(work).await.unwrap_or_else(|| Err("the tear-down panicked".to_owned()));
                    (uid, Ended::TearDown(result))
                });
            }
        }
    }
}

/// Counts the volumes that an earlier kubelet left, for metrics only: each volume is inspected when it is mounted or torn down.
async fn count_found(ctx: Arc<Context>) {
    let (files, paths) = (&*ctx.files, &ctx.settings.paths);
    for uid in files.list_names(&paths.pods()).await.unwrap_or_default() {
        let volumes = paths.pods().join(uid).join("volumes");
        for plugin in files.list_names(&volumes).await.unwrap_or_default() {
            let names = files.list_names(&volumes.join(&plugin)).await.unwrap_or_default();
            names.iter().for_each(|_| ctx.metrics.get::<VolumeMetrics>().found(is_known_plugin(&plugin)));
        }
    }
}

/// Why the pod's volumes are not mounted in time.
async fn why_unmounted(csi: &Csi, pod: &PodUid, unmounted: &[String]) -> VolumeError {
    let mut awaited = csi.awaited.of(pod);
    awaited.retain(|volume, _| unmounted.contains(volume));
    let unattached: Vec<String> = awaited.keys().cloned().collect();
    match csi.is_node_full(&awaited).await {
        true => VolumeError::NodeIsFull(node_is_full(unmounted, &unattached)),
        false => VolumeError::TimedOut(timed_out(unmounted, &unattached)),
    }
}

impl Waiter {
    fn is_waiting(&self) -> bool {
        match self {
            Self::None => false,
            Self::Mounted(answer) => !answer.is_closed(),
            Self::Released(answer) => !answer.is_closed(),
        }
    }
}

impl Tracked {
    /// Answers the waiting worker, if the verdict is about its request; a worker that has left needs no answer.
    fn answer(&mut self, uid: &PodUid, verdict: Verdict, ctx: &Context, csi: &Csi) {
        let waiter = std::mem::take(&mut self.waiter);
        match (waiter, verdict) {
            (Waiter::Mounted(answer), Verdict::Ready | Verdict::Tried) => {
                let owned = |(name, volume): (&str, &ReadyVolume)| (Box::from(name), volume.clone());
                let _ = answer.send(Ok(self.volumes.ready().map(owned).collect()));
            }
            (Waiter::Mounted(answer), Verdict::TimedOut(unmounted)) => {
                let (csi, uid) = (csi.clone(), uid.clone());
                // It may ask the API server, and the engine waits for nothing.
                ctx.tasks.spawn_isolated("end of a wait for volumes", async move {
                    let _ = answer.send(Err(why_unmounted(&csi, &uid, &unmounted).await));
                });
            }
            (Waiter::Mounted(answer), Verdict::Missing(text)) => {
                let _ = answer.send(Err(VolumeError::Missing(text)));
            }
            (Waiter::Released(answer), Verdict::Gone) => {
                let _ = answer.send(Ok(()));
            }
            (Waiter::Released(answer), Verdict::Stuck) => {
                let (pod, detail) = (uid.clone(), self.stuck_on.clone());
                let _ = answer.send(Err(VolumeError::Release { pod, detail }));
            }
            (Waiter::None, _)
            | (Waiter::Mounted(_), Verdict::Gone | Verdict::Stuck)
            | (
                Waiter::Released(_),
                Verdict::Ready | Verdict::Tried | Verdict::Missing(_) | Verdict::TimedOut(_),
            ) => {}
        }
    }
}
