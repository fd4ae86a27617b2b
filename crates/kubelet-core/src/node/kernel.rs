//! The kernel settings that the kubelet requires (docs/behaviour/node-status.md). Never reads or writes a setting.

/// One setting: its path below `/proc/sys` and its required value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tunable {
    pub path: &'static str,
    pub value: i64,
}

const fn tunable(path: &'static str, value: i64) -> Tunable {
    Tunable { path, value }
}

pub const TUNABLES: [Tunable; 6] = [
    // Always overcommit memory: cgroups set the limits.
    tunable("vm/overcommit_memory", 1),
    // Out of memory kills a process and does not panic the kernel.
    tunable("vm/panic_on_oom", 0),
    // Reboot soon after a kernel panic.
    tunable("kernel/panic", 10),
    tunable("kernel/panic_on_oops", 1),
    // Each container uses a key.
    tunable("kernel/keys/root_maxkeys", 1_000_000),
    tunable("kernel/keys/root_maxbytes", 25_000_000),
];

/// What to do about a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TunablePlan {
    Leave,
    Set,
    /// `protectKernelDefaults`: the administrator has to set it.
    Refuse(String),
}

/// Decides from the current value of the setting; `None` if it cannot be read.
#[must_use]
pub fn compute_tunable(tunable: Tunable, now: Option<&str>, is_protected: bool) -> TunablePlan {
    let now = now.map(str::trim);
    if now.and_then(|text| text.parse().ok()) == Some(tunable.value) {
        return TunablePlan::Leave;
    }
    if !is_protected {
        return TunablePlan::Set;
    }
    TunablePlan::Refuse(format!(
        "invalid kernel flag: {}, expected value: {}, actual value: {}",
        tunable.path,
        tunable.value,
        now.unwrap_or("unknown")
    ))
}

/// Whether the kubelet runs in a user namespace, and whether it may (gate `KubeletInUserNamespace`). There the kernel refuses to change
/// settings of the machine and to read its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserNamespace {
    /// The first one, of the machine.
    Initial,
    Allowed,
    NotAllowed,
}

impl UserNamespace {
    /// From the text of `/proc/self/uid_map`, which maps all users to themselves in the namespace of the machine; `None` if the kernel has
    /// no user namespaces.
    #[must_use]
    pub fn of(uid_map: Option<&str>, is_allowed: bool) -> Self {
        match uid_map.is_some_and(|map| map.split_whitespace().ne(["0", "0", "4294967295"])) {
            false => Self::Initial,
            true if is_allowed => Self::Allowed,
            true => Self::NotAllowed,
        }
    }

    /// Why the kubelet does not start after `problem`, which a user namespace may cause; `None`: it is logged, and the kubelet goes on
    /// without.
    #[must_use]
    pub fn refuse(self, problem: &str) -> Option<String> {
        match self {
            Self::Initial | Self::Allowed => None,
            Self::NotAllowed => Some(format!(
                "{problem} (running in a user namespace; enable the feature gate KubeletInUserNamespace to ignore the error)"
            )),
        }
    }
}

/// Reason of the event with the message of [`compute_swap_warning`].
pub const MEMORY_ON_DISK: &str = "PossibleMemoryBackedVolumesOnDisk";

/// The warning for nodes on which secrets in memory may be swapped to disk (docs/behaviour/resources-and-qos.md).
#[must_use]
pub const fn compute_swap_warning(swap_bytes: u64, tmpfs_stays_in_memory: bool) -> Option<&'static str> {
    if swap_bytes == 0 || tmpfs_stays_in_memory {
        return None;
    }
    Some(
        "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) \
         might be swapped to disk and should no longer be considered secure.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_warning_is_given_only_if_tmpfs_can_be_swapped_out() {
        for (swap_bytes, stays, is_warned) in
            [(0, true, false), (0, false, false), (1 << 30, true, false), (1 << 30, false, true)]
        {
            assert_eq!(compute_swap_warning(swap_bytes, stays).is_some(), is_warned, "{swap_bytes} {stays}");
        }
    }

    #[test]
    fn kernel_setting_is_corrected_or_refused_with_protect_kernel_defaults() {
        let [overcommit, ..] = TUNABLES;
        assert_eq!(compute_tunable(overcommit, Some("1\n"), false), TunablePlan::Leave);
        assert_eq!(compute_tunable(overcommit, Some("1\n"), true), TunablePlan::Leave);
        assert_eq!(compute_tunable(overcommit, Some("0\n"), false), TunablePlan::Set);
        assert_eq!(compute_tunable(overcommit, None, false), TunablePlan::Set);
        let refused = "invalid kernel flag: vm/overcommit_memory, expected value: 1, actual value: 0";
        assert_eq!(compute_tunable(overcommit, Some("0\n"), true), TunablePlan::Refuse(refused.to_owned()));
    }

    #[test]
    fn user_namespace_is_detected_from_its_map_of_users() {
        use UserNamespace::{Allowed, Initial, NotAllowed};
        let whole = "         0          0 4294967295\n";
        for (map, expected) in [
            (None, [Initial, Initial]),
            (Some(whole), [Initial, Initial]),
            (Some("         0       1000          1\n"), [NotAllowed, Allowed]),
            (Some("0 0 1\n1 100000 65536\n"), [NotAllowed, Allowed]),
            (Some(""), [NotAllowed, Allowed]),
        ] {
            assert_eq!(
                [false, true].map(|is_allowed| UserNamespace::of(map, is_allowed)),
                expected,
                "{map:?}"
            );
        }
    }

    #[test]
    fn kernel_setting_that_a_user_namespace_refuses_fails_the_start_without_the_gate() {
        let refused =
            UserNamespace::NotAllowed.refuse("failed to change kernel flag kernel/panic: denied").unwrap();
        assert!(
            refused.starts_with("failed to change kernel flag kernel/panic: denied (running in"),
            "{refused}"
        );
        assert!(refused.contains("KubeletInUserNamespace"), "{refused}");
        for going_on in [UserNamespace::Initial, UserNamespace::Allowed] {
            assert_eq!(going_on.refuse("denied"), None, "{going_on:?}");
        }
    }
}
