//! The fake as `Machine`.

use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::Ordering;

use async_trait::async_trait;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use model::topology::{MachineTopology, NumaNode, Processor};
use ports::Machine;
use ports::host::{HostResult, MachineInfo, SubordinateIds};

use super::FakeHost;

#[async_trait]
impl Machine for FakeHost {
    /// Each content of the file is a record.
    fn kernel_log(&self, path: &Path) -> HostResult<BoxStream<'static, String>> {
        let (host, path) = (self.clone(), path.to_owned());
        Ok(self.changes_of(&path).filter_map(move |_| std::future::ready(host.text(&path))).boxed())
    }

    fn info(&self) -> MachineInfo {
        let mut info =
            MachineInfo { swap_bytes: self.shared.swap.lock().bytes, ..self.shared.machine.clone() };
        if let Some(topology) = &*self.shared.topology.lock() {
            info.cpus = u32::try_from(topology.processors.len()).unwrap_or(u32::MAX);
        }
        let reboots = self.shared.reboots.load(Ordering::Relaxed);
        if reboots > 0 {
            info.boot_id = format!("boot-{reboots}");
        }
        info
    }

    async fn topology(&self) -> HostResult<MachineTopology> {
        let set = self.shared.topology.lock().clone();
        Ok(set.unwrap_or_else(|| equal_processors(&self.shared.machine)))
    }

    fn own_addresses(&self, candidates: &[IpAddr]) -> Vec<IpAddr> {
        let own = self.default_route_ip(false);
        candidates.iter().copied().filter(|ip| Some(*ip) == own).collect()
    }

    fn default_route_ip(&self, _prefers_v6: bool) -> Option<IpAddr> {
        Some(IpAddr::from([10, 0, 0, 7]))
    }

    async fn subordinate_ids(&self, _user: &str) -> HostResult<Option<SubordinateIds>> {
        Ok(self.shared.subordinate_ids.lock().clone())
    }

    fn has_apparmor(&self) -> bool {
        false
    }
}

/// One socket and one NUMA node with all of the memory, and a core for each processor.
fn equal_processors(machine: &MachineInfo) -> MachineTopology {
    let processor = |id| Processor { id, core: id, socket: 0, numa_node: 0, uncore_cache: 0 };
    let node = NumaNode { memory_bytes: machine.memory_bytes, distances: vec![10], ..NumaNode::default() };
    MachineTopology { processors: (0..machine.cpus).map(processor).collect(), numa_nodes: vec![node] }
}
