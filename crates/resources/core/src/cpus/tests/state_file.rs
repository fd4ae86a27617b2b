//! `cpu_manager_state`: the tables of `state_checkpoint_test.go`, with the checksums of the Go kubelet.

use model::PodUid;

use super::fixtures::{cpus, shown, state};
use crate::cpus::{CPU_STATE_FILE, CpuState, Migration, parse_cpu_state, write_cpu_state};

const VALID: &str = r#"{"policyName": "none", "defaultCPUSet": "1-3",
    "entries": {"pod": {"container1": "4-6", "container2": "1-3"}}, "checksum": 3610638499}"#;
const V1: &str = r#"{"policyName": "none", "defaultCPUSet": "1-3",
    "entries": {"containerID1": "4-6", "containerID2": "1-3"}, "checksum": 3680390589}"#;
const V3: &str = r#"{"policyName": "none", "defaultCPUSet": "1-3",
    "entries": {"pod": {"container1": "4-6", "container2": "1-3"}},
    "podEntries": {"pod": {"cpuSet": "4-6"}}, "checksum": 2649431787}"#;

fn container_of(id: &str) -> Option<(PodUid, String)> {
    Some(("pod".into(), format!("container{}", id.strip_prefix("containerID")?)))
}

/// The shared pool, assignments, CPUs of pods and migration, or why there are none.
fn read(text: &str, pod_level: bool) -> String {
    match parse_cpu_state(text, "none", pod_level, container_of) {
        Ok((state, migration)) => {
            let pods: Vec<String> = state.pods.iter().map(|(pod, cpus)| format!("{pod}={cpus}")).collect();
            format!("{} / {} / {} / {migration:?}", state.default, shown(&state), pods.join(" "))
        }
        Err(why) => why.to_string(),
    }
}

#[test]
fn restored_states_table() {
    let both = "1-3 / pod.container1=4-6 pod.container2=1-3 /";
    for (text, pod_level, expected) in [
        (
            r#"{"policyName": "none", "defaultCPUSet": "4-6", "entries": {}, "checksum": 354655845}"#,
            false,
            "4-6 /  /  / None".to_owned(),
        ),
        (VALID, false, format!("{both}  / None")),
        (VALID, true, format!("{both}  / FromV2")),
        (
            r#"{"policyName": "none", "defaultCPUSet": "4-6", "entries": {}, "checksum": 1337}"#,
            false,
            "checkpoint is corrupted".to_owned(),
        ),
        (
            r#"{"policyName": "other", "defaultCPUSet": "1-3", "entries": {}, "checksum": 1394507217}"#,
            false,
            "configured policy \"none\" differs from state checkpoint policy \"other\"".to_owned(),
        ),
        (
            r#"{"policyName": "none", "defaultCPUSet": "1.3", "entries": {}, "checksum": 3021697696}"#,
            false,
            "could not parse default cpu set \"1.3\": \"1.3\" is not the number of a processor below 8192".to_owned(),
        ),
        (
            r#"{"policyName": "none", "defaultCPUSet": "1-3",
                "entries": {"pod": {"container1": "4-6", "container2": "asd"}}, "checksum": 962272150}"#,
            false,
            "could not parse cpuset \"asd\" for container \"container2\" in pod \"pod\": \"asd\" is not the number of a \
             processor below 8192"
                .to_owned(),
        ),
        (
            r#"{"policyName": "none", "defaultCPUSet": "1-3", "checksum": 1694838852}"#,
            false,
            "1-3 /  /  / FromV1".to_owned(),
        ),
        (V1, false, format!("{both}  / FromV1")),
        (V1, true, format!("{both}  / FromV1")),
        (V3, true, format!("{both} pod=4-6 / None")),
        (V3, false, "checkpoint is corrupted".to_owned()),
        (
            r#"{"policyName": "none", "defaultCPUSet": "1-3", "entries": {}, "podEntries": {}, "checksum": 12345}"#,
            true,
            "checkpoint is corrupted".to_owned(),
        ),
        // Very old kubelets wrote no checksum.
        (r#"{"policyName": "none", "defaultCPUSet": "1-3"}"#, false, "1-3 /  /  / None".to_owned()),
    ] {
        assert_eq!(read(text, pod_level), expected, "{text}");
    }
}

#[test]
fn damaged_files_are_refused_with_advice() {
    let why = |text: &str| parse_cpu_state(text, "none", false, container_of).unwrap_err();
    assert_eq!(why("{").to_string(), "it is no JSON of this kind");
    assert_eq!(why("[]").to_string(), "it is no JSON of this kind: the object is missing or of another type");
    assert_eq!(
        why(r#"{"policyName": 3}"#).to_string(),
        "it is no JSON of this kind: policyName is missing or of another type"
    );
    assert_eq!(why(r#"{"entries": {"pod": 3}}"#).to_string(), "checkpoint is corrupted");
    assert_eq!(why(&VALID.replace("4-6", "4-7")).to_string(), "checkpoint is corrupted");
    assert_eq!(
        why(&VALID.replace("4-6", "4-7")).advice("/var/lib/kubelet/cpu_manager_state"),
        "could not restore state from checkpoint: checkpoint is corrupted, please drain this node and delete the CPU manager \
         checkpoint file \"/var/lib/kubelet/cpu_manager_state\" before restarting Kubelet"
    );
    let unknown = parse_cpu_state(V1, "none", false, |_| None).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "failed to migrate checkpoint from v1 to v2: containerID 'containerID1' not found in initial containers list"
    );
}

#[test]
fn every_cut_of_a_file_is_refused() {
    let whole = write_cpu_state("static", &state("0-3", "p.c=4-5"), false);
    for end in 0..whole.len() {
        assert!(parse_cpu_state(&whole[..end], "static", false, |_| None).is_err(), "{}", &whole[..end]);
    }
}

#[test]
fn written_files_have_the_checksums_of_the_go_kubelet() {
    let mut state = state("1-3", "pod.container1=4-6 pod.container2=1-3");
    assert_eq!(
        write_cpu_state("none", &state, false),
        r#"{"policyName":"none","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"1-3"}},"checksum":3610638499}"#
    );
    state.pods.insert("pod".into(), cpus("4-6"));
    assert_eq!(
        write_cpu_state("none", &state, true),
        r#"{"policyName":"none","defaultCpuSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"1-3"}},"podEntries":{"pod":{"cpuSet":"4-6"}},"checksum":2649431787}"#
    );
    assert_eq!(
        write_cpu_state("none", &super::fixtures::state("4-6", ""), false),
        r#"{"policyName":"none","defaultCpuSet":"4-6","checksum":354655845}"#
    );
    assert_eq!(CPU_STATE_FILE, "cpu_manager_state");
}

#[test]
fn written_files_are_read_again() {
    let mut full = state("0,9", "a.x=1-2 a.y=3 b.z=4-8");
    for pod_level in [false, true] {
        let text = write_cpu_state("static", &full, pod_level);
        let read = parse_cpu_state(&text, "static", pod_level, |_| None).unwrap();
        assert_eq!(read, (full.clone(), Migration::None));
        full.pods.insert("b".into(), cpus("4-8"));
    }
    let empty = write_cpu_state("static", &CpuState::default(), false);
    assert_eq!(parse_cpu_state(&empty, "static", false, |_| None).unwrap().0, CpuState::default());
}
