//! Probes: one task for each probe of each running container instance, so that a slow probe delays no other.
//!
//! A task owns its probe's state machine (`kubelet_core::pods::probe::machine`) and reports every new verdict to the pod's
//! worker. It never starts an attempt while one is under way. [`Probes::reconcile`], which the worker calls after each
//! observation of the pod, starts and ends the tasks.

mod attempt;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubelet_core::pods::probe::machine::{Gate, ProbeState, gate};
use kubelet_core::pods::probe::results::{ProbeKind, ProbeVerdicts, Verdict};
use kubelet_core::pods::probe::spec::ProbeSpec;
use model::containers::{ContainerRef, all_containers};
use model::k8s::{Pod, Probe};
use model::{ContainerId, ContainerObservation, ContainerState, MonoTime, PodObservation, PodRef};
use tokio::sync::{Notify, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::pods::handles::PodHandles;
use crate::pods::messages::{ProbeEvent, WorkerMessage, WorkerSender};
use crate::probe_metrics::ProbeRecord;
use attempt::Target;

type Key = (ContainerId, ProbeKind);

/// The probes of one pod. Dropping this ends them.
pub(crate) struct Probes {
    handles: Arc<PodHandles>,
    pod: PodRef,
    messages: WorkerSender,
    running: BTreeMap<Key, RunningProbe>,
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.handles.probe_metrics.forget(&self.pod);
    }
}

/// Dropping this ends the task.
struct RunningProbe {
    gate: watch::Sender<Gate>,
    hurry: Arc<Notify>,
    _ends: DropGuard,
}

impl Probes {
    pub(crate) fn new(handles: Arc<PodHandles>, pod: PodRef, messages: WorkerSender) -> Self {
        Self { handles, pod, messages, running: BTreeMap::new() }
    }

    /// Starts the probes of running containers, ends those of others, and opens or closes their gates: the startup probe comes
    /// first, and a terminating pod has no liveness probes.
    pub(crate) fn reconcile(
        &mut self,
        pod: &Arc<Pod>,
        observed: &PodObservation,
        verdicts: &ProbeVerdicts,
        is_terminating: bool,
    ) {
        let is_running = |id: &ContainerId| {
            observed.container(id).is_some_and(|instance| instance.state == ContainerState::Running)
        };
        self.running.retain(|(id, _), _| is_running(id));
        for container in all_containers(pod) {
            let Some(instance) = observed.newest(container.name()) else { continue };
            if instance.state != ContainerState::Running {
                continue;
            }
            let startup = verdicts.get(&instance.id).startup;
            let has_started = container.startup_probe().is_none() || startup == Some(Verdict::Success);
            for (kind, probe) in probes_of(&container) {
                let gate = gate(kind, has_started, is_terminating);
                self.reconcile_one(&container, instance, kind, probe, gate, observed, verdicts);
            }
        }
    }

    /// The pod's status has changed: containers that are not ready are probed at once, because others may wait for them.
    pub(crate) fn hurry_readiness(&self, verdicts: &ProbeVerdicts) {
        for ((id, kind), probe) in &self.running {
            if *kind == ProbeKind::Readiness && verdicts.get(id).readiness != Some(Verdict::Success) {
                probe.hurry.notify_one();
            }
        }
    }

    fn reconcile_one(
        &mut self,
        container: &ContainerRef<'_>,
        instance: &ContainerObservation,
        kind: ProbeKind,
        probe: &Probe,
        gate: Gate,
        observed: &PodObservation,
        verdicts: &ProbeVerdicts,
    ) {
        let key = (instance.id.clone(), kind);
        if let Some(running) = self.running.get(&key) {
            running.gate.send_if_modified(|known| std::mem::replace(known, gate) != gate);
            return;
        }
        if gate == Gate::Over {
            return;
        }
        let spec = match ProbeSpec::of(probe, kind, container) {
            Ok(spec) => spec,
            Err(error) => {
                let name = Some(container.name());
                self.handles.ctx.recorder.warning(&self.pod, name, "ProbeWarning", error.to_string());
                return;
            }
        };
        let seed = match kind {
            ProbeKind::Liveness => verdicts.get(&instance.id).liveness,
            ProbeKind::Readiness => verdicts.get(&instance.id).readiness,
            ProbeKind::Startup => verdicts.get(&instance.id).startup,
        };
        self.spawn(key, spec, instance, gate, seed, observed);
    }

    fn spawn(
        &mut self,
        key: Key,
        spec: ProbeSpec,
        instance: &ContainerObservation,
        gate: Gate,
        seed: Option<Verdict>,
        observed: &PodObservation,
    ) {
        let kind = key.1;
        let started_at = instance.started_at.unwrap_or(instance.created_at);
        let (state, due) = self.begin(&spec, started_at, seed);
        let (sender, receiver) = watch::channel(gate);
        let (end, hurry) = (CancellationToken::new(), Arc::new(Notify::new()));
        let pod_ip = observed.sandboxes.iter().find_map(|sandbox| sandbox.ips.first().copied());
        let task = ProbeTask {
            handles: self.handles.clone(),
            target: Target {
                pod: self.pod.clone(),
                container: instance.name.to_string(),
                id: instance.id.clone(),
                pod_ip: pod_ip.or_else(|| self.handles.ctx.host_ips().first().copied()),
            },
            kind,
            spec,
            state,
            due,
            gate: receiver,
            hurry: hurry.clone(),
            messages: self.messages.clone(),
            record: self.handles.probe_metrics.of(&self.pod, &instance.name, kind),
        };
        let ended = end.clone();
        let (pod, name) = (self.pod.clone(), instance.name.to_string());
        let report = move |delay: Duration| {
            tracing::error!(%pod, containerName = name, probe = ?kind, ?delay, "Probe worker panicked, restarting it");
        };
        self.handles.ctx.tasks.spawn_restarting("probe", self.handles.ctx.clock, report, move || {
            let (ended, task) = (ended.clone(), task.clone());
            async move {
                tokio::select! {
                    () = ended.cancelled() => {}
                    () = task.run() => {}
                }
            }
        });
        self.running.insert(key, RunningProbe { gate: sender, hurry, _ends: end.drop_guard() });
    }

    /// The first probe of a container that ran before this kubelet started is delayed by a random part of its period, so that
    /// a restart does not probe all containers at once.
    fn begin(
        &self,
        spec: &ProbeSpec,
        started_at: jiff::Timestamp,
        seed: Option<Verdict>,
    ) -> (ProbeState, MonoTime) {
        let now = self.handles.ctx.clock.now();
        let age = now.wall_since(started_at);
        let started = now.mono - age;
        let was_there_before = age > now.mono.since_start();
        let offset = if was_there_before { self.handles.ctx.rng.up_to(spec.period) } else { Duration::ZERO };
        let began = if was_there_before { now.mono } else { started };
        let mut state = ProbeState::begin(spec, began, offset);
        if let Some(verdict) = seed {
            state = state.seeded(spec.kind, verdict);
        }
        let due = state.next_at().unwrap_or(now.mono);
        (state, due)
    }
}

fn probes_of<'a>(container: &ContainerRef<'a>) -> impl Iterator<Item = (ProbeKind, &'a Probe)> {
    let all = [
        (ProbeKind::Liveness, container.liveness_probe()),
        (ProbeKind::Readiness, container.readiness_probe()),
        (ProbeKind::Startup, container.startup_probe()),
    ];
    all.into_iter().filter_map(|(kind, probe)| probe.map(|probe| (kind, probe)))
}

#[derive(Clone)]
struct ProbeTask {
    handles: Arc<PodHandles>,
    target: Target,
    kind: ProbeKind,
    spec: ProbeSpec,
    state: ProbeState,
    due: MonoTime,
    gate: watch::Receiver<Gate>,
    /// At most one notification is kept while an attempt is under way.
    hurry: Arc<Notify>,
    messages: WorkerSender,
    record: Arc<ProbeRecord>,
}

impl ProbeTask {
    async fn run(mut self) {
        while self.state.next_at().is_some() {
            tokio::select! {
                () = self.handles.ctx.clock.sleep_until(self.due) => {}
                () = self.hurry.notified() => {
                    self.state.hurry(&self.spec, self.handles.ctx.clock.mono());
                    self.due = self.state.next_at().map_or(self.due, |next| next.min(self.due));
                    continue;
                }
            }
            // The sender ends only together with this task.
            let Ok(gate) = self.gate.wait_for(|gate| *gate != Gate::Closed).await.map(|gate| *gate) else {
                return;
            };
            match gate {
                Gate::Open => self.probe().await,
                Gate::Closed => {}
                Gate::Over => return,
            }
        }
    }

    async fn probe(&mut self) {
        let began = self.handles.ctx.clock.mono();
        let outcome = attempt::execute(&self.handles.ctx, &self.target, &self.spec).await;
        self.record.count(&outcome, self.handles.ctx.clock.mono().saturating_since(began));
        let decision = self.state.step(&self.spec, outcome, self.handles.ctx.clock.mono());
        if let Some(event) = decision.event {
            let Target { pod, container, .. } = &self.target;
            self.handles.ctx.recorder.warning(pod, Some(container), event.reason.as_str(), event.message);
        }
        if let Some(next) = decision.next_at {
            self.due = next;
        }
        if let Some(verdict) = decision.verdict {
            let event = ProbeEvent { container: self.target.id.clone(), kind: self.kind, verdict };
            // The worker has ended only when its probes end, too.
            let _ = self.messages.send(Box::new(WorkerMessage::Probe(event))).await;
        }
    }
}
