//! Rotation of container logs: what to rename, compress and remove.
//!
//! Owns: the order of steps and the names of rotated files. Never: touching a file, calling the runtime.
//!
//! `0.log` is the live file; `0.log.20240131-235959` was just rotated and may still have readers;
//! `0.log.20240131-235958.gz` is older.

use std::collections::BTreeSet;

use jiff::civil::DateTime;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPolicy {
    /// A live file of this size is rotated.
    pub bytes_max: u64,
    /// Files of one container, the live one included; at least 2.
    pub files_max: usize,
}

impl Default for LogPolicy {
    fn default() -> Self {
        Self { bytes_max: 10 * 1024 * 1024, files_max: 5 }
    }
}

/// A file in the directory of a container's logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    pub name: String,
    pub size_bytes: u64,
}

/// Steps for files in one directory, by their names. A step that fails ends the rotation; the next check continues it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogStep {
    Remove {
        file: String,
        why: LogRemoval,
    },
    /// Write `file` to `file.gz`, then remove it.
    Compress {
        file: String,
    },
    /// There is no live file: a kubelet that ended between the rename and the reopen left the container without one. The
    /// runtime is called to reopen it.
    Reopen,
    /// Rename the live file and call the runtime to reopen it. If that fails, rename it back, because the runtime still
    /// writes to the renamed file.
    Rotate {
        from: String,
        to: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRemoval {
    /// Left by a compression that was interrupted.
    Unfinished,
    /// Its compressed copy is complete.
    AlreadyCompressed,
    /// Newer ones reach the maximum number of files.
    TooMany,
}

/// The steps for the live log `live` among the `files` of its directory. Empty while it is small. `now` is the machine's
/// local time, by which rotated files are named and sorted, as in the Go kubelet.
#[must_use]
pub fn compute_log_rotation(live: &str, files: &[LogFile], policy: LogPolicy, now: DateTime) -> Vec<LogStep> {
    if !files.iter().any(|file| file.name == live) {
        return vec![LogStep::Reopen];
    }
    let is_big = |file: &LogFile| file.name == live && file.size_bytes >= policy.bytes_max;
    let target = format!("{live}.{}", now.strftime("%Y%m%d-%H%M%S"));
    let names: BTreeSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
    // Already rotated in this second: the same name would overwrite that file. The next check uses another name.
    let is_taken = names.contains(target.as_str()) || names.contains(format!("{target}.gz").as_str());
    if !files.iter().any(is_big) || is_taken {
        return Vec::new();
    }
    let mut steps = Vec::new();
    let mut rotated = Vec::new();
    for name in &names {
        match Role::of(live, name) {
            Role::Foreign => {}
            Role::Unfinished => steps.push(remove(name, LogRemoval::Unfinished)),
            Role::Rotated if names.contains(format!("{name}.gz").as_str()) => {
                steps.push(remove(name, LogRemoval::AlreadyCompressed));
            }
            Role::Rotated | Role::Compressed => rotated.push(*name),
        }
    }
    // One slot is for the live file, one for the file that it is renamed to.
    let slots = policy.files_max.saturating_sub(2);
    let excess = rotated.len().saturating_sub(slots);
    steps.extend(rotated.drain(..excess).map(|name| remove(name, LogRemoval::TooMany)));
    let plain = rotated.into_iter().filter(|name| Role::of(live, name) == Role::Rotated);
    steps.extend(plain.map(|name| LogStep::Compress { file: name.to_owned() }));
    steps.push(LogStep::Rotate { from: live.to_owned(), to: target });
    steps
}

fn remove(name: &str, why: LogRemoval) -> LogStep {
    LogStep::Remove { file: name.to_owned(), why }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Rotated,
    Compressed,
    Unfinished,
    /// A file of another container instance or of another program. The live file counts here: it is never compressed or
    /// removed.
    Foreign,
}

impl Role {
    fn of(live: &str, name: &str) -> Self {
        let suffix = name.strip_prefix(live).and_then(|rest| rest.strip_prefix('.'));
        match suffix.and_then(|suffix| suffix.split_at_checked(15)) {
            Some((stamp, "")) if is_stamp(stamp) => Self::Rotated,
            Some((stamp, ".gz")) if is_stamp(stamp) => Self::Compressed,
            Some((stamp, rest)) if is_stamp(stamp) && rest.ends_with(".tmp") => Self::Unfinished,
            _ => Self::Foreign,
        }
    }
}

fn is_stamp(text: &str) -> bool {
    text.char_indices().all(|(at, c)| if at == 8 { c == '-' } else { c.is_ascii_digit() })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    use super::*;

    fn now() -> DateTime {
        jiff::civil::date(2024, 2, 3).at(4, 5, 6, 0)
    }

    /// `0.log=100 0.log.20240101-000000=5`: files and their sizes, with a limit of 100 bytes.
    fn files(text: &str) -> Vec<LogFile> {
        let words = text.split_whitespace().map(|word| word.split_once('=').unwrap_or((word, "1")));
        words
            .map(|(name, size)| LogFile { name: name.to_owned(), size_bytes: size.parse().expect("a size") })
            .collect()
    }

    fn shown(steps: &[LogStep]) -> String {
        let step = |step: &LogStep| match step {
            LogStep::Remove { file, why } => format!("remove {file} ({why:?})"),
            LogStep::Compress { file } => format!("compress {file}"),
            LogStep::Reopen => "reopen".to_owned(),
            LogStep::Rotate { from, to } => format!("rotate {from} to {to}"),
        };
        steps.iter().map(step).collect::<Vec<_>>().join("\n")
    }

    #[track_caller]
    fn check(files_max: usize, text: &str, expected: Expect) {
        let policy = LogPolicy { bytes_max: 100, files_max };
        expected.assert_eq(&shown(&compute_log_rotation("0.log", &files(text), policy, now())));
    }

    #[test]
    fn a_log_is_rotated_when_it_reaches_its_size() {
        check(5, "0.log=99", expect![[""]]);
        check(5, "0.log=100", expect!["rotate 0.log to 0.log.20240203-040506"]);
    }

    #[test]
    fn a_missing_live_log_is_reopened() {
        check(5, "", expect!["reopen"]);
        check(5, "1.log=1000", expect!["reopen"]);
        check(5, "0.log.20240203-040505=1000", expect!["reopen"]);
    }

    /// `container_log_manager_test.go`: TestRotateLogs, TestCleanupUnusedLog, TestRemoveExcessLog, TestGetAllLogs.
    #[test]
    fn rotation_tables_of_the_go_kubelet() {
        check(3, "0.log=50", expect![[""]]);
        check(3, "0.log=200", expect!["rotate 0.log to 0.log.20240203-040506"]);
        check(
            3,
            "0.log=200 0.log.00000000-000001 0.log.00000000-000000.gz",
            expect![[r#"
                remove 0.log.00000000-000000.gz (TooMany)
                compress 0.log.00000000-000001
                rotate 0.log to 0.log.20240203-040506"#]],
        );
        let four = "0.log=200 0.log.00000000-000003.gz 0.log.00000000-000001.gz 0.log.00000000-000002.gz \
                    0.log.00000000-000004.gz";
        check(
            3,
            four,
            expect![[r#"
                remove 0.log.00000000-000001.gz (TooMany)
                remove 0.log.00000000-000002.gz (TooMany)
                remove 0.log.00000000-000003.gz (TooMany)
                rotate 0.log to 0.log.20240203-040506"#]],
        );
        check(6, four, expect!["rotate 0.log to 0.log.20240203-040506"]);
        check(
            20,
            "0.log=200 0.log.11111111-111111.gz 0.log.19880620-000000 0.log.19880620-000000.gz 0.log.20180101-000000 \
             0.log.20180101-000000.tmp",
            expect![[r#"
                remove 0.log.19880620-000000 (AlreadyCompressed)
                remove 0.log.20180101-000000.tmp (Unfinished)
                compress 0.log.20180101-000000
                rotate 0.log to 0.log.20240203-040506"#]],
        );
    }

    #[test]
    fn previously_rotated_logs_are_compressed() {
        check(
            5,
            "0.log=100 0.log.20240101-000000",
            expect![[r#"
            compress 0.log.20240101-000000
            rotate 0.log to 0.log.20240203-040506"#]],
        );
        check(
            5,
            "0.log=100 0.log.20240101-000000.gz 0.log.20240102-000000",
            expect![[r#"
            compress 0.log.20240102-000000
            rotate 0.log to 0.log.20240203-040506"#]],
        );
    }

    #[test]
    fn oldest_rotated_logs_are_removed_first() {
        let old = "0.log.20240101-000000.gz 0.log.20240102-000000.gz 0.log.20240103-000000.gz 0.log.20240104-000000";
        check(
            5,
            &format!("0.log=100 {old}"),
            expect![[r#"
            remove 0.log.20240101-000000.gz (TooMany)
            compress 0.log.20240104-000000
            rotate 0.log to 0.log.20240203-040506"#]],
        );
        check(
            3,
            &format!("0.log=100 {old}"),
            expect![[r#"
            remove 0.log.20240101-000000.gz (TooMany)
            remove 0.log.20240102-000000.gz (TooMany)
            remove 0.log.20240103-000000.gz (TooMany)
            compress 0.log.20240104-000000
            rotate 0.log to 0.log.20240203-040506"#]],
        );
        check(
            2,
            "0.log=100 0.log.20240101-000000",
            expect![[r#"
            remove 0.log.20240101-000000 (TooMany)
            rotate 0.log to 0.log.20240203-040506"#]],
        );
        check(
            0,
            "0.log=100 0.log.20240101-000000",
            expect![[r#"
            remove 0.log.20240101-000000 (TooMany)
            rotate 0.log to 0.log.20240203-040506"#]],
        );
    }

    #[test]
    fn an_interrupted_compression_is_cleaned_up() {
        check(
            5,
            "0.log=100 0.log.20240101-000000 0.log.20240101-000000.gz",
            expect![[r#"
            remove 0.log.20240101-000000 (AlreadyCompressed)
            rotate 0.log to 0.log.20240203-040506"#]],
        );
        check(
            5,
            "0.log=100 0.log.20240101-000000 0.log.20240101-000000.gz.tmp",
            expect![[r#"
            remove 0.log.20240101-000000.gz.tmp (Unfinished)
            compress 0.log.20240101-000000
            rotate 0.log to 0.log.20240203-040506"#]],
        );
        check(
            5,
            "0.log=100 0.log.20240101-000000 0.log.20240101-000000.tmp",
            expect![[r#"
            remove 0.log.20240101-000000.tmp (Unfinished)
            compress 0.log.20240101-000000
            rotate 0.log to 0.log.20240203-040506"#]],
        );
    }

    #[test]
    fn rotation_ignores_foreign_files() {
        check(
            2,
            "0.log=100 0.log.mine 0.log.2024 10.log.20240101-000000 0.log.20240101_000000",
            expect!["rotate 0.log to 0.log.20240203-040506"],
        );
    }

    #[test]
    fn a_second_rotation_within_one_second_waits() {
        check(5, "0.log=100 0.log.20240203-040506", expect![[""]]);
        check(5, "0.log=100 0.log.20240203-040506.gz", expect![[""]]);
    }

    fn any_files() -> impl Strategy<Value = Vec<LogFile>> {
        let name = prop_oneof![
            "0\\.log(\\.2024010[1-5]-00000[0-3](\\.gz|\\.tmp|\\.gz\\.tmp)?)?",
            "[0-9a-zé.-]{0,24}"
        ];
        prop::collection::vec((name, 0..200_u64), 0..12).prop_map(|all| {
            let named: std::collections::BTreeMap<_, _> = all.into_iter().collect();
            named.into_iter().map(|(name, size_bytes)| LogFile { name, size_bytes }).collect()
        })
    }

    proptest! {
        #[test]
        fn the_live_file_is_never_removed_or_compressed(files in any_files(), files_max in 0..7_usize) {
            let policy = LogPolicy { bytes_max: 100, files_max };
            for step in compute_log_rotation("0.log", &files, policy, now()) {
                match step {
                    LogStep::Remove { file, .. } | LogStep::Compress { file } => {
                        prop_assert!(file.starts_with("0.log.2"));
                    }
                    LogStep::Reopen => prop_assert!(files.iter().all(|f| f.name != "0.log")),
                    LogStep::Rotate { to, .. } => prop_assert!(files.iter().all(|f| f.name != to)),
                }
            }
        }

        #[test]
        fn rotation_leaves_at_most_max_files(files in any_files(), files_max in 2..7_usize) {
            let policy = LogPolicy { bytes_max: 0, files_max };
            let steps = compute_log_rotation("0.log", &files, policy, now());
            let mut left: BTreeSet<String> = files.iter().map(|f| f.name.clone()).collect();
            left.retain(|name| Role::of("0.log", name) != Role::Foreign);
            for step in &steps {
                match step {
                    LogStep::Remove { file, .. } => prop_assert!(left.remove(file)),
                    LogStep::Compress { file } => {
                        prop_assert!(left.remove(file));
                        let is_new = left.insert(format!("{file}.gz"));
                        prop_assert!(is_new);
                    }
                    LogStep::Reopen => {}
                    LogStep::Rotate { to, .. } => prop_assert!(left.insert(to.clone())),
                }
            }
            if !steps.is_empty() && steps != [LogStep::Reopen] {
                prop_assert!(left.len() < files_max);
            }
        }
    }
}
