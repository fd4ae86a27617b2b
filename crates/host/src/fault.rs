//! Fault points, at which tests kill this process: right before and right after each step that outlives it, a mount, an unmount,
//! a rename, a file written.
//!
//! Only in builds with debug assertions, and only where `KUBELET_FAULT_POINTS` names a file: the process kills itself at
//! the first fault point that the file does not name yet, and names it there. So a series of kubelets is killed at each once.

use std::path::Path;

/// Runs the step between its two fault points.
pub(crate) fn around<T>(step: &'static str, path: &Path, act: impl FnOnce() -> T) -> T {
    point("before", step, path);
    let done = act();
    point("after", step, path);
    done
}

#[cfg(not(debug_assertions))]
fn point(_moment: &str, _step: &str, _path: &Path) {}

#[cfg(debug_assertions)]
fn point(moment: &str, step: &str, path: &Path) {
    use std::io::Write;
    use std::path::PathBuf;
    use std::sync::OnceLock;

    use parking_lot::Mutex;

    /// Only one thread kills the process, so that no fault points of other threads are recorded in the same run.
    static DYING: Mutex<()> = Mutex::new(());
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("KUBELET_FAULT_POINTS").map(PathBuf::from));
    let Some(file) = file else { return };
    // Names of temporary files and times differ from run to run.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = if name.starts_with('.') && name != "..data" { "(temporary)" } else { &name };
    let line = format!("{moment} {step} {name}");
    let _dying = DYING.lock();
    let passed = std::fs::read_to_string(file).unwrap_or_default();
    if passed.lines().any(|known| known == line) {
        return;
    }
    let opened = std::fs::OpenOptions::new().append(true).open(file);
    // A fault point that cannot be recorded would repeat forever.
    if opened.and_then(|mut opened| opened.write_all(format!("{line}\n").as_bytes())).is_ok() {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
