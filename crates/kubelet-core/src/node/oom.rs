//! Kernel log records about processes that the OOM killer ended (docs/behaviour/node-status.md). The runtime reports a
//! container that exceeds its own limit; the node reports processes that died because the whole machine was out of memory.

/// The reason of the event.
pub const SYSTEM_OOM: &str = "SystemOOM";

/// A process that the kernel ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomKill<'a> {
    pub pid: u32,
    pub process: &'a str,
    /// The whole machine was out of memory, not one cgroup.
    pub is_of_machine: bool,
}

/// Parses one record of the log, as `/dev/kmsg` returns it (`6,1234,5678,-;text`) or as bare text.
#[must_use]
pub fn parse_oom_kill(record: &str) -> Option<OomKill<'_>> {
    let text = match record.split_once(';') {
        Some((head, text)) if head.starts_with(|c: char| c.is_ascii_digit()) => text,
        Some(_) | None => record,
    };
    let (before, after) = text.split_once("Killed process ")?;
    let (pid, rest) = after.split_once(" (")?;
    // A process may have any name; the text after it has no brackets.
    let (process, _) = rest.rsplit_once(')')?;
    let is_of_machine = before.starts_with("Out of memory");
    let is_of_cgroup = before.starts_with("Memory cgroup out of memory");
    (is_of_machine || is_of_cgroup)
        .then(|| Some(OomKill { pid: pid.parse().ok()?, process, is_of_machine }))
        .flatten()
}

/// The message of the event about the node.
#[must_use]
pub fn system_oom_message(kill: &OomKill<'_>) -> String {
    format!("System OOM encountered, victim process: {}, pid: {}", kill.process, kill.pid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(record: &str, expected: &str) {
        let found = parse_oom_kill(record).map(|kill| {
            let scope = if kill.is_of_machine { "machine" } else { "cgroup" };
            format!("{scope}: {}", system_oom_message(&kill))
        });
        assert_eq!(found.as_deref().unwrap_or("-"), expected, "{record}");
    }

    #[test]
    fn oom_kill_record_yields_process_and_scope() {
        let rest = "total-vm:34632kB, anon-rss:32512kB, file-rss:1392kB, shmem-rss:0kB, UID:0 pgtables:108kB oom_score_adj:0";
        let message = "System OOM encountered, victim process: tail, pid: 29358";
        check(
            &format!("3,99,11903006446,-;Out of memory: Killed process 29358 (tail) {rest}"),
            &format!("machine: {message}"),
        );
        check(
            &format!("3,99,1,-;Memory cgroup out of memory: Killed process 29358 (tail) {rest}"),
            &format!("cgroup: {message}"),
        );
        check(
            &format!("Out of memory (oom_kill_allocating_task): Killed process 7 (a (b) c) {rest}"),
            "machine: System OOM encountered, victim process: a (b) c, pid: 7",
        );
    }

    #[test]
    fn records_that_are_not_oom_kills_are_ignored_even_if_a_container_wrote_them() {
        for record in [
            "",
            "6,1,2,-;sh invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=999",
            "6,1,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),task=sh,pid=21419,uid=0",
            "6,1,2,-;sh wrote: Out of memory: Killed process 7 (a) b",
            "6,1,2,-;Out of memory: Killed process seven (a) b",
            "6,1,2,-;Out of memory: Killed process 7",
            " SUBSYSTEM=net",
        ] {
            check(record, "-");
        }
    }
}
