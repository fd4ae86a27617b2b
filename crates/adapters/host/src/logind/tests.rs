//! Against a stand-in for the message bus with logind behind it, whose messages are built without the code under test.

use std::collections::VecDeque;
use std::io::{IoSlice, Read as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use super::*;
use crate::dbus::tests::{hex_of_uid, message, receive, reply_field, text, text_field, words};

/// How the bus answers one call.
enum Answer {
    Body(Vec<u8>),
    /// The number of a file, and the file.
    File(OwnedFd),
    Error(&'static str),
    /// These bytes come first.
    After(Vec<u8>, Box<Answer>),
}

/// Bytes that come by themselves, after the answer to the call of this number.
type Spontaneous = (usize, Vec<u8>);

struct Bus {
    socket: PathBuf,
    calls: mpsc::UnboundedReceiver<String>,
    _dir: tempfile::TempDir,
}

impl Bus {
    /// Serves one connection, and closes it when there are no answers left. The greeting and the first call, which every
    /// connection makes, are answered besides.
    fn answering(answers: Vec<Answer>, spontaneous: Vec<Spontaneous>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("bus");
        let listener = UnixListener::bind(&socket).unwrap();
        let (sender, calls) = mpsc::unbounded_channel();
        let hello = Answer::Body(text(":1.7"));
        let mut answers: VecDeque<Answer> = std::iter::once(hello).chain(answers).collect();
        let _served = tokio::task::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            greet(&mut stream).await;
            let mut number = 0;
            while let Some(answer) = answers.pop_front() {
                let Some(bytes) = receive(&mut stream).await else { return };
                sender.send(words(&bytes)).unwrap();
                send(&mut stream, answer, u32::from_le_bytes(bytes[8..12].try_into().unwrap())).await;
                for (_, bytes) in spontaneous.iter().filter(|(after, _)| *after == number) {
                    stream.write_all(bytes).await.unwrap();
                }
                number += 1;
            }
        });
        Self { socket, calls, _dir: dir }
    }

    async fn watch(&self) -> Box<dyn ShutdownWatch> {
        Logind::at(self.socket.clone()).watch().await.unwrap()
    }

    async fn call(&mut self) -> String {
        self.calls.recv().await.unwrap()
    }
}

async fn greet(stream: &mut UnixStream) {
    let mut piece = [0; 1024];
    let length = stream.read(&mut piece).await.unwrap();
    let greeting = String::from_utf8_lossy(&piece[..length]).into_owned();
    assert_eq!(greeting, format!("\0AUTH EXTERNAL {}\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n", hex_of_uid()));
    stream.write_all(b"OK 0123456789abcdef\r\nAGREE_UNIX_FD\r\n").await.unwrap();
}

async fn send(stream: &mut UnixStream, mut answer: Answer, serial: u32) {
    let mut fields = reply_field(serial);
    while let Answer::After(bytes, then) = answer {
        stream.write_all(&bytes).await.unwrap();
        answer = *then;
    }
    match answer {
        Answer::After(..) => unreachable!("the last answer is none of these"),
        Answer::Body(body) => stream.write_all(&message(2, &fields, &body)).await.unwrap(),
        Answer::Error(name) => {
            let mut named = text_field(4, name);
            named.resize(named.len().next_multiple_of(8), 0);
            named.extend(fields);
            stream.write_all(&message(3, &named, &text("no good reason"))).await.unwrap();
        }
        Answer::File(file) => {
            fields.extend([9, 1, b'u', 0]);
            fields.extend(1_u32.to_le_bytes());
            let bytes = message(2, &fields, &0_u32.to_le_bytes());
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let files = [file.as_fd()];
            assert!(control.push(SendAncillaryMessage::ScmRights(&files)));
            stream.writable().await.unwrap();
            let sent = stream.try_io(Interest::WRITABLE, || {
                Ok(sendmsg(&*stream, &[IoSlice::new(&bytes)], &mut control, SendFlags::empty())?)
            });
            assert_eq!(sent.unwrap(), bytes.len());
        }
    }
}

/// A variant: the letter of its type, then its bytes where they belong.
fn variant(letter: u8, value: &[u8], align: usize) -> Vec<u8> {
    let mut bytes = vec![1, letter, 0];
    bytes.resize(bytes.len().next_multiple_of(align), 0);
    bytes.extend(value);
    bytes
}

fn flag(flag: bool) -> Answer {
    Answer::Body(variant(b'b', &u32::from(flag).to_le_bytes(), 4))
}

fn nothing() -> Answer {
    Answer::Body(Vec::new())
}

/// Both rules of a watch are taken.
fn after_watching(answers: impl IntoIterator<Item = Answer>) -> Vec<Answer> {
    [nothing(), nothing()].into_iter().chain(answers).collect()
}

fn signal(interface: &str, member: &str, body: &[u8]) -> Vec<u8> {
    let mut fields = text_field(2, interface);
    fields.resize(fields.len().next_multiple_of(8), 0);
    fields.extend(text_field(3, member));
    message(4, &fields, body)
}

fn owner_changed(name: &str, before: &str, now: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for part in [name, before, now] {
        body.resize(body.len().next_multiple_of(4), 0);
        body.extend(text(part));
    }
    signal(BUS, OWNER_CHANGED, &body)
}

#[tokio::test]
async fn logind_calls_use_its_dbus_methods() {
    let delay = Answer::Body(variant(b't', &30_000_000_u64.to_le_bytes(), 8));
    let mut bus = Bus::answering(after_watching([flag(true), delay, nothing()]), Vec::new());
    let mut watch = bus.watch().await;
    assert!(watch.is_ending().await.unwrap());
    assert_eq!(watch.max_delay().await.unwrap(), Duration::from_secs(30));
    watch.reload().await.unwrap();
    assert_eq!(bus.call().await, "Hello");
    let rule = bus.call().await;
    assert!(
        rule.contains("sender='org.freedesktop.login1'") && rule.ends_with("member='PrepareForShutdown'"),
        "{rule}"
    );
    assert!(bus.call().await.ends_with("arg0='org.freedesktop.login1'"));
    assert_eq!(bus.call().await, "Get PreparingForShutdown");
    assert_eq!(bus.call().await, "Get InhibitDelayMaxUSec");
    assert_eq!(bus.call().await, "KillUnit ssi systemd-logind.service all");
}

#[tokio::test]
async fn shutdown_is_delayed_until_the_inhibitor_is_dropped() {
    let (mut reader, writer) = std::io::pipe().unwrap();
    let mut bus = Bus::answering(
        after_watching([
            Answer::File(writer.into()),
            Answer::Error("org.freedesktop.login1.OperationInProgress"),
        ]),
        Vec::new(),
    );
    let mut watch = bus.watch().await;
    let lock = watch.inhibit().await.unwrap();
    for _ in 0..3 {
        bus.call().await;
    }
    let inhibit = "Inhibit ssss shutdown kubelet Kubelet needs time to handle node shutdown delay";
    assert_eq!(bus.call().await, inhibit);
    let error = watch.inhibit().await.unwrap_err().to_string();
    assert!(error.contains("OperationInProgress: no good reason"), "{error}");
    // The lock outlives its connection.
    drop(watch);
    drop(lock);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "no process has it open any more");
}

#[tokio::test]
async fn only_logind_signals_are_hints_and_its_exit_is_an_error() {
    let spontaneous = vec![
        (0, signal(BUS, "NameAcquired", &text(":1.7"))),
        (2, signal("a.b.Other", PREPARE, &1_u32.to_le_bytes())),
        // The bus has just started it.
        (2, owner_changed(LOGIND, "", ":1.8")),
        (2, signal(MANAGER, PREPARE, &1_u32.to_le_bytes())),
        (3, signal(MANAGER, PREPARE, &0_u32.to_le_bytes())),
        (3, owner_changed(LOGIND, ":1.8", "")),
    ];
    let bus = Bus::answering(after_watching([flag(true), flag(false)]), spontaneous);
    let mut watch = bus.watch().await;
    watch.hint().await.unwrap();
    assert!(watch.is_ending().await.unwrap(), "logind is queried");
    watch.hint().await.unwrap();
    let error = watch.hint().await.unwrap_err().to_string();
    assert_eq!(error, "wait for signals of logind: it has ended, or begun again");
}

#[tokio::test]
async fn dbus_signal_in_two_pieces_survives_a_cancelled_read() {
    let whole = signal(MANAGER, PREPARE, &1_u32.to_le_bytes());
    let (first, second) = whole.split_at(20);
    let late = Answer::After(second.to_vec(), Box::new(flag(true)));
    let bus = Bus::answering(after_watching([late]), vec![(2, first.to_vec())]);
    let mut watch = bus.watch().await;
    let waited = tokio::time::timeout(Duration::from_millis(50), watch.hint()).await;
    assert!(waited.is_err(), "the rest is missing");
    assert!(watch.is_ending().await.unwrap());
    watch.hint().await.unwrap();
    assert!(watch.hint().await.is_err(), "the bus has closed the connection");
}

#[tokio::test]
async fn answers_of_another_kind_are_errors() {
    let number = || Answer::Body(variant(b't', &1_u64.to_le_bytes(), 8));
    let odd = Answer::Body(variant(b'b', &2_u32.to_le_bytes(), 4));
    let bus = Bus::answering(after_watching([number(), odd, flag(true), nothing()]), Vec::new());
    let mut watch = bus.watch().await;
    assert!(watch.is_ending().await.is_err() && watch.is_ending().await.is_err());
    assert!(watch.max_delay().await.is_err());
    assert!(watch.inhibit().await.is_err(), "no file came");
}

#[tokio::test]
async fn missing_message_bus_is_reported_in_one_sentence() {
    let error = Logind::at("/nowhere/bus".into()).watch().await.unwrap_err().to_string();
    assert_eq!(error, "connect to the message bus: No such file or directory (os error 2)");
}

#[test]
fn message_bus_address_comes_from_the_environment() {
    assert_eq!(socket_of("unix:path=/run/a").as_deref(), Ok(Path::new("/run/a")));
    assert_eq!(socket_of("tcp:host=x;unix:guid=1,path=/b,x=y").as_deref(), Ok(Path::new("/b")));
    assert!(socket_of("unix:abstract=c").is_err() && socket_of("").is_err());
}
