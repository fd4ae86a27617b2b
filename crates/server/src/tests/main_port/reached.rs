//! What reaches into a pod: its log, and streams that are passed on to the runtime.

use super::*;

async fn open(agent: Agent) -> Port {
    Port::open(agent, KubeletConfiguration::default()).await
}

fn logging() -> Agent {
    Agent { log: Some("one\ntwo\n".to_owned()), ..Agent::default() }
}

#[tokio::test]
async fn a_log_is_sent_in_pieces_as_the_query_wants_it() {
    let answer = open(logging()).await.get("/containerLogs/ns/web/main?tailLines=2&timestamps=true").await;
    assert_eq!((answer.status(), answer.header("content-type")), (200, Some("text/plain")));
    let (view, log) = answer.unchunked().split_once('\n').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert_eq!(log, "one\ntwo\n");
    assert!(view.contains("tail_lines: Some(2)") && view.contains("timestamps: true"), "{view}");
}

#[tokio::test]
async fn a_log_that_cannot_be_had_has_its_code() {
    let port = open(logging()).await;
    for (query, code, text) in [
        ("tailLines=x", 400, r#"{"message": "Unable to decode query."}"#),
        ("limitBytes=0", 422, r#"{"message": "Invalid request."}"#),
        ("previous=true", 400, "there was none before"),
    ] {
        port.get(&format!("/containerLogs/ns/web/main?{query}")).await.check(code, text);
    }
    port.ask("POST", "/containerLogs/ns/web/main", &Caller::default())
        .await
        .check(405, "405: Method Not Allowed\n");
    let port = open(Agent::default()).await;
    port.get("/containerLogs/ns/web/main").await.check(404, "pod \"web\" does not exist");
}

/// The log has nothing to say, so that no failed write tells that nobody reads any more.
#[tokio::test]
async fn a_follower_who_leaves_is_not_read_for_any_more() {
    let readers = watch::Sender::new(());
    let port = open(Agent { readers: Some(readers.clone()), ..Agent::default() }).await;
    let mut stream = port.connect(None, b"http/1.1").await.unwrap();
    let request = b"GET /containerLogs/ns/web/main?follow=true HTTP/1.1\r\nHost: node\r\n\r\n";
    stream.write_all(request).await.unwrap();
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 200 "));
    assert_eq!(readers.receiver_count(), 1);
    drop(stream);
    readers.closed().await;
}

#[tokio::test]
async fn a_stream_needs_an_upgrade_and_a_stream_to_be() {
    let port = open(Agent { streaming: Some(1), ..Agent::default() }).await;
    for path in
        ["/exec/ns/web/main?output=1&command=ls", "/attach/ns/web/uid/main?output=1", "/portForward/ns/web"]
    {
        port.get(path).await.check(400, "Upgrade request required\n");
        port.ask("POST", path, &Caller::default()).await.check(400, "Upgrade request required\n");
        port.ask("PUT", path, &Caller::default()).await.check(405, "405: Method Not Allowed\n");
    }
    let text = "you must specify at least 1 of stdin, stdout, stderr\n";
    port.get("/exec/ns/web/main?command=ls").await.check(400, text);
    port.get("/attach/ns/web/main").await.check(400, text);
}

#[tokio::test]
async fn run_answers_with_the_output() {
    let port = open(Agent::default()).await;
    let answer = port.ask("POST", "/run/ns/web/main?cmd=ls+-l", &Caller::default()).await;
    assert_eq!((answer.status(), answer.body.as_str()), (200, "main: [\"ls\", \"-l\"]"));
    let failed = port.ask("POST", "/run/ns/web/uid/main?cmd=false", &Caller::default()).await;
    assert_eq!((failed.status(), failed.body.as_str()), (500, "command 'false' exited with 1: "));
    assert_eq!(port.get("/run/ns/web/main?cmd=ls").await.status(), 405);
}

/// Everything up to the end of a head.
pub(super) async fn read_head(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

const AGREED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\
                      X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";

/// A streaming server for one connection, which goes on with `then` after the upgrade. Tells the head it got.
pub(super) async fn streaming<F>(
    answer: &'static str,
    then: impl FnOnce(TcpStream) -> F + Send + 'static,
) -> (u16, JoinHandle<String>)
where
    F: Future<Output = ()> + Send,
{
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let task = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = read_head(&mut stream).await;
        stream.write_all(answer.as_bytes()).await.unwrap();
        then(stream).await;
        head
    });
    (port, task)
}

async fn upgraded(port: &Port, path: &str) -> (TlsStream<TcpStream>, String) {
    let mut stream = port.connect(None, b"http/1.1").await.unwrap();
    let request = format!(
        "POST {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\nX-Stream-Protocol-Version: v3.channel.k8s.io\r\n\
         Authorization: Bearer secret\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let head = read_head(&mut stream).await;
    (stream, head)
}

#[tokio::test]
async fn an_upgrade_is_passed_on_with_its_protocols_and_without_our_secrets() {
    let (streaming, backend) = streaming(AGREED, async |mut stream| {
        // First the runtime speaks, then the client, then both have ended.
        stream.write_all(b"hello").await.unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        stream.write_all(&said).await.unwrap();
        stream.shutdown().await.unwrap();
    })
    .await;
    let port = open(Agent { streaming: Some(streaming), ..Agent::default() }).await;
    let (mut stream, head) =
        upgraded(&port, "/exec/ns/web/main?command=ls&command=-l&input=1&output=1").await;
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    assert!(
        head.contains("upgrade: spdy/3.1\r\n") && head.contains("x-stream-protocol-version: v4"),
        "{head}"
    );
    let mut greeting = [0; 5];
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"hello");
    stream.write_all(b"standard input").await.unwrap();
    // Half of the connection ends, and the other goes on.
    stream.shutdown().await.unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.unwrap();
    assert_eq!(said, b"standard input");
    let asked = backend.await.unwrap().to_ascii_lowercase();
    assert!(asked.starts_with("post /exec/ns/web/main/ls+-l/false http/1.1\r\n"), "{asked}");
    assert_eq!(asked.matches("x-stream-protocol-version:").count(), 2);
    assert!(!asked.contains("secret"), "{asked}");
}

#[tokio::test]
async fn what_nobody_takes_is_not_read_and_all_of_it_arrives_in_the_end() {
    const LONG: usize = 64 << 20;
    let sent = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let (streaming, backend) = streaming(AGREED, async move |mut stream| {
        let piece = vec![b'x'; 1 << 16];
        while counted.load(std::sync::atomic::Ordering::Relaxed) < LONG {
            stream.write_all(&piece).await.unwrap();
            counted.fetch_add(piece.len(), std::sync::atomic::Ordering::Relaxed);
        }
    })
    .await;
    let port = open(Agent { streaming: Some(streaming), ..Agent::default() }).await;
    let (mut stream, _) = upgraded(&port, "/attach/ns/web/main?output=1").await;
    let mut last = usize::MAX;
    // Until the runtime is stuck.
    loop {
        let now = sent.load(std::sync::atomic::Ordering::Relaxed);
        if now == last {
            break;
        }
        last = now;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(last < LONG, "only the buffers of the connections were filled: {last}");
    let mut all = Vec::new();
    stream.read_to_end(&mut all).await.unwrap();
    assert_eq!(all.len(), LONG);
    backend.await.unwrap();
}

#[tokio::test]
async fn an_answer_that_is_no_upgrade_is_passed_on() {
    let answer = "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\nexpired";
    let (streaming, _backend) = streaming(answer, async |stream| drop(stream)).await;
    let port = open(Agent { streaming: Some(streaming), ..Agent::default() }).await;
    let (mut stream, head) = upgraded(&port, "/portForward/ns/web").await;
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    let mut body = [0; 7];
    stream.read_exact(&mut body).await.unwrap();
    assert_eq!(&body, b"expired");
}

#[tokio::test]
async fn a_runtime_that_is_gone_and_a_container_that_does_not_run_are_clean_errors() {
    for (streaming, expected) in [
        (Some(1), "error dialing the streaming server: Connection refused"),
        (None, "container not found (\"main\")"),
    ] {
        let port = open(Agent { streaming, ..Agent::default() }).await;
        let (mut stream, head) = upgraded(&port, "/exec/ns/web/main?output=1&command=ls").await;
        assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
        let mut start = vec![0; expected.len()];
        stream.read_exact(&mut start).await.unwrap();
        assert_eq!(String::from_utf8(start).unwrap(), expected);
    }
}

#[tokio::test]
async fn a_runtime_that_breaks_off_ends_the_clients_stream() {
    let (streaming, _backend) = streaming(AGREED, async |stream| drop(stream)).await;
    let port = open(Agent { streaming: Some(streaming), ..Agent::default() }).await;
    let (mut stream, _) = upgraded(&port, "/exec/ns/web/main?output=1&command=ls").await;
    // With an end or with a reset, as the kernel likes it.
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn a_stream_in_which_nothing_moves_is_ended() {
    let (streaming, backend) = streaming(AGREED, async |mut stream| {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let config = KubeletConfiguration {
        streaming_connection_idle_timeout: config::GoDuration::from_secs(1),
        ..KubeletConfiguration::default()
    };
    let port = Port::open(Agent { streaming: Some(streaming), ..Agent::default() }, config).await;
    let (mut stream, _) = upgraded(&port, "/exec/ns/web/main?output=1&command=ls").await;
    let _ = stream.read_to_end(&mut Vec::new()).await;
    backend.await.unwrap();
}

#[tokio::test]
async fn a_port_told_to_stop_ends_its_streams() {
    let (streaming, _backend) = streaming(AGREED, async |mut stream| {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let mut port = open(Agent { streaming: Some(streaming), ..Agent::default() }).await;
    let (_stream, _) = upgraded(&port, "/exec/ns/web/main?output=1&command=ls").await;
    port.stop.take().unwrap().send(()).unwrap();
    (&mut port.task).await.unwrap();
}
