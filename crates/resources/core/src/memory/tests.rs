//! The tables of the original's tests of the memory manager, as text in the folder `tests`. Cases are separated by empty lines.
//!
//! `0[01]x2 mem=2G/512M/1536M/1G/512M`: node 0 in a group with node 1, with 2 allocations, and of its memory the total, what is reserved
//! for the system, what containers can have, have, and what is free. `pod1/c:mem@01=1G+huge@0=1G`: what a container has, by nodes.
//! `pod1 pod(cpu=1,mem=1Gi) i:a(mem=1Gi) s:b() c:d(cpu=1<cpu=2)`: a pod with resources of its own, an init container, a sidecar and a
//! container with different requests and limits.

mod properties;
mod tables;

use std::collections::BTreeMap;

use model::k8s::Pod;
use model::topology::{MachineTopology, NumaMask, NumaNode};
use serde_json::{Value, json};

use super::nodes::{MemoryTable, NodeState};
use super::*;
use crate::topology::TopologyHint;

/// The values of a case, by key; a missing one is empty.
pub(super) struct Case<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Case<'a> {
    pub(super) fn get(&self, key: &str) -> &'a str {
        self.0.get(key).copied().unwrap_or_default()
    }

    pub(super) fn gates(&self) -> PodLevelGates {
        let has = |letter| self.get("gates").contains(letter);
        PodLevelGates { resources: has('r'), managers: has('m') }
    }

    /// The nodes and allocations under these keys.
    pub(super) fn state(&self, nodes_key: &str, has_key: &str) -> MemoryState {
        let mut state = MemoryState { nodes: nodes(self.get(nodes_key)), ..MemoryState::default() };
        for word in self.get(has_key).split_whitespace() {
            let (owner, own) = word.split_once(':').unwrap();
            let (pod, container) = owner.split_once('/').unwrap();
            state.set_container(&pod.into(), container, blocks(own));
        }
        state
    }

    pub(super) fn policy(&self) -> MemoryPolicy {
        let mut reserved = ReservedMemory::default();
        for word in self.get("reserved").split_whitespace() {
            let (node, amount) = word.split_once(':').unwrap();
            let (resource, bytes) = amount.split_once('=').unwrap();
            let of_node = reserved.0.entry(node.parse().unwrap()).or_default();
            of_node.insert(name(resource).to_owned(), size(bytes));
        }
        // Tables about hints do not need the machine.
        if reserved.0.is_empty() {
            reserved.0.entry(0).or_default().insert(MEMORY.to_owned(), 1);
        }
        MemoryPolicy::new(&machine(self.get("machine")), &reserved, self.gates()).unwrap()
    }
}

pub(super) fn cases(text: &str) -> Vec<Case<'_>> {
    let case = |text| str::lines(text).map(|line| line.split_once(": ").unwrap()).collect();
    text.split("\n\n").map(|text| Case(case(text))).collect()
}

fn name(short: &str) -> &str {
    match short {
        "mem" => "memory",
        "huge" => "hugepages-1Gi",
        "2mi" => "hugepages-2Mi",
        name => name,
    }
}

fn size(text: &str) -> u64 {
    let number = |text: &str| text.parse::<u64>().unwrap();
    match text.strip_suffix('G') {
        Some(text) => number(text) << 30,
        None => text.strip_suffix('M').map_or_else(|| number(text), |text| number(text) << 20),
    }
}

fn digits(text: &str) -> NumaMask {
    NumaMask::of(text.chars().map(|digit| digit.to_digit(10).unwrap()))
}

fn machine(text: &str) -> MachineTopology {
    let node = |text: &str| {
        let mut words = text.split_whitespace();
        let mut node = NumaNode { id: words.next().unwrap().parse().unwrap(), ..NumaNode::default() };
        for word in words {
            let (resource, bytes) = word.split_once('=').unwrap();
            match resource {
                "mem" => node.memory_bytes = size(bytes),
                _ => drop(node.huge_pages.insert(1 << 30, size(bytes) >> 30)),
            }
        }
        node
    };
    let nodes = text.split(", ").filter(|text| !text.is_empty());
    MachineTopology { numa_nodes: nodes.map(node).collect(), ..MachineTopology::default() }
}

fn nodes(text: &str) -> NodeMap {
    text.split(", ").filter(|text| !text.is_empty()).map(node).collect()
}

fn node(text: &str) -> (u32, NodeState) {
    let (head, tables) = text.split_once(' ').unwrap();
    let (id, rest) = head.split_once('[').unwrap();
    let (cells, assignments) = rest.split_once("]x").unwrap();
    let table = |text: &str| {
        let (resource, amounts) = text.split_once('=').unwrap();
        let amounts: Vec<u64> = amounts.split('/').map(size).collect();
        let [total, system_reserved, allocatable, reserved, free] = amounts[..] else { panic!("{text}") };
        (name(resource).to_owned(), MemoryTable { total, system_reserved, allocatable, reserved, free })
    };
    let memory = tables.split_whitespace().map(table).collect();
    let node = NodeState { assignments: assignments.parse().unwrap(), memory, cells: digits(cells) };
    (id.parse().unwrap(), node)
}

fn blocks(text: &str) -> Blocks {
    let block = |text: &str| {
        let (place, bytes) = text.split_once('=').unwrap();
        let (resource, numa) = place.split_once('@').unwrap();
        Block { numa: digits(numa), resource: name(resource).to_owned(), bytes: size(bytes) }
    };
    let mut blocks: Blocks = text.split('+').filter(|text| *text != "none").map(block).collect();
    blocks.sort_by(|a, b| a.resource.cmp(&b.resource));
    blocks
}

fn hint(text: &str) -> TopologyHint {
    let (nodes, sign) = text.split_at(text.len() - 1);
    TopologyHint { nodes: (nodes != "*").then(|| digits(nodes)), is_preferred: sign == "+" }
}

/// `cpu=1,mem=1Gi`, or requests and limits with `<` between them.
fn resources(text: &str) -> Value {
    let (requests, limits) = text.split_once('<').unwrap_or((text, text));
    let list = |text: &str| -> Value {
        let amounts = text.split(',').filter_map(|amount| amount.split_once('='));
        amounts.map(|(resource, amount)| (name(resource).to_owned(), json!(amount))).collect()
    };
    json!({"requests": list(requests), "limits": list(limits)})
}

pub(super) fn pod(text: &str) -> Pod {
    let mut words = text.split_whitespace();
    let uid = words.next().unwrap();
    let (mut spec, mut init, mut regular) = (json!({}), Vec::new(), Vec::new());
    for word in words {
        let (head, own) = word.strip_suffix(')').unwrap().split_once('(').unwrap();
        let own = resources(own);
        match head.split_once(':') {
            None => spec["resources"] = own,
            Some(("c", name)) => regular.push(json!({"name": name, "resources": own})),
            Some(("i", name)) => init.push(json!({"name": name, "resources": own})),
            Some((_, name)) => {
                init.push(json!({"name": name, "resources": own, "restartPolicy": "Always"}));
            }
        }
    }
    spec["initContainers"] = json!(init);
    spec["containers"] = json!(regular);
    serde_json::from_value(json!({"metadata": {"uid": uid}, "spec": spec})).unwrap()
}
