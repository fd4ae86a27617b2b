//! Moments at which tests end this process: right before and right after each step that outlives it, a mount, an unmount,
//! a rename, a file written.
//!
//! Only in builds with debug assertions, and only where `KUBELET_FAULT_POINTS` names a file: the process kills itself at
//! the first moment that the file does not name yet, and names it there. So a row of kubelets dies at each moment once.

use std::path::Path;

/// The step with its two moments.
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

    /// One thread dies for all: moments of others must not be written down in the same life.
    static DYING: Mutex<()> = Mutex::new(());
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("KUBELET_FAULT_POINTS").map(PathBuf::from));
    let Some(file) = file else { return };
    // Names of temporary files and times differ from life to life.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = if name.starts_with('.') && name != "..data" { "(temporary)" } else { &name };
    let line = format!("{moment} {step} {name}");
    let _dying = DYING.lock();
    let passed = std::fs::read_to_string(file).unwrap_or_default();
    if passed.lines().any(|known| known == line) {
        return;
    }
    let opened = std::fs::OpenOptions::new().append(true).open(file);
    // A moment that cannot be written down would come again forever.
    if opened.and_then(|mut opened| opened.write_all(format!("{line}\n").as_bytes())).is_ok() {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}
