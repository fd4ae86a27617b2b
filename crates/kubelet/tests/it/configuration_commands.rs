//! `kubelet config check|show|diff` and `kubelet doctor`, as an operator runs them, with a real container runtime and without.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::node::Node;

/// The exit code, the standard output and the errors.
fn kubelet(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_kubelet")).args(arguments).output().expect("it runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn write(dir: &Path, name: &str, body: &str) -> String {
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let path = dir.join(name);
    fs::write(&path, format!("{head}{body}")).expect("written");
    path.display().to_string()
}

#[test]
fn config_check_reports_all_problems_with_their_places() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = write(dir.path(), "k.yaml", "maxPod: 3\nmaxPods: -1\nclusterDNS: 10.0.0.1\n");
    let (code, text, errors) =
        kubelet(&["config", "check", "--offline", "--config", &config, "--max-podz", "1"]);
    assert_eq!((code, errors.as_str()), (4, ""), "{text}");
    for words in [
        "error: unknown flag: --max-podz (did you mean --max-pods?)",
        &format!("warning: {config}:3:9: unknown field maxPod is ignored (did you mean maxPods?)"),
        &format!("error: {config}:5:13: clusterDNS: invalid type"),
        &format!("error: {config}:4:10: maxPods (--max-pods) is -1, but must be 0 or more"),
        "Errors: 3, warnings: 1.",
    ] {
        assert!(text.contains(words), "{words:?} is missing: {text}");
    }
    let (code, text, _) = kubelet(&["config", "check", "--config", &config, "-o", "json", "--offline"]);
    let document: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((code, &document["severity"]), (4, &json!("error")));
    assert_eq!(document["findings"][0]["line"], 3, "{text}");
}

#[test]
fn config_check_compares_with_this_machine() {
    let dir = tempfile::tempdir().expect("a directory");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    let absent = dir.path().join("absent");
    let body = format!(
        "healthzPort: {port}\ncontainerRuntimeEndpoint: unix://{absent}.sock\ntlsCertFile: {absent}\ntlsPrivateKeyFile: {absent}\n\
         failSwapOn: false\nfailCgroupV1: false\nsystemReserved: {{memory: 900Ti}}\n",
        absent = absent.display()
    );
    let config = write(dir.path(), "k.yaml", &body);
    let (code, text, _) = kubelet(&["config", "check", "--config", &config]);
    assert_eq!(code, 4, "{text}");
    for words in [
        format!("error: {config}:3:14: healthzPort {port} is in use by "),
        format!("(pid {})", std::process::id()),
        format!("error: {config}:4:27: containerRuntimeEndpoint"),
        format!("error: {config}:5:14: tlsCertFile {}: No such file", absent.display()),
        "keep 989560464998400 of memory from pods".to_owned(),
    ] {
        assert!(text.contains(&words), "{words:?} is missing: {text}");
    }
}

#[test]
fn config_show_says_where_each_value_came_from() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = write(dir.path(), "k.yaml", "maxPods: 20\nstaticPodURLHeader: {Authorization: [token-7]}\n");
    let flags = ["--config", &config, "--port", "10251"];
    let (code, text, _) = kubelet(&[&["config", "show"][..], &flags, &["--changed"]].concat());
    assert_eq!(code, 0, "{text}");
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(lines.contains(&vec!["maxPods", "20", &format!("{config}:3:10")]), "{text}");
    assert!(lines.contains(&vec!["port", "10251", "--port"]), "{text}");
    assert!(!text.contains("default") && !text.contains("token-7"), "{text}");
    let (_, all, _) = kubelet(&[&["config", "show"][..], &flags].concat());
    assert!(all.contains("registryPullQPS") && all.contains("default"), "{all}");
    let (_, yaml, _) = kubelet(&[&["config", "show", "-o", "yaml"][..], &flags].concat());
    assert!(yaml.contains("kind: KubeletConfiguration") && yaml.contains("maxPods: 20"), "{yaml}");
    assert!(!yaml.contains("token-7"), "{yaml}");
}

#[test]
fn config_diff_says_what_a_restart_does() {
    let dir = tempfile::tempdir().expect("a directory");
    let old = write(dir.path(), "old.yaml", "maxPods: 20\n");
    let new = write(dir.path(), "new.yaml", "maxPods: 30\n");
    let drain = write(
        dir.path(),
        "drain.yaml",
        "maxPods: 20\ncpuManagerPolicy: static\nkubeReserved: {cpu: \"1\"}\n",
    );
    assert_eq!(kubelet(&["config", "diff", &old, &old]), (0, "Nothing changes.\n".to_owned(), String::new()));
    let (code, text, _) = kubelet(&["config", "diff", &old, &new]);
    assert!(code == 0 && text.starts_with("maxPods: 20 -> 30\n"), "{code} {text}");
    let (code, text, _) = kubelet(&["config", "diff", &old, &drain]);
    assert_eq!(code, 3, "{text}");
    assert!(
        text.starts_with("cpuManagerPolicy: \"none\" -> \"static\"\n    Drain the node first, and remove"),
        "{text}"
    );
    assert_eq!(kubelet(&["config", "diff", &old, "/absent.yaml"]).0, 4);
}

/// The checks of the doctor by name.
fn examine(flags: &[&str]) -> (i32, Vec<Value>) {
    let (code, text, errors) = kubelet(&[&["doctor", "-o", "json"][..], flags].concat());
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{errors}"));
    (code, document["checks"].as_array().cloned().unwrap_or_default())
}

fn check<'a>(checks: &'a [Value], name: &str) -> &'a Value {
    checks
        .iter()
        .find(|check| check["name"] == name)
        .unwrap_or_else(|| panic!("{name} is missing: {checks:?}"))
}

#[test]
fn doctor_asks_a_real_container_runtime() {
    let node = Node::start();
    let config = node.write_config().display().to_string();
    let (_, checks) = examine(&["--config", &config]);
    let runtime = check(&checks, "runtime");
    assert_eq!(runtime["health"], "fine", "{runtime}");
    assert!(runtime["what"].as_str().is_some_and(|what| what.starts_with("containerd ")), "{runtime}");
    assert_eq!(check(&checks, "user")["health"], "fine");
    assert!(check(&checks, "cgroup driver")["what"].as_str().is_some_and(|what| !what.is_empty()));
}

#[test]
fn doctor_answers_soon_although_the_runtime_and_the_api_server_are_away() {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("hangs.sock");
    let _hangs = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let endpoint = format!("unix://{}", socket.display());
    let kubeconfig = dir.path().join("kubeconfig");
    let body = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n\
                clusters: [{name: c, cluster: {server: \"https://127.0.0.1:9\"}}]\nusers: [{name: u, user: {token: t}}]\n";
    fs::write(&kubeconfig, body).expect("written");
    let began = Instant::now();
    let kubeconfig = kubeconfig.display().to_string();
    let (code, checks) = examine(&[
        "--container-runtime-endpoint",
        &endpoint,
        "--kubeconfig",
        &kubeconfig,
        "--config",
        &write(dir.path(), "k.yaml", ""),
    ]);
    assert!(began.elapsed() < fixtures::stretched(Duration::from_secs(20)), "{:?}", began.elapsed());
    assert_eq!(code, 4);
    for (name, words) in [("runtime", "does not answer"), ("API server", "cannot be reached")] {
        let found = check(&checks, name);
        assert_eq!(found["health"], "error", "{found}");
        assert!(found["what"].as_str().is_some_and(|what| what.contains(words)), "{found}");
        assert!(found["remedy"].as_str().is_some_and(|remedy| !remedy.is_empty()), "{found}");
    }
}
