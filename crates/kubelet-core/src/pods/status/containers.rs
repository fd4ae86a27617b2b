//! The status of each container: its state, the state before, readiness, counters, and what it was given.
//!
//! Translates container instances, including lost ones, to their status in the API. The decision to start or stop one is
//! elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use model::containers::{
    ContainerRef, all_containers, ephemeral_containers, init_containers, regular_containers,
};
use model::k8s::{
    ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting,
    ContainerStatus, ContainerUser, ImageVolumeStatus, LinuxContainerUser, Pod, ResourceStatus,
    VolumeMountStatus, VolumeStatus,
};
use model::pod_status::statuses_by_name;
use model::{ContainerKind, ContainerObservation, ContainerState};

use super::resources::container_resources;
use super::{ContainerStatuses, StatusInputs, whole_seconds};
use crate::pods::probe::results::Verdict;
use crate::pods::restart::{AfterExit, after_end, has_failed, was_killed_to_restart};
use crate::pods::waiting::WaitingState;

#[cfg(test)]
mod tests;

/// Limit for the termination messages of one pod together; each container gets an equal share.
const POD_TERMINATION_MESSAGE_BYTES: usize = 12 * 1024;
/// The exit code reported for a container whose exit was not observed: that of one killed by SIGKILL.
const LOST_EXIT_CODE: i32 = 137;
const LOST_REASON: &str = "ContainerStatusUnknown";
const LOST_WHILE_WANTED: &str =
    "The container could not be located when the pod was deleted.  The container used to be Running";
const LOST_AT_THE_END: &str = "The container could not be located when the pod was terminated";
const INIT_TAKEN_AS_DONE: &str = "Unable to get init container status from container runtime and pod has been \
                                  initialized, treat it as exited normally";

/// The reason, waiting or ended, of containers whose pod restarts all of them…
const RESTARTING_ALL: &str = "RestartingAllContainers";
/// …and the message for it.
const REMOVED_TO_RESTART_ALL: &str = "The container is removed because RestartAllContainers in place";

/// What a container shows that waits because the whole pod begins again.
#[must_use]
pub fn waiting_for_restart_of_all() -> WaitingState {
    WaitingState { reason: RESTARTING_ALL.to_owned(), message: REMOVED_TO_RESTART_ALL.to_owned() }
}

/// The container runs, or may run.
pub(super) const fn may_run(state: ContainerState) -> bool {
    match state {
        ContainerState::Running | ContainerState::Unknown => true,
        ContainerState::Created | ContainerState::Exited => false,
    }
}

/// An instance of this container runs or ran.
pub(super) fn has_run(status: &ContainerStatus) -> bool {
    let ended = |state: &Option<ApiState>| state.as_ref().is_some_and(|s| s.terminated.is_some());
    is_running(status) || ended(&status.state) || ended(&status.last_state)
}

/// It waits because the whole pod begins again.
pub(super) fn waits_for_all(status: &ContainerStatus) -> bool {
    let waiting = status.state.as_ref().and_then(|state| state.waiting.as_ref());
    waiting.is_some_and(|w| w.reason.as_deref() == Some(RESTARTING_ALL))
}

/// It waits for any reason, and was stopped to restart the whole pod: its exit code does not describe its work.
pub(super) fn returns_with_all(status: &ContainerStatus) -> bool {
    let is_waiting = status.state.as_ref().is_some_and(|state| state.waiting.is_some());
    let end = status.last_state.as_ref().and_then(|state| state.terminated.as_ref());
    waits_for_all(status) || is_waiting && end.is_some_and(|e| e.reason.as_deref() == Some(RESTARTING_ALL))
}

/// Whether a container that ended so starts again. An init container that did its work does not.
pub(super) fn will_restart(
    inputs: &StatusInputs<'_>,
    container: &ContainerRef<'_>,
    end: &ContainerStateTerminated,
) -> bool {
    let is_done = container.kind == ContainerKind::Init && !has_failed(container.kind, end.into());
    !is_done && after_end(inputs.pod, container, end.into(), inputs.features) != AfterExit::StaysDead
}

pub(super) fn compute_container_statuses(inputs: &StatusInputs<'_>) -> ContainerStatuses {
    let reader = Reader::new(inputs);
    let mut statuses = ContainerStatuses {
        init: init_containers(inputs.pod).map(|c| reader.status_of(&c)).collect(),
        regular: regular_containers(inputs.pod).map(|c| reader.status_with_devices(&c)).collect(),
        ephemeral: ephemeral_containers(inputs.pod).map(|c| reader.status_of(&c)).collect(),
    };
    statuses.regular.sort_by(|a, b| a.name.cmp(&b.name));
    statuses.ephemeral.sort_by(|a, b| a.name.cmp(&b.name));
    statuses
}

/// What all containers of one pod are read with.
struct Reader<'a> {
    inputs: &'a StatusInputs<'a>,
    last: BTreeMap<&'a str, &'a ContainerStatus>,
    /// Why a container that has not started yet waits.
    default_reason: &'static str,
    is_past_init: bool,
    /// The whole pod begins again: containers were removed for that.
    is_restarting_all: bool,
    message_bytes: usize,
}

impl<'a> Reader<'a> {
    fn new(inputs: &'a StatusInputs<'a>) -> Self {
        let past = |o: &model::PodObservation| {
            regular_containers(inputs.pod).any(|c| o.newest(c.name()).is_some_and(was_created))
        };
        let has_init = init_containers(inputs.pod).next().is_some();
        let last = inputs.last_status().map(statuses_by_name).unwrap_or_default();
        // A kubelet that was killed during it knows it only from the reported status, and an instance is more accurate.
        let has_instance = |name: &str| inputs.observed.is_some_and(|o| o.newest(name).is_some());
        let is_restarting_all =
            inputs.memory.shown_waiting().states().any(|why| why.reason == RESTARTING_ALL)
                || last.iter().any(|(name, status)| waits_for_all(status) && !has_instance(name));
        let is_restarting_all = is_restarting_all && inputs.may_start();
        Self {
            inputs,
            last,
            is_restarting_all,
            default_reason: if has_init { "PodInitializing" } else { "ContainerCreating" },
            // While the whole pod restarts, instances of the run before do not describe this run.
            is_past_init: !is_restarting_all && inputs.observed.is_some_and(past),
            message_bytes: POD_TERMINATION_MESSAGE_BYTES / all_containers(inputs.pod).count().max(1),
        }
    }

    /// The Go kubelet shows the health of devices for regular containers only.
    fn status_with_devices(&self, container: &ContainerRef<'_>) -> ContainerStatus {
        let mut status = self.status_of(container);
        status.allocated_resources_status = self.device_health(&status);
        status
    }

    /// The devices of a container that has ended are free: what it showed last stays.
    fn device_health(&self, status: &ContainerStatus) -> Option<Vec<ResourceStatus>> {
        if !self.inputs.features.device_health {
            return None;
        }
        let last = || self.last.get(status.name.as_str()).filter(|_| !is_running(status));
        let has_now = self.inputs.device_health.get(&status.name).cloned();
        has_now.or_else(|| last()?.allocated_resources_status.clone())
    }

    fn status_of(&self, container: &ContainerRef<'_>) -> ContainerStatus {
        let last = self.last.get(container.name()).copied();
        let Some(observed) = self.inputs.observed else {
            // Not observed yet: the reported status stays, but no container is ready once the pod has ended.
            let mut status = last.cloned().unwrap_or_else(|| self.waiting(container));
            if self.inputs.is_terminated() && is_running(&status) {
                (status.ready, status.started) = (false, Some(false));
            }
            return status;
        };
        let mut instances = observed.instances(container.name());
        let mut status = match instances.next() {
            Some(newest) => {
                let ended_before = instances.find(|older| older.state == ContainerState::Exited);
                self.read_instance(container, newest, ended_before, last)
            }
            None => self.read_absence(container, last),
        };
        let newest = observed.newest(container.name());
        self.apply_start_failure(&mut status, container, newest);
        self.apply_probes(&mut status, container, newest);
        status.volume_mounts = volume_mounts(container, newest);
        status
    }

    /// A container that waits for its first start.
    fn waiting(&self, container: &ContainerRef<'_>) -> ContainerStatus {
        ContainerStatus {
            name: container.name().to_owned(),
            image: container.image().to_owned(),
            state: Some(waiting_state(self.default_reason, "")),
            started: (container.kind != ContainerKind::Ephemeral).then_some(false),
            volume_mounts: volume_mounts(container, None),
            ..ContainerStatus::default()
        }
    }

    fn read_instance(
        &self,
        container: &ContainerRef<'_>,
        newest: &ContainerObservation,
        ended_before: Option<&ContainerObservation>,
        last: Option<&ContainerStatus>,
    ) -> ContainerStatus {
        let id = self.api_id(newest);
        let (state, restart_count) = self.state_of(container, newest, last);
        let resources = container.resources();
        let own_end =
            self.is_between_kill_and_restart(container, newest).then(|| self.terminated_state(newest));
        ContainerStatus {
            name: container.name().to_owned(),
            image: if newest.image.is_empty() { container.image().to_owned() } else { newest.image.clone() },
            image_id: newest.image_id.clone(),
            last_state: own_end
                .or_else(|| ended_before.map(|o| self.terminated_state(o)))
                .or_else(|| last.and_then(|l| remembered_end(l, &id))),
            container_id: Some(id),
            state: Some(state),
            restart_count,
            resources: Some(container_resources(self.inputs, container, newest)),
            allocated_resources: resources.and_then(|r| r.requests.clone()),
            user: newest.user.as_ref().map(api_user),
            stop_signal: newest.stop_signal.clone().filter(|_| self.inputs.features.container_stop_signals),
            ..ContainerStatus::default()
        }
    }

    /// The state and restart count of the newest instance.
    fn state_of(
        &self,
        container: &ContainerRef<'_>,
        newest: &ContainerObservation,
        last: Option<&ContainerStatus>,
    ) -> (ApiState, i32) {
        let recorded = count(newest.record.restart_count);
        let reported = last.map_or(0, |l| l.restart_count);
        let said_state = last.and_then(|l| l.state.as_ref());
        let id = self.api_id(newest);
        let is_same = last.is_some_and(|l| l.container_id.as_deref() == Some(id.as_str()));
        let said_end = said_state.filter(|s| is_same && s.terminated.is_some());
        let waiting = || waiting_state(self.default_reason, "");
        let state = match newest.state {
            ContainerState::Running if self.inputs.memory.starting.contains(container.name()) => waiting(),
            ContainerState::Running => {
                // Exits were counted up to here, whatever this instance recorded.
                let is_next = said_state.is_some_and(|s| s.terminated.is_some()) && !is_same;
                let next = if is_next { reported.saturating_add(1) } else { reported };
                return (running_state(newest), recorded.max(next));
            }
            ContainerState::Exited if self.is_between_kill_and_restart(container, newest) => waiting(),
            ContainerState::Exited => self.terminated_state(newest),
            // What ended does not begin again as the same instance.
            ContainerState::Created => said_end.cloned().unwrap_or_else(waiting),
            ContainerState::Unknown if said_state.is_some_and(|s| s.running.is_some()) => {
                return (lost_state(LOST_AT_THE_END), recorded.max(reported.saturating_add(1)));
            }
            ContainerState::Unknown => said_end.cloned().unwrap_or_else(waiting),
        };
        (state, recorded.max(reported))
    }

    /// The instance was stopped in order to start its container again. It is shown as waiting, never as terminated: the API
    /// rejects the transition back under restart policies OnFailure and Never.
    fn is_between_kill_and_restart(
        &self,
        container: &ContainerRef<'_>,
        instance: &ContainerObservation,
    ) -> bool {
        let StatusInputs { pod, memory, features, .. } = self.inputs;
        self.inputs.may_start()
            && instance.state == ContainerState::Exited
            && was_killed_to_restart(pod, container, instance, memory, *features)
    }

    /// The runtime has no instance of it.
    fn read_absence(&self, container: &ContainerRef<'_>, last: Option<&ContainerStatus>) -> ContainerStatus {
        let said_state = last.and_then(|l| l.state.as_ref());
        let said_end = said_state.and_then(|s| s.terminated.as_ref());
        if let Some(status) = last.and_then(|last| self.begin_again(container, last)) {
            return status;
        }
        let has_passed = container.kind == ContainerKind::Init && self.is_past_init;
        if let (Some(last), Some(end)) = (last, said_end)
            && (!has_passed || !has_failed(container.kind, end.into()))
        {
            return last.clone();
        }
        let mut status = self.waiting(container);
        if let Some(last) = last {
            status.restart_count = last.restart_count;
            status.last_state = last.last_state.clone();
        }
        if has_passed {
            status.state = Some(init_taken_as_done());
            return status;
        }
        if said_state.is_some_and(|s| s.running.is_some()) {
            status.last_state = Some(lost_state(LOST_WHILE_WANTED));
            let again = i32::from(self.inputs.may_start());
            status.restart_count = status.restart_count.saturating_add(again);
        }
        status
    }

    /// Its instance was removed to restart the whole pod. That is reported once for each instance: what is
    /// shown from then on has none.
    fn begin_again(&self, container: &ContainerRef<'_>, last: &ContainerStatus) -> Option<ContainerStatus> {
        let is_new = last.container_id.is_some();
        if !self.is_restarting_all || !(is_new || waits_for_all(last)) {
            return None;
        }
        let end = || terminated(LOST_EXIT_CODE, RESTARTING_ALL, REMOVED_TO_RESTART_ALL);
        Some(ContainerStatus {
            state: Some(waiting_state(RESTARTING_ALL, REMOVED_TO_RESTART_ALL)),
            last_state: if is_new { Some(end()) } else { last.last_state.clone() },
            restart_count: last.restart_count.saturating_add(i32::from(is_new)),
            ..self.waiting(container)
        })
    }

    /// A container that is to start and could not shows why; its last end moves to `lastState`.
    fn apply_start_failure(
        &self,
        status: &mut ContainerStatus,
        container: &ContainerRef<'_>,
        newest: Option<&ContainerObservation>,
    ) {
        let Some(why) = self.inputs.memory.shown_waiting().get(container.name()) else { return };
        if !self.inputs.may_start() {
            return;
        }
        let end = status.state.as_ref().and_then(|s| s.terminated.as_ref());
        let is_to_start = match newest.map(|n| n.state) {
            None => {
                !(container.kind == ContainerKind::Init
                    && end.is_some_and(|e| !has_failed(container.kind, e.into())))
            }
            Some(ContainerState::Created | ContainerState::Unknown) => true,
            Some(ContainerState::Running) => false,
            Some(ContainerState::Exited) => {
                let restarts = |end| will_restart(self.inputs, container, end);
                let is_killed =
                    newest.is_some_and(|newest| self.is_between_kill_and_restart(container, newest));
                is_killed || why.reason == RESTARTING_ALL || end.is_some_and(restarts)
            }
        };
        if !is_to_start {
            return;
        }
        if end.is_some() {
            status.last_state = status.state.take();
        }
        if newest.is_none() {
            // Only the exit of the run before is kept; the other fields described a removed instance.
            let (last_state, restart_count) = (status.last_state.take(), status.restart_count);
            *status = ContainerStatus { last_state, restart_count, ..self.waiting(container) };
        }
        status.state = Some(waiting_state(&why.reason, &why.message));
    }

    fn apply_probes(
        &self,
        status: &mut ContainerStatus,
        container: &ContainerRef<'_>,
        newest: Option<&ContainerObservation>,
    ) {
        let running = newest.filter(|_| is_running(status));
        let verdicts = running.map(|n| self.inputs.memory.verdicts.get(&n.id)).unwrap_or_default();
        let passes = |has_probe: bool, verdict| !has_probe || verdict == Some(Verdict::Success);
        let started = running.is_some() && passes(container.startup_probe().is_some(), verdicts.startup);
        match container.kind {
            ContainerKind::Regular | ContainerKind::Sidecar => {
                status.started = Some(started);
                status.ready = started && passes(container.readiness_probe().is_some(), verdicts.readiness);
            }
            ContainerKind::Init => {
                let end = status.state.as_ref().and_then(|s| s.terminated.as_ref());
                status.started = Some(started);
                status.ready = end.is_some_and(|end| !has_failed(container.kind, end.into()));
            }
            ContainerKind::Ephemeral => {
                status.started = None;
                status.ready = false;
            }
        }
    }

    fn api_id(&self, instance: &ContainerObservation) -> String {
        format!("{}://{}", self.inputs.runtime_name, instance.id)
    }

    fn terminated_state(&self, instance: &ContainerObservation) -> ApiState {
        let reason = match (instance.reason.as_str(), instance.exit_code) {
            ("", 0) => "Completed",
            ("", _) => "Error",
            (reason, _) => reason,
        };
        let message = cut(&instance.message, self.message_bytes);
        ApiState {
            terminated: Some(ContainerStateTerminated {
                container_id: Some(self.api_id(instance)),
                exit_code: instance.exit_code,
                reason: Some(reason.to_owned()),
                message: (!message.is_empty()).then(|| message.to_owned()),
                // A moment that the runtime does not know is the first second of 1970, as in the Go kubelet.
                started_at: Some(whole_seconds(instance.started_at.unwrap_or_default())),
                finished_at: Some(whole_seconds(instance.finished_at.unwrap_or_default())),
                signal: None,
            }),
            ..ApiState::default()
        }
    }
}

/// The runtime got as far as creating it; an unknown state proves nothing.
fn was_created(instance: &ContainerObservation) -> bool {
    match instance.state {
        ContainerState::Created | ContainerState::Running | ContainerState::Exited => true,
        ContainerState::Unknown => false,
    }
}

/// The end of the run before this instance, from the earlier status, if the runtime no longer has that run. The exit of a
/// run that was last observed running is unknown, so none is reported.
fn remembered_end(last: &ContainerStatus, id: &str) -> Option<ApiState> {
    let reported = last.state.as_ref();
    let is_same = last.container_id.as_deref() == Some(id);
    if is_same || reported.is_none_or(|s| s.running.is_none() && s.terminated.is_none()) {
        return last.last_state.clone();
    }
    reported.filter(|s| s.terminated.is_some()).cloned()
}

/// At the end of a pod every container that was started, or should have been, is terminated. Without a record of its exit
/// it counts as failed. Comes after the conditions, as in the Go kubelet: those of a pod that never ran keep
/// naming the containers that are not ready.
pub(super) fn end_what_never_reported(pod: &Pod, statuses: &mut ContainerStatuses) {
    let is_past_init = statuses.is_initialized();
    // Of init containers that never started only the first one should have.
    let started_init = statuses.init.iter().rposition(has_run).map_or(1, |last| last + 1);
    statuses.init.iter_mut().take(started_init).for_each(end_if_not_ended);
    let mut init = init_containers(pod).zip(&statuses.init);
    let is_done = init.all(|(c, s)| if c.kind == ContainerKind::Init { s.ready } else { has_run(s) });
    if is_past_init || is_done {
        statuses.regular.iter_mut().for_each(end_if_not_ended);
    }
}

fn end_if_not_ended(status: &mut ContainerStatus) {
    if status.state.as_ref().is_none_or(|s| s.terminated.is_none()) {
        status.state = Some(lost_state(LOST_AT_THE_END));
        status.ready = false;
        status.started = Some(false);
    }
}

fn is_running(status: &ContainerStatus) -> bool {
    status.state.as_ref().is_some_and(|s| s.running.is_some())
}

fn waiting_state(reason: &str, message: &str) -> ApiState {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    ApiState {
        waiting: Some(ContainerStateWaiting { reason: text(reason), message: text(message) }),
        ..ApiState::default()
    }
}

fn running_state(instance: &ContainerObservation) -> ApiState {
    let started_at = instance.started_at.map(whole_seconds);
    ApiState { running: Some(ContainerStateRunning { started_at }), ..ApiState::default() }
}

fn lost_state(message: &str) -> ApiState {
    terminated(LOST_EXIT_CODE, LOST_REASON, message)
}

fn init_taken_as_done() -> ApiState {
    terminated(0, "Completed", INIT_TAKEN_AS_DONE)
}

fn terminated(exit_code: i32, reason: &str, message: &str) -> ApiState {
    ApiState {
        terminated: Some(ContainerStateTerminated {
            exit_code,
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            ..ContainerStateTerminated::default()
        }),
        ..ApiState::default()
    }
}

fn api_user(user: &model::observation::ObservedUser) -> ContainerUser {
    let groups = &user.supplemental_groups;
    ContainerUser {
        linux: Some(LinuxContainerUser {
            uid: user.uid,
            gid: user.gid,
            supplemental_groups: (!groups.is_empty()).then(|| groups.clone()),
        }),
    }
}

/// Read-only mounts also report whether submounts are read-only, mounts of images which image it is. The Go kubelet looks for the image by
/// the name of the volume, which the CRI does not have; the path in the container identifies a mount as well.
fn volume_mounts(
    container: &ContainerRef<'_>,
    newest: Option<&ContainerObservation>,
) -> Option<Vec<VolumeMountStatus>> {
    let recursive: BTreeSet<&String> =
        newest.into_iter().flat_map(|n| &n.recursive_read_only_mounts).collect();
    let images: BTreeMap<&str, &String> = newest
        .into_iter()
        .flat_map(|n| &n.image_mounts)
        .filter_map(|mount| Some((mount.container_path.trim_start_matches('/'), mount.image_ref.as_ref()?)))
        .collect();
    let mounts = container.volume_mounts().iter().map(|mount| {
        let read_only = mount.read_only.filter(|read_only| *read_only);
        let mode = if recursive.contains(&mount.mount_path) { "Enabled" } else { "Disabled" };
        let path = mount.mount_path.trim_start_matches('/');
        let image_ref = images.get(path).map(|image_ref| (*image_ref).clone());
        let image = image_ref.map(|image_ref| ImageVolumeStatus { image_ref });
        VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only,
            recursive_read_only: read_only.map(|_| mode.to_owned()),
            volume_status: image.map(|image| VolumeStatus { image: Some(image) }),
        }
    });
    super::not_empty(mounts.collect())
}

fn count(restarts: u32) -> i32 {
    i32::try_from(restarts).unwrap_or(i32::MAX)
}

/// At most `limit` bytes, never half a character.
fn cut(text: &str, limit: usize) -> &str {
    if text.len() <= limit {
        return text;
    }
    let end = (0..=limit).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}
