//! Container logs on disk: links, rotation, and what is collected when nobody needs it any more.

use std::path::Path;

use serde_json::json;

use crate::killed::share;
use crate::node::{FOREVER, Node, container, names_in, once_pod, restarts, shell_pod, uid};

fn log_dir(node: &Node, name: &str, uid: &str) -> std::path::PathBuf {
    node.path("logs/pods").join(format!("default_{name}-node_{uid}")).join("main")
}

#[test]
fn a_log_that_grows_is_rotated_and_compressed_and_the_oldest_goes() {
    let node = Node::start_with(json!({
        "containerLogMaxSize": "2Ki", "containerLogMaxFiles": 3, "containerLogMonitorInterval": "3s",
    }));
    let script =
        "n=0; while :; do n=$((n+1)); echo line $n of a container that has much to say; sleep 0.02; done";
    node.apply("talker", &shell_pod("talker", script));
    let pod = node.running("talker");
    let dir = log_dir(&node, "talker", &uid(&pod));
    let mut seen = std::collections::BTreeSet::new();
    node.eventually("the first compressed log was removed again", |_| {
        let names = names_in(&dir);
        assert!(names.len() <= 5, "three files, and what a rotation just works on: {names:?}");
        seen.extend(names.iter().filter(|name| name.ends_with(".gz")).cloned());
        let first_is_gone = seen.first().is_some_and(|first| !names.contains(first));
        if first_is_gone { Ok(()) } else { Err(format!("{names:?}")) }
    });
    let names = node.eventually("three files are there", |_| {
        let mut names = names_in(&dir);
        names.sort();
        let is_settled = names.len() == 3 && !names.iter().any(|name| name.ends_with(".tmp"));
        if is_settled { Ok(names) } else { Err(format!("{names:?}")) }
    });
    assert_eq!(names[0], "0.log");
    assert!(names[1].starts_with("0.log.20") && names[1].ends_with(".gz"), "{names:?}");
    assert!(names[2].starts_with("0.log.20") && !names[2].ends_with(".gz"), "{names:?}");
    // The runtime goes on in the new file.
    let grown = std::fs::metadata(dir.join("0.log")).expect("the live log").len();
    node.eventually("the live log grows", |_| {
        let now = std::fs::metadata(dir.join("0.log")).map(|m| m.len()).map_err(|e| e.to_string())?;
        if now == grown { Err(now.to_string()) } else { Ok(()) }
    });
}

#[test]
fn links_for_log_collectors_point_to_the_logs_of_each_instance() {
    let node = Node::start();
    node.apply("linked", &shell_pod("linked", "echo hello; test -e /tmp/x; exit 1"));
    let pod = node.pod_when("linked", "was restarted", |pod| restarts(pod, "main") == 1);
    let links = node.path("logs/containers");
    let ids = ["containerID"].map(|field| container(&pod, "main")["lastState"]["terminated"][field].clone());
    let first = ids[0].as_str().expect("an id").trim_start_matches("containerd://").to_owned();
    let link = links.join(format!("linked-node_default_main-{first}.log"));
    let target = std::fs::read_link(&link).expect("a link of the first instance");
    assert_eq!(target, log_dir(&node, "linked", &uid(&pod)).join("0.log"));
    let text = std::fs::read_to_string(&link).expect("the log behind the link");
    assert!(text.ends_with("stdout F hello\n"), "{text}");
}

/// The collector comes by every minute, so this one test looks at everything that it does.
#[test]
fn dead_containers_beyond_one_and_logs_of_gone_pods_are_collected() {
    let node = Node::start_with(json!({
        "featureGates": {"KubeletCrashLoopBackOffMax": true},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "2s"},
    }));
    node.apply("crasher", &shell_pod("crasher", "exit 1"));
    node.apply("done", &once_pod("done", "echo done"));
    node.apply("web", &shell_pod("web", FOREVER));
    let (crasher, web) = (node.pod_when("crasher", "is known", |_| true), node.running("web"));
    let foreign = node.path("logs/pods/default_gone-node_00000000-0000-0000-0000-000000000000");
    std::fs::create_dir_all(foreign.join("main")).expect("a log directory");
    std::fs::write(foreign.join("main/0.log"), "").expect("a log");
    let dangling = node.path("logs/containers/gone-node_default_main-0123456789abcdef.log");
    std::os::unix::fs::symlink(foreign.join("main/0.log.gone"), &dangling).expect("a link");
    node.pod_when("crasher", "was restarted often", |pod| restarts(pod, "main") >= 4);
    node.eventually("what nobody needs is gone", |_| {
        if foreign.exists() || std::fs::symlink_metadata(&dangling).is_ok() {
            return Err("the log or the link of a pod that is gone".to_owned());
        }
        Ok(())
    });
    let ids = node.runtime_ids(&uid(&crasher)).expect("the runtime answers");
    assert!(ids.len() <= 4, "a sandbox, the last dead one, a new one, and at most one more since: {ids:?}");
    assert!(log_dir(&node, "web", &uid(&web)).join("0.log").exists());
    let done = node.pod("done").expect("the pod");
    assert!(has_a_log(&log_dir(&node, "done", &uid(&done))));
    assert_eq!(container(&done, "main")["state"]["terminated"]["reason"], "Completed");
}

/// Three nodes side by side, because the collector comes by every minute.
#[test]
fn the_flags_about_dead_containers_decide_how_many_stay() {
    let patient = collected_node(&["--minimum-container-ttl-duration=1h"]);
    let generous = collected_node(&["--maximum-dead-containers-per-container=3"]);
    let capped =
        collected_node(&["--maximum-dead-containers-per-container=3", "--maximum-dead-containers=2"]);
    for (node, kept, why) in [
        (&patient, 5, "none is an hour old"),
        (&generous, 3, "three of a container stay"),
        (&capped, 2, "two stay on the whole node"),
    ] {
        let pod = node.pod_when("crasher", "has crashed enough", |pod| {
            restarts(pod, "main") == 5 && container(pod, "main")["state"]["running"].is_object()
        });
        node.eventually("the collector came by", |node| {
            let is_there = std::fs::symlink_metadata(node.path("logs/containers").join(DANGLING)).is_ok();
            if is_there { Err("the link of a pod that is gone".to_owned()) } else { Ok(()) }
        });
        node.eventually(why, |node| {
            let ids = node.runtime_ids(&uid(&pod))?;
            // A sandbox and the instance that runs are no dead ones.
            if ids.len() == kept + 2 { Ok(()) } else { Err(format!("{why}: {ids:?}")) }
        });
    }
}

const DANGLING: &str = "gone-node_default_main-0123456789abcdef.log";

/// A node with the flags, on which a container crashes five times and then stays.
fn collected_node(flags: &[&str]) -> Node {
    let mut node = Node::on_containerd(json!({
        "featureGates": {"KubeletCrashLoopBackOffMax": true},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},
    }));
    node.add_flags(flags);
    node.start_kubelet();
    let links = node.path("logs/containers");
    std::fs::create_dir_all(&links).expect("a directory for links");
    std::os::unix::fs::symlink(node.path("nowhere"), links.join(DANGLING)).expect("a link");
    let script =
        format!("echo run >> /shared/runs; if [ $(wc -l < /shared/runs) -le 5 ]; then exit 1; fi; {FOREVER}");
    let mut pod = shell_pod("crasher", &script);
    share(&mut pod, &node.path("shared"));
    node.apply("crasher", &pod);
    node
}

fn has_a_log(dir: &Path) -> bool {
    names_in(dir).iter().any(|name| name.ends_with(".log"))
}
