//! Clients that speak WebSocket, and streaming servers that speak SPDY: exec and attach are translated channel by channel
//! (`v5.channel.k8s.io`), and a port-forward, which is SPDY inside WebSocket messages, is taken out of them and put into
//! them. What one side does not take is not read from the other.

use std::io;
use std::sync::atomic::AtomicU64;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use ports::runtime::Streams;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::answer;
use crate::pieces::PIECE_BYTES;
use crate::streaming::spdy::{self, FrameWriter};
use crate::streaming::upgrade::{self, DRAIN_TIMEOUT, Idle, count, stands_still};
use crate::streaming::websocket::{self, FrameReader, Opcode, frame};

/// The protocol of channels whose client can close each of them.
const CHANNELS: &str = "v5.channel.k8s.io";
/// The protocol of streams that runtimes have spoken longest of those that tell an exit code.
const STREAMS: &str = "v4.channel.k8s.io";
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const PORT_FORWARD: &str = "portforward.k8s.io";
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// Frames on their way to a side that is slow to take them; each is of some 32 KiB at most.
const QUEUE: usize = 2;

/// The channel of a message that closes another.
const CLOSE: u8 = 255;

/// A channel of the client's and what the streaming server calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Channel {
    number: u8,
    name: &'static str,
}

const STDIN: Channel = Channel { number: 0, name: "stdin" };
const STDOUT: Channel = Channel { number: 1, name: "stdout" };
const STDERR: Channel = Channel { number: 2, name: "stderr" };
/// Carries the outcome.
const ERROR: Channel = Channel { number: 3, name: "error" };
const RESIZE: Channel = Channel { number: 4, name: "resize" };

/// The channels of a process with these streams. A streaming server waits until all of them are open.
fn channels(streams: Streams) -> Vec<Channel> {
    let wanted = [
        (true, ERROR),
        (streams.stdin, STDIN),
        (streams.stdout, STDOUT),
        (streams.stderr, STDERR),
        (streams.tty, RESIZE),
    ];
    wanted.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, channel)| channel).collect()
}

/// Whether the client speaks channels, which are to be translated.
pub(crate) fn speaks_channels(headers: &HeaderMap) -> bool {
    websocket::offers(headers, CHANNELS)
}

/// Whether the client speaks a tunnel, out of which a port-forward is to be taken.
pub(crate) fn speaks_tunnel(headers: &HeaderMap) -> bool {
    websocket::offers(headers, TUNNEL)
}

/// Answers a client that [`speaks_channels`] with the streams at the URL.
pub(crate) async fn channels_of(request: Request<Body>, url: &str, streams: Streams, idle: Idle) -> Response {
    between(request, url, (CHANNELS, STREAMS), move |client, backend| {
        translate(client, backend, streams, idle)
    })
    .await
}

/// Answers a client that [`speaks_tunnel`] with the port-forward at the URL.
pub(crate) async fn tunnel_to(request: Request<Body>, url: &str, idle: Idle) -> Response {
    between(request, url, (TUNNEL, PORT_FORWARD), move |client, backend| tunnel(client, backend, idle)).await
}

/// Accepts the client's protocol as soon as the streaming server has accepted ours.
async fn between<F>(
    mut request: Request<Body>,
    url: &str,
    (theirs, ours): (&'static str, &'static str),
    then: impl FnOnce(Upgraded, Upgraded) -> F + Send + 'static,
) -> Response
where
    F: Future<Output = ()> + Send,
{
    let accepted = match websocket::accept(request.headers(), theirs) {
        Ok(headers) => headers,
        Err(why) => return answer::error(StatusCode::BAD_REQUEST, why),
    };
    let more = [(STREAM_PROTOCOL, HeaderValue::from_static(ours))];
    let backend = upgrade::spdy_request(url, more);
    upgrade::between(&mut request, backend, then, move |response| {
        *response.headers_mut() = accepted;
    })
    .await
}

/// Frames for one side, in their order.
type Queue = mpsc::Sender<Vec<u8>>;

/// A side that is gone takes nothing; the other notices when it ends itself.
async fn put(queue: &Queue, frame: Vec<u8>) {
    let _ = queue.send(frame).await;
}

/// Writes all that is put into the queue until nobody can any more. Of a side that is gone, the rest is let go.
async fn drain(mut queue: mpsc::Receiver<Vec<u8>>, mut to: impl AsyncWrite + Unpin, moved: &AtomicU64) {
    let mut is_there = true;
    while let Some(frame) = queue.recv().await {
        count(moved);
        if is_there {
            is_there = to.write_all(&frame).await.is_ok() && to.flush().await.is_ok();
        }
    }
    if is_there {
        let _ = to.shutdown().await;
    }
}

/// Runs both directions. Who leaves first is the client, or the backend with a last word; that is still delivered.
async fn join(
    (up, down): (impl Future<Output = io::Result<()>>, impl Future<Output = ()>),
    (to_backend, to_client): (impl Future<Output = ()>, impl Future<Output = ()>),
    still: impl Future<Output = ()>,
) {
    tokio::pin!(to_client);
    tokio::select! {
        left = up => {
            if let Err(error) = left {
                tracing::debug!(err = %error, "Stream client disconnected without closing");
            }
            return;
        }
        () = down => {}
        () = to_backend => {}
        () = &mut to_client => return,
        () = still => {
            tracing::info!("Closed idle stream");
            return;
        }
    }
    // Both directions have let go of the queue.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, to_client).await;
}

async fn translate(client: Upgraded, backend: Upgraded, streams: Streams, idle: Idle) {
    let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
    let (from_backend, mut to_backend) = tokio::io::split(TokioIo::new(backend));
    let Some(open) = open(&mut to_backend, streams).await else { return };
    let moved = AtomicU64::new(0);
    let (client, client_queue) = mpsc::channel(QUEUE);
    let (backend, backend_queue) = mpsc::channel(QUEUE);
    let up = from_channels(FrameReader::new(from_client), &open, (backend.clone(), client.clone()));
    let down = from_streams(spdy::FrameReader::new(from_backend), &open, (client, backend));
    let writers = (drain(backend_queue, to_backend, &moved), drain(client_queue, to_client, &moved));
    join((up, down), writers, stands_still(&moved, idle)).await;
}

/// Opens a stream for each channel; with their identifiers.
async fn open(to: &mut (impl AsyncWrite + Unpin), streams: Streams) -> Option<Vec<(Channel, u32)>> {
    let mut writer = FrameWriter::default();
    let mut open = Vec::new();
    for channel in channels(streams) {
        let (id, frame) = writer.open("streamtype", channel.name)?;
        to.write_all(&frame).await.ok()?;
        open.push((channel, id));
    }
    to.flush().await.ok()?;
    Some(open)
}

/// What the client says, until it leaves.
async fn from_channels(
    mut reader: FrameReader<impl AsyncRead + Unpin>,
    open: &[(Channel, u32)],
    (backend, client): (Queue, Queue),
) -> io::Result<()> {
    let id_of = |number: u8| {
        let found = open.iter().find(|(channel, _)| channel.number == number);
        // Only these two go to the process.
        found.filter(|(channel, _)| [STDIN, RESIZE].contains(channel)).map(|(_, id)| *id)
    };
    let mut channel = None;
    loop {
        match reader.next().await? {
            websocket::Piece::Data { begins, bytes } => {
                let content = if begins {
                    channel = bytes.first().copied();
                    bytes.get(1..).unwrap_or_default()
                } else {
                    &bytes
                };
                if channel == Some(CLOSE) {
                    for id in content.iter().filter_map(|number| id_of(*number)) {
                        put(&backend, spdy::data(id, &[], true)).await;
                    }
                } else if let Some(id) = channel.and_then(id_of).filter(|_| !content.is_empty()) {
                    put(&backend, spdy::data(id, content, false)).await;
                }
            }
            // Who does not read gets no answer; a wait here would hold up what he says.
            websocket::Piece::Ping(content) => drop(client.try_send(frame(Opcode::Pong, &[&content]))),
            websocket::Piece::Close => return Ok(()),
        }
    }
}

/// What the process says, until there is an outcome and all output before it, or the backend has left.
async fn from_streams(
    mut reader: spdy::FrameReader<impl AsyncRead + Unpin>,
    open: &[(Channel, u32)],
    (client, backend): (Queue, Queue),
) {
    let mut awaited: Vec<(Channel, u32)> =
        open.iter().filter(|(channel, _)| [ERROR, STDOUT, STDERR].contains(channel)).copied().collect();
    while !awaited.is_empty() {
        match reader.next().await {
            Ok(spdy::Piece::Data { id, bytes }) => {
                if let Some((channel, _)) = awaited.iter().find(|(_, awaited)| *awaited == id) {
                    put(&client, frame(Opcode::Binary, &[&[channel.number], &bytes])).await;
                }
            }
            Ok(spdy::Piece::End { id }) => awaited.retain(|(_, awaited)| *awaited != id),
            Ok(spdy::Piece::Ping(id)) => drop(backend.try_send(spdy::pong(id))),
            Ok(spdy::Piece::GoAway) | Err(_) => break,
        }
    }
    if awaited.iter().any(|(channel, _)| *channel == ERROR) {
        tracing::debug!("Container runtime closed the stream before sending its result");
    }
    put(&client, frame(Opcode::Close, &[&1000_u16.to_be_bytes()])).await;
}

async fn tunnel(client: Upgraded, backend: Upgraded, idle: Idle) {
    let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
    let (from_backend, to_backend) = tokio::io::split(TokioIo::new(backend));
    let moved = AtomicU64::new(0);
    let (client, client_queue) = mpsc::channel(QUEUE);
    let (backend, backend_queue) = mpsc::channel(QUEUE);
    let up = out_of_messages(FrameReader::new(from_client), (backend, client.clone()));
    let down = into_messages(from_backend, client);
    let writers = (drain(backend_queue, to_backend, &moved), drain(client_queue, to_client, &moved));
    join((up, down), writers, stands_still(&moved, idle)).await;
}

async fn out_of_messages(
    mut reader: FrameReader<impl AsyncRead + Unpin>,
    (backend, client): (Queue, Queue),
) -> io::Result<()> {
    loop {
        match reader.next().await? {
            websocket::Piece::Data { bytes, .. } => put(&backend, bytes).await,
            websocket::Piece::Ping(content) => drop(client.try_send(frame(Opcode::Pong, &[&content]))),
            websocket::Piece::Close => return Ok(()),
        }
    }
}

async fn into_messages(mut from: impl AsyncRead + Unpin, client: Queue) {
    let mut buffer = vec![0; PIECE_BYTES];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        put(&client, frame(Opcode::Binary, &[buffer.get(..length).unwrap_or_default()])).await;
    }
    put(&client, frame(Opcode::Close, &[&1000_u16.to_be_bytes()])).await;
}
