//! Container logs, and streams that are proxied to the runtime.

use super::*;

async fn open(agent: Agent) -> Port {
    Port::open(agent, KubeletConfiguration::default()).await
}

fn logging() -> Agent {
    Agent { log: Some("one\ntwo\n".to_owned()), ..Agent::default() }
}

#[tokio::test]
async fn container_log_is_sent_chunked_with_the_options_of_the_query() {
    let answer = open(logging()).await.get("/containerLogs/ns/web/main?tailLines=2&timestamps=true").await;
    assert_eq!((answer.status(), answer.header("content-type")), (200, Some("text/plain")));
    let (view, log) = answer.unchunked().split_once('\n').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    assert_eq!(log, "one\ntwo\n");
    assert!(view.contains("tail_lines: Some(2)") && view.contains("timestamps: true"), "{view}");
}

#[tokio::test]
async fn container_log_errors_have_their_status_codes() {
    let port = open(logging()).await;
    for (query, code, text) in [
        ("tailLines=x", 400, r#"{"message": "Unable to decode query."}"#),
        ("limitBytes=0", 422, r#"{"message": "Invalid request."}"#),
        ("previous=true", 400, "no previous container"),
    ] {
        port.get(&format!("/containerLogs/ns/web/main?{query}")).await.check(code, text);
    }
    port.ask("POST", "/containerLogs/ns/web/main", &Caller::default())
        .await
        .check(405, "405: Method Not Allowed\n");
    let port = open(Agent::default()).await;
    port.get("/containerLogs/ns/web/main").await.check(404, "pod \"web\" does not exist");
}

/// The log is empty, so that no failed write reveals the disconnect.
#[tokio::test]
async fn log_stream_ends_when_its_follower_disconnects() {
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
async fn streaming_requests_need_an_upgrade_and_at_least_one_stream() {
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
async fn run_responds_with_the_output() {
    let port = open(Agent::default()).await;
    let answer = port.ask("POST", "/run/ns/web/main?cmd=ls+-l", &Caller::default()).await;
    assert_eq!((answer.status(), answer.body.as_str()), (200, "main: [\"ls\", \"-l\"]"));
    let failed = port.ask("POST", "/run/ns/web/uid/main?cmd=false", &Caller::default()).await;
    assert_eq!((failed.status(), failed.body.as_str()), (500, "command 'false' exited with 1: "));
    assert_eq!(port.get("/run/ns/web/main?cmd=ls").await.status(), 405);
}

/// `curl --data cmd=ls`, as in the documentation of the Go kubelet.
#[tokio::test]
async fn run_takes_the_command_from_a_form() {
    let port = open(Agent::default()).await;
    let send = async |query: &str, content_type: &str, form: &str| {
        let mut stream = port.connect(None, b"http/1.1").await.unwrap();
        let request = format!(
            "POST /run/ns/web/main{query} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\
             Content-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{form}",
            form.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].to_owned(), body.to_owned())
    };
    let ok = |command: &str| ("200".to_owned(), format!("main: {command}"));
    let form = "application/x-www-form-urlencoded";
    assert_eq!(send("", form, "cmd=ls+-l&x=y").await, ok(r#"["ls", "-l"]"#));
    assert_eq!(
        send("?cmd=df", "Application/X-WWW-Form-URLencoded; charset=utf-8", "cmd=ls").await,
        ok(r#"["ls"]"#)
    );
    assert_eq!(send("?cmd=df", form, "x=y").await, ok(r#"["df"]"#));
    assert_eq!(send("?cmd=df", "text/plain", "cmd=ls").await, ok(r#"["df"]"#));
    let (status, body) = send("", form, &format!("cmd={}", "x".repeat(64 << 10))).await;
    assert_eq!(
        (status.as_str(), body.as_str()),
        ("413", "the form in the body is incomplete or larger than 64 KiB\n")
    );
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

/// A streaming server for one connection, which continues with `then` after the upgrade. Returns the received head.
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
async fn upgrade_is_proxied_with_its_protocols_and_without_credentials() {
    let (streaming, backend) = streaming(AGREED, async |mut stream| {
        // First the runtime sends, then the client, then both close.
        stream.write_all(b"hello").await.unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.unwrap();
        stream.write_all(&received).await.unwrap();
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
    // One direction closes, and the other continues.
    stream.shutdown().await.unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).await.unwrap();
    assert_eq!(received, b"standard input");
    let requested = backend.await.unwrap().to_ascii_lowercase();
    assert!(requested.starts_with("post /exec/ns/web/main/ls+-l/false http/1.1\r\n"), "{requested}");
    assert_eq!(requested.matches("x-stream-protocol-version:").count(), 2);
    assert!(!requested.contains("secret"), "{requested}");
}

#[tokio::test]
async fn slow_reader_causes_backpressure_and_loses_no_data() {
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
    // Until the runtime is blocked.
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
async fn response_without_an_upgrade_is_passed_on() {
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
async fn unreachable_runtime_and_container_that_does_not_run_are_reported() {
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
async fn aborted_runtime_connection_ends_the_client_stream() {
    let (streaming, _backend) = streaming(AGREED, async |stream| drop(stream)).await;
    let port = open(Agent { streaming: Some(streaming), ..Agent::default() }).await;
    let (mut stream, _) = upgraded(&port, "/exec/ns/web/main?output=1&command=ls").await;
    // The kernel may close it with a FIN or a reset.
    let _ = stream.read_to_end(&mut Vec::new()).await;
}

#[tokio::test]
async fn idle_stream_is_closed() {
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
async fn shutdown_of_the_main_port_ends_its_streams() {
    let (streaming, _backend) = streaming(AGREED, async |mut stream| {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let mut port = open(Agent { streaming: Some(streaming), ..Agent::default() }).await;
    let (_stream, _) = upgraded(&port, "/exec/ns/web/main?output=1&command=ls").await;
    port.stop.take().unwrap().send(()).unwrap();
    (&mut port.task).await.unwrap();
}
