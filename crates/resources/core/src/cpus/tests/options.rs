//! The options of the static policy: the tables of `policy_options_test.go` and `policy_static_test.go`.

use super::fixtures::{options, topology};
use crate::cpus::{CpuOptionGates, CpuOptions};

const NONE: CpuOptionGates = CpuOptionGates { alpha: false, beta: false };
const ALPHA: CpuOptionGates = CpuOptionGates { alpha: true, beta: false };
const BETA: CpuOptionGates = CpuOptionGates { alpha: false, beta: true };
const BOTH: CpuOptionGates = CpuOptionGates { alpha: true, beta: true };

fn refused(words: &str, gates: CpuOptionGates) -> Option<String> {
    CpuOptions::parse(&options(words), gates).err().map(|why| why.to_string())
}

#[test]
fn options_by_gate_table() {
    for (option, gates, is_available) in [
        ("this-option-does-not-exist", NONE, false),
        ("this-option-does-not-exist", BOTH, false),
        ("align-by-socket", ALPHA, true),
        ("align-by-socket", BETA, false),
        ("distribute-cpus-across-cores", ALPHA, true),
        ("distribute-cpus-across-cores", BETA, false),
        ("distribute-cpus-across-numa", BETA, true),
        ("distribute-cpus-across-numa", ALPHA, false),
        ("distribute-cpus-across-numa", NONE, false),
        ("full-pcpus-only", NONE, true),
        ("strict-cpu-reservation", NONE, true),
        ("prefer-align-cpus-by-uncorecache", NONE, true),
    ] {
        assert_eq!(refused(option, gates).is_none(), is_available, "{option} {gates:?}");
    }
    assert_eq!(
        refused("align-by-socket", BETA).unwrap(),
        "CPU Manager Policy Alpha-level Options not enabled, but option \"align-by-socket\" provided"
    );
    assert_eq!(
        refused("distribute-cpus-across-numa", ALPHA).unwrap(),
        "CPU Manager Policy Beta-level Options not enabled, but option \"distribute-cpus-across-numa\" provided"
    );
}

#[test]
fn values_of_options_table() {
    for (words, is_refused) in [
        ("", false),
        ("badValue1=", true),
        ("badValue1= badvalue2=aaaa", true),
        ("full-pcpus-only=true", false),
        ("full-pcpus-only=enabled!", true),
        ("full-pcpus-only=1 badvalue2=lorem", true),
    ] {
        assert_eq!(refused(words, BOTH).is_some(), is_refused, "{words}");
    }
    assert_eq!(
        refused("full-pcpus-only=enabled!", BOTH).unwrap(),
        "bad value for option \"full-pcpus-only\": strconv.ParseBool: parsing \"enabled!\": invalid syntax"
    );
    for (value, is_on) in
        [("1", true), ("t", true), ("True", true), ("0", false), ("F", false), ("FALSE", false)]
    {
        let parsed = CpuOptions::parse(&options(&format!("full-pcpus-only={value}")), NONE).unwrap();
        assert_eq!(parsed.full_pcpus_only, is_on, "{value}");
    }
}

#[test]
fn options_that_exclude_each_other_table() {
    for (words, is_refused) in [
        ("full-pcpus-only", false),
        ("distribute-cpus-across-cores", false),
        ("prefer-align-cpus-by-uncorecache strict-cpu-reservation", false),
        ("prefer-align-cpus-by-uncorecache full-pcpus-only", false),
        ("prefer-align-cpus-by-uncorecache align-by-socket", false),
        ("full-pcpus-only distribute-cpus-across-numa", false),
        ("full-pcpus-only distribute-cpus-across-cores", true),
        ("distribute-cpus-across-numa distribute-cpus-across-cores", true),
        ("prefer-align-cpus-by-uncorecache distribute-cpus-across-cores", true),
        ("prefer-align-cpus-by-uncorecache distribute-cpus-across-numa", true),
        ("full-pcpus-only=false distribute-cpus-across-cores", false),
    ] {
        let why = refused(words, BOTH);
        let names = words.replace(' ', " and ");
        let expected = format!("static policy options {names} can not be used at the same time");
        assert_eq!(why, is_refused.then_some(expected), "{words}");
    }
}

#[test]
fn align_by_socket_on_machines_and_with_topology_policies_table() {
    for (words, machine, is_single_numa_node, expected) in [
        ("full-pcpus-only", "DualSocketMultiNumaPerSocketHT", true, None),
        (
            "align-by-socket",
            "DualSocketMultiNumaPerSocketHT",
            true,
            Some(
                "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option",
            ),
        ),
        (
            "align-by-socket",
            "FakeMultiSocketDualSocketPerNumaHT",
            false,
            Some(
                "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA",
            ),
        ),
        ("align-by-socket", "DualSocketMultiNumaPerSocketHT", false, None),
    ] {
        let parsed = CpuOptions::parse(&options(words), BOTH).unwrap();
        let why = parsed.check(&topology(machine), is_single_numa_node).err().map(|why| why.to_string());
        assert_eq!(why.as_deref(), expected);
    }
}
