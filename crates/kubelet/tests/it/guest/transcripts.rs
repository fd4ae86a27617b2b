//! What `kubelet why` answers while the machine shuts down, and while logind cannot report that it does: pages of
//! docs/operate/transcripts.

use std::process::{Command, Stdio};

use serde_json::json;

use super::shutdown::{HarmlessHalt, node_with_inhibitor, run, slow, wait_for_inhibitor};
use crate::node::{FOREVER, shell_pod};
use crate::transcripts::Page;

const LOGIND: &str = "systemd-logind.service";

#[test]
#[ignore = "needs systemd and logind: scripts/vm"]
fn shutdown_of_the_machine_is_named_by_the_node_and_its_pods() {
    let end = HarmlessHalt::new();
    let node = node_with_inhibitor();
    node.apply("web", &slow("web", 25, &json!({})));
    node.running("web");
    end.announce();
    let page = Page::new(
        &node,
        "node-shutdown",
        "The machine shuts down",
        "A node was rebooted with `shutdownGracePeriod: 120s`. logind waits until the pods have ended, those of low priority first. \
         The pod takes 25 s to end, and another one came too late.",
    )
    .says(&["why", "node"], 3, &["the machine is shutting down", "their time ends at"])
    .says(&["why", "web"], 3, &["The machine is shutting down.", "imminent node shutdown"]);
    node.apply("late", &shell_pod("late", FOREVER));
    page.says(&["why", "late"], 4, &["NodeShutdown", "after the machine has started"])
        .says(&["why", "web"], 4, &["The pod failed (Terminated).", "starts again with the machine"])
        .end();
}

/// While this exists, logind is away and nothing starts it.
struct LogindAway;

impl LogindAway {
    fn new() -> Self {
        run("systemctl", &["mask", "--runtime", LOGIND]);
        run("systemctl", &["kill", "--signal=KILL", LOGIND]);
        Self
    }
}

impl Drop for LogindAway {
    fn drop(&mut self) {
        for arguments in [&["unmask", "--runtime", LOGIND][..], &["reset-failed", LOGIND], &["start", LOGIND]]
        {
            let _ = Command::new("systemctl").args(arguments).stderr(Stdio::null()).status();
        }
    }
}

#[test]
#[ignore = "needs systemd and logind: scripts/vm"]
fn restarted_message_bus_and_absent_logind_are_named_until_the_node_is_connected_again() {
    let end = HarmlessHalt::new();
    let node = node_with_inhibitor();
    node.apply("web", &shell_pod("web", FOREVER));
    node.running("web");
    let away = LogindAway::new();
    // The next connection starts it again.
    run("systemctl", &["kill", "--signal=KILL", "dbus.service"]);
    let page = Page::new(
        &node,
        "logind-away",
        "The message bus was restarted",
        "An update restarted D-Bus, and logind did not come back. Pods run on. Once logind runs again, the node connects to it by \
         itself, and notices the next shutdown.",
    )
    .says(&["why", "node"], 3, &["no connection to logind", "systemctl status dbus systemd-logind"])
    .says(&["why", "web"], 0, &["The pod runs and is ready."]);
    drop(away);
    let page = page.says(&["why", "node"], 0, &["The node is ready, and nothing is wrong."]);
    wait_for_inhibitor(&node);
    end.announce();
    page.says(&["why", "node"], 3, &["the machine is shutting down"]).end();
}
