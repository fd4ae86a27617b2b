//! Who keeps a mount from going away: processes whose root, working directory or open files lie in it. The kernel keeps
//! these names itself, so that nothing asks the mounted filesystem.

use std::fs;
use std::path::{Path, PathBuf};

/// So many are named; one is enough to go on with.
const MOST_NAMED: usize = 5;
/// Descriptors of one process that are looked at.
const MOST_FILES: usize = 4096;

/// `held by 123 (tail), 456 (bash)`; nothing if nobody is found.
pub(crate) fn told(proc: &Path, mount_point: &Path) -> String {
    let mut found = Vec::new();
    let pids = fs::read_dir(proc).into_iter().flatten().flatten();
    for process in pids.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok()) {
        if holds(&process.path(), mount_point) {
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            found.push(format!("{} ({})", process.file_name().to_string_lossy(), name.trim()));
        }
        if found.len() >= MOST_NAMED {
            break;
        }
    }
    if found.is_empty() { String::new() } else { format!("held by {}", found.join(", ")) }
}

fn holds(process: &Path, mount_point: &Path) -> bool {
    let leads_in = |link: PathBuf| fs::read_link(link).is_ok_and(|target| target.starts_with(mount_point));
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    ["root", "cwd", "exe"].into_iter().any(|name| leads_in(process.join(name)))
        || files.take(MOST_FILES).any(|file| leads_in(file.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_file_open_below_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        assert_eq!(told(Path::new("/proc"), &place), "");
        let _file = fs::File::create(place.join("x")).unwrap();
        let said = told(Path::new("/proc"), &place);
        assert!(said.starts_with(&format!("held by {} (", std::process::id())), "{said}");
    }
}
