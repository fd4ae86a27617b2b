//! The contract over the adapter and a recording of a runtime that not every machine has: what it answered when the cases of
//! `real` ran over it. Also writes these recordings.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cri::CriRuntime;
use harness::recorded_cri::{CRIO, recording};
use harness::{CriRecorder, RecordedCri};

use crate::world::{Case, World};

/// The directory for recordings of this run, if there are to be any.
const RECORD_VARIABLE: &str = "KUBELET_TEST_RECORD_DIR";

/// A recorder in front of the runtime, if this run is to be recorded.
pub(crate) fn record(dir: &Path, runtime: &Path) -> Option<CriRecorder> {
    std::env::var_os(RECORD_VARIABLE)?;
    Some(CriRecorder::serve(dir, runtime).unwrap())
}

/// Writes the recording of the current case.
pub(crate) fn write(recorder: CriRecorder) {
    let dir = PathBuf::from(std::env::var_os(RECORD_VARIABLE).unwrap());
    recorder.write(&dir.join(format!("{}.txt", current_case()))).unwrap();
}

/// The name of the running test, which is that of its thread.
fn current_case() -> String {
    let thread = std::thread::current();
    thread.name().unwrap_or_default().rsplit("::").next().unwrap_or_default().to_owned()
}

/// Plays the recording of the current case.
async fn run(case: Case) {
    let dir = tempfile::tempdir().unwrap();
    let (server, world) = play(dir.path(), &current_case());
    case(world).await;
    assert_eq!(server.differences(), Vec::<String>::new());
}

fn play(dir: &Path, case: &str) -> (RecordedCri, World) {
    let server = RecordedCri::serve(dir, &recording(CRIO, case).unwrap()).unwrap();
    let cri = CriRuntime::new(&server.endpoint(), "", Duration::from_secs(30)).unwrap();
    let world = World {
        runtime: Arc::new(cri),
        logs: dir.join("logs"),
        cgroup_root: "/kubelet-test".to_owned(),
        has_processes: false,
        fake: None,
    };
    (server, world)
}

contract!(
    #[tokio::test]
    run
);

/// The contract is the same over CRI-O as over containerd: each case has a recording, and each recording belongs to a case.
#[test]
fn contract_holds_over_recorded_crio_in_every_case() {
    let (name, version) = CRIO.rsplit_once('-').unwrap();
    let answer = format!("runtime_name:\"{name}\",runtime_version:\"{version}\"");
    let cases = concat!(include_str!("cases.rs"), include_str!("streams_and_stats.rs"));
    let cases = cases.lines().filter_map(|line| line.strip_prefix("pub(crate) async fn "));
    let cases: BTreeSet<&str> = cases.filter_map(|line| line.split('(').next()).collect();
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../harness/recorded").join(CRIO);
    let mut recorded = BTreeSet::new();
    for file in std::fs::read_dir(dir).unwrap() {
        let case = file.unwrap().file_name().into_string().unwrap().replace(".txt", "");
        let text = recording(CRIO, &case).unwrap();
        let versions = text.lines().filter(|line| line.contains("runtime_version"));
        assert!(versions.into_iter().all(|line| line.contains(&answer)), "{case} is of another version");
        recorded.insert(case);
    }
    let recorded: BTreeSet<&str> = recorded.iter().map(String::as_str).collect();
    assert_eq!(recorded, cases);
}
