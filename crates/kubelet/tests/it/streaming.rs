//! Streams through the main port of a standalone node: many at once, idle ones, and ones whose runtime dies.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use fixtures::reduced;
use serde_json::json;

use crate::node::{FOREVER, Node, shell_pod};
use crate::server::{Stream, connect, request};

/// A WebSocket to a command in the pod `web`, as old clients use it: each message begins with its channel.
pub(crate) struct Socket(Stream);

const STATUS_CHANNEL: u8 = 3;

impl Socket {
    /// The error is the head and the body of the response.
    pub(crate) fn exec(node: &Node, script: &str, streams: &str) -> Result<Self, String> {
        Self::speaking("v4.channel.k8s.io", node, script, streams)
    }

    fn speaking(protocol: &str, node: &Node, script: &str, streams: &str) -> Result<Self, String> {
        let mut stream = connect(node, &node.path("pki/kubelet.crt"), None)?;
        let script = script
            .replace('%', "%25")
            .replace(' ', "+")
            .replace('&', "%26")
            .replace(';', "%3b")
            .replace('>', "%3e");
        let request = format!(
            "GET /exec/default/web-node/main?command=sh&command=-c&command={script}&{streams} HTTP/1.1\r\n\
             Host: node\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: {protocol}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).map_err(|error| error.to_string())?;
            head.extend(byte);
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        if head.starts_with("HTTP/1.1 101 ") { Ok(Self(stream)) } else { Err(head) }
    }

    /// The channel and payload of the next message; `None` at the end of the stream, for whatever reason.
    fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            let mut start = [0; 2];
            self.0.read_exact(&mut start).ok()?;
            let mut length = u64::from(start[1] & 0x7f);
            if length >= 126 {
                let mut long = [0; 8];
                let from = if length == 126 { 6 } else { 0 };
                self.0.read_exact(&mut long[from..]).ok()?;
                length = u64::from_be_bytes(long);
            }
            let mut content = vec![0; usize::try_from(length).expect("a length")];
            self.0.read_exact(&mut content).ok()?;
            match (start[0] & 0x0f, content.is_empty()) {
                (8, _) => return None,
                (1 | 2, false) => {
                    let channel = content.remove(0);
                    // A message that opens a channel has no payload.
                    if !content.is_empty() {
                        return Some((channel, content));
                    }
                }
                _ => {}
            }
        }
    }

    /// Sends to the command's standard input: a binary message on channel 0, masked with zeros.
    fn write_stdin(&mut self, content: &[u8]) -> std::io::Result<()> {
        let length = u16::try_from(content.len() + 1).expect("a short message").to_be_bytes();
        self.0.write_all(&[0x82, 0xfe, length[0], length[1], 0, 0, 0, 0, 0])?;
        self.0.write_all(content)?;
        self.0.flush()
    }

    /// Closes the command's standard input, which only the newest protocol can.
    fn close_stdin(&mut self) -> std::io::Result<()> {
        self.0.write_all(&[0x82, 0x82, 0, 0, 0, 0, 255, 0])?;
        self.0.flush()
    }

    /// The number of output bytes, and the last message.
    pub(crate) fn count(mut self) -> (usize, String) {
        let mut bytes = 0;
        while let Some((channel, content)) = self.next() {
            if channel == STATUS_CHANNEL {
                return (bytes, String::from_utf8_lossy(&content).into_owned());
            }
            bytes += content.len();
        }
        (bytes, "no outcome".to_owned())
    }

    fn text(mut self) -> String {
        let mut text = String::new();
        while let Some((channel, content)) = self.next() {
            if channel == STATUS_CHANNEL {
                break;
            }
            text.push_str(&String::from_utf8_lossy(&content));
        }
        text
    }
}

fn with_web(extra: serde_json::Value) -> Node {
    let node = Node::start_with(extra);
    node.apply("web", &shell_pod("web", FOREVER));
    node.running("web");
    node
}

/// A memory value of the kubelet's `/proc/…/status`, in KiB.
pub(crate) fn memory(node: &Node, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.kubelet_pid())).expect("its status");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the value");
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
}

/// The TCP connections that the kubelet holds.
fn connections(node: &Node) -> BTreeSet<String> {
    let fds = format!("/proc/{}/fd", node.kubelet_pid());
    let held: BTreeSet<String> = crate::node::names_in(std::path::Path::new(&fds))
        .iter()
        .filter_map(|fd| std::fs::read_link(format!("{fds}/{fd}")).ok())
        .map(|target| {
            target.to_string_lossy().trim_start_matches("socket:[").trim_end_matches(']').to_owned()
        })
        .collect();
    let mut found = BTreeSet::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in std::fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_listening = fields.get(3) == Some(&"0A");
            if let Some(inode) = fields.get(9).filter(|inode| held.contains(**inode) && !is_listening) {
                found.insert(format!("{} {} {inode}", fields[1], fields[2]));
            }
        }
    }
    found
}

/// Half of the streams carry the output of a command, half an input, all of them concurrently and faster than they are read.
#[test]
fn fifty_concurrent_exec_streams_move_a_gibibyte_in_constant_memory() {
    const STREAMS: usize = 50;
    const MAX_GROWTH_KIB: u64 = 16 << 10;
    let each = reduced(1 << 30) / STREAMS + 1;
    let node = with_web(json!({}));
    // Memory that the first stream allocates stays allocated.
    assert_eq!(Socket::exec(&node, "echo warm", "output=1").expect("a stream").text(), "warm\n");
    let before = memory(&node, "VmRSS");
    // The peak is measured from here on.
    std::fs::write(format!("/proc/{}/clear_refs", node.kubelet_pid()), "5").expect("the peak is reset");
    let down = |stream: Socket| {
        let (bytes, outcome) = stream.count();
        assert!(outcome.contains("Success"), "{outcome}");
        bytes
    };
    let up = |mut stream: Socket| {
        let piece = vec![b'x'; 32 << 10];
        let mut left = each;
        while left > 0 {
            let length = left.min(piece.len());
            stream.write_stdin(&piece[..length]).expect("taken");
            left -= length;
        }
        stream.text().trim().parse::<usize>().expect("a count")
    };
    // One after another: while a slow machine moves data, a further handshake can take longer than the kubelet allows.
    let streams: Vec<Socket> = (0..STREAMS)
        .map(|number| {
            let (script, streams) = match number % 2 {
                0 => (format!("head -c {each} /dev/zero"), "output=1"),
                _ => (format!("head -c {each} | wc -c"), "input=1&output=1"),
            };
            Socket::exec(&node, &script, streams).expect("a stream")
        })
        .collect();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let moved: Vec<_> = streams
            .into_iter()
            .enumerate()
            .map(|(number, stream)| {
                scope.spawn(move || if number % 2 == 0 { down(stream) } else { up(stream) })
            })
            .collect();
        for bytes in moved {
            assert_eq!(bytes.join().expect("it succeeds"), each);
        }
    });
    let growth = memory(&node, "VmHWM").saturating_sub(before);
    eprintln!(
        "{STREAMS} times {each} bytes in {:.1?}; from {before} KiB, {growth} KiB more at the peak",
        began.elapsed()
    );
    assert!(growth < MAX_GROWTH_KIB, "{growth} KiB more than the {before} before");
}

/// Works with any WebSocket protocol of the runtime.
#[test]
fn exec_over_websocket_v5_closes_stdin_and_returns_the_exit_code() {
    let node = with_web(json!({}));
    let newest = |script: &str, streams: &str| Socket::speaking("v5.channel.k8s.io", &node, script, streams);
    let mut stream =
        newest("cat; echo end; echo err >&2; exit 3", "input=1&output=1&error=1").expect("a stream");
    stream.write_stdin(b"line\n").expect("taken");
    stream.close_stdin().expect("taken");
    let mut output = [String::new(), String::new(), String::new(), String::new()];
    while let Some((channel, content)) = stream.next() {
        output[usize::from(channel)].push_str(&String::from_utf8_lossy(&content));
    }
    assert_eq!((output[1].as_str(), output[2].as_str()), ("line\nend\n", "err\n"));
    assert!(
        output[STATUS_CHANNEL as usize].contains(r#"{"reason":"ExitCode","message":"3"}"#),
        "{}",
        output[3]
    );
    let bytes = newest("head -c 50000000 /dev/zero", "output=1").expect("a stream").count();
    assert_eq!(bytes.0, 50_000_000, "{}", bytes.1);
    let counted = node.eventually("both requests have ended", |node| {
        let metrics = node.get("/metrics")?;
        let now = "kubelet_http_inflight_requests{long_running=\"true\",method=\"GET\",path=\"exec\",server_type=\"readwrite\"} 0\n";
        if metrics.contains(now) { Ok(metrics) } else { Err(metrics) }
    });
    assert!(
        counted.contains("kubelet_websocket_streaming_requests_total{subresource=\"exec\"} 2\n"),
        "{counted}"
    );
}

/// From now on the node's runtime serves its streams over TLS.
fn serve_streams_over_tls(node: &mut Node) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    std::fs::write(node.path("streams.crt"), certificate).expect("it is written");
    std::fs::write(node.path("streams.key"), key.serialize_pem()).expect("it is written");
    let file = node.path("containerd/containerd.toml");
    let config = std::fs::read_to_string(&file).expect("its configuration");
    let port = "  stream_server_port = \"0\"\n";
    assert!(config.contains(port), "{config}");
    let files = format!(
        "\n[plugins.\"io.containerd.grpc.v1.cri\".x509_key_pair_streaming]\n  tls_cert_file = {:?}\n  tls_key_file = {:?}\n",
        node.path("streams.crt"),
        node.path("streams.key"),
    );
    let config = config.replace(port, &format!("{port}  enable_tls_streaming = true\n")) + &files;
    std::fs::write(&file, config).expect("it is written");
    node.kill_runtime();
    node.resume_runtime();
}

#[test]
fn streaming_server_of_the_runtime_with_tls_needs_a_trusted_certificate() {
    let mut node = with_web(json!({}));
    serve_streams_over_tls(&mut node);
    let refused =
        node.eventually("the runtime is back", |node| match Socket::exec(node, "cat", "input=1&output=1") {
            Err(refused) if refused.contains("500 ") => Ok(refused),
            Err(other) => Err(other),
            Ok(_) => Err("an untrusted client was accepted".to_owned()),
        });
    assert!(refused.starts_with("HTTP/1.1 500 "), "{refused}");
    node.wait_for_log("UnknownIssuer");
    std::fs::copy(node.path("streams.crt"), node.path("authorities.pem")).expect("it is trusted");
    node.restart_kubelet();
    node.running("web");
    let newest = |script: &str, streams: &str| Socket::speaking("v5.channel.k8s.io", &node, script, streams);
    let mut stream = newest("cat; echo end; exit 3", "input=1&output=1&error=1").expect("a stream");
    stream.write_stdin(b"line\n").expect("taken");
    // The output so far is read to its end, and the rest still arrives.
    stream.close_stdin().expect("taken");
    let mut output: std::collections::BTreeMap<_, String> = std::collections::BTreeMap::new();
    while let Some((channel, content)) = stream.next() {
        output.entry(channel).or_default().push_str(&String::from_utf8_lossy(&content));
    }
    assert_eq!(output.get(&1).map(String::as_str), Some("line\nend\n"), "{output:?}");
    let status = output.get(&3).expect("how it ended");
    assert!(status.contains(r#"{"reason":"ExitCode","message":"3"}"#), "{status}");
    let bytes = newest("head -c 50000000 /dev/zero", "output=1").expect("a stream").count();
    assert_eq!(bytes.0, 50_000_000, "{}", bytes.1);
}

#[test]
fn runtime_exit_ends_streams_and_leaks_no_connection() {
    let mut node = with_web(json!({}));
    let before = connections(&node);
    let mut open: Vec<Socket> = Vec::new();
    for number in 0..6 {
        // Some streams carry data all the time, some are idle.
        let script = if number % 2 == 0 { "yes" } else { "echo y; cat" };
        open.push(Socket::exec(&node, script, "input=1&output=1").expect("a stream"));
    }
    for stream in &mut open {
        let (channel, content) = stream.next().expect("it talks");
        assert_eq!((channel, content.first()), (1, Some(&b'y')));
    }
    assert!(connections(&node).len() >= before.len() + 12, "each has a client and a runtime");
    node.kill_runtime();
    for mut stream in open {
        let began = Instant::now();
        while stream.next().is_some() {}
        assert!(began.elapsed() < Duration::from_secs(60), "it ended because it was read for too long");
    }
    node.eventually("none of their connections is left", |node| {
        let left: Vec<_> = connections(node).difference(&before).cloned().collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?}")) }
    });
    let refused = Socket::exec(&node, "echo hello", "output=1").err().expect("there is no runtime");
    assert!(refused.starts_with("HTTP/1.1 500 "), "{refused}");
    node.resume_runtime();
    node.eventually("streams work again", |node| {
        let output = Socket::exec(node, "echo hello", "output=1")?.text();
        if output == "hello\n" { Ok(()) } else { Err(output) }
    });
}

#[test]
fn streaming_connection_idle_timeout_ends_only_idle_streams() {
    let node = with_web(json!({"streamingConnectionIdleTimeout": "8s"}));
    std::thread::scope(|scope| {
        let still = scope.spawn(|| {
            let stream = Socket::exec(&node, "cat", "input=1&output=1").expect("a stream");
            let began = Instant::now();
            (stream.count().0, began.elapsed())
        });
        let moving = "for n in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $n; sleep 1; done";
        let moving = Socket::exec(&node, moving, "output=1").expect("a stream");
        assert_eq!(moving.count(), (27, r#"{"metadata":{},"status":"Success"}"#.to_owned()));
        let (bytes, took) = still.join().expect("it ends");
        assert_eq!(bytes, 0);
        assert!(took >= Duration::from_secs(7) && took < Duration::from_secs(60), "{took:?}");
    });
    node.wait_for_log("Closed idle stream");
}

#[test]
fn exec_route_with_a_uid_reaches_only_the_pod_of_that_uid() {
    let node = with_web(json!({}));
    let uid = crate::node::uid(&node.pod("web").expect("the pod"));
    let run = |uid: &str| {
        let stream = connect(&node, &node.path("pki/kubelet.crt"), None).expect("a connection");
        let path = format!("/run/default/web-node/{uid}/main?cmd=echo+hello");
        request(stream, "POST", &path).expect("an answer")
    };
    assert_eq!(run(&uid).body, "hello\n");
    let refused = run("other");
    assert_eq!(
        (refused.status, refused.body.as_str()),
        (404, "pod \"web-node\" with UID \"other\" does not exist")
    );
}
