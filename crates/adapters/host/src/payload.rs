//! Writes the files of a volume so that a reader sees all of the old content or all of the new, as the Go kubelet's
//! `AtomicWriter` does (docs/behaviour/volumes.md).
//!
//! ```text
//! volume/..2026_11_21_15_04_05.0   the files themselves, never changed once they are complete
//! volume/..data -> ..2026_…        renamed into place: the one step that counts
//! volume/key    -> ..data/key      what users of the volume open
//! ```
//! Never: what the files are (`volumes_core`). A process that is killed in between leaves a volume that the
//! next write repairs.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use model::payload::{Payload, PayloadFile};
use ports::host::{HostError, HostResult};

use crate::{failed, fault};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";
/// The prefix of our own names; a key cannot begin like this.
const OURS: &str = "..";
/// Two writes within a second need different names; this many are tried.
const MAX_PER_SECOND: u32 = 1000;
const DIR_MODE: u32 = 0o755;
const PERMISSIONS: u32 = 0o7777;
/// What the group of the pod may do with files, and with directories.
const GROUP_FILE: u32 = 0o440;
const GROUP_DIR: u32 = 0o2550;

/// Makes the volume show exactly these files. `group` may read all of them. Returns whether anything changed.
pub(crate) fn write_payload(
    volume: &Path,
    payload: &Payload,
    group: Option<u32>,
    now: Timestamp,
) -> HostResult<bool> {
    let current = current_data(volume)?;
    let is_same = match &current {
        Some(dir) => holds(dir, payload, group).map_err(failed("compare", dir))?,
        None => false,
    };
    if is_same {
        show_keys(volume, payload)?;
        return Ok(false);
    }
    let fresh = new_data_dir(volume, now)?;
    let written = fault::around("fill", &fresh, || write_files(&fresh, payload, group))
        .and_then(|()| own(volume, group).map_err(failed("set the group of", volume)))
        .and_then(|()| switch(volume, &fresh));
    if let Err(error) = written {
        // Best effort: the first error is the one to report, and the next write removes what is left.
        let _ = fs::remove_dir_all(&fresh);
        return Err(error);
    }
    show_keys(volume, payload)?;
    remove_stale(volume, &fresh)?;
    Ok(true)
}

/// The directory that `..data` points to.
fn current_data(volume: &Path) -> HostResult<Option<PathBuf>> {
    let link = volume.join(DATA);
    match fs::read_link(&link) {
        Ok(target) => Ok(Some(volume.join(target)).filter(|dir| dir.is_dir())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read link", &link)(error)),
    }
}

/// The directory holds these files with this content and these permissions, and no others.
fn holds(dir: &Path, payload: &Payload, group: Option<u32>) -> io::Result<bool> {
    let found = files_below(dir, "")?;
    if !found.iter().eq(payload.keys()) {
        return Ok(false);
    }
    for (path, wanted) in payload {
        if !is_as_wanted(&dir.join(path), wanted, group)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_as_wanted(path: &Path, wanted: &PayloadFile, group: Option<u32>) -> io::Result<bool> {
    let metadata = fs::symlink_metadata(path)?;
    let is_right = metadata.is_file()
        && metadata.len() == u64::try_from(wanted.content.len()).unwrap_or(u64::MAX)
        && metadata.permissions().mode() & PERMISSIONS == file_mode(wanted, group)
        && wanted.owner.is_none_or(|owner| metadata.uid() == owner)
        && group.is_none_or(|group| metadata.gid() == group);
    if !is_right {
        return Ok(false);
    }
    let mut content = Vec::with_capacity(wanted.content.len());
    fs::File::open(path)?.read_to_end(&mut content)?;
    Ok(content == wanted.content)
}

fn files_below(dir: &Path, prefix: &str) -> io::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            found.extend(files_below(&entry.path(), &format!("{name}/"))?);
        } else {
            found.insert(name);
        }
    }
    Ok(found)
}

/// A directory of our own for the new files, named after the time as readers of such volumes know it.
fn new_data_dir(volume: &Path, now: Timestamp) -> HostResult<PathBuf> {
    let stamp = now.strftime("%Y_%m_%d_%H_%M_%S");
    for number in 0..MAX_PER_SECOND {
        let dir = volume.join(format!("{OURS}{stamp}.{number}"));
        match DirBuilder::new().mode(DIR_MODE).create(&dir) {
            Ok(()) => return Ok(dir),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("create directory", &dir)(error)),
        }
    }
    Err(HostError::Invalid(format!(
        "{} was written {MAX_PER_SECOND} times within a second",
        volume.display()
    )))
}

fn write_files(dir: &Path, payload: &Payload, group: Option<u32>) -> HostResult<()> {
    own(dir, group).map_err(failed("set permissions of", dir))?;
    for (path, file) in payload {
        let mut parent = dir.to_path_buf();
        for part in Path::new(path).parent().into_iter().flat_map(Path::components) {
            parent.push(part);
            ensure_own_dir(&parent, group).map_err(failed("create directory", &parent))?;
        }
        let target = dir.join(path);
        write_file(&target, file, group).map_err(failed("write file", &target))?;
    }
    Ok(())
}

fn ensure_own_dir(dir: &Path, group: Option<u32>) -> io::Result<()> {
    match DirBuilder::new().mode(DIR_MODE).create(dir) {
        Ok(()) => own(dir, group),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Sets the permissions that the umask may have removed, and the pod's group.
fn own(dir: &Path, group: Option<u32>) -> io::Result<()> {
    let opened = fs::File::open(dir)?;
    let mode = opened.metadata()?.permissions().mode() & PERMISSIONS;
    let Some(group) = group else {
        return opened.set_permissions(Permissions::from_mode(mode | DIR_MODE));
    };
    fchown(&opened, None, Some(group))?;
    opened.set_permissions(Permissions::from_mode(mode | DIR_MODE | GROUP_DIR))
}

fn write_file(path: &Path, file: &PayloadFile, group: Option<u32>) -> io::Result<()> {
    let mut opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    opened.write_all(&file.content)?;
    fchown(&opened, file.owner, group)?;
    // After the owner: changing it clears bits.
    opened.set_permissions(Permissions::from_mode(file_mode(file, group)))
}

fn file_mode(file: &PayloadFile, group: Option<u32>) -> u32 {
    if group.is_some() { file.mode | GROUP_FILE } else { file.mode }
}

/// The one step that readers notice.
fn switch(volume: &Path, fresh: &Path) -> HostResult<()> {
    let (link, data) = (volume.join(NEW_DATA), volume.join(DATA));
    let target = fresh.strip_prefix(volume).unwrap_or(fresh);
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failed("remove link", &link)(error));
        }
        Ok(()) | Err(_) => {}
    }
    std::os::unix::fs::symlink(target, &link).map_err(failed("create link", &link))?;
    fault::around("rename to", &data, || fs::rename(&link, &data)).map_err(failed("rename to", &data))
}

/// The names under which users find the files: the first part of each path.
fn keys(payload: &Payload) -> BTreeSet<&str> {
    payload.keys().map(|path| path.split_once('/').map_or(path.as_str(), |(first, _)| first)).collect()
}

/// Creates links for new keys, and removes those of removed keys.
fn show_keys(volume: &Path, payload: &Payload) -> HostResult<()> {
    let keys = keys(payload);
    for key in &keys {
        let (link, target) = (volume.join(key), Path::new(DATA).join(key));
        if fs::read_link(&link).is_ok_and(|known| known == target) {
            continue;
        }
        crate::atomic::ensure_symlink(&target, &link)?;
    }
    for entry in entries(volume)? {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        // Anything else, such as a mount point of another volume, stays.
        if is_link && !name.starts_with(OURS) && !keys.contains(&*name) {
            crate::files::remove_file(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes the files of earlier writes, finished or not.
fn remove_stale(volume: &Path, fresh: &Path) -> HostResult<()> {
    for entry in entries(volume)? {
        let path = entry.path();
        let is_ours = entry.file_name().to_string_lossy().starts_with(OURS);
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_ours && is_dir && path != fresh {
            fs::remove_dir_all(&path).map_err(failed("remove directory", &path))?;
        }
    }
    Ok(())
}

fn entries(volume: &Path) -> HostResult<Vec<fs::DirEntry>> {
    let read = fs::read_dir(volume).and_then(Iterator::collect);
    read.map_err(failed("list directory", volume))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str, u32)]) -> Payload {
        let file = |(path, content, mode): &(&str, &str, u32)| {
            let content = content.as_bytes().to_vec();
            ((*path).to_owned(), PayloadFile { content, mode: *mode, owner: None })
        };
        files.iter().map(file).collect()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).expect("a time")
    }

    /// The volume as its users see it: `key mode "content"`.
    fn seen(volume: &Path) -> Vec<String> {
        let mut lines = Vec::new();
        let mut open = vec![volume.to_path_buf()];
        while let Some(dir) = open.pop() {
            for entry in entries(&dir).expect("a directory") {
                let path = entry.path();
                if entry.file_name().to_string_lossy().starts_with(OURS) {
                    continue;
                }
                let metadata = fs::metadata(&path).expect("a link that leads somewhere");
                if metadata.is_dir() {
                    open.push(path);
                    continue;
                }
                let mode = metadata.permissions().mode() & PERMISSIONS;
                let name = path.strip_prefix(volume).expect("below").display().to_string();
                lines.push(format!("{name} {mode:04o} {:?}", fs::read_to_string(&path).expect("a file")));
            }
        }
        lines.sort();
        lines
    }

    fn count_of_data_dirs(volume: &Path) -> usize {
        entries(volume)
            .expect("a directory")
            .iter()
            .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
            .count()
    }

    #[test]
    fn payload_files_are_created_changed_and_removed() {
        let volume = tempfile::tempdir().expect("a directory");
        let volume = volume.path();
        let first = payload(&[("a", "1", 0o644), ("etc/b", "2", 0o400), ("etc/c", "3", 0o644)]);
        assert!(write_payload(volume, &first, None, at(0)).expect("written"));
        assert_eq!(seen(volume), ["a 0644 \"1\"", "etc/b 0400 \"2\"", "etc/c 0644 \"3\""]);
        assert_eq!(fs::read_link(volume.join("a")).expect("a link"), Path::new("..data/a"));

        let second = payload(&[("a", "one", 0o600), ("d", "4", 0o644)]);
        assert!(write_payload(volume, &second, None, at(1)).expect("written"));
        assert_eq!(seen(volume), ["a 0600 \"one\"", "d 0644 \"4\""]);
        assert_eq!(count_of_data_dirs(volume), 1);
        assert!(fs::read_link(volume.join("etc")).is_err());
    }

    #[test]
    fn unchanged_cgroup_values_are_not_written() {
        let volume = tempfile::tempdir().expect("a directory");
        let volume = volume.path();
        let files = payload(&[("a", "1", 0o644), ("b/c", "2", 0o644)]);
        assert!(write_payload(volume, &files, None, at(0)).expect("written"));
        let data = fs::read_link(volume.join(DATA)).expect("a link");
        assert!(!write_payload(volume, &files, None, at(5)).expect("compared"));
        assert_eq!(fs::read_link(volume.join(DATA)).expect("a link"), data);
        for other in [
            payload(&[("a", "2", 0o644), ("b/c", "2", 0o644)]),
            payload(&[("a", "2", 0o600), ("b/c", "2", 0o644)]),
            payload(&[("a", "2", 0o600)]),
            payload(&[]),
        ] {
            assert!(write_payload(volume, &other, None, at(6)).expect("written"), "{other:?}");
            assert_eq!(seen(volume).len(), other.len());
        }
    }

    #[test]
    fn payload_files_are_readable_by_fs_group() {
        let volume = tempfile::tempdir().expect("a directory");
        let volume = volume.path();
        let files = payload(&[("token", "t", 0o600), ("d/e", "x", 0o644)]);
        write_payload(volume, &files, Some(4242), at(0)).expect("written");
        assert_eq!(seen(volume), ["d/e 0644 \"x\"", "token 0640 \"t\""]);
        for path in ["token", "d", "d/e", "..data", "."] {
            assert_eq!(fs::metadata(volume.join(path)).expect("there").gid(), 4242, "{path}");
        }
        assert_eq!(fs::metadata(volume.join("d")).expect("there").mode() & PERMISSIONS, 0o2755);
        assert!(!write_payload(volume, &files, Some(4242), at(1)).expect("compared"));
        assert!(write_payload(volume, &files, Some(4243), at(2)).expect("written"));
    }

    /// Every state that a process killed between two steps can leave.
    #[test]
    fn payload_is_repaired_after_a_killed_writer() {
        let old = payload(&[("a", "1", 0o644), ("gone", "x", 0o644)]);
        let new = payload(&[("a", "2", 0o644), ("come", "y", 0o644)]);
        for step in 0..5 {
            let volume = tempfile::tempdir().expect("a directory");
            let volume = volume.path();
            write_payload(volume, &old, None, at(0)).expect("written");
            let half = new_data_dir(volume, at(1)).expect("made");
            if step >= 1 {
                fs::write(half.join("a"), "2").expect("half of the files");
            }
            if step >= 2 {
                fs::write(half.join("come"), "y").expect("all of the files");
                std::os::unix::fs::symlink(half.file_name().expect("a name"), volume.join(NEW_DATA))
                    .expect("a link");
            }
            if step >= 3 {
                fs::rename(volume.join(NEW_DATA), volume.join(DATA)).expect("switched");
            }
            if step >= 4 {
                fs::remove_file(volume.join("gone")).expect("removed");
            }
            write_payload(volume, &new, None, at(2)).expect("written");
            assert_eq!(seen(volume), ["a 0644 \"2\"", "come 0644 \"y\""], "killed after step {step}");
            write_payload(volume, &old, None, at(3)).expect("written");
            assert_eq!(count_of_data_dirs(volume), 1, "killed after step {step}");
        }
    }

    #[test]
    fn payload_readers_see_only_complete_updates() {
        const WRITES: u32 = 200;
        let volume = tempfile::tempdir().expect("a directory");
        let volume = volume.path();
        let at_number = |n: u32| {
            let text = format!("{n}").repeat(500);
            payload(&[("left", &*text, 0o644), ("right", &*text, 0o644)])
        };
        write_payload(volume, &at_number(0), None, at(0)).expect("written");
        std::thread::scope(|threads| {
            let writer = threads.spawn(|| {
                for n in 1..=WRITES {
                    write_payload(volume, &at_number(n), None, at(i64::from(n))).expect("written");
                }
            });
            while !writer.is_finished() {
                // A careful reader opens the directory once; it may be removed before both files are read.
                let data = volume.join(fs::read_link(volume.join(DATA)).expect("always there"));
                let pair = (fs::read(data.join("left")), fs::read(data.join("right")));
                if let (Ok(left), Ok(right)) = pair {
                    assert_eq!(left, right);
                }
                match fs::read(volume.join("left")) {
                    Ok(content) => {
                        assert!(content.chunks_exact(content.len() / 500).all(|c| *c == content[..c.len()]))
                    }
                    // This happens only at the moment at which the link changes to the new directory.
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
                }
            }
        });
    }
}
