//! The process: command line, exit codes, signals, health, run-once mode.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use fakes::FakeRuntime;
use serde_json::json;

use crate::flex_volumes;
use crate::node::{FOREVER, Node, free_port, shell_pod, signal};

fn kubelet(args: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kubelet")).args(args).stdin(Stdio::null()).output();
    let output = output.expect("the kubelet runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn version_and_help_flags_print_version_and_flags() {
    assert_eq!(kubelet(&["--version"]), (0, "Kubernetes v1.36.2\n".to_owned(), String::new()));
    let (code, help, _) = kubelet(&["--help"]);
    assert_eq!(code, 0);
    assert!(help.contains("--config") && help.contains("--root-dir"), "{help}");
}

#[test]
fn output_whose_reader_closed_the_pipe_is_no_failure() {
    for arguments in [&["--help"][..], &["--version"], &["takeover", "--help"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = Command::new(env!("CARGO_BIN_EXE_kubelet"));
        let output = command.args(arguments).stdin(Stdio::null()).stdout(writer).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), &*errors), (Some(0), ""), "{arguments:?}");
    }
}

#[test]
fn unknown_flags_and_arguments_are_rejected_together() {
    let (code, _, errors) = kubelet(&["--no-such-flag", "--container-runtime=docker"]);
    assert_eq!(code, 1);
    assert!(errors.contains("no-such-flag") && errors.contains("container-runtime"), "{errors}");
    let (code, _, errors) = kubelet(&["run"]);
    assert_eq!(code, 1);
    assert!(errors.contains("unknown command"), "{errors}");
}

/// By another process: a program that this one has open for writing cannot be executed, and each process that another test starts
/// meanwhile has it open, too.
fn copy_kubelet(to: &Path) {
    let status = Command::new("cp").arg(env!("CARGO_BIN_EXE_kubelet")).arg(to).status();
    assert!(status.expect("cp runs").success());
}

/// Runs a copy of the kubelet that another user may execute.
fn kubelet_of_another_user(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let program = dir.join("kubelet");
    if !program.exists() {
        copy_kubelet(&program);
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(dir, everyone).expect("a directory for everyone");
    }
    let output = Command::new(&program).args(args).uid(65534).gid(65534).stdin(Stdio::null()).output();
    let output = output.expect("the kubelet runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

#[test]
fn kubelet_that_is_not_root_says_so_in_one_line_and_makes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let (public, private) = (dir.path().join("public"), dir.path().join("private.yaml"));
    fs::create_dir(&public).expect("a directory");
    fs::set_permissions(&public, std::os::unix::fs::PermissionsExt::from_mode(0o777)).expect("open");
    fs::write(&private, "kind: KubeletConfiguration").expect("written");
    fs::set_permissions(&private, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("closed");
    let root = public.join("root").display().to_string();
    let line = "E: kubelet needs to run as uid `0`. It is being run as 65534\n";
    let private = private.display().to_string();
    let starts: [&[&str]; 4] = [
        &["--root-dir", &root],
        &["--root-dir", &root, "--config", &private],
        &["takeover", "--check", "--root-dir", &root],
        &["takeover", "--check", "--config", &private],
    ];
    for arguments in starts {
        let ended = kubelet_of_another_user(dir.path(), arguments);
        assert_eq!(ended, (1, String::new(), line.to_owned()), "{arguments:?}");
    }
    assert_eq!(fs::read_dir(&public).expect("a directory").count(), 0, "nothing is made");
    let (code, version, _) = kubelet_of_another_user(dir.path(), &["--version"]);
    assert_eq!((code, version.as_str()), (0, "Kubernetes v1.36.2\n"));
    assert_eq!(kubelet_of_another_user(dir.path(), &["takeover", "--help"]).0, 0);
}

#[test]
fn standalone_kubelet_rejects_each_webhook_setting_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("kubelet.yaml");
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n";
    fs::write(&config, text).expect("written");
    let (code, _, errors) = kubelet(&["--config", &config.display().to_string()]);
    assert_eq!(code, 1);
    assert!(
        errors.contains("authentication.webhook.enabled") && errors.contains("authorization.mode"),
        "{errors}"
    );
}

#[test]
fn cgroup_v1_is_refused_unless_allowed() {
    let node = Node::start_with(json!({"failCgroupV1": false}));
    drop(node);
    let dir = tempfile::tempdir().expect("a directory");
    let config = dir.path().join("kubelet.yaml");
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
                authentication: {webhook: {enabled: false}}\nauthorization: {mode: AlwaysAllow}\n";
    fs::write(&config, text).expect("written");
    let is_v1 = !Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    if is_v1 {
        let (code, _, errors) = kubelet(&["--config", &config.display().to_string()]);
        assert_eq!(code, 1);
        assert!(errors.contains("failCgroupV1"), "{errors}");
    }
}

#[test]
fn sigterm_exits_with_success_and_keeps_containers_running() {
    let mut node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    let pod = node.running("web");
    signal(node.kubelet_pid(), "TERM");
    assert_eq!(node.wait_for_exit().code(), Some(0));
    assert_eq!(node.running_containers(&crate::node::uid(&pod)), 1);
}

#[test]
fn sigint_exits_with_success_and_keeps_containers_running() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut node = Node::on_fake(&runtime, json!({}));
    let mut pod = shell_pod("web", FOREVER);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    node.apply("web", &pod);
    node.running("web");
    signal(node.kubelet_pid(), "INT");
    assert_eq!(node.wait_for_exit().code(), Some(0));
    assert_eq!(runtime.running(), ["web-node/main"]);
}

#[test]
fn healthz_answers_on_its_own_port() {
    let node = Node::start();
    assert_eq!(node.healthz(), Ok("ok".to_owned()));
    assert_ne!(node.health_port(), 0);
}

#[test]
fn runningpods_endpoint_lists_pods_from_the_runtime() {
    let node = Node::start();
    node.apply("web", &shell_pod("web", FOREVER));
    node.running("web");
    let answer = crate::server::get(&node, "/runningpods/").expect("an answer");
    let list: serde_json::Value = serde_json::from_str(&answer.body).expect("JSON");
    assert_eq!(list["items"][0]["metadata"]["name"], "web-node");
    assert_eq!(list["items"][0]["spec"]["containers"][0]["name"], "main");
}

#[test]
fn run_once_reports_success_or_failure_by_its_exit_code() {
    for (script, code) in [("sleep 1; exit 0", 0), ("exit 5", 1)] {
        let mut node = Node::start();
        node.kill_kubelet();
        let mut pod = shell_pod("job", script);
        pod["spec"]["restartPolicy"] = "Never".into();
        node.apply("job", &pod);
        let output = node.kubelet_command().arg("--runonce").stdin(Stdio::null()).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{errors}");
        assert!(errors.contains("Run once: pod"), "{errors}");
    }
}

#[test]
fn static_pods_come_from_a_manifest_url() {
    let port = free_port();
    let node = Node::start_with(json!({
        "staticPodURL": format!("http://127.0.0.1:{port}/pods"),
        "httpCheckFrequency": "1s",
    }));
    let manifest = shell_pod("remote", FOREVER).to_string();
    let listener = std::net::TcpListener::bind(("127.0.0.1", port)).expect("a listener");
    let server = std::thread::spawn(move || {
        use std::io::{Read, Write};
        for _ in 0..2 {
            let (mut client, _) = listener.accept().expect("a request");
            let mut request = [0; 1024];
            let _ = client.read(&mut request).expect("its text");
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", manifest.len());
            client.write_all((head + &manifest).as_bytes()).expect("an answer");
        }
    });
    let pod = node.running("remote");
    assert_eq!(pod["metadata"]["annotations"]["kubernetes.io/config.source"], "http");
    server.join().expect("the server ends");
    // The server no longer answers: the last valid pods stay.
    node.eventually("the failure is visible", |node| {
        let problems = crate::server::get(node, "/debug/manifests")?.body;
        if problems.contains("127.0.0.1") { Ok(()) } else { Err(problems) }
    });
    node.running("remote");
}

#[test]
fn programs_that_the_kubelet_starts_have_the_users_settings_of_the_c_library() {
    let mut node = Node::with_fake(&FakeRuntime::with_clock(ports::Clock::system()), json!({}));
    node.configure(json!({"volumePluginDir": node.path(flex_volumes::DRIVERS)}));
    let (seen, users) = (node.path("seen"), "glibc.malloc.arena_max=2");
    let init =
        format!("init) echo \"$GLIBC_TUNABLES\" > {}; echo '{{\"status\": \"Success\"}}';;", seen.display());
    flex_volumes::install(&node, "driver", &init);
    node.set_variable("GLIBC_TUNABLES", users.into());
    node.apply("web", &flex_volumes::with_flex("web", "example.com/driver", "any"));
    node.start_kubelet();
    let seen = node.eventually("the kubelet runs the driver", |_| match fs::read_to_string(&seen) {
        Ok(text) if !text.is_empty() => Ok(text),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(seen.trim_end(), users);
}

/// The loader drops settings of the C library for a program that has more privileges than its user.
#[test]
fn kubelet_whose_environment_the_loader_cleans_is_executed_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).expect("a mode");
    mode(dir.path(), 0o755);
    let (program, config) = (dir.path().join("kubelet"), dir.path().join("kubelet.yaml"));
    copy_kubelet(&program);
    mode(&program, 0o4755);
    let text = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n";
    fs::write(&config, text).expect("written");
    let mut command = Command::new("timeout");
    command.arg("60").arg(&program).arg("--config").arg(&config).stdin(Stdio::null()).uid(65534).gid(65534);
    let output = command.output().expect("it runs");
    // It ends because of this setting; one that executes itself again and again ends with 124, by the time limit.
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && errors.contains("authorization.mode"), "{errors}");
}
