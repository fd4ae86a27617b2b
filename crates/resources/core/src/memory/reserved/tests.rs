use config::QuantityText;

use super::*;
use model::topology::NumaNode;

/// `0:memory=5,hugepages-2Mi=7 1:memory=1`: what is reserved on each node; `memory=5`: what Node Allocatable reserves.
fn check(node_allocatable: &str, reservations: &str) -> Result<ReservedMemory, String> {
    let node = |id| NumaNode { id, ..NumaNode::default() };
    let machine = MachineTopology { numa_nodes: vec![node(0), node(1)], ..MachineTopology::default() };
    let amounts = node_allocatable.split(',').filter_map(|pair| pair.split_once('='));
    let amounts = amounts.map(|(name, text)| (name.to_owned(), Amount::parse(text).unwrap())).collect();
    let reservation = |text: &str| {
        let (node, limits) = text.split_once(':').unwrap();
        let limits = limits.split(',').filter_map(|pair| pair.split_once('='));
        let limits = limits.map(|(name, text)| (name.to_owned(), QuantityText(text.to_owned()))).collect();
        MemoryReservation { numa_node: node.parse().unwrap(), limits }
    };
    let reservations: Vec<_> = reservations.split_whitespace().map(reservation).collect();
    compute_reserved_memory(&machine, &amounts, &reservations).map_err(|error| error.to_string())
}

fn not_equal(total: &str, resource: &str, expected: &str) -> String {
    format!(
        "the total amount {total:?} of type {resource:?} is not equal to the value {expected:?} determined by Node Allocatable feature"
    )
}

#[test]
fn validate_reserved_memory_table() {
    let (memory, huge) = ("memory", "hugepages-2Mi");
    for (node_allocatable, reservations) in [
        ("", ""),
        ("memory=0", "0:memory=0"),
        (
            "memory=17,hugepages-2Mi=77,hugepages-1Gi=13",
            "0:memory=12,hugepages-2Mi=70,hugepages-1Gi=13 1:memory=5,hugepages-2Mi=7",
        ),
        ("memory=17,cpu=1,ephemeral-storage=3", "0:memory=12 1:memory=5"),
    ] {
        assert!(check(node_allocatable, reservations).is_ok(), "{node_allocatable} {reservations}");
    }
    for (node_allocatable, reservations, error) in [
        ("", "0:memory=12", not_equal("12", memory, "0")),
        ("hugepages-2Mi=5", "", not_equal("0", huge, "5")),
        ("memory=5", "0:memory=12", not_equal("12", memory, "5")),
        (
            "memory=17",
            "0:memory=12 2:memory=5",
            "the reserved memory configuration references a NUMA node 2 that does not exist on this machine"
                .to_owned(),
        ),
        (
            "memory=17,hugepages-2Mi=14,hugepages-1Gi=13",
            "0:memory=12,hugepages-2Mi=70,hugepages-1Gi=13 1:memory=5,hugepages-2Mi=7",
            not_equal("77", huge, "14"),
        ),
        ("memory=612Mi", "0:memory=1G", not_equal("1G", memory, "612Mi")),
    ] {
        assert_eq!(check(node_allocatable, reservations), Err(error));
    }
}

#[test]
fn reserved_memory_is_kept_by_node_and_resource() {
    let reserved = check("memory=17,hugepages-2Mi=70", "0:memory=12,hugepages-2Mi=70 1:memory=5").unwrap();
    assert_eq!((reserved.of(0, "memory"), reserved.of(1, "memory")), (12, 5));
    assert_eq!((reserved.of(0, "hugepages-2Mi"), reserved.of(1, "hugepages-2Mi")), (70, 0));
    assert!(reserved.is_any("memory") && !reserved.is_any("hugepages-1Gi"));
    let why = "could not covert a variable of type Quantity to int64";
    assert_eq!(check("memory=1500m", "0:memory=1500m"), Err(why.to_owned()));
}
