//! A stand-in for systemd at the other end of a socket. It builds its messages without the code under test, so that a
//! mistake in the parser is not made twice.

use std::path::{Path, PathBuf};

use tokio::io::AsyncReadExt;
use tokio::net::UnixListener;

use super::*;

/// One answer to one call.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// The job of that number, which ends like this; before the answer, another job ends.
    Job(u32, &'static str),
    Nothing,
    Error(&'static str),
}

/// Serves one connection after the other, each with as many calls as come; returns what was called in words: the member,
/// then every text and number of the body that is at least three letters long.
pub(crate) struct Systemd {
    pub(crate) socket: PathBuf,
    calls: tokio::sync::mpsc::UnboundedReceiver<String>,
    _dir: tempfile::TempDir,
}

impl Systemd {
    pub(crate) fn answering(answers: Vec<Answer>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("private");
        let listener = UnixListener::bind(&socket).unwrap();
        let (sender, calls) = tokio::sync::mpsc::unbounded_channel();
        let mut answers = answers.into_iter();
        let _served = tokio::task::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                greet(&mut stream).await;
                while let Some(bytes) = receive(&mut stream).await {
                    sender.send(words(&bytes)).unwrap();
                    let serial = u32::from_le_bytes(bytes[8..12].try_into().unwrap());
                    for message in messages(answers.next().unwrap(), serial) {
                        stream.write_all(&message).await.unwrap();
                    }
                }
            }
        });
        Self { socket, calls, _dir: dir }
    }

    pub(crate) async fn call(&mut self) -> String {
        self.calls.recv().await.unwrap()
    }
}

/// As systemd does it: what comes in the same piece as the greeting is never read.
pub(crate) async fn greet(stream: &mut UnixStream) {
    let mut piece = [0; 1024];
    let length = stream.read(&mut piece).await.unwrap();
    let greeting = String::from_utf8_lossy(&piece[..length]).into_owned();
    assert_eq!(greeting, format!("\0AUTH EXTERNAL {}\r\nBEGIN\r\n", hex_of_uid()));
    stream.write_all(b"OK 0123456789abcdef\r\n").await.unwrap();
}

pub(crate) fn hex_of_uid() -> String {
    let uid = rustix::process::geteuid().as_raw().to_string();
    uid.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// A whole message; `None` at the end.
pub(crate) async fn receive(stream: &mut UnixStream) -> Option<Vec<u8>> {
    let mut bytes = vec![0; 16];
    stream.read_exact(&mut bytes).await.ok()?;
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let rest = number(12).next_multiple_of(8) + number(4);
    bytes.resize(16 + rest, 0);
    stream.read_exact(&mut bytes[16..]).await.ok()?;
    Some(bytes)
}

/// The texts in a message, as far as they are of more than two letters.
pub(crate) fn words(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let words = text.split(|c: char| !c.is_ascii_graphic() && c != ' ').filter(|word| word.len() > 2);
    words
        .filter(|word| !word.starts_with("org.freedesktop") && !word.starts_with('/'))
        .collect::<Vec<_>>()
        .join(" ")
}

fn messages(answer: Answer, serial: u32) -> Vec<Vec<u8>> {
    match answer {
        Answer::Nothing => vec![message(2, &reply_field(serial), &[])],
        Answer::Error(name) => {
            let mut fields = text_field(4, name);
            fields.resize(fields.len().next_multiple_of(8), 0);
            fields.extend(reply_field(serial));
            vec![message(3, &fields, &text("no good reason"))]
        }
        Answer::Job(number, result) => {
            let path = format!("/org/freedesktop/systemd1/job/{number}");
            vec![
                removed(7, "/org/freedesktop/systemd1/job/7", "failed"),
                begun(serial, &path),
                message(4, &text_field(3, "UnitNew"), &[]),
                removed(number, &path, result),
            ]
        }
    }
}

/// The answer to a call that starts a job.
pub(crate) fn begun(serial: u32, path: &str) -> Vec<u8> {
    message(2, &reply_field(serial), &text(path))
}

pub(crate) fn removed(number: u32, path: &str, result: &str) -> Vec<u8> {
    let mut body = number.to_le_bytes().to_vec();
    for part in [path, "a.slice", result] {
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(text(part));
    }
    message(4, &text_field(3, "JobRemoved"), &body)
}

pub(crate) fn text(text: &str) -> Vec<u8> {
    let mut bytes = u32::try_from(text.len()).unwrap().to_le_bytes().to_vec();
    bytes.extend(text.as_bytes());
    bytes.push(0);
    bytes
}

/// A field begins at a multiple of 8; what is left free before the next one is not part of the last.
pub(crate) fn text_field(code: u8, value: &str) -> Vec<u8> {
    let mut bytes = vec![code, 1, b's', 0];
    bytes.extend(text(value));
    bytes
}

pub(crate) fn reply_field(serial: u32) -> Vec<u8> {
    let mut bytes = vec![5, 1, b'u', 0];
    bytes.extend(serial.to_le_bytes());
    bytes
}

pub(crate) fn message(kind: u8, fields: &[u8], body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![b'l', kind, 0, 1];
    bytes.extend(u32::try_from(body.len()).unwrap().to_le_bytes());
    bytes.extend(99_u32.to_le_bytes());
    bytes.extend(u32::try_from(fields.len()).unwrap().to_le_bytes());
    bytes.extend(fields);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes.extend(body);
    bytes
}

const METHOD: Method = Method { destination: "a.b", path: "/a", interface: "a.I", member: "Do" };

#[test]
fn dbus_call_is_encoded_as_in_the_specification() {
    let body = Body::default()
        .text("x")
        .flag(true)
        .properties(&[("N", Variant::Number(258)), ("T", Variant::Texts(vec!["ab".to_owned()]))]);
    let bytes = wire::method_call(1, METHOD, &body);
    let expected = [
        // Little endian, a call, no flags, version 1; 63 bytes of body, the first message, 77 bytes of fields.
        &b"l\x01\x00\x01"[..],
        b"\x3f\0\0\0\x01\0\0\0\x4d\0\0\0",
        b"\x01\x01o\0\x02\0\0\0/a\0\0\0\0\0\0",
        b"\x02\x01s\0\x03\0\0\0a.I\0\0\0\0\0",
        b"\x03\x01s\0\x02\0\0\0Do\0\0\0\0\0\0",
        b"\x06\x01s\0\x03\0\0\0a.b\0\0\0\0\0",
        b"\x08\x01g\0\x07sba(sv)\0\0\0\0",
    ]
    .concat();
    assert_eq!(bytes[..expected.len()].escape_ascii().to_string(), expected.escape_ascii().to_string());
    let body = [
        // "x", true, and an array of 47 bytes.
        &b"\x01\0\0\0x\0\0\0"[..],
        b"\x01\0\0\0",
        b"\x2f\0\0\0",
        b"\x01\0\0\0N\0\x01t\0\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0",
        b"\x01\0\0\0T\0\x02as\0\0\0\x07\0\0\0\x02\0\0\0ab\0",
    ]
    .concat();
    assert!(bytes.ends_with(&body), "{}", bytes.escape_ascii());
}

#[tokio::test]
async fn dbus_answers_errors_and_signals_are_distinguished() {
    let systemd =
        Systemd::answering(vec![Answer::Job(12, "done"), Answer::Error("a.b.Wrong"), Answer::Nothing]);
    let mut connection = Connection::open(&systemd.socket).await.unwrap();
    let answer = connection.call(METHOD, &Body::default()).await.unwrap();
    assert_eq!(answer.reader().string().as_deref(), Some("/org/freedesktop/systemd1/job/12"));
    let error = connection.call(METHOD, &Body::default()).await.unwrap_err();
    assert_eq!(error.to_string(), "a.b.Wrong: no good reason");
    let mut signals = Vec::new();
    for _ in 0..3 {
        signals.push(connection.signal().await.unwrap().member);
    }
    assert_eq!(signals, ["JobRemoved", "UnitNew", "JobRemoved"]);
    connection.call(METHOD, &Body::default()).await.unwrap();
}

#[tokio::test]
async fn dbus_refusal_and_invalid_messages_are_errors() {
    async fn against(lines: &'static [u8]) -> DbusError {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let served = tokio::task::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(lines).await.unwrap();
            let mut heard = Vec::new();
            let _ = stream.read_to_end(&mut heard).await;
        });
        let call = async {
            let mut connection = Connection::open(&socket).await?;
            connection.call(METHOD, &Body::default()).await.map(drop)
        };
        let error = call.await.unwrap_err();
        served.abort();
        error
    }
    assert!(matches!(against(b"REJECTED EXTERNAL\r\n").await, DbusError::Refused(_)));
    assert!(matches!(against(b"OK x\r\nHTTP/1.1 400 Bad Request").await, DbusError::Garbled));
    assert!(matches!(
        against(b"OK x\r\nl\x02\0\x01\xff\xff\xff\xff\0\0\0\0\0\0\0\0").await,
        DbusError::Garbled
    ));
    assert!(matches!(Connection::open(Path::new("/nowhere")).await, Err(DbusError::Io(_))));
}

#[test]
fn no_message_makes_the_reader_panic() {
    let whole = message(4, &text_field(3, "JobRemoved"), &text("abc"));
    for end in 0..whole.len() {
        assert!(Message::parse(whole[..end].to_vec()).is_none(), "{end}");
        let _ = wire::rest_of(&whole[..end]);
    }
    for at in 0..whole.len() {
        for value in [0, 1, 7, 127, 255] {
            let mut broken = whole.clone();
            broken[at] = value;
            if let Some(message) = Message::parse(broken) {
                let mut reader = message.reader();
                let _ = (reader.number(), reader.string());
            }
        }
    }
}
