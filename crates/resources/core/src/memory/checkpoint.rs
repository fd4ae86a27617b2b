//! `memory_manager_state`: the allocations of memory, in the format of the Go kubelet, so that a node can switch between the two
//! kubelets (docs/behaviour/memory-manager.md).
//!
//! There are two versions of the file. The second has the allocations to whole pods, and is written if the feature gate
//! `PodLevelResourceManagers` is on; then the first is read, too.

mod file;
#[cfg(test)]
mod tests;

use file::{File, FileBlock, FilePod};
use model::PodUid;
use model::topology::NumaMask;

use super::{Block, Blocks, MemoryState};

/// The name of the file in the kubelet's directory.
pub const FILE: &str = "memory_manager_state";

/// Why the allocations of an earlier kubelet are unknown. The kubelet does not start, unless the file is removed.
#[derive(Debug, thiserror::Error)]
pub enum MemoryCheckpointError {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("checkpoint is corrupted")]
    Corrupt,
    #[error(
        "[memorymanager] configured policy {configured:?} differs from state checkpoint policy {found:?}"
    )]
    OtherPolicy { configured: String, found: String },
}

impl MemoryCheckpointError {
    /// What the log says before the kubelet ends.
    #[must_use]
    pub fn message(&self, path: &str) -> String {
        format!(
            "could not restore state from checkpoint: {self}, please drain this node and delete the memory manager checkpoint \
             file {path:?} before restarting Kubelet"
        )
    }
}

/// The text of the file. Under the policy `None` the state is empty.
#[must_use]
pub fn write_memory_checkpoint(policy: &str, state: &MemoryState, has_pod_level_managers: bool) -> String {
    let mut file = File::new(policy, state, has_pod_level_managers);
    file.checksum = u64::from(file.legacy_checksum());
    serde_json::to_string(&file).unwrap_or_default()
}

/// # Errors
/// The text was not written by a kubelet, is incomplete, or was written under another policy.
pub fn parse_memory_checkpoint(
    text: &str,
    policy: &str,
    has_pod_level_managers: bool,
) -> Result<MemoryState, MemoryCheckpointError> {
    let file = read(text, has_pod_level_managers)?;
    if file.policy_name != policy {
        let (configured, found) = (policy.to_owned(), file.policy_name);
        return Err(MemoryCheckpointError::OtherPolicy { configured, found });
    }
    file.into_state().ok_or(MemoryCheckpointError::Corrupt)
}

fn read(text: &str, has_pod_level_managers: bool) -> Result<File, MemoryCheckpointError> {
    let second: File = serde_json::from_str(text)?;
    let mut first = second.clone();
    first.pod_entries = None;
    let is = |recorded: u64, found: u32| recorded == u64::from(found);
    if has_pod_level_managers {
        let second = second.with_pod_entries();
        if is(second.checksum, second.legacy_checksum()) {
            return Ok(second);
        }
    } else if is(first.checksum, first.first_version_checksum()) {
        return Ok(first);
    }
    // Files of old releases have no checksum.
    let is_intact = first.checksum == 0 || is(first.checksum, first.legacy_checksum());
    is_intact.then_some(first).ok_or(MemoryCheckpointError::Corrupt)
}

/// For fuzzers: the same file with a correct checksum and the policy `Static`.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn with_right_checksum(text: &str) -> Option<String> {
    let mut file: File = serde_json::from_str(text).ok()?;
    "Static".clone_into(&mut file.policy_name);
    file = file.with_pod_entries();
    file.checksum = file.legacy_checksum().into();
    serde_json::to_string(&file).ok()
}

impl FileBlock {
    fn of(block: &Block) -> Self {
        Self {
            numa_affinity: Some(block.numa.ids().map(i64::from).collect()),
            resource: block.resource.clone(),
            size: block.bytes,
        }
    }

    fn block(self) -> Option<Block> {
        let numa = mask(self.numa_affinity.unwrap_or_default())?;
        Some(Block { numa, resource: self.resource, bytes: self.size })
    }
}

/// `None` for ids that no machine has.
fn mask(ids: Vec<i64>) -> Option<NumaMask> {
    let ids = ids.into_iter().map(|id| u32::try_from(id).ok().filter(|id| *id < u64::BITS));
    Some(NumaMask::of(ids.collect::<Option<Vec<u32>>>()?))
}

fn file_blocks(blocks: &Blocks) -> Option<Vec<FileBlock>> {
    Some(blocks.iter().map(FileBlock::of).collect())
}

fn state_blocks(blocks: Option<Vec<FileBlock>>) -> Option<Blocks> {
    blocks.unwrap_or_default().into_iter().map(FileBlock::block).collect()
}

impl File {
    fn new(policy: &str, state: &MemoryState, has_pod_level_managers: bool) -> Self {
        let nodes = state.nodes.iter().map(|(id, node)| (i64::from(*id), Some(node.into())));
        let containers = |containers: &std::collections::BTreeMap<String, Blocks>| {
            Some(containers.iter().map(|(name, blocks)| (name.clone(), file_blocks(blocks))).collect())
        };
        let entries = state.containers.iter().map(|(pod, all)| (pod.to_string(), containers(all)));
        let pods = || {
            // An empty list is not written, so that it must not count for the checksum either.
            let pod = |(pod, blocks): (&PodUid, &Blocks)| {
                (
                    pod.to_string(),
                    FilePod { memory_blocks: file_blocks(blocks).filter(|blocks| !blocks.is_empty()) },
                )
            };
            state.pods.iter().map(pod).collect()
        };
        Self {
            policy_name: policy.to_owned(),
            machine_state: Some(nodes.collect()),
            entries: Some(entries.collect()),
            pod_entries: has_pod_level_managers.then(pods),
            checksum: 0,
        }
    }

    fn into_state(self) -> Option<MemoryState> {
        let mut state = MemoryState::default();
        for (id, node) in self.machine_state.unwrap_or_default() {
            state.nodes.insert(u32::try_from(id).ok()?, node?.node()?);
        }
        for (pod, containers) in self.entries.unwrap_or_default() {
            for (container, blocks) in containers.unwrap_or_default() {
                state.set_container(&PodUid::new(&pod), &container, state_blocks(blocks)?);
            }
        }
        for (pod, entry) in self.pod_entries.unwrap_or_default() {
            state.pods.insert(PodUid::new(pod), state_blocks(entry.memory_blocks)?);
        }
        Some(state)
    }
}
