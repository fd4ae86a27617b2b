use std::path::Path;
use std::sync::Arc;

use config::Features;
use grpc_api::pod_resources as v1;
use grpc_api::pod_resources::pod_resources_lister_client::PodResourcesListerClient;
use ports::Clock;
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint};

use super::*;
use crate::Api;
use crate::grpc_socket::listen;
use crate::pod_resources::serve;
use crate::tests::Agent;

const DATA: u8 = 0;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
/// The initial flow-control window of a connection and of a stream.
const WINDOW: usize = 65_535;

/// Headers of grpc-go as an independent encoder of HPACK writes them: POST, http, `/v1.PodResourcesLister/List`,
/// `%2Fvar%2Flib%2Fkubelet%2Fpod-resources%2Fkubelet.sock`, `application/grpc`, `grpc-go/1.79.3`, `te: trailers`.
const GO_HEADERS: &str = "8386449363b857d679369507b6c21519cc8496c633990941a654587b8ec545868346a8b0f5b632d054aa2c359e45ac2a\
    0f6d842a15161eb6c65a0a95d072755f8b1d75d0620d263d4c4d65647a8b9acac8b4c7602bbafaecff4082497f864d833505b11f";
/// The same headers again, in which all but the first two refer to the dynamic table.
const GO_HEADERS_AGAIN: &str = "8386c2c1c0bfbe";

/// The field `:authority` with that path, and with the valid value, from the same encoder: with Huffman code, and plain.
const FIELDS: [(&str, &str); 2] = [
    (
        "41a654587b8ec545868346a8b0f5b632d054aa2c359e45ac2a0f6d842a15161eb6c65a0a95d07275",
        "41a658587b8ec585868346b0b0f5b632d054ac2c359e45ac2a0f6d842a16161eb6c65a0a95d07275",
    ),
    (
        "41352532467661722532466c69622532466b7562656c6574253246706f642d7265736f75726365732532466b7562656c65742e736f636b",
        "41352d32467661722d32466c69622d32466b7562656c65742d3246706f642d7265736f75726365732d32466b7562656c65742e736f636b",
    ),
];

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A connection of a client in Go that dialed a path.
struct GoClient(UnixStream);

impl GoClient {
    async fn connect(socket: &Path) -> Self {
        let mut stream = UnixStream::connect(socket).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        Self(stream)
    }

    /// Sends a call with an empty message.
    async fn send(&mut self, stream: u32, headers: &str) {
        let head = frame(HEADERS, END_HEADERS, stream, &bytes(headers));
        let message = frame(DATA, END_STREAM, stream, &[0; 5]);
        self.0.write_all(&[head, message].concat()).await.unwrap();
    }

    /// Receives frames until the window is used up or the call has ended, and returns its message so far.
    async fn receive(&mut self, stream: u32, window: usize) -> Vec<u8> {
        let mut message = Vec::new();
        while message.len() < window {
            let mut head = [0; FRAME_HEAD_BYTES];
            self.0.read_exact(&mut head).await.unwrap();
            let [a, b, c, kind, flags, id @ ..] = head;
            let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
            self.0.read_exact(&mut payload).await.unwrap();
            let is_ours = u32::from_be_bytes(id) == stream;
            assert!(is_ours || id == [0; 4], "frame {kind} of another stream");
            assert!(!is_ours || [DATA, HEADERS, WINDOW_UPDATE].contains(&kind), "the call was reset");
            if kind == DATA {
                message.extend(payload);
            }
            if is_ours && kind == HEADERS && flags & END_STREAM != 0 {
                break;
            }
        }
        message
    }

    async fn grant(&mut self, stream: u32, window: u32) {
        self.0.write_all(&frame(WINDOW_UPDATE, 0, stream, &window.to_be_bytes())).await.unwrap();
    }
}

fn names(message: &[u8]) -> Vec<String> {
    let listed = v1::ListPodResourcesResponse::decode(&message[5..]).unwrap();
    listed.pod_resources.into_iter().map(|pod| pod.name).collect()
}

/// Runs the clients with a server for an agent with these pods.
async fn serve_pods(names: &[String], clients: impl AsyncFnOnce(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("kubelet.sock");
    let listener = listen(&socket).unwrap();
    let api: Api = Arc::new(Agent::with_pods(names));
    let server = serve(listener, api, Features::default(), Clock::system(), std::future::pending());
    tokio::select! { () = server => unreachable!(), () = clients(&socket) => {} }
}

async fn tonic_client(socket: &Path) -> Channel {
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap();
    endpoint.connect().await.unwrap()
}

#[tokio::test]
async fn client_with_the_socket_path_as_authority_is_served() {
    serve_pods(&["web".to_owned()], async |socket| {
        let mut client = GoClient::connect(socket).await;
        for (stream, headers) in [(1, GO_HEADERS), (3, GO_HEADERS_AGAIN), (5, GO_HEADERS_AGAIN)] {
            client.send(stream, headers).await;
            let message = client.receive(stream, usize::MAX).await;
            assert_eq!(names(&message), ["web"]);
        }
    })
    .await;
}

#[tokio::test]
async fn response_larger_than_the_window_waits_for_the_client() {
    let pods: Vec<_> = (0..1100).map(|at| format!("{at}{}", "x".repeat(1000))).collect();
    serve_pods(&pods, async |socket| {
        let mut client = GoClient::connect(socket).await;
        client.send(1, GO_HEADERS).await;
        let mut message = client.receive(1, WINDOW).await;
        assert_eq!(message.len(), WINDOW);
        client.grant(0, 1 << 30).await;
        // Another call is served while the first one waits for its window.
        client.send(3, GO_HEADERS_AGAIN).await;
        assert_eq!(client.receive(3, WINDOW).await.len(), WINDOW);
        client.grant(1, 1 << 30).await;
        message.extend(client.receive(1, usize::MAX).await);
        assert!(message.len() > 1 << 20);
        assert_eq!(names(&message), pods);
    })
    .await;
}

#[tokio::test]
async fn tonic_client_makes_concurrent_calls_with_large_responses() {
    let pods: Vec<_> = (0..1100).map(|at| format!("{at}{}", "x".repeat(1000))).collect();
    serve_pods(&pods, async |socket| {
        let client = PodResourcesListerClient::new(tonic_client(socket).await);
        let list = || {
            let mut client = client.clone();
            async move { client.list(v1::ListPodResourcesRequest {}).await.unwrap().into_inner() }
        };
        for listed in futures_util::future::join_all((0..8).map(|_| list())).await {
            assert_eq!(listed.pod_resources.len(), 1100);
        }
    })
    .await;
}

#[tokio::test]
async fn unknown_method_is_unimplemented() {
    serve_pods(&[], async |socket| {
        let mut channel = tonic_client(socket).await;
        let mut status_of = async |path: &str| {
            std::future::poll_fn(|cx| tower_service::Service::poll_ready(&mut channel, cx)).await.unwrap();
            let request = http::Request::post(path).body(tonic::body::Body::empty()).unwrap();
            let response = tower_service::Service::call(&mut channel, request).await.unwrap();
            tonic::Status::from_header_map(response.headers()).unwrap().code()
        };
        for path in
            ["/v1.PodResourcesLister/Watch", "/v1alpha1.PodResourcesLister/Get", "/other.Service/List"]
        {
            assert_eq!(status_of(path).await, tonic::Code::Unimplemented, "{path}");
        }
    })
    .await;
}

/// What h2 reads if the client sends these frames after the preface, byte by byte.
async fn read(frames: &[u8]) -> Vec<u8> {
    let (mut client, server) = tokio::io::duplex(1);
    let sent = [&[b'P'; PREFACE_BYTES], frames].concat();
    let mut read = Vec::new();
    let mut server = ValidAuthority::new(server);
    let (written, _) =
        tokio::join!(async move { client.write_all(&sent).await }, server.read_to_end(&mut read));
    written.unwrap();
    read.split_off(PREFACE_BYTES)
}

#[tokio::test]
async fn only_authorities_are_changed() {
    for (sent, valid) in FIELDS {
        // A table size update, POST, and a new name with the value `/`, which stay.
        let block = |field: &str| bytes(&format!("3fe11f83{field}4001780125"));
        let plain = |field| frame(HEADERS, END_HEADERS, 1, &block(field));
        let padded = |field| {
            let payload = [&[2][..], &[0; PRIORITY_BYTES], &block(field), &[b'%'; 2]].concat();
            frame(HEADERS, END_HEADERS | PADDED | PRIORITY, 3, &payload)
        };
        // Data may contain what looks like a header.
        let frames = |field| [plain(field), frame(DATA, 0, 1, &block(sent)), padded(field)].concat();
        assert_eq!(read(&frames(sent)).await, frames(valid));
        assert_eq!(read(&frames(valid)).await, frames(valid));
    }
}

/// Examples of RFC 7541 (C.4.1 and C.6.1), and malformed blocks.
#[tokio::test]
async fn other_headers_pass_unchanged() {
    for block in [
        "828684418cf1e3c2e5f23a6ba0ab90f4ff",
        "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
        "41ffffffffffff01",
        "4184",
        "41847fffffff",
        "00",
    ] {
        let sent = frame(HEADERS, END_HEADERS, 1, &bytes(block));
        assert_eq!(read(&sent).await, sent, "{block}");
    }
    let incomplete = &frame(HEADERS, END_HEADERS, 1, &bytes(GO_HEADERS))[..50];
    assert_eq!(read(incomplete).await, incomplete);
    let larger_than_allowed = frame(HEADERS, END_HEADERS, 1, &[0x41; MAX_FRAME_BYTES + 1]);
    assert_eq!(read(&larger_than_allowed).await, larger_than_allowed);
}
