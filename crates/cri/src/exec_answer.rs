//! Parses responses of ExecSync while they are received. A command may print up to the runtime's limit (16 MiB with
//! containerd); only the beginning of each stream is kept, and no larger message is ever buffered.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use cri_api::v1 as wire;
use futures_util::future::BoxFuture;
use http::{Request, Response};
use hyper::body::{Bytes, Frame};
use prost::Message as _;
use tonic::Status;
use tonic::body::Body;
use tower_service::Service;

use crate::channel::Connection;

/// Limit for each output stream; probes and hooks use 10 KiB of both.
pub(crate) const MAX_OUTPUT: usize = 10 << 10;
/// Header of each gRPC message: whether it is compressed, and its length.
const HEADER_BYTES: usize = 5;

/// A connection that parses all responses as ExecSync responses, and truncates their outputs.
#[derive(Clone, Debug)]
pub(crate) struct CutOutput(pub(crate) Connection);

impl Service<Request<Body>> for CutOutput {
    type Response = Response<Body>;
    type Error = tonic::transport::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.0.call(request);
        Box::pin(async move {
            Ok(answer.await?.map(|inner| Body::new(CutBody { inner, answer: ExecAnswer::default() })))
        })
    }
}

struct CutBody {
    inner: Body,
    answer: ExecAnswer,
}

impl hyper::body::Body for CutBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            let frame = match ready!(Pin::new(&mut self.inner).poll_frame(context)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => frame,
            };
            let data = match frame.into_data() {
                Ok(data) => data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            };
            match self.answer.feed(&data) {
                Ok(None) => {}
                Ok(Some(message)) => return Poll::Ready(Some(Ok(Frame::data(message)))),
                Err(problem) => return Poll::Ready(Some(Err(Status::internal(problem)))),
            }
        }
    }
}

/// Parser state of a response.
#[derive(Debug, Default)]
struct ExecAnswer {
    header: Vec<u8>,
    /// Bytes of the message that were not received yet.
    left: usize,
    /// The current varint: its value so far, and the position of its next seven bits.
    number: (u64, u32),
    part: Part,
    kept: wire::ExecSyncResponse,
    is_complete: bool,
}

/// The next part of the message.
#[derive(Clone, Copy, Debug, Default)]
enum Part {
    #[default]
    Tag,
    Number {
        field: u64,
    },
    Length {
        field: u64,
    },
    Content {
        field: u64,
        left: usize,
    },
}

const STDOUT: u64 = 1;
const STDERR: u64 = 2;
const EXIT_CODE: u64 = 3;

impl ExecAnswer {
    /// Parses the next bytes of the response. Once its message is complete, returns it with truncated outputs.
    fn feed(&mut self, mut data: &[u8]) -> Result<Option<Bytes>, &'static str> {
        while let Some((&byte, rest)) = data.split_first() {
            if self.is_complete {
                return Err("the response of ExecSync has more than one message");
            }
            data = if self.header.len() < HEADER_BYTES {
                self.take_header_byte(byte)?;
                rest
            } else {
                let taken = self.take(data)?;
                self.left = self.left.checked_sub(taken).ok_or("a field is longer than its message")?;
                data.get(taken..).unwrap_or_default()
            };
            if self.header.len() == HEADER_BYTES && self.left == 0 {
                self.is_complete = true;
                if !matches!((self.part, self.number), (Part::Tag, (0, 0))) {
                    return Err("the response of ExecSync ends within a field");
                }
                return self.message(data);
            }
        }
        Ok(None)
    }

    fn take_header_byte(&mut self, byte: u8) -> Result<(), &'static str> {
        self.header.push(byte);
        if let [compressed, length @ ..] = &*self.header
            && let Ok(length) = <[u8; 4]>::try_from(length)
        {
            if *compressed != 0 {
                return Err("the response of ExecSync is compressed, which was not requested");
            }
            self.left = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        }
        Ok(())
    }

    /// Reads at least one byte of the message; returns how many.
    fn take(&mut self, data: &[u8]) -> Result<usize, &'static str> {
        if let Part::Content { field, left } = self.part {
            let taken = left.min(data.len());
            let output = match field {
                STDOUT => Some(&mut self.kept.stdout),
                STDERR => Some(&mut self.kept.stderr),
                _ => None,
            };
            if let Some(output) = output {
                let kept = taken.min(MAX_OUTPUT.saturating_sub(output.len()));
                output.extend_from_slice(data.get(..kept).unwrap_or_default());
            }
            self.part = if taken == left { Part::Tag } else { Part::Content { field, left: left - taken } };
            return Ok(taken);
        }
        let byte = data.first().copied().unwrap_or_default();
        let (value, shift) = self.number;
        if shift >= u64::BITS {
            return Err("a number is longer than 64 bits");
        }
        let value = value | u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            self.number = (0, 0);
            self.take_number(value)?;
        } else {
            self.number = (value, shift + 7);
        }
        Ok(1)
    }

    fn take_number(&mut self, value: u64) -> Result<(), &'static str> {
        let content = |field: u64, length: u64| match usize::try_from(length) {
            Ok(0) => Part::Tag,
            length => Part::Content { field, left: length.unwrap_or(usize::MAX) },
        };
        self.part = match self.part {
            Part::Tag => match (value >> 3, value & 7) {
                (field, 0) => Part::Number { field },
                (field, 1) => content(field, 8),
                (field, 2) => Part::Length { field },
                (field, 5) => content(field, 4),
                _ => return Err("a field has an unknown type"),
            },
            Part::Number { field } => {
                if field == EXIT_CODE {
                    // The lower 32 bits, as protobuf reads an int32.
                    self.kept.exit_code = u32::try_from(value & 0xffff_ffff).unwrap_or(0).cast_signed();
                }
                Part::Tag
            }
            Part::Length { field } => content(field, value),
            part @ Part::Content { .. } => part,
        };
        Ok(())
    }

    fn message(&self, rest: &[u8]) -> Result<Option<Bytes>, &'static str> {
        if !rest.is_empty() {
            return Err("the response of ExecSync has more than one message");
        }
        Ok(Some(framed(&self.kept)))
    }
}

fn framed(message: &wire::ExecSyncResponse) -> Bytes {
    let content = message.encode_to_vec();
    let length = u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&[0], &length[..], &content].concat().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8], piece: usize) -> Result<Option<wire::ExecSyncResponse>, &'static str> {
        let mut answer = ExecAnswer::default();
        let mut message = None;
        for piece in bytes.chunks(piece) {
            if let Some(found) = answer.feed(piece)? {
                message = Some(wire::ExecSyncResponse::decode(&found[HEADER_BYTES..]).expect("a message"));
            }
        }
        Ok(message)
    }

    #[test]
    fn parsing_does_not_depend_on_how_a_response_is_split() {
        for exit_code in [0, 1, 137, -1, i32::MIN] {
            let sent = wire::ExecSyncResponse { stdout: b"out".into(), stderr: vec![0xff; 300], exit_code };
            for piece in [1, 2, 7, 1000] {
                assert_eq!(read(&framed(&sent), piece), Ok(Some(sent.clone())), "in pieces of {piece}");
            }
        }
        let empty = wire::ExecSyncResponse::default();
        assert_eq!(read(&framed(&empty), 3), Ok(Some(empty)));
    }

    #[test]
    fn exec_output_is_truncated_to_ten_kibibytes() {
        let sent = wire::ExecSyncResponse {
            stdout: vec![b'x'; 15 << 20],
            stderr: vec![b'y'; 15 << 20],
            exit_code: 3,
        };
        let mut answer = ExecAnswer::default();
        let mut kept = None;
        for piece in framed(&sent).chunks(16 << 10) {
            kept = kept.or(answer.feed(piece).expect("well formed"));
            assert!(answer.kept.stdout.capacity() + answer.kept.stderr.capacity() <= 4 * MAX_OUTPUT);
        }
        let kept =
            wire::ExecSyncResponse::decode(&kept.expect("a message")[HEADER_BYTES..]).expect("a message");
        assert_eq!((kept.stdout.len(), kept.stderr.len(), kept.exit_code), (MAX_OUTPUT, MAX_OUTPUT, 3));
    }

    #[test]
    fn unknown_fields_are_ignored_and_malformed_responses_are_errors() {
        let with =
            |content: &[u8]| [&[0, 0, 0, 0, u8::try_from(content.len()).expect("short")], content].concat();
        let later = with(&[
            0x0a, 1, b'a', 0x21, 1, 2, 3, 4, 5, 6, 7, 8, 0x2d, 1, 2, 3, 4, 0x32, 2, 9, 9, 0x38, 5, 0x18, 4,
        ]);
        let expected = wire::ExecSyncResponse { stdout: b"a".into(), stderr: Vec::new(), exit_code: 4 };
        assert_eq!(read(&later, 1), Ok(Some(expected)));
        let wrong: [&[u8]; 5] = [
            &[1, 0, 0, 0, 0],
            &with(&[0x0a, 9, b'a']),
            &with(&[0x0b]),
            &with(&[0x18, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01]),
            &[0, 0, 0, 0, 0, 0],
        ];
        for bytes in wrong {
            assert!(read(bytes, 1).is_err(), "{bytes:?}");
            assert!(read(bytes, 100).is_err(), "{bytes:?}");
        }
    }
}
