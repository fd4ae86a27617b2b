//! Parses responses of ExecSync while they are received. A command may print up to the runtime's limit (16 MiB with
//! containerd); only the beginning of each stream is kept, and no larger message is ever buffered.

use cri_api::v1 as wire;
use hyper::body::Bytes;
use prost::Message as _;

use crate::response_fields::{TakeFields, framed};

/// Limit for each output stream; probes and hooks use 10 KiB of both.
pub(crate) const MAX_OUTPUT: usize = 10 << 10;

const STDOUT: u64 = 1;
const STDERR: u64 = 2;
const EXIT_CODE: u64 = 3;

/// Makes a message with truncated outputs.
#[derive(Debug, Default)]
pub(crate) struct ExecAnswer(wire::ExecSyncResponse);

impl ExecAnswer {
    /// What was received, as a message with its header.
    pub(crate) fn message(&self) -> Bytes {
        framed(&self.0.encode_to_vec()).into()
    }
}

impl TakeFields for ExecAnswer {
    fn take_number(&mut self, field: u64, value: u64) {
        if field == EXIT_CODE {
            // The lower 32 bits, as protobuf reads an int32.
            self.0.exit_code = u32::try_from(value & 0xffff_ffff).unwrap_or(0).cast_signed();
        }
    }

    fn take_content(&mut self, field: u64, part: &[u8]) {
        let output = match field {
            STDOUT => &mut self.0.stdout,
            STDERR => &mut self.0.stderr,
            _ => return,
        };
        let kept = part.len().min(MAX_OUTPUT.saturating_sub(output.len()));
        output.extend_from_slice(part.get(..kept).unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response_fields::HEADER_BYTES;
    use crate::rewrite::Rewriting;

    fn sent(message: &wire::ExecSyncResponse) -> Vec<u8> {
        framed(&message.encode_to_vec())
    }

    fn read(bytes: &[u8], piece: usize) -> Result<Option<wire::ExecSyncResponse>, &'static str> {
        let mut answer = Rewriting::default();
        let mut message = None;
        for piece in bytes.chunks(piece) {
            let found = answer.feed(piece)?;
            if !found.is_empty() {
                message = Some(wire::ExecSyncResponse::decode(&found[HEADER_BYTES..]).expect("a message"));
            }
        }
        Ok(message)
    }

    #[test]
    fn parsing_does_not_depend_on_how_a_response_is_split() {
        for exit_code in [0, 1, 137, -1, i32::MIN] {
            let message =
                wire::ExecSyncResponse { stdout: b"out".into(), stderr: vec![0xff; 300], exit_code };
            for piece in [1, 2, 7, 1000] {
                assert_eq!(read(&sent(&message), piece), Ok(Some(message.clone())), "in pieces of {piece}");
            }
        }
        let empty = wire::ExecSyncResponse::default();
        assert_eq!(read(&sent(&empty), 3), Ok(Some(empty)));
    }

    #[test]
    fn exec_output_is_truncated_to_ten_kibibytes() {
        let message = wire::ExecSyncResponse {
            stdout: vec![b'x'; 15 << 20],
            stderr: vec![b'y'; 15 << 20],
            exit_code: 3,
        };
        let mut answer = Rewriting::default();
        let mut kept = None;
        for piece in sent(&message).chunks(16 << 10) {
            let found = answer.feed(piece).expect("well formed");
            kept = kept.or((!found.is_empty()).then_some(found));
            let ExecAnswer(held) = &answer.answer;
            assert!(held.stdout.capacity() + held.stderr.capacity() <= 4 * MAX_OUTPUT);
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
