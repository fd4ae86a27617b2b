//! Loop devices that keep a file open: the Go kubelet attaches one to each block device of a pod where it mounted that device.
//!
//! Unsafe: the request to detach a loop device, for which rustix has no call.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::ioctl::{NoArg, Opcode};

/// `LOOP_CLR_FD` of `linux/loop.h`.
const CLEAR: Opcode = 0x4c01;

/// Detaches the loop devices that keep the file open. Success if there are none.
pub(crate) fn detach_from(file: &Path) -> io::Result<()> {
    for name in attached_to(Path::new("/sys/block"), file)? {
        let device =
            rustix::fs::open(Path::new("/dev").join(name), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        match device.and_then(|device| clear(&device)) {
            // Another process was faster.
            Ok(()) | Err(Errno::NXIO | Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// The names of the loop devices of the file.
fn attached_to(devices: &Path, file: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(devices)? {
        let name = PathBuf::from(entry?.file_name());
        // Only loop devices have this, and only while they are attached.
        let Ok(backing_file) = fs::read(devices.join(&name).join("loop/backing_file")) else { continue };
        if backing_file.strip_suffix(b"\n") == Some(file.as_os_str().as_bytes()) {
            found.push(name);
        }
    }
    Ok(found)
}

#[expect(unsafe_code, reason = "rustix has no call for loop devices")]
fn clear(device: &OwnedFd) -> Result<(), Errno> {
    // SAFETY: LOOP_CLR_FD has no argument.
    unsafe { rustix::ioctl::ioctl(device, NoArg::<CLEAR>::new()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loop_devices_of_the_file_itself_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, file) in [("loop0", "/k/dev/u\n"), ("loop1", "/k/dev/u1\n"), ("loop2", "/k/dev/u\n")] {
            fs::create_dir_all(dir.path().join(name).join("loop")).expect("a directory");
            fs::write(dir.path().join(name).join("loop/backing_file"), file).expect("a file");
        }
        fs::create_dir(dir.path().join("vda")).expect("a directory");
        let mut found = attached_to(dir.path(), Path::new("/k/dev/u")).expect("a list");
        found.sort();
        assert_eq!(found, ["loop0", "loop2"].map(PathBuf::from));
    }
}
