//! Reads frames in pieces of bounded size, so that the length of a client's frame does not determine memory usage. Knows no
//! protocol.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Maximum size of a piece.
pub(crate) const PIECE_BYTES: usize = 32 << 10;

/// The next piece of the `left` remaining bytes, which is reduced by its length.
///
/// # Errors
/// The stream ended before all bytes were read.
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
