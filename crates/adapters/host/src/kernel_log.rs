//! The kernel's log, record by record, from now on. The caller interprets the records.

use std::collections::VecDeque;
use std::io;
use std::path::Path;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use ports::host::HostResult;
use rustix::fs::{Mode, OFlags, SeekFrom, open, seek};
use rustix::io::Errno;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;

use crate::failed;

/// Large enough for any record: the kernel returns a record as a whole or fails the read.
const RECORD_BYTES: usize = 8 << 10;

struct Log {
    source: Receiver,
    buffer: Vec<u8>,
    /// A pipe may give several at once.
    ready: VecDeque<String>,
}

pub(crate) fn follow(path: &Path) -> HostResult<BoxStream<'static, String>> {
    let source = begin(path).map_err(failed("follow", path))?;
    let log = Log { source, buffer: vec![0; RECORD_BYTES], ready: VecDeque::new() };
    Ok(stream::unfold(log, |mut log| async move { log.next().await.map(|record| (record, log)) }).boxed())
}

/// Earlier records are skipped: a restarted kubelet would report old events.
fn begin(path: &Path) -> io::Result<Receiver> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let source = open(path, flags, Mode::empty())?;
    match seek(&source, SeekFrom::End(0)) {
        // A pipe has no earlier records.
        Ok(_) | Err(Errno::SPIPE) => {}
        Err(error) => return Err(error.into()),
    }
    Receiver::from_owned_fd_unchecked(source)
}

impl Log {
    /// `None`: it has ended.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(record) = self.ready.pop_front() {
                return Some(record);
            }
            match self.source.read(&mut self.buffer).await {
                Ok(0) => return None,
                Ok(length) => {
                    let text = String::from_utf8_lossy(self.buffer.get(..length).unwrap_or_default());
                    self.ready.extend(text.lines().map(str::to_owned));
                }
                // Records were overwritten before we read them; reading goes on after them.
                Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => {}
                Err(error) => {
                    tracing::warn!(err = %error, "Failed to continue reading the kernel log");
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[tokio::test]
    async fn records_come_as_they_are_written_and_the_end_is_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, Mode::from(0o600), 0)
            .unwrap();
        let mut records = follow(&path).unwrap();
        let mut writer = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all(b"6,1,2,-;one\n SUBSYSTEM=a\n").unwrap();
        assert_eq!(records.next().await.as_deref(), Some("6,1,2,-;one"));
        assert_eq!(records.next().await.as_deref(), Some(" SUBSYSTEM=a"));
        writer.write_all(b"6,2,3,-;two\n").unwrap();
        assert_eq!(records.next().await.as_deref(), Some("6,2,3,-;two"));
        drop(writer);
        assert_eq!(records.next().await, None);
    }

    #[tokio::test]
    async fn missing_kernel_log_is_an_error() {
        assert!(follow(Path::new("/dev/none")).is_err_and(|error| error.is_not_found()));
    }
}
