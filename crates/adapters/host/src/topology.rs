//! Processors and memory of the machine, from sysfs, as the Go kubelet's cAdvisor reads them.
//!
//! Owns the reading, and no policy: what a file says is not repaired. A processor that is offline or has no core or package is left out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::{fs, io};

use model::cpu_set::CpuSet;
use model::topology::{MachineTopology, NumaNode, Processor};
use ports::host::{HostError, HostResult};

use crate::failed;

mod cache;

#[cfg(test)]
mod tests;

use cache::UncoreCaches;

/// A physical core, with its threads. The hardware's id is unique within a package.
#[derive(Clone, Debug)]
struct Core {
    hardware_id: i64,
    package: u32,
    threads: Vec<u32>,
}

/// Reads `devices/system/node` and `devices/system/cpu` below `sys`.
pub(crate) fn read(sys: &Path) -> HostResult<MachineTopology> {
    let system = sys.join("devices/system");
    let cpus = system.join("cpu");
    let online = online(&cpus)?;
    let nodes = numbered(&system.join("node"), "node")?;
    if nodes.is_empty() {
        return without_numa(&cpus, online.as_ref());
    }
    let mut machine = MachineTopology::default();
    for id in nodes {
        let dir = system.join(format!("node/node{id}"));
        let ids = numbered(&dir, "cpu")?;
        add_processors(&mut machine, &cpus, id, cores(&cpus, &ids, online.as_ref())?);
        machine.numa_nodes.push(NumaNode {
            id,
            memory_bytes: memory_bytes(&dir)?,
            huge_pages: huge_pages(&dir.join("hugepages"))?,
            distances: distances(&dir)?,
        });
    }
    Ok(sorted(machine))
}

/// A kernel without NUMA: each package counts as a node, whose memory is unknown.
fn without_numa(cpus: &Path, online: Option<&CpuSet>) -> HostResult<MachineTopology> {
    let ids = numbered(cpus, "cpu")?;
    if ids.is_empty() {
        return Err(HostError::Invalid(format!("no CPU is available, cpusPath: {}", cpus.display())));
    }
    let mut by_package: BTreeMap<u32, Vec<Core>> = BTreeMap::new();
    for core in cores(cpus, &ids, online)? {
        by_package.entry(core.package).or_default().push(core);
    }
    let mut machine = MachineTopology::default();
    for (id, cores) in by_package {
        add_processors(&mut machine, cpus, id, cores);
        machine.numa_nodes.push(NumaNode { id, ..NumaNode::default() });
    }
    Ok(sorted(machine))
}

fn sorted(mut machine: MachineTopology) -> MachineTopology {
    machine.processors.sort_unstable();
    machine
}

fn add_processors(machine: &mut MachineTopology, cpus: &Path, node: u32, cores: Vec<Core>) {
    let mut caches = UncoreCaches::of_node(cpus, cores.len());
    for core in cores {
        let uncore_cache = caches.of_core(&core.threads).unwrap_or(core.package);
        let id_of_core = core.threads.iter().copied().min().unwrap_or_default();
        machine.processors.extend(core.threads.into_iter().map(|id| Processor {
            id,
            core: id_of_core,
            socket: core.package,
            numa_node: node,
            uncore_cache,
        }));
    }
}

/// The cores of these processors, in the order of their directories.
fn cores(cpus: &Path, ids: &[u32], online: Option<&CpuSet>) -> HostResult<Vec<Core>> {
    let mut cores: Vec<Core> = Vec::new();
    for id in ids.iter().copied().filter(|id| online.is_none_or(|online| online.contains(*id))) {
        let topology = cpus.join(format!("cpu{id}/topology"));
        let (core, package) = (topology.join("core_id"), topology.join("physical_package_id"));
        let (Some(hardware_id), Some(package)) = (number(&core)?, number(&package)?) else { continue };
        // Guests without a package have -1.
        let package = u32::try_from(package).unwrap_or_default();
        match cores.iter_mut().find(|core| core.hardware_id == hardware_id && core.package == package) {
            Some(core) => core.threads.push(id),
            None => cores.push(Core { hardware_id, package, threads: vec![id] }),
        }
    }
    Ok(cores)
}

/// `None` on a kernel that cannot take processors offline.
fn online(cpus: &Path) -> HostResult<Option<CpuSet>> {
    let path = cpus.join("online");
    let Some(text) = text(&path)? else { return Ok(None) };
    let online = text.parse::<CpuSet>().map_err(|why| invalid(&path, &why.to_string()))?;
    Ok(Some(online))
}

/// `0` if the kernel does not say.
fn memory_bytes(node: &Path) -> HostResult<u64> {
    let path = node.join("meminfo");
    let Some(text) = text(&path)? else { return Ok(0) };
    let total = text.lines().find_map(|line| line.split_once("MemTotal:")?.1.trim().strip_suffix("kB"));
    let kib = total.and_then(|kib| kib.trim().parse::<u64>().ok());
    let kib = kib.ok_or_else(|| invalid(&path, "it has no line MemTotal"))?;
    Ok(kib.saturating_mul(1024))
}

fn distances(node: &Path) -> HostResult<Vec<u64>> {
    let path = node.join("distance");
    let Some(text) = text(&path)? else { return Ok(Vec::new()) };
    let parsed: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
    parsed.map_err(|why| invalid(&path, &why.to_string()))
}

fn huge_pages(dir: &Path) -> HostResult<BTreeMap<u64, u64>> {
    let mut pages = BTreeMap::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let kib =
            name.strip_prefix("hugepages-").and_then(|rest| rest.strip_suffix("kB")?.parse::<u64>().ok());
        let Some(kib) = kib else { continue };
        let path = entry.path().join("nr_hugepages");
        let count = number(&path)?.and_then(|count| u64::try_from(count).ok());
        pages.insert(kib.saturating_mul(1024), count.ok_or_else(|| invalid(&path, "it has no number"))?);
    }
    Ok(pages)
}

/// The numbers of the entries `name<number>` of a directory, smallest first; none if there is no directory.
fn numbered(dir: &Path, name: &str) -> HostResult<Vec<u32>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(why) if why.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(why) => return Err(failed("list", dir)(why)),
    };
    let mut numbers = BTreeSet::new();
    for entry in entries {
        let entry = entry.map_err(failed("list", dir))?;
        let number =
            entry.file_name().to_str().and_then(|entry| entry.strip_prefix(name)?.parse::<u32>().ok());
        numbers.extend(number.filter(|number| *number < model::cpu_set::MAX_CPUS));
    }
    Ok(numbers.into_iter().collect())
}

/// `None` if there is no such file.
fn number(path: &Path) -> HostResult<Option<i64>> {
    let Some(text) = text(path)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| invalid(path, "it has no number"))
}

/// `None` if there is no such file.
fn text(path: &Path) -> HostResult<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(why) => Err(failed("read", path)(why)),
    }
}

fn invalid(path: &Path, what: &str) -> HostError {
    HostError::Invalid(format!("{} is not what the kernel writes: {what}", path.display()))
}
