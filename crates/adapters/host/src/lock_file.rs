//! `--lock-file`: only one kubelet at a time, and with `--exit-on-lock-contention` the running one exits when another wants the lock.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use inotify::{Inotify, WatchMask};
use rustix::fs::FlockOperation;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use crate::async_inotify::waiting;

/// Holds the lock until dropped.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    _locked: File,
}

/// Resolves when another process wants the lock.
#[derive(Debug)]
pub struct Contention {
    inotify: AsyncFd<Inotify>,
}

impl LockFile {
    /// Waits for the lock, creating the file if need be. With `exit_on_contention` also answers a [`Contention`], set
    /// up after the lock was acquired, so that our own opening does not count.
    ///
    /// Cancel safe: a lock that is acquired after the caller stopped waiting is released.
    ///
    /// # Errors
    /// The file cannot be created, locked or watched.
    pub async fn acquire(path: &Path, exit_on_contention: bool) -> io::Result<(Self, Option<Contention>)> {
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let (done, locked) = oneshot::channel();
        // Its own thread, not one of tokio's: those are waited for when the process wants to end.
        std::thread::Builder::new().name("lock-file".into()).spawn(move || {
            let result = rustix::fs::flock(&file, FlockOperation::LockExclusive);
            // Without a waiting caller the file, and with it the lock, is dropped here.
            let _ = done.send(result.map(|()| file));
        })?;
        let locked = locked.await.map_err(io::Error::other)??;
        let lock = Self { path: path.to_path_buf(), _locked: locked };
        let contention = if exit_on_contention { Some(lock.watch()?) } else { None };
        Ok((lock, contention))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn watch(&self) -> io::Result<Contention> {
        let inotify = Inotify::init()?;
        inotify.watches().add(&self.path, WatchMask::OPEN | WatchMask::DELETE_SELF)?;
        Ok(Contention { inotify: waiting(inotify)? })
    }
}

impl Contention {
    /// Resolves when any process opens or deletes the lock file.
    ///
    /// Cancel safe: it only waits.
    ///
    /// # Errors
    /// The runtime cannot wait for the watch.
    pub async fn wait(&self) -> io::Result<()> {
        // Never read: contention does not end after the first event.
        self.inotify.readable().await.map(drop)
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests own the tasks they start, and join them")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn second_kubelet_waits_for_the_lock_and_the_first_observes_contention() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let (first, contention) = LockFile::acquire(&path, true).await.unwrap();
        assert_eq!(first.path(), path);
        let second = tokio::spawn({
            let path = path.clone();
            async move { LockFile::acquire(&path, false).await }
        });
        contention.unwrap().wait().await.unwrap();
        assert!(!second.is_finished());
        drop(first);
        assert!(second.await.unwrap().unwrap().1.is_none());
    }

    #[tokio::test]
    async fn opening_by_the_lock_owner_is_no_contention_but_deletion_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let (lock, contention) = LockFile::acquire(&path, true).await.unwrap();
        let contention = contention.unwrap();
        let early = std::time::Duration::from_millis(100);
        assert!(tokio::time::timeout(early, contention.wait()).await.is_err());
        std::fs::remove_file(&path).unwrap();
        // A file is deleted only with its last descriptor, which is the lock's own.
        drop(lock);
        contention.wait().await.unwrap();
    }

    #[tokio::test]
    async fn lock_file_in_a_missing_directory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(LockFile::acquire(&dir.path().join("no/lock"), false).await.is_err());
    }
}
