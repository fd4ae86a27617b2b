//! What a kubelet costs when nothing happens: resident memory and processor time, with no pod and with many, on a fake
//! runtime behind a real socket. The fake lives in this process, so only the kubelet's own cost is read.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ports::Clock;
use testing::{FakeCri, FakeRuntime, PrivateCgroup};

use crate::node::{Node, OwnCgroup, sleeping_pod, until};
use crate::{Effort, Outcome, failed};

/// Numbers of pods that are measured.
const COUNTS: [usize; 3] = [0, 50, 100];
const IMAGE: &str = "localhost/idle:1";
/// After the last start: the relists and inspections that follow from it are over, and no probe or retry is due.
const SETTLE: Duration = Duration::from_secs(4);

/// One idle kubelet.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) pods: usize,
    /// At the end of the window.
    pub(crate) resident_bytes: u64,
    pub(crate) cpu_seconds_per_minute: f64,
}

/// All counts at the same time: each kubelet is a process of its own, and only its own time is counted.
pub(crate) async fn measure(program: &Path, effort: Effort) -> Outcome<Vec<Idle>> {
    let all = COUNTS.map(|pods| measure_one(program, effort, pods));
    let [none, fifty, hundred] = all;
    let (none, fifty, hundred) = tokio::try_join!(none, fifty, hundred)?;
    Ok(vec![none, fifty, hundred])
}

async fn measure_one(program: &Path, effort: Effort, pods: usize) -> Outcome<Idle> {
    let dir = tempfile::tempdir().map_err(failed("make a temporary directory"))?;
    let runtime = FakeRuntime::with_clock(Clock::system());
    runtime.write_logs().image(IMAGE);
    let server = FakeCri::serve(Arc::new(runtime.clone()), &dir.path().join("cri.sock"));
    let server = server.map_err(failed("serve a fake runtime"))?;
    let cgroup = OwnCgroup(PrivateCgroup::of(dir.path()));
    let mut node = Node::new(dir.path(), &server.endpoint(), &cgroup.0)?;
    for pod in 0..pods {
        let name = format!("idle-{pod}");
        node.apply(&name, &sleeping_pod(&name, IMAGE))?;
    }
    node.start(program)?;
    until(&node, "all idle pods", Duration::from_millis(100), async || {
        Ok((runtime.running().len() == pods).then_some(()))
    })
    .await?;
    tokio::time::sleep(SETTLE).await;
    let before = node.cpu_seconds()?;
    node.stay_idle(effort.window).await?;
    let used = node.cpu_seconds()? - before;
    let resident_bytes = node.resident_bytes()?;
    node.kill()?;
    server.stop().await;
    Ok(Idle { pods, resident_bytes, cpu_seconds_per_minute: used * 60.0 / effort.window.as_secs_f64() })
}
