//! The machine under the driver: the mount table, loop devices and filesystems.

use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::StatVfs;
use rustix::mount::{MountFlags, UnmountFlags};

/// Another program may take the free loop device that was found.
const LOOP_ATTEMPTS: usize = 10;

pub(super) fn is_mounted(path: &Path) -> io::Result<bool> {
    let table = fs::read_to_string("/proc/self/mountinfo")?;
    let mut points = table.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points.any(|point| Path::new(&point.replace("\\040", " ")) == path))
}

pub(super) fn bind(source: &Path, target: &Path, is_read_only: bool) -> io::Result<()> {
    rustix::mount::mount_bind(source, target)?;
    if is_read_only {
        let remounted = rustix::mount::mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, "");
        if let Err(error) = remounted {
            unmount(target)?;
            return Err(error.into());
        }
    }
    Ok(())
}

pub(super) fn mount_memory(target: &Path, bytes: u64) -> io::Result<()> {
    let size = CString::new(format!("size={bytes}"))?;
    Ok(rustix::mount::mount("tmpfs", target, "tmpfs", MountFlags::empty(), size.as_c_str())?)
}

/// Changes the size of the filesystem of [`mount_memory`], which stays mounted.
pub(super) fn grow_memory(path: &Path, bytes: u64) -> io::Result<()> {
    Ok(rustix::mount::mount_remount(path, MountFlags::empty(), format!("size={bytes}"))?)
}

/// Unmounts everything that is mounted there, one on the other.
pub(super) fn unmount(path: &Path) -> io::Result<()> {
    while is_mounted(path)? {
        rustix::mount::unmount(path, UnmountFlags::empty())?;
    }
    Ok(())
}

/// Does the same although it is in use.
pub(super) fn detach(path: &Path) {
    while is_mounted(path).unwrap_or_default() {
        if rustix::mount::unmount(path, UnmountFlags::DETACH).is_err() {
            return;
        }
    }
}

pub(super) fn space(path: &Path) -> io::Result<StatVfs> {
    Ok(rustix::fs::statvfs(path)?)
}

/// The loop device of the file; attaches one if it has none.
pub(super) fn attach_loop(file: &Path) -> io::Result<PathBuf> {
    for attempt in 1.. {
        if let Some(device) = loop_of(file)? {
            return Ok(device);
        }
        match run("losetup", &["--find".as_ref(), file]) {
            Err(error) if attempt >= LOOP_ATTEMPTS => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Err(io::ErrorKind::NotFound.into())
}

pub(super) fn loop_of(file: &Path) -> io::Result<Option<PathBuf>> {
    let flags = ["--associated", "--output", "NAME", "--noheadings"].map(Path::new);
    let output = run("losetup", &[flags[0], file, flags[1], flags[2], flags[3]])?;
    Ok(output.lines().next().map(|line| PathBuf::from(line.trim())))
}

pub(super) fn detach_loop(file: &Path) -> io::Result<()> {
    if let Some(device) = loop_of(file)? {
        run("losetup", &["--detach".as_ref(), &device])?;
    }
    Ok(())
}

/// The device sees the new size of its file, and so does its filesystem if it has one. On a machine that denies `CAP_SYS_RESOURCE`
/// a filesystem can't grow while it is mounted; then [`grow_unmounted`] does it before the next mount.
pub(super) fn grow(file: &Path, has_filesystem: bool) -> io::Result<()> {
    let Some(device) = loop_of(file)? else { return Ok(()) };
    run("losetup", &["--set-capacity".as_ref(), &device])?;
    if !has_filesystem {
        return Ok(());
    }
    match run("resize2fs", &[&device]) {
        Err(error) if error.to_string().contains("Permission denied") => Ok(()),
        grown => grown.map(|_| ()),
    }
}

/// The filesystem, which is not mounted, fills its device.
pub(super) fn grow_unmounted(device: &Path) -> io::Result<()> {
    run("e2fsck", &["-f".as_ref(), "-p".as_ref(), device])?;
    run("resize2fs", &[device]).map(|_| ())
}

pub(super) fn has_filesystem(file: &Path) -> bool {
    run("blkid", &["-p".as_ref(), file]).is_ok()
}

pub(super) fn make_filesystem(file: &Path) -> io::Result<()> {
    run("mkfs.ext4", &["-q".as_ref(), "-F".as_ref(), file]).map(|_| ())
}

pub(super) fn mount_filesystem(device: &Path, target: &Path, flags: &[String]) -> io::Result<()> {
    let options = if flags.is_empty() { "defaults".to_owned() } else { flags.join(",") };
    let arguments = ["-t", "ext4", "-o", &options].map(Path::new);
    run("mount", &[arguments[0], arguments[1], arguments[2], arguments[3], device, target]).map(|_| ())
}

fn run(program: &str, arguments: &[&Path]) -> io::Result<String> {
    let output = Command::new(program).args(arguments).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    Err(io::Error::other(format!("{program}: {}: {}", output.status, text(&output.stderr))))
}
