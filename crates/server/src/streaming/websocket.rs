//! Frames of the WebSocket protocol (RFC 6455) for a server: pure except for reads from the connection. Messages are passed on
//! in pieces and never buffered whole. Does not interpret their content.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
    UPGRADE,
};
use http::{HeaderMap, HeaderValue};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::pieces::piece_of;

/// Limit for the payload of control frames.
const MAX_CONTROL_BYTES: u64 = 125;
/// The GUID that the protocol appends to a key before it is hashed.
const ACCEPT: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Opcode {
    Continuation,
    Text,
    Binary,
    Close,
    Ping,
    Pong,
}

impl Opcode {
    const fn of(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::Continuation,
            1 => Self::Text,
            2 => Self::Binary,
            8 => Self::Close,
            9 => Self::Ping,
            10 => Self::Pong,
            _ => return None,
        })
    }

    const fn number(self) -> u8 {
        match self {
            Self::Continuation => 0,
            Self::Text => 1,
            Self::Binary => 2,
            Self::Close => 8,
            Self::Ping => 9,
            Self::Pong => 10,
        }
    }
}

/// A received part of a message, or a control frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    /// A part of a message; `begins` for its first part.
    Data {
        begins: bool,
        bytes: Vec<u8>,
    },
    Ping(Vec<u8>),
    Close,
}

/// Reads the frames of a client.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    from: R,
    /// Of the current data frame.
    left: u64,
    mask: [u8; 4],
    masked: usize,
    /// The next data begins a message.
    begins: bool,
    /// The message continues in another frame.
    is_open: bool,
}

struct Head {
    opcode: Opcode,
    is_last: bool,
    length: u64,
    mask: [u8; 4],
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) const fn new(from: R) -> Self {
        Self { from, left: 0, mask: [0; 4], masked: 0, begins: true, is_open: false }
    }

    /// The next piece.
    ///
    /// # Errors
    /// The connection ended without a close frame, or the client sent an invalid frame.
    pub(crate) async fn next(&mut self) -> io::Result<Piece> {
        loop {
            if self.left > 0 {
                return self.data().await;
            }
            let head = self.head().await?;
            match head.opcode {
                Opcode::Continuation | Opcode::Text | Opcode::Binary => {
                    if self.is_open != (head.opcode == Opcode::Continuation) {
                        return Err(broken(
                            "a message begins within another, or a continuation has no message",
                        ));
                    }
                    if !self.is_open {
                        self.begins = true;
                    }
                    self.is_open = !head.is_last;
                    (self.left, self.mask, self.masked) = (head.length, head.mask, 0);
                }
                Opcode::Close | Opcode::Ping | Opcode::Pong => {
                    if head.length > MAX_CONTROL_BYTES || !head.is_last {
                        return Err(broken("a control frame is too long or fragmented"));
                    }
                    let mut content = vec![0; usize::try_from(head.length).unwrap_or(0)];
                    self.from.read_exact(&mut content).await?;
                    unmask(&mut content, head.mask, 0);
                    match head.opcode {
                        Opcode::Close => return Ok(Piece::Close),
                        Opcode::Ping => return Ok(Piece::Ping(content)),
                        Opcode::Pong | Opcode::Continuation | Opcode::Text | Opcode::Binary => {}
                    }
                }
            }
        }
    }

    async fn head(&mut self) -> io::Result<Head> {
        let [first, second] = self.array::<2>().await?;
        if first & 0x70 != 0 {
            return Err(broken("a reserved bit is set, but no extension was negotiated"));
        }
        let opcode = Opcode::of(first & 0x0f).ok_or_else(|| broken("a frame has an unknown opcode"))?;
        if second & 0x80 == 0 {
            return Err(broken("a frame of the client is not masked"));
        }
        let length = match second & 0x7f {
            126 => u64::from(u16::from_be_bytes(self.array().await?)),
            127 => u64::from_be_bytes(self.array().await?),
            short => u64::from(short),
        };
        Ok(Head { opcode, is_last: first & 0x80 != 0, length, mask: self.array().await? })
    }

    async fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut array = [0; N];
        self.from.read_exact(&mut array).await?;
        Ok(array)
    }

    async fn data(&mut self) -> io::Result<Piece> {
        let mut bytes = piece_of(&mut self.left, &mut self.from).await?;
        unmask(&mut bytes, self.mask, self.masked);
        self.masked = (self.masked + bytes.len()) % 4;
        Ok(Piece::Data { begins: std::mem::replace(&mut self.begins, false), bytes })
    }
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn unmask(content: &mut [u8], mask: [u8; 4], from: usize) {
    for (byte, key) in content.iter_mut().zip(mask.iter().cycle().skip(from % 4)) {
        *byte ^= key;
    }
}

/// A frame of a server: a whole message, or a control frame.
pub(crate) fn frame(opcode: Opcode, parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut frame = Vec::with_capacity(length + 10);
    frame.push(0x80 | opcode.number());
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ 0..=125), _) => frame.push(short),
        (_, Ok(middle)) => {
            frame.push(126);
            frame.extend(middle.to_be_bytes());
        }
        _ => {
            frame.push(127);
            frame.extend(u64::try_from(length).unwrap_or(u64::MAX).to_be_bytes());
        }
    }
    parts.iter().for_each(|part| frame.extend_from_slice(part));
    frame
}

/// Whether the client requests a WebSocket and offers this subprotocol.
pub(crate) fn offers(headers: &HeaderMap, protocol: &str) -> bool {
    let asks = headers.get(UPGRADE).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket"));
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    asks && offered.flat_map(|value| value.split(',')).any(|offered| offered.trim() == protocol)
}

/// The response headers that accept the offer; `Err` is why the request is invalid.
pub(crate) fn accept(headers: &HeaderMap, protocol: &'static str) -> Result<HeaderMap, &'static str> {
    if headers.get(SEC_WEBSOCKET_VERSION).is_none_or(|version| version != "13") {
        return Err("unsupported WebSocket version, must be 13");
    }
    let key = headers.get(SEC_WEBSOCKET_KEY).ok_or("header Sec-WebSocket-Key is missing")?;
    let mut digest = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    digest.update(key.as_bytes());
    digest.update(ACCEPT);
    let accept = HeaderValue::from_str(&STANDARD.encode(digest.finish()))
        .map_err(|_| "header Sec-WebSocket-Key is invalid")?;
    Ok(HeaderMap::from_iter([
        (CONNECTION, HeaderValue::from_static("Upgrade")),
        (UPGRADE, HeaderValue::from_static("websocket")),
        (SEC_WEBSOCKET_ACCEPT, accept),
        (SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol)),
    ]))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MASK: [u8; 4] = [1, 2, 3, 250];

    /// A frame as a client sends it.
    fn sent(first: u8, content: &[u8]) -> Vec<u8> {
        let mut frame = vec![first];
        match content.len() {
            short @ 0..=125 => frame.push(0x80 | u8::try_from(short).unwrap()),
            middle => {
                frame.push(0x80 | 126);
                frame.extend(u16::try_from(middle).unwrap().to_be_bytes());
            }
        }
        frame.extend(MASK);
        let mut content = content.to_vec();
        unmask(&mut content, MASK, 0);
        frame.extend(content);
        frame
    }

    fn read_all(bytes: &[u8]) -> (Vec<Piece>, String) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut reader = FrameReader::new(bytes);
        let mut pieces = Vec::new();
        loop {
            match runtime.block_on(reader.next()) {
                Ok(piece) => pieces.push(piece),
                Err(error) => return (pieces, error.to_string()),
            }
        }
    }

    fn data(begins: bool, text: &str) -> Piece {
        Piece::Data { begins, bytes: text.as_bytes().to_vec() }
    }

    #[test]
    fn control_frames_may_come_between_the_frames_of_a_message() {
        let bytes = [
            sent(0x82, b"whole"),
            sent(0x01, b"in "),
            sent(0x89, b"there?"),
            sent(0x8a, b"unsolicited "),
            sent(0x80, b"parts"),
            sent(0x82, b""),
            sent(0x82, b"next"),
            sent(0x88, b""),
        ];
        let (pieces, _) = read_all(&bytes.concat());
        let expected = vec![
            data(true, "whole"),
            data(true, "in "),
            Piece::Ping(b"there?".to_vec()),
            data(false, "parts"),
            data(true, "next"),
            Piece::Close,
        ];
        assert_eq!(pieces, expected);
    }

    #[test]
    fn invalid_client_frames_are_errors() {
        let mut bare = frame(Opcode::Binary, &[b"not masked"]);
        bare.truncate(bare.len());
        for (bytes, why) in [
            (bare, "not masked"),
            (sent(0x83, b"x"), "unknown opcode"),
            (sent(0xc2, b"x"), "reserved bit"),
            (sent(0x80, b"x"), "has no message"),
            ([sent(0x02, b"x"), sent(0x82, b"y")].concat(), "begins within another"),
            (sent(0x09, b"x"), "fragmented"),
            (sent(0x89, &[0; 126]), "long"),
        ] {
            let (_, error) = read_all(&bytes);
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn frame_length_uses_the_shortest_encoding() {
        assert_eq!(frame(Opcode::Binary, &[&[1], b"out"]), b"\x82\x04\x01out");
        assert_eq!(frame(Opcode::Close, &[]), [0x88, 0]);
        assert_eq!(frame(Opcode::Binary, &[&[0; 126]])[..4], [0x82, 126, 0, 126]);
        assert_eq!(frame(Opcode::Binary, &[&[0; 65536]])[..10], [0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn offer_is_accepted_with_the_hash_of_its_key() {
        // The example of RFC 6455.
        let mut headers = HeaderMap::from_iter([
            (UPGRADE, HeaderValue::from_static("WebSocket")),
            (SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13")),
            (SEC_WEBSOCKET_KEY, HeaderValue::from_static("dGhlIHNhbXBsZSBub25jZQ==")),
            (SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static("v4.channel.k8s.io, v5.channel.k8s.io")),
        ]);
        assert!(offers(&headers, "v5.channel.k8s.io") && !offers(&headers, "v5"));
        let accepted = accept(&headers, "v5.channel.k8s.io").unwrap();
        assert_eq!(accepted[SEC_WEBSOCKET_ACCEPT], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(accepted[SEC_WEBSOCKET_PROTOCOL], "v5.channel.k8s.io");
        headers.remove(SEC_WEBSOCKET_KEY);
        assert!(accept(&headers, "v5.channel.k8s.io").unwrap_err().contains("Sec-WebSocket-Key"));
        headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
        assert!(!offers(&headers, "v5.channel.k8s.io"));
    }

    proptest! {
        #[test]
        fn reading_any_bytes_ends(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            read_all(&bytes);
        }

        #[test]
        fn sent_bytes_are_received_unchanged(start: u8, length in 1..=65535_usize) {
            let content: Vec<u8> = (0..length).map(|at| start.wrapping_add(u8::try_from(at % 251).unwrap())).collect();
            let bytes = sent(0x82, &content);
            let (pieces, _) = read_all(&bytes);
            let came: Vec<u8> = pieces.into_iter().flat_map(|piece| match piece {
                Piece::Data { bytes, .. } => bytes,
                Piece::Ping(_) | Piece::Close => Vec::new(),
            }).collect();
            prop_assert!(came == content);
        }
    }
}
