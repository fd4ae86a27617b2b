//! A log that is not read, as when journald hangs: the node continues, and reports afterwards how many lines were dropped.

use std::io::{BufRead, BufReader};
use std::time::{Duration, Instant};

use fakes::FakeRuntime;
use serde_json::{Value, json};

use crate::node::{FOREVER, Node, shell_pod};

/// These libraries log from `-v 8` on: a page of memory full of lines for each call to the runtime.
const VERBOSE: [&str; 2] = ["-v", "8"];

/// A pod whose image the fake runtime has to pull.
fn fake_pod(name: &str) -> Value {
    let mut pod = shell_pod(name, FOREVER);
    pod["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent".into();
    pod
}

#[test]
fn stalled_reader_of_the_kubelet_log_delays_nothing_and_sees_the_count_of_dropped_lines() {
    let runtime = FakeRuntime::with_clock(ports::Clock::system());
    let mut node = Node::with_fake(&runtime, json!({}));
    node.add_flags(&VERBOSE);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    node.spawn_kubelet_logging_to(writer);
    node.eventually("the kubelet serves /pods", |node| node.get("/pods").map(|_| ()));
    // Each one calls the runtime and causes hundreds of lines: far more than the pipe and the queue hold.
    for _ in 0..100 {
        let answer = crate::server::get(&node, "/runningpods/").expect("an answer");
        assert_eq!(answer.status, 200);
    }
    node.apply("web", &fake_pod("web"));
    node.running("web");
    let began = Instant::now();
    assert_eq!(node.healthz().expect("an answer"), "ok");
    assert!(began.elapsed() < fixtures::stretched(Duration::from_secs(5)), "{:?}", began.elapsed());

    let mut lines = BufReader::new(reader).lines();
    let count = lines.find_map(|line| {
        let line = line.expect("a line");
        let (_, count) = line.split_once("Dropped log lines because the log was not read\" count=")?;
        count.trim().parse::<u64>().ok()
    });
    assert!(count.expect("it reports how many were dropped") > 0);
    node.apply("second", &fake_pod("second"));
    // Read to the end, or the pipe would be full again.
    let reading = std::thread::spawn(move || lines.count());
    node.running("second");
    node.kill_kubelet();
    assert!(reading.join().expect("read to the end") > 0);
}
