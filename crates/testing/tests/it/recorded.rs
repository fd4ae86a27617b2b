//! The contract over the adapter and a recording of a runtime that not every machine has: what it answered when the cases of
//! `real` ran over it. Also writes these recordings.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use cri::CriRuntime;
use testing::recorded_cri::{CRIO, recording};
use testing::{CriRecorder, RecordedCri};

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
        fake: None,
    };
    (server, world)
}

contract!(
    #[tokio::test]
    run
);
