//! The processes of a container, by its cgroup: the kernel lists them in `cgroup.procs`, so that no search has to read all of `/proc`.
//!
//! The cgroup is found by the container's id, which every runtime has in its name, and remembered for as long as it exists.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::measure;

const PROCESSES: &str = "cgroup.procs";
/// Only the root of a hierarchy of version 2 has it.
const CONTROLLERS: &str = "cgroup.controllers";
/// Controllers of version 1 whose hierarchies have every process.
const HIERARCHIES: [&str; 4] = ["cpu", "memory", "pids", "systemd"];
/// More cgroups than a node ever has; what is beyond them is not found.
const MAX_CGROUPS: usize = 20_000;
/// Cgroups that are remembered.
const MAX_KNOWN: usize = 1024;

/// The cgroups of containers that were found so far.
#[derive(Debug)]
pub(crate) struct ContainerCgroups {
    /// Where cgroups are mounted.
    root: PathBuf,
    known: Mutex<BTreeMap<String, PathBuf>>,
}

impl ContainerCgroups {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, known: Mutex::default() }
    }

    /// Processes in the container's cgroup and those below. None of them if it has no cgroup, and if it has no id.
    pub(crate) fn processes(&self, container: &str) -> BTreeSet<u32> {
        let Some(cgroup) = self.find(container) else { return BTreeSet::new() };
        let below = measure::directories_below(&cgroup).into_iter();
        let below = below.map(|path| cgroup.join(path.trim_start_matches('/')));
        let lists = below.chain([cgroup.clone()]).map(|dir| fs::read_to_string(dir.join(PROCESSES)));
        let lists: Vec<String> = lists.filter_map(Result::ok).collect();
        lists.iter().flat_map(|list| list.lines()).filter_map(|pid| pid.parse().ok()).collect()
    }

    fn find(&self, container: &str) -> Option<PathBuf> {
        if container.is_empty() {
            return None;
        }
        let known = self.known.lock().get(container).cloned();
        if let Some(known) = known.filter(|cgroup| cgroup.is_dir()) {
            return Some(known);
        }
        let found = search(&self.hierarchy()?, container)?;
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN {
            known.retain(|_, cgroup| cgroup.is_dir());
        }
        if known.len() < MAX_KNOWN {
            known.insert(container.to_owned(), found.clone());
        }
        Some(found)
    }

    fn hierarchy(&self) -> Option<PathBuf> {
        if self.root.join(CONTROLLERS).exists() {
            return Some(self.root.clone());
        }
        HIERARCHIES.into_iter().map(|name| self.root.join(name)).find(|hierarchy| hierarchy.is_dir())
    }
}

/// Level by level, because a container can make cgroups with any name below its own.
fn search(hierarchy: &Path, container: &str) -> Option<PathBuf> {
    let mut ahead = VecDeque::from([hierarchy.to_path_buf()]);
    let mut seen = 0;
    while let Some(directory) = ahead.pop_front() {
        // One that was removed meanwhile is skipped.
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if entry.file_name().to_str().is_some_and(|name| is_named_for(name, container)) {
                return Some(entry.path());
            }
            seen += 1;
            if seen < MAX_CGROUPS {
                ahead.push_back(entry.path());
            }
        }
    }
    None
}

/// Whether a cgroup is the container's: `<id>`, `cri-containerd-<id>.scope`, `crio-<id>`. That of CRI-O's monitor, `crio-conmon-<id>`, is
/// not.
pub(crate) fn is_named_for(cgroup: &str, container: &str) -> bool {
    if container.is_empty() {
        return false;
    }
    let name = cgroup.strip_suffix(".scope").unwrap_or(cgroup);
    match name.strip_suffix(container) {
        Some("") => true,
        Some(prefix) => prefix.ends_with(['-', ':']) && !prefix.ends_with("conmon-"),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cgroups with these processes in them.
    fn cgroups(version_2: bool, all: &[(&str, &str)]) -> (tempfile::TempDir, ContainerCgroups) {
        let root = tempfile::tempdir().unwrap();
        let hierarchy = if version_2 { root.path().to_path_buf() } else { root.path().join("memory") };
        for (path, processes) in all {
            let dir = hierarchy.join(path);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join(PROCESSES), processes).unwrap();
        }
        if version_2 {
            fs::write(root.path().join(CONTROLLERS), "cpu\n").unwrap();
        }
        let cgroups = ContainerCgroups::new(root.path().to_path_buf());
        (root, cgroups)
    }

    #[test]
    fn cgroup_is_the_containers_by_its_whole_id() {
        for name in
            ["abc", "cri-containerd-abc.scope", "crio-abc.scope", "crio-abc", "kubepods-x:cri-containerd:abc"]
        {
            assert!(is_named_for(name, "abc"), "{name}");
        }
        for name in ["xabc", "abcd", "crio-conmon-abc", "crio-conmon-abc.scope", "", "abc.slice"] {
            assert!(!is_named_for(name, "abc"), "{name}");
        }
        assert!(!is_named_for("", "") && !is_named_for("cri-containerd-.scope", ""));
    }

    #[test]
    fn processes_are_those_of_the_cgroup_and_below_it() {
        for version_2 in [true, false] {
            let (_root, cgroups) = cgroups(
                version_2,
                &[
                    ("", "1\n2\n"),
                    ("system/crio-conmon-abc", "3\n"),
                    ("kubepods/pod1/abc", "10\n11\n"),
                    ("kubepods/pod1/abc/init", "12\n"),
                    ("kubepods/pod1/other", "20\n"),
                    ("kubepods/pod1/other/made/up/abc", "21\n"),
                ],
            );
            assert_eq!(cgroups.processes("abc"), [10, 11, 12].into());
            assert_eq!(cgroups.processes("none"), [].into());
            assert_eq!(cgroups.processes(""), [].into());
        }
    }

    #[test]
    fn cgroup_that_was_made_again_elsewhere_is_found() {
        let (root, cgroups) = cgroups(true, &[("a/abc", "10\n")]);
        assert_eq!(cgroups.processes("abc"), [10].into());
        fs::create_dir_all(root.path().join("b")).unwrap();
        fs::rename(root.path().join("a/abc"), root.path().join("b/abc")).unwrap();
        assert_eq!(cgroups.processes("abc"), [10].into());
        fs::remove_dir_all(root.path().join("b")).unwrap();
        assert_eq!(cgroups.processes("abc"), [].into());
    }
}
