//! The part of SPDY/3.1 that a client of a streaming server needs: opening streams, sending and receiving data. Data frames
//! are passed on in pieces and never buffered whole. Does not interpret streams.
//!
//! Headers are compressed in SPDY, with one state for a whole connection. Ours are sent as stored blocks, which any
//! decompressor accepts; those of replies are not needed, and are skipped.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use crate::pieces::piece_of;

/// A longer control frame is an error; streaming servers send none.
const MAX_CONTROL_BYTES: u64 = 64 << 10;
const SYN_STREAM: u16 = 1;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const VERSION: u16 = 3;
const FIN: u8 = 1;
/// The beginning of a zlib stream without a dictionary.
const ZLIB: [u8; 2] = [0x78, 0x01];
/// An empty stored block.
const FLUSH: [u8; 5] = [0, 0, 0, 0xff, 0xff];

/// Writes the frames of a client.
#[derive(Debug, Default)]
pub(crate) struct FrameWriter {
    opened: u32,
}

impl FrameWriter {
    /// The identifier of a new stream, and the frame that opens it with one header. `None`: the header is too long.
    pub(crate) fn open(&mut self, name: &str, value: &str) -> Option<(u32, Vec<u8>)> {
        let mut headers = 1_u32.to_be_bytes().to_vec();
        for text in [name, value] {
            headers.extend(u32::try_from(text.len()).ok()?.to_be_bytes());
            headers.extend(text.as_bytes());
        }
        let length = u16::try_from(headers.len()).ok()?;
        let mut block = if self.opened == 0 { ZLIB.to_vec() } else { Vec::new() };
        // A stored block that is not the last.
        block.push(0);
        block.extend(length.to_le_bytes());
        block.extend((!length).to_le_bytes());
        block.extend(headers);
        // An empty block flushes the decompressor of the other side.
        block.extend(FLUSH);
        // Clients have the odd identifiers.
        let id = self.opened.checked_mul(2)?.checked_add(1)?;
        self.opened += 1;
        // No associated stream, no priority.
        let content = [&id.to_be_bytes()[..], &[0; 6], &block].concat();
        Some((id, control(SYN_STREAM, &content)))
    }
}

/// A data frame; the last one closes the sending direction.
pub(crate) fn data(id: u32, content: &[u8], is_last: bool) -> Vec<u8> {
    let mut frame = Vec::with_capacity(content.len() + 8);
    frame.extend((id & 0x7fff_ffff).to_be_bytes());
    frame.extend(flags_and_length(if is_last { FIN } else { 0 }, content.len()));
    frame.extend_from_slice(content);
    frame
}

/// The reply to a ping.
pub(crate) fn pong(id: [u8; 4]) -> Vec<u8> {
    control(PING, &id)
}

fn control(kind: u16, content: &[u8]) -> Vec<u8> {
    let mut frame = Vec::with_capacity(content.len() + 8);
    frame.extend((0x8000 | VERSION).to_be_bytes());
    frame.extend(kind.to_be_bytes());
    frame.extend(flags_and_length(0, content.len()));
    frame.extend_from_slice(content);
    frame
}

/// Callers send pieces, which are far shorter than 16 MiB.
fn flags_and_length(flags: u8, length: usize) -> [u8; 4] {
    let [_, a, b, c] = u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes();
    [flags, a, b, c]
}

/// A received part of a stream, or a control frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Data {
        id: u32,
        bytes: Vec<u8>,
    },
    /// The server closed its direction of the stream.
    End {
        id: u32,
    },
    Ping([u8; 4]),
    GoAway,
}

/// Reads the frames of a server.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    from: R,
    /// Of the current data frame.
    id: u32,
    left: u64,
    ends: bool,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) const fn new(from: R) -> Self {
        Self { from, id: 0, left: 0, ends: false }
    }

    /// The next piece.
    ///
    /// # Errors
    /// The connection ended, or the server sent an invalid frame.
    pub(crate) async fn next(&mut self) -> io::Result<Piece> {
        loop {
            if self.left > 0 {
                return self.data().await;
            }
            if std::mem::take(&mut self.ends) {
                return Ok(Piece::End { id: self.id });
            }
            let mut head = [0; 8];
            self.from.read_exact(&mut head).await?;
            let [a, b, c, d, flags, x, y, z] = head;
            let length = u64::from(u32::from_be_bytes([0, x, y, z]));
            if a & 0x80 == 0 {
                self.id = u32::from_be_bytes([a, b, c, d]);
                (self.left, self.ends) = (length, flags & FIN != 0);
                continue;
            }
            if let Some(piece) = self.control(u16::from_be_bytes([c, d]), length).await? {
                return Ok(piece);
            }
        }
    }

    async fn control(&mut self, kind: u16, length: u64) -> io::Result<Option<Piece>> {
        if length > MAX_CONTROL_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a control frame is too long"));
        }
        let mut content = vec![0; usize::try_from(length).unwrap_or(0)];
        self.from.read_exact(&mut content).await?;
        let first = content.first_chunk::<4>().copied();
        Ok(match (kind, first) {
            (RST_STREAM, Some(id)) => Some(Piece::End { id: u32::from_be_bytes(id) & 0x7fff_ffff }),
            (PING, Some(id)) => Some(Piece::Ping(id)),
            (GOAWAY, _) => Some(Piece::GoAway),
            _ => None,
        })
    }

    async fn data(&mut self) -> io::Result<Piece> {
        let bytes = piece_of(&mut self.left, &mut self.from).await?;
        Ok(Piece::Data { id: self.id, bytes })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_all(bytes: &[u8]) -> Vec<Piece> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut reader = FrameReader::new(bytes);
        let mut pieces = Vec::new();
        while let Ok(piece) = runtime.block_on(reader.next()) {
            pieces.push(piece);
        }
        pieces
    }

    #[test]
    fn stream_headers_share_one_compression_state() {
        let mut writer = FrameWriter::default();
        let (first, frame) = writer.open("streamtype", "error").unwrap();
        let block = b"\0\0\0\x01\0\0\0\x0astreamtype\0\0\0\x05error";
        let expected = [
            &b"\x80\x03\0\x01\0\0\0\x31\0\0\0\x01\0\0\0\0\0\0\x78\x01\0\x1b\0\xe4\xff"[..],
            block,
            b"\0\0\0\xff\xff",
        ];
        assert_eq!((first, frame), (1, expected.concat()));
        let (second, frame) = writer.open("streamtype", "stdin").unwrap();
        assert_eq!((second, &frame[8..21]), (3, &b"\0\0\0\x03\0\0\0\0\0\0\0\x1b\0"[..]));
    }

    #[test]
    fn data_frames_are_read_with_stream_and_end_and_other_frames_skipped() {
        let bytes = [
            control(2, b"\0\0\0\x01headers that are not read"),
            control(4, b"\0\0\0\0"),
            data(5, b"out", false),
            control(PING, &[0, 0, 0, 2]),
            data(1, b"err", true),
            data(5, b"", true),
            control(RST_STREAM, b"\0\0\0\x03\0\0\0\x05"),
            control(GOAWAY, b"\0\0\0\x05\0\0\0\0"),
        ];
        let piece = |id, text: &str| Piece::Data { id, bytes: text.as_bytes().to_vec() };
        let expected = vec![
            piece(5, "out"),
            Piece::Ping([0, 0, 0, 2]),
            piece(1, "err"),
            Piece::End { id: 1 },
            Piece::End { id: 5 },
            Piece::End { id: 3 },
            Piece::GoAway,
        ];
        assert_eq!(read_all(&bytes.concat()), expected);
        assert_eq!(pong([0, 0, 0, 2]), control(PING, &[0, 0, 0, 2]));
    }

    proptest! {
        #[test]
        fn reading_any_bytes_ends(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            read_all(&bytes);
        }
    }
}
