//! What containers have for themselves according to the state files: CPUs, memory of NUMA nodes, and devices.

use std::collections::BTreeMap;
use std::fmt;

use model::PodUid;
use resources_core::cpus::{CPU_STATE_FILE, parse_cpu_state};
use resources_core::devices::checkpoint::parse_checkpoint;
use resources_core::memory::Block;
use resources_core::memory::checkpoint::{FILE as MEMORY_STATE_FILE, parse_memory_checkpoint};
use serde::Serialize;

use super::files::{DEVICES, RootEntry, StateSettings, memory_policy};

/// What a container, or a pod as a whole, has for itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AssignedReport {
    /// A list of CPUs: `2-3,8`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cpus: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub memory: Vec<MemoryReport>,
    /// By resource, the ids of the devices.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryReport {
    /// `memory` or `hugepages-<size>`.
    pub resource: String,
    pub bytes: u64,
    pub numa_nodes: Vec<u32>,
}

/// What the state files assign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Assigned {
    containers: BTreeMap<PodUid, BTreeMap<String, AssignedReport>>,
    /// To pods as a whole.
    pods: BTreeMap<PodUid, AssignedReport>,
}

impl Assigned {
    /// Adds what an entry of the root directory assigns: nothing, if it is no such file or cannot be used.
    pub fn add(&mut self, entry: &RootEntry, settings: StateSettings<'_>) {
        let Some(text) = &entry.text else { return };
        match &*entry.path {
            CPU_STATE_FILE => self.add_cpus(text, settings),
            MEMORY_STATE_FILE => self.add_memory(text, settings),
            DEVICES => self.add_devices(text),
            _ => {}
        }
    }

    pub(super) fn to_container(&self, pod: &PodUid, container: &str) -> AssignedReport {
        self.containers.get(pod).and_then(|of_pod| of_pod.get(container)).cloned().unwrap_or_default()
    }

    pub(super) fn to_pod(&self, pod: &PodUid) -> AssignedReport {
        self.pods.get(pod).cloned().unwrap_or_default()
    }

    fn container(&mut self, pod: PodUid, container: String) -> &mut AssignedReport {
        self.containers.entry(pod).or_default().entry(container).or_default()
    }

    fn add_cpus(&mut self, text: &str, settings: StateSettings<'_>) {
        let policy = &settings.config.cpu_manager_policy;
        let parsed = parse_cpu_state(text, policy, settings.has_pod_level_managers, |_| None);
        let Ok((state, _)) = parsed else { return };
        for (pod, containers) in state.assigned {
            for (name, cpus) in containers {
                self.container(pod.clone(), name).cpus = cpus.to_string();
            }
        }
        for (pod, cpus) in state.pods {
            self.pods.entry(pod).or_default().cpus = cpus.to_string();
        }
    }

    fn add_memory(&mut self, text: &str, settings: StateSettings<'_>) {
        let policy = memory_policy(settings.config);
        let parsed = parse_memory_checkpoint(text, policy, settings.has_pod_level_managers);
        let Ok(state) = parsed else { return };
        for (pod, containers) in state.containers {
            for (name, blocks) in containers {
                self.container(pod.clone(), name).memory = blocks.into_iter().map(memory_report).collect();
            }
        }
        for (pod, blocks) in state.pods {
            self.pods.entry(pod).or_default().memory = blocks.into_iter().map(memory_report).collect();
        }
    }

    fn add_devices(&mut self, text: &str) {
        let Ok(remembered) = parse_checkpoint(text, |_| None) else { return };
        for (pod, devices) in remembered.pods {
            for (name, resources) in devices.containers {
                let report = self.container(pod.clone(), name);
                for (resource, given) in resources {
                    report.devices.insert(resource, given.devices.into_keys().collect());
                }
            }
        }
    }
}

fn memory_report(block: Block) -> MemoryReport {
    MemoryReport { resource: block.resource, bytes: block.bytes, numa_nodes: block.numa.ids().collect() }
}

/// For the line of its owner: begins with a comma, unless there is nothing.
impl fmt::Display for AssignedReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.cpus.is_empty() {
            write!(f, ", CPUs {}", self.cpus)?;
        }
        for MemoryReport { resource, bytes, numa_nodes } in &self.memory {
            let nodes: Vec<String> = numa_nodes.iter().map(ToString::to_string).collect();
            write!(f, ", {bytes} bytes of {resource} of NUMA nodes {}", nodes.join(","))?;
        }
        for (resource, ids) in &self.devices {
            write!(f, ", {resource} {}", ids.join(","))?;
        }
        Ok(())
    }
}
