//! What a process has used so far, as `/proc` says it: private memory, processor time, and how often its threads woke up.

use std::collections::BTreeMap;
use std::fs;

use crate::{BenchError, Outcome, failed};
use harness::node::cpu_seconds_in;

#[derive(Debug)]
pub(crate) struct Usage {
    /// What is no part of a file, such as the heap.
    pub(crate) private_bytes: u64,
    /// User and system time, in seconds.
    pub(crate) cpu_seconds: f64,
    /// How often each thread gave its processor up to wait: each time something woke it up again.
    waits: BTreeMap<u32, u64>,
}

impl Usage {
    pub(crate) fn of(pid: u32) -> Outcome<Self> {
        let read = |file: &str| {
            fs::read_to_string(format!("/proc/{pid}/{file}"))
                .map_err(failed(format!("read {file} of process {pid}")))
        };
        let memory = read("smaps_rollup")?;
        let kilobytes = number_after(&memory, "Anonymous:");
        let private_bytes = kilobytes.ok_or_else(|| BenchError(format!("no private memory in: {memory}")))?;
        let cpu_seconds = cpu_seconds_in(&read("stat")?)?;
        let of_thread = |thread: u32| {
            // One that has ended since does not count.
            let status = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).ok()?;
            Some((thread, number_after(&status, "voluntary_ctxt_switches:")?))
        };
        let waits = threads(pid)?.into_iter().filter_map(of_thread).collect();
        Ok(Self { private_bytes: private_bytes * 1024, cpu_seconds, waits })
    }

    /// How often its threads woke up since then. What a thread that ended did is missing.
    pub(crate) fn wake_ups_since(&self, before: &Self) -> u64 {
        let earlier = |thread| before.waits.get(thread).copied().unwrap_or_default();
        self.waits.iter().map(|(thread, count)| count.saturating_sub(earlier(thread))).sum()
    }
}

/// The child of a process that has this argument, started by any of its threads.
pub(crate) fn child_with_argument(pid: u32, argument: &str) -> Outcome<u32> {
    let children =
        |thread: u32| fs::read_to_string(format!("/proc/{pid}/task/{thread}/children")).unwrap_or_default();
    let listed: String = threads(pid)?.into_iter().map(children).collect();
    let has_argument = |child: &u32| {
        fs::read(format!("/proc/{child}/cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|given| given == argument.as_bytes()))
    };
    let found = listed.split_whitespace().filter_map(|pid| pid.parse().ok()).find(has_argument);
    found.ok_or_else(|| BenchError(format!("process {pid} has no child with the argument {argument}")))
}

fn threads(pid: u32) -> Outcome<Vec<u32>> {
    let entries =
        fs::read_dir(format!("/proc/{pid}/task")).map_err(failed("list the threads of a process"))?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect())
}

/// The number in the line that begins with this field.
fn number_after(text: &str, field: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(field)?.split_whitespace().next()?.parse().ok())
}
