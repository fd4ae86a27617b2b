//! The kubelet as a service of the node: its log, its lock file, systemd, and its configuration errors.

use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use fakes::FakeRuntime;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, free_port, shell_pod, signal};

/// A kubelet with this node's configuration that runs next to or instead of the node's own.
struct Second {
    child: Child,
    log: std::path::PathBuf,
}

impl Second {
    fn start(node: &Node, edit: impl FnOnce(&mut Command)) -> Self {
        let log = node.path("second.log");
        let mut command = node.kubelet_command();
        edit(&mut command);
        let file = std::fs::File::create(&log).expect("a log file");
        let output = std::fs::File::create(node.path("second.stdout")).expect("a file for its output");
        let child = command.stdin(Stdio::null()).stdout(output).stderr(file).spawn();
        Self { child: child.expect("the kubelet starts"), log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    #[track_caller]
    fn logs(&self, node: &Node, text: &str) {
        node.eventually(&format!("it logs {text:?}"), |_| {
            let log = self.log();
            if log.contains(text) { Ok(()) } else { Err(log) }
        });
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn json_logging_format_writes_one_object_per_line() {
    let node = Node::start_with(json!({"logging": {"format": "json"}}));
    node.apply("web", &shell_pod("web", "exit 1"));
    node.pod_when("web", "has crashed", |pod| crate::node::restarts(pod, "main") >= 1);
    let log = node.kubelet_log();
    assert!(log.lines().count() > 10);
    for line in log.lines() {
        let entry: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(entry["ts"].is_number() && entry["msg"].is_string() && entry["caller"].is_string(), "{line}");
    }
    let started = |line: &&str| line.contains("Container started");
    let line = log.lines().find(started).expect("an event in the log");
    let entry: Value = serde_json::from_str(line).expect("JSON");
    assert!(entry.to_string().contains("web-node"), "{entry}");
}

#[test]
fn verbosity_flag_sets_the_log_level() {
    let mut node = Node::start();
    node.kill_kubelet();
    let line_count = |flags: &[&str], pod: &str| {
        let second = Second::start(&node, |command| {
            command.args(flags);
        });
        second.logs(&node, "Kubelet version");
        node.eventually("it serves", |node| node.get("/pods"));
        // Logged at -v 4 by every start.
        node.apply(pod, &shell_pod(pod, FOREVER));
        node.running(pod);
        let log = second.log();
        drop(second);
        log.matches("Next step").count()
    };
    assert_eq!(line_count(&["-v", "0"], "quiet"), 0);
    assert!(line_count(&["-v", "4"], "loud") > 0);
    assert_eq!(line_count(&["-v", "0", "--vmodule", "images=4"], "elsewhere"), 0);
    assert!(line_count(&["-v", "0", "--vmodule", "images=2,work*=4"], "here") > 0);
}

#[test]
fn split_stream_writes_errors_to_stderr_and_other_lines_to_stdout() {
    let mut node = Node::start();
    node.kill_kubelet();
    let second = Second::start(&node, |command| {
        command.args(["--feature-gates=LoggingAlphaOptions=true", "--log-text-split-stream"]);
    });
    node.eventually("it serves", |node| node.get("/pods"));
    node.apply("bad", &json!({"kind": "Pod"}));
    second.logs(&node, "bad");
    let (errors, others) =
        (second.log(), std::fs::read_to_string(node.path("second.stdout")).expect("its output"));
    assert!(
        others.contains("Kubelet version") && others.lines().all(|line| line.starts_with('I')),
        "{others}"
    );
    assert!(errors.lines().all(|line| !line.starts_with('I')), "{errors}");
}

#[test]
fn lock_file_makes_a_second_kubelet_wait_and_exit_on_lock_contention_stops_the_first() {
    let mut node = Node::start();
    node.kill_kubelet();
    let lock = node.path("kubelet.lock");
    let with_lock = |command: &mut Command| {
        command.arg("--lock-file").arg(&lock);
    };
    let mut first = Second::start(&node, |command| {
        with_lock(command);
        command.arg("--exit-on-lock-contention");
    });
    node.eventually("the first serves", |node| node.get("/pods"));
    let mut second = node.kubelet_command();
    with_lock(&mut second);
    let log = std::fs::File::create(node.path("waiting.log")).expect("a log");
    let mut second =
        second.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("it starts");
    let first_end = first.child.wait().expect("the first ends");
    assert_eq!(first_end.code(), Some(0), "{}", first.log());
    node.eventually("the second one serves now", |node| node.get("/pods"));
    // A third kubelet finds the lock held by one that does not exit on contention; it waits, and exits on SIGTERM.
    let mut third = Second::start(&node, with_lock);
    third.logs(&node, "Acquiring file lock");
    signal(third.child.id(), "TERM");
    assert_eq!(third.child.wait().expect("the third ends").code(), Some(0));
    assert!(
        second.try_wait().expect("the state of the second one").is_none(),
        "the second one keeps running"
    );
    second.kill().expect("killed");
    second.wait().expect("gone");
}

#[test]
fn systemd_gets_ready_and_watchdog_notifications() {
    let mut node = Node::start();
    node.kill_kubelet();
    let path = node.path("notify.sock");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(fixtures::stretched(Duration::from_secs(60)))).expect("a timeout");
    let _kubelet = Second::start(&node, |command| {
        command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "2000000").env_remove("WATCHDOG_PID");
    });
    let next = || {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).expect("a message");
        String::from_utf8_lossy(&buffer[..length]).trim().to_owned()
    };
    assert_eq!([next(), next(), next()], ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);
}

#[test]
fn unknown_or_unsupported_configuration_fields_are_logged_once() {
    let node = Node::start_with(json!({
        "noSuchField": 1, "enableContentionProfiling": true, "contentType": "application/json",
    }));
    let log = node.kubelet_log();
    let naming = |text: &str| log.lines().filter(|line| line.starts_with('W') && line.contains(text)).count();
    assert_eq!(naming("noSuchField"), 1, "{log}");
    assert_eq!(naming("enableContentionProfiling"), 1, "{log}");
    assert_eq!(naming("contentType"), 1, "{log}");
    let not_yet = log.lines().find(|line| line.contains("enableContentionProfiling")).expect("the line");
    assert!(not_yet.contains("contentType"), "all in one warning: {not_yet}");
}

#[test]
fn configuration_errors_are_reported_together_and_nothing_starts() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("kubelet.json");
    let text = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
        "maxPods": -1, "healthzPort": 70000, "containerLogMaxFiles": 1, "registryPullQPS": -3,
    });
    std::fs::write(&config, text.to_string()).expect("written");
    let mut kubelet = Command::new(env!("CARGO_BIN_EXE_kubelet"));
    kubelet.arg("--config").arg(&config).arg("--root-dir").arg(dir.path().join("root"));
    let output = kubelet.stdin(Stdio::null()).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    for field in ["maxPods", "healthzPort", "containerLogMaxFiles", "registryPullQPS"] {
        assert!(errors.contains(field), "{field} is not named: {errors}");
    }
    assert!(!dir.path().join("root").exists());
}

#[test]
fn kubelet_sets_its_oom_score_adj_and_max_open_files() {
    let node = Node::start_with(json!({"maxOpenFiles": 4321, "oomScoreAdj": 321}));
    let read = |name: &str| {
        std::fs::read_to_string(format!("/proc/{}/{name}", node.kubelet_pid())).expect("the process")
    };
    assert_eq!(read("oom_score_adj").trim(), "321");
    let limits = read("limits");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    assert_eq!(line.split_whitespace().nth(3), Some("4321"), "{line}");
}

#[test]
fn port_in_use_fails_the_start_with_its_address() {
    let mut node = Node::start();
    node.kill_kubelet();
    let _listener = std::net::TcpListener::bind(("127.0.0.1", node.main_port())).expect("the port is free");
    let mut command = node.kubelet_command();
    let output = command.stdin(Stdio::null()).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("(port)"), "{errors}");
}

/// The second kubelet has ports and a certificate directory of its own.
pub(crate) fn start_second(node: &Node, root: &std::path::Path) -> (Option<i32>, String) {
    let ports = ["--port", "--read-only-port", "--healthz-port"]
        .map(|flag| [flag.to_owned(), free_port().to_string()]);
    let mut second = node.kubelet_command();
    second.args(ports.as_flattened()).arg("--root-dir").arg(root).arg("--cert-dir").arg(node.path("pki-2"));
    let output = second.stdin(Stdio::null()).output().expect("it runs");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn second_kubelet_on_the_same_root_directory_or_runtime_is_refused() {
    let mut node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    let web = node.running("web");
    let (root, other_root) = (node.path("root"), node.path("other-root"));
    let holder = format!("process {}, root directory {}", node.kubelet_pid(), root.display());
    for second_root in [&root, &other_root] {
        let (code, errors) = start_second(&node, second_root);
        assert_eq!(code, Some(1), "{errors}");
        assert!(errors.contains(&holder), "{holder:?} is not named: {errors}");
    }
    assert!(!other_root.exists(), "nothing is made");
    let report = crate::change_over::check(&node, "text");
    assert_eq!(report.status.code(), Some(0), "{}", String::from_utf8_lossy(&report.stderr));
    let id = |pod: &Value| crate::node::container(pod, "main")["containerID"].clone();
    assert_eq!(id(&node.running("web")), id(&web));
    // The lock ends with its process.
    node.restart_kubelet();
    assert_eq!(id(&node.running("web")), id(&web));
}

#[test]
fn second_kubelet_on_the_root_directory_of_another_runtime_is_refused() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut node = Node::on_fake(&runtime, json!({}));
    let endpoint = node.serve(&runtime, "second.sock");
    node.configure(json!({"containerRuntimeEndpoint": endpoint}));
    let (code, errors) = start_second(&node, &node.path("root"));
    assert_eq!(code, Some(1), "{errors}");
    let expected = format!(
        "root directory {} is used by another kubelet (process {})",
        node.path("root").display(),
        node.kubelet_pid()
    );
    assert!(errors.contains(&expected), "{errors}");
}

/// A log that no process reads stops the kubelet at its next line, permanently.
#[test]
fn second_signal_exits_at_once_when_shutdown_hangs() {
    let mut node = Node::on_fake(&FakeRuntime::with_clock(ports::Clock::system()), json!({}));
    node.kill_kubelet();
    let (_reader, mut writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe that does not block us");
    while writer.write(&[b'x'; 4096]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("a pipe that blocks the kubelet");
    let kubelet = node.kubelet_command().stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer).spawn();
    let mut kubelet = Second { child: kubelet.expect("the kubelet starts"), log: node.path("second.log") };
    let pid = kubelet.child.id();
    node.eventually("both signals are listened to", |_| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|e| e.to_string())?;
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t")).ok_or("no mask")?;
        let caught = u64::from_str_radix(caught, 16).map_err(|e| e.to_string())?;
        let wanted = (1 << 14) | (1 << 1);
        if caught & wanted == wanted { Ok(()) } else { Err(format!("{caught:x}")) }
    });
    signal(pid, "TERM");
    signal(pid, "INT");
    let mut ended = || kubelet.child.try_wait().expect("the kubelet's state");
    let end = node.eventually("it has exited", |_| ended().ok_or_else(|| "it continues".to_owned()));
    assert_eq!(end.code(), Some(1));
}
