//! Reads a file that may be renamed, truncated or extended meanwhile.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use ports::host::{FileIdentity, HostResult, OpenFile};
use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::blocking::{Queue, blocking};
use crate::{failed, files};

#[derive(Debug)]
struct Opened {
    /// Its name when it was opened, for errors.
    path: PathBuf,
    file: Arc<File>,
    identity: FileIdentity,
    /// Where reading waits.
    queue: Queue,
}

pub(crate) fn open(path: &Path, queue: Queue) -> HostResult<Box<dyn OpenFile>> {
    opened(files::open_regular(path)?, path, queue)
}

pub(crate) fn open_below(root: &Path, inside: &str, queue: Queue) -> HostResult<Box<dyn OpenFile>> {
    let shown = root.join(inside);
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::open(root, directory, Mode::empty()).map_err(failed("open", root))?;
    let inside_only = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = rustix::fs::openat2(&top, inside, files::PROMPT_READ, Mode::empty(), inside_only);
    opened(files::regular(File::from(file.map_err(failed("open", &shown))?), &shown)?, &shown, queue)
}

fn opened(file: File, path: &Path, queue: Queue) -> HostResult<Box<dyn OpenFile>> {
    let metadata = file.metadata().map_err(failed("stat", path))?;
    let identity = FileIdentity { device: metadata.dev(), inode: metadata.ino() };
    Ok(Box::new(Opened { path: path.to_owned(), file: Arc::new(file), identity, queue }))
}

#[async_trait]
impl OpenFile for Opened {
    fn identity(&self) -> FileIdentity {
        self.identity
    }

    async fn size_bytes(&self) -> HostResult<u64> {
        let file = Arc::clone(&self.file);
        let size = move |path: &Path| Ok(file.metadata().map_err(failed("stat", path))?.len());
        blocking(&self.queue, &self.path, size).await
    }

    async fn read_at(&self, offset: u64, limit: usize) -> HostResult<Vec<u8>> {
        let file = Arc::clone(&self.file);
        let read = move |path: &Path| read(&file, offset, limit).map_err(failed("read", path));
        blocking(&self.queue, &self.path, read).await
    }
}

fn read(file: &File, offset: u64, limit: usize) -> io::Result<Vec<u8>> {
    let mut content = vec![0; limit];
    let mut length = 0;
    while length < limit {
        let at = offset.saturating_add(u64::try_from(length).unwrap_or(u64::MAX));
        match file.read_at(content.get_mut(length..).unwrap_or_default(), at) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    content.truncate(length);
    Ok(content)
}
