//! Thresholds: how much of what must be left, and for how long less may be left.

use std::collections::BTreeMap;
use std::time::Duration;

use config::{GoDuration, KubeletConfiguration};
use model::Amount;
use model::quantity::binary_text;

use super::{DiskLayout, Signal};

/// How much must be left.
#[derive(Clone, Debug, PartialEq)]
pub enum Level {
    /// A number of bytes, inodes or processes, with the text it was written as.
    Absolute { amount: i64, text: Box<str> },
    /// A share of all there is. In single precision, as the Go kubelet keeps it: its messages show the outcome.
    Share(f32),
}

/// Once less than `level` is left for `grace`, something has to go, until `level` and `reclaim` are left.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    pub signal: Signal,
    pub level: Level,
    pub grace: Duration,
    pub reclaim: Option<Level>,
}

impl Level {
    /// `100Mi`, or `10%` of all there is.
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

    /// How much that is where there is `capacity`.
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

    /// The same as events show it.
    #[must_use]
    pub fn shown(&self, capacity: i64) -> String {
        match self {
            Self::Absolute { text, .. } => text.to_string(),
            Self::Share(_) => binary_text(i128::from(self.of(capacity))),
        }
    }

    /// `0%` and `100%` switch a threshold off.
    pub(crate) fn is_off(&self) -> bool {
        match self {
            Self::Absolute { .. } => false,
            Self::Share(share) => *share <= 0.0 || *share >= 1.0,
        }
    }
}

impl Threshold {
    /// Pods get no time to end by themselves.
    #[must_use]
    pub const fn is_hard(&self) -> bool {
        self.grace.is_zero()
    }
}

/// The thresholds of a configuration that validation has seen, in the order in which shortages are relieved.
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
        // What pods have together must not run out any more than what the machine has.
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
pub fn set_in_vain(thresholds: &[Threshold]) -> Vec<&'static str> {
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

/// The thresholds as they hold on these filesystems: what containers write to has those of the filesystem it shares,
/// whatever the configuration says.
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
        // The same filesystem as that of another threshold: twice the same says nothing new.
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
