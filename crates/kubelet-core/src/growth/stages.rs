//! The decisions and conversions that a pod goes through.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use api_core::mirror::{MirrorOwner, compute_mirror};
use api_core::status_patch::{SyncFacts, compute_status_sync};
use base_core::downward::DownwardFacts;
use base_core::node_facts::MemoryQos;
use config::Features;
use images_core::pull_secrets::pull_secret_names;
use model::containers::{ContainerRef, all_containers, find_container, spec_of};
use model::k8s::{ConfigMap, Node, Pod, PodStatus, Quantity, Volume};
use model::observation::NamespaceMode;
use model::request::{DnsRequest, ImageObservation};
use model::stats::{TreeUsage, VolumeSample};
use model::{
    ContainerObservation, ContainerState, MonoTime, PodObservation, PodRef, QosClass, SandboxId,
    SandboxObservation, SandboxState,
};
use resources_core::admission::fit::FitFacts;
use resources_core::admission::{AdmissionFacts, compute_admission};
use resources_core::allocations::Allocation;
use resources_core::amounts::{Actuated, Amounts};
use resources_core::cgroup::pod::{PodRules, compute_pod_numbers};
use resources_core::requests::pod_requests;
use serde_json::{Value, json};
use sources_core::static_pod::{Origin, parse_manifest, validate_pod};
use sources_core::{ApiPod, differs_semantically};
use stats_core::sample::PodDisks;
use volumes_core::engine::{Attempt, PodVolumes, ReadyVolume, VolumeAct, VolumeEvent};
use volumes_core::image::{all_image_volumes, image_volumes};
use volumes_core::index::VolumeIndex;
use volumes_core::plan::{SpecPlan, count_volumes, required_claims, spec_plan};
use volumes_core::planned_pod::{PlannedPod, PodLimits};
use volumes_core::pod_certificate::certificate_sources;
use volumes_core::types::VolumeSource;
use volumes_core::{
    PayloadInputs, VolumeObjects, compute_payload, has_payload, nested_mount_points, required_objects,
};

use crate::node::eviction::DiskLayout;
use crate::node::eviction::limits::{compute_exceeded_limit, has_limits};
use crate::node::eviction::usage::PodUsage;
use crate::pods::actions::{PodInputs, compute_pod_actions};
use crate::pods::backoff::record_step;
use crate::pods::dns::{NodeDns, compute_pod_dns};
use crate::pods::ended::{EndedFacts, compute_ended};
use crate::pods::env::{compute_env, required_env_files};
use crate::pods::fixture::{new_instance, start_of_test};
use crate::pods::hash::container_hash;
use crate::pods::hostname::compute_hostname;
use crate::pods::hosts_file::pod_hosts_file;
use crate::pods::memory::PodMemory;
use crate::pods::plan::{KillContainer, KillReason};
use crate::pods::probe::results::ProbeKind;
use crate::pods::probe::spec::ProbeSpec;
use crate::pods::request::tests::node;
use crate::pods::request::{
    ContainerInputs, PodFacts, SandboxInputs, VolumeMountPoint, compute_container_request,
    compute_sandbox_request, compute_sub_paths,
};
use crate::pods::resize::accept::compute_infeasible;
use crate::pods::resize::allocated::{allocated_by_status, with_allocated_resources};
use crate::pods::resize::changes::is_in_progress;
use crate::pods::resize::requested::requested_resizes;
use crate::pods::restored_back_off::restore_back_off;
use crate::pods::status::{StatusInputs, compute_pod_status, latest_known, merge_for_restart};
use crate::pods::termination::{GraceSources, compute_grace, compute_kill_plan, plan_kills};
use api_core::env_objects::{EnvObjects, env_objects, required_env_objects};
use base_core::backoff::{BackoffTable, MAX_DELAY};
use base_core::node_facts::NodeFacts;
use base_core::pod_stage::PodStage;

/// A pod in all its forms, and what was observed of it.
pub(super) struct Big {
    text: Vec<u8>,
    pod: Pod,
    /// Every container runs.
    running: PodObservation,
    /// Every container has ended.
    ended: PodObservation,
    nothing: PodObservation,
    in_api: ApiPod,
    status: PodStatus,
    memory: PodMemory,
    objects: VolumeObjects,
    disks: PodDisks,
    node: NodeFacts,
    api_node: Node,
}

/// The name of a stage, and what it does with a pod.
type Stage = (&'static str, fn(&Big));

pub(super) const STAGES: &[Stage] = &[
    ("a manifest", manifest),
    ("the checks of a manifest", checks),
    ("encoding and decoding", encoding),
    ("a comparison with itself", comparison),
    ("admission", admission),
    ("the plan of the worker", plan),
    ("a kill", kill),
    ("the request for a sandbox", sandbox),
    ("the requests for containers", container),
    ("the environment", environment),
    ("the plan of its volumes", volumes),
    ("the files of its volumes", payloads),
    ("the volume engine", engine),
    ("its status", status),
    ("the patch of its status", status_patch),
    ("what is kept over a restart", restart),
    ("sums of resources", resources),
    ("a resize", resize),
    ("probes", probes),
    ("limits of local storage", eviction),
    ("names and addresses", names),
    ("its mirror", mirror),
];

fn features() -> Features {
    Features {
        env_files: true,
        container_restart_rules: true,
        restart_all_containers: true,
        pod_level_resources: true,
        pod_level_resize: true,
        comparing_tolerations: true,
        ..Features::default()
    }
}

impl Big {
    pub(super) fn new(pod: &Value) -> Self {
        let text = pod.to_string().into_bytes();
        let pod: Pod = serde_json::from_value(pod.clone()).expect("a pod");
        let identity = PodRef::of(&pod);
        let nothing = PodObservation::empty(identity, start_of_test().mono);
        let mut node = node();
        node.features = features();
        let mut big = Self {
            running: observed(&pod, ContainerState::Running),
            ended: observed(&pod, ContainerState::Exited),
            in_api: ApiPod::new(pod.clone(), None, start_of_test().wall),
            status: PodStatus::default(),
            memory: PodMemory::new(BackoffTable::crash_loop(MAX_DELAY, features())),
            objects: objects(),
            disks: disks(&pod),
            api_node: serde_json::from_value(json!({"metadata": {"name": "n"},
                "spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}))
            .expect("a node"),
            text,
            pod,
            nothing,
            node,
        };
        big.status = status_of(&big, &big.running, None);
        big
    }

    fn containers(&self) -> Vec<ContainerRef<'_>> {
        // A request for one container reads the whole pod, and requests for several are apart.
        let all: Vec<_> = all_containers(&self.pod).collect();
        [all.first(), all.last()].into_iter().flatten().copied().collect()
    }
}

fn observed(pod: &Pod, state: ContainerState) -> PodObservation {
    let now = start_of_test();
    let sandbox = SandboxId::new("sb");
    let instance = |container: ContainerRef<'_>| {
        let hash = Some(container_hash(&container));
        let paths = container.volume_mounts().iter().map(|mount| mount.mount_path.clone());
        ContainerObservation {
            state,
            started_at: Some(now.wall),
            finished_at: (state == ContainerState::Exited).then_some(now.wall),
            recursive_read_only_mounts: paths.collect(),
            image_mounts: Vec::new(),
            ..new_instance(container.name(), sandbox.clone(), hash, now)
        }
    };
    let containers: Vec<_> = all_containers(pod).map(instance).collect();
    let sandbox = SandboxObservation {
        id: sandbox,
        pod: PodRef::of(pod),
        attempt: 0,
        state: SandboxState::Ready,
        created_at: now.wall,
        ips: vec!["10.0.0.9".parse().expect("an address")],
        network: NamespaceMode::Pod,
        runtime_handler: String::new(),
    };
    PodObservation {
        pod: PodRef::of(pod),
        sandboxes: vec![sandbox],
        containers: containers.into(),
        taken_at: now.mono,
    }
}

fn objects() -> VolumeObjects {
    let few: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "few", "namespace": "ns"}, "data": {"k": "v"}}))
            .expect("a map");
    VolumeObjects {
        config_maps: BTreeMap::from([("few".to_owned(), Arc::new(few))]),
        ..VolumeObjects::default()
    }
}

fn disks(pod: &Pod) -> PodDisks {
    let sample = |volume: &Volume| VolumeSample {
        name: volume.name.as_str().into(),
        claim: None,
        plugin: "kubernetes.io/empty-dir".into(),
        is_off_disk: false,
        space: Default::default(),
        used: TreeUsage::default(),
        is_abnormal: None,
    };
    PodDisks { volumes: spec_of(pod).volumes.iter().flatten().map(sample).collect(), ..PodDisks::default() }
}

fn origin() -> Origin {
    Origin::File("/m.yaml".to_owned())
}

fn manifest(big: &Big) {
    let _ = black_box(parse_manifest(&big.text, &origin(), "n", features()));
}

fn checks(big: &Big) {
    black_box(validate_pod(&big.pod, features()));
}

fn encoding(big: &Big) {
    black_box(serde_json::to_vec(&[&big.pod]).expect("JSON"));
    let status = serde_json::to_vec(&big.status).expect("JSON");
    black_box(serde_json::from_slice::<PodStatus>(&status).expect("a status"));
}

fn comparison(big: &Big) {
    black_box(differs_semantically(&big.pod, &big.pod.clone()));
    black_box(ApiPod::new(big.pod.clone(), Some(&big.in_api), start_of_test().wall));
}

fn admission(big: &Big) {
    let pod = Pod { metadata: big.pod.metadata.clone(), ..big.pod.clone() };
    let active = [Allocation::whole(&big.pod)];
    let allocatable = BTreeMap::new();
    let fit = FitFacts {
        node: &big.api_node,
        allocatable: &allocatable,
        active: &active,
        may_preempt: true,
        features: features(),
    };
    let facts = AdmissionFacts {
        kernel_version: "6.1".to_owned(),
        features: features(),
        ..AdmissionFacts::default()
    };
    black_box(compute_admission(&pod, &facts, Some(&fit)));
    black_box(compute_admission(&pod, &facts, None));
}

fn plan(big: &Big) {
    for observed in [&big.nothing, &big.running, &big.ended] {
        let now = start_of_test();
        let inputs = PodInputs {
            pod: &big.pod,
            observed,
            memory: &big.memory,
            cgroup: Default::default(),
            features: features(),
            now,
        };
        let plan = compute_pod_actions(&inputs);
        black_box(plan.step.repeats(&plan.step));
        let mut table = BackoffTable::crash_loop(MAX_DELAY, features());
        record_step(&mut table, &big.pod, observed, &plan.step, now);
        let facts = EndedFacts { memory: &big.memory, features: features(), is_stopping: true };
        black_box(compute_ended(&big.pod, observed, &facts));
    }
}

fn kill(big: &Big) {
    let grace = compute_grace(GraceSources::of(&big.pod, None), None);
    black_box(compute_kill_plan(Some(&big.pod), &big.running, grace));
    let kill_of = |container: &ContainerObservation| KillContainer {
        id: container.id.clone(),
        name: container.name.clone(),
        why: KillReason::PodFinished,
        grace: None,
    };
    let kills: Vec<_> = big.running.containers.iter().map(kill_of).collect();
    black_box(plan_kills(&big.pod, &big.running, &kills));
}

fn sandbox(big: &Big) {
    let facts = PodFacts::default();
    let (dns, cgroup_parent) = (&DnsRequest::default(), "");
    let inputs =
        SandboxInputs { pod: &big.pod, node: &big.node, facts: &facts, attempt: 0, dns, cgroup_parent };
    let _ = black_box(compute_sandbox_request(&inputs));
}

fn container(big: &Big) {
    let point = |volume: &Volume| (volume.name.clone(), VolumeMountPoint::default());
    let volumes = spec_of(&big.pod).volumes.iter().flatten().map(point).collect();
    for container in big.containers() {
        let all = 0..container.volume_mounts().len();
        black_box(image_volumes(&big.pod, &container));
        let _ = black_box(compute_container_request(&ContainerInputs {
            pod: &big.pod,
            container,
            node: &big.node,
            facts: &PodFacts::default(),
            restart_count: 0,
            hash: container_hash(&container),
            image_ref: "i",
            image: &ImageObservation::default(),
            env: &[],
            volumes: &volumes,
            sub_paths: &all.map(|index| (index, "/s".to_owned())).collect(),
            termination_log: Some("/t"),
            target: None,
        }));
    }
}

fn facts(allocatable: &BTreeMap<String, Quantity>) -> DownwardFacts<'_> {
    DownwardFacts { container: "main", pod_ips: &[], host_ips: &[], allocatable }
}

fn environment(big: &Big) {
    let objects = env_objects(&big.pod, &[], &[], BTreeMap::new());
    let objects = EnvObjects { files: Some(BTreeMap::new()), ..objects };
    black_box(required_env_objects(&big.pod));
    let allocatable = BTreeMap::new();
    for container in big.containers() {
        black_box(required_env_files(&container));
        let env = compute_env(&big.pod, &container, &facts(&allocatable), &objects).unwrap_or_default();
        let _ = black_box(compute_sub_paths(&container, &env));
        let _ = black_box(crate::pods::env::expand_all(container.args(), &env));
    }
}

fn volumes(big: &Big) {
    let (index, limits) = (VolumeIndex::of(&big.pod), PodLimits::of(&big.pod));
    for volume in spec_of(&big.pod).volumes.iter().flatten() {
        let plan = spec_plan(PlannedPod::with_limits(&big.pod, &limits), volume);
        if let Ok(SpecPlan::Volume(plan)) = &plan {
            black_box(plan.qualified_plugin_name());
            if let VolumeSource::Iscsi(plan) = &plan.source {
                black_box(plan.disk.distinct_portals());
            }
        }
        black_box((plan.is_ok(), has_payload(volume), index.volume(&big.pod, &volume.name)));
    }
    black_box((required_claims(&big.pod), required_objects(&big.pod), all_image_volumes(&big.pod)));
    black_box(certificate_sources(&big.pod));
    black_box(count_volumes([(&big.pod, true)].into_iter(), big.disks.volumes.iter()));
}

fn payloads(big: &Big) {
    let index = VolumeIndex::of(&big.pod);
    let allocatable = BTreeMap::new();
    let inputs = PayloadInputs { pod: &big.pod, objects: &big.objects, facts: &facts(&allocatable) };
    for volume in spec_of(&big.pod).volumes.iter().flatten().filter(|volume| has_payload(volume)) {
        let payload = compute_payload(volume, inputs).unwrap_or_default();
        black_box(nested_mount_points(index.nested(&volume.name), &payload));
    }
}

/// Every volume fails once, and is mounted then; and is refreshed.
fn engine(big: &Big) {
    let names =
        || spec_of(&big.pod).volumes.iter().flatten().map(|volume| Box::from(&*volume.name)).collect();
    let at = |seconds| MonoTime::from_start(Duration::from_secs(seconds));
    let mut volumes = PodVolumes::default();
    let mut acts = volumes.on_event(VolumeEvent::Wanted { volumes: names(), is_retried: true }, at(0)).acts;
    let mut is_first = true;
    for now in [1, 50] {
        while let Some(act) = acts.pop() {
            let VolumeAct::Mount { volume, .. } = act else { continue };
            let attempt = match is_first {
                true => Attempt::Failed,
                false => Attempt::Ready(ReadyVolume::at("/v".into())),
            };
            acts.extend(volumes.on_event(VolumeEvent::MountEnded { volume, attempt }, at(now)).acts);
            black_box(volumes.is_settled());
        }
        is_first = false;
        acts = volumes.on_event(VolumeEvent::Wake, at(50)).acts;
    }
    assert_eq!(volumes.ready().count(), spec_of(&big.pod).volumes.iter().flatten().count());
    acts = volumes.on_event(VolumeEvent::Wanted { volumes: names(), is_retried: false }, at(60)).acts;
    while let Some(VolumeAct::Mount { volume, .. }) = acts.pop() {
        let attempt = Attempt::Ready(ReadyVolume::at("/v".into()));
        acts.extend(volumes.on_event(VolumeEvent::MountEnded { volume, attempt }, at(61)).acts);
    }
}

fn status_of(big: &Big, observed: &PodObservation, previous: Option<&PodStatus>) -> PodStatus {
    compute_pod_status(&StatusInputs {
        pod: &big.pod,
        in_source: big.pod.status.as_ref(),
        observed: Some(observed),
        previous,
        memory: &big.memory,
        stage: PodStage::Syncing,
        is_rejected: false,
        terminal: None,
        cgroup: None,
        device_health: &BTreeMap::new(),
        host_ips: &[],
        runtime_name: "test",
        features: features(),
        now: start_of_test().wall,
    })
}

fn status(big: &Big) {
    for observed in [&big.nothing, &big.running, &big.ended] {
        black_box(status_of(big, observed, Some(&big.status)));
    }
}

fn status_patch(big: &Big) {
    let facts = SyncFacts { may_run: true, is_released: false };
    let uid = &big.in_api.identity.uid;
    black_box(compute_status_sync(uid, Some(&big.in_api), &big.status, facts));
    let before = Pod { status: Some(big.status.clone()), ..big.pod.clone() };
    let before = ApiPod::new(before, None, start_of_test().wall);
    black_box(compute_status_sync(uid, Some(&before), &status_of(big, &big.ended, None), facts));
}

fn restart(big: &Big) {
    let status = Arc::new(big.status.clone());
    black_box(latest_known(Some(status.clone()), Some(&status)));
    black_box(merge_for_restart(&big.status, &big.running));
    let mut table = BackoffTable::crash_loop(MAX_DELAY, features());
    restore_back_off(&mut table, &big.pod, &big.ended, Some(&big.status), start_of_test());
}

fn resources(big: &Big) {
    black_box((QosClass::of(&big.pod), pod_requests(&big.pod), Amounts::of_pod(&big.pod)));
    let sizes = ["2MB".to_owned()];
    let rules = PodRules {
        cpu_quota_period: Some(100_000),
        pids_limit: None,
        hugepage_sizes: &sizes,
        memory_qos: MemoryQos::default(),
    };
    black_box(compute_pod_numbers(&big.pod, &rules));
}

fn resize(big: &Big) {
    let mut requested = big.pod.clone();
    for container in &mut requested.spec.as_mut().expect("a spec").containers {
        container
            .resources
            .get_or_insert_default()
            .requests
            .get_or_insert_default()
            .insert("memory".to_owned(), Quantity("7Mi".to_owned()));
    }
    black_box(requested_resizes(&big.pod, &requested, features()));
    black_box(compute_infeasible(&requested, &big.pod, &big.node));
    black_box(is_in_progress(&requested, &big.running, &Actuated::default(), features()));
    black_box(with_allocated_resources(&requested, &big.pod));
    black_box(allocated_by_status(&requested, &big.status));
}

fn probes(big: &Big) {
    for container in all_containers(&big.pod) {
        for probe in [container.liveness_probe(), container.readiness_probe()].into_iter().flatten() {
            let _ = black_box(ProbeSpec::of(probe, ProbeKind::Liveness, &container));
        }
    }
}

fn eviction(big: &Big) {
    let usage = PodUsage::of_storage(&big.running, &big.disks);
    black_box(has_limits(&big.pod));
    black_box(compute_exceeded_limit(&big.pod, &usage, &big.disks, DiskLayout::One));
}

fn names(big: &Big) {
    let dns = NodeDns {
        cluster_dns: Vec::new(),
        cluster_domain: "c".to_owned(),
        resolv_conf: None,
        node_ips: Vec::new(),
    };
    let _ = black_box(compute_pod_dns(&big.pod, &dns));
    if let Ok(hostname) = compute_hostname(&big.pod, "c", features()) {
        black_box(pod_hosts_file(&big.pod, &hostname, &[]));
    }
    black_box((pull_secret_names(&big.pod).count(), find_container(&big.pod, "main").is_some()));
}

fn mirror(big: &Big) {
    let owner = MirrorOwner { node: "n", node_uid: "u" };
    black_box(compute_mirror(Some((&big.pod, false)), None, Some(owner)));
}
