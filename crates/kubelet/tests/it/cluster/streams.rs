//! `kubectl exec`, `attach`, `cp` and `port-forward`: from an unmodified kubectl through the API server and the kubelet to
//! the runtime's streaming server and back.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::{Value, json};

use crate::node::{FOREVER, container, once_pod, shell_pod};

use super::kubectl::Kubectl;
use super::{Cluster, bound};

/// A cluster with a running pod `web`.
fn with_web() -> Cluster {
    let cluster = Cluster::with_authorization(json!({}));
    cluster.kubectl.apply(&[bound(shell_pod("web", FOREVER))]);
    cluster.running("web");
    cluster
}

#[test]
fn kubectl_exec_forwards_stdin_stdout_stderr_and_exit_code() {
    let cluster = with_web();
    let script = "echo out; echo err >&2; exit 3";
    let output = cluster.kubectl.run(&["exec", "web", "--", "sh", "-c", script], "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "out\n");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(complaint.starts_with("err\n") && complaint.contains("exit code 3"), "{complaint}");
    assert_eq!(output.status.code(), Some(3));

    // More than any buffer on the way holds, and the end of the input reaches the command.
    let input: String = (0..200_000).map(|number| format!("line {number}\n")).collect();
    let output =
        cluster.kubectl.run_with_input(&["exec", "-i", "web", "--", "sh", "-c", "cat; echo the end"], &input);
    assert!(output == format!("{input}the end\n"), "{} of {} bytes came back", output.len(), input.len());

    let output = cluster.kubectl.run(&["exec", "web", "--", "/no/such/program"], "");
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && complaint.contains("/no/such/program"), "{complaint}");
    // No process of them is left in the container.
    let left = cluster.kubectl.ok(&["exec", "web", "--", "sh", "-c", "pgrep -fl 'the [e]nd' || true"]);
    assert_eq!(left, "");
}

/// A terminal with a simulated user: a pair of ends, one of which is the controlling terminal of a program.
struct Terminal {
    controller: File,
    terminal_end: OwnedFd,
}

impl Terminal {
    fn open() -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&controller).expect("it is ours");
        unlockpt(&controller).expect("it can be opened");
        let name = ptsname(&controller, Vec::new()).expect("it has a name").into_string().expect("text");
        let terminal_end = File::options().read(true).write(true).open(name).expect("its other end");
        Self { controller: controller.into(), terminal_end: terminal_end.into() }
    }

    fn resize(&self, rows: u16, columns: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.terminal_end, size).expect("the size is set");
    }

    fn stdio(&self) -> Stdio {
        self.terminal_end.try_clone().expect("another handle").into()
    }

    fn type_line(&mut self, line: &str) {
        self.controller.write_all(format!("{line}\n").as_bytes()).expect("typed");
    }

    /// Reads until the text has been shown; returns everything shown up to there.
    #[track_caller]
    fn read_until(&mut self, text: &str) -> String {
        let mut shown = Vec::new();
        while !String::from_utf8_lossy(&shown).contains(text) {
            let mut piece = [0; 1024];
            let length = self.controller.read(&mut piece).unwrap_or_default();
            assert!(length > 0, "{text:?} is not in {:?}", String::from_utf8_lossy(&shown));
            shown.extend_from_slice(&piece[..length]);
        }
        String::from_utf8_lossy(&shown).into_owned()
    }
}

#[test]
fn kubectl_exec_tty_follows_resizes_and_returns_the_exit_code() {
    let cluster = with_web();
    let mut terminal = Terminal::open();
    terminal.resize(40, 100);
    // The resize signal goes to the program whose controlling terminal it is.
    let mut setsid = Command::new("setsid");
    setsid.args(["--ctty", "--wait"]).arg(Kubectl::binary());
    let mut command = cluster.kubectl.within(setsid, &["exec", "-it", "web", "--", "sh"]);
    command.stdin(terminal.stdio()).stdout(terminal.stdio()).stderr(terminal.stdio());
    let mut child = command.spawn().expect("setsid (Debian: util-linux) runs kubectl");
    // Typed text is echoed too, so the expected text must not be part of it.
    terminal.type_line("tty && echo is $((20 + 3)) a terminal");
    let shown = terminal.read_until("is 23 a terminal");
    assert!(shown.contains("/dev/pts/"), "{shown}");
    terminal.type_line("until stty size | grep -q '^40 100$'; do sleep 0.1; done; echo at $((40 + 2))");
    terminal.read_until("at 42");
    terminal.resize(50, 120);
    terminal.type_line("until stty size | grep -q '^50 120$'; do sleep 0.1; done; echo at $((50 + 2))");
    terminal.read_until("at 52");
    terminal.type_line("exit 5");
    terminal.read_until("exit code 5");
    assert_eq!(child.wait().expect("kubectl ends").code(), Some(5));
}

#[test]
fn kubectl_attach_connects_to_the_container_process() {
    let cluster = Cluster::with_authorization(json!({}));
    let mut pod =
        bound(once_pod("echo", "while read -r line; do echo got $line; done; echo heard all; exit 4"));
    let main = &mut pod["spec"]["containers"][0];
    (main["stdin"], main["stdinOnce"]) = (true.into(), true.into());
    cluster.kubectl.apply(&[pod]);
    cluster.running("echo");
    let output = cluster.kubectl.run_with_input(&["attach", "-i", "echo"], "one\ntwo\n");
    assert!(output.contains("got one\ngot two\nheard all\n"), "{output}");
    let pod = cluster.pod_when("echo", "has ended", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(container(&pod, "main")["state"]["terminated"]["exitCode"], 4);
    assert_eq!(cluster.kubectl.ok(&["logs", "echo"]), "got one\ngot two\nheard all\n");
}

/// Creates a tree of 100 MiB of incompressible data: a few long files, and many short ones.
fn make_tree(dir: &Path) {
    let mut random = File::open("/dev/urandom").expect("random bytes");
    let mut write = |name: &str, length: usize| {
        let path = dir.join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        let mut content = vec![0; length];
        random.read_exact(&mut content).expect("bytes");
        std::fs::write(path, content).expect("a file");
    };
    for number in 0..9 {
        write(&format!("long/{number}"), 10 << 20);
    }
    for number in 0..1000 {
        write(&format!("short/{}/{number}", number % 10), 10 << 10);
    }
    write("one", 250 << 10);
}

/// The checksums of all files below the directory, by path.
fn tree(dir: &Path) -> BTreeMap<String, String> {
    let sums = Command::new("sh")
        .args(["-c", "find . -type f -print0 | xargs -0 sha256sum"])
        .current_dir(dir)
        .output()
        .expect("sha256sum runs");
    let text = String::from_utf8_lossy(&sums.stdout).into_owned();
    let pair = |line: &str| line.split_once("  ").map(|(sum, path)| (path.to_owned(), sum.to_owned()));
    text.lines().filter_map(pair).collect()
}

#[test]
fn kubectl_cp_copies_100_mib_in_both_directions_unchanged() {
    let cluster = with_web();
    let (here, back) = (cluster.node.path("tree"), cluster.node.path("back"));
    make_tree(&here);
    let text = |path: &Path| path.to_str().expect("a path").to_owned();
    cluster.kubectl.ok(&["cp", &text(&here), "web:/tree"]);
    cluster.kubectl.ok(&["cp", "web:/tree", &text(&back)]);
    let sent = tree(&here);
    assert_eq!(sent.len(), 1010);
    assert!(sent == tree(&back), "the trees differ");
}

/// A pod that serves a page of 64 KiB.
fn server(cluster: &Cluster) -> Value {
    let script =
        "mkdir /www; head -c 65536 /dev/zero | tr '\\0' x > /www/page; exec httpd -f -p 8080 -h /www";
    let mut pod = bound(shell_pod("server", script));
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/page", "port": 8080}, "periodSeconds": 1});
    cluster.kubectl.apply(&[pod]);
    cluster.running("server")
}

/// Requests the page over a connection; returns its length.
fn page(stream: &mut TcpStream) -> Result<usize, String> {
    let text = |error: std::io::Error| error.to_string();
    stream.write_all(b"GET /page HTTP/1.0\r\nHost: server\r\n\r\n").map_err(text)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(text)?;
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n").ok_or("no head")? + 4;
    Ok(answer[body..].iter().filter(|byte| **byte == b'x').count())
}

#[test]
fn kubectl_port_forward_serves_100_concurrent_connections() {
    const CONNECTIONS: usize = 100;
    let cluster = Cluster::with_authorization(json!({}));
    server(&cluster);
    let mut kubectl = cluster.kubectl.start(&["port-forward", "server", ":8080"]);
    let mut lines = BufReader::new(kubectl.stdout.take().expect("its output")).lines();
    let line = lines.next().expect("a line").expect("a line");
    let port = line.split([':', ' ']).find_map(|part| part.parse::<u16>().ok());
    let port = port.unwrap_or_else(|| panic!("no port in {line:?}"));
    // Its output is read continuously, so that kubectl does not block on its line for each connection.
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
    let (open, whole) = (Barrier::new(CONNECTIONS), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
                open.wait();
                assert_eq!(page(&mut stream).expect("a page"), 65536);
                whole.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(whole.load(Ordering::Relaxed), CONNECTIONS as u64);
    crate::node::signal(kubectl.id(), "TERM");
    kubectl.wait().expect("kubectl ends");
    let rest = rest.join().expect("its message");
    assert!(rest.iter().filter(|line| line.starts_with("Handling connection")).count() >= CONNECTIONS);
}
