use super::*;

fn field(name: &'static str, type_name: &'static str, value: GoValue) -> GoField {
    GoField::new(name, type_name, value)
}

fn block() -> GoValue {
    GoValue::Struct(vec![
        field("NUMAAffinity", "[]int", GoValue::slice([GoValue::plain(0)])),
        field("Type", "v1.ResourceName", GoValue::plain("memory")),
        field("Size", "uint64", GoValue::plain(512)),
    ])
}

/// The machine and the assignments of the Go kubelet's tests of `memory_manager_state`.
fn memory_checkpoint(with_pod_entries: bool) -> GoValue {
    let number = |name, value: u64| field(name, "uint64", GoValue::plain(value));
    let table = GoValue::Struct(vec![
        number("TotalMemSize", 2048),
        number("SystemReserved", 512),
        number("Allocatable", 1536),
        number("Reserved", 512),
        number("Free", 1024),
    ]);
    let node = GoValue::Struct(vec![
        field("NumberOfAssignments", "int", GoValue::plain(0)),
        field(
            "MemoryMap",
            "map[v1.ResourceName]*state.MemoryTable",
            GoValue::map([("memory", table.pointer())]),
        ),
        field("Cells", "[]int", GoValue::slice([])),
    ]);
    let containers = GoValue::map([("container1", GoValue::slice([block()]))]);
    let mut fields = vec![
        field("PolicyName", "string", GoValue::plain("static")),
        field("MachineState", "state.NUMANodeMap", GoValue::map([(0, node.pointer())])),
        field("Entries", "state.ContainerMemoryAssignments", GoValue::map([("pod", containers)])),
    ];
    if with_pod_entries {
        let entry = field("MemoryBlocks", "[]state.Block", GoValue::slice([block()]));
        let entries = GoValue::map([("pod", GoValue::Struct(vec![entry]))]);
        fields.push(field("PodEntries", "state.PodMemoryAssignments", entries));
    }
    fields.push(field("Checksum", "checksum.Checksum", GoValue::plain(0)));
    GoValue::Struct(fields).pointer()
}

#[test]
fn checksum_of_memory_manager_state_is_the_go_kubelets() {
    for (with_pod_entries, checksum) in [(false, 4_215_593_881), (true, 1_278_640_530)] {
        assert_eq!(
            go_checksum("state.MemoryManagerCheckpoint", &memory_checkpoint(with_pod_entries)),
            checksum
        );
    }
}

#[test]
fn checksum_of_cpu_manager_state_is_the_go_kubelets() {
    let entries = |pods: &[(&str, &[(&str, &str)])]| {
        GoValue::map(pods.iter().map(|(pod, containers)| {
            (pod, GoValue::map(containers.iter().map(|(name, cpus)| (name, GoValue::plain(cpus)))))
        }))
    };
    let checkpoint = |policy: &str, default: &str, entries: GoValue| {
        GoValue::Struct(vec![
            field("PolicyName", "string", GoValue::plain(policy)),
            field("DefaultCPUSet", "string", GoValue::plain(default)),
            field("Entries", "map[string]map[string]string", entries),
            field("Checksum", "checksum.Checksum", GoValue::plain(0)),
        ])
        .pointer()
    };
    for (value, checksum) in [
        (checkpoint("none", "4-6", entries(&[])), 354_655_845),
        (
            checkpoint("none", "1-3", entries(&[("pod", &[("container1", "4-6"), ("container2", "1-3")])])),
            3_610_638_499,
        ),
        (checkpoint("other", "1-3", entries(&[])), 1_394_507_217),
        (checkpoint("none", "1.3", entries(&[])), 3_021_697_696),
        (
            checkpoint("none", "1-3", entries(&[("pod", &[("container1", "4-6"), ("container2", "asd")])])),
            962_272_150,
        ),
    ] {
        assert_eq!(go_checksum("state.CPUManagerCheckpoint", &value), checksum);
    }
}

#[test]
fn a_nil_pointer_or_map_is_printed_without_content() {
    let fields = vec![
        field("Entries", "state.Entries", GoValue::Nil),
        field("Next", "state.Node", GoValue::plain("text").pointer()),
        field("All", "[]*state.Node", GoValue::slice([GoValue::Nil, GoValue::plain(1).pointer()])),
    ];
    assert_eq!(
        go_print("state.Node", &GoValue::Struct(fields)),
        "(state.Node){Entries:(state.Entries)<nil> Next:(*state.Node)text All:([]*state.Node)[<nil> <*>1]}"
    );
}
