//! What a kubelet costs when nothing happens: resident memory and processor time, with no pod and with many, on a fake
//! runtime behind a real socket. The fake lives in this process, so only the kubelet's own cost is read.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fakes::{FakeCri, FakeRuntime};
use harness::PrivateCgroup;
use ports::Clock;

use crate::{Effort, Outcome, failed};
use harness::node::{Node, OwnCgroup, sleeping_pod, until};

/// Numbers of pods that are measured; the further ones in a full run only.
const COUNTS: [usize; 3] = [0, 30, 100];
const FURTHER_COUNTS: [usize; 3] = [250, 500, 1000];
const IMAGE: &str = "localhost/idle:1";

/// One idle kubelet.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) pods: usize,
    /// At the end of the window.
    pub(crate) resident_bytes: u64,
    pub(crate) cpu_seconds_per_minute: f64,
}

/// The small ones at the same time: each kubelet is a process of its own, and only its own time is counted. The large ones one after
/// the other, because their fakes need the processors, too.
pub(crate) async fn measure(program: &Path, effort: Effort) -> Outcome<Vec<Idle>> {
    let all = COUNTS.map(|pods| measure_one(program, effort, pods));
    let mut measured = futures_util::future::try_join_all(all).await?;
    let further = if effort.with_all_counts { FURTHER_COUNTS.as_slice() } else { &[] };
    for pods in further {
        eprintln!("an idle kubelet with {pods} pods");
        measured.push(measure_one(program, effort, *pods).await?);
    }
    Ok(measured)
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
    tokio::time::sleep(effort.settle).await;
    let before = node.cpu_seconds()?;
    tokio::time::sleep(effort.window).await;
    let used = node.cpu_seconds()? - before;
    let resident_bytes = node.resident_bytes()?;
    node.kill()?;
    server.stop().await;
    Ok(Idle { pods, resident_bytes, cpu_seconds_per_minute: used * 60.0 / effort.window.as_secs_f64() })
}
