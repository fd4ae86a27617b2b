//! Processes that keep a mount busy: their root, working directory or open files are in it, in any mount namespace. The kernel
//! has these names itself, so that the mounted filesystem is not accessed.
//!
//! A mount table can be read only while it does not change; a caller that must not wait for that reads it in a volume helper.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::mounts::{self, Mount};

/// How many holders are named; one is enough to find the cause.
const MAX_NAMED: usize = 5;
/// How many descriptors of one process are inspected.
const MAX_FILES: usize = 4096;

/// Where the mount is seen, by mount namespace; the namespace as the kernel writes it: `mnt:[4026531841]`.
type MountPoints = BTreeMap<PathBuf, Vec<PathBuf>>;

/// `held by 123 (tail), 456 (bash)`; empty if no holder is found.
pub(crate) fn describe(proc: &Path, mount_point: &Path) -> String {
    let wanted = mounts::mounted_at(mount_point).ok().flatten();
    let own = namespace_of(&proc.join("self")).unwrap_or_default();
    let mut paths = MountPoints::from([(own.clone(), vec![mount_point.to_path_buf()])]);
    let (mut holding, mut seeing) = (Vec::new(), Vec::new());
    let pids = fs::read_dir(proc).into_iter().flatten().flatten();
    for process in pids.filter(|entry| entry.file_name().to_string_lossy().parse::<u32>().is_ok()) {
        let path = process.path();
        // A process whose namespace cannot be read has exited, or shares the kubelet's.
        let namespace = namespace_of(&path).unwrap_or_else(|| own.clone());
        let is_new = !paths.contains_key(&namespace);
        let at = paths.entry(namespace).or_insert_with(|| seen_at(&path, wanted.as_ref()));
        let name = || {
            let name = fs::read_to_string(path.join("comm")).unwrap_or_default();
            format!("{} ({})", process.file_name().to_string_lossy(), name.trim())
        };
        if !at.is_empty() && holds(&path, at) {
            holding.push(name());
        } else if is_new && !at.is_empty() {
            seeing.push(name());
        }
        if holding.len() >= MAX_NAMED {
            break;
        }
    }
    seeing.truncate(MAX_NAMED);
    match (holding.is_empty(), seeing.is_empty()) {
        (false, _) => format!("held by {}", holding.join(", ")),
        (true, false) => format!("also mounted in the mount namespace of {}", seeing.join(", ")),
        (true, true) => String::new(),
    }
}

fn namespace_of(process: &Path) -> Option<PathBuf> {
    fs::read_link(process.join("ns/mnt")).ok()
}

/// Where a process in another namespace sees the mount, or a part of it.
fn seen_at(process: &Path, wanted: Option<&Mount>) -> Vec<PathBuf> {
    let Some(wanted) = wanted else { return Vec::new() };
    let table = mounts::read_table(&process.join("mountinfo")).unwrap_or_default();
    let is_it = |mount: &Mount| mount.device == wanted.device && mount.root.starts_with(&wanted.root);
    table.into_iter().filter(is_it).map(|mount| mount.mount_point).collect()
}

fn holds(process: &Path, paths: &[PathBuf]) -> bool {
    let leads_in = |link: PathBuf| {
        fs::read_link(link).is_ok_and(|target| paths.iter().any(|path| target.starts_with(path)))
    };
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    ["root", "cwd", "exe"].into_iter().any(|name| leads_in(process.join(name)))
        || files.take(MAX_FILES).any(|file| leads_in(file.path()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_name_a_process_with_an_open_file_below_the_mount() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().canonicalize().unwrap();
        assert_eq!(describe(Path::new("/proc"), &path), "");
        let _file = fs::File::create(path.join("x")).unwrap();
        let text = describe(Path::new("/proc"), &path);
        assert!(text.starts_with(&format!("held by {} (", std::process::id())), "{text}");
    }
}
