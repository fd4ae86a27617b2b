//! Walking through a directory tree that a container may change at the same time: the one walker that removing, measuring
//! and changing ownership share.
//!
//! Every directory is opened by its name below the descriptor of its parent, without following links and without leaving
//! the filesystem, so that a directory that is swapped for a link leads nowhere, and a tree deeper than `PATH_MAX` is walked
//! like any other. Descriptors and memory are bounded: the first [`HELD`] levels stay open; of a deeper level only its inode
//! number and the position in it are kept, and the way back up is `..`, taken only if it leads to that inode.

use std::ffi::{CStr, CString, OsStr};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use ports::host::HostResult;
use rustix::fs::{Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Stat};
use rustix::io::Errno;

/// Levels whose directories stay open.
pub(crate) const HELD: usize = 64;
/// Levels below the held ones, at 16 bytes each. What lies deeper is not walked.
const MAX_DEEP: usize = 1 << 20;
/// Directory entries that the kernel returns at a time, in bytes. For a held level their names are kept.
const BATCH: usize = 8 << 10;
/// The same for a deeper level, which is read again after each directory in it.
const SMALL_BATCH: usize = 1 << 10;

pub(crate) const OPEN_DIR: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// What follows the visit of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    Next,
    /// Walk through the directory, then go on.
    Enter,
    /// Walk through the directory, then visit it again.
    EnterAndRevisit,
}

pub(crate) trait Visitor {
    /// # Errors
    /// End the walk.
    fn visit(&mut self, entry: &Entry<'_>) -> HostResult<Visit>;

    /// A directory could not be opened or listed; it is left out. `EXDEV`: it is on another filesystem or a mount point.
    ///
    /// # Errors
    /// End the walk.
    fn unreadable(&mut self, path: PathBuf, why: Errno) -> HostResult<()>;
}

/// One name in a directory.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) name: &'a CStr,
    /// Directories between the top of the tree and this entry; [`HELD`] for every entry below the held levels.
    pub(crate) level: usize,
    trail: Trail<'a>,
}

impl Entry<'_> {
    /// For messages: names below the held levels are left out.
    pub(crate) fn path(&self) -> PathBuf {
        self.trail.to(Some(self.name))
    }
}

/// Where the walk is, for messages only.
#[derive(Clone, Copy, Debug)]
struct Trail<'a> {
    top: &'a Path,
    above: &'a [Held],
    here: Option<&'a CStr>,
    is_deep: bool,
}

impl Trail<'_> {
    fn to(&self, name: Option<&CStr>) -> PathBuf {
        let mut path = self.top.to_path_buf();
        let held = self.above.iter().map(|level| &*level.name).chain(self.here);
        for name in held.filter(|name| !name.is_empty()) {
            path.push(OsStr::from_bytes(name.to_bytes()));
        }
        if self.is_deep {
            path.push("...");
        }
        path.extend(name.map(|name| OsStr::from_bytes(name.to_bytes())));
        path
    }
}

/// A directory on the way down that stays open.
#[derive(Debug)]
struct Held {
    dir: OwnedFd,
    /// Empty for the top.
    name: CString,
    /// Of the last batch, not visited yet.
    names: Vec<CString>,
}

/// A directory further down.
#[derive(Debug)]
struct Deep {
    inode: u64,
    /// Where reading it goes on.
    position: u64,
}

/// Work on a tree that goes on in pieces, so that other work on trees can be done in between.
pub(crate) trait TreeWork: Send + 'static {
    type Output: Send + 'static;

    /// Visits about that many entries. `None`: there are more.
    fn advance(&mut self, entries: usize) -> HostResult<Option<Self::Output>>;
}

/// Does all of the work at once.
pub(crate) fn complete<W: TreeWork>(mut work: W) -> HostResult<W::Output> {
    loop {
        if let Some(output) = work.advance(usize::MAX)? {
            return Ok(output);
        }
    }
}

/// A walk through everything below a directory, as far as it has come.
#[derive(Debug)]
pub(crate) struct Walk {
    /// Names the directory in messages.
    top: PathBuf,
    /// Of the tree's own filesystem.
    device: u64,
    held: Vec<Held>,
    /// Below the held levels; the last one is `current`.
    deep: Vec<Deep>,
    current: Option<OwnedFd>,
}

impl Walk {
    pub(crate) fn new(top: OwnedFd, path: &Path) -> Result<Self, Errno> {
        let device = rustix::fs::fstat(&top)?.st_dev;
        let held = vec![Held { dir: top, name: CString::default(), names: Vec::new() }];
        Ok(Self { top: path.to_path_buf(), device, held, deep: Vec::new(), current: None })
    }

    /// Visits about that many entries. Returns whether that was all of them.
    ///
    /// # Errors
    /// An error of the visitor. The walk is over then.
    pub(crate) fn advance(&mut self, visitor: &mut impl Visitor, entries: usize) -> HostResult<bool> {
        for _ in 0..entries {
            if let Some(dir) = self.current.take() {
                self.step_deep(visitor, dir)?;
            } else if let Some(level) = self.held.pop() {
                self.step_held(visitor, level)?;
            } else {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Visits one name of the level, or reads its next names; a level without any is done.
    fn step_held(&mut self, visitor: &mut impl Visitor, mut level: Held) -> HostResult<()> {
        let trail = Trail { top: &self.top, above: &self.held, here: Some(&level.name), is_deep: false };
        let Some(name) = level.names.pop() else {
            match next_names(&level.dir) {
                Ok(names) if names.is_empty() => {}
                Ok(names) => self.held.push(Held { names, ..level }),
                Err(error) => visitor.unreadable(trail.to(None), error)?,
            }
            return Ok(());
        };
        let entry = Entry { dir: level.dir.as_fd(), name: &name, level: self.held.len(), trail };
        let visit = visitor.visit(&entry)?;
        if visit == Visit::Next {
            self.held.push(level);
            return Ok(());
        }
        let (below, stat) = match open(&level.dir, &name, self.device) {
            Ok(opened) => opened,
            Err(error) => {
                visitor.unreadable(entry.path(), error)?;
                self.held.push(level);
                return Ok(());
            }
        };
        if visit == Visit::EnterAndRevisit {
            level.names.push(name.clone());
        }
        self.held.push(level);
        self.descend(below, stat, name);
        Ok(())
    }

    fn descend(&mut self, dir: OwnedFd, stat: Stat, name: CString) {
        if self.held.len() < HELD {
            self.held.push(Held { dir, name, names: Vec::new() });
        } else {
            self.deep.push(Deep { inode: stat.st_ino, position: 0 });
            self.current = Some(dir);
        }
    }

    /// Reads on in the deepest directory, up to the next directory in it.
    fn step_deep(&mut self, visitor: &mut impl Visitor, dir: OwnedFd) -> HostResult<()> {
        match self.read_deep(visitor, &dir)? {
            Read::More => self.current = Some(dir),
            Read::Below((below, stat)) => {
                if self.deep.len() < MAX_DEEP {
                    self.descend(below, stat, CString::default());
                } else {
                    let trail = Trail { top: &self.top, above: &self.held, here: None, is_deep: true };
                    visitor.unreadable(trail.to(None), Errno::NAMETOOLONG)?;
                    self.current = Some(dir);
                }
            }
            Read::End => {
                self.deep.pop();
                if let Some(parent) = self.deep.last() {
                    // Moved elsewhere meanwhile: the walk goes on where it can be sure, at the last held level.
                    match open_parent(&dir, self.device, parent.inode) {
                        Some(parent) => self.current = Some(parent),
                        None => self.deep.clear(),
                    }
                }
            }
        }
        Ok(())
    }

    fn read_deep(&mut self, visitor: &mut impl Visitor, dir: &OwnedFd) -> HostResult<Read> {
        let Some(level) = self.deep.last_mut() else { return Ok(Read::End) };
        let trail = Trail { top: &self.top, above: &self.held, here: None, is_deep: true };
        let mut buffer = [MaybeUninit::uninit(); SMALL_BATCH];
        if let Err(error) = rustix::fs::seek(dir, SeekFrom::Start(level.position)) {
            return visitor.unreadable(trail.to(None), error).map(|()| Read::End);
        }
        let mut entries = RawDir::new(dir, &mut buffer);
        let mut read = Read::End;
        while let Some(entry) = entries.next() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => return visitor.unreadable(trail.to(None), error).map(|()| Read::End),
            };
            let (name, next) = (entry.file_name(), entry.next_entry_cookie());
            let entry = Entry { dir: dir.as_fd(), name, level: HELD, trail };
            let visit = if is_dots(name) { Visit::Next } else { visitor.visit(&entry)? };
            if visit != Visit::EnterAndRevisit {
                level.position = next;
            }
            if visit != Visit::Next {
                match open(dir, name, self.device) {
                    Ok(below) => return Ok(Read::Below(below)),
                    Err(error) => {
                        visitor.unreadable(entry.path(), error)?;
                        level.position = next;
                    }
                }
            }
            read = Read::More;
            if entries.is_buffer_empty() {
                break;
            }
        }
        Ok(read)
    }
}

/// How far the deepest directory was read.
enum Read {
    More,
    Below((OwnedFd, Stat)),
    End,
}

/// A directory in `dir` on the same filesystem, and not a mount point.
fn open(dir: &OwnedFd, name: &CStr, device: u64) -> Result<(OwnedFd, Stat), Errno> {
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let opened = rustix::fs::openat2(dir, name, OPEN_DIR, Mode::empty(), inside)?;
    let stat = rustix::fs::fstat(&opened)?;
    if stat.st_dev == device { Ok((opened, stat)) } else { Err(Errno::XDEV) }
}

fn open_parent(dir: &OwnedFd, device: u64, inode: u64) -> Option<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    let parent = rustix::fs::openat2(dir, c"..", OPEN_DIR, Mode::empty(), resolve).ok()?;
    let stat = rustix::fs::fstat(&parent).ok()?;
    (stat.st_dev == device && stat.st_ino == inode).then_some(parent)
}

/// The names that the kernel has next; none at the end.
fn next_names(dir: &OwnedFd) -> Result<Vec<CString>, Errno> {
    let mut buffer = [MaybeUninit::uninit(); BATCH];
    let mut names = Vec::new();
    loop {
        let mut entries = RawDir::new(dir, &mut buffer);
        let mut is_end = true;
        while let Some(entry) = entries.next() {
            is_end = false;
            let entry = entry?;
            if !is_dots(entry.file_name()) {
                names.push(entry.file_name().to_owned());
            }
            if entries.is_buffer_empty() {
                break;
            }
        }
        // A batch may hold nothing but the directory itself and its parent.
        if is_end || !names.is_empty() {
            return Ok(names);
        }
    }
}

fn is_dots(name: &CStr) -> bool {
    name == c"." || name == c".."
}

#[cfg(test)]
mod tests;
