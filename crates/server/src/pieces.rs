//! What is read of a stream at a time, so that nobody's frame decides how much memory it takes. Never knows whose bytes
//! they are.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// What is handed on at a time.
pub(crate) const PIECE_BYTES: usize = 32 << 10;

/// The next piece of the `left` bytes that are still to come, which become fewer by it.
///
/// # Errors
/// When nothing can be read any more, which is too early.
pub(crate) async fn piece_of(left: &mut u64, from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let most = usize::try_from(*left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
    let mut bytes = vec![0; most];
    let length = from.read(&mut bytes).await?;
    if length == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    bytes.truncate(length);
    *left = left.saturating_sub(u64::try_from(length).unwrap_or(u64::MAX));
    Ok(bytes)
}
