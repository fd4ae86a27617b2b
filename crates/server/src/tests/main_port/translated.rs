//! Translation between WebSocket clients and a SPDY streaming server.

use super::reached::{read_head, streaming};
use super::*;
use crate::streaming::spdy;
use crate::streaming::websocket::{Opcode, frame};

const SPDY_AGREED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";

/// Requests a WebSocket with that subprotocol; returns the connection and the head of the response.
async fn websocket(port: &Port, path: &str, protocol: &str) -> (TlsStream<TcpStream>, String) {
    let mut stream = port.connect(None, b"http/1.1").await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: {protocol}\r\nAuthorization: Bearer secret\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    let head = read_head(&mut stream).await.to_ascii_lowercase();
    (stream, head)
}

/// As a client sends it: masked, with zeros.
fn message(content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap();
    assert!(length < 126);
    [&[0x82, 0x80 | length, 0, 0, 0, 0], content].concat()
}

/// The next message of a server: its opcode and content.
async fn received(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> (u8, Vec<u8>) {
    let (first, length) = (stream.read_u8().await.unwrap(), stream.read_u8().await.unwrap());
    let length = if length == 126 { stream.read_u16().await.unwrap() } else { u16::from(length) };
    let mut content = vec![0; usize::from(length)];
    stream.read_exact(&mut content).await.unwrap();
    (first & 0x0f, content)
}

/// The whole next frame that a SPDY client sent.
async fn sent(stream: &mut TcpStream) -> Vec<u8> {
    let mut frame = vec![0; 8];
    stream.read_exact(&mut frame).await.unwrap();
    let length = u32::from_be_bytes([0, frame[5], frame[6], frame[7]]);
    frame.resize(8 + usize::try_from(length).unwrap(), 0);
    stream.read_exact(&mut frame[8..]).await.unwrap();
    frame
}

async fn port_at(streaming: u16) -> Port {
    Port::open(Agent { streaming: Some(streaming), ..Agent::default() }, KubeletConfiguration::default())
        .await
}

#[tokio::test]
async fn exec_channels_are_translated_to_spdy_streams_and_back() {
    let (streaming, backend) = streaming(SPDY_AGREED, async |mut stream| {
        for (number, name) in ["error", "stdin", "stdout", "resize"].iter().enumerate() {
            let frame = sent(&mut stream).await;
            assert_eq!(frame[..4], [0x80, 3, 0, 1], "it opens a stream");
            assert_eq!(usize::from(frame[11]), 2 * number + 1);
            assert!(frame.ends_with(&[name.as_bytes(), &[0, 0, 0, 0xff, 0xff]].concat()), "{name}");
        }
        assert_eq!(sent(&mut stream).await, spdy::data(7, br#"{"Width":80,"Height":24}"#, false));
        assert_eq!(sent(&mut stream).await, spdy::data(3, b"in", false));
        assert_eq!(sent(&mut stream).await, spdy::data(3, b"", true));
        // The ping comes before the result, because a client that received the result disconnects.
        stream.write_all(&spdy::pong([0, 0, 0, 2])).await.unwrap();
        assert_eq!(sent(&mut stream).await, spdy::pong([0, 0, 0, 2]));
        let sent = [spdy::data(5, b"out", true), spdy::data(1, br#"{"status":"Success"}"#, true)];
        stream.write_all(&sent.concat()).await.unwrap();
    })
    .await;
    let port = port_at(streaming).await;
    let path = "/exec/ns/web/main?command=sh&input=1&output=1&error=1&tty=1";
    let (mut stream, head) = websocket(&port, path, "v5.channel.k8s.io, v4.channel.k8s.io").await;
    assert!(head.starts_with("http/1.1 101 ") && head.contains("\r\nupgrade: websocket\r\n"), "{head}");
    assert!(head.contains("sec-websocket-protocol: v5.channel.k8s.io\r\n"), "{head}");
    assert!(head.contains("sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n"), "{head}");
    let sent = [
        message(b"\x04{\"Width\":80,\"Height\":24}"),
        message(b"\x00in"),
        // An output channel; an empty message; an unknown channel.
        message(b"\x01out"),
        message(b"\x00"),
        message(b"\x09x"),
        message(b"\xff\x00"),
    ];
    stream.write_all(&sent.concat()).await.unwrap();
    stream.flush().await.unwrap();
    assert_eq!(received(&mut stream).await, (2, b"\x01out".to_vec()));
    assert_eq!(received(&mut stream).await, (2, b"\x03{\"status\":\"Success\"}".to_vec()));
    assert_eq!(received(&mut stream).await, (8, 1000_u16.to_be_bytes().to_vec()));
    let _ = stream.read_to_end(&mut Vec::new()).await;
    let requested = backend.await.unwrap().to_ascii_lowercase();
    assert!(requested.starts_with("post /exec/ns/web/main/sh/true http/1.1\r\n"), "{requested}");
    assert!(requested.contains("x-stream-protocol-version: v4.channel.k8s.io\r\n"), "{requested}");
    assert!(!requested.contains("secret") && !requested.contains("websocket"), "{requested}");
}

#[tokio::test]
async fn pings_are_answered_and_disconnected_clients_are_closed() {
    let (streaming, backend) = streaming(SPDY_AGREED, async |mut stream| {
        // Until the client has disconnected.
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let port = port_at(streaming).await;
    let (mut stream, _) = websocket(&port, "/attach/ns/web/main?output=1", "v5.channel.k8s.io").await;
    stream.write_all(&[0x89, 0x82, 0, 0, 0, 0, b'h', b'i']).await.unwrap();
    stream.flush().await.unwrap();
    assert_eq!(received(&mut stream).await, (10, b"hi".to_vec()));
    stream.write_all(&[0x88, 0x80, 0, 0, 0, 0]).await.unwrap();
    stream.flush().await.unwrap();
    backend.await.unwrap();
}

#[tokio::test]
async fn tunnelled_port_forward_is_unwrapped_and_wrapped() {
    let (streaming, backend) = streaming(SPDY_AGREED, async |mut stream| {
        let mut sent = [0; 10];
        stream.read_exact(&mut sent).await.unwrap();
        assert_eq!(&sent, b"any frames");
        stream.write_all(b"and others").await.unwrap();
        assert_eq!(stream.read(&mut [0]).await.unwrap_or(0), 0);
    })
    .await;
    let port = port_at(streaming).await;
    let (mut stream, head) = websocket(&port, "/portForward/ns/web", "SPDY/3.1+portforward.k8s.io").await;
    assert!(head.contains("sec-websocket-protocol: spdy/3.1+portforward.k8s.io\r\n"), "{head}");
    stream.write_all(&[message(b"any "), message(b"frames")].concat()).await.unwrap();
    stream.flush().await.unwrap();
    assert_eq!(received(&mut stream).await, (2, b"and others".to_vec()));
    drop(stream);
    let requested = backend.await.unwrap().to_ascii_lowercase();
    assert!(requested.starts_with("post /ports/ns/web/[] "), "{requested}");
    assert!(requested.contains("x-stream-protocol-version: portforward.k8s.io\r\n"), "{requested}");
}

#[tokio::test]
async fn older_websocket_protocols_are_proxied_and_invalid_offers_rejected() {
    let (streaming, backend) = streaming(SPDY_AGREED, async |mut stream| {
        let _ = stream.write_all(&frame(Opcode::Binary, &[b"\x01raw"])).await;
    })
    .await;
    let port = port_at(streaming).await;
    let (mut stream, _) = websocket(&port, "/exec/ns/web/main?output=1", "v4.channel.k8s.io").await;
    assert_eq!(received(&mut stream).await, (2, b"\x01raw".to_vec()));
    assert!(backend.await.unwrap().to_ascii_lowercase().contains("upgrade: websocket"));
    let mut stream = port.connect(None, b"http/1.1").await.unwrap();
    let request = "GET /exec/ns/web/main?output=1 HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                   Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 400 "));
}

#[tokio::test]
async fn without_translation_the_newest_protocol_is_proxied_to_the_runtime() {
    let (streaming, backend) = streaming(SPDY_AGREED, async |stream| drop(stream)).await;
    let agent = Agent { streaming: Some(streaming), ..Agent::default() };
    let port = Port::start_with(agent, allow_all(), KubeletConfiguration::default(), false).await;
    let (_stream, _) = websocket(&port, "/exec/ns/web/main?output=1", "v5.channel.k8s.io").await;
    let requested = backend.await.unwrap().to_ascii_lowercase();
    assert!(
        requested.contains("upgrade: websocket") && requested.contains("protocol: v5.channel.k8s.io"),
        "{requested}"
    );
}
