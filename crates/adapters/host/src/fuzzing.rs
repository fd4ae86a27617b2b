//! Fuzz targets (`scripts/fuzz`) for input from the machine: D-Bus messages, the mount table, processes. Each function takes any
//! bytes, and panics where a promise is broken. What was found once lies in `fuzz/corpus`, and is tried again with every test
//! run.

use std::os::unix::ffi::OsStrExt;

use crate::{dbus, exec_trace, mounts};

/// A name, which is also that of a corpus, and what is done with each input.
pub type Target = (&'static str, fn(&[u8]));

pub const TARGETS: &[Target] =
    &[("dbus_messages", dbus_messages), ("mountinfo", mountinfo), ("exec_process_stat", exec_process_stat)];

/// What is read of a connection is never more than came over it, and the same in whatever pieces it comes.
pub fn dbus_messages(data: &[u8]) {
    let Some((choice, data)) = data.split_first() else { return };
    let (whole, pieces) = (dbus::read_all(data, data.len()), dbus::read_all(data, usize::from(*choice) + 1));
    assert_eq!(whole, pieces);
    assert!(whole.iter().map(Vec::len).sum::<usize>() <= data.len());
}

/// Each line is a mount or none, and no path is longer than the line.
pub fn mountinfo(data: &[u8]) {
    let lines = data.split(|byte| *byte == b'\n').count();
    let table = mounts::parse_table(data);
    assert!(table.len() <= lines);
    for mount in &table {
        let length = mount.mount_point.as_os_str().as_bytes().len() + mount.root.as_os_str().as_bytes().len();
        assert!(length <= data.len());
    }
}

/// A process has the numbers behind its name, whatever the name is.
pub fn exec_process_stat(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    exec_trace::check_stat(&text);
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_corpus_violates_no_property() {
        fixtures::run_fuzz_corpus(super::TARGETS);
    }
}
