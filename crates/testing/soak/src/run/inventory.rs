//! What exists on the machine because of this soak, to be compared before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use crate::leaks::Inventory;
use harness::containerd::leftovers;
use ports::Runtime;
use ports::runtime::Scope;

use crate::run::stand::Stand;
use crate::run::{BenchError, Outcome, failed};

/// Where containerd mounts the network namespaces of sandboxes, below its state.
const NETWORKS: &str = "io.containerd.grpc.v1.cri/netns";

impl Stand {
    pub(crate) async fn inventory(&mut self) -> Outcome<Inventory> {
        let process =
            self.process_sample().ok_or_else(|| BenchError("the kubelet does not run".to_owned()))?;
        let mut inventory = Inventory {
            threads: process.threads,
            resident_bytes: self.node.exact_memory()?.resident,
            descriptors: descriptors(process.pid),
            ..Inventory::default()
        };
        let home = self.node.dir.clone();
        for table in ["self".to_owned(), process.pid.to_string()] {
            inventory.mounts.extend(mounts_below(&table, &home));
        }
        for below in ["root", "logs"] {
            files_below(&home.join(below), &mut inventory.files);
        }
        let sandboxes = self.runtime.list_sandboxes(&Scope::Node).await.map_err(failed("list sandboxes"))?;
        let containers =
            self.runtime.list_containers(&Scope::Node).await.map_err(failed("list containers"))?;
        inventory
            .runtime
            .extend(sandboxes.iter().map(|one| format!("sandbox {} of {}", one.id, one.pod.name)));
        inventory.runtime.extend(containers.iter().map(|one| format!("container {} {}", one.name, one.id)));
        for line in leftovers(&self.containerd_dir()) {
            sort_in(&mut inventory, &line);
        }
        for command in children(process.pid) {
            *inventory.processes.entry(command).or_default() += 1;
        }
        let volumes = self.driver.staged().into_iter().chain(self.driver.published());
        inventory.volumes.extend(volumes.map(|(volume, path)| format!("{volume} at {}", path.display())));
        Ok(inventory)
    }
}

/// A line of the report on what belongs to a containerd. Its own files exist as long as it runs.
fn sort_in(inventory: &mut Inventory, line: &str) {
    let Some((kind, what)) = line.split_once(' ') else { return };
    match kind {
        "process" => {
            let (pid, command) = what.split_once(' ').unwrap_or(("", what));
            match empty_shim(inventory, pid, command) {
                Some(id) => {
                    inventory.empty_shims.insert(id.to_owned());
                }
                None => *inventory.processes.entry(command.trim().to_owned()).or_default() += 1,
            }
        }
        "mount" if is_empty_network(Path::new(what)) => {
            inventory.empty_networks.insert(what.to_owned());
        }
        "mount" => {
            inventory.mounts.insert(what.to_owned());
        }
        "network" => {
            inventory.interfaces.insert(what.to_owned());
        }
        "cgroup" => {
            inventory.cgroups.insert(what.to_owned());
        }
        _ => {
            inventory.files.insert(what.to_owned());
        }
    }
}

/// The id of a shim without a child, of a sandbox that the runtime does not list.
fn empty_shim<'a>(inventory: &Inventory, pid: &str, command: &'a str) -> Option<&'a str> {
    let mut words = command.split(' ');
    let is_shim = words.next().is_some_and(|program| program.contains("containerd-shim"));
    let id = words.skip_while(|word| *word != "-id").nth(1)?;
    let is_listed = inventory.runtime.iter().any(|line| line.contains(id));
    (is_shim && !is_listed && pid.parse().is_ok_and(|pid| children(pid).is_empty())).then_some(id)
}

/// A network namespace of the runtime that no process is in.
fn is_empty_network(mount: &Path) -> bool {
    if !mount.parent().is_some_and(|dir| dir.ends_with(NETWORKS)) {
        return false;
    }
    let Ok(namespace) = fs::metadata(mount) else { return false };
    let link = format!("net:[{}]", namespace.ino());
    let mut processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_in = |process: &fs::DirEntry| {
        fs::read_link(process.path().join("ns/net")).is_ok_and(|target| target == Path::new(&link))
    };
    !processes.any(|process| is_in(&process))
}

/// Of the mount namespace of that process.
fn mounts_below(process: &str, dir: &Path) -> BTreeSet<String> {
    let table = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    points.filter(|point| Path::new(point).starts_with(dir)).map(str::to_owned).collect()
}

fn files_below(dir: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        found.insert(entry.path().display().to_string());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            files_below(&entry.path(), found);
        }
    }
}

/// Sockets and pipes have numbers, which are cut off.
fn descriptors(pid: u32) -> BTreeMap<String, usize> {
    let mut kinds = BTreeMap::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
        let Ok(target) = fs::read_link(entry.path()) else { continue };
        let target = target.display().to_string();
        let kind = target.split_once(":[").map_or(target.as_str(), |(kind, rest)| match kind {
            "anon_inode" => rest,
            _ => kind,
        });
        *kinds.entry(kind.to_owned()).or_default() += 1;
    }
    kinds
}

/// The command lines of its children.
fn children(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let ids: Vec<String> =
        lists.flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect();
    let command = |id: &String| fs::read_to_string(format!("/proc/{id}/cmdline")).ok();
    ids.iter().filter_map(command).map(|line| line.replace('\0', " ").trim().to_owned()).collect()
}
