//! The process itself: limits, OOM score, kernel settings, signals.

use std::io;
use std::path::Path;
use std::time::Duration;

use config::Resolved;
use kubelet_core::node::kernel::{TUNABLES, TunablePlan, UserNamespace, compute_tunable};
use ports::{Files, HostError};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::private_paths;

/// Raises the file limit and lowers the OOM score. A failure is logged, and the node works without.
pub(crate) fn set_limits(resolved: &Resolved) {
    let files = u64::try_from(resolved.kubelet.max_open_files).unwrap_or(1_000_000);
    if let Err(error) = host::process::set_nofile_limit(files) {
        tracing::warn!(files, err = %error, "Failed to set the limit of open files");
    }
    let score = i16::try_from(resolved.kubelet.oom_score_adj).unwrap_or(-999);
    if let Err(error) = host::process::set_own_oom_score_adj(score) {
        tracing::warn!(score, err = %error, "Failed to set the kubelet's OOM score");
    }
}

const KERNEL_SETTINGS: &str = "/proc/sys";

/// The user namespace of this process.
pub(crate) fn user_namespace(is_allowed: bool) -> UserNamespace {
    UserNamespace::of(std::fs::read_to_string("/proc/self/uid_map").ok().as_deref(), is_allowed)
}

/// Fails if this user namespace keeps the kubelet from reading the kernel log, and it may not go on without.
pub(crate) fn check_kernel_log(path: &Path, namespace: UserNamespace) -> Result<(), String> {
    // Elsewhere it is not opened here: that may wait, for instance for the other end of a pipe.
    if namespace != UserNamespace::NotAllowed {
        return Ok(());
    }
    let problem = std::fs::File::open(path)
        .err()
        .map(|error| namespace.refuse(&format!("failed to open the kernel log {}: {error}", path.display())));
    problem.flatten().map_or(Ok(()), Err)
}

/// Changes kernel settings to the values that pods need. If `is_protected`, each other value is an error.
pub(crate) fn tune_kernel(is_protected: bool, namespace: UserNamespace) -> Result<(), String> {
    let dir = private_paths::path(private_paths::KERNEL_SETTINGS).unwrap_or_else(|| KERNEL_SETTINGS.into());
    let mut refused = Vec::new();
    for tunable in TUNABLES {
        let path = Path::new(&dir).join(tunable.path);
        let now = std::fs::read_to_string(&path).ok();
        match compute_tunable(tunable, now.as_deref(), is_protected) {
            TunablePlan::Leave => {}
            TunablePlan::Set => match std::fs::write(&path, tunable.value.to_string()) {
                Ok(()) => tracing::info!(
                    setting = tunable.path,
                    value = tunable.value,
                    was = now,
                    "Changed kernel flag"
                ),
                Err(error) => {
                    let problem = format!("failed to change kernel flag {}: {error}", tunable.path);
                    if let Some(why) = namespace.refuse(&problem) {
                        return Err(why);
                    }
                    tracing::warn!(setting = tunable.path, value = tunable.value, err = %error, "Failed to change kernel flag");
                }
            },
            TunablePlan::Refuse(why) => refused.push(why),
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(format!("protectKernelDefaults: {}", refused.join(", "))) }
}

/// Creates the root directory and makes it a shared mount, for volumes with mount propagation. A failure is logged, because
/// other pods run without; the runtime refuses containers that need it. It is not undone at the end: the pods outlive this
/// process.
pub(crate) async fn share_root_dir(files: &dyn Files, root: &Path) -> Result<(), HostError> {
    files.make_dir(root, 0o750).await?;
    if let Err(error) = host::process::ensure_shared_mount(root) {
        let error = base_agent::error_chain::chain(&error);
        tracing::error!(root = %root.display(), err = error, "Root directory is not a shared mount, mount propagation does not work");
    }
    Ok(())
}

/// SIGTERM and SIGINT, received by a separate thread, so that the second signal ends a process that hangs.
pub(crate) struct Signals {
    first: CancellationToken,
}

impl Signals {
    /// Starts the thread. The first signal resolves [`Self::first`], and the second ends the process with code 1.
    pub(crate) fn listen() -> io::Result<Self> {
        let first = CancellationToken::new();
        let received = first.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let mut stream = {
            let _inside = runtime.enter();
            [signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?]
        };
        let listening = move || {
            runtime.block_on(next(&mut stream));
            received.cancel();
            runtime.block_on(next(&mut stream));
            exit_at_once();
        };
        std::thread::Builder::new().name("signals".into()).stack_size(STACK_BYTES).spawn(listening)?;
        Ok(Self { first })
    }

    /// Returns when a signal has come, at once if it came before.
    pub(crate) async fn first(&self) {
        self.first.cancelled().await;
    }
}

/// Timeout for writing the log after a second signal.
const LAST_FLUSH_TIMEOUT: Duration = Duration::from_millis(200);
/// The thread only waits.
const STACK_BYTES: usize = 256 << 10;

/// Cancel safe: signals wait in the stream.
async fn next([terminate, interrupt]: &mut [Signal; 2]) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

#[expect(clippy::exit, reason = "the rest of the process may hang; nothing it could still do is waited for")]
fn exit_at_once() {
    crate::logging::flush(LAST_FLUSH_TIMEOUT);
    std::process::exit(1)
}
