//! A real FUSE filesystem that answers at first, and never again after [`HungFuse::hang`], like a dead NFS server, or with an I/O error
//! after [`HungFuse::fail`], like a broken disk. It speaks the kernel's protocol directly over `/dev/fuse`; the filesystem is one
//! directory that is empty or has one program.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
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
const INPUT_OUTPUT: i32 = 5;
const NOT_OFFERED: i32 = 38;
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
/// The kernel's number of the directory, and ours of the program in it.
const ROOT_NODE: u64 = 1;
const PROGRAM_NODE: u64 = 2;
/// Opening the program leaves what is in memory of it there, as on a disk.
const KEEP_CACHE: u64 = 2;
/// How much the kernel reads around what a program needs, as of a disk.
const READ_AHEAD: u32 = 128 << 10;

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
    fails: AtomicBool,
    is_over: AtomicBool,
    unanswered: AtomicUsize,
    reads: AtomicUsize,
}

/// What a program in the directory is called, and where its bytes are.
#[derive(Debug)]
struct ProgramFile {
    name: String,
    bytes: File,
    length: u64,
}

impl HungFuse {
    /// Mounts it; it answers. Needs root.
    ///
    /// # Errors
    /// The kernel has no FUSE, or returns an error.
    pub fn mount(mount_point: &Path) -> io::Result<Self> {
        Self::mount_with(mount_point, None)
    }

    /// Does the same with this program in the directory, under its own name.
    ///
    /// # Errors
    /// The program cannot be read; the kernel has no FUSE, or returns an error.
    pub fn with_program(mount_point: &Path, program: &Path) -> io::Result<Self> {
        let bytes = File::open(program)?;
        let length = bytes.metadata()?.len();
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self::mount_with(mount_point, Some(ProgramFile { name, bytes, length }))
    }

    fn mount_with(mount_point: &Path, program: Option<ProgramFile>) -> io::Result<Self> {
        std::fs::create_dir_all(mount_point)?;
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let options = CString::new(options)?;
        rustix::mount::mount("hung", mount_point, "fuse.hung", MountFlags::empty(), options.as_c_str())?;
        let state = Arc::new(State::default());
        let of_server = state.clone();
        let server = std::thread::Builder::new().name("hung FUSE".to_owned()).spawn(move || {
            serve(device, program.as_ref(), &of_server);
        })?;
        Ok(Self { mount_point: mount_point.to_path_buf(), state, server: Some(server) })
    }

    /// From now on no request is answered.
    pub fn hang(&self) {
        self.state.hangs.store(true, Ordering::Relaxed);
    }

    /// From now on every request fails with an I/O error.
    pub fn fail(&self) {
        self.state.fails.store(true, Ordering::Relaxed);
    }

    /// How often bytes of the program were read.
    #[must_use]
    pub fn reads(&self) -> usize {
        self.state.reads.load(Ordering::Relaxed)
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

fn serve(mut device: File, program: Option<&ProgramFile>, state: &State) {
    let mut buffer = vec![0; BUFFER];
    let tick = Timespec { tv_sec: 0, tv_nsec: i64::from(TICK.subsec_nanos()) };
    while !state.is_over.load(Ordering::Relaxed) {
        let mut ready = [PollFd::new(&device, PollFlags::IN)];
        if !matches!(poll(&mut ready, Some(&tick)), Ok(1..)) {
            continue;
        }
        match device.read(&mut buffer) {
            Ok(length) => answer(&mut device, &buffer[..length], program, state),
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

fn long_number(question: &[u8], at: usize) -> u64 {
    question.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn answer(device: &mut File, question: &[u8], program: Option<&ProgramFile>, state: &State) {
    let operation = number(question, 4);
    let is_init = operation == 26;
    if state.hangs.load(Ordering::Relaxed) && !is_init {
        state.unanswered.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let outcome = match operation {
        // FORGET, INTERRUPT, BATCH_FORGET get no reply.
        2 | 36 | 42 => return,
        26 => Ok(init()),
        _ if state.fails.load(Ordering::Relaxed) => Err(INPUT_OUTPUT),
        _ => answer_from_disk(operation, question, program, state),
    };
    let (error, body) = outcome.map_or_else(|error| (error, Vec::new()), |body| (0, body));
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

/// The body of the reply, or the number of the error.
fn answer_from_disk(
    operation: u32,
    question: &[u8],
    program: Option<&ProgramFile>,
    state: &State,
) -> Result<Vec<u8>, i32> {
    match operation {
        // LOOKUP
        1 => program.filter(|program| asks_for(question, program)).map(entry).ok_or(NO_ENTRY),
        // GETATTR, SETATTR
        3 | 4 => Ok(attributes(long_number(question, 16), program)),
        // OPEN
        14 => Ok([0, KEEP_CACHE].map(u64::to_ne_bytes).concat()),
        // OPENDIR
        27 => Ok(vec![0; 16]),
        // READ
        15 => {
            state.reads.fetch_add(1, Ordering::Relaxed);
            program.ok_or(INPUT_OUTPUT).and_then(|program| read(question, program))
        }
        // STATFS
        17 => Ok(vec![0; 80]),
        // RELEASE, READDIR (nothing is listed), RELEASEDIR
        18 | 28 | 29 => Ok(Vec::new()),
        _ => Err(NOT_OFFERED),
    }
}

fn asks_for(question: &[u8], program: &ProgramFile) -> bool {
    question.get(HEADER..).is_some_and(|name| name.strip_suffix(&[0]) == Some(program.name.as_bytes()))
}

fn read(question: &[u8], program: &ProgramFile) -> Result<Vec<u8>, i32> {
    let (offset, size) = (long_number(question, HEADER + 8), number(question, HEADER + 16));
    let mut bytes = vec![0; size as usize];
    let mut filled = 0;
    while filled < bytes.len() {
        match program.bytes.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) => return Err(error.raw_os_error().unwrap_or(INPUT_OUTPUT)),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// The answer to a look-up: the number of the program and its attributes.
fn entry(program: &ProgramFile) -> Vec<u8> {
    let mut body = Vec::new();
    for number in [PROGRAM_NODE, 0, 0, 0, 0] {
        body.extend_from_slice(&number.to_ne_bytes());
    }
    body.extend_from_slice(&attributes(PROGRAM_NODE, Some(program))[16..]);
    body
}

fn init() -> Vec<u8> {
    let mut body = Vec::new();
    for number in [MAJOR, MINOR, READ_AHEAD, 0] {
        body.extend_from_slice(&number.to_ne_bytes());
    }
    body.extend_from_slice(&[0; 4]);
    body.extend_from_slice(&4096_u32.to_ne_bytes());
    body.extend_from_slice(&1_u32.to_ne_bytes());
    body.resize(64, 0);
    body
}

/// The attributes of the directory or the program; valid for no time, so that every access causes a request.
fn attributes(node: u64, program: Option<&ProgramFile>) -> Vec<u8> {
    let (mode, length) = match program {
        Some(program) if node != ROOT_NODE => (PROGRAM, program.length),
        Some(_) | None => (DIRECTORY, 0),
    };
    let mut body = vec![0; 16];
    for number in [node, length, length.div_ceil(512), 0, 0, 0] {
        body.extend_from_slice(&number.to_ne_bytes());
    }
    for number in [0, 0, 0, mode, 2, 0, 0, 0, 4096, 0] {
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

    #[test]
    fn program_runs_from_the_filesystem_until_that_fails() {
        let dir = tempfile::tempdir().unwrap();
        let fuse = HungFuse::with_program(&dir.path().join("fuse"), Path::new("/bin/true")).unwrap();
        let run = || std::process::Command::new(dir.path().join("fuse/true")).status();
        assert!(run().unwrap().success());
        assert!(fuse.reads() > 0);
        fuse.fail();
        assert_eq!(run().unwrap_err().raw_os_error(), Some(INPUT_OUTPUT));
    }
}
