//! Durations of a pod's passes, and from its first appearance to running. For metrics only.

use std::time::Duration;

use base_agent::metrics::Metrics;
use model::containers::spec_of;
use model::k8s::{ContainerStatus, PodStatus, Volume};
use model::{MonoTime, Now};
use sources_core::ApiPod;

use crate::metrics::{KubeletMetrics, PodMetrics, PodStart, WorkerPass};

#[derive(Debug)]
pub(super) struct Times {
    seen_at: MonoTime,
    /// The act in flight.
    act: Option<(MonoTime, WorkerPass)>,
    has_begun: bool,
    /// The pod was changed since the last pass began.
    has_changed: bool,
    has_run: bool,
    /// The API knows that the pod runs.
    is_known_to_run: bool,
    /// Spent on pulls; concurrent ones count once.
    pulling: Duration,
    pulled_until: MonoTime,
}

impl Times {
    pub(super) const fn new(seen_at: MonoTime) -> Self {
        Self {
            seen_at,
            act: None,
            has_begun: false,
            has_changed: false,
            has_run: false,
            is_known_to_run: false,
            pulling: Duration::ZERO,
            pulled_until: seen_at,
        }
    }

    /// Takes over the status of an earlier kubelet or of the API.
    pub(super) fn remember(&mut self, status: Option<&PodStatus>) {
        let phase = status.and_then(|status| status.phase.as_deref());
        self.has_run = phase.is_some_and(|phase| phase != "Pending");
        self.is_known_to_run = self.has_run;
    }

    pub(super) const fn pod_changed(&mut self) {
        self.has_changed = true;
    }

    pub(super) fn act_began(&mut self, metrics: &Metrics, now: MonoTime, is_kill: bool) {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let is_changed = std::mem::take(&mut self.has_changed);
        let pass = match (is_kill, is_first, is_changed) {
            (true, ..) => WorkerPass::Kill,
            (false, true, _) => WorkerPass::Create,
            (false, false, true) => WorkerPass::Update,
            (false, false, false) => WorkerPass::Sync,
        };
        if pass == WorkerPass::Create {
            metrics.get::<KubeletMetrics>().worker_started(now.saturating_since(self.seen_at));
        }
        self.act = Some((now, pass));
    }

    pub(super) fn act_ended(&mut self, metrics: &Metrics, now: MonoTime) {
        if let Some((began, pass)) = self.act.take() {
            metrics.get::<KubeletMetrics>().worker_passed(pass, now.saturating_since(began));
        }
    }

    pub(super) fn pulled(&mut self, began: MonoTime, ended: MonoTime) {
        self.pulling += ended.saturating_since(began.max(self.pulled_until));
        self.pulled_until = self.pulled_until.max(ended);
    }

    pub(super) fn published(&mut self, metrics: &Metrics, now: MonoTime, status: &PodStatus) {
        if self.has_run || status.phase.as_deref() != Some("Running") {
            return;
        }
        self.has_run = true;
        metrics.get::<KubeletMetrics>().pod_running(now.saturating_since(self.seen_at));
    }

    /// The pod as the API has it now.
    pub(super) fn seen_in_api(&mut self, metrics: &Metrics, now: Now, in_api: &ApiPod) {
        let Some(status) = in_api.status.as_ref().filter(|status| status.phase.as_deref() == Some("Running"))
        else {
            return;
        };
        if std::mem::replace(&mut self.is_known_to_run, true) {
            return;
        }
        let pod = &in_api.pod;
        let Some(created) = &pod.metadata.creation_timestamp else { return };
        let since_created = now.wall_since(created.0);
        let spec = spec_of(pod);
        let is_on_us = spec.volumes.iter().flatten().all(is_made_here);
        let not_ours = self.pulling + initializing(status);
        metrics.get::<PodMetrics>().runs(PodStart {
            since_created,
            own_part: is_on_us.then(|| since_created.saturating_sub(not_ours)),
            has_own_network: spec.host_network != Some(true),
        });
    }
}

/// The kubelet sets it up without another service, so that its duration is the kubelet's.
const fn is_made_here(volume: &Volume) -> bool {
    volume.empty_dir.is_some()
        || volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// How long the init containers ran that have ended; they run one after the other.
fn initializing(status: &PodStatus) -> Duration {
    let ran = |container: &ContainerStatus| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        let took = ended.finished_at.as_ref()?.0.duration_since(ended.started_at.as_ref()?.0);
        Duration::try_from(took).ok()
    };
    status.init_container_statuses.iter().flatten().filter_map(ran).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn metrics_of(pod: &serde_json::Value, pulls: &[(u64, u64)]) -> String {
        let metrics = Metrics::default();
        let at = |seconds| MonoTime::ZERO + Duration::from_secs(seconds);
        let mut times = Times::new(at(0));
        times.remember(None);
        for (began, ended) in pulls {
            times.pulled(at(*began), at(*ended));
        }
        let now = Now { mono: at(30), wall: "2026-01-01T00:00:30Z".parse().unwrap() };
        let pod = ApiPod::new(serde_json::from_value(pod.clone()).unwrap(), None, now.wall);
        times.seen_in_api(&metrics, now, &pod);
        times.seen_in_api(&metrics, now, &pod);
        let mut text = String::new();
        metrics.get::<PodMetrics>().write(&mut text, &Metrics::default());
        text
    }

    fn pod() -> serde_json::Value {
        let init = json!({"terminated": {
            "exitCode": 0, "startedAt": "2026-01-01T00:00:05Z", "finishedAt": "2026-01-01T00:00:09Z",
        }});
        let status = json!({"name": "init", "image": "i", "imageID": "", "ready": true, "restartCount": 0});
        let mut status = status;
        status["state"] = init;
        json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"containers": [], "volumes": [{"name": "v", "emptyDir": {}}]},
            "status": {"phase": "Running", "initContainerStatuses": [status]},
        })
    }

    #[test]
    fn the_first_pass_after_a_change_of_the_pod_is_an_update() {
        let (metrics, mut times) = (Metrics::default(), Times::new(MonoTime::ZERO));
        let mut pass = |changed: bool, is_kill: bool| {
            if changed {
                times.pod_changed();
            }
            times.act_began(&metrics, MonoTime::ZERO, is_kill);
            times.act.take().map(|(_, pass)| pass)
        };
        assert_eq!(pass(true, false), Some(WorkerPass::Create));
        assert_eq!(pass(false, false), Some(WorkerPass::Sync));
        assert_eq!(pass(true, false), Some(WorkerPass::Update));
        assert_eq!(pass(false, false), Some(WorkerPass::Sync));
        assert_eq!(pass(true, true), Some(WorkerPass::Kill));
    }

    #[test]
    fn pulls_that_overlap_count_once_and_init_containers_are_not_our_time() {
        let text = metrics_of(&pod(), &[(10, 20), (12, 18), (15, 22)]);
        assert!(text.contains("kubelet_pod_start_total_duration_seconds_sum 30\n"), "{text}");
        // 30 less 12 of pulling and 4 of init containers.
        assert!(text.contains("kubelet_pod_start_sli_duration_seconds_sum 14\n"), "{text}");
        assert!(text.contains("kubelet_pod_start_sli_duration_seconds_count 1\n"), "reported once: {text}");
    }

    #[test]
    fn stateful_pod_has_only_the_total_start_duration() {
        let mut pod = pod();
        pod["spec"]["volumes"][0] = json!({"name": "v", "nfs": {"server": "s", "path": "/p"}});
        let text = metrics_of(&pod, &[]);
        assert!(text.contains("kubelet_pod_start_total_duration_seconds_count 1\n"), "{text}");
        assert!(text.contains("kubelet_pod_start_sli_duration_seconds_count 0\n"), "{text}");
    }

    #[test]
    fn a_pod_that_ran_before_this_process_is_no_start() {
        let metrics = Metrics::default();
        let mut times = Times::new(MonoTime::ZERO);
        let now = Now { mono: MonoTime::ZERO, wall: "2026-01-01T00:00:30Z".parse().unwrap() };
        let pod = ApiPod::new(serde_json::from_value(pod()).unwrap(), None, now.wall);
        times.remember(pod.status.as_deref());
        times.seen_in_api(&metrics, now, &pod);
        let mut text = String::new();
        metrics.get::<PodMetrics>().write(&mut text, &Metrics::default());
        assert!(text.contains("kubelet_pod_start_total_duration_seconds_count 0\n"), "{text}");
    }
}
