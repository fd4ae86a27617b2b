//! The task that knows what is under way for the volumes of which pod.
//!
//! ```text
//! requests, ends of acts, time --> PodVolumes::on_event (kubelet_core::volumes::engine) --> acts, answers
//! ```
//! Owns: every act on a volume. None of them is dropped because its pod's worker has something else to do now; so there is
//! no act that nobody knows of, and two never meet at one volume. A pod whose volumes are settled is forgotten: what is
//! mounted, the mount table knows.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubelet_core::volumes::engine::{PodVolumes, Reaction, ReadyVolume, Verdict, VolumeAct, VolumeEvent};
use kubelet_core::volumes::has_payload;
use kubelet_core::volumes::image::is_image;
use kubelet_core::volumes::plan::is_known_plugin;
use model::containers::spec_of;
use model::{MonoTime, PodRef, PodUid};
use ports::Cluster;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::make::{Made, Wanted, make};
use super::shared::Shared;
use super::take_down::take_down;
use super::{ReadyVolumes, Request, Requests, VolumeError, VolumeOrder};
use crate::api::node_allocatable::NodeAllocatable;
use crate::context::Context;

type Answer<T> = oneshot::Sender<Result<T, VolumeError>>;

/// Who waits for the pod's volumes.
#[derive(Debug, Default)]
enum Waiter {
    #[default]
    Nobody,
    Mounted(Answer<ReadyVolumes>),
    Released(Answer<()>),
}

/// A pod with something under way, or something that failed lately.
#[derive(Debug)]
struct Tracked {
    order: Option<Arc<VolumeOrder>>,
    volumes: PodVolumes,
    waiter: Waiter,
    wake_at: Option<MonoTime>,
    /// When a worker first asked for volumes that are not all mounted yet.
    requested_at: MonoTime,
    /// Why the volumes could not be taken down.
    stuck_on: String,
    /// Cancelled when the pod's volumes must go: long work in them is given up.
    leaving: CancellationToken,
}

/// How an act ended.
enum Ended {
    Made { volume: Box<str>, made: Made },
    TakenDown(Result<(), String>),
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
        allocatable: NodeAllocatable,
        requests: Requests,
    ) -> Self {
        let (devices, projects, payloads) = Default::default();
        let shared = Arc::new(Shared { cluster, allocatable, devices, projects, payloads });
        Self { ctx, requests, shared, pods: BTreeMap::new(), acts: JoinSet::new() }
    }

    /// Runs until nobody can ask any more. Every select arm is cancel safe.
    pub(crate) async fn run(mut self) {
        self.ctx.tasks.spawn_isolated("volumes found", count_found(self.ctx.clone()));
        loop {
            let clock = self.ctx.clock;
            let wake_at = self.pods.values().filter_map(|tracked| tracked.wake_at).min();
            tokio::select! {
                request = self.requests.0.recv() => match request {
                    Some(request) => self.take_request(request),
                    None => return,
                },
                Some(ended) = self.acts.join_next(), if !self.acts.is_empty() => match ended {
                    Ok((uid, ended)) => self.take_end(&uid, ended),
                    // Acts catch their own panics: `guarded`.
                    Err(error) => tracing::error!(err = %error, "Volume operation was lost"),
                },
                () = clock.sleep_until(wake_at.unwrap_or(MonoTime::ZERO)), if wake_at.is_some() => self.wake(),
            }
        }
    }

    fn take_request(&mut self, request: Request) {
        match request {
            Request::Mount { order, is_refresh, answer } => self.take_mount(order, is_refresh, answer),
            Request::Changed(uid) => {
                if self.pods.contains_key(&uid) {
                    self.feed(&uid, VolumeEvent::Changed);
                }
            }
            Request::Release { uid, answer } => {
                let tracked = self.track(&uid);
                tracked.waiter = Waiter::Released(answer);
                tracked.leaving.cancel();
                self.feed(&uid, VolumeEvent::Unwanted);
            }
        }
    }

    fn take_mount(&mut self, order: VolumeOrder, is_refresh: bool, answer: Answer<ReadyVolumes>) {
        let uid = PodRef::of(&order.pod).uid;
        let all = spec_of(&order.pod).volumes.iter().flatten();
        let wanted = all.filter(|volume| !is_image(volume) && (!is_refresh || has_payload(volume)));
        let volumes = wanted.map(|volume| Box::from(&*volume.name)).collect();
        let tracked = self.track(&uid);
        tracked.order = Some(Arc::new(order));
        tracked.waiter = Waiter::Mounted(answer);
        tracked.leaving = CancellationToken::new();
        self.feed(&uid, VolumeEvent::Wanted { volumes, retries: !is_refresh });
    }

    fn track(&mut self, uid: &PodUid) -> &mut Tracked {
        let now = self.ctx.clock.mono();
        self.pods.entry(uid.clone()).or_insert_with(|| Tracked {
            requested_at: now,
            order: None,
            volumes: PodVolumes::default(),
            waiter: Waiter::Nobody,
            wake_at: None,
            stuck_on: String::new(),
            leaving: CancellationToken::new(),
        })
    }

    fn take_end(&mut self, uid: &PodUid, ended: Ended) {
        match ended {
            Ended::Made { volume, made } => {
                self.report_failure(uid, &made);
                self.feed(uid, VolumeEvent::Made { volume, attempt: made.attempt });
            }
            Ended::TakenDown(result) => {
                let is_gone = result.is_ok();
                if let (Some(tracked), Err(why)) = (self.pods.get_mut(uid), result) {
                    tracked.stuck_on = why;
                }
                self.feed(uid, VolumeEvent::TakenDown { is_gone });
            }
        }
    }

    /// Each failure is told, also to who does not wait any more.
    fn report_failure(&self, uid: &PodUid, made: &Made) {
        let order = self.pods.get(uid).and_then(|tracked| tracked.order.as_ref());
        if let (Some(order), Some(failure)) = (order, &made.failure) {
            let identity = PodRef::of(&order.pod);
            self.ctx.recorder.warning(&identity, None, failure.reason, failure.message.clone());
        }
    }

    fn wake(&mut self) {
        let now = self.ctx.clock.mono();
        let due = |(_, tracked): &(&PodUid, &Tracked)| tracked.wake_at.is_some_and(|at| at <= now);
        let due: Vec<PodUid> = self.pods.iter().filter(due).map(|(uid, _)| uid.clone()).collect();
        for uid in due {
            let is_watched = self.pods.get(&uid).is_some_and(|tracked| tracked.waiter.is_there());
            self.feed(&uid, if is_watched { VolumeEvent::Wake } else { VolumeEvent::Unwatched });
        }
    }

    /// One event through the state machine of the pod, and what follows from it.
    fn feed(&mut self, uid: &PodUid, event: VolumeEvent) {
        let now = self.ctx.clock.mono();
        let Some(tracked) = self.pods.get_mut(uid) else { return };
        let Reaction { acts, verdict, wake_at } = tracked.volumes.on_event(event, now);
        tracked.wake_at = wake_at;
        if let Some(verdict) = verdict {
            tracked.answer(uid, verdict);
        }
        for act in acts {
            self.begin(uid, act);
        }
        let is_settled = |tracked: &Tracked| tracked.volumes.is_settled() && !tracked.waiter.is_there();
        if self.pods.get(uid).is_some_and(is_settled) {
            self.pods.remove(uid);
        }
    }

    fn begin(&mut self, uid: &PodUid, act: VolumeAct) {
        let Some(tracked) = self.pods.get(uid) else { return };
        let (ctx, shared, uid) = (self.ctx.clone(), self.shared.clone(), uid.clone());
        match act {
            VolumeAct::Make { volume, is_uncertain } => {
                let Some(order) = tracked.order.clone() else { return };
                let (leaving, requested_at) = (tracked.leaving.clone(), tracked.requested_at);
                self.acts.spawn(async move {
                    let wanted = Wanted { order: &order, volume: &volume, is_uncertain, requested_at };
                    let work = Box::pin(make(&ctx, wanted, &shared, &leaving));
                    let made = guarded(work).await.unwrap_or_else(Made::panicked);
                    (uid, Ended::Made { volume, made })
                });
            }
            VolumeAct::TakeDown => {
                self.acts.spawn(async move {
                    let work = Box::pin(take_down(&ctx, &shared.devices, &uid));
                    let result = guarded(work).await.unwrap_or_else(|| Err("a bug ended the act".to_owned()));
                    (uid, Ended::TakenDown(result))
                });
            }
        }
    }
}

/// Counts what an earlier kubelet left. Nothing depends on it: each volume is looked at when its pod is made or taken down.
async fn count_found(ctx: Arc<Context>) {
    let (files, paths) = (&*ctx.files, &ctx.settings.paths);
    for uid in files.list_names(&paths.pods()).await.unwrap_or_default() {
        let volumes = paths.pods().join(uid).join("volumes");
        for plugin in files.list_names(&volumes).await.unwrap_or_default() {
            let names = files.list_names(&volumes.join(&plugin)).await.unwrap_or_default();
            names.iter().for_each(|_| ctx.metrics.volumes.found(is_known_plugin(&plugin)));
        }
    }
}

/// `None` if the work panicked: the pod it was about must not wait forever.
async fn guarded<T>(work: impl Future<Output = T> + Send) -> Option<T> {
    use futures_util::FutureExt;
    std::panic::AssertUnwindSafe(work).catch_unwind().await.ok()
}

impl Waiter {
    fn is_there(&self) -> bool {
        match self {
            Self::Nobody => false,
            Self::Mounted(answer) => !answer.is_closed(),
            Self::Released(answer) => !answer.is_closed(),
        }
    }
}

impl Tracked {
    /// Who has left does not need it any more; an answer to the other question is none.
    fn answer(&mut self, uid: &PodUid, verdict: Verdict) {
        let waiter = std::mem::take(&mut self.waiter);
        match (waiter, verdict) {
            (Waiter::Mounted(answer), Verdict::Ready | Verdict::Tried) => {
                let owned = |(name, volume): (&str, &ReadyVolume)| (name.to_owned(), volume.clone());
                let _ = answer.send(Ok(self.volumes.ready().map(owned).collect()));
            }
            (Waiter::Mounted(answer), Verdict::TimedOut(text)) => {
                let _ = answer.send(Err(VolumeError::TimedOut(text)));
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
            (Waiter::Nobody, _)
            | (Waiter::Mounted(_), Verdict::Gone | Verdict::Stuck)
            | (
                Waiter::Released(_),
                Verdict::Ready | Verdict::Tried | Verdict::Missing(_) | Verdict::TimedOut(_),
            ) => {}
        }
    }
}
