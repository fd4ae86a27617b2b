use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{DuplexStream, ReadBuf, duplex};
use tokio::time::{Instant, timeout};

use super::*;

/// A buffer that is smaller than what the tests send, so that both directions wait.
const SMALL: usize = 16;
const OUTPUT: &[u8] = b"the output of a process that has ended without reading its input";

/// A backend that has ended: it takes no input, and its output can still be read.
struct EndedBackend(&'static [u8]);

impl AsyncRead for EndedBackend {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for EndedBackend {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
    }
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
    }
}

/// The client's end of a connection whose other end is joined to a backend.
fn joined_to(
    backend: impl AsyncRead + AsyncWrite + Send + 'static,
    idle: Idle,
) -> (DuplexStream, tokio::task::JoinHandle<Ended>) {
    let (ours, theirs) = duplex(SMALL);
    (ours, tokio::spawn(splice(theirs, backend, idle)))
}

#[tokio::test(start_paused = true)]
async fn output_of_a_backend_that_takes_no_more_input_reaches_the_client() {
    let (mut client, splicing) = joined_to(EndedBackend(OUTPUT), Idle::ZERO);
    // More than the connection holds, so it was read on the way.
    client.write_all(&[b'i'; 4 * SMALL]).await.unwrap();
    let mut read = Vec::new();
    client.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, OUTPUT);
    // The client may go on until it has seen the end.
    client.write_all(&[b'i'; 4 * SMALL]).await.unwrap();
    drop(client);
    assert_eq!(splicing.await.unwrap(), Ended::Closed);
}

#[tokio::test(start_paused = true)]
async fn client_that_has_closed_its_half_gets_the_rest_of_the_output() {
    let (backend, mut process) = duplex(SMALL);
    let (mut client, splicing) = joined_to(backend, Idle::ZERO);
    client.write_all(b"input").await.unwrap();
    client.shutdown().await.unwrap();
    let mut input = Vec::new();
    process.read_to_end(&mut input).await.unwrap();
    assert_eq!(input, b"input");
    let written = tokio::spawn(async move { process.write_all(OUTPUT).await });
    let mut read = Vec::new();
    client.read_to_end(&mut read).await.unwrap();
    assert_eq!(read, OUTPUT);
    written.await.unwrap().unwrap();
    assert_eq!(splicing.await.unwrap(), Ended::Closed);
}

#[tokio::test(start_paused = true)]
async fn client_that_stays_after_the_end_of_the_backend_is_disconnected() {
    let (client, splicing) = joined_to(EndedBackend(b""), Idle::ZERO);
    let before = Instant::now();
    assert_eq!(splicing.await.unwrap(), Ended::Closed);
    assert_eq!(before.elapsed(), DRAIN_TIMEOUT);
    drop(client);
}

#[tokio::test(start_paused = true)]
async fn client_that_reads_no_more_ends_the_connection_to_the_backend() {
    let (backend, mut process) = duplex(SMALL);
    let (client, splicing) = joined_to(backend, Idle::ZERO);
    drop(client);
    // The client's end comes first, and is passed on; its connection takes no output.
    process.write_all(OUTPUT).await.unwrap_err();
    assert_eq!(timeout(DRAIN_TIMEOUT, splicing).await.unwrap().unwrap(), Ended::Closed);
}

#[tokio::test(start_paused = true)]
async fn only_a_stream_without_data_is_idle() {
    const IDLE: Duration = Duration::from_secs(4);
    let (backend, mut process) = duplex(SMALL);
    let (mut client, splicing) = joined_to(backend, IDLE);
    for _ in 0..5 {
        tokio::time::sleep(IDLE / 2).await;
        client.write_all(b"x").await.unwrap();
        assert_eq!(process.read_u8().await.unwrap(), b'x');
    }
    let before = Instant::now();
    assert_eq!(splicing.await.unwrap(), Ended::Idle);
    assert!(before.elapsed() >= IDLE && before.elapsed() <= IDLE * 5 / 4, "{:?}", before.elapsed());
}
