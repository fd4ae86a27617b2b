//! Fault points, at which tests kill this process: right before and right after each step that outlives it, a mount, an unmount,
//! a rename, a file written, a file, link or directory created or removed.
//!
//! Only in builds with debug assertions, and only where `KUBELET_FAULT_POINTS` names a file: the process kills itself at
//! the first fault point that the file does not name yet, and names it there. So a series of kubelets is killed at each once. A line
//! `skip remove` in the file leaves out a kind of step.

use std::path::{Path, PathBuf};

/// Runs the step between its two fault points.
pub(crate) fn around<T>(step: &'static str, path: &Path, act: impl FnOnce() -> T) -> T {
    point("before", step, path);
    let done = act();
    point("after", step, path);
    done
}

/// Does the same where a path has to be made.
pub(crate) fn around_entry<T>(step: &'static str, path: impl Fn() -> PathBuf, act: impl FnOnce() -> T) -> T {
    if cfg!(debug_assertions) { around(step, &path(), act) } else { act() }
}

#[cfg(not(debug_assertions))]
fn point(_moment: &str, _step: &str, _path: &Path) {}

#[cfg(debug_assertions)]
fn point(moment: &str, step: &str, path: &Path) {
    use std::io::Write;
    use std::sync::OnceLock;

    use parking_lot::Mutex;

    /// Only one thread kills the process, so that no fault points of other threads are recorded in the same run.
    static DYING: Mutex<()> = Mutex::new(());
    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("KUBELET_FAULT_POINTS").map(PathBuf::from));
    let Some(file) = file else { return };
    let line = format!("{moment} {step} {}", name(step, path));
    let _dying = DYING.lock();
    let passed = std::fs::read_to_string(file).unwrap_or_default();
    if passed.lines().any(|known| known == line || known.strip_prefix("skip ") == Some(step)) {
        return;
    }
    let opened = std::fs::OpenOptions::new().append(true).open(file);
    // A fault point that cannot be recorded would repeat forever.
    if opened.and_then(|mut opened| opened.write_all(format!("{line}\n").as_bytes())).is_ok() {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
}

/// The name that stands for the path. Files of different volumes have the same name, so that the directory of what is created or removed
/// counts, too.
#[cfg(debug_assertions)]
fn name(step: &str, path: &Path) -> String {
    let last = part(path.file_name());
    match step {
        "write" | "create" | "remove" if last != TEMPORARY => {
            format!("{}/{last}", part(path.parent().and_then(Path::file_name)))
        }
        _ => last,
    }
}

#[cfg(debug_assertions)]
const TEMPORARY: &str = "(temporary)";

/// Names of temporary files and of pods, times and hashes differ from run to run.
#[cfg(debug_assertions)]
fn part(name: Option<&std::ffi::OsStr>) -> String {
    let name = name.unwrap_or_default().to_string_lossy();
    let is_hex = |name: &str| name.chars().all(|letter| letter.is_ascii_hexdigit() || letter == '-');
    match name.len() {
        _ if name.starts_with('.') && name != "..data" => TEMPORARY.to_owned(),
        32 | 36 if is_hex(&name) => "(pod)".to_owned(),
        64 if is_hex(&name) => "(hash)".to_owned(),
        _ => name.into_owned(),
    }
}
