//! Joins two connections: what one side sends is copied to the other, until both have ended.
//!
//! Owns [`splice`], for streams to the container runtime (in the kubelet) and to a kubelet (in `localapi`).
//!
//! Architecture invariants:
//! - there is backpressure: one side is read only as fast as the other accepts the data;
//! - what the backend sent before it ended reaches a client that is still there, whatever the client sends meanwhile.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test joins its own tasks"))]

#[cfg(test)]
mod tests;

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Buffer of each direction.
const BUFFER_BYTES: usize = 32 << 10;
/// How long a client may take to close a stream that the backend has closed.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Idle timeout; zero means no timeout.
pub type Idle = Duration;

/// Why [`splice`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Closed,
    /// No data was copied for the idle timeout.
    Idle,
}

/// How many times data was copied, in both directions.
#[derive(Debug, Default)]
pub struct Moved(AtomicU64);

impl Moved {
    pub fn count(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns when no data was copied for `idle`, or up to a quarter longer.
    pub async fn stands_still(&self, idle: Idle) {
        const POLLS: u32 = 4;
        if idle.is_zero() {
            return std::future::pending().await;
        }
        let (mut last, mut same) = (self.0.load(Ordering::Relaxed), 0);
        while same < POLLS {
            tokio::time::sleep(idle / POLLS).await;
            let now = self.0.load(Ordering::Relaxed);
            same = if now == last { same + 1 } else { 0 };
            last = now;
        }
    }
}

/// Copies both directions. The end of one is passed on, and the other continues: until its end for a client that has closed its half,
/// and for [`DRAIN_TIMEOUT`] after the backend has ended. A client that broke off ends both.
pub async fn splice(
    client: impl AsyncRead + AsyncWrite,
    backend: impl AsyncRead + AsyncWrite,
    idle: Idle,
) -> Ended {
    let (from_client, to_client) = tokio::io::split(client);
    let (from_backend, to_backend) = tokio::io::split(backend);
    let moved = Moved::default();
    let up = input(from_client, to_backend, &moved);
    let down = output(from_backend, to_client, &moved);
    let both = async {
        tokio::pin!(up, down);
        tokio::select! {
            ended = &mut up => {
                if ended.is_ok() {
                    let _ = down.await;
                }
            }
            ended = &mut down => {
                if ended.is_ok() {
                    let _ = tokio::time::timeout(DRAIN_TIMEOUT, up).await;
                }
            }
        }
    };
    tokio::select! {
        () = both => Ended::Closed,
        () = moved.stands_still(idle) => Ended::Idle,
    }
}

/// Copies the client's data until its end. What a backend does not take any more is dropped: with unread data in it, closing the
/// connection to the client would take the end of the output away. An error means that the client has broken off.
async fn input(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &Moved,
) -> io::Result<()> {
    match copy(&mut from, &mut to, moved).await {
        Err(Broken::Source(error)) => Err(error),
        Err(Broken::Target(_)) => tokio::io::copy(&mut from, &mut tokio::io::sink()).await.map(drop),
        Ok(()) => {
            // A backend that has ended meanwhile needs no end of the input.
            let _ = to.shutdown().await;
            Ok(())
        }
    }
}

/// Copies the backend's data until it ends or breaks off. An error means that the client has broken off.
async fn output(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    moved: &Moved,
) -> io::Result<()> {
    match copy(&mut from, &mut to, moved).await {
        Err(Broken::Target(error)) => Err(error),
        Ok(()) | Err(Broken::Source(_)) => to.shutdown().await,
    }
}

/// The side because of which nothing more can be copied.
enum Broken {
    Source(io::Error),
    Target(io::Error),
}

async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    moved: &Moved,
) -> Result<(), Broken> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await.map_err(Broken::Source)?;
        let Some(piece) = buffer.get(..length).filter(|piece| !piece.is_empty()) else { return Ok(()) };
        moved.count();
        to.write_all(piece).await.map_err(Broken::Target)?;
        to.flush().await.map_err(Broken::Target)?;
    }
}
