//! What a kubelet knows of its own node before the API does: for the admission of pods, and what of the machine is reserved.

use std::collections::BTreeMap;

use base_agent::context::Context;
use kubelet_core::node::{
    NodeSettings, compute_allocatable, compute_capacity, compute_node_for_admission, reserved_amounts,
};
use model::k8s::{Node, Quantity};
use resources_core::quantities::{Amounts, Quantities};

use crate::node::facts::hostname;
use crate::node::machine::machine_facts;

/// What this kubelet knows of its Node without the API.
pub(super) async fn for_admission(ctx: &Context) -> Node {
    let info = ctx.machine.info();
    // The reporter of the Node logs an error.
    let storage = ctx.files.filesystem_bytes(&ctx.settings.paths.root).await.ok();
    compute_node_for_admission(&NodeSettings {
        name: &ctx.settings.node_name,
        hostname: &hostname(&ctx.settings.flags, &info),
        config: ctx.config(),
        flags: &ctx.settings.flags,
        machine: &machine_facts(info, storage),
    })
}

/// The allocatable resources before the Node is known; of a standalone node, the whole machine.
pub(super) fn allocatable(ctx: &Context) -> BTreeMap<String, Quantity> {
    let machine = ctx.machine.info();
    if !ctx.settings.flags.standalone() {
        let (capacity, reserved) = reserved(ctx);
        return compute_allocatable(&capacity, &reserved, &BTreeMap::new());
    }
    BTreeMap::from([
        ("cpu".to_owned(), Quantity(machine.cpus.to_string())),
        ("memory".to_owned(), Quantity(machine.memory_bytes.to_string())),
    ])
}

/// The capacity of the machine, and what Node Allocatable reserves of it.
pub(super) fn reserved(ctx: &Context) -> (Quantities, Amounts) {
    let machine = machine_facts(ctx.machine.info(), None);
    let capacity = compute_capacity(ctx.config(), &machine, &BTreeMap::new(), &BTreeMap::new());
    let ignores_eviction = ctx.settings.flags.experimental_allocatable_ignore_eviction;
    let reserved = reserved_amounts(ctx.config(), &capacity, ignores_eviction);
    (capacity, reserved)
}
