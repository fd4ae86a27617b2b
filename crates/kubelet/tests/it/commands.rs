//! The commands that show what is on a node: `kubelet get` and those that follow it, on a standalone node.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, Command, Output, Stdio};

use fakes::FakeRuntime;
use fakes::fake::{Fault, Method};
use serde_json::{Value, json};

use crate::node::{FOREVER, IMAGE, Node, shell, shell_pod, signal, uid};
use crate::why::ask;

/// The standard output of a command that succeeds.
#[track_caller]
fn shows(node: &Node, arguments: &[&str]) -> String {
    let Output { status, stdout, stderr } = ask(node, arguments);
    let stderr = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{arguments:?} ended with {status}: {stderr}");
    String::from_utf8(stdout).expect("text")
}

/// The exit code and the standard error of a command that fails.
fn fails(node: &Node, arguments: &[&str]) -> (i32, String) {
    let Output { status, stderr, .. } = ask(node, arguments);
    (status.code().unwrap_or(-1), String::from_utf8_lossy(&stderr).into_owned())
}

/// Waits until the output has a line with all these words.
#[track_caller]
fn has_line(node: &Node, arguments: &[&str], words: &[&str]) {
    node.eventually(&format!("{arguments:?} has a line with {words:?}"), |node| {
        let text = String::from_utf8_lossy(&ask(node, arguments).stdout).into_owned();
        let is_it = |line: &str| words.iter().all(|word| line.contains(word));
        if text.lines().any(is_it) { Ok(()) } else { Err(text) }
    });
}

/// A command that goes on.
fn follow(node: &Node, arguments: &[&str]) -> Child {
    let root = node.path("root");
    Command::new(env!("CARGO_BIN_EXE_kubelet"))
        .args(arguments)
        .args(["--root-dir".as_ref(), root.as_os_str()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs")
}

/// The lines of a command that goes on, up to the first with this text.
fn lines_until(child: &mut Child, text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.as_mut().expect("piped")).lines() {
        lines.push(line.expect("text"));
        if lines.last().is_some_and(|line| line.contains(text)) {
            break;
        }
    }
    lines
}

/// Ends a command as Ctrl-C does, and returns its exit code and what it wrote to the standard error.
fn interrupt(child: Child) -> (Option<i32>, String) {
    signal(child.id(), "INT");
    let output = child.wait_with_output().expect("it ends");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A pod with a label, resources and a volume.
fn web(node: &Node) -> Value {
    let mut pod = shell_pod("web", FOREVER);
    pod["metadata"]["labels"] = json!({"app": "web"});
    pod["spec"]["volumes"] = json!([{"name": "data", "hostPath": {"path": node.path("data")}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"memory": "20Mi", "cpu": "10m"}});
    pod
}

#[test]
fn get_lists_images_volumes_allocations_cgroups_plugins_and_events_of_a_node() {
    let node = Node::start();
    std::fs::create_dir(node.path("data")).expect("made");
    node.apply("web", &web(&node));
    node.apply("other", &shell_pod("other", FOREVER));
    node.running("web");
    node.running("other");

    has_line(&node, &["get", "images", "-o", "wide"], &[IMAGE, "now", "default/other-", "default/web-"]);
    has_line(&node, &["get", "volumes", "web", "-o", "wide"], &["data", "hostPath", "Mounted", "main"]);
    has_line(&node, &["get", "allocations", "-l", "app=web"], &["main", "Burstable", "10m", "20Mi"]);
    has_line(&node, &["get", "cgroups", "-n", "default"], &["container", "/main", "KiB"]);
    has_line(&node, &["get", "cgroups"], &["node", "iB"]);
    has_line(&node, &["get", "events", "web"], &["Normal", "Started", "pod/default/web-"]);
    has_line(&node, &["events"], &["Normal", "Starting", "node/"]);
    assert_eq!(shows(&node, &["get", "claims"]).lines().count(), 1);
    assert_eq!(shows(&node, &["get", "plugins"]).lines().count(), 1);

    let named = shows(&node, &["get", "pods", "-l", "app=web", "-o", "name"]);
    assert!(named.starts_with("pod/default/web-") && named.lines().count() == 1, "{named}");
    assert_eq!(shows(&node, &["get", "containers", "-l", "app!=web"]).lines().count(), 2);
    assert_eq!(shows(&node, &["get", "pods", "-n", "elsewhere"]).lines().count(), 1);
    let document: Value =
        serde_json::from_str(&shows(&node, &["get", "volumes", "-o", "json"])).expect("JSON");
    assert_eq!((&document["items"][0]["state"], &document["problems"]), (&json!("mounted"), &json!([])));

    for (arguments, code, message) in [
        (&["get", "images", "-n", "default"][..], 2, "images belong to the node"),
        (&["get", "nodes"], 2, "possible values: pods, containers, images"),
        (&["get", "pods", "-l", "a b"], 1, "key notin (a,b)"),
        (&["get", "volumes", "nothing"], 1, "no pod \"nothing\" is on this node"),
    ] {
        let (actual, stderr) = fails(&node, arguments);
        assert!(actual == code && stderr.contains(message), "{arguments:?}: {actual}: {stderr}");
    }
}

#[test]
fn watch_prints_what_changes_until_it_is_interrupted() {
    let node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    let known = uid(&node.running("web"));
    let mut pods = follow(&node, &["get", "pods", "-w"]);
    let mut events = follow(&node, &["events", "-w"]);
    assert!(lines_until(&mut pods, "web-")[0].starts_with("NAMESPACE"));
    lines_until(&mut events, "Started");
    node.apply("late", &shell_pod("late", FOREVER));
    lines_until(&mut pods, "late-");
    lines_until(&mut events, "late-");
    node.delete("web");
    node.wait_until_gone("web", &known);
    for child in [pods, events] {
        assert_eq!(interrupt(child), (Some(130), String::new()));
    }
}

#[test]
fn list_that_needs_a_runtime_which_hangs_says_so_after_two_seconds() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let node = Node::on_fake(&runtime, json!({}));
    runtime.fault_always(Method::ListImages, Some(Fault::Hang));
    let (code, stderr) = fails(&node, &["get", "images"]);
    assert_eq!((code, &*stderr), (1, "kubelet: the container runtime has not answered for 2 s\n"));
}

/// Two containers, one of which has ended once.
fn talking(name: &str) -> Value {
    let mut pod = shell_pod(name, &format!("echo one; echo two; echo three; {FOREVER}"));
    let script = "test -e /tmp/again/x && exec sleep 3600; mkdir -p /tmp/again; touch /tmp/again/x; echo first life; exit 3";
    pod["spec"]["volumes"] = json!([{"name": "again", "emptyDir": {}}]);
    let mut second = shell("second", script);
    second["volumeMounts"] = json!([{"name": "again", "mountPath": "/tmp/again"}]);
    pod["spec"]["containers"].as_array_mut().expect("a list").push(second);
    pod
}

#[test]
fn logs_prints_the_log_of_a_container_and_names_the_containers_of_a_pod_with_several() {
    let node = Node::start();
    node.apply("web", &talking("web"));
    node.eventually("the second container has restarted", |node| {
        let (_, stderr) = fails(node, &["logs", "web", "-c", "second", "--previous"]);
        if stderr.is_empty() { Ok(()) } else { Err(stderr) }
    });
    assert_eq!(shows(&node, &["logs", "web", "-c", "second", "-p"]), "first life\n");
    assert_eq!(shows(&node, &["logs", "default/web", "-c", "main", "--tail", "1"]), "three\n");
    let times = shows(&node, &["logs", "web", "-c", "main", "--timestamps", "--since", "1h"]);
    assert!(times.lines().count() == 3 && times.lines().all(|line| line.contains("T")), "{times}");
    let mut followed = follow(&node, &["logs", "web", "-n", "default", "-c", "main", "-f"]);
    lines_until(&mut followed, "three");
    assert_eq!(interrupt(followed), (Some(130), String::new()));

    for (arguments, code, message) in [
        (&["logs", "web"][..], 1, "has several containers: main, second; name one with -c"),
        (&["logs", "web", "-c", "third"], 1, "has no container \"third\"; it has main, second"),
        (&["logs", "web", "-c", "main", "--previous"], 1, "previous terminated container"),
        (&["logs", "nothing"], 1, "no pod \"nothing\" is on this node"),
        (&["logs", "web", "--since", "soon"], 2, "allowed are durations such as 30s"),
    ] {
        let (actual, stderr) = fails(&node, arguments);
        assert!(actual == code && stderr.contains(message), "{arguments:?}: {actual}: {stderr}");
    }
}

#[test]
fn exec_runs_a_command_with_its_input_output_terminal_and_exit_code() {
    let node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    node.running("web");
    let run = |arguments: &[&str], input: &str| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kubelet"))
            .args(["exec", "--socket", &socket(&node)])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let mut stdin = child.stdin.take().expect("piped");
        // At the same time as its output is read: either side may be full.
        let output = std::thread::scope(|scope| {
            scope.spawn(move || stdin.write_all(input.as_bytes()).expect("written"));
            child.wait_with_output().expect("it ends")
        });
        let text = |bytes| String::from_utf8(bytes).expect("text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let streams = run(&["web", "--", "sh", "-c", "echo out; echo err >&2; exit 7"], "");
    assert_eq!(streams, (Some(7), "out\n".to_owned(), "err\n".to_owned()));
    let large = "0123456789abcde\n".repeat(20_000);
    let copied = run(&["-i", "web", "-c", "main", "--", "cat"], &large);
    assert!(copied == (Some(0), large, String::new()), "{:?} {} bytes", copied.0, copied.1.len());
    let (code, _, stderr) = run(&["web", "--", "/no/such/program"], "");
    assert!(code == Some(1) && stderr.contains("no such file"), "{code:?} {stderr}");
    let (code, _, stderr) = run(&["web", "-c", "other", "--", "true"], "");
    assert!(
        code == Some(1) && stderr.contains("has no container \"other\"; it has main"),
        "{code:?} {stderr}"
    );

    let program = env!("CARGO_BIN_EXE_kubelet");
    // The size arrives a moment after the terminal exists.
    let command = "n=0; until test \"$(stty size)\" = \"33 77\"; do n=$((n + 1)); test $n = 100 && stty size && exit 9; sleep 0.1; done; \
                   test -t 0 && exit 5";
    let script = format!(
        "stty rows 33 cols 77; exec {program} exec --socket {} -it web -- sh -c '{command}'",
        socket(&node)
    );
    let mut terminal = Command::new("script")
        .args(["--quiet", "--return", "--command", &script, "/dev/null"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script runs");
    // At the end of its input, script may stop to print.
    let input = terminal.stdin.take();
    let terminal = terminal.wait_with_output().expect("script ends");
    drop(input);
    let text = String::from_utf8_lossy(&terminal.stdout);
    assert_eq!(terminal.status.code(), Some(5), "{text}");
}

fn socket(node: &Node) -> String {
    node.path("root").join("kubelet.sock").display().to_string()
}

#[test]
fn describe_and_stats_show_a_pod_as_people_read_it() {
    let node = Node::start();
    std::fs::create_dir(node.path("data")).expect("made");
    let mut pod = web(&node);
    pod["spec"]["containers"][0]["readinessProbe"] =
        json!({"exec": {"command": ["true"]}, "periodSeconds": 1});
    node.apply("web", &pod);
    node.running("web");
    has_line(&node, &["describe", "web"], &["main: running for", "ready"]);
    let text = shows(&node, &["describe", "web"]);
    for words in [
        "From:            a manifest on this node",
        "Labels:          app=web",
        "Requests:    cpu 10m, memory 20Mi",
        "Readiness:   the command true, every 1 s",
        "Mount:       /data from volume data",
        "data: hostPath",
        "Conditions",
        "Started [main]: Container started",
    ] {
        assert!(text.contains(words), "{words} is missing: {text}");
    }
    has_line(&node, &["stats"], &["web-", "(all)", "m ", "KiB"]);
    has_line(&node, &["stats", "-l", "app=web"], &["web-", "main", "m "]);
    let document: Value = serde_json::from_str(&shows(&node, &["stats", "web", "-o", "json"])).expect("JSON");
    assert!(document["node"]["memoryBytes"].as_u64().is_some_and(|bytes| bytes > 0), "{document}");
    assert_eq!(document["pods"][0]["containers"][0]["name"], "main");
    assert_eq!(fails(&node, &["describe", "nothing"]).0, 1);
}

#[test]
fn why_image_and_why_volume_say_what_is_here_what_uses_it_and_what_failed() {
    let node = Node::start();
    std::fs::create_dir(node.path("data")).expect("made");
    node.apply("web", &web(&node));
    let mut broken = shell_pod("broken", FOREVER);
    broken["spec"]["volumes"] =
        json!([{"name": "lost", "hostPath": {"path": node.path("missing"), "type": "Directory"}}]);
    broken["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "lost", "mountPath": "/lost"}]);
    node.apply("broken", &broken);
    let mut unpullable = shell_pod("unpullable", FOREVER);
    unpullable["spec"]["containers"][0]["image"] = "127.0.0.1:1/no/such:1".into();
    unpullable["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    node.apply("unpullable", &unpullable);
    node.running("web");

    says(
        &node,
        &["why", "image", IMAGE],
        0,
        &[
            "The image is on this node and in use.",
            "default/web-node (container main, pull policy Never)",
            "keeps it",
        ],
    );
    says(
        &node,
        &["why", "image", "127.0.0.1:1/no/such:1"],
        3,
        &["It is not on this node.", "waits: ", "connection refused", "can be reached"],
    );
    says(&node, &["why", "image", "no/such"], 1, &["no image \"no/such\" is on this node"]);
    says(
        &node,
        &["why", "volume", "data"],
        0,
        &["default/web-node/data: The volume is mounted.", "hostPath"],
    );
    says(
        &node,
        &["why", "volume", "broken/lost"],
        3,
        &[
            "The volume cannot be mounted:",
            "the next try",
            "hostPath type check failed",
            "Container main mounts it.",
        ],
    );
    says(&node, &["why", "volume", "web/lost"], 1, &["no pod of this node has a volume \"web/lost\""]);
    says(&node, &["why", "volume"], 2, &["kubelet why volume needs the name of one"]);
    says(&node, &["why", "web", "data"], 2, &["only the words image and volume have a name after them"]);
}

/// Waits until a command has that exit code and says all these words, which may be broken into lines.
#[track_caller]
fn says(node: &Node, arguments: &[&str], code: i32, words: &[&str]) {
    node.eventually(&format!("{arguments:?} says {words:?} with exit code {code}"), |node| {
        let output = ask(node, arguments);
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let in_one_line = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_said =
            output.status.code() == Some(code) && words.iter().all(|word| in_one_line.contains(word));
        if is_said { Ok(()) } else { Err(format!("{:?}: {text}", output.status)) }
    });
}

#[test]
fn local_socket_is_of_the_configured_group_and_otherwise_of_root_only() {
    let of_socket = |node: &Node| {
        let path = node.path("root").join("kubelet.sock");
        node.eventually("the local socket is there", |_| {
            let metadata = std::fs::metadata(&path).map_err(|error| error.to_string())?;
            Ok((metadata.mode() & 0o777, metadata.gid()))
        })
    };
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut node = Node::on_fake(&runtime, json!({}));
    assert_eq!(of_socket(&node).0, 0o600);
    node.kill_kubelet();
    std::fs::remove_file(node.path("root").join("kubelet.sock")).expect("removed");
    node.add_flags(&["--local-socket-mode=0660", "--local-socket-group=daemon"]);
    node.start_kubelet();
    node.eventually("the group may open the socket", |node| match of_socket(node) {
        (0o660, 1) => Ok(()),
        other => Err(format!("{other:?}")),
    });
}
