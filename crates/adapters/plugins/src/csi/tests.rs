//! The client over real sockets: servers that answer as Go's do, that break, and that do not exist.

use std::path::Path;

use ports::Plugins;
use ports::plugins::{PluginError, PluginResult};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

use crate::UnixPlugins;

#[tokio::test]
async fn socket_without_a_process_is_reported_as_gos_clients_do() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let driver = UnixPlugins.csi_driver(&socket);
    let dial = format!("transport: Error while dialing: dial unix {}: connect:", socket.display());
    let expected = |reason: &str| {
        format!("rpc error: code = Unavailable desc = connection error: desc = \"{dial} {reason}\"")
    };
    let error = driver.unpublish("vol-1", Path::new("/target")).await.unwrap_err();
    assert!(matches!(error, PluginError::Unreachable { .. }) && !error.is_final());
    assert_eq!(error.to_string(), expected("no such file or directory"));
    drop(UnixListener::bind(&socket).unwrap());
    let error = driver.node_info().await.unwrap_err();
    assert_eq!(error.to_string(), expected("connection refused"));
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// An HTTP/2 header field that is not compressed.
fn field(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    for text in [name, value] {
        if text.len() < 127 {
            field.push(u8::try_from(text.len()).unwrap());
        } else {
            field.push(127);
            let mut rest = text.len() - 127;
            while rest >= 128 {
                field.push(u8::try_from(rest % 128).unwrap() | 128);
                rest /= 128;
            }
            field.push(u8::try_from(rest).unwrap());
        }
        field.extend(text.as_bytes());
    }
    field
}

/// Status 200.
fn response_head() -> Vec<u8> {
    [vec![0x88], field("content-type", "application/grpc")].concat()
}

fn trailers(code: &str, message: &str) -> Vec<u8> {
    [field("grpc-status", code), field("grpc-message", message)].concat()
}

/// Reads one request, with its end.
async fn receive(stream: &mut UnixStream) {
    stream.read_exact(&mut [0; 24]).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut payload).await.unwrap();
        if head[3] == DATA && head[4] & END_STREAM != 0 {
            return;
        }
    }
}

/// What the client makes of a server that answers a request with these frames and then closes the connection.
async fn unpublish_with_answer(frames: &[Vec<u8>]) -> PluginResult<()> {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("csi.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let serve = async {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            receive(&mut stream).await;
            stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
            stream.write_all(&frames.concat()).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    };
    let driver = UnixPlugins.csi_driver(&socket);
    tokio::select! {
        () = serve => unreachable!(),
        answer = driver.unpublish("vol-1", Path::new("/target")) => answer,
    }
}

#[tokio::test]
async fn answer_with_a_message_and_trailers_is_a_success() {
    let frames = [
        frame(HEADERS, END_HEADERS, 1, &response_head()),
        frame(DATA, 0, 1, &[0; 5]),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &field("grpc-status", "0")),
    ];
    assert_eq!(unpublish_with_answer(&frames).await, Ok(()));
}

/// Go's servers answer an error with one block of headers.
#[tokio::test]
async fn error_without_a_message_before_its_trailers_is_the_drivers() {
    let block = [response_head(), trailers("13", "disk is gone: 100%25 %C3%A4")].concat();
    let frames = [frame(HEADERS, END_HEADERS | END_STREAM, 1, &block)];
    let error = unpublish_with_answer(&frames).await.unwrap_err();
    assert_eq!(error.to_string(), "rpc error: code = Internal desc = disk is gone: 100% ä");
    assert!(error.is_final());
}

#[tokio::test]
async fn long_message_of_an_error_is_truncated() {
    let block = [response_head(), trailers("9", &"x".repeat(30_000))].concat();
    let (first, second) = block.split_at(16_000);
    let frames = [frame(HEADERS, END_STREAM, 1, first), frame(CONTINUATION, END_HEADERS, 1, second)];
    let PluginError::Failed { code, message } = unpublish_with_answer(&frames).await.unwrap_err() else {
        panic!("the driver answered")
    };
    assert_eq!((&*code, message.len()), ("FailedPrecondition", 4096));
}

/// The process ended, or was ended, while it did what it was asked for.
#[tokio::test]
async fn lost_connection_leaves_the_result_unknown() {
    let headers = || frame(HEADERS, END_HEADERS, 1, &response_head());
    let lost = [
        ("before any answer", vec![]),
        ("after the headers", vec![headers()]),
        ("within the message", vec![headers(), frame(DATA, 0, 1, &[0, 0, 0])]),
        ("before the trailers", vec![headers(), frame(DATA, 0, 1, &[0; 5])]),
        ("GOAWAY", vec![frame(GO_AWAY, 0, 0, &[0; 8])]),
        ("GOAWAY after the request", vec![frame(GO_AWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])]),
        ("reset", vec![frame(RESET, 0, 1, &[0, 0, 0, 8])]),
        ("reset after the headers", vec![headers(), frame(RESET, 0, 1, &[0, 0, 0, 2])]),
    ];
    for (case, frames) in lost {
        let error = unpublish_with_answer(&frames).await.unwrap_err();
        assert!(!error.is_final(), "{case}: {error:?}");
        let text = error.to_string();
        assert!(text.starts_with("rpc error: code = Unavailable desc = "), "{case}: {text}");
    }
}
