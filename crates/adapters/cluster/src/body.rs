//! The body of a response: decompressed, and read piece by piece with a limit on silence instead of one on the whole, because a large
//! list over a slow link arrives if it is given time.

use std::io::{self, Write};
use std::time::Duration;

use flate2::write::GzDecoder;
use http::header::{CONTENT_ENCODING, HeaderMap};
use http_body_util::BodyExt;
use hyper::body::Body as _;

use crate::connection::Answer;
use crate::error::in_full;

/// Compressed bytes that are decompressed at a time: a thousand times as many bytes at most.
const PIECE: usize = 4 << 10;
/// After this many bytes of a body, other tasks have their turn.
const TURN: u64 = 1 << 20;

/// Why a body could not be read.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// Nothing arrived for so long.
    Silent,
    Broken(String),
    /// The writer returned this error, or the body is not compressed as the response claims.
    Rejected(io::Error),
}

/// Passes the body to `writer`, and returns the writer and the number of bytes that it was passed.
pub(crate) async fn read<W: Write>(
    headers: &HeaderMap,
    mut body: Answer,
    writer: W,
    silence: Duration,
) -> Result<(W, u64), BodyError> {
    let mut decoder = Decoder::of(headers, writer)?;
    let mut next_turn = TURN;
    // Frames without data are no sign of progress, but also no silence.
    while !body.is_end_stream() {
        let frame = match tokio::time::timeout(silence, body.frame()).await {
            Ok(Some(frame)) => frame.map_err(|error| BodyError::Broken(in_full(&error)))?,
            Ok(None) => break,
            Err(_) => return Err(BodyError::Silent),
        };
        let Ok(data) = frame.into_data() else { continue };
        for piece in data.chunks(PIECE) {
            decoder.write(piece).map_err(BodyError::Rejected)?;
            if decoder.written() >= next_turn {
                next_turn = decoder.written() + TURN;
                tokio::task::yield_now().await;
            }
        }
    }
    decoder.finish().map_err(BodyError::Rejected)
}

enum Decoder<W: Write> {
    Plain(Counting<W>),
    Gzip(Box<GzDecoder<Counting<W>>>),
}

impl<W: Write> Decoder<W> {
    fn of(headers: &HeaderMap, writer: W) -> Result<Self, BodyError> {
        let writer = Counting { writer, count: 0 };
        match headers.get(CONTENT_ENCODING).map(|encoding| encoding.as_bytes()) {
            None | Some(b"identity") => Ok(Self::Plain(writer)),
            Some(b"gzip") => Ok(Self::Gzip(Box::new(GzDecoder::new(writer)))),
            Some(other) => {
                let message = format!("unknown content encoding {:?}", String::from_utf8_lossy(other));
                Err(BodyError::Rejected(io::Error::other(message)))
            }
        }
    }

    fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(writer) => writer.write_all(piece),
            Self::Gzip(decoder) => decoder.write_all(piece),
        }
    }

    fn written(&self) -> u64 {
        match self {
            Self::Plain(writer) => writer.count,
            Self::Gzip(decoder) => decoder.get_ref().count,
        }
    }

    fn finish(self) -> io::Result<(W, u64)> {
        let Counting { writer, count } = match self {
            Self::Plain(writer) => writer,
            Self::Gzip(decoder) => decoder.finish()?,
        };
        Ok((writer, count))
    }
}

/// Counts the bytes that a writer was passed.
struct Counting<W> {
    writer: W,
    count: u64,
}

impl<W: Write> Write for Counting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(bytes)?;
        self.count += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

/// Collects at most `most` bytes.
#[derive(Debug)]
pub(crate) struct Whole {
    pub(crate) bytes: Vec<u8>,
    pub(crate) most: usize,
}

impl Write for Whole {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            return Err(io::Error::other(format!("the response is larger than {} MiB", self.most >> 20)));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
