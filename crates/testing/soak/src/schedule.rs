//! When a soak does what: creations, edits, deletions and resizes of pods, and faults with their beginnings and ends.
//!
//! Every fault ends before the schedule does. The kubelet is killed in the first half only, so that the process whose memory is
//! compared at the end has lived through the second half.

use std::collections::BTreeMap;
use std::time::Duration;

use fixtures::rng::Rng;

/// Until the first fault: the pods of the beginning start without any.
pub const CALM_START: Duration = Duration::from_secs(60);
/// Between two creations at the beginning.
const RAMP: Duration = Duration::from_millis(600);
/// Between two changes of pods after that.
const CHANGES: (Duration, Duration) = (Duration::from_millis(1500), Duration::from_millis(6000));
/// Between the beginnings of two faults.
const FAULTS: (Duration, Duration) = (Duration::from_secs(6), Duration::from_secs(24));
/// How many pods more or fewer than planned the random changes may reach.
const SLACK: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A file in the directory of manifests.
    Static,
    Api,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodKind {
    Plain,
    /// Init containers and sidecars.
    Ordered,
    Probed,
    Hooks,
    Volumes,
    /// Volumes with objects of the API: `ConfigMap`, Secret, projected.
    Objects,
    Csi,
    MemoryLimit,
    OutOfMemory,
    CrashLoop,
    Job,
    Resizable,
    /// Its readiness probe looks up a host name.
    NamedProbe,
}

impl PodKind {
    pub const ALL: [Self; 13] = [
        Self::Plain,
        Self::Ordered,
        Self::Probed,
        Self::Hooks,
        Self::Volumes,
        Self::Objects,
        Self::Csi,
        Self::MemoryLimit,
        Self::OutOfMemory,
        Self::CrashLoop,
        Self::Job,
        Self::Resizable,
        Self::NamedProbe,
    ];

    /// A static pod cannot refer to objects of the API, and is not resized by a patch.
    #[must_use]
    pub const fn may_be_static(self) -> bool {
        match self {
            Self::Objects | Self::Csi | Self::Resizable => false,
            Self::Plain
            | Self::Ordered
            | Self::Probed
            | Self::Hooks
            | Self::Volumes
            | Self::MemoryLimit
            | Self::OutOfMemory
            | Self::CrashLoop
            | Self::Job
            | Self::NamedProbe => true,
        }
    }

    /// An edit of a job that has ended has no effect that could be checked.
    const fn may_be_edited(self) -> bool {
        !matches!(self, Self::Job)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub milli_cpu: u64,
    pub mebibytes: u64,
}

impl Size {
    pub const FIRST: Self = Self { milli_cpu: 100, mebibytes: 48 };
}

/// A pod as it is desired after some changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPlan {
    pub name: String,
    pub kind: PodKind,
    pub source: Source,
    /// The number of edits so far.
    pub version: u32,
    pub size: Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KubeletKilled,
    KubeletTerminated,
    RuntimeKilled,
    ApiOutage,
    /// Calls to the runtime are delayed, fail, or lose their answer.
    RuntimeCalls,
    DiskFull,
    DnsHangs,
    CsiErrors,
    /// The wall clock of the kubelet differs from that of everything else; the monotonic clock goes on.
    ClockJump,
}

impl Fault {
    pub const ALL: [Self; 9] = [
        Self::KubeletKilled,
        Self::KubeletTerminated,
        Self::RuntimeKilled,
        Self::ApiOutage,
        Self::RuntimeCalls,
        Self::DiskFull,
        Self::DnsHangs,
        Self::CsiErrors,
        Self::ClockJump,
    ];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::KubeletKilled => "kubelet killed",
            Self::KubeletTerminated => "kubelet terminated",
            Self::RuntimeKilled => "containerd killed",
            Self::ApiOutage => "API outage",
            Self::RuntimeCalls => "faults of CRI calls",
            Self::DiskFull => "disk full",
            Self::DnsHangs => "DNS hangs",
            Self::CsiErrors => "errors of the CSI driver",
            Self::ClockJump => "clock jump",
        }
    }

    const fn lasts(self) -> (Duration, Duration) {
        let (least, greatest) = match self {
            Self::KubeletKilled | Self::KubeletTerminated => (50, 5_000),
            Self::RuntimeKilled => (50, 6_000),
            Self::ApiOutage => (2_000, 30_000),
            Self::RuntimeCalls => (5_000, 40_000),
            Self::DiskFull => (3_000, 25_000),
            Self::DnsHangs => (10_000, 40_000),
            Self::CsiErrors => (10_000, 60_000),
            Self::ClockJump => (10_000, 40_000),
        };
        (Duration::from_millis(least), Duration::from_millis(greatest))
    }

    /// What a fault of the process of the kubelet is: it ends and another one starts.
    const fn ends_the_kubelet(self) -> bool {
        matches!(self, Self::KubeletKilled | Self::KubeletTerminated)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    Create(PodPlan),
    /// To the version in the plan.
    Edit(PodPlan),
    /// To the size in the plan.
    Resize(PodPlan),
    Delete {
        plan: PodPlan,
        /// From the API at once, without a grace period.
        force: bool,
    },
    /// The `ConfigMap` that all pods of [`PodKind::Objects`] mount gets this content.
    ChangeConfigMap {
        version: u32,
    },
    Begin(Fault),
    End(Fault),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub at: Duration,
    pub action: Action,
}

/// An hour forward.
pub const CLOCK_AHEAD: i64 = 3600;
/// Minutes back, by less than the age of the certificates of the API server.
pub const CLOCK_BEHIND: i64 = -240;
/// An hour back: the certificates of the API server are not yet valid, so no new connection to it can be made meanwhile.
const CLOCK_BEFORE_CERTIFICATES: i64 = -3600;

/// By how many seconds the wall clock of the kubelet differs during a [`Fault::ClockJump`] with that seed.
#[must_use]
pub fn compute_clock_jump(seed: u64) -> i64 {
    let jumps = [CLOCK_AHEAD, CLOCK_BEHIND, CLOCK_BEFORE_CERTIFICATES];
    Rng::new(seed).pick(&jumps).copied().unwrap_or(CLOCK_AHEAD)
}

/// How long a soak lasts, and with how many pods.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    pub duration: Duration,
    pub pods: usize,
}

/// What a seed decides, in the order of time.
#[must_use]
pub fn compute_schedule(seed: u64, extent: Extent) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    let mut steps = faults(&mut rng, extent);
    let mut changes = Changes { rng, extent, pods: BTreeMap::new(), created: 0, config_version: 1 };
    changes.compute(&mut steps);
    steps.sort_by_key(|step| step.at);
    steps
}

/// Faults of different kinds overlap; one of a kind begins after the one before it has ended.
fn faults(rng: &mut Rng, extent: Extent) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut busy_until: BTreeMap<Fault, Duration> = BTreeMap::new();
    let mut turn = Vec::new();
    let mut at = CALM_START;
    loop {
        if turn.is_empty() {
            turn = shuffled(rng);
        }
        let Some(fault) = turn.pop() else { return steps };
        let (least, greatest) = fault.lasts();
        let end = at + rng.between(least, greatest);
        if at >= extent.duration {
            return steps;
        }
        let is_too_late = fault.ends_the_kubelet() && at > extent.duration / 2;
        let is_busy = busy_until.get(&fault).is_some_and(|until| *until >= at);
        if !is_too_late && !is_busy && end < extent.duration {
            busy_until.insert(fault, end);
            if fault.ends_the_kubelet() {
                // One process cannot end twice.
                busy_until.insert(Fault::KubeletKilled, end);
                busy_until.insert(Fault::KubeletTerminated, end);
            }
            steps.push(Step { at, action: Action::Begin(fault) });
            steps.push(Step { at: end, action: Action::End(fault) });
        }
        at += rng.between(FAULTS.0, FAULTS.1);
    }
}

/// Every kind once, so that even a short soak has each of them.
fn shuffled(rng: &mut Rng) -> Vec<Fault> {
    let mut left = Fault::ALL.to_vec();
    let mut turn = Vec::new();
    while let Some(fault) = rng.pick(&left).copied() {
        left.retain(|other| *other != fault);
        turn.push(fault);
    }
    turn
}

struct Changes {
    rng: Rng,
    extent: Extent,
    pods: BTreeMap<String, PodPlan>,
    created: usize,
    config_version: u32,
}

impl Changes {
    fn compute(&mut self, steps: &mut Vec<Step>) {
        let mut at = Duration::ZERO;
        for _ in 0..self.extent.pods {
            steps.push(Step { at, action: self.create() });
            at += RAMP;
        }
        loop {
            at += self.rng.between(CHANGES.0, CHANGES.1);
            if at >= self.extent.duration {
                return;
            }
            let action = self.change();
            steps.push(Step { at, action });
        }
    }

    fn change(&mut self) -> Action {
        let choice = self.rng.below(100);
        if self.pods.len() + SLACK <= self.extent.pods {
            return self.create();
        }
        if self.pods.len() >= self.extent.pods + SLACK {
            return self.delete();
        }
        match choice {
            0..30 => self.create(),
            30..60 => self.delete(),
            60..80 => self.edit(),
            80..92 => self.resize(),
            _ => {
                self.config_version += 1;
                Action::ChangeConfigMap { version: self.config_version }
            }
        }
    }

    /// The kinds take turns, so that each of them exists; a third of those that can are static.
    fn create(&mut self) -> Action {
        let kind = PodKind::ALL[self.created % PodKind::ALL.len()];
        let is_static = kind.may_be_static() && self.rng.percent(34);
        let plan = PodPlan {
            name: format!("soak-{}", self.created),
            kind,
            source: if is_static { Source::Static } else { Source::Api },
            version: 1,
            size: Size::FIRST,
        };
        self.created += 1;
        self.pods.insert(plan.name.clone(), plan.clone());
        Action::Create(plan)
    }

    fn delete(&mut self) -> Action {
        let Some(plan) = self.pick(|_| true) else { return self.create() };
        self.pods.remove(&plan.name);
        let force = plan.source == Source::Api && self.rng.percent(10);
        Action::Delete { plan, force }
    }

    fn edit(&mut self) -> Action {
        let Some(mut plan) = self.pick(|plan| plan.kind.may_be_edited()) else { return self.create() };
        plan.version += 1;
        self.pods.insert(plan.name.clone(), plan.clone());
        Action::Edit(plan)
    }

    fn resize(&mut self) -> Action {
        let Some(mut plan) = self.pick(|plan| plan.kind == PodKind::Resizable) else { return self.create() };
        let milli_cpu = 50 + 10 * self.rng.below(16);
        plan.size = Size { milli_cpu, mebibytes: 32 + 8 * self.rng.below(12) };
        self.pods.insert(plan.name.clone(), plan.clone());
        Action::Resize(plan)
    }

    fn pick(&mut self, accept: impl Fn(&PodPlan) -> bool) -> Option<PodPlan> {
        let accepted: Vec<PodPlan> = self.pods.values().filter(|plan| accept(plan)).cloned().collect();
        self.rng.pick(&accepted).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const EXTENT: Extent = Extent { duration: Duration::from_secs(8 * 60), pods: 60 };

    #[test]
    fn soak_schedule_follows_from_its_seed() {
        assert_eq!(compute_schedule(7, EXTENT), compute_schedule(7, EXTENT));
        assert_ne!(compute_schedule(7, EXTENT), compute_schedule(8, EXTENT));
    }

    #[test]
    fn soak_clock_jumps_ahead_and_behind() {
        let jumps: BTreeSet<i64> = (0..20).map(compute_clock_jump).collect();
        assert_eq!(jumps, [CLOCK_BEFORE_CERTIFICATES, CLOCK_BEHIND, CLOCK_AHEAD].into());
    }

    #[test]
    fn soak_schedule_has_every_fault_and_ends_each_before_its_own_end() {
        for seed in 0..50 {
            let schedule = compute_schedule(seed, EXTENT);
            assert!(schedule.is_sorted_by_key(|step| step.at));
            let mut open = BTreeSet::new();
            let mut seen = BTreeSet::new();
            for step in &schedule {
                assert!(step.at < EXTENT.duration);
                match step.action {
                    Action::Begin(fault) => {
                        assert!(open.insert(fault), "seed {seed}: {fault:?} twice at a time");
                        seen.insert(fault);
                        let is_first_half = step.at <= EXTENT.duration / 2;
                        assert!(is_first_half || !fault.ends_the_kubelet(), "seed {seed}");
                    }
                    Action::End(fault) => {
                        assert!(open.remove(&fault), "seed {seed}: {fault:?} did not begin")
                    }
                    Action::Create(_)
                    | Action::Edit(_)
                    | Action::Resize(_)
                    | Action::Delete { .. }
                    | Action::ChangeConfigMap { .. } => {}
                }
            }
            assert_eq!(open, BTreeSet::new(), "seed {seed}");
            assert_eq!(seen.len(), Fault::ALL.len(), "seed {seed}: {seen:?}");
        }
    }

    #[test]
    fn soak_schedule_keeps_the_number_of_pods_and_changes_only_pods_that_exist() {
        for seed in 0..50 {
            let (mut pods, mut kinds) = (BTreeMap::new(), BTreeSet::new());
            for step in compute_schedule(seed, EXTENT) {
                match step.action {
                    Action::Create(plan) => {
                        assert!(plan.source == Source::Api || plan.kind.may_be_static());
                        kinds.insert(plan.kind);
                        assert_eq!(pods.insert(plan.name.clone(), plan), None, "no name is used twice");
                    }
                    Action::Edit(plan) => {
                        let before = pods.insert(plan.name.clone(), plan.clone()).expect("it exists");
                        assert_eq!(before.version + 1, plan.version);
                    }
                    Action::Resize(plan) => {
                        assert_eq!(plan.kind, PodKind::Resizable);
                        assert!(pods.insert(plan.name.clone(), plan).is_some());
                    }
                    Action::Delete { plan, .. } => assert!(pods.remove(&plan.name).is_some()),
                    Action::ChangeConfigMap { .. } | Action::Begin(_) | Action::End(_) => {}
                }
                if step.at > CALM_START {
                    assert!(pods.len().abs_diff(EXTENT.pods) <= SLACK, "seed {seed}: {} pods", pods.len());
                }
            }
            assert_eq!(kinds.len(), PodKind::ALL.len());
        }
    }
}
