//! Reads the systemd journal with `journalctl`. The caller chooses the arguments.

use std::io;
use std::path::Path;
use std::process::Stdio;

use futures_util::stream;
use ports::host::{CommandOutput, HostResult};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::{Child, Command};

use crate::failed;

const PROGRAM: &str = "journalctl";
const PIECE_BYTES: usize = 32 << 10;

pub(crate) fn read(arguments: &[String]) -> HostResult<CommandOutput> {
    let (child, output) = start(arguments).map_err(failed("run", Path::new(PROGRAM)))?;
    let pieces = stream::try_unfold((child, output), |(child, mut output)| async move {
        let mut piece = vec![0; PIECE_BYTES];
        let length = output.read(&mut piece).await.map_err(failed("read from", Path::new(PROGRAM)))?;
        piece.truncate(length);
        Ok((length > 0).then_some((piece, (child, output))))
    });
    Ok(Box::pin(pieces))
}

/// Both outputs go into one pipe, in the order in which they are written.
fn start(arguments: &[String]) -> io::Result<(Child, Receiver)> {
    let (ours, theirs) = io::pipe()?;
    let child = Command::new(PROGRAM)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(theirs.try_clone()?)
        .stderr(theirs)
        .kill_on_drop(true)
        .spawn()?;
    Ok((child, Receiver::from_owned_fd(ours.into())?))
}
