//! The kubelet as a systemd unit: when it counts as started, what happens when it hangs, and what the journal has of it.

use std::process::Command;

use serde_json::json;

use crate::node::{FOREVER, Node, shell_pod, signal};
use crate::server::get;

/// The node's kubelet as a transient unit, stopped when dropped.
struct Unit(String);

impl Unit {
    /// Returns when systemd counts the unit as started.
    fn start(node: &Node) -> Self {
        let name = format!("kubelet-test-{}", node.main_port());
        let kubelet = node.kubelet_command();
        let mut run = Command::new("systemd-run");
        run.arg(format!("--unit={name}")).args([
            "--quiet",
            "--service-type=notify",
            "--property=WatchdogSec=10s",
            "--property=TimeoutAbortSec=2s",
            "--property=Restart=always",
            "--property=RestartSec=100ms",
            "--property=LimitCORE=0",
        ]);
        for (key, value) in kubelet.get_envs() {
            let value = value.unwrap_or_default().to_string_lossy();
            run.arg(format!("--setenv={}={value}", key.to_string_lossy()));
        }
        let output = run.arg("--").arg(kubelet.get_program()).args(kubelet.get_args()).output();
        let output = output.expect("systemd-run runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Self(name)
    }

    fn property(&self, name: &str) -> String {
        let output =
            Command::new("systemctl").args(["show", "--value", "--property", name, &self.0]).output();
        String::from_utf8_lossy(&output.expect("systemctl runs").stdout).trim().to_owned()
    }

    fn pid(&self) -> u32 {
        self.property("MainPID").parse().expect("a process id")
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        let _ = Command::new("systemctl").args(["stop", &self.0]).status();
        let _ = Command::new("systemctl").args(["reset-failed", &self.0]).status();
    }
}

#[test]
#[ignore = "needs systemd: scripts/vm"]
fn systemd_watchdog_restarts_a_hanging_kubelet_and_the_journal_shows_it() {
    let mut node = Node::start_with(json!({"enableSystemLogQuery": true}));
    node.kill_kubelet();
    let unit = Unit::start(&node);
    // systemd-run returned: READY=1 has arrived.
    assert_eq!((unit.property("ActiveState"), unit.property("NRestarts")), ("active".into(), "0".into()));
    node.eventually("it serves", |node| node.get("/pods"));
    node.apply("web", &shell_pod("web", FOREVER));
    let pod = node.running("web");
    let (kubelet, web) = (unit.pid(), node.container_pid(&pod, "main"));
    node.eventually("it was notified more often than one watchdog period requires", |_| {
        let fed = unit.property("WatchdogTimestampMonotonic").parse::<u64>().map_err(|e| e.to_string())?;
        let began =
            unit.property("ActiveEnterTimestampMonotonic").parse::<u64>().map_err(|e| e.to_string())?;
        if fed > began + 11_000_000 { Ok(()) } else { Err(format!("{fed} after {began}")) }
    });
    assert_eq!((unit.pid(), unit.property("NRestarts")), (kubelet, "0".into()));

    signal(kubelet, "STOP");
    node.eventually("systemd has started another one", |_| {
        let restarts = unit.property("NRestarts");
        if restarts == "1" && unit.property("ActiveState") == "active" { Ok(()) } else { Err(restarts) }
    });
    let pod = node.running("web");
    assert_ne!(unit.pid(), kubelet);
    assert_eq!(node.container_pid(&pod, "main"), web, "the pod is not affected");

    let query_journal = |query: &str| {
        let path = format!("/logs/?query={}{query}", unit.0);
        let answer = get(&node, &path).expect("an answer");
        assert_eq!(answer.status, 200, "{query}: {}", answer.body);
        answer.body
    };
    let all = query_journal("");
    assert!(all.contains("Watchdog timeout") && all.matches("Kubelet version").count() == 2, "{all}");
    let starts = query_journal("&pattern=kubelet%20VERSION&boot=0");
    assert_eq!(starts.lines().filter(|line| line.contains("Kubelet version")).count(), 2, "{starts}");
    assert_eq!(query_journal("&pattern=Kubelet%20version&tailLines=1").lines().count(), 1);
    assert_eq!(query_journal("&sinceTime=2999-01-01T00:00:00Z"), "-- No entries --\n");
}
