//! Validation of the resolved configuration. Pure: returns every error, with the field, its value and what is allowed.
//!
//! Rules that depend on the machine take [`MachineFacts`].

mod nodes;
mod resources;
mod service;

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::duration::GoDuration;
use crate::error::{ConfigError, ConfigErrors};
use crate::gates::FeatureGates;
use crate::{KubeletConfiguration, NodeFlags, flags};

/// Logged at start on a machine with cgroup v1, and the message of the event `CgroupV1`.
pub const CGROUP_V1_WARNING: &str = "cgroup v1 support is in maintenance mode, please migrate to cgroup v2";

/// The facts about the machine that settings depend on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineFacts {
    pub cgroup_v1: bool,
    pub swap_on: bool,
}

/// Checks everything that does not depend on the machine.
pub(crate) fn settings(
    config: &KubeletConfiguration,
    flags: &NodeFlags,
    gates: &FeatureGates,
    errors: &mut ConfigErrors,
) {
    let mut check = Check { config, gates, errors };
    check.service();
    check.logs();
    check.images();
    check.shutdown();
    check.cgroups();
    check.enforcement();
    check.managers();
    check.amounts();
    check.eviction();
    check.node();
    if config.run_once && !flags.standalone() {
        check.conflict(
            "runOnce (--runonce) true needs a kubelet without an API server, but --kubeconfig is set",
        );
    }
}

/// Checks what depends on the machine.
pub(crate) fn machine(
    config: &KubeletConfiguration,
    facts: &MachineFacts,
) -> Result<Vec<String>, ConfigErrors> {
    let (mut errors, mut warnings) = (ConfigErrors::default(), Vec::new());
    let mut conflict = |problem: &str| errors.push(ConfigError::Conflict { problem: problem.to_owned() });
    if facts.cgroup_v1 && config.fail_cgroup_v1 {
        conflict(
            "this machine uses cgroup v1, which failCgroupV1 (--fail-cgroupv1) true forbids: move to cgroup v2, or set it to false",
        );
    }
    if facts.cgroup_v1 && !config.fail_cgroup_v1 {
        warnings.push(CGROUP_V1_WARNING.to_owned());
    }
    if facts.cgroup_v1 && config.memory_swap.swap_behavior == "LimitedSwap" {
        conflict("memorySwap.swapBehavior is LimitedSwap, but must be empty or NoSwap on cgroup v1");
    }
    if facts.cgroup_v1 && config.single_process_oom_kill == Some(false) {
        conflict("singleProcessOOMKill is false, but must be true or not set on cgroup v1");
    }
    if facts.swap_on && config.fail_swap_on {
        conflict(
            "running with swap on is not supported, please disable swap or set failSwapOn (--fail-swap-on) to false",
        );
    }
    errors.into_result().map(|()| warnings)
}

struct Check<'a> {
    config: &'a KubeletConfiguration,
    gates: &'a FeatureGates,
    errors: &'a mut ConfigErrors,
}

/// The name of a field in messages, with its flag if there is one.
fn label(field: &str) -> String {
    flags::for_field(field).map_or_else(|| field.to_owned(), |flag| format!("{field} (--{})", flag.name))
}

impl Check<'_> {
    fn invalid(&mut self, field: &str, value: impl Display, allowed: impl Into<String>) {
        let (field, value) = (label(field), value.to_string());
        self.errors.push(ConfigError::Invalid { field, value, allowed: allowed.into() });
    }

    fn conflict(&mut self, problem: impl Into<String>) {
        self.errors.push(ConfigError::Conflict { problem: problem.into() });
    }

    fn range(&mut self, field: &str, value: i64, allowed: RangeInclusive<i64>) {
        if !allowed.contains(&value) {
            self.invalid(field, value, format!("from {} to {}", allowed.start(), allowed.end()));
        }
    }

    fn at_least(&mut self, field: &str, value: i64, least: i64) {
        if value < least {
            self.invalid(field, value, format!("{least} or more"));
        }
    }

    fn at_least_time(&mut self, field: &str, value: GoDuration, least: GoDuration) {
        if value < least {
            self.invalid(field, value, format!("{least} or more"));
        }
    }

    fn one_of(&mut self, field: &str, value: &str, allowed: &[&str]) {
        if !allowed.contains(&value) {
            let names: Vec<&str> =
                allowed.iter().map(|name| if name.is_empty() { "empty" } else { name }).collect();
            let (last, most) = names.split_last().unwrap_or((&"empty", &[]));
            let words =
                if most.is_empty() { (*last).to_owned() } else { format!("{} or {last}", most.join(", ")) };
            self.invalid(field, format!("{value:?}"), words);
        }
    }

    fn needs_gate(&mut self, field: &str, gate: &str) {
        if !self.gates.enabled(gate) {
            self.conflict(format!("{} needs the feature gate {gate}", label(field)));
        }
    }
}
