//! Limits of the main port against slow, long, incomplete or many requests.

use super::*;

/// How long the server reads a head whose bytes come one by one, each in time, and never end.
async fn dripping_head_lasts(mut stream: TlsStream<TcpStream>) -> Duration {
    stream.write_all(b"GET /pods HTTP/1.1\r\nHost: node\r\nX: ").await.unwrap();
    let began = tokio::time::Instant::now();
    while stream.write_all(b"x").await.is_ok() && stream.flush().await.is_ok() {
        assert!(began.elapsed() < Duration::from_secs(300), "it is still taken");
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn slow_request_head_is_closed_early_on_a_connection_without_credentials() {
    let port = Port::open(Agent::default(), KubeletConfiguration::default()).await;
    let stream = port.connect(None, b"http/1.1").await.unwrap();
    let lasted = dripping_head_lasts(stream).await;
    assert!(lasted >= Duration::from_secs(10) && lasted < Duration::from_secs(20), "{lasted:?}");
    let mut known = port.connect(None, b"http/1.1").await.unwrap();
    known.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
    read_until(&mut known, b"\r\n\r\nok").await;
    let lasted = dripping_head_lasts(known).await;
    assert!(lasted >= Duration::from_secs(60), "a slow client is not an attacker: {lasted:?}");
}

async fn read_until(stream: &mut TlsStream<TcpStream>, end: &[u8]) {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        read.push(stream.read_u8().await.unwrap());
    }
}

/// Connections from that address, each with a finished TLS handshake and no request.
async fn idle_tls_connections(port: &Port, from: [u8; 4], count: usize) -> Vec<TlsStream<TcpStream>> {
    let mut idle = Vec::new();
    for _ in 0..count {
        idle.push(port.connect_from(from, None, b"http/1.1").await.unwrap());
    }
    idle
}

/// Without the limit for each peer, no request would be served before the idle connections have timed out.
#[tokio::test]
async fn idle_tls_connections_do_not_lock_out_a_client_with_credentials() {
    let (cluster, authority) = (FakeCluster::new(), Authority::new());
    cluster.set_access(|_| true);
    let port = Port::start(
        Agent::default(),
        with_reviews(&cluster, &authority, false),
        KubeletConfiguration::default(),
    )
    .await;
    let caller = Caller { certificate: Some(authority.client("admin", "ops")), token: None };
    // A stream with credentials that stays open.
    let mut known =
        port.connect_from([127, 0, 0, 2], caller.certificate.as_ref(), b"http/1.1").await.unwrap();
    known.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
    read_until(&mut known, b"\r\n\r\nok").await;
    let mut idle = idle_tls_connections(&port, [127, 0, 0, 2], 300).await;
    // The oldest of that address are closed, those of other addresses stay.
    for closed in &mut idle[..300 - 256] {
        assert_eq!(closed.read(&mut [0]).await.unwrap_or(0), 0);
    }
    for name in 3..6 {
        idle.extend(idle_tls_connections(&port, [127, 0, 0, name], 256).await);
    }
    let began = std::time::Instant::now();
    assert_eq!(port.ask("GET", "/healthz", &caller).await.body, "ok");
    known.write_all(b"GET /healthz HTTP/1.1\r\nHost: node\r\n\r\n").await.unwrap();
    read_until(&mut known, b"\r\n\r\nok").await;
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[tokio::test]
async fn too_long_http2_head_is_rejected_and_the_port_continues() {
    let port = Port::open(Agent::default(), KubeletConfiguration::default()).await;
    let stream = port.connect(None, b"h2").await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let executor = hyper_util::rt::TokioExecutor::new();
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = http::Request::get("https://node/healthz").header("x", "x".repeat(100 << 10));
    let refused = sender.send_request(request.body(String::new()).unwrap()).await;
    assert!(refused.map_or(true, |answer| answer.status().as_u16() == 431));
    drop(sender);
    let _ = connection.await.unwrap();
    assert_eq!(port.get("/healthz").await.body, "ok");
}

/// As many connections as there are slots, all silent: the next client waits until they time out.
#[tokio::test(start_paused = true)]
async fn flood_of_silent_connections_blocks_the_port_no_longer_than_the_handshake_timeout() {
    let port = Port::open(Agent::default(), KubeletConfiguration::default()).await;
    let mut flood = Vec::new();
    for _ in 0..1024 {
        flood.push(TcpStream::connect(("127.0.0.1", port.port)).await.unwrap());
    }
    let began = tokio::time::Instant::now();
    assert_eq!(port.get("/healthz").await.body, "ok");
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    for mut silent in flood {
        assert_eq!(silent.read(&mut [0]).await.unwrap_or(0), 0, "it was left");
    }
}

const UPGRADE: &[u8] = b"POST /exec/ns/web/main?command=ls&output=1 HTTP/1.1\r\nHost: node\r\n\
                         Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n";

/// A runtime that accepts connections and never responds; reports how many it has.
async fn silent_runtime() -> (u16, watch::Receiver<usize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (count, counted) = watch::channel(0);
    let count = Arc::new(count);
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let count = Arc::clone(&count);
            count.send_modify(|count| *count += 1);
            tokio::spawn(async move {
                let _ = stream.read_to_end(&mut Vec::new()).await;
                count.send_modify(|count| *count -= 1);
            });
        }
    });
    (port, counted)
}

#[tokio::test(start_paused = true)]
async fn upgrade_without_a_response_of_the_runtime_times_out_with_an_error() {
    let (streaming, mut held) = silent_runtime().await;
    let port =
        Port::open(Agent { streaming: Some(streaming), ..Agent::default() }, KubeletConfiguration::default())
            .await;
    let mut stream = port.connect(None, b"http/1.1").await.unwrap();
    stream.write_all(UPGRADE).await.unwrap();
    let expected = "error dialing the streaming server: timed out waiting for its response\n";
    let mut answer = Vec::new();
    while !answer.ends_with(expected.as_bytes()) {
        answer.push(stream.read_u8().await.unwrap());
    }
    assert!(answer.starts_with(b"HTTP/1.1 500 "), "{}", String::from_utf8_lossy(&answer));
    held.wait_for(|count| *count == 0).await.unwrap();
}

/// Neither a pending nor a completed upgrade outlives its client.
#[tokio::test]
async fn client_that_disconnects_during_an_upgrade_leaves_no_connection_open() {
    let (streaming, mut held) = silent_runtime().await;
    let port =
        Port::open(Agent { streaming: Some(streaming), ..Agent::default() }, KubeletConfiguration::default())
            .await;
    let mut streams = Vec::new();
    for _ in 0..20 {
        let mut stream = port.connect(None, b"http/1.1").await.unwrap();
        stream.write_all(UPGRADE).await.unwrap();
        stream.flush().await.unwrap();
        streams.push(stream);
    }
    held.wait_for(|count| *count == 20).await.unwrap();
    drop(streams);
    held.wait_for(|count| *count == 0).await.unwrap();
}
