//! Thresholds: how much must be available, and for how long it may be less.

use std::collections::BTreeMap;
use std::time::Duration;

use config::{GoDuration, KubeletConfiguration};
use model::Amount;
use model::quantity::binary_text;

use super::{DiskLayout, Signal};

/// How much must be available.
#[derive(Clone, Debug, PartialEq)]
pub enum Level {
    /// A number of bytes, inodes or processes, with the text it was written as.
    Absolute { amount: i64, text: Box<str> },
    /// A share of the capacity. In single precision, as in the Go kubelet, because its messages show the result.
    Share(f32),
}

/// If less than `level` is available for `grace`, resources are reclaimed until `level` plus `reclaim` is available.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    pub signal: Signal,
    pub level: Level,
    pub grace: Duration,
    pub reclaim: Option<Level>,
}

impl Level {
    /// `100Mi`, or `10%` of the capacity.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(percent) => percent.parse::<f32>().ok().map(|percent| Self::Share(percent / 100.0)),
            None => {
                let amount = Amount::parse(text).ok()?.units();
                Some(Self::Absolute { amount, text: text.into() })
            }
        }
    }

    /// The amount for this `capacity`.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        reason = "a share of a disk need not be exact to the byte, and casts of floats saturate"
    )]
    pub fn of(&self, capacity: i64) -> i64 {
        match self {
            Self::Absolute { amount, .. } => *amount,
            Self::Share(share) => (capacity as f64 * f64::from(*share)) as i64,
        }
    }

    /// The amount as events show it.
    #[must_use]
    pub fn shown(&self, capacity: i64) -> String {
        match self {
            Self::Absolute { text, .. } => text.to_string(),
            Self::Share(_) => binary_text(i128::from(self.of(capacity))),
        }
    }

    /// `0%` and `100%` disable a threshold.
    pub(crate) fn is_off(&self) -> bool {
        match self {
            Self::Absolute { .. } => false,
            Self::Share(share) => *share <= 0.0 || *share >= 1.0,
        }
    }
}

impl Threshold {
    /// Pods get no grace period.
    #[must_use]
    pub const fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }
}

/// The thresholds of a validated configuration, in the order in which shortages are relieved.
#[must_use]
pub fn compute_thresholds(config: &KubeletConfiguration) -> Vec<Threshold> {
    let reclaim = |signal: Signal| {
        config.eviction_minimum_reclaim.get(signal.as_str()).and_then(|text| Level::parse(text))
    };
    let read = |levels: &BTreeMap<String, String>, graces: Option<&BTreeMap<String, String>>| {
        let one = |(name, text): (&String, &String)| {
            let signal = Signal::parse(name)?;
            let level = Level::parse(text).filter(|level| !level.is_off())?;
            let grace = graces.and_then(|graces| graces.get(name)?.parse::<GoDuration>().ok());
            let grace = grace.map_or(Duration::ZERO, GoDuration::as_std);
            Some(Threshold { signal, level, grace, reclaim: reclaim(signal) })
        };
        levels.iter().filter_map(one).collect::<Vec<_>>()
    };
    let mut thresholds = read(&config.effective_eviction_hard(), None);
    if config.enforce_node_allocatable.iter().any(|what| what == "pods") {
        // All pods together get the same hard threshold of memory as the machine.
        let of_machine = thresholds.iter().filter(|t| t.signal == Signal::MemoryAvailable);
        let of_pods: Vec<_> = of_machine
            .map(|t| Threshold { signal: Signal::AllocatableMemoryAvailable, ..t.clone() })
            .collect();
        thresholds.extend(of_pods);
    }
    thresholds.extend(read(&config.eviction_soft, Some(&config.eviction_soft_grace_period)));
    thresholds.sort_by_key(|threshold| (threshold.signal, threshold.grace));
    thresholds
}

/// The signals whose thresholds have no effect, because they follow those of another filesystem.
#[must_use]
pub fn ignored_signals(thresholds: &[Threshold]) -> Vec<&'static str> {
    let mut names: Vec<_> = thresholds.iter().filter(|t| !is_own(t)).map(|t| t.signal.as_str()).collect();
    names.dedup();
    names
}

const fn is_own(threshold: &Threshold) -> bool {
    match threshold.signal {
        Signal::ContainerFsAvailable | Signal::ContainerFsInodesFree => false,
        Signal::MemoryAvailable
        | Signal::AllocatableMemoryAvailable
        | Signal::NodeFsAvailable
        | Signal::NodeFsInodesFree
        | Signal::ImageFsAvailable
        | Signal::ImageFsInodesFree
        | Signal::PidAvailable => true,
    }
}

/// The thresholds that apply with these filesystems: writable layers have those of the filesystem that they share, whatever
/// the configuration sets.
#[must_use]
pub fn fit_to_layout(thresholds: &[Threshold], layout: DiskLayout) -> Vec<Threshold> {
    let mut fitted: Vec<Threshold> = thresholds.iter().filter(|t| is_own(t)).cloned().collect();
    let twin = |signal| match signal {
        Signal::NodeFsAvailable => Some(Signal::ContainerFsAvailable),
        Signal::NodeFsInodesFree => Some(Signal::ContainerFsInodesFree),
        Signal::MemoryAvailable
        | Signal::AllocatableMemoryAvailable
        | Signal::ImageFsAvailable
        | Signal::ImageFsInodesFree
        | Signal::ContainerFsAvailable
        | Signal::ContainerFsInodesFree
        | Signal::PidAvailable => None,
    };
    match layout {
        // It is the same filesystem as that of another threshold, so a second one adds nothing.
        DiskLayout::One | DiskLayout::ImagesApart => {}
        DiskLayout::Split => {
            let twins =
                fitted.iter().filter_map(|t| Some(Threshold { signal: twin(t.signal)?, ..t.clone() }));
            let twins: Vec<_> = twins.collect();
            fitted.extend(twins);
        }
    }
    fitted.sort_by_key(|threshold| (threshold.signal, threshold.grace));
    fitted
}
