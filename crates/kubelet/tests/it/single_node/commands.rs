//! Commands of kubectl that need a running pod or the node itself: they do on a single node what they do on a cluster.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Output;

use serde_json::{Value, json};

use super::SingleNode;
use crate::node::{FOREVER, IMAGE, condition, container, once_pod, restarts, shell_pod, signal, uid};
use crate::why::says;

/// One sentence of kubectl's refusal to delete what nothing creates again.
const NEEDS_FORCE: &str = "cannot delete Pods that declare no controller (use --force to override)";

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The error output of a command that must fail.
#[track_caller]
fn refused(single: &SingleNode, arguments: &[&str]) -> String {
    let output = single.kubectl.run(arguments, "");
    assert!(!output.status.success(), "kubectl {arguments:?} succeeds: {}", stdout(&output));
    stderr(&output)
}

#[track_caller]
fn pod_when(single: &SingleNode, name: &str, what: &str, check: impl Fn(&Value) -> bool) -> Value {
    single.node.eventually(&format!("pod {name} {what}"), |_| {
        let pod = single.kubectl.get("pod", name)?;
        if check(&pod) { Ok(pod) } else { Err(pod["status"].to_string()) }
    })
}

#[track_caller]
fn has_ended(single: &SingleNode, name: &str) -> Value {
    pod_when(single, name, "has ended", |pod| {
        ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default())
    })
}

/// A container that fails once, and runs after its first restart.
fn crashing_once(name: &str) -> Value {
    let script =
        format!("[ -e /kept/once ] && echo second && {{ {FOREVER}; }}; touch /kept/once; echo first; exit 3");
    let mut pod = shell_pod(name, &script);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "kept", "mountPath": "/kept"}]);
    pod["spec"]["volumes"] = json!([{"name": "kept", "emptyDir": {}}]);
    pod
}

/// A container that waits for lines, and ends with a code when they end.
fn reading(name: &str) -> Value {
    let mut pod = once_pod(name, "while read -r line; do echo got $line; done; exit 4");
    let main = &mut pod["spec"]["containers"][0];
    (main["stdin"], main["stdinOnce"]) = (true.into(), true.into());
    pod
}

#[test]
fn kubectl_logs_exec_attach_run_and_cp_do_what_they_do_on_a_cluster() {
    let single = SingleNode::start();
    let mut web = shell_pod("web", &format!("echo started; {FOREVER}"));
    web["metadata"]["labels"] = json!({"app": "web"});
    let count = once_pod("count", "echo begin; until [ -e /go ]; do sleep 0.1; done; echo end");
    single.kubectl.apply(&[web, count, crashing_once("crashing"), reading("reading")]);
    for name in ["web", "count", "reading"] {
        single.running(name);
    }
    shows_logs(&single);
    follows_a_log_to_its_end(&single);
    shows_the_log_of_the_previous_container(&single);
    executes(&single);
    attaches(&single);
    runs(&single);
    copies(&single);
}

fn shows_logs(single: &SingleNode) {
    single.node.eventually("the log has a line", |_| match single.kubectl.attempt(&["logs", "web"])? {
        log if log == "started\n" => Ok(()),
        log => Err(log),
    });
    let log = |arguments: &[&str]| single.kubectl.ok(&[&["logs"], arguments].concat());
    assert_eq!(log(&["-l", "app=web", "--prefix", "--all-containers"]), "[pod/web/main] started\n");
    let stamped = log(&["web", "-c", "main", "--tail=1", "--timestamps", "--since=1h"]);
    assert!(stamped.starts_with("20") && stamped.ends_with("Z started\n"), "{stamped}");
    let none = refused(single, &["logs", "web", "--previous"]);
    assert_eq!(
        none,
        "Error from server (BadRequest): previous terminated container \"main\" in pod \"web\" not found\n"
    );
}

fn follows_a_log_to_its_end(single: &SingleNode) {
    let mut follower = single.kubectl.start(&["logs", "-f", "count"]);
    let mut lines = BufReader::new(follower.stdout.take().expect("its output")).lines();
    let mut next = || lines.next().transpose().expect("text");
    assert_eq!(next().as_deref(), Some("begin"));
    single.kubectl.ok(&["exec", "count", "--", "touch", "/go"]);
    assert_eq!((next().as_deref(), next()), (Some("end"), None));
    assert!(follower.wait().expect("kubectl ends").success());
}

fn shows_the_log_of_the_previous_container(single: &SingleNode) {
    pod_when(single, "crashing", "runs after a restart", |pod| {
        restarts(pod, "main") == 1 && condition(pod, "Ready") == "True"
    });
    assert_eq!(single.kubectl.ok(&["logs", "crashing", "--previous"]), "first\n");
    single.node.eventually("the log of the container that runs has a line", |_| {
        match single.kubectl.attempt(&["logs", "crashing"])? {
            log if log == "second\n" => Ok(()),
            log => Err(log),
        }
    });
}

fn executes(single: &SingleNode) {
    let script = "cat; echo failed >&2; exit 3";
    let output = single.kubectl.run(&["exec", "-i", "web", "--", "sh", "-c", script], "typed\n");
    assert_eq!((stdout(&output).as_str(), output.status.code()), ("typed\n", Some(3)));
    assert_eq!(stderr(&output), "failed\ncommand terminated with exit code 3\n");
    let other = refused(single, &["exec", "web", "-c", "other", "--", "true"]);
    assert!(other.contains("container other is not valid for pod web"), "{other}");
}

fn attaches(single: &SingleNode) {
    let output = single.kubectl.run_with_input(&["attach", "-i", "reading"], "one\ntwo\n");
    assert!(output.contains("got one\ngot two\n"), "{output}");
    let pod = has_ended(single, "reading");
    assert_eq!(container(&pod, "main")["state"]["terminated"]["exitCode"], 4);
}

/// `kubectl run` with a terminal's options: it attaches, returns the exit code, and removes the pod.
fn runs(single: &SingleNode) {
    let image = format!("--image={IMAGE}");
    let once = ["run", "once", &image, "--restart=Never", "--rm", "-i", "--quiet", "--", "sh", "-c"];
    let script = "read -r line; echo got $line; exit 5";
    let output = single.kubectl.run(&[&once[..], &[script]].concat(), "typed\n");
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(stdout(&output).starts_with("got typed\n"), "{output:?}");
    let gone = single.kubectl.get("pod", "once");
    assert!(gone.as_ref().is_err_and(|error| error.contains("NotFound")), "{gone:?}");
}

fn copies(single: &SingleNode) {
    let (here, back) = (single.node.path("here"), single.node.path("back"));
    let content: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    std::fs::create_dir_all(here.join("below")).expect("a directory");
    std::fs::write(here.join("below/numbers"), &content).expect("a file");
    let (from, to) = (here.display().to_string(), back.display().to_string());
    single.kubectl.ok(&["cp", &from, "web:/copied"]);
    single.kubectl.ok(&["cp", "default/web:/copied", &to, "-c", "main"]);
    let copied = std::fs::read_to_string(back.join("below/numbers")).expect("it came back");
    assert!(copied == content, "{} of {} bytes came back", copied.len(), content.len());
}

#[test]
fn kubectl_port_forward_and_debug_do_what_they_do_on_a_cluster() {
    let single = SingleNode::start();
    let script = "mkdir /www; echo hello >/www/page; exec httpd -f -p 8080 -h /www";
    let mut web = shell_pod("web", script);
    web["spec"]["containers"][0]["readinessProbe"] =
        json!({"httpGet": {"path": "/page", "port": 8080}, "periodSeconds": 1});
    single.kubectl.apply(&[web]);
    single.running("web");
    forwards_a_port(&single);
    debugs_a_pod(&single);
    debugs_a_copy(&single);
    debugs_the_node(&single);
}

fn forwards_a_port(single: &SingleNode) {
    let mut kubectl = single.kubectl.start(&["port-forward", "pod/web", ":8080"]);
    let mut lines = BufReader::new(kubectl.stdout.take().expect("its output")).lines();
    let line = lines.next().expect("a line").expect("text");
    let port = line.split([':', ' ']).find_map(|part| part.parse::<u16>().ok());
    let port = port.unwrap_or_else(|| panic!("no port in {line:?}"));
    for _ in 0..2 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        stream.write_all(b"GET /page HTTP/1.0\r\nHost: web\r\n\r\n").expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.ends_with("\r\n\r\nhello\n"), "{answer}");
    }
    signal(kubectl.id(), "TERM");
    kubectl.wait().expect("kubectl ends");
}

/// An ephemeral container that sees the processes of the container that it debugs, with input from kubectl.
fn debugs_a_pod(single: &SingleNode) {
    let image = format!("--image={IMAGE}");
    let debug = ["debug", "web", &image, "--container=debugger", "--target=main", "--profile=general", "-i"];
    let script = "read -r line; echo got $line; tr '\\0' ' ' </proc/1/cmdline; echo; read -r line; exit 3";
    let mut kubectl = single.kubectl.start(&[&debug[..], &["--", "sh", "-c", script]].concat());
    let mut lines = BufReader::new(kubectl.stdout.take().expect("its output")).lines();
    // Its end would detach kubectl, because such a container may be attached to again.
    let mut stdin = kubectl.stdin.take().expect("its input");
    stdin.write_all(b"typed\n").expect("it is typed");
    let mut shown: Vec<String> = Vec::new();
    while !shown.last().is_some_and(|line| line.contains("httpd -f -p 8080")) {
        let Some(line) = lines.next() else { panic!("only {shown:?}") };
        shown.push(line.expect("text"));
    }
    assert!(shown.contains(&"got typed".to_owned()), "{shown:?}");
    // The container ends after its output was shown: that of one which ends at once may be lost.
    stdin.write_all(b"end\n").expect("it is typed");
    kubectl.wait().expect("kubectl ends");
    drop(stdin);
    let pod = pod_when(single, "web", "has a debugger that ended", |pod| {
        container(pod, "debugger")["state"]["terminated"].is_object()
    });
    assert_eq!(container(&pod, "debugger")["state"]["terminated"]["exitCode"], 3);
    assert_eq!((condition(&pod, "Ready"), restarts(&pod, "main")), ("True", 0));
    let again = single.kubectl.ok(&["logs", "web", "-c", "debugger"]);
    assert!(again.starts_with("got typed\n"), "{again}");
}

/// A second pod with the containers of the first, one of them with another program.
fn debugs_a_copy(single: &SingleNode) {
    let copy = ["debug", "web", "--copy-to=copy", "--container=main", "--attach=false", "--same-node"];
    single.kubectl.ok(&[&copy[..], &["--profile=general", "--", "sh", "-c", FOREVER]].concat());
    let pod = pod_when(single, "copy", "runs", |pod| pod["status"]["phase"] == "Running");
    assert_eq!((pod["spec"]["nodeName"].as_str(), condition(&pod, "Ready")), (Some("node"), "True"));
    single.kubectl.ok(&["delete", "pod", "copy", "--grace-period=1"]);
}

/// A pod in the namespaces of the node, with its files.
fn debugs_the_node(single: &SingleNode) {
    let marker = single.node.path("marker");
    std::fs::write(&marker, "of the node\n").expect("a file");
    let (image, path) = (format!("--image={IMAGE}"), format!("/host{}", marker.display()));
    let debug = ["debug", "node/node", &image, "--profile=general", "--attach=false", "--", "cat", &path];
    let said = single.kubectl.run(&debug, "");
    let said = format!("{}{}", stdout(&said), stderr(&said));
    let name = said.split_whitespace().find(|word| word.starts_with("node-debugger-node-"));
    let name = name.unwrap_or_else(|| panic!("no name of a pod in {said:?}"));
    assert_eq!(has_ended(single, name)["status"]["phase"], "Succeeded");
    assert_eq!(single.kubectl.ok(&["logs", name]), "of the node\n");
    single.kubectl.ok(&["delete", "pod", name]);
}

#[test]
fn kubectl_cordon_drain_uncordon_top_and_auth_do_what_they_do_on_a_cluster() {
    let single = SingleNode::start();
    let mut scratch = shell_pod("scratch", FOREVER);
    scratch["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
    single.node.apply("static", &shell_pod("static", FOREVER));
    single.kubectl.apply(&[shell_pod("web", FOREVER), scratch]);
    let [web, scratch, mirror] = ["web", "scratch", "static-node"].map(|name| single.running(name));
    cordoned_node_takes_no_new_pod(&single);
    drains(&single, &[&web, &scratch]);
    assert_eq!(single.kubectl.get("pod", "static-node").map(|pod| uid(&pod)), Ok(uid(&mirror)));
    assert_eq!(condition(&single.running("static-node"), "Ready"), "True");
    assert_eq!(single.kubectl.ok(&["uncordon", "node"]), "node/node uncordoned\n");
    single.running("late");
    shows_usage(&single);
    says_what_a_user_may_do(&single);
}

fn cordoned_node_takes_no_new_pod(single: &SingleNode) {
    assert_eq!(single.kubectl.ok(&["cordon", "node"]), "node/node cordoned\n");
    assert!(single.kubectl.ok(&["get", "nodes"]).contains(" Ready,SchedulingDisabled "));
    single.kubectl.apply(&[shell_pod("late", FOREVER)]);
    let late = pod_when(single, "late", "waits", |pod| condition(pod, "PodScheduled") == "False");
    let scheduled = &late["status"]["conditions"][0];
    let message = "0/1 nodes are available: 1 node(s) were unschedulable";
    assert_eq!((&scheduled["reason"], &scheduled["message"]), (&json!("Unschedulable"), &json!(message)));
    says(&single.node, "late", 3, &["It waits until this node takes new pods.", message, "kubectl uncordon"]);
}

fn drains(single: &SingleNode, pods: &[&Value]) {
    let needs = refused(single, &["drain", "node"]);
    assert!(needs.contains(NEEDS_FORCE), "{needs}");
    assert!(needs.contains("cannot delete Pods with local storage (use --delete-emptydir-data"), "{needs}");
    let budget = ["create", "poddisruptionbudget", "one", "--selector=app=web", "--min-available=1"];
    let budget = refused(single, &budget);
    assert!(budget.contains("poddisruptionbudgets.policy are not served here"), "{budget}");
    let drain = ["drain", "node", "--force", "--delete-emptydir-data", "--timeout=60s"];
    let drained = single.kubectl.run(&drain, "");
    assert!(drained.status.success(), "{drained:?}");
    let shown = stdout(&drained);
    for expected in ["node/node already cordoned\n", "pod/web evicted\n", "pod/scratch evicted\n"] {
        assert!(shown.contains(expected), "{expected:?} is missing in {shown}");
    }
    assert!(shown.ends_with("node/node drained\n"), "{shown}");
    assert!(stderr(&drained).contains("Warning: deleting Pods that declare no controller"), "{drained:?}");
    for pod in pods {
        let uid = uid(pod);
        single.node.eventually("nothing is left of an evicted pod", |node| node.has_no_trace_of(&uid));
    }
}

/// The columns of a table of kubectl, and its row of that object. The node measures a rate of CPU from two readings, so that the first answer
/// may have none.
fn row_of(single: &SingleNode, name: &str, arguments: &[&str]) -> (String, Vec<String>) {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    single.node.eventually(&format!("kubectl {arguments:?} shows {name}"), |_| {
        let table = single.kubectl.attempt(arguments)?;
        let mut lines = table.lines().map(words);
        let columns = lines.next().unwrap_or_default().join(" ");
        lines
            .find(|row| row.first().is_some_and(|first| first == name))
            .map(|row| (columns, row))
            .ok_or(table)
    })
}

fn shows_usage(single: &SingleNode) {
    let number = |text: &str, unit: &str| {
        text.strip_suffix(unit)
            .and_then(|number| number.parse::<u64>().ok())
            .unwrap_or_else(|| panic!("{text}"))
    };
    let (columns, node) = row_of(single, "node", &["top", "node"]);
    assert_eq!(columns, "NAME CPU(cores) CPU(%) MEMORY(bytes) MEMORY(%)");
    assert!(number(&node[3], "Mi") > 10 && number(&node[4], "%") <= 100, "{node:?}");
    let (columns, late) = row_of(single, "late", &["top", "pod", "--containers"]);
    assert_eq!((columns.as_str(), late[1].as_str()), ("POD NAME CPU(cores) MEMORY(bytes)", "main"));
    assert!(number(&late[2], "m") < 1000 && number(&late[3], "Mi") < 500, "{late:?}");
    // A mirror pod has another UID than its static pod, which the kubelet measures.
    let (columns, mirror) = row_of(single, "static-node", &["top", "pod"]);
    assert_eq!((columns.as_str(), mirror.len()), ("NAME CPU(cores) MEMORY(bytes)", 3));
    let gone = refused(single, &["top", "pod", "gone"]);
    assert_eq!(gone, "Error from server (NotFound): pods \"gone\" not found\n");
}

fn says_what_a_user_may_do(single: &SingleNode) {
    let may = |arguments: &[&str]| {
        let output = single.kubectl.run(&[&["auth", "can-i"], arguments].concat(), "");
        (stdout(&output).trim().to_owned(), output.status.code())
    };
    let (yes, no) = (("yes".to_owned(), Some(0)), ("no".to_owned(), Some(1)));
    let robot = "--as=system:serviceaccount:default:default";
    assert_eq!(may(&["delete", "pods"]), yes);
    assert_eq!(may(&["create", "pods", "--subresource=exec"]), yes);
    assert_eq!(may(&["list", "pods", robot]), no);
    let role = ["create", "rolebinding", "views", "--clusterrole=view", "--serviceaccount=default:default"];
    single.kubectl.ok(&role);
    assert_eq!(may(&["list", "pods", robot]), yes);
    assert_eq!(may(&["list", "secrets", robot]), no);
    assert_eq!(may(&["list", "pods", robot, "-n", "kube-system"]), no);
    assert_eq!(may(&["--list", robot]).1, Some(0));
}
