//! A real FUSE filesystem that answers at first, and never again after [`HungFuse::hang`]: like a dead NFS server. It speaks the
//! kernel's protocol directly over `/dev/fuse`; the filesystem is one empty directory.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, UnmountFlags};

/// The minimum buffer for one message of the kernel.
const BUFFER: usize = 1 << 17;
const HEADER: usize = 40;
const MAJOR: u32 = 7;
const MINOR: u32 = 31;
/// Interval between two checks for the end.
const TICK: Duration = Duration::from_millis(20);

const NO_ENTRY: i32 = 2;
const NOT_OFFERED: i32 = 38;
const DIRECTORY: u32 = 0o040_755;

/// Mounted until dropped; requests that still wait then get an error.
#[derive(Debug)]
pub struct HungFuse {
    mount_point: PathBuf,
    state: Arc<State>,
    server: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct State {
    hangs: AtomicBool,
    is_over: AtomicBool,
    unanswered: AtomicUsize,
}

impl HungFuse {
    /// Mounts it; it answers. Needs root.
    ///
    /// # Errors
    /// The kernel has no FUSE, or returns an error.
    pub fn mount(mount_point: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(mount_point)?;
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = CString::new(options)?;
        rustix::mount::mount("hung", mount_point, "fuse.hung", MountFlags::empty(), options.as_c_str())?;
        let state = Arc::new(State::default());
        let of_server = state.clone();
        let server = std::thread::Builder::new().name("hung FUSE".to_owned()).spawn(move || {
            serve(device, &of_server);
        })?;
        Ok(Self { mount_point: mount_point.to_path_buf(), state, server: Some(server) })
    }

    /// From now on no request is answered.
    pub fn hang(&self) {
        self.state.hangs.store(true, Ordering::Relaxed);
    }

    /// Requests that were read and are never answered.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.state.unanswered.load(Ordering::Relaxed)
    }
}

impl Drop for HungFuse {
    fn drop(&mut self) {
        // The server closes the device first: that releases the waiting requests and the mount.
        self.state.is_over.store(true, Ordering::Relaxed);
        if let Some(server) = self.server.take() {
            // A panic of the server has been reported already.
            let _ = server.join();
        }
        // A failed test must leave no mount behind either.
        let _ = rustix::mount::unmount(&self.mount_point, UnmountFlags::DETACH);
    }
}

fn serve(mut device: File, state: &State) {
    let mut buffer = vec![0; BUFFER];
    let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
    while !state.is_over.load(Ordering::Relaxed) {
        let mut ready = [PollFd::new(&device, PollFlags::IN)];
        if !matches!(poll(&mut ready, Some(&tick)), Ok(1..)) {
            continue;
        }
        match device.read(&mut buffer) {
            Ok(length) => answer(&mut device, &buffer[..length], state),
            // Unmounted.
            Err(error) if error.raw_os_error() == Some(19) => return,
            // The request was interrupted.
            Err(_) => {}
        }
    }
}

fn number(question: &[u8], at: usize) -> u32 {
    question.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn answer(device: &mut File, question: &[u8], state: &State) {
    let operation = number(question, 4);
    let is_init = operation == 26;
    if state.hangs.load(Ordering::Relaxed) && !is_init {
        state.unanswered.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let (error, body) = match operation {
        // LOOKUP
        1 => (NO_ENTRY, Vec::new()),
        // FORGET, INTERRUPT, BATCH_FORGET get no reply.
        2 | 36 | 42 => return,
        // GETATTR, SETATTR
        3 | 4 => (0, attributes()),
        // STATFS
        17 => (0, vec![0; 80]),
        26 => (0, init()),
        // OPENDIR
        27 => (0, vec![0; 16]),
        // READDIR: nothing in it; RELEASEDIR
        28 | 29 => (0, Vec::new()),
        _ => (NOT_OFFERED, Vec::new()),
    };
    let length = u32::try_from(16 + body.len()).unwrap_or(16);
    let mut reply = Vec::with_capacity(16 + body.len());
    reply.extend_from_slice(&length.to_ne_bytes());
    reply.extend_from_slice(&(-error).to_ne_bytes());
    reply.extend_from_slice(question.get(8..16).unwrap_or(&[0; 8]));
    reply.extend_from_slice(&body);
    debug_assert!(question.len() >= HEADER);
    // The requesting process may have exited.
    let _ = device.write_all(&reply);
}

fn init() -> Vec<u8> {
    let mut body = Vec::new();
    for number in [MAJOR, MINOR, 0, 0] {
        body.extend_from_slice(&number.to_ne_bytes());
    }
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&4096_u32.to_ne_bytes());
    body.extend_from_slice(&1_u32.to_ne_bytes());
    body.resize(64, 0);
    body
}

/// The attributes of the one directory; valid for no time, so that every access causes a request.
fn attributes() -> Vec<u8> {
    let mut body = vec![0; 16];
    for number in [1_u64, 0, 0, 0, 0, 0] {
        body.extend_from_slice(&number.to_ne_bytes());
    }
    for number in [0, 0, 0, DIRECTORY, 2, 0, 0, 0, 4096, 0] {
        body.extend_from_slice(&u32::to_ne_bytes(number));
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hung_fuse_answers_then_hangs_until_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let mount_point = dir.path().join("fuse");
        let fuse = HungFuse::mount(&mount_point).unwrap();
        assert!(std::fs::metadata(&mount_point).unwrap().is_dir());
        assert_eq!(std::fs::read_dir(&mount_point).unwrap().count(), 0);
        fuse.hang();
        let path = mount_point.clone();
        let stuck = std::thread::spawn(move || std::fs::metadata(path).map(|_| ()));
        while fuse.unanswered() == 0 {
            std::thread::yield_now();
        }
        assert!(!stuck.is_finished());
        drop(fuse);
        assert!(stuck.join().unwrap().is_err());
        assert!(std::fs::metadata(&mount_point).unwrap().is_dir(), "the covered content is visible again");
    }
}
