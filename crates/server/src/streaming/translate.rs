//! Translates between WebSocket clients and SPDY streaming servers: exec and attach channel by channel
//! (`v5.channel.k8s.io`), and a port-forward, which is SPDY tunnelled in WebSocket messages, by unwrapping and wrapping it.
//! There is backpressure: data is read from one side only as fast as the other accepts it.

use std::io;

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Request, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use ports::runtime::Streams;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tunnel::{DRAIN_TIMEOUT, Idle, Moved};

use crate::answer;
use crate::pieces::PIECE_BYTES;
use crate::streaming::spdy::{self, FrameWriter};
use crate::streaming::upgrade;
use crate::streaming::websocket::{self, FrameReader, Opcode, frame};

/// The channel protocol in which a client can close each channel.
const CHANNELS: &str = "v5.channel.k8s.io";
/// The oldest stream protocol of runtimes that reports an exit code.
const STREAMS: &str = "v4.channel.k8s.io";
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const PORT_FORWARD: &str = "portforward.k8s.io";
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
/// Frames queued for a slow side, each of about 32 KiB at most.
const QUEUE: usize = 2;

/// The channel of a message that closes another.
const CLOSE: u8 = 255;

/// A channel of the client, and the name of its stream at the streaming server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Channel {
    number: u8,
    name: &'static str,
}

const STDIN: Channel = Channel { number: 0, name: "stdin" };
const STDOUT: Channel = Channel { number: 1, name: "stdout" };
const STDERR: Channel = Channel { number: 2, name: "stderr" };
/// Carries the result.
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

/// Whether the client offers the channel protocol, which must be translated.
pub(crate) fn speaks_channels(headers: &HeaderMap) -> bool {
    websocket::offers(headers, CHANNELS)
}

/// Whether the client offers a tunnelled port-forward, which must be unwrapped.
pub(crate) fn speaks_tunnel(headers: &HeaderMap) -> bool {
    websocket::offers(headers, TUNNEL)
}

/// Connects a client that [`speaks_channels`] to the streams at the URL.
pub(crate) async fn channels_of(request: Request<Body>, url: &str, streams: Streams, idle: Idle) -> Response {
    between(request, url, CHANNELS, STREAMS, move |client, backend| translate(client, backend, streams, idle))
        .await
}

/// Connects a client that [`speaks_tunnel`] to the port-forward at the URL.
pub(crate) async fn tunnel_to(request: Request<Body>, url: &str, idle: Idle) -> Response {
    between(request, url, TUNNEL, PORT_FORWARD, move |client, backend| tunnel(client, backend, idle)).await
}

/// Accepts the client's protocol once the streaming server has accepted ours.
async fn between<F>(
    mut request: Request<Body>,
    url: &str,
    theirs: &'static str,
    ours: &'static str,
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

/// Frames for one side, in order.
type Queue = mpsc::Sender<Vec<u8>>;

/// Frames for a closed side are dropped; the other side notices when it ends.
async fn put(queue: &Queue, frame: Vec<u8>) {
    let _ = queue.send(frame).await;
}

/// Writes the frames of the queue until all senders are dropped. Once the side is closed, the rest is dropped.
async fn drain(mut queue: mpsc::Receiver<Vec<u8>>, mut to: impl AsyncWrite + Unpin, moved: &Moved) {
    let mut is_there = true;
    while let Some(frame) = queue.recv().await {
        moved.count();
        if is_there {
            is_there = to.write_all(&frame).await.is_ok() && to.flush().await.is_ok();
        }
    }
    if is_there {
        let _ = to.shutdown().await;
    }
}

/// Runs both directions until the client disconnects, or the backend sends its result, which is still delivered.
async fn join(
    up: impl Future<Output = io::Result<()>>,
    down: impl Future<Output = ()>,
    to_backend: impl Future<Output = ()>,
    to_client: impl Future<Output = ()>,
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
    // Both directions have dropped their senders.
    let _ = tokio::time::timeout(DRAIN_TIMEOUT, to_client).await;
}

async fn translate(client: Upgraded, backend: Upgraded, streams: Streams, idle: Idle) {
    let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
    let (from_backend, mut to_backend) = tokio::io::split(TokioIo::new(backend));
    let Some(open) = open(&mut to_backend, streams).await else { return };
    let moved = Moved::default();
    let (client, client_queue) = mpsc::channel(QUEUE);
    let (backend, backend_queue) = mpsc::channel(QUEUE);
    let up = from_channels(FrameReader::new(from_client), &open, backend.clone(), client.clone());
    let down = from_streams(spdy::FrameReader::new(from_backend), &open, client, backend);
    let to_backend = drain(backend_queue, to_backend, &moved);
    let to_client = drain(client_queue, to_client, &moved);
    join(up, down, to_backend, to_client, moved.stands_still(idle)).await;
}

/// Opens a stream for each channel; returns them with their identifiers.
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

/// Forwards data of the client until it disconnects.
async fn from_channels(
    mut reader: FrameReader<impl AsyncRead + Unpin>,
    open: &[(Channel, u32)],
    backend: Queue,
    client: Queue,
) -> io::Result<()> {
    let id_of = |number: u8| {
        let found = open.iter().find(|(channel, _)| channel.number == number);
        // Only these two channels are inputs.
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
            // A pong is dropped for a client that does not read; waiting would block its input.
            websocket::Piece::Ping(content) => drop(client.try_send(frame(Opcode::Pong, &[&content]))),
            websocket::Piece::Close => return Ok(()),
        }
    }
}

/// Forwards output until the result and all output before it were sent, or the backend disconnected.
async fn from_streams(
    mut reader: spdy::FrameReader<impl AsyncRead + Unpin>,
    open: &[(Channel, u32)],
    client: Queue,
    backend: Queue,
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
    let moved = Moved::default();
    let (client, client_queue) = mpsc::channel(QUEUE);
    let (backend, backend_queue) = mpsc::channel(QUEUE);
    let up = out_of_messages(FrameReader::new(from_client), backend, client.clone());
    let down = into_messages(from_backend, client);
    let to_backend = drain(backend_queue, to_backend, &moved);
    let to_client = drain(client_queue, to_client, &moved);
    join(up, down, to_backend, to_client, moved.stands_still(idle)).await;
}

async fn out_of_messages(
    mut reader: FrameReader<impl AsyncRead + Unpin>,
    backend: Queue,
    client: Queue,
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
