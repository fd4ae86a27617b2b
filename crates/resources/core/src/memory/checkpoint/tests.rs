use super::super::tests::cases;
use super::*;

const MACHINE: &str = r#""machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}}"#;
const ENTRIES: &str = r#""entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}}"#;
const POD_ENTRIES: &str =
    r#""podEntries":{"pod":{"memoryBlocks":[{"numaAffinity":[0],"type":"memory","size":512}]}}"#;

fn file(parts: &[&str], checksum: u64) -> String {
    format!(r#"{{"policyName":"static",{},"checksum":{checksum}}}"#, parts.join(","))
}

fn state(has_pods: bool) -> MemoryState {
    let case = "nodes: 0[]x0 mem=2048/512/1536/512/1024\nhas: pod/container1:mem@0=512";
    let mut state = cases(case)[0].state("nodes", "has");
    if has_pods {
        let blocks = state.containers["pod"]["container1"].clone();
        state.pods.insert("pod".into(), blocks);
    }
    state
}

/// `TestCheckpointStateRestore`: the file, whether pods get memory as a whole, and the state or the error.
#[test]
fn checkpoint_state_restore_table() {
    let first = file(&[MACHINE, ENTRIES], 4_215_593_881);
    let second = file(&[MACHINE, ENTRIES, POD_ENTRIES], 1_278_640_530);
    let other = ENTRIES.replace("numaAffinity", "affinity");
    let parse = |text: &str, managers| {
        parse_memory_checkpoint(text, "static", managers).map_err(|error| error.to_string())
    };
    assert_eq!(parse(&first, false), Ok(state(false)));
    assert_eq!(parse(&first, true), Ok(state(false)));
    assert_eq!(parse(&second, true), Ok(state(true)));
    for (text, managers) in [
        (file(&[MACHINE, &other], 101_010), false),
        (second, false),
        (file(&[MACHINE, r#""entries":{},"podEntries":{}"#], 12345), true),
    ] {
        assert_eq!(parse(&text, managers), Err("checkpoint is corrupted".to_owned()), "{text}");
    }
    assert!(parse("{", false).unwrap_err().contains("EOF"));
}

#[test]
fn written_checkpoint_has_the_checksum_of_the_go_kubelet() {
    for (has_pods, text) in [
        (false, file(&[MACHINE, ENTRIES], 4_215_593_881)),
        (true, file(&[MACHINE, ENTRIES, POD_ENTRIES], 1_278_640_530)),
    ] {
        assert_eq!(write_memory_checkpoint("static", &state(has_pods), has_pods), text);
    }
    // A file that was written by a Go kubelet and published.
    let none = r#"{"policyName":"None","machineState":{},"checksum":4236770233}"#;
    assert_eq!(write_memory_checkpoint("None", &MemoryState::default(), false), none);
}

#[test]
fn checkpoint_without_a_checksum_is_accepted_in_the_first_version() {
    let text = file(&[MACHINE, ENTRIES], 0);
    for managers in [false, true] {
        assert_eq!(parse_memory_checkpoint(&text, "static", managers).unwrap(), state(false));
    }
}

#[test]
fn checkpoint_of_another_policy_is_refused_with_advice() {
    let text = file(&[MACHINE, ENTRIES], 4_215_593_881);
    let error = parse_memory_checkpoint(&text, "None", false).unwrap_err();
    assert_eq!(
        error.message("/var/lib/kubelet/memory_manager_state"),
        "could not restore state from checkpoint: [memorymanager] configured policy \"None\" differs from state checkpoint policy \
         \"static\", please drain this node and delete the memory manager checkpoint file \"/var/lib/kubelet/memory_manager_state\" \
         before restarting Kubelet"
    );
}

#[test]
fn nodes_are_written_in_the_order_of_their_ids_as_texts() {
    let mut state = MemoryState::default();
    for id in [2, 10, 1] {
        state.nodes.insert(id, super::super::NodeState::default());
    }
    let text = write_memory_checkpoint("Static", &state, false);
    let at = |id: &str| text.find(&format!("\"{id}\":{{")).unwrap();
    assert!(at("1") < at("10") && at("10") < at("2"), "{text}");
    assert_eq!(parse_memory_checkpoint(&text, "Static", false).unwrap(), state);
}

#[test]
fn ids_that_no_machine_has_are_corrupt() {
    for wrong in [
        r#""machineState":{"-1":{}}"#,
        r#""machineState":{"0":null}"#,
        r#""machineState":{"0":{"cells":[64]}}"#,
    ] {
        let error = parse_memory_checkpoint(&file(&[wrong], 0), "static", false).unwrap_err();
        assert!(matches!(error, MemoryCheckpointError::Corrupt), "{wrong}: {error}");
    }
}
