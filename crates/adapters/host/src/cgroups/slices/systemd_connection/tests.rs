//! Against a stand-in for systemd that answers and ends jobs in the order that a test wants.

use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};

use super::*;
use crate::dbus::tests::{begun, greet, receive, removed};

const METHOD: Method =
    Method { destination: "a.b", path: "/", interface: "a.b", member: "StartTransientUnit" };
const LONG: Duration = Duration::from_secs(20);

struct Systemd {
    listener: UnixListener,
    dir: tempfile::TempDir,
}

impl Systemd {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { listener: UnixListener::bind(dir.path().join("private")).unwrap(), dir }
    }

    fn connection(&self) -> SystemdConnection {
        SystemdConnection::new(self.dir.path().join("private"))
    }

    async fn accept(&self) -> UnixStream {
        let (mut stream, _) = tokio::time::timeout(LONG, self.listener.accept()).await.unwrap().unwrap();
        greet(&mut stream).await;
        stream
    }
}

/// The number of a call that came.
async fn called(stream: &mut UnixStream) -> Option<u32> {
    let bytes = tokio::time::timeout(LONG, receive(stream)).await.unwrap()?;
    Some(u32::from_le_bytes(bytes[8..12].try_into().unwrap()))
}

fn job(number: u32) -> String {
    format!("/org/freedesktop/systemd1/job/{number}")
}

#[tokio::test]
async fn concurrent_systemd_calls_share_a_connection_without_blocking() {
    let systemd = Systemd::new();
    let connection = systemd.connection();
    let ask = || connection.call(METHOD, Body::default(), Until::JobDone);
    let ends = Mutex::new(Vec::new());
    let first = async {
        ask().await.unwrap();
        ends.lock().push("first");
    };
    let second = async {
        ask().await.unwrap();
        ends.lock().push("second");
    };
    let serve = async {
        let mut stream = systemd.accept().await;
        for number in [1, 2] {
            let serial = called(&mut stream).await.unwrap();
            stream.write_all(&begun(serial, &job(number))).await.unwrap();
        }
        stream.write_all(&removed(2, &job(2), "done")).await.unwrap();
        while ends.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        stream.write_all(&removed(1, &job(1), "done")).await.unwrap();
        // It is closed after it was idle for a while.
        assert_eq!(called(&mut stream).await, None);
    };
    tokio::join!(first, second, serve);
    assert_eq!(*ends.lock(), ["second", "first"]);
}

#[tokio::test]
async fn broken_systemd_connection_fails_all_waiting_calls_and_is_reopened() {
    let systemd = Systemd::new();
    let connection = systemd.connection();
    let ask = || connection.call(METHOD, Body::default(), Until::JobDone);
    let broken = async {
        let mut stream = systemd.accept().await;
        let serial = called(&mut stream).await.unwrap();
        called(&mut stream).await.unwrap();
        stream.write_all(&begun(serial, &job(1))).await.unwrap();
    };
    let (one, other, ()) = tokio::join!(ask(), ask(), broken);
    for result in [one, other] {
        assert!(matches!(result, Err(DbusError::Io(_))), "{result:?}");
    }
    let again = async {
        let mut stream = systemd.accept().await;
        let serial = called(&mut stream).await.unwrap();
        stream.write_all(&begun(serial, &job(2))).await.unwrap();
        stream.write_all(&removed(2, &job(2), "failed")).await.unwrap();
        stream
    };
    let (result, _stream) = tokio::join!(ask(), again);
    assert_eq!(result.unwrap_err().to_string(), "StartTransientUnit: the job is failed");
}

#[tokio::test]
async fn cancelled_systemd_call_does_not_keep_the_connection_open() {
    let systemd = Systemd::new();
    let connection = systemd.connection();
    let mut call = Box::pin(connection.call(METHOD, Body::default(), Until::JobDone));
    let begin = async {
        let mut stream = systemd.accept().await;
        let serial = called(&mut stream).await.unwrap();
        stream.write_all(&begun(serial, &job(1))).await.unwrap();
        stream
    };
    let mut stream = tokio::select! {
        result = &mut call => panic!("the job has not ended: {result:?}"),
        stream = begin => stream,
    };
    drop(call);
    assert_eq!(called(&mut stream).await, None);
}

#[tokio::test]
async fn missing_systemd_socket_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let connection = SystemdConnection::new(dir.path().join("missing"));
    let result = connection.call(METHOD, Body::default(), Until::Answered).await;
    assert!(result.unwrap_err().to_string().contains("No such file"));
}
