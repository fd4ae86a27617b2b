//! What the main port serves about the node and the kubelet process: logs, flags, status, profiles, checkpoints.

use std::os::unix::fs::{PermissionsExt, symlink};

use fakes::FakeRuntime;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, shell_pod};
use crate::server::{Answer, connect, get, request, send};

fn fake_node(extra: Value) -> Node {
    Node::on_fake(&FakeRuntime::with_clock(ports::Clock::system()), extra)
}

/// A request without credentials.
fn request_with(node: &Node, what: &str, headers: &str, body: &str) -> Answer {
    let stream = connect(node, &node.path("pki/kubelet.crt"), None).expect("a connection");
    send(stream, what, headers, body).expect("an answer")
}

/// Status and body of a GET.
fn get_text(node: &Node, path: &str) -> (u16, String) {
    let answer = get(node, path).expect("an answer");
    (answer.status, answer.body)
}

#[test]
fn node_logs_endpoint_serves_var_log() {
    let node = fake_node(json!({}));
    let logs = node.path("logs");
    std::fs::create_dir_all(logs.join("nested")).expect("made");
    std::fs::write(logs.join("app.log"), "one\ntwo\n").expect("written");
    std::fs::write(logs.join("nested/a b.log"), "deep\n").expect("written");
    symlink(logs.join("app.log"), logs.join("nested/link.log")).expect("linked");
    let (status, page) = get_text(&node, "/logs/");
    assert_eq!(status, 200);
    assert!(
        page.starts_with("<!doctype html>\n") && page.contains("<a href=\"nested/\">nested/</a>\n"),
        "{page}"
    );
    let (_, page) = get_text(&node, "/logs/nested/");
    assert!(
        page.contains("<a href=\"a%20b.log\">a b.log</a>\n<a href=\"link.log\">link.log</a>\n"),
        "{page}"
    );
    assert_eq!(get_text(&node, "/logs/app.log"), (200, "one\ntwo\n".to_owned()));
    assert_eq!(get_text(&node, "/logs/nested/a%20b.log"), (200, "deep\n".to_owned()));
    assert_eq!(get_text(&node, "/logs/nested/link.log"), (200, "one\ntwo\n".to_owned()));
    // Queries of services are disabled by default.
    assert_eq!(get_text(&node, "/logs/app.log?query=x"), (200, "one\ntwo\n".to_owned()));
    for path in [
        "/logs/none",
        "/logs/app.log/below",
        "/logs",
        "/logs/../pki/kubelet.key",
        "/logs/%2e%2e/kubelet.json",
    ] {
        assert_eq!(get_text(&node, path), (404, "404 page not found\n".to_owned()), "{path}");
    }
    let moved = get(&node, "/logs/nested").expect("an answer");
    assert!(moved.status == 301 && moved.head.contains("location: nested/"), "{}", moved.head);
    let part = request_with(&node, "GET /logs/app.log", "Range: bytes=4-\r\n", "");
    assert_eq!((part.status, part.body.as_str()), (206, "two\n"));
    assert!(part.head.contains("content-range: bytes 4-7/8"), "{}", part.head);
}

/// A journalctl that prints its arguments.
const JOURNAL: &str = "#!/bin/sh\nif [ \"$1\" = --field ]; then echo cron.service; echo kubelet.service; exit 0; fi\n\
                       echo \"journal: $*\"\necho complaint >&2\n";

#[test]
fn node_log_query_selects_services_by_name() {
    let node = fake_node(json!({"enableSystemLogQuery": true}));
    std::fs::create_dir_all(node.path("bin")).expect("made");
    std::fs::create_dir_all(node.path("logs/nginx")).expect("made");
    let program = node.path("bin/journalctl");
    std::fs::write(&program, JOURNAL).expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("made a program");
    std::fs::write(node.path("logs/nginx/nginx.log"), "from a file\n").expect("written");
    // A symlink among the logs may point anywhere; a service can have its log files there.
    symlink(node.path("kubelet.json"), node.path("logs/sly.log")).expect("linked");
    let (status, body) =
        get_text(&node, "/logs/?query=kubelet&tailLines=5&sinceTime=2026-01-01T00:00:00Z&pattern=a%7Cb");
    assert_eq!(status, 200);
    assert_eq!(
        body,
        "journal: --utc --no-pager --since=2026-01-01 00:00:00 --pager-end --lines=5 --unit=kubelet --grep=a|b \
         --case-sensitive=false\ncomplaint\n"
    );
    assert_eq!(get_text(&node, "/logs/?query=nginx"), (200, "from a file\n".to_owned()));
    let (_, both) = get_text(&node, "/logs/?query=nginx&query=cron&query=none&query=sly");
    assert_eq!(
        both,
        "journal: --utc --no-pager --unit=cron\ncomplaint\nfrom a file\n\nlog not found for none\n\nlog not found for sly\n"
    );
    let (_, files) = get_text(&node, "/logs/?query=nginx&boot=0");
    assert_eq!(
        files,
        "\noptions present and query resolved to log files for [nginx]\ntry without specifying options\n"
    );
    assert_eq!(get_text(&node, "/logs/?query=/nginx/nginx.log"), (200, "from a file\n".to_owned()));
    for (path, status, text) in [
        ("/logs/?query=", 400, "query: Invalid value: [\"\"]: query cannot be empty\n"),
        (
            "/logs/?query=a&tailLines=x",
            400,
            "tailLines: Invalid value: \"x\": parsing \"x\": invalid syntax\n",
        ),
        ("/logs/?query=a&boot=1", 406, "boot: Invalid value: 1: must be less than 1\n"),
        ("/logs/?query=a;b", 406, "query: Invalid value: \"a;b\": input contains unsupported characters\n"),
        ("/logs/?query=/none.log", 406, "query: Invalid value: [\"/none.log\"]: not found\n"),
        ("/logs/nginx?query=a", 406, "path not allowed in query mode\n"),
    ] {
        assert_eq!(get_text(&node, path), (status, text.to_owned()), "{path}");
    }
}

/// A journalctl that records each query and answers once the file `answer` exists.
const SLOW_JOURNAL: &str = "#!/bin/sh\nif [ \"$1\" = --field ]; then echo kubelet.service; exit 0; fi\n\
                            cd \"$(dirname \"$0\")\"; echo >> queries\n\
                            until test -e answer; do sleep 0.1; done; echo answered\n";

#[test]
fn concurrent_node_log_queries_are_limited() {
    let node = fake_node(json!({"enableSystemLogQuery": true}));
    std::fs::create_dir_all(node.path("bin")).expect("made");
    let program = node.path("bin/journalctl");
    std::fs::write(&program, SLOW_JOURNAL).expect("written");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).expect("made a program");
    let queries = || std::fs::read(node.path("bin/queries")).unwrap_or_default().len();
    let query = || get_text(&node, "/logs/?query=kubelet").1;
    std::thread::scope(|scope| {
        let first: Vec<_> = (0..4).map(|_| scope.spawn(query)).collect();
        node.eventually("four queries of the journal run", |_| match queries() {
            4 => Ok(()),
            count => Err(format!("{count}")),
        });
        assert_eq!(query(), "\nerror: the limit of 4 concurrent journal queries is reached\n");
        assert_eq!(queries(), 4);
        std::fs::write(node.path("bin/answer"), "").expect("written");
        for answer in first {
            assert_eq!(answer.join().expect("an answer"), "answered\n");
        }
    });
    assert_eq!(query(), "answered\n", "the slot of a finished query is free again");
}

#[test]
fn flagz_and_statusz_serve_text_and_json() {
    let mut node = fake_node(json!({"maxPods": 77, "staticPodURLHeader": {"Authorization": ["Bearer x"]}}));
    let (status, page) = get_text(&node, "/flagz");
    assert_eq!(status, 200);
    assert!(page.starts_with("\nkubelet flagz\nWarning: This endpoint is not meant"), "{page}");
    let root = node.path("root");
    for line in
        ["max-pods: 77", "v: 4", "manifest-url-header: <redacted>", &format!("root-dir: {}", root.display())]
    {
        assert!(page.contains(&format!("\n{line}\n")), "{line} in {page}");
    }
    let accept = |kind: &str| format!("Accept: application/json;v=v1beta1;g=config.k8s.io;as={kind}\r\n");
    let flags: Value =
        serde_json::from_str(&request_with(&node, "GET /flagz", &accept("Flagz"), "").body).expect("JSON");
    assert_eq!((&flags["kind"], &flags["flags"]["max-pods"]), (&json!("Flagz"), &json!("77")));
    let (_, page) = get_text(&node, "/statusz");
    assert!(page.contains("\nBinary version: 1.36.2\nEmulation version: 1.36\nPaths: /attach "), "{page}");
    let state: Value =
        serde_json::from_str(&request_with(&node, "GET /statusz", &accept("Statusz"), "").body)
            .expect("JSON");
    assert_eq!(
        (&state["apiVersion"], &state["binaryVersion"]),
        (&json!("config.k8s.io/v1beta1"), &json!("1.36.2"))
    );
    assert_eq!(request_with(&node, "GET /statusz", "Accept: image/png\r\n", "").status, 406);
    node.configure(json!({"featureGates": {
        "ComponentFlagz": false, "ComponentStatusz": false, "ContainerCheckpoint": false,
    }}));
    node.restart_kubelet();
    for what in ["GET /flagz", "GET /statusz", "POST /checkpoint/default/web-node/main"] {
        assert_eq!(request_with(&node, what, "", "").status, 404, "{what}");
    }
}

#[test]
fn log_verbosity_is_set_over_debug_flags_v() {
    let node = fake_node(json!({}));
    let put = |body: &str| request_with(&node, "PUT /debug/flags/v", "", body);
    let refused = put("loud");
    assert_eq!(refused.status, 400);
    assert_eq!(request_with(&node, "GET /debug/flags/v", "", "").status, 406);
    // Where libraries log what they send; they are silent except at very high verbosity.
    let of_library = "framed_write.rs:";
    assert!(!node.kubelet_log().contains(of_library));
    let done = put("9");
    assert_eq!((done.status, done.body.as_str()), (200, "successfully set klog.logging.verbosity to 9\n"));
    node.eventually("libraries log", |node| {
        if node.kubelet_log().contains(of_library) { Ok(()) } else { Err("not yet".to_owned()) }
    });
}

#[test]
fn pprof_profiles_show_threads_and_memory() {
    let node = fake_node(json!({}));
    let (status, page) = get_text(&node, "/debug/pprof/");
    assert!(status == 200 && page.contains("<a href='goroutine?debug=1'>"), "{page}");
    assert!(get_text(&node, "/debug/pprof/cmdline").1.contains("/kubelet\0--config\0"));
    let (_, threads) = get_text(&node, "/debug/pprof/goroutine?debug=1");
    assert!(threads.contains("tasks: ") && threads.contains(" @ kubelet ("), "{threads}");
    let (_, memory) = get_text(&node, "/debug/pprof/heap?debug=1");
    assert!(memory.starts_with("heap profile: total ") && memory.contains(" @ RssAnon\n"), "{memory}");
    let (_, used) = get_text(&node, "/debug/pprof/profile?seconds=1&debug=1");
    assert!(used.contains(&format!(" @ kubelet [{}]\n", node.kubelet_pid())), "{used}");
    let packed = get(&node, "/debug/pprof/heap").expect("an answer");
    assert!(packed.head.contains("content-disposition: attachment; filename=\"heap\""), "{}", packed.head);
    assert_eq!(get_text(&node, "/debug/pprof/mutex").0, 501);
    assert_eq!(get_text(&node, "/debug/pprof/none"), (404, "Unknown profile\n".to_owned()));
}

#[test]
fn checkpoint_endpoint_writes_a_container_checkpoint_file() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let node = Node::on_fake(&runtime, json!({}));
    let mut pod = shell_pod("web", FOREVER);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    node.apply("web", &pod);
    node.running("web");
    let post = |path: &str| request_with(&node, &format!("POST {path}"), "", "");
    let done = post("/checkpoint/default/web-node/main?timeout=7");
    assert_eq!(done.status, 200, "{}", done.body);
    let items: Value = serde_json::from_str(&done.body).expect("JSON");
    let file = items["items"][0].as_str().expect("a file");
    let prefix = node.path("root/checkpoints/checkpoint-web-node_default-main-").display().to_string();
    assert!(file.starts_with(&prefix) && file.ends_with("Z.tar"), "{file}");
    assert!(runtime.call_lines().contains(&format!("CheckpointContainer web-node/main to {file}")));
    let dir = std::fs::metadata(node.path("root/checkpoints")).expect("made");
    assert_eq!(dir.permissions().mode() & 0o777, 0o700);
    for (path, text) in [
        ("/checkpoint/default/none/main", "pod does not exist"),
        ("/checkpoint/default/web-node/none", "container none does not exist"),
        ("/checkpoint/default/web-node/main?timeout=x", "cannot parse value of timeout parameter"),
    ] {
        let answer = post(path);
        assert_eq!((answer.status, answer.body.as_str()), (404, text), "{path}");
    }
}

#[test]
fn checkpoint_endpoint_reports_a_runtime_without_checkpoint_support() {
    let node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    node.running("web");
    let stream = connect(&node, &node.path("pki/kubelet.crt"), None).expect("a connection");
    let answer = request(stream, "POST", "/checkpoint/default/web-node/main").expect("an answer");
    assert_eq!(answer.status, 500);
    assert!(answer.body.starts_with("checkpointing of default/web-node/main failed ("), "{}", answer.body);
}
