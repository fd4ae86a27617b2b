//! What a soak leaves behind: the machine and the kubelet after the last pod is gone, compared with the same before the first.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Connections that may be open or idle at the one moment and not at the other: to the runtime, the API server, a driver.
pub const DESCRIPTOR_ALLOWANCE: usize = 8;
/// Threads of the pool for blocking calls, which end some seconds after their last use.
pub const THREAD_ALLOWANCE: usize = 4;
/// Code and data of the program that are used for the first time when something fails, and blocks that the allocator keeps.
pub const MEMORY_ALLOWANCE: u64 = 4 << 20;
/// In addition to the allowance, so many percent.
pub const MEMORY_PERCENT: u64 = 10;

/// The state of the machine, as far as it belongs to this soak, and of the kubelet, without any pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// Mount points, of the machine and of the kubelet's own mount namespace.
    pub mounts: BTreeSet<String>,
    pub cgroups: BTreeSet<String>,
    pub interfaces: BTreeSet<String>,
    /// Command lines without process ids, with how many there are.
    pub processes: BTreeMap<String, usize>,
    /// Ids of shims of the runtime without any process of a container, for sandboxes that it no longer lists. Not compared: the runtime has
    /// reported these as removed, so the kubelet cannot do anything about them.
    pub empty_shims: BTreeSet<String>,
    /// Network namespaces of the runtime that no process is in. Not compared: a runtime that is killed in `RunPodSandbox`, before it has
    /// recorded the sandbox, forgets its namespace, and no call names it.
    pub empty_networks: BTreeSet<String>,
    /// Below the kubelet's root and log directories.
    pub files: BTreeSet<String>,
    /// What the runtime still has: sandboxes and containers.
    pub runtime: BTreeSet<String>,
    /// Volumes that are staged or published.
    pub volumes: BTreeSet<String>,
    /// By what they refer to, such as `socket`.
    pub descriptors: BTreeMap<String, usize>,
    pub threads: usize,
    pub resident_bytes: u64,
}

impl Inventory {
    /// The runtime has left something that no call to it can remove.
    #[must_use]
    pub fn has_lost_of_runtime(&self) -> bool {
        !self.empty_shims.is_empty() || !self.empty_networks.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Leak {
    /// Something is left that did not exist before.
    Left {
        kind: &'static str,
        what: String,
    },
    Grown {
        kind: &'static str,
        before: u64,
        after: u64,
        allowed: u64,
        more: String,
    },
}

impl fmt::Display for Leak {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Left { kind, what } => write!(out, "{kind} left behind: {what}"),
            Self::Grown { kind, before, after, allowed, more } => {
                write!(out, "{kind} grew from {before} to {after}, allowed are {allowed}{more}")
            }
        }
    }
}

#[must_use]
pub fn compute_leaks(before: &Inventory, after: &Inventory) -> Vec<Leak> {
    let sets = [
        ("mount", &before.mounts, &after.mounts),
        ("cgroup", &before.cgroups, &after.cgroups),
        ("interface", &before.interfaces, &after.interfaces),
        ("file", &before.files, &after.files),
        ("record of the runtime", &before.runtime, &after.runtime),
        ("volume", &before.volumes, &after.volumes),
    ];
    let mut leaks: Vec<Leak> = Vec::new();
    for (kind, before, after) in sets {
        leaks.extend(after.difference(before).map(|what| Leak::Left { kind, what: what.clone() }));
    }
    for (command, count) in &after.processes {
        let more = count.saturating_sub(before.processes.get(command).copied().unwrap_or_default());
        if more > 0 {
            leaks.push(Leak::Left { kind: "process", what: format!("{more} of {command}") });
        }
    }
    leaks.extend(descriptors(before, after));
    leaks.extend(grown("threads", before.threads, after.threads, THREAD_ALLOWANCE, String::new()));
    let allowed = before.resident_bytes + before.resident_bytes * MEMORY_PERCENT / 100 + MEMORY_ALLOWANCE;
    if after.resident_bytes > allowed {
        let (before, after) = (before.resident_bytes, after.resident_bytes);
        leaks.push(Leak::Grown { kind: "resident bytes", before, after, allowed, more: String::new() });
    }
    leaks
}

fn descriptors(before: &Inventory, after: &Inventory) -> Option<Leak> {
    let all = |inventory: &Inventory| inventory.descriptors.values().sum();
    let grown_kinds: BTreeMap<&str, usize> = after
        .descriptors
        .iter()
        .map(|(kind, count)| {
            let before = before.descriptors.get(kind).copied().unwrap_or_default();
            (kind.as_str(), count.saturating_sub(before))
        })
        .filter(|(_, more)| *more > 0)
        .collect();
    grown("descriptors", all(before), all(after), DESCRIPTOR_ALLOWANCE, format!("; more: {grown_kinds:?}"))
}

fn grown(kind: &'static str, before: usize, after: usize, allowance: usize, more: String) -> Option<Leak> {
    let (before, after, allowed) = (before as u64, after as u64, (before + allowance) as u64);
    (after > allowed).then_some(Leak::Grown { kind, before, after, allowed, more })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean() -> Inventory {
        Inventory {
            mounts: ["/run/soak/root".to_owned()].into(),
            processes: [("containerd --config c".to_owned(), 1)].into(),
            descriptors: [("socket".to_owned(), 6), ("pipe".to_owned(), 2)].into(),
            threads: 3,
            resident_bytes: 20 << 20,
            ..Inventory::default()
        }
    }

    /// What is found after this change.
    fn found(change: impl FnOnce(&mut Inventory)) -> Vec<String> {
        let mut after = clean();
        change(&mut after);
        compute_leaks(&clean(), &after).iter().map(Leak::to_string).collect()
    }

    #[test]
    fn soak_accepts_an_equal_state_and_growth_within_the_allowances() {
        assert_eq!(found(|_| ()), Vec::<String>::new());
        let within = found(|after| {
            after.mounts.clear();
            after.descriptors.insert("socket".to_owned(), 6 + DESCRIPTOR_ALLOWANCE);
            after.threads += THREAD_ALLOWANCE;
            after.resident_bytes += (2 << 20) + MEMORY_ALLOWANCE;
        });
        assert_eq!(within, Vec::<String>::new());
    }

    #[test]
    fn soak_does_not_count_shims_that_the_runtime_has_lost() {
        assert_eq!(found(|after| after.empty_shims = ["a".to_owned()].into()), Vec::<String>::new());
    }

    #[test]
    fn soak_does_not_count_network_namespaces_that_the_runtime_has_lost() {
        assert_eq!(found(|after| after.empty_networks = ["a".to_owned()].into()), Vec::<String>::new());
    }

    #[test]
    fn soak_finds_what_is_left_of_each_kind() {
        let set = |set: &mut BTreeSet<String>| {
            set.insert("x".to_owned());
        };
        assert_eq!(found(|after| set(&mut after.mounts)), ["mount left behind: x"]);
        assert_eq!(found(|after| set(&mut after.cgroups)), ["cgroup left behind: x"]);
        assert_eq!(found(|after| set(&mut after.interfaces)), ["interface left behind: x"]);
        assert_eq!(found(|after| set(&mut after.files)), ["file left behind: x"]);
        assert_eq!(found(|after| set(&mut after.runtime)), ["record of the runtime left behind: x"]);
        assert_eq!(found(|after| set(&mut after.volumes)), ["volume left behind: x"]);
        let process = found(|after| {
            after.processes.insert("containerd --config c".to_owned(), 3);
        });
        assert_eq!(process, ["process left behind: 2 of containerd --config c"]);
    }

    #[test]
    fn soak_finds_growth_beyond_the_allowances() {
        let descriptors = found(|after| {
            after.descriptors.insert("socket".to_owned(), 7 + DESCRIPTOR_ALLOWANCE);
        });
        let expected = "descriptors grew from 8 to 17, allowed are 16; more: {\"socket\": 9}";
        assert_eq!(descriptors, [expected]);
        assert_eq!(found(|after| after.threads = 8), ["threads grew from 3 to 8, allowed are 7"]);
        let memory = found(|after| after.resident_bytes = (26 << 20) + 1);
        assert_eq!(memory, ["resident bytes grew from 20971520 to 27262977, allowed are 27262976"]);
    }
}
