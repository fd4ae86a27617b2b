//! A minimal HTTP/2 server for one unary gRPC method with small messages.
//!
//! Ignores headers: clients of Unix sockets send the path of the socket as `:authority`, percent-encoded or not, and every
//! available general server rejects that ([0037](../../../../docs/decisions/0037-device-plugins.md)). A socket with a single
//! method needs no headers.

use std::collections::BTreeMap;
use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Default maximum size of a frame.
const MAX_FRAME_BYTES: usize = 16_384;
/// Concurrent calls of a connection.
const MAX_CALLS: usize = 16;
/// Less than the initial flow-control window of a stream.
pub(crate) const MAX_MESSAGE_BYTES: usize = 32 << 10;
/// Limit for the message of an error.
const MAX_COMPLAINT_BYTES: usize = 4096;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;

/// gRPC's `UNKNOWN`, the code of plain errors in Go's servers.
const UNKNOWN: &str = "2";

#[derive(Debug)]
struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Serves the calls of one connection, one after another, until the client disconnects.
///
/// # Errors
/// The connection broke, or the client does not use HTTP/2.
pub(crate) async fn serve<F>(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    answer: impl Fn(Vec<u8>) -> F,
) -> io::Result<()>
where
    F: Future<Output = Result<Vec<u8>, String>>,
{
    let mut preface = vec![0; PREFACE.len()];
    stream.read_exact(&mut preface).await?;
    if preface != PREFACE {
        return Err(malformed("not HTTP/2"));
    }
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    // The received part of each call.
    let mut calls: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    loop {
        let came = read(&mut stream).await?;
        let is_last = came.has(END_STREAM) && (came.kind == DATA || came.kind == HEADERS);
        match came.kind {
            SETTINGS if !came.has(ACK) => stream.write_all(&frame(SETTINGS, ACK, 0, &[])).await?,
            PING if !came.has(ACK) => stream.write_all(&frame(PING, ACK, 0, &came.payload)).await?,
            HEADERS if calls.len() < MAX_CALLS => {
                calls.entry(came.stream).or_default();
            }
            HEADERS => return Err(malformed("too many concurrent calls")),
            DATA => take_data(&mut stream, &mut calls, &came).await?,
            RESET => {
                calls.remove(&came.stream);
            }
            GO_AWAY => return Ok(()),
            // Window updates, priorities, continuations, and unknown frame types are ignored.
            _ => {}
        }
        if is_last && let Some(body) = calls.remove(&came.stream) {
            let result = match message(&body) {
                Some(message) => answer(message.to_vec()).await,
                None => Err("the call has no message".to_owned()),
            };
            stream.write_all(&answered(came.stream, &result)).await?;
        }
    }
}

/// Appends a DATA frame to a call's message, and returns its length to the flow-control window.
async fn take_data(
    stream: &mut (impl AsyncWrite + Unpin),
    calls: &mut BTreeMap<u32, Vec<u8>>,
    came: &Frame,
) -> io::Result<()> {
    if let Some(body) = calls.get_mut(&came.stream) {
        body.extend_from_slice(unpadded(came).ok_or_else(|| malformed("padding exceeds the frame"))?);
        if body.len() > MAX_MESSAGE_BYTES {
            return Err(malformed("message is too large"));
        }
    }
    let length = u32::try_from(came.payload.len()).unwrap_or_default();
    if length > 0 {
        stream.write_all(&frame(WINDOW_UPDATE, 0, 0, &length.to_be_bytes())).await?;
    }
    Ok(())
}

fn malformed(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let [a, b, c, kind, flags, d, e, f, g] = head;
    let length = u32::from_be_bytes([0, a, b, c]) as usize;
    if length > MAX_FRAME_BYTES {
        return Err(malformed("frame is too large"));
    }
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).await?;
    // The highest bit is reserved.
    Ok(Frame { kind, flags, stream: u32::from_be_bytes([d & 0x7f, e, f, g]), payload })
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

fn unpadded(frame: &Frame) -> Option<&[u8]> {
    if !frame.has(PADDED) {
        return Some(&frame.payload);
    }
    let (padding, rest) = frame.payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*padding))?)
}

/// The message of a call, which must be complete and not compressed.
fn message(body: &[u8]) -> Option<&[u8]> {
    let (head, message) = body.split_first_chunk::<5>()?;
    let [compressed, length @ ..] = *head;
    (compressed == 0 && u32::from_be_bytes(length) as usize == message.len()).then_some(message)
}

/// The frames that end a call.
fn answered(stream: u32, result: &Result<Vec<u8>, String>) -> Vec<u8> {
    // `:status: 200` and the name `content-type` are in the static table of HPACK.
    let mut head = vec![0x88, 0x0f, 0x10];
    put_text(&mut head, "application/grpc");
    match result {
        Ok(message) => {
            let mut body = vec![0];
            body.extend(u32::try_from(message.len()).unwrap_or_default().to_be_bytes());
            body.extend(message);
            let mut frames = frame(HEADERS, END_HEADERS, stream, &head);
            frames.extend(frame(DATA, 0, stream, &body));
            let mut end = Vec::new();
            put_header(&mut end, "grpc-status", "0");
            frames.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &end));
            frames
        }
        Err(why) => {
            put_header(&mut head, "grpc-status", UNKNOWN);
            put_header(&mut head, "grpc-message", &escaped(why));
            frame(HEADERS, END_HEADERS | END_STREAM, stream, &head)
        }
    }
}

/// A header without indexing.
fn put_header(block: &mut Vec<u8>, name: &str, value: &str) {
    block.push(0);
    put_text(block, name);
    put_text(block, value);
}

/// The length as an HPACK integer with a prefix of seven bits, then the text.
fn put_text(block: &mut Vec<u8>, text: &str) {
    const FULL: usize = 127;
    let mut rest = text.len();
    if rest < FULL {
        block.extend(u8::try_from(rest));
    } else {
        block.extend(u8::try_from(FULL));
        rest -= FULL;
        while rest > FULL {
            block.extend(u8::try_from(rest % 128 + 128));
            rest /= 128;
        }
        block.extend(u8::try_from(rest));
    }
    block.extend(text.as_bytes());
}

/// Percent-encoding of `grpc-message`.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes().take(MAX_COMPLAINT_BYTES) {
        match byte {
            b'%' => escaped.push_str("%25"),
            b' '..=b'~' => escaped.push(char::from(byte)),
            other => {
                escaped.push('%');
                escaped.push_str(&format!("{other:02X}"));
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use async_trait::async_trait;
    use grpc_api::device_plugin as wire;
    use grpc_api::device_plugin::registration_client::RegistrationClient;
    use parking_lot::Mutex;
    use ports::plugins::{DeviceRegistration, Plugins, Registrar};
    use tokio::net::UnixStream;

    use super::*;
    use crate::{UnixPlugins, call};

    /// Accepts all registrations but one.
    #[derive(Debug, Default)]
    struct Book(Mutex<Vec<DeviceRegistration>>);

    #[async_trait]
    impl Registrar for Book {
        async fn register(&self, registration: DeviceRegistration) -> Result<(), String> {
            if registration.resource == "bad" {
                return Err(format!("the ResourceName {:?} is invalid: 100 % ä", registration.resource));
            }
            self.0.lock().push(registration);
            Ok(())
        }
    }

    fn request(resource: &str) -> wire::RegisterRequest {
        wire::RegisterRequest {
            version: "v1beta1".to_owned(),
            endpoint: "x.sock".to_owned(),
            resource_name: resource.to_owned(),
            options: None,
        }
    }

    #[tokio::test]
    async fn tonic_client_registers_repeatedly_and_gets_errors() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("kept"), "").unwrap();
        drop(std::os::unix::net::UnixListener::bind(dir.path().join("old.sock")).unwrap());
        let book = Arc::new(Book::default());
        let server = UnixPlugins.serve_registration(dir.path(), book.clone()).unwrap();
        let calls = async {
            let channel = call::connect(&dir.path().join("kubelet.sock")).await.unwrap();
            let mut client = RegistrationClient::new(channel);
            // More than the initial flow-control window.
            for at in 0..100 {
                let long = format!("example.com/{at}{}", "x".repeat(1000));
                client.register(request(&long)).await.unwrap();
            }
            let refused = client.register(request("bad")).await.unwrap_err();
            assert_eq!(refused.code(), tonic::Code::Unknown);
            assert_eq!(refused.message(), "the ResourceName \"bad\" is invalid: 100 % ä");
            let long = client.register(request(&"x".repeat(2 * MAX_MESSAGE_BYTES))).await;
            assert!(long.is_err());
        };
        tokio::select! { () = server => unreachable!(), () = calls => {} }
        assert_eq!(book.0.lock().len(), 100);
        assert!(dir.path().join("kept").exists() && !dir.path().join("old.sock").exists());
    }

    /// Idle connections do not prevent a plugin from registering.
    #[tokio::test]
    async fn idle_connections_are_closed_for_a_registration() {
        let dir = tempfile::tempdir().unwrap();
        let book = Arc::new(Book::default());
        let server = UnixPlugins.serve_registration(dir.path(), book.clone()).unwrap();
        let socket = dir.path().join("kubelet.sock");
        let calls = async {
            let mut idle = Vec::new();
            for _ in 0..200 {
                idle.push(UnixStream::connect(&socket).await.unwrap());
            }
            let mut client = RegistrationClient::new(call::connect(&socket).await.unwrap());
            client.register(request("example.com/gpu")).await.unwrap();
            assert_eq!(idle[0].read(&mut [0; 64]).await.unwrap_or(0), 0, "the oldest was closed");
        };
        tokio::select! { () = server => unreachable!(), () = calls => {} }
        assert_eq!(book.0.lock().len(), 1);
    }

    /// Go clients with a socket path and a dialer send an `:authority` that is not valid in a URI.
    #[tokio::test]
    async fn client_with_the_socket_path_as_authority_is_served() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let requested = async {
            let mut head = vec![0x83, 0x86, 0x44];
            put_text(&mut head, "/v1beta1.Registration/Register");
            head.push(0x41);
            put_text(&mut head, "%2Fvar%2Flib%2Fkubelet%2Fdevice-plugins%2Fkubelet.sock");
            let mut sent = PREFACE.to_vec();
            sent.extend(frame(SETTINGS, 0, 0, &[]));
            sent.extend(frame(HEADERS, END_HEADERS, 1, &head));
            sent.extend(frame(PING, 0, 0, b"01234567"));
            // Two bytes of padding.
            sent.extend(frame(DATA, PADDED | END_STREAM, 1, b"\x02\0\0\0\0\x02hi\0\0"));
            client.write_all(&sent).await.unwrap();
            let mut came = Vec::new();
            loop {
                let frame = read(&mut client).await.unwrap();
                came.push((frame.kind, frame.flags, frame.payload.len()));
                if frame.has(END_STREAM) && frame.kind == HEADERS {
                    return came;
                }
            }
        };
        let serve = serve(server, |message| async move {
            assert_eq!(message, b"hi");
            Ok(Vec::new())
        });
        let came = tokio::select! { ended = serve => panic!("{ended:?}"), came = requested => came };
        let kinds: Vec<_> = came.iter().map(|(kind, flags, _)| (*kind, *flags)).collect();
        let expected = [
            (SETTINGS, 0),
            (SETTINGS, ACK),
            (PING, ACK),
            (WINDOW_UPDATE, 0),
            (HEADERS, END_HEADERS),
            (DATA, 0),
            (HEADERS, END_HEADERS | END_STREAM),
        ];
        assert_eq!(kinds, expected);
    }

    #[tokio::test]
    async fn malformed_input_ends_the_connection_or_the_call() {
        let ends = async |sent: &[u8]| {
            let (mut client, server) = tokio::io::duplex(1 << 16);
            client.write_all(sent).await.unwrap();
            client.shutdown().await.unwrap();
            serve(server, |_| async { Ok(Vec::new()) }).await.map_err(|error| error.to_string())
        };
        let after_preface = |frames: &[u8]| [PREFACE, frames].concat();
        assert_eq!(ends(b"GET / HTTP/1.1\r\nHost: localhost\r\n").await, Err("not HTTP/2".to_owned()));
        let large = after_preface(b"\xff\xff\xff\0\0\0\0\0\x01");
        assert_eq!(ends(&large).await, Err("frame is too large".to_owned()));
        let opened = frame(HEADERS, END_HEADERS, 1, &[]);
        let padded = [opened.as_slice(), &frame(DATA, PADDED, 1, &[9, 0])].concat();
        assert_eq!(ends(&after_preface(&padded)).await, Err("padding exceeds the frame".to_owned()));
        let many: Vec<u8> = (0..20).flat_map(|call| frame(HEADERS, END_HEADERS, call, &[])).collect();
        assert_eq!(ends(&after_preface(&many)).await, Err("too many concurrent calls".to_owned()));
        assert_eq!(ends(&after_preface(&frame(GO_AWAY, 0, 0, &[]))).await, Ok(()));
        assert_eq!(message(b"\x01\0\0\0\0"), None);
        assert_eq!(message(b"\0\0\0\0\x02a"), None);
    }

    #[test]
    fn long_text_has_a_multi_byte_length() {
        let put = |length: usize| {
            let mut block = Vec::new();
            put_text(&mut block, &"x".repeat(length));
            block.truncate(block.len() - length);
            block
        };
        assert_eq!(put(126), [126]);
        assert_eq!(put(127), [127, 0]);
        assert_eq!(put(254), [127, 127]);
        assert_eq!(put(255), [127, 128, 1]);
        assert_eq!(put(1337 + 127), [127, 185, 10]);
    }
}
