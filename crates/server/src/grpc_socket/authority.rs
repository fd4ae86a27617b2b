//! Makes the `:authority` of clients that dial the path of a socket valid, before h2 reads it.
//!
//! Go clients that are given a path and a dialer, as `GetV1Client` of the Go kubelet, send that path as `:authority`,
//! percent-encoded or not. That is no authority of a URI, so h2 resets the call without passing it to us
//! ([0037](../../../../docs/decisions/0037-device-plugins.md)). On a Unix socket the value has no meaning: each `%` and `/` in it
//! becomes `-`. All three have the same length in HPACK's Huffman code, so no length in a frame or table changes.
//!
//! Changes nothing else and rejects nothing: what is malformed is passed on, and h2 rejects it.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, ReadBuf};

const PREFACE_BYTES: usize = 24;
const FRAME_HEAD_BYTES: usize = 9;
/// Maximum size of a frame unless the server allows more.
const MAX_FRAME_BYTES: usize = 16_384;
const READ_BYTES: usize = 4096;

const HEADERS: u8 = 1;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;
const PRIORITY_BYTES: usize = 5;

/// Index of the name `:authority` in HPACK's static table (RFC 7541, appendix A).
const AUTHORITY: usize = 1;

/// The length of each code of HPACK's Huffman code up to 15 bits, and the last code of that length (RFC 7541, appendix B). Codes
/// of one length are consecutive. Characters with longer codes are not printable, or a backslash.
const CODES: [(usize, u16); 10] = [
    (5, 0x09),
    (6, 0x2d),
    (7, 0x7b),
    (8, 0xfd),
    (10, 0x3fc),
    (11, 0x7fc),
    (12, 0xffb),
    (13, 0x1ffd),
    (14, 0x3ffd),
    (15, 0x7ffe),
];
/// Length of the codes of `%`, `/` and `-`.
const CODE_BITS: usize = 6;
const PERCENT: u16 = 0x15;
const SLASH: u16 = 0x18;
const DASH: u16 = 0x16;

/// What a client sends on an HTTP/2 connection, with valid authorities. Holds back at most one frame with headers.
#[derive(Debug)]
pub(crate) struct ValidAuthority<R> {
    from: R,
    held: BytesMut,
    /// How many of the held bytes may be read.
    checked: usize,
    /// How many bytes follow the checked ones that need no check.
    unchecked: usize,
}

impl<R> ValidAuthority<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { from, held: BytesMut::new(), checked: 0, unchecked: PREFACE_BYTES }
    }

    /// Checks all frames that are held completely.
    fn check(&mut self) {
        loop {
            let passed = self.unchecked.min(self.held.len() - self.checked);
            self.checked += passed;
            self.unchecked -= passed;
            let frame = self.held.get_mut(self.checked..).unwrap_or_default();
            let Some(length) = unchecked_bytes(frame) else { return };
            self.unchecked = length;
        }
    }
}

/// How many bytes at the start of `frame` can be passed on, after its authority was replaced; `None` as long as more is needed.
fn unchecked_bytes(frame: &mut [u8]) -> Option<usize> {
    let [a, b, c, kind, flags, ..] = *frame.get(..FRAME_HEAD_BYTES)? else { return None };
    let end = FRAME_HEAD_BYTES + u32::from_be_bytes([0, a, b, c]) as usize;
    if kind == HEADERS && end <= FRAME_HEAD_BYTES + MAX_FRAME_BYTES {
        replace_in_frame(frame.get_mut(FRAME_HEAD_BYTES..end)?, flags);
    }
    Some(end)
}

fn replace_in_frame(payload: &mut [u8], flags: u8) {
    let has = |flag| usize::from(flags & flag != 0);
    let padding = payload.first().map_or(0, |length| usize::from(*length)) * has(PADDED);
    let start = has(PADDED) + PRIORITY_BYTES * has(PRIORITY);
    let end = payload.len().saturating_sub(padding);
    if let Some(block) = payload.get_mut(start..end) {
        // A block that ends early continues in another frame, which is not checked: the pseudo-headers come first.
        let _ = replace_in_block(block);
    }
}

/// Replaces in each `:authority` of a header block. `None` if the block is malformed or incomplete.
fn replace_in_block(block: &mut [u8]) -> Option<()> {
    let mut at = 0;
    while let Some(first) = block.get(at) {
        let (prefix, has_value) = match first {
            0x80.. => (7, false),
            0x40..0x80 => (6, true),
            0x20..0x40 => (5, false),
            ..0x20 => (4, true),
        };
        let name = integer(block, &mut at, prefix)?;
        if has_value {
            if name == 0 {
                string(block, &mut at)?;
            }
            let is_huffman = block.get(at)? & 0x80 != 0;
            let value = block.get_mut(string(block, &mut at)?)?;
            match (name == AUTHORITY, is_huffman) {
                (true, true) => replace_in_huffman(value),
                (true, false) => replace_in_plain(value),
                (false, _) => {}
            }
        }
    }
    Some(())
}

/// An integer of HPACK, of which `prefix` bits are in the first byte.
fn integer(block: &[u8], at: &mut usize, prefix: u32) -> Option<usize> {
    let mut next = || {
        let byte = block.get(*at).copied();
        *at += 1;
        byte.map(usize::from)
    };
    let full = (1 << prefix) - 1;
    let mut value = next()? & full;
    if value < full {
        return Some(value);
    }
    // Three bytes exceed the size of a frame.
    for shift in [0, 7, 14] {
        let byte = next()?;
        value += (byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Where the bytes of a string are.
fn string(block: &[u8], at: &mut usize) -> Option<Range<usize>> {
    let length = integer(block, at, 7)?;
    let start = *at;
    *at += length;
    (*at <= block.len()).then_some(start..*at)
}

fn replace_in_plain(value: &mut [u8]) {
    for byte in value {
        if matches!(byte, b'%' | b'/') {
            *byte = b'-';
        }
    }
}

fn replace_in_huffman(value: &mut [u8]) {
    let bits = value.len() * 8;
    let mut at = 0;
    while at < bits {
        let next = next_bits(value, at);
        let of_length = |(length, last): &(usize, u16)| (next >> (16 - length) <= *last).then_some(*length);
        // The padding at the end and long codes are not in the table.
        let Some(length) = CODES.iter().find_map(of_length) else { return };
        let code = next >> (16 - length);
        if length == CODE_BITS && [PERCENT, SLASH].contains(&code) && at + length <= bits {
            toggle_bits(value, at, (code ^ DASH) << (16 - length));
        }
        at += length;
    }
}

/// Sixteen bits from bit `at` on, with ones after the end, which is HPACK's padding.
fn next_bits(value: &[u8], at: usize) -> u16 {
    let byte = |offset| value.get(at / 8 + offset).copied().unwrap_or(0xff);
    let bits = u32::from_be_bytes([byte(0), byte(1), byte(2), 0]) << (at % 8);
    let [high, low, ..] = bits.to_be_bytes();
    u16::from_be_bytes([high, low])
}

fn toggle_bits(value: &mut [u8], at: usize, bits: u16) {
    let toggled = (bits >> (at % 8)).to_be_bytes();
    for (byte, toggled) in value.iter_mut().skip(at / 8).zip(toggled) {
        *byte ^= toggled;
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for ValidAuthority<R> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        while this.checked == 0 {
            let mut space = [0; READ_BYTES];
            let mut came = ReadBuf::new(&mut space);
            ready!(Pin::new(&mut this.from).poll_read(cx, &mut came))?;
            this.held.extend_from_slice(came.filled());
            this.check();
            if came.filled().is_empty() {
                // The end, with an incomplete frame or without.
                this.checked = this.held.len();
                break;
            }
        }
        let length = this.checked.min(buf.remaining());
        buf.put_slice(this.held.get(..length).unwrap_or_default());
        this.held.advance(length);
        this.checked -= length;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests;
