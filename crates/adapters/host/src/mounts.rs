//! The mount table, and unmounting.
//!
//! Never: unmounting lazily. A busy mount is an error that the caller retries, because a later removal of the tree would
//! otherwise reach a filesystem that is still mounted elsewhere.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use ports::host::{HostError, HostResult};
use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags};

use crate::measure::FIRST_READ;
use crate::{failed, fault};

pub(crate) const MOUNT_TABLE: &str = "/proc/self/mountinfo";

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// `major:minor`; the same for all mounts of one filesystem.
    pub(crate) device: String,
    /// Which directory of the filesystem is mounted here.
    pub(crate) root: PathBuf,
    pub(crate) mount_point: PathBuf,
    pub(crate) fs_type: String,
    /// Shared: later mounts below also appear in other mount namespaces.
    pub(crate) shared: bool,
}

/// The mounts of this process, in the kernel's order: a mount comes after the one it lies on.
pub(crate) fn mount_table() -> HostResult<Vec<Mount>> {
    read_table(Path::new(MOUNT_TABLE))
}

/// The mounts in the namespace of a process.
pub(crate) fn read_table(path: &Path) -> HostResult<Vec<Mount>> {
    let file = File::open(path).map_err(failed("read", path))?;
    read_open(&file).map_err(failed("read", path))
}

/// The same from a file that was not read yet.
pub(crate) fn read_open(mut file: &File) -> io::Result<Vec<Mount>> {
    let mut table = Vec::with_capacity(FIRST_READ);
    file.read_to_end(&mut table)?;
    Ok(parse_table(&table))
}

pub(crate) fn parse_table(table: &[u8]) -> Vec<Mount> {
    table.split(|byte| *byte == b'\n').filter_map(parse_mount).collect()
}

/// `id parent major:minor root mount-point options [optional…] - type source super-options`; None for anything else.
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
    let (root, mount_point) = (fields.next()?, fields.next()?);
    let _options = fields.next()?;
    let mut optional = fields.by_ref().take_while(|field| *field != b"-");
    let shared = optional.any(|field| field.starts_with(b"shared:"));
    // To the end of the optional fields, also when the answer came early.
    if shared {
        optional.for_each(drop);
    }
    let fs_type = String::from_utf8_lossy(fields.next()?).into_owned();
    let [root, mount_point] =
        [root, mount_point].map(|path| PathBuf::from(OsString::from_vec(unescape(path))));
    Some(Mount { device, root, mount_point, fs_type, shared })
}

/// The kernel writes space, tab, newline and backslash as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    if !field.contains(&b'\\') {
        return field.to_vec();
    }
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).filter(|_| *first == b'\\').and_then(octal);
        if let Some(code) = code {
            plain.push(code);
            rest = after.get(3..).unwrap_or_default();
        } else {
            plain.push(*first);
            rest = after;
        }
    }
    plain
}

fn octal(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with('+'))?;
    u8::from_str_radix(digits, 8).ok()
}

/// Where the last step of a path begins.
pub(crate) fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The path as the mount table writes it: without links on the way, the last step as it is. None if it cannot exist.
fn as_in_table(path: &Path) -> HostResult<Option<PathBuf>> {
    let resolved = match path.file_name() {
        Some(name) => directory_of(path).canonicalize().map(|directory| directory.join(name)),
        None => path.canonicalize(),
    };
    match resolved {
        Ok(resolved) => Ok(Some(resolved)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("resolve", path)(error)),
    }
}

/// Whether a path is `above`, or lies below it. Both as the mount table writes them, with no `.`, `..` or second slash, so that their
/// bytes decide: comparing all paths of a large table step by step takes longer than reading it.
fn is_at_or_below(path: &Path, above: &Path) -> bool {
    let [path, above] = [path, above].map(|path| path.as_os_str().as_bytes());
    let below = path.strip_prefix(above);
    below.is_some_and(|below| below.is_empty() || below.starts_with(b"/") || above == b"/")
}

/// The mounts at or below a path, innermost and latest first.
pub(crate) fn below<'a>(table: &'a [Mount], path: &Path) -> HostResult<Vec<&'a Mount>> {
    let Some(resolved) = as_in_table(path)? else { return Ok(Vec::new()) };
    let mut below: Vec<&Mount> =
        table.iter().filter(|mount| is_at_or_below(&mount.mount_point, &resolved)).collect();
    below.reverse();
    below.sort_by_key(|mount| std::cmp::Reverse(mount.mount_point.components().count()));
    Ok(below)
}

/// The mount points at or below a path, innermost and latest first.
pub(crate) fn mounted_below(path: &Path) -> HostResult<Vec<PathBuf>> {
    let table = mount_table()?;
    Ok(below(&table, path)?.into_iter().map(|mount| mount.mount_point.clone()).collect())
}

/// The mount at exactly this path; of several on top of each other the visible one.
pub(crate) fn mounted_at(path: &Path) -> HostResult<Option<Mount>> {
    if !is_mount_point(path)? {
        return Ok(None);
    }
    let Some(resolved) = as_in_table(path)? else { return Ok(None) };
    Ok(mount_table()?.into_iter().rfind(|mount| mount.mount_point == resolved))
}

/// Whether something is mounted at exactly this path, which may be missing. A link there is not followed.
///
/// Asks the kernel for this one step instead of reading the mount table: every pod asks once a minute, and the table has
/// several lines for each pod. The kernel refuses the step before it touches what is mounted, so that a server that does not
/// answer cannot hold it.
pub(crate) fn is_mount_point(path: &Path) -> HostResult<bool> {
    let Some(name) = path.file_name() else {
        // The root, or `..` at the end.
        let resolved = path.canonicalize().map_err(failed("resolve", path))?;
        return if resolved.parent().is_none() { Ok(true) } else { is_mount_point(&resolved) };
    };
    let here = OFlags::PATH | OFlags::CLOEXEC;
    let outside = match rustix::fs::open(directory_of(path), here | OFlags::DIRECTORY, Mode::empty()) {
        Ok(outside) => outside,
        Err(Errno::NOENT) => return Ok(false),
        Err(error) => return Err(failed("look for a mount at", path)(error)),
    };
    let step = here | OFlags::NOFOLLOW;
    match rustix::fs::openat2(outside, name, step, Mode::empty(), ResolveFlags::NO_XDEV) {
        Ok(_) | Err(Errno::NOENT) => Ok(false),
        Err(Errno::XDEV) => Ok(true),
        Err(error) => Err(failed("look for a mount at", path)(error)),
    }
}

/// The other places at which the directory is mounted that is mounted at this path.
pub(crate) fn other_mounts(path: &Path) -> HostResult<Vec<PathBuf>> {
    let Some(mount) = mounted_at(path)? else { return Ok(Vec::new()) };
    let is_other = |other: &Mount| {
        other.device == mount.device && other.root == mount.root && other.mount_point != mount.mount_point
    };
    Ok(mount_table()?.into_iter().filter(is_other).map(|other| other.mount_point).collect())
}

/// The mount that holds the path, by its name alone.
pub(crate) fn holder<'a>(table: &'a [Mount], path: &Path) -> Option<&'a Mount> {
    let path: PathBuf = path.components().collect();
    let holders = table.iter().filter(|mount| is_at_or_below(&path, &mount.mount_point));
    // Of several at one path the last one is visible.
    holders.max_by_key(|mount| mount.mount_point.components().count())
}

/// As many links as the kernel itself would follow.
const MAX_LINKS: usize = 40;

/// The first of these mounts along the path; nothing beyond it is touched. Links are followed.
pub(crate) fn first_on_way<'a>(mounts: &'a [Mount], path: &Path) -> HostResult<Option<&'a Mount>> {
    let mut steps: Vec<OsString> = steps_of(path);
    let (mut here, mut links) = (PathBuf::from("/"), 0);
    while let Some(step) = steps.pop() {
        if step == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&step);
        if let Some(mount) = holder(mounts, &next) {
            return Ok(Some(mount));
        }
        match std::fs::read_link(&next) {
            Ok(target) if links < MAX_LINKS => {
                links += 1;
                if target.is_absolute() {
                    here = PathBuf::from("/");
                }
                steps.extend(steps_of(&target));
            }
            Ok(_) => return Err(failed("follow the links of", path)(Errno::LOOP)),
            // Not a link, or missing: the caller gets the error.
            Err(_) => here = next,
        }
    }
    Ok(None)
}

/// The next one last.
fn steps_of(path: &Path) -> Vec<OsString> {
    let steps = path.components().rev().filter_map(|step| match step {
        Component::Normal(name) => Some(name.to_os_string()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    });
    steps.collect()
}

/// Unmounts one mount. Success if it is unmounted already.
pub(crate) fn unmount_one(mount_point: &Path) -> HostResult<()> {
    let unmounted =
        fault::around("unmount", mount_point, || rustix::mount::unmount(mount_point, UnmountFlags::NOFOLLOW));
    match unmounted {
        // Another process was faster.
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(error) => Err(failed("unmount", mount_point)(error)),
    }
}

pub(crate) fn is_busy(error: &HostError) -> bool {
    match error {
        HostError::Io { source, .. } => source.kind() == io::ErrorKind::ResourceBusy,
        HostError::Invalid(_) | HostError::NotFinished(_) => false,
    }
}

/// Makes sure that mounts appearing below `path` reach the containers that mount it: unless it lies on a shared mount,
/// binds it onto itself and makes that shared, recursively. Needs root.
///
/// # Errors
/// The mount table cannot be read, or the kernel refuses. The kubelet can run without; the caller decides.
pub fn ensure_shared_mount(path: &Path) -> HostResult<()> {
    let resolved = path.canonicalize().map_err(failed("resolve", path))?;
    let table = mount_table()?;
    if holder(&table, &resolved).is_some_and(|mount| mount.shared) {
        return Ok(());
    }
    rustix::mount::mount_bind_recursive(&resolved, &resolved).map_err(failed("bind to itself", path))?;
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    rustix::mount::mount_change(&resolved, shared).map_err(failed("share mounts below", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_table_line_is_parsed_into_mount_point_type_and_propagation() {
        let line = b"36 35 98:0 /mnt1 /mnt/a\\040b rw,noatime master:1 shared:7 - ext3 /dev/root rw";
        let mount = Mount {
            device: "98:0".to_owned(),
            root: "/mnt1".into(),
            mount_point: "/mnt/a b".into(),
            fs_type: "ext3".into(),
            shared: true,
        };
        assert_eq!(parse_mount(line), Some(mount));
    }

    #[test]
    fn a_line_without_optional_fields_is_private() {
        let line = b"36 35 98:0 / /x rw - tmpfs none rw,size=1k";
        let mount = Mount {
            device: "98:0".to_owned(),
            root: "/".into(),
            mount_point: "/x".into(),
            fs_type: "tmpfs".into(),
            shared: false,
        };
        assert_eq!(parse_mount(line), Some(mount));
    }

    #[test]
    fn lines_that_are_cut_off_are_skipped() {
        assert_eq!(parse_mount(b""), None);
        assert_eq!(parse_mount(b"36 35 98:0 /"), None);
        assert_eq!(parse_mount(b"36 35 98:0 / /x rw shared:1"), None);
    }

    #[test]
    fn a_path_lies_below_another_only_at_a_slash() {
        let is_below = |path: &str, above: &str| is_at_or_below(Path::new(path), Path::new(above));
        assert!(is_below("/a/b", "/a/b") && is_below("/a/b/c", "/a/b") && is_below("/a", "/"));
        assert!(is_below("/", "/"));
        assert!(!is_below("/a/bc", "/a/b") && !is_below("/a", "/a/b") && !is_below("/", "/a"));
    }

    #[test]
    fn the_innermost_and_latest_mount_holds_a_path() {
        let line = |id: u32, point: &str| format!("{id} 1 0:{id} / {point} rw - tmpfs none rw\n");
        let text = [line(1, "/"), line(2, "/a"), line(3, "/a/b"), line(4, "/a/b"), line(5, "/a/bc")].concat();
        let table = parse_table(text.as_bytes());
        let device = |path: &str| holder(&table, Path::new(path)).map(|mount| &*mount.device);
        assert_eq!(device("/a/b/c"), Some("0:4"));
        assert_eq!(device("/a//b/./"), Some("0:4"));
        assert_eq!(device("/a/bcd"), Some("0:2"));
        assert_eq!(device("/x"), Some("0:1"));
    }

    #[test]
    fn only_complete_octal_escapes_are_undone() {
        assert_eq!(unescape(b"a\\134b\\04"), b"a\\b\\04");
        assert_eq!(unescape(b"\\999\\+12"), b"\\999\\+12");
    }
}
