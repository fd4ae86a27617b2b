//! The JSON of the file, and how Go prints it for the checksum.
//!
//! A list or map is `None` where the file has `null`, because its checksum differs from that of an empty one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};

use super::super::{MemoryTable, NodeState};
use super::mask;
use crate::go_checksum::{GoField, GoValue, go_checksum};

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct File {
    #[serde(default)]
    pub(super) policy_name: String,
    #[serde(default = "empty", serialize_with = "in_order_of_text")]
    pub(super) machine_state: Option<BTreeMap<i64, Option<FileNode>>>,
    #[serde(default = "empty", skip_serializing_if = "is_empty")]
    pub(super) entries: Option<BTreeMap<String, Option<FileContainers>>>,
    /// In the second version only.
    #[serde(skip_serializing_if = "is_empty")]
    pub(super) pod_entries: Option<BTreeMap<String, FilePod>>,
    #[serde(default)]
    pub(super) checksum: u64,
}

type FileContainers = BTreeMap<String, Option<Vec<FileBlock>>>;

#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
pub(super) struct FileNode {
    number_of_assignments: i64,
    memory_map: Option<BTreeMap<String, Option<FileTable>>>,
    cells: Option<Vec<i64>>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
struct FileTable {
    total: u64,
    system_reserved: u64,
    allocatable: u64,
    reserved: u64,
    free: u64,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FileBlock {
    pub(super) numa_affinity: Option<Vec<i64>>,
    #[serde(rename = "type")]
    pub(super) resource: String,
    pub(super) size: u64,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FilePod {
    #[serde(skip_serializing_if = "no_blocks")]
    pub(super) memory_blocks: Option<Vec<FileBlock>>,
}

/// A field that is missing is an empty map in Go.
fn empty<K, V>() -> Option<BTreeMap<K, V>> {
    Some(BTreeMap::new())
}

#[expect(clippy::ref_option, reason = "serde passes the field")]
fn is_empty<K, V>(map: &Option<BTreeMap<K, V>>) -> bool {
    map.as_ref().is_none_or(BTreeMap::is_empty)
}

#[expect(clippy::ref_option, reason = "serde passes the field")]
fn no_blocks(blocks: &Option<Vec<FileBlock>>) -> bool {
    blocks.as_ref().is_none_or(Vec::is_empty)
}

/// Go writes the keys of a map in the order of their texts: 10 is before 2.
#[expect(clippy::ref_option, reason = "serde passes the field")]
fn in_order_of_text<S: Serializer, V: Serialize>(
    map: &Option<BTreeMap<i64, V>>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let texts = |map: &BTreeMap<i64, V>| map.keys().map(i64::to_string).collect::<Vec<_>>();
    let sorted = map.as_ref().map(|map| texts(map).into_iter().zip(map.values()).collect::<BTreeMap<_, _>>());
    sorted.serialize(serializer)
}

impl File {
    /// As the second version, which has the field.
    pub(super) fn with_pod_entries(self) -> Self {
        Self { pod_entries: Some(self.pod_entries.unwrap_or_default()), ..self }
    }

    /// Both versions are written with the checksum of a struct of this name.
    pub(super) fn legacy_checksum(&self) -> u32 {
        go_checksum("state.MemoryManagerCheckpoint", &self.go_value())
    }

    /// Accepted, but not written.
    pub(super) fn first_version_checksum(&self) -> u32 {
        go_checksum("state.MemoryManagerCheckpointV1", &self.go_value())
    }

    fn go_value(&self) -> GoValue {
        let nodes = go_map(self.machine_state.as_ref(), |node| match node {
            None => GoValue::Nil,
            Some(node) => node.go_value().pointer(),
        });
        let entries = go_map(self.entries.as_ref(), |containers| {
            go_map(containers.as_ref(), |blocks| go_blocks(blocks.as_ref()))
        });
        let mut fields = vec![
            GoField::new("PolicyName", "string", GoValue::plain(&self.policy_name)),
            GoField::new("MachineState", "state.NUMANodeMap", nodes),
            GoField::new("Entries", "state.ContainerMemoryAssignments", entries),
        ];
        if let Some(pods) = &self.pod_entries {
            let pods = go_map(Some(pods), |pod| {
                let blocks = go_blocks(pod.memory_blocks.as_ref());
                GoValue::Struct(vec![GoField::new("MemoryBlocks", "[]state.Block", blocks)])
            });
            fields.push(GoField::new("PodEntries", "state.PodMemoryAssignments", pods));
        }
        fields.push(GoField::new("Checksum", "checksum.Checksum", GoValue::plain(0)));
        GoValue::Struct(fields).pointer()
    }
}

impl FileNode {
    fn go_value(&self) -> GoValue {
        let tables = go_map(self.memory_map.as_ref(), |table| match table {
            None => GoValue::Nil,
            Some(table) => table.go_value().pointer(),
        });
        GoValue::Struct(vec![
            GoField::new("NumberOfAssignments", "int", GoValue::plain(self.number_of_assignments)),
            GoField::new("MemoryMap", "map[v1.ResourceName]*state.MemoryTable", tables),
            GoField::new("Cells", "[]int", go_numbers(self.cells.as_ref())),
        ])
    }

    /// `None`: it has ids that no machine has, or lacks a table.
    pub(super) fn node(self) -> Option<NodeState> {
        let table = |(resource, table): (String, Option<FileTable>)| {
            let FileTable { total, system_reserved, allocatable, reserved, free } = table?;
            Some((resource, MemoryTable { total, system_reserved, allocatable, reserved, free }))
        };
        Some(NodeState {
            assignments: self.number_of_assignments,
            memory: self.memory_map.unwrap_or_default().into_iter().map(table).collect::<Option<_>>()?,
            cells: mask(self.cells.unwrap_or_default())?,
        })
    }
}

impl From<&NodeState> for FileNode {
    fn from(node: &NodeState) -> Self {
        let table = |(resource, table): (&String, &MemoryTable)| {
            let MemoryTable { total, system_reserved, allocatable, reserved, free } = *table;
            (resource.clone(), Some(FileTable { total, system_reserved, allocatable, reserved, free }))
        };
        Self {
            number_of_assignments: node.assignments,
            memory_map: Some(node.memory.iter().map(table).collect()),
            cells: Some(node.cells.ids().map(i64::from).collect()),
        }
    }
}

impl FileTable {
    fn go_value(self) -> GoValue {
        let number = |name, value: u64| GoField::new(name, "uint64", GoValue::plain(value));
        GoValue::Struct(vec![
            number("TotalMemSize", self.total),
            number("SystemReserved", self.system_reserved),
            number("Allocatable", self.allocatable),
            number("Reserved", self.reserved),
            number("Free", self.free),
        ])
    }
}

fn go_map<K: ToString, V>(map: Option<&BTreeMap<K, V>>, value: impl Fn(&V) -> GoValue) -> GoValue {
    map.map_or(GoValue::Nil, |map| GoValue::map(map.iter().map(|(key, own)| (key.to_string(), value(own)))))
}

fn go_blocks(blocks: Option<&Vec<FileBlock>>) -> GoValue {
    let block = |block: &FileBlock| {
        GoValue::Struct(vec![
            GoField::new("NUMAAffinity", "[]int", go_numbers(block.numa_affinity.as_ref())),
            GoField::new("Type", "v1.ResourceName", GoValue::plain(&block.resource)),
            GoField::new("Size", "uint64", GoValue::plain(block.size)),
        ])
    };
    blocks.map_or(GoValue::Nil, |blocks| GoValue::slice(blocks.iter().map(block)))
}

fn go_numbers(numbers: Option<&Vec<i64>>) -> GoValue {
    numbers.map_or(GoValue::Nil, |numbers| GoValue::slice(numbers.iter().map(GoValue::plain)))
}
