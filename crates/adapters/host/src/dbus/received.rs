//! Bytes received over the socket, and open files that came with them. Whole lines and messages are read from this buffer, so that
//! nothing is lost when a caller stops waiting for the rest of a message.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

use super::wire::{self, FIXED_HEADER};
use super::{DbusError, Message};

/// The longest message; the answers of the calls in use are far shorter.
const MAX_BYTES: usize = 1 << 20;
/// Lines of the greeting are short.
const MAX_LINE: usize = 1024;
/// No answer carries more than one.
const MAX_FILES: usize = 4;
const PIECE: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Received {
    bytes: Vec<u8>,
    /// In the order of the messages that they came with.
    files: VecDeque<OwnedFd>,
}

impl Received {
    /// Receives the available bytes.
    pub(super) fn take_in(&mut self, socket: impl AsFd) -> io::Result<()> {
        let mut piece = [0; PIECE];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got =
            recvmsg(socket, &mut [IoSliceMut::new(&mut piece)], &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = message {
                self.files.extend(files);
            }
        }
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if self.files.len() > MAX_FILES {
            return Err(io::Error::other("received more open files than expected"));
        }
        self.bytes.extend(piece.iter().take(got));
        Ok(())
    }

    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn feed(&mut self, piece: &[u8]) {
        self.bytes.extend_from_slice(piece);
    }

    /// A line without its end; `None` while that has not come.
    pub(super) fn take_line(&mut self) -> Result<Option<String>, DbusError> {
        let end = self.bytes.windows(2).position(|pair| pair == b"\r\n");
        match end {
            Some(end) if end <= MAX_LINE => {
                let line: Vec<u8> = self.bytes.drain(..end + 2).take(end).collect();
                Ok(Some(String::from_utf8_lossy(&line).into_owned()))
            }
            None if self.bytes.len() <= MAX_LINE => Ok(None),
            Some(_) | None => Err(DbusError::Garbled),
        }
    }

    /// A message with its files; `None` while some of it has not come.
    pub(super) fn take_message(&mut self) -> Result<Option<Message>, DbusError> {
        let Some(fixed) = self.bytes.get(..FIXED_HEADER) else { return Ok(None) };
        let rest = wire::rest_of(fixed).filter(|rest| *rest <= MAX_BYTES).ok_or(DbusError::Garbled)?;
        let length = FIXED_HEADER + rest;
        if self.bytes.len() < length {
            return Ok(None);
        }
        let mut message = Message::parse(self.bytes.drain(..length).collect()).ok_or(DbusError::Garbled)?;
        for _ in 0..message.file_count {
            // They come with the first byte of their message.
            message.files.push(self.files.pop_front().ok_or(DbusError::Garbled)?);
        }
        Ok(Some(message))
    }
}
