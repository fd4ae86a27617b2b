//! Files and links that appear under their name in one step, complete, and durable ones also after a power cut.
//!
//! A file is written without a name first, where the filesystem has such files, so that a kill leaves nothing next to it: the Go kubelet
//! removes the directories of volumes only if they contain nothing but its own files. Only what replaces another file has another
//! name for a moment (see `temporary`). A durable file is flushed before it gets its name, and its directory after: otherwise an empty
//! file may replace a good one, or a caller may act on a file that does not exist after a power cut.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ports::host::HostResult;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use crate::files::{PERMISSIONS, PROMPT_READ};
use crate::temporary::Temporary;
use crate::{failed, fault};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// A power cut may leave an old, a new or an empty file.
    Cached,
    /// What was reported as written survives a power cut.
    Flushed,
}

/// The steps that a write is made of.
trait Disk {
    type File;
    /// The file, if it has this content and these permissions.
    fn same(&self, path: &Path, content: &[u8], mode: u32) -> Option<Self::File>;
    /// A file without a name in the directory; `None` if the filesystem has no such files.
    fn create_unnamed(&self, dir: &Path, mode: u32) -> io::Result<Option<Self::File>>;
    /// Fails if the name is taken.
    fn create(&self, path: &Path, mode: u32) -> io::Result<Self::File>;
    fn write(&self, file: &mut Self::File, content: &[u8]) -> io::Result<()>;
    fn sync(&self, file: &Self::File) -> io::Result<()>;
    /// Gives a name to a file without one. Fails if the name is taken.
    fn name(&self, file: &Self::File, path: &Path) -> io::Result<()>;
    /// Fails if the name is taken.
    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path);
}

/// This machine's.
struct Local;

impl Disk for Local {
    type File = File;

    fn same(&self, path: &Path, content: &[u8], mode: u32) -> Option<File> {
        let file = rustix::fs::open(path, PROMPT_READ | OFlags::NOFOLLOW, Mode::empty()).ok()?;
        let mut file = File::from(file);
        let found = file.metadata().ok()?;
        let is_alike = found.is_file()
            && found.mode() & PERMISSIONS == mode & PERMISSIONS
            && usize::try_from(found.len()).ok()? == content.len();
        if !is_alike {
            return None;
        }
        let mut known = Vec::with_capacity(content.len());
        (&mut file).take(found.len()).read_to_end(&mut known).ok()?;
        (known == content).then_some(file)
    }

    fn create_unnamed(&self, dir: &Path, mode: u32) -> io::Result<Option<File>> {
        let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
        match rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                let file = File::from(file);
                file.set_permissions(Permissions::from_mode(mode & PERMISSIONS))?;
                Ok(Some(file))
            }
            // What filesystems and kernels without the flag return.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn create(&self, path: &Path, mode: u32) -> io::Result<File> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.set_permissions(Permissions::from_mode(mode & PERMISSIONS))?;
        Ok(file)
    }

    fn write(&self, file: &mut File, content: &[u8]) -> io::Result<()> {
        file.write_all(content)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn name(&self, file: &File, path: &Path) -> io::Result<()> {
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(rustix::fs::linkat(CWD, open, CWD, path, AtFlags::SYMLINK_FOLLOW)?)
    }

    fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
        std::os::unix::fs::symlink(target, link)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn remove(&self, path: &Path) {
        // Best effort: the error that led here is the one worth reporting.
        let _ = fs::remove_file(path);
    }
}

/// Creates or replaces a file.
pub(crate) fn write(path: &Path, content: &[u8], mode: u32, durability: Durability) -> HostResult<()> {
    let temporary = Temporary::next_to(path)?;
    let names = Names { path, temporary: temporary.path(), durability };
    write_on(&Local, &names, content, mode).map_err(failed("write file", path))
}

/// Makes `link` point to `target`, replacing what it pointed to.
pub(crate) fn link(target: &Path, link: &Path, durability: Durability) -> HostResult<()> {
    let temporary = Temporary::next_to(link)?;
    let names = Names { path: link, temporary: temporary.path(), durability };
    link_on(&Local, &names, target).map_err(failed("create link", link))
}

pub(crate) fn ensure_symlink(target: &Path, link: &Path) -> HostResult<()> {
    if fs::read_link(link).is_ok_and(|now| now == target) {
        return Ok(());
    }
    self::link(target, link, Durability::Cached)
}

/// The name that a file or link gets, and the one that it has for a moment if that is taken.
#[derive(Debug)]
struct Names<'a> {
    path: &'a Path,
    temporary: &'a Path,
    durability: Durability,
}

impl Names<'_> {
    fn dir(&self) -> &Path {
        match self.path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir,
            Some(_) | None => Path::new("."),
        }
    }

    fn flush_dir<D: Disk>(&self, disk: &D) -> io::Result<()> {
        match self.durability {
            Durability::Cached => Ok(()),
            Durability::Flushed => disk.sync_dir(self.dir()),
        }
    }
}

fn write_on<D: Disk>(disk: &D, names: &Names<'_>, content: &[u8], mode: u32) -> io::Result<()> {
    // Whether it was flushed is not known.
    if names.durability == Durability::Flushed
        && let Some(file) = disk.same(names.path, content, mode)
    {
        disk.sync(&file)?;
        return names.flush_dir(disk);
    }
    let fill = |mut file: D::File| {
        disk.write(&mut file, content)?;
        match names.durability {
            Durability::Cached => {}
            Durability::Flushed => disk.sync(&file)?,
        }
        Ok(file)
    };
    let unnamed =
        fault::around("write", names.path, || disk.create_unnamed(names.dir(), mode)?.map(fill).transpose());
    match unnamed? {
        Some(file) => place(disk, names, |path| disk.name(&file, path))?,
        None => replace(disk, names, |path| disk.create(path, mode).and_then(fill).map(drop))?,
    }
    names.flush_dir(disk)
}

fn link_on<D: Disk>(disk: &D, names: &Names<'_>, target: &Path) -> io::Result<()> {
    place(disk, names, |path| disk.symlink(target, path))?;
    names.flush_dir(disk)
}

/// `make` makes something complete in one step.
fn place<D: Disk>(disk: &D, names: &Names<'_>, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    match fault::around("create", names.path, || make(names.path)) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => replace(disk, names, make),
        placed => placed,
    }
}

fn replace<D: Disk>(disk: &D, names: &Names<'_>, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let Names { path, temporary, .. } = names;
    let make_temporary = || match make(temporary) {
        // A kubelet with the same process id was killed; no other process uses the name.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            disk.remove(temporary);
            make(temporary)
        }
        made => made,
    };
    let made = fault::around("create", temporary, make_temporary);
    let renamed = made.and_then(|()| fault::around("rename to", path, || disk.rename(temporary, path)));
    if renamed.is_err() {
        disk.remove(temporary);
    }
    renamed
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use super::*;

    const PATH: &str = "/d/current";
    const TEMPORARY: &str = "/d/.tmp";

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Node {
        File(usize),
        Link(&'static str),
    }

    #[derive(Clone, Debug)]
    enum Change {
        Name(PathBuf, Node),
        Rename(PathBuf, PathBuf),
        Remove(PathBuf),
    }

    /// A disk that keeps changes in memory until they are flushed, and fails at one step.
    #[derive(Debug, Default)]
    struct Volatile {
        state: RefCell<State>,
        /// Its filesystem has no files without a name.
        names_all_files: bool,
    }

    #[derive(Clone, Debug, Default)]
    struct State {
        on_disk: BTreeMap<PathBuf, Node>,
        /// Changes of names since the directory was flushed, in their order.
        names: Vec<Change>,
        contents: Vec<&'static str>,
        flushed: Vec<bool>,
        steps: usize,
        fails_at: Option<usize>,
        /// What the disk held after each step.
        history: Vec<State>,
    }

    impl Volatile {
        fn step<T>(&self, change: impl FnOnce(&mut State) -> T) -> io::Result<T> {
            let mut state = self.state.borrow_mut();
            state.steps += 1;
            if state.fails_at == Some(state.steps) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let done = change(&mut state);
            let now = State { history: Vec::new(), ..state.clone() };
            state.history.push(now);
            Ok(done)
        }
    }

    impl Volatile {
        fn check_free(&self, path: &Path) -> io::Result<()> {
            let state = self.state.borrow();
            match state.names_now().contains_key(path) {
                true => Err(io::ErrorKind::AlreadyExists.into()),
                false => Ok(()),
            }
        }

        /// What a killed process leaves after each step.
        fn left_after_each_step(&self) -> Vec<Vec<PathBuf>> {
            let state = self.state.borrow();
            state.history.iter().map(|after| after.names_now().into_keys().collect()).collect()
        }
    }

    impl Disk for Volatile {
        type File = usize;

        fn same(&self, path: &Path, content: &[u8], _mode: u32) -> Option<usize> {
            let state = self.state.borrow();
            match state.names_now().get(path)? {
                Node::File(file) => (state.contents[*file].as_bytes() == content).then_some(*file),
                Node::Link(_) => None,
            }
        }

        fn create_unnamed(&self, _dir: &Path, _mode: u32) -> io::Result<Option<usize>> {
            if self.names_all_files {
                return Ok(None);
            }
            self.step(|state| Some(state.new_file()))
        }

        fn create(&self, path: &Path, _mode: u32) -> io::Result<usize> {
            self.check_free(path)?;
            self.step(|state| {
                let file = state.new_file();
                state.names.push(Change::Name(path.to_owned(), Node::File(file)));
                file
            })
        }

        fn name(&self, file: &usize, path: &Path) -> io::Result<()> {
            self.check_free(path)?;
            self.step(|state| state.names.push(Change::Name(path.to_owned(), Node::File(*file))))
        }

        fn write(&self, file: &mut usize, content: &[u8]) -> io::Result<()> {
            let content = if content == b"new" { "new" } else { "old" };
            self.step(|state| state.contents[*file] = content)
        }

        fn sync(&self, file: &usize) -> io::Result<()> {
            self.step(|state| state.flushed[*file] = true)
        }

        fn symlink(&self, target: &Path, link: &Path) -> io::Result<()> {
            let target = if target == Path::new("new") { "new" } else { "old" };
            self.check_free(link)?;
            self.step(|state| state.names.push(Change::Name(link.to_owned(), Node::Link(target))))
        }

        fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
            self.step(|state| state.names.push(Change::Rename(from.to_owned(), to.to_owned())))
        }

        fn sync_dir(&self, _dir: &Path) -> io::Result<()> {
            self.step(|state| {
                let all = state.names.len();
                state.on_disk = state.names_after(all);
                state.names.clear();
            })
        }

        fn remove(&self, path: &Path) {
            self.state.borrow_mut().names.push(Change::Remove(path.to_owned()));
        }
    }

    impl State {
        fn new_file(&mut self) -> usize {
            self.contents.push("");
            self.flushed.push(false);
            self.contents.len() - 1
        }

        fn names_now(&self) -> BTreeMap<PathBuf, Node> {
            self.names_after(self.names.len())
        }

        /// What the directory holds if so many of the changes have reached the disk.
        fn names_after(&self, count: usize) -> BTreeMap<PathBuf, Node> {
            let mut names = self.on_disk.clone();
            for change in &self.names[..count] {
                match change {
                    Change::Name(path, node) => drop(names.insert(path.clone(), *node)),
                    Change::Rename(from, to) => {
                        let node = names.remove(from).unwrap();
                        names.insert(to.clone(), node);
                    }
                    Change::Remove(path) => drop(names.remove(path)),
                }
            }
            names
        }

        /// What may stand at the path after a power cut: names reach the disk in order, contents whenever they like.
        fn after_power_cut(&self) -> Vec<Option<&'static str>> {
            let mut possible = Vec::new();
            for count in 0..=self.names.len() {
                match self.names_after(count).get(Path::new(PATH)) {
                    None => possible.push(None),
                    Some(Node::Link(target)) => possible.push(Some(*target)),
                    Some(Node::File(file)) => {
                        possible.push(Some(self.contents[*file]));
                        if !self.flushed[*file] {
                            possible.push(Some(""));
                        }
                    }
                }
            }
            possible
        }
    }

    const NAMES: fn() -> Names<'static> =
        || Names { path: Path::new(PATH), temporary: Path::new(TEMPORARY), durability: Durability::Flushed };

    fn write_file(disk: &Volatile, content: &str) -> io::Result<()> {
        write_on(disk, &NAMES(), content.as_bytes(), 0o600)
    }

    fn write_link(disk: &Volatile, target: &str) -> io::Result<()> {
        link_on(disk, &NAMES(), Path::new(target))
    }

    type Write = fn(&Volatile, &str) -> io::Result<()>;

    /// Each way to write, on each kind of filesystem.
    fn ways() -> [(Write, Volatile); 3] {
        let old = Volatile { names_all_files: true, ..Volatile::default() };
        [(write_file, Volatile::default()), (write_file, old), (write_link, Volatile::default())]
    }

    #[test]
    fn a_power_cut_after_any_step_leaves_the_old_content_or_the_new() {
        for (write, disk) in ways() {
            write(&disk, "old").unwrap();
            disk.state.borrow_mut().history.clear();
            write(&disk, "new").unwrap();
            let state = disk.state.borrow();
            for after in &state.history {
                let possible = after.after_power_cut();
                assert!(
                    possible.iter().all(|found| [Some("old"), Some("new")].contains(found)),
                    "{possible:?}"
                );
            }
            assert_eq!(state.after_power_cut(), [Some("new")], "what was reported as written is there");
        }
    }

    /// The model detects the mistakes that it is for.
    #[test]
    fn without_a_flush_a_power_cut_leaves_an_empty_file() {
        let disk = Volatile::default();
        write_file(&disk, "old").unwrap();
        write_on(&disk, &Names { durability: Durability::Cached, ..NAMES() }, b"new", 0o600).unwrap();
        assert!(disk.state.borrow().after_power_cut().contains(&Some("")));
    }

    #[test]
    fn a_full_disk_at_any_step_leaves_the_old_content_and_no_other_file() {
        for way in 0..ways().len() {
            for fails_at in 1.. {
                let [first, second, third] = ways();
                let (write, disk) = [first, second, third].into_iter().nth(way).unwrap();
                write(&disk, "old").unwrap();
                {
                    let mut state = disk.state.borrow_mut();
                    state.fails_at = Some(state.steps + fails_at);
                }
                if write(&disk, "new").is_ok() {
                    assert!(fails_at > 2);
                    break;
                }
                let state = disk.state.borrow();
                assert!(!state.names_now().contains_key(Path::new(TEMPORARY)), "step {fails_at}");
                // A flush of the directory that fails comes after the rename.
                assert!(
                    state.after_power_cut().iter().all(|found| [Some("old"), Some("new")].contains(found))
                );
            }
        }
    }

    #[test]
    fn a_kill_at_any_step_of_a_new_file_or_link_leaves_no_other_file() {
        for write in [write_file, write_link] {
            let disk = Volatile::default();
            write(&disk, "new").unwrap();
            for left in disk.left_after_each_step() {
                assert!(left.is_empty() || left == [PathBuf::from(PATH)], "{left:?}");
            }
        }
    }

    #[test]
    fn a_file_that_is_written_again_with_the_same_content_is_only_flushed() {
        let disk = Volatile::default();
        write_on(&disk, &Names { durability: Durability::Cached, ..NAMES() }, b"new", 0o600).unwrap();
        disk.state.borrow_mut().history.clear();
        write_file(&disk, "new").unwrap();
        assert_eq!(disk.left_after_each_step(), [[PathBuf::from(PATH)], [PathBuf::from(PATH)]]);
        assert_eq!(disk.state.borrow().after_power_cut(), [Some("new")]);
    }

    /// In a container the kubelet always has the same process id.
    #[test]
    fn what_a_killed_kubelet_with_the_same_process_id_left_is_replaced() {
        for (write, disk) in ways() {
            write(&disk, "old").unwrap();
            disk.create(Path::new(TEMPORARY), 0o600).unwrap();
            write(&disk, "new").unwrap();
            assert_eq!(disk.state.borrow().after_power_cut(), [Some("new")]);
            assert!(!disk.state.borrow().names_now().contains_key(Path::new(TEMPORARY)));
        }
    }

    #[test]
    fn durable_files_and_links_are_made_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (file, current) = (dir.path().join("file"), dir.path().join("current"));
        for (content, mode) in [("old", 0o640), ("new", 0o640), ("new", 0o644)] {
            write(&file, content.as_bytes(), mode, Durability::Flushed).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), content);
            assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & PERMISSIONS, mode);
        }
        fs::write(&current, "was a file").unwrap();
        link(&file, &current, Durability::Flushed).unwrap();
        assert_eq!(fs::read_link(&current).unwrap(), file);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
        assert!(write(&dir.path().join("missing/file"), b"x", 0o600, Durability::Flushed).is_err());
    }

    #[test]
    fn a_file_that_is_written_again_with_the_same_content_stays_the_same_file() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        let inode = |content: &str| {
            write(&file, content.as_bytes(), 0o644, Durability::Flushed).unwrap();
            fs::metadata(&file).unwrap().ino()
        };
        let first = inode("one");
        assert_eq!(inode("one"), first);
        assert_ne!(inode("two"), first);
    }
}
